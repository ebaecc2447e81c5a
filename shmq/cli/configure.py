"""
Change options of a queue for everybody, now, whoever has it open; without any, show them.

Examples:
    shmq configure orders
    shmq configure orders --max-messages 100000 --full raise
    shmq configure orders --max-messages none --retention age=7d
    shmq configure orders --ttl 2h

A put that begins after this goes by them; what is in the queue stays what it is. The other options of `shmq create`,
such as --durability and --codec, are for life: for others, make a new queue and `shmq replay` the old one into it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmq.cli import quantities, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_NONE = "none"
_NAMES = ("max_messages", "max_bytes", "full", "retention", "ttl")


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument(
        "--max-messages", type=_or_none(show.whole(1)), metavar="N", help="a bound on what is not finished, or none"
    )
    verb.add_argument(
        "--max-bytes", type=_or_none(quantities.size), metavar="SIZE", help="a bound on its bytes, or none"
    )
    verb.add_argument("--full", choices=show.FULL, help="what a put does at a bound")
    verb.add_argument("--retention", type=show.retention, metavar="HOW", help="acked; forever; age=TIME; bytes=SIZE")
    verb.add_argument(
        "--ttl", type=_or_none(quantities.seconds), metavar="TIME", help="after which a message expires, or none"
    )
    verb.add_argument("--json", action="store_true", help="as JSON")


def _or_none(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """What *kind* reads, or "none"."""

    def value(word: str) -> Any:
        return _NONE if word == _NONE else kind(word)

    return value


def run(arguments: argparse.Namespace) -> int:
    """Change what was given, and show how it is now."""
    given = {name: getattr(arguments, name) for name in _NAMES if getattr(arguments, name) is not None}
    changes: dict[str, Any] = {name: None if value == _NONE else value for name, value in given.items()}
    with show.open_queue(arguments.path, read_only=not changes) as queue:
        if changes:
            try:
                queue.configure(**changes)
            except ValueError as problem:
                raise show.Misuse(str(problem)) from None
        options = show.options(queue)
    if arguments.json:
        show.facts({"path": queue.place, "options": options, "changed": sorted(changes)})
    else:
        show.table(
            [(name.replace("_", " "), _NONE if value is None else str(value)) for name, value in options.items()]
        )
    return 0
