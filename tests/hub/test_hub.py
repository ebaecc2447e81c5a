"""Queues of many machines under one root: each client's by its names, and nobody else's."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
import types

import pytest
from hubs import Hub, clients_file, content, names_in, push_once, token_of
from support import Child, until

import shmq
from shmq import hub, replica
from shmq.hub.clients import Clients, fits
from shmq.replica import doors
from shmq.replica.link import Link, raised, to_source
from shmq.replica.pieces import Refused
from shmq.replica.source import Source


def test_two_clients_push_at_the_same_time(root, clients, tmp_path):
    """Each its own queue, while it is put into; the hub has them with the same indexes, times and keys."""
    places = {f"till-{number}": tmp_path / f"here-{number}" for number in (1, 2)}
    queues = {client: shmq.open(place) for client, place in places.items()}
    with Hub(root, clients) as there:

        def push(say, client) -> None:
            replica.replicate(places[client], there.at, name=f"{client}.orders", token=token_of(client))

        with Child(push, "till-1"), Child(push, "till-2"):
            for number in range(300):
                for client, queue in queues.items():
                    queue.put(f"{client} {number}".encode(), key=b"k%d" % (number % 7))
            for client, place in places.items():
                at = root / f"{client}.orders"
                until(lambda at=at, place=place: at.exists() and content(at) == content(place))
    assert names_in(root) == ["till-1.orders", "till-2.orders"]
    for queue in queues.values():
        queue.close()


def test_all_shards_of_a_root_and_those_of_its_growth(root, clients, tmp_path):
    """As CLIENT.BIT.INDEX; keys keep their order, for every shard is the same queue."""
    place = tmp_path / "shards"
    with shmq.shards.open(place, shards=2) as shards, Hub(root, clients) as there:
        with Child(lambda say: hub.push(place, there.at, client="till-1", token=token_of("till-1"))):
            for number in range(100):
                shards.put(b"%d" % number, key=b"k%d" % (number % 11))
            shards.grow()
            for number in range(100):
                shards.put(b"%d" % number, key=b"k%d" % (number % 11))
            names = ["1.000", "1.001", "2.000", "2.001", "2.002", "2.003"]
            until(lambda: names_in(root) == [f"till-1.{name}" for name in names])
            for name in names:
                until(lambda name=name: content(root / f"till-1.{name}") == content(place / name))
            with shmq.open(str(root / "till-1.1.000"), read_only=True) as old:
                until(lambda: old.stats().finished)
        assert sum(len(content(root / f"till-1.{name}")) for name in names) == 200


def test_the_names_of_others_are_refused_whether_there_is_something_or_not(root, clients, orders, tmp_path):
    """By the same words; nothing is made, read, or changed there."""
    with Hub(root, clients) as there:
        push_once(orders.path, there.at, "till-1.orders")
        before = content(root / "till-1.orders")
        said = []
        with shmq.open(tmp_path / "mine") as mine:
            mine.put(b"mine")
        others = ("till-1.orders", "till-1.none", "till-3.orders", "till-1", "orders", ".hub", "till-2", "till-22.a")
        for name in (
            *others,
            "../till-2.a",
            "till-2./a",
            "till-2.../a",
            "till-2.1.002",
            "till-2.b.000",
            "till-2.a.b.c",
        ):
            with shmq.open(tmp_path / "mine") as mine, pytest.raises(shmq.NotFound) as refused:
                send_as(there.at, "till-2", mine, name)
            said.append(str(refused.value).replace(repr(name), "NAME"))
        assert set(said) == {"there is no queue NAME for you at this hub; a client's begin with its name"}
        assert names_in(root) == ["till-1.orders"]
        assert content(root / "till-1.orders") == before
        push_once(tmp_path / "mine", there.at, "till-2.orders")


def send_as(at, client, queue, name) -> None:
    """Come with that name, which no consumer name here might be able to have."""
    with Source(str(queue.path), "x") as source, Link(doors.connect(at, token_of(client)), to_source) as link:
        source.name = name
        link.send(source.hello())
        answer = link.receive()
        if isinstance(answer, Refused):
            raise raised(answer)


def test_who_knows_no_token_does_not_come_in(root, clients, orders):
    """Nor does a client whose time is over; and a hub that knows none is found out."""
    with Hub(root, clients) as there:
        with pytest.raises(shmq.Unsafe, match="has another token; nothing was sent"):
            push_once(orders.path, there.at, "till-1.orders", client="till-9")
        with pytest.raises(shmq.Unsafe, match="without a token"):
            replica.replicate(orders.path, there.at, name="till-1.orders", once=True)
        with socket.create_connection(("127.0.0.1", int(there.at.rpartition(":")[2])), timeout=10) as guessing:
            assert len(guessing.recv(32)) == 32
            guessing.sendall(bytes(64))
            assert guessing.recv(64).rstrip(b"\0") == b"shmq: another token is wanted"
            assert guessing.recv(64) == b""
    with Hub(root, clients_file(clients, "till-1", until="2020-01-01")) as there, pytest.raises(shmq.NotFound):
        push_once(orders.path, there.at, "till-1.orders")
    assert names_in(root) == []


def test_a_client_whose_time_ends_while_it_pushes(root, clients, orders, monkeypatch):
    """Is told so at its next message."""
    with Hub(root, clients) as there:
        push_once(orders.path, there.at, "till-1.orders")
    before = content(root / "till-1.orders")
    orders.put(b"late")
    asked = iter([0.0])  # when it says who it is; then the time is over
    clock = types.SimpleNamespace(time=lambda: next(asked, 1e12), monotonic=time.monotonic)
    monkeypatch.setattr("shmq.hub.arrivals.time", clock)
    clients_file(clients, "till-1", until="9999-01-01")
    with Hub(root, clients) as there, pytest.raises(shmq.NotFound):
        push_once(orders.path, there.at, "till-1.orders")
    assert content(root / "till-1.orders") == before


def test_what_is_refused_tells_nothing_of_the_hubs_disk(root, clients, orders, tmp_path):
    """Another queue by the same name is a Mismatch, with the name alone."""
    with Hub(root, clients) as there:
        push_once(orders.path, there.at, "till-1.orders")
        shmq.open(tmp_path / "other").close()
        with pytest.raises(shmq.Mismatch, match="another queue") as refused:
            push_once(tmp_path / "other", there.at, "till-1.orders")
        assert "till-1.orders" in str(refused.value)
        assert str(tmp_path) not in str(refused.value)


def test_a_client_that_is_half_gone_is_in_nobodys_way(root, clients, orders):
    """Its old link is open and silent; it comes again, and the old one is over."""
    with Hub(root, clients) as there, Source(orders.path, "old") as source:
        source.name = "till-1.orders"
        with Link(doors.connect(there.at, token_of("till-1")), to_source) as link:
            link.send(source.hello())
            link.receive()
            push_once(orders.path, there.at, "till-1.orders")
            with pytest.raises(ConnectionError):
                link.receive()
    assert content(root / "till-1.orders") == content(orders.path)


def test_whatever_a_client_sends_others_go_on(root, clients, orders):
    """What is no piece ends its link, and so does silence before it said who it is."""
    with Hub(root, clients) as there:
        port = int(there.at.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as half:
            half.sendall(b"x")
            for sent in (b"\xff" * 64, bytes(64), b"\x05\0\0\0hello", b"\x10\0\0\0" + bytes(16)):
                with doors.connect(there.at, token_of("till-2")) as bad:
                    left = b""
                    with contextlib.suppress(OSError):  # it may be left before it has said all
                        bad.sendall(sent)
                        bad.shutdown(socket.SHUT_WR)
                        left = bad.recv(1)
                    assert left == b""
            push_once(orders.path, there.at, "till-1.orders")
    assert names_in(root) == ["till-1.orders"]


def test_strangers_are_left_after_a_while(root, clients, monkeypatch):
    """However slowly they say who they are: a byte now and then is not enough."""
    monkeypatch.setattr("shmq.hub.service._HELLO_S", 0.4)
    with Hub(root, clients) as there, socket.create_connection(("127.0.0.1", int(there.at.rpartition(":")[2]))) as slow:
        slow.settimeout(10)
        for _ in range(64):
            time.sleep(0.02)
            with contextlib.suppress(ConnectionError):
                slow.sendall(b"x")
        said = b""
        with contextlib.suppress(ConnectionError):
            while part := slow.recv(64):
                said += part
        assert len(said) < 64, "it was heard to the end"


def test_who_proves_slowly_that_it_knows_a_token_has_so_much_time_in_all(monkeypatch):
    """Each byte in time is not enough, also where nobody else looks at the clock."""
    monkeypatch.setattr(doors, "_HELLO_S", 0.3)
    near, far = socket.socketpair()
    with near, far:

        def drip() -> None:
            with contextlib.suppress(OSError):
                for _ in range(63):
                    far.send(b"x")
                    time.sleep(0.05)

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(TimeoutError):
            doors.let_in(near, [bytes(32)])
        near.close()
        thread.join()


# ---------------------------------------------------------------- TLS
@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Files of a certificate authority, and of another one."""
    trustme = pytest.importorskip("trustme")
    place, ca = tmp_path_factory.mktemp("tls"), trustme.CA()
    ca.cert_pem.write_to_path(place / "ca.pem")
    trustme.CA().cert_pem.write_to_path(place / "other.pem")
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(place / "host.pem")
    return place


