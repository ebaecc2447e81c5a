"""
Subscriptions: a name that wants some messages alone, and names that go by themselves.

A filter is stored with its name. What does not match is finished by whoever walks over it: nobody acknowledges it. An
ephemeral name goes with its holder; one that expires, when nobody had it open for a time.

Prints:
    europe has 10 of 100 before it
    europe: orders 0, 10, 20, 30, 40, 50, 60, 70, 80, 90
    europe has 0 before it, and holds nothing back
    names while a dashboard looks: dashboard, europe
    names afterwards: europe
"""

import contextlib

import shmq


def main():
    with shmq.open("orders", codec="json", max_messages=200) as queue:
        with queue.consumer("europe", filter=shmq.Filter(key_prefix=b"eu/", headers={"paid": True})) as europe:
            for number in range(100):
                key = b"eu/berlin" if number % 10 == 0 else b"us/boston"
                queue.put({"order": number}, key=key, headers={"paid": True})
            print("europe has", europe.lag, "of", europe.behind, "before it")
            found = []
            while europe.lag:
                found.append(str(europe.take()["order"]))
            print("europe: orders", ", ".join(found))
            for _ in range(1000):  # more than there is room for: none of these matches, and all are passed
                queue.put({}, key=b"us/boston")
                with_nothing_there(europe)
            print("europe has", europe.lag, "before it, and holds nothing back")
        with queue.consumer("dashboard", ephemeral=True, start="latest"):
            print("names while a dashboard looks:", ", ".join(queue.consumers()))
        print("names afterwards:", ", ".join(queue.consumers()))
    shmq.delete("orders")


def with_nothing_there(consumer):
    with contextlib.suppress(shmq.Empty):
        consumer.take(timeout=0)


if __name__ == "__main__":
    main()
