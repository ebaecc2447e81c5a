"""
The verbs, each with what it does, in a line: what `shmq --help` lists, without importing any of them.

A verb is a line here and a module of its name, whose docstring begins with the same sentence; tests/house holds them
against each other.
"""

from __future__ import annotations

import keyword

GROUPS = {
    "queues": {
        "create": "Make a queue in a new directory, or a volatile one, which lasts as long as somebody has it open",
        "configure": "Change options of a queue for everybody, now, whoever has it open; without any, show them",
        "delete": "Delete queues, with everything in them",
        "ls": "List the queues below a directory, or the consumers of a queue",
        "stat": "Show the figures of a queue, or of each shard of a directory",
        "purge": "Finish everything in a queue for every consumer, and give its disk space back",
        "finish": "End a queue's stream: consumers drain it, now or later, and then end",
        "shutdown": "Have the programs that use a queue end: puts are refused, consumers drain it and end",
        "copy": "Copy a queue while others use it, exact up to one index",
        "gc": "Take away the volatile queues that nobody has open, because all who had were killed",
    },
    "messages": {
        "put": "Put one message, or many: every line of standard input, or JSON lines, CSV, files",
        "take": "Take the next messages as a consumer: every name sees every message, from where it stopped",
        "tail": "Show the last messages, and with -f those that come",
        "cat": "Print messages by index, by time, by key, by what is in them",
        "replay": "Put messages again: of a queue into another queue or a function, or what a pipeline has archived "
        "into a queue",
    },
    "consumers": {
        "consumer": "List, make, show, remove or rename the consumers of a queue",
        "seek": "Move a consumer, or a whole group: back to see messages again, forward to skip some",
        "dead": "Look at dead letters, put them back where they came from, or drop them",
        "worker": "Run tasks of an Executor's directory, from another terminal or another container",
    },
    "when something is wrong": {
        "top": "Show queues live: who puts and who takes, rates, lags, ages and the disk",
        "metrics": "Print what queues are at as Prometheus reads it, or serve it to be scraped",
        "why": "Say why a queue is stuck or slow: who waits for whom, who has what, and what to do about it",
        "verify": "Check a queue, ours or foreign, or all shards of a directory, and print every problem: file, "
        "position, reason",
        "repair": "Write a clean copy of a damaged queue, ours or foreign, beside it",
        "bisect": "Find the first message that makes a function fail, and the few before it that it takes; write them "
        "as a test",
        "chaos": "Try on this machine and disk what shmq promises: kill and stop its processes, and account for every "
        "message",
        "doctor": "Check whether shmq can keep its promises on this machine and in this place",
        "demo": "The main job on real data, with kill -9 half-way, and every message accounted for",
    },
    "other machines": {
        "serve": "Serve the queues below a directory to other programs and machines",
        "replicate": "Have a queue followed by another one, with the same indexes, times and keys, until Ctrl-C or "
        "SIGTERM",
        "fence": "Fence a follower whose source is to be replaced, where puts wait for followers: it takes nothing "
        "more of that, durably",
        "promote": "Make a queue of its own of one that follows another: it is put into and consumed from then",
        "hub": "Gather the queues of many machines below one directory, until Ctrl-C or SIGTERM",
        "bridge": "Carry a queue's messages to NATS, Redis, Kafka or a POSIX message queue, or theirs into a queue",
    },
    "other formats": {
        "import": "Bring a foreign queue in: Kestrel, libkestrel, sej, QewQew or Chronicle Queue",
        "export": "Write a queue as a foreign format: Kestrel, libkestrel, sej, QewQew or Chronicle Queue",
        "convert": "Turn one foreign queue into another, of any of the five formats",
        "dump": "Print what is in a foreign queue, and with --state where its consumers stand",
        "pipeline": "From queues by SQL or Python to Parquet, Delta or other queues, on Spark: the whole way as one "
        "TOML says",
        "archive": "Bring messages into a Delta table, or plain Parquet, before their queue may forget them",
    },
    "this command": {
        "help": "Show what there is, or all about a verb",
        "completion": "Print a script with which a shell completes verbs, options, values, paths and consumers' names",
        "man": "Print the manual of this command, for `man`",
    },
}
"""By what they are about."""

VERBS = tuple(name for group in GROUPS.values() for name in group)


def module_of(verb: str) -> str:
    """The name of its module."""
    return f"shmq.cli.{verb}{'_' * keyword.iskeyword(verb)}"
