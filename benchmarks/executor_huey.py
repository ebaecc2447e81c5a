"""Tasks of the benchmark, for huey's consumer."""

import os

from huey import SqliteHuey

from benchmarks import executor

huey = SqliteHuey(filename=os.environ["BENCH_HUEY"], store_none=True)
noop = huey.task()(executor.noop)
busy = huey.task()(executor.busy)
