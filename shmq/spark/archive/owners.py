"""
Hosts that archive into one Delta table, each its own queues: their names, and how far each of them is.

A table is made for several hosts or is not, for good. One that is has a column of their names, by which it is
partitioned first, and the marks of a queue have the host's name in them. A queue is one host's: nobody archives it a
second time for another one.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import shmq
from shmq.spark.archive.forms import another_queue
from shmq.spark.archive.messages import prefix_of
from shmq.spark.options import BadOption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmq.spark import delta
    from shmq.spark.archive.forms import Stored
    from shmq.spark.archive.messages import Span

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def checked(host: str) -> str:
    """
    That name, which folders have, too.

    Raises:
        BadOption: it is no name of a host.
    """
    if not _NAME.fullmatch(host):
        raise BadOption(f"host={host!r}: a host's name has letters, digits, and . _ - behind the first of them")
    return host


def column(table: delta.Table) -> str | None:
    """What its column of hosts is called; None in a table that was not made for several."""
    name = f"{prefix_of([each['name'] for each in table.schema()['fields']])}host"
    return name if name in table.partition_by() else None


def own(table: delta.Table | None, host: str | None) -> str | None:
    """
    Whose messages who writes to it has: *host*, or this one by its name; None in a table that is not for several.

    Raises:
        BadOption: this host has no name that could be one.
        Mismatch: a host was named, and the table was made without.
    """
    if table is None:
        return host
    if column(table) is not None:
        return checked(host or socket.gethostname())
    if host is not None:
        raise without(table.path, host)
    return None


def without(path: str, host: str) -> shmq.Mismatch:
    """The table was made without hosts, and one was named."""
    return shmq.Mismatch(
        f"{path} was made without hosts, and the host {host!r} was named; nothing was changed. It stays the archive of "
        "the queues that are in it: leave the host out for those. For several hosts begin another table, each of them "
        "with its name; history() takes both"
    )


def by_queue(queue_id: str, host: str | None = None) -> str:
    """The mark that says how far a queue is archived; with a host, for that one."""
    return f"shmq queue {queue_id}" if host is None else f"shmq queue {queue_id} of {host}"


def _by_name(host: str | None, topic: str, shard: int) -> str:
    return f"shmq shard {topic}/{shard}" if host is None else f"shmq shard {host}/{topic}/{shard}"


def marks(host: str | None, span: Span) -> dict[str, int]:
    """Those that a commit of these messages sets."""
    names = by_queue(span.queue_id), by_queue(span.queue_id, host), _by_name(host, span.topic, span.shard)
    return dict.fromkeys(names, span.stop)


def end_of(table: delta.Table, host: str | None, topic: str, shard: int, queue_id: str) -> int | None:
    """
    How far that host's queue is archived; None where nothing is.

    Raises:
        Mismatch: what is archived under its name is of another queue; or it is archived as another host's.
    """
    found = table.mark(by_queue(queue_id, host))
    if found is not None:
        return found
    if host is not None and table.mark(by_queue(queue_id)) is not None:
        raise _of_another_host(table, host, topic, shard, queue_id)
    if table.mark(_by_name(host, topic, shard)) is not None:
        raise another_queue(table.path, topic, shard, host)
    return None


def host_of(table: delta.Table, queue_id: str) -> str | None:
    """Whose queue that is; None where nothing of it is in the table."""
    return next((each for each in names(table) if table.mark(by_queue(queue_id, each)) is not None), None)


def _of_another_host(table: delta.Table, host: str, topic: str, shard: int, queue_id: str) -> shmq.Mismatch:
    whose = host_of(table, queue_id)
    return shmq.Mismatch(
        f"{table.path} holds {topic}/{shard} as a queue of the host {whose!r}, and not of {host!r}; nothing was "
        f"changed. If the host has another name now, go on with the old one (--host {whose}); if the queue is a copy "
        "of that one, give it an id of its own (queue.copy(new_id=True)), or its messages would be there twice"
    )


def names(table: delta.Table) -> list[str]:
    """Of which hosts there is something."""
    name = column(table)
    found = set() if name is None else {each.partition.get(name) for each in table.parts()}
    return sorted(str(each) for each in found if each is not None)


def parts(table: delta.Table, host: str | None) -> list[delta.Part]:
    """A host's files; all there are where it is None."""
    there, name = table.parts(), column(table)
    return there if host is None else [each for each in there if each.partition.get(str(name)) == host]


def check_there(path: str, host: str, there: Iterable[str] | None) -> None:
    """
    Whether an archive has something of a host.

    Args:
        there: the hosts of which it has something; None where it was made without.

    Raises:
        Mismatch: it was made without hosts.
        NotFound: it has nothing of that one.
    """
    if there is None:
        raise without(path, host)
    if host not in there:
        raise shmq.NotFound(f"{path} has nothing of the host {host!r}; it has {', '.join(sorted(there)) or 'none'}")


def only(path: str, stored: list[Stored], host: str) -> list[Stored]:
    """
    What of it is of that host.

    Raises:
        Mismatch: the archive was made without hosts.
        NotFound: it has nothing of that one.
    """
    found = {each.host for each in stored}
    check_there(path, host, None if None in found else [each for each in found if each is not None])
    return [each for each in stored if each.host == host]
