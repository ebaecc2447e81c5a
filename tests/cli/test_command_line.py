"""The shell can say what the API can: options, inputs, times, filters, groups; and what it says when it is misused."""

import argparse
import contextlib
import datetime
import functools
import itertools
import json
import os
import pty
import re
import resource
import select
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
from support import start as start_child
from support import until

import demo
import shmq
from shmq import cli
from shmq.cli import demo as cli_demo
from shmq.cli import man, progress, whence
from shmq.cli.verbs import VERBS


@pytest.fixture
def here(tmp_path, monkeypatch, shm_root):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sh(here, monkeypatch, capfdbinary):
    """Run a line of the shell's words in this process: (exit status, stdout, stderr)."""

    def run(*words, stdin=None):
        (here / ".stdin").write_bytes(stdin or b"")
        with open(here / ".stdin") as file, monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", file)
            try:
                status = cli.main([str(word) for word in words])
            except SystemExit as ended:
                status = ended.code
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return run


def found(path="q", **more):
    """What is in a queue: (payload, key, type, headers) each."""
    with shmq.open(path, create=False, **more) as queue:
        return [(each.payload, each.key, each.type, each.headers) for each in queue.reader()]


# ---------------------------------------------------------------- queues
def test_a_queue_is_made_with_every_option_and_changed_while_it_lives(sh):
    words = [
        "--durability",
        "sync",
        "--retention",
        "age=7d",
        "--max-messages",
        "9",
        "--max-bytes",
        "1M",
        "--full",
        "raise",
        "--ttl",
        "2h",
    ]
    assert sh("create", "q", *words, "--index-spacing", 8, "--chunk-bytes", "1M")[0] == 0
    with shmq.open("q", create=False) as queue:
        made = queue.options
        assert (made.durability, made.retention) == (shmq.Durability.SYNC, shmq.Retention.age(7 * 86400))
        assert (made.max_messages, made.max_bytes, made.full, made.ttl) == (9, 1 << 20, "raise", 7200)
        assert (made.index_spacing, made.chunk_bytes) == (8, 1 << 20)
        status, out, _ = sh("configure", "q", "--max-bytes", "none", "--ttl", "none", "--full", "drop_oldest", "--json")
        assert (status, json.loads(out)["changed"]) == (0, ["full", "max_bytes", "ttl"])
        assert (queue.options.max_bytes, queue.options.ttl, queue.options.full) == (None, None, "drop_oldest")
        assert (queue.options.max_messages, queue.options.retention) == (9, shmq.Retention.age(7 * 86400))
    assert "max messages" in sh("configure", "q")[1]


@pytest.mark.parametrize(
    "words",
    [["--max-bytes", "0"], ["--max-bytes", "soon"], ["--ttl", "-1"], ["--full", "no"], ["--durability", "sync"]],
)
def test_what_cannot_be_configured_changes_nothing(sh, words):
    sh("create", "q")
    assert sh("configure", "q", *words)[0] == 2
    with shmq.open("q", create=False) as queue:
        assert queue.options == shmq.Options()


def test_delete_takes_what_nobody_has_open(sh, here):
    for name in ("a", "b", "c"):
        sh("create", name)
    with shmq.open("b"):
        status, out, err = sh("delete", "a", "b", "c", "--yes", "--json")
        assert (status, json.loads(out), "it is open" in err) == (1, {"deleted": ["a"]}, True)
    assert sh("delete", "b", "c", "-y") == (0, "deleted b\ndeleted c\n", "")
    assert not [path for path in here.iterdir() if path.is_dir() and path.name != "shm"]


DESTRUCTIVE = [
    ("delete", "q"),
    ("purge", "q"),
    ("consumer", "rm", "q", "me"),
    ("dead", "drop", "q", "--all"),
]


@pytest.fixture
def letter(sh):
    """A queue with one letter, which looks like a dead one, and a consumer."""
    with shmq.open("q") as queue:
        queue.put(b"x", headers={"shmq.queue": "elsewhere"})
        queue.consumer("me").close()


@pytest.mark.parametrize("words", DESTRUCTIVE)
def test_what_destroys_does_nothing_where_nobody_can_be_asked(sh, letter, words):
    status, out, err = sh(*words, stdin=b"y\n")
    assert (status, out) == (2, "")
    assert "nothing was done, for there is nobody to ask: --yes does it" in err
    with shmq.open("q", create=False) as queue:
        assert ("me" in queue.consumers(), queue.consumers()["me"].lag, len(queue)) == (True, 1, 1)


@pytest.mark.parametrize("words", DESTRUCTIVE)
def test_yes_does_it(sh, letter, words):
    assert sh(*words, "--yes")[0] == 0
    if words[0] == "delete":
        assert not os.path.exists("q")
    elif words[0] != "dead":
        with shmq.open("q", create=False) as queue:
            assert [each.lag for each in queue.consumers().values()] in ([], [0])
    else:
        assert sh("dead", "ls", "q")[1] == "no dead letters\n"


