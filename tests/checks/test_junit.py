"""Results of single tests: what is read from the files of real runners, and from files
that are none."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _ralph import files, text
from _ralph.checks import junit
from _ralph.model import SingleTests
from tests.conftest import ROOT, cases
from tests.test_hostile import hostile

RECORDINGS = ROOT / "tests" / "recordings" / "junit"
PROJECT = Path("/srv/project")  # where they were made


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
GOLDEN = """
name                  numbers  names
gotestsum-half        8 4 1    passed example.org/calc/calc > TestTable/same#01, skipped example.org/calc/calc > TestSkipped
gotestsum-main        its results name no test
gotestsum-next        2 1 0    passed example.org/calc/other > TestAdd
gotestsum-next-go127  2 2 0    failed example.org/calc/calc > TestMain, not loaded example.org/calc/calc > TestMain
gotestsum-reruns      1 2 0    failed example.org/calc > TestFlaky
jest-half             4 6 1    passed calc nested deeper adds, failed with a broken hook is not reached
jest-next             4 6 1    passed calc is known to fail, skipped calc is skipped
jest-next-errors      4 7 1    passed test/calc.test.js > calc each 1 2, failed test/next.test.js > Test suite failed to run > test/next.test.js, not loaded test/next.test.js > Test suite failed to run > test/next.test.js
mocha-half            2 6 2    passed test/calc.test.js > calc nested deeper > adds, failed test/calc.test.js > slow
mocha-retries         2 1 0    passed test/flaky.test.js > is flaky
nextest-half          4 3 0    passed calc::whole > adds, failed calc > tests::subtracts
nextest-retries       2 1 0    passed calc::flaky > flaky, failed calc::flaky > red
node-half             3 7 3    passed calc > nested deeper > adds, failed calc > adds, skipped calc > is to do and fails
node-next             3 8 3    failed test/next.test.js, not loaded test/next.test.js
node-odd              5 1 0    passed test/exit.test.js, failed same > name
node24-next           3 8 3    passed test/calc.test.js > calc.nested deeper > adds, failed test/next.test.js, not loaded test/next.test.js
pytest-continues      7 8 4    passed tests.test_calc.TestNested.TestDeeper > test_add, failed tests.test_next, not loaded tests.test_next
pytest-half           7 7 4    passed tests.test_calc > test_param[1-2], skipped tests.test_calc > test_xfail
pytest-reruns         2 1 0    passed tests.test_calc > test_flaky
pytest-setup-plan     0 1 18   failed tests.test_next, skipped tests.test_calc > test_add, not loaded tests.test_next
pytest-stops          0 1 0    failed tests.test_next, not loaded tests.test_next
surefire-half         3 4 2    passed org.example.TableTest > isNotThree[0: n 1], failed org.example.BeforeTest
surefire-reruns       2 2 0    passed org.example.FlakyTest > flaky, failed org.example.FlakyTest > red
vitest-half           3 6 2    passed test/calc.test.mjs > calc > nested > deeper > adds, skipped test/calc.test.mjs > calc > is to do
vitest-next           3 7 2    failed test/next.test.mjs, not loaded test/next.test.mjs
vitest-retries        2 1 0    passed test/flaky.test.mjs > is flaky
"""


def recording(name: str) -> Path:
    file = RECORDINGS / f"{name}.xml"
    return file if file.exists() else RECORDINGS / name


@cases(GOLDEN)
def test_the_files_of_real_runners(name: str, numbers: str, names: str) -> None:
    found = junit.read(recording(name), PROJECT)
    assert (found.unread or counts(found)) == numbers
    assert {*names.split(", ")} <= {*told(found).split(", "), ""}, told(found)
    assert len(found.uncollected) == names.count("not loaded")


def test_every_recording_has_its_row_and_no_name_says_where_it_was_made() -> None:
    names = {path.name.removesuffix(".xml") for path in RECORDINGS.iterdir()}
    names.remove("README.md")
    assert names == {row.split()[0] for row in GOLDEN.splitlines()[2:]}
    for name in names:
        assert str(PROJECT) not in repr(junit.read(recording(name), PROJECT))


# What a failure says: the first line of one of each runner.
@cases("""
name | test | line
gotestsum-half | example.org/calc/calc > TestSub     |     calc_test.go:17: Sub(3, 2) = 5, want <1>
jest-half      | calc throws                         | TypeError: boom <&> "quoted"
mocha-half     | test/calc.test.js > calc > throws   | TypeError: boom <&> "quoted"
nextest-half   | calc::whole > is_err                | Error: "no database"
node24-next    | test/calc.test.js > slow            | test timed out after 100ms
pytest-half    | tests.test_calc > test_sub          | AssertionError: sub is <wrong> & known
surefire-half  | org.example.CalcTest > errors       | java.lang.IllegalStateException: no database
vitest-next    | test/next.test.mjs                  | Cannot find module '../multiply.js' imported from test/next.test.mjs
""")
def test_what_a_failure_says(name: str, test: str, line: str) -> None:
    said = junit.read(recording(name), PROJECT).failed[test]
    assert line in map(str.strip, said.splitlines())


# ---------------------------------------------------------------- decisions

DTD = '<!DOCTYPE r [<!ENTITY a "lol">]>'
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
    body = body.replace("REFERENCES", "&#x1B;" * 9000).replace("ESC", "\x1b")
    path.write_text(body.replace("ROOT", str(path.parent)))
    return path


# What stands in a file (without a root: in a suite called "s"), and what is read from
# it. <T> is <testcase classname="c" name="t">, <U> the same with another name; ROOT the
# folder of the place.
@cases(f"""
body -> wanted
<T></T>                                                               -> passed c > t
<T><failure/></T>                                                     -> failed c > t
<T><error>trace</error></T>                                           -> failed c > t
<T><skipped/></T>                                                     -> skipped c > t
<T><disabled/></T>                                                    -> skipped c > t
<testcase name="t" status="notrun"/>                                  -> skipped s > t
<testcase name="t" status="run"/>                                     -> passed s > t
<T><skipped type='todo'/><failure/></T>                               -> skipped c > t
<T><flakyFailure/><flakyError/></T>                                   -> passed c > t
<T><failure/><rerunFailure><stackTrace>x</stackTrace></rerunFailure></T> -> failed c > t
<T><system-out>&lt;failure/></system-out><properties/></T>            -> passed c > t
<failure/><T></T>                                                     -> passed c > t
<T><testcase name="u"><error/></testcase></T>                         -> passed c > t, failed s > u
<testsuite tests="0"><T></T></testsuite>                              -> skipped c > t
<testsuite tests="0"><T><error/></T></testsuite>                      -> failed c > t
<testsuite tests="0"><T><skipped/></T></testsuite>                    -> skipped c > t
<testsuite tests="1"><T></T><U><error/></U></testsuite>               -> failed c > u, skipped c > t
<testsuite tests="2"><T></T><U><error/></U></testsuite>               -> passed c > t, failed c > u
<testsuite tests="0"><T></T><T><error/></T></testsuite>               -> failed c > t

