"""layout.h as facts, by what makes shmq/_native/layout.py of it; and where the project is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _table():
    found = importlib.util.spec_from_file_location("table", ROOT / "cffi_build" / "table.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


table = _table()
LAYOUT = table.LAYOUT
