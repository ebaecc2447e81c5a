"""
Who may call: whoever shows a token of the service's file (shmq/net/tokens.py), with each call.

The file is read again when it has changed.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from typing import Any, Protocol

import pyarrow.flight as fl

from shmq import errors
from shmq.net.tokens import Everything, Tokens

_BEARER = "bearer "
_log = logging.getLogger("shmq.flight")

EVERYTHING = Everything()
"""Where no tokens are asked for."""


class Rights(Protocol):
    """What whoever calls may do."""

    def may(self, right: str, queue: str) -> bool:
        """Say whether that right to that queue is given, now."""


class _File:
    """The tokens of one file, as it is now."""

    def __init__(self, path: str) -> None:
        """
        Read them.

        Raises:
            OSError, BadFormat: they cannot be read.
            Unsafe: others can change the file.
        """
        self._path = path
        self._tokens = Tokens(path)

    def rights(self, token: str) -> Rights | None:
        """What it allows; None for one that is not known, or over."""
        if Tokens.version_of(self._path) != self._tokens.version:
            self._tokens = Tokens(self._path)
        found = self._tokens.rights(token)
        return found if found is not None and time.time() < found.until else None


def is_loopback(host: str) -> bool:
    """Whether that is this machine, whoever is asked."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Caller(fl.ServerMiddleware):  # type: ignore[misc]
    """Who calls: a call's own, as Flight has it."""

    def __init__(self, rights: Rights) -> None:
        """What the caller may do."""
        self.rights = rights


class Guard(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets nobody in without a token."""

    def __init__(self, path: str) -> None:
        """
        Go by the file of tokens at *path*.

        Raises:
            OSError, BadFormat, Unsafe: see `shmq.net.tokens`.
        """
        self._tokens = _File(path)

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