@pytest.mark.parametrize(("answer", "status"), [(b"y\n", 0), (b"\n", 1)])
def test_at_a_terminal_somebody_is_asked(letter, answer, status):
    above, below = pty.openpty()
    with open(above, "r+b", buffering=0) as terminal:
        asked = subprocess.Popen([sys.executable, "-m", "shmq", "delete", "q"], stdin=below, stderr=below, stdout=below)
        os.close(below)
        said = b""
        while b"[y/N]" not in said:
            said += terminal.read(100)
        assert b"Delete q with 1 message?" in said
        assert os.path.exists("q")
        terminal.write(answer)
        assert asked.wait(timeout=60) == status
    assert os.path.exists("q") == bool(status)


def test_gc_says_what_would_go_and_leaves_it(sh):

    def put_and_end():
        left = shmq.open("shm:left")
        os._exit(left.put(b"x"))

    assert os.waitpid(start_child(put_and_end), 0)[1] == 0
    with shmq.open("shm:used"):
        assert sh("gc", "--dry-run") == (0, "would take away shm:left\n", "")
        assert json.loads(sh("gc", "-n", "--json")[1]) == ["shm:left"]
        assert sh("gc") == (0, "took away shm:left\n", "")
        assert sh("gc", "--dry-run") == (0, "no volatile queue is without users\n", "")


# ---------------------------------------------------------------- put
def test_put_reads_texts_between_nuls_with_their_lines(sh):
    sh("create", "q", "--codec", "text")
    assert sh("put", "q", "-0", "--key", "k", stdin=b"two\nlines\0last")[0] == 0
    assert [each[:2] for each in found()] == [("two\nlines", b"k"), ("last", b"k")]
    assert sh("cat", "q", "--null")[1] == "two\nlines\0last\0"


def test_put_reads_csv_rows_as_objects_with_a_key(sh):
    sh("create", "q", "--codec", "json")
    rows = b'who,said\neu,"hi, you"\nus,"two\nlines"\n'
    assert sh("put", "q", "--csv", "--key-column", "who", stdin=rows) == (0, "put 2 messages, index 0 to 1\n", "")
    assert [each[:2] for each in found()] == [
        ({"who": "eu", "said": "hi, you"}, b"eu"),
        ({"who": "us", "said": "two\nlines"}, b"us"),
    ]
    status, out, err = sh("put", "q", "--csv", stdin=b"a,b\n1,2\n3\n")
    assert (status, out) == (1, "put 1 message, index 2\n")
    assert err.startswith("shmq: row 2: it has not as many fields as the header; what was before it is in")
    assert sh("put", "q", "--csv", "--key-column", "nix", stdin=rows)[0] == 2


def test_found_a_table_of_a_spreadsheet_was_read_as_it_does_not_mean(sh):
    """A mark of the byte order belonged to the first name, and of two columns of one name the first went."""
    sh("create", "q", "--codec", "json")
    rows = b"\xef\xbb\xbfwho,said\neu,hi\n"
    assert sh("put", "q", "--csv", "--key-column", "who", stdin=rows)[0] == 0
    assert [each[:2] for each in found()] == [({"who": "eu", "said": "hi"}, b"eu")]
    status, out, err = sh("put", "q", "--csv", stdin=b"a,b,a\n1,2,3\n")
    assert (status, out) == (2, "put 0 messages\n")
    assert "two columns are called 'a'" in err
    status, _, err = sh("put", "q", "--csv", stdin=b"a,b\n\xff,2\n")
    assert (status, "the header, or what follows it, is not UTF-8" in err) == (1, True)
    assert sh("put", "q", "--csv", stdin=b"a\n" + b"x" * 200_000 + b"\n")[0] == 0


def test_found_a_map_whose_keys_are_no_texts_ended_cat_with_a_traceback(sh):
    with shmq.open("q", codec="msgpack") as queue:
        queue.put({b"b": [{2: b"\xff"}], b"\xfe": 1})
    status, out, _ = sh("cat", "q", "--json")
    assert (status, json.loads(out)["payload"]) == (0, {"b": [{"2": {"base64": "/w=="}}], "b'\\xfe'": 1})


def test_found_what_was_put_into_a_volatile_queue_that_a_verb_made_was_gone_with_it(sh):
    """And paths were made of the name of one."""
    sh("create", "q")
    sh("put", "q", "x")
    status, _, err = sh("replay", "q", "shm:found-gone")
    assert (status, "all that it puts would be gone" in err) == (1, True)
    assert sh("export", "q", "q.sej", "--to", "sej")[0] == 0
    assert sh("import", "q.sej", "shm:found-gone")[0] == 1
    for words in (["copy", "q", "shm:found"], ["export", "q", "shm:found", "--to", "sej"]):
        status, _, err = sh(*words)
        assert (status, "write ./shm:found" in err) == (2, True)
    with shmq.open("shm:found-kept"):
        assert sh("replay", "q", "shm:found-kept")[:2] == (0, "put 1 message into shm:found-kept\n")
        assert sh("verify", "shm:found-kept")[:2] == (
            0,
            "shm:found-kept: shmq, 1 message whole in 1 chunk, 0 problems\n",
        )
        status, _, err = sh("repair", "shm:found-kept")
        assert (status, "is volatile" in err) == (1, True)


