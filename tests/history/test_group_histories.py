"""Forty small histories of groups, judged. The long run: make histories"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.history import groups
from tests.history.conftest import ROOT
from tests.history.processes import PATIENCE

HISTORIES = 10
FIRST_SEED = int(os.environ.get("SHMQ_SEED", time.time_ns() // 1_000_000_000 * 1000))


@pytest.mark.parametrize("share", range(4))
def test_histories_of_groups_keep_the_promises(share):
    """Two to seven members take, finish, give back, are killed, stopped and started again; the judge finds nothing."""
    seed = FIRST_SEED + share * HISTORIES
    command = [sys.executable, "-m", "tests.history.groups", "--seed", str(seed), "--histories", str(HISTORIES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=5 * PATIENCE, check=False)
    assert done.returncode == 0, f"{' '.join(command[1:])}\n{done.stdout}\n{done.stderr}"


GOOD = ["0 1 had_it 0 1", "1 1 returns 0 1", "2 2 had_it 0 2", "3 2 finishing 0 2", "4 2 finishes 0 2"]
REST = [f"9 1 {word} {i} 1" for i in range(1, groups.MESSAGES) for word in ("had_it", "finishing", "finishes")]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (GOOD, ""),
        (GOOD[:1] + GOOD[2:], "lived and had it"),
        (["0 9 kills 1 0", "0 1 had_it 0 1", *GOOD[2:]], ""),
        (GOOD[2:], ""),
        ([*GOOD, "5 3 had_it 0 3"], "handed out as attempt 3"),
        ([*GOOD, "5 3 had_it 0 2"], "handed out twice"),
        ([*GOOD, "5 2 finishes 0 2"], "finished twice"),
        (GOOD[:1], "never finished"),
        ([], "never handed out"),
    ],
)
def test_the_judge_sees_what_is_wrong(lines, words):
    """By example."""
    wrong = groups.judge("\n".join([*lines, *REST]))
    assert (wrong == []) == (not words)
    assert any(words in each for each in wrong) or not words
