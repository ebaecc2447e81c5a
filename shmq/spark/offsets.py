"""
Offsets: how far each shard was read, as Spark keeps it in its checkpoint; and how much one batch of a stream takes.

    {"v": 1, "group": "spark-1f0c...", "root": "/data/q",
     "queues": {"orders": {"0": {"id": "<32 hex digits>", "next": 1234}}}}

Spark compares them as text and never looks inside. `id` tells a queue from another one made at its place later; `group`
is the consumer name that mirrors the progress, so it belongs to the checkpoint like the offsets do: what is begun again
before its first batch was written down makes no second one. Pure: no queue is opened here.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
Key = tuple[str, int]
"""Topic and shard."""


class Place(NamedTuple):
    """How far one shard was read."""

    queue_id: str
    next: int


class Offsets(NamedTuple):
    """How far everything was read, and under which name the queues know it."""

    group: str
    root: str
    places: dict[Key, Place]

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it; the same for the same offsets, letter by letter."""
        queues: dict[str, dict[str, Any]] = {}
        for (topic, number), place in sorted(self.places.items()):
            queues.setdefault(topic, {})[str(number)] = {"id": place.queue_id, "next": place.next}
        return {"v": VERSION, "group": self.group, "root": self.root, "queues": queues}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Offsets:
        """
        What Spark kept.

        Raises:
            ValueError: it is of a newer version, or no offset of ours.
        """
        if stored.get("v") != VERSION:
            raise ValueError(
                f"the checkpoint holds offsets of version {stored.get('v')!r}, and this shmq reads {VERSION}; "
                "was it written by a newer shmq, or by another source?"
            )
        places = {
            (topic, int(number)): Place(place["id"], int(place["next"]))
            for topic, shards in stored["queues"].items()
            for number, place in shards.items()
        }
        return cls(str(stored["group"]), str(stored["root"]), places)


def behind(done: Mapping[str, Any], latest: Mapping[str, Any]) -> int:
    """How many indexes lie between two offsets as Spark keeps them, of the shards that both know."""
    there = Offsets.from_json(done).places
    return sum(
        max(place.next - there[key].next, 0)
        for key, place in Offsets.from_json(latest).places.items()
        if key in there and there[key].queue_id == place.queue_id
    )


_AUTOMATIC = re.compile(r"spark-[0-9a-f]{12}")


def new_group() -> str:
    """A consumer name for one checkpoint, of a query whose user gave none."""
    return f"spark-{secrets.token_hex(6)}"


def is_automatic(group: str) -> bool:
    """Whether it is such a one: for eyes alone, so that it holds nothing back and releases nothing."""
    return _AUTOMATIC.fullmatch(group) is not None


# ---------------------------------------------------------------- how much one batch takes
def limited(start: Mapping[Key, int], end: Mapping[Key, int], most: int | None) -> dict[Key, int]:
    """
    An end of the same shards with at most *most* indexes behind *start*, shared out in proportion to what waits.

    Every shard with anything waiting gets at least one, unless there are more shards than that; so none starves, and
    none that is far behind holds up the others.
    """
    waiting = {key: max(stop - start.get(key, stop), 0) for key, stop in end.items()}
    total = sum(waiting.values())
    if most is None or total <= most:
        return dict(end)
    shares = {key: count * most // total for key, count in waiting.items()}
    # What rounding left goes to those who lost most by it; then to those who would get nothing.
    rest = most - sum(shares.values())
    behind = sorted(
        (key for key in waiting if shares[key] < waiting[key]),
        key=lambda key: (shares[key] > 0, shares[key] - waiting[key] * most / total),
    )
    for key in behind[:rest]:
        shares[key] += 1
    return {key: start.get(key, stop) + min(shares[key], waiting[key]) for key, stop in end.items()}


def within_bytes(start: Mapping[Key, int], end: Mapping[Key, int], nbytes: Mapping[Key, int], most: int) -> int:
    """How many indexes between *start* and *end* take about *most* bytes; at least 1, so that a stream goes on."""
    rows = sum(max(stop - start.get(key, stop), 0) for key, stop in end.items())
    total = sum(nbytes.values())
    return rows if total <= most else max(rows * most // total, 1)
