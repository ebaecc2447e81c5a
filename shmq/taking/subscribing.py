"""What a name is made with besides its way to acknowledge: as it was asked for, and as it was stored."""

from __future__ import annotations

import os

from shmq import errors, given
from shmq import filter as filters
from shmq.hints import TYPE_CHECKING
from shmq.storage import subscriptions
from shmq.storage.subscriptions import Subscription

if TYPE_CHECKING:
    from typing import Any

    from shmq import _native
    from shmq.storage.directory import Directory

_EXPIRES_MIN, _EXPIRES_MAX = 0.001, 1e11


def asked(wanted: Any, *, ephemeral: Any, expires: Any) -> Subscription:
    """
    What was asked for, after refusing what means nothing.

    Raises:
        TypeError, ValueError: it means nothing.
    """
    filters.check(wanted)
    given.flag("ephemeral", ephemeral)
    if expires is None:
        return Subscription(wanted, ephemeral, None)
    if ephemeral:
        raise ValueError("expires= and ephemeral=True: an ephemeral name goes with its holder, and has no time left")
    seconds = float(given.seconds("expires", expires, hint="; None for a name that stays"))
    if not _EXPIRES_MIN <= seconds <= _EXPIRES_MAX:
        raise ValueError(f"expires={given.shown(expires)}: from a thousandth of a second to some thousand years")
    return Subscription(wanted, ephemeral, seconds)


def name_for(name: Any, subscription: Subscription) -> str:
    """
    The name, or one that is made up for whoever needs none.

    Raises:
        TypeError: there is none, and it is not to go with its holder.
    """
    if name is None:
        if not subscription.ephemeral:
            raise given.wrong_type("name", name, "a str, the name of a consumer,", "; only ephemeral=True makes one up")
        return f"ephemeral-{os.getpid()}-{os.urandom(6).hex()}"
    return name  # type: ignore[no-any-return]  # it is looked at by whoever knows what names are


def agreed(
    home: Directory, name: str, called: str, checkpoint: _native.Checkpoint, asked_for: Subscription
) -> Subscription:
    """
    What the name was made with.

    Raises:
        Mismatch: it was opened with something else.
        Corrupt, BadFormat: what is stored means nothing, or not to this version.
    """
    stored = subscriptions.read(home, name, checkpoint)
    for option, mine, there in zip(Subscription._fields, asked_for, stored, strict=True):
        if mine not in {None, False} and mine != there:
            raise errors.Mismatch(
                f"cannot open {called} of {home.path} with {option}={mine!r}: it was made with {option}={there!r}; "
                "leave the option out, or use another name"
            )
    return stored
