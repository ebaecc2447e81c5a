from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, overload

from shmq.message import Message

class _End:
    def _move(self, chunk: int, reader: int, memory: int, keep: object, /) -> None: ...
    def _code_with(self, codec: Callable[..., Any] | None, /) -> None: ...

class Tail(_End):
    def _sync_with(self, mark_due_ns: int, sync: object, /) -> None: ...
    def put(
        self,
        payload: Any,
        *,
        key: bytes | None = None,
        type: int = 0,
        time_ns: int | None = None,
        ttl: float | None = None,
        delay: float | None = None,
        headers: Mapping[str, Any] | None = None,
        dedup: tuple[str | bytes, int] | None = None,
        timeout: float | None = None,
    ) -> int: ...

class Head(_End):
    def take(self, timeout: float | None = None) -> Any: ...
    def take_many(self, limit: int, timeout: float | None = None) -> list[Any]: ...

class Block:
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class Kept:
    def __init__(self, kept: object, /) -> None: ...

class Fd(int):  # for type checkers alone: whoever asks the kernel takes it in the place of a number
    @classmethod
    def of(cls, call: Callable[..., int], *args: Any, **kwargs: Any) -> Fd: ...
    def close(self) -> None: ...
    def fileno(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...

class Record:
    index: int
    attempts: int
    _chunk: Any
    _record: int
    _place: int
    _decode: Callable[[Any], Any] | None
    _acknowledge: Callable[[Any], None] | None
    _fields: tuple[int, ...] | None

class Shelf:
    def put(self, base: int, end: int, sequence: int, address: int, chunk: object, /) -> None: ...
    def drop(self, first: int, last: int, /) -> None: ...

class Finder:
    def _find_in(self, shelf: Shelf | None, kind: type[Record], decode: Callable[[Any], Any] | None, /) -> None: ...
    @overload
    def __getitem__(self, index: int, /) -> Message: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[Message]: ...

def strict(encode: Callable[[Any], bytes], name: str, datetime: type | None, /) -> Callable[[Any], bytes]: ...
