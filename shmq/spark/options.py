"""
The options of `format("shmq")`, as words become values. Knows nothing of Spark, so that it is tested without a JVM.

Spark hands options on as text, with keys in lower case, and drops those nobody asks for without a word; here one that
is not known is an error that names its neighbours.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from typing import TYPE_CHECKING, Any

from shmq.spark import offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VALUE_FORMATS = ("raw", "json", "arrow", "msgpack", "struct")
MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
EARLIEST, LATEST = "earliest", "latest"
_SPARKS_OWN = {"checkpointlocation", "queryname"}
"""What Spark puts beside the user's options."""

Offsets = str | dict[str, dict[str, int]]
"""`earliest`, `latest`, or {queue: {shard: offset}} with -2 for earliest and -1 for latest, as for Kafka."""


class BadOption(ValueError):
    """An option of the source or sink that cannot be; the message says which, and what would do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """
    What to read, from where to where, in how large bites, and what becomes of payloads. The names are Kafka's.

    Attributes:
        queue: a queue's directory; or one with several queues in it.
        subscribe, pattern, assign: which queues in it, by names, by a regular expression, or shard by shard.
        starting, ending: offsets; None for the default of the kind of query.
        starting_ms, ending_ms: times in ms since 1970, for all or {queue: {shard: ms}}; they come before offsets.
        time_strategy: what to do for a start beyond the last message: "error" or "latest".
        max_rows, max_bytes: limits of one batch of a stream, over all shards.
        min_rows, max_delay: wait for so many rows, but no longer than so many seconds.
        min_partitions: a hint: cut into at least so many tasks.
        partition_rows: and into tasks of about so many rows.
        fail_on_loss: whether offsets that retention took away are an error.
        group: the consumer name that retention and bounds wait for; None for one that only shows the lag, "" for none.
        headers: whether the column `headers` is there without being asked for.
        batch_rows: rows of one Arrow batch.
        pushdown: whether Spark's filters on offset, time and partition are used; needs Spark's own switch.
        pause: a file: while it is there, a stream begins no new batch.
        durable_only: sync first, and read only what the disk has, also of a queue that does not sync by itself.
        value_format: what payloads are; None: what the queue's codec says.
        dtype: for "struct": numpy's description of one record.
        mode: what becomes of payloads that do not parse.
        columns: only these of the columns there are.
    """

    queue: str
    subscribe: tuple[str, ...] = ()
    pattern: str | None = None
    assign: dict[str, list[int]] | None = None
    starting: Offsets | None = None
    ending: Offsets | None = None
    starting_ms: int | dict[str, dict[str, int]] | None = None
    ending_ms: int | dict[str, dict[str, int]] | None = None
    time_strategy: str = "error"
    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay: float = 900.0
    min_partitions: int = 1
    partition_rows: int = 4_000_000
    fail_on_loss: bool = True
    group: str | None = None
    headers: bool = False
    batch_rows: int = 32_000
    pushdown: bool = False
    pause: str | None = None
    durable_only: bool = False
    value_format: str | None = None
    dtype: str | None = None
    mode: str = "PERMISSIVE"
    columns: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """
    Where rows go, and how they become messages.

    Attributes:
        queue: a queue's directory (made if it is not there), or one with shards in it.
        value_format: "raw" takes the column `value`; "json", "msgpack" and "arrow" take all other columns.
        app: who writes, for exactly once: the query's id by default. A checkpoint that is deleted needs another one.
        version: of a batch write, which write of that app this is: one that is not larger than the last is passed over.
        delivery: "exactly_once", or "at_least_once": straight into the queue, task by task.
    """

    queue: str
    value_format: str | None = None
    app: str | None = None
    version: int | None = None
    delivery: str = "exactly_once"


# ---------------------------------------------------------------- words into values
def _number(low: int) -> Callable[[str], int]:
    def parse(word: str) -> int:
        number = int(word.replace("_", "").replace(",", ""))
        if number < low:
            raise ValueError(f"at least {low}")
        return number

    return parse


def _truth(word: str) -> bool:
    if word.lower() not in {"true", "false"}:
        raise ValueError("true or false")
    return word.lower() == "true"


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(word: str) -> str:
        for each in words:
            if each.lower() == word.lower():
                return each
        raise ValueError(f"one of {', '.join(words)}")

    return parse


def _names(word: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in word.split(",") if each.strip())


def _by_shard(word: str) -> dict[str, dict[str, int]]:
    parsed = json.loads(word)
    if not isinstance(parsed, dict) or not all(isinstance(shards, dict) for shards in parsed.values()):
        raise ValueError('JSON like {"orders": {"0": 23}}')
    return {name: {str(int(shard)): int(at) for shard, at in shards.items()} for name, shards in parsed.items()}


def _offsets(word: str) -> Offsets:
    return word if word in {EARLIEST, LATEST} else _by_shard(word)


def _assigned(word: str) -> dict[str, list[int]]:
    parsed = json.loads(word)
    if not isinstance(parsed, dict) or not all(isinstance(shards, list) for shards in parsed.values()):
        raise ValueError('JSON like {"orders": [0, 1]}')
    return {name: [int(shard) for shard in shards] for name, shards in parsed.items()}


def _pattern(word: str) -> str:
    re.compile(word)
    return word


def _time(word: str) -> int | dict[str, dict[str, int]]:
    return _by_shard(word) if word.lstrip().startswith("{") else int(word)


_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(word: str) -> float:
    """A duration like `30s`, `15m`, `200ms` or `6h` in seconds; a plain number is seconds."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|seconds?|minutes?|hours?|days?)?\s*", word)
    if found is None:
        raise ValueError("a duration like 30s, 15m or 6h")
    unit = found[2] or "s"
    return float(found[1]) * _UNITS[unit if unit in _UNITS else unit[0]]


