"""
Writes shmq/_core.pyi from shmq.cdef.h, so that type checkers know what was compiled.

    python cffi_build/stub.py && ruff format shmq/_core.pyi
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
TARGET = HERE.parent / "shmq" / "_core.pyi"
HEAD = '''"""The compiled core, for type checkers. tests/house/ holds it against cffi_build/shmq.cdef.h."""

from typing import Any

class _Lib:
'''


def _type(declared: str) -> str:
    if "*" in declared or "[" in declared:
        return "Any"
    return {"void": "None", "bool": "bool"}.get(declared.split(maxsplit=1)[0], "int")


def stub(cdef: str) -> str:
    """The text of the stub for these declarations."""
    cdef = re.sub(r"/\*.*?\*/", " ", cdef, flags=re.DOTALL)
    lines = [
        f"    {name}: int"
        for body in re.findall(r"enum \w+ \{(.*?)\}", cdef, re.DOTALL)
        for name in re.findall(r"(\w+) =", body)
    ]
    lines += [f"    {name}: int" for name in re.findall(r"^#define (\w+)", cdef, re.MULTILINE)]
    for answer, call, inside in re.findall(r"^((?:const )?\w+ \**)(\w+)\(([^)]*)\);", cdef, re.MULTILINE):
        given = [each for each in inside.split(",") if each.strip() != "void"]
        named = [(re.findall(r"[a-z_0-9]+", each.partition("[")[0])[-1], _type(each)) for each in given]
        parameters = ["self", *(f"{name}: {kind}" for name, kind in named)]
        lines.append(f"    def {call}({', '.join(parameters)}) -> {_type(answer)}: ...")
    return HEAD + "\n".join(lines) + "\n\nlib: _Lib\nffi: Any\n"


if __name__ == "__main__":
    TARGET.write_text(stub((HERE / "shmq.cdef.h").read_text()))
