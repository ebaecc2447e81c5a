"""
The rivals, each behind the same verbs: open a channel, send into one end, take from the other.

Each adapter gives its rival the best settings that a reasonable user would find, and hands out the rival's own bound
methods, so that no layer of ours is measured. All of them carry bytes; none of them pickles.

Not here: what a trial is and how it is timed (trial.py).
"""

from __future__ import annotations

import abc
import functools
import importlib.metadata
import multiprocessing
import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

FORK = multiprocessing.get_context("fork")
"""The one start method that every rival can cross; several can only be inherited."""

LARGE = 64 << 10
"""From here on, a rival that has a way without copies uses it."""


class End:
    """One end of a channel, in one process: the rival's calls as they are."""

    def __init__(
        self,
        one: Callable[..., Any],
        many: Callable[..., Any] | None = None,
        close: Callable[[], Any] = lambda: None,
    ) -> None:
        """
        Take the calls of one end.

        Args:
            one: send(message) or take() -> message.
            many: send_many(messages) or take_many() -> messages; None where the rival has none.
            close: give back what this end holds.
        """
        self.one = one
        self.many = many
        self.close = close


class Channel(abc.ABC):
    """
    A way from one process to another. Made in the parent, opened by two children, removed by the parent.

    Attributes:
        label: its name in tables.
        batches: whether the rival has calls for many messages at once.
        messages: how many small messages make a trial of some tenths of a second.
    """

    label = ""
    batches = False
    messages = 0

    def __init__(self, place: str, size: int, batch: int) -> None:
        """
        Prepare what both ends share.

        Args:
            place: a directory of its own on the disk's file system; not made yet.
            size: bytes of the messages that are to come.
            batch: how many messages come at once.
        """
        self.place = place
        self.size = size
        self.batch = batch

    @classmethod
    def version(cls) -> str:
        """What exactly was measured."""
        return f"Python {platform.python_version()}"

    @abc.abstractmethod
    def sender(self) -> End:
        """The end that sends, opened in its process."""

    @abc.abstractmethod
    def taker(self) -> End:
        """The end that takes, opened in its process."""

    def remove(self) -> None:  # noqa: B027  # most leave nothing behind
        """Leave nothing behind."""


class Shmq(Channel):
    """shmq in a directory on disk, as it comes: checksums and timestamps on, ack="auto"."""

    label = "shmq"
    batches = True
    messages = 200_000
    wait: Literal["spin", "hybrid", "sleep"] = "hybrid"

    def __init__(self, place: str, size: int, batch: int) -> None:
        """Make the queue, so that both ends only open it."""
        super().__init__(place, size, batch)
        self._open().close()

    def _open(self) -> Any:
        import shmq

        return shmq.open(self.place)

    @classmethod
    def version(cls) -> str:
        """The package's."""
        return importlib.metadata.version("shmq")

    def sender(self) -> End:
        """A producer of its own."""
        queue = self._open()
        producer = queue.producer()
        return End(producer.put, producer.put_many, queue.close)

    def taker(self) -> End:
        """A consumer with a name."""
        queue = self._open()
        consumer = queue.consumer("bench", wait=self.wait)

        def close() -> None:
            consumer.close()
            queue.close()

        return End(consumer.take, functools.partial(consumer.take_many, self.batch), close)

    def remove(self) -> None:
        """Everything it wrote."""
        shutil.rmtree(self.place)


class ShmqSpins(Shmq):
    """The same, by whoever has a processor to spare for each waiter."""

    label = 'shmq, wait="spin"'
    wait = "spin"


class ShmqSleeps(Shmq):
    """The same, by whoever has none."""

    label = 'shmq, wait="sleep"'
    wait = "sleep"


class ShmqInMemory(Shmq):
    """The same directory on a file system in memory: what the disk's file system costs."""

    label = "shmq on /dev/shm"

    def __init__(self, place: str, size: int, batch: int) -> None:
        """Only the place differs."""
        super().__init__(f"/dev/shm/{Path(place).parent.name}-{Path(place).name}", size, batch)


class Zmq(Channel):
    """pyzmq PUSH/PULL over ipc: high-water marks that are never reached, no copies for large messages."""

    label = "pyzmq PUSH/PULL ipc"
    batches = True  # as one multipart message
    messages = 200_000
    marks = 1_000_000

    @classmethod
    def version(cls) -> str:
        """The binding's and the library's."""
        import zmq

        return f"{importlib.metadata.version('pyzmq')} (libzmq {zmq.zmq_version()})"

    def _socket(self, kind: str) -> tuple[Any, Callable[[], None]]:
        import zmq

        context = zmq.Context()
        socket = context.socket(getattr(zmq, kind))
        socket.set_hwm(self.marks)

        def close() -> None:
            socket.close()
            context.term()

        return socket, close

    def sender(self) -> End:
        """The end that connects."""
        socket, close = self._socket("PUSH")
        socket.connect(f"ipc://{self.place}")
        send = functools.partial(socket.send, copy=False) if self.size >= LARGE else socket.send
        return End(send, socket.send_multipart, close)

    def taker(self) -> End:
        """The end that binds."""
        socket, close = self._socket("PULL")
        socket.bind(f"ipc://{self.place}")

        def take_view() -> memoryview:
            return socket.recv(copy=False).buffer

        return End(take_view if self.size >= LARGE else socket.recv, socket.recv_multipart, close)

    def remove(self) -> None:
        """The socket's file."""
        Path(self.place).unlink(missing_ok=True)


