"""
Who may do what: tokens, of which the service keeps hashes alone.

    [[token]]
    sha256 = "9f86d0..."              # of the token's text: printf %s "$TOKEN" | sha256sum
    queues = ["orders", "shop/*"]     # names, with * for anything
    verbs = ["read", "follow"]        # and "write"
    until = 2027-01-01T00:00:00Z      # may be left out

A queue that somebody may not touch is one that is not there. The file is read again when it has changed.
"""

from __future__ import annotations

import datetime
import fnmatch
import hashlib
import ipaddress
import logging
import os
import stat
import time
import tomllib
from typing import Any, NamedTuple

import pyarrow.flight as fl

from shmq import errors

VERBS = frozenset({"read", "follow", "write"})
_BEARER = "bearer "
_log = logging.getLogger("shmq.flight")


class Rights(NamedTuple):
    """What one token allows."""

    queues: tuple[str, ...]
    verbs: frozenset[str]
    until: float
    """In seconds since 1970."""

    def allow(self, verb: str, queue: str) -> bool:
        """Whether that may be done with that queue."""
        return verb in self.verbs and any(fnmatch.fnmatchcase(queue, each) for each in self.queues)


EVERYTHING = Rights(("*",), VERBS, float("inf"))
"""Where no tokens are asked for."""


class Tokens:
    """The tokens of one file."""

    def __init__(self, path: str) -> None:
        """
        Read them.

        Raises:
            OSError, ValueError: they cannot be read.
            Unsafe: others can change the file.
        """
        self._path = path
        self._read()

    def _read(self) -> None:
        with open(self._path, "rb") as file:
            info = os.fstat(file.fileno())
            if info.st_uid not in (os.geteuid(), 0) or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise errors.Unsafe(f"cannot trust the tokens in {self._path}: others can change that file")
            self._known = _parsed(self._path, file.read())
        self._version = info.st_mtime_ns, info.st_ino, info.st_size

    def rights(self, token: str) -> Rights | None:
        """What it allows; None for one that is not known, or over."""
        info = os.stat(self._path)
        if (info.st_mtime_ns, info.st_ino, info.st_size) != self._version:
            self._read()
        found = self._known.get(hashlib.sha256(token.encode()).hexdigest())
        return found if found is not None and time.time() < found.until else None


def is_loopback(host: str) -> bool:
    """Whether that is this machine, whoever is asked."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parsed(path: str, raw: bytes) -> dict[str, Rights]:
    """By hash."""
    found = {}
    for each in tomllib.loads(raw.decode()).get("token", ()):
        strange = set(each) - {"sha256", "queues", "verbs", "until"}
        until = each.get("until")
        verbs = frozenset(each.get("verbs", ()))
        digest = str(each.get("sha256", "")).lower()
        if strange or len(digest) != 64 or not verbs <= VERBS or not all(isinstance(q, str) for q in each["queues"]):
            raise ValueError(f"{path}: a token has sha256 (64 hex digits), queues, verbs ({', '.join(sorted(VERBS))})")
        if until is not None and (not isinstance(until, datetime.datetime) or until.tzinfo is None):
            raise ValueError(f"{path}: until is a time with its zone, like 2027-01-01T00:00:00Z")
        found[digest] = Rights(tuple(each["queues"]), verbs, float("inf") if until is None else until.timestamp())
    return found


class Caller(fl.ServerMiddleware):  # type: ignore[misc]
    """Who calls: a call's own, as Flight has it."""

    def __init__(self, rights: Rights) -> None:
        """What the caller may do."""
        self.rights = rights


class Guard(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets nobody in without a token."""

    def __init__(self, tokens: Tokens) -> None:
        """Ask these."""
        self._tokens = tokens

    def start_call(self, info: Any, headers: Any) -> Caller:  # noqa: ARG002  # Flight's
        """
        Who calls.

        Raises:
            FlightUnauthenticatedError: nobody who may.
        """
        words = headers.get("authorization") or [""]
        word = words[0] if isinstance(words[0], str) else words[0].decode("latin-1")
        try:
            rights = self._tokens.rights(word[len(_BEARER) :]) if word.lower().startswith(_BEARER) else None
        except (OSError, ValueError, errors.ShmqError) as problem:
            _log.error("the tokens cannot be read, so nobody is let in: %s", problem)
            rights = None
        if rights is None:
            raise fl.FlightUnauthenticatedError("no token that is known, and not over")
        return Caller(rights)


class _Sends(fl.ClientMiddleware):  # type: ignore[misc]
    """Of one call."""

    def __init__(self, headers: dict[str, str]) -> None:
        """What is sent with it."""
        self._headers = headers

    def sending_headers(self) -> dict[str, str]:
        """Flight asks for them."""
        return self._headers


class Bearer(fl.ClientMiddlewareFactory):  # type: ignore[misc]
    """Sends a token with each call."""

    def __init__(self, token: str) -> None:
        """Keep it."""
        self._headers = {"authorization": f"Bearer {token}"}

    def start_call(self, info: Any) -> _Sends:  # noqa: ARG002  # Flight's
        """One call more."""
        return _Sends(self._headers)
