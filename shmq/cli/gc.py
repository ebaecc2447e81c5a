"""
Take away the volatile queues that nobody has open, because all who had were killed.

Examples:
    shmq gc --dry-run
    shmq gc --json
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("-n", "--dry-run", action="store_true", help="only say which would go")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Take them away, and say which."""
    gone = shmq.gc(dry_run=arguments.dry_run)
    if arguments.json:
        show.facts(gone)
    else:
        print(
            "\n".join(f"{'would take' if arguments.dry_run else 'took'} away {name}" for name in gone)
            or "no volatile queue is without users"
        )
    return 0
