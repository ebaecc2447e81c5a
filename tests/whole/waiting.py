"""The verbs that wait: what sleeps in a thread of its own, what wakes it, and leases, which end by themselves."""

from __future__ import annotations

import contextlib

import hypothesis.strategies as st
import pytest

import shmq
from shmq.taking.group import GroupConsumer
from tests.whole import model
from tests.whole.model import Alone, Entry
from tests.whole.processes import begin_waiting, on, waited
from tests.whole.putting import entries
from tests.whole.steps import first, verb
from tests.whole.taking import ANY, DEADLINE, MEMBERS

TRIES = 3
PATIENCE = DEADLINE + 5
WHICH = st.integers(0, 99)
WAKERS = st.sampled_from(
    ["put", "put", "put_many", "put_once", "adopt", "settle", "settle", "end_slot", "leave", "kill", "close", "end"]
)
HOWS = st.sampled_from(["get", "get", "many", "take", "arrow", "wait"])
ENDS = st.sampled_from(["ack", "nack", "reject"])
LATE = st.sampled_from(["ack", "nack", "nack later", "reject", "extend", "ack both"])


def open_reader(queue, start):
    """One that follows from there."""
    return queue.reader(start, follow=True)


def is_closed(handle):
    """Whether that consumer was closed."""
    return handle._account.closed if isinstance(handle, GroupConsumer) else handle._closed


