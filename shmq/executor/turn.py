"""One task in its worker: whether it is to begin, what its code does, and what is put for its end."""

from __future__ import annotations

import faulthandler
import json
import os
import pickle
import random
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from shmq import errors
from shmq.executor import cancelling, functions, names, outcome, packing, task
from shmq.executor.failures import TaskDied, TaskExpired, TaskTimedOut
from shmq.executor.way_out import WayOut

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from shmq import Message, workers
    from shmq.executor.directory import Directory
    from shmq.executor.run_file import RunFile
    from shmq.executor.task import Task
    from shmq.executor.way_out import Put

_NEWER_PAUSE = 5.0
"""Seconds until a task of a newer version is looked at again: by a newer worker, if there is one."""
_DEATH_WITHIN = 0.5
"""Seconds that the last death's report is waited for."""
_JITTER = 0.5
"""A retry waits between this and once what its back-off says."""
_KINDS_MOST = 1024
LIMIT = b"limit"
"""Said to the starter when a task begins that has a time limit."""


class _Plain(NamedTuple):
    """
    A kind of task that was done here before.

    Attributes:
        function: what it calls.
        main: the module that is to be `__main__`; None for any.
        size: bytes of the payload before what is packed.
    """

    function: Callable[..., Any]
    main: ModuleType | None
    size: int


