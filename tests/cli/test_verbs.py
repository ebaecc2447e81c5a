"""The `shmq` command: what each verb prints, what it says when it cannot, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import shmq
from shmq.cli import VERBS, main


@pytest.fixture
def here(tmp_path, monkeypatch, shm_root):
    """A working directory of our own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def orders(here):
    """The path of a queue of json messages."""
    with shmq.open("orders", options=shmq.Options(codec="json")) as queue:
        queue.put({"id": 1}, key=b"eu", type=7, time_ns=1_000_000_000, headers={"by": "me"})
        queue.put_many(["two", 3], times_ns=[2_000_000_000, 3_000_000_000])
    return here / "orders"


@pytest.fixture
def run(capfdbinary):
    """Run a verb in this process: (exit status, stdout, stderr)."""

    def run(*words):
        status = main([str(word) for word in words])
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return run


def start(*words, **more):
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "shmq", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
    )


# ---------------------------------------------------------------- every verb
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert re.search(rf"Examples?:\n    (.*\| )?shmq {verb}", capsys.readouterr().out)


WRONG = [[], ["fly"], ["cat"], ["create", "q", "--codec", "xml"], ["take", "q", "n", "-n", "x"]]


@pytest.mark.parametrize("words", WRONG)
def test_what_was_asked_for_wrongly_ends_with_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: shmq" in capsys.readouterr().err


# ---------------------------------------------------------------- what cannot be done
LOOKING = [
    ("cat", []),
    ("tail", []),
    ("stat", []),
    ("put", ["hello"]),
    ("take", ["me"]),
    ("seek", ["me", "0"]),
]


@pytest.mark.parametrize(("verb", "rest"), LOOKING)
def test_a_wrong_path_is_named(verb, rest, here, run):
    assert run(verb, "nowhere", *rest) == (1, "", f"shmq: cannot open {here}/nowhere: there is no such directory\n")
    assert not (here / "nowhere").exists()


@pytest.mark.parametrize(("verb", "rest"), LOOKING)
def test_a_directory_that_is_no_queue_is_named(verb, rest, here, run):
    (here / "attic").mkdir(mode=0o700)
    expected = f"shmq: cannot open {here}/attic: the directory is there, but it is not a queue (no queue.shmq)\n"
    assert run(verb, "attic", *rest) == (1, "", expected)
    assert list((here / "attic").iterdir()) == []


@pytest.mark.parametrize(("verb", "rest"), LOOKING)
def test_a_file_is_refused_in_the_librarys_words(verb, rest, here, run):
    (here / "file").write_text("mine")
    with pytest.raises(shmq.BadFormat) as refused:
        shmq.open("file", create=False)
    assert run(verb, "file", *rest) == (1, "", f"shmq: {refused.value}\n")
    assert (here / "file").read_text() == "mine"


def test_a_taken_name_says_who_holds_it(orders):
    with shmq.open(orders) as queue, queue.consumer("billing"):
        taker = start("take", orders, "billing")
        out, err = taker.communicate(timeout=60)
    expected = (
        f"shmq: consumer 'billing' of {orders} is held by process {os.getpid()}; "
        "use another name, or wait until it is closed\n"
    )
    assert (taker.returncode, out, err.decode()) == (1, b"", expected)


def test_a_bad_consumer_name_is_refused(orders, run):
    expected = "shmq: 'no/slash' is no consumer name: 1 to 64 of A-Z a-z 0-9 _ . - and no dot in front\n"
    assert run("take", orders, "no/slash") == (1, "", expected)


def test_a_disk_error_is_one_line(here, run, monkeypatch):
    def fail(*_, **__):
        raise OSError(5, "Input/output error", "orders")

    monkeypatch.setattr(shmq, "open", fail)
    assert run("stat", "orders") == (1, "", "shmq: orders: Input/output error\n")


# ---------------------------------------------------------------- create
def test_create_makes_a_queue_with_its_options(here, run):
    words = ["--codec", "text", "--chunk-bytes", 1 << 20, "--no-checksum", "--retention", "age=60"]
    status, out, err = run("create", "q", *words, "--json")
    assert (status, err) == (0, "")
    made = json.loads(out)
    assert made["path"] == f"{here}/q"
    assert made["options"].items() >= {"codec": "text", "chunk_bytes": 1 << 20, "retention": "age=60.0"}.items()
    kept = shmq.Retention.age(60)
    with shmq.open("q", create=False) as queue:
        assert queue.options == shmq.Options(codec="text", chunk_bytes=1 << 20, checksum=False, retention=kept)


