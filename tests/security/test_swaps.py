"""Files of a queue that are swapped for links while it is being opened: what the links lead to stays as it is."""

import contextlib
import os
import threading
import time

import pytest

import shmq

ROUNDS = int(os.environ.get("SHMQ_SWAPS", "60"))
"""Openings beside the swaps, for each file; SHMQ_SWAPS=10000 is the long run."""
FILES = ["queue.shmq", "control.shmq", "admin.lock", "consumers/name.checkpoint", "chunks/{chunk}"]


class Swapper(threading.Thread):
    """Puts a link in the place of a file and takes it away again, until it is told to stop."""

    def __init__(self, path, victim, link):
        super().__init__()
        self.path, self.victim, self.link = path, victim, link
        self.aside = f"{victim}.aside"
        self.ended = threading.Event()
        self.swaps = 0

    def run(self):
        while not self.ended.is_set():
            with contextlib.suppress(FileNotFoundError):  # it is not there, or not any more: the queue may remove it
                os.rename(self.path, self.aside)
                with contextlib.suppress(FileExistsError):  # what is missing may be made anew
                    self.link(self.victim, self.path)
                    self.swaps += 1
                    time.sleep(0.0005)  # so that it is met
                os.rename(self.aside, self.path)  # over the link


def use(path):
    """Open, put, read; whatever is refused is refused in words of the library."""
    try:
        with shmq.open(path, create=False) as queue:
            queue.put(b"more")
            with queue.consumer("name", ack="explicit") as consumer:
                consumer.get(timeout=0)
            queue.purge()
    except (shmq.ShmqError, FileNotFoundError):
        return False
    return True


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symlink", "hard link"])
@pytest.mark.parametrize("file", FILES)
def test_what_a_link_leads_to_is_not_touched_however_it_is_swapped(tmp_path, file, link):
    """Opened, written, sealed or removed: it is the queue's own file, or none."""
    path, victim = str(tmp_path / "q"), tmp_path / "victim"
    with shmq.open(path, options=shmq.Options(chunk_bytes=16384)) as queue:
        queue.put(b"first")
        queue.consumer("name", ack="explicit").close()
    (chunk,) = os.listdir(f"{path}/chunks")
    swapped = tmp_path / "q" / file.format(chunk=chunk)
    victim.write_bytes(swapped.read_bytes())  # all would be well, if it were not somebody else's
    victim.chmod(0o600)
    known = victim.read_bytes(), victim.stat().st_mode
    swapper = Swapper(str(swapped), str(victim), link)
    swapper.start()
    try:
        for _ in range(ROUNDS):
            use(path)
    finally:
        swapper.ended.set()
        swapper.join()
    assert swapper.swaps > 0
    assert (victim.read_bytes(), victim.stat().st_mode) == known


def test_found_a_link_that_was_taken_away_before_its_names_were_counted_was_taken_for_a_file_of_ours(
    tmp_path, monkeypatch
):
    """And back in place when the name was looked at again: two swaps between two calls."""
    path, victim = str(tmp_path / "q"), tmp_path / "victim"
    shmq.open(path).close()
    swapped = tmp_path / "q" / "queue.shmq"
    victim.write_bytes(swapped.read_bytes())
    victim.chmod(0o600)
    aside = tmp_path / "aside"
    fstat, met = os.fstat, []

    def swap_around(fd):
        if not isinstance(fd, int) and os.path.samestat(fstat(fd), victim.stat()):
            os.rename(aside, swapped)
            info = fstat(fd)
            os.rename(swapped, aside)
            os.link(victim, swapped)
            met.append(info.st_nlink)
            return info
        return fstat(fd)

    os.rename(swapped, aside)
    os.link(victim, swapped)
    monkeypatch.setattr(os, "fstat", swap_around)
    with pytest.raises((shmq.ShmqError, FileNotFoundError)):
        shmq.open(path)
    assert met
    assert set(met) == {1}
