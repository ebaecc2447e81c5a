"""
A recovery killed at every instruction of the core and at both sides of every system call; what is left is recovered by
the next process, which may be killed in the same way: it is always the same bytes in the end.

    python -m tests.crash.recoveries                       every case; the recovery of 5 states of each walked as well
    python -m tests.crash.recoveries --only sets --nested 100
    python -m tests.crash.recoveries --pick N              one of the cases, whatever N is
    python -m tests.crash.recoveries --everything          all of Python stepped: nothing but the core stores into files
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from . import unclean
from .recover import Image, as_original, image_of, lay_out
from .walker import HERE, Tools, scratch, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 4096
MOST_FINDINGS = 10


@dataclasses.dataclass
class Walked:
    """What a walk came to: kill points, distinct states, second openers, and what was wrong."""

    name: str
    steps: int = 0
    states: int = 0
    between: int = 0
    openers: int = 0
    seconds: float = 0.0
    findings: list[str] = dataclasses.field(default_factory=list)
    images: list[Image] = dataclasses.field(default_factory=list)

    def row(self) -> str:
        """One line of a table."""
        return f"{self.name:40} {self.steps:>11,} {self.states:>8,} {self.openers:>8} {self.seconds:>8.1f}"


def made(case: str) -> Image:
    """The queue of that case, as a reboot finds it."""
    with scratch() as root:
        unclean.make(case, f"{root}/q")
        return image_of(root)


def recovered(image: Image, root: str) -> Image:
    """What the next process makes of it, undisturbed; *root* is overwritten."""
    lay_out(image, root)
    with unclean.pretend():
        unclean.recover(f"{root}/q")()
    return comparable(image_of(root))


def comparable(image: Image) -> Image:
    """All bytes, but for the inode that each copy of control.shmq has."""
    return {
        name: (mode, as_original(content) if content is not None and name.endswith("queue.shmq") else content)
        for name, (mode, content) in image.items()
    }


def differences(one: Image, other: Image) -> str:
    """In words."""
    only = sorted(one.keys() ^ other.keys())
    said = [f"{name} in one only" for name in only]
    for name in sorted(one.keys() & other.keys()):
        if one[name] != other[name]:
            a, b = one[name][1] or b"", other[name][1] or b""
            at = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            said.append(f"{name} at {at}: {a[at : at + 16].hex()} and {b[at : at + 16].hex()}")
    return "; ".join(said)


def half_written(before: Image, after: Image) -> Iterator[Image]:
    """What a kill in the middle of one write of several pages leaves: its first pages."""
    for name, (mode, content) in after.items():
        old = before.get(name, (0, None))[1]
        if content is None or old is None or content == old or len(content) != len(old):
            continue
        pages = [at for at in range(0, len(content), PAGE) if content[at : at + PAGE] != old[at : at + PAGE]]
        for upto in pages[1:]:
            yield {**before, name: (mode, content[:upto] + old[upto:])}


class Walk:
    """One recovery under the stepper's eyes."""

    def __init__(
        self,
        name: str,
        start: Image,
        tools: Tools,
        *,
        keep: bool = False,
        everything: bool = False,
        openers: int = 0,
        expected: Image | None = None,
    ) -> None:
        """
        Ready to go.

        Args:
            keep: keep the states, to walk their recovery.
            everything: step all of Python, not only the core.
            openers: at so many states another process comes to recover as well; and the first one is killed there.
            expected: what it comes to; by default what an undisturbed recovery makes.
        """
        self._start, self._tools = start, tools
        self._keep, self._everything, self._openers = keep, everything, openers
        self._expected = expected
        self._seen: set[bytes] = set()
        self._torn = False
        self._last: Image = start
        self.result = Walked(name)

    def go(self) -> Walked:
        """Walk it to its end; then let others in at some of the states."""
        began = time.monotonic()
        with scratch() as root:
            self._root = root
            if self._expected is None:
                self._expected = recovered(self._start, f"{root}/state")
            states = self._follow()
            if self._openers:
                places = {states * each // (self._openers + 1) for each in range(1, self._openers + 1)}
                self._beside(sorted(places), killed=False)
                for place in sorted(places):
                    self._beside([place], killed=True)
        self.result.seconds = time.monotonic() - began
        return self.result

    # ---- the stepper
    def _stepper(self) -> subprocess.Popen[str]:
        lay_out(self._start, f"{self._root}/live")
        command = [self._tools.stepper, "--entries", self._tools.entries()]
        command += ["--everything"] if self._everything else []
        command += [f"{self._root}/live", *self._process("walk")]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, bufsize=1
        )

    def _process(self, how: str) -> list[str]:
        paths = json.dumps(sys.path)
        return [sys.executable, str(HERE / "unclean.py"), paths, f"{self._root}/live/q", how]

    def _follow(self) -> int:
        """Listen to the stepper until it has nothing more to say: how many states it stood still at."""
        stopped = 0
        with self._stepper() as stepper:
            assert stepper.stdin
            assert stepper.stdout
            try:
                for line in stepper.stdout:
                    what, _, told = line.strip().partition(" ")
                    if what == "state":
                        image = image_of(f"{self._root}/live")
                        stepper.stdin.write("\n")
                        stepper.stdin.flush()
                        stopped += 1
                        self._state(told, image)
                    elif what == "torn":
                        self._torn = True
                    elif what == "outside":
                        self._find(told, "shared bytes changed outside the core and outside system calls")
                    elif what == "end":
                        self.result.steps = int(told.split()[0])
                        self._compare(told, image_of(f"{self._root}/live"), "it ended otherwise")
                        return stopped
                    elif what != "returned":
                        raise RuntimeError(f"walking {self.result.name}: {what} {told}")
                    if len(self.result.findings) >= MOST_FINDINGS:
                        return stopped
            finally:
                stepper.kill()
        raise RuntimeError(f"walking {self.result.name}: the stepper ended too early")

    def _state(self, told: str, image: Image) -> None:
        if " before a syscall" in f" {told}":
            self.result.between += 1
            self._find(told, "Python itself stored into a file")
        images = [*half_written(self._last, image)] if self._torn else []
        self._torn, self._last = False, image
        for each in [*images, image]:
            mark = hashlib.blake2b()
            for name, (mode, content) in each.items():
                mark.update(f"{name} {mode} {content is None}".encode())
                mark.update(content or b"")
            if mark.digest() not in self._seen:
                self._seen.add(mark.digest())
                self.result.states += 1
                if self._keep:
                    self.result.images.append(each)
                self._judge(told, each)

    def _judge(self, told: str, image: Image) -> None:
        try:
            found = recovered(image, f"{self._root}/state")
        except Exception as problem:  # noqa: BLE001  # whatever goes wrong is a finding
            self._find(told, f"{type(problem).__name__}: {problem}")
            return
        if found != self._expected:
            self._find(told, f"other bytes: {differences(found, self._expected or {})}")

    def _compare(self, told: str, image: Image, what: str) -> None:
        if comparable(image) != self._expected:
            self._find(told, f"{what}: {differences(comparable(image), self._expected or {})}")

    def _find(self, told: str, what: str) -> None:
        self.result.findings.append(f"{self.result.name}, step {told}: {what}"[:1500])

    # ---- two at once
    def _beside(self, places: list[int], *, killed: bool) -> None:
        """Let another process try to recover while the first one stands still at these states, or is killed there."""
        others: list[subprocess.Popen[str]] = []
        try:
            with self._stepper() as stepper:
                assert stepper.stdin
                assert stepper.stdout
                stopped = 0
                try:
                    for line in stepper.stdout:
                        what = line.split()[0]
                        if what == "state":
                            if stopped in places:
                                others.append(self._another())
                                if killed:
                                    break
                            stepper.stdin.write("\n")
                            stepper.stdin.flush()
                            stopped += 1
                        elif what == "end":
                            break
                finally:
                    stepper.kill()
            said = []
            for other in others:
                out, _ = other.communicate(timeout=300)
                said.append(out.strip())
            wanted = [["recovered"], ["found it done"]] if killed else [["found it done"] * len(others)]
            if said not in wanted:
                self._find(str(places), f"the other openers said {said}")
            self._compare(str(places), image_of(f"{self._root}/live"), "two at once made other bytes")
            self.result.openers += len(others)
        finally:
            for other in others:
                other.kill()
                other.wait()

    def _another(self) -> subprocess.Popen[str]:
        other = subprocess.Popen(self._process("say"), stdout=subprocess.PIPE, text=True)
        assert other.stdout
        assert other.stdout.readline() == "tries\n"
        return other


