"""
A small service: requests in one queue, replies in another.

The server is a process of its own and may be restarted at any time: requests wait in their queue meanwhile, and with
explicit acknowledgements one that was not answered yet is handed out again.

Prints:
    2 + 3 = 5
    7 * 6 = 42
    1 / 0: division by zero
    while the server is down: asked
    after its restart: 20 - 8 = 12
"""

import multiprocessing
import operator

import shmq

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def serve(requests, replies):
    with requests.consumer("server", ack="explicit") as inbox:
        for request in inbox:
            left, sign, right = request.payload
            try:
                answer = f"{left} {sign} {right} = {OPERATORS[sign](left, right)}"
            except ArithmeticError as problem:
                answer = f"{left} {sign} {right}: {problem}"
            replies.put(answer, headers={"request": request.index})
            request.ack()


def start(requests, replies):
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(requests, replies))
    server.start()
    return server


def wait_for(inbox, index):
    """The reply to request *index*."""
    while True:
        reply = inbox.get(timeout=60)
        if reply.headers["request"] == index:
            return reply.payload


if __name__ == "__main__":
    requests = shmq.open("requests", codec="msgpack")
    replies = shmq.open("replies", codec="text")
    inbox = replies.consumer("client")

    server = start(requests, replies)
    for question in ([2, "+", 3], [7, "*", 6], [1, "/", 0]):
        print(wait_for(inbox, requests.put(question)))

    server.kill()  # no time to say goodbye
    server.join()
    index = requests.put([20, "-", 8])
    print("while the server is down: asked")

    server = start(requests, replies)
    print("after its restart:", wait_for(inbox, index))
    requests.shutdown()
    server.join()

    inbox.close()
    for queue in (requests, replies):
        queue.close()
        shmq.delete(queue.path)
