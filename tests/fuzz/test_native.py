"""The short share of the fuzzing of our own files; `python tests/fuzz/native.py` runs as long as you like."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("fuzz_native", Path(__file__).with_name("native.py"))
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)


@pytest.mark.filterwarnings("ignore:.*moved back to the end:RuntimeWarning")
def test_whatever_the_bytes_everything_ends_and_nothing_comes_from_nowhere():
    assert native.loop(0, rounds=25) == 25
