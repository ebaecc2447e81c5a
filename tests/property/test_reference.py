"""
Random verbs against tests/reference.py: whatever the order, the queue says what thirty lines of Python say.

The chunks are tiny, so that rolls are frequent. `SHMQ_SEQUENCES=100000 pytest tests/property` is the long run; a
failure prints the sequence, shrunk, and `SHMQ_SEED=...` repeats a run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as hypothesis_seed
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

import shmq
from tests import reference, support
from tests.grains import grained
from tests.reference import Sent
from tests.support import share

SEQUENCES = int(os.environ.get("SHMQ_SEQUENCES", share(150)))
STEPS = int(os.environ.get("SHMQ_STEPS", "30"))
SMALL, LARGE = st.binary(max_size=80), st.integers(1000, 40_000)  # a chunk has 16,384 bytes
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
NAMES = {"auto": ("a", "b", "f"), "explicit": ("x", "y", "z")}
WANTS = {"f": {"types": {0, 1}}, "z": {"key_prefix": b"eu/"}}
"""What those names want; the others want all."""
HEADERS = st.dictionaries(st.text(max_size=5), st.one_of(st.integers(-(2**60), 2**60), st.text(max_size=9)), max_size=3)


@st.composite
def payloads(draw):
    if draw(st.integers(0, 3)) == 0:
        return bytes([draw(st.integers(0, 255))]) * draw(LARGE)
    return draw(SMALL)


@st.composite
def sent(draw):
    payload = draw(payloads())
    if draw(st.booleans()):
        return Sent(payload)
    return Sent(
        payload,
        key=draw(st.none() | st.sampled_from([b"eu/1", b"eu/2", b"us/1"]) | st.binary(min_size=1, max_size=40)),
        type=draw(st.integers(0, 2) | st.integers(0, 65535)),
        time_ns=draw(st.none() | st.integers(-(2**62), 2**62)),
        headers=draw(st.none() | HEADERS),
    )


def fields(message):
    """The keywords of put() for it, none that are defaults: both paths through put are taken."""
    named = {"key": message.key, "time_ns": message.time_ns, "headers": message.headers}
    found = {name: value for name, value in named.items() if value is not None}
    return found | ({"type": message.type} if message.type else {})


def filter_of(name):
    return shmq.Filter(**WANTS[name]) if name in WANTS else None


def check_message(expected, message):
    index, put = expected
    assert message.index == index
    assert message.payload == put.payload
    assert bytes(message.view) == put.payload
    assert message.key == put.key
    assert message.type == put.type
    assert message.headers == (put.headers or {})
    if put.time_ns is not None:
        assert message.time_ns == put.time_ns


class Verbs(RuleBasedStateMachine):
    """Every rule does the same to both, and compares what they say."""

    handed = Bundle("handed")  # (name, its holder, real message) that may be acknowledged, in any order
    slots = Bundle("slots")  # (reference index, real slot)
    with_grains = False

    @initialize(checksum=st.booleans(), keep=st.sampled_from([shmq.Retention.acked(), shmq.Retention.forever()]))
    def make(self, checksum, keep):
        self.home = tempfile.mkdtemp(prefix="shmq-property-", dir=MEMORY)
        self.path = f"{self.home}/q"
        self.chunks = contextlib.ExitStack()
        if self.with_grains:
            self.chunks.enter_context(grained())
        self.queue = shmq.open(self.path, options=shmq.Options(chunk_bytes=16384, checksum=checksum, retention=keep))
        self.model = reference.Queue()
        self.consumers = {}
        self.open_slots = {}
        self.shut = False

    def teardown(self):
        if not hasattr(self, "home"):
            return
        for consumer in self.consumers.values():
            consumer.close()
        self.queue.close()
        self.chunks.close()
        shutil.rmtree(self.home)

    # ---- putting
    def putting(self, put):
        """None when it was refused, as it must be, after a shutdown."""
        if not self.shut:
            return put()
        with pytest.raises(shmq.ShutDown):
            put()
        return None

    @rule(message=sent())
    def put(self, message):
        index = self.putting(lambda: self.queue.put(message.payload, **fields(message)))
        if index is not None:
            assert [index] == list(self.model.put(message))

    @rule(message=sent())
    def put_through_a_producer_of_its_own(self, message):
        with self.queue.producer() as producer:
            index = self.putting(lambda: producer.put(bytearray(message.payload), **fields(message)))
        if index is not None:
            assert [index] == list(self.model.put(message))
        with pytest.raises(shmq.Closed):
            producer.put(b"after close")

    @rule(
        messages=st.lists(sent(), max_size=9), lists=st.sets(st.sampled_from(["keys", "types", "times_ns", "headers"]))
    )
    def put_many(self, messages, lists):
        have = {
            "keys": [m.key for m in messages],
            "types": [m.type for m in messages],
            "times_ns": [m.time_ns or 0 for m in messages],
            "headers": [m.headers for m in messages],
        }
        given = {name: have[name] for name in lists}
        if not messages:
            assert len(self.queue.put_many([], **given)) == 0
            return
        indexes = self.putting(lambda: self.queue.put_many((m.payload for m in messages), **given))
        if indexes is not None:
            put = [
                Sent(
                    m.payload,
                    m.key if "keys" in lists else None,
                    m.type if "types" in lists else 0,
                    (m.time_ns or 0) if "times_ns" in lists else None,
                    m.headers if "headers" in lists else None,
                )
                for m in messages
            ]
            assert indexes == self.model.put(*put)

    @rule(target=slots, room=st.integers(0, 200) | LARGE, message=sent())
    def reserve(self, room, message):
        slot = self.putting(lambda: self.queue.reserve(room, **fields(message)))
        if slot is None:
            return multiple()
        index = self.model.reserve()
        assert slot.index == index
        assert len(slot.buffer) == room
        self.open_slots[index] = slot
        return (slot, message)

    @rule(chosen=consumes(slots), part=st.floats(0, 1), whole=st.booleans())
    def commit(self, chosen, part, whole):
        slot, message = chosen
        if slot.index not in self.open_slots:
            return
        room = len(slot.buffer)
        used = room if whole else int(room * part)
        payload = (message.payload * (room // max(len(message.payload), 1) + 1))[:used].ljust(used, b"\7")
        slot.buffer[:used] = payload
        assert slot.commit(None if whole else used) == slot.index
        self.model.commit(slot.index, message._replace(payload=payload))
        del self.open_slots[slot.index]
        with pytest.raises(shmq.Closed):
            slot.commit()

    @rule(chosen=consumes(slots), how=st.sampled_from(["abort", "raise", "forget"]))
    def give_up(self, chosen, how):
        slot, _ = chosen
        if slot.index not in self.open_slots:
            return
        if how == "raise":
            with contextlib.suppress(ZeroDivisionError), slot:
                raise ZeroDivisionError
        else:
            slot.abort()
        self.model.abort(slot.index)
        del self.open_slots[slot.index]

    @rule(message=sent(), how=st.sampled_from(["put", "put_many", "claimed"]))
    def a_child_does_something_and_is_killed(self, message, how):
        if self.shut:
            return

        def do():
            if how == "put":
                self.queue.put(message.payload, **fields(message))
            elif how == "put_many":
                self.queue.put_many([message.payload] * 3)
            else:
                self.kept = self.queue.reserve(len(message.payload))
            os.kill(os.getpid(), signal.SIGKILL)

        os.waitpid(support.start(do), 0)
        if how == "put":
            self.model.put(message)
        elif how == "put_many":
            self.model.put(*[Sent(message.payload)] * 3)
        else:
            self.model.put(reference.PAD)

    # ---- getting
    def consumer(self, name):
        """The real one and the reference's, opened (made where the queue begins) if they are not."""
        ack = "auto" if name in NAMES["auto"] else "explicit"
        if name not in self.model.consumers:
            self.model.consumers[name] = reference.consumer(self.model, ack, self.queue.first_index, WANTS.get(name))
        if name not in self.consumers:
            self.consumers[name] = self.queue.consumer(name, ack=ack, filter=filter_of(name))
            self.model.consumers[name].reopen()
        return self.consumers[name], self.model.consumers[name]

    names = st.sampled_from([*NAMES["auto"], *NAMES["explicit"]])

    def nothing(self, model, get):
        """What a get must say when there is nothing."""
        drained = self.shut and model.drained()
        with pytest.raises(shmq.ShutDown if drained else shmq.Empty):
            get()

    @rule(target=handed, name=names)
    def get(self, name):
        consumer, model = self.consumer(name)
        expected = next(model.next(), None)
        if expected is None:
            self.nothing(model, lambda: consumer.get(timeout=0))
            return multiple()
        message = consumer.get(timeout=0)
        check_message(expected, message)
        assert message.attempts == model.hand_out(message.index)
        return (name, consumer, message)

    @rule(name=names)
    def take(self, name):
        consumer, model = self.consumer(name)
        expected = next(model.next(), None)
        if expected is None:
            self.nothing(model, lambda: consumer.take(timeout=0))
            return
        assert consumer.take(timeout=0) == expected[1].payload
        model.hand_out(expected[0], finished=True)

    @rule(target=handed, name=names, limit=st.integers(1, 30))
    def get_many(self, name, limit):
        consumer, model = self.consumer(name)
        expected = [one for one, _ in zip(model.next(), range(limit), strict=False)]
        if not expected:
            self.nothing(model, lambda: consumer.get_many(limit, timeout=0))
            return multiple()
        messages = consumer.get_many(limit, timeout=0)
        assert 1 <= len(messages) <= len(expected)  # fewer where a chunk ends
        for one, message in zip(expected, messages, strict=False):
            check_message(one, message)
            assert message.attempts == model.hand_out(message.index)
        return multiple(*((name, consumer, message) for message in messages))

    @rule(name=names, limit=st.integers(1, 30))
    def take_many(self, name, limit):
        consumer, model = self.consumer(name)
        expected = [one for one, _ in zip(model.next(), range(limit), strict=False)]
        if not expected:
            self.nothing(model, lambda: consumer.take_many(limit, timeout=0))
            return
        taken = consumer.take_many(limit, timeout=0)
        assert taken == [message.payload for _, message in expected[: len(taken)]]
        assert taken
        for index, _ in expected[: len(taken)]:
            model.hand_out(index, finished=True)

    @rule(chosen=consumes(handed), again=st.booleans())
    def ack(self, chosen, again):
        name, consumer, message = chosen
        if self.consumers.get(name) is not consumer:  # handed out by a holder that has closed
            with pytest.raises(shmq.Closed) if name in NAMES["explicit"] else contextlib.nullcontext():
                message.ack()
            return
        model = self.model.consumers[name]
        forgotten = name in NAMES["explicit"] and message.index not in model.unacked and message.index not in model.done
        with pytest.raises(shmq.LeaseLost) if forgotten else contextlib.nullcontext():  # by a seek
            message.ack()
        model.ack(message.index)
        if again and not forgotten:
            consumer.ack(message)

    @rule(name=names, where=st.floats(0, 1))
    def seek(self, name, where):
        consumer, model = self.consumer(name)
        index = max(round(where * len(self.model.log)), self.queue.first_index)
        consumer.seek(index)
        model.seek(index)

    @rule(name=names, beyond=st.integers(1, 9))
    def seek_where_nothing_is(self, name, beyond):
        consumer, _ = self.consumer(name)
        with pytest.raises(IndexError):
            consumer.seek(len(self.model.log) + beyond)
        with pytest.raises(IndexError):
            consumer.seek(-beyond)

    @rule(name=names)
    def close_consumer(self, name):
        if name in self.consumers:
            consumer = self.consumers.pop(name)
            consumer.close()
            with pytest.raises(shmq.Closed):
                consumer.get(timeout=0)

    @rule(name=names, latest=st.booleans())
    def drop_consumer(self, name, latest):
        known = name in self.model.consumers
        if name in self.consumers:
            with pytest.raises(shmq.Busy):
                self.queue.drop_consumer(name)
            return
        if not known:
            with pytest.raises(shmq.NotFound):
                self.queue.drop_consumer(name)
            return
        self.queue.drop_consumer(name)
        del self.model.consumers[name]
        if latest:
            ack = "auto" if name in NAMES["auto"] else "explicit"
            self.consumers[name] = self.queue.consumer(name, ack=ack, start="latest", filter=filter_of(name))
            self.model.consumers[name] = reference.consumer(self.model, ack, len(self.model.log), WANTS.get(name))

    @rule(name=names)
    def a_second_holder_is_refused(self, name):
        self.consumer(name)
        ack = "auto" if name in NAMES["auto"] else "explicit"
        with pytest.raises(shmq.Busy):
            self.queue.consumer(name, ack=ack)

    @rule(name=names, kill=st.integers(0, 9), limit=st.integers(1, 9))
    def a_consumer_is_killed(self, name, kill, limit):
        """In a child, after *kill* messages: the head is exactly behind what was handed out, or finished."""
        if name in self.consumers:
            self.consumers.pop(name).close()
        ack = "auto" if name in NAMES["auto"] else "explicit"
        start = self.queue.first_index
        model = self.model.consumers.setdefault(name, reference.consumer(self.model, ack, start, WANTS.get(name)))
        model.reopen()

        def take():
            with contextlib.suppress(shmq.ShmqError):
                consumer = self.queue.consumer(name, ack=ack, filter=filter_of(name))
                self.keep = [consumer.get(timeout=0) for _ in range(kill)]
                for message in self.keep[:limit]:
                    message.ack()
            os.kill(os.getpid(), signal.SIGKILL)

        os.waitpid(support.start(take), 0)
        handed = [index for (index, _), _ in zip(model.next(), range(kill), strict=False)]
        for index in handed:
            model.hand_out(index)
        for index in handed[:limit] if len(handed) == kill else []:
            model.ack(index)

    # ---- looking
    @rule(start=st.integers(-50, 200), length=st.none() | st.integers(-20, 60))
    def read(self, start, length):
        end = len(self.model.log)
        first = start if start >= 0 else max(end + start, 0)
        stop = None if length is None else max(first + length, 0)
        floor = self.queue.first_index
        expected = [one for one in self.model.read(max(first, floor)) if stop is None or one[0] < stop]
        for wants in WANTS.values():
            some = [message.index for message in self.queue.reader(start, stop, filter=shmq.Filter(**wants))]
            assert some == [index for index, message in expected if reference.matches(message, **wants)]
        found = list(self.queue.reader(start, stop))
        assert len(found) == len(expected)
        for one, message in zip(expected, found, strict=True):
            check_message(one, message)

    @rule(index=st.integers(-60, 200))
    def item(self, index):
        end = len(self.model.log)
        at = index if index >= 0 else end + index
        readable = dict(self.model.read(self.queue.first_index))
        if at in readable:
            check_message((at, readable[at]), self.queue[index])
        else:
            behind_a_claim = 0 <= at < end and isinstance(self.model.log[at], Sent)
            with pytest.raises(IndexError) if not behind_a_claim else contextlib.suppress(IndexError):
                check_message((at, self.model.log[at]), self.queue[index])

    @invariant()
    def figures_agree(self):
        if not hasattr(self, "queue"):
            return
        assert self.queue.next_index == len(self.model.log)
        first = self.queue.first_index
        heads = [model.passed for model in self.model.consumers.values()]
        assert first <= min(heads, default=0)  # nobody misses anything
        for name, consumer in self.consumers.items():
            model = self.model.consumers[name]
            assert model.head <= consumer.head <= model.passed
            assert consumer.lag == model.lag
            assert consumer.pending == len(model.unacked)

    @rule()
    def names_and_counts_agree(self):
        list(self.queue.reader())  # whoever passes a dead claim pads it
        if reference.OPEN not in self.model.log:
            gone = self.model.log[: self.queue.first_index]
            assert len(self.queue) == len(self.model) - len(gone) + gone.count(reference.PAD)
        there = self.queue.consumers()
        assert set(there) == set(self.model.consumers)
        for name, model in self.model.consumers.items():
            assert model.head <= there[name].head <= model.passed
            assert there[name].ack == model.ack_mode

    # ---- ending
    @rule(message=sent())
    def a_slot_of_a_second_handle_is_forgotten(self, message):
        other = shmq.open(self.path)
        slot = self.putting(lambda: other.reserve(10))
        if slot is not None:
            index = other.put(message.payload, **fields(message))
            assert (slot.index, index) == (self.model.reserve(), self.model.put(message)[0])
            self.model.abort(slot.index)
        other.close()
        del slot

    @rule(how=st.sampled_from(["consumers first", "queue first"]))
    def reopen(self, how):
        for index, slot in self.open_slots.items():
            slot.abort()
            self.model.abort(index)
        self.open_slots.clear()
        consumers = list(self.consumers.values())
        self.consumers.clear()
        if how == "queue first":
            self.queue.close()
        for consumer in consumers:
            consumer.close()
        self.queue.close()
        self.queue = shmq.open(self.path)
        self.shut = False  # the last participant had left

    @rule(sure=st.integers(0, 5))
    def shut_down(self, sure):
        if sure == 0:
            self.queue.shutdown()
            self.shut = True


def suite(name, sequences, steps, *, with_grains=False):
    """*sequences* of up to *steps* verbs each."""
    case = type(name, (Verbs,), {"with_grains": with_grains}).TestCase
    case.settings = settings(
        max_examples=sequences,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize="SHMQ_SEED" not in os.environ and "SHMQ_SEQUENCES" not in os.environ,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate] if "SHMQ_NO_SHRINK" in os.environ else [Phase.generate, Phase.shrink],
    )
    seed = os.environ.get("SHMQ_SEED")
    return hypothesis_seed(int(seed))(case) if seed else case


TestVerbs = suite("Verbs", SEQUENCES, STEPS)
TestVerbsWithGrains = suite("VerbsWithGrains", SEQUENCES // 2, STEPS, with_grains=True)
