"""
What was handed over: messages that were staged, are on the disk, and wait for whoever has their token.

The token names the queue, the set's folder, the id of its first chunk and how many indexes it takes. The last two find
it in the queue when the folder has gone, since its chunks are the queue's then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re

from shmq import errors, given
from shmq.hints import TYPE_CHECKING
from shmq.storage import ledger, records, staging

if TYPE_CHECKING:
    from shmq.session import Session
    from shmq.storage.directory import Directory

_TOKEN = re.compile(r"([0-9a-f]{32})-([0-9a-f]{10})-([0-9a-f]{16})-([0-9a-f]{1,16})")


@dataclasses.dataclass(frozen=True)
class HandedOver:
    """
    Messages that were staged and handed over, and are in no queue yet. It pickles.

    Attributes:
        token: what `Staged.hand_over` returned; `Queue.adopt` takes it or this.
        owner: for whom it was handed over; empty when it was not said.
        indexes: how many indexes it will take.
        disk_bytes: the size of its files.
        time_ns: when it was handed over, in ns since 1970.
    """

    token: str
    owner: bytes
    indexes: int
    disk_bytes: int
    time_ns: int

    def __len__(self) -> int:
        """How many indexes it will take."""
        return self.indexes

    def __bool__(self) -> bool:
        """True, also when nothing is in it."""
        return True


def token_of(queue_id: bytes, name: str, ids: list[int], counts: list[int]) -> str:
    """
    What stands for a set: queue, name, the id of its first chunk that is adopted, and how many indexes it takes.

    The last two find it in the queue when the set has gone.
    """
    first = next((each for each, count in zip(ids, counts, strict=True) if count), ids[0])
    return f"{queue_id.hex()}-{name}-{first:016x}-{sum(counts):x}"


def describe(queue_id: bytes, name: str, handed: records.Handed) -> HandedOver:
    """What was handed over, for its users."""
    token = token_of(queue_id, name, handed.chunk_ids, handed.counts)
    return HandedOver(token, handed.owner, sum(handed.counts), sum(handed.sizes), handed.time_ns)


def find(home: Directory, token: str) -> tuple[staging.Set, records.Handed]:
    """
    The set of a token.

    Raises:
        ValueError: it is no token.
        Mismatch: it was staged for another queue.
        NotFound: it is not there (any more); the error says where in the queue it is, if it is.
    """
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise ValueError(f"{token!r} is nothing that hand_over() has returned")
    if bytes.fromhex(match[1]) != home.queue_id:
        raise errors.Mismatch(f"cannot adopt into {home.path} what was staged for another queue")
    with contextlib.suppress(FileNotFoundError):
        found, handed = ledger.handed_set(home, match[2])
        if token_of(home.queue_id, found.name, handed.chunk_ids, handed.counts) == token:
            return found, handed
        found.close()
    there = place_of(home, token)
    if there:
        raise errors.NotFound(
            f"{home.path} has nothing staged as {token}: it was adopted, and is in the queue at {there.start} to "
            f"{there.stop - 1}; nothing was adopted now"
        )
    raise errors.NotFound(
        f"{home.path} has nothing staged as {token}: it was swept, or adopted and retired since; nothing was adopted "
        "now"
    )


def place_of(home: Directory, token: str) -> range | None:
    """Where in the queue that is what a token stood for, as far as its first chunk is there; None when it is not."""
    match = _TOKEN.fullmatch(token)
    if match is None or bytes.fromhex(match[1]) != home.queue_id:
        return None
    first, indexes = int(match[3], 16), int(match[4], 16)
    if not indexes:
        return range(0)  # it takes no place
    base = staging.base_of(home, first)
    return None if base is None else range(base, base + indexes)


def sets(session: Session, owner: str | bytes | None) -> list[HandedOver]:
    """As `Queue.staged_sets`."""
    raw = None if owner is None else given.producer(owner, "owner")
    return [
        describe(session.home.queue_id, name, handed)
        for name, handed in ledger.handed_sets(session.home, session.chain())
        if handed is not None and raw in (None, handed.owner)
    ]


def sweep(session: Session, older_than: float | None, owner: str | bytes | None) -> int:
    """As `Queue.sweep_staged`."""
    session.refuse_read_only("sweep")
    if owner is None and older_than is None:
        raise ValueError("sweep_staged() would remove what somebody is about to adopt: give older_than= or owner=")
    raw = None if owner is None else given.producer(owner, "owner")
    age_ns = 0 if older_than is None else int(given.seconds("older_than", older_than, none=True) * 1e9)

    def unwanted(handed: records.Handed | None) -> bool:
        if handed is None:
            return raw is None
        return raw in (None, handed.owner) and handed.age_ns() >= age_ns

    with session.home.admin():
        ledger.fold(session.home, session.chain())
        return ledger.remove_handed(session.home, session.chain(), unwanted)
