"""
Arrays as messages: headers say what the bytes of a payload are an array of, so that whoever gets it has it back.

`shmq.dtype` is what numpy calls the type of its elements ("<f4"; a list of [name, type, shape] for records),
`shmq.shape` its shape, and `shmq.order` is there, as "F", where the first index changes fastest.
"""

from __future__ import annotations

import math
import re
import sys

from shmq import _native, given, later
from shmq.errors import Corrupt, Mismatch
from shmq.hints import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from shmq._native import Message

DTYPE, SHAPE, ORDER = "shmq.dtype", "shmq.shape", "shmq.order"
_FORMATS = {
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("efd", "f"),
    "?": "b",
    "c": "S",
}
"""Kinds of numpy's, by the letters that the buffer protocol has for numbers."""
_ORDERS = {"": "=", "@": "=", "=": "=", "<": "<", ">": ">", "!": ">"}
_NATIVE = "<" if sys.byteorder == "little" else ">"
_SIMPLE = re.compile(r"[<>|=][biufcmMSUV][0-9]{1,9}(\[[0-9A-Za-z]{1,16}\])?")
"""A type of one element, as numpy writes it. Objects are none: they are pointers."""
_DEPTH = 8
"""Records in records, at most."""


class Kind(NamedTuple):
    """What an array is, but for its content: as headers say it."""

    dtype: Any
    """As `shmq.dtype` has it."""
    shape: tuple[int, ...]
    order: str = "C"

    def headers(self) -> dict[str, Any]:
        """What its message carries."""
        headers = {DTYPE: self.dtype, SHAPE: list(self.shape)}
        return headers if self.order == "C" else {**headers, ORDER: self.order}


def _numpy() -> Any:
    later.ready("numpy")
    import numpy as np  # noqa: PLC0415  # only users of arrays pay for it

    return np


# ---------------------------------------------------------------- put
def described(payload: Any) -> tuple[Any, dict[str, Any]]:
    """
    The bytes of a payload, and the headers that say what it is an array of; none when it is plain bytes, or not known.

    Raises:
        TypeError: it is an array of what cannot be given back from bytes.
    """
    kind = getattr(sys.modules.get("numpy"), "ndarray", None)  # which another thread may be importing just now
    if kind is not None and isinstance(payload, kind):
        return _of_numpy(_numpy(), payload)
    try:
        view = memoryview(payload)
    except TypeError:
        return payload, {}  # whoever puts it says so
    letter, order = view.format[-1:], _ORDERS.get(view.format[:-1])
    if (view.ndim == 1 and view.format == "B") or order is None or letter not in _FORMATS:
        return payload, {}
    order = "|" if view.itemsize == 1 else _NATIVE if order == "=" else order
    return payload, Kind(f"{order}{_FORMATS[letter]}{view.itemsize}", tuple(view.shape or ())).headers()


def _of_numpy(np: Any, array: Any) -> tuple[Any, dict[str, Any]]:
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError("cannot put a masked array: its mask would be lost; put its .data and .mask")
    kind = Kind(_name_of(np, array.dtype, "cannot put an array of"), array.shape)
    if not array.flags.c_contiguous and array.flags.f_contiguous:
        return _flat(np, array.T), kind._replace(order="F").headers()
    return _flat(np, array), kind.headers()


