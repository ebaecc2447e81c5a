"""The verbs of processes: they begin, end, are killed; and the queue's own end, and the machine's."""

from __future__ import annotations

import contextlib
import errno
import os

import hypothesis.strategies as st
import pytest

import shmq
from tests import support
from tests.whole.model import Alone, Group
from tests.whole.processes import Worker, leave_descriptors, on
from tests.whole.putting import dropped, entries
from tests.whole.steps import PROCESSES, first, verb
from tests.whole.taking import MEMBERS, forked


class Living:
    """Of `Whole`."""

    @verb(when=lambda self: self.several and len(self.processes) < PROCESSES, own=st.booleans(), goes_on=st.booleans())
    def a_process_starts(self, own, goes_on):
        """
        With a queue of its own, or the one that it inherited.

        What belongs to its parent alone is Forked there; a member of a group may become one of its own.
        """
        here = [
            (name, each)
            for name, known in self.log.names.items()
            for each in ([each for _, each in known.members] if isinstance(known, Group) else [known.handle])
            if each is not None and self.here.has(each)
        ]
        slots = [slot for _, slot, _ in self.slots if self.here.has(slot)]
        inherited = [self.here.queue, *(each for _, each in here), *slots]
        worker = Worker(self.path, self.flags, inherited, own=own)
        worker.found = (self.log.ends if self.log.finished else None) if own else self.here.found
        self.processes.append(worker)
        for (name, _), far in zip(here, worker.inherited[1:], strict=False):
            known = self.log.names[name]
            if isinstance(known, Alone) or known.lone:
                with pytest.raises(shmq.errors.Forked):
                    far.get_many(1, timeout=0)
            elif goes_on and len(known.members) < MEMBERS:
                known.serial += 1
                known.members.append((known.serial, far))
                assert far.pending == 0  # P9: it is one of its own from its first use on
                worker.sits = True
        for far in worker.inherited[1 + len(here) :]:
            with pytest.raises(shmq.errors.Forked):
                far.commit()
        self.marks.add("own handle" if own else "inherited handle")

    @verb(which=st.integers(0, PROCESSES))
    def a_process_is_killed(self, which):
        """What it put stays; what it held comes again; what it had claimed is padding; names and pins are free."""
        if len(self.processes) == 1:
            first(self, "a_process_starts", own=which == 0, goes_on=True)
        worker = self.processes.pop(1 + which % (len(self.processes) - 1))
        self.at = self.here
        worker.kill()
        self.without(worker)
        self.marks.add("a process was killed")

    @verb(which=st.integers(0, PROCESSES))
    def a_process_leaves(self, which):
        if len(self.processes) == 1:
            first(self, "a_process_starts", own=which == 0, goes_on=True)
        worker = self.processes.pop(1 + which % (len(self.processes) - 1))
        self.at = self.here
        self.let_slots_go(worker)
        worker.leave()
        self.without(worker)

    def let_slots_go(self, process):
        for each in [each for each in self.slots if process.has(each[1])]:
            self.slots.remove(each)
            self.finish_slot(*each, give_up=True)

    def without(self, process):
        """That process has nothing any more."""
        self.log.claims_of_the_dead |= {index for index, slot, _ in self.slots if process.has(slot)}
        self.slots = [each for each in self.slots if not process.has(each[1])]
        self.pins = [each for each in self.pins if not process.has(each[0])]
        self.handed = [each for each in self.handed if not process.has(each[1])]
        for known in self.log.names.values():
            if isinstance(known, Alone):
                if known.handle is not None and process.has(known.handle):
                    known.handle = None
                continue
            for serial, member in [each for each in known.members if process.has(each[1])]:
                known.members.remove((serial, member))
                known.leave(serial)

    def close_all_of(self, process):
        """Whatever that process has open."""
        self.let_slots_go(process)
        for known in self.log.names.values():
            handles = [known.handle] if isinstance(known, Alone) else [each for _, each in known.members]
            for each in handles:
                if each is not None and process.has(each):
                    each.close()
        for reader, _ in self.pins:
            if process.has(reader):
                reader.close()
        self.without(process)

    @verb(entry=entries(), whole=st.booleans())
    def a_producer_is_killed(self, entry, whole):
        """Behind a put that returned, or with a claim that is open: then it becomes padding."""
        self.at = self.here  # who forks must be this one
        self.number(entry)
        ready, tell = os.pipe()
        with forked() as pid:
            if pid == 0:
                with contextlib.suppress(shmq.ShmqError, OSError):
                    if whole:
                        index = self.placed(lambda: self.queue.put(entry.payload, timeout=0, **self.fields(entry)))
                    else:
                        self.kept = self.queue.reserve(8, timeout=0)
                        index = self.kept.index
                    os.write(tell, index.to_bytes(8, "little"))
        os.close(tell)
        with open(ready, "rb") as pipe:
            said = pipe.read()
        if not said:
            surely = self.log.fits(1 + len(self.slots)) is True and not self.byte_bound and not self.small
            assert self.ended() or not surely
            if self.log.full == "drop_oldest" and self.small:
                self.coming = 1
                self.dropping()
            return
        self.dropping()
        index = int.from_bytes(said, "little")
        assert index == (self.log.add([entry]).start if whole else self.log.pad())
        self.log.claims_of_the_dead |= set() if whole else {index}
        self.marks.add("a producer was killed")

    @verb()
    def second_handle(self):
        other = self.at.ask(shmq.open, self.path, **self.flags)
        assert other.next_index == self.log.next
        other.close()

    @verb(when=lambda self: not self.volatile or len(self.processes) > 1)
    def reopen(self):
        """One process closes the queue, and opens it again."""
        self.close_all_of(self.at)
        self.at.queue.close()
        self.at.queue = self.opened()
        self.at.found = self.log.ends if self.log.finished else None
        if not any(each.sits for each in self.processes if each is not self.at):
            self.shut = self.immediate = False

    def opened(self):
        """The queue, opened by the process whose turn it is; again when it is refused for want of a descriptor."""
        try:
            return self.at.ask(shmq.open, self.path, **self.flags)
        except OSError as problem:
            if problem.errno != errno.EMFILE or not getattr(self.at, "scarce", False):
                raise
            self.marks.add("no descriptor")
            self.plenty([self.at])
            return self.at.ask(shmq.open, self.path, **self.flags)

    @verb(killed=st.booleans())
    def recover(self, killed):
        """As after a power cut that lost nothing of the log."""
        if self.volatile:
            return False
        self.at = self.here
        self.close_slots()
        if self.log.claims_of_the_dead:  # P2: an unbroken beginning is kept; such a claim ends it, unless it was synced
            self.here.queue.sync()
            self.log.claims_of_the_dead.clear()
        while len(self.processes) > 1:
            worker = self.processes.pop()
            if killed:
                worker.kill()
            else:
                worker.leave()
            self.without(worker)
        self.close_all_of(self.here)
        self.queue.close()
        support.make_unclean(self.path)
        self.here.queue = shmq.open(self.path, **self.flags)
        self.here.found = self.log.ends if self.log.finished else None
        assert self.queue.next_index >= self.log.next
        self.log.jump(self.queue.next_index)
        passed = self.log.dropped
        kept = on(self.queue, dropped)
        again = range(max(kept, self.queue.first_index), self.log.purged)
        assert not [index for index in self.log.entries if index in again], again  # a purge outlives the machine
        assert kept <= passed
        self.log.dropped = max(kept, self.log.purged)  # what a bound dropped in the last chunk may come again
        self.shut = self.immediate = False
        self.log.retired = max(self.log.retired, self.queue.first_index)
        seen = self.queue.consumers()
        for name, known in self.log.names.items():
            if isinstance(known, Group):
                known.forgets(range(self.log.dropped, passed))
            else:
                least = max(known.floor(most=True), passed)
                assert seen[name].head <= least or not known.synced, (seen[name], vars(known), passed)
                known.forgets(seen[name].head)
        self.marks.add("recovered")
        return True

    @verb(sure=st.integers(0, 3), immediate=st.booleans())
    def shut_down(self, sure, immediate):
        if sure or self.shut:
            return False
        self.queue.shutdown(immediate=immediate)
        self.shut, self.immediate = True, immediate
        return True

    @verb(sure=st.integers(0, 2))
    def finish(self, sure):
        if sure:
            return False
        self.close_slots()
        self.queue.finish()
        self.log.ends += not self.log.finished
        self.log.finished = True
        return True

    def ended(self) -> bool:
        """Whether this process may put nothing."""
        return self.shut or (self.log.finished and self.at.found != self.log.ends)

    @verb(count=st.integers(0, 2))
    def few_descriptors(self, count):
        """A worker can open so many files more, in the next verb that it does."""
        if self.at is self.here:
            if len(self.processes) == 1:
                first(self, "a_process_starts", own=True, goes_on=True)
            self.at = self.processes[-1]
        self.at.ask(leave_descriptors, count)
        self.at.scarce = True
