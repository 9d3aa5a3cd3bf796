"""Results of single tests: what is read from the files of real runners, and from files
that are none."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _ralph import files, text
from _ralph.checks import junit
from _ralph.model import SingleTests
from tests.conftest import ROOT
from tests.test_hostile import hostile

RECORDINGS = ROOT / "tests" / "recordings" / "junit"
PROJECT = Path("/srv/project")  # where they were made
Read = Callable[[Path, Path], SingleTests]


def told(tests: SingleTests) -> str:
    """What was read, in one line."""
    words = [f"passed {name}" for name in tests.passed]
    words += [f"failed {name}" for name in tests.failed]
    words += [f"skipped {name}" for name in tests.skipped]
    words += [f"not loaded {name}" for name in tests.uncollected]
    return ", ".join(words) + tests.unread


def counts(tests: SingleTests) -> str:
    """How many passed, failed and were skipped."""
    return f"{len(tests.passed)} {len(tests.failed)} {len(tests.skipped)}"


# ---------------------------------------------------------------- real runners

# The recording; how many passed, failed and were skipped; some of the names, and all
# that could not be loaded.
GOLDEN = """\
gotestsum-half       8 4 1  passed example.org/calc/calc > TestTable/same#01, skipped example.org/calc/calc > TestSkipped
gotestsum-main       its results name no test
gotestsum-next       2 1 0  passed example.org/calc/other > TestAdd
gotestsum-next-go127 2 2 0  failed example.org/calc/calc > TestMain, not loaded example.org/calc/calc > TestMain
gotestsum-reruns     1 2 0  failed example.org/calc > TestFlaky
jest-half            4 6 1  passed calc nested deeper adds, failed with a broken hook is not reached
jest-next            4 6 1  passed calc is known to fail, skipped calc is skipped
jest-next-errors     4 7 1  passed test/calc.test.js > calc each 1 2, failed test/next.test.js > Test suite failed to run > test/next.test.js, not loaded test/next.test.js > Test suite failed to run > test/next.test.js
mocha-half           2 6 2  passed test/calc.test.js > calc nested deeper > adds, failed test/calc.test.js > slow
mocha-retries        2 1 0  passed test/flaky.test.js > is flaky
nextest-half         4 3 0  passed calc::whole > adds, failed calc > tests::subtracts
nextest-retries      2 1 0  passed calc::flaky > flaky, failed calc::flaky > red
node-half            3 7 3  passed calc > nested deeper > adds, failed calc > adds, skipped calc > is to do and fails
node-next            3 8 3  failed test/next.test.js, not loaded test/next.test.js
node-odd             5 1 0  passed test/exit.test.js, failed same > name
node24-next          3 8 3  passed test/calc.test.js > calc.nested deeper > adds, failed test/next.test.js, not loaded test/next.test.js
pytest-continues     7 8 4  passed tests.test_calc.TestNested.TestDeeper > test_add, failed tests.test_next, not loaded tests.test_next
pytest-half          7 7 4  passed tests.test_calc > test_param[1-2], skipped tests.test_calc > test_xfail
pytest-reruns        2 1 0  passed tests.test_calc > test_flaky
pytest-setup-plan    0 1 18 failed tests.test_next, skipped tests.test_calc > test_add, not loaded tests.test_next
pytest-stops         0 1 0  failed tests.test_next, not loaded tests.test_next
surefire-half        3 4 2  passed org.example.TableTest > isNotThree[0: n 1], failed org.example.BeforeTest
surefire-reruns      2 2 0  passed org.example.FlakyTest > flaky, failed org.example.FlakyTest > red
vitest-half          3 6 2  passed test/calc.test.mjs > calc > nested > deeper > adds, skipped test/calc.test.mjs > calc > is to do
vitest-next          3 7 2  failed test/next.test.mjs, not loaded test/next.test.mjs
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
    *numbers, names = wanted.split(maxsplit=3)
    assert counts(found) == " ".join(numbers)
    assert {*names.split(", ")} <= {*told(found).split(", ")}, told(found)
    assert len(found.uncollected) == names.count("not loaded")


