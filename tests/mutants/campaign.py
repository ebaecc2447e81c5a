"""
Mutants of the Python engine: one change each, and the tests that run the changed line must notice.

    python -m tests.mutants.campaign --mutants 150 --seed 1     a random sample of all of them
    python -m tests.mutants.campaign --only group --mutants 50  of the files whose path has that expression in it
    python -m tests.mutants.campaign --seed 1 --at 17           the 17th of that sample again, with pytest's words
    python -m tests.mutants.campaign --map                      look anew which test runs which line (minutes)

Which test runs which line is asked of coverage.py once, and kept in .cache until the engine or that file of tests
changes. First the quickest of those run, then the others, then the files of tests that OWN names for that file of the
engine, since what runs in a child is not seen by the map. Only what all of these let pass has survived; what makes a
test hang is caught. Survivors are told one by one. Those that change nothing that anybody could see stand in
equivalent.py, each with its reason, and are counted apart. Survivors are no findings before the share that is caught
falls below LEAST.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

from . import forked
from .equivalent import EQUIVALENT
from .sites import Site, changed, described, key, sites

ROOT = Path(__file__).resolve().parents[2]
GROUPS = (
    "account",
    "aside",
    "group",
    "group_options",
    "group_place",
    "group_walk",
    "handing",
    "joining",
)
ENGINE = [ROOT / "shmq" / "taking" / f"{name}.py" for name in (*GROUPS, "consumer", "dead")]
ENGINE += [ROOT / "shmq" / "durability.py", ROOT / "shmq" / "reading" / "walk.py"]
ENGINE += sorted((ROOT / "shmq" / "storage").rglob("[!_]*.py"))
FILES = [*sorted((ROOT / "tests" / "unit").glob("test_*.py")), ROOT / "tests" / "house" / "test_numbers.py"]
"""What `make test` runs of these is asked; what it has beyond them is not."""
TESTS = {path.stem: str(path.relative_to(ROOT)) for path in FILES}
LEAST = 0.9
OWN = {
    "durability": "synced durability recover chain shutdown",
    "walk": "reading_on access reader given",
    "consumer": "reading_on consumer acks shutdown fork wait",
    "group": "member group keyed group_moves group_place group_room letters when backlog",
    "account": "member group group_moves given letters",
    "aside": "member letters dead when group_moves",
    "dead": "letters dead when member",
    "group_options": "member group keyed letters",
    "group_place": "group_place",
    "handing": "member group keyed group_moves group_room letters when",
    "joining": "member group keyed letters",
    "subscriptions": "filter subscriptions names",
    "departures": "subscriptions",
    "laggards": "subscriptions",
    "group_walk": "member group group_room keyed backlog",
    "admin": "directory fork_locks interrupts",
    "apply": "numbers saved recover damaged_words bad_words small_files full_disk",
    "asides": "saved recover damaged_words",
    "acks": "synced acks durability recover",
    "boots": "recover group_place when",
    "blocks": "numbers files places full_disk extents",
    "chain": "directory chain retention bounds recover",
    "consumers": "numbers saved recover ring",
    "cleaning": "saved reach copy damaged_words",
    "copying": "numbers saved copy",
    "dedup": "small_files dedup recover",
    "directory": "directory chain retention recover places",
    "forwarded": "forward",
    "forgotten": "forward",
    "files": "numbers files places fork_locks recover volatile chain",
    "floors": "saved names retention recover",
    "headers": "reach verify saved",
    "ledger": "numbers small_files adopt hand_over recover",
    "making": "directory places interrupts",
    "mapped": "files access places",
    "names": "names pins reading_on",
    "new_chunks": "directory chain full_disk large grain",
    "paths": "directory",
    "pins": "saved pins copy",
    "eras": "followers",
    "marks": "followers",
    "plan": "numbers saved recover damaged_words bad_words",
    "progress": "saved recover",
    "records": "numbers small_files adopt hand_over recover dedup",
    "reach": "reach saved verify holes",
    "repairing": "saved reach copy",
    "ring": "saved ring group_place recover",
    "shm": "volatile directory files",
    "small_json": "small_files group",
    "space": "numbers saved full_disk recover adopt",
    "spares": "numbers files retention large grain full_disk",
    "staging": "numbers small_files adopt hand_over recover",
    "stretches": "saved verify recover damaged_words holes",
    "sources": "forward",
    "sync": "synced durability",
    "target": "saved copy",
    "verify": "saved verify damaged_words holes bad_words",
    "view": "saved recover damaged_words",
    "volatile": "saved volatile directory",
    "turns": "rolling",
    "warm": "files large grain",
    "watermark": "synced durability recover",
}
"""The files of tests for each file of the engine, the likeliest to notice first."""
LONGEST, MOST = 10.0, 60.0
"""Seconds that one test may take, and those that run a line, and those of OWN; what takes longer is left out."""
MAP = dict[str, dict[str, dict[str, float]]]
"""{file: {line: {test: seconds}}}; of a file of tests, all of its tests stand under the line ''."""


# ---------------------------------------------------------------- which test runs which line
def kept(tests: Path) -> Path:
    """Where the map of one file of tests is, for this state of the tree."""
    digest = hashlib.sha256()
    for path in [*ENGINE, *sorted(tests.parent.glob("conf*.py")), tests]:
        digest.update(path.read_bytes())
    return ROOT / ".cache" / "mutants" / f"{tests.stem}-{digest.hexdigest()[:16]}.json"


def tree(folder: Path) -> Path:
    """The library and its tests, below *folder*, to be changed."""
    for name in ("shmq", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "docs", "cffi_build", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """The library of that folder before the one that is installed."""
    return {**os.environ, "PYTHONPATH": str(folder)}


PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow"]


def look(paths: list[str]) -> MAP:
    """Run these tests under coverage.py, each line with the tests that ran it."""
    with tempfile.TemporaryDirectory(prefix="shmq-mutants-") as scratch:
        folder = tree(Path(scratch))
        data, config = folder / ".coverage", folder / "coverage.ini"
        config.write_text(f"[run]\ndynamic_context = test_function\nsource = shmq\ndata_file = {data}\n")
        words = [sys.executable, "-m", "coverage", "run", f"--rcfile={config}", *PYTEST[1:]]
        words += ["-o", "timeout=0", "--durations=0", "--durations-min=0.0", *paths]
        done = subprocess.run(
            words, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False, timeout=3600
        )
        took = {test: each for test, each in durations(done.stdout).items() if f"FAILED {test}" not in done.stdout}
        return lines_of(data, folder, took)


def durations(said: str) -> dict[str, float]:
    """{file::test: seconds}, of pytest's words; with all its parameters."""
    took: dict[str, float] = collections.defaultdict(float)
    for seconds, test in re.findall(r"^([\d.]+)s call +(\S+?)(?:\[.*)?$", said, re.MULTILINE):
        took[test] += float(seconds)
    return took


