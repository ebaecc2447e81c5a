"""
The first process after the cut, as a user would be it, held against what was promised before the cut.

Nothing is repaired by hand. What may be true at a moment is a `Truth`; it is made from what the workload had said by
then, and from what the operation in flight was about to do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import warnings
from typing import TYPE_CHECKING, Any

import shmq
from shmq.storage import boots, directory

from .history import History, Named, State, Stored
from .workloads import ONCE, Begins, Facts, Returned, dead_letters

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclasses.dataclass
class Truth:
    """
    What may be found after a cut.

    Attributes:
        messages: by index, everything that was put, or that the operation in flight may have put.
        lost: by index, what was put and went with an earlier cut; its letter may have outlived it.
        batches: (first, behind the last) of what is there whole or not at all.
        durable: every index below this was promised to be on the disk.
        first: what lies below this may have been retired.
        issued: no index below this may be given again.
        heads: how far each name may have come at most, and at least; a name that may be absent has no least.
        exists: whether the queue was promised to be there.
        doing: the verb in flight.
        unsure: the indexes of what the operation in flight puts: none of them was promised.
        finished, moved: what the group may have acknowledged, or moved to its dead letters.
        kept, letters: of those, what was promised not to come again, and to be found there.
        once: the sequence and the payload of the last put with dedup that began.
        waiting: by token, the payloads of what was handed over and nobody had begun to adopt.
    """

    messages: dict[int, bytes]
    batches: list[tuple[int, int]]
    durable: int
    first: int
    issued: int
    heads: dict[str, tuple[int, int | None]]
    exists: bool
    doing: str
    unsure: range = range(0)
    finished: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    moved: frozenset[int] = frozenset()
    letters: frozenset[int] = frozenset()
    lost: dict[int, bytes] = dataclasses.field(default_factory=dict)
    once: tuple[int, bytes] | None = None
    waiting: dict[str, tuple[bytes, ...]] = dataclasses.field(default_factory=dict)


class Telling:
    """Reads a history from its beginning, and says at each moment what may be true."""

    def __init__(self, history: History, start: Truth | None = None) -> None:
        """*start* is what was true before the first event, if anything was."""
        self._state = State(history)
        before = start or Truth({}, [], 0, 0, 0, {}, exists=False, doing="")
        self._messages = dict(before.messages)
        self._batches = list(before.batches)
        self._durable = before.durable
        self._facts = Facts(before.first, before.issued, {})
        self._most = {name: most for name, (most, _) in before.heads.items()}
        self._least = {name: least for name, (_, least) in before.heads.items() if least is not None}
        self._exists = before.exists
        self._group = before
        self._doing: tuple[Begins, Returned | None] | None = None
        self._given = False
        said = [event.what for event in history.events if hasattr(event, "what")]
        self._answers = iter([each for each in said if isinstance(each, Returned)])

    @property
    def state(self) -> State:
        """What the disk may hold now."""
        return self._state

    def step(self) -> None:
        """One event more."""
        event = self._state.step()
        what = getattr(event, "what", None)
        if isinstance(what, Begins):
            self._begin(what)
            self._doing = what, next(self._answers, None)
            self._given = False
        elif isinstance(what, Returned):
            self._return(what)
        elif self._doing and self._doing[0].verb == "adopt":
            self._given |= isinstance(event, Named) and any(
                len(name) > len("00000000.chunk") and name.endswith(".chunk") for _, name in event.changes
            )
        elif isinstance(event, Stored):
            self._given |= event.taken

    def _begin(self, begun: Begins) -> None:
        waiting = {token: what for token, what in self._group.waiting.items() if token != begun.token}
        once = self._group.once if begun.sequence is None else (begun.sequence, begun.payloads[0])
        self._group = dataclasses.replace(self._group, once=once, waiting=waiting)

    def _return(self, returned: Returned) -> None:
        assert self._doing
        begun = self._doing[0]
        self._add(self._messages, self._batches, begun, returned)
        if returned.there is not None:
            lost = {index: data for index, data in self._messages.items() if index not in returned.there}
            self._group = dataclasses.replace(self._group, lost={**self._group.lost, **lost})
            self._messages = {index: data for index, data in self._messages.items() if index in returned.there}
            self._batches = [batch for batch in self._batches if batch[0] in returned.there]
        self._facts = returned.facts
        for name, head in returned.facts.heads.items():
            self._most[name] = max(head, self._most.get(name, 0))
        if returned.handed is not None:
            token, payloads = returned.handed
            self._group = dataclasses.replace(self._group, waiting={**self._group.waiting, token: payloads})
        self._durable = max(self._durable, returned.durable)
        self._exists |= returned.durable >= 0 or begun.verb in ("create", "sync")
        self._least.update(returned.acknowledged)
        self._group = _worked(self._group, returned, over=True)
        for name in [name for name in self._least if begun.verb == "drop" and name not in returned.facts.heads]:
            del self._least[name]
        self._doing = None

    @staticmethod
    def _add(messages: dict[int, bytes], batches: list[tuple[int, int]], begun: Begins, done: Returned) -> None:
        if done.index >= 0:
            messages.update(enumerate(begun.payloads, done.index))
            batches.append((done.index, done.index + len(begun.payloads)))

    def truth(self) -> Truth:
        """What may be found after a cut here."""
        messages, batches = dict(self._messages), list(self._batches)
        first, issued, most, least = self._facts.first, self._facts.next, dict(self._most), dict(self._least)
        verb, unsure = "nothing", range(0)
        if self._doing:
            begun, done = self._doing
            verb = begun.verb
            if done:
                self._add(messages, batches, begun, done)
                unsure = range(done.index, done.index + len(begun.payloads))
                first = max(first, done.facts.first)
                issued = done.facts.next if self._given and begun.payloads else issued
                for name, head in done.facts.heads.items():
                    most[name] = max(most.get(name, 0), head)
                if verb == "drop":
                    least = {name: head for name, head in least.items() if name in done.facts.heads}
        heads = {name: (head, least.get(name)) for name, head in most.items()}
        group = _worked(self._group, self._doing[1], over=False) if self._doing and self._doing[1] else self._group
        return dataclasses.replace(
            group,
            messages=messages,
            batches=batches,
            durable=self._durable,
            first=first,
            issued=issued,
            heads=heads,
            exists=self._exists,
            doing=verb,
            unsure=unsure,
        )


def _worked(truth: Truth, returned: Returned, *, over: bool) -> Truth:
    """What a group may have done with that operation; and has, once it is *over*."""
    finished, moved = truth.finished | returned.finished, truth.moved | returned.moved
    if not over:
        return dataclasses.replace(truth, finished=finished, moved=moved)
    return dataclasses.replace(
        truth,
        finished=finished,
        moved=moved,
        kept=finished | moved if returned.kept else truth.kept,
        letters=truth.letters | returned.moved,  # not what was in flight in a history before this one
    )


# ---------------------------------------------------------------- looking
@contextlib.contextmanager
def nobody_else() -> Iterator[None]:
    """Nobody administers the queue but this process: what a lock file costs is left out of most cuts."""
    real = directory.admin_lock
    directory.admin_lock = lambda *_: contextlib.nullcontext()  # type: ignore[assignment]
    try:
        yield
    finally:
        directory.admin_lock = real


class Found(AssertionError):
    """A promise is broken."""


def check(condition: bool, what: str, *values: Any) -> None:
    """Say what was found instead."""
    if not condition:
        raise Found(f"{what}: {', '.join(map(_brief, values))}"[:1500])


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:290]} ... ({len(text)} characters)"


@contextlib.contextmanager
def another_boot(fresh: bytes | None = None) -> Iterator[None]:
    """The machine was started again: everybody who asks for the boot's id is told another one."""
    fresh = fresh or os.urandom(16)
    before = boots.boot_id
    boots.boot_id = lambda: fresh
    try:
        yield
    finally:
        boots.boot_id = before  # of a boot around this one, perhaps


