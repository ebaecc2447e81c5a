"""The main verbs from many threads on one handle, switched a million times a second."""

from __future__ import annotations

import sys
import threading

import pytest

import shmq

THREADS, EACH = 8, 120


@pytest.fixture
def hasty():
    """The interpreter switches threads whenever it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("name", ["consumer", "group"])
def test_eight_threads_on_one_handle_put_get_and_ack_each_message_once(name, tmp_path):
    """Through several chunks, with a seat, a chain, a checkpoint and a ring for all of them."""
    with shmq.open(str(tmp_path / "q"), chunk_bytes=16384) as queue:
        taker = queue.consumer("c", ack="explicit", group=name == "group")
        seen, problems = [], []

        def work(mine):
            try:
                for number in range(EACH):
                    queue.put(b"%d.%d" % (mine, number) + bytes(300))
                    message = taker.get(timeout=20)
                    seen.append(message.payload.rstrip(b"\0"))
                    message.ack()
            except Exception as problem:  # noqa: BLE001  # told below
                problems.append(problem)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        assert sorted(seen) == sorted(b"%d.%d" % (mine, number) for mine in range(THREADS) for number in range(EACH))
        assert (taker.head, taker.pending, taker.lag) == (THREADS * EACH, 0, 0)
        for handle in (taker, queue):
            closers = [threading.Thread(target=handle.close) for _ in range(THREADS)]
            for thread in closers:
                thread.start()
            for thread in closers:
                thread.join()
    with shmq.open(str(tmp_path / "q")) as queue:
        queue.consumer("c", ack="explicit", group=name == "group").close()
