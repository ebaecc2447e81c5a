"""
The three walls: one door to the core, surfaces that use only what is public, one file for memory orders and one for
system calls. Each check is shown to catch what it is for.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sysconfig
from typing import TYPE_CHECKING

import pytest
from layout import ROOT, table

import shmq

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = sorted((ROOT / "cffi_build").glob("**/*.[ch]"))
MODULES = sorted((ROOT / "shmq").rglob("*.py"))
SURFACES = (
    "formats",
    "cli",
    "net",
    "spark",
    "compat",
    "aio",
    "workers",
    "executor",
    "rpc",
    "shards",
    "testing",
    "priorities",
    "flow",
    "bridge",
    "flight",
    "metrics",
    "otel",
)

DOORS = {
    "formats": {"shmq.foreign"},
    "net": {"shmq.carried", "shmq.unseen", "shmq.formats", "shmq.formats.chronicle"},
    "flight": {"shmq.net.tokens", "shmq.net.rights"},
}
"""
What a surface may import besides: an atomic change of mapped memory is the one thing that Python cannot do; and a
server speaks the wires of one format, sends on a million messages, of which few have headers to be asked for, and
takes back what nobody has seen. All services have one file of tokens and one table of rights.
"""


# ---------------------------------------------------------------- 1: one door
def core_imports(source: str) -> list[int]:
    """Lines that reach for the compiled core."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module or ''}.{each.name}" for each in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [f"shmq.{node.attr}"] if node.attr == "_core" else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        if any(re.fullmatch(r"(shmq)?\.?_core(\..*)?", name) for name in names):
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_native_touches_the_core(module):
    """Nobody else imports shmq._core, by whatever words."""
    found = core_imports(module.read_text())
    assert not found or module.parent.name == "_native"


@pytest.mark.parametrize(
    "source",
    [
        "import shmq._core",
        "from shmq import _core",
        "from shmq._core import lib",
        "from . import _core",
        "from ._core import ffi",
        "import importlib; importlib.import_module('shmq._core')",
        "import shmq; shmq._core.lib",
    ],
)
def test_the_check_of_the_door_sees_every_way_in(source):
    """All the ways to say it."""
    assert core_imports(source)


