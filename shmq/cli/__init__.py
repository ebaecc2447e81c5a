"""
The `shmq` command: one file per verb, each with `add` (its arguments) and `run` (what it does; the exit status).

Exit status: 0 done, 1 it could not be done (one line on stderr says why), 2 it was asked for wrongly. What ends by
Ctrl-C or a closed pipe ends quietly, with the shell's usual 130 and 141.
"""

from __future__ import annotations

import argparse
import importlib
import keyword
import os
import sys
from typing import TYPE_CHECKING

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    from collections.abc import Sequence

_OWN = (
    "demo",
    "create",
    "put",
    "take",
    "tail",
    "cat",
    "ls",
    "stat",
    "seek",
    "consumer",
    "dead",
    "purge",
    "copy",
    "gc",
    "doctor",
)
_FOREIGN = ("import", "export", "convert", "dump", "verify", "repair")
VERBS = _OWN + _FOREIGN
INTERRUPTED, PIPE_CLOSED = 130, 141


def parser() -> argparse.ArgumentParser:
    """All verbs with all their arguments."""
    top = argparse.ArgumentParser(
        prog="shmq",
        description="Queues in directories: durable, fast, shared by any number of processes, no server.",
        epilog="example: shmq create orders && shmq put orders hello && shmq take orders billing",
    )
    top.add_argument("--version", action="version", version=f"shmq {shmq.__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name in VERBS:
        module = importlib.import_module(f"shmq.cli.{name}{'_' * keyword.iskeyword(name)}")
        summary, _, example = (module.__doc__ or name).strip("\n").partition("\n")
        verb = verbs.add_parser(
            name,
            help=summary.rstrip("."),
            description=summary,
            epilog=example.strip("\n"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add(verb)
        verb.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run one verb and return the exit status.

    Args:
        argv: the words after `shmq`; those of this process by default.
    """
    arguments = parser().parse_args(argv)
    try:
        status = int(arguments.run(arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more. What Python still holds for stdout must not be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except (shmq.ShmqError, show.Problem, IndexError, OSError) as problem:
        print(f"shmq: {show.one_line(problem)}", file=sys.stderr)
        return 1
    return status
