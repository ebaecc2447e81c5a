"""The services of Chronicle's RFC, point by point of docs/decisions/0073, without a socket."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peers import META, MORE, Spoken, call, cut, frame, given_frames, refusal, serving, speak
from support import chunk_files, flip, records

import shmq
from shmq.formats import chronicle
from shmq.net import values
from shmq.net.limits import Limits
from shmq.net.tokens import Right, Rights

BASE = "csp: //host/orders"


# ---------------------------------------------------------------- the frames of the real library
def test_every_given_frame_is_answered_as_it_is_asked(root, given_queue):
    """
    The calls do what they say, in either wire; what is no call is refused, and no frame is left without an answer.
    """

    async def conversation(spoken: Spoken):
        found = {}
        await spoken.create("createTailer", "path/queue-name")  # 1234
        for each in given_frames():
            key = each["name"], each["wire"]
            spoken.answered.clear()
            spoken.hear(bytes.fromhex(each["hex"]))
            await spoken.quiet()
            found[key] = cut(bytes(spoken.answered)), bytes(spoken.answered)
        return found

    found = speak(root, conversation)
    for (name, wire), (frames, raw) in found.items():
        assert all(body["tid"] in {0, *range(123456789, 123456799)} for _, body in frames[::2]), name
        assert {document[0] >= 0x80 for document in bodies(raw)} == {wire == "BINARY"}
        answered = frames[1][1]
        if name.startswith("createAppender") and "reply" not in name:
            assert answered == {
                "reply": chronicle.Typed("queue-appender", {"csp": "//server/path/queue-name#appender", "cid": 1235})
            }
        elif name == "heartbeat":
            assert [frames[0][1], answered] == [{"tid": 0}, {"heartbeatReply": 123456789}]
        else:
            assert "exception" in answered, name


def bodies(data: bytes):
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little") & META - 1
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


@pytest.mark.parametrize("wire", ["TEXT", "BINARY"])
def test_the_given_conversation_runs_as_it_is_printed(root, given_queue, wire):
    """An appender is 1234 and a tailer 1235, as in the RFC; what was submitted is read, in this wire and the other."""
    frames = {each["name"]: bytes.fromhex(each["hex"]) for each in given_frames() if each["wire"] == wire}

    async def conversation(spoken: Spoken):
        await spoken.replies(frames["createAppender"])
        indexes = [(await spoken.replies(frames[each]))[0] for each in ("submit-map", "submit-bytes", "submit-text")]
        tailer = await spoken.create("createTailer", "path/queue-name")
        beyond = await spoken.replies(frames["hasNext"])
        return indexes, tailer, beyond, await spoken.ask("cid: 1235", "hasNext: { batch: 4 }")

    indexes, tailer, beyond, read = speak(root, conversation)
    assert indexes == [(123456790, {"index": 0}), (123456791, {"index": 1}), (123456792, {"index": 2})]
    assert tailer == {"csp": "//host/path/queue-name#tailer", "cid": 1235, "start": 0, "end": 3}
    assert refusal(beyond[0][1])[0] == "IndexOutOfRange"
    assert read == {"index": 0, "reply": [{"field1": "one", "field2": "two"}, b"\0\1\2\xff\n", "hello world"]}


def test_replies_have_the_bytes_that_the_real_library_gives_them(root, given_queue):
    """But for blanks at the end, which its text has."""
    frames = {(each["name"], each["wire"]): bytes.fromhex(each["hex"]) for each in given_frames()}

    async def conversation(spoken: Spoken):
        found = {}
        for name, answer in (("createAppender", "createAppender-reply"), ("heartbeat", None)):
            spoken.answered.clear()
            spoken.hear(frames[name, "BINARY"])
            await spoken.quiet()
            found[answer] = bytes(spoken.answered)
        return found

    assert speak(root, conversation)["createAppender-reply"] == frames["createAppender-reply", "BINARY"]


# ---------------------------------------------------------------- what goes in comes out
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([1 << 32, 1 << 40, -(1 << 40)])
SCALARS = st.none() | st.booleans() | NUMBERS | st.floats() | st.text(max_size=20) | st.binary(max_size=20)
NAMES = st.text("abcdefgh", min_size=1, max_size=5)


def larger(inner):
    return st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)


VALUES = st.recursive(SCALARS, larger, max_leaves=8)


@given(VALUES)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_stored_comes_back_as_it_went_in(value):
    payload, headers = values.stored(value)
    assert repr(values.value_of(payload, (headers or {}).get("w"))) == repr(value)


@pytest.mark.parametrize(
    ("said", "payload", "header"),
    [
        ("!!binary AAEC/wo=", b"\0\1\2\xff\n", None),
        ("Grüße 😀".encode().decode(), "Grüße 😀".encode(), "t"),
        ("{ field1: one, field2: two }", chronicle.encode({"field1": "one", "field2": "two"}), "b"),
        ("-7", chronicle.encode(-7), "b"),
        ("true", b"\xb1", "b"),
        ('!!null ""', b"\xbb", "b"),
        ("[ 1, two ]", chronicle.encode([1, "two"]), "b"),
        ("!my.Type { a: 1 }", chronicle.encode(chronicle.Typed("my.Type", {"a": 1})), "b"),
        ("1099511627776", b"[\n  1099511627776\n]\n", "x"),
        ("{ a: { } }", b"a: { }\n", "x"),
    ],
)
def test_values_lie_in_a_queue_as_the_page_says(root, orders, said, payload, header):
    """And come back equal."""

    async def conversation(spoken: Spoken):
        await spoken.ask(f"{BASE}#appender", f"submit: {said}")
        return await spoken.ask(f"{BASE}#tailer", "hasNext: { index: 0 }")

    read = speak(root, conversation)
    assert (orders[0].payload, orders[0].headers.get("w")) == (payload, header)
    assert read["reply"] == [chronicle.parse(f"submit: {said}")["submit"]]


def test_what_a_local_program_puts_is_bytes(root, orders):
    orders.put(b"\xe5hello")
    orders.put(b"plain")

    async def conversation(spoken: Spoken):
        return await spoken.ask(f"{BASE}#tailer", "hasNext: { batch: 5 }")

    assert speak(root, conversation)["reply"] == [b"\xe5hello", b"plain"]


def test_a_queue_with_a_codec_has_its_values(root):
    with shmq.open(root / "facts", codec="json") as queue:
        queue.put({"a": [1, None]})

        async def conversation(spoken: Spoken):
            await spoken.ask("csp: //host/facts#appender", "submit: { b: two }")
            refused = await spoken.ask("csp: //host/facts#appender", "submit: !!binary AAEC")
            return refused, await spoken.ask("csp: //host/facts#tailer", "hasNext: { batch: 5 }")

        refused, read = speak(root, conversation)
        assert refusal(refused)[0] == "IllegalArgument"
        assert read["reply"] == [{"a": [1, None]}, {"b": "two"}]
        assert queue[1].payload == {"b": "two"}


# ---------------------------------------------------------------- routing, and the points of the page
def test_every_tailer_has_a_number_of_its_own_and_equal_services_have_equal_ones(root, orders):
    async def conversation(spoken: Spoken):
        tailers = [(await spoken.create("createTailer", "orders"))["cid"] for _ in range(3)]
        appenders = [(await spoken.create("createAppender", "orders"))["cid"] for _ in range(3)]
        return tailers, appenders

    tailers, appenders = speak(root, conversation)
    assert len(set(tailers)) == 3
    assert len(set(appenders)) == 1


def test_tailers_stand_where_each_has_read_to(root, orders):
    orders.put_many([b"a", b"b", b"c"])

    async def conversation(spoken: Spoken):
        one, two = [(await spoken.create("createTailer", "orders"))["cid"] for _ in range(2)]
        asked = [one, two, one, one, two]
        return [(await spoken.ask(f"cid: {cid}", "hasNext: { }")) for cid in asked]

    assert speak(root, conversation) == [
        {"index": 0, "reply": [b"a"]},
        {"index": 0, "reply": [b"a"]},
        {"index": 1, "reply": [b"b"]},
        {"index": 2, "reply": [b"c"]},
        {"index": 1, "reply": [b"b"]},
    ]


def test_the_end_is_answered_at_once_and_beyond_it_is_an_exception(root, orders):
    orders.put_many([b"a", b"b"])

    async def conversation(spoken: Spoken):
        tailer = await spoken.create("createTailer", "orders")
        ask = [
            await spoken.ask("cid: 1234", f"hasNext: {{ index: {index}, batch: 10 }}")
            for index in (tailer["end"], tailer["end"] + 1, tailer["start"] - 1, 1)
        ]
        orders.put(b"c")
        return tailer, ask, await spoken.ask("cid: 1234", "hasNext: { index: 2 }")

    tailer, (at_end, beyond, before, inside), later = speak(root, conversation)
    assert (tailer["start"], tailer["end"]) == (0, 2)
    assert at_end == {"index": 2, "reply": []}
    assert refusal(beyond) == ("IndexOutOfRange", "queue 'orders': the index is beyond the end")
    assert before == {"index": 0, "reply": [b"a", b"b"]}
    assert inside == {"index": 1, "reply": [b"b"]}
    assert later == {"index": 2, "reply": [b"c"]}


def test_an_empty_queue_begins_where_it_ends(root, orders):
    async def conversation(spoken: Spoken):
        return await spoken.create("createTailer", "orders"), await spoken.ask("cid: 1234", "hasNext: { }")

    tailer, read = speak(root, conversation)
    assert tailer["start"] == tailer["end"] == read["index"]
    assert read["reply"] == []


def test_a_batch_ends_before_a_missing_index_and_the_next_begins_behind_it(root, orders):
    """So that the k-th message of a batch has the first one's index + k."""
    orders.put_many([b"a", b"b"])
    with contextlib.suppress(KeyError), orders.reserve(10):
        raise KeyError
    hole = orders.next_index - 1
    orders.put_many([b"c", b"d"])
    assert hole == 2

    async def conversation(spoken: Spoken):
        await spoken.create("createTailer", "orders")
        return [
            await spoken.ask("cid: 1234", said)
            for said in ("hasNext: { batch: 9 }",) * 3
            + (f"hasNext: {{ index: {hole}, batch: 1 }}", "hasNext: { batch: 9 }")
        ]

    assert speak(root, conversation) == [
        {"index": 0, "reply": [b"a", b"b"]},
        {"index": 3, "reply": [b"c", b"d"]},
        {"index": 5, "reply": []},
        {"index": 3, "reply": [b"c"]},
        {"index": 4, "reply": [b"d"]},
    ]


