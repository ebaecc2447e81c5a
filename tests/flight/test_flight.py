"""Arrow Flight in front of a directory of queues: what is read and written, and what clients are told."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from flights import Served, numbers, table
from support import chunk_files, flip, until

import shmq
from shmq.cli import main
from shmq.flight import names, words
from shmq.flight import service as services


def away(queue):
    """Read it over the wire, although it is here."""
    queue.here = lambda: None
    return queue


@pytest.mark.parametrize("by", ["a program", "another service"])
def test_an_address_where_somebody_listens_is_said_to_be_one_in_one_line(root, capfd, by):
    """gRPC would say it in lines of its own, and share the port with another gRPC."""
    with contextlib.ExitStack() as stack:
        if by == "a program":
            port = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        else:
            port = stack.enter_context(shmq.flight.serve(root)).port
        assert main(["serve", str(root), "--flight", f"grpc://127.0.0.1:{port}"]) == 1
    said = capfd.readouterr().err.splitlines()
    assert said == [f"shmq: cannot serve {root} at grpc://127.0.0.1:{port}: somebody listens there already"]


# ---------------------------------------------------------------- reading
def test_a_range_is_read_in_order_and_in_bounded_batches(client, orders):
    with client.queue("orders").read_arrow(17, 4321, max_rows=100) as batches:
        found = list(batches)
    assert numbers(found) == list(range(17, 4321))
    assert max(batch.num_rows for batch in found) <= 100
    assert found[0].schema.names == ["index", "time", "key", "type", "payload"]


def test_only_the_columns_that_are_asked_for_come(client, orders):
    for columns in (["payload"], ["index", "type"], ["time", "index"]):
        with client.queue("orders").read_arrow(0, 600, columns) as batches:
            assert batches.schema.names == columns
            assert {tuple(batch.schema.names) for batch in batches} == {tuple(columns)}
    with pytest.raises(ValueError, match="strange"):
        client.queue("orders").read_arrow(0, 10, ["strange"])


def test_the_client_reads_and_is_a_reader_of_arrows(client, orders, monkeypatch):
    """From the disk, where the queue is here; else from the service. The same comes out."""
    local = client.read("orders", 10, 2000).read_all()
    monkeypatch.setattr(shmq.flight.RemoteQueue, "here", lambda _: None)
    assert client.read("orders", 10, 2000).read_all().equals(local)
    assert client.read("orders").read_all().num_rows == 5000
    assert local["index"].to_pylist() == list(range(10, 2000))


def test_ends_say_what_may_be_read(client, orders):
    told = client.ends("orders")
    assert (told.id, told.first, told.next, told.committed, told.end) == (orders.id, 0, 5000, 5000, 5000)
    assert told.place == ""  # only for whoever names this boot
    assert client.ends("orders", durable=True).durable == 5000
    queue = client.queue("orders")
    assert queue.extents(0, 5000) == [tuple(each) for each in orders.extents(0, 5000)]
    assert queue.at_ns(orders[77].time_ns) <= 77
    assert client.queues() == ["orders"]


def test_what_was_retired_is_gone_and_not_left_out(client, root):
    with shmq.open(root / "short", chunk_bytes=1 << 14) as queue:
        for _ in range(100):
            queue.put(bytes(1000))
        queue.purge()
        first = queue.first_index
        remote = client.queue("short")
        with pytest.raises(shmq.Gone) as told, remote.read_arrow(0) as batches:
            list(batches)
        assert told.value.first_index == first
        with remote.read_arrow(first) as batches:
            assert next(iter(batches))["index"][0].as_py() == first


def test_damage_is_told_without_a_path(client, orders, root):
    found = chunk_files(root / "orders")[2]
    flip(found, 5000)
    with pytest.raises(shmq.Corrupt) as told, client.queue("orders").read_arrow(0) as batches:
        list(batches)
    assert "orders" in str(told.value)
    assert str(root) not in str(told.value)


def test_whoever_reads_no_further_leaves_nothing_open(service, client, orders, monkeypatch):
    monkeypatch.setattr(services, "_WAIT_SECONDS", 0.0)
    for _ in range(2 * services._STREAMS):
        batches = client.queue("orders").read_arrow(0, 5000, max_rows=1)
        next(iter(batches))
        batches.close()
        del batches
        until(lambda: service._free.acquire(blocking=False))
        service._free.release()
    kept = [client.queue("orders").read_arrow(0, 5000, max_rows=1) for _ in range(services._STREAMS)]
    with pytest.raises(shmq.Busy):
        client.queue("orders").read_arrow(0)
    del kept
    gc.collect()
    orders.close()
    until(lambda: is_deleted(orders.path))


def is_deleted(path):
    """Whether nobody had it open any more."""
    try:
        shmq.delete(path)
    except shmq.Busy:
        return False
    return True


class CutOff:
    """A connection whose streams break, each after some batches."""

    def __init__(self, flight, after):
        self._flight, self._after = flight, after
        self.asked = []

    def __getattr__(self, name):
        return getattr(self._flight, name)

    def do_get(self, ticket):
        self.asked.append(words.decode(words.Read, ticket.ticket).start)
        return Breaking(self._flight.do_get(ticket), self._after)


class Breaking:
    def __init__(self, reader, after):
        self.schema, self._reader, self._after = reader.schema, reader, after

    def __iter__(self):
        for number, chunk in enumerate(self._reader):
            if number == self._after:
                raise fl.FlightUnavailableError("gone")
            yield chunk


def test_a_read_that_is_cut_off_goes_on_behind_the_last_message_that_came(client, orders):
    client._flight = CutOff(client._flight, 3)
    with client.queue("orders").read_arrow(0, 5000, ["payload"], max_rows=400) as batches:
        assert numbers(batches) == list(range(5000))
    assert len(client._flight.asked) > 3
    assert client._flight.asked == sorted(set(client._flight.asked))


# ---------------------------------------------------------------- writing
def test_what_is_written_is_there_once(client, orders):
    assert client.write("orders", table(5000, 5010)) == range(5000, 5010)
    for _ in range(2):
        assert client.write("orders", table(5010, 5020), dedup=("import", 7)) == range(5010, 5020)
    with pytest.raises(shmq.Mismatch):
        client.write("orders", table(0, 1), dedup=("import", 6))
    assert [int(message.payload) for message in orders.reader()] == list(range(5020))
    assert client.queue("orders").adopted("import") == (7, range(5010, 5020))
    assert client.queue("orders").adopted("nobody") is None
    assert client.write("orders", table(0, 0)) == range(5020, 5020)


def test_staged_is_seen_by_nobody_and_adopted_by_its_token_again_and_again(client, orders, monkeypatch):
    monkeypatch.setattr(shmq.flight.remote, "_SET_ROWS", 100)
    queue = client.queue("orders")
    with queue.stage().for_owner("me") as staged:
        staged.put_arrow(table(5000, 5250))
        assert len(staged) == 250
        token = staged.hand_over()
    assert len(orders.staged_sets(owner="me")) == 3
    assert len(orders) == 5000
    for _ in range(2):
        assert queue.adopt(token) == range(5000, 5250)
    assert numbers(orders.read_arrow(5000)) == list(range(5000, 5250))


def test_what_was_staged_and_not_adopted_is_swept(client, orders):
    queue = client.queue("orders")
    with queue.stage().for_owner("me") as staged:
        staged.put_arrow(table(0, 10))
        token = staged.hand_over()
    assert queue.sweep_staged(owner="you") == 0
    assert queue.sweep_staged(owner="me") == 1
    with pytest.raises(shmq.NotFound):
        queue.adopt(token)


CUT_OFF = """
import os, sys, time
import pyarrow as pa, pyarrow.flight as fl
client = fl.connect(sys.argv[1])
batch = pa.record_batch({"payload": pa.array([b"1"] * 10, pa.binary())})
descriptor = fl.FlightDescriptor.for_command(b'{"queue":"orders","owner":"cut"}')
writer, answers = client.do_put(descriptor, batch.schema)
writer.write_batch(batch)
time.sleep(0.2)
os.kill(os.getpid(), 9)
"""


def test_a_client_that_is_killed_in_the_middle_stages_nothing(service, orders):
    """To the service its stream ends as any other; only the last word is missing."""
    done = subprocess.run([sys.executable, "-c", CUT_OFF, service.location], check=False)
    assert done.returncode == -signal.SIGKILL
    until(lambda: service._free._value == services._STREAMS)
    assert orders.staged_sets(owner="cut") == []


def test_a_put_needs_bytes_and_a_queue_without_a_codec(client, orders, root):
    with pytest.raises(ValueError, match="payload"):
        client.write("orders", pa.table({"other": [1]}))
    shmq.open(root / "json", codec="json").close()
    with pytest.raises(ValueError, match="codec"):
        client.write("json", table(0, 1))


def test_bounds_are_the_queues(client, root):
    shmq.open(root / "small", max_messages=5).close()
    client.write("small", table(0, 3))
    with pytest.raises(shmq.Full):
        client.write("small", table(3, 6))
    with pytest.raises(shmq.TooMany):
        client.write("small", table(0, 6))


# ---------------------------------------------------------------- names that hold
def test_a_name_that_follows_holds_and_releases(client, root):
    with shmq.open(root / "kept", chunk_bytes=1 << 14) as queue:
        remote = client.queue("kept")
        assert remote.hold("spark") == 0
        for _ in range(100):
            queue.put(bytes(1000))
        assert remote.follow("spark", 10) == 10
        assert queue.first_index == 0
        assert remote.follow("spark", 90) == 90
        assert remote.follow("spark", 50) == 90  # forward only
        until(lambda: (queue.put(bytes(1000)), queue.first_index)[1] > 0)
        assert queue.first_index <= 90
        assert remote.follow("eyes", 20, hold="nothing") >= 20
        assert queue.consumers()["eyes"].hold == "nothing"
        with queue.consumer("spark"), pytest.raises(shmq.Busy):
            remote.follow("spark", 95)


# ---------------------------------------------------------------- which queue
@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../root/orders", "orders/", "/orders", "orders/chunks", "a/b/c/d/e", "linked", "within/linked",
     "open/orders", "nothing", "orders\0", ".hidden", "o\u0301rders", "x" * 300],
)  # fmt: skip
def test_names_lead_nowhere_else(client, orders, root, name):
    (root / "within").mkdir(mode=0o700)
    for link in (root / "linked", root / "within" / "linked"):
        link.symlink_to(root / "orders")
    (root / "open").mkdir()
    (root / "open").chmod(0o777)
    shutil.copytree(root / "orders", root / "open" / "orders")
    shutil.copytree(root / "orders", root / ".hidden")
    with pytest.raises(shmq.NotFound, match="there is no queue"):
        client.queue(name)
    assert client.queues() == ["orders"]


def test_queues_lie_up_to_four_deep(client, root):
    (root / "a" / "b" / "c").mkdir(parents=True, mode=0o700)
    for name in ("a/b/c/d", "a/x", "a/b/3.000", "a/b/3.001"):
        shmq.open(root / name).close()
    assert client.queues() == ["a/b/3.000", "a/b/3.001", "a/b/c/d", "a/x"]
    assert client.queues("a/b") == ["a/b/3.000", "a/b/3.001", "a/b/c/d"]
    assert client.queues("a/x") == ["a/x"]
    assert client.ends("a/b/c/d").next == 0
    with pytest.raises(shmq.NotFound):
        client.queues("a/y")


def test_another_queue_in_its_place_is_told(client, orders):
    queue = client.queue("orders")
    orders.close()
    shmq.delete(orders.path)
    with pytest.raises(shmq.NotFound):
        queue.ends()
    shmq.open(orders.path).close()
    for work in (queue.ends, lambda: queue.hold("n"), lambda: queue.adopt([]), lambda: queue.read_arrow(0)):
        with pytest.raises(shmq.Mismatch):
            work()


def test_a_local_file_is_read_only_where_it_is_the_very_same(client, orders, root):
    with client.queue("orders").here() as local:
        assert local.path == str(root / "orders")
    moved = root.parent / "moved"
    shutil.copytree(root / "orders", moved)
    queue = client.queue("orders")
    os.rename(root / "orders", root.parent / "real")
    os.rename(moved, root / "orders")  # the same id, at the same path
    assert queue.here() is None


def test_what_is_no_request_is_refused(service, client, orders):
    raw = fl.connect(service.location)
    for verb, body in (
        ("ends", b"{"),
        ("ends", b'{"queue":"orders","strange":1}'),
        ("strange", b"{}"),
        ("ends", b"\xff"),
    ):
        with pytest.raises(fl.FlightServerError, match="ValueError"):
            list(raw.do_action(fl.Action(verb, body)))
    for ticket in (b"", b'{"queue":"orders","start":-1}', b'{"queue":"orders","start":0,"max_bytes":99999999999}'):
        with pytest.raises(fl.FlightServerError, match="ValueError"):
            raw.do_get(fl.Ticket(ticket)).read_all()
    assert {each.type for each in raw.list_actions()} >= {"ends", "hold", "follow", "adopt"}


def test_what_is_not_ours_is_told_by_no_word(service, client, orders, monkeypatch):
    def fail(*_):
        raise RuntimeError(f"/secret/{orders.path}")

    monkeypatch.setitem(services.VERBS, "ends", services.VERBS["ends"]._replace(answer=fail))
    with pytest.raises(shmq.ShmqError, match="log of the service") as told:
        client.ends("orders")
    assert "secret" not in str(told.value)


def test_the_text_of_an_error_crosses_without_the_paths_in_it():
    def said(text, path="/srv/q/orders"):
        return shmq.flight.refusals.told(shmq.Full(text), "adopt into", "orders", path)

    assert "orders has 5 messages" in str(said("/srv/q/orders has 5 messages"))
    for text in ("/srv/q/orders.dead has 5", "cannot open '/etc/x'", "it is (/srv/q)", "a=/b", "in //net/x"):
        assert "/" not in str(said(text)).replace("/srv/q/orders", "").partition("Detail")[0]
        assert "A bound is reached" in str(said(text, None))


def test_what_a_queue_has_become_is_said(root, client):
    """A follower, promoted beside the service; its source, fenced; one that was moved, and another one in its place."""
    source, copy = root / "source", root / "copy"
    with shmq.open(source) as queue:
        queue.put_many([b"0", b"1"])
        shmq.replica.replicate(source, copy, once=True)
        assert numbers(away(client.queue("copy")).read_arrow(0)) == [0, 1]
        for work in (lambda: client.write("copy", table(2, 3)), lambda: client.queue("copy").hold("c")):
            with pytest.raises(shmq.Fenced, match="copy follows another queue"):
                work()
        shmq.replica.promote(copy)
        assert client.write("copy", table(2, 3)).start > 2
        with pytest.raises(shmq.Fenced):
            shmq.replica.replicate(source, copy, once=True)
        with pytest.raises(shmq.Fenced, match="source is fenced"):
            client.write("source", table(2, 3))
        assert numbers(away(client.queue("source")).read_arrow(0)) == [0, 1]
    known = client.queue("source")
    os.rename(source, root / "moved")
    with pytest.raises(shmq.NotFound):
        known.ends()
    assert client.queue("moved").id == known.id
    shmq.open(source).close()
    for work in (known.ends, lambda: known.hold("c"), lambda: away(known).read_arrow(0)):
        with pytest.raises(shmq.Mismatch, match="deleted and made again"):
            work()


# ---------------------------------------------------------------- who may
def tokens_file(at, **rights):
    """Rights by token: a queue, rights, and until when."""
    lines = [f"{hashlib.sha256(token.encode()).hexdigest()} {right}\n" for token, right in rights.items()]
    at.write_text("".join(lines))
    at.chmod(0o600)
    return str(at)


def test_tokens_say_who_may_do_what(root, orders, tmp_path):
    shmq.open(root / "other").close()
    (root / "shop").mkdir(0o700)
    file = tokens_file(
        tmp_path / "tokens",
        reader="orders read never",
        writer="ord* append,read 2999-01-01T00:00:00Z",
        puts="orders append never",
        late="* read 2001-01-01T00:00:00Z",
    )
    with shmq.flight.serve(root, token_file=file) as service:

        def by(token):
            return shmq.flight.connect(service.location, token=token, patience=0)

        for token in (None, "", "strange", "late"):
            with pytest.raises(PermissionError):
                by(token).ends("orders")
        with by("reader") as client:
            assert client.queues() == client.queues("orders") == ["orders"]
            for name in ("other", "shop", "none"):
                with pytest.raises(shmq.NotFound, match=f"there is no queue '{name}' here"):
                    client.queues(name)
            assert numbers(away(client.queue("orders")).read_arrow(0, 3)) == [0, 1, 2]
            for work in (lambda: client.ends("other"), lambda: client.write("other", table(0, 1))):
                with pytest.raises(shmq.NotFound, match="there is no queue 'other' here"):
                    work()
            assert client.queue("orders").hold("x") == 0
            with pytest.raises(shmq.NotFound, match="needs the right 'append' to 'orders', and you have it not"):
                client.write("orders", table(0, 1))
        with by("puts") as client:
            assert client.write("orders", table(0, 1), dedup=("p", 1)) == range(5000, 5001)
            with pytest.raises(shmq.NotFound, match="needs the right 'read' to 'orders'"):
                list(client.queue("orders").read_arrow(0, 3))
        with by("writer") as client:
            assert client.write("orders", table(0, 1)) == range(5001, 5002)
            tokens_file(tmp_path / "tokens", new="orders read never")
            with pytest.raises(PermissionError):
                client.ends("orders")
            assert by("new").ends("orders").next == 5002
            os.chmod(file, 0o666)
            os.utime(file, ns=(1, 1))
            with pytest.raises(PermissionError):
                by("new").ends("orders")
    with pytest.raises(shmq.Unsafe):
        shmq.flight.serve(root, token_file=file)


def test_the_toml_that_tokens_were_once_in_is_refused_with_what_they_are_now(root, tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f'# who\n[[token]]\nsha256 = "{"a" * 64}"\nqueues = ["*"]\nverbs = ["read"]\n')
    file.chmod(0o600)
    with pytest.raises(shmq.BadFormat, match=r"line 2: this is TOML.*as: SHA-256.*write is append, and follow is read"):
        shmq.flight.serve(root, token_file=str(file))


@pytest.mark.parametrize(
    "location",
    [
        "grpc://0.0.0.0:0",
        "grpc://[::]:0",
        "grpc://10.1.2.3:0",
        "grpc+tls://127.0.0.1:0",
        "http://127.0.0.1:0",
        "grpc://",
        "",
    ],
)
def test_nobody_from_outside_comes_in_without_tls_and_tokens(root, location):
    with pytest.raises(ValueError, match="grpc"):
        shmq.flight.serve(root, location)


def certificate(folder, *hosts):
    """A certificate of our own, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is needed to make a certificate")
    names_ = ",".join(f"{'IP' if each[0].isdigit() else 'DNS'}:{each}" for each in hosts)
    words_ = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    words_ += ["-subj", "/CN=shmq", "-addext", f"subjectAltName={names_}"]
    words_ += ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/certificate.pem"]
    subprocess.run(words_, check=True, capture_output=True)
    return f"{folder}/certificate.pem", f"{folder}/key.pem"


