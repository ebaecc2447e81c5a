"""What a message becomes in shmq: fields where there are fields, and the header `source` for what has none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from shmq.formats.model import NO_TIME, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import shmq
    from shmq.foreign import EncodedHeaders
    from shmq.formats.model import Entry

    Headers = Callable[[Sequence[Any], Sequence[Any]], EncodedHeaders]

SOURCE = "source"
"""The header that keeps what only the foreign format knew: index, expiry, attempts, segment."""
_TIME_MAX = (1 << 63) - 1


def put(staged: shmq.Staged, batch: Sequence[Entry], known: Headers | None = None) -> None:
    """Stage a batch; *known* makes the headers of a format that has more to tell than an index and an extra."""
    if isinstance(batch, Run) and known is not None:
        staged.put_many(batch.payloads, headers=known(batch.indexes, [batch.extra]))
        return
    payloads, indexes, times, expiries, keys, kinds, attempts, extras = zip(*batch, strict=True)
    headers: list[dict[str, Any] | None] | None = None
    stamps = None if times.count(None) == len(times) else times
    timeless = NO_TIME in times
    if stamps and (timeless or None in times or max(times) > _TIME_MAX or min(times) < -_TIME_MAX):
        now = time.time_ns()
        stamps = tuple(now if time_ns is None or time_ns == NO_TIME else in_range(time_ns) for time_ns in times)
    if known is not None:
        headers = known(indexes, extras)
    elif timeless or any(expiries) or any(attempts):
        headers = [_source(entry) for entry in batch]
    elif any(extras):
        alike = extras.count(extras[0]) == len(extras)
        if indexes[0] is None and alike:
            headers = [{SOURCE: extras[0]}] * len(extras)
        elif indexes[0] is None:
            headers = [{SOURCE: extra} if extra else None for extra in extras]
        else:
            headers = [
                {SOURCE: {"index": index, **(extra or {})}} for index, extra in zip(indexes, extras, strict=True)
            ]
    elif indexes[0] is not None:
        headers = [{SOURCE: {"index": index}} for index in indexes]
    staged.put_many(
        payloads,
        keys=keys if any(keys) else None,
        types=[kind or 0 for kind in kinds] if any(kinds) else None,
        times_ns=stamps,
        headers=headers,
    )


def in_range(time_ns: int) -> int:
    """The nearest time that 64 bits of nanoseconds can hold: formats that count milliseconds reach further."""
    return max(-_TIME_MAX, min(time_ns, _TIME_MAX))


def about(headers: dict[str, Any]) -> dict[str, Any]:
    """What an import knew of a message with these headers."""
    found = headers.get(SOURCE)
    return found if isinstance(found, dict) else {}


def _source(entry: Entry) -> dict[str, Any] | None:
    known: dict[str, Any] = dict(entry.extra or {})
    expires_ns = None if entry.expires_ns is None else in_range(entry.expires_ns)
    fields = {"index": entry.index, "expires_ns": expires_ns, "attempts": entry.attempts or None}
    known |= {name: value for name, value in fields.items() if value is not None}
    if entry.time_ns == NO_TIME:
        known["no_time"] = True
    return {SOURCE: known} if known else None
