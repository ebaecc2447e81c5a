"""
Mistakes in a pipeline's file: each is one line that says where, whose, what, and a remedy; and the remedy works.

All of them are told by `--dry-run`, which asks Spark and runs nothing.
"""

from __future__ import annotations

import pytest

import shmq
from shmq.cli import main
from shmq.spark import spec

GOOD = """\
[pipeline]
name = "test"
checkpoint = "ckpt"

[source.events]
queue = "q"
value = "json"
schema = "n BIGINT, kind STRING, t TIMESTAMP"

[step.clean]
from = "events"
sql = "select * from events where n >= 0"

[step.agg]
from = "clean"
watermark = "t 2 minutes"
sql = '''
select window(t, '1 minute').start as minute, kind, count(*) n
from clean group by window(t, '1 minute'), kind'''

[sink.lake]
from = "clean"
format = "parquet"
path = "lake"

[sink.stats]
from = "agg"
format = "shmq"
queue = "stats"
"""
WATERMARK = 'watermark = "t 2 minutes"\n'
STATS = 'queue = "stats"\n'
CLEAN = 'sql = "select * from events where n >= 0"'
GROUPED = "group by window(t, '1 minute'), kind"
MINUTES = f"select window(t, '1 minute').start as minute, kind, count(*) n\nfrom clean {GROUPED}"
STEPS = """\
def wrong(frame):
    return frame.nothing


def none(frame):
    pass


def same(frame):
    return frame
"""


@pytest.fixture
def dry_run(spark, tmp_path, capsys):  # else each would start one
    """What a dry run of the pipeline, with some text replaced, says: its status, and the lines of its errors."""
    (tmp_path / "steps.py").write_text(STEPS)
    with shmq.open(tmp_path / "q") as queue:
        queue.put(b'{"n": 1, "kind": "a", "t": "2024-01-01T00:00:00"}')
    shmq.open(tmp_path / "pickled", codec="json").close()
    file = tmp_path / "p.toml"

    def run(*replaced):
        text = GOOD
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new, 1)
        file.write_text(text)
        status = main(["pipeline", "run", str(file), "--dry-run"])
        return status, [line.removeprefix(f"{file}:") for line in capsys.readouterr().err.splitlines()]

    return run


