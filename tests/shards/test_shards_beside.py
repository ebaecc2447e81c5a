"""What goes with one shard alone, beside its root: followers and bridges, and puts by doors that know of no root."""

from __future__ import annotations

import shmq


def test_a_growth_copies_no_name_of_a_follower_or_a_bridge(tmp_path):
    """Nobody would move it in the new shard, and producers would wait for it for ever."""
    with shmq.shards.open(tmp_path / "events", shards=2, max_messages=5, full="raise") as root:
        for number, queue in enumerate(root.queues):
            shmq.replica.replicate(queue.path, tmp_path / f"f.1.{number}", once=True)
            queue.consumer("bridge.redis.stream.12345678").close()
            queue.consumer("archive", hold=True).close()
        assert root.grow() == 4
        assert {name for queue in root.queues for name in queue.consumers()} == {"archive"}
        for queue in root.queues:
            queue.drop_consumer("archive")
        with root.consumer("c") as c:
            for number in range(40):
                root.put(b"%d" % number, key=b"k")
                assert c.get(timeout=5.0).payload == b"%d" % number
