"""
Which chunks may go, and taking them away: oldest first, whole, never the last one.

`first_live` rises, in the journal and in the control page, before any name goes, so that a slow roller cannot bring a
retired name back to life. Naming a consumer and retiring take the same administrative lock, so a floor cannot be
computed without a name that is just being made.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import time

from shmq import _native, errors, later, log
from shmq._native.layout import chunk_header
from shmq.hints import TYPE_CHECKING
from shmq.storage import floors, laggards, new_chunks, pins, spares, warm
from shmq.storage.paths import CHUNKS, chunk_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory

LARGE = 1 << 20
"""Smaller chunks are taken away one by one, as soon as they are finished."""
SEVERAL, IN_MEMORY = 4, 2
"""So many of the others are taken away at a time: on a disk, where each time is a sync; and where there is none."""
MUCH = 16 << 20
"""Or so many bytes of them: more would not stay in a processor's cache, and takes longer to fill than to take away."""
_TRIES, _PAUSE = 100, 0.001
"""How often to count padding anew while others pad, and seconds in between."""
_PATIENCE = 0.25
"""Seconds that a put on a full disk waits for whoever administers."""
_CREATED = struct.Struct("<q")
_BORN = struct.Struct("<Q")


def floor(home: Directory, chain: Chain) -> int | None:
    """
    The first index that some consumer name has not finished; None when nothing is, since there is no name.

    Under the administrative lock.
    """
    dropped = chain.member.control.bounds().dropped
    names = _names_of(home, chain)
    names.look(locked=True)
    found = names.floors(dropped)
    laggards.tell(home, chain, chain.member.control, found)
    lowest = names.lasting(dropped)
    return (dropped or None) if lowest is None else lowest


def _names_of(home: Directory, chain: Chain) -> floors.Names:
    """All names, as this opening has them mapped from the last time. Under the administrative lock."""
    known, of = home.names_known
    if known is None or of is not chain.member:  # a forked child has another one
        known = floors.Names(home, chain.member)
        home.names_known = known, chain.member
    return known  # type: ignore[no-any-return]  # storage/floors.py knows the directory


def retire(home: Directory, chain: Chain, control: _native.Control) -> None:
    """
    Take away what retention allows, unless somebody else administers just now.

    It is done beside what the caller was asked for: where the world refuses it, the log says so, and the next one does
    it.
    """
    with _beside(home, "keeps what retention allows to take away"):
        _try(home, chain, control, patience=0)


def passed(home: Directory, chain: Chain, control: _native.Control, chunk: _native.Chunk) -> bool:
    """
    For a consumer that has come to *chunk*: `retire`, when it is worth while; False when it was left for later.

    Large chunks are taken away several at a time, since it costs as much as reading some MiB. Until then they stand
    there as used files would, and a producer that wants one takes them away itself.
    """
    if home.options.retention.kind == "acked" and chunk.size >= LARGE:
        waiting = chunk.sequence - control.first_live()
        several = IN_MEMORY if home.kind == "tmpfs" else SEVERAL
        if waiting < several and waiting * chunk.size < min(MUCH, new_chunks.room_for_spares(home)):
            return False
    retire(home, chain, control)
    return True


def make_room(home: Directory, chain: Chain, control: _native.Control) -> None:
    """The same where the disk is full: who administers just now may not have seen what was finished last."""
    _try(home, chain, control, patience=_PATIENCE)


def retire_purged(home: Directory, chain: Chain, control: _native.Control) -> None:
    """
    Take away what everybody has finished, whatever retention says. Under the administrative lock.

    What was purged is purged: where the world refuses its space, the log says so.
    """
    with _beside(home, "is purged, but its disk space was not given back yet"):
        _retire_and_reclaim(home, chain, control, purged=True)


def _try(home: Directory, chain: Chain, control: _native.Control, *, patience: float) -> None:
    if home.read_only or home.follow(control).retention.kind == "forever":
        return
    with contextlib.suppress(errors.Busy), home.at_hand(), home.admin(timeout=patience):
        _retire_and_reclaim(home, chain, control, purged=False)


@contextlib.contextmanager
def _beside(home: Directory, what: str) -> Iterator[None]:
    """Log what goes wrong, as *what*."""
    try:
        yield
    except (OSError, errors.ShmqError) as problem:
        log.say(log.WARNING, "%s %s: %s; the next retirement or purge does it", home.path, what, problem)


def _retire_and_reclaim(home: Directory, chain: Chain, control: _native.Control, *, purged: bool) -> None:
    _retire(home, chain, control, purged=purged)
    warm.settle()  # what was looked at on the way stays locked until then
    spares.reclaim(home.chunks, new_chunks.worth_keeping(home), new_chunks.room_for_spares(home))


