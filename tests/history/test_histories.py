"""Forty histories from real processes, judged. The long run: python -m tests.history.campaign --histories 100000"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from support import share as share_of

from tests.history.conftest import ROOT
from tests.history.processes import PATIENCE

HISTORIES, OPERATIONS = 5, 400
FIRST_SEED = int(os.environ.get("SHMQ_SEED", time.time_ns() // 1_000_000_000 * 1000))


@pytest.mark.parametrize("share", range(share_of(8)))
def test_histories_keep_the_promises(share):
    """
    2 to 16 processes put, get, acknowledge, are killed, stopped and started again; the judge finds nothing wrong.
    """
    seed = FIRST_SEED + share * HISTORIES
    command = [sys.executable, "-m", "tests.history.campaign", "--seed", str(seed)]
    command += ["--histories", str(HISTORIES), "--operations", str(OPERATIONS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=4 * PATIENCE, check=False)
    assert done.returncode == 0, f"{' '.join(command[1:])}\n{done.stdout}\n{done.stderr}"
