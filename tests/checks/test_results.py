"""What is remembered of checks: by the files that they ran on, in one file beside the
room, as long as nothing else can have changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from _ralph.checks.results import MOST_SUITES, MOST_TREES, Own, Results
from _ralph.model import Check, CheckResult
from tests.checks import scripted

A, B = Check("a", "make a"), Check("b", "make b")


def tree_of(commit: str) -> str:
    """Commits of the same files differ by what follows a dot."""
    return commit.partition(".")[0]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results.read(tmp_path / "results.json", "run", "valid", tree_of)


def said(check: Check, ok: bool = True, missing: str = "") -> CheckResult:
    return CheckResult(check.name, check.command, ok, 0 if ok else 1, 1.5, missing=missing)  # fmt: skip


def test_what_ran_on_a_tree_is_known_on_every_commit_of_it(results: Results) -> None:
    results.add("tip", [said(A), said(B, False)])
    assert results.missing("tip.2", [B, A]) == []
    found = results.recalled("tip.2", [B, A])
    assert [(one.name, one.ok, one.seconds) for one in found] == [("b", False, 0.0), ("a", True, 0.0)]  # fmt: skip
    assert found[0].outcome.endswith("(as before)")
    assert results.missing("other", [A]) == [A] and not results.recalled("other", [A])
    assert results.missing("tip", [A, Check("a", "make c")]) == [Check("a", "make c")]


def test_every_run_is_known_and_the_newest_counts(results: Results) -> None:
    for ok in (True, False):
        results.add("tip", [said(A, ok)])
    assert [one.ok for one in results.runs("tip", A.command)] == [True, False]
    newest = results.newest("tip", A.command)
    assert newest and not newest.ok and results.newest("tip", B.command) is None


def test_another_process_reads_what_was_saved(results: Results) -> None:
    results.add("tip", [scripted.run("a+ b- x! co")])
    results.add("tip", [said(A, False)])
    results.own["T1\ntitle"] = Own("tip", {A.command: False})
    results.built = "tip"
    results.save()
    read = Results.read(results.path, "run", "valid", tree_of)
    assert read == results
    assert read.runs("tip.2", "suite") == results.runs("tip", "suite")
    read.save()
    assert Results.read(results.path, "run", "valid", tree_of) == results


def test_nothing_is_known_where_something_else_changed_but_what_own_checks_said_before_the_work(
    results: Results,
) -> None:
    results.add("tip", [said(A)])
    results.own["T1\ntitle"] = Own("tip", {A.command: False})
    results.built = "tip"
    results.save()
    other = Results.read(results.path, "run", "other", tree_of)
    assert other.missing("tip", [A]) == [A] and other.built == ""
    assert other.own == results.own
    assert not Results.read(results.path, "next", "valid", tree_of).own
    other.save()
    assert Results.read(results.path, "run", "valid", tree_of).missing("tip", [A]) == [
        A
    ]


DAMAGE = [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"run": "run", "valid": "valid", "said": [{}]}', b'{"run": "run", "valid": 1}']  # fmt: skip


@pytest.mark.parametrize("content", DAMAGE)
def test_a_damaged_file_is_as_none(results: Results, content: bytes) -> None:
    results.path.write_bytes(content)
    assert Results.read(results.path, "run", "valid", tree_of) == results
    results.save()
    assert json.loads(results.path.read_bytes())["valid"] == "valid"


def test_the_suites_that_were_used_last_stay(results: Results) -> None:
    results.add("tip", [said(A)])
    for number in range(MOST_SUITES + 2):
        results.add(f"t{number}", [scripted.run("a+ b-")])
        results.add(f"t{number}", [scripted.run("none", "silent")])
    results.runs("t0", "suite")
    results.add("last", [scripted.run("a+ b! x!")])
    results.save()
    left = [n for n in range(MOST_SUITES + 2) if results.newest(f"t{n}", "suite")]
    assert left == [0, *range(4, MOST_SUITES + 2)]
    assert results.newest("tip", A.command) and results.newest("t1", "silent")


def test_of_a_suite_that_did_not_run_whole_stays_that_it_did_not(
    results: Results,
) -> None:
    for number in range(MOST_SUITES + 1):
        results.add(f"t{number}", [scripted.run("a+ x!")])
    results.save()
    forgotten = results.newest("t0", "suite")
    assert forgotten and not forgotten.tests and not forgotten.ok
    for number in range(MOST_TREES):
        results.add(f"u{number}", [said(A)])
    results.save()
    assert not results.newest("t0", "suite") and len(results.said) == MOST_TREES
