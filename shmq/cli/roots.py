"""Verify and repair of a directory of shards: what each of them has is told under its name, and one answer for all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import show
from shmq.cli.progress import Progress

if TYPE_CHECKING:
    import argparse

_SHARDS = "shards.shmq"
"""The file that makes a directory one of shards; see docs/how-to/shards.md."""
_NUMBERS = ("messages", "bytes", "chunks", "padded", "open_claims", "lost", "at_least")
LOST = 3


def map_of(arguments: argparse.Namespace) -> shmq.shards.Map | None:
    """
    Which shards there are in the source of a verb; None when it is no directory of shards.

    Raises:
        Corrupt, BadFormat, Unsafe: that cannot be told.
    """
    if arguments.format not in (None, "shmq") or arguments.source.startswith("shm:"):
        return None
    return shmq.shards.read(arguments.source)


# ---- verify
def verify(shards: shmq.shards.Map, *, as_json: bool) -> int:
    """Check each shard; exit status 1 when there is a problem anywhere."""
    told, messages, count = [], 0, 0
    for shard in shards.live():
        name = os.path.basename(shard.path)
        with Progress() as progress:
            facts, problems, more = _verified(shard, progress)
        told.append({"shard": shard.number, "path": shard.path, **facts, "problems": problems, "more": more})
        messages += facts.get("messages", 0)
        count += len(problems) + more
        if not as_json:
            for problem in problems:
                print(f"{name}/{problem['file']} at {problem['position']}: {problem['reason']}")
            show.aside(shard.path, facts.get("aside", {}))
    if as_json:
        show.facts({"format": "shmq", "shards": told})
    else:
        print(
            f"{shards.path}: {show.counted(len(told), 'shard')} of shmq, {show.counted(messages, 'message')} whole, "
            f"{show.counted(count, 'problem')}"
        )
    return 1 if count else 0


def _verified(shard: shmq.shards.Shard, progress: Progress) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    """What is in a shard, its problems, and how many more there are."""
    try:
        found = shmq.verify(shard.path, progress=progress.at_share)
    except shmq.ShmqError as problem:  # it is a problem of the root's that one cannot be looked at, or is missing
        return {}, [{"file": "queue.shmq", "position": 0, "reason": str(problem)}], 0
    facts = {name: getattr(found, name) for name in _NUMBERS}
    return {**facts, "aside": found.aside}, [each._asdict() for each in found.problems], found.more


# ---- repair
def repair(shards: shmq.shards.Map, arguments: argparse.Namespace) -> int:
    """
    Repair each shard, in place, or into a clean root beside it.

    Exit status 3 when something is lost, and 1 when a shard could not be repaired: the others are.
    """
    if arguments.aside is not None:
        example = shards.live()[-1].path
        raise show.Misuse(f"what was set aside is in one shard: shmq repair {example} --aside {arguments.aside}")
    target = None if arguments.in_place else _made(arguments.to or f"{shards.path}.repaired")
    told, failed, lost = [], 0, 0
    for shard in shards.live():
        to = None if target is None else os.path.join(target, os.path.basename(shard.path))
        try:
            with Progress() as progress:
                done = shmq.repair(shard.path, to, in_place=arguments.in_place, progress=progress.at_share)
        except (shmq.ShmqError, OSError) as problem:
            failed += 1
            told.append({"shard": shard.number, "path": shard.path, "error": show.one_line(problem)})
            continue
        lost += not done
        names = ("path", "messages", "lost", "at_least", "kept")
        problems = [each._asdict() for each in done.problems]
        facts = {name: getattr(done, name) for name in names}
        told.append({"shard": shard.number, **facts, "problems": problems, "gone": list(done.gone)})
    if target is not None and not failed:
        _give_map(shards.path, target)
    if arguments.json:
        show.facts({"path": target or shards.path, "shards": told})
    else:
        _print(told, target or shards.path, failed)
    return 1 if failed else LOST if lost else 0


def _print(told: list[dict[str, Any]], path: str, failed: int) -> None:
    for each in told:
        name = os.path.basename(each["path"])
        if "error" in each:
            print(f"{name}: it was not repaired: {each['error']}")
            continue
        for problem in each["problems"]:
            print(f"{name}/{problem['file']} at {problem['position']}: {problem['reason']}")
        for file in each["gone"]:
            print(f"{name}/{file} is lost")
        lost = f"{'at least ' * each['at_least']}{each['lost']:,} lost"
        kept = f"; the damaged queue is {each['kept']}" * bool(each["kept"])
        print(f"{name}: {each['messages']:,} messages, clean; {lost}{kept}")
    clean = len(told) - failed
    print(f"{path}: {clean} of {len(told)} shards are clean" + "; no root was made of them" * bool(failed))


def _made(target: str) -> str:
    """
    A new directory for a clean root.

    Raises:
        Unsafe: there is something already.
    """
    try:
        os.mkdir(target, 0o700)
    except FileExistsError:
        raise shmq.Unsafe(f"cannot repair into {target}: there is something already; nothing was changed") from None
    return target


def _give_map(path: str, target: str) -> None:
    """With it, the copies are the shards of a root: it goes last."""
    with open(os.path.join(path, _SHARDS), "rb") as file:
        content = file.read()
    new = os.path.join(target, f".{_SHARDS}")
    with open(new, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(new, os.path.join(target, _SHARDS))
    fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
