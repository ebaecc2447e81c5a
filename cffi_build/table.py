"""
Writes shmq/_native/layout.py from src/layout.h: where each field of a shared page stands, and each number, as the
compiler has them, for what Python reads and writes itself.

    python cffi_build/table.py && ruff format shmq/_native/layout.py
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
LAYOUT = HERE / "src" / "layout.h"
TARGET = HERE.parent / "shmq" / "_native" / "layout.py"
HEAD = '''"""
Where each field of a shared page stands, and each number, as the compiler has them: cffi_build/src/layout.h in Python.

Made by cffi_build/table.py; tests/house/ holds it against layout.h. Who reads or writes shared bytes in Python goes by
this table, and by no number of its own.
"""

# ruff: noqa: N801  # the classes are called as the structs are
'''


def without_comments(source: str) -> str:
    """C source without its comments."""
    return re.sub(r"/\*.*?\*/", " ", source, flags=re.DOTALL)


def structs() -> dict[str, list[str]]:
    """The fields of every struct, by its name, in order."""
    found = {}
    for name, body in re.findall(r"struct (\w+) \{(.*?)\n\};", without_comments(LAYOUT.read_text()), re.DOTALL):
        found[name] = re.findall(r"(\w+)(?:\[[^\]]*\])?;", body)
    return found


def constants() -> list[str]:
    """The names of all numbers: #defines without arguments, and enumerators."""
    source = without_comments(LAYOUT.read_text())
    names = re.findall(r"^#define (\w+)[ \t]+\S", source, re.MULTILINE)
    for body in re.findall(r"enum \w+ \{(.*?)\}", source, re.DOTALL):
        names += re.findall(r"(\w+) =", body)
    return names


def facts() -> tuple[dict[str, list[tuple[str, int, int]]], dict[str, int]]:
    """({struct: [(field, offset, bytes)]}, {constant: value}), as the compiler has them; a field "=" is the whole."""
    lines = []
    for name, fields in structs().items():
        for field in fields:
            place = f"offsetof(struct {name}, {field}), sizeof ((struct {name} *)0)->{field}"
            lines.append(f'printf("{name} {field} %zu %zu\\n", {place});')
        lines.append(f'printf("{name} = 0 %zu\\n", sizeof(struct {name}));')
    lines += [f'printf("# {name} %llu 0\\n", (unsigned long long)({name}));' for name in constants()]
    main = '#include <stdio.h>\n#include "layout.h"\nint main(void)\n{\n' + "\n".join(lines) + "\nreturn 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "facts")
        command = ["cc", "-std=c11", "-I", LAYOUT.parent, "-o", program, "-x", "c", "-"]
        subprocess.run(command, input=main, text=True, check=True)
        said = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[tuple[str, int, int]]] = {}
    numbers = {}
    for line in said.splitlines():
        owner, name, offset, size = line.split()
        if owner == "#":
            numbers[name] = int(offset)
        else:
            found.setdefault(owner, []).append((name, int(offset), int(size)))
    return found, numbers


def table() -> str:
    """The text of the module."""
    found, numbers = facts()
    lines = [HEAD]
    lines += [f"{name} = {value}" for name, value in numbers.items() if name != "SHMQ_LAYOUT_H"]
    for struct, fields in found.items():
        size = next(size for name, _, size in fields if name == "=")
        lines.append(f'\n\nclass {struct}:\n    """Offsets in struct {struct}, which has {size} bytes."""\n')
        lines += [f"    {name} = {offset}" for name, offset, _ in fields if name != "="]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(table())
