"""
How the C core is made: cdef and sources become `shmq._core`.

This is the only build logic; setuptools calls it when the package is installed.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).parent
SOURCES = [
    "chunk/bounds.c",
    "chunk/chunk_file.c",
    "chunk/filter.c",
    "chunk/find.c",
    "chunk/find_time.c",
    "chunk/gather.c",
    "chunk/index.c",
    "chunk/measure.c",
    "chunk/note.c",
    "chunk/once.c",
    "chunk/proof.c",
    "chunk/put.c",
    "chunk/record.c",
    "chunk/reindex.c",
    "chunk/renew.c",
    "chunk/scatter.c",
    "chunk/seal.c",
    "chunk/settle.c",
    "chunk/take.c",
    "chunk/timed.c",
    "chunk/walk.c",
    "chunk/write.c",
    "crc.c",
    "durable/control.c",
    "durable/files.c",
    "durable/papers.c",
    "durable/recover.c",
    "durable/sync.c",
    "error.c",
    "foreign.c",
    "group/claim.c",
    "group/drop.c",
    "group/edge.c",
    "group/ended.c",
    "group/figures.c",
    "group/finish.c",
    "group/gate.c",
    "group/head.c",
    "group/order.c",
    "group/return.c",
    "group/ring_file.c",
    "group/side_hold.c",
    "group/side_look.c",
    "group/side_table.c",
    "group/side_take.c",
    "group/snapshot.c",
    "group/window.c",
    "os/any.c",
    "os/counted.c",
    "os/named.c",
    "os/os_linux.c",
    "os/owner.c",
    "os/wait.c",
    "python/end.c",
    "python/hot.c",
    "python/hot_fd.c",
    "python/hot_find.c",
    "python/hot_forward.c",
    "python/hot_map.c",
    "python/hot_hand.c",
    "python/hot_early.c",
    "python/hot_mutex.c",
    "python/hot_message.c",
    "python/hot_names.c",
    "python/hot_put.c",
    "python/hot_strict.c",
    "python/hot_take.c",
    "python/message.c",
    "python/types.c",
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
    py_limited_api=not sysconfig.get_config_var("Py_GIL_DISABLED"),  # see setup.py
)
