"""
Filters: which messages a name or a reader wants. The core asks them of a record before a message is made of it.

A name's filter is stored with it (storage/subscriptions.py) in the form that `stored` has.
"""

from __future__ import annotations

from shmq import _native, errors, given, later
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_KEY_MAX, _TYPE_MAX, _HEADERS_MAX = (1 << 16) - 1, (1 << 16) - 1, 8
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1
_VALUES = (str, int, bool, bytes, type(None))


class Filter:
    """
    Which messages are wanted: all that is asked for must hold.

        shmq.Filter(key_prefix=b"eu/", types={1, 2}, headers={"region": "eu"})

    Attributes:
        key_prefix: how the key begins; b"" for any, also for none.
        types: of which one is the message's; None for any.
        headers: which the message has, each with that value.
    """

    __slots__ = ("_encoded", "_headers", "key_prefix", "types")

    key_prefix: bytes
    types: frozenset[int] | None

    def __init__(
        self,
        *,
        key_prefix: bytes = b"",
        types: Iterable[int] | None = None,
        headers: Mapping[str, str | int | bool | bytes | None] | None = None,
    ) -> None:
        """
        What is left out is not asked for; something must be.

        Args:
            key_prefix: up to 65,535 bytes.
            types: 0 to 65535 each, one at least.
            headers: up to 8 names, each with a str, an int, a bool, bytes or None. Values are equal when msgpack has
                them as the same: True is not 1, "eu" is not b"eu". None is a header that says None, not one that is
                missing.

        Raises:
            TypeError, ValueError: it asks for nothing, or for what no message can have.
        """
        if not isinstance(key_prefix, bytes):
            raise given.wrong_type("key_prefix", key_prefix, "bytes", "; for text write prefix.encode()")
        if len(key_prefix) > _KEY_MAX:
            raise ValueError(f"key_prefix: {len(key_prefix)} bytes; a key has up to {_KEY_MAX}")
        wanted = None if types is None else _types(types)
        self._headers = {} if headers is None else _headers(headers)
        if not key_prefix and wanted is None and not self._headers:
            raise ValueError("Filter(): it asks for nothing; name a key_prefix, types or headers, or leave it out")
        self._encoded = _encode(self._headers) if self._headers else b""
        self.key_prefix, self.types = key_prefix, wanted

    @property
    def headers(self) -> dict[str, str | int | bool | bytes | None]:
        """Which the message has, each with that value."""
        return dict(self._headers)

    @classmethod
    def from_stored(cls, stored: object) -> Filter:
        """
        The filter that `stored` has said.

        Raises:
            ValueError, TypeError: that is none.
        """
        if not isinstance(stored, dict) or not stored:
            raise TypeError("the filter is not a mapping")
        known = dict(stored)
        prefix, types, headers = (known.pop(name, "") for name in ("key_prefix", "types", "headers"))
        if not all(isinstance(value, str) for value in (prefix, types, headers)):
            raise TypeError("a part of the filter is not text")
        if known:
            raise errors.BadFormat(f"this version of shmq knows no filter by {', '.join(map(repr, sorted(known)))}")
        return cls(
            key_prefix=bytes.fromhex(prefix),
            types=[int(each) for each in types.split(" ")] if types else None,
            headers=_decode(bytes.fromhex(headers)) if headers else None,
        )

    def stored(self) -> dict[str, str]:
        """As it is kept: hex digits, numbers, and of the headers the hex digits of a msgpack map."""
        parts = {
            "key_prefix": self.key_prefix.hex(),
            "types": " ".join(map(str, sorted(self.types or ()))),
            "headers": self._encoded.hex(),
        }
        return {name: part for name, part in parts.items() if part}

    def compiled(self) -> _native.Matcher:
        """What the core asks."""
        return _native.Matcher(self.key_prefix, sorted(self.types or ()), self._encoded)

    def __eq__(self, other: object) -> bool:
        """Whether both want the same messages."""
        return isinstance(other, Filter) and self._key() == other._key()

    def __hash__(self) -> int:
        """Of what it asks for."""
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        # By type too: True is not 1.
        return self.key_prefix, self.types, frozenset((name, type(is_), is_) for name, is_ in self._headers.items())

    def __reduce__(self) -> tuple[Any, ...]:
        """It pickles as what it asks for."""
        return _again, (self.key_prefix, self.types, self._headers)

    def __repr__(self) -> str:
        """As it is written."""
        parts = {
            "key_prefix": self.key_prefix or None,
            "types": self.types and set(self.types),
            "headers": self._headers,
        }
        return f"Filter({', '.join(f'{name}={value!r}' for name, value in parts.items() if value)})"


def _again(key_prefix: bytes, types: frozenset[int] | None, headers: dict[str, Any]) -> Filter:
    return Filter(key_prefix=key_prefix, types=types, headers=headers)


def check(offered: object) -> Filter | None:
    """
    A filter, or None.

    Raises:
        TypeError: it is neither.
    """
    if offered is not None and not isinstance(offered, Filter):
        raise given.wrong_type("filter", offered, "a shmq.Filter")
    return offered


def _types(offered: Iterable[int]) -> frozenset[int]:
    if isinstance(offered, (str, bytes)) or not hasattr(type(offered), "__iter__"):
        raise given.wrong_type("types", offered, "a set of ints")
    found = frozenset(given.whole("types", each, 0, _TYPE_MAX) for each in offered)
    if not found:
        raise ValueError("types is empty: no message has none of them; None is any type")
    return found


def _headers(offered: Mapping[str, Any]) -> dict[str, Any]:
    if not hasattr(type(offered), "items"):
        raise given.wrong_type("headers", offered, "a mapping")
    found = dict(offered.items())
    if len(found) > _HEADERS_MAX:
        raise ValueError(f"headers: {len(found)} of them; a filter asks for up to {_HEADERS_MAX}")
    for name, value in found.items():
        if not isinstance(name, str):
            raise given.wrong_type("headers: a name", name, "a str")
        if type(value) not in _VALUES:
            raise given.wrong_type(f"headers: {name!r}", value, "a str, an int, a bool, bytes or None")
        if type(value) is int and not _INT_MIN <= value <= _INT_MAX:
            raise ValueError(f"headers: {name!r}={given.shown(value)}: from -2**63 to 2**64 - 1")
    return found


def _encode(headers: dict[str, Any]) -> bytes:
    later.ready("msgspec")
    import msgspec  # noqa: PLC0415  # only users of headers pay for it

    try:
        return msgspec.msgpack.encode(headers)
    except UnicodeEncodeError as problem:
        raise ValueError(f"headers: {problem}") from None


def _decode(encoded: bytes) -> Any:
    later.ready("msgspec")
    import msgspec  # noqa: PLC0415  # likewise

    try:
        return msgspec.msgpack.decode(encoded)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ValueError(f"its headers are not msgpack ({problem})") from None
