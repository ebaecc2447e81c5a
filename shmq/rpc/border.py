"""
Types at the border: what a method's annotations say its arguments are is checked while they are unpacked.

What msgspec knows crosses: numbers, text, bytes, lists, dicts, datetimes, dataclasses, its own Structs and more. Other
objects do when both sides say trusted=True: as pickles, which run code when they are read.
"""

from __future__ import annotations

import contextlib
import inspect
import pickle
import typing
from typing import TYPE_CHECKING, Any

import msgspec

from shmq.errors import BadFormat, Untrusted
from shmq.rpc import wire
from shmq.rpc.errors import WrongArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PICKLE = 1
"""The extension type of a pickle."""


class Packing:
    """
    How one side packs what a program gives it, and unpacks what comes.

    Attributes:
        pack: an object to bytes.
        trusted: whether pickles are made and read.
    """

    def __init__(self, *, trusted: bool) -> None:
        """With pickles, or without."""
        self.trusted = trusted
        self._ext = self._unpickle if trusted else _refuse
        hook = _pickled if trusted else _unknown
        self.pack: Callable[[Any], bytes] = msgspec.msgpack.Encoder(enc_hook=hook).encode
        self._readers: dict[Any, Callable[[Any], Any]] = {}
        self.read: Callable[[Any], Any] = self.reader(Any)

    def reader(self, kind: Any) -> Callable[[Any], Any]:
        """
        What unpacks something of that type.

        Raises:
            TypeError: there can be no such thing in a message.
        """
        try:
            return self._readers[kind]
        except (KeyError, TypeError):  # or it has no hash
            decoder = msgspec.msgpack.Decoder(kind, ext_hook=self._ext)
        found: Callable[[Any], Any] = decoder.decode
        with contextlib.suppress(TypeError):
            self._readers[kind] = found
        return found

    def body(self, packed: Any, kind: Any = Any) -> Any:
        """
        What a reply holds.

        Raises:
            BadFormat: it is not what was agreed.
            Untrusted: it is a pickle.
        """
        try:
            return self.read(packed) if kind is Any else self.reader(kind)(packed)
        except Untrusted:
            raise
        except Exception as problem:
            raise BadFormat(f"the reply cannot be read: {problem}") from problem

    @staticmethod
    def _unpickle(code: int, data: memoryview) -> Any:
        if code != _PICKLE:
            return _refuse(code, data)
        return pickle.loads(data)  # noqa: S301  # both sides have said trusted=True


def _pickled(thing: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(_PICKLE, pickle.dumps(thing, 5))


def _unknown(thing: Any) -> Any:
    raise TypeError(
        f"a {type(thing).__module__}.{type(thing).__qualname__} cannot cross: what msgspec knows can, and other "
        "objects where server and client both say trusted=True"
    )


def _refuse(code: int, _: memoryview) -> Any:
    if code == _PICKLE:
        raise Untrusted("it holds a pickle, which runs code when it is read: both sides must say trusted=True")
    raise BadFormat(f"it holds an extension of msgpack, {code}, that means nothing here")


_ABSENT = msgspec.UNSET
_in_order = msgspec.structs.astuple
_PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Arguments:
    """What one method takes, and how that is unpacked."""

    def __init__(self, name: str, function: Callable[..., Any], packing: Packing) -> None:
        """
        Of that function.

        Raises:
            TypeError: an annotation cannot be resolved, or is of what cannot cross.
        """
        self._name = name
        self._signature = inspect.signature(function)
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except Exception as problem:
            raise TypeError(f"method {name!r}: its annotations cannot be resolved: {problem}") from problem
        parameters = self._signature.parameters.values()
        self._kinds = {each.name: hints.get(each.name, Any) for each in parameters}
        self._readers = {name: packing.reader(kind) for name, kind in self._kinds.items()}
        self._rest = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), None)
        self._others = next((each.name for each in parameters if each.kind is each.VAR_KEYWORD), None)
        must_be_named = any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters)
        self._needs_binding = must_be_named or self._rest is not None
        placed = [each for each in parameters if each.kind in _PLACED]
        self._has_defaults = any(each.default is not each.empty for each in placed)
        self._read = packing.reader(self._row(placed))
        self._read_any = packing.reader(list[msgspec.Raw])

    def _row(self, placed: Sequence[inspect.Parameter]) -> Any:
        """A type whose values are these arguments one behind the other; those that have defaults may be missing."""
        fields = [
            (f"a{at}", self._kinds[each.name], *(() if each.default is each.empty else (_ABSENT,)))
            for at, each in enumerate(placed)
        ]
        return msgspec.defstruct("Arguments", fields, array_like=True, forbid_unknown_fields=True, gc=False)

    def unpack(self, packed: msgspec.Raw, named: dict[str, msgspec.Raw]) -> tuple[Sequence[Any], dict[str, Any]]:
        """
        What to call it with.

        Raises:
            WrongArguments: it takes others.
            Untrusted: one of them is a pickle.
        """
        try:
            if named or self._needs_binding:
                return self._bind(packed, named)
            found: tuple[Any, ...] = _in_order(self._read(packed))
        except (Untrusted, BadFormat, WrongArguments):
            raise
        except msgspec.ValidationError as problem:
            raise self._wrong(self._blamed(packed, named) or problem) from problem
        except Exception as problem:  # a pickle may raise anything
            raise self._wrong(problem) from problem
        if self._has_defaults:
            while found and found[-1] is _ABSENT:
                found = found[:-1]
        return found, named

    def _bind(self, packed: msgspec.Raw, named: dict[str, msgspec.Raw]) -> tuple[Sequence[Any], dict[str, Any]]:
        """The same where some are named, or there may be any number of them."""
        rows = self._read_any(packed)
        try:
            bound = self._signature.bind(*rows, **named)
        except TypeError as problem:
            raise self._wrong(problem) from None
        for name, value in bound.arguments.items():
            read = self._readers[name]
            if name == self._rest:
                bound.arguments[name] = tuple(map(read, value))
            elif name == self._others:
                bound.arguments[name] = {each: read(one) for each, one in value.items()}
            else:
                bound.arguments[name] = read(value)
        return bound.args, bound.kwargs

    def _blamed(self, packed: msgspec.Raw, named: dict[str, msgspec.Raw]) -> Exception | None:
        """What Python would say of their number, or which of them has another type; None where nobody can tell."""
        try:
            bound = self._signature.bind(*self._read_any(packed), **named)
        except TypeError as problem:
            return problem
        except Exception:  # noqa: BLE001  # what came is no list of arguments at all
            return None
        for name, value in bound.arguments.items():
            if name not in (self._rest, self._others):
                try:
                    self._readers[name](value)
                except Exception as problem:  # noqa: BLE001  # a pickle may raise anything
                    return ValueError(f"{name}: {problem}")
        return None

    def _wrong(self, problem: Exception) -> WrongArguments:
        return WrongArguments(f"{self._name}{self._signature}: {problem}; it was not called")


def request(packing: Packing, head: tuple[Any, ...], arguments: Sequence[Any], named: dict[str, Any]) -> bytes:
    """
    A request as bytes.

    Raises:
        TypeError: an argument cannot cross. Nothing was asked.
    """
    return packing.pack((wire.VERSION, *head, arguments, named) if named else (wire.VERSION, *head, arguments))
