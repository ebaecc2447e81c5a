"""Small chunks with a grain, in files that served before, so that every suite meets what an earlier chunk left."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from shmq.storage import chain, spares

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = 128
"""Of a message of 48 bytes, a claim fills a third of it."""


@contextlib.contextmanager
def grained(grain: int = SMALL) -> Iterator[None]:
    """Every chunk that follows another one gets that grain (0 = none), and files serve again whatever their size."""
    kept = chain.grain_for, spares.WORTH_KEEPING
    chain.grain_for = lambda *_: grain
    spares.WORTH_KEEPING = 0
    try:
        yield
    finally:
        chain.grain_for, spares.WORTH_KEEPING = kept
