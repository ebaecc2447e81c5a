"""The verbs of consumers: a name alone, a group, and what is done to names."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import hypothesis.strategies as st
import pytest

import shmq
from tests.support import fork
from tests.whole import model
from tests.whole.model import Alone, Group
from tests.whole.putting import HOUR
from tests.whole.steps import first, verb

ALONE = {"a": False}
GROUPS = {"g": True, "h": False, "x": True}
LONE = "x"  # a consumer with explicit acknowledgements: a group that has one member at most
A_NAME, A_GROUP, ANY = st.sampled_from(list(ALONE)), st.sampled_from(list(GROUPS)), st.sampled_from([*ALONE, *GROUPS])
WHERE = st.floats(0, 1)
MEMBERS = 4
COLUMNS = ["index", "type", "key", "payload"]
DEADLINE = 10.0


@contextlib.contextmanager
def forked():
    """In a child: its pid is 0 there. It ends with the block, killed."""
    pid = fork()
    try:
        yield pid
    finally:
        if pid == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)


class Taking:
    """Of `Whole`."""

    def begins_at(self, name):
        """Where a new name begins."""
        return self.log.next if name in self.latest else self.here.queue.first_index

    def start_of(self, name):
        return "latest" if name in self.latest else "earliest"

    def asked(self, call):
        """What a get answers; where retention may take what was not finished, a name is told, once each time."""
        told = -1
        while True:
            try:
                return call()
            except shmq.Gone as gone:
                assert self.loses
                assert gone.first_index > told, f"told twice: {gone}"  # noqa: PT017  # what comes at all is right
                told = gone.first_index
                self.marks.add("gone")

    def is_gone(self, known, index):
        """Whether retention has taken that; or something delayed before it, which a name may have mapped yet."""
        first = self.here.queue.first_index
        there = self.log.entries.items()
        return index < first or (self.loses and any(each.later for at, each in there if known.at <= at < first))

    def claimed_before(self, index):
        return any(slot < index for slot, *_ in self.slots)

    def over(self) -> bool:
        """Whether nothing more comes."""
        return self.shut or self.log.finished

    # ---- a name alone
    def alone(self, name):
        if name not in self.log.names:
            start = self.begins_at(name)
            handle = self.hold_of(name, first=True)
            hold = name in self.holding
            self.log.names[name] = Alone(self.log, explicit=ALONE[name], start=start, hold=hold)
            self.log.names[name].handle = handle
        known = self.log.names[name]
        if known.handle is None:
            known.handle = self.hold_of(name)
            known.reopen()
        return known

    def hold_of(self, name, *, first=False):
        given = {"hold": True} if name in self.holding and first else {}
        ack = "explicit" if ALONE[name] else "auto"
        return self.queue.consumer(name, ack=ack, start=self.start_of(name), **given)

    @verb(name=A_NAME, limit=st.integers(1, 8), how=st.sampled_from(["get", "take", "one", "arrow"]))
    def get_alone(self, name, limit, how):
        known = self.alone(name)
        expected = known.next()
        limit = 1 if how == "one" else limit
        given = {"columns": COLUMNS} if how == "arrow" else {}
        call = {"take": known.handle.take_many, "arrow": known.handle.take_arrow}.get(how, known.handle.get_many)
        try:
            several = self.asked(lambda: call(limit, timeout=0, **given))
        except (shmq.Empty, shmq.ShutDown) as none:
            gone = expected is not None and self.is_gone(known, expected)
            assert expected is None or self.claimed_before(expected) or self.immediate or gone, (name, expected)
            assert self.over() or isinstance(none, shmq.Empty), none  # noqa: PT017  # either may be right
            return
        self.came_alone(name, known, several, how)

    def came_alone(self, name, known, several, how):
        """What a name was handed is what comes next for it."""
        for got in several.to_pylist() if how == "arrow" else several:
            index = {"take": lambda got: None, "arrow": lambda got: got["index"]}.get(how, lambda got: got.index)(got)
            expected = self.expected(known, got, index)
            if how == "take":
                assert got == self.log.entries[expected].payload
            elif how == "arrow":
                self.check_row(expected, got)
            else:
                self.check(expected, got)
                self.handed.append((name, known.handle, got))
            known.hand_out(expected, finished=how in ("take", "arrow"))

    def expected(self, known, got, index):
        """The index that comes now: the next one, of those that retention has not taken meanwhile."""
        if self.loses:
            if index is None:
                there = self.log.entries.items()
                index = next(at for at, entry in there if entry.payload == got and known.may_come(at))
            assert known.may_come(index), f"handed {index}: {self.log.entries.get(index)!s:.80}"
            missed = [at for at in range(max(known.at, self.here.queue.first_index), index) if known.waits_at(at)]
            assert not missed, f"handed {index}, and {missed} are there yet"
            return index
        expected = known.next()
        assert expected is not None, f"handed {got!r:.80}, and nothing is left"
        assert not any(known.at <= slot < expected for slot, *_ in self.slots)
        return expected

    def check_row(self, index, row):
        """A message as Arrow has it: its payload is what its codec made of it."""
        entry = self.log.entries[index]
        assert row["index"] == index
        assert row["key"] == entry.key
        assert row["type"] == entry.type
        assert self.codec != "bytes" or row["payload"] == entry.payload

    def check(self, index, message):
        entry = self.log.entries[index]
        assert message.index == index
        assert message.payload == entry.payload, f"{index}: other bytes"
        assert message.key == entry.key
        assert message.type == entry.type
        assert message.headers == (entry.headers or {})

    @verb(name=A_NAME)
    def peek(self, name):
        known = self.alone(name)
        expected, found = known.next(), self.asked(known.handle.peek)
        if found is None:
            gone = expected is not None and self.is_gone(known, expected)
            assert expected is None or self.claimed_before(expected) or self.immediate or gone
        elif expected is not None and not self.loses:
            self.check(expected, found)

    @verb(name=A_NAME, where=WHERE)
    def seek_alone(self, name, where):
        known = self.alone(name)
        index = self.place(where)
        try:
            known.handle.seek(index)
        except OSError:  # it stands there, and the disk may not have it
            if known.handle.head == index:
                known.seek(index)
                known.synced = False
            raise
        known.seek(index)
        self.handed = [each for each in self.handed if each[0] != name]

    def place(self, where):
        first = self.here.queue.first_index
        return first + round(where * (self.log.next - first))

    @verb(name=A_NAME)
    def close_alone(self, name):
        self.alone(name)
        self.let_go(name)

    def is_open(self, name):
        known = self.log.names.get(name)
        return bool(known and (known.members if isinstance(known, Group) else known.handle is not None))

    @verb(which=st.integers(0, 99))
    def ack_alone(self, which):
        mine = [each for each in self.handed if each[0] in ALONE]
        if not mine:
            first(self, "get_alone", name="a", limit=3, how="get")
            mine = [each for each in self.handed if each[0] in ALONE]
        if not mine:
            return False
        name, _, message = mine[which % len(mine)]
        known = self.log.names[name]
        try:
            message.ack()
        except OSError:  # P2 is about an ack that returned: this name may know of it, and the disk not yet
            if known.handle.pending < known.pending():
                known.ack(message.index)
            raise
        self.handed = [each for each in self.handed if each[2] is not message]
        known.ack(message.index)
        return True

    # ---- a group
    def group(self, name):
        if name not in self.log.names:
            options = dict(self.group_options) if GROUPS[name] else {}
            if name == LONE:
                options.pop("ordered_by", None)  # it has an order, that of the queue
            start = self.begins_at(name)
            known = Group(
                self.log, name, explicit=GROUPS[name], start=start, options=options, window=self.window or 65536
            )
            known.lone, known.hold = name == LONE, name == LONE and name in self.holding
            self.join(name, known, hold=known.hold or None)
            self.log.names[name] = known
        known = self.log.names[name]
        if not known.members:
            self.join(name, known)
        return known

    def as_member(self, name, known, **hold):
        ack = "explicit" if known.explicit else "auto"
        given = {"window": self.window, "start": self.start_of(name), "group": not known.lone, **known.options, **hold}
        return self.queue.consumer(name, ack=ack, **given)

    def join(self, name, known, **hold):
        member = self.as_member(name, known, **hold if known.lone else {})
        known.serial += 1
        known.members.append((known.serial, member))

    @verb(name=A_GROUP)
    def join_group(self, name):
        known = self.group(name)
        if len(known.members) < (1 if known.lone else MEMBERS):
            self.join(name, known)

    @verb(
        name=A_GROUP,
        which=st.integers(0, MEMBERS - 1),
        limit=st.integers(1, 8),
        how=st.sampled_from(["get", "get", "take", "arrow"]),
    )
    def get_group(self, name, which, limit, how):
        known = self.group(name)
        serial, member = known.members[which % len(known.members)]
        given = {"columns": [*COLUMNS, "attempts"]} if how == "arrow" else {}
        call = {"take": member.take_many, "arrow": member.take_arrow}.get(how, member.get_many)
        try:
            got = self.asked(lambda: call(limit, timeout=0, **given))
        except shmq.Empty:
            self.nothing_left(known)
            return
        except shmq.LeaseLost:
            assert known.lease == model.SHORT
            known.may_have_lost()
            return
        except shmq.ShutDown:
            assert self.over()
            if not self.immediate:
                self.nothing_left(known)
            return
        assert 1 <= len(got) <= limit
        self.came_to_member(name, known, (serial, member), got, how)

    def came_to_member(self, name, known, who, got, how):
        """What a member was handed was to be had, for as many times as it says."""
        serial, member = who
        if how in ("take", "arrow"):
            self.took_or_lost(known, serial, got, how)
        else:
            for message in got:
                self.comes(known, serial, message.index, message.attempts)
                self.check(message.index, message)
            self.handed += [(name, member, message) for message in got if known.explicit]

    def took_or_lost(self, known, serial, got, how):
        """What was acknowledged at once."""
        if how == "take":
            self.took(known, serial, got)
        else:
            for row in got.to_pylist():
                self.comes(known, serial, row["index"], row["attempts"])
                self.check_row(row["index"], row)
                known.state[row["index"]] = model.DONE
        known.may_have_lost()

    def comes(self, known, serial, index, attempts):
        """That member has it, for so many times of the group."""
        self.may_come(known, index)
        unsure = known.of(index) == model.UNSURE or index in known.uncounted or "recovered" in self.marks
        counted = known.hand_out(index, serial)
        assert unsure or attempts == counted
        known.attempts[index] = attempts

    def may_come(self, known, index):
        """Whether the model agrees that this group is handed that message now."""
        may = [*known.available(surely=False), *self.came_meanwhile]
        assert index in may, (
            f"handed {index}: {str(self.log.entries.get(index))[-160:]} of {known.of(index)} "
            f"after {known.attempts.get(index)}; may come: {may}; first {self.log.first()}, "
            f"start {known.start}, dropped {self.log.dropped}, "
            f"purged {self.log.purged}"
        )
        self.displace(known, index)

    def displace(self, known, index):
        """Whoever had it before has it no more."""
        name = next((name for name, each in self.log.names.items() if each is known), None)
        late = [each for each in self.handed if each[0] == name and each[2].index == index]
        self.handed = [each for each in self.handed if each not in late]
        self.displaced += late if known.of(index) in (model.HELD, model.UNSURE) else []

    def took(self, known, serial, payloads):
        """Payloads alone do not say which they were: each is that of the first that it can be."""
        for payload in payloads:
            known_to_come = [*known.available(surely=False), *self.came_meanwhile]
            may = [index for index in known_to_come if self.log.entries[index].payload == payload]
            assert may, (payload[:80], known.state)
            self.displace(known, may[0])
            known.hand_out(may[0], serial)
            known.state[may[0]] = model.DONE
            self.marks.add("took")

    def nothing_left(self, known):
        first = self.here.queue.first_index
        must = [index for index in known.available() if not self.claimed_before(index) and index >= first]
        if must:
            self.comes_to_who_waits(known, must)
            self.nothing_left(known)
            return
        if self.small:  # where there may have been no room for them
            known.letters.forgotten()
        elif not self.slots:
            name = next(name for name, each in self.log.names.items() if each is known)
            moved = self.here.queue.stats().consumers[name].group if known.letters.soon else None
            known.letters.rests |= bool(moved and moved.unmoved)
            known.letters.asked()

    def comes_to_who_waits(self, known, must):
        """
        It was Empty without waiting, at the edge of the window: what is in its way is put aside a little later.

        P7b says that nothing stops the others, not that it is so at once.
        """
        serial, member = known.members[0]
        try:
            message = self.asked(lambda: member.get(timeout=DEADLINE))
        except (shmq.Empty, shmq.ShutDown):
            pytest.fail(f"Empty, and {must} must come: {known.state}")
        self.may_come(known, message.index)
        known.hand_out(message.index, serial)
        self.check(message.index, message)
        if known.explicit:
            name = next(name for name, each in self.log.names.items() if each is known)
            self.handed.append((name, member, message))

    def still_held(self, name, member, message):
        known = self.log.names.get(name)
        return (
            isinstance(known, Group)
            and any(member is each for _, each in known.members)
            and known.of(message.index) == model.HELD
        )

    def held_messages(self):
        return [each for each in self.handed if each[0] in GROUPS and self.still_held(*each)]

    @verb(
        which=st.integers(0, 99),
        how=st.sampled_from(["ack", "nack", "nack later", "reject", "extend"]),
    )
    def settle(self, which, how):
        if not self.held_messages():
            first(self, "get_group", name="g", which=which, limit=3, how="get")
        mine = self.held_messages()
        if not mine:
            return False
        name, _, message = mine[which % len(mine)]
        try:
            self.settle_one(self.log.names[name], message, how)
        except shmq.LeaseLost:
            known = self.log.names[name]
            if self.loses and message.index < self.here.queue.first_index:
                known.state[message.index] = model.DONE
            else:
                assert known.has_ended(message.index)
                known.lose(message.index)
                self.marks.add("a lease ended")
            how = "lost"
        except OSError:  # as in ack_alone; a letter may be there
            self.log.names[name].state[message.index] = model.UNSURE
            self.log.letters[name].perhaps.add(message.index)
            raise
        if how != "extend":
            self.handed = [each for each in self.handed if each[2] is not message]
        if how != "lost":
            self.done.add(f"after {how}")
        return True

    @staticmethod
    def settle_one(known, message, how):
        if how == "ack":
            message.ack()
            known.state[message.index] = model.DONE
        elif how == "reject":
            message.reject("for a reason")
            known.reject(message.index)
        elif how == "extend":
            message.extend(HOUR)
            known.kept.add(message.index)
        else:
            message.nack(delay=HOUR if how == "nack later" else 0)
            known.give_back(message.index, later=how == "nack later")

    @verb(name=A_GROUP, which=st.integers(0, MEMBERS - 1))
    def leave_group(self, name, which):
        known = self.group(name)
        serial, member = known.members.pop(which % len(known.members))
        member.close()
        known.leave(serial)

    @verb(name=A_GROUP, count=st.integers(1, 4))
    def a_member_is_killed(self, name, count):
        """What it held comes again; what it was handed with ack="auto" does not."""
        self.at = self.here  # who forks must be this one
        known = self.group(name)
        if known.lone:
            self.leave_all(name)  # it is free when its holder is killed
        ready, tell = os.pipe()
        with forked() as pid:
            if pid == 0:
                with contextlib.suppress(shmq.ShmqError, OSError):
                    member = self.as_member(name, known)
                    for message in self.asked(lambda: member.get_many(count, timeout=0)):
                        os.write(tell, message.index.to_bytes(8, "little"))
                    self.kept = member
        os.close(tell)
        with open(ready, "rb") as pipe:
            said = pipe.read()
        known.serial += 1
        for at in range(0, len(said), 8):
            index = int.from_bytes(said[at : at + 8], "little")
            self.may_come(known, index)
            known.hand_out(index, known.serial)
        known.leave(known.serial)
        self.marks.add("a member was killed")

    @verb(name=A_GROUP, where=WHERE)
    def seek_group(self, name, where):
        known = self.group(name)
        self.leave_all(name)
        ack = "explicit" if known.explicit else "auto"
        member = self.queue.consumer(name, group=not known.lone, ack=ack)
        try:
            index = self.place(where)
            member.seek(index)
        finally:
            member.close()
        known.seek(index)

    def leave_all(self, name):
        known = self.log.names[name]
        while known.members:
            serial, member = known.members.pop()
            member.close()
            known.leave(serial)

    @verb(name=A_GROUP)
    def drain(self, name):
        """Whatever must come comes; then the letters are where they belong."""
        self.drain_all(name)

    def drain_all(self, name):
        known = self.group(name)
        self.close_slots()
        for _ in range(len(self.log.entries) + 2):
            serial, member = known.members[0]
            try:
                message = self.asked(lambda member=member: member.get(timeout=0))
            except (shmq.Empty, shmq.ShutDown):
                break
            self.may_come(known, message.index)
            known.hand_out(message.index, serial)
            with contextlib.suppress(shmq.LeaseLost) if self.loses else contextlib.nullcontext():
                message.ack()
            known.state[message.index] = model.DONE
        if not self.immediate:
            self.nothing_left(known)
            self.letters(name)

    def letters(self, name):
        """What must be in the dead letters is there, once, and nothing else is."""
        letters, end = self.log.letters[name], time.monotonic() + DEADLINE
        if self.loses:  # before it was moved, perhaps
            first, found = self.here.queue.first_index, self.letters_of(name)
            for index in [index for index in letters.there if index < first and index not in found]:
                letters.there.remove(index)
                letters.perhaps.add(index)
        while not letters.there <= set(found := self.letters_of(name)) and time.monotonic() < end:
            time.sleep(0.002)  # what another member has set aside is moved by a thread of its own
        assert len(found) == len(set(found)), f"letters of {name} twice: {found}"
        assert letters.there <= set(found) <= letters.all(), (found, letters)
        self.log.names[name].seen(set(found))

    def letters_of(self, name):
        """The indexes of the messages that are in the dead letters."""
        with (
            contextlib.suppress(shmq.NotFound),
            shmq.open(f"{self.path}.{name}.dead", create=False, **self.flags) as at,
        ):
            return [message.headers["shmq.index"] for message in at.reader()]
        return []

    @verb(name=ANY)
    def wait(self, name):
        """Who has something is told so, and nobody else."""
        self.have(name)
        for name, known in self.log.names.items():
            if not self.is_open(name):
                continue
            handle = known.members[0][1] if isinstance(known, Group) else known.handle
            if not self.at.has(handle):
                continue
            ready = self.asked(lambda handle=handle: self.at.ask(shmq.wait, [handle], 0))
            if self.over() or self.slots or self.loses:
                continue
            if isinstance(known, Group):
                must = known.available()
                ready = ready or not must or self.at.ask(shmq.wait, [handle], DEADLINE)  # as in comes_to_who_waits
                assert ready, f"group {name} waits, and {must} must come"
            else:
                assert bool(ready) == (known.next() is not None), name

    # ---- names
    @verb(name=ANY)
    def drop_consumer(self, name):
        self.let_go(name)
        if name in self.log.names:
            self.queue.drop_consumer(name)
            known = self.log.names.pop(name)
            self.handed = [each for each in self.handed if each[0] != name]
            if isinstance(known, Group):
                known.letters.forgotten()
        else:
            with pytest.raises(shmq.NotFound):
                self.queue.drop_consumer(name)

    def have(self, name):
        """That name, held by somebody."""
        return self.alone(name) if name in ALONE else self.group(name)

    @verb(name=ANY)
    def rename_consumer(self, name):
        self.have(name)
        self.let_go(name)
        self.queue.rename_consumer(name, f"{name}.new")
        try:
            self.queue.rename_consumer(f"{name}.new", name)
        except (shmq.DiskFull, OSError):  # it has the other name, and nobody here knows it by that
            del self.log.names[name]
            raise

    @verb(name=ANY)
    def hands_off(self, name):
        """A name that somebody has is nobody else's to hold, drop or rename; and of another kind it is not at all."""
        self.have(name)
        group = name in GROUPS and name != LONE
        ack = "explicit" if {**ALONE, **GROUPS}[name] else "auto"
        with pytest.raises((shmq.Mismatch, shmq.Busy)):
            self.queue.consumer(name, group=not group, ack=ack)
        if not group:
            with pytest.raises(shmq.Busy):
                self.queue.consumer(name, ack=ack)
        with pytest.raises(shmq.Busy):
            self.queue.drop_consumer(name)
        with pytest.raises(shmq.Busy):
            self.queue.rename_consumer(name, "other")

    def let_go(self, name):
        known = self.log.names.get(name)
        if isinstance(known, Group):
            self.leave_all(name)
        elif known is not None and known.handle is not None:
            known.handle.close()
            known.handle = None
        self.handed = [each for each in self.handed if each[0] != name or each[0] in GROUPS]
