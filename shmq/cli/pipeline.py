"""
From queues by SQL or Python to Parquet, Delta or other queues, on Spark: the whole way as one TOML says.

Examples:
    shmq pipeline run flights.toml --dry-run
    shmq pipeline run flights.toml --once
    shmq pipeline run flights.toml --every 30s --json

Every row comes out exactly once, whoever is killed. SIGTERM finishes the batch that runs.
Needs: pip install 'shmq[spark]'
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from shmq import spark
from shmq.cli import show

if TYPE_CHECKING:
    from collections.abc import Callable

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument("action", choices=["run"], help="run it")
    verb.add_argument("file", metavar="FILE", help="the pipeline's TOML")
    how = verb.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="what is there now, and end")
    how.add_argument(
        "--every", type=_seconds, metavar="TIME", help="again and again, like 30s or 5m (as the file says)"
    )
    how.add_argument("--continuous", action="store_true", help="batch after batch, for lower latency")
    verb.add_argument("--master", help="where Spark runs, like spark://host:7077 (this machine)")
    verb.add_argument("--dry-run", action="store_true", help="check the file, show what would be read; start nothing")
    verb.add_argument("--json", action="store_true", help="a line of JSON for each batch")


def _seconds(word: str) -> float:
    unit = _UNITS.get(word[-1:])
    try:
        number = float(word[:-1] if unit else word) * (unit or 1.0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is no time like 30s or 5m") from None
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{word!r}: more than nothing")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Check it, and run it or show what it would do."""
    try:
        pipeline = spark.read_pipeline(arguments.file)
        if arguments.dry_run:
            _show_plan(spark.plan_pipeline(pipeline), as_json=arguments.json)
            return 0
        how = "once" if arguments.once else "continuous" if arguments.continuous else "every"
        tell = _teller(as_json=arguments.json)
        spark.run(arguments.file, how=how, every=arguments.every, master=arguments.master, tell=tell)
    except spark.BadPipeline as problem:
        print(problem, file=sys.stderr)  # a line each, as compilers have it
        return 1
    except (spark.Failed, spark.Missing, spark.NoJava, spark.BadOption) as problem:
        raise show.Problem(str(problem)) from None
    return 0


def _show_plan(plan: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        show.facts(plan)
        return
    rows: list[tuple[object, ...]] = [("SOURCE", "SHARD", "FROM", "TO", "WAITING")]
    for name, source in plan["sources"].items():
        rows += [
            (name, each["shard"], each["from"], each["to"], each["to"] - each["from"]) for each in source["shards"]
        ]
    show.table(rows, left=2)
    print()
    show.table([("SINK", "FROM", "FORMAT", "TO"), *((n, *each.values()) for n, each in plan["sinks"].items())], left=4)
    if plan["archive"]:
        print(f"\narchive: {plan['archive']}")
    print(f"\ncheckpoint: {plan['checkpoint']}; nothing was started")


def _teller(*, as_json: bool) -> Callable[[dict[str, Any]], None]:
    def tell(facts: dict[str, Any]) -> None:
        if as_json:
            print(json.dumps(facts), flush=True)
        elif "again" in facts:
            print(f"begun again: {facts['again']}", file=sys.stderr)
        elif "archive" in facts:
            if facts["rows"] or facts["files_merged"]:
                print(f"archive: {facts['rows']:,} messages; {facts['files_merged']:,} files put together", flush=True)
        elif facts["rows"]:
            rate = f"{facts['rows_per_second']:,} rows/s"
            print(f"{facts['sink']}: batch {facts['batch']:,}, {facts['rows']:,} rows, {rate}", flush=True)

    return tell
