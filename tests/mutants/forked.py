"""
A pytest that has collected its tests once, and tries them on one mutant after the other, each in a fork of itself.

A plugin, for `python -m pytest -p tests.mutants.forked`, started by campaign.py: what to try comes as a line of JSON
over one pipe, and whether a test noticed goes back over another. In the fork the function that is changed gets its new
code, wherever it is; nothing is imported again.
"""

from __future__ import annotations

import collections
import gc
import json
import os
import signal
import time
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from .sites import Site, mutated

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    import pytest

PIPES = "SHMQ_MUTANTS_PIPES"
SURVIVED, CAUGHT, ELSEWHERE = range(3)
"""ELSEWHERE: what is changed is no function's code, so only a new interpreter has it."""


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Instead of running all tests once."""
    asked, answered = (os.fdopen(int(fd), mode) for fd, mode in zip(os.environ[PIPES].split(), "rw", strict=True))
    by_name: dict[str, list[pytest.Item]] = collections.defaultdict(list)
    for item in session.items:
        by_name[item.nodeid.partition("[")[0]].append(item)
    for line in asked:
        wanted = json.loads(line)
        items = [item for name in wanted["tests"] for item in by_name.get(name, ())]
        answered.write(f"{tried(session, items, wanted)}\n")
        answered.flush()
    return True


def tried(session: pytest.Session, items: list[pytest.Item], wanted: dict[str, Any]) -> int:
    """CAUGHT when one of these tests fails on that mutant, or hangs; SURVIVED when none does; or ELSEWHERE."""
    functions = changed_functions(Path(wanted["path"]), Site(*wanted["site"]))
    if not functions:
        return ELSEWHERE
    from support import start  # where it lies, pytest knows by now

    pid = start(live, session, items, functions, wanted["loud"])
    watched = os.pidfd_open(pid)
    until = time.monotonic() + wanted["limit"]
    while time.monotonic() < until and not os.waitid(os.P_PIDFD, watched, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.005)
    for target in (-pid, pid):
        try:
            os.kill(target, signal.SIGKILL)
        except ProcessLookupError:
            continue
    _, status = os.waitpid(pid, 0)
    os.close(watched)
    return CAUGHT if status else SURVIVED


def quiet() -> None:
    """What tests and pytest say is for nobody."""
    null = os.open(os.devnull, os.O_WRONLY)
    for fd in (1, 2):
        os.dup2(null, fd)


def live(
    session: pytest.Session, items: list[pytest.Item], functions: list[tuple[FunctionType, CodeType]], loud: bool
) -> None:
    """In the fork: change them, and run one test after the other, up to the first that fails."""
    os.setpgid(0, 0)
    if not loud:
        quiet()
    for function, code in functions:
        function.__code__ = code
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        assert not session.testsfailed, item.nodeid


# ---------------------------------------------------------------- new code for a function that is there
def codes(code: CodeType) -> Iterator[CodeType]:
    """Those of the functions of a module: what is defined in one is part of its code."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            if not each.co_flags & 1:  # the body of a class
                yield from codes(each)


def compiled(tree: ast.Module, path: Path) -> dict[tuple[str, int], CodeType]:
    """By name and line, which no mutant changes."""
    return {(each.co_qualname, each.co_firstlineno): each for each in codes(compile(tree, str(path), "exec"))}


def changed_functions(path: Path, site: Site) -> list[tuple[FunctionType, CodeType]]:
    """Every function that was made of what is changed, with the code of the mutant; none if that is no function's."""
    source = path.read_text()
    known = compiled(mutated(source), path)
    now = compiled(mutated(source, site), path)
    changed = {key: code for key, code in now.items() if code != known[key]}
    return [
        (each, code)
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        and Path(each.__code__.co_filename).parts[-2:] == path.parts[-2:]
        and (code := changed.get((each.__code__.co_qualname, each.__code__.co_firstlineno)))
    ]