def _retire(home: Directory, chain: Chain, control: _native.Control, *, purged: bool) -> None:
    kind = "acked" if purged else home.follow(control).retention.kind  # as it is now, under the lock
    live, count = _may_go(home, chain, kind)
    there = _names_of(home, chain).files if kind == "acked" else None  # else nobody has looked
    held = pins.floor(home, control.bounds().dropped, there)
    if held is not None:
        count = min(count, sum(base <= held for _, base in live[1:]))
    if count <= 0:
        return
    if kind != "acked":
        for sequence, base in live[:count]:  # a late producer is fenced, not told a dead index
            chain.open(sequence, base).bury(0)
    sequence, base = live[count]
    if not _noted(home, chain, sequence):
        return  # somebody may still put with dedup there
    less = 0
    if control.counters()[0]:
        less = sum(_without(home, chain, *pair) for pair in itertools.pairwise(live[: count + 1]))
    dropped = control.bounds().dropped  # written down for a later boot when the disk is asked anyway
    journal = home.read_journal()
    journal = journal._replace(first_live=sequence, first_index=base, dropped=max(journal.dropped, dropped))
    home.write_journal(journal)
    with chain.member.changing_padding():
        control.raise_first_live(sequence)
        control.remove_padding(less)
    for name in live[:count]:
        spares.retire(home.chunks, chunk_name(name[1], name[0]))
    for sequence_below, base_below in chain.brought_back:  # by a slow roller, who finds out unless it was killed
        home.drop_chunk(base_below, sequence_below)
    control.room()  # with age and bytes, what has gone is finished for everybody


def _noted(home: Directory, chain: Chain, before: int) -> bool:
    """Have it remembered what was put with dedup in the chunks before that one; False where that is not known yet."""
    if not home.has_dedup():
        return True
    later.ready("shmq.storage.dedup")
    from shmq.storage import dedup  # noqa: PLC0415  # only where it is used

    return dedup.note(home, chain, before)


def _without(home: Directory, chain: Chain, name: tuple[int, int], after: tuple[int, int]) -> int:
    """Indexes without a message that go with that chunk: padding, and what a recovery left out behind it."""
    chunk = chain.open(*name)
    gap = 0 if _epoch(home, name) == _epoch(home, after) else max(after[1] - chunk.next_index(), 0)
    return chunk.pads() + gap


def padded(home: Directory, chain: Chain) -> int:
    """How many indexes there are that have no message."""
    member = chain.member
    if home.view is None and not member.padding_doubted():
        return member.control.counters()[0]
    return _count_padding(home, chain)


def _without_in_last(chain: Chain, name: tuple[int, int]) -> int:
    """Likewise of the last chunk: a recovery that cut it leaves out what comes before the next put."""
    chunk = chain.open(*name)
    behind = chunk.sealed()
    return chunk.pads() + (0 if behind is None else behind - chunk.next_index())


def _count_padding(home: Directory, chain: Chain) -> int:
    """By the words, since somebody was killed between changing them and counting; for everybody, if it goes well."""
    for _ in range(_TRIES):
        begun = None if home.read_only else chain.member.count_padding()
        with contextlib.suppress(errors.Gone, FileNotFoundError):  # retired meanwhile: again
            live = chain.names()
            total = sum(_without(home, chain, *pair) for pair in itertools.pairwise(live))
            total += _without_in_last(chain, live[-1]) if live else 0
            if home.read_only or (begun is not None and chain.member.padding_counted(begun, total)):
                return total
        time.sleep(_PAUSE)
    return chain.member.control.counters()[0]  # somebody is stopped in between; the next one counts


def _may_go(home: Directory, chain: Chain, kind: str) -> tuple[list[tuple[int, int]], int]:
    """The oldest chunks, as many as may go and one more at least, and how many may: never the last."""
    retention = home.options.retention
    if kind == "bytes":
        live = chain.names()
        sizes = [os.stat(chunk_name(base, seq), dir_fd=home.chunks).st_size for seq, base in live]
        kept = itertools.takewhile(lambda total: total <= retention.limit, itertools.accumulate(reversed(sizes)))
        return live, max(len(sizes) - max(sum(1 for _ in kept), 1), 0)
    if kind == "age":
        limit = time.time_ns() - int(retention.limit * 1e9)
        # Whatever is in a chunk was put before its successor was made (as long as the clock goes forward).
        live = chain.oldest(lambda after: _created(home, after) <= limit)
    else:
        finished = None if kind == "forever" else floor(home, chain)
        live = [] if finished is None else chain.oldest(lambda after: after[1] <= finished)
    return live, max(len(live) - 1, 0)


def _epoch(home: Directory, name: tuple[int, int]) -> bytes:
    fd, _ = home.open(home.chunks, chunk_name(name[1], name[0]), writable=False)
    with fd:
        return os.pread(fd, 8, chunk_header.epoch)


def _created(home: Directory, name: tuple[int, int]) -> int:
    fd, _ = home.open(home.chunks, chunk_name(name[1], name[0]), writable=False)
    with fd:
        raw = os.pread(fd, _CREATED.size, chunk_header.created_ns)
        born = os.pread(fd, _BORN.size, chunk_header.born_sequence)
        moved_ns = os.fstat(fd).st_ctime_ns
    if len(raw) < _CREATED.size:
        raise errors.Corrupt(f"cannot read {home.path}/{CHUNKS}/{chunk_name(name[1], name[0])}: it was cut short")
    created = int(_CREATED.unpack(raw)[0])
    # A chunk that was staged came into the chain when its file moved there.
    return max(created, moved_ns) if born == _BORN.pack(_native.STAGED) else created