def test_found_a_directory_of_levels_or_shards_was_called_no_archive_and_no_format(sh):
    shmq.priorities.open("levels", levels=2).close()
    shmq.shards.open("shards", shards=2).close()
    for words in (["cat", "levels"], ["verify", "levels"], ["repair", "levels"], ["replay", "levels", "x"]):
        status, _, err = sh(*words)
        assert (status, "it is a directory of priorities" in err) == (1, True), words
    status, _, err = sh("replay", "shards", "x")
    assert (status, "it is a root of shards" in err) == (1, True)


def test_found_a_backup_was_called_the_queue_that_is_replayed(sh):
    sh("create", "q")
    sh("put", "q", "x")
    sh("copy", "q", "backup")
    status, _, err = sh("replay", "backup", "q")
    assert (status, "q has the id of backup" in err) == (2, True)
    assert "q is the queue that is replayed" in sh("replay", "q", "./q")[2]
    sh("copy", "backup", "other", "--new-id")
    assert sh("replay", "other", "q")[0] == 0


def test_put_reads_what_cat_prints(sh):
    """All of it but the index: a queue goes through a pipe, or a file that somebody has edited."""
    with shmq.open("q") as queue:
        queue.put(b"\xff\0", key=b"\xfe", type=3, time_ns=5_000_001_000, headers={"a": b"\xfd", "b": [1, None]})
        queue.put(b'{"a":1}', time_ns=9_000_000_000)
    lines = sh("cat", "q", "--json")[1].encode()
    sh("create", "copy")
    assert sh("put", "copy", "--json-lines", "--header", "c=d", stdin=lines + b"\n")[0] == 0
    first, second = found("copy")
    assert first == (b"\xff\0", b"\xfe", 3, {"a": b"\xfd", "b": [1, None], "c": "d"})
    assert second[0] == b'{"a":1}'
    with shmq.open("copy") as queue:
        assert [each.time_ns for each in queue.reader()] == [5_000_001_000, 9_000_000_000]


ODD = {"list": [b"\xff", {"in": b"\xfe"}], "map": {"base64": "AAEC"}, "maps": {"base64": {"base64": {"base64": 7}}}}
"""What is bytes in JSON, and what only looks so."""


def test_found_bytes_in_lists_and_maps_that_look_like_bytes_changed_on_the_way_through_json_lines(sh):
    with shmq.open("q", codec="msgpack") as queue:
        queue.put(ODD, headers={**ODD, "base64": "text"})
        queue.put(b"\xff")
    lines = sh("cat", "q", "--json")[1].encode()
    sh("create", "copy", "--codec", "msgpack")
    assert sh("put", "copy", "--json-lines", stdin=lines) == (0, "put 2 messages, index 0 to 1\n", "")
    assert [(each[0], each[3]) for each in found("copy")] == [(ODD, {**ODD, "base64": "text"}), (b"\xff", {})]


def test_json_itself_is_not_taken_for_bytes(sh):
    """In a queue whose payloads are JSON."""
    odd = {"list": [{"base64": "?"}], "base64": {"base64": 1}}
    with shmq.open("q", codec="json") as queue:
        queue.put_many([odd, {"base64": "AAEC"}])
    lines = sh("cat", "q", "--json")[1].encode()
    assert json.loads(lines.splitlines()[1])["payload"] == {"base64": "AAEC"}
    sh("create", "copy", "--codec", "json")
    assert sh("put", "copy", "--json-lines", stdin=lines)[0] == 0
    assert [each[0] for each in found("copy")] == [odd, {"base64": "AAEC"}]


def test_found_lines_without_a_word_before_the_header_of_a_table_were_its_header(sh):
    """Every row was refused then: it has not as many fields."""
    sh("create", "q", "--codec", "json")
    rows = b"\xef\xbb\xbf\n  \n,,\nwho,said\neu,hi\n\nus,ho\n"
    assert sh("put", "q", "--csv", stdin=rows) == (0, "put 2 messages, index 0 to 1\n", "")
    assert [each[0] for each in found()] == [{"who": "eu", "said": "hi"}, {"who": "us", "said": "ho"}]
    assert sh("put", "q", "--csv", stdin=b"\n\n") == (0, "put 0 messages\n", "")


