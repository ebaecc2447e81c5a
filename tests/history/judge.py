"""
Is a recorded history one that the promises allow?

Every value is put once, so no search is needed: a put returns its index, and everything follows from that. Each rule
below is one sentence of docs/promises.md; it returns what contradicts it, in words.
"""

from __future__ import annotations

import bisect
import dataclasses
from typing import Any

PUTS = {"put", "many", "reserve"}
GETS = {"get", "take"}
NEVER = 1 << 63


@dataclasses.dataclass(slots=True)
class Operation:
    """
    One call of one process.

    Attributes:
        outcome: "ok", "empty", "shutdown", "aborted", "fenced", "error ..."; "" when its process died in it.
        sent: (value, crc) of what it put.
        indexes: of what it put or acknowledged; for open, the head that it found.
        seen: (index or None, value, crc) of what it got.
        limit: how many messages a get asked for.
    """

    process: str
    verb: str
    begin: int
    end: int | None = None
    outcome: str = ""
    sent: tuple = ()
    indexes: tuple = ()
    seen: tuple = ()
    limit: int = 0


@dataclasses.dataclass
class History:
    """
    What all processes did to one queue.

    Attributes:
        puts: of all producers.
        names: for each consumer name its operations in order, through all its holders; each begins with an open.
        modes: each name's "auto" or "explicit".
        deaths: when a process was surely dead; those that ended by themselves are not here.
        log: (index, value, crc) of everything that a reader found at the end.
        end: next_index at the end.
        drained: whether every name was drained at the end.
        problems: what the recorder itself saw: hangs, crashes.
    """

    puts: list[Operation]
    names: dict[str, list[Operation]]
    modes: dict[str, str]
    deaths: dict[str, int]
    log: list[tuple[int, int, int]]
    end: int
    drained: bool = True
    problems: list[str] = dataclasses.field(default_factory=list)

    def over_by(self, operation: Operation) -> int:
        """When that operation can have had no effect any more."""
        return self.deaths.get(operation.process, NEVER) if operation.end is None else operation.end


def judge(history: History) -> list[str]:
    """Everything that contradicts the promises; nothing, for a good history."""
    found = list(history.problems)
    for rule in RULES:
        found += rule(history)
    return found


def nothing_fails(history):
    """No call ends in an error that is not part of its contract."""
    for operation in [*history.puts, *(one for all_of in history.names.values() for one in all_of)]:
        if operation.outcome.startswith("error"):
            yield f"{operation.process}: {operation.verb} at {operation.begin} ended with {operation.outcome}"


def indexes_are_unique(history):
    """No index is given to two messages, no message has two indexes, and the log ascends."""
    given = {}
    for put in history.puts:
        if put.outcome == "ok":
            for index in put.indexes:
                if index in given:
                    yield f"index {index} was returned to {given[index].process} and to {put.process}"
                given[index] = put
    values = set()
    before = -1
    for index, value, _ in history.log:
        if index <= before or index >= history.end:
            yield f"the log goes from index {before} to {index}, and ends at {history.end}"
        if value in values:
            yield f"value {value:#x} is in the log twice, once at {index}"
        values.add(value)
        before = index


def returned_puts_are_there(history):
    """What put() returned is in the queue, at that index, with those bytes."""
    log = {index: (value, crc) for index, value, crc in history.log}
    for put in history.puts:
        if put.outcome == "ok":
            if len(put.indexes) != len(put.sent):
                yield f"{put.process}: {len(put.sent)} messages got {len(put.indexes)} indexes"
            for index, sent in zip(put.indexes, put.sent, strict=False):
                if index not in log:
                    yield f"{put.process}: value {sent[0]:#x} was put at {index}, and is lost"
                elif log[index] != sent:
                    yield f"{put.process}: {sent} was put at {index}, where {log[index]} is"


def nothing_is_invented(history):
    """What is in the queue was put; what did not return is there whole or not at all, with its own bytes."""
    where = {value: (index, crc) for index, value, crc in history.log}
    for put in history.puts:
        found = [where.pop(value) for value, _ in put.sent if value in where]
        if not found or put.outcome == "ok":
            continue
        if put.outcome:
            yield f"{put.process}: {put.verb} ended as {put.outcome}, and its message is at {found[0][0]}"
        elif len(found) != len(put.sent):
            yield f"{put.process}: {len(found)} messages of an unreturned batch of {len(put.sent)} are there"
        elif [crc for _, crc in found] != [crc for _, crc in put.sent]:
            yield f"{put.process}: an unreturned put at {found[0][0]} has other bytes"
        elif [index for index, _ in found] != list(range(found[0][0], found[0][0] + len(found))):
            yield f"{put.process}: an unreturned batch lies at {[index for index, _ in found]}"
    for value, (index, _) in where.items():
        yield f"value {value:#x} at index {index} was never put"


