"""
What is wrong with a pipeline that only Spark can tell: its SQL, its columns, what a stream cannot do. Nothing is run.

Each mistake is one line: where it stands in the file, whose it is, what is wrong, and what would do.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import traceback
from typing import TYPE_CHECKING, Any

import shmq
from shmq.spark import places
from shmq.spark.options import BadOption, SinkOptions
from shmq.spark.spec import BadPipeline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmq.spark.spec import Pipeline, Sink, Step

_OURS = re.compile(r"^(?:shmq\.[\w.]+|[A-Za-z.]*(?:Error|Exception)): (.+)$", re.MULTILINE)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")
_STATE = re.compile(r"\s*SQLSTATE: \w+[;.]?")
_SQL_LINE = re.compile(r"\bline (\d+),? pos \d+")
_DELAY = 'a delay is like "2 minutes", "90 seconds" or "1 hour 30 minutes"'
_WITHOUT = {
    "Sorting is not": "leave ORDER BY out: who reads the result can sort it",
    "Limits are not": "leave LIMIT out",
    "Queries without": "nothing of a source comes into it: a step must read what its `from` names",
}
"""How what Spark says of streams begins, and what would do."""


def said(problem: BaseException) -> str:
    """One line: what our own code said, if it was that, else what Spark says first."""
    text = str(problem).strip()
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1])
    return _STATE.sub("", _CONDITION.sub("", text.partition("\n")[0])).strip().rstrip(";") or type(problem).__name__


def _condition(problem: BaseException) -> str:
    """What Spark calls it; empty if it is none of Spark's."""
    getter = getattr(problem, "getCondition", None)
    return str((getter() if getter is not None else None) or "")


# ---------------------------------------------------------------- steps
def step_frame(spark: Any, pipeline: Pipeline, step: Step, inputs: dict[str, Any]) -> Any:
    """
    What a step makes of its inputs, which SQL knows by their names.

    Raises:
        BadPipeline: nothing.
    """
    section = f"step.{step.name}"
    inputs = dict(inputs)
    if step.watermark:
        first = step.origin[0]
        inputs[first] = _watermarked(pipeline, step, inputs[first])
    if step.python:
        return _by_python(pipeline, step, inputs)
    try:
        for name, frame in inputs.items():
            frame.createOrReplaceTempView(name.replace(".", "_"))
        _check_query(spark, step.sql)
        return spark.sql(step.sql)
    except Exception as problem:
        text = said(problem)
        at = _SQL_LINE.search(str(problem))
        line = pipeline.lines.within(section, "sql", int(at[1]) if at else 1)
        if _condition(problem).startswith("TABLE_OR_VIEW_NOT_FOUND"):
            there = ", ".join(name.replace(".", "_") for name in inputs)
            text += f" SQL sees what the step's `from` names: {there}"
        raise BadPipeline(f"{pipeline.lines.path}:{line}: step {step.name}: {text}") from problem


def _check_query(spark: Any, sql: str) -> None:
    """
    Only queries wait until they are started; a command Spark executes when it is told of it.

    Raises:
        ParseException: Spark cannot read it.
        BadOption: it is a command.
    """
    parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001  # no other way
    parser.parsePlan(sql)
    try:
        parser.parseQuery(re.sub(r"[\s;]+\Z", "", sql))
    except Exception as problem:
        raise BadOption(
            f"{' '.join(sql.split()[:2])} ... is a command, which Spark would execute at once, and not a query. "
            "Nothing was executed: say SELECT ..., and have a [sink.NAME] write it"
        ) from problem