def judge(path: str, truth: Truth, options: shmq.Options, *, thorough: bool = False, boot: bytes | None = None) -> None:
    """
    Be the first process at *path* after the cut.

    Args:
        thorough: look with a reader that changes nothing before, and with the next process afterwards.
        boot: the boot in which this happens; a new one by default.

    Raises:
        Found, shmq.ShmqError, OSError: something that must be true is not.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RuntimeWarning)  # a checkpoint that is moved back is said, as promised
        stack.enter_context(another_boot(boot))
        before = None
        if thorough:
            before = only_look(path, truth, boot)
        else:
            stack.enter_context(nobody_else())
        try:
            queue = shmq.open(path, create=False, unsafe_filesystem=True)
        except shmq.NotFound:
            check(not truth.exists, "the queue is gone")
            queue = shmq.open(path, options=options, unsafe_filesystem=True)
            truth = dataclasses.replace(truth, messages={}, durable=0, issued=0, heads={}, batches=[])
        with queue:
            seen = _look(queue, truth)
            check(before in (None, seen), "who may only read sees another queue", before, seen)
            _go_on(queue, truth, seen)
        if thorough:
            _again(path, seen)


def only_look(path: str, truth: Truth, boot: bytes | None = None) -> dict[int, bytes] | None:
    """
    Be a reader that may change nothing, before anybody has recovered the queue: what it sees; None when there is none.

    Raises:
        Found, shmq.ShmqError, OSError: something that must be true is not.
    """
    with another_boot(boot):
        try:
            queue = shmq.open(path, create=False, read_only=True, unsafe_filesystem=True)
        except shmq.NotFound:
            check(not truth.exists, "the queue is gone")
            return None
        with queue:
            return _look(queue, truth)


def _look(queue: Any, truth: Truth) -> dict[int, bytes]:
    seen: dict[int, bytes] = {}
    last = -1
    for message in queue.reader():
        check(message.index > last, "indexes do not ascend", last, message.index)
        last = message.index
        seen[last] = message.payload
    strange = {index: data for index, data in seen.items() if truth.messages.get(index) != data}
    check(not strange, "never put, or damaged", strange)
    lost = [index for index in truth.messages if truth.first <= index < truth.durable and index not in seen]
    check(not lost, "promised to be on the disk, and gone", lost, "seen", list(seen)[:3], list(seen)[-3:])
    if seen:
        holes = [index for index in truth.messages if min(seen) <= index <= last and index not in seen]
        check(not set(holes) - set(truth.unsure), "a hole", holes)
        begins = min((index for index in truth.messages if index >= truth.first), default=last)
        check(min(seen) <= begins, "the beginning is gone", min(seen), begins)
    for first, behind in truth.batches:
        there = sum(index in seen for index in range(first, behind))
        check(there in (0, behind - first) or first < truth.first, "a part of a batch", first, behind, there)
    return seen


def _drain(consumer: Any, first: int) -> dict[int, bytes]:
    seen: dict[int, bytes] = {}
    told = consumer.head >= first
    held: list[shmq.Message] = []
    while True:
        try:
            messages = consumer.get_many(1000, timeout=0)
        except shmq.Empty:
            if consumer.lag == len(held) or not consumer.pending:
                return seen
            consumer.ack(*held)  # the rest lies behind its window: a recovery leaves out more indexes than that has
            held = []
            continue
        except shmq.Gone:
            check(not told, "a consumer is told that something has gone, and nothing has", consumer.head, first)
            told = True
            continue
        for message in messages:
            check(message.index not in seen, "a consumer got a message twice", message.index)
            seen[message.index] = message.payload
        held += messages


def _go_on(queue: Any, truth: Truth, seen: dict[int, bytes]) -> None:
    names = queue.consumers()
    before = sorted(seen)
    strange = set(names) - set(truth.heads)
    check(not strange, "names that nobody made", strange)
    missing = [name for name, (_, least) in truth.heads.items() if least is not None and name not in names]
    check(not missing, "consumers are gone whose acknowledgements were synced", missing)
    behind = queue.next_index
    index = queue.put(b"after")
    check(index == behind, "the next index was another one", index, behind)
    check(index >= truth.issued, "an index is given again", index, truth.issued)
    check(not seen or index > max(seen), "an index is given twice", index)
    dropped = _dropped(queue, [*before, index])
    for name, stats in names.items():
        if stats.shared:
            _finish_group(queue, truth, seen, name, index)
            continue
        most, least = truth.heads[name]
        with queue.consumer(name, ack=stats.ack) as consumer:
            head = consumer.head
            check(head <= max(most, queue.first_index, dropped), "an acknowledgement from nowhere", name, head, most)
            check(least is None or head >= least, "a synced acknowledgement is forgotten", name, head, least)
            first = max(queue.first_index, dropped)
            got = _drain(consumer, first)
        wanted = {each: data for each, data in {**seen, index: b"after"}.items() if each >= max(head, first)}
        check(got == wanted, "a consumer skipped messages or got others", name, sorted(wanted), sorted(got))
    check(queue[index].payload == b"after", "an index leads to another message", index)
    seen[index] = b"after"
    _put_once_more(queue, truth, seen)
    _adopt_what_waits(queue, truth, seen)


def _dropped(queue: Any, there: list[int]) -> int:
    """What lies below was dropped for room: not much more than the bound asks for, which counts padding, too."""
    dropped = int(queue._session.joined().control.bounds().dropped)
    most = queue.options.max_messages or len(there)
    kept = sum(index >= dropped for index in there)
    check(2 * kept >= min(most, len(there)), "more was dropped than had to be", dropped, kept, most)
    return dropped


def _put_once_more(queue: Any, truth: Truth, seen: dict[int, bytes]) -> None:
    """The last put with dedup is repeated: it answers with the index that it had, or puts what went with the power."""
    if truth.once is None:
        return
    sequence, data = truth.once
    behind = queue.next_index
    index = queue.put(data, dedup=(ONCE, sequence))
    where = [each for each, payload in seen.items() if payload == data]
    if not where and index >= behind:
        seen[index] = data
    gone = index < max(queue.first_index, queue._session.joined().control.bounds().dropped)
    known = index in where or index in seen or (gone and {**truth.lost, **truth.messages}.get(index) == data)
    check(known, "a repeated put has another index", index, where)
    check(not where or gone or where == [index], "what is there is put again", index, where)


def _adopt_what_waits(queue: Any, truth: Truth, seen: dict[int, bytes]) -> None:
    """What was handed over, and nobody had begun to adopt, comes whole and in order."""
    for token, payloads in truth.waiting.items():
        indexes = queue.adopt(token)
        got = [queue[index].payload for index in indexes]
        check(got == list(payloads), "a set that was handed over is another one", token, len(got), len(payloads))
        seen.update(zip(indexes, got, strict=True))


def _finish_group(queue: Any, truth: Truth, seen: dict[int, bytes], name: str, after: int) -> None:
    """Its next member gets everything that nobody has finished, once, and nothing that was promised to be finished."""
    with queue.consumer(name, group=True, ack="explicit") as member:
        got: dict[int, bytes] = {}
        with contextlib.suppress(shmq.Empty):
            while True:
                messages = member.get_many(1000, timeout=0)
                member.ack(*messages)  # what lies behind a gap in the indexes comes once all before it is finished
                for message in messages:
                    check(message.index not in got, "a group got a message twice", message.index)
                    got[message.index] = message.payload
    letters = _letters(dead_letters(queue.path), queue)
    strange = {index: data for index, data in got.items() if {**seen, after: b"after"}.get(index) != data}
    check(not strange, "a group got what is not there", strange)
    again = [index for index in got if index in truth.kept]
    check(not again, "what was acknowledged to the disk comes again", again)
    missing = set(truth.letters) - letters.keys()
    check(not missing, "a dead letter is gone", missing)
    put = {**truth.lost, **truth.messages}
    wrong = {index: data for index, data in letters.items() if put.get(index) != data}
    check(not wrong, "a dead letter says something else", wrong)
    lost = [
        index
        for index in {**seen, after: b""}
        if index >= queue.first_index and index not in got and index not in truth.finished and index not in letters
    ]
    check(not lost, "an acknowledgement from nowhere: a group never gets", lost)


def _letters(path: str, queue: Any) -> dict[int, bytes]:
    """By the index that it had: what is among the dead letters."""
    try:
        dead = shmq.open(path, create=False, unsafe_filesystem=True)
    except shmq.NotFound:
        return {}
    with dead:
        return {
            message.headers["shmq.index"]: message.payload
            for message in dead.reader()
            if message.headers["shmq.origin"][0] == queue._session.home.queue_id.hex()
        }


def _again(path: str, seen: dict[int, bytes]) -> None:
    """The next process in the same boot."""
    with shmq.open(path, create=False, unsafe_filesystem=True) as queue:
        there = {message.index: message.payload for message in queue.reader()}
        least = queue.first_index
        check(there == {index: data for index, data in seen.items() if index >= least}, "the next opening sees another")
        index = queue.put(b"again")
        check(index == max(seen) + 1, "an index was skipped without need", index, max(seen))
        check(queue[index].payload == b"again", "what was put is not there", index)
