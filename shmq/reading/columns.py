"""
Messages column by column as plain lists: what `arrow` gives, without pyarrow.

The core copies what is wanted of many messages at once; here that becomes Python objects, a list for each field and no
Message for each.
"""

from __future__ import annotations

from shmq import _native, given, later
from shmq.closable import Closable
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Self

    from shmq.reading.reader import Reader

_NUMBERS = {"index": "uint64_t *", "time_ns": "int64_t *", "type": "uint16_t *"}
NAMES = ("index", "time_ns", "key", "type", "payload", "headers")
"""What a Message calls them."""
_MOST = (1 << 31) - 1


def _in_core(name: str) -> str:
    return "time" if name == "time_ns" else name


def check(names: Iterable[str] | None) -> tuple[str, ...]:
    """
    The columns to read.

    Raises:
        TypeError, ValueError: one is not there, or asked for twice; or there is none.
    """
    wanted = NAMES if names is None else given.names("columns", names)
    if not wanted or len(set(wanted)) != len(wanted) or not set(wanted) <= set(NAMES):
        raise ValueError(f"columns={list(wanted)}: some of {', '.join(NAMES)}, each once")
    return wanted


def _decoder() -> Callable[[bytes], Any]:
    later.ready("msgspec")
    import msgspec  # noqa: PLC0415  # only users of headers pay for it

    return msgspec.msgpack.Decoder().decode


class Columns(Closable):
    """Made by `Queue.read_columns`; iterates over {name: list}, each list as long as the others."""

    def __init__(self, reader: Reader, names: Iterable[str] | None, max_rows: int, max_bytes: int) -> None:
        """*reader* is ours from now on: it knows where to begin and where to end."""
        self._reader = reader
        self._names = check(names)
        given.whole("max_rows", max_rows, 1, _MOST)
        given.whole("max_bytes", max_bytes, 1, _MOST)
        stop, stop_time = reader._bounds()  # noqa: SLF001  # ours
        self._plan = _native.wanted(
            list(map(_in_core, self._names)), rows=max_rows, max_bytes=max_bytes, stop=stop, stop_time_ns=stop_time
        )

    def __iter__(self) -> Self:
        """Return this object, which the `with` block closes."""
        return self

    def __next__(self) -> dict[str, list[Any]]:
        """
        The next ones, one message at least.

        Raises:
            StopIteration: the stop or the end is reached, or a message that is claimed and not committed yet.
            Corrupt: the next message is damaged. What came before it was delivered.
            Closed: this or its queue was closed.
        """
        gathered = self._reader._walk_on().gather(self._plan)  # noqa: SLF001
        if isinstance(gathered, int):
            raise StopIteration
        return {name: self._column(gathered, name) for name in self._names}

    @staticmethod
    def _column(gathered: _native.Gathered, name: str) -> list[Any]:
        if name in _NUMBERS:
            return gathered.numbers(_in_core(name), _NUMBERS[name])
        if name == "payload":
            return gathered.pieces(name)
        none_has_it = not gathered.column(name).bytes
        if name == "key":
            return [None] * gathered.rows if none_has_it else [key or None for key in gathered.pieces(name)]
        if none_has_it:
            return [{} for _ in range(gathered.rows)]
        decode = _decoder()
        return [decode(data) if data else {} for data in gathered.pieces(name)]

    def close(self) -> None:
        """Read no more. Closing twice is fine; so is forgetting to."""
        self._reader.close()
