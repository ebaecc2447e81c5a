"""
Messages built aside: as many as you like, seen by nobody, until a queue adopts all of them at once.

A Staged is a producer whose chain is a folder of its own. Forgotten or killed it leaves nothing visible. Handed over,
it is a token, by which any process adopts it, alone or together with others.
"""

from __future__ import annotations

import contextlib
import functools
import os

from shmq import _native, ending, errors, given, later
from shmq.hints import TYPE_CHECKING, Any, T
from shmq.putting import adopting
from shmq.putting.handed import HandedOver, token_of
from shmq.putting.producer import Producer
from shmq.putting.room import Room
from shmq.storage import ledger, records, staging, sync
from shmq.storage.chain import Chain

if TYPE_CHECKING:
    from typing import NoReturn

    from shmq.session import Session
    from shmq.storage.directory import Directory

_CLAIM_ROWS = 4096
_CLAIM_BYTES = 8 << 20
"""Of a record batch, which is claimed by parts: the one that fits into what is left of a chunk wastes little of it."""


class _Aside:
    """The chunks of one staged set, in place of a chain."""

    def __init__(self, home: Directory, member: _native.Member, chunks: staging.Set) -> None:
        """No chunk yet."""
        self._home = home
        self._member = member
        self._set = chunks
        self._made: list[tuple[str, int]] = []
        """File and first index of each."""
        self.filled = self.pads = 0
        """Bytes of what is in it, and how many indexes are padding, once that was checked."""

    def tail(self) -> _native.Chunk:
        """The first chunk."""
        return self._make(0, 0, 0)

    def roll(self, chunk: _native.Chunk, region: int = 0) -> _native.Chunk:
        """The chunk behind a sealed one."""
        base = chunk.sealed()
        return chunk if base is None else self._make(chunk.sequence + 1, base, region)

    def _make(self, number: int, base: int, region: int) -> _native.Chunk:
        """Once more, when the first time was interrupted: nobody has put into that one."""
        fd, size, name = self._set.add(number, region)
        with fd:
            chunk = self._map(fd, size, name, number, base, writable=True)
        chunk.seals_as(self._set.adoption)
        self._made[number:] = [(name, base)]
        return chunk

    @property
    def files(self) -> list[str]:
        """Their names, in order."""
        return [name for name, _ in self._made]

    def _map(self, fd: int, size: int, name: str, number: int, base: int, *, writable: bool) -> _native.Chunk:
        return _native.Chunk(
            fd,
            size,
            base=base,
            sequence=number,
            queue_id=self._home.queue_id,
            member=self._member,
            path=f"{self._set.path}/{name}",
            writable=writable,
            padding=False,
            checksum=self._home.options.checksum,
        )

    def checked(self) -> tuple[list[int], list[int], list[int]]:
        """Chunk ids, counts and sizes, after reading every message back and syncing every file."""
        ids, counts, sizes = [], [], []
        self.filled = self.pads = 0
        for number, (name, base) in enumerate(self._made):
            fd, size = self._home.open(self._set.fd, name, writable=False)
            with fd:
                chunk = self._map(fd, size, name, number, base, writable=False)
                messages = chunk.messages()
                self.filled += chunk.filled()[1]
                end = chunk.sealed()
                if end is None:
                    raise errors.Corrupt(f"cannot adopt {chunk.path}: it is not sealed")
                self.pads += end - base - messages
                ids.append(chunk.chunk_id())
                counts.append(end - base)
                sizes.append(size)
                sync.data(fd, "staged")
        return ids, counts, sizes


