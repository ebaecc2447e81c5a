"""Room for file descriptors: a loop that finds none when it begins ends with a traceback, and leaves things behind."""

from __future__ import annotations

import errno
import os
import resource

from shmq.cli import show

_OF_A_SERVER = 16
"""What an event loop, where it listens, a first caller, and what that one asks for, take."""


def check_for(what: str) -> None:
    """
    Return when a server finds as many as it needs; *what* it is to do, a clause such as "serve orders".

    Raises:
        Problem: it does not.
    """
    held: list[int] = []
    try:
        while len(held) < _OF_A_SERVER:
            held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as problem:
        if problem.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise show.Problem(
            f"cannot {what}: {problem.strerror}: it takes {_OF_A_SERVER} descriptors, and there are {len(held)} left "
            f"(`ulimit -n` is {most}); nothing was begun"
        ) from None
    finally:
        for fd in held:
            os.close(fd)
