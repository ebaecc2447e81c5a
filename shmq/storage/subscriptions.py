"""
NAME.subscription: what a consumer name was made with besides its way to acknowledge: a filter, and when it goes.

Made under the administrative lock, before the checkpoint, which says that there is one: with the checkpoint the name
exists. It stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import struct

from shmq import _native, errors
from shmq.filter import Filter
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import files, small_json, sync
from shmq.storage.paths import CONSUMERS

if TYPE_CHECKING:
    from typing import Any

    from shmq.storage.directory import Directory

_FILE = struct.Struct("<Q16sII")  # layout.h, struct subscription_file
_MAGIC = int.from_bytes(b"shmqsubs", "little")
MAX = 1 << 20
ENDING = ".subscription"


class Subscription(NamedTuple):
    """
    What a name was made with.

    Attributes:
        filter: which messages it wants; None for all.
        ephemeral: whether it goes with its holder.
        expires: seconds without a holder after which it goes; None for never.
    """

    filter: Filter | None = None
    ephemeral: bool = False
    expires: float | None = None

    def goes(self) -> bool:
        """Whether the name goes by itself."""
        return self.ephemeral or self.expires is not None

    def says_something(self) -> bool:
        """Whether there is anything to be stored."""
        return self != EVERYTHING


EVERYTHING = Subscription()


def make(home: Directory, name: str, subscription: Subscription) -> None:
    """Make the file of a new name, if it needs one; what a killed creation has left goes. Under the lock."""
    if subscription.says_something():
        remove(home, name)
        stored = _dumps(subscription)
        header = _FILE.pack(_MAGIC, home.queue_id, len(stored), _native.crc32c(stored))
        where = f"{home.path}/{CONSUMERS}"
        content = header + stored
        files.make_file(home.consumers, f"{name}{ENDING}", content, where, "subscription")
        sync.directory(home.consumers, "consumers")


def _dumps(subscription: Subscription) -> bytes:
    parts = {
        "filter": subscription.filter and subscription.filter.stored(),
        "ephemeral": subscription.ephemeral or None,
        "expires": subscription.expires,
    }
    said = {name: part for name, part in parts.items() if part is not None}
    return small_json.dumps(said, sort_keys=True)


def remove(home: Directory, name: str) -> None:
    """Unlink it, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{name}{ENDING}", dir_fd=home.consumers)


def read(home: Directory, name: str, checkpoint: _native.Checkpoint) -> Subscription:
    """
    What the name with that checkpoint was made with.

    Raises:
        FileNotFoundError: the name was dropped meanwhile.
        Corrupt: the file says nothing that can be believed.
        BadFormat: it says something that this version does not know.
    """
    if not checkpoint.subscribed:
        return EVERYTHING
    where = f"{home.path}/{CONSUMERS}/{name}{ENDING}"
    advice = f"drop_consumer({name!r}) removes the name, so that it can start again"
    try:
        said = _said(home, home.read(home.consumers, f"{name}{ENDING}", MAX))
        wanted = said.pop("filter", None)
        ephemeral, expires = said.pop("ephemeral", False), said.pop("expires", None)
        if said:
            raise errors.BadFormat(f"this version of shmq knows no {', '.join(map(repr, sorted(said)))}")
        if type(ephemeral) is not bool or not (
            expires is None or (type(expires) in (int, float) and 0 < expires < 1e12)
        ):
            raise TypeError("it does not say when the name goes")
        return Subscription(None if wanted is None else Filter.from_stored(wanted), ephemeral, expires)
    except FileNotFoundError:
        if not home.checkpoint(name).subscribed:  # or there is none: it was dropped meanwhile
            raise
        raise errors.Corrupt(f"cannot open {where}: it is missing; {advice}") from None
    except errors.BadFormat as problem:
        raise errors.BadFormat(f"cannot open {where}: {problem}; it was not touched") from None
    except (ValueError, TypeError, RecursionError, OverflowError) as problem:
        raise errors.Corrupt(f"cannot open {where}: {problem}; {advice}") from None


def _said(home: Directory, content: bytes) -> dict[str, Any]:
    if len(content) < _FILE.size:
        raise ValueError("it is too short")
    magic, queue_id, length, crc = _FILE.unpack_from(content)
    stored = content[_FILE.size :]
    if magic != _MAGIC or length != len(stored) or crc != _native.crc32c(stored):
        raise ValueError("it fails its checksum")
    if queue_id != home.queue_id:
        raise ValueError("it belongs to another queue")
    said = small_json.loads(stored)
    if not isinstance(said, dict):
        raise TypeError("it is not a subscription")
    return said


def content_for(home: Directory, name: str, queue_id: bytes) -> bytes:
    """What the file of that name says, as that of another queue."""
    stored = home.read(home.consumers, f"{name}{ENDING}", MAX)
    return stored[:8] + queue_id + stored[24:]
