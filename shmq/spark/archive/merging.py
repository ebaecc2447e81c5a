"""
Which files are put together, and when, whatever files they are.

A file that grew by a little each time would be written again each time, so all of it costs the square of what is
archived. Files are put together when what comes of it is many times as large as each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

GROWTH = 8


def runs(sizes: Sequence[int], breaks: Collection[int], nbytes: int) -> list[tuple[int, int]]:
    """
    Runs of neighbours that are worth one file, as (first, stop).

    Args:
        sizes: of the files, in their order.
        breaks: files that those before them cannot be put together with.
        nbytes: how large files are to be.
    """
    found = []
    at = 0
    while at < len(sizes):
        stop = _run(sizes, at, breaks, nbytes)
        if stop > at:
            found.append((at, stop))
        at = max(stop, at + 1)
    return found


def _run(sizes: Sequence[int], first: int, breaks: Collection[int], nbytes: int) -> int:
    """Behind the last of those that are worth one file with the *first* one; *first* itself where there is none."""
    stop = first
    total = largest = 0
    for at in range(first, len(sizes)):
        total, largest = total + sizes[at], max(largest, sizes[at])
        if (at > first and at in breaks) or total > nbytes:
            break
        if at > first and is_worth(total, largest, nbytes):
            stop = at + 1
    return stop


def is_worth(total: int, largest: int, nbytes: int) -> bool:
    """
    Whether files of *total* bytes, the largest of which has so many, are worth one file.

    What is written again lies in a file at least `GROWTH` times as large then; or, once or twice in its life, in one
    of half the size that files are to have, *nbytes*, or more. So no message is written more often than the logarithm
    of that size, however often one comes to look.
    """
    return total >= GROWTH * largest or (2 * total >= nbytes and 2 * total >= 3 * largest)
