"""What the processes of an experiment do until they are killed, or asked to end."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import queue as queues
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli.experiment import notes

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.queues import Queue

GROUP, ALONE = "workers", "auditor"
_PR_SET_PDEATHSIG = 1
_LOOK = 0.2
"""Seconds after which a consumer that gets nothing looks whether it shall end."""
_BATCHES, _BATCH = 0.1, 5
_BURST, _PACE = 10, 0.005
"""So many puts, then so many seconds of rest."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """Where an experiment plays: a queue of ours in a directory, or one of multiprocessing's."""

    directory: str
    theirs: Queue[bytes] | None = None

    @property
    def queue(self) -> str:
        """The path of ours."""
        return os.path.join(self.directory, "queue")

    @property
    def errors(self) -> str:
        """What processes that end with an error say."""
        return os.path.join(self.directory, "errors")

    @property
    def end(self) -> str:
        """Who sees this file puts no more, and leaves when nothing comes any more."""
        return os.path.join(self.directory, "end")

    def notebook(self, life: int) -> str:
        """The file of that life's notes."""
        return os.path.join(self.directory, f"notes-{life}")


def play(role: Callable[[Stage, int, int], None], stage: Stage, life: int, seed: int) -> None:
    """Play *role* in a process that goes with its parent; Ctrl-C is its parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = os.getppid()
    os.dup2(os.open(stage.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == parent:
        role(stage, life, seed)


def produce(stage: Stage, life: int, seed: int) -> None:
    """Put one message after the other into our queue, now and then some at once, and note what each put returned."""
    chance, notebook = random.Random(seed), notes.Notebook(stage.notebook(life))  # noqa: S311  # which, not secret
    number = 0
    with shmq.open(stage.queue, create=False) as queue:
        while not os.path.exists(stage.end):
            together = _BATCH if chance.random() < _BATCHES else 1
            numbers = range(number, number + together)
            payloads = [notes.payload(life, each, together) for each in numbers]
            notebook.note_all(notes.TRIED, life, numbers, [together] * together)
            indexes = queue.put_many(payloads) if together > 1 else [queue.put(payloads[0])]
            notebook.note_all(notes.PUT, life, numbers, indexes)
            number += together
            _rest(number)


def consume_in_group(stage: Stage, life: int, seed: int) -> None:  # noqa: ARG001  # as the others
    """Take from our queue with others, and acknowledge each message."""
    notebook = notes.Notebook(stage.notebook(life))
    with shmq.open(stage.queue, create=False) as queue, queue.consumer(GROUP, group=True, ack="explicit") as member:
        while True:
            try:
                message = member.get(timeout=_LOOK)
            except shmq.Empty:
                if os.path.exists(stage.end):
                    return
                continue
            _note(notebook, bytes(message.view), message.index)
            member.ack(message)
            notebook.note(notes.ACKED, index=message.index)


def consume_alone(stage: Stage, life: int, seed: int) -> None:  # noqa: ARG001
    """Take from our queue by a name of one's own, each message finished as it is handed out."""
    notebook = notes.Notebook(stage.notebook(life))
    with shmq.open(stage.queue, create=False) as queue, queue.consumer(ALONE) as consumer:
        while True:
            try:
                message = consumer.get(timeout=_LOOK)
            except shmq.Empty:
                if os.path.exists(stage.end):
                    return
                continue
            _note(notebook, bytes(message.view), message.index)


def produce_theirs(stage: Stage, life: int, seed: int) -> None:  # noqa: ARG001
    """The same into multiprocessing.Queue, whose put returns when the message is in this process's memory."""
    notebook, number, queue = notes.Notebook(stage.notebook(life)), 0, _theirs(stage)
    while not os.path.exists(stage.end):
        notebook.note(notes.TRIED, life, number, 1)
        queue.put(notes.payload(life, number))
        notebook.note(notes.PUT, life, number)
        number += 1
        _rest(number)
    queue.close()
    queue.join_thread()


def consume_theirs(stage: Stage, life: int, seed: int) -> None:  # noqa: ARG001
    """The same from multiprocessing.Queue."""
    notebook, queue = notes.Notebook(stage.notebook(life)), _theirs(stage)
    while True:
        try:
            _note(notebook, queue.get(timeout=_LOOK), -1)
        except queues.Empty:
            if os.path.exists(stage.end):
                return


def put_and_wait(stage: Stage, life: int, items: int) -> None:
    """Put so many, and wait to be killed: the experiment of the README."""
    notebook = notes.Notebook(stage.notebook(life))
    ours = None if stage.theirs else shmq.open(stage.queue, create=False)
    put: Any = _theirs(stage).put if ours is None else ours.put
    item = bytes(1000)
    for _ in range(items):
        put(item)
    notebook.note(notes.PUT, life, items)
    time.sleep(3600)


def _rest(number: int) -> None:
    if number % _BURST == 0:
        time.sleep(_PACE)


def _theirs(stage: Stage) -> Queue[bytes]:
    assert stage.theirs is not None  # noqa: S101  # it was made with one
    return stage.theirs


def _note(notebook: notes.Notebook, data: bytes, index: int) -> None:
    known = notes.told(data)
    if known is None:
        notebook.note(notes.BAD, index=index)
    else:
        notebook.note(notes.GOT, known[0], known[1], index)
