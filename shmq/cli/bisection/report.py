"""What `shmq bisect` does from beginning to end: the search, the case, and what is said of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shmq.cli import show, whence
from shmq.cli.bisection import case
from shmq.cli.bisection.runs import Given, Runs
from shmq.cli.bisection.search import Search

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    import shmq
    from shmq.cli.bisection.runs import Outcome
    from shmq.cli.bisection.search import Found
    from shmq.cli.progress import Progress

_PAYLOAD_SHOWN = 400


class Bisection:
    """One search, as it was asked for."""

    def __init__(self, arguments: argparse.Namespace, queue: shmq.Queue, progress: Progress) -> None:
        """Nothing is run yet."""
        self._asked = arguments
        self._queue = queue
        self._progress = progress
        self._wanted = show.wanted(arguments)
        given = Given(
            queue=arguments.queue,
            handler=arguments.handler,
            check=arguments.check,
            trusted=arguments.trusted,
            key_prefix=arguments.key_prefix or b"",
            types=arguments.types,
            headers=dict(arguments.with_headers or []),
            timeout=arguments.timeout,
        )
        self._runs = Runs(given, progress.at)

    def run(self) -> int:
        """Search, write, say; return the exit status. What was found is said also where Ctrl-C ends it."""
        asked = self._asked
        first = max(whence.index_at(self._queue, "--from", asked.start), self._queue.first_index)
        stop = whence.index_at(self._queue, "--to", asked.stop)
        search = Search(self._runs, first, stop, self._indexes, checks=asked.check is not None)
        try:
            found = search.run(lambda index: self._queue[index].key, asked.shorten)
        except KeyboardInterrupt:
            if search.found is not None:
                search.found.whole = True
                self._tell(search.found, search.handled, 0)
            raise
        if found is None:
            self._tell_none(search.handled)
            return 1
        self._tell(found, search.handled, asked.again)
        return 0

    def _indexes(self, first: int, stop: int, key: bytes | None) -> list[int]:
        """Of the messages there that are given to the function, and have that key, if one is named."""
        messages = self._queue.reader(first, stop, filter=self._wanted)
        return [message.index for message in messages if key is None or message.key == key]

    def _messages(self, found: Found) -> Iterator[shmq.Message]:
        for first, stop in found.kept:
            yield from self._queue.reader(first, stop, filter=self._wanted)

    # ---- what is said
    def _tell_none(self, handled: int) -> None:
        self._progress.end()
        if self._asked.json:
            show.facts({"failed": False, "messages": handled})
        else:
            print(f"nothing failed: {self._asked.handler} was given {show.counted(handled, 'message')}")

    def _tell(self, found: Found, handled: int, again: int) -> None:
        """Write the case, run it again so often, and say what was found."""
        asked = self._asked
        path = asked.case or case.path_for(asked.handler, found.index)
        count = sum(1 for _ in self._messages(found))
        told = {
            "title": self._title(found),
            "story": f"Of the {handled:,} messages up to there {_takes(found, count)}; data in {case.data_path(path)}.",
            "apart": asked.timeout + 60 if found.outcome.died else None,
        }
        case.write(path, self._queue, self._messages(found), asked.handler, asked.check, told)
        outcomes: list[Outcome] = []
        interrupted = False
        try:
            while len(outcomes) < again:
                outcomes.append(self._runs.over([], path))
        except KeyboardInterrupt:  # what was found is said all the same
            interrupted = True
        same = sum(each.is_like(found.outcome) and each.count == count for each in outcomes)
        self._progress.end()
        facts = self._facts(found) | {
            "messages": handled,
            "needed": count,
            "runs": self._runs.made,
            "case": path,
            "again": len(outcomes),
            "failed_again": same,
        }
        if asked.json:
            show.facts(facts)
        else:
            self._print(found, facts)
        if interrupted:
            raise KeyboardInterrupt

    def _title(self, found: Found) -> str:
        checked = found.outcome.kind == "check"
        who, where = (self._asked.check, "after") if checked else (self._asked.handler, "at")
        return f"{who} fails {where} message {found.index} of {self._asked.queue}: {found.outcome.what}"

    def _facts(self, found: Found) -> dict[str, Any]:
        outcome = found.outcome
        message = self._queue[found.index]
        return {
            "failed": True,
            "index": found.index,
            "kind": outcome.kind,
            "what": outcome.what,
            "text": outcome.text,
            "time": message.time,
            "key": message.key,
            "type": message.type,
            "headers": message.headers,
            "bytes": len(message.view),
            "others_failed_too": found.steady,
            "kept": found.kept,
        }

    def _print(self, found: Found, facts: dict[str, Any]) -> None:
        print(self._title(found))
        print(f"\n    time     {facts['time'].isoformat()}")
        for name in ("key", "type", "headers"):
            if facts[name]:
                print(f"    {name:8} {facts[name]!r}")
        data = bytes(self._queue[found.index].view[:_PAYLOAD_SHOWN])
        more = "" if facts["bytes"] <= _PAYLOAD_SHOWN else "..."
        print(f"    payload  {show.counted(facts['bytes'], 'byte')}: {data!r}{more}")
        if found.outcome.text:
            print(f"\n{found.outcome.text.rstrip()}")
        print(f"\nOf {show.counted(facts['messages'], 'message')} up to there {_takes(found, facts['needed'])}.")
        if facts["again"]:
            often = f"{facts['failed_again']} of {facts['again']} times"
            odd = facts["failed_again"] < facts["again"] or not found.steady
            print(f"Run again from its files, it failed {often}{': IT DOES NOT FAIL EACH TIME' if odd else ''}.")
        print(f"The case, after {show.counted(facts['runs'], 'run')}: pytest {facts['case']}")


def _takes(found: Found, count: int) -> str:
    if not found.steady:
        return "all are kept: none of the runs that began later, nor one more of them all, failed in the same way"
    left = ", and there was no time to leave more out" if found.whole else ""
    return f"{'that one alone is' if count == 1 else f'{count:,} are'} enough{left}"
