"""
Say why a queue is stuck or slow: who waits for whom, who has what, and what to do about it. Changes nothing.

Examples:
    shmq why orders
    shmq why orders --json

Exit status 0: nothing is wrong; 1: something is, or it cannot be read. Where py-spy is installed, it also says what the
processes at fault are doing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue, or a directory of queues")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print what is found; return the exit status."""
    found = shmq.why(arguments.path, stacks=True)
    wrong = any(each.level != "note" for each in found)
    if arguments.json:
        show.facts({"wrong": wrong, "findings": [show.fields(each) for each in found]})
        return int(wrong)
    several = len({each.path for each in found}) > 1
    for each in found:
        print(f"{each.level.upper()} ({each.kind}){f' {each.path}' if several else ''}: {each.sentence}")
        if each.advice:
            print(f"    {each.advice}")
        for line in each.facts.get("stack", "").splitlines():
            print(f"    | {line}")
    return int(wrong)
