from collections.abc import Callable, Mapping
from typing import Any

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
