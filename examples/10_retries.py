"""
Retries and dead letters: what fails is tried again later, and what keeps failing is put aside with the reason.

`nack` gives a message back, with a delay if wanted; `reject` moves it to the dead letters at once, and so does the last
of `max_attempts`. On the command line `shmq dead` lists letters, shows them, and puts them back.

Prints:
    charged 10 at attempt 1
    charged 20 at attempt 1
    30: the bank is down
    charged 30 at attempt 2
    in the dead letters: 'ten', rejected: ValueError: invalid literal for int() with base 10: 'ten'
"""

import shmq


def charge(payment):
    amount = int(payment.payload)
    if amount == 30 and payment.attempts == 1:
        raise ConnectionError("the bank is down")
    print(f"charged {amount} at attempt {payment.attempts}")


with shmq.open("payments", codec="text") as queue:
    queue.put_many(["10", "ten", "20", "30"])
    queue.finish()  # the loop below ends when everything is charged or rejected
    with queue.consumer("charge", group=True, ack="explicit", max_attempts=5, dead_letter="charge.dead") as payments:
        for payment in payments:
            try:
                charge(payment)
            except ConnectionError as problem:
                print(f"{payment.payload}: {problem}")
                payment.nack(delay=0.1)  # again in a moment; the others go on
            except ValueError as problem:
                payment.reject(problem)  # it will never work: to the dead letters, with the traceback
            else:
                payment.ack()

with shmq.open("charge.dead") as letters:
    for letter in letters.reader():
        about = letter.headers
        print(f"in the dead letters: {letter.payload!r}, {about['shmq.cause']}: {about['shmq.reason']}")

shmq.delete("payments")
shmq.delete("charge.dead")
