"""
Arrays without copies: filled in place by the producer, looked at in place by the consumer.

An array is put as it is, and comes back with its dtype and its shape as `message.array`: read-only, in the queue's own
memory, which it keeps mapped. `reserve` gives room there before: numpy writes into it, and the message appears when
the block ends.

Prints:
    message 0: (2, 3) int64
    frame 1: (480, 640) float32, mean 0.0
    frame 2: (480, 640) float32, mean 1.0
    the arrays are read-only: True
    shortened at commit: 12 bytes
    given up: its index stays unused, the next put has 5
"""

try:
    import numpy
except ImportError:
    raise SystemExit("this example needs numpy: pip install numpy") from None

import shmq

with shmq.open("frames") as queue:
    queue.put(numpy.arange(6).reshape(2, 3), key=b"any array")  # copied once, into the queue
    for number in range(2):
        with queue.reserve(shape=(480, 640), dtype="f4", key=b"camera") as slot:
            slot.array[:] = number  # written once, where every process will read it

    with queue.consumer("viewer") as viewer:
        message = viewer.get()
        print(f"message {message.index}: {message.array.shape} {message.array.dtype}")
        for _ in range(2):
            message = viewer.get()
            frame = message.array
            print(f"frame {message.index}: {frame.shape} {frame.dtype}, mean {frame.mean()}")
        print("the arrays are read-only:", not frame.flags.writeable)

        slot = queue.reserve(1000)  # bytes, when the size is not known before
        slot.buffer[:12] = b"only so much"
        slot.commit(12)
        print("shortened at commit:", len(viewer.take()), "bytes")

    try:
        with queue.reserve(1000):
            raise RuntimeError("the camera is gone")
    except RuntimeError:
        print(f"given up: its index stays unused, the next put has {queue.put(b'x')}")

del frame, message  # nobody looks at the queue's memory any more
shmq.delete("frames")
