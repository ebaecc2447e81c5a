"""
An OSError that says where: the kernel names no file when it refuses a descriptor, and a user needs to know which queue.

Not for the fast path: what is wrapped is called when something is opened, made, rolled or waited for.
"""

from __future__ import annotations

import functools
import operator
import os
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = TypeVar("Kind", bound=type)


def _say(problem: OSError, path: str) -> None:
    if problem.errno is None:  # the core's own words
        if problem.args and path not in str(problem):
            problem.args = (f"{problem.args[0]}, at {path}", *problem.args[1:])
        return
    named = problem.filename if isinstance(problem.filename, (str, bytes)) else "."  # it may be a descriptor
    problem.filename = os.path.normpath(os.path.join(path, os.fsdecode(named)))


def says_where(path: str, *names: str) -> Callable[[Kind], Kind]:
    """
    Make these methods of a class add the queue's path to an OSError that has none, or one within the queue.

    Args:
        path: the attribute that is the path, or leads there with dots.
        names: the methods and properties.
    """
    path_of = operator.attrgetter(path)

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def told(self: Any, *arguments: Any, **options: Any) -> Any:
            try:
                return method(self, *arguments, **options)
            except OSError as problem:
                _say(problem, path_of(self))
                raise

        return told

    def decorate(kind: Kind) -> Kind:
        for name in names:
            it = kind.__dict__[name]
            setattr(kind, name, property(wrap(it.fget)) if isinstance(it, property) and it.fget else wrap(it))
        return kind

    return decorate
