"""What Prometheus is told: by the collector, as text, and by the server of the verb."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
import urllib.request

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support import until

import shmq
from shmq.cli import main
from shmq.metrics import serving
from shmq.metrics.families import Families


def read(text: str) -> dict[tuple[str, str, str], float]:
    """{(metric, queue, consumer): value}, histograms left out."""
    return {
        (sample.name, os.path.basename(sample.labels["queue"]), sample.labels.get("consumer", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "q")


def test_a_queue_and_its_names_are_told_exactly(path):
    """Each figure, after a little of everything."""
    with shmq.open(path, max_messages=100) as queue:
        queue.put_many([b"abc"] * 10, times_ns=[time.time_ns() - 60 * 10**9] * 10)
        queue.reserve(3).abort()
        with queue.consumer("alone") as alone, queue.consumer("g", group=True, ack="explicit") as group:
            alone.take_many(4)
            held = group.get_many(3)
            held[0].ack()
            held[1].nack(delay=1000)
            held[2].reject("on purpose")
            group.get()
            found = read(shmq.metrics.text(path))
    told = {name: value for (name, _, consumer), value in found.items() if not consumer}
    assert {name: told[f"shmq_{name}"] for name in WANTED} == WANTED
    assert told["shmq_disk_bytes"] > 0
    assert found["shmq_consumer_backlog_messages", "q", "alone"] == 6
    assert found["shmq_consumer_backlog_messages", "q", "g"] == 8
    assert found["shmq_consumer_pending_messages", "q", "g"] == 1
    assert found["shmq_consumer_parked_messages", "q", "g"] == 1
    assert found["shmq_consumer_dead_letters_total", "q", "g"] == 1
    assert found["shmq_consumer_head_index", "q", "alone"] == 4
    assert found["shmq_consumer_window_messages", "q", "g"] >= 64
    assert ("shmq_consumer_window_messages", "q", "alone") not in found
    for name in ("alone", "g"):
        assert 60 <= found["shmq_consumer_oldest_seconds", "q", name] < 1000


WANTED = {
    "up": 1,
    "messages": 10,
    "next_index": 11,
    "first_index": 0,
    "chunks": 1,
    "padded": 1,
    "participants": 1,
    "max_messages": 100,
    "shut_down": 0,
    "finished": 0,
    "damaged_consumers": 0,
    "put_messages_total": 10,
    "put_bytes_total": 30,
    "taken_messages_total": 8,
    "acked_messages_total": 1,
    "nacked_messages_total": 1,
    "fenced_total": 0,
}


OF_THE_QUEUE = {
    "next_index": "next_index",
    "first_index": "first_index",
    "disk_bytes": "disk_bytes",
    "chunks": "chunks",
    "padded": "padded",
    "participants": "participants",
    "max_messages": "max_messages",
    "max_bytes": "max_bytes",
    "shut_down": "shut_down",
    "finished": "finished",
    "fenced_total": "fenced",
}
OF_COUNTS = {
    "put_messages_total": "put_messages",
    "put_bytes_total": "put_bytes",
    "taken_messages_total": "taken_messages",
    "acked_messages_total": "acked",
    "nacked_messages_total": "nacked",
    "waits_total": "waits",
    "room_waits_total": "room_waits",
    "syncs_total": "syncs",
}
OF_A_CONSUMER = {
    "consumer_backlog_messages": "lag",
    "consumer_pending_messages": "pending",
    "consumer_oldest_seconds": "oldest",
    "consumer_head_index": "head",
    "consumer_dropped_total": "dropped",
}
OF_A_GROUP = {
    "consumer_parked_messages": "parked",
    "consumer_returned_messages": "returned",
    "consumer_keyed_messages": "waiting",
    "consumer_window_messages": "window",
    "consumer_window_full": "full",
    "consumer_redelivered_total": "redelivered",
    "consumer_expired_total": "expired",
    "consumer_dead_letters_total": "moved",
    "consumer_unmoved_total": "unmoved",
    "consumer_retired_total": "retired",
}


def test_each_figure_has_the_name_that_it_is_known_by():
    """Each field has a number of its own."""
    numbers = itertools.count(1)

    def some(names, **more):
        return types.SimpleNamespace(**{name: next(numbers) for name in names.values()}, **more)

    counts = some(OF_COUNTS, latency=[1, 0, 2], latency_seconds=0.5)
    group = some(OF_A_GROUP)
    consumer = some(OF_A_CONSUMER, group=group)
    stats = some(OF_THE_QUEUE, counts=counts, consumers={"c": consumer}, damaged={"d": "", "e": ""})
    families = Families()
    families.add("q", stats, 1000)
    told = {
        sample.name.removeprefix("shmq_"): sample.value
        for family in families.all()
        for sample in family.samples
        if "le" not in sample.labels
    }
    wanted = {"up": 1, "messages": 1000, "damaged_consumers": 2, "latency_seconds_count": 3, "latency_seconds_sum": 0.5}
    for names, of in ((OF_THE_QUEUE, stats), (OF_COUNTS, counts), (OF_A_CONSUMER, consumer), (OF_A_GROUP, group)):
        wanted |= {name: getattr(of, field) for name, field in names.items()}
    assert told == wanted


def test_a_name_with_nothing_to_finish_has_an_age_of_0(path):
    with shmq.open(path) as queue, queue.consumer("c"):
        assert read(shmq.metrics.text(path))["shmq_consumer_oldest_seconds", "q", "c"] == 0


def test_a_queue_that_is_gone_or_cannot_be_read_is_not_kept_open(tmp_path, monkeypatch):
    """Else its files would keep their room on the disk."""

    def opened():
        links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        return sum(str(tmp_path) in os.readlink(link) for link in links if os.path.islink(link))

    for name in "ab":
        shmq.open(tmp_path / name).close()
    collector = shmq.metrics.Collector(tmp_path)
    list(collector.collect())
    both = opened()
    shutil.rmtree(tmp_path / "a")
    list(collector.collect())
    assert opened() == both // 2 > 0

    def fail(_):
        raise shmq.Corrupt("no")

    with monkeypatch.context() as patched:
        patched.setattr(shmq.Queue, "stats", fail)
        list(collector.collect())
    assert opened() == 0
    list(collector.collect())
    assert opened() == both // 2
    collector.close()
    assert opened() == 0


def test_ages_are_a_histogram(path):
    """Cumulative, in seconds, with their sum and count; of about one message of 64."""
    with shmq.open(path) as queue, queue.consumer("c") as consumer:
        for seconds in (100, 3600):
            queue.put_many([b""] * 64, times_ns=[time.time_ns() - seconds * 10**9] * 64)
        for _ in range(128):
            consumer.take()
    (family,) = [
        each for each in text_string_to_metric_families(shmq.metrics.text(path)) if each.name == "shmq_latency_seconds"
    ]
    buckets = {sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels}
    assert family.type == "histogram"
    assert len(buckets) == 32
    assert (buckets["1.024e-06"], buckets["+Inf"]) == (0, 2)
    assert list(buckets.values())[-2] == 1
    values = {sample.name: sample.value for sample in family.samples if "le" not in sample.labels}
    assert values["shmq_latency_seconds_count"] == 2
    assert 3700 <= values["shmq_latency_seconds_sum"] < 4500


def test_a_registry_asks_at_each_scrape(path):
    """Nothing is opened before the first; a queue that is removed and made anew is another one."""
    registry = prometheus_client.CollectorRegistry()
    collector = shmq.metrics.Collector(path)
    registry.register(collector)
    labels = {"queue": path}
    try:
        assert registry.get_sample_value("shmq_up", labels) == 0
        with shmq.open(path) as queue:
            queue.put(b"a")
            assert registry.get_sample_value("shmq_up", labels) == 1
            assert registry.get_sample_value("shmq_messages", labels) == 1
            queue.put(b"b")
            assert registry.get_sample_value("shmq_messages", labels) == 2
        shutil.rmtree(path)
        assert registry.get_sample_value("shmq_up", labels) == 0
        assert registry.get_sample_value("shmq_messages", labels) is None
        with shmq.open(path) as queue:
            queue.put_many([b"a"] * 5)
            assert registry.get_sample_value("shmq_messages", labels) == 5
        shutil.rmtree(path)
        with shmq.open(path) as queue:
            queue.put_many([b"a"] * 7)
            assert registry.get_sample_value("shmq_messages", labels) == 7
    finally:
        collector.close()


def test_an_open_queue_stays_open(path):
    """It is its owner's; an anonymous one has no other way."""
    with shmq.open(None) as queue:
        queue.put(b"a")
        collector = shmq.metrics.Collector(queue)
        registry = prometheus_client.CollectorRegistry()
        registry.register(collector)
        assert registry.get_sample_value("shmq_messages", {"queue": queue.path}) == 1
        collector.close()
        assert len(queue) == 1


