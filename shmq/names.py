"""What opening a consumer name takes, for one process or for a group: its beginning, its checkpoint, a last look."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq.storage import files, sync
from shmq.storage.directory import CONSUMERS

if TYPE_CHECKING:
    import datetime

    from shmq.queue import Queue
    from shmq.storage.directory import Directory


def start_index(queue: Queue, start: str | int | datetime.datetime) -> int:
    """
    Where a new name begins.

    Raises:
        ValueError: *start* is none of "earliest", "latest", an index and a datetime.
    """
    import datetime  # noqa: PLC0415

    # 'latest' means the end as it is once the name exists; puts that begin after that are seen.
    index = queue.next_index if start == "latest" else queue.first_index if start == "earliest" else start
    if isinstance(index, datetime.datetime):
        index = queue._random().at(index, before_claims=True)  # noqa: SLF001
    if not isinstance(index, int) or index < 0:
        raise ValueError(f'start={start!r}: "earliest", "latest", an index or a datetime')
    return index


def make_checkpoint(home: Directory, name: str, start: int, *, explicit: bool, group: bool) -> None:
    """The name is there once this has made its checkpoint; under the administrative lock."""
    content = _native.Checkpoint.format(
        home.queue_id, name, explicit=explicit, start=start, created_ns=time.time_ns(), group=group
    )
    where = f"{home.path}/{CONSUMERS}"
    files.make_file(home.consumers, f"{name}.checkpoint", content, home.options.mode & 0o600, where, "checkpoint")
    sync.directory(home.consumers, "consumers")  # what it will acknowledge is kept under that name


def check_not_dropped(home: Directory, name: str, fd: int, what: str) -> None:
    """
    Refuse a checkpoint, open as *fd* and locked by now, that is not the one of that name any more.

    Raises:
        NotFound: *what* (consumer, group) was dropped in between.
    """
    with contextlib.suppress(FileNotFoundError):
        mine, now = os.fstat(fd), os.stat(f"{name}.checkpoint", dir_fd=home.consumers, follow_symlinks=False)
        if mine.st_nlink == 1 and mine.st_ino == now.st_ino:
            return
    raise errors.NotFound(f"{what} {name!r} of {home.path} was dropped while it was being opened")
