"""Where the volatile queues of a user, or of a group of users, are: in shared memory."""

import os

ROOT = "/dev/shm"  # noqa: S108  # ours below it is checked
ANONYMOUS = "anonymous."
"""What their names begin with."""
REMEDY = "; /dev/shm is full: take messages, or make it larger (docker run --shm-size=2g, or mount -o remount,size=2g)"
_OF_GROUP = f"{ROOT}/shmq-g"
_DIGITS = frozenset("0123456789")
_DIGITS_MAX = 10


def base(group: int | None = None) -> str:
    """The directory of this user's volatile queues, or of those that a group shares."""
    return f"{ROOT}/shmq-{os.geteuid()}" if group is None else f"{ROOT}/shmq-g{group}"


def group_of(base: str) -> int | None:
    """Whose directory that is: a group's number, or None for this user's or for none."""
    number = base.removeprefix(_OF_GROUP)
    is_one = number != base and 0 < len(number) <= _DIGITS_MAX and _DIGITS.issuperset(number)
    return int(number) if is_one else None


def is_anonymous(path: str) -> bool:
    """Whether that is the home of an anonymous one, of which there may be very many."""
    return is_inside(path) and os.path.basename(path).startswith(ANONYMOUS)


def is_inside(path: str) -> bool:
    """Whether that path is in the home of a volatile queue."""
    return path.startswith(ROOT) and path.startswith((f"{base()}/", *(f"{_OF_GROUP}{digit}" for digit in _DIGITS)))
