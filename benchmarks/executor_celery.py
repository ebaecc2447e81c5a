"""Tasks of the benchmark, for Celery's worker."""

import os

from celery import Celery

from benchmarks import executor

app = Celery("bench", broker=os.environ["BENCH_CELERY"], backend=os.environ["BENCH_CELERY"])
noop = app.task(name="noop")(executor.noop)
busy = app.task(name="busy")(executor.busy)
