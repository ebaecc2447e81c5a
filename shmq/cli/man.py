"""
Print the manual of this command, for `man`.

Examples:
    shmq man | man -l -
    shmq man > ~/.local/share/man/man1/shmq.1

It is installed with shmq, too: `man shmq`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq import cli
from shmq.cli.verbs import GROUPS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from shmq.cli.parsing import Grammar

_HEAD = """\
.\\" made by `shmq man`
.TH SHMQ 1 "" "shmq {version}" "User Commands"
.SH NAME
shmq \\- queues in directories: durable, fast, shared by any number of processes, no server
.SH SYNOPSIS
.B shmq
.I VERB
[...]
.br
.B shmq help
.I VERB
.SH DESCRIPTION
A queue is a directory, or in shared memory when it is called
.BR shm: NAME.
Every consumer of a name sees every message, from where it stopped. What is shown below for each verb is what
.B shmq VERB \\-\\-help
says.
"""
_TAIL = """\
.SH TIMES, SIZES AND PLACES
A TIME that something lasts is seconds, or has a unit: 90, 90s, 5m, 2h, 7d. A SIZE is bytes, or has one: 64K, 10M, 2G,
by powers of 1024. A PLACE in a queue is an index, "earliest", "latest", or a moment: 2026-01-31T08:00 (local unless it
names a zone), "yesterday 14:00", "monday", "10 minutes ago", or seconds since 1970 with a point.
.SH EXIT STATUS
.TP
.B 0
It was done.
.TP
.B 1
It could not be done, or there was nothing; a line on standard error says why. Also a name, of a queue or a
consumer, or a payload that is not taken.
.TP
.B 2
It was asked for wrongly, by words, options, times or places that mean nothing, or without
.BR \\-\\-yes ;
and nothing was done.
.TP
.B 3
.B shmq repair
made a copy, and something is lost.
.TP
.B 130, 141
It was ended by Ctrl-C, or nobody reads its output any more.
.SH ENVIRONMENT
.TP
.B NO_COLOR
No colours. Without a terminal there are none anyway.
"""


def add(_: argparse.ArgumentParser) -> None:
    """Declare no arguments."""


def run(_: argparse.Namespace) -> int:
    """Print the page."""
    print(page(), end="")
    return 0


def page() -> str:
    """The manual as troff has it."""
    verbs = []
    for about, group in GROUPS.items():
        verbs.append(f".SH {about.upper()}")
        verbs += [line for verb in group for line in _verb(cli.grammar(verb))]
    return _HEAD.format(version=shmq.__version__) + "\n".join(verbs) + "\n" + _TAIL


def _verb(verb: Grammar, above: str = "shmq") -> Iterator[str]:
    name = f"{above} {verb.name}"
    words = " ".join(_shown(word.value, word.many) for word in verb.words)
    inner = "|".join(each.name for each in verb.verbs)
    yield f".SS {_plain(' '.join(filter(None, [name, inner, words, '[options]'])))}"
    yield _plain(verb.description)
    for word in verb.words:
        yield from (".TP", f".I {_plain(word.value)}", _plain(word.about))
    for option in verb.options:
        if "--help" in option.names:
            continue
        value = f" {option.value}" if option.value else ""
        yield from (".TP", f".B {_plain(', '.join(option.names) + value)}", _plain(option.about))
    if verb.epilog:
        yield from _epilog(verb.epilog)
    for each in verb.verbs:
        yield from _verb(each, name)


def _epilog(text: str) -> Iterator[str]:
    """Examples stay as they are; paragraphs fill the line, however wide it is."""
    for paragraph in text.split("\n\n"):
        lines = paragraph.splitlines()
        yield ".PP"
        if any(line.startswith(" ") for line in lines):
            yield from (".nf", *map(_plain, lines), ".fi")
        else:
            yield from map(_plain, lines)


def _shown(value: str, many: str) -> str:
    return {"?": f"[{value}]", "*": f"[{value} ...]", "+": f"{value} ..."}.get(many, value)


def _plain(text: str) -> str:
    """Text that troff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in {".", "'"} else text
