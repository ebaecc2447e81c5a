"""Options are stored in the queue; what contradicts them is an error that names both values. Codecs, pickling."""

from __future__ import annotations

import copy
import datetime
import decimal
import json
import os
import pickle
import subprocess
import sys
import uuid

import hypothesis
import hypothesis.strategies as st
import pytest
from support import records, run_python

import shmq
from shmq import codec as codecs


@pytest.mark.parametrize(
    ("name", "stored", "given"),
    [
        ("chunk_bytes", 32768, 65536),
        ("index_spacing", 64, 128),
        ("codec", "json", "bytes"),
        ("checksum", True, False),
        ("mode", 0o600, 0o700),
    ],
)
def test_a_contradicting_option_is_a_mismatch_that_names_both_values(make, path, name, stored, given):
    """And the path, and what to do; the queue can be opened without it."""
    make(**{name: stored}).close()
    says = rf"cannot open {path} with {name}={given!r}: it was made with {name}={stored!r}; leave the option out"
    with pytest.raises(shmq.Mismatch, match=says):
        shmq.open(path, options=shmq.Options(**{name: given}))
    with shmq.open(path) as queue:
        assert getattr(queue.options, name) == stored


def test_only_what_was_given_is_held_against_a_queue(make, path):
    """Options() contradicts nothing; the same value agrees; an Options survives copying and pickling with that."""
    make(chunk_bytes=32768).close()
    agreeing = shmq.Options(chunk_bytes=32768)
    for options in (shmq.Options(), agreeing, copy.copy(agreeing), pickle.loads(pickle.dumps(agreeing))):
        with shmq.open(path, options=options) as queue:
            assert queue.options.chunk_bytes == 32768
    with pytest.raises(shmq.Mismatch):
        shmq.open(path, options=pickle.loads(pickle.dumps(shmq.Options(chunk_bytes=65536))))


@pytest.mark.parametrize(
    "make_one",
    [
        lambda: shmq.Options(chunk_bytes=32768, retention=shmq.Retention.age(5)),
        lambda: shmq.Durability.interval(0.5),
        lambda: shmq.Retention.bytes(1 << 30),
    ],
)
def test_options_are_values(make_one):
    """Equal by their fields, usable as keys, printed as they could be written, and never changed."""
    one, other = make_one(), make_one()
    assert one == other
    assert {one: 1}[other] == 1
    assert copy.deepcopy(one) == one == eval(repr(one), vars(shmq))
    changed = one.__replace__(**{list(one.to_json())[-1]: 9})
    assert changed != one
    for name in one.to_json():
        with pytest.raises(AttributeError, match=name):
            setattr(one, name, getattr(changed, name))
        with pytest.raises(AttributeError, match=name):
            delattr(one, name)
    assert one == other


@pytest.mark.parametrize(
    "wrong",
    [
        {"chunk_bytes": 4096},
        {"chunk_bytes": 2 << 30},
        {"chunk_bytes": 16384 + 8},
        {"index_spacing": 0},
        {"index_spacing": 65537},
        {"codec": "yaml"},
        {"mode": 0o666},
        {"mode": 0o640},
        {"mode": 0o400},
    ],
)
def test_an_option_that_cannot_be_is_refused_by_its_name(wrong):
    """ValueError with name and value, before anything is made."""
    ((name, _),) = wrong.items()
    with pytest.raises(ValueError, match=f"{name}="):
        shmq.Options(**wrong)


def test_retention_and_durability_may_be_given_as_words(make, path):
    """They are stored as what they mean, so the queue can be opened again; by keyword too."""
    make(retention="forever", durability="process").close()
    with shmq.open(path, retention=shmq.Retention.forever(), durability="process", codec="bytes") as queue:
        assert queue.options.retention == shmq.Retention.forever()
    assert shmq.Options(retention="acked", durability="sync") == shmq.Options(durability=shmq.Durability.SYNC)