def test_every_recording_has_its_row_and_no_name_says_where_it_was_made() -> None:
    names = {path.name.removesuffix(".xml") for path in RECORDINGS.iterdir()}
    assert names == {*(row.split()[0] for row in GOLDEN.splitlines()), "README.md"}
    for name in names - {"README.md"}:
        assert str(PROJECT) not in repr(junit.read(recording(name), PROJECT))


# What a failure says: the first line of one of each runner.
SAYS = """\
gotestsum-half | example.org/calc/calc > TestSub     |     calc_test.go:17: Sub(3, 2) = 5, want <1>
jest-half      | calc throws                         | TypeError: boom <&> "quoted"
mocha-half     | test/calc.test.js > calc > throws   | TypeError: boom <&> "quoted"
nextest-half   | calc::whole > is_err                | Error: "no database"
node24-next    | test/calc.test.js > slow            | test timed out after 100ms
pytest-half    | tests.test_calc > test_sub          | AssertionError: sub is <wrong> & known
surefire-half  | org.example.CalcTest > errors       | java.lang.IllegalStateException: no database
vitest-next    | test/next.test.mjs                  | Cannot find module '../multiply.js' imported from test/next.test.mjs
"""


@pytest.mark.parametrize("row", SAYS.splitlines())
def test_what_a_failure_says(row: str) -> None:
    name, test, line = row.split("|")
    found = junit.read(recording(name.strip()), PROJECT)
    assert line[1:] in found.failed[test.strip()].splitlines()


# ---------------------------------------------------------------- decisions

