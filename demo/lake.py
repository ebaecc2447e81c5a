"""
The demo's second part, on Spark: live queue, windows, Parquet, archive, replay; and the same numbers as in the table.

One thread puts the flights into a queue, in the order of their hours, while a pipeline reads them: each into Parquet,
and delays by carrier and hour into Parquet and into a second queue. Then the queue is archived and replayed.
"""

from __future__ import annotations

import collections
import datetime
import itertools
import json
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

import shmq
from demo import flights as data
from demo.problem import Problem
from demo.screen import Progress, shorter
from shmq import spark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_BATCH = 5000
_END = "END"
_LAST_HOUR = "2014-02-01T00:00:00Z"
"""The time of one message behind the last flight: with it, the last window closes. Its own stays open."""
_RUNS = 50

PIPELINE = """\
# What `make demo` runs. Try it: shmq pipeline run {file} --dry-run
[pipeline]
name = "flights"
checkpoint = "checkpoint"
conf = {{ "spark.sql.shuffle.partitions" = "2", "spark.ui.enabled" = "false" }}

[source.flights]
queue = "live"
value = "json"
schema = "id BIGINT, carrier STRING, hour BIGINT, dep_delay BIGINT, time_hour TIMESTAMP"
max_offsets_per_trigger = 200000

[step.real]
from = "flights"
sql = "select id, carrier, hour, dep_delay, time_hour from flights where carrier <> 'END'"

[step.by_hour]
from = "flights"
watermark = "time_hour 0 minutes"
sql = '''
    select window(time_hour, '1 hour').start as hour, carrier,
           count(*) as flights, count(dep_delay) as known, sum(dep_delay) as minutes
    from flights
    group by window(time_hour, '1 hour'), carrier
'''

[sink.lake]
from = "real"
format = "parquet"
path = "lake"

[sink.hours]
from = "by_hour"
format = "parquet"
path = "hours"

[sink.delays]
from = "by_hour"
format = "shmq"
queue = "delays"
key = "carrier"

[archive]
to = "archive"
"""

Windows = dict[tuple[str, str], list[int]]
"""(hour, carrier): flights, those with a delay, minutes of it."""


def play(csv: Path, top: Path, limit: int) -> dict[str, Any]:
    """Everything, from the table to the plot."""
    progress = Progress()
    make_room(top)
    progress.say(f"reading {limit:,} flights from {csv.name}, and putting them in the order of their hours")
    flights = sorted(data.read_csv(csv, limit), key=lambda flight: (flight["time_hour"], flight["id"]))
    file = top / "pipeline.toml"
    file.write_text(PIPELINE.format(file=shorter(file)))
    began = time.monotonic()
    batches = _run(file, top, flights, progress)
    seconds = time.monotonic() - began
    expected, queue, parquet = straight(flights), in_queue(top / "delays"), in_parquet(top / "hours")
    findings = compare(expected, queue, "queue") + compare(expected, parquet, "Parquet")
    progress.say("replaying the archive into a second queue")
    archived, replayed, broken = _there_and_back(top, len(flights))
    by_hour, ids = delays_in(top / "lake")
    if ids != list(range(len(flights))):
        broken.append(f"{len(set(ids)):,} different flights lie in Parquet, {len(ids):,} in all, of {len(flights):,}")
    plotted = plot(by_hour, top / "delay-by-hour.png")
    return {
        "flights": len(flights),
        "batches": batches,
        "seconds": seconds,
        "windows": len(queue),
        "windows_expected": len(expected),
        "archived": archived,
        "replayed": replayed,
        "plot": str(plotted) if plotted else None,
        "top": str(top),
        "worst": worst(by_hour),
        "findings": findings + broken,
    }


def make_room(top: Path) -> None:
    """
    An empty directory; what an earlier run left goes.

    Raises:
        Problem: something else lies there.
    """
    if top.exists() and any(top.iterdir()) and not (top / "pipeline.toml").exists():
        raise Problem(f"there are other things in {top}; name another place with --data")
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir(parents=True)


# ---------------------------------------------------------------- the live queue and the pipeline
def _produce(queue: shmq.Queue, flights: list[data.Flight]) -> None:
    encode = msgspec.json.Encoder().encode
    for at in range(0, len(flights), _BATCH):
        part = flights[at : at + _BATCH]
        queue.put_many(
            [encode(flight) for flight in part],
            keys=[flight["carrier"].encode() for flight in part],
            times_ns=[data.hour_ns(flight) for flight in part],
        )
    queue.put(encode({"id": -1, "carrier": _END, "time_hour": _LAST_HOUR}))


