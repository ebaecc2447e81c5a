"""
A queue at the other end, with the verbs of a local one that bulk work needs. Safe to use from several threads.

Whatever is asked for can be asked for again: a read goes on behind the last message that came, a put that got no answer
is staged once more, and what is adopted twice is there once. So a service that is killed and started again costs time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import shmq
from shmq.flight import words

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    import pyarrow as pa

_SET_BYTES, _SET_ROWS = 16 << 20, 1 << 20
"""What is staged in one piece: it is kept until the service has it."""
_TOGETHER = "+"
"""Between the tokens of pieces. None of them has it in it."""
COLUMNS = ("index", "time", "key", "type", "payload")
ROWS, BYTES = 10_000, 4 << 20


class Asks(Protocol):
    """What is needed of a client."""

    location: str

    def act(self, verb: str, ask: words.About, kind: Any) -> Any:
        """One request, one answer."""

    def stage(self, ask: words.Put, batches: list[pa.RecordBatch], rows: int) -> words.Token:
        """Batches, staged."""

    def batches(self, ask: words.Read) -> Generator[Any, None, None]:
        """A schema, and batches."""


class Extent(NamedTuple):
    """A run of indexes that lie together in one chunk."""

    first: int
    stop: int
    nbytes: int


class _Durability(NamedTuple):
    kind: str


class _Options(NamedTuple):
    """Those of a queue's options that a reader or writer of bytes needs."""

    codec: str
    index_spacing: int
    durability: _Durability


class RemoteQueue:
    """
    One queue at a service. Made by `Client.queue`; it needs no closing.

    Attributes:
        name: as the service knows it.
        path: the same with the service's location in front.
        id: what tells it from any other; a queue made in its place later is a Mismatch.
    """

    def __init__(self, client: Asks, name: str, told: words.Ends) -> None:
        """See `Client.queue`."""
        self._client = client
        self._told = told
        self.name = name
        self.path = f"{client.location}/{name}"
        self.id = told.id
        self.options = _Options(told.codec, told.spacing, _Durability(told.durability))

    def __repr__(self) -> str:
        """Where it is, for people."""
        return f"<shmq.flight.RemoteQueue {self.path}>"

    # ---- where it begins and ends
    def ends(self, *, durable: bool = False) -> words.Ends:
        """
        Where it begins and ends now; with *durable* it is synced first, and `end` is behind what is on its disk.

        Raises:
            NotFound, Mismatch: it is gone; another one is there.
            Unreachable: nobody answered for as long as the client waits. So of everything else here.
        """
        return self._client.act(  # type: ignore[no-any-return]
            "ends", words.EndsOf(queue=self.name, id=self.id, durable=durable), words.Ends
        )

    @property
    def first_index(self) -> int:
        """The first index still there."""
        return self.ends().first

    @property
    def next_index(self) -> int:
        """The index of the next put."""
        return self.ends().next

    @property
    def committed_index(self) -> int:
        """The index behind the part that is decided."""
        return self.ends().committed

    @property
    def durable_index(self) -> int:
        """The index behind what is known to be on its disk."""
        return self.ends().durable

    def at_ns(self, time_ns: int) -> int:
        """The index of the first message of that time or later."""
        ask = words.At(queue=self.name, id=self.id, time_ns=time_ns)
        return self._client.act("at", ask, words.Index).index  # type: ignore[no-any-return]

    def extents(self, start: int, stop: int) -> list[Extent]:
        """As `Queue.extents`."""
        ask = words.Extents(queue=self.name, id=self.id, start=start, stop=stop)
        return [Extent(*each) for each in self._client.act("extents", ask, list[tuple[int, int, int]])]

    # ---- reading
    def here(self) -> shmq.Queue[Any] | None:
        """
        The same queue, opened read-only from this machine's disk, for whoever closes it; None where it is not here.

        It is the same where boot, device and inode agree, and then the id: a copy has the id, too.
        """
        told = self._told
        if not told.place:
            return None
        try:
            mark = os.stat(f"{told.place}/queue.shmq", follow_symlinks=False)
            if (mark.st_dev, mark.st_ino) != (told.device, told.inode):
                return None
            found = shmq.open(told.place, create=False, read_only=True, trusted=True)
        except (OSError, shmq.ShmqError):
            return None
        if found.id == self.id:
            return found
        found.close()
        return None

    def read_arrow(
        self,
        start: int = 0,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
        max_bytes: int | None = None,
        *,
        max_rows: int = ROWS,
        record: None = None,
    ) -> RemoteBatches:
        """
        Record batches of a range, as `Queue.read_arrow`. What was retired is a Gone; there is no *record*.

        Raises:
            ValueError: there is no such column.
        """
        if record is not None:
            raise ValueError("record=: fields of payloads are read from local queues alone")
        ask = words.Read(
            queue=self.name,
            id=self.id,
            start=start,
            stop=stop,
            columns=None if columns is None else list(columns),
            max_rows=max_rows,
            max_bytes=min(max_bytes or BYTES, BYTES),
        )
        return RemoteBatches(self._client, ask)

    # ---- names
    def hold(self, name: str) -> int:
        """Have that consumer name, made at the first message there is, so that retention waits for it; its head."""
        ask = words.Hold(queue=self.name, id=self.id, name=name)
        return self._client.act("hold", ask, words.Index).index  # type: ignore[no-any-return]

    def follow(self, name: str, to: int, *, hold: Any = None) -> int:
        """
        Move that name forward to an index, make it if it is missing; its head. *hold* is "nothing" or None.

        Raises:
            Busy: somebody holds the name.
        """
        ask = words.Follow(queue=self.name, id=self.id, name=name, to=to, hold=hold)
        return self._client.act("follow", ask, words.Index).index  # type: ignore[no-any-return]

    # ---- putting
    def stage(self) -> RemoteStaged:
        """Build messages aside, at the service, any number of them; see `RemoteStaged`."""
        return RemoteStaged(self._client, self.name, self.id)

    def adopt(self, tokens: str | Sequence[str], *, dedup: tuple[str, int] | None = None) -> range:
        """
        Append what `RemoteStaged.hand_over` returned, all of it or nothing; with *dedup* once. As `Queue.adopt`.

        Raises:
            NotFound, Mismatch, Full, ShutDown, DiskFull: as there.
            TypeError: something in it is no token.
        """
        several = [tokens] if isinstance(tokens, str) else _checked_tokens(tokens)
        ask = words.Adopt(
            queue=self.name,
            id=self.id,
            tokens=[part for each in several for part in each.split(_TOGETHER) if part],
            producer=None if dedup is None else dedup[0],
            sequence=None if dedup is None else dedup[1],
        )
        there = self._client.act("adopt", ask, words.Span)
        return range(there.first, there.stop)

    def adopted(self, producer: str) -> tuple[int, range] | None:
        """As `Queue.adopted`."""
        ask = words.Adopted(queue=self.name, id=self.id, producer=producer)
        last = self._client.act("adopted", ask, words.Batch | None)
        return None if last is None else (last.sequence, range(last.first, last.stop))

    def sweep_staged(self, *, owner: str) -> int:
        """Remove what was staged for that owner and not adopted; how many pieces."""
        return self._client.act("sweep", words.Sweep(queue=self.name, id=self.id, owner=owner), words.Count).count  # type: ignore[no-any-return]

    # ---- as a local one
    @property
    def closed(self) -> bool:
        """It holds nothing, so it is never closed."""
        return False

    def close(self) -> None:
        """There is nothing to close."""

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""


