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

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq import later
from shmq.top.facts import ConsumerFacts, ProcessFacts, QueueFacts
from shmq.top.looks import Look, Looks

if TYPE_CHECKING:
    from shmq.top.web import Page

__all__ = ["ConsumerFacts", "Look", "Looks", "ProcessFacts", "QueueFacts", "serve", "show"]


def show(looks: Looks) -> int:
    """
    Show what *looks* sees on this terminal, until somebody types q; return the exit status.

    Raises:
        ImportError: there is no textual: pip install 'shmq[top]'.
    """
    later.ready("shmq.top.screen")
    from shmq.top import screen  # noqa: PLC0415  # an extra

    return screen.run(looks)


def serve(looks: Looks, port: int = 0) -> Page:
    """
    Serve a page with what *looks* sees to browsers on this machine; its `address` is what they open.

    Args:
        looks: stays the caller's, and open until the page was closed.
        port: of 127.0.0.1; 0 for any that is free.

    Raises:
        ImportError: there is no starlette or uvicorn: pip install 'shmq[top]'.
        OSError: the port cannot be had.
    """
    later.ready("shmq.top.web")
    from shmq.top import web  # noqa: PLC0415  # an extra

    return web.Page(looks, port)