def _run(file: Path, top: Path, flights: list[data.Flight], progress: Progress) -> int:
    """Put, and run the pipeline beside it until everything has come out; how many batches that took."""
    batches: dict[str, int] = collections.Counter()
    rows: dict[str, int] = collections.Counter()

    def tell(facts: dict[str, Any]) -> None:
        if facts.get("rows") and "sink" in facts:
            batches[facts["sink"]] += 1
            rows[facts["sink"]] += facts["rows"]
            progress.show(progress_line(rows, len(flights)), now=True)

    progress.say("starting Spark; the flights come in while it reads")
    with shmq.open(top / "live", options=shmq.Options(retention=shmq.Retention.forever())) as queue:
        producer = threading.Thread(target=_produce, args=(queue, flights), name="producer")
        producer.start()
        try:
            for _ in range(_RUNS):
                all_in = not producer.is_alive()  # asked before: what is in now, this run sees
                spark.run(str(file), how="once", tell=tell)
                if all_in and min(rows.get(name, 0) for name in ("lake", "hours", "delays")) > len(flights):
                    return sum(batches.values())
        finally:
            producer.join()
    raise Problem(f"after {_RUNS} runs the pipeline had not read all flights: {dict(rows)}")


def progress_line(rows: Mapping[str, int], flights: int) -> str:
    """How many flights each sink has been given; the message behind the last one, which closes a window, is none."""
    return "  " + "   ".join(f"{name} {min(count, flights):,}" for name, count in rows.items()) + f"   of {flights:,}"


def _there_and_back(top: Path, flights: int) -> tuple[int, int, list[str]]:
    """Archive and replay: how many flights each had, and what is wrong."""
    replayed = spark.replay(str(top / "archive"), str(top / "again"))
    findings = spark.verify_archive(str(top / "archive"))
    with (
        shmq.open(top / "live", create=False, read_only=True) as live,
        shmq.open(top / "again", create=False, read_only=True) as again,
    ):
        pairs = zip(live.reader(), again.reader(), strict=False)
        same = sum((old.payload, old.key, old.time_ns) == (new.payload, new.key, new.time_ns) for old, new in pairs)
    if same != flights + 1:
        findings.append(f"{same - 1:,} flights came back from the archive as they were, of {flights:,}")
    return replayed - 1, same - 1, findings


# ---------------------------------------------------------------- the same numbers, three ways
def straight(flights: Iterable[data.Flight]) -> Windows:
    """From the table."""
    found: Windows = {}
    for flight in flights:
        window = found.setdefault((flight["time_hour"], flight["carrier"]), [0, 0, 0])
        window[0] += 1
        if flight["dep_delay"] is not None:
            window[1] += 1
            window[2] += flight["dep_delay"]
    return found


def in_queue(path: Path) -> Windows:
    """From the queue that the pipeline wrote."""
    found: Windows = {}
    with shmq.open(path, create=False, read_only=True) as queue:
        for message in queue.reader():
            row = json.loads(message.payload)
            _enter(found, _hour(datetime.datetime.fromisoformat(row["hour"])), row)
    return found


def in_parquet(path: Path) -> Windows:
    """From the Parquet that the pipeline wrote."""
    import pyarrow.parquet as pq  # noqa: PLC0415  # an extra

    found: Windows = {}
    for row in pq.read_table(path).to_pylist():
        _enter(found, _hour(row["hour"]), row)
    return found


def _hour(when: datetime.datetime) -> str:
    """As the table has it."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def _enter(found: Windows, hour: str, row: dict[str, Any]) -> None:
    """One window; one that comes twice is counted twice, and so noticed."""
    window = found.setdefault((hour, row["carrier"]), [0, 0, 0])
    for at, name in enumerate(("flights", "known", "minutes")):
        window[at] += row[name] or 0


def compare(expected: Windows, found: Windows, where: str) -> list[str]:
    """What differs: the first few, and how many."""
    wrong = [key for key in sorted(expected.keys() | found.keys()) if expected.get(key) != found.get(key)]
    told = [f"{where}: {key[1]} at {key[0]}: {found.get(key)} instead of {expected.get(key)}" for key in wrong[:3]]
    return [*told, f"{where}: {len(wrong):,} windows differ"] if wrong else []


def delays_in(path: Path) -> tuple[dict[int, list[int]], list[int]]:
    """From the Parquet of single flights: the delays by hour of the day, in order; and all ids, in order."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = pq.read_table(path)
    by_hour: dict[int, list[int]] = {}
    for hour, delay in zip(table["hour"].to_pylist(), table["dep_delay"].to_pylist(), strict=True):
        if delay is not None:
            by_hour.setdefault(hour, []).append(delay)
    return {hour: sorted(by_hour[hour]) for hour in sorted(by_hour)}, sorted(table["id"].to_pylist())