class Turns:
    """What a worker needs for its tasks."""

    def __init__(self, directory: Directory, run_file: RunFile, life: workers.Life, trace: TextIO) -> None:
        """*trace* is where the interpreter writes what it was at when it dies."""
        self._trace = trace
        self._directory = directory
        self._run_file = run_file
        self._say = life.say
        self._cancelled = cancelling.Cancelled(directory)
        self._results, self._kept = directory.queue(names.RESULTS), directory.queue(names.KEPT)
        self._way_out = WayOut(directory.path, lambda: life.ending)
        self._pid = os.getpid()
        self._plain: dict[bytes, _Plain] = {}

    def take(self, message: Message[bytes]) -> None:
        """Do what is to be done about a message, and finish it."""
        payload = message.payload
        common = task.plain_of(payload) if message.attempts == 1 else None
        plain = None if common is None else self._plain.get(common)
        try:
            if plain is not None and functions.is_main(plain.main):
                self._take_plain(message, payload, plain)
            else:
                self._take_any(message, payload, common)
        except errors.TooLarge as problem:  # its outcome
            self._finish(message, task.read(payload), outcome.ERROR, outcome.of_error(problem, ""), 0)
            self._run_file.idle()

    def _take_plain(self, message: Message[bytes], payload: bytes, plain: _Plain) -> None:
        """One of a kind that was done before, and has nothing but a function and arguments."""
        id_ = task.id_in(payload)
        run_file = self._run_file
        run_file.start(id_, 1, 0, 0.0)
        if self._cancelled.how(id_) is not None:
            found = task.read(payload)
            run_file.end()
            self._finish(message, found, outcome.CANCELLED, b"", 0)
            run_file.idle()
            return
        run_file.run()
        began = time.time_ns()
        problem: BaseException | None = None
        try:
            if payload.endswith(packing.NO_ARGUMENTS, plain.size):
                content = _packed(plain.function())
            else:
                args, kwargs = packing.unpack(payload[plain.size :])
                content = _packed(plain.function(*args, **kwargs))
        except BaseException as raised:  # noqa: BLE001  # as in _run
            problem = raised
        run_file.end()
        if problem is None:
            ended = time.time_ns()
            value = outcome.packed_value(id_, self._pid, began, ended, content)
            self._way_out.hand_over_one(message, self._results, value, id_, task.type_of(payload), ended)
        else:
            self._fail(message, task.read(payload), problem, began)
        run_file.idle()

    def _take_any(self, message: Message[bytes], payload: bytes, common: bytes | None) -> None:
        try:
            found = task.read(payload)
        except errors.BadFormat:
            message.nack(delay=_NEWER_PAUSE)
            return
        except errors.Corrupt as problem:
            message.reject(problem)
            return
        self._run_file.start(found.id, message.attempts, task.boot_ns(), found.limit)
        if self._cancelled.how(found.id) is not None:
            self._run_file.end()
            self._finish(message, found, outcome.CANCELLED, b"", 0)
        elif message.attempts > found.max_attempts:
            self._refuse(message, found, self._death)
        elif found.expired():
            self._refuse(message, found, _too_late)
        else:
            self._run(message, found)
            if common is not None:
                self._learn(common, found)
        self._run_file.idle()

    def _learn(self, common: bytes, found: Task) -> None:
        """What the next one of that kind need not be looked at for."""
        if found.name and not (found.keyed or found.limit or found.deadline or found.policy):
            try:
                function = functions.find(found.name)
            except BaseException:  # noqa: BLE001  # which was its outcome
                return
            if len(self._plain) >= _KINDS_MOST:
                self._plain.clear()
            self._plain[common] = _Plain(function, functions.main_of(found.main), task.size_before(common))

    # ---- its code
    def _run(self, message: Message[bytes], found: Task) -> None:
        self._run_file.run()
        if found.limit:
            self._say(LIMIT)
            faulthandler.dump_traceback_later(found.limit, file=self._trace)
        began = time.time_ns()
        problem: BaseException | None = None
        content = b""
        try:
            content = _called(found)
        except BaseException as raised:  # noqa: BLE001  # SystemExit, too, is the task's result, and not the worker's end
            problem = raised
        self._run_file.end()
        if found.limit:
            faulthandler.cancel_dump_traceback_later()
        if problem is None:
            self._finish(message, found, outcome.VALUE, content, began)
            return
        self._fail(message, found, problem, began)

    def _fail(self, message: Message[bytes], found: Task, problem: BaseException, began: int) -> None:
        text = _told(problem)
        if found.policy and self._retried(message, found, problem, text, began):
            return
        self._finish(message, found, outcome.ERROR, outcome.of_error(problem, text), began)

    def _retried(self, message: Message[bytes], found: Task, problem: BaseException, text: str, began: int) -> bool:
        """Whether this exception ends the attempt, and not the task."""
        kinds, first, most = pickle.loads(found.policy)  # noqa: S301  # in a directory that is the user's own
        if not isinstance(problem, kinds):
            return False
        if message.attempts < found.max_attempts:
            pause = min(first * 2.0 ** min(message.attempts - 1, 60), most)
            message.nack(delay=pause * random.uniform(_JITTER, 1.0))  # noqa: S311  # so that not all come at once
            return True
        reason = f"raised {type(problem).__name__} at each of {message.attempts} attempts"
        letter = self._letter(message, found, "failed", reason, text, {})
        self._finish(message, found, outcome.ERROR, outcome.of_error(problem, text), began, letter)
        return True

    # ---- its end
    def _refuse(self, message: Message[bytes], found: Task, why: Any) -> None:
        self._run_file.end()
        problem, letter = why(message, found)
        self._finish(message, found, outcome.ERROR, packing.pack((problem, "")), 0, letter)

    def _finish(
        self,
        message: Message[bytes],
        found: Task,
        state: int,
        content: bytes,
        began: int,
        letter: Put | None = None,
    ) -> None:
        """Put its outcome, and what goes with it, and finish its message."""
        ended = outcome.Outcome(
            state, found.id, message.attempts, self._pid, began, time.time_ns(), content, found.name
        )
        puts: list[Put] = [(self._results, ended.packed(), {"key": found.id, "type": found.submitter & 0xFFFF})]
        if found.keyed:
            puts.insert(0, (self._kept, ended.packed(named=True), {"key": message.key}))
        if letter is not None:
            puts.append(letter)
        self._way_out.hand_over(message, puts)

    # ---- deaths
    def _death(self, message: Message[bytes], found: Task) -> tuple[BaseException, Put]:
        """What is told of a task that ended its worker each time."""
        times = message.attempts - 1
        told = self._last_death(found.id, times)
        status, peak = told.get("exitcode"), told.get("peak")
        limit = told.get("why") == "limit"
        kind = TaskTimedOut if limit else TaskDied
        how = f"took longer than its {found.limit:g} s" if limit else "ended its worker"
        last = told.get("how", "how the last one ended is not known: its starter is gone")
        memory = "" if peak is None else f"; it had {peak >> 20} MiB at least"
        reason = f"{found.name or 'a task'} {how} {'once' if times == 1 else f'{times} times'}; {last}{memory}"
        problem = kind(f"{reason}. It is in the dead letters", exitcode=status, peak=peak, attempts=times)
        more = {"shmq.exitcode": status, "shmq.peak": peak}
        return problem, self._letter(
            message, found, "timeout" if limit else "died", reason, told.get("trace", ""), more
        )

    def _last_death(self, id_: bytes, attempt: int) -> dict[str, Any]:
        """What the starter of the worker that had it last has said, if it says so in time."""
        deaths = self._directory.queue(names.DEATHS)
        end = time.monotonic() + _DEATH_WITHIN
        while True:
            with deaths.reader(reverse=True) as reader:
                for each in reader:
                    if each.key == id_:
                        said: dict[str, Any] = json.loads(each.payload)
                        if said["attempt"] == attempt:
                            return said
                        break
            if time.monotonic() > end:
                return {}
            time.sleep(0.01)

    def _letter(
        self, message: Message[bytes], found: Task, cause: str, reason: str, text: str, more: dict[str, Any]
    ) -> Put:
        """A dead letter, as `shmq dead` shows them and puts them back."""
        source = self._directory.queue(names.TASKS[found.priority])
        headers = {
            "shmq.origin": [source.id, "", message.index, names.GROUP, 0],
            "shmq.queue": source.path,
            "shmq.index": message.index,
            "shmq.group": names.GROUP,
            "shmq.cause": cause,
            "shmq.reason": reason,
            "shmq.attempts": message.attempts,
            "shmq.traceback": text,
            "shmq.task": found.name,
            **more,
        }
        return self._directory.queue(names.DEAD), message.payload, {"key": message.key, "headers": headers}

    def close(self) -> None:
        """Let go of what it has."""
        self._cancelled.close()


def _called(found: Task) -> bytes:
    """
    What the function returns, packed.

    Raises:
        Whatever the function, or finding it, or packing what it returns, does.
    """
    if found.main:
        functions.use_main(found.main)
    if found.name:
        args, kwargs = packing.unpack(found.content)
        value = functions.find(found.name)(*args, **kwargs)
    else:
        function, args, kwargs = packing.unpack(found.content)
        value = function(*args, **kwargs)
    return _packed(value)


def _packed(value: object) -> bytes:
    try:
        return packing.pack(value)
    except Exception as refusal:
        outcome.unsendable(refusal, value)
        raise


def _told(problem: BaseException) -> str:
    """Its traceback from the task's own code on, in words."""
    trace = problem.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    try:
        return "".join(traceback.format_exception(type(problem), problem, trace or problem.__traceback__))
    except Exception:  # noqa: BLE001  # of its own __str__
        return f"{type(problem).__name__}, which cannot be told: {sys.exc_info()[1]!r:.200}"


def _too_late(message: Message[bytes], found: Task) -> tuple[BaseException, None]:  # noqa: ARG001  # as `_death`
    name = found.name or "the task"
    return TaskExpired(f"{name} was not run: its deadline had passed when a worker came to it"), None
