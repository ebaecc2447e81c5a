"""
The options of `format("shmq")`, as words become values. Knows nothing of Spark, so that it is tested without a JVM.

Spark hands options on as text, with keys in lower case, and drops those nobody asks for without a word; here one that
is not known is an error that names its neighbours.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from shmq.spark import hosts, names, offsets, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VALUE_FORMATS = ("raw", "json", "arrow", "msgpack", "struct")
MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
EARLIEST, LATEST = "earliest", "latest"
_EARLIEST = -2
_SPARKS_OWN = {"checkpointlocation", "queryname"}
"""What Spark puts beside the user's options."""
_KAFKAS_OWN = re.compile(r"kafka\..*|groupidprefix|kafkaconsumer\..*|fetchoffset\..*")
"""What means something to Kafka's source and sink alone: named, and passed over, so that a job can stay as it is."""

Offsets = str | dict[str, dict[str, int]]
"""`earliest`, `latest`, or {queue: {shard: offset}} with -2 for earliest and -1 for latest, as for Kafka."""


_WANTED = 'earliest, latest, or JSON like {"orders": {"0": 23}}'


class BadOption(ValueError):
    """An option of the source or sink that cannot be; the message says which, and what would do."""

    why = ""
    """The same without its name, of a word that cannot be."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """
    What to read, from where to where, in how large bites, and what becomes of payloads. The names are Kafka's.

    Attributes:
        queue: a queue's directory; or one with several queues in it; or addresses of services on several hosts.
        token_file, roots_file: by which those are asked.
        subscribe, pattern, assign: which queues in it, by names, by a regular expression, or shard by shard.
        starting, ending: offsets; None for the default of the kind of query.
        starting_ms, ending_ms: times in ms since 1970, for all or {queue: {shard: ms}}; they come before offsets.
        time_strategy: what to do for a start beyond the last message: "error" or "latest".
        max_rows, max_bytes: limits of one batch of a stream, over all shards.
        min_rows, max_delay: wait for so many rows, but no longer than so many seconds.
        min_partitions: a hint: cut into at least so many tasks.
        partition_rows: and into tasks of about so many rows.
        partition_bytes: and of about so many bytes, which is no option of users.
        fail_on_loss: whether offsets that retention took away are an error.
        group: the consumer name that retention and bounds wait for; None for one that only shows the lag, "" for none.
        headers: whether the column `headers` is there without being asked for.
        batch_rows: rows of one Arrow batch.
        pause: a file: while it is there, a stream begins no new batch.
        durable_only: sync first, and read only what the disk has, also of a queue that does not sync by itself.
        value_format: what payloads are; None: what the queue's codec says.
        dtype: for "struct": numpy's description of one record.
        mode: what becomes of payloads that do not parse.
        columns: only these of the columns there are.
        foreign: options that mean something to Kafka, and nothing here.
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
    partition_bytes: int = plan.LARGE_BYTES
    fail_on_loss: bool = True
    group: str | None = None
    headers: bool = False
    batch_rows: int = 32_000
    pause: str | None = None
    durable_only: bool = False
    value_format: str | None = None
    dtype: str | None = None
    mode: str = "PERMISSIVE"
    columns: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    token_file: str | None = None
    roots_file: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SinkOptions:
    """
    Where rows go, and how they become messages.

    Attributes:
        queue: a queue's directory (made if it is not there), or one with shards in it; or addresses of services on
            several hosts, whose queues and shards are there and share the rows in this order.
        token_file, roots_file: by which those are asked.
        intents: the address of a queue: what a batch is to adopt is noted there first.
        value_format: "raw" takes the column `value`; "json", "msgpack" and "arrow" take all other columns.
        app: who writes, for exactly once: the query's id by default. A checkpoint that is deleted needs another one.
        version: of a batch write, which write of that app this is: one that is not larger than the last is passed over.
        delivery: "exactly_once", or "at_least_once": straight into the queue, task by task.
        topic: the queue below *queue*, which is a directory with queues then; it comes before a column of that name.
        foreign: options that mean something to Kafka, and nothing here.
    """

    queue: str
    topic: str | None = None
    foreign: tuple[str, ...] = ()
    value_format: str | None = None
    app: str | None = None
    version: int | None = None
    delivery: str = "exactly_once"
    token_file: str | None = None
    roots_file: str | None = None
    intents: str | None = None


