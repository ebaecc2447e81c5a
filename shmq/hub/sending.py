"""Having all shards of a root followed at a hub, those of growths that are still to come among them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from shmq import errors, given
from shmq.hub.clients import checked
from shmq.replica import Stop, doors, replicate
from shmq.shards import map as maps

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from typing import Self

    from shmq.shards.map import Shard

_LOOK = 0.5
"""Seconds between two looks at the map."""


def push(
    source: str | os.PathLike[str],
    address: str,
    *,
    client: str,
    keep: int | None = None,
    once: bool = False,
    token: bytes | None = None,
    ca: str | None = None,
    stop: Stop | None = None,
) -> None:
    """
    Have every shard of the root *source* followed at the hub at *address*, until *stop* is called.

    There a shard is called `CLIENT.BIT.INDEX`, whatever its own prefix is; a single one `CLIENT.PREFIX`.

    Args:
        source: the directory of the shards.
        address: "tcp:HOST:PORT" of the hub.
        client: what the token is called there.
        keep: so many bytes of each shard at most are held back; what lacks more must be begun anew.
        once: end when the hub has all that is there now.
        token: this client's, which the hub knows.
        ca: a PEM file: the link is TLS, and that authority alone is believed.
        stop: ends it, soon, when it is called.

    Raises:
        NotFound: there are no shards; or it is not this client's name.
        ValueError: no client is called so, or that is no address.
        Otherwise as `replica.replicate`; what one shard meets ends all.
    """
    path, name = given.path("source", source), checked(client)
    if not address.startswith(doors.TCP):
        raise ValueError(f"address={address!r}: tcp:HOST:PORT of a hub is wanted")
    if maps.read(path) is None:
        raise errors.NotFound(f"cannot push {path}: there are no shards")
    stop = stop or Stop()

    def work(shard: Shard, its: Stop) -> None:
        at = called(name, shard)
        replicate(shard.path, address, name=at, keep=keep, once=once, token=token, ca=ca, stop=its)

    pushing = _Pushing(work)
    with pushing, stop.calling(pushing.end):
        while not stop.is_set():
            pushing.begin([shard for shard in _shards(path) if shard.state != maps.OPENING])
            if once or pushing.problem is not None:
                break
            stop.pause(_LOOK)
    if pushing.problem is not None:
        raise pushing.problem


def called(client: str, shard: Shard) -> str:
    """What a shard is called at the hub: its client's name stands for its prefix."""
    own = shard.path.rpartition("/")[2]
    return f"{client}.{own}" if shard.bit == 0 else maps.directory(client, shard.bit, shard.index)


def _shards(path: str) -> Iterator[Shard]:
    found = maps.read(path)
    if found is None:
        raise errors.NotFound(f"cannot go on with {path}: its shards were deleted")
    yield from found.live()


class _Pushing:
    """The threads that push, one for each shard."""

    def __init__(self, work: Callable[[Shard, Stop], None]) -> None:
        self.problem: BaseException | None = None
        self._work = work
        self._begun: dict[str, tuple[threading.Thread, Stop]] = {}

    def begin(self, shards: list[Shard]) -> None:
        """Push those that are new."""
        for shard in shards:
            if shard.path not in self._begun:
                stop = Stop()
                thread = threading.Thread(target=self._push, args=(shard, stop), name="shmq-push", daemon=True)
                self._begun[shard.path] = thread, stop
                thread.start()

    def _push(self, shard: Shard, stop: Stop) -> None:
        try:
            self._work(shard, stop)
        except BaseException as problem:  # noqa: BLE001  # it is raised by whoever called
            if self.problem is None:
                self.problem = problem
            self.end()

    def end(self) -> None:
        """Have all of them end, soon."""
        for _, stop in list(self._begun.values()):
            stop()

    def __enter__(self) -> Self:
        """Nothing goes on yet."""
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        """Wait until all have ended; if something was raised, have them end."""
        if kind is not None:
            self.end()
        for thread, _ in self._begun.values():
            thread.join()
