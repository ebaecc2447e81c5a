"""What was done."""

from __future__ import annotations

from typing import NamedTuple


class Imported(NamedTuple):
    """What `import_queue` did."""

    format: str
    """That of the source."""
    messages: int
    """How many came in now; of a resumed import, without those that were in."""
    first: int | None
    """The index of the first of them; None when none came in."""
    last: int | None
    """That of the last one. Messages of others may lie between parts."""
    consumers: list[str]
    """The names of those that were made now; not of those that were here."""
    lost: list[str]
    """What was lost, as *lossy* allowed."""


class Written(NamedTuple):
    """What `export_queue` or `convert_queue` wrote."""

    path: str
    """What was made: a directory, or QewQew's header file."""
    format: str
    queue: str | None
    """The name of the queue in it; None for a format whose queues have none."""
    messages: int
    consumers: list[str]
    """Those of the source that went along; none to a format that has no place for them."""
    lost: list[str]
    """What was lost, as *lossy* allowed."""
