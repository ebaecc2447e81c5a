"""What people see while a flow runs: a live table where rich and a terminal are there, lines otherwise."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self

import shmq

try:  # an extra; here, since an import inside a function may be met half done by a fork or a signal
    from rich import console, live, table
except ImportError:
    console = live = table = None
from shmq.flow.counts import StageSummary, count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmq.flow.place import Place
    from shmq.flow.plan import Stage

_TABLE_EVERY, _LINES_EVERY = 0.25, 2.0
_SMOOTH = 4.0
"""Seconds over which a rate is taken."""


class Progress:
    """Shows, in a thread of its own and on stderr, how far each stage is. Whatever goes wrong there harms no run."""

    def __init__(self, place: Place, stages: Sequence[Stage], *, shown: bool | None) -> None:
        """It begins with its block; *shown*: as `Flow.run` takes it."""
        self._place = place
        self._stages = stages
        terminal = bool(getattr(sys.stderr, "isatty", bool)())
        self._live = _live() if terminal and shown is not False else None
        self._wanted = terminal if shown is None else shown
        self._rates = [Rate() for _ in stages]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shmq-progress", daemon=True)

    def __enter__(self) -> Self:
        """Begin, if anybody wants to see it."""
        if self._wanted:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Show the last figures."""
        self._over.set()
        if self._wanted:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # of a terminal that is gone
            if self._live is None:
                self._lines()
            else:
                self._table(*self._live)

    def _figures(self) -> list[tuple[StageSummary, float]]:
        found = count(self._place, self._stages)
        return [(each, rate.per_second(each.done)) for each, rate in zip(found, self._rates, strict=True)]

    def _lines(self) -> None:
        over = False
        while not over:
            over = self._over.wait(_LINES_EVERY)
            with contextlib.suppress(shmq.ShmqError):
                sys.stderr.write(line(self._figures()) + "\n")
                sys.stderr.flush()

    def _table(self, console: Any, live: Any, table: Any) -> None:
        with live.Live(console=console.Console(stderr=True), auto_refresh=False) as shown:
            over = False
            while not over:
                over = self._over.wait(_TABLE_EVERY)
                with contextlib.suppress(shmq.ShmqError):
                    shown.update(_drawn(table.Table(), self._figures(), self._stages), refresh=True)


class Rate:
    """How many a second, smoothed."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._at: float | None = None
        self._done = 0
        self._rate = 0.0

    def per_second(self, done: int, now: float | None = None) -> float:
        """The rate, now that so many are done."""
        now = time.monotonic() if now is None else now
        if self._at is not None and now > self._at:
            since = now - self._at
            weight = min(since / _SMOOTH, 1.0)
            self._rate += ((done - self._done) / since - self._rate) * weight
        self._at, self._done = now, done
        return self._rate


def line(figures: Sequence[tuple[StageSummary, float]]) -> str:
    """All stages in one line."""
    return " | ".join(
        f"{each.name}: {each.done} done, {each.waiting} waiting, {rate:.0f}/s"
        + (f", {each.dead} dead" * bool(each.dead))
        for each, rate in figures
    )


def _live() -> tuple[Any, Any, Any] | None:
    """What rich has for this, where it is installed."""
    return None if live is None else (console, live, table)


def _drawn(table: Any, figures: Sequence[tuple[StageSummary, float]], stages: Sequence[Stage]) -> Any:
    for name in ("stage", "workers", "waiting", "done", "per second", "dead"):
        table.add_column(name, justify="left" if name == "stage" else "right")
    for (each, rate), stage in zip(figures, stages, strict=True):
        dead = f"[red]{each.dead}[/red]" if each.dead else "0"
        table.add_row(each.name, str(stage.workers), str(each.waiting), str(each.done), f"{rate:.0f}", dead)
    return table
