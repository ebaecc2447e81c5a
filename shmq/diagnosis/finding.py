"""What is found at a queue."""

from __future__ import annotations

import dataclasses
from typing import Any

LEVELS = ("stuck", "slow", "note")


@dataclasses.dataclass(frozen=True)
class Finding:
    """
    One thing that holds a queue up, or that is worth knowing of it.

    Attributes:
        kind: a word that stays the same from release to release; docs/how-to/why.md lists them.
        level: "stuck", something does not go on; "slow", something is behind or may become stuck; "note", nothing is
            wrong.
        path: the queue.
        sentence: what is so.
        advice: what to do about it; "" when there is nothing to do.
        facts: the same for programs: pids, commands, indexes, seconds, bytes.
    """

    kind: str
    level: str
    path: str
    sentence: str
    advice: str = ""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
