"""What a queue with spans has of the queue beneath it: all that tells nothing."""

from __future__ import annotations

from typing import Any


class Passing:
    """A queue with spans, awaited or not, without the verbs that make them."""

    queue: Any

    def __getattr__(self, name: str) -> Any:
        """What is the queue's own."""
        return getattr(self.queue, name)

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.queue)

    def __getitem__(self, index: Any) -> Any:
        """A message by its index, which tells nothing."""
        return self.queue[index]

    def __repr__(self) -> str:
        """As the queue, for people."""
        return f"<shmq.otel.{type(self).__name__} of {self.queue!r}>"
