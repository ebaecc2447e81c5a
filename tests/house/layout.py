"""layout.h as facts: every struct, field and constant, with the numbers that the compiler gives them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYOUT = ROOT / "cffi_build" / "src" / "layout.h"


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


def facts(tmp_path: Path) -> tuple[dict[str, list[tuple[str, int, int]]], dict[str, int]]:
    """({struct: [(field, offset, bytes)]}, {constant: value}), as the compiler has them."""
    lines = []
    for name, fields in structs().items():
        for field in fields:
            place = f"offsetof(struct {name}, {field}), sizeof ((struct {name} *)0)->{field}"
            lines.append(f'printf("{name} {field} %zu %zu\\n", {place});')
        lines.append(f'printf("{name} = 0 %zu\\n", sizeof(struct {name}));')
    lines += [f'printf("# {name} %llu 0\\n", (unsigned long long)({name}));' for name in constants()]
    source = tmp_path / "facts.c"
    source.write_text(
        '#include <stdio.h>\n#include "layout.h"\nint main(void)\n{\n' + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    program = tmp_path / "facts"
    subprocess.run(["cc", "-std=c11", "-I", LAYOUT.parent, "-o", program, source], check=True)
    found: dict[str, list[tuple[str, int, int]]] = {}
    numbers = {}
    for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines():
        owner, name, offset, size = line.split()
        if owner == "#":
            numbers[name] = int(offset)
        else:
            found.setdefault(owner, []).append((name, int(offset), int(size)))
    return found, numbers
