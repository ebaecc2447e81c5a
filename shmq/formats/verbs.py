"""
What can be asked of every format: the call goes to the module of the format, which is imported when it is first met.

Moving queues between a format and shmq is `transfer`.
"""

from __future__ import annotations

import importlib
import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shmq.errors import BadFormat, NotFound
from shmq.formats import _files
from shmq.formats.model import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from types import ModuleType

    from shmq.formats.model import Entry, Place, Problem, Repair, State

HERE = ("kestrel", "libkestrel", "sej", "qewqew", "chronicle")
"""The formats of this package."""

ELSEWHERE = ("shmq",)
"""What `detect` knows and this package does not read: shmq's own queues are no foreign format."""

_SHMQ_FILE = "queue.shmq"
_CHRONICLE_FILES = (".cq4", ".cq4t")


def detect(path: str | os.PathLike[str]) -> str | None:
    """
    Return the format of what is at *path*, or None if it is none of those known.

    One of "kestrel", "libkestrel", "sej", "qewqew", "chronicle", "shmq". Kestrel and QewQew have no magic: their
    files are recognised by their names and by whether their first bytes make sense. Nothing is changed and, with
    the exception of a few bytes per file, nothing is read. A path that does not exist is None too.
    """
    place = Path(path)
    if place.is_dir():
        return _detect_directory(place)
    if not place.is_file():
        return None
    if place.suffix in _CHRONICLE_FILES:
        return "chronicle"
    for name in ("qewqew", "libkestrel", "kestrel"):
        if _module(name).detect_file(place):
            return name
    return None


def queues(path: str | os.PathLike[str], format: str | None = None) -> list[str]:  # noqa: A002
    """
    Return the names of the queues at *path*, a folder: what *queue* may be for the other verbs.

    Of Kestrel, fan-out children among them; of sej, the directories of a root, "" for *path* itself; of QewQew, the
    header files; of Chronicle Queue, the queues that are directories in *path*, "" for *path* itself.
    """
    return cast("list[str]", _module_for(path, format, "list").queues(path))


def read(
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002  the name is fixed by the API
    queue: str | None = None,
    follow: bool = False,
    as_program: bool = False,
    **options: Any,
) -> Iterator[Entry]:
    """
    Deliver what is in the queue at *path*, in the order its own program would deliver it.

    Where a real program loses or doubles data against its own document, the document is followed; *as_program*
    gives what the program would give. Damage never ends in a wrong entry: what is whole is delivered as the
    format's own recovery rules say, and what is not is listed by `state` and `verify`; the option strict=True
    raises Corrupt where the damage begins. Memory stays flat however long the queue is.

    Options of all formats:
        strict (bool): raise Corrupt at the first damage instead of going on as the format's rules say.
        timeout (float): with *follow*, end when nothing has come for so many seconds; None waits for ever.

    More options are described by each format's own `read`.

    Raises:
        NotFound: nothing is at *path*, or no queue or reader of that name.
        BadFormat: the format is unknown, or *path* holds several queues and *queue* names none.
        Corrupt: with strict, or when a followed file became shorter than what was already read.
    """
    module = _module_for(path, format, "read")
    if follow:
        options["follow"] = True
    if as_program:
        options["as_program"] = True
    return cast("Iterator[Entry]", module.read(path, queue, **options))


def lists(
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002
    queue: str | None = None,
    *,
    strict: bool = False,
) -> Iterator[list[Entry]]:
    """Deliver what `read` delivers, in lists of what was read at once: for whoever moves millions."""
    return cast("Iterator[list[Entry]]", _module_for(path, format, "read").lists(path, queue, strict=strict))


def state(
    path: str | os.PathLike[str],
    queue: str | None = None,
    format: str | None = None,  # noqa: A002
    **options: Any,
) -> State:
    """Walk the queue at *path* and return its consumers, open transactions, problems and counts."""
    return cast("State", _module_for(path, format, "read the state of").state(path, queue, **options))


def consumers(
    path: str | os.PathLike[str],
    queue: str | None = None,
    format: str | None = None,  # noqa: A002
) -> dict[str, Place]:
    """
    Return where the consumers of the queue at *path* say they stand, without a walk where none is needed.

    Raises:
        Corrupt: what one of them has written cannot be read.
    """
    module = _module_for(path, format, "read the consumers of")
    if hasattr(module, "consumers"):
        return cast("dict[str, Place]", module.consumers(path, queue))
    return cast("State", module.state(path, queue)).consumers


