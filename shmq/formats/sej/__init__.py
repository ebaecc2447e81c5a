"""
sej: a segmented journal of numbered messages, read by many from their own offsets.

A sej directory holds `jnl/<16 hex digits>.jnl` (segments, named by the offset of their first message) and
`ofs/<reader>.ofs` (eight bytes: the next offset that reader wants). Everything is big-endian; a message carries its
length at its end too. A *shard root* holds directories named `[prefix.]<bit>.<index>`, a *hub root* directories
named `<client>.<directory>`. The format's page is docs/formats/sej.md.

The reader is not the real program's Scanner: a message with an empty key has an empty key (the Scanner repeats the
key before it), an empty segment in the middle is passed (the Scanner spins), and a break in one segment does not
hide the segments after it (the Scanner stops for good). `as_program=True` repeats the key and stops at the break.

    messages   the bytes of one message         names      which directories and segments there are
    journal    one directory, read on           offsets    where the readers stand
    root       many directories as one          read, verify, write, append    the verbs
"""

from shmq.formats.sej.append import Appender, append, commit
from shmq.formats.sej.messages import KEEPS, MAX_KEY, NAME, SEGMENT_BYTES, ZERO_TIME, message
from shmq.formats.sej.names import MAX_SHARD_BIT, detect, directories, queues, shard_directory
from shmq.formats.sej.read import consumers, lists, read, state
from shmq.formats.sej.verify import repair, verify
from shmq.formats.sej.write import write

__all__ = [
    "KEEPS",
    "MAX_KEY",
    "MAX_SHARD_BIT",
    "NAME",
    "SEGMENT_BYTES",
    "ZERO_TIME",
    "Appender",
    "append",
    "commit",
    "consumers",
    "detect",
    "directories",
    "lists",
    "message",
    "queues",
    "read",
    "repair",
    "shard_directory",
    "state",
    "verify",
    "write",
]
