"""
How a member hands out what the built-in (cffi_build/src/python/hot_hand.c) leaves to Python: what came back or is due,
what lies behind the end of a chunk, what must be moved; and what cannot be handed out goes back.

All of it is under the account's lock, and none of it waits. What a signal's handler keeps from whoever asked is undone:
what was claimed is either in its batch, or a message of it, so nothing is looked for.
"""

from __future__ import annotations

import collections
import contextlib
import os
import time

from shmq import _native, errors, log
from shmq.hints import TYPE_CHECKING
from shmq.message import payloads_of
from shmq.taking.dead import Move

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shmq._native import Message
    from shmq.reading.access import Access
    from shmq.taking.account import Account
    from shmq.taking.aside import Aside
    from shmq.taking.group_walk import GroupWalk


class Batch:
    """
    What is claimed together.

    Attributes:
        owner: the member, as its messages know it; as long as they live, so does it.
        taken: what the core says of each; of one that has become a message, nothing.
        claimed: how many were.
        messages: what they became, in that order.
    """

    __slots__ = ("claimed", "messages", "owner", "pid", "taken")

    def __init__(self, owner: object, limit: int) -> None:
        """Of up to so many messages, none of which is claimed yet."""
        self.owner = owner
        self.taken = _native.taken_array(limit)
        self.pid = os.getpid()
        self.claimed = 0
        self.messages: list[Message] = []

    def become(self, at: int, chunk: _native.Chunk | None, decode: Callable[[Any], Any] | None) -> Message:
        """The message that number *at* of it is, in that chunk, if that is known."""
        address = 0 if chunk is None else chunk.address
        where = _native.address(self.taken + at)
        return _native.handed(self.messages, where, self.owner, self.pid, decode, chunk, address)


