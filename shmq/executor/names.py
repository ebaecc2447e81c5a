"""What is called how in an Executor's directory."""

from __future__ import annotations

DESCRIPTION = "executor.json"
PAGE = "page"
WORKERS = "workers"
TASKS = {0: "tasks", 1: "tasks-high", -1: "tasks-low"}
"""A queue for each priority."""
KEPT = "kept"
"""Outcomes of tasks with a key; a name before RESULTS, so that what is put into both is here first."""
RESULTS = "results"
"""Outcomes of all tasks, for the submitters that wait for them."""
DEATHS = "deaths"
"""How workers died, and on which task."""
CANCELS = "cancels"
DEAD = "dead"
"""The dead letters: tasks that killed their workers, or failed at each attempt."""
GROUP = "workers"
"""The consumer that all workers share in each queue of tasks."""
SUBMITTER = "s-"
"""Begins the name by which a submitter follows the results."""
QUEUES = (*TASKS.values(), KEPT, RESULTS, DEATHS, CANCELS, DEAD)
