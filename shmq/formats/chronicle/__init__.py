"""
Chronicle Queue: a directory of files, one per roll cycle, that several processes map, append to and read by index.

A queue is a directory with `metadata.cq4t` (a table: how the queue is cut, locks, named tailers) and one
`<cycle>.cq4` for each cycle. A file is a chain of documents, each behind a word of four bytes that says how long it is
and whether it is there yet; pages of an index lie among them. The format's page is docs/formats/chronicle.md.

The reader is not Java's tailer: a file without an EOF mark does not keep back the files after it. `as_program=True`
waits there, as the tailer does.

    words, header, pages    the bytes of a file        table      the bytes of the table
    store                   one file, read on          folder     the directory
    walk, follow, backward  all files                  cycles     names, times, indices
    binary, encoder, values what is in a message       text, dump    the same as text
    read, verify, write, repair   the verbs            fresh      the bytes of new files
    appender, live, lock, mapped, table_writer         appending beside Java
"""

from shmq.formats.chronicle.appender import Appender, append, commit, unlock
from shmq.formats.chronicle.binary import decode
from shmq.formats.chronicle.cycles import CYCLES, RollCycle
from shmq.formats.chronicle.dump import dump
from shmq.formats.chronicle.encoder import encode, encode_call, encode_fields, encode_map, encode_text
from shmq.formats.chronicle.folder import NAME, detect, queues
from shmq.formats.chronicle.printer import show
from shmq.formats.chronicle.read import Settings, consumers, lists, read, runs, settings, state
from shmq.formats.chronicle.repair import repair
from shmq.formats.chronicle.text import parse
from shmq.formats.chronicle.values import (
    Date,
    DateTime,
    Event,
    Float32,
    Hex64,
    History,
    I64Array,
    Long,
    NotWire,
    Pairs,
    Time,
    Typed,
    TypeLiteral,
    Values,
    ZonedDateTime,
)
from shmq.formats.chronicle.verify import verify
from shmq.formats.chronicle.write import losses, write

KEEPS = frozenset({"payload", "index"})

__all__ = [
    "CYCLES",
    "KEEPS",
    "NAME",
    "Appender",
    "Date",
    "DateTime",
    "Event",
    "Float32",
    "Hex64",
    "History",
    "I64Array",
    "Long",
    "NotWire",
    "Pairs",
    "RollCycle",
    "Settings",
    "Time",
    "TypeLiteral",
    "Typed",
    "Values",
    "ZonedDateTime",
    "append",
    "commit",
    "consumers",
    "decode",
    "detect",
    "dump",
    "encode",
    "encode_call",
    "encode_fields",
    "encode_map",
    "encode_text",
    "lists",
    "losses",
    "parse",
    "queues",
    "read",
    "repair",
    "runs",
    "settings",
    "show",
    "state",
    "unlock",
    "verify",
    "write",
]
