"""The `shmq` command: what each verb prints, what it says when it cannot, and how it ends."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from support import chunk_files, make_unclean, patch
from support import start as start_child
from support import words as words_of

import shmq
from shmq.cli import VERBS, main, parser


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
        return main([str(word) for word in words]), *said()

    def said():
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return out.decode(), err.decode()

    run.said = said
    return run


def ended_by_argparse(run, *words):
    """(exit status, stdout, stderr) of words that argparse refuses."""
    with pytest.raises(SystemExit) as ended:
        run(*words)
    return ended.value.code, *run.said()


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


@pytest.mark.parametrize("verb", VERBS)
def test_found_examples_that_a_shell_refused(verb):
    """What they say beside the command stood there without a `#`, so whoever pasted one was told of the usage."""
    for line in re.findall(r"^    (?:.*\| )?(shmq .*)$", parser(verb).epilog or "", re.MULTILINE):
        for command in re.split(r" && | \| ", line):
            words = shlex.split(re.split(r" [<>] ", command)[0], comments=True)
            if words[1] not in VERBS or "--help" in words:
                continue
            parser(words[1]).parse_args(words[2:])


WRONG = [[], ["fly"], ["cat"], ["create", "q", "--codec", "xml"], ["take", "q", "n", "-n", "x"]]


@pytest.mark.parametrize("words", WRONG)
def test_what_was_asked_for_wrongly_ends_with_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: shmq" in capsys.readouterr().err


ANYWHERE = [
    ["orders", "--key", "eu", "hello"],
    ["--key", "eu", "orders", "hello"],
    ["orders", "hello", "--key", "eu"],
    ["orders", "--key=eu", "--", "hello"],
    ["--key", "eu", "--", "orders", "hello"],
]


@pytest.mark.parametrize("words", ANYWHERE)
def test_options_may_stand_anywhere(here, run, words):
    shmq.open("orders").close()
    assert run("put", *words) == (0, "0\n", "")
    with shmq.open("orders") as queue:
        assert (queue[0].payload, queue[0].key) == (b"hello", b"eu")
    assert run("cat", "orders", "--format", "repr", "0", "-1")[1] == "0  b'hello'\n" * 2
    assert run("consumer", "ls", "--json", "orders") == (0, "{}\n", "")


@pytest.mark.parametrize("payload", ["-x", "--key", "-5"])
def test_behind_two_dashes_everything_is_a_word(here, run, payload):
    shmq.open("orders").close()
    assert run("put", "orders", "--key", "eu", "--", payload) == (0, "0\n", "")
    assert run("cat", "orders")[1] == f"{payload}\n"


def test_an_option_that_is_none_is_refused_and_nothing_is_done(here, run):
    shmq.open("orders").close()
    status, _, err = ended_by_argparse(run, "put", "orders", "--kye", "eu", "hello")
    assert (status, "unrecognized arguments: --kye" in err) == (2, True)
    assert run("cat", "orders") == (0, "", "")


@pytest.mark.parametrize("verb", ["create", "cat", "stat", "put", "purge"])
def test_an_empty_path_is_refused(here, run, verb):
    status, _, err = ended_by_argparse(run, verb, "")
    assert (status, "'' is not a path" in err) == (2, True)


def test_a_tilde_that_no_shell_expanded_is_the_home_directory(here, run, monkeypatch):
    monkeypatch.setenv("HOME", str(here))
    assert run("create", "~/q") == (0, f"made {here}/q (codec bytes)\n", "")
    assert run("put", "~/q", "x")[0] == run("ls", "~")[0] == 0


@pytest.mark.parametrize(
    ("redirected", "status", "out", "err"),
    [
        ("put orders 4 >&-", 0, "", ""),
        ("put orders <&-", 1, "put 0 messages", "nothing to put: no payload was given, and standard input is closed"),
        ("take orders you >&-", 1, "", "cannot print messages: standard output is closed"),
        ("take orders you --format repr 2>&- <&-", 0, "0  {'id': 1}", ""),
        ("cat orders >&-", 1, "", "cannot print messages: standard output is closed"),
        ("stat nowhere >&- 2>&-", 1, "", ""),
        ("cat orders > /dev/full", 1, "", "No space left on device"),
        ("fly >&- 2>&- <&-", 2, "", ""),
        ("cat orders --format repr | head -n 1", 141, "0  {'id': 1}", ""),
        ("cat orders | true", 141, "", ""),
        ("--help | true", 0, "", ""),
    ],
)
def test_streams_that_are_closed_or_full_give_no_traceback(orders, redirected, status, out, err):
    """Nothing is taken or lost for want of a stream; the exit status is right."""
    with shmq.open("orders") as queue:
        queue.put_many(["x" * 1000] * 200)  # more than a pipe holds
    words = f"set -o pipefail; exec 3>&1; {sys.executable} -m shmq {redirected}"
    done = subprocess.run(["bash", "-c", words], check=False, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), "Traceback" in done.stderr, "Exception" in done.stderr) == (out, False, False)
    assert done.stderr.endswith(f"{err}\n" if err else "")
    assert done.returncode == status or (status == 0 and "|" in redirected)
    if "take" in redirected:
        with shmq.open(orders) as queue:
            assert queue.consumers()["you"].head == (status == 0)


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
    why = f"shmq: cannot open {here}/nowhere: there is no such directory; `shmq create nowhere` makes a queue there\n"
    assert run(verb, "nowhere", *rest) == (1, "", why)
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
    expected = "shmq: 'no/slash' is not a consumer name: 1 to 64 of A-Z a-z 0-9 _ . - and no dot in front\n"
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
    assert status == 2
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
    assert err.startswith(b"shmq: line 3: '{broken' is not JSON")


def test_a_line_that_is_refused_is_named_and_all_before_it_are_in(orders, run):
    """Also those that came together with it: what is in does not depend on how a pipe cuts its bytes."""
    writer = start("put", orders, stdin=subprocess.PIPE)
    out, err = writer.communicate(b'1\n"two"\n{broken\n4\n', timeout=60)
    assert (writer.returncode, out) == (1, b"put 2 messages, index 3 to 4\n")
    assert err.startswith(b"shmq: line 3: '{broken' is not JSON")
    assert err.endswith(b"; what was before it is in, it and what follows is not\n")
    assert run("cat", orders, 3, 4, "--format", "repr")[1] == "3  1\n4  'two'\n"


@pytest.mark.parametrize(
    ("codec", "line"), [("json", b"NaN"), ("json", b'"\\ud800"'), ("msgpack", b"123456789012345678901")]
)
def test_found_a_line_that_is_json_and_nothing_for_the_codec_took_those_before_it_along(here, run, codec, line):
    """It had no number, and for msgpack there was a traceback."""
    run("create", "q", "--codec", codec)
    writer = start("put", "q", stdin=subprocess.PIPE)
    out, err = writer.communicate(b"1\n" + line + b"\n3\n", timeout=60)
    assert (writer.returncode, out) == (1, b"put 1 message, index 0\n")
    assert err.startswith(b"shmq: line 2: ")
    assert err.endswith(b"; what was before it is in, it and what follows is not\n")
    assert b"Traceback" not in err


def test_put_of_nothing_puts_nothing(orders):
    writer = start("put", orders, stdin=subprocess.DEVNULL)
    assert writer.communicate(timeout=60) == (b"put 0 messages\n", b"")
    assert writer.returncode == 0


@pytest.mark.parametrize("header", ["novalue", "=x"])
def test_put_refuses_what_is_no_header(orders, run, header):
    status, _, err = ended_by_argparse(run, "put", orders, "1", "--header", header)
    assert (status, f"{header!r} is not a header: NAME=VALUE" in err) == (2, True)


def test_put_refuses_an_impossible_type(orders, run):
    assert run("put", orders, "1", "--type", 70000) == (1, "", "shmq: type=70000: from 0 to 65535\n")


def test_take_says_how_many_it_took_when_there_were_fewer_and_ends_with_1_when_there_was_none(orders, run):
    status, out, err = run("take", orders, "me", "-n", 5, "--timeout", 0, "--format", "repr")
    assert (status, out) == (0, "0  {'id': 1}\n1  'two'\n2  3\n")
    assert err == f"shmq: took 3 of 5: nothing to get from {orders} in time\n"
    assert run("take", orders, "me", "-n", 5, "--timeout", 0) == (
        1,
        "",
        f"shmq: nothing to get from {orders} in time\n",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("take", "orders", "me", "-n", 0), "0: 1 or more"),
        (("take", "orders", "me", "-n", -3), "-3: 1 or more"),
        (("take", "orders", "me", "-n", "many"), "'many' is not a whole number"),
        (("take", "orders", "me", "--timeout", -1), "-1: seconds, 0 or more"),
        (("take", "orders", "me", "--timeout", "nan"), "nan: seconds, 0 or more"),
        (("tail", "orders", "-n", -1), "-1: 0 or more"),
        (("dump", "orders", "--limit", -1), "-1: 0 or more"),
        (("create", "new", "--max-messages", 0), "0: 1 or more"),
        (("create", "new", "--durability", "interval"), "is not process, sync or interval=SECONDS"),
        (("create", "new", "--durability", "interval=-1"), "more than 0"),
        (("put", "orders", "x", "--delay", "soon"), "'soon' is not a number of seconds"),
    ],
)
def test_a_number_that_means_nothing_is_refused_before_anything_is_opened(orders, run, words, said):
    status, _, err = ended_by_argparse(run, *words)
    assert (status, said in err) == (2, True), err
    with shmq.open(orders) as queue:
        assert (queue.consumers(), len(queue)) == ({}, 3)


def test_take_as_one_of_a_group_and_again_by_its_name(orders, run):
    assert run("take", orders, "workers", "--group", "--ack", "explicit", "-n", 2)[0] == 0
    assert run("take", orders, "workers", "--format", "repr")[1] == "2  3\n"
    with shmq.open(orders) as queue:
        assert (queue.consumers()["workers"].group is not None, queue.consumers()["workers"].lag) == (True, 0)


def test_create_and_put_have_the_options_that_python_has(here, run):
    words = ("--max-messages", 3, "--max-bytes", 4096, "--full", "raise", "--durability", "interval=0.5", "--ttl", 60)
    assert run("create", "q", *words)[0] == 0
    assert run("put", "q", "later", "--delay", 3600, "--ttl", 7200)[0] == 0
    with shmq.open("q") as queue:
        made = queue.options
        assert (made.max_messages, made.max_bytes, made.full, made.ttl) == (3, 4096, "raise", 60)
        assert made.durability == shmq.Durability.interval(0.5)
        assert queue[0].due_ns > time.time_ns()
        assert queue[0].expires.timestamp() > time.time() + 3600
        with queue.consumer("c") as consumer, pytest.raises(shmq.Empty, match="delayed"):
            consumer.take(0)


def test_finish_ends_a_stream_and_the_next_put_opens_it_again(orders, run):
    assert run("finish", orders)[1] == f"{orders} is finished: it ends at index 3\n"
    status, out, err = run("take", orders, "me", "-n", 5)
    assert (status, len(out.splitlines())) == (0, 3)
    assert "took 3 of 5" in err
    assert "was finished" in err
    assert run("put", orders, "4")[0] == 0
    with shmq.open(orders) as queue:
        assert not queue.finished


def test_shutdown_is_for_those_who_have_it_open(orders, run):
    assert run("shutdown", orders)[0] == 1
    code = "import shmq, sys; q = shmq.open(sys.argv[1]); print(len([*q.consumer('c')]), flush=True)"
    with subprocess.Popen([sys.executable, "-c", code, str(orders)], stdout=subprocess.PIPE) as reader:
        status, until = 1, time.monotonic() + 60
        while status and time.monotonic() < until:
            status, out, _ = run("shutdown", orders)
        assert (status, "1 process that had it open" in out) == (0, True)
        assert reader.communicate(timeout=60)[0] == b"3\n"


@pytest.mark.parametrize("verb", ["put", "take", "tail", "seek", "export"])
def test_the_usage_of_a_verb_names_its_words(run, verb):
    status, out, _ = ended_by_argparse(run, verb, "--help")
    usage = out.partition("\n\n")[0]
    assert (status, "PATH" in usage or "QUEUE" in usage) == (0, True), usage


def test_ls_shows_the_others_beside_one_that_cannot_be_opened(orders, run):
    os.mkdir("bad", 0o700)
    with open("bad/queue.shmq", "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o644)
    status, out, err = run("ls")
    assert status == 1
    assert [line.split()[:2] for line in out.splitlines()] == [["QUEUE", "MESSAGES"], ["bad", "-"], ["orders", "3"]]
    assert err == f"shmq: cannot open {orders.parent}/bad/queue.shmq: others have rights to it (mode 0o644)\n"


def test_what_only_looks_recovers_nothing(orders, run):
    """cat, tail, ls, stat, verify and dump of a queue that nobody has opened since a reboot."""
    make_unclean(orders)
    before = {file: file.read_bytes() for file in sorted(orders.rglob("*")) if file.is_file()}
    for words in (("cat", orders), ("tail", orders), ("ls", orders), ("stat", orders), ("consumer", "ls", orders)):
        assert run(*words)[0] == 0, words
    assert run("verify", orders)[0] == 0
    assert {file: file.read_bytes() for file in sorted(orders.rglob("*")) if file.is_file()} == before


def test_found_verify_of_a_folder_spoke_of_the_one_foreign_queue_among_ours(here, run):
    """Each of ours is checked, and what is foreign; of a folder with ours alone it said that it is in no format."""
    os.mkdir("all")
    for name in "ab":
        with shmq.open(f"all/{name}") as queue:
            queue.put(b"x")
    ours = "all/{}: shmq, 1 message whole in 1 chunk, 0 problems\n".format
    assert run("verify", "all") == (0, ours("a") + ours("b") + "all: 2 checks, 0 with problems\n", "")
    assert run("export", "all/a", "--to", "sej", "all/s")[0] == 0
    assert run("verify", "all") == (
        0,
        ours("a") + ours("b") + "all: sej, 0 problems\nall: 3 checks, 0 with problems\n",
        "",
    )
    assert run("verify", "all", "--format", "sej") == (0, "all: sej, 0 problems\n", "")

    Path("all/a/queue.shmq").write_bytes(b"x")
    said = f"all/a: cannot read {here}/all/a/queue.shmq: it has only 1 bytes; it was not touched\n"
    assert run("verify", "all") == (1, said + ours("b") + "all: sej, 0 problems\nall: 3 checks, 1 with problems\n", "")
    told = json.loads(run("verify", "all", "--json")[1])["queues"]
    assert [(each["path"], each["format"], len(each["problems"])) for each in told] == [
        ("all/a", "shmq", 1),
        ("all/b", "shmq", 0),
        ("all", "sej", 0),
    ]


def test_what_a_recovery_has_set_aside_is_named_by_verify_stat_and_repair(orders, run):
    last = words_of(orders)[-2].position
    patch(chunk_files(orders)[-1], last + 40, b"\xff")
    make_unclean(orders)
    shmq.open(orders).close()
    said = "what the recovery of epoch 1 has set aside: 1 chunk file; `shmq repair"
    for words in (("verify", orders), ("stat", orders), ("repair", orders)):
        assert said in run(*words)[1], words
    assert list(json.loads(run("verify", orders, "--json")[1])["aside"]) == ["1"]
    assert list(json.loads(run("stat", orders, "--json")[1])["aside"]) == ["1"]
    assert run("repair", orders, "--aside", 1)[0] == 3  # what was damaged is lost there, too


def test_a_queue_that_is_whole_is_left_as_it_is_by_a_repair_in_place(orders, run):
    inode = orders.stat().st_ino
    status, out, _ = run("repair", orders, "--in-place")
    assert (status, out) == (0, f"{orders}: 3 messages, nothing is damaged; it was left as it is\n")
    assert (orders.stat().st_ino, os.listdir(orders.parent)) == (inode, ["orders"])


def test_take_keeps_the_ack_mode_that_a_name_has(orders, run):
    with shmq.open(orders) as queue:
        queue.consumer("careful", ack="explicit").close()
    assert run("take", orders, "careful", "-n", 2)[0] == 0
    with shmq.open(orders) as queue:
        careful = queue.consumers()["careful"]
        assert (careful.head, careful.lag, careful.ack) == (2, 1, "explicit")


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
    assert run("cat", orders, 1, "--from", 0) == (2, "", "shmq: give indexes, or --from and --to, not both\n")


def test_pickles_are_read_only_when_told(here, run):
    with shmq.open("q", options=shmq.Options(codec="pickle"), trusted=True) as queue:
        queue.put({1, 2})
    expected = "shmq: q holds pickles, which run code when read; add --trusted if you trust whoever may write it\n"
    assert run("cat", "q") == (1, "", expected)
    assert run("cat", "q", "--trusted", "--format", "repr") == (0, "0  {1, 2}\n", "")
    assert run("put", "q", "1") == (1, "", f"shmq: {here}/q holds pickles; they are put by Python programs only\n")
    assert run("stat", "q")[0] == 0  # decodes nothing


def test_found_queues_of_codecs_that_are_not_here_were_refused(here, run):
    """Their bytes are shown, and nothing is put that nobody could read."""

    class Order(msgspec.Struct):
        number: int

    with shmq.open("q", codec=shmq.codec.struct(Order)) as queue:
        queue.put(Order(7))
    assert run("cat", "q", "--format", "hex")[1] == "0  81 a6 6e 75 6d 62 65 72 07\n"
    assert run("stat", "q")[0] == 0
    code, out, told = run("put", "q", "{}")
    assert (code, out) == (1, "")
    assert "has codec 'struct:Order', which is not shmq's own" in told
    assert run("take", "q", "name", "--format", "hex")[0] == 0


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
    title, billing = run("ls", "orders")[1].splitlines()
    assert title.split() == ["CONSUMER", "ACK", "HEAD", "LAG", "PENDING", "PARKED", "WAITING", "OLDEST"]
    assert billing.split()[:7] == ["billing", "auto", "1", "2", "0", "0", "0"]
    assert billing.endswith(" d")  # its messages are of 1970
    told = json.loads(run("ls", "orders", "--json")[1])["billing"]
    assert told.pop("oldest") > 50 * 365 * 86400
    assert told == {
        "head": 1,
        "lag": 2,
        "ack": "auto",
        "dropped": 0,
        "floor": 1,
        "pending": 0,
        "hold": False,
        "shared": False,
        "behind": 2,
        "ephemeral": False,
    }
    assert run("ls", "deep/other") == (0, "deep/other has no consumers yet\n", "")


def test_ls_of_nothing_says_so(here, run):
    assert run("ls") == (0, "no queues below .\n", "")
    assert run("ls", "nowhere") == (1, "", "shmq: nowhere is not a directory\n")


def test_ls_shows_a_damaged_queue_and_ends_with_1(orders, run):
    os.truncate(orders / "queue.shmq", 100)
    status, out, err = run("ls")
    assert (status, "cannot read" in err) == (1, True)
    assert out.splitlines()[1].split()[:2] == ["orders", "-"]


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


def test_seek_takes_a_time_in_seconds_that_has_a_point(orders, run):
    run("take", orders, "me", "-n", 3)
    assert run("seek", orders, "me", "1.5") == (0, "me: 3 -> 1 (lag 2)\n", "")
    assert run("seek", orders, "me", "4102444800.25") == (0, "me: 1 -> 3 (lag 0)\n", "")


def test_seek_refuses_strange_names_and_places(orders, run):
    run("take", orders, "me")
    assert run("seek", orders, "you", 1) == (1, "", f"shmq: {orders} has no consumer 'you'\n")
    status, _, err = run("seek", orders, "me", "soon")
    assert (status, "'soon' is not an index, a time like" in err) == (2, True)
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


INTERRUPTING = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == os.environ["AT"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("at", ["argparse", "shmq.queue", "shmq.taking.waiting", "shmq.cli.show", "shmq.cli.bridge"])
def test_ctrl_c_while_it_imports_ends_it_quietly(at, tmp_path):
    """As a program that imports it is not."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTING)
    (tmp_path / "shmq").write_text("import sys\nfrom shmq.cli import main\nsys.exit(main())\n")
    (tmp_path / "other.py").write_text("import shmq\n")
    where = os.pathsep.join([str(tmp_path), str(Path(shmq.__file__).parents[1])])
    environment = {**os.environ, "AT": at, "PYTHONPATH": where}
    ends = {}
    verb = ("bridge", "nowhere", "redis://127.0.0.1:1/stream")
    for words in (("-m", "shmq", *verb), ("shmq", *verb), ("other.py",)):
        command = [sys.executable, *words]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        ends[words[0]] = done.returncode, "KeyboardInterrupt" in done.stderr, done.stderr == ""
    other = (0, False, True) if "cli" in at or at == "argparse" else (-2, True, False)
    assert ends == {"-m": (130, False, True), "shmq": (130, False, True), "other.py": other}


