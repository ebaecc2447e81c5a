"""
Arrays without copies: filled in place by the producer, looked at in place by the consumer.

`reserve` gives room in the queue's own memory: numpy writes there, and the message appears when the block ends. On the
other side `view` is the same memory, read-only; the array made from it keeps it mapped.

Prints:
    frame 0: (480, 640) float32, mean 0.0
    frame 1: (480, 640) float32, mean 1.0
    frame 2: (480, 640) float32, mean 2.0
    the arrays are read-only: True
    shortened at commit: 12 bytes
    given up: 4 messages, as before
"""

try:
    import numpy
except ImportError:
    raise SystemExit("this example needs numpy: pip install numpy") from None

import shmq

SHAPE = (480, 640)

with shmq.open("frames") as queue:
    for number in range(3):
        with queue.reserve(SHAPE[0] * SHAPE[1] * 4, key=b"camera", headers={"shape": SHAPE}) as slot:
            frame = numpy.frombuffer(slot.buffer, dtype="f4").reshape(SHAPE)
            frame[:] = number  # written once, where every process will read it
            del frame  # its memory is the queue's again when the block ends

    with queue.consumer("viewer") as viewer:
        for _ in range(3):
            message = viewer.get()
            frame = numpy.frombuffer(message.view, dtype="f4").reshape(message.headers["shape"])
            print(f"frame {message.index}: {frame.shape} {frame.dtype}, mean {frame.mean()}")
        print("the arrays are read-only:", not frame.flags.writeable)

        slot = queue.reserve(1000)  # when the size is not known before
        slot.buffer[:12] = b"only so much"
        slot.commit(12)
        print("shortened at commit:", len(viewer.take()), "bytes")

    try:
        with queue.reserve(1000):
            raise RuntimeError("the camera is gone")
    except RuntimeError:
        print(f"given up: {len(queue)} messages, as before")

del frame, message  # nobody looks at the queue's memory any more
shmq.delete("frames")
