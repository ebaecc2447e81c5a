"""A remote queue over TLS 1.3, with a token, and what a token may do."""

from __future__ import annotations

import hashlib
import os
import ssl

import pytest
from support import Child

import shmq

trustme = pytest.importorskip("trustme")
BOTH, READS = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    place = tmp_path_factory.mktemp("tls")
    made = trustme.CA()
    made.cert_pem.write_to_path(place / "ca.pem")
    made.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(place / "host.pem")
    return place


def line(token: str, verbs: str) -> str:
    return f"{hashlib.sha256(token.encode()).hexdigest()} orders {verbs} never\n"


def test_over_tls_a_token_says_what_a_client_may_do(orders, root, tmp_path, authority):
    tokens = tmp_path / "tokens"
    tokens.write_text(line(BOTH, "append,read") + line(READS, "read"))
    tokens.chmod(0o600)

    def serve(say):
        shmq.net.serve(
            root,
            "tcp:127.0.0.1:0",
            certificate=str(authority / "host.pem"),
            token_file=tokens,
            on_start=lambda told: say(told[0]),
        )

    with Child(serve) as child:
        csp = f"csp://127.0.0.1:{child.hear().rpartition(':')[2]}/orders"
        tls = ssl.create_default_context(cafile=authority / "ca.pem")
        with shmq.net.connect(csp, tls=tls, token=BOTH) as queue, queue.consumer("c") as consumer:
            assert queue.put_many([bytes(1000)] * 5000) == range(5000)
            found = 0
            while found < 5000:
                found += len(consumer.take_many(1000, timeout=10))
            with pytest.raises(TypeError, match="TLS context"):
                queue.__reduce__()
        with shmq.net.connect(csp, tls=tls, token=READS) as queue:
            assert queue[0].payload == bytes(1000)
            for refused in (lambda: queue.put(b"x"), queue.finish, lambda: queue.put(b"x", dedup=("p", 1))):
                with pytest.raises(shmq.NotFound):
                    refused()
        with pytest.raises(shmq.NotFound, match="token"):
            shmq.net.connect(csp, tls=tls, token="c" * 64)
        with pytest.raises(shmq.NotFound, match="token"):
            shmq.net.connect(csp, tls=tls)
        with pytest.raises(OSError, match="certificate verify failed"):
            shmq.net.connect(csp, tls=ssl.create_default_context(), token=BOTH)
    assert orders.next_index == 5000


def test_where_letters_go_is_a_queue_that_the_client_may_append_to(orders, root, tmp_path, authority):
    """A name below the root, and no path; what a client may not append to is not there for it, and nothing is made."""
    (root / "shop").mkdir(mode=0o700)
    for name in ("orders.dead", "shop/letters", "private"):
        shmq.open(root / name).close()
    shmq.open(tmp_path / "outside").close()
    tokens = tmp_path / "tokens"
    digest = hashlib.sha256(BOTH.encode()).hexdigest()
    tokens.write_text(
        line(BOTH, "read")
        + f"{digest} orders.dead append never\n{digest} shop/* append never\n{digest} new append never\n"
    )
    tokens.chmod(0o600)

    def serve(say):
        shmq.net.serve(
            root,
            "tcp:127.0.0.1:0",
            certificate=str(authority / "host.pem"),
            token_file=tokens,
            on_start=lambda told: say(told[0]),
        )

    with Child(serve) as child:
        csp = f"csp://127.0.0.1:{child.hear().rpartition(':')[2]}/orders"
        tls = ssl.create_default_context(cafile=authority / "ca.pem")
        with shmq.net.connect(csp, tls=tls, token=BOTH) as queue:
            for option in ("dead_letter", "expire_to"):
                for name in ("private", "new", "../outside", str(tmp_path / "outside"), str(root / "orders.dead"), "."):
                    with pytest.raises(shmq.NotFound) as caught:
                        queue.consumer("x", group=True, ack="explicit", **{option: name})
                    assert str(caught.value) == f"there is no queue {name!r}"
            for number, name in enumerate(("orders.dead", "shop/letters")):
                orders.put(b"%d" % number)
                group = {"group": True, "ack": "explicit", "start": number, "dead_letter": name}
                with queue.consumer(f"g{number}", **group) as consumer, queue.consumer(f"g{number}", **group):
                    consumer.get(timeout=10).reject("no")
                with shmq.open(root / name, create=False) as letters:
                    assert [letter.payload for letter in letters.reader()] == [b"%d" % number]
            with pytest.raises(ValueError, match="'spin_for' at a server"):
                queue.consumer("y", spin_for=3)
    assert sorted(os.listdir(root)) == [".serve", "orders", "orders.dead", "private", "shop"]
    assert "x" not in orders.consumers()
