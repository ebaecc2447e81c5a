"""What a `with` block closes."""

from __future__ import annotations

import abc
import sys

from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self


class Forgotten:
    """What closes itself when nobody has it any more. Its finalizer finds this by its class, which stays to the end."""

    def _end_quietly(self, close: Callable[[], object], is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """
        Call that. What never finished opening has nothing to close.

        What is kept in a module of Python's own (`os.handle = ...`) is collected when the interpreter has taken
        most modules apart, ours among them: whatever fails for that, the kernel lets go of it all in a moment.
        """
        try:
            close()
        except AttributeError:
            pass
        except Exception:
            if not is_ending():
                raise


class Closable(Forgotten):
    """What has a `close`, and is a context manager by that."""

    def __enter__(self) -> Self:
        """Return this object, which the `with` block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of what it has. Closing twice is fine."""
