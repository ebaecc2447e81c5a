"""
Look at dead letters, put them back where they came from, or drop them.

Examples:
    shmq dead ls orders.billing.dead
    shmq dead show orders.billing.dead 3
    shmq dead requeue orders.billing.dead 3
    shmq dead drop orders.billing.dead --all --yes

A queue that was finished takes nothing back, unless --reopen says to open it for writing again.
What is dropped is gone: it asks first, and a script says --yes.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import asking, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

_GROUP = "operator"
"""The group by which letters are finished."""
_OURS = "shmq."
"""What the headers begin with that a move adds."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("what", choices=("ls", "show", "requeue", "drop"), help="what to do")
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue of dead letters")
    verb.add_argument("indexes", metavar="INDEX", nargs="*", type=int, help="which letters")
    verb.add_argument("--all", action="store_true", help="all of them")
    verb.add_argument("--reopen", action="store_true", help="requeue: also into a queue that was finished")
    asking.add(verb)
    verb.add_argument("--json", action="store_true", help="as JSON")
    show.add_trusted(verb)


def run(arguments: argparse.Namespace) -> int:
    """Do it; exit 1 if a letter that was asked for is not there, 2 if none was asked for."""
    if arguments.what != "ls" and not arguments.indexes and not arguments.all:
        raise show.Misuse(f"which letters? Give indexes, or --all: shmq dead {arguments.what} {arguments.path} INDEX")
    looks = arguments.what in {"ls", "show"}
    with contextlib.ExitStack() as opened:
        queue = opened.enter_context(show.open_queue(arguments.path, read_only=looks, trusted=arguments.trusted))
        letters: Mapping[int, shmq.Message] = _unfinished(queue)
        if not looks:
            letters = _letters(opened.enter_context(queue.consumer(_GROUP, group=True, ack="explicit")))
        if arguments.what == "ls":
            _print(letters.values(), as_json=arguments.json)
            return 0
        chosen = list(letters) if arguments.all else arguments.indexes
        for index in chosen:
            if index not in letters:
                raise show.Problem(f"{arguments.path} has no dead letter {index}, or another operator is at it")
        if arguments.what == "show":
            _show_all([letters[index] for index in chosen], queue, as_json=arguments.json)
            return 0
        if arguments.what == "drop":
            which = show.counted(len(chosen), "dead letter")
            asking.be_sure(arguments, f"drop {which} of {arguments.path} for good")
        _move_all([letters[index] for index in chosen], queue, arguments)
    return 0


def _show_all(letters: Iterable[shmq.Message], queue: shmq.Queue, *, as_json: bool) -> None:
    if as_json:
        show.facts([{**_about(letter), "payload": letter.payload} for letter in letters])
        return
    for letter in letters:
        _show(letter, queue)


def _move_all(letters: Iterable[shmq.Message], queue: shmq.Queue, arguments: argparse.Namespace) -> None:
    """Put them back or drop them; whatever happens, say what was done."""
    done: list[dict[str, Any]] = []
    try:
        for letter in letters:
            facts, sentence = _WHAT[arguments.what](letter, queue, arguments)
            done.append(facts)
            if not arguments.json:
                print(sentence)
    finally:
        if arguments.json:
            show.facts(done)


def _unfinished(queue: shmq.Queue) -> dict[int, shmq.Message]:
    """
    All letters that nobody has finished, as who only looks sees them.

    Raises:
        Problem: they are no letters; who looks at the wrong queue leaves no name behind.
    """
    if _GROUP in queue.consumers():
        place = queue.group_place(_GROUP)
        done = set(place.done)
        return {letter.index: letter for letter in queue.reader(place.head) if letter.index not in done}
    letters = {letter.index: letter for letter in queue.reader()}
    if letters and not any(f"{_OURS}queue" in letter.headers for letter in letters.values()):
        raise show.Problem(f"{queue.path} is not a queue of dead letters: nothing there says where it is from")
    return letters


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


def _show(letter: shmq.Message, queue: shmq.Queue) -> None:
    for name, value in _about(letter).items():
        print(f"{name}: {value}".rstrip())
    print("payload:", end=" ", flush=True)
    try:
        show.printer(queue, "repr")(letter)
    except shmq.Corrupt as problem:
        what = f"which codec {queue.options.codec!r} cannot read: {problem.__cause__}"
        print(f"{letter.index}  {bytes(letter.view)!r}, {what}")


def _requeue(letter: shmq.Message, letters: shmq.Queue, arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    told = letter.headers
    where = told.get(f"{_OURS}queue")
    there = isinstance(where, str) and (where in shmq.volatile_queues() or os.path.isdir(where))
    if f"{_OURS}origin" not in told or not isinstance(where, str) or not there:
        raise show.Problem(f"letter {letter.index} says that it is from {where!r}, and there is no such queue")
    own = {name: value for name, value in told.items() if not name.startswith(_OURS)}
    queue_id, _, index, group, _ = told[f"{_OURS}origin"]
    with show.open_queue(where, trusted=arguments.trusted) as source:
        beside = os.path.dirname(source.path) == os.path.dirname(letters.path) and os.path.isabs(where)
        if source.id != queue_id and not beside:  # beside, it may have been repaired; elsewhere, anybody may say so
            raise show.Problem(f"letter {letter.index} says that it is from {where}, and that is another queue now")
        if source.finished and not arguments.reopen:
            raise show.Problem(
                f"cannot put letter {letter.index} back: {where} was finished, so nobody puts there until somebody "
                "opens it for writing again; the letter stays. --reopen opens it"
            )
        fields: dict[str, Any] = {"key": letter.key, "type": letter.type, "time_ns": letter.time_ns, "headers": own}
        once = (f"shmq.requeue/{queue_id}/{index}/{group}", 1)  # whoever was killed before the ack put it already
        index = _put_back(letter, source, fields, once, same=source.options.codec == letters.options.codec)
    letter.ack()
    return {
        "letter": letter.index,
        "queue": where,
        "index": index,
    }, f"letter {letter.index} is message {index} of {where}"


def _put_back(
    letter: shmq.Message, source: shmq.Queue, fields: dict[str, Any], once: tuple[str, int], *, same: bool
) -> int:
    """Its index there. *same*: both queues have one codec; where they have not, only its bytes are what they were."""
    if same:
        with contextlib.suppress(shmq.Corrupt, shmq.BadFormat):  # it cannot be read, or by programs only: its bytes can
            return source.put(letter.payload, **fields, dedup=once)
    with source.stage() as staged:
        with staged.reserve(len(letter.view), **fields) as slot:
            slot.buffer[:] = letter.view
        return source.adopt(staged, dedup=once).start


def _drop(letter: shmq.Message, _: shmq.Queue, __: argparse.Namespace) -> tuple[dict[str, Any], str]:
    letter.ack()
    return {"letter": letter.index}, f"letter {letter.index} was dropped"


_WHAT = {"requeue": _requeue, "drop": _drop}