def _watermarked(pipeline: Pipeline, step: Step, frame: Any) -> Any:
    column, delay = step.watermark.split(maxsplit=1)
    where = f"{pipeline.lines(f'step.{step.name}', 'watermark')}: step {step.name}: watermark = {step.watermark!r}"
    origin = step.origin[0]
    try:
        kind = frame.select(frame[column]).schema[0].dataType.simpleString()
    except Exception as problem:
        raise BadPipeline(f"{where}: {_no_column(column, origin, frame)}") from problem
    if kind not in {"timestamp", "timestamp_ntz"}:
        raise BadPipeline(
            f"{where}: {column} of {origin} is {kind}, and a watermark is of a timestamp: make one in a step before "
            "(timestamp_millis, timestamp_seconds, cast), or in the source's schema"
        )
    try:
        return frame.withWatermark(column, delay)
    except Exception as problem:
        raise BadPipeline(f"{where}: {delay!r} is not a delay: {_DELAY}") from problem


def _no_column(name: str, table: str, frame: Any) -> str:
    return f"there is no column {name} in {table}; there are {', '.join(frame.columns)}"


def _by_python(pipeline: Pipeline, step: Step, inputs: Mapping[str, Any]) -> Any:
    from pyspark.sql import DataFrame  # noqa: PLC0415  # 200 ms

    where = f"{pipeline.lines(f'step.{step.name}', 'python')}: step {step.name}: python = {step.python!r}"
    module_name, _, name = step.python.partition(":")
    folder = os.path.dirname(os.path.abspath(pipeline.lines.path))
    if folder not in sys.path:
        sys.path.insert(0, folder)  # for steps that lie beside the file
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        raise BadPipeline(
            f"{where}: there is no module {problem.name}; looked for beside {pipeline.lines.path} and in {sys.prefix}: "
            "put it there, or install it"
        ) from problem
    except Exception as problem:
        raise BadPipeline(f"{where}: {_in_python(problem)}") from problem
    function = getattr(module, name, None)
    if not callable(function):
        raise BadPipeline(f"{where}: module {module_name} ({module.__file__}) has no function {name}")
    try:
        made = function(*inputs.values())
    except Exception as problem:
        raise BadPipeline(f"{where}: {_in_python(problem)}") from problem
    if not isinstance(made, DataFrame):
        raise BadPipeline(f"{where}: it returned {type(made).__name__}, and a DataFrame is wanted")
    return made


def _in_python(problem: BaseException) -> str:
    """What was raised, and by which line of the user's own code."""
    frames = [each for each in traceback.extract_tb(problem.__traceback__) if "site-packages" not in each.filename]
    last = [each for each in frames if each.filename != __file__ and not each.filename.startswith("<frozen")]
    by = f"{last[-1].filename}:{last[-1].lineno}: " if last else ""
    return f"{by}{type(problem).__name__}: {said(problem)}"


# ---------------------------------------------------------------- sinks
def check(spark: Any, pipeline: Pipeline, frames: Mapping[str, Any], visible: Mapping[str, Any]) -> None:
    """
    Whether each sink can be, by its table.

    Args:
        frames: by name, what sources and steps are.
        visible: by sink, what it is given.

    Raises:
        BadPipeline: one or more cannot; a line each.
    """
    problems = []
    for sink in pipeline.sinks.values():
        found = _of_sink(spark, pipeline, sink, frames, visible[sink.name])
        if found is not None:
            key, what = found
            problems.append(f"{pipeline.lines(f'sink.{sink.name}', key)}: sink {sink.name}: {what}")
    if problems:
        raise BadPipeline("\n".join(problems))


def _of_sink(
    spark: Any, pipeline: Pipeline, sink: Sink, frames: Mapping[str, Any], frame: Any
) -> tuple[str | None, str] | None:
    """The key that is wrong, and what is wrong with it."""
    if sink.key and not _has(frame, sink.key):
        return "key", f"key = {sink.key!r}: {_no_column(sink.key, sink.origin, frame)}"
    wrong = _partitions(sink, frame)
    if wrong:
        return "partition_by", f"partition_by = {list(sink.partition_by)!r}: {wrong}"
    if sink.format == "delta" and importlib.util.find_spec("deltalake") is None:
        return "format", "format = \"delta\" needs the package deltalake: pip install 'shmq[delta]'"
    if sink.format == "shmq":
        wrong = _messages(sink, frame)
        if wrong:
            return "value" if sink.value else None, wrong
    return _streaming(spark, pipeline, sink, frames, frame)


