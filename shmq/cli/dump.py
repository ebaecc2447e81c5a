"""
Print what is in a foreign queue, and with --state where its consumers stand. Changes nothing.

Examples:
    shmq dump /var/spool/kestrel --queue orders
    shmq dump orders.sej --state
    shmq dump orders.cq/20231115F.cq4

A Chronicle queue, or one of its files, is printed as Chronicle's own dump prints it, with every document that is there;
with --json its messages are lines of JSON, as those of the other formats.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING

import shmq
from shmq.cli import foreign, show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    foreign.add_source(verb)
    verb.add_argument("--limit", type=show.whole(0), metavar="N", help="the first N messages only")
    verb.add_argument("--json", action="store_true", help="one JSON object a line, of a Chronicle queue too")
    verb.add_argument("--raw", action="store_true", help="payloads and newlines, instead of one JSON object a line")
    verb.add_argument("--state", action="store_true", help="consumers, open transactions, problems and counts instead")
    verb.add_argument("--as-program", action="store_true", help="as its own program would deliver it, with its bugs")


def run(arguments: argparse.Namespace) -> int:
    """Print what is there; return the exit status."""
    name = foreign.format_of(arguments.source, arguments.format)
    if arguments.state:
        found = shmq.formats.state(arguments.source, arguments.queue, name, as_program=arguments.as_program)
        import dataclasses  # noqa: PLC0415  # the help of a verb needs none of it

        about = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
        about["open"] = {xid: entry._asdict() for xid, entry in found.open.items()}
        about["problems"] = [problem._asdict() for problem in found.problems]
        show.facts(about)
        return 0
    if name == "chronicle" and not (arguments.json or arguments.raw or arguments.as_program):
        for line in shmq.formats.dump(arguments.source, arguments.queue, name, limit=arguments.limit):
            print(line)
        return 0
    source = shmq.formats.read(arguments.source, name, arguments.queue, as_program=arguments.as_program)
    out = sys.stdout.buffer
    for entry in itertools.islice(source, arguments.limit):
        if arguments.raw:
            out.write(entry.payload + b"\n")
        else:
            fields = {field: value for field, value in entry._asdict().items() if value is not None}
            out.write(show.as_line(fields))
    return 0
