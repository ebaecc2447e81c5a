"""A pipeline's file is checked whole before anything starts, and each objection names its line."""

from __future__ import annotations

import json

import pytest

import shmq
from shmq.cli import main
from shmq.spark import java, setup, spec

GOOD = """\
[pipeline]
name = "events"
checkpoint = "ckpt"
every = "30s"

[source.events]
queue = "q"
value = "json"
schema = "user BIGINT, t TIMESTAMP"

[step.per_minute]
from = "clean"
watermark = "t 2 minutes"
sql = "select window(t, '1 minute').start as minute, count(*) n from clean group by 1"

[step.clean]
from = "events"
sql = "select * from events where user > 0"

[sink.lake]
from = "clean"
format = "parquet"
path = "lake"

[sink.dead]
from = "events.corrupt"
format = "shmq"
queue = "dead"

[archive]
to = "archive"
after = "6h"
compact_to = "256MB"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pipeline.toml"
    path.write_text(GOOD)
    return path


def test_a_good_one_reads_as_it_says(file):
    found = spec.read(str(file))
    assert found.checkpoint == str(file.parent / "ckpt")
    assert found.sources["events"].queue == str(file.parent / "q")
    assert list(found.steps) == ["clean", "per_minute"]  # in the order they are made
    assert (found.archive.after, found.archive.compact_to) == (21600, 256 << 20)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('name = "events"', 'nam = "events"', 2, "no key 'nam'; did you mean name?"),
        ('every = "30s"', 'every = "soon"', 4, "a duration like 30s"),
        ('every = "30s"', "every = 30", 4, 'text like "30s" is wanted'),
        ('value = "json"', 'value = "yaml"', 8, "one of raw, json"),
        ('value = "json"', "value = 3", 8, "text is wanted"),
        ('schema = "user BIGINT, t TIMESTAMP"\n', "", 8, "needs schema"),
        ('from = "clean"\nwatermark', 'from = "cleen"\nwatermark', 12, "did you mean clean?"),
        ('from = "clean"\nwatermark', 'from = "per_minute"\nwatermark', 12, "made of itself"),
        ('watermark = "t 2 minutes"', 'watermark = "t"', 13, 'like "t 2 minutes"'),
        ('sql = "select * from events', 'python = "nothing"\nsql = "select * from events', 16, "and not both"),
        ('format = "parquet"', 'format = "orc"', 22, "one of parquet, delta, shmq, console"),
        ('path = "lake"', 'queue = "lake"', 20, "needs path"),
        ('from = "events.corrupt"', 'from = "other.corrupt"', 26, "no source or step"),
        ('queue = "dead"', 'queue = "q"', 28, "it would never end"),
        ("[archive]", "[archiv]", 30, "there is no section [archiv]"),
        ('compact_to = "256MB"', 'compact_to = "much"', 33, "like 256MB"),
        ('compact_to = "256MB"', 'format = "csv"', 33, "parquet or delta"),
        ('compact_to = "256MB"', 'schema = "n BIGNT"', 33, "there is no type BIGNT"),
    ],
)
def test_an_objection_names_its_line(file, old, new, line, said):
    assert old in GOOD
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(spec.BadPipeline) as problem:
        spec.read(str(file))
    assert any(each.startswith(f"{file}:{line}: ") and said in each for each in str(problem.value).splitlines()), (
        problem.value
    )


def test_what_is_no_toml_is_told_with_its_line(file):
    file.write_text("[pipeline\n")
    with pytest.raises(spec.BadPipeline, match=r"pipeline\.toml:1: .*line 1"):
        spec.read(str(file))
    file.write_text(f"{GOOD}[")
    with pytest.raises(spec.BadPipeline, match=rf"pipeline\.toml:{len(GOOD.splitlines()) + 1}: "):
        spec.read(str(file))


def test_all_objections_come_at_once(file):
    file.write_text(GOOD.replace("name =", "nam =").replace('format = "parquet"', 'format = "orc"'))
    with pytest.raises(spec.BadPipeline) as problem:
        spec.read(str(file))
    assert len(str(problem.value).splitlines()) >= 3


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ('format = "parquet"\npath = "lake"', "sink second: path = '{}/lake' is the path of [sink.first], too"),
        ('format = "delta"\npath = "lake"', "sink second: path = '{}/lake' is the path of [sink.first], too"),
        ('format = "shmq"\nqueue = "lake"', "sink second: queue = '{}/lake' is the path of [sink.first], too"),
        ('format = "delta"\npath = "ckpt"', "sink second: path = '{}/ckpt' is the checkpoint of [pipeline], too"),
        ('format = "delta"\npath = "ckpt/first"', "sink second: path = '{}/ckpt/first' is the checkpoint of"),
        ('format = "parquet"\npath = "./q"', "sink second: path = '{}/q' is the queue of [source.events], too"),
        ('format = "console"\n[archive]\nto = "lake"', "archive: to = '{}/lake' is the path of [sink.first], too"),
        ('format = "console"\n[archive]\nto = "q"', "archive: to = '{}/q' is the queue of [source.events], too"),
    ],
)
def test_found_places_that_two_write_to_are_told(file, tmp_path, second, said):
    """Of two Parquet sinks in one folder, each took the other's batches for its own."""
    first = """
        [pipeline]
        name = "p"
        checkpoint = "ckpt"
        [source.events]
        queue = "q"
        [sink.first]
        from = "events"
        format = "parquet"
        path = "lake"
        [sink.second]
        from = "events"
    """
    file.write_text(first + second)
    with pytest.raises(spec.BadPipeline) as problem:
        spec.read(str(file))
    (line,) = str(problem.value).splitlines()
    assert said.format(tmp_path) in line
    for fine in ('format = "shmq"\nqueue = "r"', 'format = "parquet"\npath = "ckpt/lake"'):
        file.write_text(first + fine)
        spec.read(str(file))


