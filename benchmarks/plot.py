"""
The plots of docs/performance.md, from the JSON that the other benchmarks wrote.

    python -m benchmarks.plot --quick quick.json --opening opening.json --sizes sizes.json --pairs pairs.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers import Shmq
from benchmarks.sizes import SIZES

OURS, THEIRS, INK = "#1f6f8b", "#b9c4c9", "#333333"
DOTS = 100


def rates(data: dict[str, Any], to: Path) -> None:
    """Messages per second, one call each and in batches, with how many times faster shmq is."""
    from matplotlib import pyplot

    scenes = (("one", "64 bytes, one call each"), ("batch", "64 bytes, 100 per call"))
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, (scene, title) in zip(axes, scenes, strict=True):
        medians = {label: statistics.median(values) / 1e6 for label, values in data["figures"][scene].items()}
        labels = list(reversed(medians))
        bars = axis.barh(labels, [medians[label] for label in labels])
        for bar, label in zip(bars, labels, strict=True):
            bar.set_color(OURS if label.startswith(Shmq.label) else THEIRS)
            ratio = data["ratios"][scene][label]
            told = f" {medians[label]:.2f}" + (f"   (shmq: {ratio:.1f}x)" if label != Shmq.label else "")
            axis.text(bar.get_width(), bar.get_y() + bar.get_height() / 2, told, va="center", fontsize=8, color=INK)
        axis.set_title(title, fontsize=10)
        axis.set_xlim(0, max(medians.values()) * 1.45)
        _plain(axis)
        axis.set_xlabel("million messages a second", fontsize=8)
    figure.savefig(to / "performance-rates.png", dpi=DOTS)


def opening(data: dict[str, Any], to: Path) -> None:
    """Time to open after kill -9, by queue length."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
    lengths = list(map(int, data["lengths"]))
    for way, marker in (("resumed", "o"), ("earliest", "s"), ("put", "^")):
        all_times = [at["times"][way] for at in data["lengths"].values()]
        middle = [statistics.median(times) for times in all_times]
        reach = [
            [m - min(t) for m, t in zip(middle, all_times, strict=True)],
            [max(t) - m for m, t in zip(middle, all_times, strict=True)],
        ]
        axis.errorbar(lengths, middle, yerr=reach, marker=marker, capsize=3, label=way)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("messages in the queue", fontsize=8)
    axis.set_ylabel("ms", fontsize=8)
    axis.set_title("From open to the first message after kill -9", fontsize=10)
    axis.legend(fontsize=8, frameon=False)
    _plain(axis)
    figure.savefig(to / "performance-opening.png", dpi=DOTS)


