"""
The thread that keeps a connection: it sends what is asked, settles what is answered, and comes back when the link goes.

Other threads hand calls in and wait, and a batch that was sent is settled whether somebody waits for it or not. While
nothing else is under way, a caller sends its call and hears the answer itself, which spares two threads waking up. Who
does something with the connection has the turn. Where a signal's handler raises in a caller that has it, or asks for
something itself, the link hangs up: what was half done is as if the connection had been lost, and is asked again.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import random
import secrets
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq import errors
from shmq.net import packing
from shmq.net.client import dial
from shmq.net.client.calls import HELD, PUT, Call, Put, Sent
from shmq.net.client.waiting import Turn, Wake, Watch
from shmq.net.frames import BadFrame, framed

if TYPE_CHECKING:
    import ssl

    from shmq.net.client.address import Address
    from shmq.net.client.held import Held

_log = logging.getLogger("shmq.net")
_PAUSE_MIN, _PAUSE_MAX = 0.05, 1.0
_JOINED_MAX, _JOINED_BYTES = 1000, 1 << 20
_REQUESTS = 900
"""Calls under way at a time; a server takes 1,000 of a peer."""
_SEND = 1 << 16
_HERE = 0.02
"""Seconds that a caller listens for its answer itself."""
_BROKEN = OSError, BadFrame, packing.BadRequest
"""What a connection that is gone, or a server that talks nonsense, raises."""


class _Ends(NamedTuple):
    """
    What a caller that has the turn works with: of the connection that there is then, and of no later one.

    Attributes:
        line, watch: the connection, and what comes there.
        out, left: what is to be sent, and what came for the thread.
    """

    line: dial.Line
    watch: Watch
    out: deque[memoryview]
    left: deque[list[Any]]


class Link:
    """
    One session with one queue of a server.

    Attributes:
        told: what the server has said of itself and the queue.
    """

    def __init__(
        self, address: Address, *, client: str | None, token: str | None, tls: ssl.SSLContext | None, timeout: float
    ) -> None:
        """
        Connect, within *timeout* seconds.

        Raises:
            OSError: nobody is there.
            ShmqError: the server will not have us.
        """
        self.address = address
        self._client = client
        self._token = token
        self._tls = tls
        self._timeout = timeout
        self._session = secrets.token_bytes(16)
        self._tids = itertools.count(1)
        self._numbers = itertools.count()
        self._flight: dict[int, Call] = {}
        self._inbox: deque[Call] = deque()
        self._puts: deque[Put] = deque()
        self._others: deque[Call] = deque()
        self._grants: deque[Held] = deque()
        self._stops: deque[Call] = deque()
        self._batches: set[int] = set()
        self._has_slot = False
        self._slot_call: Call | None = None
        self._out: deque[memoryview] = deque()
        self.consumers: dict[int, Held] = {}
        self.clock = packing.Clock()
        self._closing = False
        self._told_to_wake = False
        self._was_here = False
        self._turn = Turn()
        self._watch: Watch | None = None
        self._left: deque[list[Any]] = deque()
        self._heard = self._said = 0.0
        self._line: dial.Line | None = None
        self._line = self._dial()
        self._wake = Wake()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"shmq-net {address.queue}", daemon=True)
        _links.add(self)
        self._thread.start()

    # ---- in the threads of the program
    def ask(self, call: Call) -> None:
        """
        Have that asked.

        Raises:
            Closed: the link is.
        """
        if self._closing:
            raise errors.Closed(f"{self.address} was closed; open it again")
        self._inbox.append(call)
        self.waits()
        self.nudge()

    def answer(self, call: Call) -> Any:
        """
        Return what the server answers.

        Raises:
            Closed: the link is.
            Exception: what the server has answered with.
        """
        self.begin(call)
        call.wait()
        return call.result()

    def begin(self, call: Call) -> None:
        """
        As `ask`, of a caller that waits for the answer next: it may be there already.

        Raises:
            Closed: the link is.
        """
        is_free = not (self._told_to_wake or self._flight or self._turn.lock.locked() or self._tls)
        if not (is_free and self._asked_here(call)):
            self.ask(call)

    def _asked_here(self, call: Call) -> bool:
        """Whether it was sent from here, as nobody else wants anything; answered by now, or the thread goes on."""
        turn, mine = self._turn, threading.get_ident()
        with turn.lock:
            turn.holder = mine  # at once: whoever interrupts this from now on finds it
            try:
                return self._ask_at(turn, call)
            finally:
                turn.holder = 0

    def _ask_at(self, turn: Turn, call: Call) -> bool:
        line, watch = self._line, self._watch
        if turn is not self._turn or line is None or watch is None:
            return False
        ends = _Ends(line, watch, self._out, self._left)
        if not self._is_free_for(call):
            return False
        sent = self._batch([call]) if isinstance(call, Put) else call
        frame = self._framed(sent)
        is_batch, is_claimed = isinstance(sent, Sent), call.claim()
        try:
            if is_claimed and turn is self._turn:  # else it was lost, and a later batch may have gone
                turn.is_half_done = True
                self._flight[sent.tid] = sent
                if is_batch:
                    self._batches.add(sent.tid)
                self._listen(ends, turn, call, frame)
                turn.is_half_done = False
                return True
        except _BROKEN as problem:
            turn.problem = problem
            return True
        finally:
            self._give_back(turn, watch)
        call.unclaim()
        return False

    def _give_back(self, turn: Turn, watch: Watch) -> None:
        """Have the thread go on, which has the socket again."""
        if turn is self._turn:
            with contextlib.suppress(ValueError, OSError):  # the thread has hung up meanwhile
                watch.have(unsent=bool(self._out))
        elif turn.is_half_done:  # it has asked again what it knew of, and perhaps not this
            self._turn.is_half_done = True
        if self._left or self._out or self._turn.is_half_done:
            self.nudge()

    def waits(self) -> None:
        """
        Somebody waits for the thread next. Where this very thread has the turn, and was interrupted by the handler of a
        signal that asks for something, it loses it: else both would wait for it for ever.
        """
        turn = self._turn
        if turn.holder == threading.get_ident():
            self._turn = Turn(is_half_done=turn.is_half_done)
            self.nudge()

    def _is_free_for(self, call: Call) -> bool:
        """Whether nothing is under way, or handed in, that would have to go before it."""
        if self._closing or self._turn.is_half_done or not self._is_idle():
            return False
        if self._left or self._stops or self._grants:
            return False
        return not isinstance(call, Put) or self._has_slot or "dedup" in (call.options or {})

    def _listen(self, ends: _Ends, turn: Turn, call: Call, frame: memoryview) -> None:
        ends.watch.lend()
        self._said = time.monotonic()
        until = self._said + _HERE
        rest = frame[ends.line.send_some(frame) :]
        if rest:
            ends.out.appendleft(rest)
        while not (call.is_done or rest):
            turn.is_half_done = False  # while it only waits
            comes = ends.watch.hears(until - time.monotonic())
            if not comes or turn is not self._turn:
                break
            turn.is_half_done = True
            self._heard = time.monotonic()
            for message in ends.line.messages() or ():
                if message[0] in {"ok", "error"}:
                    self._take(message)
                else:
                    ends.left.append(message)

    def stop(self, call: Call) -> None:
        """Have the server not go on with that."""
        self._stops.append(call)
        self.nudge()

    def grant(self, held: Held) -> None:
        """Tell the server how much it may send ahead to that consumer."""
        self._grants.append(held)
        self.nudge()

    def nudge(self) -> None:
        """Have the thread look."""
        if not self._told_to_wake:
            self._told_to_wake = True
            self._wake.up()

    @property
    def is_up(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._line is not None

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closing

    def close(self, timeout: float) -> None:
        """Settle what is under way, within *timeout* seconds, and part. Closing twice is fine."""
        if not self._closing:
            for held in list(self.consumers.values()):
                if not held.closed:
                    self.ask(Call("shut", (held.cid, *held.close())))
        self._closing = True
        self.waits()
        self.nudge()
        self._over.wait(timeout)
        if not self._over.is_set():
            self._abandon(f"{self.address} was closed before the server had answered")

    # ---- connecting, in one thread
    def _dial(self) -> dial.Line:
        line = dial.Line(self.address, self._tls, self._timeout, self._tids)
        try:
            dial.agree(line, self._token)
            told = {"session": self._session, "queue": self.address.queue, "client": self._client}
            self.told = dial.greet(line, {**told, "again": self._was_here})
            self.clock.begin(self.told.get("clock"))
            if not self.told["resumed"]:
                self._begin_again(line)
            for held in list(self.consumers.values()):
                self._say(["again", next(self._tids), *held.credit()])
        except BaseException as problem:
            line.close()
            if isinstance(problem, dial.Refused):
                raise problem.__cause__ or problem from None
            raise
        line.unblock()
        self._was_here = True
        for call in self._flight.values():
            self._say(call.message())
        return line

    def _begin_again(self, line: dial.Line) -> None:
        """The server knows nothing of what was before, but what it has on its disk."""
        self._was_here = False  # should the line be cut now, the next one does not go on from half of this
        known = self._has_slot and line.ask(["producer", True])
        for held in list(self.consumers.values()):
            try:
                held.opened_again(line.ask(["consumer", held.cid, *held.given]))
            except packing.BadRequest as problem:
                raise ConnectionResetError(
                    f"{self.address} answers with something that is not an answer: {problem}"
                ) from problem
            except (errors.ShmqError, ValueError) as problem:
                held.fails(problem)
        for tid, call in list(self._flight.items()):
            if call.kind == HELD:
                self._settle(tid, error=self._lost(call))
            elif call.kind == PUT and not known and isinstance(call, Sent) and call.number is not None:
                self._settle(tid, error=self._unknown("the server does not know this session any more"))
        self._has_slot = bool(known)
        if not known:
            self._numbers = itertools.count()

    def _lost(self, call: Call) -> Exception:
        return errors.LeaseLost(
            f"{call.verb} at {self.address}: the server has begun anew, or was not reached for too long, so the "
            "message was given to somebody else, or will be; what was asked just before may have been done"
        )

    def _unknown(self, why: str) -> Exception:
        return errors.SyncPending(
            f"a batch was sent to {self.address}, and {why}; it is in the queue, or it is not, so look before you put "
            "it again"
        )

    # ---- the thread
    def _run(self) -> None:
        pause, lost = _PAUSE_MIN, False
        while not self._over.is_set():
            try:
                if self._line is None:
                    self._line = self._dial()
                    if lost:
                        _log.info("%s is reached again", self.address)
                lost = False
                pause = _PAUSE_MIN
                self._serve(self._line)
            except _BROKEN as problem:
                if not lost:
                    _log.warning("%s cannot be reached, and is tried again until it can be: %s", self.address, problem)
                lost = True
            except Exception as problem:  # noqa: BLE001  # the server will not have us, or this is a mistake of ours
                self._fail_all(problem)
            self._hang_up()
            if self._closing and not self._flight and not self._inbox and not self._puts and not self._others:
                break
            if not self._over.is_set():
                self._sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311  # so that not all come at once
                pause = min(pause * 2, _PAUSE_MAX)
        self._over.set()

    def _my_turn(self) -> Turn:
        """The turn, which is the thread's from now on: whoever has it gives it back soon, or loses it."""
        while True:
            turn = self._turn
            if turn.lock.acquire(timeout=_HERE):
                if turn is self._turn:
                    return turn
                turn.lock.release()

    def _hang_up(self) -> None:
        turn = self._my_turn()
        try:
            line, self._line = self._line, None
            watch, self._watch = self._watch, None
            self._out, self._left = deque(), deque()  # who has lost a turn may have those in hand
            self._batches = {tid for tid, call in self._flight.items() if isinstance(call, Sent)}
            self._turn = Turn()
        finally:
            turn.lock.release()
        if watch is not None:
            watch.close()
        if line is not None:
            line.close()

    def _sleep(self, seconds: float) -> None:
        self._over.wait(seconds)

    def _serve(self, line: dial.Line) -> None:
        grace = float(self.told["grace"])
        heartbeat = grace * packing.HEARTBEAT
        watch = Watch(line.socket, self._wake)
        self._heard = self._said = time.monotonic()
        self._watch = watch
        is_wanted = True
        while not self._over.is_set():
            turn = self._my_turn()
            try:
                if is_wanted:
                    self._wake.down()
                    self._told_to_wake = False  # first: what is handed in from now on needs another one
                if turn.problem is not None:
                    raise turn.problem
                if turn.is_half_done:
                    return
                self._read(line)
                self._look_at_clock(grace, heartbeat)
                self._take_in()
                if self._closing and self._is_idle():
                    self._part(line)
                    return
                if self._out:
                    self._said = time.monotonic()
                    self._write(line)
                watch.have(unsent=bool(self._out))
            finally:
                turn.lock.release()
            is_wanted = watch.sleep(heartbeat)

    def _read(self, line: dial.Line) -> None:
        """Take what has come, and what a caller has left."""
        while self._left:
            self._take(self._left.popleft())
        while (messages := line.messages()) is not None:
            self._heard = time.monotonic()
            for message in messages:
                self._take(message)

    def _look_at_clock(self, grace: float, heartbeat: float) -> None:
        now = time.monotonic()
        if now - self._heard > grace:
            raise TimeoutError(f"{self.address} is silent")
        if now - self._said >= heartbeat:
            self._say(["ping", 0])

    def _is_idle(self) -> bool:
        return not (self._flight or self._inbox or self._puts or self._others or self._out)

    def _part(self, line: dial.Line) -> None:
        with contextlib.suppress(OSError, BadFrame, ValueError, errors.ShmqError):
            line.part(self._timeout)
        self._over.set()

    # ---- sending
    def _take_in(self) -> None:
        while self._inbox:
            call = self._inbox.popleft()
            if isinstance(call, Put):
                self._puts.append(call)
            else:
                self._others.append(call)
        while self._stops:
            self._say(["stop", 0, self._stops.popleft().tid])
        while self._grants:
            self._say(["credit", 0, *self._grants.popleft().credit()])
        while self._others and len(self._flight) < _REQUESTS:
            call = self._others.popleft()
            if call.claim():
                self._send(call)
        while self._puts and len(self._batches) < packing.WINDOW and self._can_put():
            self._send_puts()

    def _can_put(self) -> bool:
        """Whether this session has a slot, before which it puts nothing; else it asks for one."""
        if not self._has_slot and self._slot_call is None and "dedup" not in (self._puts[0].options or {}):
            self._slot_call = Call("producer", (False,))
            self._slot_call.claim()
            self._slot_call.when_done(self._has_it)
            self._send(self._slot_call)
        return self._has_slot or "dedup" in (self._puts[0].options or {})

    def _has_it(self) -> None:
        call, self._slot_call = self._slot_call, None
        problem = None if call is None else call.error
        self._has_slot = problem is None
        while problem is not None and self._puts:
            self._puts.popleft().done(error=problem)

    def _send_puts(self) -> None:
        """Cut a batch: from now on it stays as it is."""
        puts: list[Put] = []
        size = 0
        while self._puts and (not puts or (puts[0].joins and self._puts[0].joins)):
            put = self._puts[0]
            if puts and (len(puts) >= _JOINED_MAX or size + len(put.payloads[0]) > _JOINED_BYTES):
                break
            self._puts.popleft()
            if put.claim():
                puts.append(put)
                size += len(put.payloads[0])
        if puts:
            self._send(self._batch(puts))

    def _batch(self, puts: list[Put]) -> Sent:
        own = "dedup" in (puts[0].options or {})
        sent = Sent(puts, None if own else next(self._numbers))
        sent.packed(packing.joined)
        return sent

    def _send(self, call: Call) -> None:
        self._out.append(self._framed(call))
        self._flight[call.tid] = call
        if isinstance(call, Sent):
            self._batches.add(call.tid)

    def _framed(self, call: Call) -> memoryview:
        """What is sent for that call, under a number that is its own from now on."""
        call.tid = next(self._tids)
        return _framed(call.message())

    def _say(self, message: list[Any]) -> None:
        self._out.append(_framed(message))

    def _write(self, line: dial.Line) -> None:
        while self._out:
            if len(self._out) > 1 and len(self._out[0]) + len(self._out[1]) < _SEND:
                self._join_some()
            sent = line.send_some(self._out[0])
            if sent == len(self._out[0]):
                self._out.popleft()
            else:
                self._out[0] = self._out[0][sent:]
                return

    def _join_some(self) -> None:
        """Small ones go out together."""
        some: list[memoryview] = []
        size = 0
        while self._out and size + len(self._out[0]) < _SEND:
            size += len(self._out[0])
            some.append(self._out.popleft())
        self._out.appendleft(memoryview(b"".join(some)))

    # ---- what comes
    def _take(self, message: list[Any]) -> None:
        verb, tid, *rest = message
        if verb == "ok":
            self._settle(tid, rest[0])
        elif verb == "error":
            self._settle(tid, error=packing.raised(*rest[:3]))
        elif verb == "messages":
            held = self.consumers.get(rest[0])
            if held is not None:
                held.arrived(*rest[1:5])
                if not tid:
                    self._say(["credit", 0, *held.credit()])  # it is here, and need not be kept there
            if tid:
                self._settle(tid)
        elif verb == "over":
            raise ConnectionResetError(f"{self.address} has ended the session")

    def _settle(self, tid: int, value: Any = None, error: Exception | None = None) -> None:
        call = self._flight.pop(tid, None)
        if call is not None:
            self._batches.discard(tid)
            call.done(value, error)

    def _fail_all(self, problem: Exception) -> None:
        for tid, call in list(self._flight.items()):
            was_put = isinstance(call, Sent)
            self._settle(tid, error=self._unknown(f"the server refuses to go on: {problem}") if was_put else problem)
        for held in list(self.consumers.values()):
            held.refused(problem)
        for calls in (self._inbox, self._puts, self._others):
            while calls:
                call = calls.popleft()
                if call.claim():
                    call.done(error=problem)

    def _abandon(self, why: str) -> None:
        """Nobody waits for the server any more."""
        self._over.set()
        self.nudge()
        for call in list(self._flight.values()):
            call.done(error=errors.SyncPending(why) if isinstance(call, Sent) else errors.Closed(why))
        for calls in (self._inbox, self._puts, self._others):
            for call in list(calls):
                if call.claim():
                    call.done(error=errors.Closed(f"{why}; nothing was put"))

    # ---- forks
    def leave_to_parent(self) -> None:
        """This is a forked child: the connection is the parent's, and is left as it is."""
        self._closing = True
        self._over = threading.Event()
        self._over.set()
        if self._watch is not None:
            self._watch.close()
        if self._line is not None:
            with contextlib.suppress(OSError):
                os.close(self._line.socket.detach())


def _framed(message: list[Any]) -> memoryview:
    return memoryview(framed(packing.encode(message)))


_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _in_child() -> None:
    for link in list(_links):
        link.leave_to_parent()
    _links.clear()


def close_all() -> None:
    """The interpreter ends: part from every server, so that names are free at once."""
    for link in list(_links):
        link.close(1.0)


os.register_at_fork(after_in_child=_in_child)
atexit.register(close_all)