def test_a_volatile_queue_is_not_kept_alive():
    """It is gone with its last user, who is none that looked."""
    place = f"shm:metrics-{os.getpid()}"
    collector = shmq.metrics.Collector(place)
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)
    with shmq.open(place) as queue:
        queue.put(b"a")
        assert registry.get_sample_value("shmq_messages", {"queue": place}) == 1
    assert place not in shmq.volatile_queues()
    assert registry.get_sample_value("shmq_up", {"queue": place}) == 0


def test_a_directory_means_the_queues_below_it_as_they_come_and_go(tmp_path):
    """One that cannot be read keeps none of the others back."""
    collector = shmq.metrics.Collector(tmp_path)
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)

    def up():
        text = prometheus_client.generate_latest(registry).decode()
        return {queue: value for (name, queue, _), value in read(text).items() if name == "shmq_up"}

    try:
        assert up() == {}
        shmq.open(tmp_path / "a").close()
        (tmp_path / "deep").mkdir()
        shmq.open(tmp_path / "deep" / "b").close()
        assert up() == {"a": 1, "b": 1}
        (tmp_path / "a" / "control.shmq").unlink()
        assert up() == {"a": 1, "b": 1}  # it is open already, and means what it did
        collector.close()
        assert up() == {"a": 0, "b": 1}
        shutil.rmtree(tmp_path / "a")
        assert up() == {"b": 1}
    finally:
        collector.close()


