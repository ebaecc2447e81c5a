"""Imports of the engine: neither a fork nor the handler of a signal meets one half done."""

import ast
import gc
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from interrupts import places
from support import in_child, run_python

import shmq
from shmq import later

ENGINE = [
    path
    for path in sorted(Path(shmq.__file__).parent.rglob("*.py"))
    if not {"spark", "cli", "formats"} & set(path.parts) and path.name != "later.py"
]


def unready(source: str) -> list[str]:
    """The imports inside functions before which nobody has said that they are to be ready."""
    found = []
    for function in ast.walk(ast.parse(source)):
        for name in ("body", "orelse", "handlers", "finalbody"):
            block = getattr(function, name, None)
            if isinstance(function, ast.Module) or not isinstance(block, list):
                continue
            for before, node in zip([None, *block], block, strict=False):
                if isinstance(node, ast.Import | ast.ImportFrom) and "later.ready(" not in ast.unparse(before or []):
                    found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: path.stem)
def test_what_is_imported_inside_a_function_is_made_ready_before(path):
    source = path.read_text()
    inside = unready(source)
    with_it = [ast.unparse(each) for each in ast.parse(source).body if isinstance(each, ast.If | ast.Try | ast.With)]
    assert [each for each in inside if not any(each in block for block in with_it)] == []


def test_the_look_for_imports_sees_them():
    source = "def f():\n    if x:\n        import json\n    later.ready('os')\n    import os\n"
    assert unready(source) == ["import json"]


def run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.stdout + done.stderr


SLOW = """
    import os, sys, threading
    sys.path.insert(0, sys.argv[1])
    from shmq import later
"""


@pytest.fixture
def slow(tmp_path):
    """A module whose import tells when it has begun, and lasts until it is told to end."""
    (tmp_path / "slow_module.py").write_text(
        "import os, sys\nos.write(int(os.environ['BEGUN']), b'.')\nos.read(int(os.environ['GO']), 1)\nvalue = 7\n"
        "import threading; here = threading.current_thread() is threading.main_thread()\n"
    )
    return str(tmp_path)


def test_found_a_child_that_is_forked_beside_a_first_import_waits_for_ever(slow):
    """
    It inherited the interpreter's lock of that module, taken. The fork waits for the import now.
    """
    code = """
    begun, tell_begun = os.pipe(); go, tell_go = os.pipe()
    os.environ |= {"BEGUN": str(tell_begun), "GO": str(go)}
    thread = threading.Thread(target=later.ready, args=("slow_module",)); thread.start()
    os.read(begun, 1)
    threading.Timer(0.05, os.write, (tell_go, b".")).start()
    pid = os.fork()
    if not pid:
        later.ready("slow_module")
        import slow_module
        os._exit(slow_module.value)
    thread.join()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert run(textwrap.dedent(SLOW) + textwrap.dedent(code), slow) == "7\n"


def test_found_a_handler_that_raises_inside_an_import_leaves_the_modules_lock_taken(slow):
    """The main thread, in which it raises, only waits for another one that imports."""
    code = """
    import signal
    begun, tell_begun = os.pipe(); go, tell_go = os.pipe()
    os.environ |= {"BEGUN": str(tell_begun), "GO": str(go)}
    def interrupt():
        os.read(begun, 1)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        later.ready("slow_module")
    except KeyboardInterrupt:
        print("interrupted")
    os.write(tell_go, b".")
    later.ready("slow_module")
    import slow_module
    print(slow_module.value, slow_module.here)
    """
    assert run(textwrap.dedent(SLOW) + textwrap.dedent(code), slow) == "interrupted\n7 False\n"


def test_what_is_not_there_is_left_to_the_import_that_needs_it():
    later.ready("shmq_has_no_such_module", "json")
    assert "shmq_has_no_such_module" not in sys.modules


def test_a_fork_inside_an_import_of_ours_waits_for_nobody():
    """It is the same thread's."""
    with later._gate:
        assert in_child(lambda: 5) == "5"
    free = []

    def look():
        if later._gate.acquire(timeout=10):
            later._gate.release()
            free.append(True)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert free == [True]