# ---------------------------------------------------------------- 2: surfaces
def private_uses(source: str, package: str) -> list[str]:
    """What a surface takes from shmq beside what it exports and beside itself."""
    found = []
    public = set(shmq.__all__) | {"__version__"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [
                each.name for each in node.names if each.name.startswith("shmq.") and not inside(each.name, package)
            ]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").partition(".")[0] == "shmq":
            if node.module == "shmq":
                found += [each.name for each in node.names if each.name not in public and each.name != package]
            elif not inside(node.module, package) and node.module not in {"shmq.errors"} | DOORS.get(package, set()):
                found.append(node.module)
        elif isinstance(node, ast.ImportFrom) and node.level > 1:
            found.append("." * node.level)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "shmq":
            found += [node.attr] if node.attr not in public | {package, "formats"} else []
    return found


def inside(module: str | None, package: str) -> bool:
    return module == f"shmq.{package}" or (module or "").startswith(f"shmq.{package}.")


def surface_of(module: Path) -> str | None:
    top = module.relative_to(ROOT / "shmq").parts[0].removesuffix(".py")
    return top if top in SURFACES else None


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_surfaces_use_only_what_shmq_exports(module):
    """They import shmq as a user would."""
    surface = surface_of(module)
    assert surface is None or private_uses(module.read_text(), surface) == []


@pytest.mark.parametrize(
    "source",
    [
        "from shmq import _native",
        "from shmq.storage import chain",
        "import shmq.reading.walk",
        "from shmq.queue import Queue",
        "from .. import walk",
        "import shmq; shmq.walk",
        "import shmq; shmq._native",
        "from shmq import locks",
    ],
)
def test_the_check_of_surfaces_sees_what_is_private(source):
    """And lets pass what is public."""
    assert private_uses(source, "cli")
    assert private_uses("import shmq\nfrom shmq import Queue, errors\nfrom shmq.cli import a\nshmq.open", "cli") == []


def test_the_door_of_one_surface_is_shut_for_the_others():
    """And leads to nothing else."""
    assert private_uses("from shmq.foreign import SharedWords", "formats") == []
    assert private_uses("from shmq.foreign import SharedWords", "cli") == ["shmq.foreign"]
    assert private_uses("from shmq._native.foreign import SharedWords", "formats") == ["shmq._native.foreign"]


# ---------------------------------------------------------------- 3: orders and system calls
ORDERS = re.compile(
    r"memory_order|__ATOMIC_|__atomic_|__sync_|stdatomic|_Atomic|\batomic_\w+\(|\bvolatile\b|\basm\b|__asm__|__builtin_ia32_\w*fence|__faststorefence"
)
KERNEL = re.compile(r"#\s*include\s*<(unistd|fcntl|pthread|signal|time|sched|poll|sys/|linux/|bits/|asm/)|\bsyscall\b")


def orders(source: str) -> list[str]:
    """Where C source names a memory order or an atomic builtin."""
    return ORDERS.findall(table.without_comments(source))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_only_atomic_h_names_a_memory_order(source):
    """So that the explorer sees, and can weaken, every one."""
    assert bool(orders(source.read_text())) == (source.name == "atomic.h")


@pytest.mark.parametrize(
    "source",
    [
        "atomic_load_explicit(&x, memory_order_relaxed);",
        "__atomic_store_n(&x, 1, __ATOMIC_RELEASE);",
        "__sync_synchronize();",
        "#include <stdatomic.h>",
        "_Atomic int x;",
        "volatile int x;",
        '__asm__ volatile("mfence");',
        "atomic_thread_fence(5);",
        "__builtin_ia32_mfence();",
    ],
)
def test_the_check_of_orders_sees_every_way(source):
    """But not the words of a comment."""
    assert orders(source)
    assert not orders(f"/* {source} */")


LIBRARY = {"memcpy", "memmove", "memset", "memcmp", "malloc", "calloc", "realloc", "free", "abort", "strlen", "strcmp"}
LIBRARY |= {"vsnprintf", "snprintf", "__vsnprintf_chk", "__snprintf_chk", "__memcpy_chk", "__memset_chk"}
LIBRARY |= {
    "__stack_chk_fail",
    "__assert_fail",
    "__cpu_model",
    "__cpu_features2",
    "__cpu_indicator_init",
    "__tls_get_addr",
}
LIBRARY |= {"_GLOBAL_OFFSET_TABLE_", "__errno_location"}


def symbols(object_file: Path, kind: str) -> set[str]:
    """Names that an object file defines, or asks for."""
    listed = subprocess.run(["nm", kind, object_file], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listed.splitlines()}


def test_only_os_linux_makes_a_system_call(tmp_path):
    """
    Not by the words of the sources but by what the linker is asked for: but for os_linux.c, the core's objects need
    nothing beyond each other, Python and a few harmless functions of the C library.
    """
    objects = {}
    for source in (each for each in SOURCES if each.suffix == ".c"):
        objects[source.name] = tmp_path / f"{source.stem}.o"
        # Not optimized: nothing that is called is left out, and it takes half the time.
        subprocess.run(compile_command(source, "-O0", "-c", "-o", objects[source.name]), check=True)
    own = set().union(*(symbols(each, "--defined-only") for each in objects.values()))
    for name, each in objects.items():
        asked = {symbol for symbol in symbols(each, "--undefined-only") if not symbol.startswith(("Py", "_Py"))}
        foreign = asked - own - LIBRARY
        assert bool(foreign) == (name == "os_linux.c"), foreign
    for source in SOURCES:
        assert bool(KERNEL.search(table.without_comments(source.read_text()))) == (source.name == "os_linux.c")


# ---------------------------------------------------------------- and the compiler at its strictest
def compile_command(source: Path, *flags) -> list:
    include = ["-I", ROOT / "cffi_build" / "include", "-I", ROOT / "cffi_build" / "src"]
    return ["cc", "-std=c11", *include, "-isystem", sysconfig.get_path("include"), *flags, source]


@pytest.mark.parametrize("source", [each for each in SOURCES if each.suffix == ".c"], ids=lambda path: path.name)
def test_the_core_compiles_without_a_warning(source):
    """At the strictest setting."""
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Werror"]
    done = subprocess.run(
        compile_command(source, *strict, "-O2", "-c", "-o", "/dev/null"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
