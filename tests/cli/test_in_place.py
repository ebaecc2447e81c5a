"""`shmq put` and `shmq take` on Kestrel's and QewQew's own queues."""

import io
import os

import pytest

from shmq import formats
from shmq.cli import main
from shmq.formats import Entry, kestrel, qewqew


@pytest.fixture
def run(capfdbinary, monkeypatch):
    """Run a verb in this process: (exit status, stdout, stderr)."""

    def run(*words, given=b""):
        read, write = os.pipe()
        os.write(write, given)
        os.close(write)
        with io.FileIO(read) as stdin, monkeypatch.context() as patch:
            patch.setattr("sys.stdin", stdin)
            status = main([str(word) for word in words])
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return run


def payloads(path, name):
    return [entry.payload for entry in formats.read(path, name)]


def test_items_are_put_into_a_kestrel_journal_and_taken(tmp_path, run):
    words = ("--foreign", "kestrel", "--queue", "orders")
    status, out, err = run("put", tmp_path, "hello", *words, "--ttl", 60)
    assert (status, out) == (0, "put 1 message\n")
    assert "nobody can know" in err
    assert run("put", tmp_path, *words, "--json", given=b"a\nb\n\nlast")[0] == 0
    found = list(formats.read(tmp_path, "kestrel"))
    assert [entry.payload for entry in found] == [b"hello", b"a", b"b", b"", b"last"]
    assert [entry.expires_ns is None for entry in found] == [False, True, True, True, True]
    assert run("take", tmp_path, *words)[:2] == (0, "hello\n")
    status, out, _ = run("take", tmp_path, *words, "-n", 2, "--json")
    assert (status, out.count("\n"), '"payload": "a"' in out) == (0, 2, True)
    status, out, err = run("take", tmp_path, *words, "-n", 9)
    assert (status, out) == (0, "\nlast\n")
    assert "took 2 of 9: there are no more" in err
    assert run("take", tmp_path, *words)[:2] == (1, "")


def test_a_fan_out_child_is_a_name_to_take_as(tmp_path, run):
    kestrel.write(tmp_path / "spool", [Entry(b"x")], "orders", {"audit": (0, ())})
    assert run("take", tmp_path / "spool", "audit", "--foreign", "kestrel", "--queue", "orders")[:2] == (0, "x\n")
    assert payloads(tmp_path / "spool" / "orders", "kestrel") == [b"x"]


def test_elements_are_put_into_a_qewqew_and_taken(tmp_path, run):
    assert run("put", tmp_path / "q", "--foreign", "qewqew", given=b"a\nb\n")[:2] == (0, "put 2 messages\n")
    assert payloads(tmp_path / "q", "qewqew") == [b"a", b"b"]
    assert run("take", tmp_path / "q", "--foreign", "qewqew", "--format", "hex", "-n", 2)[:2] == (0, "61\n62\n")


def test_what_a_foreign_queue_has_no_place_for_is_refused(tmp_path, run):
    for words in (("--key", "k"), ("--ttl", 5), ("--delay", 5), ("--type", 3)):
        status, _, err = run("put", tmp_path / "q", "x", "--foreign", "qewqew", *words)
        assert (status, f"qewqew has no place for {words[0]}" in err) == (1, True)
    status, _, err = run("take", tmp_path / "q", "name", "--foreign", "qewqew")
    assert (status, "one nameless reader" in err) == (1, True)
    assert run("put", tmp_path / "nowhere", "x", "--foreign", "kestrel", "--queue", "q")[0] == 1
    assert list(tmp_path.iterdir()) == []
    with qewqew.open(tmp_path / "q"):
        assert run("put", tmp_path / "q", "x", "--foreign", "qewqew")[0] == 1
    assert run("take", tmp_path)[0] == 2
