"""
An experiment on the user's own machine: processes that put and take, and are killed and stopped. For `shmq chaos`.

    notes       what each process writes down of what it tried and what came of it
    roles       the processes: producers and consumers, of a queue of ours and of multiprocessing's
    crowd       who kills, stops and replaces them, by a schedule that a seed repeats
    judge       what was promised, held against the notes and the queue
    disk        a disk that becomes full
    report      all of it on one page
"""
