from collections.abc import Callable, Mapping
from typing import Any, overload

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

class Kept:
    def __init__(self, kept: object, /) -> None: ...

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
