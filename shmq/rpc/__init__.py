"""
Calls to other processes of this machine, without a server between: methods, streams, errors and deadlines that cross.

    server = shmq.rpc.Server("calc/")           a directory, or shm:NAME; any number of servers share it
    @server.method
    def add(a: int, b: int) -> int: ...
    server.serve()

    client = shmq.rpc.Client("calc/")
    client.call("add", 1, 2, timeout=1.0)       or client.calc.add(1, 2); await client.acall("add", 1, 2)
    client.submit("add", 1, 2)                  -> a Future

Requests lie in a queue that servers share as a group; each client has a reply queue of its own, in shared memory, which
goes with it. Nothing is unpickled unless both sides say trusted=True.

A map of the package:
    places, wire                where the queues of a path are; requests and replies as bytes
    border, crossing, errors    types of arguments; errors that come back; what a call can raise
    deadlines                   how long there is, in the caller's process and in the server's
    server, methods, serving    what users make; functions by name; a thread that serves
    jobs, running, answers      a call that is to be run; what it may know; what becomes of it
    replies                     the way to each client
    awaiting, streaming         methods that are coroutines; those that are generators
    client, links, proxies      calls; what is open in this process; calls written as methods
    inbox, waiters, futures     who takes replies; one that waits; calls that nobody waits for yet
    streams                     what a generator yields, where it is read
    cancels                     what is given up, at both ends
"""

import logging

from shmq.rpc.client import Client
from shmq.rpc.crossing import register_error
from shmq.rpc.errors import NoSuchMethod, RemoteError, RpcError, ServerDied, TimedOut, WrongArguments
from shmq.rpc.running import Call, current
from shmq.rpc.server import Server
from shmq.rpc.streams import Stream

logging.getLogger("shmq").addHandler(logging.NullHandler())  # silent, unless a program listens

__all__ = [
    "Call",
    "Client",
    "NoSuchMethod",
    "RemoteError",
    "RpcError",
    "Server",
    "ServerDied",
    "Stream",
    "TimedOut",
    "WrongArguments",
    "current",
    "register_error",
]