# ---------------------------------------------------------------- words into values
def _number(low: int) -> Callable[[str], int]:
    def parse(word: str) -> int:
        digits = word.strip().replace("_", "").replace(",", "")
        if not re.fullmatch(r"[+-]?\d+", digits, re.ASCII) or int(digits) < low:
            raise ValueError(f"a whole number, at least {low}")
        return int(digits)

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
    try:
        parsed = json.loads(word)
        return {name: {str(int(shard)): int(at) for shard, at in shards.items()} for name, shards in parsed.items()}
    except (ValueError, TypeError, AttributeError):
        raise ValueError('JSON like {"orders": {"0": 23}} is wanted: queue, shard, and where') from None


def offsets_by_word(word: str) -> Offsets:
    """
    What offsets a word means.

    Raises:
        ValueError: none; the message says what would do.
    """
    if word in {EARLIEST, LATEST}:
        return word
    try:
        found = _by_shard(word)
    except ValueError:
        raise ValueError(f"{_WANTED} is wanted") from None
    for name, shards in found.items():
        for shard, at in shards.items():
            if at < _EARLIEST:
                raise ValueError(f"{at} of shard {name}/{shard}: an offset is 0 or more; -1 is latest, -2 is earliest")
    return found


def _ending(word: str) -> Offsets:
    found = offsets_by_word(word)
    if found == EARLIEST or (isinstance(found, dict) and any(_EARLIEST in each.values() for each in found.values())):
        raise ValueError("nothing ends at the earliest message: latest (-1), or the offset behind the last one")
    return found


def local_path(word: str) -> str:
    """A place as Spark's users may write it, `file:///data/q`, as a path; any other stays as it is."""
    found = re.fullmatch(r"file:(?://(?:localhost)?)?(/.*)", word, re.DOTALL)
    return unquote(found[1]) if found else word


def _directory(word: str) -> str:
    if hosts.is_remote(word):
        hosts.addresses(word)
        return word
    path = local_path(word)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path):
        raise ValueError(
            "a queue is a directory of this machine, like /data/orders, or the address of a service, like "
            "grpc://host:8815/orders"
        )
    return path


def _address(word: str) -> str:
    if len(hosts.addresses(word)) != 1:
        raise ValueError("one address is wanted, like grpc://host:8815/intents")
    return word


def _assigned(word: str) -> dict[str, list[int]]:
    try:
        parsed = json.loads(word)
        if not all(isinstance(shards, list) for shards in parsed.values()):
            raise ValueError
        return {name: [int(shard) for shard in shards] for name, shards in parsed.items()}
    except (ValueError, TypeError, AttributeError):
        raise ValueError('JSON like {"orders": [0, 1]} is wanted: queue, and which of its shards') from None


def _pattern(word: str) -> str:
    re.compile(word)
    return word


def _time(word: str) -> int | dict[str, dict[str, int]]:
    if word.lstrip().startswith("{"):
        return _by_shard(word)
    try:
        return int(word)
    except ValueError:
        raise ValueError("milliseconds since 1970 are wanted, like 1700000000000") from None