def lines_of(data: Path, folder: Path, took: dict[str, float]) -> MAP:
    """What coverage.py has written down; only of tests whose time is known, which are those that passed."""
    import coverage

    measured = coverage.CoverageData(str(data))
    measured.read()
    found: MAP = {}
    for path in ENGINE:
        name = str(path.relative_to(ROOT))
        by_line = measured.contexts_by_lineno(str(folder / name))
        found[name] = {
            str(line): {test: took[test] for test in took.keys() & {test_of(each) for each in contexts}}
            for line, contexts in by_line.items()
        }
    for test, seconds in took.items():
        found.setdefault(test.partition("::")[0], {}).setdefault("", {})[test] = seconds
    return found


def test_of(context: str) -> str:
    """tests.unit.test_x.test_y, or test_x.test_y, as pytest names it."""
    module, _, test = context.rpartition(".")
    return f"{TESTS.get(module.rpartition('.')[2], module)}::{test}"


def the_map(*, anew: bool = False) -> MAP:
    """As it is kept; of those files of tests of which it is not, made."""
    unknown = [path for path in FILES if anew or not kept(path).exists()]
    if unknown:
        print(f"looking which test of {len(unknown)} files runs which line: minutes", flush=True)
        found = look([str(path.relative_to(ROOT)) for path in unknown])
        for path in unknown:
            kept(path).parent.mkdir(parents=True, exist_ok=True)
            kept(path).write_text(json.dumps(of_file(found, path)))
    known: MAP = {}
    for path in FILES:
        for name, lines in json.loads(kept(path).read_text()).items():
            for line, tests in lines.items():
                known.setdefault(name, {}).setdefault(line, {}).update(tests)
    return known


