"""
How far the disks of a queue's followers agree: one file of marks, for all processes that put.

Whoever replicates to a follower stores its mark, and rings the bell behind that. Marks are of one epoch of the queue,
and so of one history: in the next one they are all unknown until each follower has been met again, whose history is
compared then. So they are never synced, and a copy of the file beside older chunks says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq import _native
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
        files.make_file(home.fd, MARKS, _native.Marks.format(home.journal.epoch), home.path)
        self._marks = _opened(home)
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
    if not files.is_there(home.fd, MARKS):
        return
    found = _opened(home)
    for number in range(len(home.options.durability.followers)):
        if found.epoch == home.journal.epoch and found[number] > end:
            found[number] = 0


def _opened(home: Directory) -> _native.Marks:
    fd, size = home.open(home.fd, MARKS, writable=True)
    with fd:
        return _native.Marks(fd, size, f"{home.path}/{MARKS}", writable=True)


def followers_of(home: Directory) -> Followers | None:
    """Those of that queue; None where no put waits for them, or nobody puts."""
    if home.options.durability.kind != "replicated" or home.journal.flags & _native.JOURNAL_FOLLOWER:
        return None
    return Followers(home)
