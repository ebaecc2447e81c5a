"""The short share of the fuzzing of a living queue; `python tests/fuzz/living.py` runs as long as you like."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import share as share_of

import shmq

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("fuzz_living", Path(__file__).with_name("living.py"))
living = importlib.util.module_from_spec(spec)
spec.loader.exec_module(living)
sys.path.insert(0, str(ROOT))
from tests.fuzz import sanitized  # noqa: E402


def test_whatever_is_written_into_a_living_queue_every_call_ends_with_a_result_or_an_error_of_ours():
    assert living.loop(0, cases=8) == (8, 6 * 17 + 2, [])


SHARES = share_of(2)  # each builds the core anew


@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", range(SHARES))
def test_under_the_sanitizers_a_living_queue_bears_what_is_written_into_it(share):
    """SHMQ_LIVING=100000 for more; a thousand mutants take some 20 seconds of one core."""
    if reason := sanitized.why_not():
        pytest.skip(reason)
    mutants = int(os.environ.get("SHMQ_LIVING") or share_of(500)) // SHARES
    words = ["--living", "--seconds", "800", "--mutants", mutants, "--seed", 1000 + share * (mutants // 13)]
    command = [sys.executable, "-m", "tests.fuzz.sanitized", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=880)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-8000:]


def test_the_fuzzer_tells_of_raw_errors_crashes_and_calls_that_never_end(monkeypatch, capfd):
    """Each with the seed that repeats it."""
    monkeypatch.setattr(living, "CALLS", 100)
    monkeypatch.setattr(living, "CALL_SECONDS", 0.5)

    def broken(queue):
        raise AttributeError("raw")

    def endless(queue):
        while True:
            pass

    for work, told in {broken: "AttributeError: raw", endless: "stats: it does not end"}.items():
        monkeypatch.setattr(shmq.Queue, "stats", work)
        _, _, wrong = living.loop(1, cases=1)
        assert told in "".join(wrong)
        assert "seed 1" in wrong[0]
    monkeypatch.setattr(shmq.Queue, "stats", lambda queue: os.kill(os.getpid(), signal.SIGKILL))
    _, _, wrong = living.loop(1, cases=1)
    assert wrong == ["seed 1: killed by signal 9"]
    assert "seed 1" in capfd.readouterr().err


def test_found_a_process_that_the_sanitizer_ended_was_passed_over(monkeypatch):
    """It ends with status 1; only a signal was looked for, and the rest of its cases counted for nothing."""
    monkeypatch.setattr(living, "once", lambda *_: os._exit(1))
    _, _, wrong = living.loop(1, cases=1)
    assert wrong == ["seed 1: ended with status 1"]