<T></T><T><failure/></T>                                              -> failed c > t
<T><failure/></T><T></T>                                              -> failed c > t
<T></T><T><skipped/></T>                                              -> skipped c > t
<T><skipped/></T><T><failure/></T>                                    -> failed c > t
<T></T><T></T>                                                        -> passed c > t

<testcase name="t"/>                                                  -> passed s > t
<testcase classname="test" name="t"/>                                 -> passed s > t
<testsuite name="d"><testcase classname="test" name="t"/></testsuite> -> passed s > d > t
<testsuite name="pytest"><testcase classname="" name="t"/></testsuite> -> passed s > t
<testcase classname="c" name="c adds"/>                               -> passed c adds
<testcase classname="add" name="sub"/>                                -> passed add > sub
<testcase classname="add" name="adds"/>                               -> passed add > adds
<testcase classname="c" name=""/>                                     -> passed c
<testsuites><testcase time="1"/></testsuites>                         -> passed (no name)
<testcase file="a.js" classname="c" name="t"/>                        -> passed a.js > c > t
<testcase file="ROOT/a.js" classname="c" name="t"/>                   -> passed a.js > c > t
<testcase file="file://ROOT/a.js" classname="c" name="t"/>            -> passed a.js > c > t
<testcase file="ROOT-2/a.js" classname="c" name="t"/>                 -> passed c > t
<testcase file="/elsewhere/a.js" classname="c" name="t"/>             -> passed c > t
<testsuite file="a.js"><testsuite><T></T></testsuite></testsuite>     -> passed a.js > c > t
<testcase classname="c" name="reads ROOT/x, not ROOT2"/>              -> passed c > reads x, not ROOT2
<testcase classname="c" name="a&#10;&#9;b  c &#x202e;d&#x85;"/>       -> passed c > a b c d

<testcase classname="" name="m"><error/></testcase>                   -> failed s > m, not loaded s > m
<testcase classname="" name="m"/>                                     -> passed s > m
<testcase classname="" name="m"><skipped/></testcase>                 -> skipped s > m
<testcase classname="" name="m" file="a"><error/></testcase>          -> failed a > s > m
<testcase name="m"><error/></testcase>                                -> failed s > m
<testcase classname="c" name="a/b.test.js"><error/></testcase>        -> failed c > a/b.test.js, not loaded c > a/b.test.js
<testcase classname="c" name="in b.js"><error/></testcase>            -> failed c > in b.js

