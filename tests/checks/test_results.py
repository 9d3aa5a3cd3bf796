"""What is remembered of checks: by the files that they ran on, in one file beside the
room, as long as nothing else can have changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from _ralph.checks.results import MOST_TREES, Known, Own, Results
from _ralph.model import Check, CheckResult
from tests.checks import scripted
from tests.conftest import cases

A, B = Check("a", "make a"), Check("b", "make b")


def tree_of(commit: str) -> str:
    """Commits of the same files differ by what follows a dot."""
    return commit.partition(".")[0]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results.read(tmp_path / "results.json", "valid", tree_of)


def said(check: Check, ok: bool = True) -> CheckResult:
    return CheckResult(check.name, check.command, ok, 0 if ok else 1, 1.5)


def test_what_ran_on_a_tree_is_known_on_every_commit_of_it(results: Results) -> None:
    results.add("tip", [said(A), said(B, False)])
    assert results.missing("tip.2", [B, A]) == []
    found = results.recalled("tip.2", [B, A])
    outcomes = [f"{one.name} {one.outcome}" for one in found]
    assert outcomes == ["b failed with exit 1 (as before)", "a passed (as before)"]
    assert results.missing("other", [A]) == [A] and not results.recalled("other", [A])
    assert results.missing("tip", [A, Check("a", "make c")]) == [Check("a", "make c")]


def saved(results: Results) -> Results:
    """With something of everything, on the disk."""
    results.add("tip", [scripted.run("a+ b- x! co"), said(A)])
    results.add("tip", [said(A, False)])
    results.known.own["T1\ntitle"] = Own("tip", {A.command: False})
    results.known.built = "tip"
    results.save()
    return results


def test_another_process_reads_what_was_saved(results: Results) -> None:
    assert Results.read(saved(results).path, "valid", tree_of) == results


def test_what_own_checks_said_before_the_work_outlives_all_others(
    results: Results,
) -> None:
    results.add("first", [said(A, False), said(B)])
    results.known.own["T1"] = Own("first", {A.command: False}, "first")
    for number in range(2 * MOST_TREES):
        results.add(f"tree{number}", [said(A)])
    results.save()
    assert [run.ok for run in results.runs("first", A.command)] == [False]
    assert results.missing("first", [B]) == [B]
    assert results.missing("tree0", [A]) == [A]


def test_nothing_is_known_where_it_is_for_something_else(results: Results) -> None:
    path = saved(results).path
    assert Results.read(path, "other", tree_of).known == Known("other")


@cases(r"""
content
-
{
[]
\xff
DEEP
{"valid": "valid", "said": [{}]}
{"valid": 1}
""")
def test_a_damaged_file_is_as_none(results: Results, content: str) -> None:
    data = content.replace("DEEP", "[" * 100_000).encode()
    results.path.write_bytes(data.replace(rb"\xff", b"\xff"))
    assert Results.read(results.path, "valid", tree_of) == results
