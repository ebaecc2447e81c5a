"""
How far the disks of a queue's followers agree: one file of marks, for all processes that put.

Whoever replicates to a follower stores its mark, and rings the bell behind that. Marks are of one epoch of the queue,
and so of one history: in the next one they are all unknown until each follower has been met again, whose history is
compared then. So they are never synced, and a copy of the file beside older chunks says nothing.
"""

from __future__ import annotations

import contextlib
import os

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING
from shmq.storage import files
from shmq.storage.paths import MARKS

if TYPE_CHECKING:
    from shmq.storage.directory import Directory


class Followers:
    """The marks of a queue's followers, in one process."""

    def __init__(self, home: Directory) -> None:
        """Make the file if there is none, and begin it anew if it is of another epoch."""
        durability = home.options.durability
        self._n, self.names = durability.n, durability.followers
        self._marks = _opened(home) or _made(home)
        if self._marks.epoch != home.journal.epoch:
            with home.admin():
                epoch = home.read_journal().epoch
                if self._marks.epoch != epoch:
                    self._marks.begin(epoch)

    def mark(self, name: str) -> int:
        """Before which index all is on the disk of that follower, as far as is known."""
        return self._marks[self.names.index(name)]

    def store(self, name: str, index: int) -> None:
        """Say so, forward alone. For whoever replicates to it, who is alone."""
        if index > self.mark(name):
            self._marks[self.names.index(name)] = index

    def sure(self) -> int:
        """Before which index all is on the disks of n of them."""
        marks = sorted((self._marks[number] for number in range(len(self.names))), reverse=True)
        return marks[self._n - 1]


def doubt(home: Directory, end: int) -> None:
    """
    Forget the marks that cannot be true of a queue that ends there: it was restored from an older copy. For whoever
    opens it, before the first put.
    """
    found = _opened(home)
    if found is None or found.epoch != home.journal.epoch:
        return
    for number in range(len(home.options.durability.followers)):
        if found[number] > end:
            found[number] = 0


def _opened(home: Directory) -> _native.Marks | None:
    """The file; None where there is none, or but its name, which is what a power cut may leave."""
    try:
        writable = not home.read_only
        fd, size = home.open(home.fd, MARKS, writable=writable)
        with fd:
            return _native.Marks(fd, size, f"{home.path}/{MARKS}", writable=writable)
    except (FileNotFoundError, errors.Corrupt):
        return None


def _made(home: Directory) -> _native.Marks:
    """The file, made anew; or made by somebody else, meanwhile."""
    with home.admin():
        found = _opened(home)
        if found is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(MARKS, dir_fd=home.fd)
            files.make_file(home.fd, MARKS, _native.Marks.format(home.read_journal().epoch), home.path)
            found = _opened(home)
        assert found is not None  # noqa: S101  # it was made, and the lock is ours
        return found


def known(home: Directory) -> dict[str, int]:
    """The mark of each follower of that queue, for whoever looks; none where no put waits for followers."""
    names = home.options.durability.followers
    found = _opened(home) if names else None
    counts = found is not None and found.epoch == home.journal.epoch
    return {name: found[number] if found is not None and counts else 0 for number, name in enumerate(names)}


def followers_of(home: Directory) -> Followers | None:
    """Those of that queue; None where no put waits for them, or nobody puts."""
    if home.options.durability.kind != "replicated" or home.journal.flags & _native.JOURNAL_FOLLOWER:
        return None
    return Followers(home)
