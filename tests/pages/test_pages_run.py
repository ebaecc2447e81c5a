"""The pages do not lie: their blocks run as a reader runs them, and what is not run says why."""

from __future__ import annotations

import codeop
import shlex

import fenced
import pytest
from fenced import ROOT, Reader, blocks

from shmq.cli import parser

DOCS = ROOT / "docs"
PAGES = sorted(
    [DOCS / name for name in ("tutorial.md", "operations.md", "durability.md", "random-access.md")]
    + [*(DOCS / "how-to").glob("*.md"), *(DOCS / "reference").glob("*.md")]
)
ELSEWHERE = {
    "coming-from-chronicle.md": "tests/formats/test_chronicle_pages.py",
    "containers.md": "tests/users/test_users_pages.py",
    "executor.md": "tests/executor/test_plain_tasks.py",
    "rpc.md": "tests/rpc/test_rpc_pages.py",
    "serve.md": "tests/net/test_serve.py",
    "several-users.md": "tests/users/test_users_pages.py",
}
"""Pages that need more than an empty directory, and the tests that run them. Those of Spark are in tests/spark."""


def runnable(page):
    return [block for block in blocks(page) if block.language in fenced.RUN]


def named(page):
    return str(page.relative_to(DOCS))


@pytest.fixture
def reader(tmp_path, monkeypatch, request):
    """Somebody with an empty directory, and with volatile queues of one's own where the page gives them names."""
    page = getattr(request.node, "callspec", None) and request.node.callspec.params.get("page")
    if page and "shm:" in page.read_text():
        request.getfixturevalue("shm_root")  # of this process alone: programs that the page starts know nothing of it
    monkeypatch.chdir(tmp_path)
    somebody = Reader()
    yield somebody
    somebody.leave()


HERE = [page for page in PAGES if page.name not in ELSEWHERE and any(each.reason is None for each in runnable(page))]


@pytest.mark.parametrize("page", HERE, ids=named)
def test_a_page_runs_from_its_beginning_to_its_end(page, reader):
    assert reader.follow(page) == len([each for each in runnable(page) if each.reason is None])


LEFT_OUT = [block for page in PAGES for block in runnable(page) if block.reason is not None]


@pytest.mark.parametrize("block", LEFT_OUT, ids=lambda block: f"{block}: {block.reason}")
def test_what_is_not_run_says_why_and_what_runs_instead(block):
    """A test or an example that is there does what the block shows, or the reason is all that can be said."""
    why, _, instead = block.reason.partition(";")
    assert len(why.split()) > 1
    (place,) = [word for word in instead.split() if word.startswith(("tests/", "examples/"))]
    assert (ROOT / place).is_file()


@pytest.mark.parametrize(("page", "test"), list(ELSEWHERE.items()))
def test_a_page_that_is_run_elsewhere_is_named_there(page, test):
    assert page in (ROOT / test).read_text()
    assert runnable(DOCS / "how-to" / page)


# ---------------------------------------------------------------- commands that are only shown
def shown():
    """Each command of shmq in any block of any page, without what the reader is to fill in."""
    for page in sorted([ROOT / "README.md", *DOCS.rglob("*.md")]):
        for block in blocks(page):
            if block.language not in {"", "console", "sh"}:
                continue
            for line in block.body.splitlines():
                _, dollar, command = line.partition("$ ")
                words = (command if dollar else line).strip()
                if words.startswith("shmq ") and not {"…", "..."} & set(words.split()) and "|" not in words:
                    yield pytest.param(words, id=f"{page.relative_to(ROOT)}: {words}")


@pytest.mark.parametrize("command", list(shown()))
def test_a_command_that_a_page_shows_is_one(command, capsys):
    """Its verb and options are there; nothing is run."""
    words = [word for word in shlex.split(command.partition(" < ")[0], comments=True) if word != "&"]
    verb = words[1:]
    if "--help" in verb or "--version" in verb:
        return
    try:
        parser(verb[0]).parse_args(verb[1:])
    except SystemExit:
        pytest.fail(capsys.readouterr().err)


# ---------------------------------------------------------------- blocks in an interactive Python
def stops(body):
    """The first line that an interactive Python before 3.13 refuses when the block is pasted, line by line."""
    waiting = []
    for line in [*body.splitlines(), ""]:
        waiting.append(line)
        try:
            whole = codeop.compile_command("\n".join(waiting))
        except SyntaxError:
            return line
        if whole is not None:
            waiting = []
    return "\n".join(waiting) or None


TYPED = [
    block
    for page in sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
    for block in blocks(page)
    if block.language == "python" and block.mark != "program" and not fenced.FILE.match(block.body)
]


def test_a_block_can_be_pasted_into_an_interactive_python():
    """It wants an empty line behind the body of a `for`, `with` or `def`, and none in it."""
    assert [f"{block}: {line}" for block in TYPED if (line := stops(block.body)) is not None] == []


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("for x in ():\n    pass\n\nprint(x)\n", None),
        ("for x in ():\n    pass\nprint(x)\n", "print(x)"),
        ("def f():\n    x = 1\n\n    return x\n", "    return x"),
        ("print(\n", "print("),
    ],
)
def test_a_block_that_cannot_be_pasted_is_found(body, line):
    assert (stops(body) or "").strip("\n") == (line or "")


# ---------------------------------------------------------------- the reader of these tests
def written(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)  # 2\n```\n",
        "```python\n1 / 0\n```\n",
        "<!-- raises: KeyError -->\n```python\n1 / 0\n```\n",
        "```console\n$ echo one\ntwo\n```\n",
        "```console\n$ false\n```\n",
        "```console\nhub$ ls\n```\n",
        "<!-- exits: 2 -->\n```console\n$ shmq stat nowhere\n...\n```\n",
        "<!-- program: failing.py -->\n```python\nraise SystemExit(3)\n```\n",
    ],
)
def test_a_page_that_lies_is_found_out(text, tmp_path, reader, monkeypatch):
    monkeypatch.setattr(fenced, "ROOT", tmp_path)
    with pytest.raises((AssertionError, ZeroDivisionError)):
        reader.follow(written(tmp_path, text))


def test_a_page_that_does_not_lie_is_not(tmp_path, reader, monkeypatch):
    monkeypatch.setattr(fenced, "ROOT", tmp_path)
    text = """
<!-- before:
x = 1
-->
```python
print(x + 1)  # 2
```

<!-- raises: ZeroDivisionError -->
```python
1 / 0
```

```python
# said.py
print("hello, world")
```

```console
$ python said.py
hello, ...
$ shmq create orders \\
    --codec json
...
```

<!-- exits: 1 -->
```console
$ shmq stat nowhere
shmq: ...
```

<!-- not run: there is nothing to run here; tests/pages/fenced.py -->
```python
1 / 0
```
"""
    assert reader.follow(written(tmp_path, text)) == 5
    assert reader.names["x"] == 1
