"""
List, make, show, remove or rename the consumers of a queue.

`prune` is for names that Spark's queries without a group have left, by hundreds perhaps. Nothing is lost with them but
the sight of a lag: one whose query goes on is back with its next batch. Those of older versions hold the queue until
then. `rm` asks first; a script says --yes.

Examples:
    shmq consumer ls orders
    shmq consumer create orders workers --group --ack explicit --max-attempts 5 --start latest
    shmq consumer show orders workers --json
    shmq consumer rm orders billing
    shmq consumer rename orders billing invoices
    shmq consumer prune orders
    shmq consumer prune orders --yes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq.cli import asking, name_options, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    what = verb.add_subparsers(dest="what", metavar="ls|create|show|rm|rename|prune", required=True)

    def command(name: str, about: str, do: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = what.add_parser(
            name, help=about, description=f"{about[:1].upper()}{about[1:]}."
        )
        made.add_argument("path", type=show.place, metavar="PATH", help="the queue")
        made.set_defaults(do=do)
        return made

    listing = command("ls", "every name, how far it is and how far behind", _ls)
    creation = command("create", "make a name, or say that it is there as it was asked for", _create)
    creation.add_argument("name", metavar="NAME", help="what it is called")
    name_options.add(creation)
    display = command("show", "all about a name", _show)
    display.add_argument("name", metavar="NAME", help="the consumer")
    removal = command("rm", "forget names; what they alone held back goes", _rm)
    removal.add_argument("names", metavar="NAME", nargs="+", help="the consumers; nobody may hold them")
    asking.add(removal)
    prune = command("prune", "say which names Spark's queries without a group have left", _prune)
    prune.add_argument("--yes", action="store_true", help="and remove them")
    rename = command("rename", "give a name another name; it goes on where it stood", _rename)
    rename.add_argument("old", metavar="OLD", help="the consumer; nobody may hold it")
    rename.add_argument("new", metavar="NEW", help="what it is called from now on")
    for each in (listing, creation, display, removal, prune, rename):
        each.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    arguments.do(arguments)
    return 0


def _ls(arguments: argparse.Namespace) -> None:
    with show.open_queue(arguments.path, read_only=True) as queue:
        if arguments.json:
            show.facts({name: show.known(each) for name, each in queue.consumers().items()})
        else:
            for name, each in queue.consumers().items():
                print(show.consumer(name, each))


def _create(arguments: argparse.Namespace) -> None:
    with show.open_queue(arguments.path) as queue:
        before = queue.consumers()
        name_options.open_name(queue, arguments).close()
        made = arguments.name not in before
        stats = queue.consumers().get(arguments.name)
    if stats is None:
        raise show.Problem(f"{arguments.name} went with this command, which was all that had it: --ephemeral")
    if arguments.json:
        show.facts({"consumer": arguments.name, "made": made, **show.known(stats)})
    else:
        print(f"{'made' if made else 'is there:'} {show.consumer(arguments.name, stats)}")


def _show(arguments: argparse.Namespace) -> None:
    with show.open_queue(arguments.path, read_only=True) as queue:
        found = queue.consumers()
    if arguments.name not in found:
        names = f"; it has {', '.join(sorted(found))}" if found else ""
        raise show.Problem(f"{arguments.path} has no consumer {arguments.name!r}{names}")
    stats = found[arguments.name]
    if arguments.json:
        show.facts({"consumer": arguments.name, **show.known(stats)})
        return
    facts = show.known(stats)
    group = facts.pop("group", {})
    facts["kind"] = "group" if facts.pop("shared") else "one holder at a time"
    if "oldest" in facts:
        facts["oldest"] = show.age(stats.oldest)
    if "filter" in facts:
        facts["filter"] = repr(stats.filter)
    rows = {**facts, **group}
    show.table([(name.replace("_", " "), value) for name, value in {"consumer": arguments.name, **rows}.items()])


def _rm(arguments: argparse.Namespace) -> None:
    names = ", ".join(arguments.names)
    with show.open_queue(arguments.path) as queue:
        known = queue.consumers()
        for name in arguments.names:  # before anybody is asked
            if name not in known:
                queue.drop_consumer(name)
        asking.be_sure(arguments, f"remove {names} from {arguments.path}, and forget where it stood")
        gone: list[str] = []
        try:
            for name in arguments.names:
                queue.drop_consumer(name)
                gone.append(name)
        finally:
            if arguments.json:
                show.facts({"removed": gone})
            elif gone:
                print(f"removed {', '.join(gone)}")


def _rename(arguments: argparse.Namespace) -> None:
    with show.open_queue(arguments.path) as queue:
        queue.rename_consumer(arguments.old, arguments.new)
    if arguments.json:
        show.facts({"before": arguments.old, "consumer": arguments.new})
    else:
        print(f"{arguments.old} is {arguments.new} now")


def _prune(arguments: argparse.Namespace) -> None:
    pruned: list[str] = []
    with show.open_queue(arguments.path, read_only=not arguments.yes) as queue:
        for name, each in queue.consumers().items():
            if each.hold != "nothing" and (each.shared or not shmq.spark.is_automatic_group(name)):
                continue
            if arguments.yes and not _dropped(queue, name, quiet=arguments.json):
                continue
            pruned.append(name)
            if not arguments.json:
                print(f"{'removed' if arguments.yes else 'would remove'} {show.consumer(name, each)}")
    if arguments.json:
        show.facts({"names": pruned, "removed": arguments.yes})
        return
    rest = "" if arguments.yes or not pruned else "; nothing was removed yet: --yes does it"
    print(f"{show.counted(len(pruned), 'name')}{rest}")


def _dropped(queue: shmq.Queue, name: str, *, quiet: bool) -> bool:
    """Whether it went: somebody may have it, or have been quicker."""
    try:
        queue.drop_consumer(name)
    except (shmq.Busy, shmq.NotFound) as problem:
        if not quiet:
            print(f"left: {problem}")
        return False
    return True
