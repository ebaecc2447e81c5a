"""
A group: any number of processes share one consumer name, and every message goes to one of them.

The ring (cffi_build/src/group) says who has what; a claim and an acknowledgement are one CAS each. With ack="auto" a
message is finished when it is handed out (at most once), with "explicit" when it is acknowledged (at least once). What
a dead member held goes to the others at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import threading
import time
import weakref

from shmq import _native, ending, errors, habits, later, locks
from shmq import given as _given
from shmq._native import Message
from shmq.alarm import Awaited
from shmq.deadlines import deadline_of, sooner
from shmq.hints import TYPE_CHECKING, T
from shmq.loan import Loan
from shmq.message import no_message
from shmq.patience import Patience
from shmq.reading.access import Access
from shmq.session import Handle
from shmq.storage import acks, departures, sources, space
from shmq.storage import ring as rings
from shmq.storage.paths import CONSUMERS, check_consumer_name
from shmq.storage.subscriptions import EVERYTHING
from shmq.taking import backlog, group_options, joining, names, subscribing
from shmq.taking.account import Account, account_of
from shmq.taking.aside import BATCH, Aside
from shmq.taking.group_walk import GroupWalk
from shmq.taking.handing import Batch, Handing
from shmq.where import says_where

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Never, NoReturn

    from shmq.filter import Filter
    from shmq.session import Session
    from shmq.storage.subscriptions import Subscription
    from shmq.taking.forward import Forward
    from shmq.taking.lasting import Keeper

_SNAPSHOT_EVERY, _SNAPSHOT_EVERY_PROCESS = 1.0, 10.0
"""Seconds between two snapshots of what is done, which count after a power cut; with Durability.PROCESS."""
_FOREVER = 1e9
"""Seconds beyond which nobody can tell whether a lease ended."""


@says_where("_home.path", "seek")
class GroupConsumer(_native.Hand[T], Awaited, Handle):
    """
    One member of a group. Made by `Queue.consumer(..., group=True)`; safe to share between threads.

    In a forked child it becomes a member of its own at first use; the messages it held are the parent's.

    Attributes:
        name: the group's name.
        ack_mode: "auto" or "explicit".
        options: what the group was made with.
    """

    _handing: Handing
    _access: Access
    _lone = False

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        ack: str | None,
        start: str | float | datetime.datetime,
        given: dict[str, Any],
        window: int | None = None,
        skip_corrupt: bool = False,
        hold: bool | str | None = None,
        wait: str = "hybrid",
        subscription: Subscription = EVERYTHING,
    ) -> None:
        """See `Queue.consumer`."""
        check_consumer_name(name)
        names.check_ack(ack)
        self._patience = Patience(wait)
        self.name = name
        self._session = session
        options = group_options.check_options(given)
        group_options.check_order(options, explicit=ack != "auto")
        self._asked = joining.Asked(
            name, ack, options, group_options.check_window(window), self._lone, hold, subscription
        )
        self._skip_corrupt = skip_corrupt
        self._lock = locks.Lock()
        self._loan = Loan()
        self._decode = session.codec.decode
        self._open(start)

    # ---- opening
    def _open(self, start: str | float | datetime.datetime) -> None:
        self._pid = os.getpid()
        self._look_again_ns: int | None = None
        self._at_end: set[int] = set()
        """Threads that wait in here for the end of the stream."""
        self._account = Account(self._asked, self._lock)
        self._account.forwards_first = weakref.WeakMethod(self._forwards_first)
        self._keeper: Keeper | None = None
        self._name_lock: _native.Lock | None = None
        self._opened = False
        try:
            self._borrow()
            with self._home.at_hand():
                self._enter(start)
        except BaseException:
            self._close()
            raise

    def _enter(self, start: str | float | datetime.datetime) -> None:
        process = self._home.options.durability.kind == "process"
        self._snapshot_every = _SNAPSHOT_EVERY_PROCESS if process else _SNAPSHOT_EVERY
        self._next_snapshot()
        names.persistently(self._asked.subscription, lambda: self._enter_name(start), self._let_go)
        self._aside = Aside(self._session, self._account, self.options)
        self._enter_ring()

    def _enter_name(self, start: str | float | datetime.datetime) -> None:
        asked, control = self._asked, self._membership.control
        self._name_lock = joining.make(self._session, asked, start)
        control.recount()  # each time: whoever made it may have been killed before that
        fd, self._checkpoint = joining.open_name(self._home, asked)
        with fd:
            self.options = joining.agreed(self._session, asked, self._checkpoint)
            self.ack_mode: str = self.options["ack"]
            self._explicit = self._checkpoint.explicit
            self._account.of_name(self._home, self._membership, self._checkpoint)
            self._name_lock = self._name_lock or _native.Lock(fd)
            joining.enter(self._home, asked, self._checkpoint, self._name_lock, fd, control)
        self._name_lock.keep()
        self._subscription = subscribing.agreed(
            self._home, self.name, asked.called, self._checkpoint, asked.subscription
        )
        departures.holds(self._checkpoint)

    def _let_go(self) -> None:
        if self._name_lock is not None:
            self._name_lock.free()
        self._name_lock = None

    def _enter_ring(self) -> None:
        memory = rings.map_ring(self._home, self.name, writable=True)
        sources.settle(self._home, self.name, self._checkpoint)
        rings.fresh(self._home, self.name, memory, self._checkpoint)
        lease_ns = self._aside.lease_ns = int(min(self.options.get("lease") or 0, _FOREVER) * 1e9)
        self._ring = _native.Ring(
            memory,
            self._home.queue_id,
            self._checkpoint,
            self._membership.member,
            f"{self._home.path}/{CONSUMERS}/{self.name}.ring",
            lease_ns=lease_ns,
            finish=not self._explicit,
            keep_expired=bool(self.options.get("expire_to")),
        )
        if self._asked.window not in {None, window := self._ring.figures().window}:
            raise errors.Mismatch(
                f"cannot open {self._asked.called} of {self._home.path} with window={self._asked.window}: it was made "
                f"with window={window}; leave the option out, or use another name"
            )
        self._ring.unsure(self._end())
        dropped = self._dropped("control.shmq", self._membership.control.bounds().dropped)
        self._dropped(f"{CONSUMERS}/{self.name}.ring", self._ring.figures().dropped_to)
        while self._ring.join() == _native.GROW:
            rings.grow(self._home, self.name, self._ring)
        if self._checkpoint.written_floor() < dropped:  # what a reboot may have brought back
            self._account.growing(self._ring.drop, dropped)
        self._wants = self.filter.compiled() if self.filter else None
        self._walk = GroupWalk(self._home, self._membership, self._checkpoint, wants=self._wants)
        self._walk.lead_group(self._account, self._ring)
        self._walk.skip_corrupt = self._skip_corrupt
        self._walk.seek(self._checkpoint.head)
        self._seat(
            _native.address(self._ring.handle),
            self._ring,
            self._account.held,
            self._lock,
            self._pid,
            self._patience.spins,
            self._explicit,
            self._explicit and self._home.options.durability.waits,
        )
        if not self.options.get("expire_to"):  # else what has expired goes elsewhere
            self._code_with(self._decode)
            self._walk.lead(self)
        self._access = Access(self._home, self._membership, self._decode)
        self._account.in_ring(self._ring, self._walk.chain)
        self._aside.next_index = self._access.next_index
        skipped = self._handing.skipped if self._opened else 0
        self._handing = Handing(self._account, self._aside, self._walk, self._access, self._decode, skipped)
        members = self._membership.members_of(self.name)
        with members.lock:  # whoever is leaving as the last one does not know what this one will have
            members.handles.add(self)
        self._opened = True

    def _end(self) -> int:
        return self._access.next_index() if self._opened else self._session.next_index

    def _dropped(self, file: str, mark: int) -> int:
        """The mark, which what will be put lies behind."""
        end = self._end()
        if mark > end:
            raise errors.Corrupt(
                f"cannot open {self._asked.called} of {self._home.path}: {file} says that all before {mark} is "
                f"dropped, and the queue ends before {end}"
            )
        return mark

    # ---- getting: what the built-ins do not
    def _get(self, timeout: float | None = None, *_: Never, **keywords: Never) -> Message:
        if _ or keywords:
            _given.no_block("get", _, keywords)
        found: list[Message] = self._find(1, timeout)
        return found[0]

    def _get_many(self, limit: int, timeout: float | None = None) -> list[Message]:
        return self._find(min(_given.whole("limit", limit, 1), BATCH), timeout)

    def _take(self, timeout: float | None = None) -> Any:
        return self._find(1, timeout, payloads=True)[0]

    def _take_many(self, limit: int, timeout: float | None = None) -> list[Any]:
        return self._find(min(_given.whole("limit", limit, 1), BATCH), timeout, payloads=True)

    _get.__qualname__, _get_many.__qualname__ = "GroupConsumer.get", "GroupConsumer.get_many"
    _take.__qualname__, _take_many.__qualname__ = "GroupConsumer.take", "GroupConsumer.take_many"

    def _taken(self, messages: list[Message], payloads: list[Any] | None, problem: BaseException | None) -> list[Any]:
        """What the built-ins claimed, and could not all decode or finish."""
        with self._lock:
            try:
                return self._handing.taken(messages, payloads or [], problem)
            finally:
                self._come_by_to_tell()

    def _come_by_to_tell(self) -> None:
        """Have the built-ins come by at once, if there is something that the next call is to say."""
        if self._handing.unread:
            self._snapshot_at = 0.0  # with which they are told when to come by again
            self._due(0)

    def _taken_one(self, message: Message, payload: Any, problem: BaseException | None) -> Any:
        return self._taken([message], [] if problem is not None else [payload], problem)[0]

    def _next_message(self) -> Message:
        """The next message of a loop, which ends when the stream does, or this is closed."""
        if self._account.closed:
            raise StopIteration
        try:
            found = self._wait_for(1, None, payloads=False)
        except errors.Closed:
            if self._account.closed:
                raise StopIteration from None
            raise  # another queue, where a message was to go
        if found.__class__ is not list:
            raise StopIteration
        message: Message = found[0]
        return message

    def take_arrow(
        self,
        limit: int,
        timeout: float | None = None,
        *,
        columns: Sequence[str] | None = None,
        max_bytes: int | None = None,
    ) -> Any:
        """
        Between 1 and *limit* messages as one pyarrow record batch, acknowledged at once: those that are there now, or
        the first that comes. Payloads are the bytes as they were put, whatever the codec.

        Args:
            columns: as in `Queue.read_arrow`, and "attempts" (uint16).
            max_bytes: of keys, payloads and headers, 16 MiB by default: nothing more is taken once they are reached.

        Raises:
            ImportError: there is no pyarrow: pip install 'shmq[arrow]'.
            Otherwise as `take`.
        """
        later.ready("shmq.reading.arrow")
        from shmq.reading import arrow  # noqa: PLC0415  # only who uses it pays for it

        _given.timeout(timeout)
        wanted = arrow.check_columns(columns, attempts=True)
        arrow.plan(wanted, rows=arrow.check_rows("limit", limit), max_bytes=max_bytes)  # refuses what means nothing
        messages = self._find(1, timeout)
        try:
            self._gather(messages, limit, arrow.BYTES if max_bytes is None else max_bytes)
            batch = arrow.of_messages(wanted, messages)
        except BaseException:
            for message in messages if self._explicit else ():
                with contextlib.suppress(errors.LeaseLost):
                    self._account.settle(message, "give back", self._ring.give_back)
            raise
        if self._explicit:
            kept = self._account.finish_what_is_left(messages)
            self._account.persist()
            return batch if len(kept) == len(messages) else arrow.of_messages(wanted, kept)
        return batch

    def _gather(self, messages: list[Message], limit: int, most: int) -> None:
        """More messages that are there now, about as many as have *most* bytes with those."""
        size = largest = messages[0].weight
        while len(messages) < limit and size < most:
            some = min(limit - len(messages), BATCH, max((most - size) // (8 * largest), 1))
            batches: list[Batch] = []
            try:
                more, _ = self._look(batches, some, 0, idle=False, payloads=False)
            except errors.ShmqError:  # the next call meets it again
                return
            except BaseException:
                with self._lock:
                    for batch in batches:
                        self._handing.undo(batch, some)
                raise
            if not more:
                return
            weights = [message.weight for message in more]
            size, largest = size + sum(weights), max(largest, *weights)
            messages += more

    def _has_something(self) -> bool:
        """Whether a get would answer at once: with a message, or with why there will be none."""
        if self._account.closed:
            return True
        self._check_usable()
        if self._ended() is not None:
            return True
        while True:
            with self._lock:
                self._check_usable()
                code = self._account.growing(self._has_fresh_or_back)
            if code != _native.TO_BE_MOVED:
                return code != 0
            if self._moves_what_is_left():
                return True

    def _moves_what_is_left(self) -> bool:
        """Move one that nobody is handed any more, as a get would on its way; whether another came meanwhile."""
        batches: list[Batch] = []
        try:
            found, *_ = self._look_once(batches, 1, 0, idle=True, payloads=False)
            self._aside.move()
        except errors.ShmqError:
            raise
        except BaseException:
            self._give_back(batches)
            raise
        if found:  # it was only looked for
            self._give_back(batches)
        return bool(found)

    def _give_back(self, batches: list[Batch]) -> None:
        with self._lock:
            for batch in batches:
                self._handing.undo(batch, 1)

    def _has_fresh_or_back(self) -> int:
        if self._has_fresh():
            return 1
        code, self._look_again_ns = self._ring.glance_back(self.options.get("max_attempts") or 0)
        return code

    def _has_fresh(self) -> bool:
        """Whether there is something that nobody has had."""
        code = self._account.growing(self._walk.look_ahead)
        if self._walk.stopped == _native.EDGE:
            self._ring.holds(len(self._account.held), None)
        return code != 0

    def _due_ns(self) -> int | None:
        """When to look again, as it was found by the last look; since boot."""
        return self._look_again_ns

    def _rests_in_vain(self) -> bool:
        """Whether there is an end to be told of: whoever holds messages meanwhile says that it waits for it."""
        return ending.over(self._home, self._membership.control) and self._ended() is not None

    def _waited(self) -> None:
        """A wait for several, in which this one was looked at, has ended."""
        self._goes_on()

    def peek(self) -> Message[T] | None:
        """
        The next message that nobody has, without taking it; None when there is none.

        What waits for its time, or was given back, is not looked at. Another member may take it at any moment.
        """
        with self._lock:
            self._check_usable()
            if self.options.get("ordered_by"):  # what waits for its key is known when a walker has met it
                self._has_fresh()
            index, end = self._ring.peek(0), self._access.next_index()
            while 0 <= index < end:
                with contextlib.suppress(IndexError):  # padding, or not committed yet
                    message = self._access.message(index)
                    wanted = self._wants is None or self._wants.wants(message)
                    if wanted and not message.expired and message.due_ns <= time.time_ns():
                        return message
                index = self._ring.peek(index + 1)
            return None

    def _find(self, limit: int, timeout: float | None, *, payloads: bool = False) -> list[Any]:
        found = self._wait_for(limit, timeout, payloads=payloads)
        if found.__class__ is not list:  # no call, behind which a signal's handler could keep it from whoever asked
            try:
                raise found  # type: ignore[misc]
            finally:  # its traceback leads here, and from here to it
                del found
        return found

    def _wait_for(self, limit: int, timeout: float | None, *, payloads: bool) -> list[Any] | Exception:
        """What there is, or why there will be nothing. What an exception keeps from whoever asked goes back."""
        batches: list[Batch] = []
        try:
            try:
                return self._wait(batches, limit, timeout, payloads=payloads)
            finally:
                self._goes_on()
        except errors.Empty:
            self._is_empty()
            raise
        except errors.ShmqError:
            raise
        except BaseException:
            with self._lock:
                for batch in batches:
                    self._handing.undo(batch, limit)
            raise

    def _wait(
        self, batches: list[Batch], limit: int, timeout: float | None, *, payloads: bool
    ) -> list[Any] | Exception:
        deadline = deadline_of(timeout)
        self._check_usable()
        spins = self._patience.spins
        found, _ = self._look(batches, limit, spins if timeout != 0 else 0, idle=False, payloads=payloads)
        while not found:
            # Not under the lock: other threads acknowledge while this one sleeps.
            seen = self._patience.begin(self._membership)
            found, due = self._look(batches, limit, 0, idle=True, payloads=payloads)
            if found:
                break
            self._look_again_ns = due
            reason = self._ended()
            if reason is not None:
                return reason
            if deadline >= 0 and _native.monotonic_ns() >= deadline:
                raise errors.Empty(self._nothing())
            try:
                self._patience.rest(self._membership, seen, sooner(deadline, due))
            except OSError:
                if not self._account.closed:  # by another thread, and with it the last handle of this process
                    raise
            found, _ = self._look(batches, limit, spins, idle=False, payloads=payloads)
        return found

    def _look(
        self, batches: list[Batch], limit: int, spins: int, *, idle: bool, payloads: bool
    ) -> tuple[list[Any], int | None]:
        """
        What is there for this member now, and when to look again (since boot) for what is due by then.

        What is to be moved to another queue is set aside on the way; nothing is there when nothing is behind that.
        """
        while True:
            found, due, more = self._look_once(batches, limit, spins, idle=idle, payloads=payloads)
            if found:
                if self._aside:
                    self._aside.move_soon()
                return found, due
            if self._aside and (not more or len(self._aside) >= BATCH):
                self._aside.move()
            elif not more:
                return found, due

    def _look_once(
        self, batches: list[Batch], limit: int, spins: int, *, idle: bool, payloads: bool
    ) -> tuple[list[Any], int | None, bool]:
        """As `_look`, and whether there was something, though not for this member."""
        with self._lock:
            self._check_usable()
            self._handing.tell()
            if time.monotonic() >= self._snapshot_at:
                self._snapshot()
            batches[:] = [batch := Batch(self, limit)]
            try:
                found, due = self._handing.claim(batch, limit, spins, idle=idle, payloads=payloads)
            except BaseException:
                self._handing.undo(batch, limit)
                raise
            finally:
                self._come_by_to_tell()
            if found is None:
                rings.grow(self._home, self.name, self._ring)
            return found or [], due, found is None or batch.claimed > len(found)

    # ---- moving to other queues
    def _nothing(self) -> str:
        if self._handing.last != _native.EDGE and not self.options.get("ordered_by"):
            return self._walk.nothing(self._handing.last)
        figures = self._ring.figures()
        nothing = f"nothing to get from {self._asked.called} of {self._home.path} in time"
        mine = f"; this consumer holds {len(self._account.held)} itself" if len(self._account.held) else ""
        keyed = f"{figures.waiting} wait for their keys, until those before them are finished"
        if self._handing.last == _native.EDGE:
            waits = f", {keyed}" if figures.waiting else ""
            return (
                f"{nothing}: its window is full, {figures.claimed} of {figures.window} messages are handed out and "
                f"not acknowledged{waits}{mine}"
            )
        if figures.waiting:
            return f"{nothing}: {keyed}{mine}"
        return self._walk.nothing(self._handing.last)

    def _ended(self) -> Exception | None:
        if self._account.closed:
            return errors.Closed(f"{self._asked.member} of {self._home.path} was closed")
        control = self._membership.control
        if control.is_shut_down_at_once():
            return errors.ShutDown(f"{self._home.path} was shut down at once; what is left in it stays there")
        if ending.over(self._home, control) and self._walk.at_end() and self._drained():
            mine = (
                f", but for {len(self._account.held)} messages that this consumer holds itself"
                if len(self._account.held)
                else ""
            )
            return errors.ShutDown(
                f"{self._home.path} {ending.words(self._home, control)}, and {self._asked.called} has drained it{mine}"
            )
        return None

    def _drained(self) -> bool:
        """
        Whether nothing is left that may still come to this member.

        Who holds messages while it waits says so, so that two such do not wait for each other.
        """
        with self._lock:
            self._at_end.add(threading.get_ident())
            rests = self._rest()
            return self._ring.drained(holding=rests and len(self._account.held) > 0)

    def _rest(self) -> bool:
        """Say whether all handles of this process that hold messages of the group wait for the end; whether they do."""
        members = self._membership.members_of(self.name)
        with members.lock:
            holders = [each for each in list(members.handles) if len(each._account.held)]  # noqa: SLF001  # ours
            rests = all(each._at_end for each in holders)  # noqa: SLF001
            self._ring.rest(on=rests and bool(holders))
        return rests

    def _goes_on(self) -> None:
        """This thread does not wait for the end any more."""
        if self._at_end:
            with self._lock:
                self._at_end.discard(threading.get_ident())
                if not self._account.closed:
                    self._rest()

    def _check_usable(self) -> None:
        if self._account.closed:
            raise errors.Closed(f"{self._asked.member} of {self._home.path} was closed")
        if os.getpid() != self._pid:
            with self._lock:
                if os.getpid() != self._pid:
                    self._open("earliest")

    # ---- finishing
    def _ack_all(self, *messages: Message) -> None:
        """What `ack` does where the built-in does not."""
        for message in messages:
            if not isinstance(message, Message) or not isinstance(_native.parts(message)[4], GroupConsumer):
                raise no_message(message)
        lost = None
        for message in messages:
            try:
                account_of(message).finish_one(message)
            except errors.LeaseLost as problem:
                lost = problem
        for account in {account_of(message) for message in messages}:
            account.persist()
        if lost is not None:
            raise lost

    _ack_all.__qualname__ = "GroupConsumer.ack"

    def _ack_one(self, message: Message) -> None:
        self._account.ack(message)

    def _nack_one(self, message: Message, delay: float = 0.0) -> None:
        self._aside.nack(message, delay)

    def _reject_one(self, message: Message, reason: object = "") -> None:
        self._aside.reject(message, reason)

    def _forward_one(self, message: Message, timeout: float | None = None) -> Forward:
        self._account.check_mine(message, "forward")
        later.ready("shmq.taking.forward")
        from shmq.taking.forward import Forward  # noqa: PLC0415  # only who forwards pays for it

        return Forward((message,), timeout)

    def _forwards_first(self) -> None:
        """From now on what is done here counts after a power cut once its copies are on their disks."""
        later.ready("shmq.taking.lasting")
        from shmq.taking.lasting import Keeper, Lasting  # noqa: PLC0415  # only who forwards pays for it

        if self._keeper is None:
            lasting = Lasting(self._home, self._membership, self.name)
            self._keeper = Keeper(lasting, functools.partial(_sequence, self._checkpoint))
        self._keeper.start()

    def _extend_one(self, message: Message, seconds: float) -> None:
        self._account.extend(message, seconds)

    def skip(self, *indexes: int) -> Skipped:
        """
        Finish messages that nobody has been handed, as whoever brings a group over from elsewhere does.

        They are never handed out. Those that were handed out, or are finished, are left as they are. It returns how
        many it finished, and which are left to somebody.

        Raises:
            TooMany: one is further ahead than the window reaches; none was skipped.
            ValueError: there is no such index yet; none was skipped.
        """
        for index in indexes:
            _given.whole("index", index, 0)
        with self._lock:
            self._check_usable()
            end, reach = self._access.next_index(), self._checkpoint.head + self._ring.figures().window
            last = max(indexes, default=0)
            if last >= end and indexes:
                raise ValueError(f"cannot skip index {last} of {self._home.path}: the next one is {end}")
            if last >= reach:
                raise errors.TooMany(
                    f"cannot skip index {last} for {self._asked.called} of {self._home.path}: its window ends at "
                    f"{reach}"
                )
            codes = {index: self._account.growing(self._ring.skip_one, index) for index in sorted(indexes)}
            self._ring.floor()
        finished = sum(code == 0 for code in codes.values())
        return Skipped(finished, tuple(index for index, code in codes.items() if code == _native.LOST))

    # ---- looking
    def _join_in_child(self) -> None:
        """What its parent holds and has passed is not this member's."""
        if not self._account.closed:
            self._check_usable()

    @property
    def head(self) -> int:
        """Every message below it is finished, or parked for later."""
        return self._checkpoint.head

    @property
    def lag(self) -> int:
        """
        How many messages the group has not finished: those that nobody has had, that are handed out, parked or waiting.

        What is finished above the head does not count, nor what never became a message. With a filter those that match,
        which takes a walk over what is behind; see `behind`.
        """
        return self._backlog().lag

    @property
    def behind(self) -> int:
        """How many indexes lie between the group's head and the end of the queue, whatever is there."""
        with self._lock:
            self._check_usable()
            return max(self._walk.chain.next_index() - self._checkpoint.head, 0)

    @property
    def filter(self) -> Filter | None:
        """Which messages this name wants; None for all."""
        return self._subscription.filter

    @property
    def floor(self) -> int:
        """The first index that is not finished, parked messages included; the next put's when all is finished."""
        return self._backlog().floor

    @property
    def incarnation(self) -> bytes:
        """
        16 bytes that identify this group, for whoever keeps them with the index of what is finished.

        They stay over reboots, a rename and a copy (not with `new_id`); `seek` begins new ones: then messages are to be
        worked at again.
        """
        with self._lock:
            self._check_usable()
            return self._account.source().incarnation

    def _backlog(self) -> backlog.Backlog:
        with self._lock:
            self._check_usable()
            if self._ring.side_blocks() > self._ring.blocks:
                rings.grow(self._home, self.name, self._ring)
            end = self._walk.chain.next_index()
            return backlog.of_group(self._home, self._membership, self._ring, end, self._wants)

    @property
    def pending(self) -> int:
        """How many messages this member holds and has not finished."""
        self._join_in_child()
        return len(self._account.held)

    @property
    def skipped(self) -> int:
        """With skip_corrupt: how many indexes this member passed over because what was there is damaged."""
        self._join_in_child()
        return self._handing.skipped + self._walk.skipped

    # ---- moving
    def seek(self, to: str | float | datetime.datetime) -> None:
        """
        Have the whole group go on from there: "earliest", "latest", an index, or the first message of a time or later.

        What was finished behind it comes again, what was not and is before it does not; attempts begin anew. What this
        member holds is forgotten. Only for its only member. A time is given as in `Queue.at`.

        Raises:
            Busy: somebody else is in the group.
            IndexError: it is beyond the end of the queue, or negative.
        """
        with self._lock:
            self._check_usable()
            index = self._access.index_of(to, "to")
            end = self._access.next_index()
            if not 0 <= index <= end:
                raise IndexError(
                    f"cannot seek to {index}: {self._home.path} has indexes from {self._access.first_index()} to {end}"
                )
            with self._home.admin(), self._alone():  # first: who joins meanwhile waits for it
                place = group_options.there(index, self._home, self._membership.control, self._access)
                rings.restart(self._home, self.name, place, self._have_on_disk)
            self._account.held.clear()
            self._aside.forget()
            self._enter_ring()
        self._membership.control.recount()
        self._membership.forget_retired()
        space.retire(self._home, self._walk.chain, self._membership.control)  # what this name alone held back

    def _have_on_disk(self) -> bool:
        if not sources.is_one(self._home, self.name):
            return True
        later.ready("shmq.taking.lasting")
        from shmq.taking.lasting import Lasting  # noqa: PLC0415  # only who forwards pays for it

        return Lasting(self._home, self._membership, self.name).have_on_disk()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """With the name held alone; under the administrative lock, so that nobody drops it between our two locks."""
        assert self._name_lock is not None  # noqa: S101  # it is open
        lock = _native.Lock(self._home.open(self._home.consumers, f"{self.name}.checkpoint", writable=True)[0])
        self._name_lock.free()
        self._name_lock = lock
        try:
            if not lock.take():
                raise errors.Busy(f"cannot move {self._asked.called} of {self._home.path}: somebody else is in it")
            yield
        finally:
            lock.share()
            lock.keep()

    # ---- closing
    def _next_snapshot(self) -> None:
        self._snapshot_at = time.monotonic() + self._snapshot_every
        self._due(_native.boottime_ns() + int(self._snapshot_every * 1e9))  # has the built-ins come by

    def _snapshot(self) -> None:
        """Write down what is done, unless somebody else is at it."""
        self._next_snapshot()
        # Dropped, removed or damaged meanwhile; or the disk refused, and the one there is still counts.
        with contextlib.suppress(OSError, errors.NotFound, errors.Corrupt, errors.Unsafe):
            acks.of_member(self._home, self._membership.member, self.name, self._checkpoint, self._ring)

    def close(self) -> None:
        """Leave the group. What was handed out and not acknowledged goes to the others. Closing twice is fine."""
        if os.getpid() != self._pid:
            return
        self._aside.take_up_copied()
        if self._aside.leaves_something() and not self._account.closed:
            self._aside.move()
        if self._keeper is not None and not self._account.closed:
            self._leave_lasting(self._keeper)
        self._close()

    def _leave_lasting(self, keeper: Keeper) -> None:
        """What this member has forwarded counts after a power cut, if nobody else sees to that."""
        keeper.end(self._membership.control.wake)
        with contextlib.suppress(errors.ShmqError, OSError):
            keeper.last()

    def _close(self) -> None:
        self._account.closed = True
        self._close_ready()
        self._stop()
        if self._keeper is not None:
            self._keeper.end(self._membership.control.wake)
        if self._loan.is_over() or self._account.closes_later(self._close):
            return
        if self._opened:
            self._membership.control.wake()  # another thread may be waiting in here
            self._aside.leave(self._membership.control.wake, self._leave_name)
        else:
            self._leave_name()
        self._loan.give_back()

    def _leave_name(self) -> None:
        """Hold nothing any more, nor the name. Each step can be repeated, but when the name is not ours any more."""
        if self._name_lock is None or self._name_lock.is_free():
            return
        if self._opened:
            self._aside.take_up_copied()
            self._account.give_back_all(move.message for move in self._aside.moves)
            self._aside.forget()
            self._leave_ring()
            self._rest()
            self._ring.floor()
            self._snapshot()
        self._name_lock.free()
        if self._opened:
            names.leave(self._home, self.name, self._subscription, self._membership.control, self._walk.chain)

    def _leave_ring(self) -> None:
        """Be no handle of this process any more; the last one gives back what an interrupted call has claimed."""
        members = self._membership.members_of(self.name)
        with members.lock:
            members.handles.discard(self)
            if not members.handles:
                self._account.growing(self._ring.leave)

    def __reduce__(self) -> NoReturn:
        """It does not pickle: its queue does."""
        raise _given.no_pickle(self, f"consumer {self.name!r} of {self._home.path}", f"consumer({self.name!r})")

    def __dir__(self) -> list[str]:
        """What it has, without the names that only say what to use instead (shmq/habits.py)."""
        return [name for name in super().__dir__() if name not in habits.OF_CONSUMERS]

    def __repr__(self) -> str:
        """Name, queue, ack mode, and what it holds, for people."""
        held = len(self._account.held)
        state = "closed" if self._account.closed else f"ack={self.ack_mode}, head {self.head}, holds {held}"
        return f"<shmq.{type(self).__name__} {self.name!r} of {self._session.place} ({state})>"

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """Close, unless this is a forked child's copy. What was set aside is left to others: no time for the disk."""
        if not is_ending():  # which ends everything; threads that would be waited for are gone
            self._end_quietly(self._close_here)

    def _close_here(self) -> None:
        if os.getpid() == self._pid:
            self._close()