def test_batches_are_bounded_in_messages_and_bytes_but_have_one(root, orders):
    orders.put_many([bytes(40)] * 10)

    async def conversation(spoken: Spoken):
        await spoken.create("createTailer", "orders")
        return [
            len((await spoken.ask("cid: 1234", f"hasNext: {{ index: 0, batch: {batch} }}"))["reply"])
            for batch in (-1, 0, 1, 3, 1000)
        ]

    assert speak(root, conversation, limits=Limits(batch=5)) == [1, 1, 1, 3, 5]
    assert speak(root, conversation, limits=Limits(batch_bytes=100)) == [1, 1, 1, 2, 2]
    assert speak(root, conversation, limits=Limits(batch_bytes=1)) == [1, 1, 1, 1, 1]


def test_retired_messages_are_passed_over(root):
    with shmq.open(root / "orders", chunk_bytes=1 << 16) as queue, queue.consumer("gone") as consumer:
        for _ in range(8):
            queue.put_many([bytes(1000)] * 30)
            consumer.take_many(30)
        first = queue.first_index
        assert first > 0

        async def conversation(spoken: Spoken):
            tailer = await spoken.create("createTailer", "orders")
            return tailer["start"], (await spoken.ask("cid: 1234", "hasNext: { index: 0 }"))["index"]

        assert speak(root, conversation) == (first, first)


