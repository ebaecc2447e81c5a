"""What is lost for good is asked for twice: at a terminal by a question, in a script by --yes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """The argument that answers the question."""
    verb.add_argument("-y", "--yes", action="store_true", help="do not ask; a script must say so")


def be_sure(arguments: argparse.Namespace, what: str) -> None:
    """
    Return when *what*, a clause such as "delete orders, with 3 messages", is wanted.

    Raises:
        Misuse: there is nobody to be asked, and --yes was not given.
        Problem: the answer was no.
    """
    if arguments.yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise show.Misuse(f"this would {what}; nothing was done, for there is nobody to ask: --yes does it")
    print(f"{what[:1].upper()}{what[1:]}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise show.Problem("nothing was done")
