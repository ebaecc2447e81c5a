"""`python -m demo`, from the folder that holds it."""

from __future__ import annotations

import argparse
import os
import sys

import demo
import shmq
from demo.problem import Problem, one_line
from shmq.cli import demo as verb

INTERRUPTED = 130


def main(words: list[str] | None = None) -> int:
    """Run the demo with the words behind its name, or with those given, and return the exit status."""
    said, _, more = (demo.__doc__ or "").strip().partition("\n")
    parser = argparse.ArgumentParser(
        prog=f"{os.path.basename(sys.executable)} -m demo",
        description=said,
        epilog=more.strip("\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.add(parser)
    try:
        return demo.run(parser.parse_args(words))
    except KeyboardInterrupt:
        return INTERRUPTED
    except (Problem, shmq.ShmqError, OSError) as problem:
        print(f"demo: {one_line(problem)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
