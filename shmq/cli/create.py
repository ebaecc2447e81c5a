"""
Make a queue in a new directory, or a volatile one, which lasts as long as somebody has it open.

Examples:
    shmq create orders --codec json
    shmq create shm:orders      keeps it until Ctrl-C
    shmq create journal --retention age=86400
"""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse

CODECS = ("bytes", "text", "json", "msgpack", "pickle")


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument("path", metavar="PATH", help="the directory to make; the one above it must exist. Or shm:NAME")
    verb.add_argument("--codec", choices=CODECS, default="bytes", help="how payloads are encoded (bytes)")
    verb.add_argument("--chunk-bytes", type=int, metavar="N", help="size of a full-grown chunk file (64 MiB)")
    verb.add_argument(
        "--retention",
        type=show.retention,
        metavar="HOW",
        help="how long messages are kept: acked, until all consumers have finished them (the default); forever; "
        "age=SECONDS; bytes=N",
    )
    verb.add_argument("--no-checksum", action="store_true", help="messages without CRC-32C")
    verb.add_argument("--json", action="store_true", help="say what was made as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Make it; refuse if there is one."""
    given: dict[str, Any] = {"codec": arguments.codec}
    if arguments.chunk_bytes is not None:
        given["chunk_bytes"] = arguments.chunk_bytes
    if arguments.retention is not None:
        given["retention"] = arguments.retention
    if arguments.no_checksum:
        given["checksum"] = False
    try:
        options = shmq.Options(**given)
    except ValueError as problem:
        raise show.Problem(str(problem)) from None
    with contextlib.suppress(shmq.NotFound), shmq.open(arguments.path, create=False, read_only=True, trusted=True):
        raise show.Problem(f"{arguments.path} is a queue already; it was not touched")
    with shmq.open(arguments.path, options=options, trusted=True) as queue:
        if arguments.json:
            show.facts({"path": queue.place, "options": show.options(queue)})
        else:
            print(f"made {queue.place} (codec {options.codec})")
        if queue.place.startswith("shm:"):
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            print(f"{queue.place} lasts as long as somebody has it open: here, until Ctrl-C", file=sys.stderr)
            with contextlib.suppress(KeyboardInterrupt):
                sys.stdout.flush()
                signal.pause()
    return 0
