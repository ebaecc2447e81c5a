"""
How objects become payload bytes and come back: bytes, text, json, msgpack; pickle only when told to trust it; structs,
and what a user brings.

`None` in place of a function stands for "the bytes themselves", so that the fast path calls nothing. What json and
msgpack would hand back as something else (but for a tuple, which becomes a list) they refuse. A queue stores the name
of its codec, and a name in a file loads no code: who opens a queue with a codec of their own brings it, each time.
"""

from __future__ import annotations

import functools

from shmq import _native, given, later
from shmq.errors import BadFormat, Corrupt, Untrusted
from shmq.hints import TYPE_CHECKING, Generic, NamedTuple, T

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Protocol, TypeGuard

    from typing_extensions import Buffer

    from shmq._native import Chunk
    from shmq.brought import Codec as Codec  # noqa: PLC0414  # exported

    class _Array(Protocol):
        @property
        def __array_interface__(self) -> dict[str, Any]: ...

    AsBytes = Buffer | _Array
    """What a queue of bytes takes for some; the standard library says of no array before 3.12 that it has a buffer."""

NAMES = ("bytes", "text", "json", "msgpack", "pickle")
_GROUP = "shmq.codecs"
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:+-")
_LENGTH = 64


def __getattr__(name: str) -> Any:
    """`shmq.codec.Codec`, which few programs speak of: imported when it is first used."""
    if name != "Codec":
        raise AttributeError(f"module 'shmq.codec' has no attribute {name!r}")
    later.ready("shmq.brought")
    from shmq.brought import Codec  # noqa: PLC0415

    return Codec


def __dir__() -> list[str]:
    """With what is not there yet."""
    return sorted({*globals(), "Codec"})


class Coding(NamedTuple):
    """A name and its two functions; `None` for the bytes themselves."""

    name: str
    encode: Callable[[Any], bytes] | None
    decode: Callable[[bytes], Any] | None


def _encode_text(value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"codec 'text' takes str, not {type(value).__name__}")
    return value.encode()


def _msgspec(name: str) -> Coding:
    later.ready("msgspec")
    import msgspec  # noqa: PLC0415  # 10 ms that only users of these codecs pay

    encode: Callable[[Any], bytes] = getattr(msgspec, name).Encoder().encode
    times = None
    if name == "msgpack":
        later.ready("datetime")
        import datetime  # noqa: PLC0415

        times = datetime.datetime
    return Coding(name, _native.strict(encode, name, times), getattr(msgspec, name).Decoder().decode)


def _pickle() -> Coding:
    later.ready("pickle")
    import pickle  # noqa: PLC0415

    return Coding("pickle", functools.partial(pickle.dumps, protocol=5), pickle.loads)


@functools.cache
def codec(name: str, *, trusted: bool = False) -> Coding:
    """
    The codec of that name.

    Raises:
        Untrusted: it is pickle, and *trusted* was not given: reading a pickle runs whatever its writer liked
            (CVE-2025-69872 is what happens when a library reads pickles from files by default).
        BadFormat: there is no codec of that name.
    """
    if name == "bytes":
        return Coding(name, None, None)
    if name == "text":
        return Coding(name, _encode_text, bytes.decode)
    if name in {"json", "msgpack"}:
        return _msgspec(name)
    if name != "pickle":
        raise BadFormat(f"no codec is called {name!r}; there are {', '.join(NAMES)}")
    if not trusted:
        raise Untrusted(
            "its messages are pickles, which run code when read; pass trusted=True if you trust its writers"
        )
    return _pickle()


