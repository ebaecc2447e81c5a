"""
Where the consumers of a queue stand, to go along with it: for the day when its follower is promoted.

The files of each name are made as a copy of the queue makes them: with a snapshot that says where it stands now, and a
ring that nobody is in. They are looked at first, and sent behind all messages that were there then (R8), so no
acknowledgement is ahead of what it is of; what was acknowledged since comes again after a promotion.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from shmq.storage import copying
from shmq.storage.paths import is_consumer_name
from shmq.storage.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.storage.directory import Directory

ENDINGS = (".ring", ".group", ".subscription", ".hold", ".forward", ".checkpoint")
"""In the order in which they are there: with its checkpoint, a name is."""


class _Kept(Target):
    """What a copy writes, in memory."""

    def __init__(self, home: Directory) -> None:
        self.path, self.queue_id = home.path, home.queue_id
        self.consumers, self.gone = home.consumers, []
        self.files: dict[str, bytes] = {}

    @contextlib.contextmanager
    def file(self, directory: int, name: str, size: int) -> Iterator[int]:  # noqa: ARG002  # there is one folder
        """As there."""
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            yield fd
            self.files[name] = os.pread(fd, size, 0)
        finally:
            os.close(fd)


def files_of(home: Directory, without: str) -> dict[str, bytes]:
    """The files of all names as they are now, but of those that begin so; of one that is damaged, none."""
    kept = _Kept(home)
    copying.copy_consumers(home, kept)
    there = {name for name in kept.files if not name.startswith(without)}
    order = sorted(there, key=lambda name: (ENDINGS.index(os.path.splitext(name)[1]), name))
    return {name: kept.files[name] for name in order}


def is_file(name: str) -> bool:
    """Whether that is what a file of a consumer name is called."""
    stem, ending = os.path.splitext(name)
    return ending in ENDINGS and is_consumer_name(stem)
