"""What comes along with the messages of a queue to one that follows it: its journal, its small files, its consumers."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from shmq import ending, errors
from shmq.replica import places
from shmq.replica.seed import KEPT_FLAGS
from shmq.storage import eras, files, pins, records, sync
from shmq.storage.paths import DEDUP, DEDUP_NEW, FORWARDED, FORWARDED_NEW, LEDGER, LEDGER_NEW, UPSTREAM, UPSTREAM_NEW

if TYPE_CHECKING:
    from shmq import _native
    from shmq.replica.pieces import Beside, Clock, Places, State
    from shmq.session import Session
    from shmq.storage.directory import Directory

_NEW_PLACE = "place.new"
_NEW = {DEDUP: DEDUP_NEW, LEDGER: LEDGER_NEW, FORWARDED: FORWARDED_NEW}


def take_state(session: Session, state: State) -> None:
    """What the journal of the other queue says; and what was retired there goes here, unless a reader pins it."""
    home, control = session.home, session.joined().control
    with home.admin():
        journal = home.read_journal()
        first = _first_to_stay(home, state, journal)
        home.write_journal(
            journal._replace(
                epoch=max(journal.epoch, state.epoch),
                ceiling=max(journal.ceiling, state.ceiling),
                first_live=first[0],
                first_index=first[1],
                max_messages=state.max_messages,
                max_bytes=state.max_bytes,
                dropped=max(journal.dropped, state.dropped),
                flags=journal.flags & ~KEPT_FLAGS | state.flags & KEPT_FLAGS,
                changed=eras.with_part(state.changed, eras.part_of(journal)),
            )
        )
        control.raise_first_live(first[0])
        for sequence, base in home.chunk_names():
            if sequence < first[0]:
                home.drop_chunk(base, sequence)
        control.set_bounds(state.max_messages, state.max_bytes)
        home.note(home.journal)
    ending.take_up(home, control)
    control.wake()


def take_clock(session: Session, clock: Clock) -> None:
    """How far the other clock is from this one, as it was now."""
    home = session.home
    with home.admin():
        records.replace_record(home, UPSTREAM, UPSTREAM_NEW, [clock.ahead_ns, time.time_ns()], "upstream")


def _first_to_stay(home: Directory, state: State, journal: _native.Journal) -> tuple[int, int]:
    """(sequence, base) of the first chunk that stays: never behind the last one that is here."""
    held = pins.floor(home, 0)
    names = [name for name in home.chunk_names() if name[0] >= journal.first_live]
    if not names:
        return state.first_live, state.first_index
    stays = [name for name in names if name[0] <= state.first_live and (held is None or name[1] <= held)]
    return max(stays[-1:] or names[:1])


def take_beside(session: Session, beside: Beside) -> None:
    """
    One of the small files of the other queue.

    Raises:
        Corrupt: no queue has such a file.
    """
    home = session.home
    new = _NEW.get(beside.name)
    if new is None:
        raise errors.Corrupt(f"cannot go on with {home.path}: a file {beside.name!r} came, which no queue has")
    with home.admin():
        _replace(home, home.fd, beside.name, new, beside.content, "home")
        sync.directory(home.fd, "home")


def take_places(session: Session, given: Places) -> None:
    """
    Where the consumers of the other queue stand.

    Raises:
        Corrupt: no consumer name has such a file.
    """
    home = session.home
    if not all(map(places.is_file, [*given.there, *(name for name, _ in given.changed)])):
        raise errors.Corrupt(f"cannot go on with {home.path}: a file came that no consumer name has")
    with home.admin():
        folder = home.consumers
        gone = {name for name in files.names_in(folder) if places.is_file(name)} - set(given.there)
        for name in sorted(gone, key=lambda name: not name.endswith(".checkpoint")):  # which goes first
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        for name, content in given.changed:
            _replace(home, folder, name, _NEW_PLACE, content, "checkpoint")
        sync.directory(folder, "consumers")


def _replace(home: Directory, folder: int, name: str, new: str, content: bytes, what: str) -> None:
    """Replace a small file; *new* is its name until it is whole. Under the administrative lock."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new, dir_fd=folder)
    files.make_file(folder, new, content, home.path, what)
    os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
