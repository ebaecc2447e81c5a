"""What the pages say of the whole is complete: errors, limits, names, links; and the site can be made of them."""

from __future__ import annotations

import builtins
import importlib
import inspect
import re
import subprocess
import sys

import pytest
from fenced import ROOT

import shmq
from shmq._native import layout
from shmq.storage import files

sys.path.insert(0, str(ROOT / "docs" / "site"))
try:
    import contents
finally:
    sys.path.pop(0)

DOCS = ROOT / "docs"
SUB = {file.parent.name for file in (ROOT / "shmq").glob("[a-z]*/__init__.py")}
CLASS = re.compile(r"^class (\w+)\((.+?)\):", re.MULTILINE)
OPERATIONS = (DOCS / "operations.md").read_text()


def section(title, page=OPERATIONS):
    """What stands below a heading, up to the next one."""
    (found,) = re.findall(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
    return found


def rows(text):
    """The cells of each row of a table, but for the heading."""
    lines = [line.strip()[1:-1].split("|") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines[1:]]


# ---------------------------------------------------------------- errors
def of_the_queue():
    return {name for name, each in vars(shmq.errors).items() if inspect.isclass(each) and not name.startswith("_")}


SURFACES = sorted({name for name in shmq.__all__ if name in SUB} | {"formats.chronicle"})


def exported():
    """(surface, public name) of all that a surface offers, whatever must be installed to use it."""
    for surface in SURFACES:
        module = importlib.import_module(f"shmq.{surface}")
        yield from ((surface, name) for name in getattr(module, "__all__", ()))


def raised_by(surface):
    """The exceptions that are defined in a surface: all classes that end at a built-in one or at ours."""
    folder = ROOT / "shmq" / surface.replace(".", "/")
    text = "".join(file.read_text() for file in folder.rglob("*.py"))
    bases = {name: set(re.split(r"[\s,.]+", above)) for name, above in CLASS.findall(text)}
    found = (
        {name for name, each in vars(builtins).items() if is_error(each)}
        | of_the_queue()
        | {"BrokenProcessPool", "FutureTimeout"}
    )
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found & set(bases)


def is_error(thing):
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def of_the_surfaces():
    raised = {surface: raised_by(surface) for surface in SURFACES}
    return {(name, surface) for surface, name in exported() if name in raised[surface]}


def test_each_error_of_the_queue_is_told_in_operations():
    told = rows(section("What each error means"))
    assert {name.strip("`") for name, *_ in told} | {"ShmqError"} == of_the_queue()
    assert all(len(row) == 4 and row[1] in {"wait", "program", "act"} and row[3] for row in told)


def test_what_operations_says_that_an_error_is_it_is():
    """Also a `queue.Empty`, a `Full`, ...; and the attributes that it names are there."""
    for name, _, means, _ in rows(section("What each error means")):
        error = getattr(shmq, name.strip("`"))
        for other in re.findall(r"(?:also an?|[aA]) `(\w+(?:\.\w+)?)`", means):
            wanted = (
                getattr(__import__("queue"), other.partition(".")[2], None) if "." in other else getattr(shmq, other)
            )
            assert wanted is None or issubclass(error, wanted), (name, other)
        for attribute in re.findall(r"`(index|first_index)`", means):
            assert attribute in inspect.signature(error).parameters


def test_each_error_of_a_surface_is_told_in_operations():
    told = {
        (name.strip("`"), surface)
        for name, where, _ in rows(section("Errors of the surfaces"))
        for surface in where.split(", ")
    }
    assert told == of_the_surfaces()


# ---------------------------------------------------------------- limits
def limits():
    return {
        what: [int(n) for n in re.findall(r"\d+", said.replace(",", ""))] for what, said, _ in rows(section("Limits"))
    }


def beyond(queue):
    """For each limit that a call shows: (the largest that goes, the first that does not, its error)."""
    number = limits()
    key, headers, batch = number["key"][0], number["headers of a message"][0], number["messages in one `put_many`"][0]
    name, tries = number["consumer's name"][0], number["`max_attempts` of a group"][0]
    producer = number["producer's name in `dedup`"][0]
    group = {"group": True, "ack": "explicit"}
    header = len("a") + 2 + 5  # the map, the text and the head of the bytes, as MessagePack has them
    yield lambda n=key: queue.put(b"", key=b"k" * n), lambda n=key: queue.put(b"", key=b"k" * (n + 1)), shmq.TooLarge
    yield (
        lambda n=headers: queue.put(b"", headers={"a": b"h" * (n - header - 16)}),
        lambda n=headers: queue.put(b"", headers={"a": b"h" * (n + 1)}),
        shmq.TooLarge,
    )
    yield lambda: queue.put(b"", type=number["type"][1]), lambda: queue.put(b"", type=number["type"][1] + 1), ValueError
    yield lambda: queue.put_many([b""] * batch), lambda: queue.put_many([b""] * (batch + 1)), shmq.TooMany
    yield lambda: queue.consumer("n" * name).close(), lambda: queue.consumer("n" * (name + 1)), ValueError
    yield (
        lambda: queue.consumer("g", max_attempts=tries, **group).close(),
        lambda: queue.consumer("h", max_attempts=tries + 1, **group),
        ValueError,
    )
    yield (
        lambda: queue.put(b"", dedup=("p" * producer, 1)),
        lambda: queue.put(b"", dedup=("p" * (producer + 1), 1)),
        ValueError,
    )
    spacing = number["`index_spacing`"]
    yield (
        lambda: [shmq.Options(index_spacing=each) for each in spacing],
        lambda: shmq.Options(index_spacing=spacing[1] + 1),
        ValueError,
    )
    few, most = (n << 10 * power for n, power in zip(number["`chunk_bytes`"], (1, 3), strict=True))
    yield (
        lambda: [shmq.Options(chunk_bytes=each) for each in (few, most)],
        lambda: shmq.Options(chunk_bytes=few - 4096),
        ValueError,
    )
    filters = number["headers in a filter"][0]
    yield (
        lambda: shmq.Filter(headers=dict.fromkeys("abcdefghijklm"[:filters], 1)),
        lambda: shmq.Filter(headers=dict.fromkeys("abcdefghijklm"[: filters + 1], 1)),
        ValueError,
    )


def test_the_limits_are_where_operations_says(queue):
    for goes, does_not, error in beyond(queue):
        goes()
        with pytest.raises(error):
            does_not()


def test_a_message_is_as_large_as_operations_says(queue):
    (most, *_) = limits()["payload of a message"]
    assert most == layout.SPAN_MAX * layout.SPAN_UNIT - layout.RECORD_HEADER_BYTES
    with pytest.raises(shmq.TooLarge), queue.reserve(most + 1):
        pass


def test_participants_are_as_many_as_operations_says():
    assert limits()["processes that have one queue open"] == [layout.OWNER_SLOTS, layout.SMALL_SLOTS]


def test_the_file_systems_that_operations_names_are_refused():
    assert {"nfs", "cifs"} <= files.NETWORK


# ---------------------------------------------------------------- the reference
def documented():
    """Every name that a page of the reference has documented from its docstring."""
    text = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    return re.findall(r"^\.\. auto\w+:: shmq\.([\w.]+)$", text, re.MULTILINE)


def test_every_public_name_is_in_the_reference_once():
    """Surfaces by their `__all__`; Spark is used by its options, and of a format its own page tells."""
    names = documented()
    assert sorted(names) == sorted(set(names))
    own = {name for name in shmq.__all__ if name not in SUB and not inspect.ismodule(getattr(shmq, name))}
    surfaces = {f"{surface}.{name}" for surface, name in exported() if surface not in {"spark", "formats.chronicle"}}
    constants = {"bridge.PREFIX", "replica.PREFIX", "formats.HERE"}
    aliases = {"GroupMessage", "executor.Executor", "flow.Flow", "formats.Place"}
    told = {name for name in names if "chronicle." not in name and "codec." not in name}
    assert own | surfaces == told | constants | aliases


def test_what_the_reference_names_is_there():
    for name in documented():
        thing = shmq
        for part in name.split("."):
            thing = (
                getattr(thing, part)
                if hasattr(thing, part)
                else __import__(f"shmq.{name.rpartition('.')[0]}", fromlist=[part])
            )
        assert inspect.getdoc(thing), name


# ---------------------------------------------------------------- the site
def site_pages():
    """Every page that the site has."""
    found = [
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / "examples").glob("*.md"),
        *(ROOT / "tests").rglob("*.md"),
    ]
    return {str(page.relative_to(ROOT))[: -len(".md")] for page in found}


