"""
Delete queues, with everything in them.

Examples:
    shmq delete orders
    shmq delete old/orders old/events --yes

Nobody may have it open. It asks first; a script says --yes. What was interrupted is finished by the same words.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import shmq
from shmq.cli import asking, show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("paths", type=show.place, metavar="PATH", nargs="+", help="the queues")
    asking.add(verb)
    verb.add_argument("--json", action="store_true", help="say what was deleted as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Delete them one after the other; what comes before one that cannot be deleted is gone."""
    asking.be_sure(arguments, f"delete {', '.join(map(_about, arguments.paths))}")
    gone: list[str] = []
    try:
        for path in arguments.paths:
            shmq.delete(path)
            gone.append(path)
            if not arguments.json:
                print(f"deleted {path}")
    finally:
        if arguments.json:
            show.facts({"deleted": gone})
    return 0


def _about(path: str) -> str:
    """A queue as somebody who is asked knows it; it need not be fit to be opened."""
    with contextlib.suppress(shmq.ShmqError, OSError), show.open_queue(path, read_only=True) as queue:
        return f"{path} with {show.counted(len(queue), 'message')}"
    return path
