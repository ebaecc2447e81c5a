"""Where in a queue a word says to begin or to end; the one place that knows how such words are written."""

from __future__ import annotations

import contextlib
import datetime
import re
from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    import shmq


def index_at(queue: shmq.Queue, option: str, word: str) -> int:
    """
    The index that *word* stands for: an index, "earliest", "latest", or the first message of a time or later.

    Raises:
        Misuse: it is none of these.
    """
    if word in {"earliest", "latest"}:
        return queue.first_index if word == "earliest" else queue.committed_index
    if re.fullmatch(r"[0-9]+", word):
        return int(word)
    if re.fullmatch(r"[0-9]+\.[0-9]+", word):
        return queue.at(float(word))
    with contextlib.suppress(ValueError):
        return queue.at(datetime.datetime.fromisoformat(word))
    raise show.Misuse(
        f'{option} {word!r} is not an index, a time like 2026-01-31T08:00 or 1769846400.0, "earliest" or "latest"'
    )
