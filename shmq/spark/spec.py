"""
A pipeline as its TOML says it: read, checked whole before anything starts, each objection with its line.

    [pipeline]            name, checkpoint, every, conf
    [source.NAME]         queue, value, schema, dtype, starting, max_offsets_per_trigger, max_bytes_per_trigger, group,
                          options
    [step.NAME]           from, sql or python, watermark
    [sink.NAME]           from, format (parquet, delta, shmq, console), path or queue, mode, value, key, partition_by
    [archive]             source, to, format (parquet, delta), host, schema, after, compact_to

A source whose payloads are parsed has a sibling `NAME.corrupt`: what did not parse, for a dead-letter queue.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import re
import tomllib
from typing import Any, NamedTuple

from shmq.spark.options import VALUE_FORMATS, BadOption, local_path, offsets_by_word, sink_options, source_options
from shmq.spark.options import seconds as in_seconds

SINKS = ("parquet", "delta", "shmq", "console")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CORRUPT = ".corrupt"


class BadPipeline(ValueError):
    """What is wrong with a pipeline's file, a line each."""


class Lines:
    """A pipeline's file, line by line: where what was said in it stands."""

    def __init__(self, path: str, text: str) -> None:
        """*path* is how errors call it."""
        self.path = path
        self._lines = text.splitlines()

    def number(self, section: str, key: str | None = None) -> int:
        """Of a section, or a key in it; 1 if it stands nowhere."""
        inside = 0
        for number, line in enumerate(self._lines, 1):
            heading = re.match(r"\s*\[\s*([^\]]+?)\s*\]", line)
            if heading:
                inside = number if heading[1].replace('"', "") == section else 0
                if inside and key is None:
                    return number
            elif inside and key is not None and re.match(rf"\s*\"?{re.escape(key)}\"?\s*=", line):
                return number
        return 1 if key is None else self.number(section)

    def within(self, section: str, key: str, line: int) -> int:
        """Of the *line*-th line, from 1, of a text that is a key's value."""
        at = self.number(section, key)
        begins_below = self._lines[at - 1].rstrip().endswith(("'''", '"""')) if self._lines else False
        return min(at + line - 1 + begins_below, max(len(self._lines), 1))

    def __call__(self, section: str, key: str | None = None) -> str:
        """As compilers have it: file and line."""
        return f"{self.path}:{self.number(section, key)}"


@dataclasses.dataclass(frozen=True)
class Source:
    """A queue, as a view of that name."""

    name: str
    queue: str
    value: str = "raw"
    schema: str = ""
    dtype: str = ""
    starting: str = "earliest"
    max_offsets_per_trigger: int = 0
    max_bytes_per_trigger: int = 0
    group: str = ""
    """The first part of the names that hold the queue, `<group>-<sink>`; without it nothing is held or released."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    where: str = ""
    """File and line that name the queue, for errors."""

    def words(self) -> dict[str, str]:
        """The options of `format("shmq")`."""
        found = {"queue": self.queue, "startingOffsets": self.starting, "value.format": self.value}
        found |= {"value.dtype": self.dtype} if self.dtype else {}
        found |= {"maxOffsetsPerTrigger": str(self.max_offsets_per_trigger)} if self.max_offsets_per_trigger else {}
        found |= {"maxBytesPerTrigger": str(self.max_bytes_per_trigger)} if self.max_bytes_per_trigger else {}
        return found | {key: str(value) for key, value in self.options.items()}


@dataclasses.dataclass(frozen=True)
class Step:
    """A table made of others."""

    name: str
    origin: tuple[str, ...]
    sql: str = ""
    python: str = ""
    watermark: str = ""


@dataclasses.dataclass(frozen=True)
class Sink:
    """Where a table goes."""

    name: str
    origin: str
    format: str
    path: str = ""
    queue: str = ""
    mode: str = "append"
    value: str = ""
    """Empty where the file does not say it."""
    key: str = ""
    partition_by: tuple[str, ...] = ()
    delivery: str = "exactly_once"

    @property
    def value_format(self) -> str:
        """What payloads are: what did not parse stays as it is, the rest is JSON, unless the file says otherwise."""
        return self.value or ("raw" if self.origin.endswith(_CORRUPT) else "json")


@dataclasses.dataclass(frozen=True)
class Archiving:
    """Which source's queue is brought to Parquet before it may forget."""

    source: str
    to: str
    format: str = ""
    """Of an archive that is new."""
    schema: str = ""
    """Of payloads, that are what the source says, as columns."""
    after: float = 0.0
    compact_to: int = 0
    host: str = ""
    """This one's name, of several that archive to one Delta table."""


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """All of it."""

    name: str
    checkpoint: str
    every: float
    conf: dict[str, str]
    sources: dict[str, Source]
    steps: dict[str, Step]
    sinks: dict[str, Sink]
    archive: Archiving | None
    lines: Lines
    """Where all of it stands, for errors."""


