"""
native.py with a core built with AddressSanitizer and UndefinedBehaviorSanitizer, in a folder of its own.

    python -m tests.fuzz.sanitized [--seconds N] [--seed N]

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
        fuzz = [sys.executable, str(tree / "tests" / "fuzz" / "native.py")]
        told = ["--seconds", str(given.seconds), "--seed", str(given.seed)]
        done = subprocess.run([*fuzz, *told], cwd=tree, env=environment, check=False)
    if done.returncode:
        print(f"FOUND with seed {given.seed}  [python -m tests.fuzz.sanitized --seed {given.seed}]")
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
