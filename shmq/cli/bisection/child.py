"""
One run of a handler over some messages: what the process does that `runs` starts.

It says where it is on a shared page before each message, so that its death tells at which one it was; and at its end,
if it comes to one, what it found, as JSON.
"""

from __future__ import annotations

import base64
import ctypes
import faulthandler
import importlib.util
import json
import mmap
import os
import resource
import signal
import struct
import sys
import traceback
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import handlers, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BOARD = struct.Struct("<qqq")
"""On the shared page: what it is doing, the index of the message that it is at, and how many it has begun."""
PAGE = mmap.PAGESIZE
STARTING, HANDLING, CHECKING = range(3)
_PR_SET_PDEATHSIG = 1


def main(parent: int, request: int, board: int, answer: int) -> None:
    """Run what the descriptor *request* says, and end the process."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # it may die twenty times
    with open(request, encoding="utf-8") as text:
        asked = json.load(text)
    page = mmap.mmap(board, PAGE)
    found = _run(asked, lambda *words: BOARD.pack_into(page, 0, *words))
    with open(answer, "w", encoding="utf-8") as text:
        json.dump(found, text)
    os._exit(0)  # whatever threads the handler has started


def _run(asked: dict[str, Any], at: Callable[[int, int, int], None]) -> dict[str, Any]:
    try:
        handler = handlers.find(asked["handler"])
        check: Callable[..., object] | None = handlers.find(asked["check"]) if asked["check"] else None
        messages = of_case(asked["case"]) if asked["case"] else _of_queue(asked)
        index, count = -1, 0
        for count, message in enumerate(messages, 1):
            index = message.index
            at(HANDLING, index, count)
            try:
                handler(message)
            except BaseException as problem:  # noqa: BLE001  # whatever it raises is its failure
                return _failure(problem, index, count)
        if check is not None:
            at(CHECKING, index, count)
            try:
                if check() is False:
                    return {"kind": "check", "index": index, "count": count, "what": f"{asked['check']} returned False"}
            except BaseException as problem:  # noqa: BLE001
                return _failure(problem, index, count) | {"kind": "check"}
    except (show.Problem, shmq.ShmqError, OSError, SystemExit) as problem:
        return {"kind": "problem", "what": show.one_line(problem)}
    return {"kind": "none", "index": None, "count": count}


def _failure(problem: BaseException, index: int, count: int) -> dict[str, Any]:
    text = "".join(traceback.format_exception(problem.with_traceback(_without_ours(problem))))
    frames = traceback.extract_tb(problem.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    what = f"{type(problem).__qualname__}: {show.one_line(problem)}"
    return {
        "kind": "raised",
        "index": index,
        "count": count,
        "what": what,
        "type": f"{type(problem).__module__}.{type(problem).__qualname__}",
        "place": place,
        "text": text,
    }


def _without_ours(problem: BaseException) -> Any:
    """Its traceback from the handler's own first line on; from ours where the call itself failed."""
    trace = problem.__traceback__
    return trace.tb_next or trace if trace is not None else None


def _of_queue(asked: dict[str, Any]) -> Iterator[shmq.Message]:
    wanted = None
    if asked["key_prefix"] or asked["types"] is not None or asked["headers"]:
        prefix = base64.b64decode(asked["key_prefix"])
        wanted = shmq.Filter(key_prefix=prefix, types=asked["types"], headers=asked["headers"])
    with show.open_queue(asked["queue"], read_only=True, trusted=asked["trusted"]) as queue:
        for first, stop in asked["ranges"]:
            yield from queue.reader(first, stop, filter=wanted)


def of_case(path: str) -> Iterator[shmq.Message]:
    """The messages of a case, by its own words for reading them."""
    spec = importlib.util.spec_from_file_location("_shmq_case", path)
    if spec is None or spec.loader is None:
        raise show.Problem(f"cannot load the case {path}: it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    messages: Iterator[shmq.Message] = module.messages()
    return messages
