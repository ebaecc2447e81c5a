"""
The long proofs, in slices, one after the other with new seeds: `make campaign HOURS=12`; `make prove` for short ones.

    python -m tests.campaign --hours 12        slices of all suites in turn, until the time is up
    python -m tests.campaign --prove           one short slice of each, with seeds that are always the same
    python -m tests.campaign --only power,whole --seconds 60   these suites, slices of a minute
    python -m tests.campaign --list            the suites, and the command of each
    python -m tests.campaign --report          what the journal says, as the table in docs/campaign.md

Each slice is one line of campaign.jsonl: suite, seed, executions, seconds, commit, kernel, and what was found, with the
command that repeats it and the file with all that was printed. A run goes on where the journal ends: with the next
suite, and seeds that were never used; who is interrupted loses one slice. Exit status 1 when anything was found.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
JOURNAL = ROOT / "campaign.jsonl"
REPORT = ROOT / "docs" / "campaign.md"
BEGIN, END = "<!-- from the journal: begin -->", "<!-- from the journal: end -->"
GRACE = 900.0
"""Seconds beyond ten times its share after which a slice hangs, and that is a finding."""
STEP = 100_003
"""From one slice's seed to the next one's: suites count up from theirs. A prime, so all of a list get picked."""
SIGNS = ("FOUND", "repeat with:", "Repeat with", "violation", "ERROR: AddressSanitizer", "runtime error:")
"""Whoever ends well may print a traceback: of a thread that was interrupted on purpose."""
SETTING = re.compile(r"[A-Z_]+=")
QUIET = re.compile(r"\b0 findings|violations +0\b")


@dataclasses.dataclass(frozen=True)
class Suite:
    """One suite: its command, in which {seed}, {share} and {jobs} are filled in, and how its share is measured."""

    name: str
    command: str
    counted: str
    """A regular expression for what was executed, in what it prints."""
    unit: str
    rate: float = 1.0
    """How much of a share fits into a second, about; 1 for those that are told seconds."""
    least: int = 1

    @property
    def module(self) -> str:
        """What python -m runs."""
        return next(word for word in self.command.split() if "=" not in word)

    def words(self, seed: int, seconds: float, jobs: int) -> list[str]:
        """Settings of the environment, and what to give to python -m."""
        share = max(int(seconds * self.rate), self.least)
        return shlex.split(self.command.format(seed=seed, share=share, jobs=jobs))


SUITES = (
    Suite("whole", "tests.whole.campaign --seed {seed} --sequences {share}", r"([\d,]+) sequences", "sequences", 4, 50),
    Suite(
        "power",
        "tests.power.campaign --seed {seed} --jobs {jobs} --cuts {share}",
        r"power cuts: ([\d,]+) in",
        "cuts",
        150,
        5_000,
    ),
    Suite(
        "recoveries",
        "tests.power.campaign --seed {seed} --jobs {jobs} --recoveries {share}",
        r"power cuts: ([\d,]+) in",
        "cuts of recoveries",
        30,
        1_000,
    ),
    Suite(
        "failing calls",
        "tests.power.campaign --seed {seed} --pairs {share}",
        r"failing calls: ([\d,]+) trials",
        "trials",
        30,
        200,
    ),
    Suite(
        "disk",
        "tests.disk.campaign --seed {seed} --cuts {share}",
        r"below file systems: ([\d,]+) in",
        "cuts",
        0.7,
        30,
    ),
    Suite(
        "kills",
        "tests.crash.campaign --seed {seed} --kills {share}",
        r"([\d,]+) real kills",
        "kill -9",
        60,
        500,
    ),
    Suite(
        "walks",
        "tests.crash.campaign --pick {seed} --walks {share} --recoveries 3",
        r"walks: ([\d,]+) kill points",
        "kill points",
        0.1,
    ),
    Suite(
        "reboots",
        "tests.crash.recoveries --pick {seed} --nested {share} --openers 3",
        r"walks: ([\d,]+) kill points",
        "kill points",
        0.15,
        3,
    ),
    Suite(
        "histories",
        "tests.history.campaign --seed {seed} --histories {share}",
        r"operations ([\d,]+)",
        "operations",
        0.7,
        5,
    ),
    Suite(
        "groups",
        "tests.history.groups --seed {seed} --histories {share}",
        r"([\d,]+) histories of groups",
        "histories",
        4,
        5,
    ),
    Suite("users", "tests.users.campaign --seed {seed} --kills {share}", r"([\d,]+) kills in all", "kills", 3, 20),
    Suite(
        "forward", "tests.forward.campaign --seed {seed} --kills {share}", r"([\d,]+) workers killed", "kills", 4, 40
    ),
    Suite("outbox", "tests.forward.sqlite --seed {seed} --kills {share}", r"([\d,]+) kills of", "kills", 10, 100),
    Suite("soak", "tests.history.soak --seed {seed} --seconds {share}", r"in the queue +([\d,]+)", "messages", 1, 20),
    Suite("flow", "tests.flow.campaign --seed {seed} --kills {share}", r"([\d,]+) workers killed", "kill -9", 2, 20),
    Suite(
        "bridges", "tests.bridge.campaign --seed {seed} --kills {share}", r"([\d,]+) kills of bridges", "kills", 0.4, 10
    ),
    Suite("calls", "tests.rpc.campaign --seed {seed} --kills {share}", r"([\d,]+) kills with seed", "kills", 2, 20),
    Suite("tasks", "tests.executor.campaign --seed {seed} --kills {share}", r"([\d,]+) kills \(", "kills", 4, 40),
    Suite("points", "tests.points.campaign --seed {seed} --seconds {share}", r"([\d,]+) rounds of", "rounds", 1, 30),
    Suite(
        "schedules",
        "tests.model.campaign --draw --seed {seed} --executions {share}",
        r"([\d,]+) executions without",
        "executions",
        100_000,
        1_000_000,
    ),
    Suite(
        "properties",
        "SHMQ_SEED={seed} SHMQ_SEQUENCES={share} pytest -q -o timeout=0 tests/property --hypothesis-seed={seed}",
        r"([\d,]+) passed",
        "tests of many sequences",
        3,
        50,
    ),
    Suite(
        "fuzz formats",
        "tests.fuzz.formats --plain --seed {seed} --seconds {share}",
        r"([\d,]+) rounds",
        "files",
        1,
        20,
    ),
    Suite(
        "fuzz native",
        "tests.fuzz.sanitized --seed {seed} --seconds {share}",
        r"([\d,]+) rounds",
        "files",
        1,
        20,
    ),
    Suite(
        "fuzz living",
        "tests.fuzz.sanitized --living --seed {seed} --seconds {share}",
        r"([\d,]+) mutants",
        "mutants",
        1,
        20,
    ),
    Suite(
        "mutants",
        "tests.mutants.campaign --seed {seed} --mutants 10000 --seconds {share}",
        r"([\d,]+) mutants,",
        "mutants of the engine",
        1,
        60,
    ),
    Suite("sanitized", "tests.fuzz.sanitized --part {seed}", r"([\d,]+) passed", "tests"),
)


def there() -> list[Suite]:
    """Those whose modules this checkout has."""
    return [each for each in SUITES if find_spec(each.module)]


# ---------------------------------------------------------------- one slice
def findings_in(output: str) -> list[str]:
    """The lines that say what was found."""
    lines = (line.strip() for line in output.splitlines())
    return [line for line in lines if any(sign in line for sign in SIGNS) and not QUIET.search(line)]


def commit() -> str:
    """The newest one; with a + behind it when files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return git("rev-parse", "--short=9", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")


def command(words: list[str]) -> str:
    """What a person types."""
    settings = [word for word in words if SETTING.match(word)]
    return shlex.join([*settings, "python", "-m", *words[len(settings) :]])


def said(words: list[str], log: Path, limit: float) -> tuple[int | None, str]:
    """Run it, in a process group of its own, of which nothing stays: (exit status, or None; what it said)."""
    with open(log, "w", encoding="utf-8") as out:
        settings = dict(word.split("=", 1) for word in words if SETTING.match(word))
        command = [sys.executable, "-u", "-m", *words[len(settings) :]]
        how = {"stdout": out, "stderr": subprocess.STDOUT, "cwd": ROOT, "env": {**os.environ, **settings}}
        with subprocess.Popen(command, process_group=0, **how) as process:
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    return status, log.read_text(encoding="utf-8", errors="replace")


def executed(suite: Suite, output: str) -> int:
    """What was executed in all."""
    return sum(int(each.replace(",", "")) for each in re.findall(suite.counted, output)[-1:])


def run(suite: Suite, seed: int, seconds: float, jobs: int, logs: Path) -> dict[str, Any]:
    """One slice: its line of the journal. What it printed stays where something was found."""
    logs.mkdir(exist_ok=True)
    log = logs / f"{suite.name.replace(' ', '-')}-{seed}.log"
    words = suite.words(seed, seconds, jobs)
    began, at = time.monotonic(), commit()
    status, output = said(words, log, seconds * 10 + GRACE)
    found, left_out = findings_in(output), ""
    last = (output.strip().splitlines() or ["it said nothing"])[-1]
    if status == 2 and "nothing was" in output:
        left_out, found = last, []
    elif status is None:
        found.append(f"it hangs: {last}")
    elif status and not found:
        found.append(f"it ended with {status}: {last}")
    if not found:
        log.unlink()
    return {
        "suite": suite.name,
        "seed": seed,
        "executions": executed(suite, output),
        "unit": suite.unit,
        "seconds": round(time.monotonic() - began, 1),
        "when": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
        "commit": at,
        "kernel": platform.release(),
        "command": command(words),
        **({"left_out": left_out} if left_out else {}),
        "found": [each[:1000] for each in found[:20]],
        **({"log": str(log)} if found else {}),
    }


# ---------------------------------------------------------------- the journal
def read(journal: Path) -> list[dict[str, Any]]:
    """Its lines; one that was torn is not there."""
    found = []
    for line in journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def append(journal: Path, record: dict[str, Any]) -> None:
    """One line more, also behind one that was torn."""
    with open(journal, "a+b") as file:
        torn = file.tell() and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
        file.write(b"\n" * bool(torn) + json.dumps(record).encode() + b"\n")


def following(suites: list[Suite], records: list[dict[str, Any]]) -> Iterator[tuple[Suite, int]]:
    """(suite, seed) for ever: the suite behind the last one recorded, and a seed above all that were used."""
    names = [each.name for each in suites]
    last = next((each["suite"] for each in reversed(records) if each["suite"] in names), names[-1])
    at = names.index(last)
    seed = max((each["seed"] for each in records), default=int(time.time()))
    while True:
        at, seed = (at + 1) % len(suites), seed + STEP
        yield suites[at], seed


def campaign(suites: list[Suite], given: argparse.Namespace) -> int:
    """Slices until the time is up, or one of each: how many findings there were."""
    began, found = time.monotonic(), 0
    turn = ((each, STEP) for each in suites) if given.prove else following(suites, read(given.journal))
    for suite, seed in turn:
        if not given.prove and time.monotonic() - began >= given.hours * 3600:
            break
        record = run(suite, seed, given.seconds, given.jobs, given.journal.with_suffix(".logs"))
        append(given.journal, record)
        for each in record["found"]:
            print(f"FOUND {suite.name}: {each}\n  [{record['command']}; its words: {record['log']}]", flush=True)
        found += len(record["found"])
        result = record.get("left_out") or f"{record['executions']:,} {suite.unit}, {len(record['found'])} findings"
        print(f"{suite.name}, seed {seed}: {result}, {record['seconds']:.0f} s", flush=True)
    print(f"{found} findings in {(time.monotonic() - began) / 3600:.2f} h; the journal is {given.journal}")
    return found


# ---------------------------------------------------------------- the report
def changed(text: str) -> dict[str, str]:
    """What stands in the last column, which is written by hand, for each suite."""
    inside = text.partition(BEGIN)[2].partition(END)[0]
    rows = [line.strip("|").split("|") for line in inside.splitlines() if line.startswith("|")]
    return {row[0].strip(): row[-1].strip() for row in rows[2:]}


def table(records: list[dict[str, Any]], kept: dict[str, str]) -> str:
    """A row for each suite."""
    lines = [
        "| Suite | Executions | Slices | Seeds | Commits | Hours | Findings | What they were, and changed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = dict.fromkeys([each.name for each in SUITES] + [each["suite"] for each in records])
    for name in names:
        mine = [each for each in records if each["suite"] == name and not each.get("left_out")]
        if not mine:
            continue
        seeds = sorted(each["seed"] for each in mine)
        commits = list(dict.fromkeys(each["commit"] for each in mine))
        cells = [
            name,
            f"{sum(each['executions'] for each in mine):,} {mine[-1]['unit']}",
            str(len(mine)),
            f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0]),
            f"{commits[0]} … {commits[-1]} ({len(commits)})" if len(commits) > 1 else commits[0],
            f"{sum(each['seconds'] for each in mine) / 3600:.2f}",
            str(sum(bool(each["found"]) for each in mine)),
            kept.get(name, ""),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    hours = sum(each["seconds"] for each in records) / 3600
    days = sorted(each["when"][:10] for each in records)
    kernels = ", ".join(sorted({each["kernel"] for each in records}))
    head = f"{len(records)} slices in {hours:.1f} hours, {days[0]} to {days[-1]}, Linux {kernels}."
    return "\n".join([head, "", *lines])


def report(records: list[dict[str, Any]], page: Path) -> None:
    """Write the table between the marks of that page."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    behind = rest.partition(END)[2]
    made = table(records, changed(text))
    page.write_text(f"{before}{BEGIN}\n{made}\n{END}{behind}", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=12.0, help="until when a slice may begin")
    parser.add_argument("--prove", action="store_true", help="one slice of each suite, always with the same seed")
    parser.add_argument("--seconds", type=float, help="for a slice: by default 120, and 30 with --prove")
    parser.add_argument("--only", default="", help="names of suites, with commas between them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--journal", type=Path, default=JOURNAL)
    parser.add_argument("--list", action="store_true", help="the suites")
    parser.add_argument("--report", action="store_true", help="write the table in docs/campaign.md, and run nothing")
    given = parser.parse_args()
    given.seconds = given.seconds or (30.0 if given.prove else 120.0)
    return given


def main() -> int:
    """Do what was asked; 1 when anything was found."""
    given = _arguments()
    wanted = {name.strip() for name in given.only.split(",") if name.strip()}
    chosen = [each for each in there() if not wanted or each.name in wanted]
    if given.list or not chosen:
        for each in there():
            print(f"{each.name:14} {command(each.words(0, given.seconds, given.jobs))}")
        return 0 if given.list else 2
    if given.report:
        report(read(given.journal), REPORT)
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return 1 if campaign(chosen, given) else 0
    except KeyboardInterrupt:
        print("interrupted: this slice is lost, and the next run goes on with it")
        return 130


if __name__ == "__main__":
    sys.exit(main())
