"""
What was adopted from whom (`ledger.shmq`), and the sets that are over: adopted, handed over and waiting, or
forgotten.
"""

from __future__ import annotations

import contextlib

from shmq import errors
from shmq.hints import TYPE_CHECKING
from shmq.storage import staging
from shmq.storage.paths import LEDGER, LEDGER_NEW
from shmq.storage.records import PRODUCERS, Adopted, Handed, Manifest, read_record, replace_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory

HANDED_DAYS = 7
"""How long a set that was handed over waits for its adopter."""
_DAY_NS = 86_400_000_000_000


def ledger(home: Directory) -> dict[bytes, Adopted]:
    """{producer: the last batch adopted from it}."""
    try:
        stored = read_record(home, home.fd, LEDGER, home.path)
    except FileNotFoundError:
        return {}
    return {producer: Adopted(*batch) for producer, batch in stored.items()}


def batches_of(home: Directory) -> dict[bytes, Adopted]:
    """What the ledger says, and what it will say of the sets that are adopted and not written into it yet."""
    batches = ledger(home)
    for name in staging.names(home):
        with contextlib.suppress(FileNotFoundError), staging.open_set(home, name) as found:
            _enter(found, batches)
    return batches


def write_ledger(home: Directory, batches: dict[bytes, Adopted]) -> None:
    """Replace the ledger, synced. Under the administrative lock only."""
    kept = sorted(batches.items(), key=lambda item: item[1].first)[-PRODUCERS:]
    content = {producer: list(batch) for producer, batch in kept}
    replace_record(home, LEDGER, LEDGER_NEW, content, "ledger")


def fold(home: Directory, chain: Chain) -> None:
    """
    Finish every adoption, write it into the ledger and remove its set; remove orphans that nobody builds any more, and
    sets that were handed over HANDED_DAYS ago.

    Under the administrative lock only: no adoption is between its manifest and its SEAL then.
    """
    there = staging.names(home)
    if not there:
        return
    chain.finish()  # the SEAL at the end may name one that has no place yet
    batches = ledger(home)
    known = dict(batches)
    over: list[staging.Set] = []
    parts: list[str] = []
    with contextlib.ExitStack() as opened:
        for name in there:
            with contextlib.suppress(FileNotFoundError):
                found = opened.enter_context(staging.open_set(home, name))
                if found.placed() is not None:
                    parts += _enter(found, batches)
                    over.append(found)
                elif not found.is_held() and forgotten(found):
                    over.append(found)
        if batches != known:
            write_ledger(home, batches)
        for name in parts:  # before the set that names them
            with contextlib.suppress(FileNotFoundError):
                over.insert(0, opened.enter_context(staging.open_set(home, name)))
        for found in over:
            found.remove()


def forgotten(found: staging.Set) -> bool:
    """Whether nobody will adopt it: its builder died, or it was handed over long ago. A damaged one is for users."""
    try:
        handed = found.handed()
    except errors.Corrupt:
        return False
    return handed is None or handed.age_ns() > HANDED_DAYS * _DAY_NS


def _enter(found: staging.Set, batches: dict[bytes, Adopted]) -> Sequence[str]:
    """Write it into the ledger to be: the sets that go with it."""
    placed = found.placed()
    try:
        manifest = found.manifest()
    except FileNotFoundError:
        return ()  # it is in the ledger, and was being removed
    if placed:
        enter(manifest, placed[1], batches)
    return manifest.parts


def handed_set(home: Directory, name: str) -> tuple[staging.Set, Handed]:
    """
    The set of that name, which was handed over and not adopted.

    Raises:
        FileNotFoundError: there is none (any more).
        Corrupt: it is damaged.
    """
    found = staging.open_set(home, name)
    try:
        handed = found.handed()
        if handed is None:
            raise FileNotFoundError(name)
    except BaseException:
        found.close()
        raise
    return found, handed


def _adopted_parts(home: Directory, chain: Chain) -> set[str]:
    """The sets that were handed over and are adopted, and that nobody has removed yet."""
    adopted: set[str] = set()
    at_the_end = chain.last_adoption()
    for name in staging.names(home):
        with contextlib.suppress(FileNotFoundError, errors.Corrupt), staging.open_set(home, name) as found:
            if found.adoption == at_the_end or found.placed() is not None:
                adopted.update(found.manifest().parts)
    return adopted


def handed_sets(home: Directory, chain: Chain) -> Iterator[tuple[str, Handed | None]]:
    """Every set that was handed over and not adopted, None if damaged."""
    there = sorted(staging.names(home))
    adopted = _adopted_parts(home, chain) if there else set()
    for name in there:
        if name in adopted:
            continue
        handed = None
        with contextlib.suppress(FileNotFoundError):
            with contextlib.suppress(errors.Corrupt):
                found, handed = handed_set(home, name)
                found.close()
            yield name, handed


def remove_handed(home: Directory, chain: Chain, unwanted: Callable[[Handed | None], bool]) -> int:
    """Remove those; under the administrative lock, and after `fold`: how many."""
    removed = 0
    for name, handed in handed_sets(home, chain):
        if unwanted(handed):
            with contextlib.suppress(FileNotFoundError), staging.open_set(home, name) as found:
                found.remove()
                removed += 1
    return removed


def enter(manifest: Manifest, first: int, batches: dict[bytes, Adopted]) -> None:
    """Have the ledger know a batch whose first index that is."""
    before = batches.get(manifest.producer)
    if manifest.producer and (before is None or before.sequence < manifest.sequence):
        batches[manifest.producer] = Adopted(manifest.sequence, first, sum(manifest.counts))