def test_found_queues_and_delta_tables_may_have_several_writers(file):
    file.write_text(
        """
        [pipeline]
        name = "p"
        checkpoint = "ckpt"
        [source.events]
        queue = "q"
        [source.again]
        queue = "q"
    """
        + "".join(
            f"""
        [sink.queue{n}]
        from = "events"
        format = "shmq"
        queue = "r"
        [sink.table{n}]
        from = "events"
        format = "delta"
        path = "t"
    """
            for n in range(2)
        )
    )
    spec.read(str(file))


def test_a_dry_run_makes_nothing_and_says_what_waits(spark, file, tmp_path, capsys):  # else it starts one
    with shmq.open(tmp_path / "q", retention="forever") as queue:
        queue.put_many([b"{}"] * 42)
    assert main(["pipeline", "run", str(file), "--dry-run", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["sources"]["events"]["shards"] == [{"shard": "q/0", "from": 0, "to": 42}]
    assert main(["pipeline", "run", str(file), "--dry-run"]) == 0
    assert "nothing was started" in capsys.readouterr().out
    assert sorted(each.name for each in tmp_path.iterdir()) == ["pipeline.toml", "q"]


def test_a_queue_that_is_not_there_is_told_before_spark_starts(file, capsys):
    pytest.importorskip("pyspark", reason="pip install 'shmq[spark]'")
    assert main(["pipeline", "run", str(file), "--once"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"{file}:7: source events: ")
    assert "there is no queue there" in said


def test_a_bad_file_is_told_as_compilers_do(file, capsys):
    file.write_text(GOOD.replace('format = "parquet"', 'format = "orc"'))
    assert main(["pipeline", "run", str(file), "--dry-run"]) == 1
    assert capsys.readouterr().err.startswith(f"{file}:22: format = 'orc'")


def test_a_folder_that_cannot_be_an_archive_is_told_before_spark_starts(file, tmp_path, capsys):
    pytest.importorskip("pyspark", reason="pip install 'shmq[spark]'")
    shmq.open(tmp_path / "q", retention="forever").close()
    (tmp_path / "archive").mkdir()
    shmq.spark.plan_pipeline(spec.read(str(file)))
    (tmp_path / "archive" / "mine.parquet").touch()
    assert main(["pipeline", "run", str(file), "--once"]) == 1
    assert f"archive: {tmp_path}/archive is not an archive" in capsys.readouterr().err


@pytest.mark.parametrize(("conf", "expected"), [({}, "cache"), ({"spark.sql.warehouse.dir": "/mine"}, "/mine")])
def test_found_no_empty_warehouse_is_left_where_a_pipeline_is_started(file, monkeypatch, conf, expected):
    sql = pytest.importorskip("pyspark.sql", reason="pip install 'shmq[spark]'")
    from shmq.spark import pipeline

    words = ", ".join(f'"{key}" = "{value}"' for key, value in conf.items())
    file.write_text(GOOD.replace('every = "30s"', f"conf = {{ {words} }}"))
    given = {}
    monkeypatch.setattr(sql.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(setup, "session", lambda *_, **settings: given.update(settings))
    pipeline._session(spec.read(str(file)), "local[1]")
    assert given["spark.sql.warehouse.dir"].startswith(str(java.cache()) if expected == "cache" else expected)
    given.clear()
    monkeypatch.setattr(sql.SparkSession, "getActiveSession", lambda: "one that runs, and keeps its own")
    pipeline._session(spec.read(str(file)), "local[1]")
    assert given.get("spark.sql.warehouse.dir") == conf.get("spark.sql.warehouse.dir")
