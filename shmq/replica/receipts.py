"""
What a follower signs when it is fenced: how far it is, of which history, and to which follower it has given its vote.

A receipt is a line that can be pasted: a word that says what it is, and behind that, in letters, a msgpack array and
its CRC-32C. It is no secret, and no proof against whoever forges it: who may promote may do anything.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated

import msgspec

from shmq import _native, errors
from shmq.replica import history
from shmq.replica.arriving import end_of

if TYPE_CHECKING:
    from shmq.storage.directory import Directory
    from shmq.storage.eras import Era, Part

_WORD = "shmq-receipt-1-"
_CRC_BYTES = 4
_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Receipt(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Of one follower, when it was fenced."""

    queue_id: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    era: _Number
    era_id: str
    name: str
    identity: str
    fence: str
    given: str
    """Which follower may be promoted by it; empty: none."""
    chain: list[tuple[_Number, _Number, Annotated[int, msgspec.Meta(ge=0)]]]
    """(sequence, base, id) of its last two chunks."""
    position: _Number
    ordinal: _Number
    digest: _Number
    """Of the last chunk up to there; shmq/replica/history.py."""

    @property
    def end(self) -> int:
        """The index behind all that it has."""
        return self.chain[-1][1] + self.ordinal if self.chain else 0

    def line(self) -> str:
        """As it is printed."""
        body = msgspec.msgpack.encode(self)
        return _WORD + base64.urlsafe_b64encode(_native.crc32c(body).to_bytes(_CRC_BYTES, "little") + body).decode()


def read(line: str) -> Receipt:
    """
    What a line says.

    Raises:
        BadFormat: it is no receipt, or a part of one.
    """
    word = line.strip()
    try:
        content = base64.b64decode(word.removeprefix(_WORD), altchars=b"-_", validate=True)
        body = content[_CRC_BYTES:]
        if not word.startswith(_WORD) or _native.crc32c(body).to_bytes(_CRC_BYTES, "little") != content[:_CRC_BYTES]:
            raise ValueError("its checksum differs")  # told below, as all that it can be
        return msgspec.msgpack.decode(body, type=Receipt)
    except (ValueError, msgspec.MsgspecError, RecursionError) as problem:
        raise errors.BadFormat(f"{word[:32]!r} is no receipt of a follower, or not all of it ({problem})") from None


def of(home: Directory, era: Era, part: Part) -> Receipt:
    """
    That of a follower as it is now, whose fence and vote are on the disk.

    Raises:
        Corrupt: something in it is damaged.
    """
    chain = history.ids(home, home.journal.first_live)[-2:]
    position = ordinal = digest = 0
    if chain:
        sequence, base, _ = chain[-1]
        position, ordinal, _ = end_of(home, sequence, base)
        digest = history.digest_of(home, sequence, base, position)
    told = home.queue_id, era.number, era.id, part.name, part.id, part.fence, part.given
    return Receipt(*told, chain, position, ordinal, digest)


def refuse_other_history(home: Directory, receipt: Receipt, mine: Receipt) -> None:
    """
    Refuse a receipt whose follower has not the beginning of what is here.

    Raises:
        Mismatch: it has more, or something else.
    """
    if receipt.end > mine.end:
        raise errors.Mismatch(
            f"cannot promote {home.path}: {receipt.name!r} has all before index {receipt.end:,}, and this one ends at "
            f"{mine.end:,}: promote that one; nothing was changed"
        )
    here = {sequence: (base, chunk_id) for sequence, base, chunk_id in history.ids(home, home.journal.first_live)}
    last = len(receipt.chain) - 1
    for number, (sequence, base, chunk_id) in enumerate(receipt.chain):
        if sequence < home.journal.first_live or (number == last and sequence not in here and not receipt.ordinal):
            continue  # retired here; or begun there, with nothing in it
        if here.get(sequence) != (base, chunk_id):
            raise _differs(home, receipt)
        ends_here = number == last and receipt.position
        if ends_here and history.digest_of(home, sequence, base, receipt.position) != receipt.digest:
            raise _differs(home, receipt)


def _differs(home: Directory, receipt: Receipt) -> errors.Mismatch:
    return errors.Mismatch(
        f"cannot promote {home.path}: {receipt.name!r} has another history; nothing was changed. Whoever was put into "
        "apart from the others is begun anew"
    )
