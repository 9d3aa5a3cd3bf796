"""Results of single tests: what is read from the files of real runners, and from files
that are none."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _ralph import files, text
from _ralph.loop import junit
from _ralph.model import SingleTests
from tests.conftest import ROOT
from tests.hostile import hostile

RECORDINGS = ROOT / "tests" / "recordings" / "junit"
PROJECT = Path("/srv/project")  # where they were made
Read = Callable[[Path, Path], SingleTests]


def told(tests: SingleTests) -> str:
    """What was read, in one line."""
    states = {"passed": tests.passed, "failed": tests.failed, "skipped": tests.skipped}
    words = [f"{state} {name}" for state, names in states.items() for name in names]
    return ", ".join(words) + tests.unread


# ---------------------------------------------------------------- real runners

# The recording; how many passed, failed and were skipped; some of the names.
GOLDEN = """\
gotestsum-half       8 4 1  passed example.org/calc/calc > TestTable/same#01, skipped example.org/calc/calc > TestSkipped
gotestsum-main       its results name no test
gotestsum-next       2 1 0  passed example.org/calc/other > TestAdd
gotestsum-next-go127 2 2 0  failed example.org/calc/calc > TestMain
gotestsum-reruns     1 2 0  failed example.org/calc > TestFlaky
jest-half            4 6 1  passed calc nested deeper adds, failed with a broken hook is not reached
jest-next            4 6 1  passed calc is known to fail, skipped calc is skipped
jest-next-errors     4 7 1  passed test/calc.test.js > calc each 1 2, failed test/next.test.js > Test suite failed to run > test/next.test.js
mocha-half           2 6 2  passed test/calc.test.js > calc nested deeper > adds, failed test/calc.test.js > slow
mocha-retries        2 1 0  passed test/flaky.test.js > is flaky
nextest-half         4 3 0  passed calc::whole > adds, failed calc > tests::subtracts
nextest-retries      2 1 0  passed calc::flaky > flaky, failed calc::flaky > red
node-half            3 7 3  passed calc > nested deeper > adds, failed calc > adds, skipped calc > is to do and fails
node-next            3 8 3  failed test/next.test.js
node-odd             5 1 0  passed test/exit.test.js, failed same > name
node24-next          3 8 3  passed test/calc.test.js > calc.nested deeper > adds, failed test/next.test.js
pytest-continues     7 8 4  passed tests.test_calc.TestNested.TestDeeper > test_add, failed tests.test_next
pytest-half          7 7 4  passed tests.test_calc > test_param[1-2], skipped tests.test_calc > test_xfail
pytest-reruns        2 1 0  passed tests.test_calc > test_flaky
pytest-setup-plan    0 1 18 failed tests.test_next, skipped tests.test_calc > test_add
pytest-stops         0 1 0  failed tests.test_next
surefire-half        3 4 2  passed org.example.TableTest > isNotThree[0: n 1], failed org.example.BeforeTest
surefire-reruns      2 2 0  passed org.example.FlakyTest > flaky, failed org.example.FlakyTest > red
vitest-half          3 6 2  passed test/calc.test.mjs > calc > nested > deeper > adds, skipped test/calc.test.mjs > calc > is to do
vitest-next          3 7 2  failed test/next.test.mjs
vitest-retries       2 1 0  passed test/flaky.test.mjs > is flaky
"""


def recording(name: str) -> Path:
    file = RECORDINGS / f"{name}.xml"
    return file if file.exists() else RECORDINGS / name


@pytest.mark.parametrize("row", GOLDEN.splitlines())
def test_the_files_of_real_runners(row: str) -> None:
    name, wanted = row.split(maxsplit=1)
    found = junit.read(recording(name), PROJECT)
    if found.unread:
        assert found.unread == wanted
        return
    *counts, names = wanted.split(maxsplit=3)
    assert [len(found.passed), len(found.failed), len(found.skipped)] == [
        *map(int, counts)
    ]
    lines = told(found).split(", ")
    assert all(name in lines for name in names.split(", ")), told(found)


def test_every_recording_has_its_row() -> None:
    names = {path.name.removesuffix(".xml") for path in RECORDINGS.iterdir()} - {
        "README.md"
    }
    assert names == {row.split()[0] for row in GOLDEN.splitlines()}


@pytest.mark.parametrize("name", [row.split()[0] for row in GOLDEN.splitlines()])
def test_a_test_has_one_name_in_every_place(name: str, tmp_path: Path) -> None:
    source, place = recording(name), tmp_path / "room-12"
    for file in [*source.iterdir()] if source.is_dir() else [source]:
        moved = file.read_bytes().replace(bytes(PROJECT), bytes(place))
        (tmp_path / file.name).write_bytes(moved)
    found = junit.read(tmp_path if source.is_dir() else tmp_path / source.name, place)
    assert found == junit.read(source, PROJECT)
    assert str(place) not in repr(found)


# What a failure says: the first line of one of each runner.
SAYS = {
    "gotestsum-half": (
        "example.org/calc/calc > TestSub",
        "    calc_test.go:17: Sub(3, 2) = 5, want <1>",
    ),
    "jest-half": ("calc throws", 'TypeError: boom <&> "quoted"'),
    "mocha-half": ("test/calc.test.js > calc > throws", 'TypeError: boom <&> "quoted"'),
    "nextest-half": ("calc::whole > is_err", 'Error: "no database"'),
    "node24-next": ("test/calc.test.js > slow", "test timed out after 100ms"),
    "pytest-half": (
        "tests.test_calc > test_sub",
        "AssertionError: sub is <wrong> & known",
    ),
    "surefire-half": (
        "org.example.CalcTest > errors",
        "java.lang.IllegalStateException: no database",
    ),
    "vitest-next": (
        "test/next.test.mjs",
        "Cannot find module '../multiply.js' imported from test/next.test.mjs",
    ),
}


@pytest.mark.parametrize("name", SAYS)
def test_what_a_failure_says(name: str) -> None:
    test, line = SAYS[name]
    assert line in junit.read(recording(name), PROJECT).failed[test].splitlines()


# ---------------------------------------------------------------- decisions

T = '<testcase classname="c" name="t">{}</testcase>'
T2, U = T.format("") + T, T.replace('"t"', '"u"')
DTD = '<!DOCTYPE r [<!ENTITY a "lol">]>'
# What stands in a file (without a root: in a suite called "s"), and what is read from
# it.
TABLE = [
    # what became of a test
    (T.format(""), "passed c > t"),
    (T.format("<failure/>"), "failed c > t"),
    (T.format("<error>trace</error>"), "failed c > t"),
    (T.format("<skipped/>"), "skipped c > t"),
    (T.format("<disabled/>"), "skipped c > t"),
    ('<testcase name="t" status="notrun"/>', "skipped s > t"),
    ('<testcase name="t" status="run"/>', "passed s > t"),
    (T.format("<skipped type='todo'/><failure/>"), "skipped c > t"),
    (T.format("<flakyFailure/><flakyError/>"), "passed c > t"),
    (
        T.format("<failure/><rerunFailure><stackTrace>x</stackTrace></rerunFailure>"),
        "failed c > t",
    ),
    (T.format("<rerunError/>"), "failed c > t"),
    (T.format("<system-out>&lt;failure/></system-out><properties/>"), "passed c > t"),
    ("<failure/>" + T.format(""), "passed c > t"),
    (T.format('<testcase name="u"><error/></testcase>'), "passed c > t, failed s > u"),
    (f'<testsuite tests="0">{T.format("")}</testsuite>', "skipped c > t"),
    (f'<testsuite tests="0">{T.format("<error/>")}</testsuite>', "failed c > t"),
    (f'<testsuite tests="0">{T.format("<skipped/>")}</testsuite>', "skipped c > t"),
    (
        f'<testsuite tests="1">{T.format("")}{U.format("<error/>")}</testsuite>',
        "failed c > u, skipped c > t",
    ),
    (
        f'<testsuite tests="2">{T.format("")}{U.format("<error/>")}</testsuite>',
        "passed c > t, failed c > u",
    ),
    (
        f'<testsuite tests="0">{T.format("")}{T.format("<error/>")}</testsuite>',
        "failed c > t",
    ),
    # a name that stands there twice
    (T2.format("<failure/>"), "failed c > t"),
    (T.format("<failure/>") + T.format(""), "failed c > t"),
    (T2.format("<skipped/>"), "skipped c > t"),
    (T.format("<skipped/>") + T.format("<failure/>"), "failed c > t"),
    (T2.format(""), "passed c > t"),
    # names
    ('<testcase name="t"/>', "passed s > t"),
    ('<testcase classname="test" name="t"/>', "passed s > t"),
    (
        '<testsuite name="d"><testcase classname="test" name="t"/></testsuite>',
        "passed s > d > t",
    ),
    (
        '<testsuite name="pytest"><testcase classname="" name="t"/></testsuite>',
        "passed s > t",
    ),
    ('<testcase classname="c" name="c adds"/>', "passed c adds"),
    ('<testcase classname="add" name="adds"/>', "passed add > adds"),
    ('<testcase classname="c" name=""/>', "passed c"),
    ('<testsuites><testcase time="1"/></testsuites>', "passed (no name)"),
    ('<testcase file="a.js" classname="c" name="t"/>', "passed a.js > c > t"),
    ('<testcase file="ROOT/a.js" classname="c" name="t"/>', "passed a.js > c > t"),
    (
        '<testcase file="file://ROOT/a.js" classname="c" name="t"/>',
        "passed a.js > c > t",
    ),
    ('<testcase file="ROOT-2/a.js" classname="c" name="t"/>', "passed c > t"),
    ('<testcase file="/elsewhere/a.js" classname="c" name="t"/>', "passed c > t"),
    (
        f'<testsuite file="a.js"><testsuite>{T.format("")}</testsuite></testsuite>',
        "passed a.js > c > t",
    ),
    (
        '<testcase classname="c" name="reads ROOT/x, not ROOT2"/>',
        "passed c > reads x, not ROOT2",
    ),
    (
        '<testcase classname="c" name="a&#10;&#9;b  c &#x202e;d&#x85;"/>',
        "passed c > a b c d",
    ),
    # documents
    (
        f"<?xml version='1.0'?><testsuite name='s'>{T.format('')}</testsuite>",
        "passed c > t",
    ),
    (f'<j:testsuites xmlns:j="urn:j">{T.format("")}</j:testsuites>', "passed c > t"),
    (
        f'<testsuites xmlns="urn:j">{T.format("<failure/>")}</testsuites>',
        "failed c > t",
    ),
    (f"<?pi x?><!-- x --><testsuites>{T.format('')}</testsuites>", "passed c > t"),
    (T.format("<system-out>\x1b[31mred\x1b[0m</system-out>"), "passed c > t"),
    ("<testsuites/>", "its results name no test"),
    (
        f"{DTD}<testsuites>&a;</testsuites>",
        "its results hold a DOCTYPE, and no test runner writes one",
    ),
    ("<TestRun/>", "its results are no JUnit XML: they begin with <TestRun>"),
]


def write(path: Path, body: str) -> Path:
    """Make it the results of a run at the folder around them."""
    rooted = body.startswith(("<testsuites", "<j:", "<?", "<!", "<TestRun"))
    whole = (
        body
        if rooted
        else f'<testsuites><testsuite name="s">{body}</testsuite></testsuites>'
    )
    path.write_text(whole.replace("ROOT", str(path.parent)))
    return path


def disagreements(read: Read, folder: Path) -> list[str]:
    """The rows of which `read` says something else than the table."""
    rows = ((body, wanted.replace("ROOT", str(folder))) for body, wanted in TABLE)
    return [
        body
        for body, wanted in rows
        if told(read(write(folder / "r.xml", body), folder)) != wanted
    ]


def test_the_table(tmp_path: Path) -> None:
    for body, wanted in TABLE:
        found = told(junit.read(write(tmp_path / "r.xml", body), tmp_path))
        assert found == wanted.replace("ROOT", str(tmp_path)), body


# Rules that somebody could write: what stands in the code, and what in its place.
MUTANTS = {
    "the last of two counts": (
        "max(state, self._states.get(test.name, _PASSED))",
        "state",
    ),
    "the best of two counts": (
        "max(state, self._states.get(test.name, _PASSED))",
        "min(state, _FAILED)",
    ),
    "skipped is passed": ("_SKIPPED if test.kinds & _SKIPS else ", ""),
    "failed wins over skipped": (
        "_SKIPPED if test.kinds & _SKIPS else _FAILED if test.kinds & _FAILURES else _PASSED",
        "_FAILED if test.kinds & _FAILURES else _SKIPPED if test.kinds & _SKIPS else _PASSED",
    ),
    "a suite that ran no test passed": (
        "max(_SKIPPED, self._states[name])",
        "self._states[name]",
    ),
    "a suite that counts no test did not fail": (
        "max(_SKIPPED, self._states[name])",
        "_SKIPPED",
    ),
    "a suite counts more than it ran": ("<= suite.others", "< suite.others"),
    "an error is no failure": ('"failure", "error", ', '"failure", '),
    "a status is nothing": ('{attributes.get("status", "")} & _SKIPS', "set()"),
    "a flaky test failed": ('"rerunError"}', '"rerunError", "flakyFailure"}'),
    "a DOCTYPE is read": ("forbid_dtd=True", "forbid_dtd=False, forbid_entities=False"),
    "any XML is read": ("self._depth == 1 and", "False and"),
    "a class called test names a test": ('"test", ', ""),
    "no suites": ("owner = self._suites[-1].name if owner in _NO_CLASS else owner", ""),
    "no file": ("_joined(self._file(attributes), ", "_joined("),
    "places in names": ('said.replace(top, "")', "said"),
    "namespaces": ('rpartition("}")', 'rpartition("|")'),
    "colours are no XML": ("piece.translate(None, _CONTROL)", "piece"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_rule_is_needed(mutant: str, tmp_path: Path) -> None:
    old, new = MUTANTS[mutant]
    source = Path(junit.__file__).read_text("utf-8")
    assert source.count(old) == 1
    broken = ModuleType("_ralph.loop.broken")
    sys.modules[broken.__name__] = broken  # dataclasses look there
    exec(compile(source.replace(old, new), "broken", "exec"), broken.__dict__)
    assert disagreements(broken.read, tmp_path)


def test_long_names_that_begin_alike_stay_two(tmp_path: Path) -> None:
    names = [f"{'x' * 5000}{last}" for last in "aab"]
    cases = "".join(f'<testcase name="{name}"/>' for name in names)
    found = junit.read(write(tmp_path / "r.xml", cases), tmp_path)
    assert len(found.passed) == 2 and all(len(name) < 400 for name in found.passed)


def test_of_what_failures_say_the_beginning_and_the_end_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHOP_API_TOKEN", secret := "sk-0123456789abcdef")
    text._secrets.cache_clear()
    said = f"begins \u202eat {tmp_path}/a.py with {secret}{'&#10;many words' * 900} {secret} ends"
    failure = f'<failure message="it broke {secret}">{said}</failure>'
    cases = [
        f'<testcase name="t{n} {secret}">{failure}</testcase>' for n in range(2000)
    ]
    found = junit.read(write(tmp_path / "r.xml", "".join(cases)), tmp_path)
    text._secrets.cache_clear()
    first = found.failed["s > t0 [SHOP_API_TOKEN]"]
    assert first.startswith(
        "it broke [SHOP_API_TOKEN]\nbegins at a.py with [SHOP_API_TOKEN]\nmany words\n"
    )
    assert first.endswith("[cut here]\n" + first.partition("[cut here]\n")[2])
    assert first.endswith("many words [SHOP_API_TOKEN] ends") and len(first) < 2100
    assert (
        len(found.failed) == 2000 and sum(map(len, found.failed.values())) < 1_003_000
    )
    assert secret not in repr(found)


# ---------------------------------------------------------------- files and folders

CASE = "<testsuites>" + T.format("") + "</testsuites>"


def test_in_a_folder_every_report_counts(tmp_path: Path) -> None:
    results = tmp_path / "results"
    (results / "module").mkdir(parents=True)
    (results / "a.xml").write_text(CASE.replace('"t"', '"a"'))
    (results / "module" / "b.xml").write_text(CASE.replace('"t"', '"b"'))
    (results / "a.txt").write_text("no XML")
    assert told(junit.read(results, tmp_path)) == "passed c > a, passed c > b"
    # Failsafe's summary is XML, and says nothing of single tests
    (results / "module" / "TEST-c.xml").write_text(CASE)
    (results / "failsafe-summary.xml").write_text("<failsafe-summary/>")
    assert told(junit.read(results, tmp_path)) == "passed c > t"
    (results / "TEST-d.xml").write_text("<testsuites><tests")
    assert told(junit.read(results, tmp_path)).startswith(
        "its results (TEST-d.xml) are no JUnit XML: "
    )


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))  # at most 108 bytes


def link(path: Path) -> None:
    path.with_name("real.xml").write_text(CASE)
    path.symlink_to("real.xml")


def loop_of_folders(path: Path) -> None:
    path.mkdir()
    (path / "again").symlink_to(path)
    (path / "a.xml").symlink_to(path)


def deep_folders(path: Path) -> None:
    path.mkdir()
    os.chdir(path)
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(path.parent)


def unreadable(path: Path) -> None:
    path.write_text(CASE)
    path.chmod(0)


def many(path: Path) -> None:
    path.mkdir()
    for number in range(10_001):
        (path / f"{number}.xml").touch()


def holds(data: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(data)

    return make


def xml(body: bytes) -> Callable[[Path], None]:
    return holds(b"<testsuites>" + body + b"</testsuites>")


NO_XML = "its results are no JUnit XML: "
NO_FILE = "its results are no regular file that can be read"
BOMB = "<!DOCTYPE r [<!ENTITY a0 'lol'>{}]><testsuites>&a9;</testsuites>".format(
    "".join(f"<!ENTITY a{n + 1} '{f'&a{n};' * 10}'>" for n in range(9))
)
PLACES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (
        lambda path: None,
        "it wrote no results to RALPH_RESULTS; does the tool pass it on?",
    ),
    "FIFO": (os.mkfifo, NO_FILE),
    "socket": (listening, NO_FILE),
    "device": (device, NO_FILE),
    "link": (link, NO_FILE),
    "link to nothing": (lambda path: path.symlink_to("nothing"), NO_FILE),
    "link to a folder": (lambda path: path.symlink_to(path.parent), NO_FILE),
    "no permission": (unreadable, NO_FILE),
    "empty folder": (Path.mkdir, "its results are a folder without an .xml file"),
    "loop of folders": (
        loop_of_folders,
        "its results (a.xml) are no regular file that can be read",
    ),
    "deep folders": (deep_folders, "its results are "),
    "many files": (many, "its results are over 10,000 files"),
    "empty": (holds(b""), NO_XML + "no element found: line 1, column 0"),
    "JSON": (
        holds(b"{}"),
        NO_XML + "not well-formed (invalid token): line 1, column 0",
    ),
    "half": (holds(CASE[:30].encode()), NO_XML + "unclosed token: line 1, column 12"),
    "two": (
        holds(CASE.encode() * 2),
        NO_XML + "junk after document element: line 1, column ",
    ),
    "NUL": (xml(b"\0"), NO_XML + "not well-formed (invalid token): line 1, column 12"),
    "no UTF-8": (
        xml(b"<a x='\xff'/>"),
        NO_XML + "not well-formed (invalid token): line 1, column 1",
    ),
    "no encoding": (
        holds(b"<?xml version='1.0' encoding='x-none'?><testsuites/>"),
        NO_XML + "unknown encoding",
    ),
    "odd encoding": (
        holds(b"<?xml version='1.0' encoding='base64'?><testsuites/>"),
        NO_XML + "'base64' is not",
    ),
    "bomb": (
        holds(BOMB.encode()),
        "its results hold a DOCTYPE, and no test runner writes one",
    ),
    "entity": (xml(b"&a;"), NO_XML + "undefined entity: line 1, column 12"),
    "depth": (
        xml(b"<testsuite>" * 100_000),
        NO_XML + "over 200 elements, one in the other",
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_what_is_no_results_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "no permission" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    monkeypatch.chdir(tmp_path)
    make, why = PLACES[name]
    make(tmp_path / "results")
    found = junit.read(tmp_path / "results", tmp_path)
    files.clear(
        tmp_path / "results"
    )  # pytest cannot remove so many folders, one in the other
    assert found.unread.startswith(why) and not (
        found.passed or found.failed or found.skipped
    )


# ---------------------------------------------------------------- seconds and memory

MB = 1 << 20
# What the file begins with, what is then repeated ({} is a number), how often, and what
# is read from it.
LARGE = {
    "output": (
        b"<testsuites><testcase name='t'><system-out>",
        b"x" * 99 + b"\n",
        2 * MB,
        "1 0 0",
    ),
    "a failure": (
        b"<testsuites><testcase name='t'><failure>",
        b"x" * 99 + b"\n",
        2 * MB,
        "0 1 0",
    ),
    "300 MB": (b"<testsuites>", b" " * 100, 3 * MB, "its results are over 256 MB"),
    "one attribute": (b"<testsuites name='", b"x" * 100, 2 * MB, "a tag is over 1 MB"),
    "one comment": (b"<testsuites><!--", b"x" * 100, 2 * MB, "a tag is over 1 MB"),
    "attributes": (b"<testsuites ", b"a{}='' ", 2 * MB, "a tag is over 1 MB"),
    "kinds": (b"<testsuites>", b"<a{}/>", 2 * MB, "too many kinds"),
    "namespaces": (b"<testsuites>", b"<a xmlns:a{}='u'/>", 2 * MB, "too many kinds"),
    "elements": (
        b"<testsuites>",
        b"<a/>",
        3 * MB,
        "its results hold over 2,000,000 elements",
    ),
    "comments": (
        b"<testsuites>",
        b"<!---->",
        3 * MB,
        "its results hold over 2,000,000 elements",
    ),
    "names": (
        b"<testsuites>",
        b"<testcase name='" + b"\xc3\xa4" * 500_000 + b"'/>",
        250,
        "1 0 0",
    ),
    "one in the other": (
        b"<testsuites>",
        b"<testcase status='" + b"x" * 1_000_000 + b"'>",
        190,
        "no element found",
    ),
    "names of suites": (
        b"<testsuites>" + (b"<testsuite name='" + b"x" * 10_000 + b"'>") * 190,
        b"<testcase name='a'/>",
        2**17,
        "1 0 0",
    ),
    "tests": (
        b"<testsuites>",
        b"<testcase name='{}'/>",
        MB,
        "its results name over 200,000 tests",
    ),
    "sparse": (b"", b"", 1, "not well-formed (invalid token)"),
}
CHILD = """
import json, resource, sys, time
from pathlib import Path
from _ralph.loop import junit
from _ralph.model import SingleTests
def most():
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    status = Path("/proc/self/status").read_text()  # the other one counts what this process was forked from
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
small, large = map(Path, sys.argv[1:])
junit.read(small, small)
before, began = most(), time.process_time()
tests = junit.read(large, large)
found = tests.unread or f"{len(tests.passed)} {len(tests.failed)} {len(tests.skipped)}"
print(json.dumps([found, time.process_time() - began, most() - before]))
"""


@pytest.mark.parametrize("name", LARGE)
def test_whatever_stands_there_takes_seconds_and_little_memory(
    name: str, tmp_path: Path
) -> None:
    begin, piece, times, wanted = LARGE[name]
    (small := tmp_path / "small.xml").write_text(CASE)
    with (large := tmp_path / "large.xml").open("wb") as file:
        file.write(begin)
        for first in range(0, times, 1 << 16):
            numbers = range(first, min(first + (1 << 16), times))
            numbered = b"{}" in piece
            file.write(
                b"".join(piece.replace(b"{}", b"%d" % n) for n in numbers)
                if numbered
                else piece * len(numbers)
            )
        if wanted[0].isdecimal():
            open_tags = re.findall(rb"<([\w-]+)", begin)
            file.write(b"".join(b"</" + tag + b">" for tag in reversed(open_tags)))
        if name == "sparse":
            file.truncate(1 << 30)
    words = [sys.executable, "-c", CHILD, str(small), str(large)]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    large.unlink()
    found, seconds, memory = json.loads(done.stdout)
    assert wanted in found
    assert seconds < 6  # at most 1.5 on a quiet machine
    assert memory < 64 * MB


# ---------------------------------------------------------------- hostile bytes

VALID = [path.read_bytes() for path in sorted(RECORDINGS.glob("*.xml"))] + [
    CASE.encode()
]
PIECES = st.sampled_from(
    [b"<testcase>", b"</testcase>", b"<failure message='", b"<skipped/>", b"<![CDATA[", b"]]>", b"<!--", b"&#0;",
     b"&a;", b"<!DOCTYPE a>", b"<testsuite xmlns='", b"'", b'"', b"<", b">", b"\0", b"\xff\xfe", b"}"]
)  # fmt: skip


@hostile
@given(
    st.binary(max_size=200)
    | st.tuples(
        st.sampled_from(VALID),
        st.lists(
            st.tuples(
                st.integers(0, 1 << 14),
                st.integers(0, 200),
                PIECES | st.binary(max_size=9),
            )
        ),
    )
)
def test_it_never_raises(
    tmp_path: Path, data: bytes | tuple[bytes, list[tuple[int, int, bytes]]]
) -> None:
    if isinstance(data, tuple):
        data, edits = data
        for at, length, piece in edits:
            at %= len(data) + 1
            data = data[:at] + piece + data[at + length :]
    (path := tmp_path / "r.xml").write_bytes(data)
    found = junit.read(path, tmp_path)
    assert (
        found.unread
        if not (found.passed or found.failed or found.skipped)
        else not found.unread
    )
    names = [*found.passed, *found.failed, *found.skipped]
    assert names == [text.one_line(name, 400) for name in names]
