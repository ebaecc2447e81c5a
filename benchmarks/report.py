"""How figures are told: machine facts, tables for people and for Markdown, JSON for plots."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark has."""
    parser = argparse.ArgumentParser(
        description=(description or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", help="where the queues' directories are made (default: /var/tmp)")
    parser.add_argument("--json", metavar="FILE", help="write every single figure there")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables there")
    return parser


def machine(directory: str) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release().partition("-")[0],
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "file system": file_system(directory),
        "load before": round(os.getloadavg()[0], 2),
        "date": time.strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def file_system(directory: str) -> str:
    """The type of the file system a directory is on."""
    device = os.stat(directory).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, behind = line.partition(" - ")
        if before.split()[2] == wanted:
            return behind.split()[0]
    return "unknown"


def spread(values: Sequence[float], form: str = "{:,.0f}") -> str:
    """The smallest and the largest."""
    return f"{form.format(min(values))} .. {form.format(max(values))}"


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios of each round: what disturbed a round disturbed both."""
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


class Report:
    """Tables as they come: printed at once, kept for the files."""

    def __init__(self, options: argparse.Namespace, directory: str) -> None:
        """Begin with the machine's facts."""
        self._options = options
        self._parts: list[str] = []
        self.data: dict[str, Any] = {"machine": machine(directory)}
        facts = self.data["machine"]
        self.say(
            f"{facts['processor']}, {facts['cores']} cores; Linux {facts['kernel']}; {facts['python']}; "
            f"{facts['file system']}; load before: {facts['load before']}; {facts['date']}"
        )

    def say(self, text: str) -> None:
        """A paragraph."""
        print(text, flush=True)
        self._parts.append(text)

    def table(self, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table; all columns but the first are figures."""
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        print(f"\n{title}")
        for row in (heads, *rows):
            first, *others = (
                cell.rjust(width) if at else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            print("  " + "  ".join((first, *others)).rstrip(), flush=True)
        lines = [f"**{title}**", "", _markdown(heads), _markdown(["---", *["---:"] * (len(heads) - 1)])]
        self._parts.append("\n".join([*lines, *map(_markdown, rows)]))

    def write(self) -> None:
        """The files that were asked for."""
        if self._options.json:
            Path(self._options.json).write_text(json.dumps(self.data, indent=1) + "\n")
        if self._options.markdown:
            Path(self._options.markdown).write_text("\n\n".join(self._parts) + "\n")


def _markdown(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
