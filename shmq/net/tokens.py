"""
Who may do what: whoever may do everything, and whoever has shown a token.

A token is 256 random bits, as text. The file of tokens has none of them, only their SHA-256, one line for each right:

    # SHA-256 of the token     queue     rights         until
    9f86d081884c7d659a2f...    orders    append,read    2027-06-30
    9f86d081884c7d659a2f...    shop/*    read           never
    60303ae22b998861bce3...    till-7.*  replicate      never

`shmq serve`, with and without --flight, `shmq hub` and `shmq replicate --listen` read such a file. The last line is a
client of a hub (shmq/hub).
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import stat
import time
from typing import NamedTuple
from urllib.parse import unquote

from shmq import errors
from shmq.net.rights import ALL

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FIELDS = 4
_SHOWN = re.compile(r"[!#-\[\]-~]{0,4096}")
"""What a client can show, in a header of gRPC and between the quotes of a text."""
_LINE = "as: SHA-256-OF-THE-TOKEN QUEUE RIGHTS UNTIL"


def checked(token: str | None) -> str | None:
    """
    The token, if a client can show it.

    Raises:
        TypeError: it is no text.
        ValueError: it cannot; the text does not have it.
    """
    if token is not None and not isinstance(token, str):
        raise TypeError(f"token: a str is wanted, not {type(token).__name__}")
    if token is not None and not _SHOWN.fullmatch(token):
        raise ValueError(
            f'token: at most 4096 visible characters of ASCII but " and \\ are wanted; of these {len(token):,} some '
            "are others, perhaps the end of a line of the file that it is from"
        )
    return token


class Everything:
    """The rights of whoever the system or a certificate vouches for."""

    def may(self, verb: str, queue: str) -> bool:  # noqa: ARG002
        """Say yes."""
        return True


class Right(NamedTuple):
    """One line of the file."""

    queue: str
    """A queue's name, percent-encoded in the file as in an address; with a `*` at its end, all that begin so."""
    rights: frozenset[str]
    until: float
    """When it ends, in seconds since 1970."""
    line: int
    """Where it stands in the file."""

    def allows(self, right: str, queue: str) -> bool:
        """Say whether it is a right to that, now."""
        begins = self.queue[:-1] if self.queue.endswith("*") else None
        fits = queue == self.queue if begins is None else queue.startswith(begins)
        return fits and right in self.rights and time.time() < self.until


class Rights:
    """What one token allows."""

    def __init__(self, rights: list[Right]) -> None:
        """All its lines."""
        self._rights = rights

    def to(self, right: str) -> list[Right]:
        """Those of its lines that name that right."""
        return [each for each in self._rights if right in each.rights]

    def may(self, right: str, queue: str) -> bool:
        """Say whether one of them allows it, now."""
        return any(each.allows(right, queue) for each in self._rights)

    @property
    def until(self) -> float:
        """When the last of them ends, in seconds since 1970."""
        return max(each.until for each in self._rights)


class Tokens:
    """A file of tokens, as it was when it was read."""

    def __init__(self, path: str | os.PathLike[str], *, closed: bool = False) -> None:
        """
        Read *path*. With *closed*, it must be closed to others' eyes, too: where the SHA-256 of a token is its proof.

        Raises:
            Unsafe: others can write to it, or it is not ours; or it is not closed.
            BadFormat: a line is none; the text says which, and nothing of what it has.
            OSError: it cannot be read.
        """
        self._rights: dict[bytes, list[Right]] = {}
        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            if info.st_uid not in (os.geteuid(), 0) or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise errors.Unsafe(f"cannot take tokens from {path}: it is not ours, or others can write to it")
            if closed and info.st_mode & (stat.S_IRGRP | stat.S_IROTH):
                raise errors.Unsafe(
                    f"cannot take tokens from {path}: others can read it, and whoever has a line of it can "
                    "come as that client: chmod 0600 it"
                )
            self.version = _version(info)
            lines = file.read().splitlines()
        for number, line in enumerate(lines, 1):
            try:
                fields = line.decode().partition("#")[0].split()
                if fields:
                    digest, right = _right(fields, number)
                    self._rights.setdefault(digest, []).append(right)
            except UnicodeDecodeError:
                raise errors.BadFormat(f"{path}, line {number}: it is no UTF-8") from None
            except ValueError as problem:
                raise errors.BadFormat(f"{path}, line {number}: {problem}") from None

    @staticmethod
    def version_of(path: str | os.PathLike[str]) -> tuple[int, int, int]:
        """What `version` would be, read now. Raises OSError."""
        return _version(os.stat(path))

    def rights(self, token: str) -> Rights | None:
        """Return what *token* allows; None of one that is not here. Only its hash is looked for."""
        found = self._rights.get(hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest())
        return None if found is None else Rights(found)

    def by_digest(self) -> dict[bytes, Rights]:
        """What each token allows, by its SHA-256."""
        return {digest: Rights(rights) for digest, rights in self._rights.items()}


def _version(info: os.stat_result) -> tuple[int, int, int]:
    """What tells that file from what it is after a change."""
    return info.st_mtime_ns, info.st_ino, info.st_size


def _right(fields: list[str], number: int) -> tuple[bytes, Right]:
    if fields[0] == "[[token]]":
        raise ValueError(
            f"this is TOML, as Flight's file of tokens once was; it has lines now, {_LINE}; write is append, and "
            "follow is read"
        )
    if len(fields) == 1:
        raise ValueError(
            f"this may be a token itself, which only whoever shows it has in a file; here each is a line, {_LINE}"
        )
    if len(fields) != _FIELDS:
        raise ValueError(f"a right is a line, {_LINE}")
    digest, queue, names, until = fields
    if not _DIGEST.fullmatch(digest):
        raise ValueError("the SHA-256 of a token has 64 digits of 0-9 a-f")
    asked = frozenset(names.split(","))
    if not asked <= ALL:
        raise ValueError(f"the rights are {', '.join(sorted(ALL))}")
    try:
        end = float("inf") if until == "never" else _moment(until)
    except ValueError:
        raise ValueError("until is a date as 2027-06-30, a moment as 2027-06-30T12:00:00Z, or never") from None
    return bytes.fromhex(digest), Right(unquote(queue), asked, end, number)


def _moment(text: str) -> float:
    moment = datetime.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
