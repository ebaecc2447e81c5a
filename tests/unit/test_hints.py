"""What stands for `typing` while the engine runs is as that is."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import typing

import pytest

import shmq
from shmq import codec, hints
from shmq.tuples import NamedTuple


class Ours(NamedTuple):
    """Of the engine."""

    first: int
    second: str = "b"
    """With a word of its own."""

    def both(self):
        return self.first, self.second


class Theirs(typing.NamedTuple):
    """Of the standard library."""

    first: int
    second: str = "b"

    def both(self):
        return self.first, self.second


BOTH = pytest.mark.parametrize("kind", [Ours, Theirs])


@BOTH
def test_a_named_tuple_is_made_in_each_way(kind):
    made = kind(1)
    assert made == kind(1, "b") == kind(first=1) == kind(1, second="b") == kind._make((1, "b")) == (1, "b")
    assert (made.first, made.second, made.both()) == (1, "b", (1, "b"))
    assert repr(made) == f"{kind.__name__}(first=1, second='b')"
    assert kind._fields == kind.__match_args__ == ("first", "second")
    assert kind._field_defaults == {"second": "b"}
    assert made._asdict() == {"first": 1, "second": "b"}
    assert made._replace(second="c") == (1, "c")
    assert isinstance(made._replace(second="c"), kind)
    match made:
        case kind(first, second):
            assert (first, second) == (1, "b")


@BOTH
@pytest.mark.parametrize("values", [(), (1, "b", 2)])
@pytest.mark.parametrize("named", [{}, {"third": 3}, {"first": 1, "second": "c"}])
def test_a_named_tuple_of_other_fields_is_refused(kind, values, named):
    if values or set(named) != {"first", "second"}:
        with pytest.raises(TypeError):
            kind(*values, **named)


@BOTH
def test_a_named_tuple_never_changes_and_has_no_dictionary(kind):
    made = kind(1)
    for name in ("first", "other"):
        with pytest.raises(AttributeError):
            setattr(made, name, 2)
    assert not hasattr(made, "__dict__")


@BOTH
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_named_tuple_is_pickled_and_copied_as_what_it_is(kind, protocol):
    made = kind(1)
    for other in (pickle.loads(pickle.dumps(made, protocol)), copy.copy(made), copy.deepcopy(made)):
        assert type(other) is kind
        assert other == made


def test_what_is_generic_takes_a_type():
    assert repr(codec.StructCodec[int]).endswith("StructCodec[int]")
    assert typing.get_origin(codec.StructCodec[int]) is codec.StructCodec
    assert typing.get_args(codec.StructCodec[int]) == (int,)
    assert hints.cast("int", 5) == 5


# ---------------------------------------------------------------- the protocol of codecs
def test_the_codec_that_users_bring_is_the_same_wherever_it_is_named():
    told = run(
        "import shmq.codec, sys, pickle; before = 'typing' in sys.modules, 'Codec' in dir(shmq.codec)\n"
        "from shmq.codec import Codec\n"
        "class Mine:\n"
        "    name = 'mine'\n"
        "    def encode(self, value): ...\n"
        "    def decode(self, data): ...\n"
        "class Said(Codec[int]): pass\n"
        "print(*before, Codec is shmq.codec.Codec is pickle.loads(pickle.dumps(Codec)), Codec.__module__,\n"
        "    isinstance(Mine(), Codec), isinstance(7, Codec), Codec in Said.__mro__, Codec[int])\n"
        "try: shmq.codec.Other\n"
        "except AttributeError as problem: print(problem)"
    )
    assert told == (
        "False True True shmq.codec True False True shmq.codec.Codec[int]\n"
        "module 'shmq.codec' has no attribute 'Other'\n"
    )


def test_who_brings_a_codec_loads_no_protocol(path):
    told = run(
        "import shmq, sys\n"
        "class Mine:\n"
        "    name = 'mine'\n"
        "    def encode(self, value): return value\n"
        "    decode = encode\n"
        f"with shmq.open({str(path)!r}, codec=Mine()) as queue: queue.put(b'x')\n"
        "print('typing' in sys.modules)"
    )
    assert told == "False\n"


@pytest.mark.parametrize("part", ["name", "encode", "decode"])
@pytest.mark.parametrize("there", [True, False])
def test_what_is_no_codec_is_told_as_by_the_protocol(part, there):
    parts = {"name": "mine", "encode": bytes, "decode": bytes}
    whole = type("Mine", (), parts)
    spoiled = type("Mine", (), {**parts, part: None} if there else {name: parts[name] for name in {*parts} - {part}})
    assert codec.check_brought(made := whole()) is made
    assert isinstance(made, codec.Codec)
    assert isinstance(spoiled(), codec.Codec) == ((part, there) == ("name", True))
    for brought in (spoiled(), spoiled, whole, 7):
        with pytest.raises(TypeError, match=r"^codec"):
            codec.check_brought(brought)


@pytest.mark.parametrize(
    "public",
    [
        shmq.open,
        shmq.Options,
        shmq.Options.__init__,
        shmq.Durability,
        shmq.Retention,
        shmq.Queue.put_arrow,
        shmq.Producer.put_arrow,
        shmq.Staged.put_arrow,
    ],
)
def test_who_has_annotations_evaluated_is_told(public):
    assert typing.get_type_hints(public)


def test_who_asks_for_overloads_has_them():
    assert run("import typing, shmq; print(len(typing.get_overloads(shmq.open)))") == "4\n"


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
