"""Chronicle's own queues, served: what a Java program appends is read, and what is submitted Java can read."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal

import pytest
from peers import FIXTURES, Spoken, call, cut, refusal, serving, speak
from support import Child

import shmq
from shmq.formats import chronicle
from shmq.net.limits import Limits

BASE = "csp: //host/java"
DAY = 86_400_000


@pytest.fixture
def java(root):
    """A queue of version 5 whose cycles a test chooses, with two messages in one and one in a later one."""
    now = [20_000 * DAY]
    appender = chronicle.Appender(root / "java", roll_cycle="FAST_DAILY", block_bytes=1 << 20, clock=lambda: now[0])
    with appender:
        appender.append_many([chronicle.encode({"a": 1}), b"\0raw"])
        now[0] += 2 * DAY
        appender.append(chronicle.encode("third"))
        yield appender


CYCLE = 20_000 << 32


def test_it_is_read_by_the_verbs_of_the_rfc_and_no_batch_crosses_a_cycle(root, java):
    async def conversation(spoken: Spoken):
        tailer = await spoken.create("createTailer", "java")
        reads = [await spoken.ask("cid: 1234", "hasNext: { batch: 10 }") for _ in range(3)]
        raw = await spoken.create("createTailer", "java", "binary: true")
        reads.append(await spoken.ask(f"cid: {raw['cid']}", "hasNext: { batch: 10 }"))
        reads.append(await spoken.ask("cid: 1234", f"hasNext: {{ index: {CYCLE + 2} }}"))  # the end of the first cycle
        beyond = await spoken.ask("cid: 1234", f"hasNext: {{ index: {tailer['end'] + 1} }}")
        return tailer, reads, beyond, await spoken.ask(BASE, "lastWrittenIndex: { }")

    tailer, reads, beyond, last = speak(root, conversation)
    third = CYCLE + (2 << 32)
    assert (tailer["start"], tailer["end"]) == (CYCLE, third + 1)
    assert reads == [
        {"index": CYCLE, "reply": [{"a": 1}, b"\0raw"]},
        {"index": third, "reply": ["third"]},
        {"index": third + 1, "reply": []},
        {"index": CYCLE, "reply": [chronicle.encode({"a": 1}), b"\0raw"]},
        {"index": third, "reply": ["third"]},
    ]
    assert refusal(beyond)[0] == "IndexOutOfRange"
    assert last == {"reply": third}


def test_submits_are_appended_beside_its_own_program_in_its_own_forms(root):
    chronicle.Appender(root / "java", block_bytes=1 << 20).close()
    texts = ["submit: { a: 1, b: two }", "submit: hello", "submit: !!binary AAEC", "submit: !T { x: -7 }", 'submit: ""']

    async def conversation(spoken: Spoken):
        answered = await spoken.replies(call(f"{BASE}#appender\ntid: 1", *texts))
        synced = await spoken.create("createAppender", "java", "sync: true")
        answered += await spoken.replies(call(f"cid: {synced['cid']}\ntid: 1", "submit: on the disk"))
        return [found["index"] for _, found in answered]

    indexes = speak(root, conversation)
    there = {each.index: bytes(each.payload) for each in chronicle.read(root / "java")}
    assert list(there) == indexes
    assert list(there.values()) == [
        chronicle.encode_fields({"a": 1, "b": "two"}),
        chronicle.encode_text("hello"),
        b"\0\1\2",
        chronicle.encode(chronicle.Typed("T", {"x": -7})),
        chronicle.encode_text(""),
        chronicle.encode_text("on the disk"),
    ]
    assert chronicle.verify(root / "java") == []


def test_a_wait_ends_when_its_own_program_appends(root, java):
    async def conversation(spoken: Spoken):
        end = (await spoken.create("createTailer", "java"))["end"]
        spoken.answered.clear()
        spoken.hear(call("cid: 1234\ntid: 1", f"hasNext: {{ index: {end}, timeout: 20000 }}"))
        java.append(b"\0late")
        return await spoken.replies(b"")

    assert [found["reply"] for _, found in speak(root, conversation)] == [[b"\0late"]]


def test_a_lock_that_another_program_holds_holds_up_no_other_queue(root, orders):
    chronicle.Appender(root / "java", block_bytes=1 << 20).close()

    def hold(say):
        with chronicle.Appender(root / "java", create=False) as appender:
            appender._lock.acquire(5.0, lambda: None)
            say("held")
            signal.pause()

    async def conversation(spoken: Spoken):
        await spoken.create("createAppender", "java")
        with Child(hold) as holder:
            assert holder.hear() == "held"
            spoken.answered.clear()
            spoken.hear(call("cid: 1234\ntid: 1", "submit: a"))
            for each in range(20):
                spoken.hear(call(f"csp: //host/orders#appender\ntid: {each}", "submit: b"))
            while len(cut(bytes(spoken.answered))) < 40:
                await asyncio.sleep(0.001)
            waiting = [meta["tid"] for _, meta in cut(bytes(spoken.answered))[::2]]
            holder.kill()
            await spoken.quiet()
        return waiting, [meta["tid"] for _, meta in cut(bytes(spoken.answered))[::2]]

    waiting, answered = speak(root, conversation)
    assert waiting == list(range(20))
    assert answered == [*range(20), 1]


def test_a_batch_with_a_value_that_does_not_fit_harms_no_other(root):
    chronicle.Appender(root / "java", block_bytes=1 << 20).close()

    async def conversation(spoken: Spoken):
        large = f'submit: "{"x" * (17 << 20)}"'
        return [
            found
            for _, found in await spoken.replies(call(f"{BASE}#appender\ntid: 1", "submit: a", large, "submit: b"))
        ]

    one, two, three = speak(root, conversation, limits=Limits(frame=20 << 20))
    assert refusal(two)[0] == "IllegalArgument"
    assert three["index"] == one["index"] + 1


def test_our_own_client_does_not_get_it(root, java):
    """It is a queue of another program: only the services have it."""
    with serving(root) as service, pytest.raises(shmq.NotFound):
        service.hold("java", ours=True)


@pytest.mark.parametrize("name", ["real-cq-tr2-v4", "roll", "text", "empty"])
def test_the_real_programs_queues_are_read_to_their_end(root, name):
    place = FIXTURES / "chronicle" / "given" / name
    if not place.exists():
        pytest.skip(f"no chronicle fixtures in {FIXTURES} (set SHMQ_FIXTURES)")
    source = next(each.parent for each in (*place.glob("*.cq4*"), *place.rglob("*.cq4*")))
    shutil.copytree(source, root / "java")
    os.chmod(root / "java", 0o700)
    for each in (root / "java").iterdir():
        each.chmod(0o600)
    wanted = list(chronicle.read(root / "java"))

    async def conversation(spoken: Spoken):
        await spoken.create("createTailer", "java", "binary: true")
        found = []
        if name.endswith("v4"):
            assert refusal(await spoken.ask(f"{BASE}#appender", "submit: a"))[0] == "ReadOnly"
        while batch := (answered := await spoken.ask("cid: 1234", "hasNext: { batch: 7 }"))["reply"]:
            found += [(answered["index"] + at, each) for at, each in enumerate(batch)]
        return found

    assert speak(root, conversation) == [(each.index, bytes(each.payload)) for each in wanted]
