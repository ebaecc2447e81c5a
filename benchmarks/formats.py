"""
How fast each foreign format is read and written, and what memory reading takes.

    python benchmarks/formats.py [--messages N] [--bytes N] [--large N] [--json]

Every measurement is one process of its own, so that its peak memory (VmHWM) is its own; files are in the page cache.
Reading is iterating over `shmq.formats.read`; writing takes its entries from a generator and ends with fsync. `import`
and `export` are the commands, start-up included; what they take of a processor stands beside it, for a busy machine.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from shmq import formats
from shmq.formats import Entry

QUEUES = {"libkestrel": "bench", "kestrel": "bench"}
OPTIONS = {"qewqew": {"lossy": True, "chunk_bytes": 16 << 20}}


def peak_kib():
    """The highest resident memory of this process, in KiB."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def place_of(folder, name):
    return folder / name / "queue.dat" if name == "qewqew" else folder / name


def write(folder, name, messages, size):
    payload = b"x" * size
    begin_ns = 1_700_000_000_000_000_000
    path = place_of(folder, name)
    if name == "qewqew":
        path.parent.mkdir(parents=True)
        entries = (Entry(payload) for _ in range(messages))
    else:
        entries = (Entry(payload, None, begin_ns + n) for n in range(messages))
    return formats.write(path, entries, name, QUEUES.get(name), **OPTIONS.get(name, {}))


def read(folder, name):
    count = 0
    for _ in formats.read(place_of(folder, name), name, QUEUES.get(name)):
        count += 1
    return count


def state(folder, name):
    return formats.state(place_of(folder, name), QUEUES.get(name), name).messages


def one(verb, folder, name, messages, size):
    """One measurement, in this process."""
    before = peak_kib()
    begin = time.perf_counter()
    if verb == "write":
        count = write(folder, name, messages, size)
    else:
        count = {"read": read, "state": state}[verb](folder, name)
    seconds = time.perf_counter() - begin
    if count != messages:
        message = f"{verb} {name}: {count} of {messages} messages"
        raise SystemExit(message)
    return {"per_second": round(messages / seconds), "peak_kib": peak_kib(), "grew_kib": peak_kib() - before}


def measure(verb, folder, name, messages, size):
    """One measurement, in a process of its own."""
    command = [sys.executable, __file__, "--one", verb, str(folder), name, str(messages), str(size)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def command(verb, folder, name, messages):
    """One command, by the wall clock and by the processor's time."""
    words = {
        "import": ["import", place_of(folder, name), folder / "queue"],
        "export": ["export", folder / "queue", "--to", name, place_of(folder / "out", name), "--lossy"],
    }[verb]
    place_of(folder / "out", name).parent.mkdir(parents=True, exist_ok=True)
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "shmq", *map(str, words)],
        check=True,
        capture_output=True,
        cwd=Path(__file__).resolve().parents[1],
    )
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"per_second": round(messages / seconds), "per_processor_second": round(messages / busy)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000, help="the small queue")
    parser.add_argument("--large", type=int, default=1_000_000, help="the large queue")
    parser.add_argument("--bytes", type=int, default=64, help="of one payload")
    parser.add_argument("--format", action="append", choices=formats.HERE)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        verb, folder, name, messages, size = options.one
        print(json.dumps(one(verb, Path(folder), name, int(messages), int(size))))
        return
    rows = []
    for name in options.format or formats.HERE:
        for messages in (options.messages, options.large):
            folder = Path(tempfile.mkdtemp(prefix="shmq-formats-"))
            try:
                found = {
                    verb: measure(verb, folder, name, messages, options.bytes) for verb in ("write", "read", "state")
                } | {verb: command(verb, folder, name, messages) for verb in ("import", "export")}
            finally:
                shutil.rmtree(folder)
            rows.append({"format": name, "messages": messages, "bytes": options.bytes} | found)
            if not options.json:
                speeds = "  ".join(f"{verb} {found[verb]['per_second'] / 1e6:5.2f} M/s" for verb in found)
                busy = [f"{verb} {found[verb]['per_processor_second'] / 1e6:5.2f} M/s" for verb in ("import", "export")]
                speeds += f"   of processor time: {'  '.join(busy)}"
                measured = [verb for verb in found if "peak_kib" in found[verb]]
                peaks = "  ".join(f"{verb} {found[verb]['peak_kib'] / 1024:5.1f} MiB" for verb in measured)
                print(f"{name:11} {messages:>10,} x {options.bytes} B   {speeds}   peak: {peaks}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