def of_file(found: MAP, path: Path) -> MAP:
    """What the tests of that file run."""
    begin = f"{path.relative_to(ROOT)}::"
    return {
        name: {
            line: {test: took for test, took in tests.items() if test.startswith(begin)}
            for line, tests in lines.items()
        }
        for name, lines in found.items()
    }


# ---------------------------------------------------------------- one mutant
def sample(seed: int, count: int, only: str) -> list[tuple[Path, Site]]:
    """So many of all mutants, in an order that is the seed's."""
    every = [(path, site) for path in ENGINE if re.search(only, str(path)) for site in sites(path.read_text())]
    random.Random(seed).shuffle(every)
    return every[:count]


def chosen(path: Path, site: Site, known: MAP) -> dict[str, float]:
    """The tests to try, with their seconds: those that run the line, the quickest first; then what OWN names."""
    lines = known.get(str(path.relative_to(ROOT)), {})
    line = next((line for line in range(site.line, 0, -1) if str(line) in lines), 0)
    tests = no_longer(quick(lines.get(str(line), {})))  # of a statement of several lines, coverage.py knows not all
    own: dict[str, float] = {}
    for name in OWN[path.stem].split():
        own |= quick(known.get(TESTS[f"test_{name}"], {}).get("", {}))
    for test in tests:
        own.pop(test, None)
    return tests | no_longer(own)


def quick(tests: dict[str, float]) -> dict[str, float]:
    """Without the long ones, the quickest first."""
    return dict(sorted(((test, took) for test, took in tests.items() if took <= LONGEST), key=lambda each: each[1]))


def no_longer(tests: dict[str, float]) -> dict[str, float]:
    """As many of them as MOST allows."""
    sums = itertools.accumulate(tests.values())
    return {test: took for (test, took), so_far in zip(tests.items(), sums, strict=True) if so_far <= MOST}


