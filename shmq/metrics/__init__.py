"""
What queues are at, for Prometheus: a collector, its text, and a server to scrape.

    import prometheus_client, shmq

    prometheus_client.REGISTRY.register(shmq.metrics.Collector("orders"))

Whoever uses the queues does nothing for it: all of it is in their pages, and is read by anyone who may read them, at
any time, without a seat. docs/how-to/metrics.md names every metric. It needs the package prometheus_client:
pip install 'shmq[metrics]'.
"""

from __future__ import annotations

try:
    import prometheus_client as _  # noqa: F401
except ImportError as problem:
    raise ImportError(f"shmq.metrics needs prometheus_client ({problem}): pip install 'shmq[metrics]'") from None

from shmq.metrics.collector import Collector
from shmq.metrics.serving import Server, serve, text

__all__ = ["Collector", "Server", "serve", "text"]
