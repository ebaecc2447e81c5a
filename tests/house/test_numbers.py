"""
The numbers of layout.h and of the kernel that the engine repeats are theirs, as the compiler has them.

Who writes and reads by a wrong number alone does not see that it is wrong.
"""

from __future__ import annotations

import ast
import importlib
import subprocess

import pytest
from layout import table

FIELDS = {
    "shmq.storage.copying": {"_QUEUE_ID_AT": "chunk_header.queue_id", "_CHECKPOINT_ID_AT": "checkpoint.queue_id"},
    "shmq.storage.recover.consumers": {
        "_FIXED": "checkpoint.pad0",
        "_CRC_AT": "checkpoint.crc",
        "_KIND_AT": "checkpoint.kind",
        "_EXPLICIT_AT": "checkpoint.explicit_ack",
        "_START_AT": "checkpoint.start_index",
        "_HEAD_AT": "checkpoint.head",
        "_HANDED_AT": "checkpoint.handed",
        "_HOLDER_AT": "checkpoint.holder",
        "_CURSOR_AT": "checkpoint.cursor_sequence",
        "_ACKS_AT": "checkpoint.acks_asked",
        "_ACKS_END": "checkpoint.pad5",
    },
    "shmq.storage.recover.apply": {
        "_FIRST_LIVE_AT": "control.first_live",
        "_NEWEST_AT": "control.newest",
        "_DURABLE_AT": "control.durable",
        "_DURABLE_CHUNK_AT": "control.durable_chunk",
        "_PADDED_AT": "control.padded",
        "_PADS_DOUBTED_AT": "control.pads_doubted",
    },
}
NUMBERS = {
    "shmq.storage.recover.apply": {"_LOCK_BASE": "LOCK_BASE", "_SEATS": "OWNER_SLOTS"},
    "shmq.storage.recover.consumers": {"_EXCLUSIVE": "CHECKPOINT_EXCLUSIVE"},
    "shmq.storage.recover.plan": {"_FREE": "WORD_FREE", "_META": "WORD_META", "_SEAL": "WORD_SEAL"},
}
KERNELS = {
    "shmq.storage.blocks": {
        "_GET_FLAGS": "FS_IOC_GETFLAGS",
        "_SET_FLAGS": "FS_IOC_SETFLAGS",
        "_FIEMAP": "FS_IOC_FIEMAP",
        "_COMPRESSED": "FS_COMPR_FL",
        "_IN_PLACE": "FS_NOCOW_FL",
        "_SHARED": "FIEMAP_EXTENT_SHARED",
    },
    "shmq.storage.files": {"_FICLONE": "FICLONE"},
}


def engine(told):
    """{(module, name): (what the engine has, what it stands for)}."""
    return {
        (module, name): (getattr(importlib.import_module(module), name), meant)
        for module, names in told.items()
        for name, meant in names.items()
    }


@pytest.fixture(scope="module")
def layout():
    """({struct.field: offset}, {constant: value})."""
    structs, numbers = table.facts()
    return {f"{owner}.{field}": at for owner, fields in structs.items() for field, at, _ in fields}, numbers


def test_the_table_is_made_from_the_layout():
    made = ast.dump(ast.parse(table.table()))
    assert made == ast.dump(ast.parse(table.TARGET.read_text())), "run python cffi_build/table.py"


def test_the_engine_finds_the_fields_where_the_layout_has_them(layout):
    """By their offsets."""
    assert {key: has for key, (has, _) in engine(FIELDS).items()} == {
        key: layout[0][meant] for key, (_, meant) in engine(FIELDS).items()
    }


def test_the_checksums_of_a_copy_are_of_what_the_layout_says(layout):
    """(Where it stands, from where on, up to where)."""
    from shmq.storage import copying

    fields = layout[0]
    wanted = tuple(fields[f"chunk_header.{name}"] for name in ("crc", "magic", "hint"))
    assert wanted == copying._HEADER_CRC
    assert (fields["checkpoint.crc"], 0, fields["checkpoint.pad0"]) == copying._CHECKPOINT_CRC


def test_the_engine_has_the_numbers_of_the_layout(layout):
    """Locks, seats, states of words."""
    assert {key: has for key, (has, _) in engine(NUMBERS).items()} == {
        key: layout[1][meant] for key, (_, meant) in engine(NUMBERS).items()
    }


def test_the_engine_has_the_numbers_of_the_kernel(tmp_path):
    """For a file system that copies on write: whoever has none does not see a wrong one."""
    told = engine(KERNELS)
    source = tmp_path / "kernel.c"
    lines = "\n".join(f'printf("%llu\\n", (unsigned long long)({meant}));' for _, meant in told.values())
    source.write_text(
        f"#include <stdio.h>\n#include <linux/fs.h>\n#include <linux/fiemap.h>\nint main(void)\n{{\n{lines}\n}}\n"
    )
    program = tmp_path / "kernel"
    subprocess.run(["cc", "-o", program, source], check=True)
    found = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    assert [has for has, _ in told.values()] == [int(each) for each in found]