@pytest.mark.parametrize(
    ("given", "error", "hint"),
    [
        ({"retention": 3600}, TypeError, r"Retention.age\(3600\)"),
        ({"retention": "age"}, ValueError, r"Retention.age\(3600\)"),
        ({"retention": None}, TypeError, "a Retention is wanted"),
        ({"durability": 0.5}, TypeError, r"Durability.interval\(0.5\)"),
        ({"durability": "fsync"}, ValueError, r"Durability.interval\(0.1\)"),
        ({"durability": shmq.Retention()}, TypeError, "a Durability is wanted"),
    ],
)
def test_what_is_no_retention_or_durability_is_refused_at_once(path, given, error, hint):
    """It says what to write instead, and nothing is made."""
    with pytest.raises(error, match=hint):
        shmq.Options(**given)
    with pytest.raises(error, match=hint):
        shmq.open(path, **given)
    with pytest.raises(shmq.NotFound):
        shmq.open(path, create=False)


@pytest.mark.parametrize(
    ("name", "limit", "error"),
    [("age", "x", TypeError), ("age", True, TypeError), ("bytes", -1, ValueError), ("forever", 5, ValueError)],
)
def test_a_retention_that_means_nothing_is_refused(name, limit, error):
    with pytest.raises(error, match=f"{name}.*{limit}|{limit}"):
        shmq.Retention(name, limit)


def test_options_may_be_given_by_keyword(path):
    """They are held against the queue as those in `options` are."""
    with shmq.open(path, codec="json", max_messages=10_000, retention="forever") as queue:
        assert (queue.options.codec, queue.options.max_messages) == ("json", 10_000)
    with pytest.raises(shmq.Mismatch, match="codec='text'"):
        shmq.open(path, codec="text")
    shmq.open(path).close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"options": {"codec": "json"}}, r"shmq.open\(path, \*\*options\)"),
        ({"options": "json"}, r"shmq.Options\(...\)"),
        ({"options": shmq.Options(), "codec": "json"}, "options= and codec were both given"),
        ({"craete": False}, "no argument 'craete'; the options are chunk_bytes,"),
    ],
)
def test_options_of_the_wrong_kind_are_a_type_error_that_says_what_to_write(path, given, says):
    with pytest.raises(TypeError, match=says):
        shmq.open(path, **given)
    with pytest.raises(shmq.NotFound):
        shmq.open(path, create=False)