def test_tls_shows_who_serves(root, orders, tmp_path):
    cert, key = certificate(tmp_path, "127.0.0.1")
    file = tokens_file(tmp_path / "tokens", secret="* read never")
    with shmq.flight.serve(root, "grpc+tls://127.0.0.1:0", certificate=cert, key=key, token_file=file) as service:
        with shmq.flight.connect(service.location, token="secret", roots=cert, patience=5) as client:
            assert client.ends("orders").next == 5000
        stranger = shmq.flight.connect(service.location, token="secret", patience=0)
        with stranger, pytest.raises(shmq.flight.Unreachable):
            stranger.ends("orders")


def test_the_socket_of_a_path_is_its_owners(root, orders, tmp_path):
    at = tmp_path / "socket"
    with shmq.flight.serve(root, f"grpc+unix://{at}") as service, shmq.flight.connect(service.location) as client:
        assert stat.S_IMODE(os.stat(at).st_mode) & 0o077 == 0
        assert client.ends("orders").next == 5000


def test_names_in_a_list_are_bounded(root, monkeypatch):
    monkeypatch.setattr(names, "MOST", 3)
    for number in range(4):
        shmq.open(root / f"q{number}").close()
    with pytest.raises(shmq.TooMany):
        names.below(str(root), "")


def test_a_word_of_a_newer_client_is_refused():
    with pytest.raises(ValueError, match="EndsOf"):
        words.decode(words.EndsOf, b'{"queue":"q","newer":1}')


