"""A handler that was named on the command line, `module:function`, and how it is found."""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from shmq.cli import show

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_VOLATILE = "shm:"


def is_handler(word: str) -> bool:
    """Whether it is written as a handler; `shm:orders` is a queue, and `./a:b` a path."""
    return not word.startswith(_VOLATILE) and _NAME.fullmatch(word) is not None


def find(name: str) -> Callable[[Any], object]:
    """
    The function of that name, its module looked for from the current directory on.

    Raises:
        Problem: it cannot be imported, is not there, or cannot be called with a message.
    """
    module, _, path = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
    except Exception as problem:  # noqa: BLE001  # whatever its module raises
        raise show.Problem(
            f"cannot import {module} for the handler {name}, from {os.getcwd()} on: {type(problem).__name__}: "
            f"{show.one_line(problem)}; nothing was handled"
        ) from None
    for part in path.split("."):
        if not hasattr(found, part):
            raise show.Problem(f"{module} has no {path}; nothing was handled")
        found = getattr(found, part)
    import inspect  # noqa: PLC0415  # the help of a verb needs none of it

    if not callable(found) or inspect.iscoroutinefunction(found):
        what = "a coroutine function" if callable(found) else "nothing that can be called"
        raise show.Problem(f"{name} is {what}, and a handler is a plain function; nothing was handled")
    handler: Callable[[Any], object] = found
    return handler
