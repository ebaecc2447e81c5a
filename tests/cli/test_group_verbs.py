"""shmq dead and shmq consumer: what operators do about groups."""

from __future__ import annotations

import json

import msgspec
import pytest

import shmq
from shmq.cli import main


class Order(msgspec.Struct):
    number: int


@pytest.fixture
def dead(queue, path):
    """A queue with three dead letters beside it: their path."""
    queue.put_many([b"a", b"b", b"c"], keys=[b"k"] * 3)
    with queue.consumer("g", group=True, ack="explicit") as member:
        for message in member.get_many(3, 0):
            message.reject(f"no {message.payload.decode()}")
    return f"{path}.g.dead"


def test_dead_ls(dead, capsys):
    """As a table and as JSON; twice, for looking takes nothing."""
    for _ in range(2):
        assert main(["dead", "ls", dead]) == 0
        rows = capsys.readouterr().out.splitlines()
        assert rows[0].split() == ["LETTER", "INDEX", "GROUP", "CAUSE", "ATTEMPTS", "REASON"]
        assert rows[2].split() == ["1", "1", "g", "rejected", "1", "no", "b"]
    assert main(["dead", "ls", dead, "--json"]) == 0
    assert [each["reason"] for each in json.loads(capsys.readouterr().out)] == ["no a", "no b", "no c"]


def test_who_only_looks_leaves_no_name_behind(dead, queue, path, capsys):
    """And a queue of other things is not taken for dead letters."""
    for what in (["ls"], ["show", "0"], ["requeue", "0"]):
        assert main(["dead", what[0], path, *what[1:]]) == 1
        assert "is not a queue of dead letters" in capsys.readouterr().err
        assert list(queue.consumers()) == ["g"]


def test_dead_show(dead, capsys):
    """Everything about one."""
    assert main(["dead", "show", dead, "2"]) == 0
    told = capsys.readouterr().out
    assert "reason: no c" in told
    assert "b'c'" in told


def test_found_a_letter_that_its_codec_cannot_read_could_not_be_shown_or_put_back(path, capsys):
    """Its bytes are what is put back."""
    with shmq.open(path, codec="json") as queue:
        with queue.producer() as producer, producer.reserve(1) as slot:
            slot.buffer[:] = b"{"
        with queue.consumer("g", group=True, ack="explicit") as member:
            member.get(timeout=0).reject("unreadable")
        assert main(["dead", "show", f"{path}.g.dead", "0"]) == 0
        assert "b'{', which codec 'json' cannot read: Input data was truncated" in capsys.readouterr().out
        assert main(["dead", "requeue", f"{path}.g.dead", "--all"]) == 0
        assert bytes(queue[1].view) == b"{"


def test_found_a_letter_in_a_queue_of_another_codec_came_back_as_something_else(path, capsys):
    """Its bytes come back, once; a codec that this command has not got is no hindrance."""
    made = {"j": "json", "s": shmq.codec.struct(Order)}
    for name, codec in made.items():
        source, letters = f"{path}.{name}", f"{path}.{name}.text"
        shmq.open(letters, codec="text").close()
        with shmq.open(source, codec=codec) as queue:
            queue.put(5 if name == "j" else Order(5), key=b"k", headers={"a": 1})
            with queue.consumer("g", group=True, ack="explicit", dead_letter=letters) as member:
                member.get(timeout=0).reject("no")
            assert main(["dead", "requeue", letters, "--all"]) == 0
            assert (queue[1].payload, queue[1].key, queue[1].headers) == (queue[0].payload, b"k", {"a": 1})
    capsys.readouterr()


def test_dead_requeue_and_drop(dead, queue, capsys):
    """They are gone from the letters; what was put back is as it was."""
    assert main(["dead", "requeue", dead, "1"]) == 0
    assert (queue[3].payload, queue[3].key, queue[3].headers) == (b"b", b"k", {})
    assert main(["dead", "drop", dead, "--all", "--yes"]) == 0
    capsys.readouterr()
    assert main(["dead", "ls", dead]) == 0
    assert capsys.readouterr().out == "no dead letters\n"
    assert main(["dead", "drop", dead, "1", "--yes"]) == 1
    assert "no dead letter 1" in capsys.readouterr().err


def test_consumer_ls_and_rm(queue, path, capsys):
    """Of every kind; one that somebody holds stays."""
    queue.consumer("plain").close()
    member = queue.consumer("g", group=True)
    assert main(["consumer", "ls", path]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split(":")[0] for row in rows] == ["g", "plain"]
    assert main(["consumer", "ls", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["g"]["group"]["window"] == 65536
    assert main(["consumer", "rm", path, "g", "--yes"]) == 1
    member.close()
    assert main(["consumer", "rm", path, "g", "--yes"]) == 0
    assert list(queue.consumers()) == ["plain"]


def test_a_queue_that_was_finished_takes_no_letter_back_until_it_is_said(dead, queue, path, capsys):
    """The letter stays, and the stream stays at its end."""
    queue.finish()
    queue.close()
    assert main(["dead", "requeue", dead, "1"]) == 1
    told = capsys.readouterr().err
    assert f"cannot put letter 1 back: {path} was finished" in told
    assert "the letter stays" in told
    with shmq.open(path) as again:
        assert (again.finished, again.next_index) == (True, 3)
    assert main(["dead", "requeue", dead, "1", "--reopen"]) == 0
    with shmq.open(path) as again:
        assert (again.finished, again[3].payload) == (False, b"b")


def test_dead_ls_and_show_only_look(dead, capsys):
    """Also while another operator holds letters, and has dropped one; show as JSON, too."""
    with shmq.open(dead) as letters, letters.consumer("operator", group=True, ack="explicit") as operator:
        operator.get(0).ack()
        held = operator.get(0)
        before = letters.consumers()
        assert main(["dead", "ls", dead, "--json"]) == 0
        assert [each["letter"] for each in json.loads(capsys.readouterr().out)] == [1, 2]
        assert main(["dead", "show", dead, "--all", "--json"]) == 0
        assert [(each["payload"], each["reason"]) for each in json.loads(capsys.readouterr().out)] == [
            ("b", "no b"),
            ("c", "no c"),
        ]
        assert letters.consumers() == before
        held.ack()


def test_letters_are_named_or_all_is_said(dead, capsys):
    """`dead requeue Q` did nothing and ended with 0."""
    for what in ("show", "requeue", "drop"):
        assert main(["dead", what, dead]) == 2
        assert "which letters? Give indexes, or --all" in capsys.readouterr().err
