"""
The client of a server of queues: the verbs of a local queue, over a connection that comes back by itself.

A map of the package:
    address                     what a csp names
    calls                       what is asked, and waited for
    dial, link                  a connection and who is greeted there; the thread that keeps it, for all that is asked
    held                        a consumer as the link has it, with what was sent to it
    messages                    messages, and what their verbs ask
    queue, consumer, reader     what programs use
    awaited                     the same for asyncio
"""

from shmq.net.client.awaited import AsyncQueue, aconnect
from shmq.net.client.consumer import RemoteConsumer
from shmq.net.client.messages import RemoteMessage
from shmq.net.client.queue import RemoteQueue, connect
from shmq.net.client.reader import RemoteReader

__all__ = ["AsyncQueue", "RemoteConsumer", "RemoteMessage", "RemoteQueue", "RemoteReader", "aconnect", "connect"]