def test_other_machines_come_by_tls_alone(root, clients, orders, authority):
    """Both ways, many messages; whoever does not believe the certificate sends nothing."""
    orders.put_many([b"%d " % number * 200 for number in range(5000)])
    pem = str(authority / "host.pem")
    with Hub(root, clients, "tcp:0.0.0.0:0", certificate=pem) as there:
        at = there.at.replace("0.0.0.0", "127.0.0.1")
        push_once(orders.path, at, "till-1.orders", ca=str(authority / "ca.pem"))
        assert content(root / "till-1.orders") == content(orders.path)
        with pytest.raises(shmq.Unsafe, match="its certificate does not say so"):
            push_once(orders.path, at, "till-1.orders", ca=str(authority / "other.pem"))
        with pytest.raises(shmq.Unsafe, match=r"no\.pem"):
            push_once(orders.path, at, "till-1.orders", ca=str(authority / "no.pem"))
        old = ssl.create_default_context(cafile=authority / "ca.pem")
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        plain = socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])), timeout=10)
        with plain, pytest.raises((ssl.SSLError, ConnectionError)):
            old.wrap_socket(plain, server_hostname="127.0.0.1").recv(1)
    with pytest.raises(shmq.Unsafe, match="other machines reach"):
        hub.serve(root, "tcp:0.0.0.0:0", token_file=clients)


