"""
What was promised, held against what the processes noted and what is in the queue: each way in which it was broken.

It knows nothing of how a queue works, and is told everything: tests give it histories in which something is wrong.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING

from shmq.cli.experiment import notes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shmq.cli.experiment.notes import Note

PRODUCER, MEMBER, SINGLE = "producer", "member", "single"
"""What a process was: the last two are a consumer of the group, and one that has its name alone."""


@dataclasses.dataclass
class Life:
    """One process, from its start to its end."""

    role: str
    killed: bool
    notes: Sequence[Note]


@dataclasses.dataclass
class History:
    """Everything that happened: who lived, by number, and each message in the queue, by index."""

    lives: Mapping[int, Life]
    log: Mapping[int, tuple[int, int, int] | None] = dataclasses.field(default_factory=dict)
    """Producer, number, and how many were put with it; None for bytes that nobody put."""
    theirs: bool = False
    """Of a queue that has no log and no acknowledgements."""

    def of(self, role: str, kind: int) -> Iterable[tuple[int, Note]]:
        """The notes of that kind, with the writer of each."""
        for number, life in self.lives.items():
            if life.role == role:
                yield from ((number, note) for note in life.notes if note.kind == kind)


@dataclasses.dataclass
class Verdict:
    """Figures, and everything that is wrong, as sentences."""

    returned: int = 0
    """How many messages a put returned for."""
    lost: int = 0
    doubled: int = 0
    disordered: int = 0
    broken: int = 0
    """Batches of which a part is there, and messages that nobody put so."""
    again: int = 0
    """Handed out to another one after its holder was killed, as at least once says."""
    in_hand: int = 0
    """What a killed consumer had, that finishes what it is handed, as at most once says."""
    wrong: list[str] = dataclasses.field(default_factory=list)

    def say(self, sentence: str) -> None:
        """Add what is wrong."""
        self.wrong.append(sentence)


def judge(history: History) -> Verdict:
    """Hold it against what is promised."""
    verdict = Verdict()
    put = {(note.producer, note.number): note.place for _, note in history.of(PRODUCER, notes.PUT)}
    verdict.returned = len(put)
    for role in (MEMBER, SINGLE):
        for life, note in history.of(role, notes.BAD):
            verdict.broken += 1
            verdict.say(f"process {life} was handed bytes that nobody put, as message {note.place}")
    if history.theirs:
        _judge_theirs(history, put, verdict)
    else:
        _judge_log(history, put, verdict)
        _judge_group(history, verdict)
        _judge_single(history, verdict)
    return verdict


# ---- what is in the queue
def _judge_log(history: History, put: Mapping[tuple[int, int], int], verdict: Verdict) -> None:
    places: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
    together: dict[tuple[int, int], int] = {}
    for index, found in sorted(history.log.items()):
        if found is None:
            verdict.broken += 1
            verdict.say(f"message {index} is in the queue, and nobody has put these bytes")
            continue
        places[found[:2]].append(index)
        together[found[:2]] = found[2]
    for name, index in put.items():
        if name not in places:
            verdict.lost += 1
            verdict.say(f"{_called(name)} is not in the queue, though its put returned {index}")
        elif places[name][0] != index:
            verdict.disordered += 1
            verdict.say(f"{_called(name)} is at {places[name][0]}, though its put returned {index}")
    _judge_places(history, places, verdict)
    _judge_batches(history, together, verdict)


def _judge_places(history: History, places: Mapping[tuple[int, int], list[int]], verdict: Verdict) -> None:
    tried = {(note.producer, note.number) for _, note in history.of(PRODUCER, notes.TRIED)}
    last: dict[int, tuple[int, int]] = {}
    for name, indexes in sorted(places.items()):
        if name not in tried:
            verdict.broken += 1
            verdict.say(f"{_called(name)} is in the queue, and nobody has tried to put it")
        if len(indexes) > 1:
            verdict.doubled += len(indexes) - 1
            verdict.say(f"{_called(name)} is in the queue {len(indexes)} times, at {_listed(indexes)}")
        producer, number = name
        before = last.get(producer)
        if before is not None and indexes[0] < before[1]:
            verdict.disordered += 1
            verdict.say(f"{_called(name)} is at {indexes[0]}, before its message {before[0]}, which is at {before[1]}")
        last[producer] = number, indexes[0]


def _judge_batches(history: History, together: Mapping[tuple[int, int], int], verdict: Verdict) -> None:
    """All of what was put at once, or nothing; the first note of a batch begins it."""
    left = 0
    for _, note in history.of(PRODUCER, notes.TRIED):
        if left:
            left -= 1
            continue
        left = note.place - 1
        names = [(note.producer, number) for number in range(note.number, note.number + note.place)]
        there = sum(name in together for name in names)
        if there not in {0, len(names)}:
            verdict.broken += 1
            verdict.say(
                f"of {len(names)} messages that were put at once, from {_called(names[0])} on, {there} are there"
            )


# ---- who was handed what
def _judge_group(history: History, verdict: Verdict) -> None:
    """Each message was handed to one, to another only when that one was killed, and to nobody after it was finished."""
    handed: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
    for life, note in history.of(MEMBER, notes.GOT):
        handed[note.place].append((note.time_ns, life))
        _compare(history, note, verdict)
    finished = {note.place: note.time_ns for _, note in history.of(MEMBER, notes.ACKED)}
    for index in history.log:
        if index not in finished and index not in handed:
            verdict.lost += 1
            verdict.say(f"message {index} is in the queue, and no consumer of the group was handed it")
    for index, times in handed.items():
        times.sort()
        *before, _ = times
        alive = [life for _, life in before if not history.lives[life].killed]
        late = [life for when, life in times if index in finished and when > finished[index]]
        verdict.again += len(before)
        if alive:
            verdict.doubled += len(alive)
            verdict.say(f"message {index} was handed to another one while process {alive[0]}, which had it, lived")
        elif late:
            verdict.doubled += len(late)
            verdict.say(f"message {index} was handed to process {late[0]} after it was acknowledged")


def _judge_single(history: History, verdict: Verdict) -> None:
    """Each message at most once, in order; and what is missing is what a killed process had in hand."""
    handed = sorted((note.time_ns, note.place, note) for _, note in history.of(SINGLE, notes.GOT))
    seen: set[int] = set()
    last = -1
    for _, index, note in handed:
        _compare(history, note, verdict)
        if index in seen:
            verdict.doubled += 1
            verdict.say(f"message {index} was handed out again to the consumer that has each at most once")
        elif index < last:
            verdict.disordered += 1
            verdict.say(f"message {index} was handed out after message {last}")
        seen.add(index)
        last = max(last, index)
    kills = sum(life.killed for life in history.lives.values() if life.role == SINGLE)
    verdict.in_hand = len(history.log.keys() - seen)
    if any(life.role == SINGLE for life in history.lives.values()) and verdict.in_hand > kills:
        verdict.lost += verdict.in_hand - kills
        verdict.say(
            f"{verdict.in_hand} messages never came to the consumer alone, of which {kills} processes were killed"
        )


def _compare(history: History, note: Note, verdict: Verdict) -> None:
    there = history.log.get(note.place)
    if there is None or there[:2] != (note.producer, note.number):
        verdict.broken += 1
        verdict.say(f"{_called((note.producer, note.number))} was handed out as message {note.place}, which is another")


# ---- a queue that promises none of it
def _judge_theirs(history: History, put: Mapping[tuple[int, int], int], verdict: Verdict) -> None:
    got: collections.Counter[tuple[int, int]] = collections.Counter()
    last: dict[tuple[int, int], int] = {}
    for life, note in history.of(MEMBER, notes.GOT):
        got[note.producer, note.number] += 1
        if note.number < last.get((life, note.producer), -1):
            verdict.disordered += 1
        last[life, note.producer] = note.number
    verdict.lost = sum(name not in got for name in put)
    verdict.doubled = sum(count - 1 for count in got.values())


def _called(name: tuple[int, int]) -> str:
    return f"message {name[1]} of producer {name[0]}"


def _listed(indexes: Sequence[int]) -> str:
    return ", ".join(map(str, indexes[:5]))
