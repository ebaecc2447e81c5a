"""What a queue and its consumers are at, in figures. Imported by whoever asks for them."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class GroupStats:
    """
    What a group is at.

    Attributes:
        pending: messages handed out and not finished.
        returned: messages that came back and that nobody has yet.
        parked: messages that wait for their time, or for one before them of their key, outside the window.
        waiting: messages in the window that wait for one before them of their key.
        window: messages that may be in flight.
        full: whether somebody waits because so many are; acknowledge, or make another name with a larger window.
        redelivered, expired, moved: since this boot: messages that came back from the dead or by a lease that ended;
            that were too old; that went to the dead letters.
    """

    pending: int
    returned: int
    parked: int
    window: int
    full: bool
    redelivered: int
    expired: int
    moved: int
    waiting: int = 0


@dataclasses.dataclass(frozen=True)
class ConsumerStats:
    """One consumer name: head, distance from the end, ack mode, how much was dropped for it; more if it is a group."""

    head: int
    lag: int
    ack: str
    dropped: int = 0
    group: GroupStats | None = None


@dataclasses.dataclass(frozen=True)
class Stats:
    """
    What is in a queue and who is at it, as it was while looking.

    Attributes:
        first_index, next_index: the indexes there are; next_index is the next put's.
        chunks, disk_bytes: chunk files, and bytes the file system counts for all files.
        padded: indexes there are that a dead or aborted claim took.
        fenced: commits that came too late, since the queue was made or the machine booted.
        participants: processes that have it open.
        consumers: by name.
        max_messages, max_bytes: its bounds; None without.
    """

    first_index: int
    next_index: int
    chunks: int
    disk_bytes: int
    padded: int
    fenced: int
    participants: int
    consumers: dict[str, ConsumerStats]
    max_messages: int | None
    max_bytes: int | None
