"""
QewQew: a linked list of memory-mapped chunk files behind a two-byte header file.

The header file `P` holds the id of the first chunk (0: empty); `P.<id>` is a chunk: head-ptr, tail-ptr, next-ref,
then elements of a 16-bit length and data. All of it is big-endian. One process writes and reads; what has been
taken is gone. The format's page is docs/formats/qewqew.md.

The reader is not the real program: it never creates, cuts or locks a file, it checks every pointer, and a chunk that
was linked but never initialised is read from its first element (the program delivers its header bytes as elements;
`as_program=True` does the same).

    chunk      a chunk's own words, and the numbers          names    header files, and the chunks beside them
    walk       from the header through the chunks            lock     the header's lock, as the program holds it
    opened     a queue in place, under its lock              read, write, repair    the verbs
"""

from shmq.formats.qewqew.chunk import CHUNK_BYTES, KEEPS, LAST_ID, MAX_ELEMENT, NAME
from shmq.formats.qewqew.names import detect, detect_file, headers, queues
from shmq.formats.qewqew.opened import Opened, append, open  # noqa: A004  as shmq.open
from shmq.formats.qewqew.read import lists, read, state, verify
from shmq.formats.qewqew.repair import repair
from shmq.formats.qewqew.write import write

__all__ = [
    "CHUNK_BYTES",
    "KEEPS",
    "LAST_ID",
    "MAX_ELEMENT",
    "NAME",
    "Opened",
    "append",
    "detect",
    "detect_file",
    "headers",
    "lists",
    "open",
    "queues",
    "read",
    "repair",
    "state",
    "verify",
    "write",
]
