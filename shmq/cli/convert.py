"""
Turn one foreign queue into another, of any of the four formats.

Examples:
    shmq convert /var/spool/kestrel orders.sej --to sej --queue orders
    shmq convert orders.sej /var/spool/queues --to libkestrel --name orders

The source is read once to see what would be lost, and once to write. For shmq queues, import and export do the same.
"""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, Any

from shmq import formats
from shmq.cli import show, transfer

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    transfer.add_source(verb)
    verb.add_argument(
        "target", type=show.place, metavar="DST", help="what to make: a directory, or QewQew's header file"
    )
    verb.add_argument(
        "--to", choices=transfer.FORMATS, required=True, metavar="FORMAT", help="kestrel, libkestrel, ..."
    )
    verb.add_argument("--name", metavar="NAME", help="the name of the queue in DST; its own by default")
    verb.add_argument("--lossy", action="store_true", help="leave out what is damaged, or what the format cannot hold")
    verb.add_argument("--json", action="store_true", help="say what was written as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Convert, and say what."""
    name = transfer.format_of(arguments.source, arguments.format)
    found, losses = transfer.followers(arguments.source, name, arguments.queue)
    options: dict[str, Any] = {} if arguments.lossy else {"strict": True}

    def source() -> Iterator[formats.Entry]:
        return formats.read(arguments.source, name, arguments.queue, **options)

    if arguments.lossy:
        transfer.say_damage(arguments.source, name, arguments.queue)
    lists = formats.lists(arguments.source, name, arguments.queue, strict=not arguments.lossy)
    with transfer.no_cycles():
        try:
            about = _survey(transfer.Batches(lists), found)
        except transfer.Damage as damage:
            help_ = "--lossy converts all that is whole, and shmq repair writes a clean copy"
            raise show.Problem(f"{damage}. Nothing was written; {help_}") from damage
        return _convert(arguments, name, about, source, losses)


def _convert(
    arguments: argparse.Namespace,
    name: str,
    about: transfer.Survey,
    source: Callable[[], Iterator[formats.Entry]],
    losses: list[str],
) -> int:
    losses += transfer.losses_of(about, arguments.to)
    transfer.refuse_losses(losses, lossy=arguments.lossy)
    target = transfer.queue_name(arguments.name, arguments.to, arguments.queue or arguments.source)
    places = None if arguments.to == "qewqew" else transfer.places_in(about, arguments.to) or None
    count = formats.write(
        arguments.target,
        transfer.Progress("converted").over(_numbered(source(), about, arguments.to)),
        arguments.to,
        target,
        places,
        lossy=arguments.lossy,
    )
    if arguments.json:
        show.facts({"count": count, "from": name, "to": arguments.to, "lost": losses, "path": arguments.target})
    else:
        print(f"converted {count:,} messages and {show.counted(len(about.places), 'consumer')} to {arguments.target}")
    return 0


def _survey(source: transfer.Batches, found: list[transfer.Follower]) -> transfer.Survey:
    progress = transfer.Progress("looked at")
    has: collections.Counter[str] = collections.Counter()
    opened: dict[int, int] = {}
    count = timed = 0
    for batch in source.some():
        for each in found:
            each.look(batch, count)
        for entry in batch:
            timed += entry.time_ns is not None
            has["key"] += bool(entry.key)
            has["type"] += bool(entry.type)
            has["expiry"] += entry.expires_ns is not None
            has["attempts"] += bool(entry.attempts)
            if entry.extra and "xid" in entry.extra:
                opened[len(opened)] = entry.extra["xid"]
        count += len(batch)
        progress.at(count)
    progress.end()
    has["time"] = timed
    places = {each.called: count if each.at is None else each.at for each in found if each.comes}
    done = {each.called: tuple(each.finished) for each in found if each.comes and each.group}
    return transfer.Survey(0, count, count, places, done, opened, has)


def _numbered(source: Iterator[formats.Entry], about: transfer.Survey, name: str) -> Iterator[formats.Entry]:
    for count, entry in enumerate(itertools.islice(source, about.messages)):
        extra = entry.extra if count < len(about.opened) else None
        yield entry._replace(index=count + (name == "libkestrel"), extra=extra)
