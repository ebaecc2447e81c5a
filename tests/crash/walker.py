"""Walks a scenario's process from instruction to instruction, and has each distinct state recovered."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import shmq
import shmq._core
from tests.support import alone

from .operations import Hands, Model, Operation, given_up, models, options
from .recover import Expected, Image, image_of, lay_out, recover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
CORE = HERE.parent.parent / "cffi_build"
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """
    One walk.

    Attributes:
        name: what it is called in findings.
        setup: done first, by a process that leaves.
        before: done by the process that is walked, before the walk.
        walked: done under the stepper's eyes.
        core: whether harness.c does it, through the C API; else Python does, through the public one.
        seat: 1 has another process at the queue meanwhile, in slot 0: then the dead one's claims are met by readers,
            and not buried by the next tenant of its slot.
        made_with: further options of the queue.
        judge: the next process; raises where something that must be true is not.
        says: what that judge should know of it.
        recovery: what the next process does where it is walked as well, to be killed in its turn.
    """

    name: str
    setup: tuple[Operation, ...] = (("create",),)
    before: tuple[Operation, ...] = ()
    walked: tuple[Operation, ...] = ()
    core: bool = False
    seat: int = 0
    chunk_bytes: int = 16384
    made_with: tuple[tuple[str, Any], ...] = ()
    judge: Callable[[str, Expected, shmq.Options], None] = recover
    says: tuple[str, ...] = ()
    recovery: tuple[Operation, ...] = (
        ("open",),
        ("consumer", "new"),
        ("take_many", "new", 1000),
        ("put", 3),
        ("close",),
    )


@dataclasses.dataclass
class Walked:
    """What a walk came to."""

    name: str
    steps: int = 0
    instructions: int = 0
    calls: int = 0
    states: int = 0
    outside: int = 0
    seconds: float = 0.0
    findings: list[str] = dataclasses.field(default_factory=list)
    images: list[tuple[Image, list[Model]]] = dataclasses.field(default_factory=list)

    def row(self) -> str:
        """One line of a table."""
        return f"{self.name:48} {self.steps:>11,} {self.states:>8,} {self.seconds:>8.1f}"


class Tools:
    """stepper and harness, built."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.stepper = self._gcc("stepper", HERE / "stepper.c")
        self._objects: dict[Path, str] = {}
        self._harnesses: dict[str, str] = {}

    def _gcc(self, name: str, *arguments: str | Path) -> str:
        made = str(self.folder / name)
        command = ["gcc", "-O2", "-g", "-no-pie", *STRICT, *map(str, arguments), "-pthread", "-o", made]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"cannot build {name}: {done.stderr}")
        return made

    def _core_object(self, source: Path, name: str) -> str:
        """*name*: in our folder, or anywhere by a whole path."""
        return self._gcc(name, "-c", source, f"-I{CORE / 'include'}", f"-I{CORE / 'src'}")

    def _compiled(self) -> dict[Path, str]:
        """harness.c and the core's files as objects, kept until one of them changes: each has seconds of a compiler."""
        core = [path for path in sorted((CORE / "src").rglob("*.c")) if path.parent.name != "python"]
        digest = hashlib.sha256(" ".join(STRICT).encode())
        for path in sorted([HERE / "harness.c", *CORE.rglob("*.[ch]")]):
            digest.update(path.read_bytes())
        kept = HERE.parents[1] / ".cache" / "crash" / digest.hexdigest()[:16]
        files = {path: str(kept / f"{path.stem}.o") for path in [HERE / "harness.c", *core]}
        with alone(kept):
            if not kept.exists():
                with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
                    made = Path(scratch, "made")
                    made.mkdir()
                    for path in files:
                        self._core_object(path, str(made / f"{path.stem}.o"))
                    made.replace(kept)
        return files

    def harness(self, mutate: Callable[[str], str] | None = None, file: str = "", name: str = "harness") -> str:
        """harness.c over the core's own files; *mutate* changes the text of *file*, a path below src, first."""
        if name in self._harnesses:
            return self._harnesses[name]
        if not self._objects:
            self._objects = self._compiled()
        objects = dict(self._objects)
        if mutate is not None:
            mutant = self.folder / f"{name}.c"
            mutant.write_text(mutate((CORE / "src" / file).read_text()))
            objects[CORE / "src" / file] = self._core_object(mutant, f"{name}.mutant.o")
        self._harnesses[name] = self._gcc(name, *objects.values())
        return self._harnesses[name]

    def entries(self) -> str:
        """A file that tells the stepper where Python calls into the core."""
        listing = self.folder / "entries"
        core = str(shmq._core.__file__)
        symbols = subprocess.run(["nm", core], capture_output=True, text=True, check=True).stdout
        found = [line.split() for line in symbols.splitlines()]
        symbols_of_code = (words for words in found if len(words) == 3 and words[1] in "tT")
        at = [address for address, _, name in symbols_of_code if name.startswith("shmq_")]
        if not at:
            raise RuntimeError(f"{core} was stripped: without its symbols, nobody can tell where the core is called")
        listing.write_text("\n".join([core, *at]) + "\n")
        return str(listing)


