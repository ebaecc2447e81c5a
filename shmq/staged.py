"""
Messages built aside: as many as you like, seen by nobody, until a queue adopts all of them at once.

A Staged is a producer whose chain is a folder of its own. Forgotten or killed it leaves nothing visible. Handed over,
it is a token, by which any process adopts it, alone or together with others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import itertools
import os
import re
import time
from typing import TYPE_CHECKING, Any, NoReturn

from shmq import _native, ending, errors, given, later
from shmq.producer import Producer
from shmq.room import Room
from shmq.storage import dedup as dedup_records
from shmq.storage import ledger, records, staging, sync
from shmq.storage.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shmq.membership import Membership
    from shmq.queue import Queue
    from shmq.storage.directory import Directory

_SEQUENCE_MAX = (1 << 63) - 1
_TOKEN = re.compile(r"([0-9a-f]{32})-([0-9a-f]{10})-([0-9a-f]{16})-([0-9a-f]{1,16})")
_SETTLE_SECONDS = 30.0
_DESCRIPTORS = 8
"""How many are needed at the most between the SEAL and what adopt says."""
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


class Staged(Producer):
    """
    Messages that are not in the queue yet. Made by `Queue.stage`, joined by `Queue.adopt`; a context manager.

    `put`, `put_many` and `reserve` are a producer's; what they return counts from 0 within this Staged.

    Attributes:
        token: what `hand_over` returned; None before.
    """

    def __init__(self, queue: Queue) -> None:
        """See `Queue.stage`."""
        self.token: str | None = None
        self._pid = os.getpid()
        self._set: staging.Set | None = None
        self._sealed = False
        self._tried = False
        self._adopted: range | None = None
        super().__init__(queue)

    def _make_chain(self) -> Any:
        self._set = staging.new_set(self._home)
        while not self._set.begin():
            self._set = staging.new_set(self._home)
        return _Aside(self._home, self._membership.member, self._set)

    def _make_syncer(self) -> None:
        """All of it is synced when it is adopted."""

    def _roll(self, tail: _native.Chunk, region: int) -> None:
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
        later.ready("shmq.arrow")
        from shmq.arrow import check_batch  # noqa: PLC0415  # only who uses it pays for it

        check_batch(batch)
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
        return f"<shmq.Staged for {self._queue.place}{' (closed)' if self._closed else ''}>"

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
        raw = b"" if owner is None else check_producer(owner, "owner")
        chunks = self._set
        assert chunks is not None  # noqa: S101  # open, so it has one
        self._seal()
        ids, counts, sizes = self._chain.checked()
        chunks.hand_over(raw, self._chain.files, ids, counts, sizes)
        self.token = _token(self.queue_id, chunks.name, ids, counts)
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
        """As `Queue.adopt`, which is how to call it."""
        self._check_open()
        if os.getpid() != self._pid:
            self._rejoin()
        producer, sequence = check_dedup(dedup)
        self._seal()
        if not self._tried:  # else the chunks may have gone to their places
            ids, counts, sizes = self._chain.checked()
            self._manifest = records.Manifest(producer, sequence, self._chain.files, ids, counts, sizes)
        manifest, indexes = self._manifest, sum(self._manifest.counts)
        home, control = self._home, self._membership.control
        chain = Chain(home, self._membership.member)
        with home.admin(), _alone(home, control, producer):
            before = self._adopted_before(chain, indexes) if self._tried else None
            with _housekeeping() if before is not None else contextlib.nullcontext():
                ledger.fold(home, chain)
            known = before or _known(home, chain, producer, sequence)
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
                    _join(self._set, manifest, chain, room, self._chain.pads)
                    if indexes
                    else _nothing(home, chain, producer, sequence)
                )
            except (errors.Full, errors.TooMany, errors.TooLarge):
                self._tried = False  # all of them refuse before the SEAL
                raise
            with _housekeeping():
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


@dataclasses.dataclass(frozen=True)
class HandedOver:
    """
    Messages that were staged and handed over, and are in no queue yet. It pickles.

    Attributes:
        token: what `Staged.hand_over` returned; `Queue.adopt` takes it or this.
        owner: for whom it was handed over; empty when it was not said.
        indexes: how many indexes it will take.
        disk_bytes: the size of its files.
        time_ns: when it was handed over, in ns since 1970.
    """

    token: str
    owner: bytes
    indexes: int
    disk_bytes: int
    time_ns: int

    def __len__(self) -> int:
        """How many indexes it will take."""
        return self.indexes

    def __bool__(self) -> bool:
        """True, also when nothing is in it."""
        return True


def _token(queue_id: bytes, name: str, ids: list[int], counts: list[int]) -> str:
    """
    What stands for a set: queue, name, the id of its first chunk that is adopted, and how many indexes it takes.

    The last two find it in the queue when the set has gone.
    """
    first = next((each for each, count in zip(ids, counts, strict=True) if count), ids[0])
    return f"{queue_id.hex()}-{name}-{first:016x}-{sum(counts):x}"


def describe(queue_id: bytes, name: str, handed: records.Handed) -> HandedOver:
    """What was handed over, for its users."""
    token = _token(queue_id, name, handed.chunk_ids, handed.counts)
    return HandedOver(token, handed.owner, sum(handed.counts), sum(handed.sizes), handed.time_ns)


def find(home: Directory, token: str) -> tuple[staging.Set, records.Handed]:
    """
    The set of a token.

    Raises:
        ValueError: it is no token.
        Mismatch: it was staged for another queue.
        NotFound: it is not there (any more); the error says where in the queue it is, if it is.
    """
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise ValueError(f"{token!r} is nothing that hand_over() has returned")
    if bytes.fromhex(match[1]) != home.queue_id:
        raise errors.Mismatch(f"cannot adopt into {home.path} what was staged for another queue")
    with contextlib.suppress(FileNotFoundError):
        found, handed = ledger.handed_set(home, match[2])
        if _token(home.queue_id, found.name, handed.chunk_ids, handed.counts) == token:
            return found, handed
        found.close()
    there = _place_of(home, token)
    if there:
        raise errors.NotFound(
            f"{home.path} has nothing staged as {token}: it was adopted, and is in the queue at {there.start} to "
            f"{there.stop - 1}; nothing was adopted now"
        )
    raise errors.NotFound(
        f"{home.path} has nothing staged as {token}: it was swept, or adopted and retired since; nothing was adopted "
        "now"
    )


def _place_of(home: Directory, token: str) -> range | None:
    """Where in the queue that is what a token stood for, as far as its first chunk is there; None when it is not."""
    match = _TOKEN.fullmatch(token)
    if match is None or bytes.fromhex(match[1]) != home.queue_id:
        return None
    first, indexes = int(match[3], 16), int(match[4], 16)
    if not indexes:
        return range(0)  # it takes no place
    base = staging.base_of(home, first)
    return None if base is None else range(base, base + indexes)


def _adopted_as(home: Directory, chain: Chain, tokens: Sequence[str]) -> range | None:
    """The range of what was adopted before from these tokens, one behind the other; None when that is not so."""
    if not tokens:
        return None
    places = [_place_of(home, token) for token in tokens]
    taken = [place for place in places if place]
    if None in places or any(one.stop != other.start for one, other in itertools.pairwise(taken)):
        return None
    if not taken:
        end = chain.next_index()
        return range(end, end)
    return range(taken[0].start, taken[-1].stop)


@contextlib.contextmanager
def _housekeeping() -> Iterator[None]:
    """What can be done by the next one as well: for want of room or of descriptors it is left to that one."""
    try:
        yield
    except errors.DiskFull:
        pass
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE):
            raise


def adopt_handed(home: Directory, membership: Membership, tokens: Sequence[str], dedup: Any) -> range:
    """As `Queue.adopt`, which is how to call it: everything of these tokens, in their order, all or nothing."""
    producer, sequence = check_dedup(dedup)
    if len(set(tokens)) != len(tokens):
        raise ValueError(f"{len(tokens)} tokens, of which some are the same")
    chain, control = Chain(home, membership.member), membership.control
    with home.admin(), _alone(home, control, producer), contextlib.ExitStack() as opened:
        before = functools.partial(_adopted_as, home, chain, [] if producer else tokens)
        try:
            ledger.fold(home, chain)
        except errors.DiskFull:
            known = _known(home, chain, producer, sequence) or before()
            if not known:
                raise
            return known
        known = _known(home, chain, producer, sequence)
        if known is not None:
            for token in tokens:  # staged once more for a batch that is there already
                with contextlib.suppress(errors.NotFound):
                    part, _ = find(home, token)
                    opened.enter_context(part).remove()
            return known
        try:
            parts = _open_all(home, opened, tokens)
        except errors.NotFound:  # adopted by a call that was interrupted, perhaps, and could not say so
            known = before()
            if known is None:
                raise
            return known
        ending.check_open(home, control)
        if any(sum(handed.counts) for _, handed in parts):
            room = Room(home, membership, chain)
            adopted = _join_parts(room, chain, parts, records.Manifest(producer, sequence, [], [], [], []))
        else:
            adopted = _nothing(home, chain, producer, sequence)
            for part, _ in parts:
                part.remove()
        with _housekeeping():
            ledger.fold(home, chain)
    control.wake()
    return adopted


def _open_all(
    home: Directory, opened: contextlib.ExitStack, tokens: Sequence[str]
) -> list[tuple[staging.Set, records.Handed]]:
    parts = []
    for token in tokens:
        part, handed = find(home, token)
        parts.append((opened.enter_context(part), handed))
    return parts


@contextlib.contextmanager
def _begun(home: Directory) -> Iterator[staging.Set]:
    """An empty set; forgotten when it was not to be."""
    made = staging.new_set(home)
    try:
        while not made.begin():
            made = staging.new_set(home)
    except BaseException:
        made.forget()
        raise
    with made:
        yield made


def _join_parts(
    room: Room,
    chain: Chain,
    parts: list[tuple[staging.Set, records.Handed]],
    whole: records.Manifest,
) -> range:
    """Adopt what is in several sets by one more, which names their chunks in order. Empty chunks stay behind."""
    for part, handed in parts:
        each = zip(handed.files, handed.chunk_ids, handed.counts, handed.sizes, strict=True)
        for file, chunk_id, count, size in each:
            if count:
                whole.files.append(f"{part.name}/{file}")
                whole.chunk_ids.append(chunk_id)
                whole.counts.append(count)
                whole.sizes.append(size)
    with _begun(parts[0][0].home) as joint:
        try:
            filled, pads = _seal_again(chain, joint, whole, {part.name: part for part, _ in parts})
            allow = functools.partial(room.allow_set, count=sum(whole.counts), region=filled)
            adopted = _join(joint, whole._replace(parts=[part.name for part, _ in parts]), chain, allow, pads)
        except BaseException as problem:
            refused = isinstance(problem, (errors.Full, errors.TooMany, errors.TooLarge))  # all of them before the SEAL
            if refused or joint.manifest_missing():  # else it may be committed, which the next administrator finds out
                joint.remove()
            raise
    return adopted


def _seal_again(
    chain: Chain, joint: staging.Set, whole: records.Manifest, parts: dict[str, staging.Set]
) -> tuple[int, int]:
    """
    Have each chunk lead to the next one by the id of the joint set; the chain goes on plainly behind the last.

    Returns how many bytes of messages are in all of them, and how many indexes of padding.
    """
    filled = pads = 0
    for number, path in enumerate(whole.files):
        name, _, file = path.partition("/")
        part = parts[name]
        try:
            fd, size = joint.home.open(part.fd, file, writable=True)
        except FileNotFoundError:
            raise errors.Corrupt(f"cannot adopt {part.path}: {file} is missing; nothing was adopted") from None
        with fd:
            chunk = chain.map_staged(fd, size, f"{part.path}/{file}", number)
            if (chunk.chunk_id(), chunk.sealed(), size) != (
                whole.chunk_ids[number],
                whole.counts[number],
                whole.sizes[number],
            ):
                raise errors.Corrupt(f"cannot adopt {chunk.path}: it is not what was handed over; nothing was adopted")
            chunk.seal_again(joint.adoption if number + 1 < len(whole.files) else 0)
            filled += chunk.filled()[1]
            pads += chunk.pads()
            sync.data(fd, "staged")
    return filled, pads


def _alone(home: Directory, control: _native.Control, producer: bytes) -> contextlib.AbstractContextManager[None]:
    """Nobody puts with dedup as that producer meanwhile, not even the queue's first such put."""
    if not producer:
        return contextlib.nullcontext()
    return dedup_records.alone(home, control, producer, dedup_records.admin_deadline(), "adopt into")


