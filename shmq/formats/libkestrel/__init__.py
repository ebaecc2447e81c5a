"""
libkestrel: a journal of puts in segments, and one small checkpoint file per reader.

A queue `Q` in a folder is `Q.<number>` (segments) and `Q.read.<reader>` (checkpoints). Both are little-endian
records behind four magic bytes: a command byte (command in the high half, header words in the low half), the header,
and data for commands of 8 and more. The format's page, with every difference between its document and the real
program, is docs/formats/libkestrel.md.

The reader is not the real program: it honours the ids that a reader confirmed out of order (the program stores and
then ignores them), and a reader whose checkpoint is lost starts at the oldest item (the program starts it at the
newest). `as_program=True` gives the program's view of both.

    records    the bytes of one record          names      which files a queue has
    segment    one file, record by record       queue      all segments of one queue
    readers    where its readers stand          program    the real program's reader, step by step
    read, verify, write, append    the verbs
"""

from shmq.formats.libkestrel.append import append, commit
from shmq.formats.libkestrel.names import detect, detect_file, queues
from shmq.formats.libkestrel.read import consumers, lists, read, state
from shmq.formats.libkestrel.records import (
    JOURNAL_BYTES,
    KEEPS,
    MAX_ITEM,
    NAME,
    PUT,
    PUT_EXPIRING,
    PUT_FIELDS,
    READ_DONE,
    READ_HEAD,
    READER_MAGIC,
    WRITER_MAGIC,
    checkpoint,
)
from shmq.formats.libkestrel.verify import repair, verify
from shmq.formats.libkestrel.write import write

__all__ = [
    "JOURNAL_BYTES",
    "KEEPS",
    "MAX_ITEM",
    "NAME",
    "PUT",
    "PUT_EXPIRING",
    "PUT_FIELDS",
    "READER_MAGIC",
    "READ_DONE",
    "READ_HEAD",
    "WRITER_MAGIC",
    "append",
    "checkpoint",
    "commit",
    "consumers",
    "detect",
    "detect_file",
    "lists",
    "queues",
    "read",
    "repair",
    "state",
    "verify",
    "write",
]