@pytest.mark.parametrize("given", [(), (7,), (b"q",), (None,), ("csp+unix:///tmp/s//orders",)])
def test_what_is_no_place_is_refused(given):
    with pytest.raises((TypeError, ValueError)):
        shmq.metrics.Collector(*given)


def test_the_server_answers_this_machine(path):
    """As often as it is asked, until it is closed."""
    with shmq.open(path) as queue, shmq.metrics.serve(path, address="0") as server:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", server.url)
        for count in (1, 2):
            queue.put(b"abc")
            with urllib.request.urlopen(server.url, timeout=30) as answer:
                found = read(answer.read().decode())
            assert found["shmq_put_messages_total", "q", ""] == count
    server.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(server.url, timeout=30)


@pytest.mark.parametrize("address", ["", "host", "127.0.0.1:65536", "127.0.0.1:", "a:b:1", "http://127.0.0.1:1"])
def test_what_is_no_address_is_refused(path, address, capsys):
    """In words, and by the verb with 2."""
    with pytest.raises(ValueError, match="HOST:PORT is wanted"):
        shmq.metrics.serve(path, address=address)
    assert main(["metrics", path, f"--serve={address}"]) == 2
    assert "HOST:PORT is wanted" in capsys.readouterr().err


def test_an_address_that_is_taken_is_said(path, capsys):
    with shmq.metrics.serve(path, address="0") as server:
        address = server.url.removeprefix("http://").removesuffix("/metrics")
        assert main(["metrics", path, "--serve", address]) == 1
    assert f"cannot serve metrics at {address}" in capsys.readouterr().err


def test_the_verb_prints_and_says_what_cannot_be_read(path, capsys):
    """With 1, and of the others what there is."""
    with shmq.open(path) as queue:
        queue.put(b"a")
    assert main(["metrics", path]) == 0
    out, err = capsys.readouterr()
    assert (read(out)["shmq_messages", "q", ""], err) == (1, "")
    assert main(["metrics", path, path + "-not"]) == 1
    out, err = capsys.readouterr()
    assert read(out)["shmq_messages", "q", ""] == 1
    assert err == f'shmq: cannot read "{path}-not"\n'


