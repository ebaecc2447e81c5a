"""A request that is to be run: all that is known of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import shmq
    from shmq.rpc import wire
    from shmq.rpc.methods import Method
    from shmq.rpc.running import Key, Running


class Job(NamedTuple):
    """
    One call, unpacked.

    Attributes:
        message: the request as it lies in the queue, to be acknowledged.
        running: what the method may know of it.
        placed, named: its arguments.
    """

    message: shmq.Message[bytes]
    method: Method
    running: Running
    placed: Sequence[Any]
    named: dict[str, Any]

    @property
    def request(self) -> wire.Request:
        """What was asked."""
        return self.running.request

    @property
    def key(self) -> Key:
        """Who asks, and the number of the call there."""
        return self.request.client, self.request.sequence
