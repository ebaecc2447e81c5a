"""Calls written as methods: `client.orders.add(7)`, and those of a class that says what comes back."""

from __future__ import annotations

import collections.abc
import inspect
import typing
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_Interface = TypeVar("_Interface")
_STREAMS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)


class Calls(Protocol):
    """Who can call."""

    def call(self, method: str, /, *arguments: Any, timeout: float | None = None, **named: Any) -> Any:
        """Have *method* run, and return what it returns."""


class Namespace:
    """The methods whose names begin with that; called, the method of that name."""

    __slots__ = ("_client", "_name")

    def __init__(self, client: Calls, name: str) -> None:
        """Of that client."""
        self._client = client
        self._name = name

    def __getattr__(self, name: str) -> Namespace:
        """What lies in it."""
        if name.startswith("_"):
            raise AttributeError(f"{self._name} has no attribute {name!r}")
        return Namespace(self._client, f"{self._name}.{name}")

    def __call__(self, *arguments: Any, timeout: float | None = None, **named: Any) -> Any:
        """As `Client.call`."""
        return self._client.call(self._name, *arguments, timeout=timeout, **named)

    def __repr__(self) -> str:
        """Its name."""
        return f"<method {self._name} of {self._client!r}>"


def typed(
    interface: Callable[..., _Interface], call: Callable[..., Any], acall: Callable[..., Awaitable[Any]]
) -> _Interface:
    """
    An object with the methods of *interface*, which call what has their name.

    Raises:
        TypeError: it is no class; or an annotation cannot be resolved.
    """
    if not isinstance(interface, type):
        raise TypeError(f"typed({interface!r}): a class is wanted, whose methods say what they return")
    made = type(interface.__name__, (), {"__slots__": ()})
    for name, function in inspect.getmembers(interface, inspect.isfunction):
        if not name.startswith("_"):
            setattr(made, name, _method(name, function, call, acall))
    return typing.cast("_Interface", made())


def _method(
    name: str, function: Callable[..., Any], call: Callable[..., Any], acall: Callable[..., Awaitable[Any]]
) -> Any:
    try:
        returns = typing.get_type_hints(function, include_extras=True).get("return", Any)
    except Exception as problem:
        raise TypeError(f"method {name!r}: its annotations cannot be resolved: {problem}") from problem
    if typing.get_origin(returns) in _STREAMS:
        returns = typing.get_args(returns)[0]
    if inspect.iscoroutinefunction(function):

        async def method(_: object, *arguments: Any, timeout: float | None = None, **named: Any) -> Any:
            return await acall(name, arguments, named, timeout, returns)

        return method

    def plain(_: object, *arguments: Any, timeout: float | None = None, **named: Any) -> Any:
        return call(name, arguments, named, timeout, returns)

    return plain
