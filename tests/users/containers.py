"""
Containers as the kernel makes them: a user namespace with other numbers, a pid namespace, a mount namespace.

What is in one has its root directory, and not the rights of root outside: its users are others, out there.
"""

import contextlib
import os
import signal
import subprocess

from tests.support import Child, fork, in_child
from tests.users.people import APP, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, unshare


def write_maps(pid, base, groups):
    lines = [f"0 {base} 1000", *(f"{inside} {outside} 1" for inside, outside in groups.items())]
    for name, content in (("uid_map", lines[0]), ("gid_map", "\n".join(lines))):
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(content)


def _enter(base, groups):
    """Be root of a new user namespace, whose users from 0 on are those from *base* on out here."""
    pid, (read, write) = os.getpid(), os.pipe()
    outside = fork()
    if outside == 0:
        status = 1
        with contextlib.suppress(OSError):
            os.read(read, 1)
            write_maps(pid, base, groups)
            status = 0
        os._exit(status)
    unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS)
    os.write(write, b"!")
    assert os.waitpid(outside, 0)[1] == 0
    os.setgroups([*groups])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


class Container(Child):
    """Says words as a Child does; *work* runs as its pid 1."""

    def __init__(self, base, groups, work, *arguments):
        def live(say):
            _enter(base, groups)
            told, tell = os.pipe()
            inner = fork()
            if inner == 0:
                assert os.getpid() == 1
                os.close(tell)
                os.read(told, 1)  # its words come behind its number
                work(say, *arguments)
                os._exit(0)
            say(inner)
            os.close(tell)
            os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])))

        super().__init__(live)
        self.inner = int(self.hear())

    def kill(self):
        """kill -9 of what is in it, and so of it."""
        os.kill(self.inner, signal.SIGKILL)
        assert self.join() == signal.SIGKILL

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.inner, signal.SIGKILL)
        super().__exit__()


def why_not():
    """Why there can be no containers here; nothing, if they can."""
    if os.geteuid():
        return "containers with users of their own take root"

    def attempt():
        try:
            _enter(APP << 3, {2000: APP})
        except OSError as problem:
            return f"containers with users of their own: {problem}"
        return "yes"

    try:
        answer = in_child(attempt)
    except AssertionError:
        return "containers with users of their own cannot be had here"
    return "" if answer == "yes" else answer


def hide_processes():
    """Have a /proc in which each user sees its own processes only, from now on; an OSError where that is forbidden."""
    unshare(CLONE_NEWNS)
    for words in (["--make-rprivate", "/"], ["-t", "proc", "-o", "hidepid=2", "proc", "/proc"]):
        done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise PermissionError(done.stderr.strip())
