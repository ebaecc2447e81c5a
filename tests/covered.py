"""
Branch coverage of the C core and of the Python engine in one run of tests: `make coverage`.

    python -m tests.covered [--jobs N] [PATH ...]     these tests (default: SUITES); the table goes to docs/coverage.md
    python -m tests.covered --missed FILE ...         and which branches of these files were never taken, line by line

The core is built with gcov's counters into a copy of the tree. What a process that is killed had counted of the
core is lost; children that end by os._exit are counted in Python alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "coverage.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
SUITES = ["tests/unit", "tests/property", "tests/security", "tests/cli"]
FLAGS = "--coverage -O0 -fprofile-update=atomic"
ENGINE = tuple(
    f"shmq/{room}*.py" for room in ("", "putting/", "taking/", "reading/", "storage/", "storage/recover/", "_native/")
)


class Row(NamedTuple):
    """One file: lines and branches, those that there are and those that ran."""

    file: str
    lines: int
    lines_run: int
    branches: int
    branches_run: int


def built(folder: Path) -> Path:
    """A copy of the tree with a core that counts; its objects, beside which gcov's notes lie, stay in `build`."""
    tree = folder / "tree"
    ignored = shutil.ignore_patterns(
        ".git", ".venv*", ".cache", "__pycache__", "*.so", "build", "campaign*", ".hypothesis"
    )
    shutil.copytree(ROOT, tree, ignore=ignored)
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    words += ["--wheel-dir", str(folder), str(tree)]
    subprocess.run(words, env={**os.environ, "SHMQ_CFLAGS": FLAGS, "SHMQ_LDFLAGS": "--coverage"}, check=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extract("shmq/_core.abi3.so", tree)
    return tree


def measure(tree: Path, jobs: int, paths: list[str]) -> int:
    """Run the tests with both kinds of counters."""
    settings = ["branch = True", "parallel = True", "patch = subprocess, _exit", "source = shmq"]
    config = tree / "coverage.ini"
    config.write_text(
        "\n".join(["[run]", *settings, f"data_file = {tree}/.coverage", "[report]", "ignore_errors = True"])
    )
    there = {
        **os.environ,
        "PYTHONPATH": str(tree),
        "COVERAGE_PROCESS_START": str(config),
        "COVERAGE_RCFILE": str(config),
    }
    words = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "-m", "not slow", "-o", "timeout=900"]
    words += ["-n", str(jobs), "--max-worker-restart", "0", "-p", "no:cacheprovider", *paths]
    status = subprocess.run(words, cwd=tree, env=there, check=False).returncode
    subprocess.run([sys.executable, "-m", "coverage", "combine", "-q"], cwd=tree, env=there, check=True)
    made = [sys.executable, "-m", "coverage", "json", "-q", "-o", "coverage.json"]
    subprocess.run(made, cwd=tree, env=there, check=True)
    return status


def python(tree: Path) -> dict[str, dict]:
    """What coverage.py says of each file of the engine."""
    said = json.loads((tree / "coverage.json").read_text())["files"]
    engine = {str(path.relative_to(tree)) for pattern in ENGINE for path in tree.glob(pattern)}
    return {name: each for name, each in sorted(said.items()) if name in engine}


def core(tree: Path) -> dict[str, list[dict]]:
    """What gcov says of each line of each file of the core."""
    found = {}
    for counts in sorted(tree.glob("build/**/*.gcda")):
        done = subprocess.run(
            ["gcov", "-b", "--json-format", "--stdout", counts], capture_output=True, check=True, cwd=tree
        )
        text = gzip.decompress(done.stdout) if done.stdout[:2] == b"\x1f\x8b" else done.stdout
        for file in json.loads(text)["files"]:
            if file["file"].startswith("cffi_build/src/"):
                found[file["file"]] = together(found.get(file["file"], []), file["lines"])
    return found


def together(one: list[dict], other: list[dict]) -> list[dict]:
    """The lines of a file as all that include it ran them; a branch is known by its line and its place there."""
    found = {line["line_number"]: {**line, "branches": [dict(each) for each in line["branches"]]} for line in one}
    for line in other:
        known = found.setdefault(line["line_number"], line)
        if known is not line:
            known["count"] += line["count"]
            for mine, theirs in zip(known["branches"], line["branches"], strict=False):
                mine["count"] += theirs["count"]
    return [found[number] for number in sorted(found)]


def rows(tree: Path) -> list[Row]:
    """The core's files, then the engine's."""
    found = []
    for name, lines in sorted(core(tree).items()):
        branches = [branch for line in lines for branch in line["branches"]]
        ran = sum(branch["count"] > 0 for branch in branches)
        found.append(Row(name, len(lines), sum(line["count"] > 0 for line in lines), len(branches), ran))
    for name, each in python(tree).items():
        sums = each["summary"]
        found.append(
            Row(name, sums["num_statements"], sums["covered_lines"], sums["num_branches"], sums["covered_branches"])
        )
    return found


def missed(tree: Path, names: list[str]) -> None:
    """Branches that were never taken."""
    for name, lines in core(tree).items():
        if any(each in name for each in names):
            text = (tree / name).read_text().splitlines()
            for line in lines:
                never = sum(branch["count"] == 0 for branch in line["branches"])
                if never or not line["count"]:
                    at = line["line_number"]
                    print(f"{name}:{at}: {never} of {len(line['branches'])}  {text[at - 1]}")
    for name, each in python(tree).items():
        if any(wanted in name for wanted in names):
            text = (tree / name).read_text().splitlines()
            for first, to in each["missing_branches"]:
                print(f"{name}:{first} -> {to}: {text[first - 1].strip()}")


def share(ran: int, there: int) -> str:
    """In percent."""
    return f"{100 * ran / there:.1f} %" if there else "-"


def table(found: list[Row]) -> str:
    """A row for the core, one for the engine, and one for each file that has branches."""
    lines = ["| File | Lines | run | Branches | taken |", "|---|---|---|---|---|"]
    groups = {"**the core**": "cffi_build/", "**the engine**": "shmq/"}
    for title, begin in groups.items():
        mine = [row for row in found if row.file.startswith(begin)]
        total = Row(title, *(sum(row[at] for row in mine) for at in range(1, 5)))
        for row in [total, *mine]:
            if row.lines:
                said = share(row.lines_run, row.lines), row.branches, share(row.branches_run, row.branches)
                lines.append(f"| {row.file} | {row.lines} | {said[0]} | {said[1]} | {said[2]} |")
    return "\n".join(lines)


def main() -> int:
    """One run."""
    parser = argparse.ArgumentParser(
        prog="tests.covered", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--missed", nargs="*", default=[], metavar="FILE", help="say what was not taken in these")
    parser.add_argument("paths", nargs="*", default=SUITES)
    given = parser.parse_args()
    if not find_spec("coverage") or not shutil.which("gcov"):
        print("nothing was measured: it needs gcov, which comes with gcc, and python -m pip install coverage")
        return 2
    with tempfile.TemporaryDirectory(prefix="shmq-coverage-") as folder:
        tree = built(Path(folder))
        status = measure(tree, given.jobs, given.paths or SUITES)
        made = table(rows(tree))
        missed(tree, given.missed)
    text = PAGE.read_text(encoding="utf-8")
    before, behind = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{behind}", encoding="utf-8")
    print(made)
    return status


if __name__ == "__main__":
    sys.exit(main())
