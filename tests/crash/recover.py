"""
What a fresh process finds in a directory whose last user was killed, held against what must be true there.

Nothing is repaired by hand: the queue is opened, read, put into and read again as any user would.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shmq
from shmq import _native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .operations import Model, Name

Image = dict[str, tuple[int, bytes | None]]
"""A directory, copied: relative path -> (mode, bytes; None for a folder), parents first."""

DEADLINE = 10.0
"""Seconds that a consumer may take to go on behind a dead claim. It needs none; this is for busy machines."""

_fresh = iter(range(1 << 62))


def image_of(root: str) -> Image:
    """Copy what is in *root*."""
    found: Image = {}
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in folders:
            path = f"{folder}/{name}"
            found[os.path.relpath(path, root)] = (os.stat(path).st_mode & 0o7777, None)
        for name in files:
            path = f"{folder}/{name}"
            found[os.path.relpath(path, root)] = (os.stat(path).st_mode & 0o7777, Path(path).read_bytes())
    return found


def lay_out(image: Image, root: str) -> None:
    """Make *root* hold the image and nothing else."""
    shutil.rmtree(root, ignore_errors=True)
    os.mkdir(root)
    for name, (mode, content) in image.items():
        path = f"{root}/{name}"
        if content is None:
            os.mkdir(path, mode)
            continue
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        os.write(fd, as_original(content) if name.endswith("queue.shmq") else content)
        os.close(fd)


def as_original(content: bytes) -> bytes:
    """That queue.shmq without the inode of its control.shmq: it is laid out again, but by its rights no copy."""
    pages = [content[at : at + _native.PAGE_BYTES] for at in range(0, len(content), _native.PAGE_BYTES)]
    for number in (1, 2):
        journal = _native.check_journal(pages[number]) if number < len(pages) else None
        if journal is not None:
            pages[number] = _native.format_journal(journal._replace(device=0, inode=0))
    return b"".join(pages)


def check(condition: bool, what: str, *values: Any) -> None:
    """Say what was found instead."""
    if not condition:
        raise AssertionError(f"{what}: {', '.join(map(repr, values))}"[:2000])


def damage(queue: shmq.Queue) -> list[Any]:
    """What `verify` finds, but for a journal slot whose writer was killed: that is what the other slot is for."""
    return [each for each in queue.verify().problems if not each.reason.endswith("the other one is used")]


def brief(messages: dict[int, bytes]) -> str:
    """Indexes, sizes and beginnings."""
    return ", ".join(f"[{index}] {len(data)} bytes {data[:8].hex()}" for index, data in messages.items()) or "none"


class Expected:
    """
    What may be true: one of these models.

    Usually two of them: before the operation in flight, and after it; so that it holds wholly or not at all. Where the
    recovery of a state is walked, both again for each of the states that it may have found.
    """

    def __init__(self, candidates: list[Model], verb: str, extra: dict[str, Any] | None = None) -> None:
        self.models = candidates
        self.verb = verb
        self.extra = extra or {}

    def has(self, what: str) -> Any:
        """Something that the scenario says of itself."""
        return self.extra.get(what)

    def existing(self) -> list[Model]:
        return [model for model in self.models if model.exists]

    def check_messages(self, seen: dict[int, bytes]) -> None:
        for model in self.existing():
            if seen == model.messages:
                return
        wanted = min((model.messages for model in self.existing()), key=len)
        lost = {index: data for index, data in wanted.items() if seen.get(index) != data}
        strange = {index: data for index, data in seen.items() if wanted.get(index) != data}
        raise AssertionError(f"lost or damaged: {brief(lost)}; there, in part or from nowhere: {brief(strange)}")

    def check_next(self, index: int, seen: dict[int, bytes]) -> None:
        allowed = {model.next for model in self.existing()}
        check(index in allowed, "the next put got an index that no run of operations gives", index, allowed)
        check(not seen or index > max(seen), "an index was given twice", index)

    def names(self, found: set[str]) -> dict[str, list[Name]]:
        allowed = [set(model.names) for model in self.existing()]
        check(found in allowed, "consumer names are there half", found, allowed)
        return {name: [model.names[name] for model in self.existing() if name in model.names] for name in found}

    def check_head(self, head: int, states: list[Name]) -> None:
        heads = {state.head for state in states}
        between = self.verb in ("take_many", "ack") and min(heads) <= head <= max(heads)
        # Whoever finds nothing more passes the padding there, what a dead one had claimed, and what a filter leaves
        # out; never a message that is wanted.
        passed = any(
            start < head <= model.next and not any(start <= index < head for index in wanted_of(model, states[0]))
            for model in self.existing()
            for start in heads
        )
        check(head in heads or between or passed, "a consumer stands where no run of operations leaves it", head, heads)


def wanted_of(model: Model, name: Name) -> set[int]:
    """The messages that it is to be handed."""
    return set(model.messages) - (model.unwanted if name.filtered else set())


@contextlib.contextmanager
def opened(path: str, **how: Any) -> Iterator[shmq.Queue]:
    """The queue, as anybody opens it."""
    queue = shmq.open(path, unsafe_filesystem=True, **how)  # asking the mount table each time would be slow
    try:
        yield queue
    finally:
        queue.close()


def _drain(consumer: Any, at_least: int) -> dict[int, bytes]:
    """What is there; waits only if that is less than there must be."""
    seen: dict[int, bytes] = {}
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            messages = consumer.get_many(1000, timeout=0)
        except shmq.Empty:
            if len(seen) >= at_least or time.monotonic() > deadline:
                return seen
            time.sleep(0.01)
            continue
        for message in messages:
            check(not seen or message.index > max(seen), "indexes do not ascend", list(seen)[-1:], message.index)
            seen[message.index] = message.payload


def recover(path: str, expected: Expected, options: shmq.Options) -> None:
    """
    Be the next process at *path*.

    Raises:
        AssertionError, shmq.ShmqError: something that must be true is not.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if all(model.exists for model in expected.models):
            _look_only(path, expected)
        else:
            _make_whole(path, expected, options)
        if expected.existing():
            _go_on(path, expected)


