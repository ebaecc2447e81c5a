"""
Two hosts, as far as one machine can be two: each with an address, a name and directories of its own.

A host is a network, mount and name space of Linux, so this needs the rights to make them; without, it is left out.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import chaos
import pytest
from many_hosts import ADDRESSES, Campaign, Host, NoSpaces, Services, two_hosts

import shmq

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
SOME = 10_000
MOVE_ON = {  # what docs/spark/clusters.md tells who has a queue on one of several hosts
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "1",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "1000",
    "spark.excludeOnFailure.application.enabled": "false",
}

JOB = """
import json, sys
import shmq
master, conf, work = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **conf}
spark = shmq.spark.session(master, **conf)
read = lambda path: spark.read.format("shmq").option("minPartitions", "4").load(path)
numbers = lambda frame: sorted(int(row.value) for row in frame.select("value").collect())
def tried(work):
    try:
        return work()
    except Exception as problem:
        return str(problem)
print(json.dumps(eval(work[0], globals(), {"paths": work[1:]})), flush=True)
spark.stop()
"""


@dataclasses.dataclass
class Cluster:
    """A standalone master on host-a, and a worker on each host that is asked for."""

    hosts: dict[str, Host]
    java_home: str
    top: Path
    processes: list

    def start(self, host, kind, *words):
        import pyspark

        home = pyspark.__path__[0]
        there = self.hosts[host]
        run = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{kind}", "--host", there.address, *words]
        with open(self.top / f"log-{host}-{kind}", "wb") as log:
            self.processes.append(
                subprocess.Popen(
                    there.enter(*run, "--webui-port", "0"),
                    env={**there.env(self.java_home), "SPARK_HOME": home},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    cwd=self.top,
                )
            )

    @property
    def url(self):
        return f"spark://{ADDRESSES['host-a']}:7077"

    def workers(self, *hosts):
        for host in hosts:
            words = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.top / f"work-{host}")]
            self.start(host, "worker.Worker", self.url, *words)

    def job(self, host, work, *paths, master=None, **conf):
        """What the job on that host says, by JSON."""
        words = [sys.executable, "-c", JOB, master or self.url, json.dumps(conf), work, *paths]
        there = self.hosts[host]
        return json.loads(there.run(*words, env=there.env(self.java_home), cwd=self.top).splitlines()[-1])


@pytest.fixture
def hosts(tmp_path):
    try:
        with two_hosts(tmp_path) as found:
            yield found
    except NoSpaces as problem:
        pytest.skip(str(problem))


@pytest.fixture
def cluster(hosts, java_home, tmp_path):
    """The master, and no worker yet."""
    found = Cluster(hosts, java_home, tmp_path, [])
    try:
        found.start("host-a", "master.Master", "--port", "7077")
        log = tmp_path / "log-host-a-master.Master"
        end = time.monotonic() + 600
        while "I have been elected leader" not in log.read_text(errors="replace"):
            assert found.processes[0].poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield found
    finally:
        for process in found.processes:
            chaos.kill_all(process)


ARCHIVE = """
import sys
from shmq.spark import archive
archive.archive(*sys.argv[1:])
"""


def fill(path, first):
    path.parent.mkdir(parents=True, exist_ok=True)
    options = shmq.Options(chunk_bytes=1 << 16, retention=shmq.Retention.forever())  # what is archived stays, too
    with shmq.open(path, options=options) as queue:
        for start in range(first, first + SOME, 1000):
            queue.put_many([b"%d" % n for n in range(start, start + 1000)])


def test_a_host_without_the_queue_or_with_another_one_says_so_and_nothing_is_read_or_written(cluster, tmp_path):
    """All executors are on host-b, and the queues on host-a, where the driver is."""
    fill(tmp_path / "data-host-a/alone", 0)
    fill(tmp_path / "data-host-a/both", 0)
    fill(tmp_path / "data-host-b/both", SOME)
    cluster.workers("host-b")
    alone, both, none = (str(tmp_path / "data" / name) for name in ("alone", "both", "none"))
    here, there, *sinks = cluster.job(
        "host-a",
        "[tried(lambda: numbers(read(path))) for path in paths[:2]] + [tried(lambda: spark.range(4).selectExpr("
        '"cast(id as string) as value").write.format("shmq").mode("append").option("delivery", how).save(path)) '
        'for path in paths[1:] for how in ("exactly_once", "at_least_once")]',
        alone,
        both,
        none,
    )
    assert f"cannot read alone/0 on host host-b: there is no queue at {alone} here" in here
    assert f"cannot read both/0 on host host-b: the queue at {both} here is " in there
    for told, path in zip(sinks, (both, both, none, none), strict=True):
        assert f"cannot write to {Path(path).name}/0 on host host-b: " in told
    for told in (here, there, *sinks):
        assert "It was planned on host host-a" in told
    for name, first in (("a", 0), ("b", SOME)):
        with shmq.open(tmp_path / f"data-host-{name}/both", create=False) as queue:
            assert [int(message.payload) for message in queue.reader()] == list(range(first, first + SOME))
            assert queue.staged_sets() == []
    assert not (tmp_path / "data-host-b/none").exists()


def test_tasks_move_on_to_the_host_that_has_the_queue(cluster, tmp_path):
    """With executors on both hosts, and Spark told not to try a task twice on one."""
    fill(tmp_path / "data-host-a/in", 0)
    cluster.workers("host-a", "host-b")
    source, target = str(tmp_path / "data/in"), str(tmp_path / "data/out")
    read = cluster.job(
        "host-a",
        '[numbers(read(paths[0])), read(paths[0]).select("value").write.format("shmq").mode("append").save(paths[1])]',
        source,
        target,
        **MOVE_ON,
    )
    assert read == [list(range(SOME)), None]
    with shmq.open(tmp_path / "data-host-a/out", create=False) as queue:
        assert sorted(int(message.payload) for message in queue.reader()) == list(range(SOME))
        assert queue.staged_sets() == []
    assert not (tmp_path / "data-host-b/out").exists()


def test_shards_on_two_hosts_in_one_job_by_their_archives_and_a_sink_on_each(cluster, tmp_path):
    """Each host archives its own shard to where both can see it, and writes into its own queue."""
    for number, name in enumerate(ADDRESSES):
        fill(tmp_path / f"data-{name}/in/1.{number:03x}", number * SOME)
        shards, archive = tmp_path / "data/in", tmp_path / f"shared/{name}"
        cluster.hosts[name].run(sys.executable, "-c", ARCHIVE, shards, archive)
    cluster.workers(*ADDRESSES)
    whole = cluster.job(
        "host-a",
        "[numbers(shmq.spark.history(spark, paths)), "
        'shmq.spark.history(spark, paths).groupBy("partition").count().orderBy("partition").toArrow().to_pylist()]',
        *(str(tmp_path / "shared" / name) for name in ADDRESSES),
    )
    assert whole == [list(range(2 * SOME)), [{"partition": n, "count": SOME} for n in range(2)]]
    for number, name in enumerate(ADDRESSES):
        copy = '[read(paths[0]).select("value").write.format("shmq").mode("append").save(paths[1])]'
        cluster.job(name, copy, str(tmp_path / "data/in"), str(tmp_path / "data/out"), master="local[1]")
        with shmq.open(tmp_path / f"data-{name}/out", create=False) as queue:
            there = sorted(int(message.payload) for message in queue.reader())
        assert there == list(range(number * SOME, (number + 1) * SOME))


# ---------------------------------------------------------------- live queues, by Flight
def test_one_job_on_a_cluster_of_two_workers_reads_and_writes_the_live_queues_of_both_hosts(cluster, tmp_path):
    """Neither sees the other's directory. A driver on one of them, a worker on each, tasks wherever they come."""
    for number, name in enumerate(ADDRESSES):
        fill(tmp_path / f"data-{name}/in", number * SOME)
        shmq.open(tmp_path / f"data-{name}/out").close()
    cluster.workers(*ADDRESSES)
    with Services(cluster.hosts, tmp_path) as services:
        told = cluster.job(
            "host-a",
            "[numbers(spark.read.format('shmq').options(minPartitions='4', **(given := json.loads(paths[0])))"
            ".load(paths[1])), spark.read.format('shmq').options(**given).load(paths[1])"
            ".selectExpr('value as key', 'value').write.format('shmq').mode('append').options(**given).save(paths[2])]",
            json.dumps(services.access),
            services.both("in"),
            services.both("out"),
        )
    assert told == [list(range(2 * SOME)), None]
    there = []
    for name in ADDRESSES:
        with shmq.open(tmp_path / f"data-{name}/out", create=False) as queue:
            assert SOME * 0.8 < len(queue) < SOME * 1.2
            there += [int(message.payload) for message in queue.reader()]
            assert queue.staged_sets() == []
    assert sorted(there) == list(range(2 * SOME))


def test_a_stream_over_two_hosts_goes_on_whichever_service_is_killed(hosts, java_home, tmp_path):
    with Services(hosts, tmp_path) as services:
        Campaign(tmp_path, services, java_home, 7).run(3)
