"""Traces that go on in messages: real processes, the SDK's own exporters, and names of the semantic conventions."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import shmq
import shmq.aio


@pytest.fixture
def spans():
    """What was exported, and who makes it."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    exporter.provider = provider
    yield exporter
    provider.shutdown()


@pytest.fixture
def traced(queue, spans):
    return shmq.otel.traced(queue, tracer_provider=spans.provider)


def facts(span) -> tuple[str, SpanKind, str]:
    return span.name.partition(" ")[0], span.kind, span.attributes["messaging.operation.type"]


def test_a_put_is_a_send_whose_context_goes_along(traced, spans):
    """As W3C's headers, beside those of the user."""
    index = traced.put(b"abc", headers={"mine": 1})
    (span,) = spans.get_finished_spans()
    assert facts(span) == ("put", SpanKind.PRODUCER, "send")
    assert dict(span.attributes) == {
        "messaging.system": "shmq",
        "messaging.destination.name": traced.path,
        "messaging.operation.name": "put",
        "messaging.operation.type": "send",
        "messaging.message.id": str(index),
        "messaging.message.body.size": 3,
    }
    headers = traced.queue[index].headers
    assert headers["mine"] == 1
    context = span.context
    assert headers["traceparent"] == f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def test_from_put_to_ack_it_is_one_trace(traced, spans):
    """The work is below the send, the ack below the work; a get is linked to it."""
    traced.put(b"abc")
    with traced.consumer("g", group=True, ack="explicit") as group:
        message = group.get()
        with message.process():
            assert message.payload == b"abc"
            message.ack()
    put, get, ack, process = spans.get_finished_spans()
    assert [facts(each) for each in (get, process, ack)] == [
        ("get", SpanKind.CLIENT, "receive"),
        ("process", SpanKind.CONSUMER, "process"),
        ("ack", SpanKind.CLIENT, "settle"),
    ]
    assert process.parent.span_id == put.context.span_id
    assert ack.parent.span_id == process.context.span_id
    assert process.context.trace_id == ack.context.trace_id == put.context.trace_id
    for each in (get, process, ack):
        assert [link.context.span_id for link in each.links] == [put.context.span_id]
        assert each.attributes["messaging.consumer.group.name"] == "g"
    assert process.attributes["shmq.message.attempts"] == 1


def test_work_inside_another_span_is_below_that_and_linked(traced, spans):
    """The program's own trace is not torn."""
    traced.put(b"abc")
    tracer = trace.get_tracer("a program", tracer_provider=spans.provider)
    with traced.consumer("c") as consumer, tracer.start_as_current_span("outer"), consumer.get().process("bill"):
        pass
    put, _, process, outer = spans.get_finished_spans()
    assert process.name == f"bill {traced.path}"
    assert process.parent.span_id == outer.context.span_id
    assert [link.context.span_id for link in process.links] == [put.context.span_id]


def test_batches_are_one_span_with_links(traced, spans):
    """To each of those who put them, which may be several."""
    traced.put_many([b"a", b"b"])
    traced.put_many([b"c"], headers=[{"mine": 1}])
    with traced.consumer("c", ack="explicit") as consumer:
        messages = consumer.get_many(3)
        consumer.ack(*messages)
    first, second, get, ack = spans.get_finished_spans()
    assert [each.attributes["messaging.batch.message_count"] for each in (first, second, get, ack)] == [2, 1, 3, 3]
    both = [first.context.span_id] * 2 + [second.context.span_id]
    assert [link.context.span_id for link in get.links] == both
    assert traced.queue[2].headers["mine"] == 1


def test_each_way_to_take_is_a_span_and_nothing_is_none(traced, spans):
    """A loop ends, a get that finds nothing has not failed."""
    traced.put_many([b"a"] * 3)
    with traced.consumer("c") as consumer:
        assert consumer.take() == b"a"
        assert next(consumer).payload == b"a"
        assert [each.payload for each in consumer.get_many(5)] == [b"a"]
        with pytest.raises(shmq.Empty):
            consumer.get(timeout=0)
        traced.queue.shutdown()
        assert list(consumer) == []
    assert [facts(each)[0] for each in spans.get_finished_spans()] == ["put", "take", "get", "get"]