def _placed(history):
    """(put, first index, last index) of every put whose message is in the queue."""
    where = {value: index for index, value, _ in history.log}
    for put in history.puts:
        if put.outcome == "ok" and put.indexes:
            yield put, put.indexes[0], put.indexes[-1]
        elif not put.outcome and put.sent and put.sent[0][0] in where:
            first = where[put.sent[0][0]]
            yield put, first, first + len(put.sent) - 1


def real_time_order(history):
    """If one put returned (or its process was dead) before another began, its index is smaller."""
    placed = list(_placed(history))
    ends = sorted((history.over_by(put), last) for put, _, last in placed)
    highest, at = -1, 0
    for put, first, _ in sorted(placed, key=lambda one: one[0].begin):
        while at < len(ends) and ends[at][0] < put.begin:
            highest = max(highest, ends[at][1])
            at += 1
        if first <= highest:
            yield f"{put.process}: put at {first} began after the one at {highest} had returned"


def _missing(history):
    there = {index for index, _, _ in history.log}
    return [index for index in range(history.end) if index not in there]


def gaps_are_explained(history):
    """An index is missing only where a claim was not committed: given up, fenced, or its owner died."""
    missing = set(_missing(history))
    there = {value for _, value, _ in history.log}
    returned = sorted((history.over_by(put), last) for put, _, last in _placed(history) if put.end is not None)
    highest = _running_max(returned)
    begun = sorted((put.begin, first) for put, first, _ in _placed(history))
    lowest = _running_min(begun)
    claims = []
    for put in history.puts:
        if put.outcome in ("aborted", "fenced"):
            missing -= set(put.indexes)
        elif not put.outcome and put.sent[0][0] not in there:
            after = highest[bisect.bisect_left(returned, (put.begin, -1))]
            until = lowest[bisect.bisect_right(begun, (history.over_by(put), NEVER))]
            claims.append([after, until, len(put.sent)])
    for index in sorted(missing):  # each by the claim that can explain the fewest later ones
        fitting = [claim for claim in claims if claim[2] and claim[0] < index < claim[1]]
        if not fitting:
            yield f"index {index} is missing, and no claim explains it"
        else:
            min(fitting, key=lambda claim: claim[1])[2] -= 1


def _running_max(pairs):
    found = [-1]
    for _, index in pairs:
        found.append(max(found[-1], index))
    return found


def _running_min(pairs):
    found = [NEVER]
    for _, index in reversed(pairs):
        found.append(min(found[-1], index))
    return found[::-1]


class _Log:
    """The log as consumers go through it: by rank, which has no gaps."""

    def __init__(self, history):
        self.indexes = [index for index, _, _ in history.log]
        self.content = {index: (value, crc) for index, value, crc in history.log}
        self.where = {value: index for index, value, _ in history.log}
        self.put = {value: put for put in history.puts for value, _ in put.sent}

    def rank(self, index):
        return bisect.bisect_left(self.indexes, index)


def consumers_see_everything_in_order(history):
    """
    Every name sees every message, whole, and each holder ascending. auto: never twice. explicit: never skipped, and
    again only after its holder died or closed without acknowledging.
    """
    log = _Log(history)
    for name, operations in history.names.items():
        explicit = history.modes[name] == "explicit"
        way = _Way(log, name, explicit=explicit)
        try:
            for one in operations:
                way.follow(one)
        except _Wrong as wrong:
            yield str(wrong)
            continue
        if history.drained and way.low < len(log.indexes):
            yield f"{name} never saw index {log.indexes[way.low]}" + (" or never finished it" if explicit else "")


class _Wrong(Exception):
    pass


class _Way:
    """
    One name's way through the log, through all its holders, in ranks.

    Attributes:
        low, high: auto: between which its head is.
        at: what its holder must see next, or something behind it.
        sure, maybe: explicit: what was acknowledged, and may have been.
    """

    def __init__(self, log, name, *, explicit):
        self.log, self.name, self.explicit = log, name, explicit
        self.low = self.high = self.at = 0
        self.sure, self.maybe = set(), set()

    def follow(self, one):
        if one.verb == "open":
            self.opened(one)
        elif one.verb in GETS:
            ranks = [self.saw(one, *what) for what in one.seen]
            if not self.explicit:
                self.low = self.high = self.at
                if one.end is None:
                    self.high += one.limit
            elif one.verb == "take":
                self.sure.update(ranks)
                self.maybe.update(ranks if one.end is not None else self.coming(one.limit))
        elif one.verb == "ack":
            acknowledged = {self.log.rank(index) for index in one.indexes}
            self.maybe |= acknowledged
            if one.end is not None:
                self.sure |= acknowledged
        if self.explicit:
            self.low = _end_of_run(0, self.maybe)
        self.high = min(max(self.low, self.high), len(self.log.indexes))

    def opened(self, one):
        """A new holder begins at the head, or with what is not acknowledged; killed before, it has changed nothing."""
        if one.outcome != "ok":
            return
        if self.explicit:
            self.at = 0
            return
        self.at = self.expect(one, self.log.rank(one.indexes[0]), self.low, self.high)
        self.low = self.high = self.at

    def coming(self, limit):
        """What a call that did not return may have had."""
        ranks = (rank for rank in range(self.at, len(self.log.indexes)) if rank not in self.sure)
        certain = 0
        for rank in ranks:
            if certain == limit:
                return
            certain += rank not in self.maybe
            yield rank

    def saw(self, one, index, value, crc):
        log = self.log
        truth = log.where.get(value) if index is None else index
        if truth is None or log.content.get(truth) != (value, crc):
            raise _Wrong(f"{self.name} saw ({index}, {value:#x}, {crc:#x}) where {log.content.get(truth)} is")
        if one.end is not None and value in log.put and one.end < log.put[value].begin:
            raise _Wrong(f"{self.name} saw index {truth} before it was put")
        rank = log.rank(truth)
        at = self.at
        while at in self.maybe and at < rank:
            at += 1
        if rank in self.sure:
            at = rank + 1
        self.at = self.expect(one, rank, at, at) + 1
        return rank

    def expect(self, one, rank, low, high):
        if low <= rank <= high:
            return rank

        def index(at):
            return self.log.indexes[at] if at < len(self.log.indexes) else "the end"

        what = "came again" if rank < low else "came too early: messages were skipped"
        expected = index(low) if low == high else f"{index(low)} to {index(high)}"
        where = f"{self.name} ({one.process}, {one.verb} at {one.begin})"
        raise _Wrong(f"{where}: index {index(rank)} {what}; expected {expected}")


