"""What a `with` block closes."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Closable:
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
