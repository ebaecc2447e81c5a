"""The ways to the shards of a directory: `open` and `delete`."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, overload

import shmq
from shmq.shards import growth, place
from shmq.shards import map as maps
from shmq.shards.opened import Opening
from shmq.shards.root import Shards

if TYPE_CHECKING:
    from shmq.shards.consumer import T
    from shmq.shards.map import Map


@overload
def open(  # noqa: A001
    path: str | os.PathLike[str],
    shards: int | None = ...,
    *,
    prefix: str | None = ...,
    create: bool = ...,
    options: None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    codec: shmq.codec.Codec[T],
    **keywords: Any,
) -> Shards[T]: ...
@overload
def open(  # noqa: A001
    path: str | os.PathLike[str],
    shards: int | None = ...,
    *,
    prefix: str | None = ...,
    create: bool = ...,
    options: shmq.Options | None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    **keywords: Any,
) -> Shards[Any]: ...
def open(  # noqa: A001  # shmq.shards.open, as shmq.open
    path: str | os.PathLike[str],
    shards: int | None = None,
    *,
    prefix: str | None = None,
    create: bool = True,
    options: shmq.Options | None = None,
    trusted: bool = False,
    unsafe_filesystem: bool = False,
    **keywords: Any,
) -> Shards[Any]:
    """
    Open the shards in the directory *path*; make them if there are none.

    A growth that was killed is carried on.

    Args:
        path: the directory. The one above it must exist.
        shards: how many, a power of two up to 1,024. To make them it is needed; given for those that exist, it must be
            the number of those that are open now.
        prefix: what the names of the shards' directories begin with, up to 64 of A-Z a-z 0-9 _ -; nothing by default. A
            single shard's directory is called by it alone, so there must be one.
        create, options, trusted, unsafe_filesystem, keywords: of each shard, as `shmq.open` takes them. Bounds are
            those of a shard.

    Raises:
        NotFound: there are none, and they were not to be made; or the directory above is missing.
        Mismatch: there is another number of shards, or another prefix; or an option contradicts them.
        BadFormat, Unsafe: something else is there, a queue for instance, or shards whose map is gone; or it is somebody
            else's.
        Otherwise as `shmq.open`. What was made by then stays, and is found by the next call.
    """
    directory = place.checked(path)
    bit = None if shards is None else place.bit_of(shards)
    made_with = _options(options, keywords)
    codec = made_with.codec if made_with is not None and not isinstance(made_with.codec, str) else keywords.get("codec")
    opening = Opening(codec, trusted, unsafe_filesystem)
    found = maps.read(directory)
    if found is None:
        found = _made(directory, bit, prefix, made_with, opening, create=create)
    place.check_safe(directory)
    if found.growing_to is not None:
        growth.is_locked_out(directory, opening.open)
        found = maps.read(directory) or found
    _check(found, bit, prefix)
    root = Shards[Any](directory, opening)
    try:
        root.check_options(made_with)
    except BaseException:
        root.close()
        raise
    return root


def _options(options: shmq.Options | None, keywords: dict[str, Any]) -> shmq.Options | None:
    """What was given one way or the other; refused before anything is made."""
    if options is not None and keywords:
        raise TypeError(f"options= and {', '.join(keywords)} were both given: give options one way or the other")
    return shmq.Options(**keywords) if keywords else options


def _check(found: Map, bit: int | None, prefix: str | None) -> None:
    there = 1 << found.open_bit
    if bit is not None and bit != found.open_bit:
        raise shmq.Mismatch(
            f"cannot open {found.path} with shards={1 << bit}: it has {there}; leave the argument out, and call grow() "
            "to have twice as many"
        )
    if prefix is not None and prefix != found.prefix:
        raise shmq.Mismatch(f"cannot open {found.path} with prefix={prefix!r}: it was made with {found.prefix!r}")


def _made(
    path: str,
    bit: int | None,
    prefix: str | None,
    options: shmq.Options | None,
    opening: Opening,
    *,
    create: bool,
) -> Map:
    """
    The map of a root that was made.

    Its queues come before its map, so whoever is killed has made it or not; who comes then finds the queues it made.
    """
    if (bit is None or not create) and _were_used(path, place.orphans(path), opening):
        found = maps.read(path)  # perhaps somebody has made them just now
        if found is not None:
            return found
        raise place.no_map(path)
    if not create:
        raise shmq.NotFound(f"cannot open {path}: there are no shards, and create=False")
    if bit is None:
        raise shmq.NotFound(f"cannot open {path}: there are no shards; to make some, say how many: shards=8")
    prefix = maps.check_prefix("" if prefix is None else prefix, bit)
    place.make(path)
    place.check_safe(path)
    with place.locked(path):
        found = maps.read(path)
        if found is not None:
            return found
        place.check_empty(path, prefix, bit)
        wanted = [maps.directory(prefix, bit, index) for index in range(1 << bit)]
        if _were_used(path, wanted, opening):
            raise place.no_map(path)
        made = maps.Map(path, prefix, ((bit, maps.OPEN),), {})
        for shard in made.of_bit(bit):
            if options is None and os.path.exists(os.path.join(shard.path, place.MARK)):
                with opening.open(shard.path) as one:
                    options = one.options  # of a maker that was killed before it had made all of them
                break
        for shard in made.of_bit(bit):
            growth.make(shard.path, options, unsafe_filesystem=opening.unsafe_filesystem).close()
        maps.sync_directory(path)
        return maps.write(made)


def _were_used(path: str, names: list[str], opening: Opening) -> bool:
    """
    Whether one of those queues was put into, or has consumers.

    Whoever is killed while making shards leaves queues without a map, too, but those are as they were made.
    """
    for name in names:
        where = os.path.join(path, name)
        if os.path.exists(os.path.join(where, place.MARK)):
            with opening.open(where) as one:
                if one.next_index or one.consumers():
                    return True
    return False


def delete(path: str | os.PathLike[str]) -> None:
    """
    Delete what is at *path*: all shards with everything in them, and the dead letters that lie there.

    Interrupted, it can be called again, and finishes the work.

    Raises:
        NotFound: there is nothing.
        Busy: a shard is open, here or in another process; nothing was deleted, unless it was opened meanwhile.
        Unsafe: something else lies there; nothing was deleted.
    """
    directory = place.checked(path)
    if maps.read(directory) is None:
        raise shmq.NotFound(f"cannot delete {directory}: there are no shards")
    queues = place.queues_in(directory)
    for each in queues:
        with contextlib.suppress(shmq.NotFound), shmq.open(each, create=False, trusted=True) as queue:
            if queue.stats().participants > 1:
                raise shmq.Busy(f"cannot delete {directory}: {each} is open in another process; nothing was deleted")
    for each in queues:
        with contextlib.suppress(shmq.NotFound):  # half deleted by somebody who was killed
            shmq.delete(each)
    place.remove(directory)