_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(word: str) -> float:
    """A duration like `30s`, `15m`, `200ms` or `6h` in seconds; a plain number is seconds."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d|seconds?|minutes?|hours?|days?)?\s*", word)
    if found is None:
        raise ValueError("a duration like 30s, 15m or 6h")
    unit = found[2] or "s"
    return float(found[1]) * _UNITS[unit if unit in _UNITS else unit[0]]


_SOURCE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "queue": ("queue", _directory),
    "path": ("queue", _directory),
    "subscribe": ("subscribe", _names),
    "subscribePattern": ("pattern", _pattern),
    "assign": ("assign", _assigned),
    "startingOffsets": ("starting", offsets_by_word),
    "endingOffsets": ("ending", _ending),
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
    "pause": ("pause", str),
    "durableOnly": ("durable_only", _truth),
    "value.format": ("value_format", _one_of(*VALUE_FORMATS)),
    "value.dtype": ("dtype", str),
    "mode": ("mode", _one_of(*MODES)),
    "columns": ("columns", _names),
    "tokenFile": ("token_file", local_path),
    "rootsFile": ("roots_file", local_path),
}


def check_topic(word: str) -> str:
    """
    A queue's name in a directory of queues, by Kafka's rules.

    Raises:
        BadOption: it is none.
    """
    if not names.is_topic(word):
        raise BadOption(
            f"{word!r} is not a topic: up to 249 letters, digits, dots, dashes and underscores; not like a shard, 0.000"
        )
    return word


_SINK: dict[str, tuple[str, Callable[[str], Any]]] = {
    "queue": ("queue", _directory),
    "path": ("queue", _directory),
    "value.format": ("value_format", _one_of(*(each for each in VALUE_FORMATS if each != "struct"))),
    "topic": ("topic", check_topic),
    "txnAppId": ("app", str),
    "txnVersion": ("version", _number(0)),
    "delivery": ("delivery", _one_of("exactly_once", "at_least_once")),
    "intents": ("intents", _address),
    "tokenFile": ("token_file", local_path),
    "rootsFile": ("roots_file", local_path),
}


def _parse(given: Mapping[str, str], known: dict[str, tuple[str, Callable[[str], Any]]], what: str) -> dict[str, Any]:
    by_lower = {name.lower(): (name, *rest) for name, rest in known.items()}
    parsed: dict[str, Any] = {}
    for key, word in given.items():
        if key.lower() not in by_lower:
            if key.lower() in _SPARKS_OWN or (what == "sink" and key.lower() == "includeheaders"):
                continue  # a sink takes the headers there are, as Kafka's does
            if _KAFKAS_OWN.fullmatch(key.lower()):
                parsed["foreign"] = (*parsed.get("foreign", ()), key)
                continue
            near = difflib.get_close_matches(key.lower(), by_lower, n=3)
            others = ", ".join(by_lower[each][0] for each in near) or ", ".join(known)
            raise BadOption(f"the shmq {what} has no option {key!r}; {'did you mean' if near else 'it has'} {others}")
        name, field, parse = by_lower[key.lower()]
        if field in parsed and key.lower() == "path":
            continue  # `queue` was said, too
        try:
            parsed[field] = parse(str(word))
        except (ValueError, TypeError, re.error) as problem:
            refused = BadOption(f"option {name}={word!r} of the shmq {what}: {problem}")
            refused.why = str(problem)
            raise refused from None
    if not parsed.get("queue"):
        raise BadOption(f'the shmq {what} needs to know the queue: .load("orders"), or option queue=orders')
    return parsed


def say_foreign(what: str, foreign: tuple[str, ...]) -> None:
    """Name what was passed over."""
    if foreign:
        logging.getLogger("shmq").warning(
            "the shmq %s does nothing with %s, which is Kafka's: here the option queue is the place, a directory, and "
            "group the consumer name",
            what,
            ", ".join("groupIdPrefix" if each.lower() == "groupidprefix" else each for each in foreign),
        )


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
    found = SinkOptions(**_parse(given, _SINK, "sink"))
    if hosts.is_remote(found.queue) and (found.topic is not None or found.delivery != "exactly_once"):
        raise BadOption(
            f"queue={found.queue}: over hosts there is neither a topic, for the address has the queue, nor "
            "delivery=at_least_once"
        )
    if found.intents is not None and not hosts.is_remote(found.queue):
        raise BadOption(f"intents={found.intents} is for queues on several hosts")
    return found
