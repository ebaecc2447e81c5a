"""The payload of the drop-in queues: what comes back is what went in, buffers lie beside the pickle, damage is told."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import multiprocessing.reduction
import pickle
import socket
import struct
import threading

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmq import compat, errors
from shmq.compat import packing

OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
)


def payload(obj, shift: int = 0) -> bytes:
    packed = packing.pack(obj)
    return packed if isinstance(packed, bytes) else b"".join(packed.pieces(shift))


def back(obj, **how):
    return packing.unpack(memoryview(payload(obj)), **how)


@given(OBJECTS)
def test_plain_objects_are_plain_pickles(obj):
    assert payload(obj)[0] == 0x80
    assert back(obj) == obj


@pytest.mark.parametrize("size", [0, 4095, 4096, 100_001])
@pytest.mark.parametrize("shift", range(0, 64, 8))
def test_buffers_of_4_kib_lie_beside_the_pickle_and_aligned(size, shift):
    arrays = [numpy.arange(size, dtype="u1"), numpy.arange(size + 1, dtype="u1")]
    packed = packing.pack(arrays)
    data = payload(arrays, shift)
    assert data[0] == (0xB5 if size >= 4095 else 0x80)
    found = packing.unpack(memoryview(data))
    assert [each.tolist() for each in found] == [each.tolist() for each in arrays]
    if size < 4095:
        return
    assert len(data) <= packed.most()
    length = struct.unpack_from("<Q", data, 8)[0]
    assert len(packed.buffers) == data[4] == (2 if size >= 4096 else 1)
    at = 16 + 8 * data[4] + length
    assert bytes(arrays[-data[4]].data) == data[at + (shift - at) % 64 :][: arrays[-data[4]].nbytes]


def test_each_array_is_written_once_and_read_once():
    """The frame refers to the array's own memory, and a view to the payload's."""
    array = numpy.zeros(1 << 20, "u1")
    packed = packing.pack({"a": array})
    assert numpy.shares_memory(numpy.frombuffer(packed.buffers[0][0], "u1"), array)
    data = bytearray(b"".join(packed.pieces()))
    found = packing.unpack(memoryview(data), views=True)["a"]
    assert numpy.shares_memory(found, numpy.frombuffer(data, "u1"))


def test_what_was_writable_is_writable_and_what_was_not_is_not():
    array = numpy.zeros(10_000)
    frozen = numpy.ones(10_000)
    frozen.flags.writeable = False
    a, b = back([array, frozen])
    a += 1
    assert (a.flags.writeable, b.flags.writeable) == (True, False)
    assert not any(each.flags.writeable for each in back([array, frozen], views=True))


def test_an_array_that_is_not_contiguous_comes_back():
    array = numpy.arange(40_000).reshape(200, 200)
    assert (back(array[::2, ::3]) == array[::2, ::3]).all()
    assert (back(array.T) == array.T).all()


def test_pickle_buffers_of_any_shape_come_back():
    assert bytes(back(pickle.PickleBuffer(b"x" * 5000))) == b"x" * 5000


# ---------------------------------------------------------------- the other pickler
def test_what_only_multiprocessing_can_pickle_is_pickled_by_it():
    """A plain pickle of a connection would carry the number of a descriptor that means nothing elsewhere."""
    here, there = multiprocessing.Pipe()
    with here, there, back([there])[0] as found:
        assert found.fileno() != there.fileno()
        here.send("hello")
        assert found.recv() == "hello"
    with socket.socket() as one, back(one) as other:
        assert other.fileno() != one.fileno()


class Taught:
    """A type that somebody registers a reducer for."""


def test_reducers_of_others_are_asked_first():
    assert type(back([Taught()])[0]) is Taught

    def as_text(_):
        return str, ("taught",)

    multiprocessing.reduction.ForkingPickler.register(Taught, as_text)
    try:
        assert back([Taught()]) == ["taught"]
        with contextlib.closing(compat.Queue()) as queue:
            queue.put([Taught()])
            assert queue.get() == ["taught"]
    finally:
        del packing.REDUCERS[Taught]


def test_reducers_of_the_standard_library_are_no_reason():
    assert back(functools.partial(int, "3"))() == 3
    assert not packing._taught()


def test_what_cannot_be_pickled_raises_with_a_note():
    with pytest.raises(TypeError, match=r"cannot pickle '_thread\.lock' object") as raised:
        packing.pack({"cb": [threading.Lock()], "array": numpy.zeros(10_000)})
    assert raised.value.__notes__ == ['msg["cb"][0] cannot be pickled: _thread.lock']


# ---------------------------------------------------------------- damage
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"\x00" + data[1:],
        lambda data: data[:10],
        lambda data: data[:1] + b"\x02" + data[2:],
        lambda data: data[:4] + b"\xff" * 4 + data[8:],
        lambda data: data[:8] + b"\xff" * 8 + data[16:],
        lambda data: data[:16] + b"\xff" * 8 + data[24:],
        lambda data: data[:-1],
    ],
)
def test_a_damaged_frame_is_told(damage):
    with pytest.raises(errors.Corrupt, match="payload"):
        packing.unpack(memoryview(damage(payload(numpy.zeros(10_000)))))