def walk(case: str, tools: Tools, *, nested: int, openers: int, everything: bool = False) -> list[Walked]:
    """One case, and the recoveries of *nested* states that its recovery was killed in."""
    first = Walk(case, made(case), tools, keep=nested > 0, openers=openers, everything=everything)
    results = [first.go()]
    images = first.result.images
    for each in range(min(nested, len(images))):
        number = (2 * each + 1) * len(images) // (2 * nested)
        name = f"{case}, killed in state {number}"
        results.append(Walk(name, images[number], tools, expected=first._expected).go())
    images.clear()
    return results


def main() -> int:
    """Do what was asked; 1 when anything was found."""
    parser = argparse.ArgumentParser(
        prog="tests.crash.recoveries", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--pick", type=int, help="the one of that number; behind the last comes the first")
    parser.add_argument("--nested", type=int, default=5, help="states of each whose recovery is walked as well")
    parser.add_argument("--openers", type=int, default=5, help="states at which somebody else comes")
    parser.add_argument("--everything", action="store_true", help="step all of Python")
    given = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"nothing was walked: {reason}")
        return 2
    cases = [case for case in unclean.CASES if given.only in case]
    if given.pick is not None:
        cases = [cases[given.pick % len(cases)]]
    findings: list[str] = []
    walks, steps = 0, 0
    print(f"{'recovery':40} {'kill points':>11} {'states':>8} {'openers':>8} {'seconds':>8}")
    with scratch() as folder:
        tools = Tools(Path(folder))
        for case in cases:
            for each in walk(case, tools, nested=given.nested, openers=given.openers, everything=given.everything):
                print(each.row(), flush=True)
                walks, steps = walks + 1, steps + each.steps
                for finding in each.findings:
                    print("FOUND", finding, flush=True)
                findings += each.findings
    print(f"{walks} walks: {steps:,} kill points, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
