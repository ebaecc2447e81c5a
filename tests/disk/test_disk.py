"""A few power cuts below real file systems, with a fresh seed; `make prove-disk` makes more."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

import shmq
from tests.support import Child

from . import device, workers
from .campaign import child
from .images import FLUSH, HEADER, LOG_HEADER, RECORD, WRITE, Log, Platter, chosen
from .told import Told

SECTOR = 512
pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def log(tmp_path):
    """Two writes, a flush that covers only the first of them, and a third write to where the first one went."""
    records = [
        (WRITE, 0, b"a" * 1024),
        (WRITE, 2048, b"b" * 1024),
        (FLUSH, 1, b""),
        (WRITE, 0, b"c" * 1024),
    ]
    content = b"".join(RECORD.pack(offset, len(data), kind) + data for kind, offset, data in records)
    header = HEADER.pack(len(records), len(content))
    (tmp_path / "log").write_bytes(header + bytes(LOG_HEADER - len(header)) + content)
    (tmp_path / "image").write_bytes(bytes(4096))
    return Log(str(tmp_path / "log"))


def test_what_a_flush_covers_is_on_the_disk_and_nothing_else_is(log, tmp_path):
    """Of a write that was under way when the flush came, nobody knows."""
    platter = Platter(str(tmp_path / "image"), log)
    assert [each.number for each in platter.advance(2)] == [0, 1]
    assert (tmp_path / "image").read_bytes() == bytes(4096)
    assert [each.number for each in platter.advance(4)] == [1, 3]
    assert (tmp_path / "image").read_bytes() == b"a" * 1024 + bytes(3072)
    platter.close()


def test_what_was_not_flushed_is_kept_lost_and_torn_at_sectors(log):
    """In whole sectors, and in every way there is."""
    loose = log.between(1, 4)
    ways = set()
    for seed in range(1000):
        kept = chosen(loose, np.random.default_rng(seed), SECTOR)
        assert all(len(each.data) % SECTOR == 0 and each.offset % SECTOR == 0 for each in kept)
        ways.add(tuple((each.offset, len(each.data)) for each in kept))
    assert {(), ((0, 1024),), ((2048, 1024),), ((2048, 1024), (0, 1024)), ((0, 512),), ((2560, 512),)} <= ways


def _put_and_say_nothing_more(say, place):
    queue = shmq.open(f"{place.queues}/bound", create=False)
    with workers.Teller(place.told, place.log, "bound").doing("bound", "put", ("bound.7",)):
        say(queue.put(workers.payload("bound.7")))
        time.sleep(3600)


def test_found_the_judge_knows_a_put_that_was_killed_and_dropped_before_anybody_had_it(tmp_path):
    """It is in an image that was cut before the drop: "never put", said the judge."""
    for name in ("queues", "told"):
        (tmp_path / name).mkdir()
    (tmp_path / "log").write_bytes(HEADER.pack(1, 0).ljust(LOG_HEADER, b"\0"))
    place = workers.Place(f"{tmp_path}/queues", f"{tmp_path}/told", f"{tmp_path}/log", 0.0)
    with shmq.open(f"{place.queues}/bound", options=workers.OPTIONS["bound"]) as queue:
        with Child(_put_and_say_nothing_more, place) as child:
            index = child.hear()
            workers.kill(child, place, "bound", "bound")
        queue.put_many([bytes(1000)] * workers.BOUND)
        assert int(index) not in [message.index for message in queue.reader()]
    assert Told(place.told).case("bound", 2).truth.messages == {int(index): workers.payload("bound.7")}


def _said(folder, who, *lines):
    with open(f"{folder}/{who}", "w") as file:
        file.writelines(
            json.dumps({"queue": "bound", "wall": 0, "names": [], **line, "op": f"{who}.0"}) + "\n" for line in lines
        )


def test_found_the_judge_knows_that_one_who_was_killed_may_have_retired_on_the_disk_alone(tmp_path):
    """The journal comes before the control page, by which others say what the first index is; the next one goes on."""
    _said(tmp_path, "taker", {"verb": "take", "at": 1})
    _said(tmp_path, "behind taker", {"verb": "look", "at": 10}, {"to": 12, "first": 33})
    _said(tmp_path, "before", {"verb": "put", "at": 20}, {"to": 22, "first": 33})
    _said(tmp_path, "retiring", {"verb": "put", "at": 30}, {"to": 32, "first": 38})
    _said(tmp_path, "later", {"verb": "put", "at": 40}, {"to": 42, "first": 53})
    told = Told(str(tmp_path))
    assert [told.case("bound", moment).truth.first for moment in (1, 2, 11, 21, 31, 33)] == [33, 38, 38, 38, 38, 53]


def _needs(kind):
    reason = device.why_not() or device.lacking(kind)
    if reason:
        pytest.skip(reason)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (number > 0)) for number, kind in enumerate(device.KINDS)],
    ids=lambda kind: kind.name,
)
def test_after_a_power_cut_below_a_file_system_everything_promised_is_there(kind):
    """Real processes, a real kernel, and a disk that loses, tears and reorders what was not flushed."""
    _needs(kind)
    result = child(kind.name, time.time_ns() // 1_000_000, 6, seconds=1.5)
    assert not result["findings"], "\n".join(result["findings"])
    assert result["cuts"] >= 6
    assert result["refused"] < result["cuts"]  # torn metadata, which XFS does not mend, is none of ours
    assert result["messages"] > 20


def test_a_library_that_forgets_to_sync_is_found_below_a_file_system():
    """The rig bites: without the syncs of the data there are findings."""
    _needs(device.KINDS[0])
    assert child(device.KINDS[0].name, 1, 20, fault="no data sync", seconds=1.5)["findings"]
