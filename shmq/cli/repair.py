"""
Write a clean copy of a damaged queue, ours or foreign, beside it. The original is not touched.

Examples:
    shmq repair orders
    shmq repair /var/spool/kestrel --queue orders
    shmq repair orders.sej --to clean.sej

With --in-place the clean queue takes the place of the damaged one, which is renamed to PATH.damaged; of a foreign one
the damaged files move into a hidden folder beside the clean ones, and that is refused while its own program is seen to
be at it. A queue of ours that is whole is left as it is. Of a directory of shards all are repaired, into a clean
directory of shards, or each in its place.

Exit status 3 when the copy is made and something is lost: messages, which are in it as indexes without one, or a file
beside them, as the ledger of adoptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq.cli import foreign, roots, show
from shmq.cli.progress import Progress

if TYPE_CHECKING:
    import argparse

LOST = 3
"""The exit status that says so: the copy is clean, and not everything that was put is in it."""
_MEANS = {
    "ledger.shmq": "a batch that was adopted can be adopted again",
    "dedup.shmq": "a put with dedup that is in no chunk any more can be made again",
}


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    foreign.add_source(verb, ours=True)
    place = verb.add_mutually_exclusive_group()
    place.add_argument("--to", metavar="PATH", help="where the copy goes; beside the original by default")
    place.add_argument("--in-place", action="store_true", help="put the clean one in the place of the damaged one")
    verb.add_argument(
        "--aside", metavar="EPOCH", type=int, help="a queue of what the recovery of that epoch has set aside, instead"
    )
    verb.add_argument("--json", action="store_true", help="as JSON")
    foreign.add_sizes(verb)


def run(arguments: argparse.Namespace) -> int:
    """Repair it, and say where the copy is."""
    shards = roots.map_of(arguments)
    if shards is not None:
        return roots.repair(shards, arguments)
    if arguments.format in (None, "shmq") and shmq.formats.detect(arguments.source) == "shmq":
        return _ours(arguments)
    name = foreign.format_of(arguments.source, arguments.format)
    # What nobody can know, where a format has no lock, is said before its files are moved.
    more = foreign.options_of(arguments, name)
    if arguments.in_place and name != "chronicle":
        more["tell"] = foreign.tell
    done = shmq.formats.repair(
        arguments.source, arguments.queue, name, to=arguments.to, in_place=arguments.in_place, **more
    )
    if arguments.json:
        show.facts(done._asdict() | {"problems": [problem._asdict() for problem in done.problems]})
        return 0
    for file, position, reason in done.problems:
        print(f"{file} at {position}: {reason}")
    print(
        f"{done.path}: {show.counted(done.messages, 'message')}, clean"
        + (f"; the damaged files are in {done.kept}" * bool(done.kept))
    )
    return 0


def _ours(arguments: argparse.Namespace) -> int:
    with Progress() as progress:
        done = shmq.repair(
            arguments.source,
            arguments.to,
            in_place=arguments.in_place,
            aside=arguments.aside,
            progress=progress.at_share,
        )
    if arguments.json:
        problems = [problem._asdict() for problem in done.problems]
        facts = {name: getattr(done, name) for name in ("path", "messages", "lost", "at_least", "kept")}
        show.facts({**facts, "problems": problems, "gone": list(done.gone)})
        return 0 if done else LOST
    for file, position, reason in done.problems:
        print(f"{file} at {position}: {reason}")
    if arguments.in_place and not done.kept:
        print(f"{done.path}: {show.counted(done.messages, 'message')}, nothing is damaged; it was left as it is")
    else:
        print(
            f"{done.path}: {show.counted(done.messages, 'message')}, clean; "
            f"{'at least ' * done.at_least}{done.lost:,} lost"
            + (f"; the damaged queue is {done.kept}" * bool(done.kept))
        )
    for file in done.gone:
        print(f"{file} is lost: {_MEANS.get(file, 'that name begins anew')}")
    if arguments.aside is None:
        original = done.kept or arguments.source
        show.aside(original, shmq.verify(original).aside)
    return 0 if done else LOST
