"""
Space: `python -m tests.history.soak_space --messages 100_000_000`.

One process puts batches, one takes them and keeps up; what it has finished goes. At no look may there be more than
three chunk files in the chain, and all messages must come, in order. Exit status 1 when not.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time

import shmq
from tests.support import start

BATCH = 4096
CHUNKS_AT_MOST = 3


def produce(path: str, messages: int) -> None:
    """Put numbers, bounded by what the consumer has finished."""
    with shmq.open(path) as queue:
        for first in range(0, messages, BATCH):
            last = min(first + BATCH, messages)
            queue.put_many([b"%d" % number for number in range(first, last)])


def consume(path: str, messages: int) -> int:
    """Take them all, in order: the most chunk files there ever were."""
    most, number, look = 0, 0, 0
    chunks = f"{path}/chunks"
    with shmq.open(path) as queue, queue.consumer("c") as consumer:
        while number < messages:
            payloads = consumer.take_many(BATCH, timeout=120)
            expected = [b"%d" % each for each in range(number, number + len(payloads))]
            if payloads != expected:
                raise AssertionError(f"behind {number} came something else")
            number += len(payloads)
            if number >= look:
                most = max(most, sum(name.endswith(".chunk") for name in os.listdir(chunks)))
                look = number + BATCH
    return most


def soak(path: str, messages: int, chunk_bytes: int) -> int:
    """The most chunk files there ever were."""
    options = shmq.Options(chunk_bytes=chunk_bytes, max_messages=4 * BATCH)
    with shmq.open(path, options=options) as queue:
        queue.consumer("c").close()
    pid = start(produce, path, messages)
    most = consume(path, messages)
    _, status = os.waitpid(pid, 0)
    if status:
        raise AssertionError(f"the producer ended with {status}")
    return most


def main() -> int:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--chunk-bytes", type=int, default=1 << 20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        most = soak(f"{directory}/q", arguments.messages, arguments.chunk_bytes)
        seconds = time.monotonic() - began
    print(f"{arguments.messages:,} messages in {seconds:,.0f} s; at most {most} chunks at once")
    return int(most > CHUNKS_AT_MOST)


if __name__ == "__main__":
    sys.exit(main())
