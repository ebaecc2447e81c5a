"""
How a member hands out: what it claims or finds come back, as messages or payloads; what cannot be handed out goes back.

All of it is under the account's lock, and none of it waits. What a signal's handler keeps from whoever asked is undone:
the core's words of what was claimed lie in the batch, so nothing is looked for.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from shmq import _native, codec, errors
from shmq._native import LENGTH_BITS, LENGTH_MASK
from shmq.message import payloads_of
from shmq.taking.account import is_over
from shmq.taking.dead import Move
from shmq.taking.group_message import Batch, GroupMessage, place_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.reading.access import Access
    from shmq.taking.account import Account
    from shmq.taking.aside import Aside
    from shmq.taking.group_walk import GroupWalk


class Handing:
    """
    What one member hands out.

    Attributes:
        skipped: with skip_corrupt: how many of what came back were passed over because they are damaged.
        last: why nothing was claimed the last time, as the core says it.
    """

    def __init__(
        self,
        account: Account,
        aside: Aside,
        walk: GroupWalk,
        access: Access,
        decode: Callable[[Any], Any] | None,
        skipped: int = 0,
    ) -> None:
        """Nothing yet; *skipped* before it sought another place."""
        self._account = account
        self._aside = aside
        self._walk = walk
        self._access = access
        self._decode = decode
        self._gone = 0  # messages that retention took, and nobody was told of yet
        self.skipped = skipped
        self.last = int(_native.EMPTY)

    def claim(
        self, batch: Batch, limit: int, spins: int, *, idle: bool, payloads: bool
    ) -> tuple[list[Any] | None, int | None]:
        """
        What is there for this member now, and when to look again (since boot) for what is due by then.

        It is None when the side table must grow first.
        """
        count, due = self._account.ring.retake(limit, batch.taken, idle=idle)
        if count > 0:
            batch.claimed = count
            messages = self._again(batch, count)
            return (self._payloads(messages) if payloads else messages), due
        if count != _native.GROW:
            count = self.last = self._walk.claim(limit, 0 if due is not None else spins, batch.taken)
            if count == _native.EDGE:
                due = self._account.ring.holds(len(self._account.held), due)
        if count == _native.GROW:
            return None, due
        batch.claimed = max(count, 0)
        return (self._fresh(batch, count, payloads=payloads) if count > 0 else []), due

    def undo(self, batch: Batch, limit: int) -> None:
        """Interrupted between claiming and handing out: what nobody was handed goes back."""
        # Not what was set aside: it is marked, and perhaps copied already.
        aside = self._aside.of_batch(batch)
        for at, (index, _, _, word, *_) in enumerate(_native.taken_rows(batch.taken, limit)):
            if word and self._account.explicit and at not in aside:
                self._account.held.pop(index, None)
                self._account.growing(self._account.ring.undo, batch.taken + at)
        self._aside.move_soon()

    def _fresh(self, batch: Batch, count: int, *, payloads: bool) -> list[Any]:
        """What was claimed just now, all in one chunk; as *payloads* it is finished at once."""
        chunk, decode = self._walk.chunk, self._decode
        rows = _native.taken_rows(batch.taken, count)
        if payloads and not any(row[6] for row in rows):
            memory = chunk.map  # type: ignore[union-attr]
            data = [memory[(at := row[1] >> LENGTH_BITS) : at + (row[1] & LENGTH_MASK)] for row in rows]
            payload = data
            if decode is not None:
                payload = self._decoded(batch, decode, data)
            if self._account.explicit:  # behind it: what cannot be decoded goes back
                self._account.growing(self._account.ring.ack_many, len(payload), batch.taken)
                if len(payload) < count:
                    self.undo(batch, count)
            return payload
        messages = [
            GroupMessage(batch, at, chunk, index, record, place, decode, attempts)
            for at, (index, place, record, _, _, attempts, _) in enumerate(rows)
        ]
        if any(row[6] for row in rows):
            reason = "it was not handed out before its time to live had passed"
            for each, row in zip(messages, rows, strict=True):
                if row[6]:
                    self._aside.set_aside(Move(each, "expired", reason))
            messages = [each for each, row in zip(messages, rows, strict=True) if not row[6]]
        elif self._account.explicit and count > 1:
            batch.messages, batch.whole = tuple(messages), True
        return self._hold(messages, payloads=payloads)

    def _again(self, batch: Batch, count: int) -> list[GroupMessage]:
        """Messages that came back, looked up by their indexes."""
        messages = []
        for at, (index, _, _, _, _, attempts, kind) in enumerate(_native.taken_rows(batch.taken, count)):
            try:
                known = self._access.message(index)
            except IndexError:  # retired by age or size since it was handed out, or put aside
                finished = self._account.growing(self._account.ring.ack, batch.taken + at) == 0
                # Or a power cut took it, and left the group's snapshot: that nobody had promised.
                retired = index < self._walk.chain.first_index()
                if retired and not self._walk.only_finished_goes():
                    self._retired(finished)
                continue
            except errors.Corrupt:
                if not self._walk.skip_corrupt:
                    raise
                self._account.growing(self._account.ring.ack, batch.taken + at)
                self.skipped += 1
                continue
            chunk, record, place = known._chunk, known._record, known._place  # noqa: SLF001
            message = GroupMessage(batch, at, chunk, index, record, place, self._decode, attempts)
            if not self._too_early(message) and not self._aside.takes(message, kind):
                messages.append(message)
        if not self._account.explicit:  # finished now: they might have been too old, or have come too early
            messages = [each for each in messages if self._finish(each)]
        return self._hold(messages, payloads=False)

    def _finish(self, message: GroupMessage) -> bool:
        batch, at = place_of(message)
        return self._account.growing(self._account.ring.ack, batch.taken + at) == 0

    def _too_early(self, message: GroupMessage) -> bool:
        """Whether it was put to come later, which a power cut has made the ring forget; then it waits again."""
        due_ns = message.due_ns if message.attempts == 1 else 0
        if not due_ns or due_ns <= time.time_ns():
            return False
        due = _native.boottime_ns() + due_ns - time.time_ns()
        batch, at = place_of(message)
        return self._account.growing(self._account.ring.nack, batch.taken + at, due, 0) == 0

    def _decoded(self, batch: Batch, decode: Callable[[Any], Any], data: list[bytes]) -> list[Any]:
        """What was claimed just now, up to a payload that the codec cannot read; if that is the first, an attempt."""
        chunk: Any = self._walk.chunk
        rows = _native.taken_rows(batch.taken, len(data))
        try:
            return codec.decode_all(decode, data, chunk, lambda at: rows[at][0], first=self._account.explicit)
        except errors.Corrupt:
            if self._account.explicit:
                self._account.growing(self._account.ring.give_back, batch.taken)
            raise

    def _hold(self, messages: list[GroupMessage], *, payloads: bool) -> list[Any]:
        self._account.hold(messages)
        return self._payloads(messages) if payloads else messages

    def _payloads(self, messages: list[GroupMessage]) -> list[Any]:
        """Of these messages, which are finished with that."""
        if not self._account.explicit:
            return [message.payload for message in messages]
        try:
            data = payloads_of(messages)
        except errors.Corrupt:
            # An attempt; the others come again uncounted.
            self._account.settle(messages[0], "give back", self._account.ring.give_back)
            raise
        try:
            kept = self._account.finish_what_is_left(messages[: len(data)])
        finally:
            for message in messages[len(data) :]:
                with contextlib.suppress(errors.LeaseLost):
                    self._account.settle(message, "give back", self._account.ring.undo)
        if len(kept) == len(data):
            return data
        return [each for each, message in zip(data, messages, strict=False) if is_over(message)]

    def _retired(self, finished: bool) -> None:
        """One came back, or was due, after retention had taken it: all that went with it is told together."""
        lost = finished + self._walk.pass_retired(self._walk.chain.first_index())
        self._account.ring.count_retired(lost)
        self._gone += lost

    def tell_gone(self) -> None:
        """Say once how many messages came back, or were due, or waited, after retention had taken them."""
        if self._gone:
            gone, self._gone = self._gone, 0
            which = "a message" if gone == 1 else f"{gone} messages"
            first = self._walk.chain.first_index()
            raise errors.Gone(
                f"{which} of {self._account.home.path} would come again to group {self._account.name!r}, but what "
                f"comes before {first} was retired; the next get goes on",
                first,
            )
