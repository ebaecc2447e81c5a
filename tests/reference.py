"""
The queue in plain Python: what every suite compares with. No processes, no memory, no bytes: only what the words mean.

One entry of the log is a message, OPEN (claimed and not committed) or PAD (never will be). An index is a place in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

OPEN, PAD = "OPEN", "PAD"


class Sent(NamedTuple):
    """A message as it was put."""

    payload: Any
    key: bytes | None = None
    type: int = 0
    time_ns: int | None = None
    headers: dict[str, Any] | None = None


def matches(message, *, key_prefix=b"", types=None, headers=None):
    """Whether a filter that asks for these wants that message."""
    there = message.headers or {}
    return (
        (message.key or b"").startswith(key_prefix)
        and (types is None or message.type in types)
        and all(
            name in there and type(there[name]) is type(value) and there[name] == value
            for name, value in (headers or {}).items()
        )
    )


class Queue:
    def __init__(self):
        self.log = []
        self.consumers = {}

    def put(self, *messages):
        self.log += messages
        return range(len(self.log) - len(messages), len(self.log))

    def reserve(self):
        return self.put(OPEN)[0]

    def commit(self, index, message):
        self.log[index] = message

    def abort(self, index):
        self.log[index] = PAD

    def read(self, start=0):
        """(index, message) from there on, up to the first open claim: nobody passes one."""
        for index in range(start, len(self.log)):
            if self.log[index] is OPEN:
                return
            if self.log[index] is not PAD:
                yield index, self.log[index]

    def __len__(self):
        return len(self.log) - self.log.count(PAD)


def consumer(queue, ack, start, wants=None):
    """A name that acknowledges in that way, and wants what these keywords of a filter say; None for all."""
    return Explicit(queue, start, wants) if ack == "explicit" else Consumer(queue, start, wants)


class Consumer:
    """A name whose messages are finished when they are handed out. `head` is where it goes on."""

    ack_mode = "auto"
    unacked = ()

    def __init__(self, queue, start=0, wants=None):
        self.queue, self.head, self.wants = queue, start, wants

    def reopen(self):
        """Another holder."""

    def next(self):
        return self.wanted(self.head)

    def wanted(self, start):
        return ((index, message) for index, message in self.queue.read(start) if not self.skips(message))

    def skips(self, entry):
        """Whether it is passed by itself: padding, and what the name does not want."""
        unwanted = isinstance(entry, Sent) and self.wants is not None and not matches(entry, **self.wants)
        return entry is PAD or unwanted

    def drained(self):
        """Whether all that is left was passed, or is with somebody, when there is nothing to get."""
        return OPEN not in self.queue.log[getattr(self, "at", self.head) :]

    def hand_out(self, index, *, finished=False):
        """Attempts, as a message says it."""
        self.head = index + 1
        return 1

    def ack(self, index):
        """It is finished."""

    def seek(self, index):
        self.head = index

    @property
    def lag(self):
        behind = self.queue.log[self.head :]
        claims = behind.count(OPEN) if self.wants is not None else 0  # what they will be nobody knows
        return len(behind) - sum(map(self.skips, behind)) - claims

    @property
    def passed(self):
        """The head, and what is skipped behind it: whoever finds nothing there goes on behind it."""
        log = self.queue.log
        return next((at for at in range(self.head, len(log)) if not self.skips(log[at])), len(log))


class Explicit(Consumer):
    """One that acknowledges: what is done stays done, whoever dies; `at` is where this holder of the name is."""

    ack_mode = "explicit"

    def __init__(self, queue, start=0, wants=None):
        super().__init__(queue, start, wants)
        self.seek(start)

    def reopen(self):
        self.at, self.unacked = self.head, []

    def next(self):
        return ((index, message) for index, message in self.wanted(self.at) if index not in self.done)

    def hand_out(self, index, *, finished=False):
        self.at = index + 1
        self.attempts[index] = self.attempts.get(index, 0) + 1
        self.unacked.append(index)
        if finished:
            self.ack(index)
        return self.attempts[index]

    def ack(self, index):
        if index in self.unacked:
            self.unacked.remove(index)
            self.done.add(index)
            while self.head in self.done:
                self.head += 1

    def seek(self, index):
        self.head, self.done, self.attempts = index, set(), {}
        self.reopen()

    @property
    def lag(self):
        return super().lag - sum(index >= self.head for index in self.done)

    @property
    def passed(self):
        log = self.queue.log
        there = (at for at in range(self.head, len(log)) if not self.skips(log[at]) and at not in self.done)
        return next(there, len(log))


class Once:
    """Indexes of what is put once for each (producer, sequence), and of what else is put."""

    def __init__(self):
        self.end, self.last, self.puts, self.adopted = 0, {}, {}, {}

    def put(self, count):
        self.end += count
        return range(self.end - count, self.end)

    def put_once(self, producer, sequence, count, *, adopt=False):
        """Its indexes; None when a later one is there, and this one never was, or was adopted before another one."""
        puts = self.puts.setdefault(producer, {})
        last, _ = self.last.get(producer, (-1, None))
        if sequence > last:
            self.last[producer] = (sequence, self.put(count))
            if adopt:
                self.adopted[producer] = {sequence: self.last[producer][1]}
            else:
                puts[sequence] = self.last[producer][1]
        return {**puts, **self.adopted.get(producer, {})}.get(sequence)


class Bounded:
    """A queue with bounds, of which nothing is forgotten here: the log has a payload each, or None for padding."""

    RECORD, DEDUP = 40, 24

    def __init__(self, messages=None, size=None):
        self.bounds = (messages, size)
        self.log, self.sizes, self.heads = [], [], {}
        self.purged = 0
        self.once, self.adopted = {}, {}
        """Indexes by sequence, of one producer: of all puts, and of the last adoption."""

    def size(self, payload, *, dedup=False):
        """Bytes in a chunk."""
        return self.RECORD + (self.DEDUP if dedup else 0) + (len(payload) + 7) // 8 * 8

    def floor(self):
        """The first message that not every name has finished; padding before it is passed by itself."""
        floor = max(min(self.heads.values(), default=0), self.purged)
        while floor < len(self.log) and self.log[floor] is None:
            floor += 1
        return floor

    def fits(self, payloads, *, dedup=False):
        messages, size = self.bounds
        floor = self.floor()
        count = len(self.log) - floor + len(payloads)
        total = sum(self.sizes[floor:]) + sum(self.size(each, dedup=dedup) for each in payloads)
        return (messages is None or count <= messages) and (size is None or total <= size)

    def add(self, payloads, *, dedup=False, padding=False):
        self.sizes += [self.size(each, dedup=dedup) for each in payloads]
        self.log += [None if padding else each for each in payloads]
        return range(len(self.log) - len(payloads), len(self.log))

    def ahead(self, name):
        """Indexes that this name has not finished."""
        first = max(self.heads[name], self.purged)
        return [index for index in range(first, len(self.log)) if self.log[index] is not None]

    def purge(self):
        self.purged = len(self.log)
        self.heads = dict.fromkeys(self.heads, self.purged)
