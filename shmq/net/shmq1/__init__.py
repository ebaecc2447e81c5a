"""
The server's side of our own protocol, docs/shmq1.md.

A map of the package:
    session                     one connection: it finds what its client had before, and hands it each request
    asking                      what each verb is asked with
    client                      one client, over all its connections: what it holds, what it was answered
    putting, slots              its batches, each put once; which producer they are of
    consuming, reading          its consumers; what it reads without one
    shared, hub                 what all clients of one queue have in common; who is there
"""

from shmq.net.shmq1.session import Session

__all__ = ["Session"]
