"""
What a group is made with: its options, which of them are refused, and how a new group is made.

They are kept beside its ring (storage/ring.py) and stay as they are; each member that joins is compared with them.
"""

from __future__ import annotations

from shmq import _native, given
from shmq.hints import TYPE_CHECKING
from shmq.storage import pins
from shmq.storage import ring as rings
from shmq.storage.subscriptions import EVERYTHING
from shmq.taking import names

if TYPE_CHECKING:
    import datetime
    from typing import Any

    from shmq.reading.access import Access
    from shmq.session import Session
    from shmq.storage.directory import Directory
    from shmq.storage.subscriptions import Subscription

WINDOW_MIN, WINDOW = 64, _native.RING_WINDOW
DEFAULTS: dict[str, Any] = {
    "lease": None,
    "max_attempts": None,
    "dead_letter": None,
    "expire_to": None,
    "ordered_by": None,
}


def make(
    session: Session,
    name: str,
    *,
    explicit: bool,
    start: str | float | datetime.datetime,
    options: dict[str, Any],
    window: int | None,
    kind: int = _native.CHECKPOINT_GROUP,
    hold: bool | str = False,
    subscription: Subscription = EVERYTHING,
) -> _native.Lock | None:
    """
    Make the group *name*, which is not there, or a lone consumer of that *kind*. Under the administrative lock.

    What it returns holds the name, if it goes with its holder.

    Raises:
        ValueError: of the options, one contradicts how it acknowledges.
        IndexError: *start* is beyond the end of the queue, or negative.
    """
    check_order(options, explicit=explicit)
    check_lease(options, explicit=explicit)
    stored = {**DEFAULTS, **options, "ack": "explicit" if explicit else "auto"}
    index = there(names.start_index(session, start), session.home, session.joined().control, session.access())
    pins.set_hold(session.home, name, hold=hold)  # there may be one left by a name that was dropped
    rings.make(session.home, name, stored, WINDOW if window is None else window)
    return names.make_checkpoint(session.home, name, index, explicit=explicit, kind=kind, subscription=subscription)


def there(index: int, home: Directory, control: _native.Control, access: Access) -> int:
    """Where to begin instead of *index*: behind what was dropped, purged, or has gone since all had finished it."""
    index = max(index, control.bounds().dropped)
    return max(index, access.first_index()) if home.options.retention.kind == "acked" else index


def check_options(offered: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, after refusing what means nothing."""
    options = {name: value for name, value in offered.items() if value is not None}
    lease, attempts = options.get("lease"), options.get("max_attempts")
    if lease is not None:
        options["lease"] = given.seconds("lease", lease, hint="; None to keep messages for ever")
    if attempts is not None:
        options["max_attempts"] = given.whole("max_attempts", attempts, 1, (1 << 16) - 1)
    if given.text("ordered_by", options.get("ordered_by", "key")) != "key":
        raise ValueError(f'ordered_by={options["ordered_by"]!r}: "key", or None for no order')
    for name in ("dead_letter", "expire_to"):
        given.text(name, options.get(name, ""), "the path of a queue")
    return options


def check_order(options: dict[str, Any], *, explicit: bool) -> None:
    """
    Refuse a group that would have an order and cannot keep it.

    Raises:
        ValueError: it is one.
    """
    if options.get("ordered_by") is not None and not explicit:
        raise ValueError(
            'ordered_by="key" needs ack="explicit": with "auto" a message is finished when it is handed out, and the '
            "next of its key would go to another worker at once"
        )


def check_lease(options: dict[str, Any], *, explicit: bool) -> None:
    """
    Refuse a lease where nothing is held.

    Raises:
        ValueError: it is there.
    """
    if options.get("lease") is not None and not explicit:
        raise ValueError(
            'lease= needs ack="explicit": with "auto" a message is finished when it is handed out, and nobody keeps it'
        )


def check_window(window: int | None) -> int | None:
    """A window, if it can be one; None for the default, or that of the group that is there."""
    if window is None:
        return None
    size = given.whole("window", window, WINDOW_MIN, WINDOW)
    if size & (size - 1):
        raise ValueError(f"window={size}: a power of two from {WINDOW_MIN} to {WINDOW}")
    return size
