"""
Between foreign queues and shmq: what becomes of a message, of a consumer, and what would be lost.

A map:
    source, batches   a foreign queue, and its messages as many at a time as one claim takes
    followers         its consumers, on their way to their places
    messages          what a message becomes; the header that keeps what only the foreign format knew
    before, into      what was imported before; importing
    survey, out_of    what is in a queue that is to be written as another format; exporting
    between           from one foreign format to another
    options           those of the format that is written
    refusals, results why something was not done; what was done

Like every surface, it uses only what `import shmq` gives.
"""

from shmq.formats.transfer.between import convert_queue
from shmq.formats.transfer.into import import_queue
from shmq.formats.transfer.out_of import export_queue
from shmq.formats.transfer.refusals import Refused
from shmq.formats.transfer.results import Imported, Written

__all__ = ["Imported", "Refused", "Written", "convert_queue", "export_queue", "import_queue"]
