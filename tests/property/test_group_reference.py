"""
Random verbs of a group against tests/group_reference.py: whatever the order, the members say what it says.

The window is as small as it can be, so that laps are frequent. `SHMQ_SEQUENCES=20000 pytest tests/property` is the long
run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import ClassVar

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import shmq
from tests import group_reference as reference
from tests.support import share

SEQUENCES = int(os.environ.get("SHMQ_SEQUENCES", share(40)))
WINDOW = 64
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
MEMBERS = st.integers(0, 2)


class Groups(RuleBasedStateMachine):
    options: ClassVar[dict] = {}
    keys: ClassVar[tuple] = (None,)

    @initialize(prefix=st.integers(0, 300))
    def begin(self, prefix):
        self.folder = tempfile.mkdtemp(dir=MEMORY)
        self.queue = shmq.open(f"{self.folder}/q", options=shmq.Options(chunk_bytes=16384))
        self.model = reference.Group()
        self.members = [self.join() for _ in range(3)]
        self.held = {}
        for first in range(0, prefix, 30):  # laps
            self.put_all([None] * 30)
            for message in self.members[first // 30 % 3].get_many(30, 0):
                self.model.hand_out(message.index, 0)
                message.ack()
                self.model.finish(message.index)

    def join(self):
        return self.queue.consumer("g", group=True, ack="explicit", window=WINDOW, **self.options)

    def room(self):
        return WINDOW - (len(self.model.state) - self.model.head)

    def number(self, index):
        return b"%d" % index

    @precondition(lambda self: self.room() >= 10)
    @rule(data=st.data())
    def put(self, data):
        self.put_all(data.draw(st.lists(st.sampled_from(self.keys), min_size=1, max_size=10)))

    def put_all(self, keys):
        first = len(self.model.state)
        self.queue.put_many([self.number(first + i) for i in range(len(keys))], keys=keys)
        for key in keys:
            self.model.put(key=key)

    @precondition(lambda self: self.room() >= 10)
    @rule()
    def abort(self):
        self.queue.reserve(8).abort()
        self.model.put(reference.PAD)

    @rule(member=MEMBERS, limit=st.integers(1, 12))
    def get(self, member, limit):
        try:
            messages = self.members[member].get_many(limit, timeout=0)
        except shmq.Empty:
            assert self.model.available() == []
            return
        assert 1 <= len(messages) <= limit
        given = [self.model.keys[message.index] for message in messages if self.model.keys[message.index] is not None]
        assert len(given) == len(set(given))
        for message in messages:
            assert self.model.may_come(message.index), (message.index, self.model.state)
            assert message.attempts == self.model.hand_out(message.index, member)
            assert message.payload == self.number(message.index)
            self.held[message.index] = message

    def choose(self, data):
        held = self.model.which(reference.HELD)
        return data.draw(st.sampled_from(held)) if held else None

    @rule(data=st.data())
    def ack(self, data):
        index = self.choose(data)
        if index is not None:
            self.held[index].ack()
            self.model.finish(index)

    @rule(member=MEMBERS)
    def ack_all(self, member):
        held = self.model.held_by(member)
        self.members[member].ack(*(self.held[index] for index in held))
        for index in held:
            self.model.finish(index)

    @rule(data=st.data(), later=st.booleans())
    def nack(self, data, later):
        index = self.choose(data)
        if index is not None:
            self.held[index].nack(delay=3600 if later else 0)
            self.model.give_back(index, later=later)

    @rule(data=st.data())
    def extend(self, data):
        index = self.choose(data)
        if index is not None:
            self.held[index].extend(3600)

    @rule(member=MEMBERS)
    def leave_and_join(self, member):
        self.members[member].close()
        self.model.leave(member)
        self.members[member] = self.join()

    @invariant()
    def agree(self):
        if not hasattr(self, "members"):
            return
        head = self.members[0].head
        assert head <= self.model.head
        # Padding is passed when somebody walks over it.
        assert set(self.model.state[head : self.model.head]) <= {reference.PAD, reference.DONE, *self._parked(head)}
        assert [member.pending for member in self.members] == [len(self.model.held_by(each)) for each in range(3)]

    def _parked(self, head):
        between = range(head, self.model.head)
        assert not [index for index in between if self.model.state[index] == reference.DONE] or any(
            self.model.state[index] == reference.PAD for index in between
        )
        return {self.model.state[index] for index in between if index in self.model.parked}

    def teardown(self):
        if hasattr(self, "members"):
            for member in self.members:
                member.close()
            self.queue.close()
            shutil.rmtree(self.folder)


class Ordered(Groups):
    """The same with ordered_by="key": of one key the first unfinished, one at a time; the others as they are."""

    options: ClassVar[dict] = {"ordered_by": "key"}
    keys: ClassVar[tuple] = (None, b"a", b"b", b"c")


Groups.TestCase.settings = Ordered.TestCase.settings = settings(
    max_examples=SEQUENCES,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.target, Phase.shrink],
    suppress_health_check=list(HealthCheck),
    database=None,
)
test_groups = Groups.TestCase
test_groups_in_order = Ordered.TestCase
