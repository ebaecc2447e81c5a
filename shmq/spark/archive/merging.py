"""
Fewer, larger files: which of them are put together, and when.

A file that grew by a little each time would be written again each time, so all of it costs the square of what is
archived. Files are put together when what comes of it is many times as large as each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmq.spark.archive.files import FILE_BYTES, Archive, File, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

GROWTH = 8


def compact(to: str, *, file_bytes: int = FILE_BYTES) -> int:
    """
    Put neighbouring small files together, up to about *file_bytes* each; return how many files went.

    Readers are not disturbed: the old files stay for a day. To call it often costs nothing: see `is_worth`.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415

    gone = 0
    with Archive(to) as there:
        for run in _small_runs(there.manifest(), file_bytes):
            first, last = run[0], run[-1]

            def tables(files: list[File] = run) -> Iterator[Any]:
                for each in files:
                    with pq.ParquetFile(f"{there.path}/{each.name}") as opened:
                        for group in range(opened.num_row_groups):
                            yield opened.read_row_group(group)

            there.write(
                tables(),
                topic=first.topic,
                shard=first.shard,
                queue_id=first.queue_id,
                first=first.first,
                stop=last.stop,
                instead_of=run,
            )
            gone += len(run) - 1
    return gone


def _small_runs(manifest: Manifest, nbytes: int) -> list[list[File]]:
    """Runs of neighbours that are worth one file."""
    runs = []
    for topic, shard in sorted({(each.topic, each.shard) for each in manifest.files}):
        files = manifest.of(topic, shard)
        at = 0
        while at < len(files):
            run = files[at : at + _run(files[at:], nbytes)]
            runs.append(run)
            at += max(len(run), 1)
    return [run for run in runs if len(run) > 1]


def _run(files: list[File], nbytes: int) -> int:
    """How many of *files*, from the first one on, are worth one file; 0 if none."""
    found = total = largest = 0
    for number, each in enumerate(files, 1):
        total, largest = total + each.nbytes, max(largest, each.nbytes)
        if (number > 1 and files[number - 2].stop != each.first) or total > nbytes:
            break
        if is_worth(total, largest, nbytes):
            found = number
    return found


def is_worth(total: int, largest: int, nbytes: int) -> bool:
    """
    Whether files of *total* bytes, the largest of which has so many, are worth one file.

    What is written again lies in a file at least `GROWTH` times as large then; or, once or twice in its life, in one
    of half the size that files are to have, *nbytes*, or more. So no message is written more often than the logarithm
    of that size, however often one comes to look.
    """
    return total >= GROWTH * largest or (2 * total >= nbytes and 2 * total >= 3 * largest)
