"""
What the files and folders of a queue are called.

    queue.shmq       what the queue is: id, options, epoch          linked last: with it, the queue exists
    control.shmq     who is here: slots, bell, counters
    admin.lock       for rare, exclusive actions (an OFD lock on its first byte)
    deleted.shmq     what queue.shmq becomes when the queue is being deleted: with that rename it is gone
    chunks/          <base index, 16 hex>-<sequence, 8 hex>.chunk
    consumers/       <name>.checkpoint
    staging/         chunks built aside (staging.py); there once something was staged
    ledger.shmq      which batches were adopted
    dedup.shmq       which were put, in the chunks before the one it names
    forwarded.shmq   how far the groups are done that have put here what they forward
    upstream.shmq    of a follower: how far its clock is from that of the queue that it follows
    marks.shmq       how far each follower's disk agrees, where puts wait for that
    aside/           what recovery found behind a cut; nobody reads it any more
"""

from __future__ import annotations

from shmq import given

QUEUE, CONTROL, ADMIN, CHUNKS, CONSUMERS = "queue.shmq", "control.shmq", "admin.lock", "chunks", "consumers"
DELETED = "deleted.shmq"
STAGING, LEDGER, LEDGER_NEW, ASIDE = "staging", "ledger.shmq", "ledger.new", "aside"
DEDUP, DEDUP_NEW = "dedup.shmq", "dedup.new"
FORWARDED, FORWARDED_NEW = "forwarded.shmq", "forwarded.new"
UPSTREAM, UPSTREAM_NEW = "upstream.shmq", "upstream.new"
MARKS = "marks.shmq"
_HEX = frozenset("0123456789abcdef")
_BASE_DIGITS, _SEQUENCE_DIGITS = 16, 8
FOLLOWERS = "replica."
"""What the names begin with that hold back what followers lack."""
_CONSUMER_NAME_LENGTH = 64


def chunk_name(base: int, sequence: int) -> str:
    """The file name of a chunk."""
    return f"{base:016x}-{sequence:08x}.chunk"


def parse_chunk_name(name: str) -> tuple[int, int] | None:
    """(sequence, base) of a chunk by its file's name; None when it is no chunk's."""
    base, _, rest = name.partition("-")
    sequence, _, ending = rest.partition(".")
    is_one = (len(base), len(sequence), ending) == (_BASE_DIGITS, _SEQUENCE_DIGITS, "chunk")
    return (int(sequence, 16), int(base, 16)) if is_one and _HEX.issuperset(base + sequence) else None


def is_consumer_name(name: str) -> bool:
    """Whether a consumer may be called so."""
    return given.is_name(name, _CONSUMER_NAME_LENGTH)


def check_consumer_name(name: str) -> str:
    """
    The name itself, if it is one.

    Raises:
        TypeError, ValueError: it is not 1 to 64 of A-Z a-z 0-9 _ . - or begins with a dot.
    """
    if not is_consumer_name(given.text("name", name, "a str, the name of a consumer,")):
        raise ValueError(f"{name!r} is not a consumer name: 1 to 64 of A-Z a-z 0-9 _ . - and no dot in front")
    return name