class RemoteBatches:
    """Made by `RemoteQueue.read_arrow`; iterates over record batches, in order. A context manager."""

    def __init__(self, client: Asks, ask: words.Read) -> None:
        """The first batch is asked for at once, so that an error comes here."""
        self._shown = ask.columns or list(COLUMNS)
        self._stream = client.batches(ask)
        self.schema: Any = next(self._stream)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Without the index, if it was not asked for."""
        for batch in self._stream:
            yield batch if batch.schema.names == self._shown else batch.select(self._shown)

    def close(self) -> None:
        """Read no more."""
        self._stream.close()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Read no more."""
        self.close()


class RemoteStaged:
    """
    Messages on their way into a queue, that nobody sees before they are adopted. A context manager.

    What comes is sent in pieces of some 16 MiB; a piece is kept until the service has it on its disk.
    """

    def __init__(self, client: Asks, name: str, queue_id: str) -> None:
        """See `RemoteQueue.stage`."""
        self._client = client
        self._name, self._id = name, queue_id
        self._kept: list[pa.RecordBatch] = []
        self._bytes = self._rows = 0
        self._tokens: list[str] = []
        self._owner: str | None = None
        self._indexes = 0

    def __len__(self) -> int:
        """How many messages were put into it."""
        return self._indexes + self._rows

    def __bool__(self) -> bool:
        """True, also when it is empty."""
        return True

    def for_owner(self, owner: str) -> Self:
        """Whose it is, so that it can be swept without its token. To be said before the first put."""
        self._owner = owner
        return self

    def put_arrow(self, batch: Any) -> None:
        """
        Add the rows of a record batch or table, as `Staged.put_arrow` takes them.

        Raises:
            ValueError, TooLarge, DiskFull, Unreachable: forget it, and stage anew.
        """
        for part in batch.to_batches() if hasattr(batch, "to_batches") else [batch]:
            self._add(part)

    def _add(self, batch: pa.RecordBatch) -> None:
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, _SET_ROWS)
            while part.num_rows > 1 and part.nbytes > _SET_BYTES:
                part = part.slice(0, part.num_rows // 2)
            if self._bytes and (self._bytes + part.nbytes > _SET_BYTES or self._rows + part.num_rows > _SET_ROWS):
                self._send()
            self._kept.append(part)
            self._bytes += part.nbytes
            self._rows += part.num_rows
            at += part.num_rows

    def _send(self) -> None:
        ask = words.Put(queue=self._name, id=self._id, owner=self._owner or "")
        told = self._client.stage(ask, self._kept, self._rows)
        self._tokens.append(told.token)
        self._indexes += told.indexes
        self._kept, self._bytes, self._rows = [], 0, 0

    def hand_over(self, *, owner: str | None = None) -> str:
        """
        Leave it to whoever has the token that this returns. When it returns, all of it is on the service's disk.

        Args:
            owner: as `Staged.hand_over`; what was sent before belongs to whom `for_owner` named.

        Raises:
            ValueError: another owner was named before.
        """
        if owner is not None and self._tokens and owner != self._owner:
            raise ValueError(f"it was staged for {self._owner!r}, and cannot be handed over for {owner!r}")
        self._owner = owner if owner is not None else self._owner
        if self._rows:
            self._send()
        return _TOGETHER.join(self._tokens)

    def close(self) -> None:
        """Forget what was not sent."""
        self._kept, self._bytes, self._rows = [], 0, 0

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Forget what was not sent."""
        self.close()


def _checked_tokens(tokens: Sequence[str]) -> list[str]:
    kind = type(tokens).__name__
    if not isinstance(tokens, (bytes, bytearray, memoryview)) and hasattr(tokens, "__iter__"):
        several = list(tokens)
        strange = [each for each in several if not isinstance(each, str)]
        if not strange:
            return several
        kind = f"{kind} with {type(strange[0]).__name__} in it"
    raise TypeError(f"tokens: what hand_over() returned, a str or several of them, is wanted, not {kind}")