class FasterFifo(Channel):
    """faster-fifo with room for many messages, and bytes passed as they are (its default is to pickle them)."""

    label = "faster-fifo"
    batches = True
    messages = 60_000
    room = 16 << 20

    def __init__(self, place: str, size: int, batch: int) -> None:
        """Its ring can only be inherited."""
        super().__init__(place, size, batch)
        import faster_fifo
        import faster_fifo_reduction  # noqa: F401  # as its documentation asks

        self._queue = faster_fifo.Queue(
            max_size_bytes=max(self.room, 4 * (size + 4096)), loads=bytes, dumps=lambda message: message
        )

    @classmethod
    def version(cls) -> str:
        """The package's."""
        return importlib.metadata.version("faster-fifo")

    def sender(self) -> End:
        """Both ends are the queue."""
        return End(self._queue.put, self._queue.put_many)

    def taker(self) -> End:
        """Both ends are the queue."""
        return End(self._queue.get, functools.partial(self._queue.get_many, max_messages_to_get=self.batch))


class ZeroQ(Channel):
    """zeroq, whose messages have one size: a ring of as many as fit into its room, four at least."""

    label = "zeroq"
    messages = 200_000
    room = 16 << 20

    def __init__(self, place: str, size: int, batch: int) -> None:
        """Make the ring, which goes with the object that made it."""
        super().__init__(place, size, batch)
        import zeroq

        self._name = f"shmq-bench-{os.getpid()}-{os.urandom(4).hex()}"
        capacity = max(self.room // size, 4)
        self._ring: Any = zeroq.Queue(name=self._name, element_size=size, capacity=capacity, create=True)

    @classmethod
    def version(cls) -> str:
        """The package's."""
        return importlib.metadata.version("zeroq")

    def _open(self) -> Any:
        import zeroq

        return zeroq.Queue(name=self._name, create=False)

    def sender(self) -> End:
        """Opened by its name."""
        queue = self._open()
        return End(queue.put)

    def taker(self) -> End:
        """Opened by its name."""
        queue = self._open()
        return End(queue.get)

    def remove(self) -> None:
        """The ring."""
        self._ring.close()


class HyperQ(Channel):
    """hyperq's queue for bytes, a ring of 16 MiB, or of four messages."""

    label = "hyperq"
    messages = 200_000
    room = 16 << 20

    def __init__(self, place: str, size: int, batch: int) -> None:
        """Make the ring, which goes with the object that made it."""
        super().__init__(place, size, batch)
        import hyperq

        self._ring: Any = hyperq.BytesHyperQ(
            max(self.room, 4 * (size + 4096)), name=f"shmq-bench-{os.getpid()}-{os.urandom(4).hex()}"
        )

    @classmethod
    def version(cls) -> str:
        """The package's."""
        return importlib.metadata.version("hyperq")

    def sender(self) -> End:
        """Both ends are the queue."""
        return End(self._ring.put)

    def taker(self) -> End:
        """Both ends are the queue."""
        return End(self._ring.get)

    def remove(self) -> None:
        """The ring."""
        self._ring = None


class Pipe(Channel):
    """multiprocessing.Pipe by send_bytes and recv_bytes: the fastest thing in the standard library."""

    label = "multiprocessing.Pipe"
    messages = 60_000

    def __init__(self, place: str, size: int, batch: int) -> None:
        """Two connected descriptors."""
        super().__init__(place, size, batch)
        self._read, self._write = FORK.Pipe(duplex=False)

    def sender(self) -> End:
        """The writing end."""
        return End(self._write.send_bytes, close=self._write.close)

    def taker(self) -> End:
        """The reading end."""
        return End(self._read.recv_bytes, close=self._read.close)

    def remove(self) -> None:
        """The parent's copies."""
        self._read.close()
        self._write.close()


class MultiprocessingQueue(Channel):
    """multiprocessing.Queue, without a bound."""

    label = "multiprocessing.Queue"
    messages = 30_000

    def __init__(self, place: str, size: int, batch: int) -> None:
        """It can only be inherited."""
        super().__init__(place, size, batch)
        self._queue: Any = FORK.Queue()

    def sender(self) -> End:
        """The end with the feeder thread."""

        def close() -> None:
            self._queue.close()
            self._queue.join_thread()

        return End(self._queue.put, close=close)

    def taker(self) -> End:
        """The other one."""
        return End(self._queue.get)

    def remove(self) -> None:
        """The parent's copies."""
        self._queue.close()


PEERS: tuple[type[Channel], ...] = (Shmq, ShmqInMemory, Zmq, FasterFifo, Pipe, MultiprocessingQueue)
