"""
Kestrel: a journal of operations; replaying all of them gives the queue.

A queue `Q` in a folder is `Q` (the current journal), `Q.<ms>` (rotated ones, older) and perhaps `Q.<ms>.pack` (which
stands for every file up to that number). There is no magic: each record is an opcode byte and little-endian fields.
A fan-out child C of Q is a queue of its own, named `Q+C`. The format's page is docs/formats/kestrel.md.

The reader is not the real program: it honours the transaction ids of 1.x journals (the program gives all of them the
id 0 and loses items), it tells both meanings of opcode 8 apart, a broken rotated file costs only its own rest (the
program cuts the *current* file), and a negative size is damage (the program dies). `as_program=True` does as the
program does.

    records    the bytes of one record          names     which files a queue has, in which order
    journal    one file, record by record       folder    which queues a folder has
    replay     what the operations leave        files     all files of one queue, as they were at one time
    queue      those, replayed and delivered    generations    the current journals that follow
    follow     and what is added to them        opened    a queue in place
    read, verify, write    the verbs
"""

from shmq.formats.kestrel.folder import detect, detect_file, queues
from shmq.formats.kestrel.opened import Opened, append, commit, open  # noqa: A004  as shmq.open
from shmq.formats.kestrel.read import consumers, lists, read, state
from shmq.formats.kestrel.records import (
    ADD,
    ADD_XID,
    ADDX,
    CONFIRM_REMOVE,
    CONTINUE,
    KEEPS,
    MAX_ITEM,
    NAME,
    REMOVE,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
    SAVE_XID,
    STATE_DUMP,
    UNREMOVE,
    record,
)
from shmq.formats.kestrel.verify import repair, verify
from shmq.formats.kestrel.write import write

__all__ = [
    "ADD",
    "ADDX",
    "ADD_XID",
    "CONFIRM_REMOVE",
    "CONTINUE",
    "KEEPS",
    "MAX_ITEM",
    "NAME",
    "REMOVE",
    "REMOVE_TENTATIVE",
    "REMOVE_TENTATIVE_XID",
    "SAVE_XID",
    "STATE_DUMP",
    "UNREMOVE",
    "Opened",
    "append",
    "commit",
    "consumers",
    "detect",
    "detect_file",
    "lists",
    "open",
    "queues",
    "read",
    "record",
    "repair",
    "state",
    "verify",
    "write",
]