class Staged(Producer[T]):
    """
    Messages that are not in the queue yet. Made by `Queue.stage`, joined by `Queue.adopt`; a context manager.

    `put`, `put_many` and `reserve` are a producer's; what they return counts from 0 within this Staged.

    Attributes:
        token: what `hand_over` returned; None before.
    """

    def __init__(self, session: Session) -> None:
        """See `Queue.stage`."""
        self.token: str | None = None
        self._pid = os.getpid()
        self._set: staging.Set | None = None
        self._sealed = False
        self._tried = False
        self._adopted: range | None = None
        self._closing = False
        super().__init__(session)

    def _make_chain(self) -> Any:
        self._set = staging.new_set(self._home)
        while not self._set.begin():
            self._set = staging.new_set(self._home)
        return _Aside(self._home, self._membership.member, self._set)

    def _make_syncer(self) -> None:
        """All of it is synced when it is adopted."""

    def _roll(self, tail: _native.Chunk, region: int, deadline_ns: int = _native.FOREVER) -> None:  # noqa: ARG002
        if self._sealed:
            raise errors.Closed(f"cannot put into what was staged for {self._home.path}: it is being adopted")
        with self._lock:
            if self._tail is tail:
                try:
                    self._use(self._chain.roll(tail, region))
                except errors.DiskFull as problem:
                    problem.args = (f"cannot stage for {self._home.path}: {problem.args[0]}; nothing was put",)
                    raise

    def _turn(self, dedup: tuple[str | bytes, int]) -> NoReturn:  # noqa: ARG002
        raise ValueError("dedup of what is staged is said once for all of it: Queue.adopt(staged, dedup=...)")

    def _rejoin(self) -> None:
        raise errors.Forked(
            f"what was staged for {self._home.path} belongs to the parent process {self._pid}; stage your own"
        )

    def put_arrow(
        self,
        batch: Any,
        *,
        ttl: float | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> range:
        """
        As `Queue.put_arrow`, but any number of rows: nobody sees any of it before all of it is adopted.

        Raises:
            Corrupt, ValueError, TooLarge, DiskFull: some of the rows before may be in it; forget it and stage anew.
        """
        later.ready("shmq.reading.arrow")
        from shmq.reading.arrow import check_batch  # noqa: PLC0415  # only who uses it pays for it

        batch = check_batch(batch)
        first = len(self)
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, _CLAIM_ROWS)
            while part.num_rows > 1 and part.nbytes > _CLAIM_BYTES:
                part = part.slice(0, part.num_rows // 2)
            super().put_arrow(part, ttl=ttl, dedup=dedup, timeout=timeout)
            at += part.num_rows
        return range(first, first + at)

    @property
    def queue_id(self) -> bytes:
        """The queue that it was staged for."""
        return self._home.queue_id

    def __len__(self) -> int:
        """How many indexes it will take."""
        return int(self._tail.next_index())

    def __bool__(self) -> bool:
        """True, also when nothing was put yet."""
        return True

    def __repr__(self) -> str:
        """Queue and state, for people."""
        return f"<shmq.Staged for {self._session.place}{' (closed)' if self._closed else ''}>"

    def close(self) -> None:
        """Forget what was staged, unless it was adopted. Closing twice is fine."""
        if os.getpid() != self._pid:
            return
        self._closed = True
        if self._set is not None:
            with contextlib.suppress(OSError):  # the next opener sweeps it
                # One that was tried may be committed, which is for the holder of the lock to find out.
                if self.token is None and not self._tried:
                    self._set.forget()
            self._set.close()
        super().close()

    def __reduce__(self) -> NoReturn:
        """It does not pickle: its token does."""
        raise TypeError(
            f"cannot pickle what is being staged for {self._home.path}: send the token that its hand_over() returns"
        )

    # ---- handing over
    def hand_over(self, *, owner: str | bytes | None = None) -> str:
        """
        Leave what was staged to whoever has the token that this returns: `Queue.adopt` takes it, in any process.

        When this returns, everything is on the disk, and this process may end: the messages wait, seen by nobody, until
        they are adopted, swept (`Queue.sweep_staged`), or a week has passed. Killed before that, it leaves nothing. It
        is closed afterwards.

        Args:
            owner: for whom, to find it again or to sweep it without its token. Up to 1,024 bytes.

        Raises:
            Busy: something in it is reserved and not committed.
            DiskFull: there is no room to write down what is in it; it is still open.
        """
        if self.token is not None:
            return self.token
        self._check_open()
        if os.getpid() != self._pid:
            self._rejoin()
        raw = b"" if owner is None else given.producer(owner, "owner")
        chunks = self._set
        assert chunks is not None  # noqa: S101  # open, so it has one
        self._seal()
        ids, counts, sizes = self._chain.checked()
        chunks.hand_over(raw, self._chain.files, ids, counts, sizes)
        self.token = token_of(self.queue_id, chunks.name, ids, counts)
        self.close()
        return self.token

    # ---- adopting
    def _seal(self) -> None:
        """Nothing is put any more; the last chunk is sealed plainly, for the chain goes on behind it as ever."""
        with self._lock:
            self._sealed = True
            self._tail.seals_as(0)
            self._tail.seal()
            if self._tail.adoption():  # it was full, and nothing came behind it
                self._use(self._chain.roll(self._tail))
                self._tail.seals_as(0)
                self._tail.seal()

    def adopt(self, dedup: tuple[str | bytes, int] | None) -> range:
        """As `Queue.adopt`, which is how to call it. Interrupted anywhere, it can be repeated."""
        adopted = self._adopted = self._adopt(dedup)
        self._closing = True
        self.close()
        self._closing = False  # from now on it is closed, as anything is that was closed
        return adopted

    def _adopt(self, dedup: tuple[str | bytes, int] | None) -> range:
        if self._closing and self._adopted is not None:
            return self._adopted  # interrupted as it was closed behind that
        self._check_open()
        if os.getpid() != self._pid:
            self._rejoin()
        producer, sequence = given.dedup(dedup)
        self._seal()
        if not self._tried:  # else the chunks may have gone to their places
            ids, counts, sizes = self._chain.checked()
            self._manifest = records.Manifest(producer, sequence, self._chain.files, ids, counts, sizes)
        manifest, indexes = self._manifest, sum(self._manifest.counts)
        home, control = self._home, self._membership.control
        chain = Chain(home, self._membership.member)
        with home.admin(), adopting.alone(home, control, producer):
            before = self._adopted_before(chain, indexes) if self._tried else None
            with adopting.housekeeping() if before is not None else contextlib.nullcontext():
                ledger.fold(home, chain)
            known = before or adopting.known(home, chain, producer, sequence)
            if known is not None:
                return known
            ending.check_open(home, control)
            if control.sync_failed():
                raise errors.SyncFailed(
                    f"cannot adopt into {home.path}: a sync of it failed before; nothing was adopted"
                )
            self._tried = True
            room = functools.partial(
                Room(home, self._membership, chain).allow_set, count=indexes, region=self._chain.filled
            )
            try:
                adopted = self._adopted = (
                    adopting.join(self._set, manifest, chain, room, self._chain.pads)
                    if indexes
                    else adopting.nothing(home, chain, producer, sequence)
                )
            except (errors.Full, errors.TooMany, errors.TooLarge):
                self._tried = False  # all of them refuse before the SEAL
                raise
            with adopting.housekeeping():
                ledger.fold(home, chain)
        control.wake()
        return adopted

    def _adopted_before(self, chain: Chain, indexes: int) -> range | None:
        """Where all of it is, if a try that was interrupted had committed it."""
        chunks = self._set
        assert chunks is not None  # noqa: S101  # open, so it has one
        chain.finish()  # meets its SEAL, and gives it its place
        placed = chunks.placed() if self._adopted is None else None
        if placed is not None:
            self._adopted = range(placed[1], placed[1] + indexes)
        elif self._adopted is None and os.fstat(chunks.fd).st_nlink == 0:
            raise errors.NotFound(
                f"{self._home.path} has nothing staged as {chunks.name}: it was adopted by a try that was interrupted, "
                "or swept; nothing was adopted now"
            )
        return self._adopted


def adopt(session: Session, staged: Any, dedup: tuple[str | bytes, int] | None) -> range:
    """As `Queue.adopt`."""
    session.refuse_read_only("adopt")
    joined = session.joined()  # asked for now: the queue may be closed by the time it is adopted
    alone = isinstance(staged, (Staged, HandedOver, str))
    several: list[Any] = [staged] if alone else _check_sets(staged)
    for each in several:
        if isinstance(each, Staged) and each.queue_id != session.home.queue_id:
            raise errors.Mismatch(f"cannot adopt into {session.path} what was staged for another queue")
    if alone and isinstance(staged, Staged) and staged.token is None:
        adopted = staged.adopt(dedup)
    else:
        adopted = _adopt_handed(session, several, dedup)
    adopting.have_it_followed(session, joined, adopted)
    return adopted


def _adopt_handed(session: Session, several: list[Any], dedup: tuple[str | bytes, int] | None) -> range:
    tokens = [
        each if isinstance(each, str) else each.hand_over() if isinstance(each, Staged) else each.token
        for each in several
    ]
    return adopting.adopt_handed(session.home, session.joined(), tokens, dedup)


def _check_sets(staged: Any) -> list[Any]:
    """
    What was staged, in the order given.

    Raises:
        TypeError: something in it is nothing that can be adopted.
    """
    wanted = "what stage() or hand_over() has returned, or a list of such,"
    if isinstance(staged, (bytes, dict)) or not hasattr(staged, "__iter__"):
        raise given.wrong_type("staged", staged, wanted)
    several = list(staged)
    for each in several:
        if not isinstance(each, (Staged, HandedOver, str)):
            raise given.wrong_type("staged", each, wanted)
    return several