@pytest.mark.parametrize(
    ("words", "shown"),
    [(['"\\ud800"'], "'\\ud800'"), (['["a\\udfff"]'], "'\\udfff'"), (["1", "--header", "a=\udcff"], "")],
)
def test_found_half_a_character_was_refused_in_words_of_a_codec(sh, words, shown):
    sh("create", "q", "--codec", "json")
    said = "is no whole character, and the text in a message is UTF-8; nothing was put"
    status, _, err = sh("put", "q", *words)
    assert (status, err.endswith(f"{shown} {said}\n"), err.count("\n")) == (1, True, 1), err


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["put", "shm:no/name", "x"], 1),
        (["create", "shm:.no"], 1),
        (["take", "q", "no/name"], 1),
        (["put", "q", "no JSON"], 1),
        (["put", "q", "1", "--csv"], 2),
        (["cat", "q", "--from", "soonish"], 2),
        (["delete", "q"], 2),
    ],
)
def test_the_exit_status_is_what_the_pages_say(sh, words, status):
    """A name or a payload that is not taken is 1, words, times and places that mean nothing are 2; in one line each."""
    sh("create", "q", "--codec", "json")
    found, _, err = sh(*words)
    assert (found, err.count("\n"), "Traceback" in err) == (status, 1, False), err
    pages = [man.page().replace("\n", " "), (Path(cli.__file__).parents[2] / "docs/how-to/command-line.md").read_text()]
    assert all("a name, of a queue or a consumer, or a payload that is not taken" in page for page in pages)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"nix", "is not JSON"),
        (b"[1]", "is not an object with a payload"),
        (b'{"payload": 1, "kye": 2}', "has 'kye'"),
        (b'{"payload": 1, "key": 2}', "its key is neither text nor base64"),
        (b'{"payload": 1, "time": "soon"}', "its time 'soon' is not one"),
        (b'{"payload": 1, "type": "x"}', "type"),
        (b'{"payload": {"base64": "?"}}', "its payload is not base64"),
        (b'{"payload": 1, "headers": 2}', "its headers are not an object"),
    ],
)
def test_a_line_of_json_that_is_no_message_is_named(sh, line, said):
    sh("create", "q")
    status, out, err = sh("put", "q", "--json-lines", stdin=b'{"payload": 0}\n' + line + b'\n{"payload": 2}\n')
    assert (status, out) == (1, "put 1 message, index 0\n")
    assert err.startswith("shmq: line 2: ")
    assert said in err
    assert "Traceback" not in err


def test_put_takes_files_whole(sh, here):
    sh("create", "q")
    (here / "a").write_bytes(b"one\ntwo\n")
    (here / "b").write_bytes(b"")
    assert sh("put", "q", "--file", "a", "--file", "b") == (0, "put 2 messages, index 0 to 1\n", "")
    assert [each[0] for each in found()] == [b"one\ntwo\n", b""]
    status, _, err = sh("put", "q", "--file", "nix")
    assert (status, err) == (1, "shmq: nix: No such file or directory\n")
    assert sh("put", "q", "word", "--file", "a")[0] == 2


def test_put_with_dedup_puts_once_whoever_repeats_it(sh):
    sh("create", "q")
    assert sh("put", "q", "--dedup", "night:5", stdin=b"a\nb\n")[1] == "put 2 messages, index 0 to 1\n"
    assert sh("put", "q", "--dedup", "night:5", stdin=b"a\nb\nc\n")[0] == 0
    assert sh("put", "q", "d", "--dedup", "one:1") == sh("put", "q", "d", "--dedup", "one:1") == (0, "3\n", "")
    assert [each[0] for each in found()] == [b"a", b"b", b"c", b"d"]
    assert sh("put", "q", "d", "--dedup", "one")[0] == 2


def test_put_waits_for_room_no_longer_than_it_is_told(sh):
    sh("create", "q", "--max-messages", 1)
    with shmq.open("q") as queue:
        queue.consumer("slow").close()
    assert sh("put", "q", "a")[0] == 0
    status, out, err = sh("put", "q", "b", "--timeout", "10ms")
    assert (status, out) == (1, "")
    assert "holds 1 message" in err or "max_messages" in err or "full" in err.lower()


# ---------------------------------------------------------------- cat, tail, seek
@pytest.fixture
def log(sh):
    """Ten messages of the first seconds of 2026, local time."""
    begin = datetime.datetime(2026, 1, 1).timestamp()  # noqa: DTZ001
    with shmq.open("q", codec="text") as queue:
        for number in range(10):
            queue.put(
                f"line {number}",
                key=b"even" if number % 2 == 0 else b"event",
                type=number % 3,
                time_ns=int((begin + number) * 1e9),
                headers={"by": "me"} if number > 6 else None,
            )


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["--from", "2026-01-01T00:00:07"], [7, 8, 9]),
        (["--from", "2026-01-01 00:00:02", "--to", "2026-01-01 00:00:04"], [2, 3]),
        (["--from", "-2"], [8, 9]),
        (["--to", "-8"], [0, 1]),
        (["--key", "even", "-n", "2"], [0, 2]),
        (["--key-prefix", "even", "-n", "2"], [0, 1]),
        (["--grep", "[13]$"], [1, 3]),
        (["--type", "1", "--key", "event"], [1, 7]),
        (["--with-header", "by=me", "--grep", "9"], [9]),
        (["--from", "latest"], []),
        (["--from", "now"], []),
        (["-n", "0"], []),
    ],
)
def test_cat_shows_what_is_asked_for(sh, log, words, numbers):
    assert sh("cat", "q", *words) == (0, "".join(f"line {number}\n" for number in numbers), "")
    assert sh("cat", "q", *words, "--count") == (0, f"{len(numbers)}\n", "")


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["-n", "2", "--key", "even"], [6, 8]),
        (["-n", "1", "--grep", "[12]"], [2]),
        (["--from", "2026-01-01T00:00:08"], [8, 9]),
        (["--from", "3", "-n", "1", "--to", "6"], [5]),
        (["--from", "9", "-n", "5"], [9]),
    ],
)
def test_tail_shows_the_last_that_match(sh, log, words, numbers):
    assert sh("tail", "q", *words) == (0, "".join(f"line {number}\n" for number in numbers), "")