def test_several_calls_behind_one_meta_data_have_its_tid_and_all_but_the_last_the_bit(root, orders):
    async def conversation(spoken: Spoken):
        spoken.hear(call(f"{BASE}#appender\ntid: 5", *(f"submit: m{each}" for each in range(4))))
        await spoken.quiet()
        return cut(bytes(spoken.answered))

    found = speak(root, conversation)
    assert [body for _, body in found[::2]] == [{"tid": 5}] * 4
    assert found[1::2] == [(MORE * (each < 3), {"index": each}) for each in range(4)]


def test_a_submit_without_a_tid_is_one_way_and_other_calls_are_refused(root, orders):
    async def conversation(spoken: Spoken):
        silent = await spoken.replies(call(f"{BASE}#appender", "submit: a") + call("cid: 99", "submit: lost"))
        return silent, await spoken.replies(call(f"{BASE}#Queue", "createTailer: { }"))

    silent, refused = speak(root, conversation)
    assert silent == []
    assert [each.payload for each in orders.reader()] == [b"a"]
    ((tid, answered),) = refused
    assert (tid, refusal(answered)[0]) == (-1, "IllegalArgument")


@pytest.mark.parametrize("tid", ["[ 1 ]", "{ a: 1 }", '!!null ""', "1.5", "!!binary AAAA", "true"])
def test_a_tid_that_no_reply_can_have_is_refused_before_anything_is_put(root, orders, tid):
    async def conversation(spoken):
        return await spoken.replies(call(f"{BASE}#appender\ntid: {tid}", "submit: lost"))

    ((told, answered),) = speak(root, conversation)
    assert told == -1
    assert refusal(answered)[1] == "tid is a whole number, or a text"
    assert orders.next_index == 0


