"""
native.py, or tests, with a core built with AddressSanitizer and UndefinedBehaviorSanitizer, in a folder of its own.

    python -m tests.fuzz.sanitized [--seconds N] [--seed N]
    python -m tests.fuzz.sanitized --tests [PATH ...]

Tests run in one process, with garbage collected all the time: what is freed too early is found where it is used.

What the sanitizers find ends the run, with their words and exit status 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
SUITES = ("tests/unit", "tests/history/test_found.py", "tests/property")
NOT_HERE = ("-m", "not slow", "-k", "not memory_does_not_grow")
"""The sanitizer keeps what is freed for a while."""
OPTIONS = "detect_leaks=0:abort_on_error=0:exitcode=1"  # the interpreter keeps memory until its end


def why_not() -> str:
    """Why it cannot run here; empty when it can."""
    if shutil.which("gcc") is None:
        return "gcc is needed to build the core"
    library = _library("libasan.so")
    return "" if Path(library).is_absolute() else "gcc's libasan is not installed"


def _library(name: str) -> str:
    return subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()


def build(folder: Path) -> Path:
    """The library with a sanitized core, and the tests, below *folder*."""
    tree = folder / "tree"
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)],
        env={**os.environ, "SHMQ_CFLAGS": FLAGS},
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tree)
    shutil.copytree(ROOT / "tests", tree / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    return tree


def main() -> int:
    """Build, and fuzz."""
    parser = argparse.ArgumentParser(prog="tests.fuzz.sanitized")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="*", metavar="PATH", help=f"instead of fuzzing (default: {' '.join(SUITES)})")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"nothing was fuzzed: {reason}")
        return 2
    with tempfile.TemporaryDirectory(prefix="shmq-sanitized-") as folder:
        tree = build(Path(folder))
        environment = {
            **os.environ,
            "LD_PRELOAD": f"{_library('libasan.so')} {_library('libubsan.so')}",
            "ASAN_OPTIONS": OPTIONS,
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "PYTHONMALLOC": "malloc",
        }
        if given.tests is not None:
            for beside in ("pyproject.toml", "docs"):
                (tree / beside).symlink_to(ROOT / beside)
            pytest = [sys.executable, "-m", "pytest", "-q", "-p", "tests.fuzz.eager", "-p", "no:xdist", *NOT_HERE]
            environment["SHMQ_FIXTURES"] = os.environ.get("SHMQ_FIXTURES", str(ROOT.parent / "shared" / "fixtures"))
            return subprocess.run(
                [*pytest, *(given.tests or SUITES)], cwd=tree, env=environment, check=False
            ).returncode
        fuzz = [sys.executable, str(tree / "tests" / "fuzz" / "native.py")]
        told = ["--seconds", str(given.seconds), "--seed", str(given.seed)]
        done = subprocess.run([*fuzz, *told], cwd=tree, env=environment, check=False)
    if done.returncode:
        print(f"FOUND with seed {given.seed}  [python -m tests.fuzz.sanitized --seed {given.seed}]")
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
