"""
The numbers of layout.h and of the kernel that the engine repeats are theirs, as the compiler has them.

Who writes and reads by a wrong number alone does not see that it is wrong.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess

from layout import ROOT, table

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


def test_the_table_is_made_from_the_layout():
    made = ast.dump(ast.parse(table.table()))
    assert made == ast.dump(ast.parse(table.TARGET.read_text())), "run python cffi_build/table.py"


OWN = re.compile(r"^_?[A-Z_, ]+_AT\b.*= .*\b\d.*|.*\bslice\(\d*[1-9]\d*,.*|.*\b\d+.*# layout\.h.*")
MAY_BE = ("_AT", "slice(", "# layout.h")
"""One of them stands in each such line; to look for the rest in all others takes nine seconds."""


def numbers_of_its_own(source):
    """Lines that say where something stands by a number; what a struct.Struct says, test_format.py holds."""
    lines = [line for line in source.splitlines() if any(each in line for each in MAY_BE)]
    return [line for line in lines if OWN.match(line) and "Struct(" not in line]


def test_whoever_reads_shared_bytes_goes_by_the_table():
    ours = [path for path in (ROOT / "shmq").rglob("*.py") if path != table.TARGET and "formats" not in path.parts]
    found = {path.name: numbers_of_its_own(path.read_text()) for path in ours}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_look_for_numbers_sees_them():
    for line in ("_EPOCH_AT = 64", "_A_AT, _B_AT = 1, 2", "x = made[slice(12, 16)]", "_FREE, _META = 0, 3  # layout.h"):
        assert numbers_of_its_own(line) == [line]
    assert numbers_of_its_own("_EPOCH_AT = layout.chunk_header.epoch\nslice(0, chunk_header.crc)") == []


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
