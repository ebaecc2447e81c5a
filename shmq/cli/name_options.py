"""What a consumer's name can be made with, as options of `take` and `consumer create`. No verb of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from shmq.cli import quantities, show, whence

if TYPE_CHECKING:
    import argparse

    import shmq

_GIVEN = ("lease", "max_attempts", "dead_letter", "expire_to", "ordered_by", "window", "expires")


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments. Those of a name that is there may be left out, and are not contradicted."""
    made = verb.add_argument_group("what a new name is made with, and then stays with it")
    made.add_argument("--group", action="store_true", help="a group, whose members share the messages")
    made.add_argument("--ack", choices=("auto", "explicit"), help="when a message is finished (auto: handed out)")
    made.add_argument("--start", metavar="PLACE", help=f"where it begins (earliest): {whence.WORDS}")
    made.add_argument("--lease", type=quantities.seconds, metavar="TIME", help="after which a holder loses a message")
    made.add_argument("--max-attempts", type=show.whole(1), metavar="N", help="before a message is a dead letter")
    made.add_argument("--dead-letter", type=show.place, metavar="PATH", help="their queue (QUEUE.NAME.dead)")
    made.add_argument("--expire-to", type=show.place, metavar="PATH", help="the queue for what is past its ttl (none)")
    made.add_argument("--ordered-by", choices=("key",), help="those of a key in order, one at a time")
    made.add_argument("--window", type=show.whole(1), metavar="N", help="messages in flight, a power of two (65536)")
    made.add_argument("--expires", type=quantities.seconds, metavar="TIME", help="goes when unused for so long (never)")
    made.add_argument(
        "--hold", choices=("yes", "no", "nothing"), help="what it has not finished is kept, by all means, or never"
    )
    made.add_argument("--ephemeral", action="store_true", help="it goes with whoever has it")
    show.add_filter(verb)


def open_name(queue: shmq.Queue, arguments: argparse.Namespace) -> shmq.Consumer | shmq.GroupConsumer:
    """
    The consumer that was asked for; one that is there is opened as what it is, unless something else is asked for.

    Raises:
        Problem: there is no such consumer, or none with these options.
    """
    given: dict[str, Any] = {name: getattr(arguments, name) for name in _GIVEN if getattr(arguments, name) is not None}
    for path in ("dead_letter", "expire_to"):  # as somebody at a shell means it
        if path in given and "/" in given[path]:
            given[path] = os.path.abspath(given[path])
    if arguments.start is not None:
        given["start"] = whence.index_at(queue, "--start", arguments.start)
    if arguments.hold is not None:
        given["hold"] = {"yes": True, "no": False}.get(arguments.hold, arguments.hold)
    if arguments.ephemeral:
        given["ephemeral"] = True
    known = queue.consumers().get(arguments.name)
    if arguments.group or (known is not None and known.shared):
        given["group"] = True
    try:
        consumer: shmq.Consumer | shmq.GroupConsumer = queue.consumer(
            arguments.name, ack=arguments.ack, filter=show.wanted(arguments), **given
        )
    except (ValueError, TypeError) as problem:
        raise show.Problem(str(problem)) from None
    return consumer