# ---------------------------------------------------------------- what is asked for wrongly
def test_one_hub_to_a_root_and_no_socket_files(root, clients):
    with Hub(root, clients), pytest.raises(shmq.Busy):
        hub.serve(root, "tcp:127.0.0.1:0", token_file=clients)
    with pytest.raises(ValueError, match="tcp:HOST:PORT"):
        hub.serve(root, f"unix:{root}/door", token_file=clients)


@pytest.mark.parametrize(
    "queue", ["till-1", "till-1*", "*", "ab.*", "0x.*", "a.*", "till-1.orders", "ti/ll.*", "till-1.*.*"]
)
def test_a_line_that_is_of_no_client_is_refused(tmp_path, queue):
    place = tmp_path / "clients"
    place.write_text(f"# one\n{'a' * 64} {queue} replicate never\n")
    place.chmod(0o600)
    with pytest.raises(shmq.BadFormat, match="line 2"):
        Clients(place)


def test_one_token_is_one_client_and_other_rights_are_none(tmp_path):
    place = tmp_path / "clients"
    place.touch(0o600)
    place.write_text(f"{'a' * 64} till-1.* replicate never\n{'a' * 64} till-2.* replicate never\n")
    with pytest.raises(shmq.BadFormat, match="line 2"):
        Clients(place)
    place.write_text(f"{'a' * 64} till-1.* read,append never\n")
    with pytest.raises(shmq.BadFormat, match="no client"):
        Clients(place)


def test_a_file_of_clients_that_others_can_read_is_refused(tmp_path, clients):
    """Whoever has a line of it can come as that client."""
    clients.chmod(0o640)
    with pytest.raises(shmq.Unsafe, match="others can read it"):
        hub.serve(tmp_path, "tcp:127.0.0.1:0", token_file=clients)


def test_what_a_clients_queues_may_be_called():
    for name in ("till.orders", "till.1.000", "till.1.001", "till.a.3ff", "till.3.007", "till.A-b_9"):
        assert fits("till", name)
    for name in (
        "till.",
        "till.1.002",
        "till.b.000",
        "till.3.7",
        "till.a.400",
        "till.x.y",
        f"till.{'x' * 49}",
        "tilla.x",
    ):
        assert not fits("till", name)


def test_shards_are_pushed_under_a_clients_name(tmp_path):
    shmq.shards.open(tmp_path / "s", shards=1, prefix="one").close()
    with pytest.raises(ValueError, match="client="):
        hub.push(tmp_path / "s", "tcp:127.0.0.1:1", client="ab")
    with pytest.raises(ValueError, match="address="):
        hub.push(tmp_path / "s", str(tmp_path / "t"), client="till")
    with pytest.raises(shmq.NotFound):
        hub.push(tmp_path, "tcp:127.0.0.1:1", client="till")


def test_a_single_shard_and_what_one_shard_meets_ends_all(root, clients, tmp_path):
    with shmq.shards.open(tmp_path / "s", shards=1, prefix="one") as shards, Hub(root, clients) as there:
        shards.put(b"a", key=b"k")
        hub.push(tmp_path / "s", there.at, client="till-1", token=token_of("till-1"), once=True)
        assert names_in(root) == ["till-1.one"]
        shards.grow()
        with pytest.raises(shmq.NotFound):
            hub.push(tmp_path / "s", there.at, client="till-2", token=token_of("till-1"))
    assert names_in(root) == ["till-1.one"]