<?xml version='1.0'?><testsuite name='s'><T></T></testsuite>          -> passed c > t
<j:testsuites xmlns:j="urn:j"><T></T></j:testsuites>                  -> passed c > t
<testsuites xmlns="urn:j"><T><failure/></T></testsuites>              -> failed c > t
<?pi x?><!-- x --><testsuites><T></T></testsuites>                    -> passed c > t
<T><system-out>ESC[31mred</system-out></T>                            -> passed c > t
<T><failure>REFERENCES &#27;red &#x9;</failure></T>                   -> failed c > t
<testsuites/>                                                         -> its results name no test
<TestRun/>                                                            -> its results name no test
{DTD}<testsuites>&a;</testsuites>                                     -> its results are no JUnit XML: DTDForbidden(name='r', system_id=None, public_id=None)
""")
def test_what_is_read(tmp_path: Path, body: str, wanted: str) -> None:
    found = told(junit.read(write(tmp_path / "r.xml", body), tmp_path))
    assert found.replace(str(tmp_path), "ROOT") == wanted


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
    assert "no JUnit XML" in junit.read(results, tmp_path).unread


BOMB = "<!ENTITY a0 'lol'>"
for number in range(9):
    BOMB += f"<!ENTITY a{number + 1} '{f'&a{number};' * 10}'>"
BAD = "not well-formed (invalid token): line 1, column"


@cases(f"""
content -> why
- -> no element found: line 1, column 0
{{}} -> {BAD} 0
{CASE[:30]} -> unclosed token: line 1, column 12
{CASE}{CASE} -> junk after document element: line 1, column
<testsuites>\0</testsuites> -> {BAD} 12
<testsuites><a x='\xff'/></testsuites> -> {BAD} 1
<?xml version='1.0' encoding='x-none'?><testsuites/> -> unknown encoding
<?xml version='1.0' encoding='base64'?><testsuites/> -> 'base64' is not
<!DOCTYPE r [{BOMB}]><testsuites>&a9;</testsuites> -> DTDForbidden(
<testsuites>&a;</testsuites> -> undefined entity: line 1, column 12
""")
def test_a_file_that_is_no_junit_xml_is_said(
    tmp_path: Path, content: str, why: str
) -> None:
    (tmp_path / "results").write_bytes(content.encode("latin-1"))
    found = junit.read(tmp_path / "results", tmp_path)
    assert found.unread.startswith(f"its results are no JUnit XML: {why}")
    assert found == SingleTests(unread=found.unread)


# What stands in the place of the results, and what is said of it.
@cases("""
deed                                            said
true                                            it wrote no results to RALPH_RESULTS; does the tool pass it on?
mkfifo results                                  NO FILE
ln -s /dev/zero results                         NO FILE
echo '<testsuites/>' > real; ln -s real results  NO FILE
ln -s . results                                 NO FILE
echo '<testsuites/>' > results; chmod 0 results  NO FILE
mkdir results                                   its results name no test
mkdir results; cd results; for n in $(seq 1500); do mkdir d; cd d; done  its results are
""")
def test_what_is_no_results_is_said(tmp_path: Path, deed: str, said: str) -> None:
    if "chmod" in deed and os.geteuid() == 0:
        pytest.skip("root may read everything")
    subprocess.run(["sh", "-ec", deed], cwd=tmp_path, check=True)
    found = junit.read(tmp_path / "results", tmp_path)
    files.clear(tmp_path / "results")  # pytest cannot remove so many folders
    no_file = "its results are no regular file that can be read"
    assert found.unread.startswith(said.replace("NO FILE", no_file))
    assert found == SingleTests(unread=found.unread)


# ---------------------------------------------------------------- size and time


@cases("""
begin                                     piece        lines     end                                 wanted
<testsuites><testcase name='t'><failure>  x            600000    </failure></testcase></testsuites>  0 1 0
<testsuites>                              -            70000000  </testsuites>                       its results are over 64 MB
<testsuites>                              <testsuite name='a'><testsuite name='b'>  40  </testsuites>  its results have over 64 MB of names
<testsuites>                              <testsuite>  500       </testsuites>                       its results are no JUnit XML:
""")
def test_what_is_large_is_read_up_to_64_mb(
    tmp_path: Path, begin: str, piece: str, lines: str, end: str, wanted: str
) -> None:
    inside = (piece * 99 + "\n") * int(lines)
    (tmp_path / "r.xml").write_text(begin + inside + end)
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
PIECES = b"""<testcase>
</testcase>
<failure message='
<skipped/>
<![CDATA[
]]>
<!--
&#0;
&a;
<!DOCTYPE a>
<testsuite xmlns='
'
"
<
>
\0
\xff\xfe
}"""
BYTES = st.binary(max_size=99) | st.sampled_from(PIECES.splitlines())
EDITS = st.tuples(st.integers(0, 1 << 14), st.integers(0, 200), BYTES)


@hostile
@given(st.sampled_from([*VALID, b""]), st.lists(EDITS))
def test_it_never_raises(
    tmp_path: Path, data: bytes, edits: list[tuple[int, int, bytes]]
) -> None:
    for at, length, piece in edits:
        at %= len(data) + 1
        data = data[:at] + piece + data[at + length :]
    (tmp_path / "r.xml").write_bytes(data)
    found = junit.read(tmp_path / "r.xml", tmp_path)
    assert bool(found.unread) is not bool(found.names)
    assert found.names == [text.one_line(name, len(name)) for name in found.names]