_LAST = 2**63 - 1


@pytest.mark.parametrize(
    ("tid", "told"),
    [
        ("1234567890123456789012345678901234567890", None),
        (f"{_LAST + 1}", None),
        (f"-{_LAST + 2}", None),
        ("9007199254740993.0", None),
        ("1E30", None),
        (f"{_LAST}", _LAST),
        (f"-{_LAST + 1}", -_LAST - 1),
        ("9007199254740991.0", 2**53 - 1),
        ("'1234567890123456789012345678901234567890'", "1234567890123456789012345678901234567890"),
    ],
)
def test_found_a_tid_of_many_digits_was_answered_rounded(root, orders, tid, told):
    """So nobody's reply came: it comes with the tid that was sent, or what was sent is refused, and nothing is put."""

    async def conversation(spoken):
        return await spoken.replies(call(f"{BASE}#appender\ntid: {tid}", "submit: one"))

    ((found, answered),) = speak(root, conversation)
    assert found == (-1 if told is None else told)
    if told is None:
        said = "tid is a whole number, or a text; of one with so many digits no reply could tell all"
        assert refusal(answered)[1] == said
    assert orders.next_index == (told is not None)


@pytest.mark.parametrize("tid", [2.0**40, 2.0**62, -(2.0**63)])
def test_a_long_tid_that_java_writes_as_a_float_is_that_number(root, orders, tid):
    """In its binary wire, where it does so when nothing is lost."""

    async def conversation(spoken):
        meta = chronicle.encode({chronicle.Event("csp"): "//host/orders#appender", chronicle.Event("tid"): tid})
        data = chronicle.encode({chronicle.Event("submit"): "one"})
        return await spoken.replies(frame(meta, META) + frame(data))

    assert [found for found, _ in speak(root, conversation)] == [int(tid)]


def test_cid_and_csp_must_agree(root, orders):
    shmq.open(root / "others").close()

    async def conversation(spoken: Spoken):
        await spoken.create("createAppender", "orders")
        return [
            await spoken.ask(meta, "submit: a")
            for meta in (
                f"{BASE}#appender\ncid: 1234",
                "csp: //host/others#appender\ncid: 1234",
                f"{BASE}#tailer\ncid: 1234",
                "cid: 77",
                f"{BASE}#Queue",
                "cid: one",
                "other: 3",
                "csp: //host/orders#map",
            )
        ]

    good, *bad = speak(root, conversation)
    assert good == {"index": 0}
    assert {refusal(each)[0] for each in bad} == {"IllegalArgument"}
    assert "unknown cid 77" in refusal(bad[2])[1]
    assert len(orders) == 1


