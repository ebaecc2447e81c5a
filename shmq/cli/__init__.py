"""
The `shmq` command: one file per verb, each with `add` (its arguments) and `run` (what it does; the exit status).

Exit status: 0 done, 1 it could not be done (one line on stderr says why), 2 it was asked for wrongly. What ends by
Ctrl-C or a closed pipe ends quietly, with the shell's usual 130 and 141.

Only the verb that is asked for is imported, and shmq itself when a verb uses it.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import shmq

try:
    import argparse

    from shmq.cli.parsing import Parser
    from shmq.cli.verbs import GROUPS, VERBS, module_of
except KeyboardInterrupt:  # before `main` is there to see it
    sys.exit(130)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmq.cli.parsing import Grammar

INTERRUPTED, PIPE_CLOSED = 130, 141

__all__ = ["VERBS", "grammar", "main", "overview", "parser"]


def overview() -> Parser:
    """What is said where no verb is named: all of them, a line each."""
    wide = max(map(len, VERBS)) + 4
    lists = [
        "\n".join([f"{about}:", *(f"  {name:{wide - 2}}{summary}" for name, summary in group.items())])
        for about, group in GROUPS.items()
    ]
    top = Parser(
        prog="shmq",
        usage="shmq VERB [...]\n       shmq help VERB",
        description="Queues in directories: durable, fast, shared by any number of processes, no server.",
        epilog="\n\n".join(
            [*lists, "example:\n  shmq create orders && shmq put orders hello && shmq take orders billing"]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"shmq {shmq.__version__}")
    return top


def parser(verb: str) -> Parser:
    """The arguments of a verb."""
    module = importlib.import_module(module_of(verb))
    summary, _, example = (module.__doc__ or verb).strip("\n").partition("\n")
    made = Parser(
        prog=f"shmq {verb}",
        description=summary,
        epilog=example.strip("\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add(made)
    made.set_defaults(run=module.run)
    return made


def grammar(verb: str) -> Grammar:
    """What may stand behind a verb."""
    return parser(verb).grammar(verb, next(group[verb] for group in GROUPS.values() if verb in group))


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run one verb and return the exit status.

    Args:
        argv: the words after `shmq`; those of this process by default.
    """
    try:
        _open_closed_streams()
        arguments = _parse(sys.argv[1:] if argv is None else argv)
        from shmq.cli import logged  # noqa: PLC0415  # `shmq --help` needs none of it

        with logged.on_stderr():
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
    except Exception as problem:
        failed = _tell(problem)
        if failed is None:
            raise
        return failed
    return status


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of the verb that the first word names; where there is none, this is the end."""
    if words and words[0] == "help" and not any(word[:1] == "-" for word in words):
        words = [*words[1:], "--help"]  # at once: the verb `help` is there to have a help of its own
    if not words or words[0] not in VERBS:
        _end_without_verb(words)
    return parser(words[0]).parse_args(words[1:])


def _end_without_verb(words: Sequence[str]) -> NoReturn:
    """`--help` and `--version`, and whoever names no verb, or one that is none."""
    top = overview()
    if words and words[0][:1] == "-":
        top.parse_args(words)
    missing = f"there is no verb {words[0]!r}{_like(words[0])}" if words else "no verb was named"
    top.error(f"{missing}; `shmq help` lists them")


def _like(word: str) -> str:
    import difflib  # noqa: PLC0415  # only where a verb was mistyped

    near = difflib.get_close_matches(word, VERBS, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _tell(problem: Exception) -> int | None:
    """Say in a line why it could not be done; return the exit status, or None for what is a fault of this program."""
    from shmq.cli import show  # noqa: PLC0415  # `shmq --help` needs none of it

    if isinstance(problem, show.Misuse):
        print(f"shmq: {show.one_line(problem)}", file=sys.stderr)
        return 2
    if isinstance(problem, (shmq.ShmqError, show.Problem, IndexError, ValueError, OSError)):
        lost = _flush_or_forget()
        print(f"shmq: {_at(problem, lost)}{show.one_line(problem)}", file=sys.stderr)
        return INTERRUPTED if isinstance(problem.__cause__, KeyboardInterrupt) else 1
    return None


def _at(problem: Exception, lost: OSError | None) -> str:
    """Where that went wrong, if it does not say so itself; *lost*: what became of standard output."""
    if not isinstance(problem, OSError) or isinstance(problem, shmq.ShmqError) or problem.filename is not None:
        return ""
    if lost is not None and lost.errno == problem.errno:
        return "cannot write to standard output: "
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the current directory was removed: " if problem.errno == errno.ENOENT else ""
    return ""


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
            from shmq.cli import show  # noqa: PLC0415  # rare

            show.CLOSED.add(name)


def _flush_or_forget() -> OSError | None:
    """What keeps the rest of the output from being written, if anything does."""
    try:
        sys.stdout.flush()
    except OSError as problem:
        _forget_output()
        return problem
    return None


def _forget_output() -> None:
    """Nobody reads it, or it cannot be written: what Python still holds must not be written at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
