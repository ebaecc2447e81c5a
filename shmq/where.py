"""
An OSError that says where: the kernel names no file when it refuses a descriptor, and a user needs to know which queue.

Not for the fast path: what is wrapped is called when something is opened, made, rolled or waited for.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = TypeVar("Kind", bound=type)


def says_where(path_of: Callable[[Any], str], *names: str) -> Callable[[Kind], Kind]:
    """
    Make these methods of a class add the queue's path to an OSError that has none.

    Args:
        path_of: the path, given the object.
        names: the methods.
    """

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def told(self: Any, *arguments: Any, **options: Any) -> Any:
            try:
                return method(self, *arguments, **options)
            except OSError as problem:
                if problem.errno is not None and problem.filename is None:
                    problem.filename = path_of(self)
                raise

        return told

    def decorate(kind: Kind) -> Kind:
        for name in names:
            setattr(kind, name, wrap(kind.__dict__[name]))
        return kind

    return decorate