@pytest.mark.parametrize(
    "csp",
    [
        "//server/orders#Queue",
        "csp://server/orders#QUEUE",
        "//server/orders",
        "//server/orders?view=Queue",
        "/orders?View=queue",
        "orders",
        "//orders?view=QUEUE",
        "///orders#queue",
        "//server/ord%65rs#Queue",
    ],
)
def test_a_queue_is_found_by_every_way_to_name_it(root, orders, csp):
    async def conversation(spoken: Spoken):
        meta = f"csp: {csp}\ntid: 1" if "%" not in csp else f'csp: "{csp}"\ntid: 1'
        return await spoken.replies(call(meta, "createTailer: { }"))

    ((_, answered),) = speak(root, conversation)
    assert answered["reply"].value["end"] == 0


def test_documents_as_the_rfc_prints_them_are_understood(root, orders):
    """With the lines that stand for the four bytes, and a csp as the first line."""

    async def conversation(spoken: Spoken):
        meta = "--- !!meta-data\ncsp://server/orders#Queue\ntid: 123456789\n...\n"
        return await spoken.replies(frame(meta, META) + frame("--- !!data\ncreateAppender: { }\n...\n"))

    ((tid, answered),) = speak(root, conversation)
    assert (tid, answered["reply"].type) == (123456789, "queue-appender")


def test_the_last_written_index_is_the_appenders_or_the_queues(root, orders):
    async def conversation(spoken: Spoken):
        await spoken.create("createAppender", "orders")
        both = ("cid: 1234", BASE)
        before = [await spoken.ask(meta, "lastWrittenIndex: { }") for meta in both]
        await spoken.ask("cid: 1234", "submit: a")
        orders.put(b"b")
        return [*before, *[await spoken.ask(meta, "lastWrittenIndex: { }") for meta in both]]

    assert [each["reply"] for each in speak(root, conversation)] == [-1, -1, 0, 1]


def test_a_queue_is_made_only_where_that_is_allowed(root):
    async def conversation(spoken: Spoken):
        return [
            await spoken.ask("csp: //host/shop/new#Queue", f"{each}: {{ }}")
            for each in ("createAppender", "createTailer")
        ]

    assert [refusal(each) for each in speak(root, conversation)] == [("NotFound", "there is no queue 'shop/new'")] * 2
    assert list(root.iterdir()) == []
    made = speak(root, conversation, create=True)
    assert [each["reply"].type for each in made] == ["queue-appender", "queue-tailer"]
    assert (root / "shop").stat().st_mode & 0o777 == 0o700
    with shmq.open(root / "shop" / "new", create=False) as queue:
        assert len(queue) == 0


def test_no_queue_is_made_within_a_queue(root, orders):
    chronicle.Appender(root / "java", block_bytes=1 << 20).close()

    async def conversation(spoken: Spoken):
        return [
            await spoken.ask(f"csp: //host/{each}#Queue", "createAppender: { }")
            for each in ("orders/new", "orders/chunks/new", "java/new", ".serve/new")
        ]

    before = sorted(root.rglob("*"))
    assert {refusal(each)[0] for each in speak(root, conversation, create=True)} == {"NotFound"}
    assert sorted(root.rglob("*")) == before


def test_rights_are_asked_for_each_call_and_who_has_none_finds_no_queue(root, orders):
    orders.put(b"a")
    shmq.open(root / "others").close()
    reads = Rights(
        [Right("orders", frozenset({"read"}), float("inf"), 1), Right("gone", frozenset({"read", "append"}), 0, 2)]
    )

    async def conversation(spoken: Spoken):
        read = await spoken.ask(f"{BASE}#tailer", "hasNext: { }")
        return read, [
            await spoken.ask(meta, said)
            for meta, said in (
                (f"{BASE}#appender", "submit: b"),
                (BASE, "createAppender: { }"),
                ("csp: //host/others", "createTailer: { }"),
                ("csp: //host/others#tailer", "hasNext: { }"),
                ("csp: //host/others", "lastWrittenIndex: { }"),
                ("csp: //host/gone", "createAppender: { }"),
            )
        ]

    read, refused = speak(root, conversation, rights=reads, create=True)
    assert read["reply"] == [b"a"]
    assert {refusal(each)[0] for each in refused} == {"NotFound"}
    assert len(orders) == 1
    assert not (root / "gone").exists()


