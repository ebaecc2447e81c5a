"""
What the demo holds against what: plain functions and classes that know nothing of queues, so that tests can show them
wrong data and see them object.

A finding is a sentence that says what is wrong. No findings: all is well.
"""

from __future__ import annotations

import array
import dataclasses
from typing import TYPE_CHECKING, Any

import msgspec

from demo import flights as data

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from demo.flights import Flight, Flights

_TOLD = 10
"""How many findings of one kind are told in full; the others are only counted."""


class Findings:
    """Sentences, the first few in full and all of them counted."""

    def __init__(self) -> None:
        """All is well so far."""
        self.told: list[str] = []
        self.count = 0

    def add(self, sentence: str) -> None:
        """One more."""
        self.count += 1
        if len(self.told) < _TOLD:
            self.told.append(sentence)


class Ledger:
    """
    Every message that a consumer was handed, held against the flights that were to be put.

    Attributes:
        findings: what was wrong so far.
        seen: how many messages were handed out.
        doubled: how many of them were not the first of their flight.
        order: the flight at each index; -1 where an index has none (padding).
    """

    def __init__(self, flights: Flights | Sequence[Flight]) -> None:
        """Nothing is seen yet."""
        self.findings = Findings()
        self.seen = 0
        self.doubled = 0
        self.order = array.array("i")
        self._flights = flights
        self._had = bytearray(len(flights))
        self._last_of: dict[int, int] = {}

    def see(self, index: int, producer: int, key: bytes | None, time_ns: int, payload: Any) -> None:
        """One message, in the order in which it was handed out."""
        self.seen += 1
        number = payload.get("id") if isinstance(payload, dict) else None
        if not isinstance(number, int) or not 0 <= number < len(self._had):
            self.findings.add(f"message {index} is no flight: {payload!r}")
            return
        if index < len(self.order):
            self.findings.add(f"message {index} came after message {len(self.order) - 1}")
        else:
            self.order.extend([-1] * (index - len(self.order)))
            self.order.append(number)
        if self._had[number]:
            self.doubled += 1
            self.findings.add(f"flight {number} came again, at index {index}")
        self._had[number] = 1
        last = self._last_of.get(producer, -1)
        if number < last:
            self.findings.add(
                f"producer {producer} put flight {number} before {last}, and they came the other way round"
            )
        self._last_of[producer] = max(last, number)
        flight = self._flights[number]
        if payload != flight:
            self.findings.add(f"flight {number} was put as {flight} and came as {payload}")
        if key != flight["carrier"].encode():
            self.findings.add(f"flight {number} has key {key!r} instead of {flight['carrier']!r}")
        if time_ns != data.hour_ns(flight):
            self.findings.add(f"flight {number} has time {time_ns} instead of {data.hour_ns(flight)}")

    def lost(self) -> int:
        """How many flights never came; each is a finding."""
        missing = [number for number, had in enumerate(self._had) if not had]
        for number in missing:
            self.findings.add(f"flight {number} never came")
        return len(missing)


