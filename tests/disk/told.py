"""What the workers told, as what may be true at a moment: the `Truth` that tests/power judges by, and more."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from tests.power.judge import Truth
from tests.power.workloads import GROUP

from .workers import ADOPTER, AGE, OPTIONS, payload

PUTS = ("put", "put_many", "adopt")
NEVER = 1 << 62


@dataclasses.dataclass
class Op:
    """An operation: its name, what was said when it began, and when it returned; nothing, if it was killed."""

    begun: dict[str, Any]
    answer: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def at(self) -> int:
        """The moment when it began: nothing that it did was on the disk then."""
        return int(self.begun["at"])

    @property
    def to(self) -> int:
        """The moment when it had returned."""
        return int(self.answer.get("to", NEVER))

    @property
    def verb(self) -> str:
        """What it did."""
        return str(self.begun["verb"])

    @property
    def names(self) -> list[str]:
        """Of the messages that it puts."""
        return list(self.begun["names"])


@dataclasses.dataclass
class Case:
    """
    What may be found of one queue after one cut.

    Attributes:
        dedup: by producer, of the last put with dedup that began: its sequence, the message, and the index that is
            promised; None when it was in flight.
        sets: (token, its messages, the sequence of its adoption if that had begun) of what was handed over, and is not
            promised to be adopted; those with the same sequence were adopted together.
        sequence: the last one of an adoption that began.
        wall_ns: what the clock on the wall said.
    """

    truth: Truth
    dedup: dict[str, tuple[int, str, int | None]]
    sets: list[tuple[str, list[str], int | None]]
    sequence: int
    wall_ns: int


class Told:
    """Everything that was told of one history."""

    def __init__(self, folder: str) -> None:
        ops: dict[str, Op] = {}
        for file in sorted(os.listdir(folder)):
            with open(f"{folder}/{file}", "rb") as lines:
                for line in lines:
                    said = json.loads(line)
                    if said["op"] in ops:
                        ops[said["op"]].answer = said
                    else:
                        ops[said["op"]] = Op(said)
        self._ops = {name: [op for op in ops.values() if op.begun["queue"] == name] for name in OPTIONS}
        self._walls = sorted((op.at, op.begun["wall"]) for op in ops.values())
        self._index = {name: self._indexes(name) for name in OPTIONS}
        self.begin = min(op.at for op in ops.values())
        """The moment before anything was done."""
        self.messages = sum(map(len, self._index.values()))
        """How many messages there were, by their names."""

    def _indexes(self, queue: str) -> dict[str, int]:
        """By the name of a message, its index, whoever came to know it."""
        found: dict[str, int] = {}
        # Whoever handed a set over may have been killed before it could tell the token.
        handed = {op.names[0]: op.names for op in self._ops[queue] if op.verb == "hand over"}
        for op in self._ops[queue]:
            if op.verb == "adopt":
                op.begun["names"] = [name for owner in op.begun["owners"] for name in handed[owner]]
            found.update({name: int(index) for index, name in op.answer.get("got", {}).items()})
            if op.verb in PUTS and "index" in op.answer:
                found.update({name: op.answer["index"] + at for at, name in enumerate(op.names)})
        return found

    def case(self, queue: str, moment: int) -> Case:
        """What may be true of that queue after a cut at that moment."""
        ops = [op for op in self._ops[queue] if op.at < moment]
        index = self._index[queue]
        synced = "SYNC" in repr(OPTIONS[queue].durability)
        puts = [op for op in ops if op.verb in PUTS and op.names and op.names[0] in index]
        over = [op for op in ops if op.to <= moment]
        wall = max((wall for at, wall in self._walls if at <= moment), default=0)
        messages = {index[name]: payload(name) for op in puts for name in op.names}
        durable = [op.answer["durable"] for op in over if "durable" in op.answer]
        durable += [index[op.names[-1]] + 1 for op in puts if op.to <= moment and (synced or op.verb == "adopt")]
        sure = {index[name] for op in puts if op.to <= moment for name in op.names}
        group = [op for op in ops if op.verb in ("finish", "reject")]
        kept = [op for op in group if op.to <= moment and synced]
        truth = Truth(
            messages=messages,
            batches=[(index[op.names[0]], index[op.names[-1]] + 1) for op in puts],
            durable=max(durable, default=0),
            first=self._first(queue, moment, wall),
            issued=max((index[op.names[-1]] + 1 for op in puts if op.to <= moment), default=0),
            heads=self._heads(ops, moment, synced=synced),
            exists=any(op.verb == "create" for op in over),
            doing=", ".join(sorted({op.verb for op in ops if op.to > moment})) or "nothing",
            unsure=frozenset(messages) - sure,
            finished=_indexes_of(group, "finish"),
            moved=_indexes_of(group, "reject"),
            kept=_indexes_of(kept, "finish") | _indexes_of(kept, "reject"),
            letters=_indexes_of([op for op in group if op.to <= moment], "reject"),
        )
        sets, sequence = self._sets(ops, moment)
        return Case(truth, self._dedup(puts, moment, synced=synced), sets, sequence, wall)

    def _first(self, queue: str, moment: int, wall: int) -> int:
        """What lies below may have been retired: somebody saw so, or was about it, or it is old enough."""
        later = [op.answer["first"] for op in self._ops[queue] if moment < op.to < NEVER]
        first = min((first for first in later if first >= 0), default=0)
        # The disk knows before the control page: of whoever retires at this moment, what it saw when it had done it.
        about = [op.answer.get("first", 0) for op in self._ops[queue] if op.at < moment < op.to]
        first = max([first, *about, *self._half_retired(queue, moment)])
        if queue == "age":
            old = [
                self._index[queue][name] + 1
                for op in self._ops[queue]
                if op.verb in PUTS and op.begun["wall"] < wall - AGE * 1e9
                for name in op.names
                if name in self._index[queue]
            ]
            first = max([first, *old])
        return first

    def _half_retired(self, queue: str, moment: int) -> list[int]:
        """
        What one who was killed may have retired on the disk alone: what the next one to retire says, who goes as far.
        """
        ops = self._ops[queue]
        killed = {op.begun["op"].rpartition(".")[0] for op in ops if op.to == NEVER and op.at < moment}
        looks = {op.begun["op"].rpartition(".")[0].removeprefix("behind "): op for op in ops if op.verb == "look"}
        told = sorted((op.to, op.answer["first"]) for op in ops if op.to < NEVER)
        found = []
        for look in (looks[who] for who in killed & looks.keys()):
            further = [each for each in told if each[0] > look.to and each[1] > look.answer["first"]]
            found += [seen for to, seen in further[:1] if moment < to]
        return found

    def _heads(self, ops: list[Op], moment: int, *, synced: bool) -> dict[str, tuple[int, int | None]]:
        heads: dict[str, tuple[int, int | None]] = {}
        for op in ops:
            if op.verb == "group":
                heads[GROUP] = (NEVER, 0 if op.to <= moment else None)
            if "who" not in op.begun:
                continue
            most, least = heads.get(op.begun["who"], (0, None))
            head = op.answer.get("head", most)
            if op.to <= moment and (op.verb == "name" or (op.verb == "ack" and synced)):
                least = max(head, least or 0)
            heads[op.begun["who"]] = (max(most, head), least)
        return heads

    def _dedup(self, puts: list[Op], moment: int, *, synced: bool) -> dict[str, tuple[int, str, int | None]]:
        found: dict[str, tuple[int, str, int | None]] = {}
        for op in puts:
            if "dedup" in op.begun:
                producer, sequence = op.begun["dedup"]
                if sequence >= found.get(producer, (-1, "", None))[0]:
                    before = found.get(producer, (-1, "", None))
                    known = before[2] if before[0] == sequence else None
                    if op.to <= moment and synced:
                        known = op.answer["index"]
                    found[producer] = sequence, op.names[0], known
        return found

    def _sets(self, ops: list[Op], moment: int) -> tuple[list[tuple[str, list[str], int | None]], int]:
        adoptions = [op for op in ops if op.verb == "adopt"]
        begun = {token: op for op in adoptions for token in op.begun["tokens"]}
        sets = []
        for op in ops:
            if op.verb == "hand over" and op.to <= moment:
                adoption = begun.get(op.answer["token"])
                if adoption is None or adoption.to > moment:
                    sequence = adoption.begun["sequence"] if adoption else None
                    sets.append((op.answer["token"], op.names, sequence))
        return sets, max((op.begun["sequence"] for op in adoptions), default=0)


def _indexes_of(ops: list[Op], verb: str) -> frozenset[int]:
    return frozenset(index for op in ops if op.verb == verb for index in op.begun["indexes"])


__all__ = ["ADOPTER", "Case", "Told"]