# ---------------------------------------------------------------- killed
@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_service_that_is_killed_again_and_again_costs_time_alone(root, tmp_path, kills):
    """What is read comes once and in order, and what is written is there once."""
    shmq.open(root / "in", retention="forever").close()
    shmq.open(root / "out", retention="forever").close()
    with Served(root, f"grpc+unix://{tmp_path}/socket") as served:
        outcome = Moving(served.location)
        mover = threading.Thread(target=outcome.run)
        mover.start()
        for _ in range(kills):
            served.process.send_signal(signal.SIGSTOP)  # in the middle of something
            before = outcome.batches
            served.kill()
            served.start()
            until(lambda before=before: outcome.batches > before or not mover.is_alive())
        outcome.last.set()
        mover.join()
    assert outcome.problem is None
    for name in ("in", "out"):
        with shmq.open(root / name, read_only=True) as queue:
            assert [int(message.payload) for message in queue.reader()] == list(range(outcome.batches * 2000))


class Moving:
    """Write into one queue, read it back, and write that into another one."""

    def __init__(self, location):
        self.client = shmq.flight.connect(location)
        self.batches, self.problem = 0, None
        self.last = threading.Event()

    def run(self):
        try:
            while not self.last.is_set():
                self.move(self.batches)
                self.batches += 1
        except Exception as problem:  # noqa: BLE001  # the test shows it
            self.problem = problem

    def move(self, number):
        at = number * 2000
        assert self.client.write("in", table(at, at + 2000), dedup=("in", number)).start == at
        with away(self.client.queue("in")).read_arrow(at, at + 2000, max_rows=500) as batches:
            there = [batch.drop_columns(["index", "key"]) for batch in batches]
        assert self.client.write("out", there, dedup=("out", number)).start == at


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_told_to_end(root, orders, number):
    with Served(root, "grpc://127.0.0.1:0") as served:
        with shmq.flight.connect(served.location) as client:
            assert client.ends("orders").next == 5000
        served.process.send_signal(number)
        assert served.process.communicate(timeout=60)[1] == ""
        assert served.process.returncode == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda flight: list(flight.list_flights()),
        lambda flight: flight.get_flight_info(fl.FlightDescriptor.for_path("orders")),
        lambda flight: flight.get_schema(fl.FlightDescriptor.for_path("orders")),
        lambda flight: flight.do_exchange(fl.FlightDescriptor.for_path("orders"))[1].read_chunk(),
    ],
)
def test_verbs_that_are_not_served_are_refused_in_words(service, orders, ask):
    """And nothing of the server's files is in them."""
    with (
        fl.connect(service.location) as flight,
        pytest.raises((fl.FlightError, OSError), match="'queues' is one that says") as told,
    ):
        ask(flight)
    assert "Traceback" not in str(told.value)
    assert ".py" not in str(told.value)


