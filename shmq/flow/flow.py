"""Flow: the stages, and `run`."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Self

import shmq
from shmq.flow.counts import StageSummary, Summary, count
from shmq.flow.place import Place
from shmq.flow.plan import Stage
from shmq.flow.run import Run, StageDied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Flow", "StageDied"]

_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_MAX = 32


class Flow:
    """
    Stages of worker processes with durable queues between them. One directory is one run.

        flow = shmq.Flow("flow/").stage(parse, workers=2).stage(enrich, workers=4, ordered=True).sink(store)
        flow.run(source)

    What is killed, all of it or a part, at any moment, goes on with the next `run`: each item goes through each stage,
    and what comes of it is in the next queue once. Functions are called again for what was not finished.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        codec: Any = "pickle",
        durability: shmq.Durability | str = "process",
        context: Any = None,
    ) -> None:
        """
        Nothing is made yet.

        Args:
            path: the directory; made by `run`, with mode 0700. What is in it is unpickled and given to functions, so it
                must be the user's own.
            codec: of the items in all its queues, as `shmq.open` takes it; "pickle" by default.
            durability: of all its queues. With "process", the default, a power cut may have items come out twice that
                went through the last second; with "sync" each comes out once, and costs some syncs.
            context: how workers are started: "forkserver", the default, "spawn", "fork", or one of multiprocessing's.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path={path!r}: the path of a directory is wanted, not {type(path).__name__}")
        options = shmq.Options(codec=codec, durability=shmq.Durability.of(durability))  # refuses what is none
        self._place = Place(path, codec, options.durability)
        self._context = context
        self._stages: list[Stage] = []

    # ---- stages
    def stage(
        self,
        function: Callable[[Any], Any],
        *,
        workers: int = 1,
        ordered: bool = False,
        batch: int | None = None,
        attempts: int = 3,
        backoff: float = 0.1,
        bound: int = 1024,
        name: str | None = None,
    ) -> Self:
        """
        Add a stage, and return this flow.

        The function is given an item. What it answers goes on to the next stage: None is nothing; an iterator (a
        generator, say) is all that it yields, None too; anything else, a list too, is one item.

        Args:
            function: one of a module, by its name, unless workers are forked.
            workers: how many processes.
            ordered: have what comes of the items leave in the order in which they came. Workers do up to 16 ahead.
            batch: give the function lists of up to so many items, of those that are there. It answers with an iterable
                of one answer for each, in their order, each as above; or with None, for nothing of all. When it
                raises, it is called for each of them again, by itself.
            attempts: how often an item is tried, when the function raises or its worker dies, before it goes to the
                dead letters.
            backoff: seconds before the second try; doubled for each further one, up to a minute.
            bound: how many items may wait for this stage; who puts more waits.
            name: of its queue's directory; the function's by default.

        Raises:
            TypeError, ValueError: it means nothing; nothing was added.
        """
        return self._add(
            Stage(
                self._named(name, function),
                function,
                workers=workers,
                ordered=ordered,
                batch=batch,
                attempts=attempts,
                backoff=backoff,
                bound=bound,
            )
        )

    def sink(
        self,
        target: Callable[[Any], Any] | shmq.Queue[Any],
        *,
        workers: int = 1,
        ordered: bool = False,
        batch: int | None = None,
        attempts: int = 3,
        backoff: float = 0.1,
        bound: int = 1024,
        name: str | None = None,
    ) -> Self:
        """
        Add the last stage, and return this flow.

        A function is called at least once for each item, twice or more when its worker is killed: have it do the same
        again. What it answers is dropped. Into a queue each item is put once. Without a sink, what comes out of the
        last stage is in the queue "out" in the directory.

        Args:
            target: a function of an item, or of a list with *batch*; or a queue, which is not finished in the end.
            ordered: call it for the items in their order, also when one is tried again; by one worker.
            workers, batch, attempts, backoff, bound, name: as `stage`.

        Raises:
            TypeError, ValueError: it means nothing, or there is a sink already; nothing was added.
        """
        queue = target if isinstance(target, shmq.Queue) else None
        function: Any = None if queue is not None else target
        return self._add(
            Stage(
                self._named(name, target if queue is None else "sink"),
                function,
                workers=workers,
                ordered=ordered,
                batch=batch,
                attempts=attempts,
                backoff=backoff,
                bound=bound,
                sink=queue is None,
                target=queue,
            )
        )

    def _named(self, name: str | None, function: Any) -> str:
        if name is None:
            name = function if isinstance(function, str) else getattr(function, "__name__", type(function).__name__)
            return _NAME.sub("-", name).strip("-")[:_NAME_MAX] or "stage"
        if not isinstance(name, str) or not name or len(name) > _NAME_MAX or _NAME.search(name):
            raise ValueError(f"name={name!r}: 1 to {_NAME_MAX} of A-Z a-z 0-9 _ -")
        return name

    def _add(self, stage: Stage) -> Self:
        if self._stages and (self._stages[-1].sink or self._stages[-1].target is not None):
            raise ValueError(f"cannot add {stage.name!r}: the sink {self._stages[-1].name!r} is the last one")
        self._stages.append(stage)
        return self

    # ---- running
    def run(
        self, source: Iterable[Any] | shmq.Queue[Any], *, fresh: bool = False, progress: bool | None = None
    ) -> Summary:
        """
        Run it to its end, from where it was interrupted, and return what it came to; a run that is over returns that.

        Ctrl-C once takes nothing more from the source, has the stages finish what is in their queues, and raises
        KeyboardInterrupt; twice leaves at once. Either way the next `run` goes on. When the source raises, what it gave
        before goes through, then the error is raised here.

        Args:
            source: an iterable that gives the same items when it is iterated again: what was put before is skipped. Or
                a queue, of which every message is taken once, until it is finished or shut down.
            fresh: forget what was done, and begin anew.
            progress: show how far each stage is, on stderr: as a live table where there is a terminal and rich is
                installed, else as lines. None: if stderr is a terminal.

        Raises:
            Mismatch: the directory belongs to a flow with other stages, or another codec.
            Busy: somebody else runs it.
            Unsafe: the directory is not the user's own.
            StageDied: workers of a stage die before they can begin: their module raises, say.
            KeyboardInterrupt: see above.
        """
        stages = self._checked(source)
        self._place.make()
        with self._place.held():
            if fresh:
                self._place.clear(source if isinstance(source, shmq.Queue) else None)
            self._place.begin(stages)
            kept = self._place.summary()
            if kept is not None:
                return Summary.from_json(kept)
            return Run(self._place, stages, self._context, progress=progress).run(source)

    def _checked(self, source: Any) -> list[Stage]:
        if not self._stages:
            raise ValueError(f"the flow {self._place.path} has no stages")
        if isinstance(source, (str, bytes)) or not (hasattr(source, "__iter__") or isinstance(source, shmq.Queue)):
            raise TypeError(f"source={source!r}: an iterable of items, or a queue, is wanted")
        method = getattr(self._context, "_name", self._context) or "forkserver"
        for each in self._stages:
            each.check_sent(method)
        return list(self._stages)

    def delete(self) -> None:
        """
        Delete the directory, with everything in it. Interrupted, it can be called again.

        Raises:
            NotFound: there is none.
            Busy: somebody runs it.
            Unsafe, BadFormat: it is not the user's own, or something else; nothing was deleted.
        """
        if not os.path.lexists(self._place.path):
            raise shmq.NotFound(f"cannot delete the flow {self._place.path}: there is none")
        self._place.make()
        self._place.check_is_flow()
        with self._place.held():
            self._place.clear(None)
        self._place.remove()

    # ---- looking
    def stats(self) -> tuple[StageSummary, ...]:
        """
        How far each stage is now; from any process.

        Raises:
            NotFound: it was never run.
        """
        return count(self._place, self._stages)

    def __repr__(self) -> str:
        """Its path and stages, for people."""
        return f"<shmq.Flow {self._place.path} ({' -> '.join(each.name for each in self._stages) or 'no stages'})>"
