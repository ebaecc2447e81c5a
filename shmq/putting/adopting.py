"""
Adopting: what was built aside becomes part of the queue at once, whoever is killed wherever.

A manifest names the chunk files of the set. It is on the disk before the live chunk is sealed in favour of the set, and
that SEAL is the commit (docs/protocol.md). Here is what both ways have in common: a Staged that its own process adopts,
and sets that were handed over, one or several, which come in one behind the other.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import time

from shmq import _native, ending, errors, given, later
from shmq.hints import TYPE_CHECKING
from shmq.putting.handed import find, place_of
from shmq.putting.room import Room
from shmq.storage import dedup as dedup_records
from shmq.storage import ledger, records, staging, sync
from shmq.storage.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from shmq.membership import Membership
    from shmq.session import Session
    from shmq.storage.directory import Directory

_SETTLE_SECONDS = 30.0
_DESCRIPTORS = 8
"""How many are needed at the most between the SEAL and what adopt says."""


def _adopted_as(home: Directory, chain: Chain, tokens: Sequence[str]) -> range | None:
    """The range of what was adopted before from these tokens, one behind the other; None when that is not so."""
    if not tokens:
        return None
    places = [place_of(home, token) for token in tokens]
    taken = [place for place in places if place]
    if None in places or any(one.stop != other.start for one, other in itertools.pairwise(taken)):
        return None
    if not taken:
        end = chain.next_index()
        return range(end, end)
    return range(taken[0].start, taken[-1].stop)


@contextlib.contextmanager
def housekeeping() -> Iterator[None]:
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
    producer, sequence = given.dedup(dedup)
    if len(set(tokens)) != len(tokens):
        raise ValueError(f"{len(tokens)} tokens, of which some are the same")
    chain, control = Chain(home, membership.member), membership.control
    with home.admin(), alone(home, control, producer), contextlib.ExitStack() as opened:
        before = functools.partial(_adopted_as, home, chain, [] if producer else tokens)
        try:
            ledger.fold(home, chain)
        except errors.DiskFull:
            there = known(home, chain, producer, sequence) or before()
            if not there:
                raise
            return there
        there = known(home, chain, producer, sequence)
        if there is not None:
            for token in tokens:  # staged once more for a batch that is there already
                with contextlib.suppress(errors.NotFound):
                    part, _ = find(home, token)
                    opened.enter_context(part).remove()
            return there
        try:
            parts = _open_all(home, opened, tokens)
        except errors.NotFound:  # adopted by a call that was interrupted, perhaps, and could not say so
            there = before()
            if there is None:
                raise
            return there
        ending.check_open(home, control)
        if any(sum(handed.counts) for _, handed in parts):
            room = Room(home, membership, chain)
            adopted = _join_parts(room, chain, parts, records.Manifest(producer, sequence, [], [], [], []))
        else:
            adopted = nothing(home, chain, producer, sequence)
            for part, _ in parts:
                part.remove()
        with housekeeping():
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
            adopted = join(joint, whole._replace(parts=[part.name for part, _ in parts]), chain, allow, pads)
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


def alone(home: Directory, control: _native.Control, producer: bytes) -> contextlib.AbstractContextManager[None]:
    """Nobody puts with dedup as that producer meanwhile, not even the queue's first such put."""
    if not producer:
        return contextlib.nullcontext()
    return dedup_records.alone(home, control, producer, dedup_records.admin_deadline(), "adopt into")


def known(home: Directory, chain: Chain, producer: bytes, sequence: int) -> range | None:
    """What this batch was adopted or put as, if it was."""
    if not producer:
        return None
    tried = f"adopt into {home.path}"
    if dedup_records.is_used(home):
        return dedup_records.Known(home, chain).find(producer, sequence, tried)
    return dedup_records.known(ledger.batches_of(home).get(producer), producer, sequence, tried)


def join(
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
                chain.member.control.add_padding(pads)
        if sealed:
            break
        if sealed is False:
            tail = chain.roll(tail, to_seal=True)
            chunks.home.raise_ceiling(tail.base + tail.size // _native.RECORD_BYTES_MIN + sum(manifest.counts))
    first = tail.sealed()
    assert first is not None  # noqa: S101  # just now
    with housekeeping():  # whoever comes next goes on with it
        chain.after(tail, finish=True)
    _settle(chunks.home, tail, first)
    return range(first, first + sum(manifest.counts))


def _check_descriptors(home: Directory) -> None:
    """
    Refuse before the SEAL what could not be finished behind it.

    Raises:
        OSError: the process, or the system, has too few descriptors left.
    """
    taken: list[_native.Fd] = []  # each closes itself, whoever is interrupted here
    try:
        taken.extend(_native.Fd.of(os.dup, home.fd) for _ in range(_DESCRIPTORS))
    except OSError as problem:
        raise OSError(
            problem.errno,
            f"cannot adopt into {home.path}: {_DESCRIPTORS} descriptors are needed and are not free "
            f"({problem.strerror}); nothing was adopted",
        ) from None
    finally:
        taken.clear()


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


def have_it_followed(session: Session, joined: Membership, adopted: range) -> None:
    """
    Where puts wait for followers: wait until n of them have what was adopted, as long as that takes.

    Raises:
        SyncPending: something interrupted it, or the queue was closed. It is adopted; do not adopt it again.
    """
    home = session.home
    if home.options.durability.kind != "replicated" or not adopted:
        return
    later.ready("shmq.durability")
    from shmq.durability import Syncer  # noqa: PLC0415  # only this mode pays for it

    syncer = Syncer(home, joined, is_over=lambda: session.closed)
    syncer.wait(None, adopted[-1], _native.FOREVER, adopted.start)


def nothing(home: Directory, chain: Chain, producer: bytes, sequence: int) -> range:
    """An empty batch takes no place, but is remembered."""
    end = chain.next_index()
    if producer:
        ledger.write_ledger(home, {**ledger.ledger(home), producer: records.Adopted(sequence, end, 0)})
    return range(end, end)
