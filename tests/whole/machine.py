"""
All verbs and all options at once, drawn by Hypothesis, against tests/whole/model.py.

Each rule does one verb to the queue, in one of several real processes, and to the model, and compares what they say.
`drain` and the end of each sequence ask every name for all that is left: what must come comes once, and nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import shutil
import tempfile
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

import shmq
from tests import support
from tests.whole import model
from tests.whole.living import Living
from tests.whole.looking import Looking
from tests.whole.model import Alone, Entry, Group
from tests.whole.processes import Here, leave_descriptors
from tests.whole.putting import HOUR, Putting
from tests.whole.steps import MET, VERBS, noted, told
from tests.whole.taking import GROUPS, Taking
from tests.whole.waiting import Waiting

__all__ = ["MET", "VERBS", "Whole"]
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
STARTS = [0, 134_225_917, *((1 << power) - few for power in (16, 22, 27, 32, 37, 40, 48, 56, 60) for few in (1, 3, 8))]
_numbers = itertools.count()
_MNT_DETACH = 2


@contextlib.contextmanager
def small_disk():
    """A file system of 1 MiB; None where none can be mounted."""
    kernel, place = ctypes.CDLL(None, use_errno=True), tempfile.mkdtemp(prefix="shmq-whole-disk-")
    try:
        if kernel.mount(b"none", place.encode(), b"tmpfs", 0, b"size=1m"):
            yield None
            return
        try:
            yield place
        finally:
            kernel.umount2(place.encode(), _MNT_DETACH)
    finally:
        os.rmdir(place)


class Whole(Putting, Taking, Waiting, Looking, Living, RuleBasedStateMachine):
    """One queue, its model, and what is open at it."""

    SIMPLE: ClassVar[dict[Any, Any]] = {
        "by": 0, "place": "directory", "retention": "acked", "durability": "process", "bound": None, "full": "raise",
        "checksum": True, "codec": "bytes", "start": 0, "window": None, "ttl": None, "several_processes": False,
        "holding": [], "latest": [], "payload": b"", "index_spacing": 64, "killed": True, "own": True, "goes_on": False,
        "group": {"ordered_by": None, "max_attempts": None, "expire_to": None, "lease": None},
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.story: list[tuple[str, dict[str, Any]]] = []

    # ---- making
    @initialize(
        place=st.sampled_from(["directory", "directory", "volatile", "small disk"]),
        retention=st.sampled_from(["acked", "acked", "forever", "age", "bytes", "no age"]),
        durability=st.sampled_from(["process", "sync", "interval"]),
        bound=st.sampled_from([None, 5, 12]),
        full=st.sampled_from(["raise", "block", "drop_oldest"]),
        checksum=st.booleans(),
        codec=st.sampled_from(["bytes", "bytes", "msgpack", "json", "pickle"]),
        start=st.one_of(st.just(0), st.sampled_from(STARTS)),
        group=st.fixed_dictionaries(
            {
                "ordered_by": st.sampled_from([None, "key"]),
                "max_attempts": st.sampled_from([None, 2]),
                "expire_to": st.sampled_from([None, "expired"]),
                "lease": st.sampled_from([None, HOUR, model.SHORT, model.SHORT]),
            }
        ),
        window=st.sampled_from([64, None, 4096]),
        ttl=st.sampled_from([None, None, HOUR]),
        index_spacing=st.sampled_from([64, 1, 5]),
        several_processes=st.booleans(),
        holding=st.lists(st.sampled_from("ax"), unique=True, max_size=2),
        latest=st.lists(st.sampled_from("axgh"), unique=True, max_size=1),
    )
    def begin(self, **given):
        self.story.append(("begin", given))
        told("begin", given)
        with noted(self):
            self._begin(**given)

    def _begin(
        self, place, retention, durability, bound, full, checksum, codec, start, group, window, ttl, index_spacing,
        several_processes, holding, latest,
    ):  # fmt: skip
        self.disk = contextlib.ExitStack()
        self.small = self.disk.enter_context(small_disk()) if place == "small disk" else None
        self.folder = tempfile.mkdtemp(prefix="shmq-whole-", dir=self.small or MEMORY)
        self.done: set[str] = set()
        self.marks: set[str] = set()
        self.volatile = place == "volatile"
        if self.volatile:
            durability, start = "process", 0
        kept = {
            "age": shmq.Retention.age(HOUR),
            "no age": shmq.Retention.age(1e-6),
            "bytes": shmq.Retention.bytes(1 << 16),
        }
        sync = {"sync": shmq.Durability.SYNC, "interval": shmq.Durability.interval(HOUR)}
        options = shmq.Options(
            chunk_bytes=16384,
            retention=kept.get(retention) or shmq.Retention(retention),
            durability=sync.get(durability, shmq.Durability.PROCESS),
            max_messages=bound,
            full=full,
            checksum=checksum,
            codec=codec,
            ttl=ttl,
            index_spacing=index_spacing,
        )
        self.codec = codec
        self.flags = {"trusted": True} if codec == "pickle" else {}
        self.holding, self.latest = set(holding), set(latest)
        self.several = several_processes
        self.config = {
            place,
            f"retention {retention}",
            f"durability {durability}",
            f"full {full}" if bound else "unbounded",
            "checksum" if checksum else "no checksum",
            f"codec {codec}",
            f"index near 2^{(start + 8).bit_length() - 1}" if start else "index 0",
            f"index spacing {index_spacing}",
            "ttl of the queue" if ttl else "no ttl of the queue",
        }
        number = next(_numbers)
        self.group_options = {name: value for name, value in group.items() if value is not None}
        if "expire_to" in self.group_options:
            self.group_options["expire_to"] = f"expired-{os.getpid()}-{number}"
        self.window = window
        self.path = f"{self.folder}/q" if not self.volatile else f"shm:whole-{os.getpid()}-{number}"
        queue = shmq.open(self.path, options=options, **self.flags)
        if start:
            queue.close()
            support.begin_at(self.path, start)
            queue = shmq.open(self.path, **self.flags)
        self.here = self.at = Here(queue)
        self.processes: list[Any] = [self.here]
        self.log = model.Log(queue.next_index, max_messages=bound, full=full)
        self.loses = self.log.loses = retention in ("bytes", "no age")
        self.log.small = bool(self.small)
        self.byte_bound: int | None = None
        self.slots: list[tuple[int, Any, Entry]] = []
        self.handed: list[tuple[str, Any, Any]] = []
        self.displaced: list[tuple[str, Any, Any]] = []
        """What was handed to somebody else since."""
        self.came_meanwhile: list[int] = []
        """What a group may have handed out before the model heard of what was done beside that."""
        self.pins: list[tuple[Any, int]] = []
        self.staged: list[tuple[str, list[Entry]]] = []
        self.on_the_way: list[Entry] = []
        self.coming = 0
        """For so many there was to be room, and they are not there yet."""
        self.shut = self.immediate = False
        self.numbers = itertools.count()

    @property
    def queue(self) -> Any:
        """The queue of the process whose turn it is."""
        return self.at.queue

    # ---- what is there
    def features(self) -> set[str]:
        """What is there now, beside what was done before."""
        found = self.config | self.done | self.marks | {f"in process {self.at.name}"}
        for name in self.log.names.values():
            found |= self.of_alone(name) if isinstance(name, Alone) else self.of_group(name)
        alive = [entry for index, entry in self.log.entries.items() if index >= self.log.first()]
        there = {
            "open slot": self.slots,
            "pin": self.pins,
            "waiting set": self.staged,
            "padding": self.log.pads,
            "shut down": self.shut,
            "shut down at once": self.immediate,
            "finished": self.log.finished,
            "expired": any(entry.expired for entry in alive),
            "delayed": any(entry.later for entry in alive),
            "several processes": len(self.processes) > 1,
            "few descriptors": getattr(self.at, "scarce", False),
            "retired": self.log.retired > self.log.begin,
            "a late holder": any(self.is_member(*each[:2]) for each in self.displaced),
        }
        return found | {feature for feature, is_there in there.items() if is_there}

    @staticmethod
    def of_alone(name: Alone) -> set[str]:
        found = {f"name {'explicit' if name.explicit else 'auto'}"}
        found |= {"hold"} if name.hold else set()
        return found | {"held by a name"} if name.pending() else found

    @staticmethod
    def of_group(name: Group) -> set[str]:
        kind = "group" if not name.lone else "name"
        found = {f"{kind} {'explicit' if name.explicit else 'auto'}", f"window {name.window}"}
        found |= {"hold"} if name.hold else set()
        found |= {"held by a name"} if name.lone and model.HELD in name.state.values() else set()
        found |= {f"group {option}" for option in name.options} | (
            {"lease short"} if name.lease == model.SHORT else set()
        )
        telling = {model.HELD, model.BACK, model.LATER, model.DEAD, model.UNSURE}
        found |= {f"group has {state}" for state in telling & set(name.state.values())}
        return found | {"several members"} if len(name.members) > 1 else found

    # ---- what may go wrong
    @contextlib.contextmanager
    def straits(self):
        """On a small disk, or with few descriptors, a verb may be refused; then nothing has happened."""
        scarce = [each for each in self.processes if getattr(each, "scarce", False)]  # a verb may ask several processes
        over = scarce
        self.on_the_way, self.coming = [], 0
        try:
            yield
            over = [each for each in scarce if each is self.at and self.story[-1][0] != "few_descriptors"]
        except shmq.DiskFull:
            if not self.small:
                raise
            self.plenty(scarce)
            self.marks.add("disk full")
            self.without_half_done()
        except OSError as problem:
            if not scarce or problem.errno != errno.EMFILE:
                raise
            self.marks.add("no descriptor")
            self.plenty(scarce)
            for known in self.log.names.values():
                if isinstance(known, Group):
                    known.may_have_counted()
            self.without_half_done(may_be_there=True)
        finally:
            self.plenty(over)

    def plenty(self, processes):
        """Have these be able to open as many files as they like again."""
        for each in processes:
            if each in self.processes:
                each.ask(leave_descriptors, -1)
                each.scarce = False

    def without_half_done(self, *, may_be_there: bool = False) -> None:
        """The verb was refused: its put is not there, or with *may_be_there* whole; a name was made, or was not."""
        if may_be_there and self.on_the_way and self.queue.next_index > self.log.next:
            self.log.add(self.on_the_way)
        for name in set(self.queue.consumers()) - set(self.log.names):
            self.queue.drop_consumer(name)
        if self.log.full == "drop_oldest":
            self.dropping()

    # ---- always
    @invariant()
    def agrees(self):
        if hasattr(self, "log"):
            with noted(self):
                self.compare()

    def compare(self):
        queue = self.here.queue
        assert queue.next_index == self.log.next
        first = queue.first_index
        if "purged" not in self.marks:
            self.holds_back(first)
        for _, index in self.pins:
            assert first <= max(index, self.log.retired), (first, index, self.log.retired)
        self.log.retired = max(self.log.retired, first)
        for name, known in self.log.names.items():
            if isinstance(known, Alone) and known.handle is not None:
                assert known.handle.pending == known.pending(), name

    def holds_back(self, first):
        """Nothing that a name needs is gone, but what retention may take from those that hold nothing."""
        if {"retention age", "retention bytes", "retention no age"} & self.config:
            holding = [name for name in self.log.names.values() if name.hold]
            floors = [max(name.floor(most=True), self.log.dropped, self.log.retired) for name in holding]
            floor = min(floors, default=self.log.next)
        else:
            floor = self.log.begin if "retention forever" in self.config else self.log.floor(most=True)
        needed = min((index for index in self.log.entries if index >= floor), default=self.log.next)
        assert first <= needed, (first, needed, [vars(name) for name in self.log.names.values()])

    def learn(self):
        """Whether whoever may open the finished queue for writing again has done so."""
        if self.log.finished and self.at.found == self.log.ends and not getattr(self.at, "scarce", False):
            self.log.finished = self.queue.finished

    def teardown(self):
        if hasattr(self, "log"):
            with noted(self):
                self.end()

    def end(self):
        try:
            self.at = self.here
            for name in GROUPS:
                if name in self.log.names:
                    with self.straits():
                        self.drain_all(name)
        finally:
            for process in self.processes[1:]:
                process.kill()
                self.without(process)
            self.close_all_of(self.here)
            self.here.queue.close()
            shutil.rmtree(self.folder)
            self.disk.close()
            for name in GROUPS if self.volatile else []:
                with contextlib.suppress(shmq.ShmqError, ValueError):
                    shmq.delete(f"{self.path}.{name}.dead")