def test_what_settles_it_is_told_by_name(traced, spans):
    traced.put_many([b"a"] * 2)
    with traced.consumer("g", group=True, ack="explicit") as group:
        group.get().nack(1000)
        group.get().reject("why")
    assert [facts(each) for each in spans.get_finished_spans()][2::2] == [
        ("nack", SpanKind.CLIENT, "settle"),
        ("reject", SpanKind.CLIENT, "settle"),
    ]


def test_what_fails_is_an_error_of_its_kind(traced, spans):
    """Of a put, and of the work."""
    with pytest.raises(shmq.TooLarge):
        traced.put(b"", key=bytes(70_000))
    traced.put(b"abc")
    with traced.consumer("c") as consumer, pytest.raises(ZeroDivisionError), consumer.get().process():
        raise ZeroDivisionError
    failed = [span for span in spans.get_finished_spans() if span.status.status_code is StatusCode.ERROR]
    assert [span.attributes["error.type"] for span in failed] == ["TooLarge", "ZeroDivisionError"]
    assert [span.events[0].name for span in failed] == ["exception"] * 2


def test_a_message_without_a_trace_begins_one(traced, spans):
    """Or with headers that only look like one."""
    traced.queue.put(b"a")
    traced.queue.put(b"b", headers={"traceparent": "00-nonsense", "tracestate": 7})
    with traced.consumer("c") as consumer:
        for _ in range(2):
            with consumer.get().process():
                pass
    for span in spans.get_finished_spans():
        assert (span.parent, list(span.links)) == (None, [])


def test_headers_can_be_carried_by_hand(queue, spans):
    """For any other way to put and get."""
    tracer = trace.get_tracer("a program", tracer_provider=spans.provider)
    with tracer.start_as_current_span("outer") as outer:
        queue.put(b"a", headers=shmq.otel.with_context({"mine": 1}))
    context = shmq.otel.context_of(queue[0])
    assert trace.get_current_span(context).get_span_context().span_id == outer.get_span_context().span_id
    assert shmq.otel.with_context() is None
    assert shmq.otel.with_context({"mine": 1}) == {"mine": 1}


CHILD = """
import json, sys, shmq
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
with shmq.otel.traced(shmq.open(sys.argv[1])) as queue:
    for message in queue.consumer("workers", group=True, ack="explicit"):
        with message.process():
            message.ack()
        break
spans = exporter.get_finished_spans()
print(json.dumps([[span.name.split()[0], f"{span.context.trace_id:032x}"] for span in spans]))
print(json.dumps([f"{span.parent.span_id:016x}" for span in spans if span.name.startswith("process")]))
"""


def test_a_trace_goes_on_in_another_process(traced, spans):
    """Which knows of it by the message alone; the program's provider makes its spans."""
    traced.put(b"abc")
    (put,) = spans.get_finished_spans()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, traced.path],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
    )
    told, parents = map(json.loads, done.stdout.splitlines())
    mine = f"{put.context.trace_id:032x}"
    assert {name: trace_id == mine for name, trace_id in told} == {"get": False, "ack": True, "process": True}
    assert parents == [f"{put.context.span_id:016x}"]


def test_without_an_sdk_nothing_is_carried(queue):
    """And nothing is in the way: headers stay as they are."""
    traced = shmq.otel.traced(queue, tracer_provider=trace.NoOpTracerProvider())
    traced.put(b"abc")
    traced.put_many([b"abc"] * 2)
    with traced.consumer("c") as consumer:
        with consumer.get().process():
            pass
        assert consumer.take() == b"abc"
    assert queue[0].raw_headers is None


def test_what_is_not_told_of_is_the_things_own(traced):
    """Names that pass through, lengths, indexes; and what is no queue is refused."""
    traced.put(b"abc")
    assert (len(traced), traced[0].payload, traced.next_index) == (1, b"abc", 1)
    with traced.consumer("c") as consumer:
        assert (consumer.name, consumer.lag) == ("c", 1)
        assert consumer.get().message.payload == b"abc"
    assert "TracedQueue of <shmq.Queue" in repr(traced)
    with pytest.raises(TypeError, match=r"an open shmq\.Queue"):
        shmq.otel.traced(traced.path)


def test_importing_shmq_imports_none_of_it():
    code = "import shmq, sys; print([name for name in sys.modules if 'opentelemetry' in name or 'prometheus' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