habits.tell(GroupConsumer, habits.OF_CONSUMERS)


def _sequence(checkpoint: _native.Checkpoint) -> int:
    newest = checkpoint.newest_snapshot()
    return 0 if newest is None else newest.sequence


def forward(*messages: Message, timeout: float | None = None) -> Forward:
    """
    Put into other queues and finish these messages, as one; see `Message.forward`.

        with shmq.forward(*batch) as f:
            for m in batch:
                f.put(results, work(m.payload), message=m)

    What comes of each is kept apart: after a kill some of them may be finished, and the others come again. Of each,
    what an earlier try has put is not put twice.

    Args:
        messages: that a consumer with ack="explicit" was handed; of several groups, too.
        timeout: as `Message.forward`.

    Raises:
        ValueError: there is none, or one of them twice.
        TypeError: one is no message that has to be acknowledged.
    """
    if not messages:
        raise ValueError("forward(): no message; nothing that could be finished")
    if len({id(message) for message in messages}) < len(messages):
        raise ValueError("forward(): one message is given twice")
    for message in messages:
        if not isinstance(message, Message) or not isinstance(_native.parts(message)[4], GroupConsumer):
            raise no_message(message, "forward")
    later.ready("shmq.taking.forward")
    from shmq.taking.forward import Forward  # noqa: PLC0415  # only who forwards pays for it

    return Forward(messages, timeout)


@dataclasses.dataclass(frozen=True)
class Skipped:
    """
    What `GroupConsumer.skip` did.

    Attributes:
        finished: how many messages it finished.
        left: the indexes of those that somebody has, or had and gave back; they are not finished.
    """

    finished: int
    left: tuple[int, ...]
