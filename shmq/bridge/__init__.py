"""
Bridges: a queue's messages into NATS JetStream, Redis Streams, Kafka or a POSIX message queue, and theirs into a queue.

    shmq.bridge.send(queue, "nats://host:4222/STREAM")        what `shmq bridge orders nats://host:4222/STREAM` does
    shmq.bridge.receive("redis://host:6379/stream", queue)    and the way back

One process carries one queue to one place, or from one. It remembers nothing by itself: on the way out the target is
asked where it is, on the way in the queue is; so it can be killed anywhere.

A map of the package:
    urls                            what a URL names, and which of the modules below speaks with it
    ends                            the interface: a target, a source, and what goes wrong with them
    carried                         what of a message travels, and how headers fit into those of others
    outward, inward                 the two loops
    trail                           a name that follows what the target has confirmed
    patience                        trying again, and saying so once
    redis_streams, jetstream, kafka, posix_mq    one far end each, the only modules that import what is no part of shmq
"""

from shmq.bridge.ends import Refused
from shmq.bridge.inward import receive
from shmq.bridge.outward import send
from shmq.bridge.urls import PREFIX, is_url

__all__ = ["PREFIX", "Refused", "is_url", "receive", "send"]
