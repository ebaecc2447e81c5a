"""
How the C core is made: cdef and sources become `shmq._core`.

This is the only build logic; setuptools calls it when the package is installed.
"""

from __future__ import annotations

import os
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).parent
SOURCES = [
    "any.c",
    "bounds.c",
    "chunk.c",
    "control.c",
    "crc.c",
    "drop.c",
    "ended.c",
    "error.c",
    "files.c",
    "gather.c",
    "hot.c",
    "hot_fd.c",
    "hot_find.c",
    "hot_strict.c",
    "index.c",
    "keyed.c",
    "once.c",
    "papers.c",
    "os_linux.c",
    "owner.c",
    "recover.c",
    "ring.c",
    "scatter.c",
    "side.c",
    "sync.c",
    "timed.c",
    "wait.c",
]

ffi = FFI()
ffi.cdef((HERE / "shmq.cdef.h").read_text())
ffi.set_source(
    "shmq._core",
    '#include "shmq.h"',
    sources=[f"cffi_build/src/{name}" for name in SOURCES],
    include_dirs=["cffi_build/include", "cffi_build/src"],
    depends=[str(path.relative_to(HERE.parent)) for path in sorted(HERE.glob("**/*.h"))],
    # A developer adds sanitizers and warnings through SHMQ_CFLAGS; users get a plain optimised build.
    extra_compile_args=[
        "-std=c11",
        "-O2",
        "-fvisibility=hidden",
        "-pthread",
        *os.environ.get("SHMQ_CFLAGS", "").split(),
    ],
    extra_link_args=["-pthread", *os.environ.get("SHMQ_LDFLAGS", "").split()],
    py_limited_api=True,
)