def why_not() -> str:
    """Why nothing can be walked here; empty when it can."""
    if platform.machine() != "x86_64":
        return f"stepper.c knows x86-64 only, and this is {platform.machine()}"
    if shutil.which("gcc") is None or shutil.which("nm") is None:
        return "gcc and nm are needed to build the stepper"
    probe = (
        "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); "
        "r = c.ptrace(0, 0, None, None); os._exit(0 if r == 0 else 1)"
    )
    if subprocess.run([sys.executable, "-c", probe], check=False).returncode:
        return "ptrace is not permitted here (containers need SYS_PTRACE; kernel.yama.ptrace_scope must be below 3)"
    return ""


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """A folder in memory, if there is one."""
    memory = "/dev/shm"
    folder = tempfile.mkdtemp(prefix="shmq-crash-", dir=memory if os.access(memory, os.W_OK) else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def may_tear(path: str) -> bool:
    """Whether system calls may write a file with a name: the journal, snapshots, a set's place, chunks taken away."""
    return path.endswith(("queue.shmq", "/placed", ".checkpoint")) or "/retired-" in path


def torn(before: Image, after: Image) -> Iterator[Image]:
    """What a kill in the middle of such a write could leave: the beginning of it, or its end."""
    for name, (mode, new) in after.items():
        old = before.get(name, (mode, None))[1]
        if not may_tear(name) or new is None or old is None or len(old) != len(new):
            continue
        changed = [at for at in range(len(new)) if old[at] != new[at]]
        for at in changed[1 :: max(len(changed) // 4, 1)]:
            yield {**after, name: (mode, new[:at] + old[at:])}
            yield {**after, name: (mode, old[:at] + new[at:])}


class Walk:
    """One scenario, being walked."""

    def __init__(
        self,
        scenario: Scenario,
        tools: Tools,
        *,
        everything: bool = False,
        keep: bool = False,
        state: int | None = None,
        harness: str | None = None,
        most: int = 20,
        start: tuple[Image, list[Model]] | None = None,
        one_in: int = 1,
    ) -> None:
        """
        Ready to go.

        Args:
            everything: step all of Python too.
            keep: keep the states, with what may be true in them, for walking their recovery.
            state: recover only the state of that number, and leave it where it can be looked at.
            harness: another program instead of the harness.
            most: findings after which to give up.
            start: begin with this directory, in which one of these is true, instead of the setup.
            one_in: of how many distinct states one is recovered.
        """
        self.scenario = scenario
        self.tools = tools
        self.everything = everything
        self.keep = keep
        self.state = state
        self.harness = harness
        self.most = most
        self.start = start
        self.one_in = one_in
        self.result = Walked(scenario.name)
        self.options = options(scenario.chunk_bytes, dict(scenario.made_with))
        self._seen: set[bytes] = set()

    def go(self) -> Walked:
        """Walk it to its end."""
        began = time.monotonic()
        with scratch() as root:
            self._root = root
            os.mkdir(f"{root}/live")
            sitter = self._set_up(f"{root}/live/q")
            try:
                self._follow(self._command(f"{root}/live/q"))
            finally:
                sitter.close()
        self.result.seconds = time.monotonic() - began
        return self.result

    def _set_up(self, path: str) -> Hands:
        scenario = self.scenario
        hands = Hands(path, scenario.chunk_bytes, dict(scenario.made_with))
        candidates, number = [Model()], 0
        if self.start is not None:
            image, candidates = self.start
            candidates = [*candidates, given_up(*candidates)] if len(candidates) == 2 else candidates
            lay_out(image, str(Path(path).parent))
            number = 1000
        for operation in scenario.setup:
            hands.perform(operation, number)
            candidates = [model.after(operation, number) for model in candidates]
            number += 1
        self._number = number
        operations = [*scenario.before, *scenario.walked]
        self._models = [models(operations, model, number)[len(scenario.before) :] for model in candidates]
        if scenario.seat == 0:
            hands.close()
        for each in hands.consumers.values():
            each.close()
        return hands

    def _command(self, path: str) -> list[str]:
        scenario = self.scenario
        script = f"{self._root}/script"
        stepper = [self.tools.stepper]
        if scenario.core:
            lines = [str(self._number)]
            lines += [" ".join(map(str, each)) for each in (*scenario.before, ("---",), *scenario.walked)]
            Path(script).write_text("\n".join(lines) + "\n")
            return [*stepper, f"{self._root}/live", self.harness or self.tools.harness(), path, script]
        Path(script).write_text(json.dumps([self._number, scenario.before, scenario.walked]))
        stepper += ["--entries", self.tools.entries(), *(["--everything"] if self.everything else [])]
        python = [sys.executable, str(HERE / "tracee.py"), json.dumps(sys.path)]
        return [*stepper, f"{self._root}/live", *python, path, str(scenario.chunk_bytes), script]

    def _follow(self, command: list[str]) -> None:
        """Listen to the stepper until it has nothing more to say."""
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        stepper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, bufsize=1
        )
        assert stepper.stdin
        assert stepper.stdout
        self._pending: tuple[str, Image] | None = None
        self._returned = 0
        self._torn = False
        try:
            for line in stepper.stdout:
                what, _, told = line.strip().partition(" ")
                if what == "state":
                    self._next(told, stepper.stdin)
                elif not self._heed(what, told) or len(self.result.findings) >= self.most:
                    return
        finally:
            stepper.kill()
            stepper.wait()
            stepper.stdin.close()
            stepper.stdout.close()
        raise RuntimeError(f"walking {self.scenario.name}: the stepper ended too early")

    def _next(self, told: str, answer: IO[str]) -> None:
        """Copy this state while the process stands still; recover the one before while it walks on."""
        image = image_of(f"{self._root}/live")
        before, self._pending = self._pending, (told, image)
        answer.write("\n")
        answer.flush()
        if before:
            self._recover(*before)
            for half in torn(before[1], image) if self._torn else ():
                self._recover(told, half)
        self._torn = False

    def _heed(self, what: str, told: str) -> bool:
        """Everything else that the stepper says; False at the end."""
        if what == "returned":
            self._returned = int(told)  # what is pending must hold from now on too, and that says more
        elif what == "end":
            self.result.steps, self.result.instructions, self.result.calls = map(int, told.split())
            if self._pending:
                self._recover(*self._pending)
            return False
        elif what == "torn" and may_tear(told):
            self._torn = True  # believed by their checksums, or not at all: each half of the write is recovered, too
        elif what == "torn":
            self._find(told, "a system call changed bytes of a file that others see; a kill could tear it")
        elif what == "outside":
            self.result.outside += 1
            if not any(operation[0] == "reserve" for operation in self.scenario.walked):
                self._find(told, "shared bytes changed outside the core and outside system calls")
        else:
            raise RuntimeError(f"walking {self.scenario.name}: {what} {told}")
        return True

    def _expected(self, returned: int) -> Expected:
        in_flight = self.scenario.walked[returned] if returned < len(self.scenario.walked) else ("nothing",)
        return Expected(
            [model for run in self._models for model in run[returned : returned + 2]],
            in_flight[0],
            dict.fromkeys(self.scenario.says, True),
        )

    def _recover(self, told: str, image: Image) -> None:
        returned = self._returned
        expected = self._expected(returned)
        mark = hashlib.blake2b(str(returned).encode())
        for name, (mode, content) in image.items():
            mark.update(f"{name} {mode} {content is None}".encode())
            mark.update(content or b"")
        if mark.digest() in self._seen:
            return
        self._seen.add(mark.digest())
        number = self.result.states
        self.result.states += 1
        if self.keep:
            self.result.images.append((image, self._expected(returned).models))
        if number % self.one_in if self.state is None else number != self.state:
            return
        lay_out(image, f"{self._root}/state")
        if self.state is not None:
            shutil.copytree(f"{self._root}/state", f"crash-state-{number}")
            print(f"state {number}, at step {told}, after {returned} operations, is in crash-state-{number}")
        try:
            self.scenario.judge(f"{self._root}/state/q", expected, self.options)
        except Exception as problem:  # noqa: BLE001  # whatever goes wrong is a finding
            self._find(told, f"after {returned} operations: {type(problem).__name__}: {problem}")

    def _find(self, told: str, what: str) -> None:
        number = max(self.result.states - 1, 0)
        again = f"python -m tests.crash.campaign --only '{self.scenario.name}' --state {number}"
        self.result.findings.append(f"{self.scenario.name}, state {number}, step {told}: {what}  [{again}]")


def walk(scenario: Scenario, tools: Tools, **how: Any) -> Walked:
    """Walk *scenario*; see `Walk`."""
    return Walk(scenario, tools, **how).go()