@pytest.mark.parametrize(
    "words",
    [
        ["cat", "q", "--grep", "("],
        ["cat", "q", "--from", "soon"],
        ["cat", "q", "--to", "25:99"],
        ["cat", "q", "1", "--grep", "x"],
        ["cat", "q", "1", "-n", "1"],
        ["cat", "q", "--with-header", "x"],
        ["tail", "q", "-f", "--to", "3"],
        ["seek", "q", "me"],
        ["seek", "q", "me", "1", "--from", "2"],
    ],
)
def test_what_means_nothing_is_refused(sh, log, words):
    status, out, err = sh(*words)
    assert (status, out, bool(err)) == (2, "", True)


def test_seek_goes_to_a_time_for_a_group_too_and_says_before_where(sh, log):
    assert sh("take", "q", "g", "--group", "--ack", "explicit", "-n", 10)[0] == 0
    assert sh("seek", "q", "g", "--from", "2026-01-01T00:00:04", "--dry-run")[1] == "g would go: 10 -> 4 (lag 6)\n"
    assert sh("seek", "q", "g", "latest")[1] == "g: 10 -> 10 (lag 0)\n"
    assert sh("seek", "q", "g", "--from", "2026-01-01T00:00:04")[1] == "g: 10 -> 4 (lag 6)\n"
    assert sh("take", "q", "g")[1] == "line 4\n"


NOW = datetime.datetime(2026, 3, 4, 15, 30, 1)  # noqa: DTZ001  # a Wednesday


@pytest.mark.parametrize(
    ("word", "time"),
    [
        ("now", "2026-03-04T15:30:01"),
        ("today", "2026-03-04"),
        ("14:00", "2026-03-04T14:00"),
        ("yesterday", "2026-03-03"),
        ("Yesterday  14:05:06", "2026-03-03T14:05:06"),
        ("monday 9:00", "2026-03-02T09:00"),
        ("wednesday 9:00", "2026-03-04T09:00"),
        ("wednesday 16:00", "2026-02-25T16:00"),
        ("thursday", "2026-02-26"),
        ("10 minutes ago", "2026-03-04T15:20:01"),
        ("1.5h ago", "2026-03-04T14:00:01"),
        ("1 week ago", "2026-02-25T15:30:01"),
        ("2026-01-31 08:00", "2026-01-31T08:00"),
    ],
)
def test_times_are_read_as_people_write_them(word, time):
    assert whence.time_of(word, NOW) == datetime.datetime.fromisoformat(time)


@pytest.mark.parametrize(
    "word", ["soon", "ago", "5 ago", "5 moons ago", "yesterday 25:00", "monday noon", "1e9 weeks ago", ""]
)
def test_what_is_no_time_is_none(word):
    with pytest.raises((ValueError, OverflowError)):
        whence.time_of(word, NOW)


# ---------------------------------------------------------------- take and consumer
def test_a_group_is_made_with_its_options_and_shown(sh, log):
    words = [
        "--group",
        "--ack",
        "explicit",
        "--max-attempts",
        "2",
        "--lease",
        "30s",
        "--window",
        "64",
        "--start",
        "2026-01-01T00:00:03",
    ]
    status, out, _ = sh("consumer", "create", "q", "g", *words, "--type", 0, "--dead-letter", "letters", "--json")
    told = json.loads(out)
    assert (status, told["made"], told["head"], told["shared"], told["ack"]) == (0, True, 3, True, "explicit")
    assert json.loads(sh("consumer", "create", "q", "g", "--json")[1])["made"] is False
    with shmq.open("q") as queue:
        member = queue.consumer("g", group=True, max_attempts=2, lease=30.0, window=64, dead_letter="letters")
        member.close()
        with pytest.raises(shmq.Mismatch):
            queue.consumer("g", group=True, max_attempts=3)
    assert sh("take", "q", "g")[1] == "line 3\n"
    assert sh("consumer", "show", "q", "g")[1].split()[:2] == ["consumer", "g"]
    assert json.loads(sh("consumer", "show", "q", "g", "--json")[1])["group"]["window"] == 64
    status, _, err = sh("consumer", "show", "q", "nix")
    assert (status, err) == (1, "shmq: q has no consumer 'nix'; it has g\n")


@pytest.mark.parametrize("words", [["--lease", "5s"], ["--window", "63", "--group"], ["--hold", "yes", "--group"]])
def test_a_name_that_cannot_be_made_so_is_not_made(sh, log, words):
    status, _, err = sh("take", "q", "g", *words, "--timeout", 0)
    assert (status, err.startswith("shmq: "), "Traceback" in err) == (1, True, False)
    with shmq.open("q") as queue:
        assert queue.consumers() == {}


