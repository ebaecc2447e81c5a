"""From one foreign format to another, without a shmq queue between."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

from shmq.errors import Corrupt
from shmq.formats import verbs
from shmq.formats.model import Entry
from shmq.formats.transfer.batches import Batches
from shmq.formats.transfer.followers import followers
from shmq.formats.transfer.options import check_options, write
from shmq.formats.transfer.out_of import name_in
from shmq.formats.transfer.refusals import Damage, nobody, refuse_losses
from shmq.formats.transfer.results import Written
from shmq.formats.transfer.source import Source, cycled
from shmq.formats.transfer.survey import Survey, survey_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmq.formats.transfer.cycled import Numbers, Place


def convert_queue(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    to: str,
    format: str | None = None,  # noqa: A002  the name is fixed by the API
    queue: str | None = None,
    name: str | None = None,
    *,
    lossy: bool = False,
    tell: Callable[[str], object] | None = None,
    progress: Callable[[str, int], object] | None = None,
    **options: Any,
) -> Written:
    """
    Write the foreign queue at *path* as a new one of the format *to*, with its consumers at their places.

    All or nothing, and the source is not changed. It is read to see what would be lost, and again to write as many
    messages as were there then. Expiries, attempts and open transactions go along where both formats have them;
    docs/formats/README.md has the table of what each format keeps. Messages are numbered anew, without gaps.

    Args:
        path: of the source; with *format* and *queue* as for `read`.
        target: what to make: a directory, or QewQew's header file.
        to: "kestrel", "libkestrel", "sej", "qewqew" or "chronicle".
        name: of the queue in *target*; made of the source's name where the format must have one.
        lossy: leave out what is damaged, as `state(path).problems` names it, and what the format cannot hold.
        tell: called with a sentence for everything that is lost, before anything is written.
        progress: called with "looked at", later "converted", and with how many messages.
        options: of the format's own `write`, as for `export_queue`. With *by_dir* the directories of a sej root stay
            what they are, and each consumer in its own.

    Raises:
        Refused: something would be lost, the source is damaged, or two of its consumers would have one name. Nothing
            was written.
        NotFound: nothing is at *path*, or no queue of that name.
        BadFormat: it is in none of the formats, or *to* is none; or it holds several queues and *queue* names none.
        TooLarge: a payload, key or number does not fit its field; nothing was written.
        Unsafe: *target* exists already.
    """
    check_options(verbs.known(to, "write"), options)
    source = Source.at(path, format, queue, "convert")
    tell, progress = tell or nobody, progress or nobody
    by_dir = bool(options.get("by_dir"))
    found, lost = followers(source, "; import it with {alone} and export that", by_dir=by_dir)
    batches = Batches(source.lists(strict=not lossy))
    try:
        about = survey_foreign(batches, found, progress)
    except Corrupt as problem:
        if problem is not batches.damage:
            raise
        help_ = "; {lossy} converts all that is whole, and {repair} writes a clean copy"
        raise Damage(f"{problem}. Nothing was written", help_) from problem
    layout = cycled().of_source(source, about, options, strict=not lossy) if to == "chronicle" else None
    lost += layout.losses(about) if layout else about.losses(to)
    lost += cycled().meta_losses(source, strict=not lossy) if source.format == "chronicle" else []
    refuse_losses(lost, lossy=lossy, tell=tell)
    name = name_in(to, name, queue or source.path)
    entries = _counted(source.read(strict=not lossy), about.messages, progress)
    if layout:
        places, options = {"consumers": layout.places(about)}, layout.options
        entries = _in_cycles(entries, cycled().place_of(source), layout.numbers())
    else:
        places = about.placed_in(to, options)
        entries = _numbered(entries, about, to, by_dir=by_dir)
    written = write(target, entries, to, name, lossy=lossy, **places, **options)
    return Written(os.fspath(target), to, name, written, about.consumers(to), lost)


def _counted(entries: Iterator[Entry], most: int, progress: Callable[[str, int], object]) -> Iterator[Entry]:
    for count, entry in enumerate(itertools.islice(entries, most)):
        if not count & 0x3FFF:
            progress("converted", count)
        yield entry


def _numbered(entries: Iterator[Entry], about: Survey, to: str, *, by_dir: bool) -> Iterator[Entry]:
    for count, entry in enumerate(entries):
        extra = entry.extra if by_dir or count < len(about.opened) else None
        yield entry._replace(index=None if by_dir else count + (to == "libkestrel"), extra=extra)


def _in_cycles(entries: Iterator[Entry], place: Callable[[Entry], Place | None], numbers: Numbers) -> Iterator[Entry]:
    """The messages as those of a Chronicle queue, which has nothing but their bytes."""
    for entry in entries:
        yield Entry(entry.payload, numbers.next(entry.time_ns, place(entry)))