def read(path: str) -> Pipeline:
    """
    The pipeline in that file. Relative paths in it are taken from where the file lies.

    Raises:
        BadPipeline: it cannot be run as it stands.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        raw = file.read()
    text = _decoded(path, raw)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        at = re.search(r"line (\d+)", str(problem))  # at the end of the file there is none
        raise BadPipeline(f"{path}:{at[1] if at else len(text.splitlines())}: {problem}") from None
    return _Checker(path, text).pipeline(content)


def _decoded(path: str, raw: bytes) -> str:
    """As text, without the mark that some editors put in front of it."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise BadPipeline(
            f"{path}:{line}: byte {problem.start} is no UTF-8, which TOML is: have your editor save it as UTF-8"
        ) from None


_ALLOWED: dict[str, dict[str, Any]] = {
    "pipeline": {"name": str, "checkpoint": str, "every": str, "conf": dict},
    "source": {
        "queue": str,
        "value": str,
        "schema": str,
        "dtype": str,
        "starting": str,
        "max_offsets_per_trigger": int,
        "max_bytes_per_trigger": int,
        "group": str,
        "options": dict,
    },
    "step": {"from": (str, list), "sql": str, "python": str, "watermark": str},
    "sink": {
        "from": str,
        "format": str,
        "path": str,
        "queue": str,
        "mode": str,
        "value": str,
        "key": str,
        "partition_by": list,
        "delivery": str,
    },
    "archive": {"source": str, "to": str, "format": str, "host": str, "schema": str, "after": str, "compact_to": str},
}


_OF_FORMATS = {
    "key": ("shmq",),
    "value": ("shmq",),
    "delivery": ("shmq",),
    "partition_by": ("parquet", "delta"),
}
"""Keys of a sink that mean nothing to the other formats."""


