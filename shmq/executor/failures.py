"""How a task can fail without an exception of its own, and where an exception was raised."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures.process import BrokenProcessPool


class TaskDied(BrokenProcessPool):
    """
    The worker died each time that it ran this task. The pool goes on; the task is in the dead letters.

    Attributes:
        signal: the signal that ended the last one; None where nobody knows, or it was none.
        exitcode: its exit status, or minus the signal; None where nobody knows.
        peak: bytes of memory that it had at least at its most; None where nobody knows.
        attempts: how often the task was begun.
    """

    def __init__(
        self,
        message: str,
        *,
        exitcode: int | None = None,
        peak: int | None = None,
        attempts: int = 0,
    ) -> None:
        """What is known of its death."""
        super().__init__(message)
        self.exitcode, self.peak, self.attempts = exitcode, peak, attempts

    @property
    def signal(self) -> int | None:
        """The signal that ended the last worker, if one did."""
        return -self.exitcode if self.exitcode is not None and self.exitcode < 0 else None


class TaskTimedOut(TaskDied, FutureTimeout):
    """The task took longer than its time limit, each time; its worker was killed."""


class TaskExpired(FutureTimeout):
    """The task's deadline had passed before a worker could begin it. It was not run."""


class RemoteTraceback(Exception):
    """Where in the worker an exception was raised: its cause here."""

    def __init__(self, text: str) -> None:
        """The traceback, as the interpreter prints one."""
        super().__init__(text)
        self.tb = text

    def __str__(self) -> str:
        """As it is printed above the exception."""
        return f'\n"""\n{self.tb}"""'


def with_cause(problem: BaseException, text: str) -> BaseException:
    """That exception, with where it was raised as its cause, if anybody knows."""
    if text:
        problem.__cause__ = RemoteTraceback(text)
    return problem