def test_children_that_are_forked_while_others_put_for_the_first_time_put_too(tmp_path):
    """As it was found: each verb's first use imports something."""
    code = """
    import os, sys, threading
    import shmq
    queue = shmq.open(sys.argv[1])
    go = threading.Event()
    def first():
        go.set()
        queue.put(b"x", dedup=(b"t", 1), headers={"a": 1})
    thread = threading.Thread(target=first)
    thread.start()
    go.wait()
    pid = os.fork()
    if not pid:
        queue.put(b"y", dedup=(b"c", 1), headers={"a": 1})
        os._exit(3)
    thread.join()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(queue))
    """
    for number in range(5):
        assert run(code, str(tmp_path / str(number))) == "3 2\n"


def test_a_module_that_asks_for_itself_while_it_is_imported_waits_for_nobody(tmp_path):
    """Another thread would wait for the main one, which would wait for that thread."""
    (tmp_path / "asks.py").write_text("from shmq import later\nlater.ready('asks')\nvalue = 8\n")
    assert run("import sys; sys.path.insert(0, sys.argv[1]); import asks; print(asks.value)", str(tmp_path)) == "8\n"


def test_at_the_end_of_the_interpreter_no_thread_is_waited_for():
    """One that begins then never says that it has."""
    code = """
    import os, sys
    from shmq import later
    class Last:
        def __init__(self):
            self.ready, self.say, self.ends = later.ready, os.write, sys.is_finalizing
        def __del__(self):
            assert self.ends()
            self.ready("colorsys")
            self.say(1, b"over")
    last = Last()
    """
    assert run(code) == "over"


def test_garbage_that_is_collected_during_an_import_waited_for_the_lock_of_whoever_waits_for_that(tmp_path):
    """A handle in a cycle was closed by the thread that imports, and that needs what an opening holds."""
    (tmp_path / "slow_to_import.py").write_text("kept = [[] for _ in range(5000)]\n")
    code = """
        import gc, sys
        sys.path.insert(0, sys.argv[1])
        import shmq
        from shmq import later, membership
        queue = shmq.open(None)
        cycle = [queue.producer()]
        cycle.append(cycle)
        queue.close()
        gc.collect()
        gc.set_threshold(1)
        with membership._registry_lock:
            del cycle, queue
            later.ready("slow_to_import")
        print(gc.isenabled(), "slow_to_import" in sys.modules)
    """
    assert run(code, tmp_path) == "True True\n"


def test_found_the_last_steps_of_the_thread_that_imports_collected_garbage(tmp_path):
    """Between the import and its end it closed a handle, and waited for what the program's thread held."""
    (tmp_path / "found_by_a_thread.py").touch()
    code = """
        import gc, sys, threading
        sys.path.insert(0, sys.argv[1])
        from shmq import later
        delete = threading.Thread._delete
        threading.Thread._delete = lambda thread: (print(thread.name, gc.isenabled()), delete(thread))[1]
        later.ready("found_by_a_thread")
        print(gc.isenabled(), "found_by_a_thread" in sys.modules)
    """
    assert run(code, tmp_path) == "shmq-import False\nTrue True\n"


@pytest.mark.parametrize(("before", "frozen"), [("", False), ("gc.freeze(); ", True), ("gc.disable(); ", False)])
def test_an_import_leaves_the_collector_as_it_found_it(before, frozen):
    """What the program has put aside stays aside, and nothing else comes there."""
    told = run_python(
        f"import gc; {before}on, count = gc.isenabled(), gc.get_freeze_count()\n"
        "import shmq; shmq.why\n"
        "still = gc.get_freeze_count()  # of what was put aside, some goes\n"
        "print(on == gc.isenabled(), count * 0.9 <= still <= count, still > 0)"
    )
    assert told.split() == ["True", "True", str(frozen)]


def test_what_a_handler_raises_while_the_collector_is_off_leaves_it_on():
    """And nothing put aside, which nobody would ever collect. It stayed off, and no one was told."""

    def work():
        gc.unfreeze()  # the suite has put all aside
        for this in places():
            with this.interrupted():
                gc.enable()
                try:
                    with later.no_garbage_collected():
                        pass
                finally:
                    on = gc.isenabled()
            assert on, this.at
            assert gc.get_freeze_count() == 0, this.at
        return this.seen

    assert int(in_child(work)) > 5
