"""From one foreign format to another, without a shmq queue between."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

from shmq.errors import Corrupt
from shmq.formats import verbs
from shmq.formats.transfer.batches import Batches
from shmq.formats.transfer.followers import followers
from shmq.formats.transfer.out_of import name_in
from shmq.formats.transfer.refusals import Damage, nobody, refuse_losses
from shmq.formats.transfer.results import Written
from shmq.formats.transfer.source import Source
from shmq.formats.transfer.survey import Survey, survey_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmq.formats.model import Entry


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
) -> Written:
    """
    Write the foreign queue at *path* as a new one of the format *to*, with its consumers at their places.

    All or nothing, and the source is not changed. It is read twice: to see what would be lost, and to write as many
    messages as were there then. Expiries, attempts and open transactions go along where both formats have them;
    docs/formats/README.md has the table of what each format keeps. Messages are numbered anew, without gaps.

    Args:
        path: of the source; with *format* and *queue* as for `read`.
        target: what to make: a directory, or QewQew's header file.
        to: "kestrel", "libkestrel", "sej" or "qewqew".
        name: of the queue in *target*; made of the source's name where the format must have one.
        lossy: leave out what is damaged, as `state(path).problems` names it, and what the format cannot hold.
        tell: called with a sentence for everything that is lost, before anything is written.
        progress: called with "looked at", later "converted", and with how many messages.

    Raises:
        Refused: something would be lost, the source is damaged, or two of its consumers would have one name. Nothing
            was written.
        NotFound: nothing is at *path*, or no queue of that name.
        BadFormat: it is in none of the formats, or *to* is none; or it holds several queues and *queue* names none.
        TooLarge: a payload, key or number does not fit its field.
        Unsafe: *target* exists already.
    """
    verbs.known(to, "write")
    source = Source.at(path, format, queue, "convert")
    tell, progress = tell or nobody, progress or nobody
    found, lost = followers(source, "; import it with {alone} and export that")
    batches = Batches(source.lists(strict=not lossy))
    try:
        about = survey_foreign(batches, found, progress)
    except Corrupt as problem:
        if problem is not batches.damage:
            raise
        help_ = "; {lossy} converts all that is whole, and {repair} writes a clean copy"
        raise Damage(f"{problem}. Nothing was written", help_) from problem
    lost += about.losses(to)
    refuse_losses(lost, lossy=lossy, tell=tell)
    name = name_in(to, name, queue or source.path)
    entries = _numbered(source.read(strict=not lossy), about, to, progress)
    written = verbs.write(target, entries, to, name, about.places_in(to), lossy=lossy)
    return Written(os.fspath(target), to, name, written, about.consumers(to), lost)


def _numbered(
    entries: Iterator[Entry], about: Survey, to: str, progress: Callable[[str, int], object]
) -> Iterator[Entry]:
    for count, entry in enumerate(itertools.islice(entries, about.messages)):
        if not count & 0x3FFF:
            progress("converted", count)
        extra = entry.extra if count < len(about.opened) else None
        yield entry._replace(index=count + (to == "libkestrel"), extra=extra)
