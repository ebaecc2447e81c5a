"""
The whole queue against its model, for long: `python -m tests.whole.campaign --sequences 3000 --processes 2`.

Seeds from the first one on, PER_SEED sequences each, every one in a process of its own. From EVERY_PAIR sequences on, a
pair of a verb and another feature that never met is a finding; before that is said, stories are told that bring it
together (meeting.py). Prints the pairs. SHMQ_TRACE=FILE writes down what is being done, for what hangs; `--shrink`
looks for the shortest sequence that shows a finding.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import io
import multiprocessing
import sys
import time
import traceback
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

from tests.whole.machine import MET, VERBS, Whole
from tests.whole.meeting import bring_together
from tests.whole.shorter import shorter
from tests.whole.steps import FAILED, FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.whole.pairs import Met, Story

EVERY_PAIR = 3000
"""Sequences in which every pair meets."""
PER_SEED = 250


class Run(NamedTuple):
    """What became of one seed."""

    seed: int
    sequences: int
    met: Met
    finding: str | None
    told: str


def play(seed: int, sequences: int, steps: int) -> None:
    """So many sequences of up to so many verbs each; an exception for what the model would not have said."""
    FAILED.clear()
    run_state_machine_as_test(
        seeded(seed)(type("Played", (Whole,), {})),
        settings=settings(
            max_examples=sequences,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
            report_multiple_bugs=False,
        ),
    )


def tell_of(problem: BaseException, story: Story, *, shrink: bool) -> None:
    """What went wrong, and the story that led there."""
    if shrink and story:
        story, again = shorter(Whole, story)
        problem = again or problem
        print("" if again else "Told again, the story ends well:")
    problem.__notes__ = []  # Hypothesis's own telling of it
    traceback.print_exception(problem, limit=-8, file=sys.stdout)
    for step, given in story:
        print(f"  {step}({', '.join(f'{name}={value!r}' for name, value in given.items())})")


@contextlib.contextmanager
def finding(found: list[str], *, shrink: bool) -> Iterator[None]:
    """What goes wrong in here is told, and found."""
    try:
        yield
    except FAULTS as problem:  # whatever it is, it is a finding
        first, story = FAILED[0] if FAILED else (problem, [])
        found.append(f"{type(first).__name__}: {first}"[:300].replace("\n", " "))
        tell_of(first, story, shrink=shrink)


def run(seed: int, sequences: int, steps: int, shrink: bool) -> Run:
    """One seed, in a process that has done nothing before."""
    found: list[str] = []
    with contextlib.redirect_stdout(io.StringIO()) as told, finding(found, shrink=shrink):
        play(seed, sequences, steps)
    return Run(seed, sequences, MET, found[0] if found else None, told.getvalue())


def runs(seed: int, sequences: int, steps: int, processes: int, *, shrink: bool) -> Iterator[Run]:
    """All seeds, as they end."""
    shares = [min(PER_SEED, sequences - at) for at in range(0, sequences, PER_SEED)]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=1) as pool:
        asked = [pool.submit(run, seed + number, share, steps, shrink) for number, share in enumerate(shares)]
        for each in concurrent.futures.as_completed(asked):
            yield each.result()


def never_met(*, shrink: bool) -> list[str]:
    """What did not meet, also when it was brought together; and what was found on the way."""
    found: list[str] = []
    with finding(found, shrink=shrink):
        print(f"{len(MET.never())} pairs had not met; {bring_together(Whole)} stories were told to bring them together")
    found += [f"{verb} never met {feature}" for verb, feature in MET.never()]
    return found + [f"{verb} was never done" for verb in sorted(VERBS.keys() - MET.verbs)]


def main() -> int:
    """One campaign; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="tests.whole.campaign", description="The whole queue against its model.")
    parser.add_argument("--sequences", type=int, default=EVERY_PAIR)
    parser.add_argument("--steps", type=int, default=60, help="verbs in each, at most")
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1_000_000, help="the first one")
    parser.add_argument("--processes", type=int, default=1, help="so many seeds at a time")
    parser.add_argument("--pairs", action="store_true", help="check the pairs, however few sequences there are")
    parser.add_argument("--shrink", action="store_true", help="look for the shortest sequence that shows the finding")
    given = parser.parse_args()
    found, began = [], time.monotonic()
    for each in runs(given.seed, given.sequences, given.steps, given.processes, shrink=given.shrink):
        again = f"python -m tests.whole.campaign --seed {each.seed} --sequences {each.sequences} --steps {given.steps}"
        print(
            f"{each.told}seed {each.seed}: {each.sequences} sequences, {'a finding' if each.finding else '0 findings'}"
        )
        found += [f"{each.finding}  [{again}]"] if each.finding else []
        MET.add(each.met)
        sys.stdout.flush()
    if given.pairs or given.sequences >= EVERY_PAIR:
        found += never_met(shrink=given.shrink)
    print(MET.table())
    for each_one in found:
        print(f"FOUND {each_one}")
    met = sum(MET.count.values())
    print(
        f"{given.sequences:,} sequences, {met:,} meetings of {len(MET.count):,} pairs, {len(found)} findings in "
        f"{time.monotonic() - began:.0f} s, seeds from {given.seed} on"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
