"""
Bounds, purging, putting once, adopting, retention and random access in random order, against tests/reference.py.

The chunks are tiny, so that whole ones go; bounds are changed while the queue is in use, and it is closed and opened in
between. `SHMQ_SEQUENCES=20000 pytest tests/property` is the long run.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import shmq
from tests import reference
from tests.support import share

SEQUENCES = int(os.environ.get("SHMQ_SEQUENCES", share(60)))
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
LENGTHS = st.sampled_from([0, 1, 8, 40, 80, 700, 3000])
NAMES = st.sampled_from(["a", "b"])
MESSAGES = st.none() | st.integers(1, 12)
BYTES = st.none() | st.integers(200, 9000)


class Space(RuleBasedStateMachine):
    @initialize(messages=MESSAGES, size=BYTES, keep=st.sampled_from(["acked", "forever"]))
    def begin(self, messages, size, keep):
        self.folder = tempfile.mkdtemp(prefix="shmq-property-", dir=MEMORY)
        self.path = f"{self.folder}/q"
        options = shmq.Options(
            chunk_bytes=16384, max_messages=messages, max_bytes=size, full="raise", retention=shmq.Retention(keep)
        )
        self.queue = shmq.open(self.path, options=options)
        self.model = reference.Bounded(messages, size)
        self.consumers = {"a": self.queue.consumer("a")}
        self.model.heads["a"] = 0
        self.number = 0

    def payloads(self, lengths):
        self.number += 1
        return [bytes([self.number & 0xFF]) * length for length in lengths]

    def put_if_there_is_room(self, payloads, put, *, dedup=False):
        """What the reference says fits is put, at its indexes; what does not is refused, and nothing is."""
        if self.model.fits(payloads, dedup=dedup):
            indexes = put()
            assert indexes == self.model.add(payloads, dedup=dedup)
            return indexes
        with pytest.raises((shmq.Full, shmq.TooLarge, shmq.TooMany)):
            put()
        return None

    # ---- putting
    @rule(length=LENGTHS)
    def put(self, length):
        (payload,) = payloads = self.payloads([length])
        self.put_if_there_is_room(payloads, lambda: range(index := self.queue.put(payload), index + 1))

    @rule(lengths=st.lists(LENGTHS, min_size=1, max_size=4))
    def put_many(self, lengths):
        payloads = self.payloads(lengths)
        self.put_if_there_is_room(payloads, lambda: self.queue.put_many(payloads))

    @rule(length=st.integers(0, 40))
    def give_up(self, length):
        if self.model.fits([bytes(length)]):
            self.queue.reserve(length).abort()
            self.model.add([bytes(length)], padding=True)

    @rule(sequence=st.integers(0, 6), lengths=st.lists(LENGTHS, min_size=1, max_size=3), aside=st.booleans())
    def put_once(self, sequence, lengths, aside):
        payloads = self.payloads(lengths)

        def put():
            if not aside:
                return self.queue.put_many(payloads, dedup=("p", sequence))
            with self.queue.stage() as staged:
                staged.put_many(payloads)
                return self.queue.adopt(staged, dedup=("p", sequence))

        known = {**self.model.once, **self.model.adopted}
        if sequence in known:
            assert put() == known[sequence]
        elif sequence < max(known, default=0):
            with pytest.raises(shmq.Mismatch):
                put()
        elif not aside:
            indexes = self.put_if_there_is_room(payloads, put, dedup=True)
            self.model.once |= {} if indexes is None else {sequence: indexes}
        elif self.model.bounds == (None, None):  # how an adopted set counts against bounds is tests/unit's
            indexes = put()
            assert indexes == self.model.add(payloads)
            self.model.adopted = {sequence: indexes}

    # ---- getting
    @rule(name=NAMES, limit=st.integers(1, 9))
    def take(self, name, limit):
        if name not in self.consumers:
            return
        expected = self.model.ahead(name)[:limit]
        if not expected:
            with pytest.raises(shmq.Empty):
                self.consumers[name].take_many(limit, timeout=0)
            return
        taken = self.consumers[name].take_many(limit, timeout=0)
        assert 1 <= len(taken) <= len(expected)  # fewer where a chunk ends
        assert taken == [self.model.log[index] for index in expected[: len(taken)]]
        self.model.heads[name] = expected[len(taken) - 1] + 1

    @rule(latest=st.booleans())
    def second_name(self, latest):
        if "b" not in self.consumers and "b" not in self.model.heads:
            self.consumers["b"] = self.queue.consumer("b", start="latest" if latest else "earliest")
            self.model.heads["b"] = len(self.model.log) if latest else self.queue.first_index

    @rule()
    def drop_second(self):
        if "b" in self.consumers:
            self.consumers.pop("b").close()
            self.queue.drop_consumer("b")
            del self.model.heads["b"]

    # ---- space
    @rule(messages=MESSAGES, size=BYTES)
    def change_bounds(self, messages, size):
        self.queue.set_bounds(max_messages=messages, max_bytes=size)
        self.model.bounds = (messages, size)

    @rule()
    def purge(self):
        assert self.queue.purge() == len(self.model.log)
        self.model.purge()

    @rule(opened_too=st.booleans())
    def reopen(self, opened_too):
        names = sorted(self.consumers)
        for consumer in self.consumers.values():
            consumer.close()
        other = shmq.open(self.path) if opened_too else None
        self.queue.close()
        self.queue = shmq.open(self.path)
        if other is not None:
            other.close()
        self.consumers = {name: self.queue.consumer(name) for name in names}

    # ---- looking
    @rule(index=st.integers(0, 150))
    def item(self, index):
        first = self.queue.first_index
        known = self.model.log[index] if first <= index < len(self.model.log) else None
        if known is None:
            with pytest.raises(IndexError):
                self.queue[index]
        else:
            assert self.queue[index].payload == known

    @rule(start=st.integers(0, 150))
    def read(self, start):
        first = max(self.queue.first_index, start)
        expected = [(index, each) for index, each in enumerate(self.model.log) if index >= first and each is not None]
        assert [(message.index, message.payload) for message in self.queue.reader(start)] == expected

    @invariant()
    def agree(self):
        if not hasattr(self, "consumers"):
            return
        assert self.queue.next_index == len(self.model.log)
        assert self.queue.first_index <= self.model.floor()
        stats = self.queue.stats()
        assert (stats.max_messages, stats.max_bytes) == self.model.bounds

    def teardown(self):
        if hasattr(self, "consumers"):
            for consumer in self.consumers.values():
                consumer.close()
            self.queue.close()
            shutil.rmtree(self.folder)


Space.TestCase.settings = settings(
    max_examples=SEQUENCES,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize="SHMQ_SEQUENCES" not in os.environ,
    print_blob=True,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
TestSpace = Space.TestCase