def test_a_right_that_ends_ends_what_is_open(root, orders):
    both = frozenset({"append", "read"})
    rights = Rights([Right("ord*", both, float("inf"), 1)])

    async def conversation(spoken: Spoken):
        await spoken.create("createAppender", "orders")
        await spoken.create("createTailer", "orders")
        first = [await spoken.ask("cid: 1234", "submit: a"), await spoken.ask("cid: 1235", "hasNext: { }")]
        rights.__init__([Right("ord*", both, 0, 1)])
        return first, [await spoken.ask("cid: 1234", "submit: b"), await spoken.ask("cid: 1235", "hasNext: { }")]

    first, second = speak(root, conversation, rights=rights)
    assert first == [{"index": 0}, {"index": 0, "reply": ["a"]}]
    assert [refusal(each)[0] for each in second] == ["NotFound", "NotFound"]


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize(
    "said",
    [
        "submit",
        "{ a: 1 }",
        "a: 1\nb: 2",
        "submit: {",
        "hasNext: [ 1, 2 ]",
        "hasNext: { index: one }",
        "hasNext: { index: 99999999999999999999 }",
        "hasNext: { batch: 1.5 }",
        "delete: { }",
        "submit: " + "[" * 200 + "]" * 200,
        "submit: [ " + "1, " * 20_000 + "]",
        b"\xb9\x06submit\x82\xff\xff\x00\x00",
        b"\xff\xff\xff",
        b"\xb9\x07hasNext\x82\x05\x00\x00\x00\xb1\xb1\xb1\xb1\xb1",
        b"\xb9\x06submit\x82\x20\x4e\x00\x00" + b"\xb1" * 20_000,
        b"\xb9\x06submit\x82\x27\x4e\x00\x00\x8f\xbd\x82\x20\x4e\x00\x00" + b"\xb1" * 20_000,
    ],
)
def test_a_bad_document_is_an_exception_and_the_next_one_is_answered(root, orders, said):
    async def conversation(spoken: Spoken):
        await spoken.create("createTailer", "orders")
        bad = await spoken.replies(frame("cid: 1234\ntid: 8", META) + frame(said))
        return bad, await spoken.ask("cid: 1234", "hasNext: { }")

    ((tid, answered),), good = speak(root, conversation)
    assert (tid, refusal(answered)[0]) == (8, "IllegalArgument")
    assert good["reply"] == []
    assert len(orders) == 0


MANY = 20_000


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("submit: [ " + "1, " * MANY + "]", "more than 10000"),
        ("submit: |\n" + " a\n" * MANY, "more than 10000"),
        (b"\xb9\x06submit\x82" + struct.pack("<I", MANY) + b"\xb1" * MANY, "more than 10000"),
        (b"\x8f\xbd\x82" + struct.pack("<I", MANY) + b"\xb1" * (MANY + 1), "code 0xbd"),
    ],
    ids=["text", "lines", "binary", "hidden"],
)
def test_a_document_of_too_many_values_is_refused_and_a_long_text_is_not(root, orders, said, why):
    """Each value takes far more memory here than on the wire."""
    text = "1, " * MANY

    async def conversation(spoken: Spoken):
        await spoken.create("createAppender", "orders")
        ((_, bad),) = await spoken.replies(frame("cid: 1234\ntid: 1", META) + frame(said))
        return bad, await spoken.ask("cid: 1234", f'submit: "{text}"')

    bad, good = speak(root, conversation)
    assert why in refusal(bad)[1]
    assert good == {"index": 0}
    assert orders[0].payload.decode() == text


FORBIDDEN = [
    "",
    "..",
    "../orders",
    "%2e%2e/root/orders",
    "%252e%252e/orders",
    ".serve",
    "a%2Forders",
    "orders%00",
    "%ff",
]
FORBIDDEN += ["or\\\\ders", "orders/chunks", "a/b/c/d/e", "link", "link/orders", "open/orders", "missing", "x" * 101]


@pytest.mark.parametrize("name", FORBIDDEN)
def test_names_lead_nowhere_but_to_queues_below_the_root_and_no_error_tells_of_the_disk(root, orders, name):
    (root / "link").symlink_to(root)
    (root / "open").mkdir()
    (root / "open").chmod(0o777)
    shmq.open(root / "open" / "orders").close()

    async def conversation(spoken: Spoken):
        meta = f'csp: "//host/{name}#Queue"'
        return [await spoken.ask(meta, f"{each}: {{ }}") for each in ("createTailer", "createAppender")]

    before = sorted(root.rglob("*"))
    for each in speak(root, conversation):
        kind, message = refusal(each)
        assert kind == ("NotFound" if name else "IllegalArgument")
        assert str(root) not in message
    assert sorted(root.rglob("*")) == before


