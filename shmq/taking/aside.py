"""
What a member gives back or has set aside: messages that come again, or go to another queue.

What is set aside is marked MOVING in the ring, so that whoever comes across it when this process has died moves it. The
moving itself (dead.py) may take time, so it is done by one thread at a time, under a lock of its own and never under
the member's; a thread in the background does it where whoever found such messages goes on with something else.
"""

from __future__ import annotations

import os

from shmq import _native, errors, given, locks, log
from shmq.hints import TYPE_CHECKING
from shmq.taking.dead import Move, Moving, why
from shmq.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from shmq._native import Message
    from shmq.session import Session
    from shmq.taking.account import Account

BATCH = 1024
_TRY_AGAIN_NS = 1_000_000_000
"""After a move to another queue that failed."""
_WAIT_SECONDS = 0.05
"""How long messages that are to be moved wait for more of them, so that one sync of the other queue serves many."""
_LONGEST = 1e9


class Aside:
    """
    The messages of one member that come again, or go elsewhere.

    Attributes:
        lease_ns: for how long a message is held; 0 for ever.
        next_index: says the index behind the last message there is.
    """

    lease_ns: int
    next_index: Callable[[], int]

    def __init__(self, session: Session, account: Account, options: Mapping[str, Any]) -> None:
        """Nothing yet."""
        self._account = account
        self._options = options
        self._most: int | None = options.get("max_attempts")
        self._moving = Moving(session, account.name, options)
        self._moving_lock = locks.Lock()
        """Held by whoever moves messages to other queues, which may take time; taken before the account's."""
        self._pid = os.getpid()
        self.moves: list[Move] = []
        self._copied: list[Move] = []
        """Of what was set aside: copied, though perhaps not to the disk. The mover tries again."""
        self._rejecting: list[Move] = []
        """What is being rejected. Whoever takes the moving lock finds it here if it was interrupted: it is a letter."""
        self._timer: Worker | None = None
        self._timer_over = False

    def __len__(self) -> int:
        """How many are to be moved."""
        return len(self.moves)

    def leaves_something(self) -> bool:
        """Whether there is something to be moved before this is left, what a reject is at included."""
        return bool(self.moves or self._rejecting)

    # ---- giving back
    def nack(self, message: Message, delay: float) -> None:
        """As `Message.nack`."""
        delay = given.seconds("delay", delay, none=True)
        account = self._account
        if account.explicit and self._most is not None and message.attempts >= self._most:
            self._give_up(message, f"it was handed out {self._most} times and never finished")
            return
        due = _native.boottime_ns() + int(min(delay, _LONGEST) * 1e9) if delay else 0
        behind = 0 if delay else self.next_index()
        account.settle(message, "give back", lambda taken: account.ring.nack(taken, due, behind))

    def _give_up(self, message: Message, reason: str) -> None:
        """Given back for the last time it is a dead letter at once; if that cannot be now, it is tried again later."""
        account = self._account
        with account.lock:
            if not account.has(message, "give back"):
                return
            taken = _native.taken_of(message)
            resting_ns = self._moving.resting_ns("attempts")
            if resting_ns:
                code = account.growing(account.ring.nack, taken, _native.boottime_ns() + resting_ns, 0)
            else:
                code = account.growing(account.ring.moving, taken)
            if code != 0:
                account.held.drop(message)
                raise _native.error(code, f"cannot give back message {message.index} of {account.home.path}")
            # First the one, then the other: what is interrupted in between can be repeated.
            if not resting_ns and not self.has(message):
                self.moves.append(Move(message, "attempts", reason))
            _native.over(message, True)
            account.held.drop(message)
            if resting_ns:
                account.ring.count_unmoved()
                return
        self.move()
        account.persist()

    # ---- setting aside
    def takes(self, message: Message, kind: int) -> bool:
        """Whether a message that came back is not to be worked at any more; then it goes where it belongs."""
        if kind == _native.TAKEN_MOVING:
            self.set_aside(Move(message, None, "whoever moved it died meanwhile", again=True))
        elif message.expired:
            self.set_aside(Move(message, "expired", "it was not finished before its time to live had passed"))
        elif self._account.explicit and self._most is not None and message.attempts > self._most:
            _native.tried(
                message, self._most
            )  # this time it is not handed out, and perhaps it was tried to move it before
            reason = f"it was handed out {self._most} times and never finished"
            self.set_aside(Move(message, "attempts", reason))
        else:
            return False
        return True

    def set_aside(self, move: Move) -> None:
        """
        It is handed to nobody any more, and will be moved. Under the account's lock.

        It is marked, so that whoever comes across it when we have died moves it.
        """
        account = self._account
        taken = _native.taken_of(move.message)
        if move.cause == "expired" and not self._options.get("expire_to"):
            if account.explicit:
                account.growing(account.ring.ack, taken)
            account.ring.count_moved(expired=True)
            return
        resting_ns = self._moving.resting_ns(move.cause)
        if resting_ns:
            if account.growing(account.ring.nack, taken, _native.boottime_ns() + resting_ns, 0) == 0:
                account.ring.count_unmoved()
        elif move.again or account.growing(account.ring.moving, taken) == 0:  # else its lease has ended
            self.moves.append(move)

    def has(self, message: Message) -> bool:
        """Whether that message is set aside."""
        return any(move.message is message for move in self.moves)

    # ---- moving
    def move_soon(self) -> None:
        """
        Have what was set aside moved, although whoever called goes on with something else.

        By a thread, since that may take hours; and not at once, for more of them may come.
        """
        with self._account.lock:
            if (self.moves or self._copied) and not self._account.closed:
                if self._timer is None or self._timer_over:
                    self._timer, self._timer_over = Worker(self._move_later, "shmq-mover"), False
                self._timer.start()  # also one that an interrupted call has left behind

    def _move_later(self) -> None:
        timer = self._timer
        while timer is not None and not timer.pause(_WAIT_SECONDS):
            try:
                self.take_up_copied()
                self._move_now()
            except BaseException:
                self._timer_over = True
                raise
            with self._account.lock:
                if not self.moves and not self._copied:
                    self._timer_over = True  # what is set aside from now on has a thread of its own
                    return

    def take_up_copied(self) -> None:
        """Try again what was copied, though perhaps not to the disk."""
        with self._account.lock:
            self.moves += self._copied
            self._copied.clear()

    def move(self) -> None:
        """
        Move what was set aside. What cannot be moved now is tried again later; only a warning says so.

        What a signal's handler raises comes out, and what it has interrupted is done soon, by a thread.
        """
        try:
            self._move_now()
        except BaseException:
            self.move_soon()
            raise
        if self._copied:
            self.move_soon()

    def _move_now(self) -> None:
        with self._moving_lock:
            with self._account.lock:
                if self._account.closed or os.getpid() != self._pid:
                    return
                self._take_up_rejected()
                moves = list(self.moves)
            outcomes: dict[int, Exception | None] = {}
            try:
                self._moving.carry_out(moves, outcomes)
            finally:
                with self._account.lock:
                    for at, outcome in outcomes.items():
                        self._moved(moves[at], outcome)
                    # Interrupted: of the others nobody knows whether they were copied.
                    left = [move._replace(again=True) for at, move in enumerate(moves) if at not in outcomes]
                    self.moves[: len(moves)] = left
                    # No other member may copy what perhaps is not on the disk as if it were the first.
                    self._copied += [moves[at]._replace(again=True) for at in outcomes if self._is_copied(moves[at])]
        self._moving.warn()

    def _is_copied(self, move: Move) -> bool:
        return self._moving.is_unsure(move.message.index)

    def _moved(self, move: Move, outcome: Exception | None) -> None:
        """Finish it, or have it tried again. Under the account's lock."""
        account = self._account
        taken = _native.taken_of(move.message)
        if outcome is None:
            account.growing(account.ring.ack, taken)
            account.ring.count_moved(expired=move.cause == "expired")
            self._tell_of(move)
        else:
            account.ring.count_unmoved()
            if not self._is_copied(move):
                due = _native.boottime_ns() + max(self._moving.resting_ns(move.cause), _TRY_AGAIN_NS)
                account.growing(account.ring.nack, taken, due, 0)

    def _tell_of(self, move: Move) -> None:
        account, late = self._account, move.cause == "expired"
        log.say(
            log.INFO if late else log.WARNING,
            "%s of %s: message %d %s: %s",
            account.called,
            account.home.path,
            move.message.index,
            "went where the expired go" if late else "is a dead letter",
            move.reason,
        )

    # ---- rejecting
    def reject(self, message: Message, reason: object) -> None:
        """As `Message.reject`."""
        words, text = why(reason)
        account = self._account
        move = Move(message, "rejected", words, text)
        with self._moving_lock:
            with account.lock:
                self._take_up_rejected()
                if self.has(message) or not account.has(message, "reject"):
                    account.held.drop(message)
                    self.move_soon()
                    return
                code = account.growing(account.ring.moving, _native.taken_of(message))
                if code != 0:
                    account.held.drop(message)
                    raise _native.error(code, f"cannot reject message {message.index} of {account.home.path}")
                # From here on it is a letter at the next opportunity, whatever is interrupted, and then it is over.
                self._rejecting.append(move._replace(again=True))
                _native.over(message, True)
                account.held.drop(message)
            outcomes: dict[int, Exception | None] = {}
            try:
                self._moving.carry_out([move], outcomes)
            finally:
                with account.lock:
                    problem = self._rejected(move, outcomes)
        if problem is not None:
            raise problem
        account.persist()

    def _take_up_rejected(self) -> None:
        """Move what a reject that was interrupted has left, as was asked for. Under both locks."""
        self.moves += self._rejecting
        self._rejecting.clear()

    def _rejected(self, move: Move, outcomes: dict[int, Exception | None]) -> Exception | None:
        """What to raise after a try to move a message: it is finished, or held as before. Under the account's lock."""
        message, account = move.message, self._account
        if not outcomes:
            self._take_up_rejected()
            self.move_soon()
            return None
        problem = outcomes[0]
        if problem is None:
            self._moved(move, None)
            self._rejecting.clear()
            return None
        ends = _native.boottime_ns() + self.lease_ns
        if account.growing(account.ring.extend_lease, _native.taken_of(message), ends) == 0:
            account.held.add(message)
        _native.over(message, False)
        self._rejecting.clear()
        what = f"{problem.args[0] if problem.args else problem}; message {message.index} of {account.home.path}"
        still = (
            f"{what} is a dead letter now, and this consumer still holds it: reject it again, which puts no second one"
            if isinstance(problem, (errors.SyncPending, errors.SyncFailed)) and problem.index is not None
            else f"{what} is not a dead letter yet, and this consumer still holds it: reject it again later, give it "
            "back or acknowledge it"
        )
        problem.args = (still, *problem.args[1:]) if isinstance(problem, errors.ShmqError) else problem.args
        return problem

    # ---- ending
    def forget(self) -> None:
        """Everything: the whole group stands elsewhere now."""
        self.moves.clear()
        self._copied.clear()
        self._rejecting.clear()

    def leave(self, wake: Callable[[], None], then: Callable[[], None]) -> None:
        """Move nothing any more, and *then* leave the name. Whoever moves something now is woken and waited for."""
        timer = self._timer
        if timer is not None:
            timer.end(wake)
        with self._moving_lock, self._account.lock:
            self._moving.close()
            then()