@pytest.mark.parametrize(
    ("wrong", "line", "said", "remedy"),
    [
        ((WATERMARK, ""), 25, "sink stats: step agg groups a stream", (STATS, STATS + 'mode = "update"\n')),
        (
            (MINUTES, "select kind, count(*) n\nfrom clean group by kind"),
            26,
            "does not group by it",
            (STATS, STATS + 'mode = "update"\n'),
        ),
        (("2 minutes", "2 minuts"), 16, "'2 minuts' is not a delay", ("2 minuts", "1 hour 30 minutes")),
        (("2 minutes", "2m"), 16, "a delay is like", ("2m", "90 seconds")),
        (('"t 2 minutes', '"tt 2 minutes'), 16, "no column tt in clean", ('"tt 2', '"t 2')),
        (('"t 2 minutes', '"n 2 minutes'), 16, "n of clean is bigint", ('"n 2', '"t 2')),
        ((STATS, STATS + 'key = "user"\n'), 30, "sink stats: key = 'user': there is no column", ("user", "kind")),
        (
            ('path = "lake"', 'path = "lake"\npartition_by = ["date(t)"]'),
            25,
            "sink lake: partition_by = ['date(t)']: there is no column date(t) in clean",
            ('["date(t)"]', '["kind"]'),
        ),
        (
            ('path = "lake"', 'path = "lake"\npartition_by = ["n", "kind", "t"]'),
            25,
            "nothing would be in the files",
            ('["n", "kind", "t"]', '["kind"]'),
        ),
        ((CLEAN, CLEAN.replace("select", "selct")), 12, "step clean: Syntax error at or near 'selct'", None),
        ((CLEAN, CLEAN.replace("n >= 0", "nn >= 0")), 12, "Did you mean one of the following? [`n`", None),
        ((GROUPED, "group by nothing, kind"), 19, "step agg: A column", None),
        ((CLEAN, CLEAN.replace("from events", "from event")), 12, "the step's `from` names: events", None),
        ((CLEAN, CLEAN[:-1] + ' order by n"'), 21, "sink lake: Sorting is not supported", None),
        ((CLEAN, 'python = "nosuch:f"'), 12, "there is no module nosuch; looked for beside", None),
        ((CLEAN, 'python = "steps:f"'), 12, "steps.py) has no function f", ("steps:f", "steps:same")),
        ((CLEAN, 'python = "steps:wrong"'), 12, "steps.py:2: ", None),
        ((CLEAN, 'python = "steps:none"'), 12, "it returned NoneType, and a DataFrame is wanted", None),
        (("n BIGINT", "n BIGINTT"), 8, 'source events: Unsupported data type "BIGINTT"', ("BIGINTT", "BIGINT")),
        ((STATS, 'queue = "pickled"\n'), 26, "has codec 'json', and Spark writes bytes", ("pickled", "new")),
        ((STATS, STATS + 'value = "raw"\n'), 30, "sink stats: ", ('"raw"', '"json"')),
    ],
)
def test_found_a_mistake_is_one_line_and_its_remedy_works(dry_run, tmp_path, wrong, line, said, remedy):
    """They were tracebacks of 36 lines, of a run: the dry run said that all was well."""
    status, lines = dry_run(wrong)
    assert status == 1
    assert [each for each in lines if said in each and each.startswith(f"{line}: ")], lines
    assert len(lines) <= 2  # one for each that is wrong by it
    assert sorted(each.name for each in tmp_path.iterdir() if each.name != "__pycache__") == [
        "p.toml",
        "pickled",
        "q",
        "steps.py",
    ]
    if remedy is not None:
        assert dry_run(wrong, remedy) == (0, [])


def test_found_columns_called_key_and_value_were_raw_without_a_word(dry_run):
    """A user's own key and value were not fields of JSON, as those of every other table are."""
    columns = (CLEAN, 'sql = "select kind as key, kind as value from events"')
    sink = ('from = "agg"', 'from = "clean"')
    agg = (GOOD[GOOD.index("[step.agg]") : GOOD.index("[sink.lake]")], "")
    status, lines = dry_run(agg, columns, sink)
    assert status == 1
    assert lines[0] == (
        '19: sink stats: its columns are called key and value: say value = "raw", and they are the message\'s own, or '
        'value = "json", and they are fields of its payload like any other'
    )
    for value in ("raw", "json"):
        assert dry_run(agg, columns, sink, (STATS, f'{STATS}value = "{value}"\n')) == (0, [])


@pytest.mark.parametrize(
    "command",
    [
        "insert overwrite local directory '{}/made' select * from events",
        "create table made as select 1 as n",
        "drop table if exists made",
        "with x as (select 1 as n) insert into made select * from x",
        "execute immediate 'create table made as select 1 as n'",
        "begin create table made as select 1 as n; end",
    ],
)
def test_found_a_dry_run_executed_commands(dry_run, tmp_path, spark, command):
    status, lines = dry_run((CLEAN, f'sql = "{command.format(tmp_path)}"'))
    assert status == 1
    begin = " ".join(command.split()[:2])
    assert lines[0].startswith(f"12: step clean: {begin} ... is a command, which Spark would execute at once"), lines
    assert not (tmp_path / "made").exists()
    assert not spark.catalog.tableExists("made")


def test_found_queries_are_no_commands(dry_run):
    for query in (
        "select * from events;",
        "with x as (select * from events) select * from x",
        "from events |> where n > 0",
    ):
        assert dry_run((CLEAN, f'sql = "{query}"')) == (0, [])


def test_settings_that_spark_refuses_are_one_line(dry_run):
    wrong = ('checkpoint = "ckpt"', 'checkpoint = "ckpt"\nconf = { "spark.sql.shuffle.partitions" = "many" }')
    status, lines = dry_run(wrong)
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith("4: Spark does not start with these settings: ")


