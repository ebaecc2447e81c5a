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
import atexit
import json
import sys
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    from collections.abc import Callable

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_BAR = 30


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("action", choices=["run"], help="run it")
    verb.add_argument("file", type=show.place, metavar="FILE", help="the pipeline's TOML")
    how = verb.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="what is there now, and end")
    how.add_argument(
        "--every", type=_seconds, metavar="TIME", help="again and again, like 30s or 5m (as the file says)"
    )
    how.add_argument("--continuous", action="store_true", help="batch after batch, for lower latency")
    verb.add_argument("--master", help="where Spark runs, like spark://host:7077 (this machine)")
    verb.add_argument("--dry-run", action="store_true", help="check all of it, show what would be read; run nothing")
    verb.add_argument("--json", action="store_true", help="a line of JSON for each batch")


def _seconds(word: str) -> float:
    unit = _UNITS.get(word[-1:])
    try:
        number = float(word[:-1] if unit else word) * (unit or 1.0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not a time like 30s or 5m") from None
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{word!r}: more than nothing")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Check it, and run it or show what it would do."""
    try:
        if arguments.dry_run:
            pipeline = shmq.spark.read_pipeline(arguments.file)
            return _dry_run(pipeline, master=arguments.master, as_json=arguments.json)
        how = "once" if arguments.once else "continuous" if arguments.continuous else "every"
        tell = _teller(as_json=arguments.json)
        with shmq.spark.Stopping() as stopping:  # before anything that takes time
            try:
                shmq.spark.run(
                    arguments.file,
                    how=how,
                    every=arguments.every,
                    master=arguments.master,
                    tell=tell,
                    stopping=stopping,
                )
            finally:
                atexit.register(shmq.spark.deafen)  # before Spark is stopped, which takes its time, too
    except shmq.spark.BadPipeline as problem:
        print(problem, file=sys.stderr)  # a line each, as compilers have it
        return 1
    except ImportError as problem:
        raise show.Problem(f"a pipeline needs Spark ({problem}): pip install 'shmq[spark]'") from None
    except (shmq.spark.Missing, shmq.spark.NoJava, shmq.spark.BadOption) as problem:
        raise show.Problem(str(problem)) from None
    except RuntimeError as problem:
        if isinstance(problem, shmq.spark.Failed):  # which is where Spark is, and not asked for before
            raise show.Problem(str(problem)) from None
        raise
    return 0


def _dry_run(pipeline: Any, *, master: str | None, as_json: bool) -> int:
    plan = shmq.spark.plan_pipeline(pipeline)
    try:
        shmq.spark.check_pipeline(pipeline, master=master)
    except (shmq.spark.Missing, shmq.spark.NoJava) as problem:
        _show_plan(plan, as_json=as_json)
        raise show.Problem(f"steps and sinks were not checked: {problem}") from None
    _show_plan(plan, as_json=as_json)
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
    if as_json:
        return lambda facts: print(json.dumps(facts), flush=True)
    bars = Bars() if sys.stdout.isatty() else None

    def tell(facts: dict[str, Any]) -> None:
        if "again" in facts:
            _line(f"begun again: {facts['again']}", bars)
        elif "archive" in facts:
            if facts["rows"] or facts["files_merged"]:
                _line(
                    f"archive: {show.counted(facts['rows'], 'message')}; {facts['files_merged']:,} files put together",
                    bars,
                )
            if "not_merged" in facts:
                _line(f"archive: {facts['not_merged']}", bars)
        elif bars is not None:
            bars.batch(facts)
        elif facts["rows"]:
            rate = f"{facts['rows_per_second']:,} rows/s"
            waits = f", {facts['behind']:,} wait" if facts["behind"] else ""
            print(f"{facts['sink']}: batch {facts['batch']:,}, {facts['rows']:,} rows, {rate}{waits}", flush=True)

    return tell


def _line(text: str, bars: Bars | None) -> None:
    """A line that stays, above the bars."""
    if bars is not None:
        bars.clear()
    print(text, flush=True)


class Bars:
    """A bar for each sink, drawn over itself: what came through since the start, of that and what still waits."""

    def __init__(self) -> None:
        """Nothing is drawn yet."""
        self._rows: dict[str, int] = {}
        self._last: dict[str, dict[str, Any]] = {}
        self._drawn = 0

    def clear(self) -> None:
        """Take the bars away."""
        if self._drawn:
            print(f"\x1b[{self._drawn}A\x1b[J", end="", flush=True)
        self._drawn = 0

    def batch(self, facts: dict[str, Any]) -> None:
        """One batch more."""
        name = facts["sink"]
        self._rows[name] = self._rows.get(name, 0) + facts["rows"]
        if facts["rows"] or name not in self._last:
            self._last[name] = facts
        self._last[name]["behind"] = facts["behind"]
        self.clear()
        width = max(map(len, self._last))
        for each, last in self._last.items():
            print(
                f"{each.ljust(width)} {bar(self._rows[each], last['behind'] or 0)} {last['rows_per_second']:,} rows/s"
            )
        self._drawn = len(self._last)


def bar(done: int, behind: int) -> str:
    """How much of it is done, as a person sees it at a glance."""
    share = done / (done + behind) if done + behind else 1.0
    filled = int(share * _BAR)
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {share:4.0%} {done:,} of {done + behind:,}"
