"""Making the queue that is to follow another one: the same queue, with nothing in it yet."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from shmq import _native, errors
from shmq.storage import boots, files
from shmq.storage.paths import CHUNKS, CONSUMERS, CONTROL, QUEUE

if TYPE_CHECKING:
    from shmq.replica.pieces import Hello, State

KEPT_FLAGS = _native.JOURNAL_FINISHED | _native.JOURNAL_LOSES
"""What a follower's journal says because that of the other queue does."""


def seed(path: str, hello: Hello) -> None:
    """
    Make it, whole or not at all.

    Raises:
        NotFound: the directory above is missing.
        Unsafe: there is something at *path*.
        DiskFull: there is no room.
    """
    making = f"{path}{files.MAKING}{os.urandom(4).hex()}"
    try:
        files.new_directory(making)
    except FileNotFoundError:
        raise errors.NotFound(f"cannot make {path}: the directory above it does not exist") from None
    try:
        with contextlib.ExitStack() as opened:
            home = opened.enter_context(files.open_directory(making))
            for name in (CHUNKS, CONSUMERS):
                files.make_directory(f"{making}/{name}", home)
                os.fsync(opened.enter_context(files.open_directory(f"{making}/{name}", above=home)))
            files.make_file(home, CONTROL, _native.format_control(hello.queue_id), making, "control")
            control = os.stat(CONTROL, dir_fd=home, follow_symlinks=False)
            page = _native.format_queue(hello.queue_id, hello.made_ns, hello.options)
            content = page + _native.format_journal(_journal(hello.state, control))
            files.make_file(home, QUEUE, content.ljust(_native.QUEUE_BYTES, b"\0"), making, "queue")
            os.fsync(home)
        with files.open_plainly(os.path.dirname(path)) as above:
            if not _native.rename_new(above, os.path.basename(making), os.path.basename(path)):
                raise errors.Unsafe(f"cannot make {path}: something is there; nothing was changed")
            os.fsync(above)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def _journal(state: State, control: os.stat_result) -> _native.Journal:
    return _native.Journal(
        sequence=1,
        epoch=state.epoch,
        ceiling=state.ceiling,
        first_live=state.first_live,
        first_index=state.first_index,
        device=control.st_dev,
        inode=control.st_ino,
        max_messages=state.max_messages,
        max_bytes=state.max_bytes,
        dropped=state.dropped,
        flags=_native.JOURNAL_FOLLOWER | state.flags & KEPT_FLAGS,
        boot_id=boots.boot_id(),
        changed=state.changed,
    )
