"""One thread that serves: claims a request, judges it, and runs it or has it run."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import shmq
from shmq.rpc import deadlines, running, streaming, wire
from shmq.rpc.answers import finish
from shmq.rpc.errors import ServerDied, WrongArguments
from shmq.rpc.jobs import Job
from shmq.rpc.running import Running

if TYPE_CHECKING:
    from shmq.rpc.beside import Beside
    from shmq.rpc.methods import Method
    from shmq.rpc.state import State

_LOOK = 0.2
"""Seconds: so long a server sleeps at most before it looks whether it is to stop."""
_LOOK_WHEN_OWING = 0.01
_TIDY_EVERY = 256
"""Requests after which it looks at the clock."""


class Serving:
    """What one thread of a server does until it is told to stop."""

    def __init__(self, state: State, beside: Beside, inbox: shmq.GroupConsumer[bytes]) -> None:
        """With its own member of the group."""
        self._state = state
        self._beside = beside
        self._inbox = inbox
        self._answers = state.answers
        self._find = state.methods.find

    def run(self) -> None:
        """Serve until the server stops, or the requests are shut down."""
        get, handle, state = self._inbox.get, self.handle, self._state
        replies = state.replies
        left = _TIDY_EVERY
        try:
            while not state.stopping:
                try:
                    message = get(_LOOK_WHEN_OWING if replies.owing else _LOOK)
                except shmq.Empty:
                    left = 0
                except (shmq.ShutDown, shmq.Closed):
                    return
                except (shmq.Gone, shmq.Corrupt) as problem:  # told once; it goes on behind that
                    logging.getLogger("shmq").error("requests are lost: %s", problem)  # noqa: TRY400  # told in words
                else:
                    handle(message)
                    left -= 1
                if left <= 0:
                    left = _TIDY_EVERY
                    state.tidy()
        finally:
            running.begin(None)

    def handle(self, message: shmq.Message[bytes]) -> None:
        """One request, to its end, or until somebody else has it."""
        try:
            request = wire.read_request(message.payload)
        except wire.UNREADABLE as problem:
            self._refuse(message, problem)
            return
        if request.deadline_ns and self._is_late(request):
            self._state.late += 1
            finish(message)
            return
        method = self._find(request.method) or self._state.methods.look_up(request.method)
        if method is None:
            self._answers.raised(request, self._state.methods.no_such(request.method))
            finish(message)
            return
        attempts = message.attempts
        if attempts > 1 and not self._may_run_again(message, request, method):
            finish(message)
            return
        given_up = self._state.cancels.given_up
        if given_up and (request.client, request.sequence) in given_up:
            finish(message)
            return
        self._run(message, request, method, Running(request, attempts, given_up))

    def _run(self, message: shmq.Message[bytes], request: wire.Request, method: Method, this: Running) -> None:
        try:
            placed, named = method.unpack(request.arguments, request.named)
        except (WrongArguments, shmq.Untrusted, shmq.BadFormat) as problem:
            self._answers.raised(request, problem)
            finish(message)
            return
        if not method.runs_here:
            self._beside.begin(Job(message, method, this, placed, named))
            return
        running.begin(this)
        try:
            result = method.function(*placed, **named)
        except (Exception, SystemExit) as problem:  # noqa: BLE001  # whatever a method raises is its caller's
            self._answers.raised(request, problem)
        except BaseException:
            self._answers.interrupted(message, request)
            raise
        else:
            self._answers.returned(request, result)
        finish(message)

    @staticmethod
    def _is_late(request: wire.Request) -> bool:
        """Whether its caller waits no more; after a reboot nobody does who waited for a time."""
        return not request.client.startswith(deadlines.BOOT) or deadlines.now_ns() >= request.deadline_ns

    def _may_run_again(self, message: shmq.Message[bytes], request: wire.Request, method: Method) -> bool:
        """Whether a request that a server died with is begun again."""
        attempts = message.attempts
        if method.streams:
            streaming.tell_died(self._answers, request)
            return False
        if request.mode == wire.AT_MOST_ONCE:
            self._answers.raised(request, ServerDied(f"the server that had {request.method}() died; it may have run"))
            return False
        if attempts <= self._state.max_attempts:
            return True
        why = f"{request.method}() was begun {attempts - 1} times, and no server lived to its end"
        self._answers.raised(request, ServerDied(f"{why}; it is not tried again"))
        with contextlib.suppress(shmq.ShmqError):
            message.reject(why)
        return False

    def _refuse(self, message: shmq.Message[bytes], problem: Exception) -> None:
        """What cannot be read is answered, if it says by whom it was asked; else it is a dead letter."""
        try:
            asked = wire.read_asked(message.payload)
        except wire.UNREADABLE:
            with contextlib.suppress(shmq.ShmqError):
                message.reject(f"no request: {problem}")
            return
        what = "none that this server can read" if asked.version == wire.VERSION else f"of version {asked.version}"
        self._answers.tell(asked.client, asked.sequence, shmq.BadFormat(f"the request is {what}: {problem}"))
        finish(message)
