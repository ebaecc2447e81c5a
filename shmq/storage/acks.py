"""
What is true of a consumer name after a power cut: the two snapshots in its checkpoint.

The live words of a checkpoint, and a group's ring, survive the death of a process and carry no checksum, so after a
power cut only a snapshot is believed. It is taken as leader of the group commit: the slot that is not the newest valid
one is overwritten, and only once the newest is on the disk. An acknowledgement later than that is forgotten, none is
invented.

Whoever acknowledges in a SYNC queue counts up `acks_asked` in the checkpoint and waits. The next leader, whoever it is,
reads that count, takes the snapshot, syncs it and answers up to that count: so one snapshot answers all members of a
group, and the files of several names are written together, before the first of them is waited for.
"""

from __future__ import annotations

import contextlib

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import files, sources, sync
from shmq.storage import ring as rings
from shmq.storage.paths import CONSUMERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.storage.directory import Directory

_ENDING = ".checkpoint"


class Name:
    """One consumer name, mapped by whoever may have to take its snapshot."""

    def __init__(self, home: Directory, name: str) -> None:
        self.file = f"{name}{_ENDING}"
        self.checkpoint = home.checkpoint(name, writable=True)
        self._home = home
        self._name = name
        self._ring: _native.Ring | None = None
        self.fit()

    def fit(self) -> None:
        """Map a group's ring as large as it is now."""
        if self.checkpoint.ring and (self._ring is None or self._ring.side_blocks() > self._ring.blocks):
            memory = rings.map_ring(self._home, self._name, writable=True)
            path = f"{self._home.path}/{CONSUMERS}/{self._name}.ring"
            self._ring = _native.Ring(memory, self._home.queue_id, self.checkpoint, None, path)

    def fix(self) -> bytes:
        """Of a group: the content of its next snapshot, as it is now."""
        while True:
            self.fit()
            assert self._ring is not None  # noqa: S101  # it is a group
            content = self._ring.fix(self._home.journal.epoch)
            if content is not None:
                return content

    def write(self, fd: int) -> int:
        """What is true now, into the slot that may be written: the newest one's sequence; or GROW, and nothing is."""
        before, checkpoint = self.checkpoint.newest_snapshot(), self.checkpoint
        if before is not None and before.sequence != checkpoint.snapshot_synced():
            sync.data(fd, "snapshot")  # who wrote it may have been killed before that
            checkpoint.publish(0, before.sequence)
        epoch = self._home.journal.epoch
        if self._ring is not None:
            content = self._ring.fix(epoch)  # first: whoever forwards for the first time has said so before it is done
            if content is None or not sources.snapshots_by_anybody(self._home, self._name):
                return _native.GROW
            sequence = checkpoint.write_fixed(content)
            return _native.GROW if sequence is None else sequence
        head = checkpoint.head
        if before is not None and (before.head, before.epoch) == (head, epoch):
            return before.sequence
        sequence = 1 if before is None else before.sequence + 1
        content = _native.format_snapshot(_native.Snapshot(sequence, epoch, head))
        at = _native.SNAPSHOT_BASE + _native.SNAPSHOT_BYTES * (1 - sequence % 2)
        sync.write(fd, content, at, "snapshot")
        return sequence


class _Asked(NamedTuple):
    """A name whose snapshot is to be taken: how many had asked before, and its checkpoint, open."""

    name: Name
    asked: int
    fd: _native.Fd


class Names:
    """
    The names of a queue as one handle has them mapped. For the leader of the group commit, who syncs them for all.

    Which files are there is looked up each time, since a name may be dropped and made again.
    """

    def __init__(self, home: Directory) -> None:
        """Nothing is mapped yet."""
        self._home = home
        self._known: dict[str, tuple[int, Name]] = {}

    @contextlib.contextmanager
    def opened(self, *, everything: bool = False, own: str | None = None) -> Iterator[Asked]:
        """
        Those of which somebody has asked, or all; *own* in any case. Others that cannot be opened are not answered.

        Raises:
            OSError, ShmqError: *own* cannot be opened, or was dropped.
        """
        found: list[_Asked] = []
        try:
            for name, inode in self._there().items():
                try:
                    known = self._mapped(name, inode)
                    asked = known.checkpoint.asked()  # before its snapshot is taken
                    if everything or name == own or asked != known.checkpoint.answered():
                        known.fit()
                        fd, _ = self._home.open(self._home.consumers, known.file, writable=True)
                        found.append(_Asked(known, asked, fd))
                except (OSError, errors.ShmqError):
                    if name == own:
                        raise
            if own is not None and own not in self._known:
                raise errors.NotFound(f"consumer {own!r} of {self._home.path} was dropped")
            yield Asked(self._home, found, everything=everything)
        finally:
            for one in found:
                one.fd.close()

    def _there(self) -> dict[str, int]:
        found = files.inodes_in(self._home.consumers)
        there = {name.removesuffix(_ENDING): inode for name, inode in found.items() if name.endswith(_ENDING)}
        for gone in self._known.keys() - there.keys():
            del self._known[gone]
        return dict(sorted(there.items()))

    def _mapped(self, name: str, inode: int) -> Name:
        before, known = self._known.get(name, (0, None))
        if known is None or before != inode:
            known = Name(self._home, name)
            self._known[name] = inode, known
        return known


