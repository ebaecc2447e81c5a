"""
Find the first message that makes a function fail, and the few before it that it takes; write them as a test.

Examples:
    shmq bisect orders jobs:handle
    shmq bisect orders jobs:handle --from 2026-01-31T08:00 --timeout 5
    shmq bisect orders jobs:handle --check jobs:adds_up --case tests/test_adds_up.py

Each run is a fresh process, which is given the messages in order; what the function does outside of it (a database, a
file) it does again in each run. It fails where it raises, ends its process, dies of a signal, or takes longer than
--timeout for one message. The queue is only read.

Exit status 0: found, and the case is written; 1: nothing failed, or it could not be done; 2: it was asked for wrongly.
For `git bisect run`, use `shmq replay`, which ends with 1 where the function raises.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from shmq.cli import handlers, show, whence
from shmq.cli.bisection import case
from shmq.cli.bisection.runs import Given, Runs
from shmq.cli.bisection.search import Found, Search
from shmq.cli.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    import shmq

_PAYLOAD_SHOWN = 400


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("queue", type=show.place, metavar="QUEUE", help="the queue")
    verb.add_argument("handler", type=_function, metavar="MODULE:FUNCTION", help="it is called with each message")
    where = 'an index, a time (ISO 8601, local; or seconds since 1970 with a point), "earliest" or "latest"'
    verb.add_argument("--from", dest="start", metavar="PLACE", default="earliest", help=f"begin there: {where}")
    verb.add_argument(
        "--to", dest="stop", metavar="PLACE", default="latest", help="end before that one (the end as it is now)"
    )
    verb.add_argument(
        "--check",
        type=_function,
        metavar="MODULE:FUNCTION",
        help="call it without arguments after the last message of a run: it fails where it raises or returns False",
    )
    verb.add_argument("--timeout", type=_some_seconds, default=60.0, metavar="SECONDS", help="for one message (60)")
    verb.add_argument(
        "--shorten", type=show.seconds, default=60.0, metavar="SECONDS", help="to leave out messages for so long (60)"
    )
    verb.add_argument("--again", type=show.whole(0), default=3, metavar="N", help="run the case so often again (3)")
    verb.add_argument(
        "--case", metavar="FILE.py", help="write the test there, its messages beside it (test_FUNCTION_INDEX.py, here)"
    )
    show.add_filter(verb)
    show.add_trusted(verb)
    verb.add_argument("--json", action="store_true", help="what was found as JSON")


def _function(word: str) -> str:
    if not handlers.is_handler(word):
        raise argparse.ArgumentTypeError(f"{word!r} is no function; it is written module:function")
    return word


def _some_seconds(word: str) -> float:
    if (found := show.seconds(word)) == 0:
        raise argparse.ArgumentTypeError("0: it takes some time")
    return found


def run(arguments: argparse.Namespace) -> int:
    """Search, write the case, and say what was found."""
    if arguments.case:
        case.refuse_existing(arguments.case)
    with show.open_queue(arguments.queue, read_only=True, trusted=arguments.trusted) as queue, Progress() as progress:
        return _Bisection(arguments, queue, progress).run()


class _Bisection:
    def __init__(self, arguments: argparse.Namespace, queue: shmq.Queue, progress: Progress) -> None:
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
            timeout=arguments.timeout,
        )
        self._runs = Runs(given, progress.at)

    def run(self) -> int:
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
        outcomes = [self._runs.over([], path) for _ in range(again)]
        same = sum(each.is_like(found.outcome) and each.count == count for each in outcomes)
        self._progress.end()
        facts = self._facts(found) | {
            "messages": handled,
            "needed": count,
            "runs": self._runs.made,
            "case": path,
            "again": again,
            "failed_again": same,
        }
        if asked.json:
            show.facts(facts)
        else:
            self._print(found, facts)

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
