"""Memory that cannot be had: the n-th allocation of the interpreter fails, and the next ones do not."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

THERE = importlib.util.find_spec("_testcapi") is not None
"""Whether this interpreter can do it; not every distribution's has the module."""

_WORDS = ("can't allocate", "returned NULL without setting an exception")
"""Of the interpreter's own, where it does not say MemoryError."""


class Starved:
    """One round. To be run in a process of its own: the interpreter itself may not survive it."""

    def __init__(self, allocation: int) -> None:
        """That allocation fails."""
        self.allocation = allocation
        self.raised = False
        """Whether anybody was told."""
        self.at = "nowhere"
        """Where that was."""

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """Fail in here; what that raises ends here."""
        import _testcapi  # see THERE

        gc.disable()
        _testcapi.set_nomemory(self.allocation, self.allocation + 1)
        try:
            yield
        except (MemoryError, RuntimeError, SystemError) as problem:
            _testcapi.remove_mem_hooks()
            if not isinstance(problem, MemoryError) and not any(words in str(problem) for words in _WORDS):
                raise
            self.raised = True
            self.at = "{0.name}, line {0.lineno}".format(traceback.extract_tb(problem.__traceback__)[-1])
        finally:
            _testcapi.remove_mem_hooks()
            gc.enable()
