"""Whose directory it is: what is in there is run, so anybody else's hand in it is refused before anything is read."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys

import jobs
import pytest

import shmq
from shmq.executor import names
from shmq.executor.directory import Directory


def modes(path):
    return {
        oct(os.lstat(os.path.join(folder, name)).st_mode & 0o7777)
        for folder, folders, files in os.walk(path)
        for name in (*folders, *files)
    }


def test_what_is_made_is_for_its_user_alone(executor, path):
    ex = executor(1)
    ex.submit(jobs.double, 1, key="k").result(timeout=30)
    assert oct(os.stat(path).st_mode & 0o7777) == "0o700"
    assert modes(path) <= {"0o700", "0o600"}


def test_one_that_was_removed_under_an_executor_is_told(executor, path):
    """Found by an attack: by key it was a bare FileNotFoundError of 'page'."""
    ex = executor(0)
    shutil.rmtree(path)
    for ask in (lambda: ex.submit(jobs.double, 1, key="k"), lambda: ex.forget("k")):
        with pytest.raises(shmq.NotFound, match="removed while it was open"):
            ask()


def test_what_is_no_directory_and_what_is_no_number_is_told(path, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(shmq.BadFormat, match="it is not a directory"):
        shmq.Executor(tmp_path / "file", 0)
    with pytest.raises(TypeError, match="max_workers='2': an int is wanted, not str"):
        shmq.Executor(path, "2")
    with shmq.Executor(path, 0) as ex:
        for name in ("timeout", "deadline", "backoff"):
            with pytest.raises(TypeError, match=f"{name}='60': a number of seconds is wanted, not str"):
                ex.task(**{name: "60"})
        with pytest.raises(TypeError, match=r"forget\(3\): a task's key is str or bytes, not int"):
            ex.forget(3)
        with pytest.raises(shmq.NotFound, match="more than 7 days ago"):
            ex.result("nobody's")


def test_there_are_no_volatile_ones():
    with pytest.raises(ValueError, match="no volatile Executors"):
        shmq.Executor("shm:jobs", 0)


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701, 0o770])
def test_a_directory_that_is_open_to_others_is_refused(path, mode):
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(shmq.Unsafe, match="chmod 700"):
        shmq.Executor(path, 0)
    assert list(path.iterdir()) == []


def test_what_is_open_in_it_is_refused(path):
    shmq.Executor(path, 0).shutdown()
    (path / names.DESCRIPTION).chmod(0o644)
    with pytest.raises(shmq.Unsafe, match=r"executor.json is open to others"):
        shmq.Executor(path, 0)


def test_a_link_is_refused(path, tmp_path):
    shmq.Executor(path, 0).shutdown()
    (tmp_path / "link").symlink_to(path)
    with pytest.raises((shmq.Unsafe, OSError)):
        shmq.Executor(tmp_path / "link", 0)
    (path / "more").symlink_to("/etc")
    with pytest.raises(shmq.Unsafe, match="more is a link"):
        shmq.Executor(path, 0)


def test_whoever_could_replace_a_directory_above_it_is_refused(path, tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(shmq.Unsafe, match="may be written by others"):
        shmq.Executor(path, 0)
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root to become somebody else")
def test_the_directory_of_another_user_is_refused(path, tmp_path):
    shmq.Executor(path, 0).shutdown()
    os.chown(path, 12345, 12345)
    with pytest.raises(shmq.Unsafe, match="belongs to user 12345"):
        shmq.Executor(path, 0)
    os.chown(path, 0, 0)
    os.chown(path / "page", 12345, 12345)
    with pytest.raises(shmq.Unsafe, match="page belongs to user 12345"):
        shmq.Executor(path, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to be root to become somebody else")
def test_a_second_user_can_neither_submit_nor_read(executor, path, tmp_path):
    executor(0).submit(jobs.double, 1)
    for each in (path, *path.parents):
        if each.stat().st_uid == os.geteuid() and each != path and each.stat().st_mode & 0o077 == 0:
            each.chmod(each.stat().st_mode | 0o011)
    code = f"""
import os
os.setgroups([]); os.setgid(12345); os.setuid(12345)
path = {str(path)!r}
for what in (lambda: os.listdir(path), lambda: open(path + "/page", "rb"), lambda: open(path + "/x", "w")):
    try:
        what()
    except PermissionError:
        print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["refused"] * 3


def test_what_is_something_else_is_left_alone(path):
    path.mkdir(mode=0o700)
    (path / "thesis.txt").touch(mode=0o600)
    with pytest.raises(shmq.BadFormat, match=r"thesis.txt"):
        shmq.Executor(path, 0)
    assert [each.name for each in path.iterdir()] == ["thesis.txt"]


def test_a_newer_version_is_refused(path):
    shmq.Executor(path, 0).shutdown()
    told = json.loads((path / names.DESCRIPTION).read_text())
    (path / names.DESCRIPTION).write_text(json.dumps({**told, "version": 99}))
    with pytest.raises(shmq.BadFormat, match="version 99"):
        shmq.Executor(path, 0)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 1}'])
def test_a_damaged_description_is_told(path, text):
    shmq.Executor(path, 0).shutdown()
    (path / names.DESCRIPTION).write_text(text)
    with pytest.raises(shmq.BadFormat, match="damaged"):
        shmq.Executor(path, 0)


def test_what_it_was_made_with_is_not_contradicted(path):
    shmq.Executor(path, 0, keep=60, lease=30).shutdown()
    shmq.Executor(path, 0).shutdown()
    for other in ({"keep": 61}, {"lease": 31}):
        with pytest.raises(shmq.Mismatch):
            shmq.Executor(path, 0, **other)


def test_whoever_makes_it_may_be_killed_at_any_step(path):
    from support import killed_at

    def make():
        Directory(path).close()

    step = 0
    while killed_at(step, make, {"mkdir", "open", "rename", "fsync", "posix_fallocate", "link"}):
        step += 23  # a slice of them: each is as good as the others
    assert step > 23
    with shmq.Executor(path, 0) as ex:
        assert ex.submit(jobs.double, 1).cancel()


def test_two_who_make_it_at_once_have_one(path):
    from support import Child

    def make(say):
        Directory(path).close()
        say("made")

    with Child(make) as one, Child(make) as two:
        assert one.hear() == two.hear() == "made"
        assert one.join() == two.join() == 0


def test_there_must_be_a_directory_above(tmp_path):
    with pytest.raises(shmq.NotFound, match="above it does not exist"):
        shmq.Executor(tmp_path / "no" / "jobs", 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_workers": -1},
        {"max_workers": 0, "max_attempts": 0},
        {"max_workers": 0, "max_pending": 0},
        {"max_workers": 0, "max_tasks_per_child": 0},
        {"max_workers": 0, "initializer": 3},
    ],
)
def test_what_means_nothing_is_refused_before_anything_is_made(path, wrong):
    with pytest.raises((TypeError, ValueError)):
        shmq.Executor(path, **wrong)
    assert not path.exists()


def test_a_pickle_in_the_tasks_is_not_read_where_the_directory_is_refused(path, tmp_path):
    class Bad:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "run"),)

    shmq.Executor(path, 0).shutdown()
    with shmq.open(path / "tasks") as tasks:
        tasks.put(pickle.dumps(Bad()))
    path.chmod(0o755)
    with pytest.raises(shmq.Unsafe):
        shmq.Executor(path, 1)
    assert not (tmp_path / "run").exists()
