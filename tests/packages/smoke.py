"""
Does an installed shmq work? The main verbs, once each, in a temporary directory.

    python tests/packages/smoke.py

Run by the Python of an environment into which a wheel was installed, also by cibuildwheel; it needs nothing else.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import shmq

ANOTHER = """
import sys, shmq
with shmq.open(sys.argv[1], create=False) as queue:
    queue.put({"id": 3})
"""


def main():
    """Ends with an error at the first thing that is not as it should be."""
    with tempfile.TemporaryDirectory() as home:
        path = str(Path(home, "orders"))
        with shmq.open(path, codec="json") as queue:
            assert queue.put({"id": 0}, key=b"eu", headers={"trace": "a"}, dedup=("shop", 0)) == 0
            assert queue.put({"id": 0}, dedup=("shop", 0)) == 0  # once
            assert list(queue.put_many([{"id": 1}, {"id": 2}])) == [1, 2]
            with queue.consumer("billing") as billing:
                assert billing.take() == {"id": 0}
                assert billing.take_many(10) == [{"id": 1}, {"id": 2}]
        subprocess.run([sys.executable, "-c", ANOTHER, path], check=True)
        with shmq.open(path, create=False) as queue:
            assert (len(queue), queue[0].key, queue[-1].payload) == (4, b"eu", {"id": 3})
            queue.finish()
            with queue.consumer("workers", group=True, ack="explicit") as workers:
                for message in workers:
                    message.ack()
            assert queue.consumers()["workers"].lag == 0
            assert [message.index for message in queue.reader()] == [0, 1, 2, 3]
        shmq.delete(path)
        with shmq.open(str(Path(home, "bytes"))) as queue, queue.reserve(4) as slot:
            slot.buffer[:] = b"four"
    print("shmq", shmq.__version__, "works:", shmq.__file__)


if __name__ == "__main__":
    main()
