"""
Where the queues of a path are.

    calc/requests           what is asked, until it is answered; servers share it as a group
    calc/cancels            what is to be given up; every server reads all of it
    shm:rpc-<client>        the replies to one client, in shared memory; it goes with the client
    shm:rpc-<client>-<n>    what its n-th call streams

With shm:calc the first two are shm:calc.requests and shm:calc.cancels.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq
from shmq.rpc import deadlines

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP = "server"
"""The name that servers share."""
OWNER = "client"
"""The name that a client holds in its reply queue as long as it lives."""
CLIENT_BYTES = 16
_REPLIES = "shm:rpc-"
_VOLATILE = "shm:"
_REQUESTS = "requests"
_REPLY_BYTES = 64 << 20
_STREAMED = 256
"""Records a server is ahead of whoever reads them, at most."""
_CANCELS_KEPT = 60.0
"""Seconds; a server that is further behind had better not be told any more."""


class Place(NamedTuple):
    """
    A path with what is at it.

    Attributes:
        path: as it opens in any process.
        name: its last part, which its methods may be called by.
    """

    path: str
    name: str

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Place:
        """
        What *path* means: a directory, or shm:NAME.

        Raises:
            TypeError, ValueError: it is neither.
        """
        given = os.fspath(path)
        if not isinstance(given, str):
            raise TypeError(f"path={path!r}: a directory or shm:NAME is wanted, not bytes")
        if given.startswith(_VOLATILE):
            return cls(given, given.removeprefix(_VOLATILE))
        if not given:
            raise ValueError("'' is not a path: a directory or shm:NAME is wanted")
        whole = os.path.abspath(os.path.expanduser(given))
        return cls(whole, os.path.basename(whole))

    def requests(self, *, create: bool, options: Mapping[str, Any]) -> shmq.Queue[bytes]:
        """
        Open the queue of requests, with these options where it is made.

        Raises:
            BadFormat: the directory is of something else; nothing was made.
        """
        if create and not self.path.startswith(_VOLATILE):
            try:
                _make(self.path)
            except FileExistsError:
                self._check_ours()
        return self._open(_REQUESTS, create=create, **options)

    def _check_ours(self) -> None:
        """While somebody makes the queue of requests, what is there has its name and more."""
        with contextlib.suppress(OSError):  # then the opening says it better
            there = os.listdir(self.path)
            strange = [name for name in there if not name.startswith((".", _REQUESTS))]
            if strange and _REQUESTS not in there:
                raise shmq.BadFormat(
                    f"cannot serve or call {self.path}: there is something else, {min(strange)!r} among it; nothing "
                    "was made. Name another directory, which may be missing"
                )

    def cancels(self) -> shmq.Queue[bytes]:
        """Open the queue of what is to be given up."""
        return self._open("cancels", retention=shmq.Retention.age(_CANCELS_KEPT))

    def _open(self, name: str, **options: Any) -> shmq.Queue[bytes]:
        between = "." if self.path.startswith(_VOLATILE) else "/"
        queue: shmq.Queue[bytes] = shmq.open(f"{self.path}{between}{name}", **options)
        return queue


def _make(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileNotFoundError:
        raise shmq.NotFound(f"cannot make {path}: the directory above it is missing; nothing was made") from None


def new_client() -> bytes:
    """A name for a client, which says in which boot it lives, and which nobody can guess."""
    return deadlines.BOOT + os.urandom(CLIENT_BYTES - len(deadlines.BOOT))


def own_replies(client: bytes) -> shmq.Queue[bytes]:
    """Make the reply queue of a new client."""
    return shmq.open(_REPLIES + client.hex(), max_bytes=_REPLY_BYTES, full="raise")


def replies_of(client: bytes) -> shmq.Queue[bytes]:
    """
    Open the reply queue of somebody else.

    Raises:
        NotFound: it is gone, and so is the client.
    """
    return shmq.open(_REPLIES + client.hex(), create=False)


def own_stream(client: bytes, number: int) -> shmq.Queue[bytes]:
    """Make the queue for what that call of the client streams."""
    return shmq.open(_stream(client, number), max_messages=_STREAMED, max_bytes=_REPLY_BYTES)


def stream_of(client: bytes, number: int) -> shmq.Queue[bytes]:
    """
    Open the queue of somebody else's stream.

    Raises:
        NotFound: it is not there yet, or not any more.
    """
    return shmq.open(_stream(client, number), create=False)


def _stream(client: bytes, number: int) -> str:
    return f"{_REPLIES}{client.hex()}-{number}"


def is_owned(queue: shmq.Queue[bytes]) -> bool:
    """Whether the client whose queue that is lives: whether it holds its name there."""
    try:
        queue.consumer(OWNER).close()
    except shmq.Busy:
        return True
    return False