@pytest.mark.parametrize("word", ["acked", "forever", "age=0.5", "bytes=1000000"])
def test_stat_shows_retention_as_create_takes_it(word, here, run):
    assert run("create", "q", "--retention", word)[0] == 0
    assert json.loads(run("stat", "q", "--json")[1])["options"]["retention"] == word


@pytest.mark.parametrize("word", ["", "soon", "age", "age=", "age=x", "age=0", "bytes=1.5", "acked=3"])
def test_create_refuses_what_is_no_retention(word, here, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["create", "q", "--retention", word])
    assert ended.value.code == 2
    assert "--retention" in capsys.readouterr().err
    assert not (here / "q").exists()


def test_create_touches_no_queue_that_is_there(orders, run):
    assert run("create", orders) == (1, "", f"shmq: {orders} is a queue already; it was not touched\n")


def test_create_refuses_impossible_options(here, run):
    status, _, err = run("create", "q", "--chunk-bytes", "1000")
    assert status == 1
    assert err.startswith("shmq: chunk_bytes=1000: ")
    assert not (here / "q").exists()


def test_create_says_that_the_directory_above_is_missing(here, run):
    expected = f"shmq: cannot create {here}/a/b: the directory above it does not exist\n"
    assert run("create", "a/b") == (1, "", expected)


# ---------------------------------------------------------------- put and take
def test_put_prints_the_index_and_take_the_payload(here, run):
    assert run("create", "q")[0] == 0
    assert run("put", "q", "hello", "--key", "eu", "--type", 7, "--header", "by=me") == (0, "0\n", "")
    status, out, _ = run("put", "q", "again", "--json")
    assert (status, json.loads(out)) == (0, {"count": 1, "first": 1, "last": 1})
    assert run("take", "q", "me") == (0, "hello\n", "")
    assert json.loads(run("take", "q", "me", "--json", "--timeout", 0)[1])["payload"] == "again"
    with shmq.open("q") as queue:
        message = queue[0]
        assert (message.key, message.type, message.headers) == (b"eu", 7, {"by": "me"})


def test_put_takes_json_for_codecs_with_objects(orders, run):
    assert run("put", orders, '{"id": 4}') == (0, "3\n", "")
    assert run("cat", orders, "-1", "--format", "repr") == (0, "3  {'id': 4}\n", "")
    expected = f"shmq: 'hello' is not JSON, and {orders} has codec 'json'; for text, type '\"hello\"'\n"
    assert run("put", orders, "hello") == (1, "", expected)


def test_put_reads_lines_as_batches(here, run):
    run("create", "q")
    lines = b"".join(b"line %d\n" % number for number in range(20_000)) + b"no newline at the end"
    writer = start("put", "q", stdin=subprocess.PIPE)
    out, err = writer.communicate(lines, timeout=60)
    assert (writer.returncode, out, err) == (0, b"put 20,001 messages, index 0 to 20000\n", b"")
    with shmq.open("q") as queue:
        assert b"\n".join(message.payload for message in queue.reader()) == lines


def test_put_puts_a_line_as_soon_as_it_is_there(here, run):
    run("create", "q")
    writer = start("put", "q", stdin=subprocess.PIPE)
    with shmq.open("q") as queue, queue.consumer("me") as consumer:
        for number in range(3):
            writer.stdin.write(b"%d\n" % number)
            writer.stdin.flush()
            assert consumer.take(timeout=60) == b"%d" % number
    assert writer.communicate(timeout=60)[0] == b"put 3 messages, index 0 to 2\n"


def test_put_says_what_is_in_before_a_line_that_is_refused(orders):
    writer = start("put", orders, stdin=subprocess.PIPE)
    with shmq.open(orders) as queue, queue.consumer("me", start="latest") as consumer:
        writer.stdin.write(b"1\n2\n")
        writer.stdin.flush()
        assert consumer.take(timeout=60) == 1
        out, err = writer.communicate(b"{broken\n", timeout=60)
    assert (writer.returncode, out) == (1, b"put 2 messages, index 3 to 4\n")
    assert err.startswith(b"shmq: '{broken' is not JSON")


def test_put_of_nothing_puts_nothing(orders):
    writer = start("put", orders, stdin=subprocess.DEVNULL)
    assert writer.communicate(timeout=60) == (b"put 0 messages\n", b"")
    assert writer.returncode == 0


@pytest.mark.parametrize("header", ["novalue", "=x"])
def test_put_refuses_what_is_no_header(orders, run, header):
    assert run("put", orders, "1", "--header", header) == (1, "", f"shmq: {header!r} is no header: NAME=VALUE\n")


