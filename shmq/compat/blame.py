"""
Which part of an object cannot be pickled: `msg["cb"].lock`, found after pickling the whole has failed.

A part is to blame when it fails alone, and none of what it is made of does.
"""

from __future__ import annotations

import contextlib
import time
import types
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PARTS = 10_000
"""So many parts are tried at most."""
SECONDS = 1.0
"""And for so long."""
_LEAVES = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, str, bytes, int, float)
_ROOT = "msg"


class _Part(NamedTuple):
    """Something in an object, and how to write where it is."""

    path: str
    value: Any


def note(problem: Exception, obj: Any, dump: Callable[[Any], object]) -> None:
    """
    Add a note to *problem*, which pickling *obj* raised, that names the part which cannot be pickled.

    *dump* pickles a part, or raises.
    """
    if isinstance(problem, RecursionError):  # no part is to blame for its depth
        return
    with contextlib.suppress(Exception):  # of what its parts do when they are asked: *problem* is what is raised
        problem.add_note(_Search(dump).story(obj))


class _Search:
    """One search, until it is done, or has tried as much as it may."""

    def __init__(self, dump: Callable[[Any], object]) -> None:
        self._dump = dump
        self._left = PARTS
        self._end = time.monotonic() + SECONDS
        self._seen: set[int] = set()

    def story(self, obj: Any) -> str:
        """What there is to say of *obj*, which cannot be pickled."""
        part = _Part(_ROOT, obj)
        while True:
            self._seen.add(id(part.value))
            found = self._first_failing(_parts(part))
            if found is None:
                break
            part = found
        # What `repr` says of it may be anything; its type is not.
        what = f"{part.path} cannot be pickled: {type(part.value).__module__}.{type(part.value).__qualname__}"
        return what if self._goes_on() else f"{what}, or something in it: the search was given up there"

    def _goes_on(self) -> bool:
        return self._left > 0 and time.monotonic() < self._end

    def _first_failing(self, parts: Iterator[_Part]) -> _Part | None:
        """The first that cannot be pickled: by halves, so that a long list costs few tries."""
        waiting = [part for part in parts if id(part.value) not in self._seen]
        if len(waiting) > 1 and not self._fails([part.value for part in waiting]):
            return None
        while len(waiting) > 1 and self._goes_on():
            half = waiting[: len(waiting) // 2]
            waiting = half if self._fails([part.value for part in half]) else waiting[len(half) :]
        return waiting[0] if len(waiting) == 1 and self._fails(waiting[0].value) else None

    def _fails(self, value: Any) -> bool:
        """Whether it cannot be pickled; what is not tried any more can."""
        if not self._goes_on():
            return False
        self._left -= 1
        try:
            self._dump(value)
        except Exception:  # noqa: BLE001  # whatever it is
            return True
        return False


# ---------------------------------------------------------------- what an object is made of
def _parts(part: _Part) -> Iterator[_Part]:
    path, value = part
    if isinstance(value, _LEAVES):
        return
    if type(value) is dict:
        yield from _of_mapping(path, value)
    elif type(value) in (list, tuple, set, frozenset):
        yield from _of_sequence(path, value)
    else:
        yield from _of_object(path, value)


def _of_mapping(path: str, mapping: dict[Any, Any]) -> Iterator[_Part]:
    for key, value in list(mapping.items()):
        yield _Part(f"{path}[{_shown(key)}]", value)
    yield from (_Part(f"the key {_shown(key)} of {path}", key) for key in list(mapping))


def _of_sequence(path: str, values: Sequence[Any]) -> Iterator[_Part]:
    written = f"list({path})" if isinstance(values, (set, frozenset)) else path
    yield from (_Part(f"{written}[{number}]", value) for number, value in enumerate(list(values)))


def _of_object(path: str, value: Any) -> Iterator[_Part]:
    """What its reduction says that it is made of."""
    try:
        reduced = value.__reduce_ex__(5)
    except Exception:  # noqa: BLE001  # it is to blame itself
        return
    if not isinstance(reduced, tuple):
        return
    arguments, state, items, pairs = (*reduced[1:], None, None, None, None)[:4]
    for each in state if isinstance(state, tuple) else (state,):
        yield from (_Part(f"{path}.{name}", held) for name, held in _attributes(each))
    yield from _of_sequence(path, list(items or ()))
    yield from _of_mapping(path, dict(pairs or ()))
    if isinstance(arguments, tuple):
        yield from (_Part(f"{path}.__reduce_ex__(5)[1][{at}]", held) for at, held in enumerate(arguments))


def _attributes(state: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(state, dict):
        yield from ((name, held) for name, held in list(state.items()) if isinstance(name, str))
    elif state is not None:
        yield "__getstate__()", state


def _shown(key: Any) -> str:
    """A key as a program writes it; what is no constant by its type alone."""
    if isinstance(key, str):
        return f'"{key}"' if '"' not in key and key.isprintable() and len(key) <= 60 else repr(key[:60])
    if isinstance(key, (int, float, bytes, type(None))):
        return repr(key)[:60]
    return f"<{type(key).__qualname__}>"
