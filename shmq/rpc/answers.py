"""
Answers: what a method returned or raised, on its way to whoever asked; and the end of a request.

The reply comes before the acknowledgement: killed in between, a server leaves a request that was answered, and whoever
gets it next answers ServerDied, which nobody waits for any more, or runs it again, where that was asked for.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

import shmq
from shmq.rpc import crossing, wire
from shmq.rpc.errors import ServerDied

if TYPE_CHECKING:
    from shmq.rpc.border import Packing
    from shmq.rpc.replies import Replies


class Answers:
    """One server's answers. Safe to share between its threads."""

    def __init__(self, packing: Packing, replies: Replies) -> None:
        """By these lines."""
        self._pack = packing.pack
        self._send = replies.send
        self._replies = replies

    def returned(self, request: wire.Request, result: Any) -> None:
        """Send what the method returned; or why that cannot cross."""
        if request.mode == wire.UNANSWERED:
            return
        try:
            reply = self._pack((request.sequence, wire.VALUE, result))
        except Exception as problem:  # noqa: BLE001  # something of a program's own
            self.raised(request, TypeError(f"{request.method}() has run; what it returned cannot cross: {problem}"))
            return
        try:
            self._send(request.client, reply)
        except (shmq.TooLarge, shmq.Full) as problem:
            lost = f"{request.method}() has run; what it returned is lost: {problem}"
            self.raised(request, type(problem)(lost))

    def raised(self, request: wire.Request, problem: BaseException) -> None:
        """Send what it raised."""
        if request.mode == wire.UNANSWERED:
            logging.getLogger("shmq").error(
                "%s(), whose caller does not wait for it, raised", request.method, exc_info=problem
            )
        else:
            self.tell(request.client, request.sequence, problem)

    def tell(self, client: bytes, sequence: int, problem: BaseException) -> None:
        """Send that error as the answer to that call."""
        try:
            self._send(client, wire.pack((sequence, wire.RAISED, crossing.of(problem))))
        except (shmq.TooLarge, shmq.Full):
            self._replies.dropped += 1
            logging.getLogger("shmq").warning("the client %s does not take its replies; one is lost", client.hex())

    def interrupted(self, message: shmq.Message[bytes], request: wire.Request) -> None:
        """The server is stopped in the middle of a call: tell its caller, or have another server begin it anew."""
        if request.mode == wire.AT_MOST_ONCE:
            self.raised(request, ServerDied(f"the server was interrupted in {request.method}(), which may have run"))
            finish(message)
        else:
            with contextlib.suppress(shmq.ShmqError):
                message.nack()


def finish(message: shmq.Message[bytes]) -> None:
    """Acknowledge; what goes wrong there harms no other request."""
    try:
        message.ack()
    except shmq.LeaseLost:  # rejected, or given back, before
        pass
    except (shmq.ShmqError, OSError):
        logging.getLogger("shmq").exception("a request that was answered could not be acknowledged")
