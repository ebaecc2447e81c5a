"""
What a group that forwards is known by in other queues: NAME.forward, made when it forwards for the first time.

Its incarnation is what records in those queues say, with the index that the message had here. It is kept over a reboot,
a rename and a copy. A group that is moved begins a new one, for then its messages are to be put again: that is noted
first, with the sequence of the snapshot by which the move becomes true, so that whoever is killed in between leaves
either both or none. Nobody else writes a snapshot meanwhile: `settle` comes first, by whoever joins.
"""

from __future__ import annotations

import contextlib
import os

from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import files, records
from shmq.storage.paths import CONSUMERS

if TYPE_CHECKING:
    from shmq import _native
    from shmq.storage.directory import Directory

ENDING = ".forward"


class Source(NamedTuple):
    """
    A group that forwards.

    Attributes:
        incarnation: 16 bytes.
        targets: where the queues are that it has put into.
        renewed: the incarnation from the snapshot of that `sequence` on; empty when none is to come.
    """

    incarnation: bytes
    targets: list[str]
    renewed: bytes = b""
    sequence: int = 0


def is_one(home: Directory, name: str) -> bool:
    """Whether that group has ever forwarded."""
    try:
        os.stat(f"{name}{ENDING}", dir_fd=home.consumers, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def any_of(home: Directory) -> bool:
    """Whether any group of that queue has ever forwarded."""
    return any(file.endswith(ENDING) for file in files.names_in(home.consumers))


def read(home: Directory, name: str) -> Source | None:
    """
    What that group is known by; None when it has never forwarded.

    Raises:
        Corrupt: the file is damaged.
    """
    try:
        found = records.read_record(home, home.consumers, f"{name}{ENDING}", f"{home.path}/{CONSUMERS}", kind="forward")
    except FileNotFoundError:
        return None
    return Source(*found)


def of(home: Directory, name: str) -> Source:
    """The same, made if there is none: of several who do so, one is believed by all."""
    while (found := read(home, name)) is None:
        _write(home, f"{name}{ENDING}", Source(os.urandom(16), []))
    return found


def add(home: Directory, name: str, place: str) -> Source:
    """Note that it puts into that queue, on the disk."""
    with home.admin():
        found = of(home, name)
        if place not in found.targets:
            found = found._replace(targets=[*found.targets, place])
            _replace(home, name, found)
    return found


def remove(home: Directory, name: str, place: str) -> None:
    """Note that there is no such queue any more."""
    with home.admin():
        found = read(home, name)
        if found is not None and place in found.targets:
            _replace(home, name, found._replace(targets=[each for each in found.targets if each != place]))


def renew(home: Directory, name: str, sequence: int) -> bool:
    """
    Begin a new incarnation with the snapshot of that sequence, if there was one. Under the administrative lock, by
    whoever holds the name alone.
    """
    found = read(home, name)
    if found is not None:
        _replace(home, name, found._replace(renewed=os.urandom(16), sequence=sequence))
    return found is not None


def settle(home: Directory, name: str, checkpoint: _native.Checkpoint) -> None:
    """What a move that was killed has left: the new incarnation if it came so far, else the one before."""
    found = read(home, name) if is_one(home, name) else None
    if found is None or not found.renewed:
        return
    with home.admin():
        settle_alone(home, name, checkpoint)


def settle_alone(home: Directory, name: str, checkpoint: _native.Checkpoint) -> None:
    """The same, under the administrative lock."""
    found = read(home, name)
    if found is not None and found.renewed:
        newest = checkpoint.newest_snapshot()
        moved = newest is not None and newest.sequence >= found.sequence
        _replace(home, name, Source(found.renewed if moved else found.incarnation, found.targets))


def snapshots_by_anybody(home: Directory, name: str) -> bool:
    """
    Whether whoever leads the group commit may write what is done in that group.

    Of one that forwards, what it has put into other queues must be on the disk before: with SYNC it is, before a
    message is done.
    """
    if not is_one(home, name):
        return True
    found = read(home, name)
    return found is None or (home.options.durability.waits and not found.renewed)


def _write(home: Directory, file: str, source: Source) -> None:
    where = f"{home.path}/{CONSUMERS}"
    records.write_record(home.consumers, file, list(source), where, "forward")


def _replace(home: Directory, name: str, source: Source) -> None:
    new = f"{name}{ENDING}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new, dir_fd=home.consumers)
    _write(home, new, source)
    os.rename(new, f"{name}{ENDING}", src_dir_fd=home.consumers, dst_dir_fd=home.consumers)
    records.synced_directory(home.consumers, "forward")