# ---------------------------------------------------------------- the command itself
def test_help_says_what_a_verb_says_and_what_was_meant(sh):
    assert sh("help", "put") == sh("put", "--help")
    assert sh("help") == sh("--help")
    assert "usage: shmq consumer rm" in sh("help", "consumer", "rm")[1]
    status, out, err = sh("puut", "q")
    assert (status, out, "there is no verb 'puut' (did you mean put?)" in err) == (2, "", True)


def test_the_manual_that_is_installed_is_what_this_version_prints(sh):
    """`shmq man > docs/shmq.1` makes it so."""
    assert (Path(cli.__file__).parents[2] / "docs/shmq.1").read_text() == man.page()
    assert sh("man")[1] == man.page()


def test_found_the_manual_depended_on_what_is_installed(monkeypatch, tmp_path):
    """Of a wheel, which has no demo beside it, that verb's options were missing."""
    page = man.page()
    monkeypatch.setattr("shmq.cli.demo._BESIDE", tmp_path)
    assert man.page() == page


def test_what_the_command_says_of_the_demo_is_true():
    """Its options stand with the command, for the demo may not be there."""
    made = argparse.ArgumentParser()
    cli_demo.add(made)
    assert made.get_default("flights") == demo.flights.ALL
    told = made._option_string_actions["--data"].help
    assert told == f"where the data lies ({demo.DEFAULT_PLACE}; with --spark {demo.SPARK_PLACE})"


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff")
def test_the_manual_is_troff_without_faults():
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww"], input=man.page(), capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    assert "shmq put" in done.stdout


COMPLETED = [
    ("shmq pu", "purge put"),
    ("shmq help veri", "verify"),
    ("shmq create --full ", "block raise drop_oldest"),
    ("shmq create --dura", "--durability"),
    ("shmq consumer ren", "rename"),
    ("shmq consumer rm --ye", "--yes"),
    ("shmq dead req", "requeue"),
    ("shmq cat que", "queue"),
    ("shmq take queue ", "audit billing"),
    ("shmq seek queue bi", "billing"),
    ("shmq consumer rm queue audit ", "audit billing"),
    ("shmq consumer rename queue a", "audit"),
    ("shmq take que", "queue"),
]


def make_completed():
    """What the words of COMPLETED name."""
    with shmq.open("queue") as queue:
        for name in ("audit", "billing"):
            queue.consumer(name).close()


