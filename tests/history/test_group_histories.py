"""300 small histories of groups, judged. The long run: make histories"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from support import share as share_of

from tests.history import groups
from tests.history.conftest import ROOT
from tests.history.processes import PATIENCE

HISTORIES = 50
FIRST_SEED = int(os.environ.get("SHMQ_SEED", time.time_ns() // 1_000_000_000 * 1000))


@pytest.mark.parametrize("share", range(share_of(6)))
def test_histories_of_groups_keep_the_promises(share):
    """Two to seven members take, finish, give back, are killed, stopped, started again; every second has keys."""
    seed = FIRST_SEED + share * HISTORIES
    command = [sys.executable, "-m", "tests.history.groups", "--seed", str(seed), "--histories", str(HISTORIES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=5 * PATIENCE, check=False)
    assert done.returncode == 0, f"{' '.join(command[1:])}\n{done.stdout}\n{done.stderr}"


GOOD = ["0 1 had_it 0 1", "1 1 returns 0 1", "2 2 had_it 0 2", "3 2 finishing 0 2", "4 2 finishes 0 2"]
REST = [f"9 1 {word} {i} 1" for i in range(1, groups.MESSAGES) for word in ("had_it", "finishing", "finishes")]


def said(lines):
    """As the log has them."""
    return "\n".join(f"{line} ." for line in lines)


def test_a_line_that_a_kill_has_cut_is_left_out():
    assert groups.judge(said([*GOOD, *REST]).replace("\n1 1 returns", "\n1 1 had_\n1 1 returns")) == []


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
    wrong = groups.judge(said([*lines, *REST]))
    assert (wrong == []) == (not words)
    assert any(words in each for each in wrong) or not words


@pytest.mark.parametrize(
    ("keys", "had_it", "finishing", "words"),
    [
        (1, 5, 4, ""),
        (1, 4, 5, "2 was handed out before 1 of its key was finished"),
        (3, 4, 5, ""),
        (0, 4, 5, ""),
    ],
)
def test_the_judge_sees_what_is_out_of_order(keys, had_it, finishing, words):
    """When message 2 was handed out, and when message 1 began to be finished; with one key, with three, with none."""
    lines = [f"0 1 keys {keys} 0", "1 1 had_it 1 1", f"{had_it} 2 had_it 2 1"]
    lines += [f"{finishing} 1 finishing 1 1", "6 1 finishes 1 1", "7 2 finishing 2 1", "8 2 finishes 2 1"]
    wrong = groups.judge(said([*GOOD, *lines, *REST[6:]]))
    assert wrong == [words] * bool(words)
