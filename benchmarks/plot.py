"""
The plots of docs/performance.md, from the JSON that the other benchmarks wrote.

    python -m benchmarks.plot --quick quick.json --opening opening.json --sizes sizes.json --to docs/images
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers import Shmq
from benchmarks.sizes import OURS as WAYS
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


def sizes(data: dict[str, Any], to: Path) -> None:
    """Bytes per second over the size of a message, both in powers; losses too."""
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4), layout="constrained")
    drawn = {size.size: data["figures"][size.label] for size in SIZES if size.label in data["figures"]}
    ours = [way.label for way in WAYS]
    grey = iter(("#8a979e", "#a9a08c", "#b08d8d", "#9a8db0"))
    for label in next(iter(drawn.values())):
        middle = [statistics.median(figures[label]) for figures in drawn.values()]
        mine = label in ours
        dashes = "-" if "bound" not in label else "--"
        color = ("#1f6f8b" if "shm," in label else "#d1793b") if mine else next(grey)
        axis.plot(list(drawn), middle, dashes, color=color, marker="o", markersize=3, linewidth=2 if mine else 1)
        axis.lines[-1].set_label(label)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(list(drawn), ["64 B", "1 KiB", "4 KiB", "64 KiB", "1 MiB", "16 MiB"][: len(drawn)])
    axis.set_xlabel("a message", fontsize=8)
    axis.set_ylabel("GB/s, one producer and one consumer process", fontsize=8)
    axis.legend(fontsize=8, frameon=False, ncols=2)
    _plain(axis)
    figure.savefig(to / "performance-sizes.png", dpi=DOTS)


def _plain(axis: Any) -> None:
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", metavar="FILE", help="what benchmarks.quick --json wrote")
    parser.add_argument("--opening", metavar="FILE", help="what benchmarks.opening --json wrote")
    parser.add_argument("--sizes", metavar="FILE", help="what benchmarks.sizes --json wrote")
    parser.add_argument("--to", default="docs/images", help="the directory for the plots (default: docs/images)")
    options = parser.parse_args()
    import matplotlib as mpl

    mpl.use("Agg")
    to = Path(options.to)
    to.mkdir(parents=True, exist_ok=True)
    for draw, file in ((rates, options.quick), (opening, options.opening), (sizes, options.sizes)):
        if file:
            draw(json.loads(Path(file).read_text()), to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
