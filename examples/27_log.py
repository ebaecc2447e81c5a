"""
A real log: a growing file is followed into a queue, and three consumers read it.

The file is rotated (renamed and made anew) and cut to nothing in place; the follower is killed (kill -9) in between. A
line and the place behind it are one message, so whoever comes next goes on exactly there. What is cut away before it
was read is lost, and so is what was rotated twice while nobody followed: nothing can help there.

Prints:
    3,000 lines, each once, in order: True
    60 errors
    99 of 100 answers took less than 99 ms
    3,000 lines in the archive
"""

import contextlib
import multiprocessing
import os
import time

import shmq

OLD, LOG = "app.log.1", "app.log"


def follow():
    with shmq.open("lines") as lines:
        while True:
            with contextlib.suppress(FileNotFoundError):  # just renamed
                # The newer first: a rotation in between hides neither.
                copy([open(name, "rb") for name in (LOG, OLD) if os.path.exists(name)][::-1], lines)  # noqa: SIM115
            time.sleep(0.01)


def copy(files, lines):
    inode, end = lines[-1].headers["place"] if len(lines) else (None, 0)
    older = inode in [os.fstat(file.fileno()).st_ino for file in files]  # what comes before that one was read
    for file in files:
        with file:
            now = os.fstat(file.fileno())
            older = older and now.st_ino != inode
            if not older:
                file.seek(end if (now.st_ino, end <= now.st_size) == (inode, True) else 0)
                inode, end = now.st_ino, file.tell()
                while (line := file.readline()).endswith(b"\n"):
                    end += len(line)
                    lines.put(line.decode().rstrip(), headers={"place": [inode, end]})


def write(numbers):
    with open(LOG, "a") as file:
        file.writelines(f"{n} {500 if n % 50 == 0 else 200} {n % 100}\n" for n in numbers)


def follow_and_be_killed(lines, count):
    follower = multiprocessing.Process(target=follow)
    follower.start()
    while len(lines) < count:
        time.sleep(0.01)
    follower.kill()
    follower.join()


if __name__ == "__main__":
    with shmq.open("lines", codec="text", retention="forever") as lines:
        write(range(1000))
        follow_and_be_killed(lines, 300)
        os.rename(LOG, OLD)
        write(range(1000, 2000))
        follow_and_be_killed(lines, 2000)
        os.truncate(LOG, 0)
        write(range(2000, 2500))
        follow_and_be_killed(lines, 2200)
        write(range(2500, 3000))
        follow_and_be_killed(lines, 3000)
        lines.finish()
        numbers = [int(line.payload.split()[0]) for line in lines.reader()]
        print(f"{len(lines):,} lines, each once, in order: {numbers == list(range(3000))}")
        with lines.consumer("errors") as consumer:
            print(sum(line.payload.split()[1] == "500" for line in consumer), "errors")
        with lines.consumer("latency") as consumer:
            taken = sorted(int(line.payload.split()[2]) for line in consumer)
            print(f"99 of 100 answers took less than {taken[len(taken) * 99 // 100]} ms")
        with lines.consumer("archive") as consumer, open("archive.log", "w") as file:
            print(
                f"{sum(file.write(line.payload) + file.write(chr(10)) > 0 for line in consumer):,} lines in the archive"
            )
    shmq.delete("lines")
    for name in (OLD, LOG, "archive.log"):
        os.unlink(name)