def test_put_refuses_an_impossible_type(orders, run):
    assert run("put", orders, "1", "--type", 70000) == (1, "", "shmq: type=70000: from 0 to 65535\n")


def test_take_ends_with_1_when_there_were_fewer(orders, run):
    status, out, err = run("take", orders, "me", "-n", 5, "--timeout", 0, "--format", "repr")
    assert (status, out) == (1, "0  {'id': 1}\n1  'two'\n2  3\n")
    assert err == f"shmq: nothing to get from {orders} in time\n"


def test_take_keeps_the_ack_mode_that_a_name_has(orders, run):
    with shmq.open(orders) as queue:
        queue.consumer("careful", ack="explicit").close()
    assert run("take", orders, "careful", "-n", 2)[0] == 0
    with shmq.open(orders) as queue:
        assert queue.consumers()["careful"] == shmq.ConsumerStats(head=2, lag=1, ack="explicit")


def test_take_waits_for_what_comes(orders):
    taker = start("take", orders, "me", "-n", 4, "--format", "repr")
    with shmq.open(orders) as queue:
        queue.put("late")
        assert taker.communicate(timeout=60)[0].splitlines()[-1] == b"3  'late'"


# ---------------------------------------------------------------- cat and tail
def test_cat_prints_ranges_and_single_messages(orders, run):
    assert run("cat", orders, "--from", 1, "--format", "repr") == (0, "1  'two'\n2  3\n", "")
    assert run("cat", orders, "--from", -3, "--to", -1, "--format", "repr") == (0, "0  {'id': 1}\n1  'two'\n", "")
    assert run("cat", orders, 2, 0, "--format", "repr") == (0, "2  3\n0  {'id': 1}\n", "")
    assert run("cat", orders, "--format", "raw") == (0, '{"id":1}\n"two"\n3\n', "")
    assert run("cat", orders, -1, "--format", "hex") == (0, "2  33\n", "")


def test_cat_as_json_has_every_field(orders, run):
    first, second, third = map(json.loads, run("cat", orders)[1].splitlines())
    assert first == {
        "index": 0,
        "time": "1970-01-01T00:00:01+00:00",
        "key": "eu",
        "type": 7,
        "headers": {"by": "me"},
        "payload": {"id": 1},
    }
    assert second == {"index": 1, "time": "1970-01-01T00:00:02+00:00", "payload": "two"}
    assert third["payload"] == 3


def test_bytes_that_are_no_text_are_base64_in_json(here, run):
    with shmq.open("q") as queue:
        queue.put(b"\xff\x00")
    assert json.loads(run("cat", "q", "--json")[1])["payload"] == {"base64": "/wA="}
    assert run("cat", "q", "--format", "hex")[1] == "0  ff 00\n"


def test_cat_says_why_an_index_is_not_there(orders, run):
    assert run("cat", orders, 9) == (1, "", f"shmq: {orders} has no message 9: its indexes go from 0 to 2\n")


def test_cat_takes_indexes_or_a_range(orders, run):
    assert run("cat", orders, 1, "--from", 0) == (1, "", "shmq: give indexes, or --from and --to, not both\n")


def test_pickles_are_read_only_when_told(here, run):
    with shmq.open("q", options=shmq.Options(codec="pickle"), trusted=True) as queue:
        queue.put({1, 2})
    expected = "shmq: q holds pickles, which run code when read; add --trusted if you trust whoever may write it\n"
    assert run("cat", "q") == (1, "", expected)
    assert run("cat", "q", "--trusted", "--format", "repr") == (0, "0  {1, 2}\n", "")
    assert run("put", "q", "1") == (1, "", f"shmq: {here}/q holds pickles; they are put by Python programs only\n")
    assert run("stat", "q")[0] == 0  # decodes nothing


def test_tail_shows_the_last_ones(orders, run):
    assert run("tail", orders, "-n", 2, "--format", "repr") == (0, "1  'two'\n2  3\n", "")
    assert run("tail", orders, "-n", 0) == (0, "", "")
    assert run("tail", orders, "--format", "repr")[1].count("\n") == 3


def test_tail_follows_until_the_queue_is_shut_down(orders):
    with shmq.open(orders) as queue:
        tail = start("tail", orders, "-n", 1, "-f", "--format", "repr")
        assert tail.stdout.readline() == b"2  3\n"
        queue.put("new")
        assert tail.stdout.readline() == b"3  'new'\n"
        queue.shutdown()
        assert tail.communicate(timeout=60) == (b"", b"")
    assert tail.returncode == 0