def test_a_full_queue_and_a_finished_one_say_so(root):
    with shmq.open(root / "orders", max_messages=2) as queue:
        queue.consumer("slow").close()

        async def conversation(spoken: Spoken):
            answers = [await spoken.ask(f"{BASE}#appender", f"submit: m{each}") for each in range(3)]
            queue.finish()
            return answers, await spoken.ask(f"{BASE}#appender", "submit: late")

        (_, _, full), late = speak(root, conversation)
        assert refusal(full) == ("QueueFull", "queue 'orders' is full; nothing was appended")
        assert refusal(late)[0] == "ReadOnly"
        assert len(queue) == 2


def test_damage_and_a_foreign_failure_tell_nothing_of_the_disk(root, orders, caplog):
    at = orders.put(b"x" * 100)
    content = chunk_files(root / "orders")[0].read_bytes()
    flip(chunk_files(root / "orders")[0], content.index(b"x" * 100) + 50)

    async def conversation(spoken: Spoken):
        return await spoken.ask(f"{BASE}#tailer", f"hasNext: {{ index: {at} }}")

    kind, message = refusal(speak(root, conversation))
    assert kind == "Internal"
    assert str(root) not in message
    assert "Corrupt" in caplog.text


def test_a_call_behind_submits_sees_what_they_have_done(root, orders):
    async def conversation(spoken: Spoken):
        await spoken.create("createAppender", "orders")
        return await spoken.replies(call("cid: 1234\ntid: 1", "submit: a", "submit: b", "lastWrittenIndex: { }"))

    assert [found for _, found in speak(root, conversation)] == [{"index": 0}, {"index": 1}, {"reply": 1}]


def test_no_reply_is_made_for_a_peer_that_does_not_read(root, orders):
    """R16: what it has asked for ahead would else be kept for it."""

    async def conversation(spoken: Spoken):
        await spoken.create("createTailer", "orders")
        spoken.answered.clear()
        spoken.peer.room.clear()
        spoken.hear(call("cid: 1234\ntid: 1", *["hasNext: { }"] * 5))
        await asyncio.sleep(0.05)
        before = bytes(spoken.answered)
        spoken.peer.room.set()
        await spoken.quiet()
        return before, len(cut(bytes(spoken.answered)))

    assert speak(root, conversation) == (b"", 10)


def test_a_message_that_fits_no_frame_is_told_and_can_be_passed_over(root, orders):
    orders.put_many([bytes(5000), b"next"])

    async def conversation(spoken: Spoken):
        return [await spoken.ask(f"{BASE}#tailer", f"hasNext: {{ index: {each} }}") for each in (0, 1)]

    large, following = speak(root, conversation, limits=Limits(frame=4000))
    assert refusal(large) == (
        "IllegalArgument",
        "the message is larger than a frame of 4000 bytes; it can only be read locally",
    )
    assert following == {"index": 1, "reply": [b"next"]}


def test_submits_are_in_the_order_in_which_they_were_sent_however_their_appender_is_named(root, orders):
    """Large ones, which are read in another thread, among them."""

    async def conversation(spoken: Spoken):
        plain = (await spoken.create("createAppender", "orders"))["cid"]
        synced = (await spoken.create("createAppender", "orders", "sync: true"))["cid"]
        ways = [f"cid: {plain}", f"{BASE}#appender", f"cid: {synced}", f"{BASE}#APPENDER"]
        texts = [f"{each:04}" + "x" * (50_000 * (each % 3 == 0)) for each in range(60)]
        said = (call(f"{ways[each % 4]}\ntid: {each}", f"submit: x{text}") for each, text in enumerate(texts))
        return await spoken.replies(b"".join(said))

    answered = speak(root, conversation)
    assert answered == [(each, {"index": each}) for each in range(60)]
    assert [int(each.payload[1:5]) for each in orders.reader()] == list(range(60))


