"""
The first processes after the cut: what tests/power asks of each queue, and what it does not know of: messages put
with dedup, sets that were handed over, and several letters of one message.
"""

from __future__ import annotations

import dataclasses
import time
import traceback
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

import shmq
from tests.power.judge import another_boot, check, judge, only_look
from tests.power.workloads import dead_letters

from .images import counter, moment_of
from .workers import ADOPTER, NAME, OPTIONS, name_of, payload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .told import Case

LATEST = 1 << 40
"""A sequence that nobody has used."""


def clock_stands_at(wall_ns: int) -> None:
    """The cut was a moment ago, for this process: how long it took to come here is not the age of any message."""
    time.time_ns = lambda: wall_ns


def queue(path: str, name: str, case: Case, boot: bytes, *, thorough: bool) -> None:
    """
    Judge one queue, whatever the file system made of it; *thorough*: as tests.power.judge.judge.

    Raises:
        Found, shmq.ShmqError, OSError: something that must be true is not.
    """
    seen = only_look(path, case.truth, boot) or {}
    judge(path, case.truth, OPTIONS[name], thorough=thorough, boot=boot)
    with warnings.catch_warnings(), another_boot(boot):
        warnings.simplefilter("ignore", RuntimeWarning)
        with shmq.open(path, create=False, unsafe_filesystem=True) as there:
            _put_again(there, case, seen)
            _adopt_again(there, case)
            verified = there.verify()
            check(bool(verified), "verify finds damage", verified.problems)
        _letters(path, case)


def _put_again(queue: Any, case: Case, seen: dict[int, bytes]) -> None:
    """A put with dedup that is repeated answers with the first index, and puts nothing."""
    where = {data: index for index, data in seen.items()}
    for producer, (sequence, name, promised) in case.dedup.items():
        data, behind = payload(name), queue.next_index
        index = queue.put(data, dedup=(producer, sequence))
        check(promised in (None, index), "a repeated put has another index", name, promised, index)
        wanted = where.get(data, behind if promised is None else promised)
        known = {**case.truth.lost, **case.truth.messages}
        retired = index < queue.first_index and known.get(index) == data
        # Not promised, and behind damage: who only looked has seen it, and the recovery has set it aside.
        aside = promised is None and not _is_there(queue, wanted, data)
        check(index == wanted or retired or aside, "what is there is put again", name, wanted, index)


def _is_there(queue: Any, index: int, data: bytes) -> bool:
    try:
        return bytes(queue[index].payload) == data
    except (IndexError, shmq.ShmqError):
        return False


def _adopt_again(queue: Any, case: Case) -> None:
    """Every set that was handed over is there, or comes when it is asked for; once."""
    together: dict[int, list[tuple[str, list[str]]]] = {}
    for number, (token, names, sequence) in enumerate(case.sets):
        together.setdefault(LATEST + number if sequence is None else sequence, []).append((token, names))
    for sequence in sorted(together):
        tokens = [token for token, _ in together[sequence]]
        if sequence < LATEST and not {each.token for each in queue.staged_sets()} >= set(tokens):
            # Its adoption had begun: then it is in the queue, or all of it waits.
            known = queue.adopted(ADOPTER)
            check(known is not None and known[0] == sequence, "a set is neither adopted nor waiting", tokens, known)
        queue.adopt(tokens, dedup=(ADOPTER, sequence))
    names = Counter(name_of(message.payload) for message in queue.reader() if b"|" in message.payload)
    wrong = {name: names[name] for _, some, _ in case.sets for name in some if names[name] != 1}
    check(not wrong, "of a set that was handed over there is not one of each", wrong)


def _letters(path: str, case: Case) -> None:
    """A message is among the dead letters once."""
    try:
        dead = shmq.open(dead_letters(path), create=False, unsafe_filesystem=True)
    except shmq.NotFound:
        return
    with dead:
        count = Counter(message.headers["shmq.index"] for message in dead.reader() if message.headers)
        several = {index: each for index, each in count.items() if each > 1 and index in case.truth.moved}
        check(not several, "several letters of one message", several)
        verified = dead.verify()
        check(bool(verified), "verify finds damage among the letters", verified.problems)


def everything(folder: str, cases: Mapping[str, Case], boot: bytes, *, thorough: bool) -> list[str]:
    """Judge all queues in that folder; what is wrong."""
    found = []
    clock_stands_at(next(iter(cases.values())).wall_ns)
    for name, case in cases.items():
        try:
            queue(f"{folder}/{name}", name, case, boot, thorough=thorough)
        except Exception as problem:  # noqa: BLE001  # whatever goes wrong is a finding
            calls = traceback.extract_tb(problem.__traceback__)
            where = " < ".join(f"{each.filename.rpartition('/')[2]}:{each.lineno}" for each in reversed(calls))
            said = f"{type(problem).__name__}: {problem} ({where})"
            found.append(f"{name}, during {case.truth.doing}: {said}".replace("\n", " ")[:1200])
    return found


# ---------------------------------------------------------------- a recovery that will be cut
def recover(folder: str, cases: Mapping[str, Case], log: str, boot: bytes) -> dict[str, Any]:
    """Be the first process after the cut: open all queues and put something; what it did, and when by *log*."""
    clock_stands_at(next(iter(cases.values())).wall_ns)
    now, told = counter(log), {}
    with warnings.catch_warnings(), another_boot(boot):
        warnings.simplefilter("ignore", RuntimeWarning)
        for name in cases:
            try:
                with shmq.open(f"{folder}/{name}", create=False, unsafe_filesystem=True) as queue:
                    there = sorted(message.index for message in queue.reader())
                    said = told[name] = {"there": there, "next": queue.next_index, "opened": moment_of(now)}
                    said["index"] = queue.put(payload(f"recovered-{log[-1]}"))
                    said.update(put=moment_of(now), first=queue.first_index)
            except shmq.NotFound:
                continue  # the judge knows whether it may be gone
    return told


def recovered(case: Case, said: Mapping[str, Any], log: str, moment: int, *, synced: bool) -> Case:
    """What may be true after a cut at that moment of that recovery."""
    truth = case.truth
    if moment >= said["opened"]:
        there = set(said["there"])
        lost = {index: data for index, data in truth.messages.items() if index not in there}
        truth = dataclasses.replace(
            truth,
            lost={**truth.lost, **lost},
            messages={index: data for index, data in truth.messages.items() if index in there},
            batches=[batch for batch in truth.batches if batch[0] in there],
            durable=max(there, default=-1) + 1,
            issued=max(truth.issued, said["next"]),
            unsure=frozenset(),
        )
    index, data = said["index"], payload(f"recovered-{log[-1]}")
    done = moment >= said["put"]
    return dataclasses.replace(
        case,
        truth=dataclasses.replace(
            truth,
            messages={**truth.messages, index: data},
            durable=index + 1 if done and synced else truth.durable,
            issued=max(truth.issued, index + 1) if done else truth.issued,
            unsure=truth.unsure if done else truth.unsure | {index},
            first=max(truth.first, said["first"]),
            doing="recovery",
        ),
    )


__all__ = ["NAME", "everything", "recover", "recovered"]
