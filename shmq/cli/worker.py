"""
Run tasks of an Executor's directory, from another terminal or another container.

Examples:
    shmq worker jobs/ -n 4
    shmq worker jobs/ --max-tasks-per-child 1000

Functions are looked for from the current directory on. Ctrl-C or SIGTERM: each worker finishes its task and leaves.
What is in the directory is run as code: it must be yours, and closed to others.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", metavar="PATH", help="the Executor's directory; made if there is none")
    verb.add_argument(
        "-n", "--count", type=show.whole(1), metavar="N", help="how many workers (one for each processor)"
    )
    verb.add_argument("--max-tasks-per-child", type=show.whole(1), metavar="N", help="replace a worker after N tasks")
    verb.add_argument(
        "--json", action="store_true", help="say so as a line of JSON on standard output, when it is ready"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run tasks until somebody ends it."""
    made = "" if os.path.exists(os.path.expanduser(arguments.path)) else ", which was missing and is made"

    def tell(pids: list[int]) -> None:
        count = "1 worker" if len(pids) == 1 else f"{len(pids)} workers"
        told = f"{count} for {arguments.path}{made}: {' '.join(map(str, pids))}"
        show.ready(told, {"path": arguments.path, "pids": pids}, as_json=arguments.json)

    shmq.executor.serve(
        arguments.path, arguments.count, max_tasks_per_child=arguments.max_tasks_per_child, on_start=tell
    )
    return 0