@pytest.mark.parametrize("words", [["."], [".", "--serve", "127.0.0.1:0"]])
def test_found_a_current_directory_that_is_gone_had_no_queues(tmp_path, monkeypatch, capsys, words):
    """Nothing was printed, and all was well."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["metrics", *words]) == 1
    said = "shmq: cannot look for queues at .: the current directory was removed; nothing was done\n"
    assert capsys.readouterr() == ("", said)
    shmq.metrics.Collector(str(tmp_path), "shm:orders").close()  # which do not depend on it


def test_the_verb_serves_until_a_signal(path):
    """A process of its own; SIGTERM ends it with 0."""
    shmq.open(path).close()
    command = [sys.executable, "-m", "shmq", "metrics", path, "--serve", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as serving:
        try:
            told = serving.stderr.readline()
            url = told.removeprefix("shmq: metrics at ").strip()
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert read(answer.read().decode())["shmq_up", "q", ""] == 1
            serving.send_signal(signal.SIGTERM)
            until(lambda: serving.poll() is not None)
            assert (serving.returncode, serving.stderr.read()) == (0, "")
        finally:
            serving.kill()


def test_found_the_server_of_what_is_not_there_said_nothing(path):
    """It may be made later, so it is served; whoever mistyped it reads so."""
    shmq.open(path).close()
    command = [sys.executable, "-m", "shmq", "metrics", path, f"{path}-not", "shm:nobody", "--serve", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stderr.readline().startswith("shmq: metrics at ")
            for place in (f"{path}-not", "shm:nobody"):
                assert serving.stderr.readline() == f"shmq: there is nothing at {place} yet; each scrape looks again\n"
            serving.send_signal(signal.SIGTERM)
            until(lambda: serving.poll() is not None)
            assert (serving.returncode, serving.stderr.read()) == (0, "")
        finally:
            serving.kill()


def test_looking_takes_no_seat_and_changes_nothing(path):
    """Not a byte of it, whatever is looked at."""
    with shmq.open(path) as queue:
        queue.put_many([b"abc"] * 10)
        with queue.consumer("c") as consumer, queue.consumer("g", group=True):
            consumer.take()
            before = {file: file.read_bytes() for file in _files(path)}
            shmq.metrics.text(path)
            assert {file: file.read_bytes() for file in _files(path)} == before


def _files(path):
    from pathlib import Path

    return sorted(file for file in Path(path).rglob("*") if file.is_file())


def test_without_the_package_it_says_what_to_install(path):
    """And the verb likewise."""
    code = (
        "import sys; sys.modules['prometheus_client'] = None\nfrom shmq.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "metrics", path], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "pip install 'shmq[metrics]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_is_no_utf_8_does_not_keep_the_others_back(tmp_path, capsys):
    """Its bytes are written out, also where it cannot be read."""
    for name in (b"good", b"odd\xff", b"bad\xfe"):
        shmq.open(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).close()
    os.truncate(os.path.join(os.fsencode(tmp_path), b"bad\xfe", b"queue.shmq"), 10)
    found = read(shmq.metrics.text(tmp_path))
    up = {name: value for (metric, name, _), value in found.items() if metric == "shmq_up"}
    assert up == {"good": 1, r"odd\xff": 1, r"bad\xfe": 0}
    assert main(["metrics", str(tmp_path)]) == 1
    assert r"bad\\xfe" in capsys.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else for a while")
def test_what_we_may_not_enter_cannot_be_read(tmp_path, capsys):
    """And is not passed over, as if there were no queue."""
    tmp_path.chmod(0o755)
    for above in tmp_path.parents[:2]:
        above.chmod(0o755)
    path = str(tmp_path / "q")
    shmq.open(path).close()
    os.seteuid(NOBODY)
    try:
        status = main(["metrics", path])
    finally:
        os.seteuid(0)
    out, err = capsys.readouterr()
    assert (status, read(out)["shmq_up", "q", ""], err) == (1, 0, f'shmq: cannot read "{path}"\n')


NOBODY = 65534


def test_who_is_silent_in_a_request_is_dropped_without_a_word(path, monkeypatch, capsys):
    """Else each of them had a thread for as long as it likes."""
    monkeypatch.setattr(serving, "_SILENT_MOST", 0.1)
    shmq.open(path).close()
    with shmq.metrics.serve(path, address="0") as server:
        host, port = server.url.removeprefix("http://").removesuffix("/metrics").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as silent:
            silent.sendall(b"GET /metrics HT")
            assert silent.recv(1) == b""
        with urllib.request.urlopen(server.url, timeout=60) as answer:
            assert read(answer.read().decode())["shmq_up", "q", ""] == 1
    assert capsys.readouterr().err == ""
