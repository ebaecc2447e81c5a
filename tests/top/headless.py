"""
Chromium without a window, the program of that name: loads a page and does what it is told by lines on stdin.

    python headless.py ADDRESS PROGRAM PROFILE

As `chromium.py`, with which it has the lines in common, but for pictures. The program is talked to by its own protocol
over two pipes, 3 and 4 in its eyes: JSON, each with a zero byte behind it. It ends when they do.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time

FLAGS = (
    "--headless",
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--remote-debugging-pipe",
)


class Chromium:
    """The program, and the one page in it."""

    def __init__(self, program, profile):
        heard, self._to = os.pipe()
        read, said = os.pipe()
        shell = f'exec 8<&{heard} 9>&{said} 3<&8 4>&9 8<&- 9>&-; exec "$@"'  # whichever numbers those are
        command = ["/bin/sh", "-c", shell, "sh", program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(heard, said),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for fd in (heard, said):
            os.close(fd)
        self._read = open(read, "rb")  # noqa: SIM115  # closed with the process
        self._numbers = itertools.count(1)
        self._session = {}
        self._left = b""

    def open(self, address):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")
        self.call("Page.navigate", url=address)

    def call(self, method, **parameters):
        number = next(self._numbers)
        asked = {"id": number, "method": method, "params": parameters, **self._session}
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]
            self._hear(told)

    def value(self, what):
        """What that is in the page now; None where it cannot be told yet."""
        answer = self.call(
            "Runtime.evaluate", expression=what, returnByValue=True, allowUnsafeEvalBlockedByCSP=False, silent=True
        )
        return None if "exceptionDetails" in answer else answer["result"].get("value")

    def _next(self):
        while b"\0" not in self._left:
            more = self._read.read1(1 << 16)
            if not more:
                sys.exit("chromium has ended")
            self._left += more
        told, self._left = self._left.split(b"\0", 1)
        return json.loads(told)

    def _hear(self, told):
        """What the page says on its console goes to stderr, and so does what the browser says of it."""
        about, said = told.get("params", {}), None
        if told.get("method") == "Runtime.consoleAPICalled":
            said = " ".join(str(each.get("value", each.get("description"))) for each in about["args"])
        elif told.get("method") == "Runtime.exceptionThrown":
            said = about["exceptionDetails"].get("exception", {}).get("description", about["exceptionDetails"]["text"])
        elif told.get("method") == "Log.entryAdded":
            said = f"{about['entry']['text']} {about['entry'].get('url', '')}"
        if said is not None:
            print(f"console: {' '.join(said.split())}", file=sys.stderr, flush=True)

    def close(self):
        """End it, and so all the processes that it has: they see their pipes closed."""
        os.close(self._to)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._read.close()


def main(address, program, profile):
    browser = Chromium(program, profile)
    try:
        browser.open(address)
        for line in sys.stdin:
            while not (value := browser.value(line)):
                time.sleep(0.05)
            print(json.dumps(value), flush=True)
    finally:
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