@dataclasses.dataclass
class Sums:
    """
    Delays per carrier, together with the index they belong to: the next message that is not in them.

    Both stand in one file that is replaced as a whole. So whatever is handed out again after a crash is told from what
    is new by its index alone, and nothing is summed twice, although messages come at least once.

    Attributes:
        next_index: every message before this index is in the sums, and no other.
        flights: how many messages are in them.
        carriers: for each: flights, flights with a delay, minutes.
        skipped: messages handed out again that were in the sums already.
        again: messages handed out more than once, in all.
    """

    next_index: int = 0
    flights: int = 0
    carriers: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    skipped: int = 0
    again: int = 0

    def add(self, index: int, carrier: str, delay: int | None, attempts: int = 1) -> bool:
        """Sum one message, unless it is in the sums already."""
        self.again += attempts > 1
        if index < self.next_index:
            self.skipped += 1
            return False
        self.next_index = index + 1
        self.flights += 1
        sums = self.carriers.setdefault(carrier, [0, 0, 0])
        sums[0] += 1
        if delay is not None:
            sums[1] += 1
            sums[2] += delay
        return True

    def means(self) -> dict[str, float | None]:
        """Mean delay in minutes of each carrier, None where no flight has one."""
        return {name: minutes / known if known else None for name, (_, known, minutes) in sorted(self.carriers.items())}

    def save(self, path: Path) -> None:
        """Replace the file at *path* as a whole: whoever is killed in here leaves the old one or the new one."""
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_bytes(msgspec.json.encode(self))
        unfinished.replace(path)

    @classmethod
    def load(cls, path: Path) -> Sums:
        """What `save` left; empty sums if there is nothing."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return cls()


def straight(flights: Iterable[Flight], sums: Sums) -> Iterator[Flight]:
    """The *flights* as they are, each added to *sums* as it passes: the same sums without any queue."""
    for flight in flights:
        sums.add(flight["id"], flight["carrier"], flight["arr_delay"])
        yield flight


def compare_sums(expected: Sums, got: Sums) -> list[str]:
    """What differs between the sums from the table and those from the queue."""
    findings = []
    if expected.flights != got.flights:
        findings.append(f"{got.flights:,} flights were summed instead of {expected.flights:,}")
    for carrier in sorted(expected.carriers.keys() | got.carriers.keys()):
        right, wrong = expected.carriers.get(carrier), got.carriers.get(carrier)
        if right != wrong:
            findings.append(f"carrier {carrier}: flights, with delay, minutes are {wrong} instead of {right}")
    return findings


def compare_restart(who: str, confirmed: int, found: int) -> list[str]:
    """
    What is wrong with a killed producer's flights in the queue: all whose put returned, and at most the one in flight.

    *confirmed* puts are known to have returned: a put is noted behind its return, so one more may have.
    """
    if found < confirmed:
        return [f"{who}: put() had returned {confirmed:,} times, and only {found:,} flights are in the queue"]
    if found > confirmed + 1:
        return [f"{who}: put() had returned {confirmed:,} times, and {found:,} flights are in the queue"]
    return []


def compare_redelivery(acknowledged: int, first_again: int, again: int, batch: int) -> list[str]:
    """What is wrong with what a killed consumer's successor was handed, when *acknowledged* is the first open index."""
    findings = []
    if first_again < acknowledged:
        findings.append(f"message {first_again} came again although everything before {acknowledged} was acknowledged")
    if again > batch:
        findings.append(f"{again:,} messages came again, and at most {batch:,} were open")
    return findings


def by_hour(flights: Iterable[Flight], hours: dict[int, list[int]]) -> Iterator[Flight]:
    """The same flights; on the way, their numbers are noted by the hour of their departure, in ns since 1970."""
    for number, flight in enumerate(flights):
        hours.setdefault(data.hour_ns(flight), []).append(number)
        yield flight


def compare_hour(hour_ns: int, found: Sequence[int], table: Sequence[int]) -> list[str]:
    """What is wrong with the flights of an hour that were found by time: they must be those of the table."""
    missing, strange = set(table) - set(found), set(found) - set(table)
    if sorted(found) == sorted(table):
        return []
    story = (
        f"the hour from {hour_ns} ns on: {len(found)} flights were found by time, {len(missing)} of the table's "
        f"{len(table)} are not among them, and {len(strange)} are of another hour"
    )
    return [story]


def compare_backward(found: Sequence[int], wanted: Sequence[int]) -> list[str]:
    """What is wrong with the indexes that a reader gave backward."""
    return [] if list(found) == list(wanted) else [f"read backward: indexes {found} instead of {wanted}"]


def compare_fetched(
    index: int, message: Mapping[str, Any], order: Sequence[int], flights: Sequence[Flight] | Flights
) -> list[str]:
    """What is wrong with a message fetched by index: it must be the flight that the counting consumer saw there."""
    number = order[index]
    flight = flights[number]
    wanted = {"index": index, "key": flight["carrier"].encode(), "time_ns": data.hour_ns(flight), "payload": flight}
    return [
        f"index {index} (flight {number}): {name} is {message.get(name)!r} instead of {value!r}"
        for name, value in wanted.items()
        if message.get(name) != value
    ]
