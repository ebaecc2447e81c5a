"""Fewer, larger files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmq.spark.archive.files import FILE_BYTES, Archive, File, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator


def compact(to: str, *, file_bytes: int = FILE_BYTES) -> int:
    """
    Put neighbouring small files together, up to about *file_bytes* each; return how many files went.

    Readers are not disturbed: the old files stay until the next run.
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
    """Runs of neighbours that fit into one file together."""
    runs = []
    for topic, shard in sorted({(each.topic, each.shard) for each in manifest.files}):
        run: list[File] = []
        for each in manifest.of(topic, shard):
            if run and (sum(f.nbytes for f in run) + each.nbytes > nbytes or run[-1].stop != each.first):
                runs.append(run)
                run = []
            run.append(each)
        runs.append(run)
    return [run for run in runs if len(run) > 1]