@pytest.mark.parametrize("tokens", [b"token", [b"token"], None, 7, ["token", 7]])
def test_what_is_no_token_is_adopted_by_nobody(client, orders, tokens):
    with pytest.raises(TypeError, match=r"what hand_over\(\) returned, a str or several of them, is wanted, not "):
        client.queue("orders").adopt(tokens)


def test_a_client_that_reads_no_further_does_not_keep_the_service_from_ending(root):
    with shmq.open(root / "large") as queue:
        queue.put_many([bytes(1 << 20)] * 40)
    with Served(root, "grpc://127.0.0.1:0") as served, shmq.flight.connect(served.location) as client:
        batches = iter(client.queue("large").read_arrow(0, 40))
        next(batches)
        served.process.send_signal(signal.SIGTERM)
        assert served.end() == 0


@pytest.mark.parametrize("token", ["s" * 64 + "\n", "s s", "sücret", "s" * 5000, 'a"b', "a\\b"])
@pytest.mark.parametrize("connect", [shmq.flight.connect, shmq.net.connect], ids=["flight", "net"])
def test_a_token_that_nobody_can_show_is_refused_before_it_is_sent(connect, token):
    """With the end of its file's line above all: gRPC refused that as if it might have been done."""
    with pytest.raises(ValueError, match="token: at most 4096 visible characters") as told:
        connect("csp://127.0.0.1:1/q" if connect is shmq.net.connect else "grpc://127.0.0.1:1", token=token)
    assert token not in str(told.value)


def test_a_token_is_shown_to_nobody_on_the_way():
    with pytest.raises(ValueError, match="not shown"):
        shmq.flight.connect("grpc://10.1.2.3:1", token="secret")


def test_a_service_that_is_away_for_long_is_unreachable(tmp_path):
    with shmq.flight.connect(f"grpc+unix://{tmp_path}/nobody", patience=0.2) as client:
        begun = time.monotonic()
        with pytest.raises(shmq.flight.Unreachable, match="asked again"):
            client.ends("orders")
        assert time.monotonic() - begun > 0.2