def test_a_tilde_is_the_home_directory(tmp_path, monkeypatch):
    """As in a shell: for open, copy and delete."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with shmq.open("~/orders") as queue:
        assert queue.path == f"{tmp_path}/orders"
        queue.copy("~/copied")
    shmq.delete("~/orders")
    assert [each.name for each in tmp_path.iterdir()] == ["copied"]
    assert shmq.verify("~/copied")


@pytest.mark.parametrize("wrong", [{"chunk_bytes": 16384.0}, {"chunk_bytes": "1"}, {"codec": 1}, {"checksum": 1}])
def test_an_option_of_the_wrong_kind_is_a_type_error(wrong):
    """With name and value."""
    ((name, _),) = wrong.items()
    with pytest.raises(TypeError, match=f"{name}="):
        shmq.Options(**wrong)


@pytest.mark.parametrize(
    ("codec", "payload", "stored"),
    [
        ("bytes", b"\x00\xff", b"\x00\xff"),
        ("text", "grün", "grün".encode()),
        ("json", {"a": [1, None, "x"]}, b'{"a":[1,null,"x"]}'),
        ("msgpack", {"a": 1}, b"\x81\xa1a\x01"),
    ],
)
def test_each_codec_stores_its_own_bytes_and_gives_the_object_back(make, path, codec, payload, stored):
    """By put, put_many, take, get, iteration and index."""
    queue = make(codec=codec)
    queue.put(payload)
    queue.put_many([payload, payload])
    consumer = queue.consumer("c")
    assert consumer.take(timeout=0) == consumer.get(timeout=0).payload == payload
    assert consumer.take_many(1, timeout=0) == [payload]
    assert queue[1].payload == payload
    assert records(path)[0].payload == stored
    assert bytes(queue[0].view) == stored


@pytest.mark.parametrize(("codec", "wrong"), [("text", b"bytes"), ("json", object()), ("msgpack", object())])
def test_what_a_codec_cannot_encode_is_refused_before_the_claim(make, path, codec, wrong):
    """TypeError, and nothing is put."""
    queue = make(codec=codec)
    queue.producer()
    with pytest.raises(TypeError):
        queue.put(wrong)
    assert records(path) == []


NAIVE = datetime.datetime(2026, 1, 1)  # noqa: DTZ001
STRANGE = [{1}, NAIVE, decimal.Decimal("1.5"), uuid.UUID(int=1), 1j, shmq.Options(), datetime.date(2026, 1, 1)]
STRANGE_IN_JSON = [b"x", float("nan"), float("-inf"), {1: "a"}, {None: 1}, NAIVE.astimezone(datetime.UTC)]


@pytest.mark.parametrize(
    ("codec", "wrong"),
    [("msgpack", wrong) for wrong in STRANGE] + [("json", wrong) for wrong in STRANGE + STRANGE_IN_JSON],
)
def test_what_would_come_back_as_something_else_is_refused(make, path, codec, wrong):
    """JSON wrote NaN as null, bytes as base64 and sets as lists. At any depth, and nothing of a batch is put."""
    queue = make(codec=codec)
    for payload in (wrong, [1, (2, {"a": [wrong]})]):
        with pytest.raises((TypeError, ValueError), match=f"codec '{codec}' cannot hold "):
            queue.put(payload)
        with pytest.raises((TypeError, ValueError), match=f"codec '{codec}' cannot hold "):
            queue.put_many([1, payload])
    assert len(queue) == 0


def test_headers_that_would_come_back_as_something_else_are_refused(queue):
    """They are msgpack."""
    with pytest.raises(TypeError, match="cannot hold"):
        queue.put(b"a", headers={"tags": {"x"}})
    with pytest.raises(TypeError, match="cannot hold"):
        queue.put_many([b"a", b"b"], headers=[{"when": NAIVE}, None])
    assert len(queue) == 0


def test_a_payload_within_itself_is_an_error_and_no_crash(make, tmp_path):
    """RecursionError; nothing is put."""
    for codec in ("json", "msgpack"):
        with make(f"{tmp_path}/{codec}", codec=codec) as queue:
            endless = []
            endless.append(endless)
            with pytest.raises(RecursionError):
                queue.put({"a": endless})
            assert len(queue) == 0


PLAIN = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    PLAIN | st.binary() | st.sets(st.integers()) | st.datetimes(timezones=st.none() | st.just(datetime.UTC)),
    lambda inner: st.lists(inner) | st.dictionaries(PLAIN | st.binary(), inner),
    max_leaves=10,
)


@pytest.mark.parametrize("name", ["json", "msgpack"])
@hypothesis.given(tree=TREES)
def test_what_is_put_comes_back_equal_or_is_refused(name, tree):
    """Whatever it is made of."""
    chosen = codecs.codec(name)
    try:
        data = chosen.encode(tree)
    except (TypeError, ValueError):
        return
    assert chosen.decode(data) == tree


def test_pickle_needs_trust_on_both_sides(make, path):
    """Making such a queue, opening it, reading it: Untrusted without trusted=True, and nothing is made or changed."""
    with pytest.raises(shmq.Untrusted, match="trusted=True"):
        make(codec="pickle")
    with pytest.raises(shmq.NotFound):
        shmq.open(path, create=False)
    make(codec="pickle", flags={"trusted": True}).put({1, 2})
    for flags in ({}, {"read_only": True}):
        with pytest.raises(shmq.Untrusted, match=f"cannot open {path}.*run code"):
            shmq.open(path, **flags)
    with shmq.open(path, trusted=True) as queue:
        assert queue[0].payload == {1, 2}


def test_a_queue_pickles_to_its_place(make):
    """With its flags; it is opened there, not made."""
    queue = make(codec="pickle", flags={"trusted": True})
    queue.put("x")
    with pickle.loads(pickle.dumps(queue)) as again:
        assert again[0].payload == "x"
        assert again.path == queue.path


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_queue_crosses_to_processes_that_are_not_forks(queue, path, method, tmp_path):
    """As an argument of multiprocessing.Process: the child puts, the parent takes."""
    script = tmp_path / "main.py"
    script.write_text(
        "import multiprocessing, sys, shmq\n"
        "def work(queue):\n"
        "    queue.put(b'from the child')\n"
        "if __name__ == '__main__':\n"
        "    queue = shmq.open(sys.argv[1])\n"
        "    child = multiprocessing.get_context(sys.argv[2]).Process(target=work, args=(queue,))\n"
        "    child.start(); child.join()\n"
        "    print(queue.consumer('c').take(timeout=10), child.exitcode)\n"
    )
    command = [sys.executable, script, path, method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "b'from the child' 0\n", done.stderr


HEAVY = {
    "asyncio",
    "dataclasses",
    "datetime",
    "enum",
    "importlib.metadata",
    "inspect",
    "json",
    "logging",
    "msgspec",
    "multiprocessing",
    "numpy",
    "pickle",
    "posix_ipc",
    "pyarrow",
    "re",
    "secrets",
    "shmq.brought",
    "shmq.storage.dedup",
    "shmq.storage.ledger",
    "shmq.storage.staging",
    "shmq.taking.dead",
    "shmq.taking.group",
    "shutil",
    "signal",
    "ssl",
    "subprocess",
    "tempfile",
    "traceback",
    "typing",
}
"""What only some users need, and takes a while."""


def imported_by(code):
    measured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    return set(run_python(f"import sys\n{code}\nprint(*sorted(sys.modules))", env=measured).split())


def test_importing_shmq_imports_nothing_heavy():
    """What only some users need is imported when it is used: see sys.modules of a fresh interpreter."""
    assert HEAVY & imported_by("import shmq") == HEAVY & imported_by("")


def test_putting_and_taking_for_the_first_time_imports_nothing_heavy(path):
    """What the import does without, the first message does not bring after all."""
    code = (
        f"import shmq\nfor name in 'ab':\n    with shmq.open({str(path)!r}) as queue:\n"
        "        queue.put(b'x'); queue.put_many([b'y', b'z'], keys=[b'k', b'l'])\n"
        "        with queue.consumer(name) as consumer: assert consumer.take() == b'x'\n"
        "        with queue.reader() as reader: assert len(queue) and next(reader).payload == b'x'"
    )
    assert HEAVY & imported_by(code) == HEAVY & imported_by("")


def test_elsewhere_shmq_says_that_it_is_for_linux():
    """One sentence, at import."""
    code = "import sys; sys.platform = 'darwin'\ntry: import shmq\nexcept ImportError as problem: print(problem)"
    assert run_python(code).startswith("shmq is for Linux: ")


@pytest.mark.parametrize("codec", sorted(codecs.NAMES))
def test_what_most_queues_store_is_known_without_being_read(codec):
    """Letter for letter: so whatever makes the defaults others, or stores them otherwise, is told here."""
    stored = json.dumps(shmq.Options(codec=codec).to_json(), separators=(",", ":")).encode()
    known, read = shmq.Options.stored_as(stored), shmq.Options.from_json(json.loads(stored))
    assert known is not None
    assert vars(known) == vars(read)


@pytest.mark.parametrize("other", [{"ttl": 1.0}, {"chunk_bytes": 1 << 20}, {"full": "raise"}, {"durability": "sync"}])
def test_any_other_options_are_read(other):
    stored = json.dumps(shmq.Options(**other).to_json(), separators=(",", ":")).encode()
    assert shmq.Options.stored_as(stored) is None


@pytest.mark.parametrize("codec", ['by"tes', "by\\\\tes", "", 'x","ttl":1,"codec":"y', "bytes "])
def test_a_codec_with_more_than_letters_is_read(codec):
    stored = json.dumps({**shmq.Options().to_json(), "codec": codec}, separators=(",", ":")).encode()
    assert shmq.Options.stored_as(stored) is None
