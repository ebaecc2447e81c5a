"""
A client on another machine, over a line that delays, loses, is cut in the middle of a batch, and carries one way alone:
each message is there once, in order, and comes once.
"""

from __future__ import annotations

import hashlib
import ssl
import time

import pytest
from far import THERE, apart
from support import DEADLINE, until

import shmq
from shmq.net import packing

trustme = pytest.importorskip("trustme")
TOKEN = "f" * 64
SIZE = 3000


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    place, made = tmp_path_factory.mktemp("tls"), trustme.CA()
    made.cert_pem.write_to_path(place / "ca.pem")
    made.issue_cert(THERE).private_key_and_cert_chain_pem.write_to_path(place / "host.pem")
    (place / "tokens").write_text(f"{hashlib.sha256(TOKEN.encode()).hexdigest()} orders append,read never\n")
    (place / "tokens").chmod(0o600)
    return place


def _of(number: int) -> bytes:
    return b"%d " % number + bytes(SIZE)


def _far(root, authority, batches: int, grace: float, delay: float, loss: float, trouble) -> None:
    """Put so many batches of 10 and take them on the way, while *trouble* happens."""

    def serve(say) -> None:
        packing.GRACE = grace
        shmq.net.serve(
            root,
            f"tcp:{THERE}:9000",
            certificate=str(authority / "host.pem"),
            token_file=authority / "tokens",
            on_start=lambda _: say("ready"),
        )

    def use(say) -> None:
        tls = ssl.create_default_context(cafile=authority / "ca.pem")
        with shmq.net.connect(f"csp://{THERE}:9000/orders", tls=tls, token=TOKEN, timeout=30) as remote:
            group = remote.consumer("g", group=True, ack="explicit")
            say("connected")
            futures = [
                remote.submit_many([_of(number) for number in range(first, first + 10)])
                for first in range(0, 10 * batches, 10)
            ]
            done: dict[int, int] = {}
            while len(done) < 10 * batches:
                try:
                    messages = group.get_many(50, timeout=1.0)
                    group.ack(*messages)
                except (shmq.Empty, shmq.LeaseLost):  # what was not acknowledged comes again
                    continue
                for message in messages:
                    assert message.payload == _of(message.index)
                    assert message.index not in done, "it was acknowledged, and came again"
                    done[message.index] = message.attempts
                say(f"took {len(done)}")
            assert [future.result(DEADLINE) for future in futures] == [
                range(first, first + 10) for first in range(0, 10 * batches, 10)
            ]
            assert group.lag == 0
            say("over")

    with shmq.open(root / "orders") as queue, apart(serve, use, delay=delay, loss=loss) as (client, air):
        assert client.hear(4 * DEADLINE) == "connected"
        trouble(queue, air)
        while (said := client.hear(6 * DEADLINE)) != "over":
            assert said.startswith("took ")
        assert client.join() == 0
        assert queue.next_index == 10 * batches  # and each index had the message that was put there


def _are_there(queue, count: int) -> None:
    until(lambda: queue.next_index >= count, 6 * DEADLINE)


def test_over_a_bad_line_that_is_cut_in_a_batch_each_message_is_there_once_and_comes_once(root, authority):
    def trouble(queue, air) -> None:
        _are_there(queue, 20)
        air.cut()  # megabytes are under way: some batch is in the middle
        time.sleep(0.3)
        air.mend()

    _far(root, authority, 40, 10.0, 0.01, 0.02, trouble)


@pytest.mark.parametrize("way", ["up", pytest.param("down", marks=pytest.mark.slow)])
def test_a_line_that_carries_one_way_alone_for_longer_than_the_grace(root, authority, way):
    """The other side looks alive, and hears nothing; or is heard by nobody, and says all."""

    def trouble(queue, air) -> None:
        _are_there(queue, 20)
        air.carries[way] = False
        time.sleep(1.5)
        air.mend()

    _far(root, authority, 40, 0.6, 0.002, 0.0, trouble)


@pytest.mark.slow
def test_over_a_very_bad_line_with_cuts_of_every_kind(root, authority):
    """200 ms there and back, 1 packet of 20 lost."""

    def trouble(queue, air) -> None:
        for count, cut in ((50, air.cut), (300, lambda: air.carries.update(up=False)), (700, air.cut)):
            _are_there(queue, count)
            cut()
            time.sleep(5.0)
            air.mend()
        _are_there(queue, 1000)
        air.carries["down"] = False
        time.sleep(12.0)
        air.mend()

    _far(root, authority, 200, 10.0, 0.1, 0.05, trouble)