def test_bash_completes_verbs_options_values_and_paths(sh, here):
    make_completed()
    (here / "queue/consumers/$(touch expanded).checkpoint").touch()  # whoever may write there makes nobody run it
    script = ["source completion"]
    for words, _ in COMPLETED:
        empty = " ''" if words.endswith(" ") else ""
        script += [f"COMP_WORDS=({words}{empty})", "COMP_CWORD=$((${#COMP_WORDS[@]}-1))", "_shmq"]
        script.append('echo "${COMPREPLY[*]}"')
    (here / "completion").write_text(sh("completion", "bash")[1])
    done = subprocess.run(["bash", "-c", "\n".join(script)], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [wanted for _, wanted in COMPLETED]
    assert not (here / "expanded").exists()


@pytest.mark.skipif(shutil.which("fish") is None, reason="NO FISH HERE, so its completion was tried in none")
def test_fish_completes_the_same(sh, here):
    make_completed()
    (here / "completion").write_text(sh("completion", "fish")[1])
    script = ["source completion", *(f"complete -C '{words}'; echo ." for words, _ in COMPLETED)]
    command, home = ["fish", "--no-config", "-c", "\n".join(script)], {**os.environ, "HOME": str(here)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=home)
    assert completed(re.sub("\t.*|/$", "", done.stdout, flags=re.MULTILINE)) == completed_in_bash()


ZSH = """
PROMPT=
autoload -Uz compinit && compinit -D -u
source ./completion
compadd() {  # what is offered is written down, too
    if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\\ * ]]; then
        local -a offered
        builtin compadd -A offered "$@"
        print -rl -- $offered >> said
    fi
    builtin compadd "$@"
}
ended() { print . >> said; BUFFER= }
zle -N ended
bindkey '^G' ended
bindkey '^I' complete-word
zle-line-init() { print . >> said }  # from now on it takes keys
zle -N zle-line-init
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="NO ZSH HERE, so its completion was tried in none")
def test_zsh_completes_the_same(sh, here):
    """With the keys of somebody at a terminal: it completes nowhere else."""
    make_completed()
    (here / "completion").write_text(sh("completion", "zsh")[1])
    (here / "rc").write_text(ZSH)
    (here / "said").touch()
    above, below = pty.openpty()
    home = {**os.environ, "TERM": "dumb", "ZDOTDIR": str(here)}
    command = ["zsh", "-f", "-i"]
    with subprocess.Popen(command, stdin=below, stdout=below, stderr=below, start_new_session=True, env=home) as shell:
        os.close(below)

        def is_done(count):
            while select.select([above], [], [], 0)[0]:  # else it waits for whoever reads its terminal
                os.read(above, 4096)
            return (here / "said").read_text().splitlines().count(".") == count

        try:
            os.write(above, b"source ./rc\n")
            until(lambda: is_done(1))
            for count, (words, _) in enumerate(COMPLETED, 2):
                os.write(above, f"{words}\t\a".encode())
                until(functools.partial(is_done, count))
        finally:
            shell.kill()
    os.close(above)
    assert completed((here / "said").read_text().removeprefix(".\n")) == completed_in_bash()


def completed(told):
    """What a shell has offered, sorted: for each of COMPLETED lines, and a dot behind them."""
    return [sorted(offered.split()) for offered in told.split(".\n")[:-1]]


def completed_in_bash():
    return [sorted(wanted.split()) for _, wanted in COMPLETED]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_completion_script_names_every_verb_and_is_one(sh, shell):
    script = sh("completion", shell)[1]
    assert all(verb in script for verb in VERBS)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=60)


def test_fish_says_nothing_of_an_option_about_each_of_its_values(sh):
    """It would say it once for each of them: `kestrel (kestrel, libkestrel, ...)`."""
    (line,) = [
        line for line in sh("completion", "fish")[1].splitlines() if "from create" in line and "-l codec" in line
    ]
    assert '-a "bytes\\t text\\t json\\t msgpack\\t pickle\\t"' in line
    if shutil.which("fish"):
        script = 'shmq completion fish | source; complete -C "shmq export q --to "'
        where = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["fish", "-c", script], env={**os.environ, "PATH": where}, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["chronicle", "kestrel", "libkestrel", "qewqew", "sej"]


def test_the_manual_fills_its_paragraphs_and_keeps_its_examples(sh):
    """What stands below the examples is text: a narrow terminal breaks its lines."""
    lines = sh("man")[1].splitlines()
    example, text = lines.index("    shmq finish orders"), "Everything that was put is on the disk when this ends"
    (after,) = [at for at, line in enumerate(lines) if line.startswith(text)]
    assert lines[example + 1 : after] == [".fi", ".PP"]


@pytest.mark.parametrize("verb", ["verify", "repair"])
def test_what_looks_at_both_says_so_of_its_first_word(verb):
    assert cli.grammar(verb).words[0].about.startswith("the queue, ours or foreign")
    assert cli.grammar("dump").words[0].about.startswith("the foreign queue")


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish_completes_the_consumers_of_the_queue_before_them(sh):
    with shmq.open("queue") as queue:
        for name in ("audit", "billing"):
            queue.consumer(name).close()
    asked = "; ".join(
        f'complete -C "shmq {words}"' for words in ("take queue ", "seek queue bi", "consumer rm queue aud")
    )
    script = f"{sh('completion', 'fish')[1]}\n{asked}"
    done = subprocess.run(["fish", "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["audit", "billing", "billing", "audit"]


RUNS = {"demo", "chaos", "top", "worker", "serve", "doctor", "ls", "gc", "help", "man", "completion"}
"""Verbs that need no path that is there."""


@pytest.mark.parametrize("verb", VERBS)
def test_whatever_is_asked_for_wrongly_is_told_without_a_traceback(sh, verb):
    """An option that is none is 2; so are words too few. A path that is not there is 1."""
    status, out, err = sh(verb, "--no-such-option")
    assert (status, out, "Traceback" in err) == (2, "", False)
    assert "usage: shmq" in err
    told = cli.grammar(verb)
    needed = [word.choices[0] if word.choices else "nowhere/at/all" for word in told.words if word.many in "1+"]
    if needed or told.verbs:
        assert sh(verb)[0] == 2
    if verb in RUNS:
        return
    for inner in told.verbs or [told]:
        needed = [word.choices[0] if word.choices else "nowhere/at/all" for word in inner.words if word.many in "1+"]
        status, out, err = sh(verb, *([inner.name] if told.verbs else []), *needed)
        assert (status in {1, 2}, bool(err), "Traceback" in err) == (True, True, False), err
        assert not os.path.exists("nowhere")


@pytest.mark.parametrize(
    "words", ["help", "man", "completion bash", "ls", "cat q", "consumer ls q", "stat q", "help put"]
)
def test_a_reader_that_goes_ends_it_quietly(sh, words):
    """`| head` and `| true`: no word on stderr, and the status that the shell gives to SIGPIPE."""
    with shmq.open("q") as queue:
        queue.put_many([b"x" * 1000] * 200)
    line = f"set -o pipefail; {sys.executable} -m shmq {words} | true; echo $?"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout.strip() in {"0", "141"}, done.stderr) == (True, "")


def at_a_terminal(*words, **environment):
    """What a terminal gets of these words."""
    above, below = pty.openpty()
    words = [sys.executable, "-m", "shmq", *words]
    asked = subprocess.Popen(
        words, stdin=below, stderr=below, stdout=below, env={**os.environ, "TERM": "xterm", **environment}
    )
    os.close(below)
    said = b""
    with contextlib.suppress(OSError):  # which is how a terminal ends
        while more := os.read(above, 4096):
            said += more
    os.close(above)
    assert asked.wait(timeout=60) == 0
    return said


def test_tables_have_colours_at_a_terminal_and_nowhere_else(sh, log):
    pytest.importorskip("rich")
    sh("take", "q", "me")
    plain = sh("ls", "q")[1]
    coloured = at_a_terminal("ls", "q")
    assert b"\x1b[1mCONSUMER" in coloured
    assert b"\x1b[3" in coloured
    assert b"\x1b[3" not in at_a_terminal("ls", "q", NO_COLOR="1")
    assert re.sub(rb"\x1b\[[0-9;]*m", b"", coloured).split() == plain.encode().split()


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (None, "put 1 message, 0/s"),
        (0.0, "[........................]   0% put 1 message, 0/s"),
        (0.5, "[############............]  50% put 1 message, 0/s, 1:15 left"),
        (1.5, "[########################] 100% put 1 message, 0/s, 0:00 left"),
    ],
)
def test_progress_says_what_time_is_left(share, said):
    assert progress.line("put", 1, 75.0, share) == said
    assert progress.line("put", 150, 0.1, 0.5).endswith("put 150 messages, 1,500/s")  # too early to say


@pytest.mark.parametrize(
    ("words", "said"),
    [("copy q r{}", ("copied",)), ("verify q", ("verified",)), ("repair q --to r{}", ("verified", "repaired"))],
)
def test_a_long_walk_says_how_far_it_is_where_somebody_looks(sh, monkeypatch, words, said):
    with shmq.open("q", options=shmq.Options(chunk_bytes=16384)) as queue:
        queue.put_many([b"x" * 1000] * 50)
    assert sh(*words.format(1).split())[2] == ""
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=itertools.count().__next__))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    line = sh(*words.format(2).split())[2]
    for doing in said:
        assert f"] 100% {doing} 50 messages, " in line
    assert line.endswith("\r\033[K")  # it is gone when the answer comes


def test_a_server_says_where_it_is_to_whoever_began_it(here):
    with subprocess.Popen(
        [sys.executable, "-m", "shmq", "serve", here, "--listen", "tcp:127.0.0.1:0", "--json"], stdout=subprocess.PIPE
    ) as server:
        told = json.loads(server.stdout.readline())
        assert told["root"] == str(here)
        assert told["places"][0].startswith(("tcp:127.0.0.1:", "csp://127.0.0.1:"))
        server.terminate()
        assert server.wait(timeout=60) == 0


# ---------------------------------------------------------------- a hostile place
def test_an_output_without_room_is_named(here, sh):
    """Not as if it were the queue's disk that is full."""
    sh("create", "q")
    words = [sys.executable, "-m", "shmq", "stat", "q"]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}  # which drops what could not be written
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    said = "shmq: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.parametrize("words", [["create", "q"], ["cat", "q"], ["why", "q"], ["delete", "q", "--yes"]])
def test_that_the_current_directory_is_gone_is_said(here, sh, words):
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    (here / "gone").rmdir()
    try:
        status, out, err = sh(*words)
    finally:
        os.chdir(here)
    assert (status, out) == (1, "")
    assert "the current directory was removed" in err
    assert "/dev/shm" not in err