def last_of(home: Directory, chain: Chain, producer: bytes) -> records.Adopted | None:
    """The last batch of that producer, adopted or put."""
    if dedup_records.is_used(home):
        return dedup_records.Known(home, chain).last(producer)
    return ledger.batches_of(home).get(producer)


def _known(home: Directory, chain: Chain, producer: bytes, sequence: int) -> range | None:
    """What this batch was adopted or put as, if it was."""
    if not producer:
        return None
    tried = f"adopt into {home.path}"
    if dedup_records.is_used(home):
        return dedup_records.Known(home, chain).find(producer, sequence, tried)
    return dedup_records.known(ledger.batches_of(home).get(producer), producer, sequence, tried)


def _join(
    chunks: staging.Set | None,
    manifest: records.Manifest,
    chain: Chain,
    allow: Callable[[_native.Chunk], None],
    pads: int,
) -> range:
    """Adopt what that manifest names, *pads* indexes of which have no message."""
    assert chunks is not None  # noqa: S101  # open, so it has one
    chunks.drop_manifest()  # of a try that failed
    chunks.make_room()
    chunks.commit_manifest(manifest)
    tail = chain.tail()
    chunks.home.raise_ceiling(tail.base + tail.size // _native.RECORD_BYTES_MIN + sum(manifest.counts))
    while True:
        allow(tail)
        _check_descriptors(chunks.home)
        with chain.member.changing_padding():
            sealed = tail.seal_adopt(chunks.adoption)  # with this, it is adopted
            if sealed:
                chain.member.control.padded_more(pads)
        if sealed:
            break
        if sealed is False:
            tail = chain.roll(tail, to_seal=True)
            chunks.home.raise_ceiling(tail.base + tail.size // _native.RECORD_BYTES_MIN + sum(manifest.counts))
    first = tail.sealed()
    assert first is not None  # noqa: S101  # just now
    with _housekeeping():  # whoever comes next goes on with it
        chain.after(tail, finish=True)
    _settle(chunks.home, tail, first)
    return range(first, first + sum(manifest.counts))


def _check_descriptors(home: Directory) -> None:
    """
    Refuse before the SEAL what could not be finished behind it.

    Raises:
        OSError: the process, or the system, has too few descriptors left.
    """
    with contextlib.ExitStack() as taken:
        try:
            for _ in range(_DESCRIPTORS):
                taken.callback(os.close, os.dup(home.fd))
        except OSError as problem:
            raise OSError(
                problem.errno,
                f"cannot adopt into {home.path}: {_DESCRIPTORS} descriptors are needed and are not free "
                f"({problem.strerror}); nothing was adopted",
            ) from None


def _settle(home: Directory, tail: _native.Chunk, first: int) -> None:
    """
    Have everything before the SEAL resolved, and then on the disk.

    A recovery cuts at the first claim that is open on the disk. One that a neighbour has not committed before the
    sync would take the SEAL, and the batch with it, although it was said to be adopted.
    """
    until = time.monotonic() + _SETTLE_SECONDS
    while tail.resolved().code == _native.WAITING:
        if time.monotonic() > until:
            raise errors.SyncPending(
                f"the batch is in {home.path} from index {first} on, but a put before it has not ended for "
                f"{_SETTLE_SECONDS:g} s; until it does, a power cut may take the batch. Do not adopt it again",
                first,
            )
        time.sleep(0.001)
    staging.sync_up_to(home, tail.sequence)


def _nothing(home: Directory, chain: Chain, producer: bytes, sequence: int) -> range:
    """An empty batch takes no place, but is remembered."""
    end = chain.next_index()
    if producer:
        ledger.write_ledger(home, {**ledger.ledger(home), producer: records.Adopted(sequence, end, 0)})
    return range(end, end)


def check_sets(staged: Any) -> list[Any]:
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


def check_producer(producer: str | bytes, name: str = "producer") -> bytes:
    """
    A producer's name as it is kept.

    Raises:
        TypeError, ValueError: it cannot be kept.
    """
    if not isinstance(producer, (str, bytes)):
        raise given.wrong_type(name, producer, "a str or bytes")
    raw = producer.encode() if isinstance(producer, str) else producer
    if not 0 < len(raw) <= staging.PRODUCER_MAX:
        raise ValueError(f"{name}: a name of {len(raw)} bytes; 1 to {staging.PRODUCER_MAX} are kept")
    return raw


def check_dedup(dedup: tuple[str | bytes, int] | None) -> tuple[bytes, int]:
    """
    Producer and sequence as they are kept; no name for None.

    Raises:
        TypeError, ValueError: they cannot be kept.
    """
    if dedup is None:
        return b"", 0
    if not isinstance(dedup, (tuple, list)) or len(dedup) != 2:
        raise given.wrong_type("dedup", dedup, "a pair (producer, sequence)")
    producer, sequence = dedup
    number = given.whole("dedup: sequence", sequence, 0, _SEQUENCE_MAX)
    return check_producer(producer, "dedup: producer"), number
