"""What a process of Python is doing, as py-spy sees it, where that is installed and may look."""

from __future__ import annotations

import shutil
import subprocess

_PATIENCE = 5.0


def of_process(pid: int) -> str | None:
    """Its stacks as text; None where there is no py-spy, it may not look, or it takes longer than five seconds."""
    program = shutil.which("py-spy")
    if program is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603  # nonblocking: the process is not paused, nor is a stopped one touched
            [program, "dump", "--nonblocking", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
