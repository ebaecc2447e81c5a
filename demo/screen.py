"""What the demo shows: the progress line while it runs, the table at its end."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_PERIOD = 0.1
_QUIET_PERIOD = 5.0


class Progress:
    """One line that is written over itself on a terminal, and a new one every 5 s elsewhere. On stderr."""

    def __init__(self) -> None:
        """Nothing is shown yet."""
        self._live = sys.stderr.isatty()
        self._next = time.monotonic() + (0.0 if self._live else _QUIET_PERIOD)
        self._shown = 0

    def show(self, text: str, *, now: bool = False) -> None:
        """Show *text*, unless something was shown a moment ago."""
        if not now and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (_PERIOD if self._live else _QUIET_PERIOD)
        if self._live:
            print(f"\r{text.ljust(self._shown)}", end="", file=sys.stderr, flush=True)
            self._shown = len(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._live and self._shown:
            print("\r" + " " * self._shown + "\r", end="", file=sys.stderr)
            self._shown = 0
        print(text, file=sys.stderr, flush=True)


def command() -> str:
    """The `shmq` command of the Python that runs this, for the user to type."""
    script = os.path.join(os.path.dirname(sys.executable), "shmq")
    if not os.path.exists(script):
        return f"{shorter(sys.executable)} -m shmq"
    return "shmq" if shutil.which("shmq") == script else shorter(script)


def shorter(path: str | Path) -> str:
    """The path from here, if that is shorter."""
    relative = os.path.relpath(path)
    return min(relative, os.path.abspath(path), key=len)


def table(result: dict[str, Any]) -> list[str]:
    """The last screen."""
    queue = shorter(result["queue"])
    lines = [
        "",
        _row("", "flights", "per second"),
        _row("in the table", result["flights"]),
        *(_row(f"put by producer {each['producer']}", each["put"], each["rate"]) for each in result["producers"]),
        _row("seen by consumer count (ack auto)", result["counted"]["seen"], result["counted"]["rate"]),
        _row("seen by consumer delays (ack explicit)", result["averaged"]["flights"], result["averaged"]["rate"]),
        _row("fetched by index and compared", result["fetched"]["flights"], result["fetched"]["rate"]),
        _row(f"of the hour {result['by_time']['hour']}, found by time", result["by_time"]["flights"]),
        _row("the last ones, read backward", result["last"]["flights"]),
        _row("through a volatile queue, the same means", result["volatile"]["flights"], result["volatile"]["rate"]),
        _row("lost", result["lost"]),
        _row("doubled beyond the promise", result["doubled"]),
        "",
        *_kills(result["kills"]),
        "",
        *_means(result["means"]),
        "",
        f"{result['seconds']:.1f} s with everything running; {result['disk_bytes']:,} bytes on disk in {queue}",
        f"rates, kills and how far the consumers were behind, as a picture: {shorter(result['picture'])}",
    ]
    if result["findings"]:
        return [*lines, "", "WRONG:", *(f"  {each}" for each in result["findings"])]
    shmq = command()
    return [
        *lines,
        "",
        "Try next:",
        f"  {shmq} stat {queue}",
        f"  {shmq} cat {queue} {result['flights'] // 2} --json",
        f"  {shmq} take {queue} me -n 3       every name sees every flight, from the first",
    ]


def _row(name: str, number: int | str, rate: float | str = "") -> str:
    numbers = [f"{each:,.0f}" if isinstance(each, (int, float)) else each for each in (number, rate)]
    return f"{name:40}{numbers[0]:>10}{numbers[1]:>12}".rstrip()


def _kills(kills: dict[str, Any]) -> list[str]:
    producer, consumer = kills["producer"], kills["consumer"]
    in_flight = "was in it" if producer["found"] > producer["returned"] else "was not in it"
    returned, found = producer["returned"], producer["found"]
    return [
        f"kill -9 of producer {producer['producer']}: put() had returned {returned:,} times,",
        f"  the queue held {found:,} of its flights (the put in flight {in_flight}), and it went on from there",
        f"kill -9 of consumer delays: {consumer['again']:,} messages were handed out again (not acknowledged yet),",
        f"  {consumer['skipped']:,} of them were in the sums already and were skipped by their index",
    ]


def _means(means: list[dict[str, Any]]) -> list[str]:
    heading = "mean arrival delay in minutes, from the queue and straight from the table:"
    cells = []
    for each in means:
        sign = "=" if each["equal"] else "IS NOT"
        cells.append(f"{each['carrier']} {_minutes(each['queue'])} {sign} {_minutes(each['table']).strip()}")
    width = max(map(len, cells), default=0)
    return [
        heading,
        *(
            "  " + "   ".join(f"{cell:{width}}" for cell in cells[at : at + 4]).rstrip()
            for at in range(0, len(cells), 4)
        ),
    ]


def _minutes(mean: float | None) -> str:
    return "   none" if mean is None else f"{mean:7.3f}"
