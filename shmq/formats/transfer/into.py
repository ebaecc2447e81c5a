"""Into shmq: a foreign queue's messages, all of them at once or part by part, and its consumers, each at its place."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Literal

import shmq
from shmq.formats.transfer.batches import Batches
from shmq.formats.transfer.before import Before
from shmq.formats.transfer.followers import REACH, Follower, followers
from shmq.formats.transfer.messages import put
from shmq.formats.transfer.refusals import Clash, Damage, no_room, nobody, refuse_losses
from shmq.formats.transfer.results import Imported
from shmq.formats.transfer.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shmq.formats.model import Entry
    from shmq.formats.transfer.messages import Headers


def import_queue(
    path: str | os.PathLike[str],
    into: shmq.Queue | str | os.PathLike[str],
    format: str | None = None,  # noqa: A002  the name is fixed by the API
    queue: str | None = None,
    *,
    resume: bool = False,
    part: int = 1_000_000,
    again: bool = False,
    consumers: bool = True,
    ack: Literal["auto", "explicit"] = "auto",
    lossy: bool = False,
    tell: Callable[[str], object] | None = None,
    progress: Callable[[str, int], object] | None = None,
) -> Imported:
    """
    Append the messages of the foreign queue at *path* to a shmq queue; its consumers come along, each at its place.

    All messages appear at once, or nothing, beside running producers: killed half-way it leaves nothing that anybody
    sees. The consumers are made right behind that; killed between, the same call makes those that are missing, and
    imports nothing else. Until it has returned, nobody should open them: who opens a name that is not there makes it,
    at the first message. What was imported before is not imported again: the queue remembers how far each source is in.
    The source is not changed. While its own program writes to it, what is whole when it is read comes in; a message of
    which only a part is there looks damaged.

    Payload, key, type and time are kept; a message without a time gets that of the import. Indexes are shmq's own. What
    else the source knew of a message (its index, expiry, attempts, segment, directory, transaction, cycle, sequence)
    goes to the header `source`, and nothing here acts on it. docs/how-to/import-export.md says what becomes of each
    kind of consumer.

    Args:
        path: of the source; with *format* and *queue* as for `read`.
        into: an open queue of codec "bytes", or the path of one, which is made if it is not there; and taken away again
            if the import fails before anything is in.
        resume: go on behind what was imported before, instead of refusing it, and in parts of *part* messages: each
            appears at once, and whole parts stay when a later one fails. For a source that grows, call it again.
        again: import all that the source holds now, also what was imported before.
        consumers: False leaves the source's consumers out.
        ack: how they acknowledge; one that had finished messages out of order becomes a group, whose acks are explicit.
        lossy: leave out what is damaged, as `state(path).problems` names it, and what has no place in shmq.
        tell: called with a sentence for everything that is lost, before it is, and where a log goes on behind a gap.
        progress: called with "imported" and how many messages are in so far.

    Raises:
        Refused: it was imported before; something would be lost; the source is damaged, or has changed since; or a
            consumer is in the way. The text says what helps.
        NotFound: nothing is at *path*, or no queue of that name.
        BadFormat: it is in none of the formats, or holds several queues and *queue* names none.
        TooMany, TooLarge, Full: the bounds of *into* have no room for all of it, or for a part; a Refused, too.
        Mismatch: the codec of *into* is not "bytes".
    """
    if part < 1:
        raise ValueError(f"part={part}: at least 1")
    if resume and again:
        raise ValueError("resume=True goes on behind what was imported, again=True imports it once more: not both")
    if ack not in {"auto", "explicit"}:
        raise ValueError(f"ack={ack!r}: 'auto' or 'explicit'")
    source = Source.at(path, format, queue, "import")
    tell, progress = tell or nobody, progress or nobody
    found, lost = followers(source, "; use {alone}") if consumers else ([], [])
    refuse_losses(lost, lossy=lossy, tell=tell)
    messages, left_out = source.messages(strict=not lossy)
    batches = Batches(messages)
    who = source.identity()
    try:
        with _open(into) as target:
            before = Before(target, source, who, again=again, in_parts=resume)
            there = set(target.consumers())
            _check(target, source, before, found, there, resume=resume)
            work = _Import(target, before, found, there, ack, source.headers(), left_out, lossy=lossy)
            count, first, last = work.run(batches, part if resume else None, tell, progress)
    except shmq.Corrupt as problem:
        if problem is not batches.damage:
            raise
        kept = "Whole parts before it are in" if resume else "Nothing was imported"
        help_ = "; {lossy} imports all that is whole, and {repair} writes a clean copy"
        raise Damage(f"{problem}. {kept}", help_) from problem
    return Imported(source.format, count, first, last, work.made, lost + work.lost)


@contextlib.contextmanager
def _open(into: shmq.Queue | str | os.PathLike[str]) -> Iterator[shmq.Queue]:
    """The queue to import into; if it was made for that, and nothing came in, it is taken away again."""
    if isinstance(into, shmq.Queue):
        yield _checked(into)
        return
    path = os.path.expanduser(into)
    there = path.startswith("shm:") or os.path.lexists(path)  # a volatile one goes with its last user, by itself
    try:
        with shmq.open(path, trusted=True) as queue:  # of pickles, too, to say that it is no queue of bytes
            yield _checked(queue)
    except BaseException:
        if not there:
            _take_back(path)
        raise


def _checked(queue: shmq.Queue) -> shmq.Queue:
    if queue.options.codec != "bytes":
        raise shmq.Mismatch(f"{queue.path} holds {queue.options.codec}; an import brings bytes")
    return queue


def _take_back(path: str) -> None:
    """Delete a queue that was made for an import which has failed, unless something is in it."""
    with contextlib.suppress(shmq.ShmqError):
        with shmq.open(path, create=False, read_only=True) as queue:
            used = queue.next_index
        if not used:
            shmq.delete(path)


def _check(
    queue: shmq.Queue, source: Source, before: Before, found: list[Follower], there: set[str], *, resume: bool
) -> None:
    """
    Go on only where nothing is doubled, and nobody else's consumer is moved.

    Raises:
        Refused: it was imported before, and is not to be resumed; or a consumer of that name is there.
    """
    if before.is_known and not resume and not before.is_unfinished:
        raise Clash(
            f"{source.path} was imported before, up to index {before.indexes.stop - 1}; nothing was done",
            ". {resume} goes on behind that, {again} imports all of it once more",
        )
    taken = [each.called for each in found if each.called in there and each.comes]
    if taken and not before.is_known:
        raise Clash(
            f"{queue.path} has a consumer {taken[0]!r} already; nothing was imported", ". Drop it, or use {alone}"
        )


class _Import:
    """One import under way."""

    def __init__(
        self,
        queue: shmq.Queue,
        before: Before,
        found: list[Follower],
        there: set[str],
        ack: Literal["auto", "explicit"],
        headers: Headers | None,
        left_out: Callable[[], list[str]],
        *,
        lossy: bool,
    ) -> None:
        """Nothing is read yet; *there* are the names of the consumers that the queue has."""
        self.made: list[str] = []
        """The names of the consumers that were made, in that order."""
        self.lost: list[str] = []
        """What was lost of consumers, and what was no message, as *lossy* allowed."""
        self._lossy = lossy
        self._left_out = left_out
        self._headers = headers
        self._queue = queue
        self._before = before
        self._found = found
        self._there = there
        self._ack = ack

    def run(
        self, batches: Batches, part: int | None, tell: Callable[[str], object], progress: Callable[[str, int], object]
    ) -> tuple[int, int | None, int | None]:
        """Count, first and last index of what came in; all of it in one part, if that has no size."""
        passed = read = self._before.pass_over(batches, self._look, tell)
        indexes = self._before.indexes
        first, last = None, None
        self._name_earlier(read - len(indexes), tell)
        self._name_consumers(read - len(indexes), indexes)
        if part is None and self._before.is_known:
            tell(f"all was imported before, up to index {indexes.stop - 1}; what was missing of its consumers is made")
        else:
            for before, indexes in self._parts(batches, part, passed, progress):
                self._name_consumers(before, indexes)
                read = before + len(indexes)
                first = indexes.start if first is None else first
                last = indexes.stop - 1
        self._refuse_what_is_left_out("Nothing more was imported", tell)
        self.lost += self._left_out()
        for each in self._found:  # who wants what is still to come
            if each.at is None:
                self._make(each, indexes.stop or self._queue.next_index)
        self._before.finish()
        return read - passed, first, last

    def _parts(
        self, batches: Batches, part: int | None, read: int, progress: Callable[[str, int], object]
    ) -> Iterator[tuple[int, range]]:
        """Adopt a part after the other: how many messages came before it, and its indexes."""
        passed = read
        while True:
            with self._queue.stage() as staged:
                before, number = read, -1
                for batch in batches.some(part):
                    put(staged, batch, self._headers)
                    self._look(batch, read)
                    read += len(batch)
                    number = self._before.number_of(batch, read, number)
                    progress("imported", read - passed)
                if read == before:
                    return
                kept = "Nothing was" if part is None else "Whole parts before it are"
                self._refuse_what_is_left_out(f"{kept} imported", nobody)
                if part is None and any(each.comes for each in self._found):
                    self._before.begin()
                indexes = self._adopt(staged, number, kept)
            yield before, indexes
            if part is None:
                return

    def _refuse_what_is_left_out(self, kept: str, tell: Callable[[str], object]) -> None:
        """Go on only where what was read and is no message may be lost."""
        refuse_losses(self._left_out(), lossy=self._lossy, tell=tell, kept=kept)

    def _adopt(self, staged: shmq.Staged, number: int, kept: str) -> range:
        try:
            return self._queue.adopt(staged, dedup=(self._before.who, number))
        except shmq.DiskFull:
            raise
        except (shmq.TooLarge, shmq.TooMany, shmq.Full) as problem:
            raise no_room(problem, f"{kept} imported") from problem

    def _look(self, batch: Sequence[Entry], before: int) -> None:
        for each in self._found:
            each.look(batch, before)

    def _name_consumers(self, before: int, indexes: range) -> None:
        """Make those whose place is in the part just adopted, also if that was by a run that was killed then."""
        for each in self._found:
            if each.at is not None and before <= each.at < before + len(indexes):
                self._make(each, indexes.start + each.at - before)
            done = [indexes.start + at - before for at in each.finished if before <= at < before + len(indexes)]
            if done:
                self._finish(each, done)

    def _name_earlier(self, before: int, tell: Callable[[str], object]) -> None:
        """
        Make those that are new in the source and stand before the part that was imported last.

        Raises:
            Refused: the place of one of them is not known, or what it has finished behind that; nothing was done.
        """
        new = [
            each
            for each in self._found
            if each.comes and each.at is not None and each.at < before and each.called not in self._there
        ]
        if not new:
            return
        places = self._before.places({each.mark for each in new if each.mark is not None})
        for each in new:
            there = places.get(each.mark, []) if each.mark is not None else []
            if len(there) > 1:
                self.lost.append(
                    f"where consumer {each.name!r} stands, so that messages come again: it is new in the source, and "
                    f"{len(there):,} messages here may be the one that it wants"
                )
            if each.finished and each.finished[0] < before:
                self.lost.append(f"that consumer {each.name!r} has finished messages out of order; they come again")
        refuse_losses(self.lost, lossy=self._lossy, tell=tell)
        for each in new:
            there = places.get(each.mark, []) if each.mark is not None else []
            self._make(each, there[0] if there else self._queue.first_index)  # it was retired, or it would be there

    def _make(self, follower: Follower, index: int) -> None:
        if not follower.comes or follower.called in self._there:
            return
        if follower.group:
            self._queue.consumer(follower.called, group=True, ack="explicit", start=index).close()
        else:
            self._queue.consumer(follower.called, ack=self._ack, start=index).close()
        self._there.add(follower.called)
        self.made.append(follower.called)

    def _finish(self, follower: Follower, indexes: list[int]) -> None:
        """What it had finished out of order does not come again, as far as a group can say so."""
        with self._queue.consumer(follower.called, group=True, ack="explicit") as group:
            reach = group.head + REACH
            group.skip(*(index for index in indexes if index < reach))