class _Checker:
    def __init__(self, path: str, text: str) -> None:
        self._folder = os.path.dirname(os.path.abspath(path))
        self._lines = Lines(path, text)
        self._problems: list[tuple[int, str]] = []

    def _object(self, section: str, key: str | None, what: str) -> None:
        self._problems.append((self._lines.number(section, key), what))

    # ---- the whole
    def pipeline(self, content: dict[str, Any]) -> Pipeline:
        for name in content:
            if name not in _ALLOWED:
                self._object(name, None, f"there is no section [{name}]{_near(name, _ALLOWED)}")
        head = self._section("pipeline", content.get("pipeline", {}))
        for key in ("name", "checkpoint"):
            if not head.get(key):
                self._object("pipeline", None, f"[pipeline] needs {key}")
        sources = {name: self._source(name, each) for name, each in self._named(content, "source")}
        steps = {name: self._step(name, each) for name, each in self._named(content, "step")}
        sinks = {name: self._sink(name, each) for name, each in self._named(content, "sink")}
        if not sources:
            self._object("pipeline", None, "there is no [source.NAME]: nothing to read")
        if not sinks and "archive" not in content:
            self._object("pipeline", None, "there is no [sink.NAME] and no [archive]: nothing would become of it")
        self._connections(sources, steps, sinks)
        archive = self._archive(content["archive"], sources) if "archive" in content else None
        self._collisions(head.get("checkpoint", ""), sources, sinks, archive)
        every = self._seconds("pipeline", "every", head.get("every", "30s"))
        if self._problems:
            told = [f"{self._lines.path}:{line}: {what}" for line, what in sorted(set(self._problems))]
            raise BadPipeline("\n".join(told))
        return Pipeline(
            name=head["name"],
            checkpoint=self._place(head["checkpoint"]),
            every=every,
            conf={key: str(value) for key, value in head.get("conf", {}).items()},
            sources=sources,
            steps=_in_order(steps),
            sinks=sinks,
            archive=archive,
            lines=self._lines,
        )

    def _named(self, content: dict[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
        found = []
        for name, each in content.get(kind, {}).items():
            section = f"{kind}.{name}"
            if not isinstance(each, dict):
                self._object(kind, name, f"[{kind}] has no keys of its own: write [{section}]")
            elif not _NAME.fullmatch(name):
                self._object(section, None, f"{name!r} cannot be a view's name: letters, digits and _")
            else:
                found.append((name, self._section(section, each)))
        return found

    def _section(self, section: str, content: dict[str, Any]) -> dict[str, Any]:
        """Its keys, if they are known and of the right kind."""
        allowed = _ALLOWED[section.partition(".")[0]]
        good = {}
        for key, value in content.items():
            if key not in allowed:
                self._object(section, key, f"[{section}] has no key {key!r}{_near(key, allowed)}")
            elif not isinstance(value, allowed[key]) or isinstance(value, bool):
                like = ' like "30s"' if key in {"every", "after"} else ' like "256MB"' if key == "compact_to" else ""
                self._object(section, key, f"{key} = {value!r}: {_kind(allowed[key])}{like} is wanted")
            else:
                good[key] = value
        return good

    def _place(self, path: str) -> str:
        path = local_path(path)
        return path if "://" in path else os.path.normpath(os.path.join(self._folder, path))

    def _here(self, section: str, key: str, path: str) -> str:
        """A place that must be on this machine."""
        place = self._place(path)
        if "://" in place:
            self._object(section, key, f"{key} = {path!r}: a queue, or an archive, is a directory of this machine")
        return place

    def _seconds(self, section: str, key: str, word: str) -> float:
        try:
            return in_seconds(word)
        except ValueError as problem:
            self._object(section, key, f"{key} = {word!r}: {problem}")
            return 0.0

    # ---- the parts
    def _source(self, name: str, each: dict[str, Any]) -> Source:
        section = f"source.{name}"
        if not each.get("queue"):
            self._object(section, None, f"[{section}] needs queue")
        value = each.get("value", "raw")
        if value not in VALUE_FORMATS:
            self._object(section, "value", f"value = {value!r}: one of {', '.join(VALUE_FORMATS)}")
        elif value != "raw" and not each.get("schema"):
            self._object(section, "value", f'value = "{value}" needs schema = "user BIGINT, ..."')
        for key in each.get("options", {}):
            if key.lower() in {"group", "kafka.group.id"}:
                self._object(
                    section, "options", f'{key} is no option here: say group = "...", of which each sink has one'
                )
        if value == "struct" and not each.get("dtype"):
            self._object(section, "value", 'value = "struct" needs dtype = "price:<f8, ..."')
        starting = each.get("starting", "earliest")
        try:
            offsets_by_word(starting)
        except ValueError as problem:
            self._object(section, "starting", f"starting = {starting!r}: {problem}")
            each = {**each, "starting": "earliest"}
        where = self._lines(section, "queue")
        queue = self._here(section, "queue", each.get("queue", ""))
        found = Source(name, **{**each, "queue": queue, "where": where})
        if each.get("options"):
            try:
                source_options(found.words())
            except BadOption as problem:
                self._object(section, "options", f"source {name}: {problem}")
        return found

    def _step(self, name: str, each: dict[str, Any]) -> Step:
        section = f"step.{name}"
        origin = each.pop("from", [])
        if not origin:
            self._object(section, None, f"[{section}] needs from")
        if bool(each.get("sql")) == bool(each.get("python")):
            self._object(section, None, f"[{section}] needs sql or python, and not both")
        if each.get("python") and not re.fullmatch(r"[\w.]+:\w+", each["python"]):
            self._object(section, "python", f"python = {each['python']!r}: module:function")
        if each.get("watermark") and len(each["watermark"].split(maxsplit=1)) != 2:
            self._object(section, "watermark", f'watermark = {each["watermark"]!r}: like "t 2 minutes"')
        return Step(name, (origin,) if isinstance(origin, str) else tuple(map(str, origin)), **each)

    def _sink(self, name: str, each: dict[str, Any]) -> Sink:
        section = f"sink.{name}"
        origin, kind = each.pop("from", ""), each.pop("format", "")
        if not origin:
            self._object(section, None, f"[{section}] needs from")
        if kind not in SINKS:
            self._object(section, "format", f"format = {kind!r}: one of {', '.join(SINKS)}")
        needed = {"parquet": "path", "delta": "path", "shmq": "queue"}.get(kind)
        if needed and not each.get(needed):
            self._object(section, None, f'[{section}] with format = "{kind}" needs {needed}')
        if each.get("mode", "append") not in {"append", "update"}:
            self._object(section, "mode", f"mode = {each['mode']!r}: append or update")
        if each.get("mode") == "update" and kind in {"parquet", "delta"}:
            self._object(section, "mode", f"{kind} files only grow: mode = append (with a watermark before a window)")
        self._for_its_format(section, kind, each)
        each["partition_by"] = tuple(map(str, each.get("partition_by", [])))
        return Sink(name, origin, kind, **each)

    def _for_its_format(self, section: str, kind: str, each: dict[str, Any]) -> None:
        """Keys that its format has no use for, or cannot use so; and its places."""
        for key in each.keys() & _OF_FORMATS.keys():
            if kind in SINKS and kind not in _OF_FORMATS[key]:
                self._object(
                    section,
                    key,
                    f"{_said(section)}: {key} is for format = {' or '.join(_OF_FORMATS[key])}, and this is {kind}",
                )
        if each.get("path"):
            each["path"] = self._place(each["path"])
        if each.get("queue"):
            each["queue"] = self._here(section, "queue", each["queue"])
        if kind == "shmq" and each.get("queue"):
            self._sink_options(section, each)

    def _sink_options(self, section: str, each: dict[str, Any]) -> None:
        for key, option in (("value", "value.format"), ("delivery", "delivery")):
            if key in each:
                try:
                    sink_options({"queue": each["queue"], option: each[key]})
                except BadOption as problem:
                    self._object(section, key, f"{_said(section)}: {key} = {each[key]!r}: {problem.why}")

    def _archive(self, raw: dict[str, Any], sources: dict[str, Source]) -> Archiving:
        each = self._section("archive", raw)
        source = each.get("source", next(iter(sources), ""))
        if source not in sources:
            self._object(
                "archive", "source", f"source = {source!r}: there is no [source.{source}]{_near(source, sources)}"
            )
        if not each.get("to"):
            self._object("archive", None, "[archive] needs to")
        after = self._seconds("archive", "after", each.get("after", "0s"))
        host = self._archiving_host(each.get("host", ""))
        kind = each.get("format", "delta" if host else "")
        if kind not in {"", "parquet", "delta"}:
            self._object("archive", "format", f"format = {kind!r}: parquet or delta")
        place = self._place if kind == "delta" else functools.partial(self._here, "archive", "to")
        if each.get("schema"):
            self._archived_schema(each["schema"], sources.get(source))
        compact_to = self._bytes(each.get("compact_to", "256MB"))
        return Archiving(source, place(each.get("to", "")), kind, each.get("schema", ""), after, compact_to, host)

    def _archiving_host(self, host: str) -> str:
        from shmq.spark.archive import owners  # noqa: PLC0415  # as below

        try:
            return owners.checked(host) if host else ""
        except BadOption as problem:
            self._object("archive", "host", str(problem))
            return ""

    def _archived_schema(self, words: str, source: Source | None) -> None:
        """Fields of payloads that can be columns of an archive."""
        from shmq.spark.archive import messages  # noqa: PLC0415  # which needs pyarrow

        if source is not None and source.value not in messages.TYPED:
            kinds = ", ".join(messages.TYPED)
            self._object(
                "archive", "schema", f'schema needs payloads of {kinds}, and source {source.name} has "{source.value}"'
            )
        try:
            messages.Layout("json", words).schema()
        except BadOption as problem:
            self._object("archive", "schema", str(problem))

    def _bytes(self, word: str) -> int:
        found = re.fullmatch(r"\s*(\d+)\s*([KMG]?)i?B?\s*", word)
        if found is None:
            self._object("archive", "compact_to", f"compact_to = {word!r}: like 256MB")
            return 0
        return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]

    def _connections(self, sources: dict[str, Source], steps: dict[str, Step], sinks: dict[str, Sink]) -> None:
        for name in sources.keys() & steps.keys():
            self._object(f"step.{name}", None, f"there is a source and a step called {name!r}")
        there = {*sources, *steps, *(name + _CORRUPT for name, each in sources.items() if each.value != "raw")}
        for step in steps.values():
            for origin in step.origin:
                if origin not in there:
                    self._object(f"step.{step.name}", "from", _nothing(origin, there, sources))
        for sink in sinks.values():
            if sink.origin and sink.origin not in there:
                self._object(f"sink.{sink.name}", "from", _nothing(sink.origin, there, sources))
        for name in steps.keys() - _in_order(steps).keys():
            self._object(f"step.{name}", "from", f"step {name!r} is made of itself, by way of others")
        read = {each.queue for each in sources.values()}
        for sink in sinks.values():
            if sink.queue and sink.queue in read:
                self._object(f"sink.{sink.name}", "queue", f"{sink.queue} is read by this pipeline: it would never end")

    def _collisions(
        self, checkpoint: str, sources: dict[str, Source], sinks: dict[str, Sink], archive: Archiving | None
    ) -> None:
        """Places that two write to, who would take each other's files for their own."""
        taken = [_Place("pipeline", "checkpoint", "checkpoint", self._place(checkpoint))] if checkpoint else []
        taken += [each._replace(path=f"{each.path}/{name}") for each in taken for name in sinks]
        taken += [_Place(f"source.{each.name}", "queue", "queue", each.queue) for each in sources.values()]
        for sink in sinks.values():
            key = "queue" if sink.format == "shmq" else "path"
            if sink.format != "console":
                taken.append(_Place(f"sink.{sink.name}", key, sink.format, getattr(sink, key)))
        if archive is not None:
            taken.append(_Place("archive", "to", "archive", archive.to))
        known = [place for place in taken if place.path]
        for at, place in enumerate(known):
            other = next((each for each in known[:at] if place.collides(each)), None)
            if other is not None:
                self._object(
                    place.section,
                    place.key,
                    f"{_said(place.section)}: {place.key} = {place.path!r} is the {other.key} of "
                    f"[{other.section}], too: give each a folder of its own",
                )


class _Place(NamedTuple):
    """A folder that is read or written, and what for."""

    section: str
    key: str
    kind: str
    path: str

    def collides(self, other: _Place) -> bool:
        """Queues may have several writers, and Delta tables; to read and write one queue is told elsewhere."""
        mine, theirs = (each if "://" in each else os.path.realpath(each) for each in (self.path, other.path))
        if self.kind == "checkpoint":
            return False
        return mine == theirs and not (self.key == other.key == "queue") and not (self.kind == other.kind == "delta")


def _said(section: str) -> str:
    return section.replace(".", " ", 1)


def _nothing(origin: str, there: set[str], sources: dict[str, Source]) -> str:
    if origin.endswith(_CORRUPT) and origin.removesuffix(_CORRUPT) in sources:
        return f"from = {origin!r}: payloads of that source are not parsed, so none fails to"
    return f"from = {origin!r}: there is no source or step of that name{_near(origin, there)}"


def _in_order(steps: dict[str, Step]) -> dict[str, Step]:
    """Each step behind those it is made of; those in a circle are left out."""
    done: dict[str, Step] = {}
    rest = dict(steps)
    while True:
        ready = [name for name, each in rest.items() if not any(origin in rest for origin in each.origin)]
        if not ready:
            return done
        for name in ready:
            done[name] = rest.pop(name)


def _near(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, known, n=2)
    return (
        f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(sorted(known))}" if known else ""
    )


def _kind(kind: Any) -> str:
    names = {str: "text", int: "a whole number", list: "a list", dict: "a table"}
    return " or ".join(names[each] for each in (kind if isinstance(kind, tuple) else (kind,)))
