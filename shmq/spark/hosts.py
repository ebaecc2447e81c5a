"""
Queues on other hosts, each behind a `shmq serve --flight`: what their addresses mean, and one connection per process.

    grpc://host-a:8815/orders               a queue, or a directory of shards or of queues; grpc+tls:// likewise

What a query calls such a queue is its address without the scheme, `host-a:8815/orders`: two hosts may each have orders.
"""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq
from shmq.spark import names

if TYPE_CHECKING:
    from collections.abc import Iterable

_ADDRESS = re.compile(r"(grpc(?:\+tls)?://((?:\[[0-9A-Fa-f:]+\]|[^/\s,\[\]:@]+):\d{1,5}))(?:/([^\s,]*))?")
_ANY = re.compile(r"grpc(?:\+\w+)?://")


class Address(NamedTuple):
    """Where a queue, or several, can be found."""

    location: str
    """Of the service: grpc://host-a:8815."""
    host: str
    """host-a:8815"""
    name: str
    """What the service knows it under; empty for all."""

    def label(self, name: str) -> str:
        """What a query calls the queue of that name there."""
        return f"{self.host}/{name}"


class Access(NamedTuple):
    """By which files a service is asked. Each host of a query has them at these places."""

    token_file: str | None = None
    roots_file: str | None = None


def is_remote(path: str) -> bool:
    """Whether that is an address, or several, and no directory."""
    return _ANY.match(path) is not None


def addresses(word: str) -> list[Address]:
    """
    What is written as one address, or several with commas between.

    Raises:
        ValueError: one is none.
    """
    found = []
    for each in word.split(","):
        match = _ADDRESS.fullmatch(each.strip())
        if match is None:
            raise ValueError(
                f"{each.strip()!r} is none of grpc://HOST:PORT/QUEUE and grpc+tls://HOST:PORT/QUEUE, of which there "
                "can be several with commas between"
            )
        found.append(Address(match[1], match[2], (match[3] or "").strip("/")))
    if len(set(found)) != len(found):
        raise ValueError("an address stands there twice")
    return found


# ---------------------------------------------------------------- connections
_access: dict[str, Access] = {}
"""By location: what the query of this process says."""
_clients: dict[tuple[int, str, Access], Any] = {}
_lock = threading.Lock()


def know(word: str, access: Access) -> None:
    """From now on this process asks the services of these addresses with that."""
    if is_remote(word):
        for each in addresses(word):
            _access[each.location] = access


def is_known(word: str) -> bool:
    """Whether this process was told how to ask the services of these addresses."""
    return all(each.location in _access for each in addresses(word))


def client(location: str) -> Any:
    """
    The connection of this process to a service.

    Raises:
        OSError: a token or a certificate cannot be read.
    """
    access = _access.get(location, Access())
    key = os.getpid(), location, access
    with _lock:
        if key not in _clients:
            token = None
            if access.token_file is not None:
                with open(access.token_file) as file:
                    token = file.read().strip()
            _clients[key] = shmq.flight.connect(location, token=token, roots=access.roots_file)
        return _clients[key]


def open_queue(path: str) -> Any:
    """
    The queue at an address, as it is now.

    Raises:
        NotFound: there is none.
        Unreachable: nobody answers.
    """
    (at,) = addresses(path)
    return client(at.location).queue(at.name)


# ---------------------------------------------------------------- what there is
class Found(NamedTuple):
    """A queue, or one shard of it, at a service."""

    topic: str
    short: str
    """Its name below the address that was given."""
    number: int
    path: str


def below(word: str) -> list[Found]:
    """
    Every queue and shard at, or below, these addresses, in order.

    Raises:
        NotFound: there is nothing.
        Mismatch: there are shards of several queues in one directory.
    """
    return [each for at in addresses(word) for each in _below(at)]


def _below(at: Address) -> list[Found]:
    there = client(at.location).queues(at.name)
    found = []
    kinds: dict[str, set[str]] = {}
    for name in there:
        above, _, last = name.rpartition("/")
        shard = names.SHARD.fullmatch(last) if above.startswith(at.name) else None
        topic, number = (above, int(shard[2], 16)) if shard and above else (name, 0)
        if topic != name:
            kinds.setdefault(topic, set()).add(last.rpartition(".")[0])
        short = topic.removeprefix(at.name).strip("/")
        found.append(Found(at.label(topic), short, number, f"{at.location}/{name}"))
    for topic, several in kinds.items():
        if len(several) > 1:
            raise shmq.Mismatch(
                f"cannot read {at.label(topic)}: there are shards of {len(several)} queues in it "
                f"({', '.join(f'{kind}.*' for kind in sorted(several))}), and one number would mean several"
            )
    if not found:
        raise shmq.NotFound(f"cannot read {at.location}/{at.name}: there is no queue there, and no shards of one")
    return found


def queue_of(at: str, found: Iterable[Found]) -> list[Found]:
    """
    Those that are the one queue of an address.

    Raises:
        NotFound: it is none; there are several below it.
    """
    others = sorted({each.short for each in found if each.short})
    if others:
        raise shmq.NotFound(
            f"cannot read {at} with Spark: it is not a queue but a directory with {', '.join(others)}: say which, as "
            f'.option("subscribe", "{",".join(others)}"), or read {at.rstrip("/")}/{others[0]}'
        )
    return list(found)
