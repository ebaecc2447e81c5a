"""
What is the same in every form of an archive: what can be asked of it, and times.

    files       plain Parquet with a manifest: on a disk of this machine, and nothing to install
    lake        a Delta table: also in an object store, for every engine that reads such tables
    stores      which of them a place has
"""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import shmq

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    import pyarrow as pa

    from shmq.spark.archive.messages import Layout, Span

MANIFEST = "manifest.json"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ARCHIVED = re.compile(r".+-\d{3}-\d{16}-\d{16}\.parquet")
"""What files of plain Parquet are called."""


class Times(NamedTuple):
    """From *since* to before *until*, in ns since 1970; None where there is no limit."""

    since: int | None = None
    until: int | None = None

    def meet(self, earliest: int, latest: int) -> bool:
        """Whether there may be one of them in between."""
        return (self.since is None or latest >= self.since) and (self.until is None or earliest < self.until)


def moment(what: str, when: datetime.datetime | int | None) -> int | None:
    """
    A time in ns since 1970. A datetime without a zone is local, as for a queue; an int is that already.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(when, datetime.datetime):
        since = when.astimezone(datetime.UTC) - _EPOCH
        return (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000
    if when is None or (isinstance(when, int) and not isinstance(when, bool)):
        return when
    raise TypeError(f"{what}={when!r}: a datetime is wanted, or an int of ns since 1970, not {type(when).__name__}")


class Stored(NamedTuple):
    """A shard of which there is something in an archive."""

    topic: str
    number: int
    whose: str
    """By which a replay knows it: the queue's id, or the table's, with the host."""
    host: str | None = None
    """Whose it is; None in an archive that was not made for several hosts."""


class Snapshot(NamedTuple):
    """What is in an archive at one moment."""

    path: str
    columns: list[str]
    names: Callable[[Times, Collection[str] | None], list[str]]
    """The files in which there may be messages of these times, and of these hosts; None for all of them."""
    end_of: Callable[[str, int, str], int | None]
    """The index behind what is archived of a queue's shard: topic, number, queue's id."""
    schema: str | None = None
    """In Spark's JSON, where files alone do not tell it."""
    hosts: tuple[str, ...] | None = None
    """Of which there is something; None in an archive that was not made for several."""
    host_of: Callable[[str], str | None] = lambda _: None
    """Whose queue it is that has this id; None where that is not told."""


class Store(Protocol):
    """An archive, in whatever form. A context manager for whoever writes to it."""

    path: str

    def __enter__(self) -> Self:
        """Hold it; make it if it is not there."""

    def __exit__(self, *_: object) -> None:
        """Let go."""

    def check(self) -> None:
        """
        Whether it can be where it is to be; changes nothing.

        Raises:
            BadFormat: there are other files.
            Corrupt: it cannot be read.
        """

    def columns(self) -> list[str] | None:
        """The names of its columns; None while it has none."""

    def end_of(self, topic: str, shard: int, queue_id: str) -> int | None:
        """
        The index behind what is archived of a shard, for whoever goes on there.

        Raises:
            Mismatch: what is archived under that name is of another queue, or the queue is another host's.
        """

    def sweep(self, queue_id: str) -> None:
        """Remove what who archived that queue, and was killed, has left. The caller is the only one who archives it."""

    def write(self, tables: Iterable[pa.Table], span: Span, how: Layout) -> int:
        """The messages of *span*, which come behind what is archived: on the disk when this returns, or not at all."""

    def compact(self, nbytes: int) -> int:
        """Put small files together, up to about so many bytes each, of this host alone: how many files went."""

    def verify(self) -> list[str]:
        """What is wrong with its files: missing, or not as they were written."""

    def shards(self) -> list[Stored]:
        """Of which shards there is something."""

    def rows(self, topic: str, shard: int, behind: int, times: Times, host: str | None = None) -> Iterator[pa.Table]:
        """What is archived of a host's shard behind that offset, in order; of these times, and perhaps others."""

    def snapshot(self) -> Snapshot:
        """What is in it now, for whoever plans with it."""


def another_queue(path: str, topic: str, shard: int, host: str | None = None) -> shmq.Mismatch:
    """What is archived under that name is of another queue."""
    if host is None:
        return shmq.Mismatch(
            f"{path} holds messages of another queue that was called {topic}/{shard} before; nothing was changed. Give "
            "each of them an archive of its own; or, of several hosts, begin a Delta table for them, each with its "
            "name (--host)"
        )
    return shmq.Mismatch(
        f"{path} holds messages of another queue that was called {topic}/{shard} on the host {host!r} before; nothing "
        "was changed. Give each of them an archive of its own; or, where these are two hosts, each its own name "
        "(--host)"
    )
