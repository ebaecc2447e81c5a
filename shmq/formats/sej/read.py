"""The verbs that look: `read`, `lists`, `state`, `consumers`."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from shmq.errors import Corrupt
from shmq.formats import _files, _follow
from shmq.formats.model import Entry, Place, Problem, State
from shmq.formats.sej.journal import Journal
from shmq.formats.sej.messages import NAME
from shmq.formats.sej.names import directories, joined
from shmq.formats.sej.offsets import offset_of, offsets_in, split_consumer
from shmq.formats.sej.root import Root

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator


def read(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    consumer: str | None = None,
    start: int | None = None,
    follow: bool = False,
    as_program: bool = False,
    timeout: float | None = None,
    strict: bool = False,
    max_payload: int = _files.MAX_PAYLOAD,
    tell: Callable[[Problem], object] | None = None,
) -> Iterator[Entry]:
    """
    Deliver the messages of the sej directory *path* by offset, or of all directories of a root, merged by time.

    In a root each directory keeps its own order, and each entry's extra["dir"] names its directory. *start* is the
    first offset wanted; *consumer* begins at that reader's offset instead (`dir/reader` in a root; a reader that
    never committed begins at the first message).

    A message that is broken, or not the one expected, ends its segment; the next segment goes on. A torn message
    at the very end is as the end. Where something is missing, `state` says it, and *strict* raises Corrupt there.
    *follow* waits for more, and for new segments and shards, at most *timeout* seconds for each message. It leaves
    nothing out unheard: it raises Corrupt before messages that are missing or broken, unless there are others behind
    them and *tell* is there to be given the Problem. It always raises Corrupt when the file it reads became shorter
    than what was read, or was replaced, or when a broken message ends the newest file.
    A payload above *max_payload* bytes raises TooLarge.
    """
    tail = _tail(
        path,
        queue,
        consumer,
        start,
        growing=follow,
        as_program=as_program,
        strict=strict,
        max_payload=max_payload,
        tell=tell,
    )
    return _follow.follow(tail, timeout) if follow else _follow.once(tail)


def lists(path: str | os.PathLike[str], queue: str | None = None, *, strict: bool = False) -> Iterator[list[Entry]]:
    """Deliver what `read` delivers, in lists of what was read at once."""
    return _follow.in_lists(_tail(path, queue, None, None, strict=strict))


def _tail(
    path: str | os.PathLike[str],
    queue: str | None,
    consumer: str | None,
    start: int | None,
    *,
    growing: bool = False,
    as_program: bool = False,
    strict: bool = False,
    max_payload: int = _files.MAX_PAYLOAD,
    tell: Callable[[Problem], object] | None = None,
) -> Root:
    root = _files.directory(path)
    labels = directories(root, queue)
    if consumer is not None:
        label, reader = split_consumer(consumer, labels)
        start = offset_of(root / label, reader)
        labels = [label]
    return Root(
        root,
        queue,
        labels,
        start or 0,
        growing=growing,
        as_program=as_program,
        strict=strict,
        max_payload=max_payload,
        fixed=consumer is not None,
        tell=tell,
    )


def state(path: str | os.PathLike[str], queue: str | None = None, *, as_program: bool = False) -> State:
    """
    Walk everything and return what the files say.

    A consumer's head is its committed offset, which is the *next* one it wants, or None if it never committed. In a
    root, consumers are named `dir/reader`, and `first` and `last` are those over all directories.
    """
    root = _files.directory(path)
    labels = directories(root, queue)
    problems: list[Problem] = []
    consumers: dict[str, Place] = {}
    files: list[str] = []
    count, first, last = 0, None, None
    for label in labels:
        with closing(Journal(root, label, 0, as_program=as_program)) as journal:
            for found in journal.lists():
                count += len(found)
                first = min(found[0].index or 0, (found[0].index or 0) if first is None else first)
                last = max(found[-1].index or 0, last or 0)
            problems += journal.problems
            files += journal.files
        for reader, offset_or_none, problem in offsets_in(root / label, label):
            consumers[joined(label, reader)] = (offset_or_none, ())
            files.append(joined(label, f"ofs/{reader}.ofs"))
            if problem is not None:
                problems.append(problem)
    return State(NAME, queue, consumers, {}, problems, count, first, last, files)


def consumers(path: str | os.PathLike[str], queue: str | None = None) -> dict[str, Place]:
    """Return {reader: (next offset or None, ())}; in a root {dir/reader: ...}."""
    root = _files.directory(path)
    found: dict[str, Place] = {}
    for label in directories(root, queue):
        for reader, offset, problem in offsets_in(root / label, label):
            if problem is not None:
                msg = f"cannot read {root}/{problem.file}: {problem.reason}"
                raise Corrupt(msg)
            found[joined(label, reader)] = (offset, ())
    return found