DTD = '<!DOCTYPE r [<!ENTITY a "lol">]>'
# What stands in a file (without a root: in a suite called "s"), and what is read from
# it. <T> is <testcase classname="c" name="t">, <U> the same with another name; ROOT the
# folder of the place.
TABLE = f"""
<T></T>                                                               => passed c > t
<T><failure/></T>                                                     => failed c > t
<T><error>trace</error></T>                                           => failed c > t
<T><skipped/></T>                                                     => skipped c > t
<T><disabled/></T>                                                    => skipped c > t
<testcase name="t" status="notrun"/>                                  => skipped s > t
<testcase name="t" status="run"/>                                     => passed s > t
<T><skipped type='todo'/><failure/></T>                               => skipped c > t
<T><flakyFailure/><flakyError/></T>                                   => passed c > t
<T><failure/><rerunFailure><stackTrace>x</stackTrace></rerunFailure></T> => failed c > t
<T><system-out>&lt;failure/></system-out><properties/></T>            => passed c > t
<failure/><T></T>                                                     => passed c > t
<T><testcase name="u"><error/></testcase></T>                         => passed c > t, failed s > u
<testsuite tests="0"><T></T></testsuite>                              => skipped c > t
<testsuite tests="0"><T><error/></T></testsuite>                      => failed c > t
<testsuite tests="0"><T><skipped/></T></testsuite>                    => skipped c > t
<testsuite tests="1"><T></T><U><error/></U></testsuite>               => failed c > u, skipped c > t
<testsuite tests="2"><T></T><U><error/></U></testsuite>               => passed c > t, failed c > u
<testsuite tests="0"><T></T><T><error/></T></testsuite>               => failed c > t

<T></T><T><failure/></T>                                              => failed c > t
<T><failure/></T><T></T>                                              => failed c > t
<T></T><T><skipped/></T>                                              => skipped c > t
<T><skipped/></T><T><failure/></T>                                    => failed c > t
<T></T><T></T>                                                        => passed c > t

<testcase name="t"/>                                                  => passed s > t
<testcase classname="test" name="t"/>                                 => passed s > t
<testsuite name="d"><testcase classname="test" name="t"/></testsuite> => passed s > d > t
<testsuite name="pytest"><testcase classname="" name="t"/></testsuite> => passed s > t
<testcase classname="c" name="c adds"/>                               => passed c adds
<testcase classname="add" name="sub"/>                                => passed add > sub
<testcase classname="add" name="adds"/>                               => passed add > adds
<testcase classname="c" name=""/>                                     => passed c
<testsuites><testcase time="1"/></testsuites>                         => passed (no name)
<testcase file="a.js" classname="c" name="t"/>                        => passed a.js > c > t
<testcase file="ROOT/a.js" classname="c" name="t"/>                   => passed a.js > c > t
<testcase file="file://ROOT/a.js" classname="c" name="t"/>            => passed a.js > c > t
<testcase file="ROOT-2/a.js" classname="c" name="t"/>                 => passed c > t
<testcase file="/elsewhere/a.js" classname="c" name="t"/>             => passed c > t
<testsuite file="a.js"><testsuite><T></T></testsuite></testsuite>     => passed a.js > c > t
<testcase classname="c" name="reads ROOT/x, not ROOT2"/>              => passed c > reads x, not ROOT2
<testcase classname="c" name="a&#10;&#9;b  c &#x202e;d&#x85;"/>       => passed c > a b c d

<testcase classname="" name="m"><error/></testcase>                   => failed s > m, not loaded s > m
<testcase classname="" name="m"/>                                     => passed s > m
<testcase classname="" name="m"><skipped/></testcase>                 => skipped s > m
<testcase classname="" name="m" file="a"><error/></testcase>          => failed a > s > m
<testcase name="m"><error/></testcase>                                => failed s > m
<testcase classname="c" name="a/b.test.js"><error/></testcase>        => failed c > a/b.test.js, not loaded c > a/b.test.js
<testcase classname="c" name="in b.js"><error/></testcase>            => failed c > in b.js

<?xml version='1.0'?><testsuite name='s'><T></T></testsuite>          => passed c > t
<j:testsuites xmlns:j="urn:j"><T></T></j:testsuites>                  => passed c > t
<testsuites xmlns="urn:j"><T><failure/></T></testsuites>              => failed c > t
<?pi x?><!-- x --><testsuites><T></T></testsuites>                    => passed c > t
<T><system-out>ESC[31mred</system-out></T>                            => passed c > t
<testsuites/>                                                         => its results name no test
<TestRun/>                                                            => its results name no test
{DTD}<testsuites>&a;</testsuites>                                     => its results are no JUnit XML: DTDForbidden(name='r', system_id=None, public_id=None)
"""
ROWS = [row.partition("=>")[::2] for row in TABLE.splitlines() if row]
ROOTS = ("<testsuites", "<j:", "<?", "<!", "<TestRun")
CASE = '<testsuites><testcase classname="c" name="t"/></testsuites>'


def write(path: Path, body: str) -> Path:
    """Make it the results of a run at the folder around them."""
    body = body.strip()
    if not body.startswith(ROOTS):
        body = f'<testsuites><testsuite name="s">{body}</testsuite></testsuites>'
    for short, name in (("T", "t"), ("U", "u")):
        body = body.replace(f"<{short}>", f'<testcase classname="c" name="{name}">')
        body = body.replace(f"</{short}>", "</testcase>")
    path.write_text(body.replace("ROOT", str(path.parent)).replace("ESC", "\x1b"))
    return path


def read_row(read: Read, folder: Path, body: str) -> str:
    """What is read where this stands in a file, with ROOT for the folder."""
    found = told(read(write(folder / "r.xml", body), folder))
    return found.replace(str(folder), "ROOT")


def test_the_table(tmp_path: Path) -> None:
    for body, wanted in ROWS:
        assert read_row(junit.read, tmp_path, body) == wanted.strip(), body


