"""
Print what queues are at as Prometheus reads it, or serve it to be scraped.

Changes nothing.

Examples:
    shmq metrics orders
    shmq metrics queues/ --serve 127.0.0.1:9464

A PATH is a queue, or a directory: then all queues below it are meant, also those that are made later. It is served to
this machine alone, unless HOST is another interface: who can connect there can read all of it, which is names and
figures. Ctrl-C or SIGTERM ends it.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

import shmq
from shmq.cli import show, stopping

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("paths", type=show.place, nargs="+", metavar="PATH", help="a queue, or a directory with queues")
    verb.add_argument(
        "--serve", metavar="HOST:PORT", help="answer scrapes there; PORT alone is of the loopback interface"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print them once, or serve them until a signal; return the exit status: 1 if a queue could not be read."""
    try:
        metrics = shmq.metrics
    except ImportError as problem:
        raise show.Problem(str(problem)) from None
    if arguments.serve is None:
        found = metrics.text(*arguments.paths)
        print(found, end="")
        down = [line for line in found.splitlines() if line.startswith("shmq_up{") and line.endswith(" 0.0")]
        for line in down:
            print(f"shmq: cannot read {line[len('shmq_up{queue=') : -len('} 0.0')]}", file=sys.stderr)
        return int(bool(down))
    return _serve(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    ended = threading.Event()
    with stopping.asked(ended.set):
        try:
            server = shmq.metrics.serve(*arguments.paths, address=arguments.serve)
        except ValueError as problem:
            raise show.Misuse(str(problem)) from None
        with server:
            print(f"shmq: metrics at {server.url}", file=sys.stderr, flush=True)
            for path in arguments.paths:
                if not _is_there(path):
                    print(f"shmq: there is nothing at {path} yet; each scrape looks again", file=sys.stderr, flush=True)
            ended.wait()
    return 0


def _is_there(path: str) -> bool:
    return path in shmq.volatile_queues() if path.startswith("shm:") else os.path.exists(path)
