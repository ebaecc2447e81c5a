"""What a worker process of a stage runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq.flow.bench import READY, REFUSED, Bench
from shmq.flow.order import Ordered

if TYPE_CHECKING:
    from shmq import workers
    from shmq.flow.place import Place
    from shmq.flow.plan import Stage


def work(life: workers.Life, place: Place, number: int, stage: Stage, following: Stage | None) -> None:
    """Until the stage is drained, or this worker is to leave."""
    kind = Ordered if stage.ordered else Bench
    with kind(life, place, number, stage, following) as bench:
        life.say(READY)
        try:
            bench.run()
        except shmq.ShutDown as problem:  # of the queue that a user gave as sink
            life.say(REFUSED + str(problem).encode())