def _make_whole(path: str, expected: Expected, options: shmq.Options) -> None:
    """A creation or deletion was in flight: the queue is there, or NotFound; then creating it works and it is empty."""
    try:
        shmq.open(path, create=False).close()
    except shmq.NotFound:
        check(not all(model.exists for model in expected.models), "the queue is gone")
        with opened(path, options=options) as queue:
            check(len(queue) == 0, "a queue that was just made has messages", len(queue))
            for name in ("a", "b", "e", "new"):  # what the old queue may have left
                with queue.consumer(name) as consumer:
                    check(_drain(consumer, 0) == {}, "a queue that was just made has messages")
            check(queue.put(b"first") == 0, "a queue that was just made does not begin at 0")
            check(queue[0].payload == b"first", "a queue that was just made does not work")
        expected.models = []
    else:
        check(bool(expected.existing()), "there is a queue, and nobody made one")


def _look_only(path: str, expected: Expected) -> None:
    """A reader that may write nothing sees a beginning of the log, and never a part of a batch."""
    with opened(path, create=False, read_only=True) as queue:
        seen = {message.index: message.payload for message in queue.reader()}
        whole = [
            {index: data for index, data in model.messages.items() if index < end}
            for model in expected.existing()
            for end in {0, model.next, *(other.next for other in expected.models), *seen_ends(model)}
        ]
        check(seen in whole, "a read-only reader saw what is no beginning of the log", brief(seen))


def seen_ends(model: Model) -> set[int]:
    """Where a claim that nobody resolved yet may stop a reader: at an index that never became a message."""
    return {index for index in range(model.next) if index not in model.messages}


def _go_on(path: str, expected: Expected) -> None:
    at_least = min(len(model.messages) for model in expected.existing())
    with contextlib.ExitStack() as stack:
        queue = stack.enter_context(opened(path, create=False))
        names = expected.names(set(queue.consumers()))
        fresh = stack.enter_context(queue.consumer(f"fresh-{next(_fresh)}"))
        seen = _drain(fresh, at_least)
        expected.check_messages(seen)
        check({m.index: m.payload for m in queue.reader()} == seen, "a reader sees something else than a consumer")
        consumers = {}
        for name, states in names.items():
            consumer = consumers[name] = stack.enter_context(queue.consumer(name, ack=states[0].ack))
            expected.check_head(consumer.head, states)
            rest = {index: data for index, data in seen.items() if index >= consumer.head}
            if states[0].filtered:
                unwanted = set().union(*(model.unwanted for model in expected.existing()))
                rest = {index: data for index, data in rest.items() if index not in unwanted}
            got = _drain(consumer, len(rest))
            check(got == rest, f"consumer {name!r} skipped or doubled messages", sorted(rest), sorted(got))
        index = queue.put(b"after")
        expected.check_next(index, seen)
        for name, consumer in {"fresh": fresh, **consumers}.items():
            got = _drain(consumer, 1)
            check(got == {index: b"after"}, f"consumer {name!r} did not get what was put afterwards", got)
        for each in [*list(seen)[-3:], index]:
            check(queue[each].payload == {**seen, index: b"after"}[each], "an index leads to another message", each)
        check(len(queue) == len(seen) + 1, "len() is not how many there are", len(queue), len(seen) + 1)
    _open_again(path, names, index)


def _open_again(path: str, names: dict[str, list[Name]], index: int) -> None:
    """And the process after that one: what was finished stays finished, what was not comes again."""
    if not names:
        return
    with opened(path, create=False) as queue:
        for name, states in names.items():
            with queue.consumer(name, ack=states[0].ack) as consumer:
                got = _drain(consumer, 0)
            if states[0].ack == "auto":
                check(not got, f"consumer {name!r} got messages twice", got)
            else:
                check(index in got, f"consumer {name!r} lost a message that it never acknowledged", sorted(got))
