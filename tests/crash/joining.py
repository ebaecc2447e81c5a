"""
Putting once, and joining what was built aside: all of it or nothing, and never a second time.

The producer is called "p" everywhere; its sequences ascend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .payloads import payload
from .recover import brief, check, damage, opened, recover

if TYPE_CHECKING:
    import shmq

    from .operations import Model
    from .recover import Expected

PRODUCER = "p"


def _payloads(number: int, lengths: tuple[int, ...]) -> list[bytes]:
    return [payload(number, i, length) for i, length in enumerate(lengths)]


# ---------------------------------------------------------------- what is true
class Truth:
    """What these verbs change in a Model: `once` is the last sequence and its indexes, `waiting` what waits for it."""

    next: int
    once: tuple[int, range] | None
    waiting: list[list[bytes]]

    def _add_once(self, sequence: int | None, payloads: list[bytes]) -> None:
        if sequence is not None and self.once is not None and self.once[0] == sequence:
            return
        first = self.next
        self._add(payloads)  # type: ignore[attr-defined]
        if sequence is not None:
            self.once = (sequence, range(first, self.next))

    def _put_once(self, number: int, sequence: int, *lengths: int) -> None:
        self._add_once(sequence, _payloads(number, lengths))

    _adopt = _put_once

    def _adopt_plainly(self, number: int, *lengths: int) -> None:
        self._add_once(None, _payloads(number, lengths))

    def _hand_over(self, number: int, *lengths: int) -> None:
        self.waiting.append(_payloads(number, lengths))

    def _adopt_all(self, number: int, sequence: int) -> None:
        self._add_once(sequence, [each for part in sorted(self.waiting, key=len) for each in part])
        self.waiting = []


# ---------------------------------------------------------------- doing it
class Hands:
    """The same verbs, through the public API."""

    queue: Any

    def _put_once(self, number: int, sequence: int, *lengths: int) -> None:
        payloads = _payloads(number, lengths)
        if len(payloads) == 1:
            self.queue.put(payloads[0], dedup=(PRODUCER, sequence))
        else:
            self.queue.put_many(payloads, dedup=(PRODUCER, sequence))

    def _adopt(self, number: int, sequence: int, *lengths: int) -> None:
        with self.queue.stage() as staged:
            staged.put_many(_payloads(number, lengths))
            self.queue.adopt(staged, dedup=(PRODUCER, sequence))

    def _adopt_plainly(self, number: int, *lengths: int) -> None:
        with self.queue.stage() as staged:
            staged.put_many(_payloads(number, lengths))
            self.queue.adopt(staged)

    def _hand_over(self, number: int, *lengths: int) -> None:
        with self.queue.stage() as staged:
            staged.put_many(_payloads(number, lengths))
            staged.hand_over(owner="o")

    def _adopt_all(self, number: int, sequence: int) -> None:
        """Everything that was handed over, the smaller sets first."""
        self.queue.adopt(sorted(self.queue.staged_sets(), key=len), dedup=(PRODUCER, sequence))


# ---------------------------------------------------------------- what the next process finds
def judge(path: str, expected: Expected, options: shmq.Options) -> None:
    """
    As `recover`; and what had a sequence is put again: it gives the first indexes, and nothing more is there.

    Raises:
        AssertionError, shmq.ShmqError: something that must be true is not.
    """
    models = expected.models
    recover(path, expected, options)
    with opened(path, create=False) as queue:
        messages = {message.index: message.payload for message in queue.reader() if message.payload != b"after"}
        models = [model for model in models if model.messages == messages]
        check(bool(models), "no run of operations leaves these messages", brief(messages))
        _put_again(queue, models)
        waits = [len(each) for each in queue.staged_sets()]
        check(
            sorted(waits) in [sorted(map(len, model.waiting)) for model in models],
            "what was handed over is lost",
            waits,
        )
        problems = damage(queue)
        check(not problems, "what was joined is not whole", problems)


def _put_again(queue: Any, models: list[Model]) -> None:
    known = queue.adopted(PRODUCER)
    check(known in [model.once for model in models], "the last sequence is another", known, [m.once for m in models])
    end = queue.next_index
    if known is not None:
        sequence, indexes = known
        again = queue.put_many([b"again"] * 3, dedup=(PRODUCER, sequence))
        check((again, queue.next_index) == (indexes, end), "it was put twice", again, indexes, queue.next_index, end)
    sequence = known[0] + 1 if known else 1
    for _ in range(2):
        check(queue.put(b"once", dedup=(PRODUCER, sequence)) == end, "the next one is not put, or twice")
