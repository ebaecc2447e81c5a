"""The words of another program's mapped file: each step is one, and each place is checked."""

import mmap
import struct
import threading

import pytest

from shmq.errors import Corrupt
from shmq.foreign import SharedWords


@pytest.fixture
def memory():
    with mmap.mmap(-1, mmap.PAGESIZE) as found:
        words = SharedWords(found)
        yield found, words
        words.close()


def test_a_word_is_loaded_changed_and_stored_where_it_is(memory):
    """As little-endian numbers, of 4 bytes without a sign and of 8 with one; a change needs what was expected."""
    data, words = memory
    assert len(words) == mmap.PAGESIZE
    assert words.cas32(8, 0, 0x80000123)
    assert not words.cas32(8, 0, 1)
    assert words.load32(8) == 0x80000123
    assert data[8:16] == b"\x23\x01\x00\x80\0\0\0\0"
    assert words.cas64(16, 0, -(1 << 63))
    assert not words.cas64(16, 0, 1)
    assert words.load64(16) == -(1 << 63)
    words.store64(24, -2)
    assert struct.unpack_from("<qq", data, 16) == (-(1 << 63), -2)


@pytest.mark.parametrize("at", [1, 2, 3, mmap.PAGESIZE - 3, mmap.PAGESIZE, mmap.PAGESIZE + 4, (1 << 64) - 4])
def test_a_word_of_four_bytes_is_nowhere_else(memory, at):
    """Neither beside the mapping nor across a boundary."""
    words = memory[1]
    with pytest.raises(Corrupt, match="no word of 4 bytes"):
        words.load32(at)
    with pytest.raises(Corrupt, match="no word of 4 bytes"):
        words.cas32(at, 0, 1)


@pytest.mark.parametrize("at", [1, 4, 12, mmap.PAGESIZE - 4, mmap.PAGESIZE, (1 << 64) - 8])
def test_a_word_of_eight_bytes_is_nowhere_else(memory, at):
    """A multiple of four is not enough for it."""
    words = memory[1]
    for use in (words.load64, lambda at: words.cas64(at, 0, 1), lambda at: words.store64(at, 1)):
        with pytest.raises(Corrupt, match="no word of 8 bytes"):
            use(at)


def test_nothing_is_behind_closed_words():
    """And the mapping can be closed then, which it cannot before."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    words = SharedWords(memory)
    with pytest.raises(BufferError):
        memory.close()
    words.close()
    words.close()
    memory.close()
    with pytest.raises(Corrupt):
        words.load32(0)


def test_what_cannot_be_written_is_refused(tmp_path):
    """A mapping that is only to be read has no words to change."""
    (tmp_path / "file").write_bytes(bytes(4096))
    with (
        (tmp_path / "file").open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory,
        pytest.raises(BufferError),
    ):
        SharedWords(memory)


def test_of_many_who_change_a_word_each_is_counted(memory):
    """Threads really meet: the call lets go of the interpreter's lock."""
    words = memory[1]

    def add():
        for _ in range(2000):
            while True:
                seen = words.load64(0)
                if words.cas64(0, seen, seen + 1):
                    break

    threads = [threading.Thread(target=add) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert words.load64(0) == 8000
