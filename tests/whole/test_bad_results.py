"""Checks whose results of single tests cannot be had: each is red with one sentence
that helps, and nothing waits for what does not come."""

from __future__ import annotations

import sys

import pytest

from tests.conftest import Repo

PYTEST = f"{sys.executable} -m pytest -q --continue-on-collection-errors"
KILLED = "import os, pathlib, signal; pathlib.Path(os.environ['RALPH_RESULTS']).write_text('<testsuite><testcase'); os.kill(os.getpid(), signal.SIGKILL)"
BAD = {
    "no such runner": ("gotestsomething --junitfile=$RALPH_RESULTS", "gotestsomething: not found"),
    "no such module": (f"{sys.executable} -S -m pytest --junitxml=$RALPH_RESULTS", "No module named pytest"),
    "a wrapper that drops the variable": (
        f"env -u RALPH_RESULTS sh -c '{PYTEST} --junitxml=$RALPH_RESULTS'",
        "it wrote no results to RALPH_RESULTS; does the tool pass it on?",
    ),
    "a script that writes elsewhere": (f"{PYTEST} --junitxml=report.xml", "it wrote no results to RALPH_RESULTS"),
    "killed in the middle": (f"exec {sys.executable} -c \"{KILLED}\"", "its results are no JUnit XML"),
    "another format": ("echo 'TAP version 13' | tee $RALPH_RESULTS", "its results are no JUnit XML"),
    "a report of coverage": (
        "echo '<coverage/>' > $RALPH_RESULTS", "its results are no JUnit XML: they begin with <coverage>"
    ),
    "a folder without a report": ("mkdir $RALPH_RESULTS", "its results are a folder without an .xml file"),
    "no test": (f"{PYTEST} --junitxml=$RALPH_RESULTS no_tests", "no tests ran"),
    "a FIFO": ("mkfifo $RALPH_RESULTS", "its results are no regular file that can be read"),
}  # fmt: skip


@pytest.mark.parametrize("where", ["plan", "task"])
@pytest.mark.parametrize("name", BAD)
def test_results_that_cannot_be_had_are_red_with_a_sentence_that_helps(
    name: str, where: str, repo: Repo
) -> None:
    run, sentence = BAD[name]
    repo.write("test_a.py", "def test_a(): assert 1\n")
    repo.write("no_tests/a.txt", "")
    repo.commit("a test")
    check = {"name": "tests", "run": run, "results": "junit"}
    turns = {"name": "turns", "run": "test -e new.txt"}
    if where == "plan":
        repo.plan({"checks": [turns]}, checks=[check])
    else:
        repo.plan({"checks": [turns, check]})
    code, _, printed = repo.run(
        repo.agent('P("new.txt").touch()'), "--max-attempts", "1"
    )
    assert code == 4 and sentence in printed, printed
    assert repo.passed() == (["T1"] if where == "plan" else [])
    if where == "plan":  # a check that is red before the work blocks nobody
        assert repo.records("verdict")[0]["beside"] == ["tests"]
