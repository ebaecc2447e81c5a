"""The verbs that look, copy, and give space back."""

from __future__ import annotations

import contextlib
import itertools
import shutil

import hypothesis.strategies as st
import pytest

import shmq
from tests.whole.model import Alone
from tests.whole.processes import on
from tests.whole.steps import first, verb
from tests.whole.taking import WHERE

_numbers = itertools.count()


def indexes_of(queue):
    """What `read_columns` finds from the first index on."""
    return [index for part in queue.read_columns(queue.first_index, columns=["index"]) for index in part["index"]]


def begin_of_the_last_two(queue):
    """The first index of the last chunk but one."""
    chunks = queue._session.chain().listed()
    return chunks[-2:][0][1] if chunks else 0


class Looking:
    """Of `Whole`."""

    # ---- space
    @verb()
    def purge(self):
        self.close_slots()
        assert self.queue.purge() == self.log.next
        self.log.purge()
        self.marks.add("purged")

    @verb(bound=st.sampled_from([None, 3, 8, 20]), size=st.sampled_from([..., None, 20_000, 200_000]))
    def set_bounds(self, bound, size):
        self.queue.set_bounds(max_messages=bound, max_bytes=size)
        self.log.max_messages = bound
        self.byte_bound = self.byte_bound if size is ... else size
        self.config = {each for each in self.config if not each.startswith("full ") and each != "unbounded"}
        self.config.add(f"full {self.log.full}" if bound or self.byte_bound else "unbounded")
        self.config.discard("max_bytes")
        if self.byte_bound:
            self.config.add("max_bytes")

    @verb(where=WHERE)
    def pin(self, where):
        index = self.place(where)
        reader = self.queue.reader(index, pin=True)
        self.pins.append((reader, index))

    @verb(which=st.integers(0, 9))
    def unpin(self, which):
        if not self.pins:
            first(self, "pin", where=0.5)
        reader, _ = self.pins.pop(which % len(self.pins))
        reader.close()

    # ---- looking
    def before_a_claim(self, at):
        """The messages from there on, up to what is reserved."""
        end = min((slot for slot, *_ in self.slots if slot >= at), default=self.log.next)
        return [index for index in self.log.entries if at <= index < end]

    def are(self, found, expected):
        """The same, but for what has gone meanwhile."""
        cut = expected[: len(expected) - len(found)]
        assert found == expected[len(cut) :], (found, expected)
        assert not cut or max(cut) < self.queue.first_index, (cut, found)

    @verb(
        start=st.integers(-20, 40),
        reverse=st.booleans(),
        read_only=st.booleans(),
        follow=st.booleans(),
    )
    def read(self, start, reverse, read_only, follow=False):
        at = self.log.next + start if start < 0 else self.log.begin + start
        at = max(at, self.queue.first_index)
        if at > self.log.next:
            return False
        expected = [index for index in self.log.entries if index >= at] if reverse else self.before_a_claim(at)
        queue = self.at.ask(shmq.open, self.path, read_only=True, **self.flags) if read_only else self.queue
        if follow and expected and not (reverse or self.slots or self.immediate):
            found = list(queue.reader(at, expected[-1] + 1, follow=True))  # which would wait for what is behind it
        else:
            found = list(queue.reader(at, reverse=reverse))
        self.are([message.index for message in found][:: -1 if reverse else 1], expected)
        for message in found:
            self.check(message.index, message)
        if read_only:
            queue.close()
        return True

    @verb(offset=st.integers(-60, 60))
    def item(self, offset):
        index = self.log.begin + offset if offset >= 0 else self.log.next + offset
        if index < 0:
            return False
        entry, first = self.log.entries.get(index), self.queue.first_index
        if entry is None or index < first:
            with pytest.raises(IndexError):
                self.queue[index]
        elif not self.claimed_before(index):
            with contextlib.suppress(IndexError) if self.loses else contextlib.nullcontext():
                self.check(index, self.queue[index])
        return True

    @verb()
    def columns(self):
        self.are(on(self.queue, indexes_of), self.before_a_claim(self.queue.first_index))

    @verb(time_ns=st.integers(0, 6))
    def at_a_time(self, time_ns):
        if self.slots or self.loses:
            self.queue.at_ns(time_ns)
            return
        start = self.queue.first_index
        there = (i for i, e in self.log.entries.items() if i >= start and (e.time_ns is None or e.time_ns >= time_ns))
        assert self.queue.at_ns(time_ns) == next(there, self.log.next)

    @verb()
    def stats(self):
        seen = self.queue.stats()
        assert seen.next_index == self.log.next
        assert set(seen.consumers) == set(self.log.names)
        assert seen.finished == self.log.finished
        assert seen.shut_down == self.shut
        assert seen.damaged == () or not seen.damaged
        if not self.loses:
            there = sum(index >= self.queue.first_index for index in self.log.entries)
            there += sum(index >= self.queue.first_index for index, *_ in self.slots)
            found = len(self.queue)
            assert there <= found <= there + self.claims_far_back(self.queue.first_index), (found, there, self.slots)
        self.lags(seen)

    def claims_far_back(self, first):
        """Claims of the dead that whoever asks how much there is need not come by: before the last two chunks."""
        end = on(self.queue, begin_of_the_last_two)
        return sum(first <= index < end for index in self.log.claims_of_the_dead)

    def lags(self, seen):
        """How much each name has before it: what its holder says, and what anybody is told."""
        slots = [index for index, *_ in self.slots]
        for name, known in self.log.names.items():
            lags = {False: seen.consumers[name].lag}
            if self.is_open(name):
                handle = known.handle if isinstance(known, Alone) else known.members[0][1]
                lags[True] = handle.lag
            for mine, lag in lags.items():
                least, most = known.unfinished(slots, known=mine)
                least = 0 if self.loses else least  # what has gone while it was counted
                most += self.claims_far_back(self.log.first())
                assert least <= lag <= most, f"lag of {name} is {lag}, not from {least} to {most}; holder: {mine}"

    @verb()
    def verify(self):
        found = self.queue.verify()
        assert found, found

    @verb(new_id=st.booleans())
    def copy(self, new_id):
        if self.volatile:
            return False
        self.close_slots()
        to = f"{self.folder}/copy-{next(_numbers)}"
        try:
            self.queue.copy(to, new_id=new_id)
            self.same_messages(to)
        finally:
            shutil.rmtree(to, ignore_errors=True)
        return True

    @verb()
    def repair(self):
        if self.volatile:
            return False
        self.close_slots()
        to = f"{self.folder}/repaired-{next(_numbers)}"
        try:
            self.queue.repair(to)
            self.same_messages(to)
        finally:
            shutil.rmtree(to, ignore_errors=True)
        return True

    def same_messages(self, path):
        with shmq.open(path, **self.flags) as other:
            mine = [(message.index, message.payload) for message in self.queue.reader(self.queue.first_index)]
            its = [(message.index, message.payload) for message in other.reader(max(other.first_index, 0))]
            if self.loses:
                mine = mine[len(mine) - len(its) :] if len(its) <= len(mine) else mine
                its = its[len(its) - len(mine) :]
            assert its == mine, (other.first_index, [i for i, _ in mine], [i for i, _ in its])

    @verb()
    def sync(self):
        self.close_slots()
        self.queue.sync()
        assert self.queue.durable_index > max(self.log.entries, default=-1)
