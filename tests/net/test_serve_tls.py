"""TLS 1.3 with tokens or clients' certificates; what a token may do; what the file of tokens must be."""

from __future__ import annotations

import hashlib
import os
import ssl
import struct

import pytest
from peers import Forked, Peer, frame, refusal

import shmq
from shmq import net
from shmq.net.tokens import Tokens

trustme = pytest.importorskip("trustme")
TOKEN, OTHER = "a" * 64, "b" * 64


def line(token: str, *words: str) -> str:
    return " ".join((hashlib.sha256(token.encode()).hexdigest(), *words)) + "\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """A certificate authority, and its files."""
    place = tmp_path_factory.mktemp("tls")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(place / "ca.pem")
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(place / "host.pem")
    ca.issue_cert("someone@example.org").private_key_and_cert_chain_pem.write_to_path(place / "client.pem")
    trustme.CA().issue_cert("someone@example.org").private_key_and_cert_chain_pem.write_to_path(place / "stranger.pem")
    return place


@pytest.fixture
def token_file(tmp_path):
    place = tmp_path / "tokens"
    place.write_text(
        "# tokens\n" + line(TOKEN, "orders", "append,read", "never") + line(OTHER, "ord*", "read", "2099-01-01")
    )
    place.chmod(0o600)
    return place


def client(authority, certificate=None, most=ssl.TLSVersion.TLSv1_3):
    """What wraps a socket into TLS."""
    context = ssl.create_default_context(cafile=authority / "ca.pem")
    context.maximum_version = most
    if certificate:
        context.load_cert_chain(authority / certificate)
    return lambda plain: context.wrap_socket(plain, server_hostname="127.0.0.1")


def greeting(token: str) -> bytes:
    return frame(f"header: {{ wire-formats: [ Text ], token: {token} }}")


def test_tls_takes_a_token_and_a_token_its_rights(root, orders, authority, token_file):
    orders.put(b"a")
    with Forked(root, "tcp:0.0.0.0:0", certificate=str(authority / "host.pem"), token_file=token_file) as server:
        wrap = client(authority)
        with Peer(server.port, wrap) as peer:
            peer.send(greeting(TOKEN))
            assert peer.frame() == (0, {"header-reply": {"wire-format": "Text"}})
            assert peer.ask("csp: //host/orders#appender", "submit: b") == {"index": 1}
        with Peer(server.port, wrap) as peer:
            peer.send(greeting(OTHER))
            assert peer.frame() == (0, {"header-reply": {"wire-format": "Text"}})
            assert peer.ask("csp: //host/orders#tailer", "hasNext: { }") == {"index": 0, "reply": [b"a"]}
            assert refusal(peer.ask("csp: //host/orders#appender", "submit: c"))[0] == "NotFound"
        for said in (greeting("c" * 64), frame("header: { }"), frame("heartbeat: 1"), frame("tid: 1", 1 << 30)):
            with Peer(server.port, wrap) as peer:
                peer.send(said)
                assert peer.is_left().startswith("a token is wanted")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            Peer(server.port, client(authority, most=ssl.TLSVersion.TLSv1_2))
        with Peer(server.port) as plain:
            plain.send(greeting(TOKEN))
            with pytest.raises((EOFError, ConnectionError)):
                plain._exactly(1 << 20)
    assert len(orders) == 2


def test_a_clients_certificate_is_enough_and_a_strangers_is_nothing(root, orders, authority):
    pem, ca = str(authority / "host.pem"), str(authority / "ca.pem")
    with Forked(root, "tcp:0.0.0.0:0", certificate=pem, client_ca=ca) as server:
        with Peer(server.port, client(authority, "client.pem")) as peer:
            assert peer.ask("csp: //host/orders#appender", "submit: a") == {"index": 0}
        for certificate in (None, "stranger.pem"):
            with pytest.raises((ssl.SSLError, EOFError, ConnectionError)), \
                    Peer(server.port, client(authority, certificate)) as peer:  # fmt: skip
                peer.ask("csp: //host/orders#appender", "submit: b")
    assert len(orders) == 1


def test_with_both_either_is_enough(root, orders, authority, token_file):
    pem, ca = str(authority / "host.pem"), str(authority / "ca.pem")
    with Forked(root, "tcp:127.0.0.1:0", certificate=pem, client_ca=ca, token_file=token_file) as server:
        with Peer(server.port, client(authority, "client.pem")) as peer:
            assert peer.ask("csp: //host/orders#appender", "submit: a") == {"index": 0}
        with Peer(server.port, client(authority)) as peer:
            peer.send(greeting(TOKEN))
            peer.frame()
            assert peer.ask("csp: //host/orders#appender", "submit: b") == {"index": 1}


def test_a_certificate_alone_opens_no_address_to_others(root, authority):
    with pytest.raises(shmq.Unsafe):
        net.serve(root, "tcp:0.0.0.0:0", certificate=str(authority / "host.pem"))


def test_a_token_is_wanted_on_loopback_too_and_not_of_the_owner(root, orders, token_file):
    with Forked(root, "tcp:127.0.0.1:0", f"unix:{root}/s", token_file=token_file) as server:
        with Peer(server.port) as peer:
            peer.send(frame("heartbeat: 1"))
            assert peer.is_left().startswith("a token is wanted")
        with Peer(server.port) as peer:
            peer.send(struct.pack("<I", 4097))
            assert peer.is_left() == "a frame of 4097 bytes; 4096 are the most"
        with Peer(server.port) as peer:
            peer.send(greeting(TOKEN))
            peer.frame()
            assert peer.ask("csp: //host/orders#appender", f"submit: {'x' * 100_000}") == {"index": 0}
        with Peer(server.path) as peer:
            assert peer.ask("csp: //host/orders#appender", "submit: a") == {"index": 1}


@pytest.mark.parametrize(
    "text",
    [
        "orders append never\n",
        "xyz orders append never\n",
        line(TOKEN, "orders", "write", "never"),
        line(TOKEN, "orders", "append", "tomorrow"),
        line(TOKEN, "orders", "append"),
    ],
)
def test_a_line_that_is_none_is_named_and_not_shown(tmp_path, text):
    place = tmp_path / "tokens"
    place.write_text(f"# one\n{text}")
    with pytest.raises(shmq.BadFormat, match="line 2") as refused:
        Tokens(place)
    assert "orders" not in str(refused.value)


def test_a_token_ends_and_a_file_that_others_write_is_refused(tmp_path, token_file):
    place = tmp_path / "old"
    place.write_text(line(TOKEN, "orders", "read", "2020-01-01T00:00:00Z") + line(TOKEN, "shop/*", "append", "never"))
    may = Tokens(place).rights(TOKEN).may
    assert may("append", "shop/a")
    assert not any((may("read", "orders"), may("read", "shop/a"), may("append", "shop")))
    assert Tokens(place).rights(OTHER) is None
    assert TOKEN.encode() not in place.read_bytes()
    os.chmod(token_file, 0o666)
    with pytest.raises(shmq.Unsafe):
        Tokens(token_file)


@pytest.mark.parametrize("missing", ["certificate", "key", "client_ca"])
def test_a_file_that_is_missing_is_named(root, authority, missing):
    given = {"certificate": str(authority / "host.pem"), missing: str(root / "nix")}
    with pytest.raises(FileNotFoundError, match=str(root / "nix")):
        net.serve(root, listen="tcp:127.0.0.1:0", **given)
