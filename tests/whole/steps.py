"""One step of the machine: which process does it, what it meets, and how a whole story is told again."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import rule

from tests.whole.model import now_ns
from tests.whole.pairs import Met

if TYPE_CHECKING:
    from collections.abc import Callable

MET = Met()
VERBS: dict[str, Callable[..., object]] = {}
TRACE = open(os.environ["SHMQ_TRACE"], "w") if "SHMQ_TRACE" in os.environ else None  # noqa: SIM115  # for a hang
PROCESSES = 3


FAULTS = (Exception, pytest.fail.Exception)
"""What a fault may be: what pytest raises where something was not raised is no Exception."""
FAILED: list[tuple[BaseException, list[Any]]] = []
"""The first fault, and the story that led there: Hypothesis tells it again, and may meet another one then."""


@contextlib.contextmanager
def noted(machine):
    """A fault in here is remembered."""
    try:
        yield
    except FAULTS as problem:
        if not FAILED:
            FAILED.append((problem, list(machine.story)))
        raise


def told(what: str, given: Any) -> None:
    """Write down what is about to be done, for what hangs."""
    if TRACE is not None:
        print(f"{what}({given})", file=TRACE, flush=True)


def first(machine, name: str, /, **given) -> None:
    """As a part of another verb, which needs what this one leaves behind."""
    VERBS[name](machine, **given)


def verb(when=None, **given):
    """
    A rule that one of the processes carries out, and whose meetings are counted.

    It says False when there was nothing that it could be done to. *when*: it can be done then only.
    """

    def made(check):
        VERBS[check.__name__] = check

        @functools.wraps(check)
        def counted(self, by=0, **named):
            if when is not None and not when(self):  # no precondition: what is drawn must not hang on what happened
                return
            self.story.append((check.__name__, copy.deepcopy({"by": by, **named})))
            told(check.__name__, {"by": by, **named})
            self.at = self.processes[by % len(self.processes)]
            self.log.now = now_ns()
            given = self.story[-1][1]
            features = self.features()
            before = self.story[:-1]
            MET.way(features, before)
            done = None
            with noted(self):
                with self.straits():
                    done = check(self, **named)
                self.learn()
            if done is not False:
                self.at.sits = True
                MET.verb(check.__name__, given, features, before)
                self.done.add(f"after {check.__name__}")

        del counted.__wrapped__  # or its signature would be taken for that of the rule
        return rule(by=st.integers(0, PROCESSES - 1), **given)(counted)

    return made
