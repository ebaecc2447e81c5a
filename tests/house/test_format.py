"""docs/format.md says what layout.h says: every struct, field, offset, width and number; and its example is real."""

from __future__ import annotations

import re
import struct
import unittest.mock
from typing import TYPE_CHECKING

import pytest
from layout import ROOT, table

import shmq
from shmq import message
from shmq.storage import making

if TYPE_CHECKING:
    from pathlib import Path

PAGE = (ROOT / "docs" / "format.md").read_text()


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """The compiler's word on layout.h."""
    return table.facts()


def told_structs() -> dict[str, list[tuple[str, int, int]]]:
    """The tables of the page, in the shape of `facts`."""
    found = {}
    for name, size, text in re.findall(
        r"^`(\w+)`: (\d+) bytes\.\n\n\| Offset .*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE
    ):
        rows = re.findall(r"^\| (\d+) \| (\d+) \| `(\w+)` \| \S", text, re.MULTILINE)
        assert len(rows) == text.count("\n"), f"a row of {name} cannot be read"
        found[name] = [(field, int(offset), int(width)) for offset, width, field in rows] + [("=", 0, int(size))]
    return found


def test_every_field_stands_where_the_page_says(layout):
    """In both directions: nothing of the header is missing on the page, nothing of the page in the header."""
    assert told_structs() == layout[0]
    assert list(told_structs()).sort() == list(table.structs()).sort()


def test_every_number_is_the_one_of_the_page(layout):
    """All #defines and enumerators, in both directions."""
    section = PAGE.partition("## The numbers")[2].partition("\n## ")[0]
    told = {
        name: int(value.replace(",", ""), 0)
        for name, value in re.findall(r"^\| `(\w+)` \| (\S+) \|$", section, re.MULTILINE)
    }
    assert told == layout[1]
    assert set(told) == set(table.constants())


def test_the_tables_of_word_states_flags_and_files_agree(layout):
    """What the prose repeats is no second truth."""
    _, numbers = layout
    states = re.findall(r"^\| (\d) \| ([A-Z]+) \| ", PAGE, re.MULTILINE)
    assert {f"WORD_{name}": int(state) for state, name in states} == {
        name: value for name, value in numbers.items() if re.fullmatch(r"WORD_(FREE|CLAIMED|DONE|META|PAD|SEAL)", name)
    }
    flags = re.findall(r"^\| (\d+) \| (RECORD_[A-Z_]+) \| ", PAGE, re.MULTILINE)
    assert {name: 1 << int(bit) for bit, name in flags} == {
        name: value for name, value in numbers.items() if name.startswith("RECORD_") and name != "RECORD_HEADER_BYTES"
    }
    for file, name in (
        ("queue.shmq", "QUEUE_FILE_BYTES"),
        ("control.shmq", "CONTROL_BYTES"),
        ("consumers/<name>.checkpoint", "CHECKPOINT_BYTES"),
    ):
        assert re.search(rf"^\| `{re.escape(file)}` \| .* \| {numbers[name]:,} \| ", PAGE, re.MULTILINE)
    fields = {"state": "STATE", "count": "COUNT", "owner": "OWNER"}
    for high, low, field in re.findall(r"^\| (\d+) \.\. (\d+) \| (\w+) \|", PAGE, re.MULTILINE):
        if field in fields:
            assert int(low) == numbers[f"WORD_{fields[field]}_SHIFT"]
        bits = 3 if field == "state" else numbers[f"WORD_{field.upper()}_BITS"]
        assert int(high) - int(low) + 1 == bits


def test_python_reads_records_as_the_layout_has_them(layout):
    """The numbers of shmq/message.py."""
    assert layout[1]["RECORD_HEADER_BYTES"] == message._HEADER_BYTES
    assert layout[1]["RECORD_HEADERS"] == message._HEADERS_FLAG
    sizes = {name: fields[-1][2] for name, fields in layout[0].items()}
    fixed = ("when", "when", "dedup", "trace", "transaction")
    assert {bit: sizes[f"field_{name}"] for bit, name in enumerate(fixed)} == message._FIELD_BYTES
    assert struct.calcsize(message._FIELD.format) == sizes["field_bytes"]


RANDOM = {16: bytes(range(16)), 8: (0x1122334455667789 << 1).to_bytes(8, "little")}
"""What the system's randomness gives here, by its length: the queue's id, and what a chunk's id is made from."""


def example(tmp_path: Path) -> str:
    """The chunk of the page's example, as it shows it."""
    with (
        unittest.mock.patch.object(making.os, "urandom", side_effect=RANDOM.__getitem__),
        unittest.mock.patch.object(making.time, "time_ns", return_value=1_700_000_000_000_000_000),
        shmq.open(tmp_path / "q", options=shmq.Options(chunk_bytes=16384)) as queue,
    ):
        queue.put(b"hello", key=b"k", time_ns=1)
        queue.put(b"world!", type=7, time_ns=2)
    (file,) = (tmp_path / "q" / "chunks").iterdir()
    content = file.read_bytes()
    rows = []
    for at in range(0, len(content), 16):
        row = content[at : at + 16]
        if any(row):
            text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
            rows.append(f"{at:6} {at:04x}  {row[:8].hex(' ')}  {row[8:].hex(' ')}  |{text}|")
    return "\n".join(rows)


def test_the_example_is_what_is_written(tmp_path):
    """The hexdump of the page, made again."""
    told = PAGE.partition("```hexdump\n")[2].partition("\n```")[0]
    assert told == example(tmp_path)