def test_the_name_of_a_file_does_not_steer_the_terminal(here, sh):
    """In tables, and in what went wrong."""
    sh("create", "odd\x1b[31m\nq")
    _, out, _ = sh("ls")
    assert out.splitlines()[1].startswith(r"odd\x1b[31m\nq ")
    _, _, err = sh("cat", "no\x1b[2Jne")
    assert r"no\x1b[2Jne" in err
    assert "\x1b" not in out + err


def test_ls_says_that_it_may_not_look(here, sh):
    """And not that there is nothing."""
    if os.getuid() != 0:
        pytest.skip("only root can be somebody else for a while")
    (here / "closed").mkdir(0o700)
    sh("ls")  # what it imports may lie where nobody else looks
    for above in (here, *here.parents[:2]):
        above.chmod(0o755)
    os.seteuid(65534)
    try:
        status = cli.main(["ls", "closed"])
    finally:
        os.seteuid(0)
    assert status == 1


def test_found_the_list_of_a_current_directory_that_is_gone_was_empty(sh, here, monkeypatch):
    """ "No queues below ." was said of it, with exit status 0."""
    (here / "gone").mkdir()
    monkeypatch.chdir(here / "gone")
    (here / "gone").rmdir()
    said = "shmq: the current directory was removed: No such file or directory\n"
    assert sh("ls") == sh("ls", ".", "--json") == (1, "", said)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["serve", "."], "serve ."),
        (["serve", ".", "--flight", "grpc://127.0.0.1:0"], "serve ."),
        (["top", "--web", "--port", "0"], "serve a page"),
        (["hub", ".", "--listen", "tcp:127.0.0.1:0", "--token-file", "tokens"], "gather in ."),
    ],
)
def test_found_a_server_without_room_for_descriptors_ended_with_a_traceback(sh, here, words, what):
    """Of its event loop, half made."""
    sh(*words[:1], "--no-such-option")  # what it imports is there
    open_now = len(os.listdir("/proc/self/fd"))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 8, before[1]))
    try:
        status, out, err = sh(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"shmq: cannot {what}: Too many open files: it takes 16 descriptors, and there are ")
    assert err.endswith(f"(`ulimit -n` is {open_now + 8}); nothing was begun\n")
    assert [each.name for each in here.iterdir() if each.name != ".stdin"] == []
