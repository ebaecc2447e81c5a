"""Codecs of a user's own: structs that come back as structs, whatever has two functions, and what packages offer."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import multiprocessing
import pickle

import msgspec
import pytest
from support import in_child

import shmq
from shmq.codec import Codec, struct


class Order(msgspec.Struct):
    number: int
    price: float = 0.0


class Later(msgspec.Struct):
    number: int
    price: float = 0.0
    currency: str = "EUR"


@dataclasses.dataclass
class Trade:
    key: str
    volume: int


class Upper:
    name = "upper"

    def encode(self, value, /):
        return value.upper().encode()

    def decode(self, data, /):
        return data.decode().lower()


class Lists:
    name = "lists"

    def encode(self, value, /):
        return list(value)

    def decode(self, data, /):
        raise ValueError("never")


def verbs(queue, first, second):
    """What comes back through each verb, of two values."""
    indexes = [queue.put(first), queue.put(first, key=b"k"), *queue.put_many([first, second])]
    assert queue[indexes[0]].payload == first
    assert [message.payload for message in queue.reader()] == [first, first, first, second]
    with queue.consumer("auto") as auto, queue.consumer("group", group=True, ack="explicit") as group:
        assert auto.take(timeout=0) == first
        assert auto.get(timeout=0).payload == first
        assert auto.take_many(9, timeout=0) == [first, second]
        assert [message.payload for message in group.get_many(9, timeout=0)] == [first, first, first, second]


# ---------------------------------------------------------------- there and back
@pytest.mark.parametrize(
    ("kind", "first", "second"), [(Order, Order(1, 2.5), Order(2)), (Trade, Trade("a", 1), Trade("b", 2))]
)
def test_a_struct_comes_back_as_what_it_was(path, kind, first, second):
    with shmq.open(path, codec=struct(kind)) as queue:
        assert queue.options.codec == f"struct:{kind.__name__}"
        verbs(queue, first, second)
    with shmq.open(path, options=shmq.Options(codec=struct(kind))) as queue:
        assert next(iter(queue.reader())).payload == first


def test_what_is_no_such_struct_is_not_put(path):
    with shmq.open(path, codec=struct(Order)) as queue:
        for wrong in (Trade("a", 1), {"number": 1}, None, b"bytes"):
            with pytest.raises(TypeError, match="codec 'struct:Order' takes Order, not"):
                queue.put(wrong)
            with pytest.raises(TypeError, match="codec 'struct:Order' takes Order, not"):
                queue.put_many([Order(1), wrong])
        assert len(queue) == 0


@pytest.mark.parametrize(
    ("wrong", "field"), [(("7", 2.5), r"\$\.number"), ((7, "much"), r"\$\.price"), ((7, None), r"\$\.price")]
)
def test_a_field_of_another_type_is_told_to_whoever_puts_it(path, wrong, field):
    """It was found by the reader only: msgspec looks at no types when it encodes."""
    with shmq.open(path, codec=struct(Order)) as queue:
        with pytest.raises(TypeError, match=f"codec 'struct:Order' cannot take this Order: .*{field}"):
            queue.put(Order(*wrong))
        with pytest.raises(TypeError, match=field):
            queue.put_many([Order(1, 2.5), Order(*wrong)])
        queue.put(Order(7, 2))  # an int is a float that is whole
        assert [message.payload for message in queue.reader()] == [Order(7, 2.0)]


def test_a_field_may_be_added_with_a_default(path):
    Later.__name__ = "Order"
    with shmq.open(path, codec=struct(Order)) as queue:
        queue.put(Order(1, 2.5))
    with shmq.open(path, codec=struct(Later)) as queue:
        assert queue[0].payload == Later(1, 2.5, "EUR")


def test_what_does_not_fit_says_which_message_and_which_field_and_stays(path):
    class Other(msgspec.Struct):
        number: str

    Other.__name__ = "Order"
    with shmq.open(path, codec=struct(Other)) as queue:
        queue.put(Other("seven"))
    with shmq.open(path, codec=struct(Order)) as queue, queue.consumer("c", ack="explicit") as consumer:
        message = consumer.get(timeout=0)
        with pytest.raises(shmq.Corrupt, match=r"cannot decode message 0 in .*number"):
            message.payload  # noqa: B018
        assert consumer.pending == 1


def test_any_two_functions_are_a_codec(path):
    assert isinstance(Upper(), Codec)
    with shmq.open(path, codec=Upper()) as queue:
        verbs(queue, "first", "second")
        assert bytes(queue[0].view) == b"FIRST"


def test_what_does_not_encode_to_bytes_is_not_put(path):
    with shmq.open(path, codec=Lists()) as queue:
        for put in (lambda: queue.put("x"), lambda: queue.put_many(["x"])):
            with pytest.raises(TypeError, match="codec 'lists' has encoded it as list, and not as bytes"):
                put()
        assert len(queue) == 0


# ---------------------------------------------------------------- who brings it
def test_a_name_in_a_file_loads_no_code(path, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: pytest.fail("it looked for code"))
    shmq.open(path, codec=struct(Order)).close()
    with pytest.raises(shmq.BadFormat, match=r"codec 'struct:Order', which is not shmq's own; .*struct\(Order\)"):
        shmq.open(path)
    with pytest.raises(shmq.Mismatch, match="it was made with codec='struct:Order'"):
        shmq.open(path, codec=Upper())
    with pytest.raises(shmq.Mismatch, match="it was made with codec='struct:Order'"):
        shmq.open(path, codec="json")


def test_who_moves_payloads_and_looks_at_none_needs_no_codec(path):
    with shmq.open(path, codec=struct(Order)) as queue:
        queue.put(Order(1))
    with shmq.open(path, trusted=True) as queue:
        assert msgspec.msgpack.decode(queue[0].payload) == {"number": 1, "price": 0.0}
        with pytest.raises(shmq.BadFormat, match="cannot put"):
            queue.put(b"x")
        assert len(queue) == 1
        queue.set_bounds(max_messages=10)
    with shmq.open(path, codec=struct(Order)) as queue:
        assert (queue.options.codec, queue.options.max_messages) == ("struct:Order", 10)
    assert shmq.verify(path).messages == 1


def test_a_queue_takes_its_codec_to_another_process(path):
    with shmq.open(path, codec=struct(Order)) as queue:
        queue.put(Order(7))
        with pickle.loads(pickle.dumps(queue)) as again:  # our own
            assert again[0].payload == Order(7)
        assert in_child(lambda: queue[0].payload == Order(7))
        process = multiprocessing.get_context("spawn").Process(target=put_eight, args=(queue,))
        process.start()
        process.join()
        assert queue[1].payload == Order(8)


def put_eight(queue):
    queue.put(Order(8))


def test_dead_letters_are_of_the_same_codec(path):
    with (
        shmq.open(path, codec=struct(Order)) as queue,
        queue.consumer("c", group=True, ack="explicit", max_attempts=1) as consumer,
    ):
        queue.put(Order(7))
        consumer.get(timeout=0).reject("no")
    with shmq.open(f"{path}.c.dead", codec=struct(Order)) as letters:
        assert letters[0].payload == Order(7)


# ---------------------------------------------------------------- what is none
class Entry:
    def __init__(self, found):
        self.found = found
        self.value = "package:codec"

    def load(self):
        return self.found


def test_a_package_offers_one_by_name(path, monkeypatch):
    offered = {"upper": [Entry(Upper)], "other": [Entry(Upper())], "seven": [Entry(7)]}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group, name: offered.get(name, []))
    with shmq.open(path, codec="upper") as queue:
        verbs(queue, "first", "second")
    with shmq.open(path, codec="upper") as queue:
        assert queue[0].payload == "first"
    with pytest.raises(ValueError, match="package:codec offers it, and calls itself 'upper'"):
        shmq.open(path, codec="other")
    with pytest.raises(ValueError, match=r"codec='none': one of bytes, text, .*; none offers that"):
        shmq.open(path, codec="none")
    with pytest.raises(TypeError, match=r"or a shmq.codec.Codec is wanted, not int"):
        shmq.open(path, codec="seven")


@pytest.mark.parametrize("wrong", [7, b"json", None, object(), Order, Upper])
def test_what_is_no_codec_is_refused_before_anything_is_made(path, wrong):
    with pytest.raises(TypeError, match="codec="):
        shmq.open(path, codec=wrong)
    with pytest.raises(shmq.NotFound):
        shmq.open(path, create=False)


@pytest.mark.parametrize("name", ["", "json", "a/b", "a b", "a" * 65, "\0", "ü"])
def test_a_codec_may_not_be_called_anything(path, name):
    codec = Upper()
    codec.name = name
    with pytest.raises(ValueError, match=r"codec\.name="):
        shmq.open(path, codec=codec)


@pytest.mark.parametrize("wrong", [7, None, Order(1), "Order", complex])
def test_what_msgspec_cannot_read_is_no_struct(wrong):
    with pytest.raises(TypeError, match="kind="):
        struct(wrong)


# ---------------------------------------------------------------- a batch with something that cannot be read
class Even:
    """A codec that can put everything, and read even numbers alone."""

    name = "even"

    def encode(self, value, /):
        return str(value).encode()

    def decode(self, data, /):
        number = int(data)
        if number == 13:
            raise LookupError("thirteen")  # what no codec of ours raises
        if number % 2:
            raise ValueError("odd")
        return number


def batch_by_batch(consumer, limit):
    """What its calls come to, one after the other, until there is nothing."""
    found = []
    while True:
        try:
            found.append(consumer.take_many(limit, timeout=0))
        except shmq.Empty:
            return found
        except (shmq.Corrupt, LookupError) as problem:
            found.append(f"{type(problem).__name__} {getattr(problem, 'index', '')}")


@pytest.mark.parametrize("long", [False, True], ids=["built-in", "by way of Python"])
@pytest.mark.parametrize("group", [False, True])
def test_found_all_of_a_batch_was_lost_with_one_message_that_cannot_be_read(path, group, long):
    """It is finished when it is handed out, and whoever asked had an exception: of the others there was no trace."""
    with shmq.open(path, codec=Even()) as queue, queue.consumer("c", group=group) as consumer:
        if long:
            consumer._code_with(consumer._decode)
            consumer._take_many_built_in, consumer.take_many = consumer.take_many, consumer._take_many
        queue.put_many([2, 4, 5, 6, 7, 8])
        queue.put_many([1])
        queue.put_many([1, 3, 5])
        queue.put_many([10, 13, 14])
        found = batch_by_batch(consumer, 6)
        numbers = [number for each in found if isinstance(each, list) for number in each]
        assert numbers == [2, 4, 6, 8, 10, 14]
        told = [each for each in found if isinstance(each, str)]
        assert len(told) == 7
        assert sum(each.startswith("LookupError") for each in told) == 1
        assert found[0] == [2, 4, 6, 8]
        assert isinstance(found[1], str), "the next call tells of what could not be read"


@pytest.mark.parametrize("verb", ["take", "get", "take_many", "get_many", "next"])
@pytest.mark.parametrize("group", [False, True])
def test_what_could_not_be_read_is_told_by_whichever_call_is_the_next(path, group, verb):
    with shmq.open(path, codec=Even()) as queue, queue.consumer("c", group=group) as consumer:
        queue.put_many([2, 3, 4])
        queue.put_many([6, 8])
        assert consumer.take_many(3, timeout=0) == [2, 4]
        calls = {
            "take": lambda: consumer.take(timeout=0),
            "get": lambda: consumer.get(timeout=0),
            "take_many": lambda: consumer.take_many(9, timeout=0),
            "get_many": lambda: consumer.get_many(9, timeout=0),
            "next": lambda: next(consumer),
        }
        with pytest.raises(shmq.Corrupt, match="message 1 "):
            calls[verb]()
        assert consumer.take_many(9, timeout=0) == [6, 8]
        queue.put(10)
        assert consumer.take(timeout=0) == 10, "the built-ins go on"


@pytest.mark.parametrize("group", [False, True])
def test_of_a_batch_that_cannot_be_read_at_all_each_is_told(path, group):
    with shmq.open(path, codec=Even()) as queue, queue.consumer("c", group=group) as consumer:
        queue.put_many([0])
        assert consumer.take(timeout=0) == 0  # the built-ins have taken their seat
        queue.put_many([1, 3, 5, 8])
        queue.put_many([7, 9])
        found = batch_by_batch(consumer, 3)
        assert [each for each in found if isinstance(each, list)] == [[8]]
        assert sum(isinstance(each, str) for each in found) == 5