def worst(by_hour: dict[int, list[int]]) -> list[tuple[int, float]]:
    """The three hours of the day with the largest mean delay."""
    means = [(hour, sum(delays) / len(delays)) for hour, delays in by_hour.items()]
    return sorted(means, key=lambda each: -each[1])[:3]


# ---------------------------------------------------------------- for the eye
def plot(by_hour: dict[int, list[int]], path: Path) -> Path | None:
    """Delay by hour of the day, as a picture; None without matplotlib."""
    try:
        import matplotlib as mpl  # noqa: PLC0415  # only the demo draws
    except ImportError:
        return None
    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    hours = [hour for hour, delays in by_hour.items() if len(delays) >= 10]  # too few to say
    means = [sum(by_hour[hour]) / len(by_hour[hour]) for hour in hours]
    low, middle, high = ([by_hour[hour][len(by_hour[hour]) * part // 100] for hour in hours] for part in (25, 50, 75))
    figure, axes = plt.subplots(figsize=(9, 5.4), dpi=150)
    axes.fill_between(hours, low, high, color="#c6dbef", alpha=0.7, linewidth=0)
    axes.plot(hours, means, color="#08519c", linewidth=2.5, marker="o", markersize=4)
    axes.plot(hours, middle, color="#3182bd", linewidth=1.5, linestyle="--")
    axes.axhline(0, color="#636363", linewidth=0.8)
    if hours:
        _tell_lines(axes, hours, means, middle, low)
        axes.set_xticks(hours, [f"{hour}:00" for hour in hours], fontsize=8)
        axes.set_xlim(hours[0] - 0.3, hours[-1] + 1.6)
    axes.set_xlabel("scheduled hour of departure, New York", color="#525252")
    axes.set_ylabel("minutes late", color="#525252")
    flights = sum(map(len, by_hour.values()))
    axes.set_title(f"{headline(hours, means)}\n", loc="left", fontsize=15, fontweight="bold")
    told = f"{flights:,} departures from New York in 2013, and how late they were; what never left is not among them"
    axes.text(0, 1.03, told, transform=axes.transAxes, fontsize=9, color="#525252")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.6)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return path


def headline(hours: list[int], means: list[float]) -> str:
    """What the line says: until which hour the mean grows, if it does; else where it is worst."""
    if not hours:
        return "No flights"
    top = max(range(len(hours)), key=means.__getitem__)
    rises = top > 1 and all(earlier <= later for earlier, later in itertools.pairwise(means[: top + 1]))
    return f"Leave early: delays grow until {hours[top]}:00" if rises else f"Delays are worst at {hours[top]}:00"


def _tell_lines(axes: Any, hours: list[int], means: list[float], middle: list[int], low: list[int]) -> None:
    """Each line's name beside its end, and the worst hour above it."""
    end = hours[-1] + 0.2
    axes.text(end, means[-1], "mean", color="#08519c", va="center", fontweight="bold")
    axes.text(end, middle[-1], "median", color="#3182bd", va="center")
    axes.text(end, low[-1], "the middle half", color="#6b93b8", va="center", fontsize=8)
    top = max(range(len(hours)), key=means.__getitem__)
    axes.annotate(
        f"worst at {hours[top]}:00, {means[top]:.0f} minutes on average",
        (hours[top], means[top]),
        xytext=(-45, 55),
        textcoords="offset points",
        ha="right",
        color="#08519c",
        arrowprops={"arrowstyle": "-", "color": "#08519c", "linewidth": 0.8},
    )


def table(result: dict[str, Any]) -> list[str]:
    """The last screen of this part."""
    good = "=" if not result["findings"] else "IS NOT"
    flights, batches, seconds = result["flights"], result["batches"], result["seconds"]
    hours = ", ".join(f"{hour}:00 {minutes:.1f} min" for hour, minutes in result["worst"])
    lines = [
        "",
        _row(flights, f"flights through a live queue and a Spark pipeline, {batches:,} batches, {seconds:.1f} s"),
        _row(result["windows"], "windows of carrier and hour, in Parquet and in a second queue;"),
        _row(result["windows_expected"], f"computed straight from the table: flights and minutes of each {good} these"),
        _row(result["archived"], "flights in the archive"),
        _row(result["replayed"], "of them back in a queue, unchanged and in order"),
        "",
        f"worst hours of the day, mean delay: {hours}",
    ]
    if result["plot"]:
        lines.append(f"the plot: {shorter(result['plot'])}")
    if result["findings"]:
        return [*lines, "", "WRONG:", *(f"  {each}" for each in result["findings"])]
    return lines


def _row(number: int, what: str) -> str:
    return f"{number:>10,}  {what}"