# ---------------------------------------------------------------- of the user's own
class StructCodec(Generic[T]):
    """Made by `struct`: values of one type, checked when they are put and read. It pickles where its type does."""

    def __init__(self, kind: type[T]) -> None:
        """See `struct`."""
        later.ready("msgspec")
        import msgspec  # noqa: PLC0415  # only users of these codecs pay for it

        self._kind = kind
        self.name = f"struct:{kind.__name__}"
        self._encode = msgspec.msgpack.Encoder().encode
        self.decode: Callable[[Buffer], T] = msgspec.msgpack.Decoder(kind).decode

    def encode(self, value: T, /) -> bytes:
        """Its bytes, in msgpack."""
        if type(value) is not self._kind:  # of a subclass, its own fields would be lost
            raise TypeError(f"codec {self.name!r} takes {self._kind.__name__}, not {type(value).__name__}")
        data = self._encode(value)
        try:
            self.decode(data)  # msgspec looks at no types when it encodes, and whoever takes it could not read it
        except ValueError as problem:
            raise TypeError(f"codec {self.name!r} cannot take this {self._kind.__name__}: {problem}") from None
        return data

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles to its type."""
        return StructCodec, (self._kind,)

    def __repr__(self) -> str:
        """The expression that makes it."""
        return f"shmq.codec.struct({self._kind.__qualname__})"


def struct(kind: type[T]) -> StructCodec[T]:
    """
    A codec for values of that class: a msgspec.Struct, or a dataclass; they come back as what they were put as.

        class Order(msgspec.Struct):
            number: int
            price: float

        with shmq.open("orders", codec=shmq.codec.struct(Order)) as queue:
            queue.put(Order(7, 9.5))

    They are stored as msgpack, under the name "struct:Order". What is put is checked against the class (`TypeError`),
    and so is what is read: a message that does not fit raises `Corrupt`. Both say which field. As msgspec says, fields
    may be added later, with defaults.

    Raises:
        TypeError: *kind* is no class, or one that msgspec cannot read.
    """
    known = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__")
    if (
        not isinstance(kind, type)
        or not any(hasattr(kind, fields) for fields in known)
        or not _is_name(f"struct:{kind.__name__}")
    ):
        raise given.wrong_type("kind", kind, "a msgspec.Struct, or a dataclass: the class itself")
    try:
        return StructCodec(kind)
    except TypeError as problem:
        raise TypeError(f"kind={kind.__qualname__}: msgspec cannot read it: {problem}") from None


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _LENGTH and _LETTERS.issuperset(name)


def _is_codec(brought: Any) -> TypeGuard[Codec[Any]]:
    """What `isinstance` says of `Codec`, which it need not load for that."""
    verbs = (getattr(brought, name, None) for name in ("encode", "decode"))
    return hasattr(brought, "name") and all(verb is not None for verb in verbs)


def check_brought(brought: Any) -> Codec[Any]:
    """
    What a user brings as a codec, if it is one.

    Raises:
        TypeError, ValueError: it is none, or not called as it may be.
    """
    if isinstance(brought, type) or not _is_codec(brought):
        hint = "; for a class of values write shmq.codec.struct(...)" if isinstance(brought, type) else ""
        raise given.wrong_type("codec", brought, "one of " + ", ".join(NAMES) + ", or a shmq.codec.Codec", hint)
    name = given.text("codec.name", brought.name)
    if name in NAMES or not _is_name(name):
        raise ValueError(f"codec.name={name!r}: 1 to 64 of A-Z a-z 0-9 _ . : + -, and none of {', '.join(NAMES)}")
    return brought


def named(name: str) -> Codec[Any]:
    """
    The codec that a package offers under that name; this loads it.

    Raises:
        ValueError: none does.
    """
    later.ready("importlib.metadata")
    from importlib.metadata import entry_points  # noqa: PLC0415  # only users of these codecs pay for it

    for found in entry_points(group=_GROUP, name=name):
        loaded = found.load()
        brought = check_brought(loaded() if isinstance(loaded, type) else loaded)
        if brought.name == name:
            return brought
        raise ValueError(f"codec={name!r}: {found.value} offers it, and calls itself {brought.name!r}")
    raise ValueError(f"codec={name!r}: one of {', '.join(NAMES)}, or what a package offers; none offers that")


def coding_of(brought: Codec[Any]) -> Coding:
    """The functions of what a user brings."""

    def encode(value: Any) -> bytes:
        data = brought.encode(value)
        if not isinstance(data, bytes):
            raise TypeError(f"codec {brought.name!r} has encoded it as {type(data).__name__}, and not as bytes")
        return data

    return Coding(brought.name, encode, brought.decode)


def unknown(name: str, path: str) -> Coding:
    """For who moves payloads and does not look at them, where their codec is not there: they are bytes."""

    def encode(_: Any) -> bytes:
        raise missing(name, path, "put")

    return Coding(name, encode, None)


def missing(name: str, path: str, what: str) -> BadFormat:
    """The error for *what* needs a codec that was not brought."""
    hint = f"shmq.codec.struct({name[7:]})" if name.startswith("struct:") else "..."
    return BadFormat(
        f"cannot {what} {path}: its payloads are of codec {name!r}, which is not shmq's own; whoever opens it brings "
        f"it: shmq.open(..., codec={hint})"
    )


def _is_unreadable(problem: Exception) -> bool:
    """Whether that is what a codec says of bytes, and not what code raises that runs in it."""
    known = isinstance(problem, ValueError | OverflowError | RecursionError | EOFError)
    return known or type(problem).__module__ in {"msgspec", "_pickle"}


def explain(problem: Exception, index: int, chunk: Chunk) -> None:
    """
    Of a *problem* that a codec has with the payload of that message in *chunk*: say which message, and go on raising
    whatever else it is, as a codec that runs code may.

    Raises:
        Corrupt: of that problem.
    """
    if _is_unreadable(problem):
        raise Corrupt(
            f"cannot decode message {index} in {chunk.path}: {type(problem).__name__}: {problem}; its bytes are as "
            f"they were put, and Queue[{index}].view has them"
        ) from problem


def decode_readable(
    decode: Callable[[Any], Any], payloads: Iterable[bytes], chunk: Chunk, indexes: Callable[[int], int]
) -> tuple[list[Any], list[Exception]]:
    """What the payloads of these messages of one chunk mean, and why some cannot be read: as `decode_all`."""
    done: list[Any] = []
    problems: list[Exception] = []
    for at, payload in enumerate(payloads):
        try:
            done += decode_all(decode, (payload,), chunk, lambda _, at=at: indexes(at))  # type: ignore[misc]
        except Exception as problem:  # noqa: BLE001  # a codec of the user's own raises what it likes
            problems.append(problem)
    return done, problems


def decode_all(
    decode: Callable[[Any], Any],
    payloads: Iterable[bytes],
    chunk: Chunk,
    indexes: Callable[[int], int],
    *,
    first: bool = False,
) -> list[Any]:
    """
    What the payloads of these messages of one chunk mean.

    *indexes* is asked for the index of the n-th, where that cannot be read. *first*: those before one that its codec
    cannot read will do, if there are any.

    Raises:
        Corrupt: of the first that its codec cannot read.
    """
    done: list[Any] = []
    try:
        done.extend(map(decode, payloads))
    except Exception as problem:
        if not (first and done and _is_unreadable(problem)):
            explain(problem, indexes(len(done)), chunk)
            raise
    return done
