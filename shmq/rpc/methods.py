"""Methods by name: functions, and what they take."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from shmq.rpc.border import Arguments
from shmq.rpc.errors import NoSuchMethod

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.rpc.border import Packing
    from shmq.rpc.places import Place

_NAME_MAX = 200
_SHOWN = 20


class Method:
    """
    A function, as it is called from elsewhere.

    Attributes:
        name: what clients call it by.
        function: what is called.
        unpack: makes arguments of what a request holds.
        streams: whether it is a generator.
        awaits: whether it is a coroutine, or an asynchronous generator.
        runs_here: whether the thread that claims its requests runs them.
    """

    __slots__ = ("awaits", "function", "name", "runs_here", "streams", "unpack")

    def __init__(self, name: str, function: Callable[..., Any], packing: Packing) -> None:
        """
        Of that function.

        Raises:
            TypeError: its annotations mean nothing, or what cannot cross.
        """
        self.name = name
        self.function = function
        self.unpack = Arguments(name, function, packing).unpack
        self.streams = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        self.awaits = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self.runs_here = not (self.streams or self.awaits)


class Methods:
    """
    What one server serves.

    Attributes:
        find: the method of a name as it was called before, or None.
    """

    def __init__(self, place: Place, packing: Packing) -> None:
        """Nothing yet."""
        self._place = place
        self._packing = packing
        self._own: dict[str, Method] = {}
        self._called: dict[str, Method] = {}
        self.find = self._called.get

    def add(self, name: Any, function: Callable[..., Any]) -> None:
        """
        Serve *function* by that name.

        Raises:
            TypeError, ValueError: it is no function; or no name, or one that is taken.
        """
        if not callable(function):
            raise TypeError(f"method({function!r}): a function is wanted")
        if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX:
            raise ValueError(f"method(name={name!r}): 1 to {_NAME_MAX} characters are wanted")
        if name in self._own:
            raise ValueError(f"{self._place.path} serves a method {name!r} already")
        self._own[name] = self._called[name] = Method(name, function, self._packing)

    def look_up(self, name: str) -> Method | None:
        """The method that is meant by a name with the server's own before it; it is found at once the next time."""
        first, _, rest = name.partition(".")
        method = self._own.get(rest) if first == self._place.name else None
        if method is not None:
            self._called[name] = method
        return method

    def no_such(self, name: str) -> NoSuchMethod:
        """What a call of a name that nobody knows raises."""
        return NoSuchMethod(f"{self._place.path} serves no method {name!r}; there are: {self}")

    def __str__(self) -> str:
        """Their names."""
        names = sorted(self._own)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return (", ".join(names[:_SHOWN]) or "none at all") + more