# ---------------------------------------------------------------- ls, stat, seek
def test_ls_finds_queues_and_their_consumers(orders, run):
    with shmq.open(orders) as queue, queue.consumer("billing") as consumer:
        consumer.take()
    (orders.parent / "deep").mkdir(mode=0o700)
    shmq.open("deep/other").close()
    status, out, err = run("ls")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["QUEUE", "deep/other", "orders"]
    found = [(each["path"], each["messages"], each["consumers"]) for each in json.loads(run("ls", "--json")[1])]
    assert found == [("deep/other", 0, 0), ("orders", 3, 1)]
    assert run("ls", "orders") == (0, "CONSUMER  ACK   HEAD  LAG\nbilling   auto     1    2\n", "")
    assert json.loads(run("ls", "orders", "--json")[1]) == {
        "billing": {"head": 1, "lag": 2, "ack": "auto", "dropped": 0}
    }
    assert run("ls", "deep/other") == (0, "deep/other has no consumers yet\n", "")


def test_ls_of_nothing_says_so(here, run):
    assert run("ls") == (0, "no queues below .\n", "")
    assert run("ls", "nowhere") == (1, "", "shmq: nowhere is no directory\n")


def test_ls_shows_a_damaged_queue_and_ends_with_1(orders, run):
    os.truncate(orders / "queue.shmq", 100)
    status, out, err = run("ls")
    assert (status, err) == (1, "")
    assert "orders  cannot read" in out


def test_stat_shows_the_figures_and_changes_nothing(orders, run):
    before = {path: path.read_bytes() for path in orders.rglob("*") if path.is_file()}
    status, out, err = run("stat", orders, "--json")
    assert (status, err) == (0, "")
    facts = json.loads(out)
    assert (facts["messages"], facts["next_index"], facts["participants"]) == (3, 3, 0)
    assert facts["options"]["codec"] == "json"
    assert facts["disk_bytes"] > 0
    assert "messages" in run("stat", orders)[1]
    assert {path: path.read_bytes() for path in orders.rglob("*") if path.is_file()} == before


def test_seek_moves_a_consumer(orders, run):
    assert run("take", orders, "me", "-n", 3)[0] == 0
    assert run("seek", orders, "me", 1) == (0, "me: 3 -> 1 (lag 2)\n", "")
    assert run("seek", orders, "me", "latest") == (0, "me: 1 -> 3 (lag 0)\n", "")
    told = json.loads(run("seek", orders, "me", "earliest", "--json")[1])
    assert told == {"consumer": "me", "before": 3, "head": 0, "lag": 3}


def test_seek_refuses_strange_names_and_places(orders, run):
    run("take", orders, "me")
    assert run("seek", orders, "you", 1) == (1, "", f"shmq: {orders} has no consumer 'you'\n")
    assert run("seek", orders, "me", "soon") == (1, "", 'shmq: \'soon\' is no index, nor "earliest" or "latest"\n')
    assert run("seek", orders, "me", 4) == (1, "", f"shmq: cannot seek to 4: {orders} has indexes from 0 to 3\n")
    with shmq.open(orders) as queue:
        assert queue.consumers() == {"me": shmq.ConsumerStats(head=1, lag=2, ack="auto")}


# ---------------------------------------------------------------- doctor
def test_doctor_tries_the_place_and_leaves_it_clean(here, run):
    status, out, err = run("doctor", "--json")
    assert (status, err) == (0, "")
    report = json.loads(out)
    good = {each["check"] for each in report["findings"] if each["good"]}
    assert report["healthy"]
    assert good >= {"a queue", "nameless files (O_TMPFILE)", "kernel locks (OFD)"}
    assert list(here.iterdir()) == []
    assert run("doctor")[1].endswith("shmq can work here\n")


def test_doctor_says_no_where_nothing_can_be_made(run):
    status, out, _ = run("doctor", "/proc")
    assert status == 1
    assert "NO  a directory of ours" in out
    assert out.endswith("shmq cannot work here\n")


# ---------------------------------------------------------------- how it ends
def test_a_closed_pipe_ends_it_quietly(here):
    with shmq.open("q") as queue:
        for _ in range(50):
            queue.put_many([b"x" * 100] * 1000)
    with start("cat", "q") as cat:
        assert cat.stdout.readline() == b"x" * 100 + b"\n"
        cat.stdout.close()
        assert cat.wait(timeout=60) == 141
        assert cat.stderr.read() == b""


