"""
Values of your own classes: msgspec structs and dataclasses, put as they are and checked when they are read.

Whoever opens such a queue brings the class. What was put by a newer program with another field, or an older one without
it, is read as the class says; what does not fit says which message it is, and which field.

Prints:
    Order(number=7, price=9.5)
    with a new field: Order(number=7, price=9.5, currency='EUR')
    TypeError: codec 'struct:Order' takes Order, not dict
    BadFormat: its payloads are of codec 'struct:Order', which is not shmq's own
"""

import dataclasses

import shmq


@dataclasses.dataclass
class Order:
    """What a shop sells."""

    number: int
    price: float


with shmq.open("orders", codec=shmq.codec.struct(Order)) as queue:
    queue.put(Order(7, 9.5))
    print(queue[0].payload)


@dataclasses.dataclass
class Order:
    """The same in the next version of the program."""

    number: int
    price: float
    currency: str = "EUR"


with shmq.open("orders", codec=shmq.codec.struct(Order)) as queue:
    print("with a new field:", queue[0].payload)
    try:
        queue.put({"number": 8})
    except TypeError as problem:
        print("TypeError:", problem)

try:
    shmq.open("orders")
except shmq.BadFormat as problem:
    print("BadFormat:", str(problem).partition(": ")[2].partition(";")[0])
shmq.delete("orders")
