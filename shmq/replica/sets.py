"""Chunks that were adopted together, as they come: they are staged aside until the SEAL that names them is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq import errors
from shmq.replica.arriving import Checked, Whole
from shmq.storage import ledger, staging, sync
from shmq.storage.records import Manifest

if TYPE_CHECKING:
    from shmq.replica.pieces import Begin
    from shmq.session import Session
    from shmq.storage.directory import Directory


class _Set:
    def __init__(self, home: Directory, adoption: int) -> None:
        self.staged = staging.Set(home, adoption)
        self.manifest = Manifest(b"", 0, [], [], [], [])


class Sets:
    """Those that have begun to come, and are not adopted yet."""

    def __init__(self) -> None:
        """None has."""
        self._sets: dict[int, _Set] = {}
        self._last: _Set | None = None

    def forget(self) -> None:
        """What has come of them will come again."""
        for each in self._sets.values():
            each.staged.forget()
            each.staged.close()
        self._sets.clear()
        self._last = None

    def begin(self, session: Session, begin: Begin) -> Whole:
        """
        A chunk of one begins.

        Raises:
            Corrupt: it is not the next one of its set.
            Busy: somebody holds that set.
            DiskFull: there is no room.
        """
        home = session.home
        there = self._sets.get(begin.adoption)
        if there is None:
            there = _Set(home, begin.adoption)
            if not there.staged.begin():  # left by whoever was killed
                with home.admin():
                    ledger.fold(home, session.chain())
                there = _Set(home, begin.adoption)
                if not there.staged.begin():
                    raise errors.Busy(f"cannot go on with {home.path}: somebody holds {there.staged.path}")
            self._sets[begin.adoption] = there
            there.staged.make_room()
        if begin.sequence != len(there.manifest.files):
            raise errors.Corrupt(f"cannot go on with {home.path}: chunk {begin.sequence} of a set came out of turn")
        self._last = there
        return Whole(home, there.staged.fd, begin)

    def add(self, whole: Whole, found: Checked) -> None:
        """All of that chunk has come."""
        there = self._last
        assert there is not None  # noqa: S101  # it began
        name = f"{whole.begin.sequence:08x}.chunk"
        whole.name(name)
        manifest = there.manifest
        manifest.files.append(name)
        manifest.chunk_ids.append(whole.begin.chunk_id)
        manifest.counts.append(found.ordinal)
        manifest.sizes.append(whole.begin.size)

    def commit(self, home: Directory, adoption: int) -> None:
        """
        All chunks of a set have come.

        Raises:
            Corrupt: none has.
        """
        self.refuse_unknown(home, adoption)
        there = self._sets[adoption]
        sync.directory(there.staged.fd, "set")
        there.staged.commit_manifest(there.manifest)

    def refuse_unknown(self, home: Directory, adoption: int) -> None:
        """
        Refuse a set of which no chunk has come.

        Raises:
            Corrupt: it is one.
        """
        if adoption not in self._sets:
            raise errors.Corrupt(f"cannot go on with {home.path}: a set is named of which nothing has come")

    def finish(self, adoption: int) -> None:
        """It is adopted."""
        self._sets.pop(adoption).staged.close()
