"""
The `shmq` command: one file per verb, each with `add` (its arguments) and `run` (what it does; the exit status).

Exit status: 0 done, 1 it could not be done (one line on stderr says why), 2 it was asked for wrongly. What ends by
Ctrl-C or a closed pipe ends quietly, with the shell's usual 130 and 141.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import keyword
import os
import sys
from typing import TYPE_CHECKING

import shmq

try:
    from shmq.cli import show
    from shmq.cli.parsing import Parser
except KeyboardInterrupt:  # before `main` is there to see it
    sys.exit(130)

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
    "why",
    "top",
    "seek",
    "consumer",
    "dead",
    "purge",
    "finish",
    "shutdown",
    "copy",
    "gc",
    "doctor",
    "replicate",
    "promote",
    "hub",
    "worker",
    "bridge",
    "serve",
)
_FOREIGN = ("import", "export", "convert", "dump", "verify", "repair")
_SPARK = ("pipeline", "archive", "replay", "bisect", "chaos")
VERBS = _OWN + _FOREIGN + _SPARK
INTERRUPTED, PIPE_CLOSED = 130, 141


def parser() -> argparse.ArgumentParser:
    """All verbs with all their arguments."""
    top = Parser(
        prog="shmq",
        description="Queues in directories: durable, fast, shared by any number of processes, no server.",
        epilog="example:\n    shmq create orders && shmq put orders hello && shmq take orders billing",
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    try:
        _open_closed_streams()
        arguments = parser().parse_args(sys.argv[1:] if argv is None else argv)
        status = int(arguments.run(arguments))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return PIPE_CLOSED
    except SystemExit:  # --help, or what argparse refused
        _flush_or_forget()
        raise
    except show.Misuse as problem:
        print(f"shmq: {show.one_line(problem)}", file=sys.stderr)
        return 2
    except (shmq.ShmqError, show.Problem, IndexError, ValueError, OSError) as problem:
        print(f"shmq: {show.one_line(problem)}", file=sys.stderr)
        _flush_or_forget()
        return 1
    return status


def _open_closed_streams() -> None:
    """
    Have stdin, stdout and stderr refer to something, also where the shell closed them (`<&-`).

    Else the queue's own files would get their numbers, and Python has None in the place of each.
    """
    for name, fd in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                os.fstat(fd)
                continue
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
            setattr(sys, name, open(fd, "w" if fd else "r", closefd=False))  # noqa: SIM115  # as Python does
            show.CLOSED.add(name)


def _flush_or_forget() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _forget_output()


def _forget_output() -> None:
    """Nobody reads it, or it cannot be written: what Python still holds must not be written at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
