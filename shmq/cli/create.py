"""
Make a queue in a new directory, or a volatile one, which lasts as long as somebody has it open.

Examples:
    shmq create orders --codec json
    shmq create shm:orders      # keeps it until Ctrl-C
    shmq create ledger --durability sync --retention forever
    shmq create journal --retention age=7d --durability interval=0.1
    shmq create ledger --durability replicated=1 --followers b,c
    shmq create jobs --max-messages 10000 --full raise
    shmq create /srv/app/orders --group app     # shared by all users of that group
"""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import quantities, show

if TYPE_CHECKING:
    import argparse

_OPTIONS = (
    "chunk_bytes",
    "index_spacing",
    "retention",
    "durability",
    "max_messages",
    "max_bytes",
    "full",
    "ttl",
    "mode",
    "group",
)
CODECS = ("bytes", "text", "json", "msgpack", "pickle")


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument(
        "path", type=show.place, metavar="PATH", help="the directory to make; the one above it must exist. Or shm:NAME"
    )
    verb.add_argument("--codec", choices=CODECS, default="bytes", help="how payloads are encoded (bytes)")
    verb.add_argument("--chunk-bytes", type=quantities.size, metavar="SIZE", help="of a full-grown chunk file (64M)")
    verb.add_argument(
        "--index-spacing", type=show.whole(1), metavar="N", help="messages from one entry of the index to the next (64)"
    )
    verb.add_argument(
        "--retention",
        type=show.retention,
        metavar="HOW",
        help="how long messages are kept: acked, until all consumers have finished them (the default); forever; "
        "age=TIME, like 7d; bytes=SIZE, like 10G",
    )
    verb.add_argument(
        "--durability",
        type=show.durability_or_count,
        metavar="WHAT",
        help="what a put promises about power loss: process, nothing (the default); sync, it is on the disk; "
        "interval=TIME; replicated=N, and on those of N followers, too",
    )
    verb.add_argument("--followers", metavar="NAMES", help="with replicated=N: what they are called, as b,c")
    verb.add_argument(
        "--called", metavar="NAME", help="with replicated=N: what this queue is called when it follows (primary)"
    )
    verb.add_argument("--max-messages", type=show.whole(1), metavar="N", help="a bound on what is not finished (none)")
    verb.add_argument("--max-bytes", type=quantities.size, metavar="SIZE", help="a bound on its bytes (none)")
    verb.add_argument(
        "--full", choices=show.FULL, help="what a put does at a bound: block (the default), raise, drop_oldest"
    )
    verb.add_argument("--ttl", type=show.seconds, metavar="TIME", help="after which a message expires (never)")
    verb.add_argument(
        "--group", type=show.group, metavar="NAME", help="share it with the users of that group; or its number (none)"
    )
    verb.add_argument("--mode", type=show.octal, metavar="BITS", help="of its files: 600, or 660 with --group")
    verb.add_argument("--no-checksum", action="store_true", help="messages without CRC-32C")
    verb.add_argument("--json", action="store_true", help="say what was made as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Make it; refuse if there is one."""
    given: dict[str, Any] = {"codec": arguments.codec}
    for name in _OPTIONS:
        if getattr(arguments, name) is not None:
            given[name] = getattr(arguments, name)
    if arguments.no_checksum:
        given["checksum"] = False
    try:
        _have_followers(given, arguments)
        options = shmq.Options(**given)
    except ValueError as problem:
        raise show.Misuse(str(problem)) from None
    sharing = shmq.Options(group=options.group) if arguments.path.startswith("shm:") and options.group else None
    with (
        contextlib.suppress(shmq.NotFound),
        shmq.open(arguments.path, create=False, read_only=True, trusted=True, options=sharing),
    ):
        raise show.Problem(f"{arguments.path} is a queue already; it was not touched")
    with shmq.open(arguments.path, options=options, trusted=True) as queue:
        if arguments.json:
            show.facts({"path": queue.place, "options": show.options(queue)})
        else:
            sharers = "" if queue.options.group is None else f", shared by group {queue.options.group}"
            print(f"made {queue.place} (codec {options.codec}{sharers})")
        if queue.place.startswith("shm:"):
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            print(f"{queue.place} lasts as long as somebody has it open: here, until Ctrl-C", file=sys.stderr)
            with contextlib.suppress(KeyboardInterrupt):
                sys.stdout.flush()
                signal.pause()
    return 0


def _have_followers(given: dict[str, Any], arguments: argparse.Namespace) -> None:
    """The durability with its followers, where puts wait for some."""
    counted = isinstance(given.get("durability"), int)
    if counted != (arguments.followers is not None) or (arguments.called is not None and not counted):
        raise show.Misuse("--durability replicated=N and --followers NAMES go together, and --called with them")
    if counted:
        name = {} if arguments.called is None else {"name": arguments.called}
        given["durability"] = shmq.Durability.replicated(given["durability"], arguments.followers.split(","), **name)
