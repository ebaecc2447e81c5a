"""
What the journal of a queue with followers keeps beside its options, where puts wait for followers.

An era is from one promotion to the next: who follows, and which follower was promoted. It comes
along to each follower before that has a mark. A part is what a follower alone knows: which one it is, that it is
fenced, and who has its receipt.
"""

from __future__ import annotations

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.options import ERA, PART
from shmq.storage import small_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from shmq.options import Durability
    from shmq.storage.directory import Directory

_PROMOTED_MAX = 16
"""So many promotions are remembered."""


class Era(NamedTuple):
    """Of one promotion, or of none yet."""

    number: int
    id: str
    """Of the promotion; empty before the first one. Two may have one number, and one queue is never of both."""
    name: str
    """What whoever is followed is called once it follows."""
    followers: tuple[str, ...]
    base: int = 0
    """What is before that index was there when it began: who has not got it yet has no voice in this era."""
    promoted: tuple[str, ...] = ()
    """Which followers were, the last one last: who gave them a receipt is free of that."""
    known: Mapping[str, str] = {}
    """Which follower it is that each name was first: another one of that name has not what that one has promised."""


class Part(NamedTuple):
    """What a follower is."""

    name: str
    id: str
    begun: bool = False
    """Whether it was admitted in this era, and has what was there when that began: before that it promises nothing."""
    fence: str = ""
    """While it takes nothing of the queue that it followed."""
    given: str = ""
    """Which follower has its receipt: until that one was promoted."""


def first(durability: Durability) -> Era:
    """The era in which a queue is made."""
    return Era(1, "", durability.name, durability.followers)


def era_in(durability: Durability, changed: bytes) -> Era:
    """
    The era that these changed options tell, of a queue of that *durability*.

    Raises:
        Corrupt: they tell something else.
    """
    stored = _loaded(changed).get(ERA)
    if stored is None:
        return first(durability)
    try:
        lists = {name: tuple(map(str, stored[name])) for name in ("followers", "promoted")}
        known = {str(name): str(its_id) for name, its_id in stored["known"].items()}
        return Era(
            int(stored["number"]),
            str(stored["id"]),
            str(stored["name"]),
            base=int(stored["base"]),
            known=known,
            **lists,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise errors.Corrupt(f"a journal tells no era of its followers ({problem!r})") from None


def era_of(home: Directory) -> Era:
    """The era of that queue, as its journal was last read."""
    return era_in(home.made_with.durability, home.journal.changed)


def part_of(journal: _native.Journal) -> Part | None:
    """
    What that follower is; None of what is none, or was never asked.

    Raises:
        Corrupt: the journal tells something else.
    """
    if not journal.flags & _native.JOURNAL_FOLLOWER:
        return None
    stored = _loaded(journal.changed).get(PART)
    if stored is None:
        return None
    try:
        told = {name: str(stored[name]) for name in ("name", "id", "fence", "given")}
        return Part(**told, begun=bool(stored["begun"]))
    except (KeyError, TypeError) as problem:
        raise errors.Corrupt(f"a journal tells no part of a follower ({problem!r})") from None


def with_era(changed: bytes, era: Era) -> bytes:
    """The changed options with that era."""
    return _dumped({**_loaded(changed), ERA: era._asdict()})


def with_part(changed: bytes, part: Part | None) -> bytes:
    """The changed options with that part, or without any."""
    stored = {name: value for name, value in _loaded(changed).items() if name != PART}
    return _dumped(stored if part is None else {**stored, PART: part._asdict()})


def after(era: Era, part: Part, id: str, base: int) -> Era:  # noqa: A002
    """The era that begins when that follower is promoted: its name goes, and that of the old source comes."""
    names = (*(name for name in era.followers if name != part.name), era.name)
    return Era(era.number + 1, id, part.name, names, base, (*era.promoted, part.id)[-_PROMOTED_MAX:])


def _loaded(changed: bytes) -> dict[str, Any]:
    stored = small_json.loads(changed) if changed else {}
    if not isinstance(stored, dict):
        raise errors.Corrupt("a journal tells no options")
    return stored


def _dumped(stored: dict[str, Any]) -> bytes:
    return small_json.dumps(stored) if stored else b""