def pairs(data: dict[str, Any], to: Path) -> None:
    """Messages a second in total, by how many producers and workers there are."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
    numbers = list(map(int, data["figures"]))
    for label in next(iter(data["figures"].values())):
        middle = [statistics.median(each[0] for each in some[label]) / 1e6 for some in data["figures"].values()]
        axis.plot(numbers, middle, marker="o", color=OURS if label == "shmq" else LINES[label][1], label=label)
    axis.set_xscale("log", base=2)
    axis.set_xticks(numbers, [str(number) for number in numbers])
    axis.set_ylim(bottom=0)
    axis.set_xlabel(f"producers, and as many workers, on {data['machine']['cores']} processors", fontsize=8)
    axis.set_ylabel("million messages a second", fontsize=8)
    axis.set_title("All together, on one queue", fontsize=10)
    axis.legend(fontsize=8, frameon=False)
    _plain(axis)
    figure.savefig(to / "performance-pairs.png", dpi=DOTS)


LINES = {
    "shmq, shm, bound": ("shmq, in memory", "#1f6f8b", "-", 2.4),
    "shmq, shm": ("", "#1f6f8b", "--", 1.2),
    "shmq, disk, bound": ("shmq, on disk", "#c8642b", "-", 2.4),
    "shmq, disk": ("", "#c8642b", "--", 1.2),
    "zeroq": ("zeroq", "#6f7b81", "-", 1.2),
    "hyperq": ("hyperq", "#94876a", "-", 1.2),
    "pyzmq PUSH/PULL ipc": ("pyzmq", "#a06f6f", "-", 1.2),
    "faster-fifo": ("faster-fifo", "#7d6f9a", "-", 1.2),
    "multiprocessing.Pipe": ("multiprocessing.Pipe", "#7f9a6f", "-", 1.2),
    "multiprocessing.Queue": ("multiprocessing.Queue", "#b59a3c", "-", 1.2),
}
"""Name, color, line and width of each, by its label in benchmarks.sizes."""


def sizes(data: dict[str, Any], to: Path) -> None:
    """Bytes per second over the size of a message, both in powers; losses too."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4.4), layout="constrained")
    drawn = {size.size: data["figures"][size.label] for size in SIZES if size.label in data["figures"]}
    ends: list[tuple[float, str, str]] = []
    for label in next(iter(drawn.values())):
        name, color, line, width = LINES[label]
        middle = [statistics.median(figures[label]) for figures in drawn.values()]
        axis.plot(list(drawn), middle, line, color=color, marker="o", markersize=width + 1, linewidth=width)
        if name:
            ends.append((middle[0], name, color))
    _name(axis, min(drawn), ends)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlim(min(drawn) / 22, max(drawn) * 1.6)
    axis.set_xticks(list(drawn), ["64 B", "1 KiB", "4 KiB", "64 KiB", "1 MiB", "16 MiB"][: len(drawn)])
    axis.set_yticks([0.03, 0.1, 0.3, 1, 3, 8], ["0.03", "0.1", "0.3", "1", "3", "8"])
    axis.minorticks_off()
    axis.grid(axis="y", color="#e5e5e5", linewidth=0.6)
    axis.set_xlabel("size of a message", fontsize=9)
    axis.set_ylabel("GB/s", fontsize=9)
    axis.set_title("From one process to another: throughput by size of message", loc="left", fontsize=11)
    facts = data["machine"]
    told = (
        f"{facts['cores']} cores, {facts['processor'].replace('(R)', '').replace(' Processor', '')}, "
        f"Linux {facts['kernel'].rpartition('.')[0]}, {facts['python']}, {facts['date']}; {data['rounds']} rounds.\n"
        "shmq checksums and keeps every message; the others do neither. Dashed: shmq unbounded."
    )
    axis.text(0.99, 0.02, told, transform=axis.transAxes, ha="right", va="bottom", fontsize=7.5, color=INK)
    _plain(axis)
    figure.savefig(to / "performance-sizes.png", dpi=150)


def _name(axis: Any, at: float, ends: list[tuple[float, str, str]]) -> None:
    """Write the names before the lines' first points, none upon another."""
    last = 0.0
    for value, name, color in sorted(ends):
        last = max(value, last * 1.24)
        bold = "bold" if name.startswith("shmq") else "normal"
        axis.text(at / 1.25, last, name, color=color, ha="right", va="center", fontsize=8.5, fontweight=bold)


def _plain(axis: Any) -> None:
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", metavar="FILE", help="what benchmarks.quick --json wrote")
    parser.add_argument("--opening", metavar="FILE", help="what benchmarks.opening --json wrote")
    parser.add_argument("--sizes", metavar="FILE", help="what benchmarks.sizes --json wrote")
    parser.add_argument("--pairs", metavar="FILE", help="what benchmarks.pairs --json wrote")
    parser.add_argument("--to", default="docs/images", help="the directory for the plots (default: docs/images)")
    options = parser.parse_args()
    import matplotlib as mpl

    mpl.use("Agg")
    to = Path(options.to)
    to.mkdir(parents=True, exist_ok=True)
    drawn = ((rates, options.quick), (opening, options.opening), (sizes, options.sizes), (pairs, options.pairs))
    for draw, file in drawn:
        if file:
            draw(json.loads(Path(file).read_text()), to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