class Waiting:
    """Of `Whole`."""

    # ---- consumers
    @verb(name=ANY, which=WHICH, how=HOWS, waker=WAKERS, entry=entries(), settle=ENDS)
    def waits(self, name, which, how, waker, entry, settle):
        """What was asked for before it came is handed out when it comes; and who waits is told of the end."""
        self.have(name)
        if self.gets_all(name, which):
            self.waits_for(name, which, how, lambda: self.wakes(waker, name, which, entry, settle))
            return True
        return False

    def gets_all(self, name, which):
        """Whether nothing is there for that name any more, once it has taken what there was."""
        known = self.log.names[name]
        for _ in range(TRIES):
            if isinstance(known, Alone):
                at = known.at
                first(self, "get_alone", name=name, limit=100, how="get")
                if known.at == at:
                    return not self.is_there(known)
            elif self.is_there(known):
                first(self, "get_group", name=name, which=which, limit=8, how="get")
        return not self.is_there(known) and not isinstance(known, Alone)

    def is_there(self, known):
        """Whether something must come at once."""
        if self.immediate or self.loses:
            return False
        if not isinstance(known, Alone):
            return any(not self.claimed_before(index) for index in known.available())
        index = known.next()
        return index is not None and not self.claimed_before(index)

    def waits_for(self, name, which, how, wakes):
        """One waits, and *wakes*() is done meanwhile. What must come then comes; what only may is not waited for."""
        known = self.log.names[name]
        serial, handle = (0, known.handle) if isinstance(known, Alone) else known.members[which % len(known.members)]
        before = [] if isinstance(known, Alone) else known.available(surely=False)
        over = self.over()  # then it is told so at once, though somebody may put again
        number = on(handle, begin_waiting, how, DEADLINE)
        got = []
        try:
            wakes()
            if not self.must_answer(known, serial):
                handle.close()
            got = on(handle, waited, number, PATIENCE)
        except shmq.Empty:
            pytest.fail(f"{name} waited in vain: {vars(known)}")
        except shmq.ShutDown as end:
            assert over or self.over(), end  # noqa: PT017  # it may be right
            assert over or not self.is_there(known), f"{end}, and {vars(known)}"  # noqa: PT017
        except shmq.Closed:
            assert on(handle, is_closed)
        except shmq.LeaseLost:
            assert known.lease == model.SHORT
            known.may_have_lost()
        except BaseException:
            handle.close()
            with contextlib.suppress(shmq.ShmqError, OSError):
                got = on(handle, waited, number, PATIENCE)
            self.put_all_the_same()
            raise
        finally:
            if how != "wait" and len(got):
                self.came(name, (serial, handle), got, {"many": "get"}.get(how, how), before)
            self.without_closed(name, serial, handle)

    def put_all_the_same(self):
        """What was about to be put is there, although an error says that something could not be done."""
        if self.on_the_way and self.queue.next_index > self.log.next:
            self.log.add(self.on_the_way)
            self.on_the_way = []

    def came(self, name, who, got, how, before):
        """What whoever waited was handed; a group may have handed it out before what woke it was done."""
        known = self.log.names[name]
        if isinstance(known, Alone):
            self.came_alone(name, known, got, how)
            return
        self.came_meanwhile = before
        self.came_to_member(name, known, who, got, how)
        self.came_meanwhile = []

    def without_closed(self, name, serial, handle):
        """If it was closed, it has nothing any more."""
        known = self.log.names[name]
        if not on(handle, is_closed):
            return
        if isinstance(known, Alone):
            known.handle = None
            self.handed = [each for each in self.handed if each[0] != name]
        else:
            known.members.remove((serial, handle))
            known.leave(serial)

    def must_answer(self, known, serial):
        """Whether who waits is told something by now, or soon: of a message, or of the end."""
        if self.immediate:
            return True
        if self.loses or self.small:
            return False
        alone = isinstance(known, Alone)
        if self.is_there(known) and (alone or len(known.held_by(serial)) <= known.window // 4):
            return True
        if not alone and self.come_back(known):
            return True
        return bool(self.shut or self.here.queue.finished) and not self.slots and self.is_over(known, serial)

    def come_back(self, known):
        """What comes again when its lease ends, if its holder leaves it at that."""
        first = max(self.log.dropped, self.here.queue.first_index)
        return [index for index in known.loose() if index >= first and not known.may_be_over(index)]

    @staticmethod
    def is_over(known, serial):
        """Whether nothing may come any more."""
        if isinstance(known, Alone):
            return not any(known.waits_at(index) for index in known.log.entries if index >= known.at)
        _, most = known.unfinished([], known=True)
        return most == len(known.held_by(serial)) and not known.letters.soon

    # ---- what wakes
    def wakes(self, waker, name, which, entry, settle):
        """Do something that may wake who waits."""
        if waker in ("put", "put_once", "put_many", "adopt"):
            self.puts(waker, which, entry)
        elif waker == "settle" and self.held_messages():
            first(self, "settle", which=which, how=settle)
        elif waker == "end_slot" and self.slots:
            first(self, "end_slot", which=which, give_up=which % 2 == 0)
        elif waker == "end" and which % 3:
            first(self, "finish", sure=0)
        elif waker == "end":
            first(self, "shut_down", sure=0, immediate=which % 2 == 0)
        elif waker in ("leave", "kill") and name in ("g", "h"):
            self.goes(waker, self.log.names[name], which)

    def puts(self, waker, which, entry):
        """Put that, in some way."""
        once = {"several": [entry], "producer": "pq"[which % 2], "sequence": which % 6}
        given = {
            "put": {"entry": entry},
            "put_many": {"several": [entry]},
            "put_once": once,
            "adopt": {"several": [entry], "later": False},
        }
        first(self, "stage" if waker == "adopt" else waker, **given[waker])

    def goes(self, waker, known, which):
        """Another process is killed, or another member leaves."""
        asked = known.members[which % len(known.members)][1]
        killed = [each for each in self.processes[1:] if not each.has(asked)]
        if waker == "leave":
            for serial, member in [each for each in known.members if each[1] is not asked][:1]:
                known.members.remove((serial, member))
                member.close()
                known.leave(serial)
        elif killed:
            self.processes.remove(killed[0])
            self.at = self.here
            killed[0].kill()
            self.without(killed[0])

    # ---- leases
    @verb(which=WHICH, how=HOWS, asks=st.integers(0, MEMBERS - 1))
    def a_lease_ends(self, which, how, asks):
        """Whoever waits is handed what another one has had for too long."""
        known = self.group("g")
        if known.lease != model.SHORT:
            return False
        for _ in range(2):
            if not known.loose():
                first(self, "get_group", name="g", which=which, limit=3, how="get")
            if not known.loose():
                first(self, "put", entry=Entry(b"leased"))
        if not known.loose():
            return False
        if len(known.members) == 1:
            self.join("g", known)
        if not self.gets_all("g", which):
            return False
        self.waits_for("g", asks, how, lambda: None)
        return True

    @verb(which=WHICH, how=LATE)
    def is_too_late(self, which, how):
        """Whoever had it is told that it is somebody else's, whatever it does, and that changes nothing."""
        mine = [each for each in self.displaced if self.is_member(*each[:2])]
        if not mine:
            first(self, "a_lease_ends", which=which, how="get", asks=which % MEMBERS)
            mine = [each for each in self.displaced if self.is_member(*each[:2])]
        if not mine:
            return False
        name, member, message = mine[which % len(mine)]
        others = [each for each in self.held_messages() if each[1] is member] if how == "ack both" else []
        with pytest.raises(shmq.LeaseLost):
            self.do_late(member, [message, *(each[2] for each in others[:1])], how)
        for _, _, other in others[:1]:
            self.is_finished_beside(name, other)
        return True

    @staticmethod
    def do_late(member, messages, how):
        message = messages[0]
        if how == "ack both":
            member.ack(*messages)
        elif how == "extend":
            message.extend(1)
        elif how == "reject":
            message.reject("too late")
        elif how == "ack":
            message.ack()
        else:
            message.nack(delay=3600 if how == "nack later" else 0)

    def is_finished_beside(self, name, other):
        """Of several that are acknowledged together, what is not lost is finished."""
        known, index = self.log.names[name], other.index
        known.state[index] = model.UNSURE if self.loses or known.has_ended(index) else model.DONE
        self.log.letters[name].perhaps.add(index)
        self.handed = [each for each in self.handed if each[2] is not other]

    def is_member(self, name, member):
        known = self.log.names.get(name)
        return known is not None and any(member is each for _, each in known.members)

    # ---- readers
    @verb(which=WHICH, waker=WAKERS, entry=entries(), settle=ENDS)
    def follows(self, which, waker, entry, settle):
        """A reader that waits at the end has the next message, whoever is to have it; or it ends with the stream."""
        self.have("h")
        start = min((slot for slot, *_ in self.slots), default=self.log.next)
        process, over = self.processes[which % len(self.processes)], self.over()
        reader = process.ask(open_reader, process.queue, start)
        number = on(reader, begin_waiting, "follow", DEADLINE)
        try:
            self.wakes(waker, "h", which, entry, settle)
        except BaseException:
            reader.close()
            with contextlib.suppress(shmq.ShmqError, OSError):
                on(reader, waited, number, PATIENCE)
            raise
        if process not in self.processes:  # it was killed
            return
        expected = next((index for index in self.log.entries if index >= start), None)
        comes = expected is not None and not (self.claimed_before(expected) or self.loses or self.immediate)
        if not comes and not (self.shut or self.here.queue.finished):
            reader.close()
        found = on(reader, waited, number, PATIENCE)
        if found is None:
            assert over or not comes, f"it ended before {expected}"
        else:
            assert found.index == expected or self.loses, (found.index, expected)
            self.check(found.index, found)
        reader.close()
