"""
Stages of worker processes with durable queues between them: killed, and resumed where they were.

    flow = shmq.Flow("flow/").stage(parse, workers=2).stage(enrich, workers=4, ordered=True).sink(store)
    flow.run(source)

Each stage is a queue and a group; a worker takes an item, calls the function, and puts what comes of it into the next
queue in the same act as it finishes the item (`shmq.Message.forward`). So whatever is killed, each item goes through
each stage, and what comes of it is behind it once.

A map of the package:
    flow        Flow: the stages, and `run`
    plan        what a stage is made with
    place       the directory of one run: its queues, and what is known of it
    feeding     from the source into the first queue
    bench       a worker: from item to outputs, one at a time or in batches
    order       a worker that commits in the order in which the items came
    tries       how often each item was tried, and whom a worker's death is put down to
    counts      how far each stage is; what a run returns
    progress    what people see meanwhile
"""

import logging

from shmq.flow.counts import StageSummary, Summary
from shmq.flow.flow import Flow, StageDied

logging.getLogger("shmq").addHandler(logging.NullHandler())  # silent, unless a program listens

__all__ = ["Flow", "StageDied", "StageSummary", "Summary"]