def verify(
    path: str | os.PathLike[str],
    queue: str | None = None,
    format: str | None = None,  # noqa: A002
    **options: Any,
) -> list[Problem]:
    """Return every problem of the queue at *path*; an empty list when all of it is as the format wants it."""
    return cast("list[Problem]", _module_for(path, format, "verify").verify(path, queue, **options))


def dump(
    path: str | os.PathLike[str],
    queue: str | None = None,
    format: str | None = None,  # noqa: A002
    **options: Any,
) -> Iterator[str]:
    """
    Deliver the lines that the format's own program dumps of the queue or file at *path*: Chronicle's program does.

    Raises:
        BadFormat: the format's program dumps nothing.
    """
    name = format_of(path, format, "dump")
    module = _module(name)
    if not hasattr(module, "dump"):
        msg = f"cannot dump {os.fspath(path)}: {name} has no dump of its own; read it instead"
        raise BadFormat(msg)
    return cast("Iterator[str]", module.dump(path, queue, **options))


def write(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    format: str,  # noqa: A002
    queue: str | None = None,
    consumers: Mapping[str, Place] | None = None,
    **options: Any,
) -> int:
    """
    Write *entries* as a new queue in *format*, with *consumers* at their places, and return how many were written.

    All or nothing: the files are made beside their place and moved in when they are whole, and nothing that is
    already there is replaced. What an entry has and the format cannot hold is refused (Unsafe) unless lossy=True;
    docs/formats/README.md has the table of what each format keeps. A consumer's head means what it means in that
    format's `state`.

    Raises:
        BadFormat: *format* cannot be written here, or the request has no place in it.
        TooLarge: a payload, key or number does not fit its field.
        Unsafe: the target exists already, data would be lost and lossy is not set, or we may not write there.
        DiskFull: the disk is full; nothing was written.
    """
    if format != "sej":
        entries = _without_no_time(entries)
    module = _module(known(format, "write"))
    with _files.writing(f"write {os.fspath(path)}"):
        return cast("int", module.write(path, entries, queue, consumers, **options))


