"""
Names that users of `queue.Queue` and `multiprocessing.Queue` try first, and that do not exist here: what to use.

They cost nothing: a descriptor in the class, which is found only by whoever asks for that name, and hidden from dir().
"""

from __future__ import annotations

from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NoReturn

_CONSUMER = (
    "a queue hands messages out through its consumers: queue.consumer(name).take(). Every name sees every message; "
    "with group=True the processes of one name share them"
)
_LEFT = "consumer.lag is how many messages a consumer has before it, and len(queue) how many there are for all of them"
_DONE = (
    'messages are finished one by one: message.ack(), of a consumer(name, ack="explicit"); all is finished '
    "when its lag is 0"
)
_THREAD = "a message is in the queue when put() returns, and there is no thread to wait for"

OF_QUEUES = {
    "get": _CONSUMER,
    "get_nowait": f"{_CONSUMER}; take(timeout=0) does not wait",
    "put_nowait": "put(payload, timeout=0) does not wait",
    "empty": _LEFT,
    "qsize": _LEFT,
    "full": "put(payload, timeout=0) raises shmq.Full at a bound, and stats() tells the bounds",
    "task_done": _DONE,
    "join": _DONE,
    "join_thread": _THREAD,
    "cancel_join_thread": _THREAD,
}
OF_CONSUMERS = {
    "get_nowait": "get(timeout=0) and take(timeout=0) do not wait",
    "empty": "lag is how many messages it has before it",
    "qsize": "lag is how many messages it has before it",
    "task_done": 'message.ack() says that a message is finished, of a consumer(name, ack="explicit")',
    "put": "queue.put(payload) puts",
    "nack": "message.nack() gives one back",
    "reject": "message.reject(reason) has one go to the dead letters",
}


class Absent:
    """An attribute that is not there, and says what is."""

    def __init__(self, owner: str, name: str, instead: str) -> None:
        """Of that class, under that name."""
        self._said = f"shmq.{owner} has no {name}: {instead}"
        self._name = name

    def __get__(self, thing: object, owner: type | None = None) -> NoReturn:
        """Say so."""
        raise AttributeError(self._said, name=self._name, obj=None)  # of None there is nothing to be suggested


def tell(owner: type, instead: dict[str, str]) -> None:
    """Have that class say, for each of these names, what to use."""
    for name, text in instead.items():
        setattr(owner, name, Absent(owner.__name__, name, text))