def _flat(np: Any, array: Any) -> Any:
    """Its bytes, one after the other; a copy where they do not lie so."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _name_of(np: Any, dtype: Any, tried: str) -> Any:
    """
    What `shmq.dtype` says.

    Raises:
        TypeError: numpy could not make it from that again.
    """
    try:
        name = _listed(np.lib.format.dtype_to_descr(dtype)) if dtype.names else dtype.str
    except ValueError:  # of fields that overlap, or come in another order than they are named
        name = None
    if name is None or dtype.hasobject or dtype.itemsize == 0 or _dtype_of(np, name) != dtype:
        raise TypeError(
            f"{tried} {dtype}: what is in it cannot be given back from bytes; put .tobytes(), or make "
            "the queue with a codec that takes objects"
        )
    return name


def _listed(descr: Any) -> Any:
    """Tuples as lists, as they come back out of headers."""
    return [_listed(each) for each in descr] if isinstance(descr, (list, tuple)) else descr


def asked(shape: int | Sequence[int], dtype: Any) -> tuple[Kind, int]:
    """
    What room for an array is asked for, and how many bytes it takes.

    Raises:
        TypeError: *shape* is none, or *dtype* is of what cannot be given back from bytes.
        ValueError: a length is negative.
    """
    np = _numpy()
    lengths = (shape,) if isinstance(shape, int) else shape
    if isinstance(lengths, (str, bytes)) or not hasattr(lengths, "__iter__"):
        raise given.wrong_type("shape", shape, "a whole number or several")
    sizes = tuple(given.whole("shape", length, 0) for length in lengths)
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as problem:
        raise TypeError(f"dtype={dtype!r}: a numpy.dtype, or what makes one, is wanted: {problem}") from None
    name = _name_of(np, kind, f"dtype={dtype!r}: cannot reserve room for")
    return Kind(name, sizes), math.prod(sizes) * kind.itemsize


# ---------------------------------------------------------------- got
def in_buffer(kind: Kind, buffer: Any) -> Any:
    """The array that is in that memory."""
    np = _numpy()
    return np.frombuffer(buffer, np.uint8).view(_dtype_of(np, kind.dtype)).reshape(kind.shape, order=kind.order)


def of_message(message: Message) -> Any:
    """
    As `Message.array`.

    Raises:
        Mismatch: it was not put as an array.
        Corrupt: its headers do not fit its bytes.
    """
    headers = message.headers
    if DTYPE not in headers:
        raise Mismatch(
            f"cannot make an array of message {message.index}: it was not put as one; numpy.frombuffer(message.view, "
            "dtype=...) takes its bytes as what they are"
        )
    shape, view = headers.get(SHAPE), message.view
    try:
        if not isinstance(shape, list):
            raise TypeError(f"shape {shape!r:.100}")
        kind = Kind(headers[DTYPE], tuple(shape), headers.get(ORDER, "C"))
        if any(type(length) is not int or length < 0 for length in kind.shape) or kind.order not in ("C", "F"):
            raise ValueError(f"shape {shape!r:.100}, order {kind.order!r:.100}")
        itemsize = _dtype_of(_numpy(), kind.dtype).itemsize
        if math.prod(kind.shape) * itemsize != len(view):
            raise ValueError(f"{len(view)} bytes, shape {shape!r:.100}, elements of {itemsize}")
        return in_buffer(kind, view)
    except (TypeError, ValueError, OverflowError) as problem:
        raise Corrupt(
            f"cannot make an array of message {message.index} in {_native.parts(message)[0].path}: its headers do not "
            f"fit it: {problem}; message.view has its bytes"
        ) from None


def _dtype_of(np: Any, name: Any) -> Any:
    return np.lib.format.descr_to_dtype(_checked(name))


def _checked(name: Any, depth: int = 0) -> Any:
    """
    What numpy may be given to make a dtype of: whoever put the message has written it.

    Raises:
        ValueError: it is nothing that `_name_of` writes.
    """
    if isinstance(name, str) and _SIMPLE.fullmatch(name):
        return name
    if not isinstance(name, list) or not name or depth == _DEPTH:
        raise ValueError(f"no type of elements: {name!r:.100}")
    return [_checked_field(field, depth + 1) for field in name]


def _checked_field(field: Any, depth: int) -> tuple[Any, ...]:
    if not isinstance(field, list) or len(field) not in (2, 3):
        raise ValueError(f"no field: {field!r:.100}")
    called = tuple(field[0]) if isinstance(field[0], list) else field[0]  # a title and a name
    if not all(isinstance(part, str) for part in ([called] if isinstance(called, str) else called)):
        raise ValueError(f"no name of a field: {called!r:.100}")
    lengths = field[2] if len(field) > 2 else []
    if not isinstance(lengths, list) or any(type(length) is not int or length < 0 for length in lengths):
        raise ValueError(f"no shape of a field: {lengths!r:.100}")
    return (called, _checked(field[1], depth), tuple(lengths)) if lengths else (called, _checked(field[1], depth))
