"""
The clients of a hub: each has a token, and with it a name, and no queue's name but such as begin with that.

A client is a line in a file of tokens (shmq/net/tokens.py), whose right is `replicate`, and whose queue is its name and
`.*`. Its name begins with two characters that are no digits of hexadecimal, so that nobody takes it for a shard's bit,
nor sej: it would have `a.b` be the shard `b` of 2^10.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shmq import errors
from shmq.net.rights import REPLICATE
from shmq.net.tokens import Tokens

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

NAME_MAX = 56
"""Of a whole name: a consumer name `replica.NAME` holds back what the hub lacks, and has 64 characters at most."""
_CLIENT = re.compile(r"[G-Zg-z_-]{2}[A-Za-z0-9_-]{0,29}")
_QUEUE = re.compile(r"[A-Za-z0-9_-]{1,48}")
_SHARD = re.compile(r"([1-9a])\.([0-3][0-9a-f]{2})")


def checked(client: str) -> str:
    """
    The name, if a client can be called so.

    Raises:
        ValueError: it cannot.
    """
    if not isinstance(client, str) or not _CLIENT.fullmatch(client):
        raise ValueError(
            f"client={client!r}: 2 to 31 of A-Z a-z 0-9 _ - are wanted, of which the first two are none of "
            "0-9 A-F a-f, so that no shard is called so"
        )
    return client


def fits(client: str, name: str) -> bool:
    """Whether a queue of that client can be called so: `CLIENT.QUEUE`, or `CLIENT.BIT.INDEX` of a shard."""
    if not name.startswith(f"{client}.") or len(name) > NAME_MAX:
        return False
    rest = name[len(client) + 1 :]
    shard = _SHARD.fullmatch(rest)
    if shard is not None:
        return int(shard[2], 16) < 1 << int(shard[1], 16)
    return _QUEUE.fullmatch(rest) is not None


class Client:
    """One client."""

    def __init__(self, name: str, until: float) -> None:
        """It may come until then, in seconds since 1970."""
        self.name = name
        self.until = until

    def __repr__(self) -> str:
        """Show its name."""
        return f"<client {self.name}>"


class Clients:
    """All clients of a hub, as its file had them when it was read."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """
        Read that file of tokens.

        Raises:
            Unsafe: others can read it or write to it, or it is not ours.
            BadFormat: a line is none, or is of no client, or there is no client; the text says which.
            OSError: it cannot be read.
        """
        self._clients: dict[bytes, Client] = {}
        for digest, rights in Tokens(path, closed=True).by_digest().items():
            for right in rights.to(REPLICATE):
                name = right.queue.removesuffix(".*")
                if name == right.queue or not _CLIENT.fullmatch(name) or digest in self._clients:
                    raise errors.BadFormat(
                        f"{path}, line {right.line}: one client is wanted for each token, as till-7.*, whose name "
                        "begins with two characters that are none of 0-9 A-F a-f"
                    )
                self._clients[digest] = Client(name, right.until)
        if not self._clients:
            raise errors.BadFormat(f"{path} has no client: no line has the right {REPLICATE}")

    def __iter__(self) -> Iterator[bytes]:
        """The SHA-256 of every token."""
        return iter(self._clients)

    def of(self, digest: bytes) -> Client:
        """Whose token it is."""
        return self._clients[digest]
