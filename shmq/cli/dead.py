"""
Look at dead letters, put them back where they came from, or drop them.

Examples:
    shmq dead ls orders.billing.dead
    shmq dead show orders.billing.dead 3
    shmq dead requeue orders.billing.dead 3
    shmq dead drop orders.billing.dead --all
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

_GROUP = "operator"
"""The group by which letters are finished."""
_OURS = "shmq."
"""What the headers begin with that a move adds."""


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument("what", choices=("ls", "show", "requeue", "drop"), help="what to do")
    verb.add_argument("path", metavar="PATH", help="the queue of dead letters")
    verb.add_argument("indexes", metavar="INDEX", nargs="*", type=int, help="which letters")
    verb.add_argument("--all", action="store_true", help="all of them")
    verb.add_argument("--json", action="store_true", help="ls: as JSON")
    show.add_trusted(verb)


def run(arguments: argparse.Namespace) -> int:
    """Do it; exit 1 if a letter that was asked for is not there."""
    with contextlib.ExitStack() as opened:
        queue = opened.enter_context(show.open_queue(arguments.path, trusted=arguments.trusted))
        letters: Mapping[int, shmq.Message] = {}
        if _GROUP not in queue.consumers():  # who looks at the wrong queue leaves no name behind
            letters = {letter.index: letter for letter in queue.reader(queue.first_index, queue.next_index)}
            if letters and not any(f"{_OURS}queue" in letter.headers for letter in letters.values()):
                raise show.Problem(f"{arguments.path} is no queue of dead letters: nothing there says where it is from")
        if _GROUP in queue.consumers() or arguments.what not in ("ls", "show"):
            letters = _letters(opened.enter_context(queue.consumer(_GROUP, group=True, ack="explicit")))
        if arguments.what == "ls":
            _print(letters.values(), as_json=arguments.json)
            return 0
        for index in letters if arguments.all else arguments.indexes:
            if index not in letters:
                raise show.Problem(f"{arguments.path} has no dead letter {index}, or another operator is at it")
            _WHAT[arguments.what](letters[index], queue, arguments)
    return 0


def _letters(operator: shmq.GroupConsumer) -> dict[int, shmq.GroupMessage]:
    """All that nobody has finished. What is left of them when the operator goes comes again for the next one."""
    found = []
    while True:
        try:
            found += operator.get_many(1000, timeout=0)
        except shmq.Empty:
            return {letter.index: letter for letter in sorted(found, key=lambda letter: letter.index)}


def _about(letter: shmq.Message) -> dict[str, Any]:
    told = letter.headers
    names = ("queue", "index", "group", "cause", "reason", "attempts", "traceback")
    return {"letter": letter.index, **{name: told.get(f"{_OURS}{name}") for name in names}}


def _print(letters: Iterable[shmq.Message], *, as_json: bool) -> None:
    about = [_about(letter) for letter in letters]
    if as_json:
        show.facts(about)
    elif about:
        names = ("letter", "index", "group", "cause", "attempts", "reason")
        rows = [tuple(str(each[name]) for name in names) for each in about]
        show.table([tuple(name.upper() for name in names), *rows], left=len(names))
    else:
        print("no dead letters")


def _show(letter: shmq.Message, queue: shmq.Queue, _: argparse.Namespace) -> None:
    for name, value in _about(letter).items():
        print(f"{name}: {value}".rstrip())
    print("payload:", end=" ", flush=True)
    show.printer(queue, "repr")(letter)


def _requeue(letter: shmq.Message, _: shmq.Queue, arguments: argparse.Namespace) -> None:
    told = letter.headers
    where = told.get(f"{_OURS}queue")
    if f"{_OURS}origin" not in told or not isinstance(where, str) or not os.path.isdir(where):
        raise show.Problem(f"letter {letter.index} says that it is from {where!r}, and there is no such queue")
    own = {name: value for name, value in told.items() if not name.startswith(_OURS)}
    queue_id, _, index, group, _ = told[f"{_OURS}origin"]
    with show.open_queue(where, trusted=arguments.trusted) as source:
        index = source.put(
            letter.payload,
            key=letter.key,
            type=letter.type,
            time_ns=letter.time_ns,
            headers=own,
            dedup=(f"shmq.requeue/{queue_id}/{index}/{group}", 1),  # whoever was killed before the ack put it already
        )
    letter.ack()
    print(f"letter {letter.index} is message {index} of {where}")


def _drop(letter: shmq.Message, _: shmq.Queue, __: argparse.Namespace) -> None:
    letter.ack()
    print(f"letter {letter.index} was dropped")


_WHAT = {"show": _show, "requeue": _requeue, "drop": _drop}
