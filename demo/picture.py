"""
What the demo saw while it ran, as a picture: how fast each side went, how far the consumers were behind, and the kills.

An SVG, written by hand, so that the demo needs nothing that draws.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

WIDTH, HEIGHT, LEFT, RIGHT = 900, 480, 80, 870
RATES, LAGS = (70, 230), (290, 430)
"""From which height to which each of the two charts reaches."""

STYLE = """
text { font: 13px sans-serif; fill: #24292f } .title { font-size: 17px; font-weight: bold } .small { font-size: 11px }
path.put { stroke: #1f6f8b } path.counted { stroke: #c8642b } path.summed { stroke: #6a5fa8 }
path { fill: none; stroke-width: 2 } .axis { stroke: #8c959f; stroke-width: 1 }
path.kill { stroke: #cf222e; stroke-dasharray: 4 3 }
text { stroke: none } text.put { fill: #1f6f8b } text.counted { fill: #c8642b } text.summed { fill: #6a5fa8 }
text.kill { fill: #cf222e }
@media (prefers-color-scheme: dark) { svg { background: #0d1117 } text { fill: #e6edf3 } }
"""

PERIOD = 0.25
"""Seconds between two samples."""


class Sample(NamedTuple):
    """How far everybody was at one moment: seconds since the start, and messages."""

    at: float
    put: int
    counted: int
    summed: int


@dataclasses.dataclass
class Seen:
    """
    What was seen while the demo ran.

    Attributes:
        samples: in the order of time.
        kills: when, and whom.
    """

    samples: list[Sample] = dataclasses.field(default_factory=list)
    kills: list[tuple[float, str]] = dataclasses.field(default_factory=list)

    def see(self, at: float, put: int, counted: int, summed: int) -> None:
        """A sample, unless the last one is too young. Whoever starts again counts from 0 until it finds its place."""
        last = self.samples[-1] if self.samples else Sample(-PERIOD, 0, 0, 0)
        if at - last.at >= PERIOD:
            self.samples.append(Sample(at, max(put, last.put), max(counted, last.counted), max(summed, last.summed)))


def rates(samples: Sequence[Sample], name: str) -> list[tuple[float, float]]:
    """Messages a second between one sample and the next."""
    return [
        (later.at, (getattr(later, name) - getattr(earlier, name)) / (later.at - earlier.at))
        for earlier, later in itertools.pairwise(samples)
    ]


def lags(samples: Sequence[Sample], name: str) -> list[tuple[float, float]]:
    """How many messages were in the queue that this consumer had not had."""
    return [(each.at, float(max(each.put - getattr(each, name), 0))) for each in samples]


def svg(seen: Seen, sentence: str) -> str:
    """The picture."""
    samples = seen.samples
    end = samples[-1].at if samples else 1.0

    def across(at: float) -> float:
        return LEFT + (RIGHT - LEFT) * at / max(end, 1e-9)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{sentence}</title><style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="28">{sentence}</text>',
    ]
    names = {"put": "put, both producers", "counted": "consumer count", "summed": "consumer delays"}
    behind = {name: lags(samples, name) for name in names if name != "put"}
    parts += _chart(RATES, "messages a second", {name: rates(samples, name) for name in names}, across)
    parts += _chart(LAGS, "behind: put, and not yet had", behind, across)
    for number, (at, whom) in enumerate(seen.kills):
        x, y = across(at), RATES[0] + 12 * number
        parts.append(f'<path class="kill" d="M{x:.1f} {RATES[0] - 6}V{LAGS[1]}"/>')
        parts.append(f'<text class="kill small" x="{x + 5:.1f}" y="{y}">kill -9 {whom}</text>')
    for number, (name, told) in enumerate(names.items()):
        parts.append(f'<text class="{name}" x="{LEFT + 180 * number}" y="{HEIGHT - 10}">{told}</text>')
    parts.append(f'<text class="small" x="{RIGHT}" y="{LAGS[1] + 16}" text-anchor="end">{end:.1f} s</text></svg>')
    return "\n".join(parts) + "\n"


def _chart(
    reach: tuple[int, int], title: str, lines: dict[str, list[tuple[float, float]]], across: Callable[[float], float]
) -> list[str]:
    top, bottom = reach
    most = max((value for line in lines.values() for _, value in line), default=0) or 1
    parts = [
        f'<text class="small" x="{LEFT}" y="{top - 14}">{title}</text>',
        f'<text class="small" x="{LEFT - 6}" y="{top + 4}" text-anchor="end">{most:,.0f}</text>',
        f'<text class="small" x="{LEFT - 6}" y="{bottom + 4}" text-anchor="end">0</text>',
        f'<path class="axis" d="M{LEFT} {bottom}H{RIGHT}"/>',
    ]
    for name, line in lines.items():
        if line:
            drawn = " ".join(f"{across(at):.1f},{bottom - (bottom - top) * value / most:.1f}" for at, value in line)
            parts.append(f'<path class="{name}" d="M{drawn}"/>')
    return parts


def write(seen: Seen, sentence: str, path: Path) -> Path:
    """The file."""
    path.write_text(svg(seen, sentence), encoding="utf-8")
    return path
