"""
An OSError that says where: the kernel names no file when it refuses a descriptor, and a user needs to know which queue.

Not for the fast path: what is wrapped is called when something is opened, made, rolled or waited for.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import operator
import os
import sys
import types

from shmq import errors
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import Any, TypeVar

    Kind = TypeVar("Kind", bound=type)


_SCARCE = (errno.EMFILE, errno.ENFILE)
_CODE = (".py", ".pyc", ".so")
_CLOSED = (errno.EBADF, errno.ENOENT)
"""What the kernel says of a descriptor that was closed; the second one of its path below /proc."""


def _names_code(problem: OSError) -> bool:
    """Whether it is of a module that was to be imported when something was done for the first time."""
    named = problem.filename
    return problem.errno in _SCARCE and isinstance(named, str) and (named.endswith(_CODE) or named in sys.path)


def _say(problem: OSError, path: str) -> None:
    if _names_code(problem):
        problem.filename = path
        return
    if problem.errno is None:  # the core's own words, or those of somebody who has nothing to do with files
        if type(problem) is OSError and problem.args and path not in str(problem):
            problem.args = (f"{problem.args[0]}, at {path}", *problem.args[1:])
        return
    named = os.fsdecode(problem.filename) if isinstance(problem.filename, (str, bytes)) else "."
    if named.startswith("/proc/self/"):  # how a descriptor is opened anew, or a lock below one
        named = "."
    place = os.path.normpath(os.path.join(path, named))
    # What was not made, or was taken away again when that failed, helps nobody; unless that it is missing is the point.
    problem.filename = place if problem.errno == errno.ENOENT or os.path.lexists(place) else path
    del problem.filename2  # set to None it would be shown, too


def _is_public(name: str, it: object) -> bool:
    return not name.startswith("_") and isinstance(it, (types.FunctionType, property))


def absolute(path: str) -> str:
    """
    As `os.path.abspath`.

    Raises:
        NotFound: it depends on the current directory, which is gone.
    """
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        raise errors.NotFound(f"cannot open {path}: the current directory was removed; nothing was done") from None


@contextlib.contextmanager
def at(path: str) -> Iterator[None]:
    """What is done to the queue at *path*: an OSError says so."""
    try:
        yield
    except OSError as problem:
        _say(problem, path)
        raise


def says_where(
    path: str, *names: str, public: bool = False, but: Collection[str] = (), closed: str = ""
) -> Callable[[Kind], Kind]:
    """
    Make methods of a class add the queue's path to an OSError that has none, or one within the queue.

    Args:
        path: the attribute that is the path, or leads there with dots.
        names: the methods and properties.
        public: also all that have no underscore in front,
        but: except these, which are called often, and whose slow steps say where by themselves.
        closed: the attribute that says whether another thread has closed it meanwhile: then that is what went wrong
            where a descriptor was missing. What a signal's handler raised, or the disk said, stays what it is.
    """
    path_of = operator.attrgetter(path)
    is_closed = operator.attrgetter(closed) if closed else None

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def told(self: Any, *arguments: Any, **options: Any) -> Any:
            try:
                return method(self, *arguments, **options)
            except OSError as problem:
                if is_closed is not None and problem.errno in _CLOSED and is_closed(self):
                    raise errors.Closed(f"{path_of(self)} was closed meanwhile, by another thread") from None
                _say(problem, path_of(self))
                raise

        return told

    def decorate(kind: Kind) -> Kind:
        own = {name for name, it in kind.__dict__.items() if _is_public(name, it)} if public else set()
        for name in own.difference(but).union(names):
            it = kind.__dict__[name]
            setattr(kind, name, property(wrap(it.fget)) if isinstance(it, property) and it.fget else wrap(it))
        return kind

    return decorate
