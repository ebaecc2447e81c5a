"""
What the handler of a signal raises, at every place where it can.

The interpreter runs handlers between two of its instructions, and not between any two: behind a call that it made into
C, at the beginning of a function, and on the way back in a loop. `places` runs a piece of work once for each of these
places in shmq's own code, and raises there, as the handler of Ctrl-C or of a time limit does. So a verb is tried at all
of them, in order, and nothing is left to luck:

    for this in places():
        with this.interrupted():  # at the k-th place in the k-th round; the last round is not interrupted at all
            verb()
        judge()
"""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import shmq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

OURS = os.path.dirname(os.path.abspath(shmq.__file__)) + os.sep
_LOOKS = {"RESUME", "JUMP_BACKWARD", "CALL", "CALL_FUNCTION_EX", "CALL_KW"}
"""Behind these instructions the interpreter looks for signals."""

_FINALIZERS = {"__del__", "_free_chunk", "_free_member", "_free_ring"}
"""What is raised in these goes nowhere: their rest is not done, and nobody is told."""


class Interrupt(BaseException):
    """What the handler raises."""


@functools.cache
def _instructions(code: CodeType) -> dict[int, str]:
    return {each.offset: each.opname for each in dis.get_instructions(code)}


@functools.cache
def _handler_of(code: CodeType, offset: int) -> tuple[int, int] | None:
    """Where the code goes on after an exception in that instruction, and how much of the stack it keeps."""
    for entry in dis.Bytecode(code).exception_entries:
        if entry.start <= offset < entry.end:
            return entry.target, entry.depth
    return None


def _in_finalizer(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name not in _FINALIZERS:
        frame = frame.f_back
    return frame is not None


class Round:
    """One round: interrupted at one place, or at none when the work is over before."""

    def __init__(self, place: int, instead: Callable[[], None] | None = None) -> None:
        """The n-th place; *instead* of an exception, that happens there."""
        self._left = place
        self._instead = instead
        self.seen = 0
        """Places so far."""
        self.raised = False
        """Whether it came to that place."""
        self.at = "nowhere"
        """Where that is."""
        self._last: dict[int, tuple[CodeType, int]] = {}
        self._returned = False

    @contextlib.contextmanager
    def interrupted(self, *, passing: bool = False) -> Iterator[None]:
        """Raise in here; what was raised ends here, too, unless it is *passing*."""
        gc.disable()  # what is raised in a finalizer goes nowhere
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        except Interrupt:
            if passing:
                raise
        finally:
            sys.settrace(before)
            gc.enable()

    def _trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(OURS) or code.co_name in _FINALIZERS:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "return":
            self._last.pop(id(frame), None)
            self._returned = frame.f_code.co_name != "__init__"  # who is called by C looks afterwards
        elif event == "opcode":
            code, here = frame.f_code, frame.f_lasti
            known, last = self._last.get(id(frame), (code, here))
            self._last[id(frame)] = code, here
            before = "" if last == here or known is not code else _instructions(code)[last]
            looks = before in _LOOKS and not (before == "CALL" and self._returned)
            # The interpreter raises in the call itself; here it is raised in what comes next, which is the same only
            # where that is handled likewise.
            looks = looks and _handler_of(code, last) == _handler_of(code, here) and not _in_finalizer(frame)
            self._returned = False
            if looks and not self.raised:
                self.seen += 1
                self._left -= 1
                if self._left < 0:
                    self.raised = True
                    self.at = f"{frame.f_code.co_qualname}, line {frame.f_lineno}, behind {before}"
                    if self._instead is None:
                        raise Interrupt(self.at)
                    self._instead()
        return self._step


def places(most: int = 5000) -> Iterator[Round]:
    """A round for each place, until one is not interrupted any more."""
    for place in range(most):
        this = Round(place)
        yield this
        if not this.raised:
            assert place > 0, "the work was never interrupted"
            return
    raise AssertionError(f"more than {most} places")