class Runner:
    """A copy of the tree, and a pytest that has collected its tests (forked.py). A context manager."""

    def __init__(self, *, loud: bool = False) -> None:
        self._loud = loud
        self._opened = contextlib.ExitStack()
        self._folder = tree(Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="shmq-mutants-"))))
        (asked, ask), (answered, answer) = os.pipe(), os.pipe()
        self._ask, self._answers = os.fdopen(ask, "w"), os.fdopen(answered)
        self._pytest = [*PYTEST, "-o", "timeout=60", f"--basetemp={self._folder / 'tmp'}"]
        words = [*self._pytest, "-p", "tests.mutants.forked", *TESTS.values()]
        self._process = subprocess.Popen(
            words,
            cwd=self._folder,
            env={**environment(self._folder), forked.PIPES: f"{asked} {answer}"},
            pass_fds=(asked, answer),
            stdout=None if loud else subprocess.DEVNULL,
            stderr=None if loud else subprocess.DEVNULL,
        )
        os.close(asked)
        os.close(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ask.close()
        self._process.wait()
        self._opened.close()

    def outcome(self, path: Path, site: Site, known: MAP) -> str:
        """ "caught", "equivalent" or "survived"."""
        source, mutant = path.read_text(), self._folder / path.relative_to(ROOT)
        if (path.name, *key(source, site)) in EQUIVALENT:
            return "equivalent"
        tests = chosen(path, site, known)
        try:
            result = self._tried(path, site, tests)
        finally:
            put(mutant, source)
        return "survived" if result == forked.SURVIVED else "caught"

    def _tried(self, path: Path, site: Site, tests: dict[str, float]) -> int:
        limit = 60 + 5 * sum(tests.values())
        asked = {"path": str(path), "site": site, "tests": list(tests), "limit": limit, "loud": self._loud}
        put(self._folder / path.relative_to(ROOT), changed(path.read_text(), site))  # for new interpreters
        print(json.dumps(asked), file=self._ask, flush=True)
        result = int(self._answers.readline())
        if result != forked.ELSEWHERE:
            return result
        words = [*self._pytest, "-x", *tests]
        out = None if self._loud else subprocess.DEVNULL
        with subprocess.Popen(
            words, cwd=self._folder, env=environment(self._folder), stdout=out, stderr=out, process_group=0
        ) as process:
            try:
                return forked.CAUGHT if process.wait(limit) else forked.SURVIVED
            except subprocess.TimeoutExpired:
                return forked.CAUGHT
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def put(mutant: Path, source: str) -> None:
    """Write that; what Python has compiled of an earlier one goes, since it may be of the same second and length."""
    mutant.write_text(source)
    for compiled in mutant.parent.glob(f"__pycache__/{mutant.stem}.*"):
        compiled.unlink()


def main() -> int:
    """One sample; 1 when too few were caught."""
    parser = argparse.ArgumentParser(
        prog="tests.mutants.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="files whose path has this regular expression in it")
    parser.add_argument("--at", type=int, help="this one of the sample alone")
    parser.add_argument("--begin", type=int, default=0, help="at this one of the sample")
    parser.add_argument("--seconds", type=float, default=1e9, help="end when this time is up")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--map", action="store_true", help="look anew which test runs which line")
    given = parser.parse_args()
    try:
        import coverage  # noqa: F401
    except ImportError:
        print("nothing was changed: coverage is missing; python -m pip install coverage")
        return 2
    known, began = the_map(anew=given.map), time.monotonic()
    tried = [
        (number, *each)
        for number, each in enumerate(sample(given.seed, given.mutants, given.only))
        if number >= given.begin and given.at in (None, number)
    ]
    by_file: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)

    left = iter(tried)

    def work(_: int) -> None:
        with Runner(loud=given.at is not None) as runner:
            for number, path, site in left:
                if time.monotonic() - began > given.seconds:
                    break
                result = runner.outcome(path, site, known)
                by_file[path.name][result] += 1
                where = f"{path.relative_to(ROOT)}:{described(path.read_text(), site)}"
                print(f"{number} {result}{'' if result == 'caught' else f': {where}'}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(given.jobs) as workers:
        list(workers.map(work, range(given.jobs)))
    return told(by_file, given.seed, time.monotonic() - began)


def told(by_file: dict[str, collections.Counter[str]], seed: int, seconds: float) -> int:
    """The sums; 1 when too few were caught."""
    for name, each in sorted(by_file.items()):
        print(f"{name:18} {each['caught']:4} caught {each['survived']:4} survived {each['equivalent']:4} equivalent")
    counts = sum(by_file.values(), collections.Counter[str]())
    tried = counts["caught"] + counts["survived"]
    share = counts["caught"] / tried if tried else 1.0
    print(
        f"{tried} mutants, {share:.1%} caught, {counts['survived']} survived; {counts['equivalent']} more are "
        f"equivalent; {seconds:.0f} s, seed {seed}"
    )
    if share < LEAST and tried >= 50:
        print(f"FOUND only {share:.1%} caught  [python -m tests.mutants.campaign --seed {seed}]")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