# Rules that somebody could write: what stands in the code, and what in its place.
MUTANTS = r"""
max(state, self._states.get(name, _PASSED)) => state
max(state, self._states.get(name, _PASSED)) => min(state, self._states.get(name, _FAILED))
state = _SKIPPED => pass
max(_SKIPPED, self._states[name]) => self._states[name]
max(_SKIPPED, self._states[name]) => _SKIPPED
<= suite.others => < suite.others
"failure", "error"} => "failure"}
{case.get("status"), *map(_kind, case)} => {*map(_kind, case)}
"error"} => "error", "flakyFailure"}
forbid_dtd=True => forbid_dtd=False, forbid_entities=False
"test",  => 
 or suite.name => 
_joined(self._file(case), owner => _joined(owner
.replace(f"{top}/", "") => 
rpartition("}") => rpartition("|")
piece.translate(None, _CONTROL) => piece
 and not case.get("file") => 
case.get("classname") == "" => not case.get("classname")
_FILE.fullmatch(title) => _FILE.search(title)
if state == _SKIPPED or => if 
"""


def test_what_failures_say_is_cut_and_has_no_secret(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHOP_API_TOKEN", secret := "sk-0123456789abcdef")
    text._secrets.cache_clear()
    said = f"begins \u202eat {tmp_path}/a.py with {secret}{'&#10;words' * 900}"
    case = f'<failure message="it broke {secret}">{said}</failure></testcase>'
    cases = [f'<testcase name="t{n} {secret}">{case}' for n in range(501)]
    found = junit.read(write(tmp_path / "r.xml", "".join(cases)), tmp_path)
    text._secrets.cache_clear()
    first, *_, last = found.failed.values()
    lines = ["it broke [SHOP_API_TOKEN]", "begins at a.py with [SHOP_API_TOKEN]"]
    assert first.startswith("\n".join([*lines, "words\n"]))
    assert (len(first), last, len(found.failed)) == (2000, "", 501)
    assert secret not in repr(found)


# ---------------------------------------------------------------- files and folders


def test_in_a_folder_every_report_counts(tmp_path: Path) -> None:
    results = tmp_path / "results"
    (results / "module").mkdir(parents=True)
    (results / "a.xml").write_text(CASE.replace('"t"', '"a"'))
    (results / "module" / "b.xml").write_text(CASE.replace('"t"', '"b"'))
    (results / "a.txt").write_text("no XML")
    (results / "failsafe-summary.xml").write_text("<failsafe-summary/>")
    assert told(junit.read(results, tmp_path)) == "passed c > a, passed c > b"
    (results / "d.xml").write_text("<testsuites><tests")
    assert junit.read(results, tmp_path).unread.startswith(NO_XML)


def link(path: Path) -> None:
    path.with_name("real.xml").write_text(CASE)
    path.symlink_to("real.xml")


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


NO_XML = "its results are no JUnit XML: "
NO_FILE = "its results are no regular file that can be read"
BAD = NO_XML + "not well-formed (invalid token): line 1, column "
BOMB = "<!DOCTYPE r [<!ENTITY a0 'lol'>{}]><testsuites>&a9;</testsuites>".format(
    "".join(f"<!ENTITY a{n + 1} '{f'&a{n};' * 10}'>" for n in range(9))
)
PLACES: dict[str, tuple[bytes | Callable[[Path], object], str]] = {
    "nothing": (lambda path: None, "it wrote no results to RALPH_RESULTS; does the tool pass it on?"),
    "FIFO": (os.mkfifo, NO_FILE),
    "device": (lambda path: path.symlink_to("/dev/zero"), NO_FILE),
    "link": (link, NO_FILE),
    "link to a folder": (lambda path: path.symlink_to(path.parent), NO_FILE),
    "no permission": (unreadable, NO_FILE),
    "empty folder": (Path.mkdir, "its results name no test"),
    "deep folders": (deep_folders, "its results are "),
    "empty": (b"", NO_XML + "no element found: line 1, column 0"),
    "JSON": (b"{}", BAD + "0"),
    "half": (CASE[:30].encode(), NO_XML + "unclosed token: line 1, column 12"),
    "two": (CASE.encode() * 2, NO_XML + "junk after document element: line 1, column "),
    "NUL": (b"<testsuites>\0</testsuites>", BAD + "12"),
    "no UTF-8": (b"<testsuites><a x='\xff'/></testsuites>", BAD + "1"),
    "no encoding": (b"<?xml version='1.0' encoding='x-none'?><testsuites/>", NO_XML + "unknown encoding"),
    "odd encoding": (b"<?xml version='1.0' encoding='base64'?><testsuites/>", NO_XML + "'base64' is not"),
    "bomb": (BOMB.encode(), NO_XML + "DTDForbidden("),
    "entity": (b"<testsuites>&a;</testsuites>", NO_XML + "undefined entity: line 1, column 12"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_what_is_no_results_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "no permission" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    monkeypatch.chdir(tmp_path)
    make, why = PLACES[name]
    if isinstance(make, bytes):
        (tmp_path / "results").write_bytes(make)
    else:
        make(tmp_path / "results")
    found = junit.read(tmp_path / "results", tmp_path)
    files.clear(tmp_path / "results")  # pytest cannot remove so many folders
    assert found.unread.startswith(why)
    assert found == SingleTests(unread=found.unread)


# ---------------------------------------------------------------- size and time


FAILS = b"<testsuites><testcase name='t'><failure>"


@pytest.mark.parametrize(("begin", "piece", "times", "wanted"), [
    (FAILS, b"x" * 99 + b"\n", 600_000, "0 1 0"),
    (b"<testsuites>", b" " * 100, 700_000, "its results are over 64 MB"),
    (b"<testsuites>", b"<testsuite>", 50_000, "its results are no JUnit XML: "),
])  # fmt: skip
def test_what_is_large_is_read_up_to_64_mb(
    tmp_path: Path, begin: bytes, piece: bytes, times: int, wanted: str
) -> None:
    end = b"</failure></testcase></testsuites>" if begin == FAILS else b"</testsuites>"
    (tmp_path / "r.xml").write_bytes(begin + piece * times + end)
    began = time.process_time()
    found = junit.read(tmp_path / "r.xml", tmp_path)
    assert (found.unread or counts(found)).startswith(wanted)
    assert time.process_time() - began < 20


def test_what_takes_too_long_to_read_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(junit, "_SECONDS", -1.0)
    found = junit.read(write(tmp_path / "r.xml", CASE), tmp_path)
    assert found.unread == "its results take over -1 seconds to read"


# ---------------------------------------------------------------- hostile bytes

VALID = [path.read_bytes() for path in sorted(RECORDINGS.glob("*.xml"))]
PIECES = st.binary(max_size=99) | st.sampled_from(
    [b"<testcase>", b"</testcase>", b"<failure message='", b"<skipped/>", b"<![CDATA[", b"]]>", b"<!--", b"&#0;",
     b"&a;", b"<!DOCTYPE a>", b"<testsuite xmlns='", b"'", b'"', b"<", b">", b"\0", b"\xff\xfe", b"}"]
)  # fmt: skip


EDITS = st.tuples(st.integers(0, 1 << 14), st.integers(0, 200), PIECES)


@hostile
@given(st.sampled_from([*VALID, b""]), st.lists(EDITS))
def test_it_never_raises(
    tmp_path: Path, data: bytes, edits: list[tuple[int, int, bytes]]
) -> None:
    for at, length, piece in edits:
        at %= len(data) + 1
        data = data[:at] + piece + data[at + length :]
    (path := tmp_path / "r.xml").write_bytes(data)
    found = junit.read(path, tmp_path)
    assert bool(found.unread) is not bool(found.names)
    assert found.names == [text.one_line(name, len(name)) for name in found.names]
