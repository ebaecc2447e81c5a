"""Adds up what was walked, and says so at the end of the run."""

from __future__ import annotations

COUNTS = ("kill points", "distinct states", "recoveries walked")


def pytest_terminal_summary(terminalreporter):
    """One line: how many kill points, how many distinct states."""
    totals = dict.fromkeys(COUNTS, 0)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, value in report.user_properties:
                    if name in totals:
                        totals[name] += value
    if totals["kill points"]:
        said = ", ".join(f"{value:,} {name}" for name, value in totals.items())
        terminalreporter.write_line(f"killed at every instruction: {said}")
