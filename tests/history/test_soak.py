"""Five seconds of the soak. The long run: python -m tests.history.soak --seconds 28800"""

from __future__ import annotations

import subprocess
import sys

from tests.history.conftest import ROOT
from tests.history.processes import PATIENCE


def test_five_seconds_with_random_kills_lose_nothing():
    """Four producers, four consumers and one with explicit acks: lost 0, doubled 0 beyond the promise, hangs 0."""
    command = [sys.executable, "-m", "tests.history.soak", "--seconds", "5", "--deaths", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * PATIENCE, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    print(done.stdout)