# ---------------------------------------------------------------- figures
@pytest.fixture
def collected():
    """What a reader of the SDK collects: {(instrument, consumer name or None): value}, units and kinds."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])

    def collect():
        found, kinds = {}, {}
        told = reader.get_metrics_data()
        for each in told.resource_metrics[0].scope_metrics[0].metrics if told is not None else ():
            kinds[each.name] = (type(each.data).__name__, getattr(each.data, "is_monotonic", None), each.unit)
            for point in each.data.data_points:
                assert point.attributes["messaging.system"] == "shmq"
                name = point.attributes.get("messaging.consumer.group.name")
                found[point.attributes["messaging.destination.name"], each.name, name] = point.value
        return found, kinds

    collect.provider = provider
    yield collect
    provider.shutdown()


def test_what_queues_are_at_is_told_to_a_reader(queue, tmp_path, collected):
    with shmq.open(tmp_path / "other") as other:
        shmq.otel.observed(queue, other, meter_provider=collected.provider)
        queue.put_many([b"abc"] * 5, times_ns=[time.time_ns() - 10**12] * 5)
        with queue.consumer("work", group=True, ack="explicit") as work:
            work.get().ack()
            work.get().nack()
            work.get()
            found, kinds = collected()
        of_queue = {(name, who): value for (path, name, who), value in found.items() if path == queue.path}
        age = of_queue.pop(("shmq.consumer.oldest", "work"))
        assert age >= 1000
        assert of_queue == {
            ("messaging.client.sent.messages", None): 5,
            ("messaging.client.consumed.messages", None): 3,
            ("shmq.put.payload", None): 15,
            ("shmq.acked.messages", None): 1,
            ("shmq.nacked.messages", None): 1,
            ("shmq.queue.disk", None): queue.stats().disk_bytes,
            ("shmq.queue.participants", None): 1,
            ("shmq.consumer.backlog", "work"): 4,
            ("shmq.consumer.pending", "work"): 1,
        }
        assert kinds["messaging.client.sent.messages"] == ("Sum", True, "{message}")
        assert kinds["shmq.consumer.backlog"] == ("Sum", False, "{message}")
        assert kinds["shmq.consumer.oldest"] == ("Gauge", None, "s")
        assert found[other.path, "messaging.client.sent.messages", None] == 0
    found, _ = collected()
    assert {path for path, *_ in found} == {queue.path}  # of the one that is closed nothing is told
    with pytest.raises(TypeError, match=r"open shmq\.Queues, not str"):
        shmq.otel.observed(queue.path)


def test_what_is_awaited_is_in_the_same_spans(path, spans):
    """And the trace goes on in the task that was handed the message."""

    async def work():
        async with shmq.otel.traced(await shmq.aio.open(path), tracer_provider=spans.provider) as queue:
            index = await queue.put(b"abc", headers={"mine": 1})
            await queue.put_many([b"d", b"e"])
            async with await queue.consumer("c", group=True, ack="explicit") as consumer:
                message = await consumer.get()
                assert (message.index, message.headers["mine"]) == (index, 1)
                with message.process():
                    await message.ack()
                rest = await consumer.get_many(2)
                await consumer.ack(*rest)
                with pytest.raises(shmq.Empty):
                    await consumer.get(timeout=0)
                waits = asyncio.ensure_future(anext(consumer))
                await asyncio.sleep(0.01)
                waits.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waits
                await queue.put(b"f")
                async for message in consumer:
                    await message.reject()
                    break

    asyncio.run(work())
    found = spans.get_finished_spans()
    told = [facts(each)[0] for each in found]
    assert told == ["put", "put", "get", "ack", "process", "get", "ack", "put", "get", "reject"]
    put, many, got, acked, process, *_ = found
    assert {each.context.trace_id for each in (put, process, acked)} == {put.context.trace_id}
    assert acked.parent.span_id == process.context.span_id
    assert [link.context.span_id for link in got.links] == [put.context.span_id]
    assert [link.context.span_id for link in found[5].links] == [many.context.span_id] * 2
    assert all(each.status.status_code is StatusCode.UNSET for each in found)


def test_what_an_awaited_verb_raises_is_told_in_its_span(path, spans):
    async def work():
        async with shmq.otel.traced(await shmq.aio.open(path), tracer_provider=spans.provider) as queue:
            with pytest.raises(TypeError):
                await queue.put(7)
            consumer = await queue.consumer("c")
            with pytest.raises(TypeError):
                await consumer.get_many("x")

    asyncio.run(work())
    assert [(facts(each)[0], each.attributes["error.type"]) for each in spans.get_finished_spans()] == [
        ("put", "TypeError"),
        ("get", "TypeError"),
    ]