class Handing:
    """
    What one member hands out.

    Attributes:
        skipped: with skip_corrupt: how many of what came back were passed over because they are damaged.
        last: why nothing was claimed the last time, as the core says it.
        unread: of what was finished with others and cannot be read: why, for the calls to come.
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
        self._gone_before = 0  # where what was left began then
        self.skipped = skipped
        self.unread: collections.deque[Exception] = collections.deque()
        self.last = int(_native.EMPTY)

    def claim(
        self, batch: Batch, limit: int, spins: int, *, idle: bool, payloads: bool
    ) -> tuple[list[Any] | None, int | None]:
        """
        What is there for this member now, and when to look again (since boot) for what is due by then.

        It is None when the side table must grow first.
        """
        self._walk.begin()  # first: it may have to say that something has gone
        count, due = self._account.ring.retake(limit, batch.taken, idle=idle)
        if count > 0:
            batch.claimed = count
            messages = self._again(batch, count)
            batch.claimed += (more := self._walk.claim_more(limit - count, batch.taken + count))
            messages += self._fresh(batch, count, more)
            return (self._payloads(messages) if payloads else messages), due
        if count != _native.GROW:
            count = self.last = self._walk.claim(limit, 0 if due is not None else spins, batch.taken)
            if count == _native.EDGE:
                due = self._account.ring.holds(len(self._account.held), due)
        if count == _native.GROW:
            return None, due
        batch.claimed = max(count, 0)
        messages = self._fresh(batch, 0, batch.claimed)
        return (self._payloads(messages) if payloads and messages else messages), due

    def undo(self, batch: Batch, limit: int) -> None:
        """Interrupted between claiming and handing out: what nobody was handed goes back."""
        account = self._account
        for message in batch.messages:
            account.held.drop(message)
            # Not what was set aside: it is marked, and perhaps copied already.
            if account.explicit and not _native.is_over(message) and not self._aside.has(message):
                account.growing(account.ring.undo, _native.taken_of(message))
        for at, (_, _, _, word, *_) in enumerate(_native.taken_rows(batch.taken, limit)):
            if word and account.explicit:
                account.growing(account.ring.undo, batch.taken + at)
        self._aside.move_soon()

    def _fresh(self, batch: Batch, first: int, count: int) -> list[Message]:
        """What was claimed just now, all in one chunk: so many from number *first* on."""
        if count <= 0:
            return []
        chunk: Any = self._walk.chunk
        rows = _native.taken_rows(batch.taken + first, count)
        expired = [row[6] == _native.TAKEN_EXPIRED for row in rows]
        messages = [batch.become(at, chunk, self._decode) for at in range(first, first + count)]
        reason = "it was not handed out before its time to live had passed"
        for message, late in zip(messages, expired, strict=True):
            if late:
                self._aside.set_aside(Move(message, "expired", reason))
        kept = [message for message, late in zip(messages, expired, strict=True) if not late]
        self._account.hold(kept)
        self._account.control.count_taken(len(kept))
        chunk.timed(count, rows[-1][0], rows[-1][2])
        return kept

    def _again(self, batch: Batch, count: int) -> list[Message]:
        """Messages that came back, looked up by their indexes."""
        messages = []
        for at, (index, _, _, _, _, _, kind) in enumerate(_native.taken_rows(batch.taken, count)):
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
            message = batch.become(at, None, self._decode)
            _native.stands(message, known)
            if not self._too_early(message) and not self._aside.takes(message, kind):
                messages.append(message)
        if not self._account.explicit:  # finished now: they might have been too old, or have come too early
            messages = [each for each in messages if self._finish(each)]
        self._account.hold(messages)
        self._tell_of(messages)
        self._account.control.count_taken(len(messages))
        return messages

    def _tell_of(self, messages: list[Message]) -> None:
        again = [message for message in messages if message.attempts > 1] if log.listened(log.INFO) else ()
        if again:
            log.say(
                log.INFO,
                "%s of %s is handed again what came back: %s",
                self._account.member,
                self._account.home.path,
                ", ".join(f"{message.index} (attempt {message.attempts})" for message in again),
            )

    def _finish(self, message: Message) -> bool:
        return self._account.growing(self._account.ring.ack, _native.taken_of(message)) == 0

    def _too_early(self, message: Message) -> bool:
        """Whether it was put to come later, which a power cut has made the ring forget; then it waits again."""
        due_ns = message.due_ns if message.attempts == 1 else 0
        if not due_ns or due_ns <= time.time_ns():
            return False
        due = _native.boottime_ns() + due_ns - time.time_ns()
        return self._account.growing(self._account.ring.nack, _native.taken_of(message), due, 0) == 0

    def _payloads(self, messages: list[Message]) -> list[Any]:
        """Of these messages, which are finished with that."""
        data: list[Any] = []
        try:
            if self._account.explicit:
                data += payloads_of(messages)
            else:
                data.extend(message.payload for message in messages)
        except errors.Corrupt as problem:
            return self.taken(messages, data, problem)
        return self.taken(messages, data, None)

    def taken(self, messages: list[Message], payloads: list[Any], problem: BaseException | None) -> list[Any]:
        """
        The *payloads* of the first of these messages, which are finished with that; the others come again.

        Args:
            problem: why there are not all of them.

        Raises:
            LeaseLost: those were lost meanwhile.
            Otherwise the *problem*, where there is no payload.
        """
        account = self._account
        if not account.explicit:
            return payloads if problem is None else self._readable(messages, payloads, problem)
        try:
            if problem is not None and not payloads:
                if isinstance(problem, errors.Corrupt):  # an attempt; the others come again uncounted
                    with contextlib.suppress(errors.LeaseLost):
                        account.settle(messages[0], "give back", account.ring.give_back)
                raise problem
            kept = account.finish_what_is_left(messages[: len(payloads)])
        finally:
            for message in messages[len(payloads) :]:
                with contextlib.suppress(errors.LeaseLost):
                    account.settle(message, "give back", account.ring.undo)
        if len(kept) == len(payloads):
            return payloads
        return [each for each, message in zip(payloads, messages, strict=False) if _native.is_over(message)]

    def _readable(self, messages: list[Message], payloads: list[Any], problem: BaseException) -> list[Any]:
        """The payloads of messages that are finished already; of those that cannot be read the next calls tell."""
        if not isinstance(problem, Exception):
            raise problem
        problems = [problem]
        for message in messages[len(payloads) + 1 :]:
            try:
                payloads.append(message.payload)
            except Exception as another:  # noqa: BLE001  # a codec of the user's own raises what it likes
                problems.append(another)
        self.unread.extend(problems if payloads else problems[1:])
        if not payloads:
            raise problem
        return payloads

    def _retired(self, finished: bool) -> None:
        """One came back, or was due, after retention had taken it: all that went with it is told together."""
        self._gone_before = self._walk.chain.first_index()
        lost = finished + self._walk.pass_retired(self._gone_before)
        self._account.ring.count_retired(lost)
        self._gone += lost

    def tell(self) -> None:
        """
        Say once what no call could say yet.

        Raises:
            Corrupt: a message was finished with others, and its codec cannot read it. Or what else that has raised.
            Gone: so many messages came back, or were due, or waited, after retention had taken them.
        """
        if self.unread:
            raise self.unread.popleft()
        if self._gone:
            gone, self._gone = self._gone, 0
            which = "a message" if gone == 1 else f"{gone} messages"
            first = self._gone_before
            raise errors.Gone(
                f"{which} of {self._account.home.path} would come again to {self._account.called}, but what "
                f"comes before {first} was retired; the next get goes on",
                first,
            )
