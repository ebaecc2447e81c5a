"""
Queues over TCP and Unix sockets: a server of the queues below one directory, which speaks Chronicle's remote services.

    shmq.net.serve("queues/", listen="tcp:127.0.0.1:9000")      as `shmq serve`; it ends with SIGTERM
    q = shmq.net.connect("csp://127.0.0.1:9000/orders")         the verbs of a local queue

A map of the package:
    frames, wires, uri, routes  a stream of bytes as frames; documents; what a service is called; whom calls are for
    hello                       the first documents of a connection
    limits, peer, tokens        what a peer may cost; who it is, and what it costs now; what it may do
    names, service              what a queue is called and where it lies; what is open, and the threads that work
    log, native, cq4            a queue as the services see it: one of ours, one of Chronicle's
    values, writing             how what is submitted lies in a queue of ours; what waits to be appended
    session                     what a connection is at the level of requests
    rfc, lines, verbs, channels the session of the RFC: its order, its calls, its appenders and tailers
    refusals                    what a peer is told when something cannot be done
    addresses, connection, server   where it listens; one connection; the server, and how it ends
    packing, shmq1/             what goes between our own client and the server; the server's side of it
    client/                     that client: `connect`, the verbs of a local queue
"""

import logging

from shmq.net.client import AsyncQueue, RemoteConsumer, RemoteMessage, RemoteQueue, RemoteReader, aconnect, connect
from shmq.net.limits import Limits
from shmq.net.server import serve

logging.getLogger("shmq").addHandler(logging.NullHandler())  # silent, unless a program listens

__all__ = [
    "AsyncQueue",
    "Limits",
    "RemoteConsumer",
    "RemoteMessage",
    "RemoteQueue",
    "RemoteReader",
    "aconnect",
    "connect",
    "serve",
]