def _has(frame: Any, name: str) -> bool:
    try:
        frame[name]  # by name alone: col() finds functions, too, and `user` is one
    except Exception:  # noqa: BLE001  # Spark's, of several kinds
        return False
    return True


def _partitions(sink: Sink, frame: Any) -> str | None:
    from pyspark.sql.types import AtomicType  # noqa: PLC0415

    there = {field.name.lower(): field for field in frame.schema.fields}
    for name in sink.partition_by:
        field = there.get(name.lower())
        if field is None:
            more = (
                f". For a value that is computed, select it in a step: select {name} as part, and say part"
                if re.search(r"\W", name)
                else ""
            )
            return _no_column(name, sink.origin, frame) + more
        if not isinstance(field.dataType, AtomicType):
            return f"{name} is {field.dataType.simpleString()}, and folders are called by plain values"
    if sink.partition_by and len({each.lower() for each in sink.partition_by}) == len(there):
        return "these are all columns that there are, and nothing would be in the files"
    return None


def _messages(sink: Sink, frame: Any) -> str | None:
    """What hinders rows from becoming messages of that queue."""
    from shmq.spark.sink import Encoder, routed  # noqa: PLC0415  # needs pyspark

    if not sink.value and sink.value_format != "raw" and {"key", "value"} == set(frame.columns):
        return (
            'its columns are called key and value: say value = "raw", and they are the message\'s own, or value = '
            '"json", and they are fields of its payload like any other'
        )
    try:
        options = SinkOptions(queue=sink.queue, value_format=sink.value_format)
        Encoder(options, frame.schema)
        if routed(options, frame.columns):
            return None
    except BadOption as problem:
        return str(problem).replace("value.format=json (or msgpack, arrow)", 'value = "json" (or "msgpack", "arrow")')
    return _codec(sink)


def _codec(sink: Sink) -> str | None:
    try:
        shards = places.to_put(sink.queue)
    except shmq.NotFound:
        return None  # it will be made
    except shmq.ShmqError as problem:
        return str(problem)
    codec = places.open_queue(shards[0].path, read_only=True).options.codec
    if codec != "bytes":
        return f'{sink.queue} has codec {codec!r}, and Spark writes bytes: give it a queue with codec "bytes"'
    return None


def _streaming(
    spark: Any, pipeline: Pipeline, sink: Sink, frames: Mapping[str, Any], frame: Any
) -> tuple[str | None, str] | None:
    """What Spark would say when the query starts."""
    problem = _unsupported(spark, frame, sink.mode)
    if problem is None:
        return None
    if "without watermark" not in str(problem):
        text = said(problem)
        remedy = next((each for begin, each in _WITHOUT.items() if text.startswith(begin)), "")
        return None, f"{text}{': ' if remedy else ''}{remedy}"
    behind = [step for step in pipeline.steps.values() if _unsupported(spark, frames[step.name], "append")]
    name = behind[0].name if behind else sink.origin
    update = (
        ', or say mode = "update" here: each group is written again when it changes'
        if sink.format
        in {
            "shmq",
            "console",
        }
        else ""
    )
    if behind and behind[0].watermark:
        column = behind[0].watermark.split()[0]
        return None, (
            f"step {name} has a watermark of {column} and does not group by it, so no group is ever complete: group by "
            f"window({column}, '1 minute'){update}"
        )
    return None, (
        f"step {name} groups a stream, and nothing says when a group is complete: give [step.{name}] a watermark, like "
        f"watermark = \"t 2 minutes\" of a timestamp t, and group by window(t, '1 minute'){update}"
    )


def _unsupported(spark: Any, frame: Any, mode: str) -> BaseException | None:
    """What Spark has against a stream of that table; None also where it cannot be asked before it starts."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return None
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    found: BaseException | None = None
    try:
        output = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), output)  # noqa: SLF001  # no other way
    except AnalysisException as problem:
        found = problem
    except Exception:  # noqa: BLE001  # another Spark, that has it elsewhere: it will say so itself
        return None
    return found
