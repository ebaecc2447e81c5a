"""Which queues there are: below directories, and volatile ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shmq import errors, manage, roots, where
from shmq.storage.paths import QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_VOLATILE = "shm:"
_SEATS = "members"
"""In a root of shards: where groups meet, and nobody's messages lie."""


def below(tops: Sequence[str]) -> list[str]:
    """
    The queues at or below *tops*; without any, below the directory where we are, and the volatile ones.

    Links are not followed.
    """
    found = [place for top in tops or (".",) for place in _below(top)]
    if not tops:
        found += manage.volatile_queues()
    return list(dict.fromkeys(found))


def check(tops: Sequence[str]) -> None:
    """
    Refuse what can have no queue.

    Raises:
        NotFound: there is no such directory.
    """
    for top in tops or (".",):
        if top.startswith(_VOLATILE):
            continue
        where.absolute(top)
        if not os.path.isdir(top):
            raise errors.NotFound(f"cannot look for queues below {top}: it is not a directory")


def _below(top: str) -> Iterator[str]:
    if top.startswith(_VOLATILE):
        yield top
        return
    refused: list[OSError] = []
    for path, folders, names in os.walk(top, onerror=refused.append):
        if QUEUE in names:
            folders.clear()
            yield os.path.normpath(path)
        else:
            folders[:] = sorted(name for name in folders if name != _SEATS or not roots.is_root(path))
    if any(problem.filename == top for problem in refused):
        yield os.path.normpath(top)  # whoever looks at it is told why it cannot be read