class Asked:
    """
    Names whose acknowledgements are to be on the disk, as far as they went when this was made. Any OSError from here is
    the disk's refusal: the snapshots that were on it before still say what they said.
    """

    def __init__(self, home: Directory, found: list[_Asked], *, everything: bool) -> None:
        """By `Names.opened`."""
        self._home = home
        self._found = found
        self._everything = everything
        self._written: list[tuple[_Asked, int]] = []

    def write(self) -> None:
        """Take their snapshots, and have the kernel begin to write all of them, beside whatever is synced next."""
        for one in self._found:
            sequence = one.name.write(one.fd)
            if sequence != _native.GROW:  # else whoever has asked asks again
                self._written.append((one, sequence))
        for one, sequence in self._written:
            if sequence != one.name.checkpoint.snapshot_synced():
                sync.start(one.fd, "snapshot")

    def sync(self) -> None:
        """Have them on the disk, and their names if it is all of them; answer up to what was asked."""
        for one, sequence in self._written:
            if sequence != one.name.checkpoint.snapshot_synced():
                sync.data(one.fd, "snapshot")
            one.name.checkpoint.publish(one.asked, sequence)
        if self._everything and self._found:
            sync.directory(self._home.consumers, "consumers")


def of_member(
    home: Directory, member: _native.Member, name: str, checkpoint: _native.Checkpoint, ring: _native.Ring
) -> None:
    """
    The snapshot that a group's member takes now and then; none while somebody leads the group commit, or is at one.

    It is on the disk when the kernel has written it, or whoever takes the next one.

    Raises:
        OSError: the disk refused. The newest snapshot still says what it said.
    """
    if home.small:  # no power cut leaves anything of it
        return
    leading, papers = _native.new_leading(), _native.new_leading()
    try:
        if not (member.try_lead(leading) and member.take_papers(papers)):
            return
        fd, _ = home.open(home.consumers, f"{name}{_ENDING}", writable=True)
        with fd:
            before = checkpoint.newest_snapshot()
            if before is not None and before.sequence != checkpoint.snapshot_synced():
                sync.data(fd, "snapshot")  # before the other is written over
                checkpoint.publish(0, before.sequence)
            content = ring.fix(home.journal.epoch)
            if content is None:
                ring.remap(rings.map_ring(home, name, writable=True))  # the next one will be taken
            elif sources.snapshots_by_anybody(home, name):
                checkpoint.write_fixed(content)
            sync.start(fd, "snapshot")
    finally:
        member.give_papers(papers)
        member.stop_leading(leading)


def write_fixed(home: Directory, member: _native.Member, name: str, known: Name, content: bytes) -> bool:
    """
    Have the snapshot with that content on the disk; False when somebody leads the group commit, or wrote another since.

    Raises:
        OSError: the disk refused.
    """
    leading, papers = _native.new_leading(), _native.new_leading()
    checkpoint = known.checkpoint
    try:
        if not (member.try_lead(leading) and member.take_papers(papers)):
            return False
        fd, _ = home.open(home.consumers, f"{name}{_ENDING}", writable=True)
        with fd:
            before = checkpoint.newest_snapshot()
            if before is not None and before.sequence != checkpoint.snapshot_synced():
                sync.data(fd, "snapshot")  # before the other is written over
                checkpoint.publish(0, before.sequence)
            sequence = checkpoint.write_fixed(content)
            if sequence is None:
                return False
            sync.data(fd, "snapshot")
            checkpoint.publish(0, sequence)
            return True
    finally:
        member.give_papers(papers)
        member.stop_leading(leading)
