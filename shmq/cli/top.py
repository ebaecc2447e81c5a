"""
Show queues live: who puts and who takes, rates, lags, ages and the disk. Changes nothing.

Examples:
    shmq top
    shmq top orders events/ --every 5
    shmq top --web
    shmq top --json

Without a path: those below this directory, and the volatile ones. On the terminal, Enter shows one queue, w why it is
stuck or slow, s sorts by another column, and q ends it. --web serves a page to browsers on this machine, at the address
that it says; --json prints one look, a queue a line.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

import shmq
from shmq.cli import descriptors, show, stopping

if TYPE_CHECKING:
    import argparse

_PORT = 8765


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument(
        "paths", type=show.place, metavar="PATH", nargs="*", help="queues, or directories of queues (here)"
    )
    verb.add_argument("--every", type=_some_seconds, default=1.0, metavar="SECONDS", help="between two looks (1)")
    ways = verb.add_mutually_exclusive_group()
    ways.add_argument("--web", action="store_true", help="serve a page for a browser on this machine instead")
    ways.add_argument("--json", action="store_true", help="print one look as lines of JSON instead")
    verb.add_argument(
        "--port", type=show.whole(0), metavar="N", help=f"with --web: the port ({_PORT}; 0: any that is free)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Show them; return the exit status."""
    if arguments.port is not None and not arguments.web:
        raise show.Misuse("--port is for --web")
    with shmq.top.Looks(arguments.paths, every=arguments.every) as looks:
        if arguments.json:
            return _print(looks, [each for each in arguments.paths if each.startswith("shm:")])
        return _serve(looks, _PORT if arguments.port is None else arguments.port) if arguments.web else _show(looks)


def _some_seconds(word: str) -> float:
    return max(show.seconds(word), 0.1)


def _print(looks: shmq.top.Looks, named: list[str]) -> int:
    """One look, with the rates since one before it; which of the volatile ones that were *named* are not there."""
    looks.look()
    time.sleep(looks.every)
    found = looks.look().queues
    for each in found:
        sys.stdout.buffer.write(show.as_line(show.fields(each)))
    missing = set(named) - {each.path for each in found}
    for place in sorted(missing):
        problem = "there is no such volatile queue; it ends with its last user"
        print(f"shmq: cannot look at {place}: {problem}", file=sys.stderr)
    return int(bool(missing) or any(each.problem is not None for each in found))


def _show(looks: shmq.top.Looks) -> int:
    if not sys.stdin.isatty() or not sys.stdout.isatty():
        raise show.Problem("shmq top shows itself on a terminal, and this is none; --json prints one look")
    try:
        return shmq.top.show(looks)
    except ImportError as problem:
        raise _missing("textual", problem) from None


def _serve(looks: shmq.top.Looks, port: int) -> int:
    """Until SIGTERM or Ctrl-C."""
    descriptors.check_for("serve a page")
    ended = threading.Event()
    with stopping.asked(ended.set):
        try:
            page = shmq.top.serve(looks, port)
        except ImportError as problem:
            raise _missing("starlette and uvicorn", problem) from None
        with page:
            print(f"shmq: top is at {page.address}", file=sys.stderr, flush=True)
            ended.wait()
    return 0


def _missing(needed: str, problem: ImportError) -> show.Problem:
    return show.Problem(f"shmq top needs {needed} for that ({problem}): pip install 'shmq[top]'; --json does without")