def _end_of_run(rank, ranks):
    while rank in ranks:
        rank += 1
    return rank


def empty_means_empty(history):
    """Empty, or drained, is said only when nothing was there: no returned message, with nothing open before it."""
    log = _Log(history)
    missing = _missing(history)
    unresolved = [(put.begin, history.over_by(put)) for put in history.puts if put.outcome != "ok"]
    for name, operations in history.names.items():
        for one, following, rank in _empties(log, name, operations, explicit=history.modes.get(name) == "explicit"):
            if rank == len(log.indexes):
                continue
            index = log.indexes[rank]
            put = log.put.get(log.content[index][0])
            if put is None or put.outcome != "ok" or put.end >= one.begin:
                continue
            between = bisect.bisect_left(missing, following) < bisect.bisect_left(missing, index)
            if between and any(begin < one.begin <= over for begin, over in unresolved):
                continue  # an owner who lived then had not committed it yet
            yield f"{name} ({one.process}): {one.outcome} at {one.begin}, and index {index} was there since {put.end}"


def _empties(log, name, operations, *, explicit):
    """What said that nothing was there, the index from which on that was so, and the rank of what was not."""
    following, way = 0, _Way(log, name, explicit=explicit)
    for one in operations:
        if explicit:
            try:
                way.follow(one)
            except _Wrong:  # which is told for itself
                return
        if one.verb == "open" and one.indexes:
            following = 0 if explicit else one.indexes[0]
        if one.verb not in GETS:
            continue
        for index, value, _ in one.seen:
            following = (log.where.get(value, 0) if index is None else index) + 1
        if one.outcome in ("empty", "shutdown"):
            rank = _end_of_run(log.rank(following), way.maybe)
            yield one, max(following, log.indexes[rank - 1] + 1) if explicit and rank else following, rank


RULES = (
    nothing_fails,
    indexes_are_unique,
    returned_puts_are_there,
    nothing_is_invented,
    real_time_order,
    gaps_are_explained,
    consumers_see_everything_in_order,
    empty_means_empty,
)


# ---------------------------------------------------------------- what the recorder wrote
def parse(text: str, process: str) -> list[Operation]:
    """The operations of one process, from its own words: a line before each call and a line after it."""
    operations: list[Operation] = []
    for line in text.split("\n")[:-1]:  # what is behind the last line feed was cut by a kill
        word, time, *rest = line.split(" ")
        if word == "=":
            _finish(operations[-1], int(time), rest)
            continue
        one = Operation(process, word, int(time))
        if word in PUTS:
            one.sent = tuple((int(v, 16), int(c, 16)) for v, c in (pair.split(":") for pair in rest[0].split(",")))
        elif word in GETS:
            one.limit = int(rest[0])
        elif word == "ack":
            one.indexes = tuple(map(int, rest[0].split(",")))
        operations.append(one)
    return operations


def _finish(one: Operation, time: int, rest: list[Any]) -> None:
    one.end, one.outcome = time, rest[0]
    if one.outcome == "error":
        one.outcome = " ".join(rest)
    elif one.verb in PUTS:
        first = int(rest[1])
        one.indexes = tuple(range(first, first + len(one.sent)))
    elif one.verb == "open":
        one.indexes = (int(rest[1]),)
    elif one.verb in GETS and one.outcome == "ok":
        triples = (triple.split(":") for triple in rest[1].split(","))
        one.seen = tuple((int(i, 16) if i else None, int(v, 16), int(c, 16)) for i, v, c in triples)