def _without_no_time(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Give what sej calls "no time" as no time, and not as a moment of the year 1677."""
    for entry in entries:
        yield entry._replace(time_ns=None) if entry[2] == NO_TIME else entry


def append(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    format: str | None = None,  # noqa: A002
    **options: Any,
) -> int:
    """
    Append *entries* to the queue at *path*, which is there and may be in use, and return how many.

    Under the lock that the format's own program takes, or, where it has none, only if nobody is seen to be at the
    queue. The numbers of entries are not looked at: those of the queue go on. Each call opens the queue and lets go of
    it: who appends again and again keeps `sej.Appender` or `chronicle.Appender` open, or `open_queue`.

    Options of all formats:
        tell: called with a sentence for what nobody can know, where the format has no lock.

    Raises:
        Busy: its program or somebody else is at it; nothing was changed.
        Unsafe: it is read-only, or not ours to write (that is an OSError, too); or something would be lost.
        DiskFull: there is no room (an OSError, too). Some of the first entries may be in, and no part of one.
        BadFormat: this format's queues cannot be appended to here.
    """
    module = _able(_module_for(path, format, "append to"), "append", path)
    with _files.writing(f"append to {os.fspath(path)}"):
        return cast("int", module.append(path, entries, queue, **options))


def commit(
    path: str | os.PathLike[str],
    consumer: str,
    head: int,
    done: Iterable[int] = (),
    queue: str | None = None,
    format: str | None = None,  # noqa: A002
    **options: Any,
) -> None:
    """
    Say that *consumer* stands at *head*, and has finished the messages *done* behind it: what they mean in `state`.

    A named tailer of Chronicle Queue is committed again and again by `chronicle.Appender.commit`.

    Options and errors are those of `append`.
    """
    module = _able(_module_for(path, format, "commit to"), "commit", path)
    with _files.writing(f"commit {consumer!r} to {os.fspath(path)}"):
        module.commit(path, consumer, head, done, queue, **options)


def _able(module: ModuleType, verb: str, path: str | os.PathLike[str]) -> ModuleType:
    if not callable(getattr(module, verb, None)):
        msg = f"cannot {verb} to {os.fspath(path)}: its format has no such way here; nothing was changed"
        raise BadFormat(msg)
    return module


def repair(
    path: str | os.PathLike[str],
    queue: str | None = None,
    format: str | None = None,  # noqa: A002
    **options: Any,
) -> Repair:
    """
    Write a clean copy of the damaged queue at *path* beside it and say where; the original is not touched.

    Options of all formats:
        to (path): where the copy goes; it must not exist.
        in_place (bool): put the clean files in the place of the damaged ones, which move into a hidden folder.
        tell: called with a sentence for what nobody can know, in place, where the format has no lock.

    Raises:
        Busy: in place, and its own program or somebody else is at it; of Chronicle Queue that is Unsafe.
        Unsafe: we may not write there (that is an OSError, too).
    """
    if options.get("in_place") and options.get("to") is not None:
        msg = f"cannot repair {os.fspath(path)} in place and to another place; nothing was changed"
        raise BadFormat(msg)
    module = _module_for(path, format, "repair")
    with _files.writing(f"repair {os.fspath(path)}{' in place' if options.get('in_place') else ''}"):
        return cast("Repair", module.repair(path, queue, **options))


def open_queue(
    path: str | os.PathLike[str],
    format: str,  # noqa: A002
    queue: str | None = None,
    **options: Any,
) -> AbstractContextManager[Any]:
    """
    Open the queue at *path* in place, to put and take while its own program does not have it open: a context manager.

    Of Kestrel and QewQew, whose own `open` says what is there and which options there are. It is made if it is not
    there.

    Raises:
        BadFormat: *format* is none of these.
        Busy: its program, or somebody else, has it open.
        Corrupt: it is damaged; nothing was changed.
        Unsafe: it is read-only, or not ours to write (that is an OSError, too).
    """
    module = _module(known(format, "open"))
    if not hasattr(module, "open"):
        msg = f"cannot open {os.fspath(path)} in place: that can be done with queues of kestrel and qewqew"
        raise BadFormat(msg)
    return _entered(module.open(path, queue, **options), f"open {os.fspath(path)} in place")


@contextmanager
def _entered(queue: AbstractContextManager[Any], what: str) -> Iterator[Any]:
    with ExitStack() as stack:
        with _files.writing(what):
            opened = stack.enter_context(queue)
        yield opened


def _detect_directory(folder: Path) -> str | None:
    names: list[str] = []
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name == _SHMQ_FILE:
                return "shmq"
            if entry.name.endswith(_CHRONICLE_FILES):
                return "chronicle"
            if _files.is_file(entry):
                names.append(entry.name)
    # From the surest sign to the weakest.
    for name in ("sej", "libkestrel", "qewqew", "kestrel"):
        if _module(name).detect(folder, names):
            return name
    return "chronicle" if _module("chronicle").detect(folder) else None


def format_of(path: str | os.PathLike[str], given: str | None, verb: str) -> str:
    """
    The format of what is at *path*, one of this package's: the one that was given, or what `detect` finds.

    Raises:
        NotFound: nothing is at *path*.
        BadFormat: the format is unknown, or its reader and writer are elsewhere; *verb* says what was wanted.
    """
    name = detect(path) if given is None else given
    if name is not None:
        return known(name, f"{verb} {os.fspath(path)} as")
    if not Path(path).exists():
        msg = f"cannot {verb} {os.fspath(path)}: nothing is there"
        raise NotFound(msg)
    hidden = _files.unreadable(Path(path)) if Path(path).is_dir() else ""
    msg = f"cannot {verb} {os.fspath(path)}: it is in none of the formats {', '.join(HERE + ELSEWHERE)}{hidden}"
    raise BadFormat(msg)


def _module_for(path: str | os.PathLike[str], format: str | None, verb: str) -> ModuleType:  # noqa: A002
    return _module(format_of(path, format, verb))


def known(name: str, verb: str) -> str:
    """
    The same name, if it is one of this package's formats.

    Raises:
        BadFormat: it is not; *verb* says what was wanted.
    """
    if name in HERE:
        return name
    if name in ELSEWHERE:
        msg = f"cannot {verb} {name}: its reader and writer are not part of shmq.formats"
        raise BadFormat(msg)
    msg = f"cannot {verb} {name!r}: the formats are {', '.join(HERE)}"
    raise BadFormat(msg)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"shmq.formats.{name}")
