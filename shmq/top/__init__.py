"""
`shmq top`: queues, who puts and who takes, rates, lags, ages and the disk, live, on a terminal or in a browser.

It reads what is in shared memory, and changes nothing: `Looks` opens each queue to read only.

A map of the package:
    places      which queues there are below some directories
    facts       what is looked at, of one queue
    looks       all of them again and again: rates are differences of two looks
    words       how figures are said
    screen      a terminal, by textual
    web         a page for a browser on this machine, by starlette and uvicorn
"""

from shmq.top.facts import ConsumerFacts, ProcessFacts, QueueFacts
from shmq.top.looks import Look, Looks

__all__ = ["ConsumerFacts", "Look", "Looks", "ProcessFacts", "QueueFacts"]
