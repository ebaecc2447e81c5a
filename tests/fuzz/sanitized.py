"""
native.py, living.py, or tests, with a core built with AddressSanitizer and UndefinedBehaviorSanitizer.

    python -m tests.fuzz.sanitized [--living] [--seconds N] [--seed N]
    python -m tests.fuzz.sanitized --tests [PATH ...]
    python -m tests.fuzz.sanitized --part N              an eighth of the tests

Tests run in one process, with garbage collected all the time: what is freed too early is found where it is used.

What the sanitizers find ends the run, with their words and exit status 1.
"""

from __future__ import annotations

import argparse
import hashlib
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

LITTLE = "malloc_context_size=4:quarantine_size_mb=4:thread_local_quarantine_size_kb=64"


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


def core(flags: str = FLAGS) -> Path:
    """A core that was compiled with these flags as well, kept until one of its sources changes."""
    digest = hashlib.sha256(f"{flags} {sys.version}".encode())
    for path in sorted((ROOT / "cffi_build").rglob("*.[chp]*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.read_bytes())
    made = ROOT / ".cache" / "core" / digest.hexdigest()[:16] / "_core.abi3.so"
    if not made.exists():
        with tempfile.TemporaryDirectory(prefix="shmq-core-") as scratch:
            tree = Path(scratch, "tree")  # a copy: what setuptools leaves in `build` must not go into a user's wheel
            kept = shutil.ignore_patterns("__pycache__", "*.so", "_core.c")
            for name in ("cffi_build", "shmq"):
                shutil.copytree(ROOT / name, tree / name, ignore=kept)
            (tree / "docs").mkdir()
            for name in ("docs/shmq.1", "pyproject.toml", "setup.py", "README.md", "LICENSE", "pyspark_shmq.py"):
                shutil.copy(ROOT / name, tree / name)
            wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
            wheel += ["--wheel-dir", scratch, str(tree)]
            subprocess.run(wheel, env={**os.environ, "SHMQ_CFLAGS": flags}, check=True)
            (packed,) = Path(scratch).glob("*.whl")
            zipfile.ZipFile(packed).extract("shmq/_core.abi3.so", scratch)
            made.parent.mkdir(parents=True, exist_ok=True)
            part = made.with_name(f"{os.getpid()}")
            shutil.copy(Path(scratch, "shmq", "_core.abi3.so"), part)
            part.replace(made)  # two may build at once: either is whole
    return made


def build(folder: Path) -> Path:
    """The library with a sanitized core, and the tests, below *folder*."""
    tree = folder / "tree"
    for name in ("shmq", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "_core.c"))
    shutil.copy(core(), tree / "shmq" / "_core.abi3.so")
    return tree


def environment() -> dict[str, str]:
    """What a process needs that loads such a core."""
    return {
        **os.environ,
        "LD_PRELOAD": f"{_library('libasan.so')} {_library('libubsan.so')}",
        "ASAN_OPTIONS": OPTIONS,
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }


def part(number: int) -> list[str]:
    """An eighth of the files of SUITES."""
    found = [file for suite in SUITES for file in ([suite] if suite.endswith(".py") else _tests(suite))]
    return found[number % 8 :: 8]


def _tests(folder: str) -> list[str]:
    return sorted(str(file.relative_to(ROOT)) for file in Path(ROOT, folder).glob("test_*.py"))


def main() -> int:
    """Build, and fuzz."""
    parser = argparse.ArgumentParser(prog="tests.fuzz.sanitized")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--living", action="store_true", help="the files of a living queue, in place")
    parser.add_argument("--tests", nargs="*", metavar="PATH", help=f"instead of fuzzing (default: {' '.join(SUITES)})")
    parser.add_argument("--mutants", type=int, default=1 << 62, help="of a living queue, at most so many")
    parser.add_argument("--part", type=int, metavar="N", help="an eighth of the default's files")
    given = parser.parse_args()
    if given.part is not None:
        given.tests = part(given.part)
    reason = why_not()
    if reason:
        print(f"nothing was fuzzed: {reason}")
        return 2
    with tempfile.TemporaryDirectory(prefix="shmq-sanitized-") as folder:
        tree = build(Path(folder))
        if given.tests is not None:
            for beside in ("pyproject.toml", "docs"):
                (tree / beside).symlink_to(ROOT / beside)
            pytest = [sys.executable, "-m", "pytest", "-q", "-p", "tests.fuzz.eager", "-p", "no:xdist", *NOT_HERE]
            there = environment()
            there["SHMQ_FIXTURES"] = os.environ.get("SHMQ_FIXTURES", str(ROOT.parent / "shared" / "fixtures"))
            return subprocess.run([*pytest, *(given.tests or SUITES)], cwd=tree, env=there, check=False).returncode
        fuzz = [sys.executable, str(tree / "tests" / "fuzz" / ("living.py" if given.living else "native.py"))]
        told = ["--seconds", str(given.seconds), "--seed", str(given.seed)]
        here = environment()
        if given.living:  # it is about the core and what is mapped, and three times as fast
            told += ["--mutants", str(given.mutants)]
            here |= {"PYTHONMALLOC": "pymalloc", "ASAN_OPTIONS": f"{OPTIONS}:{LITTLE}"}
        done = subprocess.run([*fuzz, *told], cwd=tree, env=here, check=False)
    if done.returncode:
        which = " --living" if given.living else ""
        print(f"FOUND with seed {given.seed}  [python -m tests.fuzz.sanitized{which} --seed {given.seed}]")
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