_SOURCE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "queue": ("queue", str),
    "path": ("queue", str),
    "subscribe": ("subscribe", _names),
    "subscribePattern": ("pattern", _pattern),
    "assign": ("assign", _assigned),
    "startingOffsets": ("starting", _offsets),
    "endingOffsets": ("ending", _offsets),
    "startingTimestamp": ("starting_ms", _time),
    "endingTimestamp": ("ending_ms", _time),
    "startingOffsetsByTimestamp": ("starting_ms", _by_shard),
    "endingOffsetsByTimestamp": ("ending_ms", _by_shard),
    "startingOffsetsByTimestampStrategy": ("time_strategy", _one_of("error", LATEST)),
    "maxOffsetsPerTrigger": ("max_rows", _number(1)),
    "maxBytesPerTrigger": ("max_bytes", _number(1)),
    "minOffsetsPerTrigger": ("min_rows", _number(1)),
    "maxTriggerDelay": ("max_delay", seconds),
    "minPartitions": ("min_partitions", _number(1)),
    "rowsPerPartition": ("partition_rows", _number(1)),
    "failOnDataLoss": ("fail_on_loss", _truth),
    "group": ("group", str),
    "kafka.group.id": ("group", str),
    "includeHeaders": ("headers", _truth),
    "batchRows": ("batch_rows", _number(1)),
    "pushdown": ("pushdown", _truth),
    "pause": ("pause", str),
    "durableOnly": ("durable_only", _truth),
    "value.format": ("value_format", _one_of(*VALUE_FORMATS)),
    "value.dtype": ("dtype", str),
    "mode": ("mode", _one_of(*MODES)),
    "columns": ("columns", _names),
}
_SINK: dict[str, tuple[str, Callable[[str], Any]]] = {
    "queue": ("queue", str),
    "path": ("queue", str),
    "value.format": ("value_format", _one_of(*(each for each in VALUE_FORMATS if each != "struct"))),
    "txnAppId": ("app", str),
    "txnVersion": ("version", _number(0)),
    "delivery": ("delivery", _one_of("exactly_once", "at_least_once")),
}


def _parse(given: Mapping[str, str], known: dict[str, tuple[str, Callable[[str], Any]]], what: str) -> dict[str, Any]:
    by_lower = {name.lower(): (name, *rest) for name, rest in known.items()}
    parsed: dict[str, Any] = {}
    for key, word in given.items():
        if key.lower() not in by_lower:
            if key.lower() in _SPARKS_OWN:
                continue
            near = difflib.get_close_matches(key.lower(), by_lower, n=3)
            names = ", ".join(by_lower[each][0] for each in near) or ", ".join(known)
            raise BadOption(f"the shmq {what} has no option {key!r}; {'did you mean' if near else 'it has'} {names}")
        name, field, parse = by_lower[key.lower()]
        if field in parsed and key.lower() == "path":
            continue  # `queue` was said, too
        try:
            parsed[field] = parse(str(word))
        except (ValueError, TypeError, re.error) as problem:
            raise BadOption(f"option {name}={word!r} of the shmq {what}: {problem}") from None
    if not parsed.get("queue"):
        raise BadOption(f'the shmq {what} needs to know the queue: .load("orders"), or option queue=orders')
    return parsed


def source_options(given: Mapping[str, str]) -> SourceOptions:
    """
    What the words of a `spark.read.format("shmq")` mean.

    Raises:
        BadOption: one is not known, or cannot be.
    """
    found = SourceOptions(**_parse(given, _SOURCE, "source"))
    if sum(map(bool, (found.subscribe, found.pattern, found.assign))) > 1:
        raise BadOption("of subscribe, subscribePattern and assign, one is enough")
    if found.group and offsets.is_automatic(found.group):
        raise BadOption(f"group={found.group}: names like that are given to queries without a group, and hold nothing")
    if found.value_format == "struct" and not found.dtype:
        raise BadOption("value.format=struct needs value.dtype, like 'price:<f8, size:<i4'")
    return found


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """
    What the words of a `df.write.format("shmq")` mean.

    Raises:
        BadOption: one is not known, or cannot be.
    """
    return SinkOptions(**_parse(given, _SINK, "sink"))
