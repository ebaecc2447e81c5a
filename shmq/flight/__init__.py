"""
Queues of other hosts, in bulk: Arrow Flight in front of a directory of queues, and a client of it.

    with shmq.flight.serve("queues/", "grpc://127.0.0.1:8815"):     or: shmq serve queues/ --flight grpc://...
        ...

    client = shmq.flight.connect("grpc://127.0.0.1:8815")
    client.read("orders", 0, 1000)                                  a pyarrow.RecordBatchReader
    client.write("orders", table, dedup=("import", 7))              all of it or nothing, once

The service knows nothing of its clients: killed and started again, it goes on where they are. Needs pyarrow: the extra
`shmq[flight]`.

A map of the package:
    names, words, refusals      which directory a name is; what is asked and answered; errors that cross
    tokens                      who may do what
    service, actions            one root, served; what it does beside the batches
    client, remote              a connection; a queue at its other end, with the verbs of a local one
"""

import logging

from shmq.flight.client import Client, connect
from shmq.flight.refusals import Unreachable
from shmq.flight.remote import RemoteQueue, RemoteStaged
from shmq.flight.service import Service, serve

logging.getLogger("shmq").addHandler(logging.NullHandler())  # silent, unless a program listens

__all__ = ["Client", "RemoteQueue", "RemoteStaged", "Service", "Unreachable", "connect", "serve"]
