"""
What a batch over several hosts is to adopt, noted before the first of them adopts.

Whoever repeats the batch adopts what is noted, wherever its own rows would go: so a batch that was adopted on one host
and not on another is made good, also where the hosts of the sink were changed in between.
"""

from __future__ import annotations

import json
from typing import Any

import shmq
from shmq.spark import hosts

_VERSION = 1


def agreed(address: str, app: str, sequence: int, tokens: dict[str, list[str]]) -> dict[str, list[str]]:
    """
    What is to be adopted for a batch, by the address of the queue: what was noted for it first.

    Args:
        address: of the queue of intents.
        app, sequence: who writes, and which batch of theirs.
        tokens: what this try has staged.

    Raises:
        Mismatch: a later batch was noted; or what is noted is of a newer version.
        NotFound: there is no queue of intents.
        Gone: what was noted was retired.
    """
    import pyarrow as pa  # noqa: PLC0415  # the driver of other queries may lack it

    (at,) = hosts.addresses(address)
    client: Any = hosts.client(at.location)
    note = json.dumps({"v": _VERSION, "tokens": tokens}).encode()
    there = client.write(at.name, pa.table({"payload": pa.array([note], pa.binary())}), dedup=(app, sequence))
    with client.queue(at.name).read_arrow(there.start, there.stop, ["payload"]) as batches:
        (payload,) = [each for batch in batches for each in batch["payload"].to_pylist()]
    found = json.loads(payload)
    if found.get("v") != _VERSION:
        raise shmq.Mismatch(
            f"{address} holds an intent of version {found.get('v')!r} for batch {sequence} of {app!r}, and this shmq "
            f"knows {_VERSION}; nothing was adopted"
        )
    return {str(path): [str(each) for each in several] for path, several in found["tokens"].items()}
