"""
The main job on real data: 336,776 flights through one queue, with kill -9 half-way, and every one accounted for.

Examples:
    python -m demo
    python -m demo --flights 20000 --data /tmp/flights --json
    python -m demo --spark

Two producers replay the flights at full speed; one consumer counts and checks every message; another computes the mean
delay per carrier with explicit acknowledgements; a reader fetches 1,000 flights by index. Half-way a producer and the
second consumer are killed with kill -9 and started again. Exit status 1 if anything is not as it must be.

It is no part of what is installed: it lies beside the package, uses what `import shmq` gives, and `make demo` runs it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo import flights as data
from demo.problem import Problem

if TYPE_CHECKING:
    import argparse

DEFAULT_PLACE = "demo-data"
SPARK_PLACE = "demo-lake"


def run(arguments: argparse.Namespace) -> int:
    """Run it, and show the table."""
    csv = Path(arguments.csv) if arguments.csv else data.find_csv()
    result, table = (_spark if arguments.spark else _core)(csv, arguments)
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        print("\n".join(table(result)))
    sys.stdout.flush()
    return int(bool(result["findings"]))


def _core(csv: Path, arguments: argparse.Namespace) -> Any:
    from demo import play, screen  # noqa: PLC0415  # multiprocessing and msgspec are for those who run it

    place = Path(arguments.data or DEFAULT_PLACE)
    return play.play(csv, place, arguments.flights, keep=arguments.keep), screen.table


def _spark(csv: Path, arguments: argparse.Namespace) -> Any:
    from demo import lake  # noqa: PLC0415
    from shmq import spark  # noqa: PLC0415  # likewise

    try:
        return lake.play(csv, Path(arguments.data or SPARK_PLACE), arguments.flights), lake.table
    except (spark.Failed, spark.Missing, spark.NoJava) as problem:
        raise Problem(str(problem)) from None