def test_the_module_is_the_command_too():
    done = subprocess.run([sys.executable, "-m", "shmq", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"shmq {shmq.__version__}\n"


def test_consumer_prune_says_and_then_removes_what_queries_have_left(orders, run):
    """Names that hold nothing, and those that an older version gave to streams; none that a user gave."""
    with shmq.open(orders) as queue:
        queue.consumer("mine", ack="explicit").close()
        queue.consumer("spark-mine").close()
        queue.consumer("looks", hold="nothing").close()
        queue.consumer("spark-0123456789ab", ack="explicit").close()
        status, said, _ = run("consumer", "prune", orders)
        assert status == 0
        assert [line.split(":")[0] for line in said.splitlines()[:-1]] == [
            "would remove looks",
            "would remove spark-0123456789ab",
        ]
        assert said.endswith("2 names; nothing was removed yet: --yes does it\n")
        assert len(queue.consumers()) == 4
        with queue.consumer("looks"):
            said = run("consumer", "prune", orders, "--yes")[1]
        assert "removed spark-0123456789ab: at 0, " in said
        assert "left: cannot drop consumer 'looks'" in said
        assert said.endswith("\n1 name\n")
        assert set(queue.consumers()) == {"looks", "mine", "spark-mine"}


def test_consumer_lists_renames_and_removes(run, tmp_path, monkeypatch):
    """What stands there, under another name, and gone."""
    monkeypatch.chdir(tmp_path)
    with shmq.open(tmp_path / "orders") as queue:
        queue.put_many([b"a", b"b"])
        with queue.consumer("billing") as consumer:
            consumer.take()
    assert run("consumer", "ls", "orders") == (
        0,
        "billing: at 1, 1 behind: 0 pending, 0 parked, 0 waiting, the oldest 0 s (auto)\n",
        "",
    )
    assert run("consumer", "rename", "orders", "billing", "invoices") == (0, "billing is invoices now\n", "")
    told = json.loads(run("consumer", "ls", "orders", "--json")[1])
    assert told["invoices"].pop("oldest") < 3600
    assert told == {
        "invoices": {
            "head": 1,
            "lag": 1,
            "ack": "auto",
            "dropped": 0,
            "floor": 1,
            "pending": 0,
            "hold": False,
            "shared": False,
            "behind": 1,
            "ephemeral": False,
        }
    }
    assert run("consumer", "rm", "orders", "invoices", "--yes") == (0, "removed invoices\n", "")
    assert run("consumer", "ls", "orders") == (0, "", "")
    status, _, error = run("consumer", "rm", "orders", "invoices")
    assert (status, "no consumer 'invoices'" in error) == (1, True)


def test_purge_finishes_everything(run, tmp_path, monkeypatch):
    """And says so, and what can still be read: the last chunk file stays until it is full."""
    monkeypatch.chdir(tmp_path)
    with shmq.open(tmp_path / "orders") as queue:
        queue.consumer("billing").close()
        queue.put_many([b"a", b"b"])
    status, output, _ = run("purge", "orders", "--yes")
    assert (status, output.startswith("everything before index 2 is finished")) == (0, True)
    assert output.endswith("\nindex 0 to 1 can still be read (cat) until their chunk file goes\n")
    assert run("cat", "orders")[1] == "a\nb\n"
    with shmq.open(tmp_path / "orders") as queue:
        assert queue.consumers()["billing"].lag == 0
    assert json.loads(run("purge", "orders", "--json", "-y")[1])["next_index"] == 2


def test_found_a_queue_of_dead_letters_that_nobody_is_to_create(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, _, error = run("dead", "ls", "orders.billing.dead")
    assert (status, error.endswith("there is no such directory; the first dead letter makes it\n")) == (1, True)


def test_what_a_purge_leaves_of_one_message_is_said_of_one(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with shmq.open(tmp_path / "orders") as queue:
        queue.put(b"a")
    assert run("purge", "orders", "--yes")[1].endswith("\nindex 0 can still be read (cat) until its chunk file goes\n")


# ---------------------------------------------------------------- volatile queues
def test_the_verbs_take_volatile_queues(here, run):
    """By shm:NAME, while somebody has it open."""
    with shmq.open("shm:orders", options=shmq.Options(codec="text")):
        assert run("put", "shm:orders", "hello")[::2] == (0, "")
        assert run("take", "shm:orders", "billing", "--timeout", "0")[:2] == (0, "hello\n")
        assert run("ls", "shm:orders")[1].endswith("billing   auto     1    0        0       0        0       -\n")
        assert json.loads(run("ls", "--json")[1])[0]["path"] == "shm:orders"
        assert json.loads(run("stat", "shm:orders", "--json")[1])["next_index"] == 1
        assert run("cat", "shm:orders", "0")[0] == 0
    assert run("put", "shm:orders", "hello")[0] == 1
    assert run("ls") == (0, "no queues below .\n", "")


def leave_a_dead_one():
    """A volatile queue whose only process has ended without closing it."""

    def put_and_end():
        dead = shmq.open("shm:dead")
        os._exit(dead.put(b"x"))

    assert os.waitpid(start_child(put_and_end), 0)[1] == 0


def test_gc_takes_away_what_nobody_has_open(here, run):
    """And says what."""
    assert run("gc") == (0, "no volatile queue is without users\n", "")
    leave_a_dead_one()
    with shmq.open("shm:used"):
        assert run("gc") == (0, "took away shm:dead\n", "")
        assert json.loads(run("gc", "--json")[1]) == []
        assert shmq.volatile_queues() == ["shm:used"]


def test_ls_shows_no_volatile_queue_that_nobody_has_open(here, run):
    """All who had it open were killed, and it goes."""
    leave_a_dead_one()
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


@pytest.mark.parametrize("words", [("consumer", "rename", "orders", "a", "x y"), ("create", "shm:no/where")])
def test_a_name_that_is_none_gives_one_line_and_no_traceback(orders, run, words):
    status, _, err = run(*words)
    assert status == 1
    assert err.count("\n") == 1


@pytest.mark.parametrize("full", ["block", "raise", "drop_oldest"])
def test_put_of_more_lines_than_a_bound_takes_puts_what_there_is_room_for(here, run, full):
    run("create", "q", "--max-messages", "10", "--full", full)
    lines = b"".join(b"%d\n" % number for number in range(100))
    with shmq.open("q") as queue, queue.consumer("me") as consumer:
        writer = start("put", "q", stdin=subprocess.PIPE)
        if full == "block":
            writer.stdin.write(lines)
            writer.stdin.close()
            assert [consumer.take(timeout=60) for _ in range(100)] == lines.split()
            with writer.stdout, writer.stderr:
                out, err = writer.stdout.read(), writer.stderr.read()
            assert (writer.wait(60), out, err) == (0, b"put 100 messages, index 0 to 99\n", b"")
            return
        out, err = writer.communicate(lines, timeout=60)
        assert consumer.take_many(100, timeout=0) == (lines.split()[:10] if full == "raise" else lines.split()[-10:])
    if full == "raise":
        assert (writer.returncode, out) == (1, b"put 10 messages, index 0 to 9\n")
        assert b"there is no room" in err
    else:
        assert (writer.returncode, out, err) == (0, b"put 100 messages, index 0 to 99\n", b"")


def test_cat_of_a_range_names_the_options_for_it(orders, capsys):
    with pytest.raises(SystemExit):
        main(["cat", str(orders), "1:3"])
    assert "'1:3' is not an index; for a range, --from and --to" in capsys.readouterr().err


def test_a_directory_of_shards_is_shown_by_shard(tmp_path, capsys):
    """And listed as queues, without the places where groups meet."""
    with shmq.shards.open(tmp_path / "e", shards=2) as root:
        root.put(b"v", key=b"k")
        root.consumer("g", group=True).close()
    assert main(["stat", str(tmp_path / "e")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["0", "open", "1", "1", lines[2].split()[-1]]
    assert lines[-1].split() == ["g", "1"]
    assert main(["stat", str(tmp_path / "e"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert ([each["shard"] for each in told["shards"]], told["consumers"]) == ([0, 1], {"g": 1})
    assert main(["ls", str(tmp_path)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["QUEUE", "e/1.000", "e/1.001"]


@pytest.mark.parametrize(
    "words",
    [
        ("put", "csp://host:9000/orders", "x"),
        ("take", "csp+unix:///run/s//orders", "c"),
        ("stat", "acsp://host:9000/orders"),
        ("create", "csp://host:9000/orders"),
        ("bridge", "csp://host:9000/orders", "redis://host/s"),
        ("replicate", "csp://host:9000/orders", "copy"),
    ],
)
def test_a_queue_at_a_server_is_for_programs(here, run, words):
    """No verb knows one, and none makes a directory of that name."""
    status, _, err = ended_by_argparse(run, *words)
    assert status == 2
    assert f"{words[1]} is a queue at a server, and this verb is for those of this machine" in err
    assert os.listdir(here) == []
