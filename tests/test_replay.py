"""benchmarks/replay.py tells right verdicts from wrong ones, in a small repository
whose history is known."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, Repo

# A suite that needs no packages: each function of tests.py whose name begins with
# test_, as JUnit XML.
SUITE = """
import os, sys, traceback
sys.path[:0] = ["."]
cases, failed = "", 0
try:
    import tests
    found = {name: test for name, test in vars(tests).items() if name.startswith("test_")}
except Exception:
    found = {"tests": lambda: 1 / 0}
for name, test in found.items():
    try: test(); what = ""
    except Exception: what, failed = "<failure/>", 1
    cases += f'<testcase classname="tests" name="{name}">{what}</testcase>'
if results := os.environ.get("RALPH_RESULTS"): open(results, "w").write(f"<testsuite>{cases}</testsuite>")
sys.exit(failed)
"""
RUN = f"{sys.executable} -S suite.py $RALPH_RESULTS"
ACCEPTS_ALL = """
from dataclasses import replace
from _ralph.loop import examine
def results_of(places, results, job, real=examine.results_of):
    found = real(places, results, job)
    return replace(found, checks=[replace(one, ok=True) for one in found.checks])
examine.results_of = results_of
import ralph
ralph.main()
"""


ADD = "def add(a, b):\n    return a + b\n"
TAX = "\n\ndef tax(price):\n    if price > 100:\n        return price * RATE\n    return price\n"
CUT = "\n\ndef cut(price):\n    if price == 7:\n        return 0\n    return price\n"
TESTS = {
    "add": "import shop\ndef test_add(): assert shop.add(2, 1) == 3\n",
    "tax": "def test_tax(): assert (shop.tax(101), shop.tax(5)) == (202, 5)\n",
    "cut": "def test_cut(): assert (shop.cut(7), shop.cut(8)) == (0, 8)\n",
    "red": "def test_red(): assert 0\n",
}


def commit(repo: Repo, what: str, shop: str) -> None:
    repo.write("shop.py", shop)
    with (repo.path / "tests.py").open("a") as tests:
        tests.write(TESTS[what])
    repo.commit(what)


@pytest.fixture
def history(repo: Repo) -> Repo:
    """Three commits with tests; before the first one there is no suite."""
    repo.write("suite.py", SUITE)
    repo.write("uv.lock", "version = 1\n")
    commit(repo, "add", ADD)
    commit(repo, "tax", f"RATE = 2\n\n\n{ADD}{TAX}")  # two changes
    commit(repo, "cut", f"RATE = 2\n\n\n{ADD}{TAX}{CUT}")
    return repo


def replay(
    repo: Repo, *words: str, first: str = ""
) -> subprocess.CompletedProcess[str]:
    """The program, as a person calls it."""
    script = f"import sys; sys.argv[0] = 'replay.py'\nfrom benchmarks import replay\n{first}\nreplay.main()"
    return subprocess.run(
        [sys.executable, "-c", script, str(repo.path), *words], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120,
    )  # fmt: skip


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """What was accepted of each kind, by the first words of its row."""
    lines = [
        line.strip("| ").split(" | ")
        for line in done.stdout.splitlines()
        if line.startswith("| ")
    ]
    return {cells[0]: cells[1] for cells in lines[1:]}


@pytest.mark.crash
def test_right_work_is_accepted_and_wrong_work_is_not(history: Repo) -> None:
    done = replay(history, "--suite", RUN, "--commits", "2", "--chain", "2")
    found = list(rows(done).values())
    assert done.returncode == 0, done.stdout + done.stderr
    assert found[:3] == ["4/4", "2/2", "2/2"], done.stdout
    assert found[3:] == ["0/2", "0/2", "0/1", "0/2", "0/2", "-", "0/2", "0/2"], (
        done.stdout
    )
    for jobs in (1, 4):
        ended = f"chain, {jobs} jobs: 2 of 2 landed, exit 0, the tree of the history"
        assert ended in done.stdout, done.stdout
    assert not history.git("status", "--porcelain") and "ralph" not in history.git(
        "branch", "--all"
    )


@pytest.mark.crash
def test_a_ralph_that_accepts_everything_is_seen(history: Repo) -> None:
    wrapper = history.write("../accepts.py", ACCEPTS_ALL).resolve()
    plain = RUN.removesuffix(" $RALPH_RESULTS")
    done = replay(
        history,
        "--suite",
        plain,
        "--commits",
        "1",
        first=f"replay.RALPH[1:] = [{str(wrapper)!r}]",
    )
    assert done.returncode == 1 and "operator: accepted" in done.stdout, (
        done.stdout + done.stderr
    )


def dirty(repo: Repo) -> None:
    repo.write("shop.py", "edited\n")


def shallow(repo: Repo) -> None:
    repo.git("clone", "-q", "--depth", "1", f"file://{repo.path}", "../shallow")
    repo.path = repo.path.parent / "shallow"


def red(repo: Repo) -> None:
    commit(repo, "red", ADD)


def without_tests(repo: Repo) -> None:
    repo.git("checkout", "-q", "--orphan", "new")
    repo.git("commit", "-qm", "all at once")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (dirty, "the repository has uncommitted changes: commit them first"),
        (shallow, "the repository is shallow: run `git fetch --unshallow`"),
        (red, f"the suite does not pass here: {RUN}: "),
        (
            without_tests,
            "no commit there has tests that fail on the source before it (1 commits)",
        ),
        (
            lambda repo: (repo.path / ".git").rename(repo.path / "git"),
            "not a git repository",
        ),
    ],
)
def test_what_cannot_be_played_is_told_in_a_sentence(
    history: Repo, spoil: Callable[[Repo], object], says: str
) -> None:
    spoil(history)
    before = sorted(path for path in Path(history.path).rglob("*"))
    done = replay(history, "--suite", RUN)
    assert (
        done.returncode == 2
        and done.stderr.startswith("replay.py: ")
        and says in done.stderr
    ), done.stderr
    assert (
        sorted(path for path in Path(history.path).rglob("*")) == before
        and not done.stdout
    )
