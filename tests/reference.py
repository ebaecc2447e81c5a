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


class Consumer:
    """A name. `head` is where it goes on after its death; `at` is where this holder of the name is."""

    def __init__(self, queue, ack="auto", start=0):
        self.queue, self.ack_mode, self.head, self.handed = queue, ack, start, start
        self.reopen()

    def reopen(self):
        self.at, self.handed_before, self.unacked = self.head, self.handed, {}

    def next(self):
        return self.queue.read(self.at)

    def hand_out(self, index, *, finished=False):
        """attempts, as a message says it: 2 stands for any number of times before this holder."""
        self.at, self.handed = index + 1, max(self.handed, index + 1)
        self.unacked[index] = self.ack_mode == "auto" or finished
        self._move_head()
        return 2 if self.ack_mode == "explicit" and index < self.handed_before else 1

    def ack(self, index):
        if index in self.unacked:
            self.unacked[index] = True
            self._move_head()

    def _move_head(self):
        while self.unacked and self.unacked[first := next(iter(self.unacked))]:
            del self.unacked[first]
            self.head = next(iter(self.unacked), self.at)

    def seek(self, index):
        self.head, self.handed = index, min(self.handed, index)
        self.reopen()

    @property
    def lag(self):
        behind = self.queue.log[self.head :]
        return len(behind) - behind.count(PAD) - sum(self.unacked.values())

    @property
    def passed(self):
        """The head, and the padding behind it: whoever finds nothing there goes on behind it."""
        log = self.queue.log
        return next((at for at in range(self.head, len(log)) if log[at] is not PAD), len(log))


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