def test_all_sinks_are_told_at_once(dry_run):
    status, lines = dry_run(('path = "lake"', 'path = "lake"\npartition_by = ["a"]'), (STATS, STATS + 'key = "b"\n'))
    assert status == 1
    assert [line.partition(": ")[0] for line in lines] == ["25", "31"]


# ---------------------------------------------------------------- what needs no Spark
def refused(tmp_path, old, new):
    assert old in GOOD
    file = tmp_path / "p.toml"
    file.write_bytes(GOOD.replace(old, new, 1).encode() if isinstance(new, str) else new)
    with pytest.raises(spec.BadPipeline) as problem:
        spec.read(str(file))
    return str(problem.value).removeprefix(f"{file}:")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('value = "json"', 'value = "json"\nstarting = "begin"', "8: starting = 'begin': earliest, latest, or JSON"),
        ('value = "json"', 'value = "json"\nstarting = \'{"q": {"0": -7}}\'', "an offset is 0 or more; -1 is latest"),
        ('value = "json"', 'value = "json"\noptions = { endingOffset = "x" }', "did you mean endingOffsets"),
        ('value = "json"', 'value = "json"\noptions = { mode = "LENIENT" }', "8: source events: option mode='LENIENT'"),
        (
            STATS,
            STATS + 'delivery = "exactly-once"\n',
            "30: sink stats: delivery = 'exactly-once': one of exactly_once",
        ),
        (STATS, STATS + 'value = "jsn"\n', "30: sink stats: value = 'jsn': one of raw, json, arrow, msgpack"),
        (STATS, STATS + 'partition_by = ["kind"]\n', "30: sink stats: partition_by is for format = parquet or delta"),
        (
            'queue = "q"',
            'queue = "s3a://bucket/q"',
            "6: queue = 's3a://bucket/q': a queue, or an archive, is a directory",
        ),
    ],
)
def test_found_words_that_mean_nothing_are_told_by_the_file_alone(tmp_path, old, new, said):
    assert said in refused(tmp_path, old, new)


def test_found_a_mark_in_front_of_the_file_is_no_mistake_and_other_encodings_are_told(tmp_path):
    file = tmp_path / "p.toml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert spec.read(str(file)).name == "test"
    file.write_bytes(GOOD.replace('"test"', '"é"').encode("latin-1"))
    with pytest.raises(spec.BadPipeline, match=r"p\.toml:2: byte 19 is no UTF-8"):
        spec.read(str(file))


def test_found_places_may_be_written_as_spark_writes_them(tmp_path):
    file = tmp_path / "p.toml"
    text = (
        GOOD.replace('"q"', '"file:///data/q"').replace('"ckpt"', '"file:/data/c%20k"').replace('"lake"', '"s3a://b/l"')
    )
    file.write_text(text)
    found = spec.read(str(file))
    assert (found.sources["events"].queue, found.checkpoint) == ("/data/q", "/data/c k")
    assert found.sinks["lake"].path == "s3a://b/l"


def test_found_an_archive_whose_queue_forgets_what_no_sink_has_read_is_refused(tmp_path):
    """The archive was quicker than a sink without a group, which then ended with Gone."""
    shmq.open(tmp_path / "q").close()
    file = tmp_path / "p.toml"
    text = GOOD + '\n[archive]\nto = "archive"\n'
    file.write_text(text)
    with pytest.raises(spec.BadPipeline) as problem:
        shmq.spark.plan_pipeline(spec.read(str(file)))
    assert str(problem.value).startswith(f"{file}:6: source events: {tmp_path}/q forgets what is archived, also what")
    assert 'say group = "test" in [source.events]' in str(problem.value)
    file.write_text(text.replace('value = "json"', 'value = "json"\ngroup = "test"', 1))
    shmq.spark.plan_pipeline(spec.read(str(file)))
