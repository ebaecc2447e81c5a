"""
Runs the code blocks of a page, in order, in one empty directory, as its reader does.

- A block of Python is run here, in one namespace a page. Where a line with a print ends with a comment, that is what
  it prints.
- A block of Python that begins with a comment that is the name of a file is saved under that name.
- In a block of `console`, lines that begin with `$ ` are run by a shell, and the lines below are what they print; `...`
  stands for anything. What ends with ` &` runs on until the page ends, or somebody ends it.
- `sh`, `toml` and others are only shown.

Before a block, in a comment of HTML, which nobody who reads the page sees:

- `not run: why`: the block is not run, and the tests say why.
- `before:` and lines of Python: run first, for what the page takes for granted.
- `raises: Name`: the block ends with that exception.
- `program: NAME`: the block is saved under that name, and run as a program.
- `exits: N`: its last command ends with that status; all others end with 0.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import shmq

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"(?:^<!-- (?P<mark>(?:not run|before|raises|exits|program):.*?)\s*-->\n+)?"
    r"^(?P<indent> *)```(?P<language>[\w+-]*)\n(?P<body>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
FILE = re.compile(r"# ([\w./-]+\.py)\n")
RUN = {"python", "console"}
DEADLINE = 240


@dataclass
class Block:
    """One block, and what stands before it."""

    page: Path
    line: int
    language: str
    body: str
    mark: str
    said: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why it is not run, if it is not."""
        return self.said if self.mark == "not run" else None


def blocks(page: Path) -> list[Block]:
    """Every block of the page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        mark, _, said = (match["mark"] or "").partition(":")
        line = text.count("\n", 0, match.start("language")) + 1
        body = textwrap.dedent(match["body"])
        found.append(Block(page, line, match["language"], body, mark, textwrap.dedent(said).strip()))
    return found


@dataclass
class Reader:
    """Somebody who does what a page says, in an empty directory that is the current one."""

    names: dict[str, object] = field(default_factory=lambda: {"__name__": "page"})
    started: list[subprocess.Popen] = field(default_factory=list)

    def follow(self, page: Path) -> int:
        """Run all that is to be run; how many blocks that were."""
        ran = 0
        for block in blocks(page):
            if block.language in RUN and block.reason is None:
                try:
                    self.do(block)
                except BaseException as problem:
                    problem.add_note(f"in the block at {block}")
                    raise
                ran += 1
        return ran

    def do(self, block: Block) -> None:
        """One block."""
        if block.mark == "before":
            exec(compile(block.said, str(block), "exec"), self.names)
        if block.language != "python":
            self._shell(block)
        elif block.mark == "program":
            Path(block.said).write_text(block.body)
            status, printed = self._ask(f"python {block.said}")
            assert status == 0, printed
        elif named := FILE.match(block.body):
            Path(named[1]).write_text(block.body)
        else:
            self._python(block)

    def _python(self, block: Block) -> None:
        lines = "\n" * block.line + block.body
        code = compile(lines, str(block.page), "exec", dont_inherit=True)
        printed = io.StringIO()
        raised = None
        with contextlib.redirect_stdout(printed):
            try:
                exec(code, self.names)
            except Exception as problem:
                if block.mark != "raises":
                    raise
                raised = type(problem).__name__
        assert raised == (block.said if block.mark == "raises" else None)
        promised = [line.rpartition("  # ")[2] for line in block.body.splitlines() if printing(line)]
        if promised:
            assert printed.getvalue().splitlines() == promised

    def _shell(self, block: Block) -> None:
        asked = commands(block.body)
        assert asked, "there is no line that begins with `$ `"
        for command, expected in asked:
            if command.endswith(" &"):
                self._start(command[: -len(" &")])
                continue
            status, printed = self._ask(command)
            last = block.mark == "exits" and (command, expected) == asked[-1]
            assert alike(printed, expected), f"$ {command}\nprinted:\n{printed}\nand not:\n{expected}"
            assert status == (int(block.said) if last else 0), f"$ {command}\nended with {status}:\n{printed}"

    def _ask(self, command: str) -> tuple[int, str]:
        if plain(command):
            return self._verb(shlex.split(command)[1:])
        done = subprocess.run(
            ["sh", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE,
            check=False,
            env=environment(),
        )
        return done.returncode, done.stdout

    def _verb(self, words: list[str]) -> tuple[int, str]:
        """A verb of shmq in this process, which is a tenth of a second quicker than in one of its own."""
        from shmq.cli import main

        printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                status = main(words)
            except SystemExit as ended:
                status = ended.code
        return status, printed.buffer.getvalue().decode()

    def _start(self, command: str) -> None:
        self.started.append(
            subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                env=environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )

    def leave(self) -> None:
        """Close what the page has left open, and end what it has started."""
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for value in reversed(list(self.names.values())):
            if isinstance(value, (shmq.Queue, shmq.Consumer, shmq.Producer, shmq.Reader, shmq.GroupConsumer)):
                value.close()
        self.names.clear()


def printing(line: str) -> bool:
    """Whether a line says what it prints."""
    return "print(" in line and "  # " in line


def plain(command: str) -> bool:
    """Whether it is one verb of shmq, and nothing that needs a shell."""
    return command.startswith("shmq ") and not set("|<>&;$*") & set(command)


def environment() -> dict[str, str]:
    """Ours, with this interpreter and its `shmq` before all others."""
    return {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}


def commands(body: str) -> list[tuple[str, str]]:
    """Each command of a block, and what it is said to print."""
    found: list[tuple[str, str]] = []
    for line in re.sub(r"\\\n\s*", "", body).splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found:
            command, expected = found[-1]
            found[-1] = command, f"{expected}{line}\n"
    return found


def alike(printed: str, expected: str) -> bool:
    """Whether it is what was promised, in which `...` is anything, and blanks at the ends of lines nothing."""
    lines = [re.escape(line.rstrip()).replace(r"\.\.\.", ".*") for line in expected.strip().splitlines()]
    got = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    return re.fullmatch("\n".join(lines), got, re.DOTALL) is not None