def test_what_comes_together_is_put_together(root):
    """As one batch, and for one sync, whichever connection it came by."""
    with shmq.open(root / "orders", durability="sync"):

        async def conversation(spoken: Spoken):
            await spoken.create("createAppender", "orders")
            return await spoken.replies(call(f"{BASE}#appender\ntid: 1", *["submit: a"] * 20))

        assert len(speak(root, conversation)) == 20
        assert max(each.batch for each in records(root / "orders")) > 10


def test_one_bad_value_among_submits_that_go_together_harms_no_other(root, orders):
    """They are appended as one batch where all can be; else each alone."""

    async def conversation(spoken: Spoken):
        texts = ["submit: a", "submit: b", f'submit: "{"c" * 2000}"', "submit: d"]
        return [answered for _, answered in await spoken.replies(call(f"{BASE}#appender\ntid: 1", *texts))]

    orders.configure(max_bytes=1600)
    found = speak(root, conversation)
    assert found[0] == {"index": 0}
    assert "exception" in found[2]
    assert [each.payload for each in orders.reader()] == [b"a", b"b", b"d"]


# ---------------------------------------------------------------- waiting
def test_a_request_that_waits_is_answered_by_the_next_message_and_holds_up_no_other_channel(root, orders):
    async def conversation(spoken: Spoken):
        one, two = [(await spoken.create("createTailer", "orders"))["cid"] for _ in range(2)]
        spoken.answered.clear()
        spoken.hear(call(f"cid: {one}\ntid: 1", "hasNext: { timeout: 20000 }"))
        spoken.hear(call(f"cid: {two}\ntid: 2", "hasNext: { }"))
        async with asyncio.timeout(20):
            while not spoken.answered:
                await asyncio.sleep(0.001)
        first = cut(bytes(spoken.answered))
        orders.put(b"a")
        await spoken.quiet()
        return first, cut(bytes(spoken.answered))

    first, both = speak(root, conversation)
    assert [body for _, body in first] == [{"tid": 2}, {"index": 0, "reply": []}]
    assert [body for _, body in both[2:]] == [{"tid": 1}, {"index": 0, "reply": [b"a"]}]


def test_a_wait_ends_with_its_time_and_with_the_server(root, orders):
    with serving(root) as service:

        async def run():
            spoken = Spoken(service)
            short = await spoken.ask(f"{BASE}#tailer", "hasNext: { timeout: 30 }")
            spoken.answered.clear()
            spoken.hear(call(f"{BASE}#tailer\ntid: 1", "hasNext: { timeout: 60000 }"))
            while not service.waiting:
                await asyncio.sleep(0.001)
            service.end()
            await spoken.quiet()
            await spoken.session.closed()
            return short, cut(bytes(spoken.answered))[1][1]

        assert asyncio.run(run()) == ({"index": 0, "reply": []},) * 2


def test_tailers_that_nobody_asks_are_forgotten_and_channels_are_counted(root, orders):
    async def conversation(spoken: Spoken):
        for _ in range(2):
            await spoken.create("createTailer", "orders")
        full = await spoken.ask(f"{BASE}#Queue", "createTailer: { }")
        await asyncio.sleep(1)
        again = await spoken.create("createTailer", "orders")
        return full, again, await spoken.ask("cid: 1234", "hasNext: { }")

    full, again, gone = speak(root, conversation, limits=Limits(channels=2, tailer=0.7))
    assert refusal(full)[0] == "IllegalArgument"
    assert again["cid"] > 1235
    assert refusal(gone) == ("IllegalArgument", "unknown cid 1234")


def test_an_appender_that_syncs_answers_when_it_is_on_the_disk(root, orders):
    async def conversation(spoken: Spoken):
        cid = (await spoken.create("createAppender", "orders", "sync: true"))["cid"]
        found = []
        for each in range(3):
            await spoken.ask(f"cid: {cid}", f"submit: m{each}")
            found.append(orders.durable_index)
        other = (await spoken.create("createAppender", "orders"))["cid"]
        return cid, other, found

    cid, other, found = speak(root, conversation)
    assert found == [1, 2, 3]
    assert cid != other
