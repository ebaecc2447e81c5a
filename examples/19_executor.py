"""
An Executor on a directory: a kill costs one attempt, a key is submitted once, and the next program finds the outcome.

Prints:
    [0, 1, 4, 9, 16]
    done at attempt 2
    the same: done at attempt 2
    TaskDied, by signal 9; in the dead letters: 1
"""

import os
import shutil
import signal

import shmq

PATH = "example-jobs"


def square(x):
    return x * x


def die_once(mark):
    if not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def die():
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    shutil.rmtree(PATH, ignore_errors=True)
    with shmq.Executor(PATH, max_workers=2) as ex:
        print(list(ex.map(square, range(5))))
        f = ex.submit(die_once, f"{PATH}.mark", key="order-7")
        print(f"{f.result()} at attempt {f.attempts}")

    with shmq.Executor(PATH, max_workers=2) as ex:  # another program, another day
        f = ex.submit(die_once, f"{PATH}.mark", key="order-7")
        print(f"the same: {f.result()} at attempt {f.attempts}")
        problem = ex.submit(die).exception()
        with shmq.open(f"{PATH}/dead") as dead:
            print(f"{type(problem).__name__}, by signal {problem.signal}; in the dead letters: {len(dead)}")
    os.unlink(f"{PATH}.mark")
    shutil.rmtree(PATH)
