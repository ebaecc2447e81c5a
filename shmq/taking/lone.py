"""
A consumer with explicit acknowledgements that one handle holds at a time: a group of one member.

So a ring says what it has and what is finished, message by message, and it survives the process: what was acknowledged
out of order does not come again, attempts are counted, and its messages have all verbs. Messages come in the queue's
order, but for what was given back.
"""

from __future__ import annotations

import contextlib
import os

from shmq import errors
from shmq.hints import TYPE_CHECKING, T
from shmq.taking import names
from shmq.taking.group import GroupConsumer

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterator


class LoneConsumer(GroupConsumer[T]):
    """
    One name's way through the queue, with explicit acknowledgements. Made by `Queue.consumer(..., ack="explicit")`.

    A context manager; iterates until shutdown; safe to share between threads, and not with a forked child.

    Attributes:
        name: the name.
        ack_mode: "explicit".
        options: what it was made with.
    """

    _lone = True

    def _enter_name(self, start: str | float | datetime.datetime) -> None:
        super()._enter_name(start)
        control = self._membership.control
        names.take_up_hold(self._home, self.name, control, hold=self._asked.hold)
        self._checkpoint.holder = self._membership.member.owner

    def _enter_ring(self) -> None:
        super()._enter_ring()
        self._ring.glance_back(0)  # what a dead holder had comes first
        self._ring.floor()  # and what it had finished, when it was killed, is behind the head

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise errors.Forked(
                f"consumer {self.name!r} of {self._home.path} belongs to the parent process {self._pid}; "
                "open one under another name in this child"
            )
        super()._check_usable()

    def _join_in_child(self) -> None:
        if os.getpid() != self._pid:
            self._check_usable()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        yield  # as always

    def _leave_name(self) -> None:
        if self._opened and self._name_lock is not None and not self._name_lock.is_free():
            self._checkpoint.holder = 0
        super()._leave_name()
