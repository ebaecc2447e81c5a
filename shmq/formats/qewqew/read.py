"""The verbs that look: `read`, `state`, `verify`."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from shmq.errors import BadFormat
from shmq.formats import _follow
from shmq.formats.model import Entry, Problem, State
from shmq.formats.qewqew.chunk import NAME
from shmq.formats.qewqew.names import header_of
from shmq.formats.qewqew.walk import Walk, orphans

if TYPE_CHECKING:
    from collections.abc import Iterator


def read(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    follow: bool = False,
    as_program: bool = False,
    timeout: float | None = None,
    strict: bool = False,
    chunk_bytes: int | None = None,
) -> Iterator[Entry]:
    """
    Deliver the elements of the queue with the header file *path*, oldest first; only `payload` and `extra` are set.

    *path* may also be the folder, with the header's name as *queue* if there are several. A *path* of a header file
    that is not there, in a folder that is, is the empty queue: the program deletes all its files when it closes one.

    A chunk whose pointers make no sense, or an element that runs past the tail, ends that chunk; the next one goes
    on, since its reference is not part of the damage. A missing chunk ends the queue. *strict* raises Corrupt there.

    With *as_program*, *chunk_bytes* is the chunk size that the program is told when it opens the queue (default: the
    longest chunk file): it sees that many bytes of each file, zeros where the file is shorter.

    Raises:
        NotFound: the folder is not there either, or holds nothing of that *queue*.
        BadFormat: with *follow*: a QewQew has one process, which takes what it reads; nobody else can look on.
    """
    del timeout
    if follow:
        msg = f"cannot follow {os.fspath(path)}: a QewQew belongs to one process, and what that one takes is gone"
        raise BadFormat(msg)
    walk = Walk(header_of(path, queue), as_program=as_program, strict=strict, chunk_bytes=chunk_bytes)
    return _follow.once(walk)


def lists(path: str | os.PathLike[str], queue: str | None = None, *, strict: bool = False) -> Iterator[list[Entry]]:
    """Deliver what `read` delivers, in lists of what was read at once."""
    return _follow.in_lists(Walk(header_of(path, queue), as_program=False, strict=strict))


def state(path: str | os.PathLike[str], queue: str | None = None, *, as_program: bool = False) -> State:
    """
    Walk the chunks and return what they say. There are no named consumers and no open transactions.

    Chunk files that no reference leads to are among the problems, with the number of elements in each.
    """
    header = header_of(path, queue)
    walk = Walk(header, as_program=as_program, strict=False)
    with closing(walk):
        count = sum(map(len, walk.lists()))
    problems = walk.problems
    for chunk in orphans(header, walk.seen):
        name = f"{header.name}.{chunk}"
        number = sum(map(len, Walk(header, as_program=False, strict=False).elements(chunk)))
        problems.append(Problem(name, 0, f"no reference leads to this chunk; {number} elements are out of reach"))
    files = [header.name] * header.is_file() + [f"{header.name}.{chunk}" for chunk in walk.files]
    return State(NAME, header.name, {}, {}, problems, count, None, None, files)


def verify(path: str | os.PathLike[str], queue: str | None = None) -> list[Problem]:
    """Return every problem of the queue: those of `state`, which looks at everything there is."""
    return state(path, queue).problems