WAITING = [["tail", "orders", "-f", "-n", "1"], ["take", "orders", "late", "-n", "4"]]


@pytest.mark.parametrize("words", WAITING)
def test_ctrl_c_ends_it_quietly(words, orders):
    process = start(*words)
    assert process.stdout.readline()
    time.sleep(0.2)  # now it waits; if not yet, it ends quietly all the same
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    assert b"Traceback" not in out


def test_the_module_is_the_command_too():
    done = subprocess.run([sys.executable, "-m", "shmq", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"shmq {shmq.__version__}\n"


def test_consumer_lists_renames_and_removes(run, tmp_path, monkeypatch):
    """What stands there, under another name, and gone."""
    monkeypatch.chdir(tmp_path)
    with shmq.open(tmp_path / "orders") as queue:
        queue.put_many([b"a", b"b"])
        with queue.consumer("billing") as consumer:
            consumer.take()
    assert run("consumer", "ls", "orders") == (0, "billing: at 1, 1 behind (auto)\n", "")
    assert run("consumer", "rename", "orders", "billing", "invoices") == (0, "", "")
    told = json.loads(run("consumer", "ls", "orders", "--json")[1])
    assert told == {"invoices": {"head": 1, "lag": 1, "ack": "auto", "dropped": 0}}
    assert run("consumer", "rm", "orders", "invoices") == (0, "", "")
    assert run("consumer", "ls", "orders") == (0, "", "")
    status, _, error = run("consumer", "rm", "orders", "invoices")
    assert (status, "no consumer 'invoices'" in error) == (1, True)


def test_purge_finishes_everything(run, tmp_path, monkeypatch):
    """And says so."""
    monkeypatch.chdir(tmp_path)
    with shmq.open(tmp_path / "orders") as queue:
        queue.consumer("billing").close()
        queue.put_many([b"a", b"b"])
    status, output, _ = run("purge", "orders")
    assert (status, output.startswith("everything before index 2 is finished")) == (0, True)
    with shmq.open(tmp_path / "orders") as queue:
        assert queue.consumers()["billing"].lag == 0
    assert json.loads(run("purge", "orders", "--json")[1])["next_index"] == 2


# ---------------------------------------------------------------- volatile queues
def test_the_verbs_take_volatile_queues(here, run):
    """By shm:NAME, while somebody has it open."""
    with shmq.open("shm:orders", options=shmq.Options(codec="text")):
        assert run("put", "shm:orders", "hello")[::2] == (0, "")
        assert run("take", "shm:orders", "billing", "--timeout", "0")[:2] == (0, "hello\n")
        assert run("ls", "shm:orders") == (0, "CONSUMER  ACK   HEAD  LAG\nbilling   auto     1    0\n", "")
        assert json.loads(run("ls", "--json")[1])[0]["path"] == "shm:orders"
        assert json.loads(run("stat", "shm:orders", "--json")[1])["next_index"] == 1
        assert run("cat", "shm:orders", "0")[0] == 0
    assert run("put", "shm:orders", "hello")[0] == 1
    assert run("ls") == (0, "no queues below .\n", "")


def test_gc_takes_away_what_nobody_has_open(here, run):
    """And says what."""
    assert run("gc") == (0, "no volatile queue is without users\n", "")
    pid = os.fork()
    if pid == 0:
        dead = shmq.open("shm:dead")
        os._exit(dead.put(b"x"))
    os.waitpid(pid, 0)
    with shmq.open("shm:used"):
        assert run("gc") == (0, "took away shm:dead\n", "")
        assert json.loads(run("gc", "--json")[1]) == []
        assert shmq.volatile_queues() == ["shm:used"]


def test_ls_shows_no_volatile_queue_that_nobody_has_open(here, run):
    """All who had it open were killed, and it goes."""
    pid = os.fork()
    if pid == 0:
        dead = shmq.open("shm:dead")
        os._exit(dead.put(b"x"))
    os.waitpid(pid, 0)
    assert run("ls") == (0, "no queues below .\n", "")


def test_create_keeps_a_volatile_queue_until_it_is_ended(here):
    """It would be gone with this command otherwise."""
    name = f"shm:test-{os.getpid()}-{os.urandom(4).hex()}"
    process = start("create", name, "--codec", "text")
    try:
        assert process.stdout.readline() == f"made {name} (codec text)\n".encode()
        put = start("put", name, "x")
        assert put.communicate(timeout=60)[1] == b""
        assert put.returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    after = start("put", name, "x")
    assert b"there is no such volatile queue" in after.communicate(timeout=60)[1]
    assert after.returncode == 1
