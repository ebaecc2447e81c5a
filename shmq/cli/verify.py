"""
Check a queue, ours or foreign, or all shards of a directory, and print every problem: file, position, reason.

Changes nothing.

Examples:
    shmq verify orders
    shmq verify /var/spool/kestrel --queue orders --json

Of a folder with queues of ours in it each is checked, and what is there of a foreign format. Exit status 1 when there
is a problem.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import foreign, roots, show
from shmq.cli.progress import Progress

if TYPE_CHECKING:
    import argparse

_MARK = "queue.shmq"
"""The file that makes a directory a queue; see docs/format.md."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    foreign.add_source(verb, ours=True)
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Check the queue; exit status 1 when there is a problem."""
    source = arguments.source
    shards = roots.map_of(arguments)
    if shards is not None:
        return roots.verify(shards, as_json=arguments.json)
    if source.startswith("shm:") or (arguments.format is None and shmq.formats.detect(source) == "shmq"):
        facts, whole = _ours(source, as_json=arguments.json)
        return _end(facts, arguments, whole=whole)
    show.refuse_root(source)
    if arguments.format is None and arguments.queue is None and (inside := _inside(source)):
        facts, whole = _all(source, inside, as_json=arguments.json)
    else:
        name = foreign.format_of(source, arguments.format)
        facts, whole = _foreign(source, arguments.queue, name, as_json=arguments.json)
    return _end(facts, arguments, whole=whole)


def _end(facts: dict[str, Any], arguments: argparse.Namespace, *, whole: bool) -> int:
    if arguments.json:
        show.facts(facts)
    return 0 if whole else 1


def _inside(source: str) -> list[str]:
    """The queues of ours in a folder that is none itself."""
    os.path.abspath(source)  # which says so, where the current directory was removed
    if not os.path.isdir(source):
        return []
    with os.scandir(source) as found:
        return sorted(os.path.join(source, each.name) for each in found if os.path.exists(f"{each.path}/{_MARK}"))


def _all(source: str, inside: list[str], *, as_json: bool) -> tuple[dict[str, Any], bool]:
    told, failed = [], 0
    for path in inside:
        try:
            facts, whole = _ours(path, as_json=as_json)
        except (shmq.ShmqError, OSError) as problem:  # which ends the others' check no more than any other problem
            reason = show.one_line(problem)
            facts = {"format": "shmq", "problems": [{"file": _MARK, "position": 0, "reason": reason}]}
            whole = False
            if not as_json:
                print(f"{path}: {reason}")
        told.append({"path": path, **facts})
        failed += not whole
    name = None
    with contextlib.suppress(shmq.ShmqError, OSError):
        name = shmq.formats.detect(source)
    if name is not None:
        facts, whole = _foreign(source, None, name, as_json=as_json)
        told.append({"path": source, **facts})
        failed += not whole
    if not as_json:
        print(f"{source}: {show.counted(len(told), 'check')}, {failed:,} with problems")
    return {"queues": told}, not failed


def _foreign(source: str, queue: str | None, name: str, *, as_json: bool) -> tuple[dict[str, Any], bool]:
    problems = shmq.formats.verify(source, queue, name)
    if not as_json:
        for file, position, reason in problems:
            print(f"{file} at {position}: {reason}")
        print(f"{source}: {name}, {show.counted(len(problems), 'problem')}")
    return {"format": name, "problems": [problem._asdict() for problem in problems]}, not problems


def _ours(source: str, *, as_json: bool) -> tuple[dict[str, Any], bool]:
    with Progress() as progress:
        found = shmq.verify(source, progress=progress.at_share)
    numbers = ("messages", "bytes", "chunks", "padded", "open_claims", "lost", "at_least")
    facts: dict[str, Any] = {"format": "shmq", **{name: getattr(found, name) for name in numbers}}
    facts |= {"problems": [each._asdict() for each in found.problems], "more": found.more, "aside": found.aside}
    if not as_json:
        for file, position, reason in found.problems:
            print(f"{file} at {position}: {reason}")
        count = len(found.problems) + found.more
        print(
            f"{source}: shmq, {show.counted(found.messages, 'message')} whole in "
            f"{show.counted(found.chunks, 'chunk')}, {show.counted(count, 'problem')}"
        )
        show.aside(source, found.aside)
    return facts, bool(found)
