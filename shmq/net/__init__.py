"""
Queues over TCP and Unix sockets: a server of the queues below one directory.

A map of the package:
    frames                      a stream of bytes as frames
    limits, peer                what a peer may cost; who it is, and what it costs now
    names, service              what a queue is called and where it lies; what is open, and the threads that work
    session                     what a connection is at the level of requests
"""

from shmq.net.limits import Limits

__all__ = ["Limits"]
