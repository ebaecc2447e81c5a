"""
Foreign queue formats, all with the same verbs: what is in there, where its readers stand, is it whole; and back.

    detect(path)                  which format is this
    read(path, ...)               what is in the queue, in delivery order, one `Entry` at a time
    state(path, ...)              where the consumers stand, open transactions, problems
    verify(path, ...)             every problem, also those that do not touch delivery
    write(path, entries, ...)     a new queue that the format's own program accepts
    repair(path, ...)             a clean copy of a damaged queue, beside it
    dump(path, ...)               its files as text, as its own program dumps them (Chronicle)
    append(path, entries, ...)    more messages in a queue that is there, under its program's lock
    commit(path, consumer, ...)   where a consumer stands, likewise
    open_queue(path, format, ...) put and take in place, while its own program does not have it open

    import_queue(path, into, ...)         messages and consumers into a shmq queue: all of them, none twice
    export_queue(source, target, to, ...) a shmq queue as a new one of a format
    convert_queue(path, target, to, ...)  from one format to another

One module per format: `kestrel`, `libkestrel`, `sej`, `qewqew`, `chronicle`. Each begins with what the format is, and
docs/formats/ has a page for each, with its bytes and with every choice that was made. A module is imported when its
format is first met.

For Kestrel and libkestrel, *path* is the folder and *queue* the name in it (not needed when there is only one). For
sej it is one sej directory, a shard root or a hub root; for QewQew it is the header file.
"""

from shmq.formats.model import Entry, Place, Problem, Repair, State
from shmq.formats.transfer import Imported, Refused, Written, convert_queue, export_queue, import_queue
from shmq.formats.verbs import (
    HERE,
    append,
    commit,
    consumers,
    detect,
    dump,
    lists,
    open_queue,
    queues,
    read,
    repair,
    state,
    verify,
    write,
)

__all__ = [
    "HERE",
    "Entry",
    "Imported",
    "Place",
    "Problem",
    "Refused",
    "Repair",
    "State",
    "Written",
    "append",
    "commit",
    "consumers",
    "convert_queue",
    "detect",
    "dump",
    "export_queue",
    "import_queue",
    "lists",
    "open_queue",
    "queues",
    "read",
    "repair",
    "state",
    "verify",
    "write",
]
