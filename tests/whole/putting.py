"""The verbs that put: one, many, once, in place, aside."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis.strategies as st
import pytest

import shmq
from tests.whole.model import MAYBE, Entry
from tests.whole.processes import on
from tests.whole.steps import first, verb

FULL = (shmq.Full, shmq.TooMany, shmq.TooLarge)
SMALL = st.binary(max_size=60)
KEYS = st.sampled_from([None, b"k", b"l"])
SIZES = st.sampled_from([0, 0, 0, 0, 0, 0, 1000, 5000, 15_000, 40_000])
HOUR = 3600.0
PRODUCERS = st.sampled_from("pq")
SEQUENCES = st.integers(0, 5)


@st.composite
def entries(draw):
    fields = draw(st.integers(0, 3))
    payload, more = draw(SMALL), draw(SIZES)
    if fields == 0:
        return Entry(payload, more=more)
    return Entry(
        payload,
        key=draw(KEYS),
        type=draw(st.integers(0, 65535)),
        headers=draw(st.none() | st.dictionaries(st.sampled_from("ab"), st.integers(0, 9), min_size=1)),
        expired=draw(st.integers(0, 7)) == 0,
        later=draw(st.integers(0, 7)) == 0,
        time_ns=draw(st.sampled_from([None, None, None, 1, 2, 3, 4, 5])),
        more=more,
    )


def several(most: int = 6):
    return st.lists(entries(), min_size=1, max_size=most)


def fill(slot: Any) -> int:
    """Every byte of it; how many."""
    slot.buffer[:] = bytes(len(slot.buffer))
    return len(slot.buffer)


def dropped(queue: Any) -> int:
    """What the queue says was dropped or purged: all below."""
    return queue._session.joined().control.bounds().dropped


class Putting:
    """Of `Whole`."""

    @staticmethod
    def placed(put):
        """The index of what was put, on the disk or not yet: with SYNC it waits for what is open before it."""
        try:
            return put()
        except shmq.SyncPending as pending:
            return pending.index

    def number(self, *several):
        """Have each payload be of one message alone, so that it says which it is."""
        for entry in several:
            raw = next(self.numbers).to_bytes(3, "little") + entry.payload + bytes(entry.more)
            entry.payload = raw.hex() if self.codec == "json" else raw

    def refused(self, put, several, count: int | None = None):
        """What *put* answers; None where it must be refused, and was."""
        if self.ended():
            with pytest.raises(shmq.ShutDown):
                put()
            return None
        count = len(several) if count is None else count
        fits = self.log.fits(count)
        if fits is True and (self.byte_bound or self.log.fits(count + len(self.slots)) is not True):
            fits = MAYBE  # what is reserved takes room, too
        if fits is False and self.loses:
            fits = MAYBE  # what has gone meanwhile makes room
        self.on_the_way, self.coming = several, count
        if fits is True:
            answer = put()
            self.coming = 0
            self.dropping()
            return answer
        try:
            answer = put()
            self.coming = 0
        except shmq.DiskFull:
            raise
        except FULL:
            return None
        drops = self.log.full == "drop_oldest" and (self.log.max_messages is None or count <= self.log.max_messages)
        assert drops or fits == MAYBE, f"put {count} beyond the bound of {self.log.max_messages}"
        self.dropping()
        return answer

    def dropping(self) -> None:
        """
        With full="drop_oldest": what the queue says it dropped is dropped, and that is no more than it had to.

        P13: what was dropped for a put that then finds the disk full stays dropped; and what a member held when it
        died nobody holds, be it for the last time.
        """
        now = on(self.queue, dropped)
        if now > self.log.dropped:
            assert self.log.full == "drop_oldest"
            assert self.byte_bound or now <= self.queue.next_index + self.coming - self.log.max_messages
            self.log.dropped = now
            self.marks.add("dropped")
            for letters in self.log.letters.values():
                letters.dropped(now)

    def fields(self, entry: Entry) -> dict[str, Any]:
        given = {"key": entry.key, "type": entry.type or None, "headers": entry.headers, "time_ns": entry.time_ns}
        given["ttl"] = 0.0 if entry.expired else None
        given["delay"] = HOUR if entry.later else None
        return {name: value for name, value in given.items() if value is not None}

    def columns_of(self, several) -> dict[str, Any]:
        """What `put_many` takes beside the payloads; all expire, or none, and none is delayed or has a time."""
        for entry in several:
            entry.later, entry.expired, entry.time_ns = False, several[0].expired, None
        return {
            "keys": [entry.key for entry in several],
            "types": [entry.type for entry in several],
            "headers": [entry.headers for entry in several],
            "ttl": 0.0 if several[0].expired else None,
            "timeout": 0,
        }

    def come(self, where, several) -> None:
        """They were put, and *where* is what the queue says; an index where the disk has not agreed yet."""
        first = where if isinstance(where, int) else where.start
        assert range(first, first + len(several)) == self.log.add(several)
        assert isinstance(where, int) or where == range(first, first + len(several))
        self.on_the_way = []

    @verb(entry=entries())
    def put(self, entry):
        self.number(entry)
        put = lambda: self.placed(lambda: self.queue.put(entry.payload, timeout=0, **self.fields(entry)))  # noqa: E731
        index = self.refused(put, [entry])
        if index is not None:
            self.come(index, [entry])

    @verb(several=several())
    def put_many(self, several):
        self.number(*several)
        given, payloads = self.columns_of(several), [entry.payload for entry in several]
        where = self.refused(lambda: self.placed(lambda: self.queue.put_many(payloads, **given)), several)
        if where is not None:
            self.come(where, several)

    @verb(several=several(3), producer=PRODUCERS, sequence=SEQUENCES)
    def put_once(self, several, producer, sequence):
        self.number(*several)
        known = self.log.once.setdefault(producer, {})
        alone, dedup = len(several) == 1, {"dedup": (producer, sequence), "timeout": 0}
        given = self.fields(several[0]) if alone else self.columns_of(several)
        payloads = several[0].payload if alone else [entry.payload for entry in several]
        put = lambda: self.placed(  # noqa: E731
            lambda: (self.queue.put if alone else self.queue.put_many)(payloads, **{**given, **dedup})
        )
        if known and sequence not in known and sequence < max(known):
            with pytest.raises((shmq.Mismatch, *FULL, *([shmq.ShutDown] if self.ended() else []))):
                put()
            return
        if sequence in known:
            forgotten = (producer, sequence) in self.log.adopted_once and sequence != max(known)
            maybe = ([shmq.ShutDown] if self.ended() else []) + ([shmq.Mismatch] if forgotten else [])
            with contextlib.suppress(*maybe):
                where = put()
                assert (where if isinstance(where, int) else where.start) == known[sequence].start
            return
        where = self.refused(put, several)
        if where is not None:
            self.come(where, several)
            known[sequence] = range(self.log.next - len(several), self.log.next)

    # ---- in place
    @verb(entry=entries(), room=st.sampled_from([0, 1, 7, 60, 9000, 20_000]))
    def reserve(self, entry, room):
        entry.later = entry.expired = False
        slot = self.refused(lambda: self.queue.reserve(room, timeout=0, **self.fields(entry)), [], 1)
        if slot is None:
            return
        index = self.log.pad()
        assert slot.index == index
        self.slots.append((index, slot, entry))

    @verb(which=st.integers(0, 9), give_up=st.booleans())
    def end_slot(self, which, give_up):
        if not self.slots:
            first(self, "reserve", entry=Entry(b""), room=which)
        if not self.slots:
            return False
        index, slot, entry = self.slots.pop(which % len(self.slots))
        self.finish_slot(index, slot, entry, give_up=give_up or self.codec != "bytes")
        return True

    def finish_slot(self, index, slot, entry, *, give_up):
        try:
            if give_up:
                slot.abort()
                return
            entry.payload = bytes(on(slot, fill))
            assert self.placed(lambda: slot.commit(timeout=0)) == index
        except shmq.Fenced:  # retention has taken its chunk
            assert self.loses
            assert index < self.queue.first_index
            return
        self.log.pads.discard(index)
        self.log.entries[index] = entry
        self.log.entries = dict(sorted(self.log.entries.items()))

    def close_slots(self):
        while self.slots:
            self.finish_slot(*self.slots.pop(), give_up=True)

    # ---- sets
    @verb(several=several(), later=st.booleans())
    def stage(self, several, later):
        self.number(*several)
        for entry in several:
            entry.expired, entry.later, entry.type, entry.headers, entry.time_ns = False, False, 0, None, None
        staged = self.queue.stage()
        try:
            if self.ended():
                with pytest.raises(shmq.ShutDown):
                    staged.put("" if self.codec == "json" else b"")
                return
            staged.put_many([entry.payload for entry in several], keys=[entry.key for entry in several])
            if later:
                self.staged.append((staged.hand_over(), several))
            else:
                self.adopt_now(lambda: self.queue.adopt(staged), several)
        finally:
            staged.close()

    @verb(
        which=st.integers(0, 9),
        all_of_them=st.booleans(),
        once=st.none() | st.tuples(PRODUCERS, SEQUENCES),
    )
    def adopt(self, which, all_of_them, once):
        if not self.staged:
            first(self, "stage", several=[Entry(b"staged"), Entry(b"too")], later=True)
        if not self.staged:
            return self.is_too_late_to_adopt()
        at = which % len(self.staged)
        chosen = self.staged if all_of_them else self.staged[at : at + 1]
        tokens, several = [token for token, _ in chosen], [entry for _, each in chosen for entry in each]
        adopt = lambda: self.queue.adopt(tokens if all_of_them else tokens[0], dedup=once)  # noqa: E731
        if once is not None and self.was_adopted(once, adopt):
            return True
        if self.adopt_now(adopt, several):
            self.staged = [each for each in self.staged if each[0] not in tokens]
            if once is not None:
                self.log.once.setdefault(once[0], {})[once[1]] = range(self.log.next - len(several), self.log.next)
                self.log.adopted_once.add(once)
        return True

    def is_too_late_to_adopt(self) -> bool:
        """Where nothing can be staged any more, what is empty is not adopted either."""
        if self.ended():
            staged = self.queue.stage()
            with pytest.raises(shmq.ShutDown):
                self.queue.adopt(staged)
            staged.close()
        return self.ended()

    def was_adopted(self, once, adopt) -> bool:
        """Whether nothing is to be adopted again, and was not; the sets that were staged for it are gone then."""
        known = self.log.once.get(once[0], {})
        if not known or once[1] > max(known):
            return False
        self.close_slots()
        before = self.queue.next_index
        with contextlib.suppress(shmq.Mismatch, *([shmq.ShutDown] if self.ended() else [])):
            where = adopt()
            assert where == known[once[1]]
        assert self.queue.next_index == before
        waiting = {handed.token for handed in on(self.queue, waiting_sets)}
        self.staged = [each for each in self.staged if each[0] in waiting]
        return True

    def adopt_now(self, adopt, several):
        self.close_slots()
        if self.ended():
            with pytest.raises(shmq.ShutDown):
                adopt()
            return False
        self.coming = len(several)
        try:
            indexes = adopt()
            self.coming = 0
        except shmq.DiskFull:
            raise
        except FULL:
            assert self.byte_bound or self.log.fits(len(several)) is not True
            return False
        assert self.log.fits(len(several)) or self.log.full == "drop_oldest" or self.loses
        self.dropping()
        self.come(indexes, several)
        self.marks.add("adopted set")
        return True

    @verb()
    def sweep_staged(self):
        assert self.queue.sweep_staged(older_than=0) == len(self.staged)
        self.staged.clear()


def waiting_sets(queue: Any) -> list[Any]:
    """Everything that was handed over and waits."""
    return queue.staged_sets()
