"""
Who may do what: whoever may do everything, and whoever has shown a token.

A token is 256 random bits, as text. The file of tokens has none of them, only their SHA-256, one line for each right:

    # SHA-256 of the token     queue     verbs          until
    9f86d081884c7d659a2f...    orders    append,read    2027-06-30
    9f86d081884c7d659a2f...    shop/*    read           never
    60303ae22b998861bce3...    till-7.*  replicate      never

The last one is a client of a hub (shmq/hub).
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import stat
import time
from typing import NamedTuple

from shmq import errors

VERBS = frozenset({"append", "read", "replicate"})
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = 4


class Everything:
    """The rights of whoever the system or a certificate vouches for."""

    def may(self, verb: str, queue: str) -> bool:  # noqa: ARG002
        """Say yes."""
        return True


class Right(NamedTuple):
    """One line of the file."""

    queue: str
    """A queue's name; with a `*` at its end, all that begin so."""
    verbs: frozenset[str]
    until: float
    """When it ends, in seconds since 1970."""
    line: int
    """Where it stands in the file."""

    def allows(self, verb: str, queue: str) -> bool:
        """Say whether it is a right to that, now."""
        begins = self.queue[:-1] if self.queue.endswith("*") else None
        fits = queue == self.queue if begins is None else queue.startswith(begins)
        return fits and verb in self.verbs and time.time() < self.until


class Rights:
    """What one token allows."""

    def __init__(self, rights: list[Right]) -> None:
        """All its lines."""
        self._rights = rights

    def to(self, verb: str) -> list[Right]:
        """Those of its lines that name that verb."""
        return [each for each in self._rights if verb in each.verbs]

    def may(self, verb: str, queue: str) -> bool:
        """Say whether one of them allows it, now."""
        return any(each.allows(verb, queue) for each in self._rights)


class Tokens:
    """A file of tokens, as it was when it was read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """
        Read *path*.

        Raises:
            Unsafe: others can write to it, or it is not ours.
            BadFormat: a line is none; the text says which, and nothing of what it has.
            OSError: it cannot be read.
        """
        self._rights: dict[bytes, list[Right]] = {}
        with open(path, encoding="utf-8") as file:
            info = os.fstat(file.fileno())
            if info.st_uid not in (os.geteuid(), 0) or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise errors.Unsafe(f"cannot take tokens from {path}: it is not ours, or others can write to it")
            for number, line in enumerate(file, 1):
                fields = line.split("#")[0].split()
                if not fields:
                    continue
                try:
                    digest, right = _right(fields, number)
                except ValueError as problem:
                    raise errors.BadFormat(f"{path}, line {number}: {problem}") from None
                self._rights.setdefault(digest, []).append(right)

    def rights(self, token: str) -> Rights | None:
        """Return what *token* allows; None of one that is not here. Only its hash is looked for."""
        found = self._rights.get(hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest())
        return None if found is None else Rights(found)

    def by_digest(self) -> dict[bytes, Rights]:
        """What each token allows, by its SHA-256."""
        return {digest: Rights(rights) for digest, rights in self._rights.items()}


def _right(fields: list[str], number: int) -> tuple[bytes, Right]:
    if len(fields) != _FIELDS:
        raise ValueError("a line has the SHA-256 of a token, a queue, verbs, and until when, apart from each other")
    digest, queue, verbs, until = fields
    if not _DIGEST.fullmatch(digest):
        raise ValueError("the SHA-256 of a token has 64 digits of 0-9 a-f")
    asked = frozenset(verbs.split(","))
    if not asked <= VERBS:
        raise ValueError(f"the verbs are {', '.join(sorted(VERBS))}")
    try:
        end = float("inf") if until == "never" else _moment(until)
    except ValueError:
        raise ValueError("until is a date as 2027-06-30, a moment as 2027-06-30T12:00:00Z, or never") from None
    return bytes.fromhex(digest), Right(queue, asked, end, number)


def _moment(text: str) -> float:
    moment = datetime.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
