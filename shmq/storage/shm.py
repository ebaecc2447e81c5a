"""Where the volatile queues of a user are: in shared memory."""

import os

ROOT = "/dev/shm"  # noqa: S108  # ours below it is checked
REMEDY = "; /dev/shm is full: take messages, or make it larger (docker run --shm-size=2g, or mount -o remount,size=2g)"


def base() -> str:
    """The directory of this user's volatile queues."""
    return f"{ROOT}/shmq-{os.geteuid()}"


def is_inside(path: str) -> bool:
    """Whether that path is in the home of a volatile queue."""
    return path.startswith(f"{base()}/")
