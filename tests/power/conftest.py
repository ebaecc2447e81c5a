"""The shim, built once; and how many cuts there were, said at the end of the run."""

from __future__ import annotations

import pytest

from .shim import build, scratch, why_not

COUNTS = ("power cuts", "distinct images judged", "recoveries cut", "failing calls")


@pytest.fixture(scope="session")
def built():
    """The shim."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with scratch() as folder:
        yield build(folder)


def pytest_terminal_summary(terminalreporter):
    """One line."""
    totals = dict.fromkeys(COUNTS, 0)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, value in report.user_properties:
                    if name in totals:
                        totals[name] += value
    if any(totals.values()):
        said = ", ".join(f"{value:,} {name}" for name, value in totals.items())
        terminalreporter.write_line(f"power and disk: {said}")