def test_every_page_of_the_site_is_in_one_toctree():
    trees = [page for parts in contents.trees(ROOT).values() for _, entries in parts for page in entries]
    assert len(trees) == len(set(trees))
    assert set(trees) | {"README"} == site_pages()


def test_a_page_that_no_index_has_is_in_no_toctree(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("## One\n[a](a.md)\n## Two\n[b](b.md#x) [a](a.md) [c](../c.md)\n")
    assert contents.trees(tmp_path) == {
        "README": [("", ["docs/README"]), ("One", ["docs/a"]), ("Two", ["docs/b", "c"])]
    }


def test_links_of_the_short_account_for_programs_lead_somewhere():
    """llms.txt is plain Markdown; so is what it leads to."""
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "llms.txt").read_text())
    assert len(links) > 30
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_the_short_account_for_programs_counts_the_examples():
    programs = len(list((ROOT / "examples").glob("[0-9]*.py")))
    assert f"{programs} programs of some 40 lines" in (ROOT / "llms.txt").read_text()


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a hundred seconds of a processor, which on a busy machine are many minutes
def test_the_site_is_made_without_a_warning(tmp_path):
    """As `make docs` makes it: of each page one of HTML, with links and anchors that are there."""
    pytest.importorskip("sphinx", reason="the extra `docs` is not installed")
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", DOCS, ROOT, tmp_path / "site"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=3500)
    assert done.returncode == 0, done.stderr
    made = tmp_path / "site"
    assert {page for page in site_pages() if not (made / f"{page}.html").is_file()} == set()
    front = (made / "index.html").read_text()
    assert "docs/tutorial.html" in front
    assert "Who looks something up" in front
    assert 'id="shmq.Queue.put"' in (made / "docs/reference/queue.html").read_text()
