"""Results of single tests: what is read from JUnit XML, and what from files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from _ralph import model
from _ralph.loop import junit


def said(cases: str, tmp_path: Path) -> model.SingleTests:
    """What is read from a suite with these test cases."""
    path = tmp_path / "results.xml"
    path.write_text(f'<testsuites><testsuite name="s">{cases}</testsuite></testsuites>')
    return junit.read(path, tmp_path)


TEST = '<testcase classname="c" name="t">{}</testcase>'


# What stands in a test case, and what became of the test.
@pytest.mark.parametrize(
    ("inside", "state"),
    [
        ("", "passed"),
        ("<failure/>", "failed"),
        ('<error message="x">trace</error>', "failed"),
        ("<skipped/>", "skipped"),
        ("<disabled/>", "skipped"),
        ("<failure/><skipped type='todo'/>", "skipped"),
        ("<flakyFailure/><flakyError/>", "passed"),
        ("<failure/><rerunFailure><stackTrace>x</stackTrace></rerunFailure>", "failed"),
        ("<system-out>&lt;failure/&gt;</system-out>", "passed"),
    ],
)
def test_what_became_of_a_test(inside: str, state: str, tmp_path: Path) -> None:
    found = said(TEST.format(inside), tmp_path)
    assert [found.passed, [*found.failed], found.skipped] == [
        ["c > t"] if state == one else [] for one in ("passed", "failed", "skipped")
    ]
