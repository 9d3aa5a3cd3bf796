"""benchmarks/replay.py tells right verdicts from wrong ones, in a small repository
whose history is known."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT, Repo, cases

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


def replay(repo: Repo, *words: str, first: str = "") -> tuple[int, str]:
    """The program, as a person calls it: the exit status, and what it printed."""
    script = f"import sys; sys.argv[0] = 'replay.py'\nfrom benchmarks import replay\n{first}\nreplay.main()"
    done = subprocess.run(
        [sys.executable, "-c", script, str(repo.path), *words], cwd=ROOT, text=True, timeout=120,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.returncode, done.stdout


def accepted(printed: str) -> list[str]:
    """What was accepted of each kind, a row each."""
    rows = [line for line in printed.splitlines() if line.startswith("| ")]
    return [row.split(" | ")[1] for row in rows[1:]]


@pytest.mark.crash
def test_right_work_is_accepted_and_wrong_work_is_not(history: Repo) -> None:
    code, printed = replay(history, "--suite", RUN, "--commits", "2", "--chain", "2")
    assert code == 0, printed
    right = ["4/4", "2/2", "2/2"]
    wrong = ["0/2", "0/2", "0/1", "0/2", "0/2", "-", "0/2", "0/2"]
    assert accepted(printed) == right + wrong, printed
    for jobs in (1, 4):
        ended = f"chain, {jobs} jobs: 2 of 2 landed, exit 0, the tree of the history"
        assert ended in printed
    assert history.git("status", "--porcelain") == ""
    assert "ralph" not in history.git("branch", "--all")


@pytest.mark.crash
def test_a_ralph_that_accepts_everything_is_seen(history: Repo) -> None:
    wrapper = history.write("../accepts.py", ACCEPTS_ALL).resolve()
    plain = RUN.removesuffix(" $RALPH_RESULTS")
    first = f"replay.RALPH[1:] = [{str(wrapper)!r}]"
    code, printed = replay(history, "--suite", plain, "--commits", "1", first=first)
    assert code == 1, printed
    assert "operator: accepted" in printed


@cases("""
    spoil                                                                     says
    echo edited > shop.py                                                     the repository has uncommitted changes: commit them first
    git rev-parse HEAD > .git/shallow                                         the repository is shallow: run `git fetch --unshallow`
    echo 'def test_red(): assert 0' >> tests.py; git commit -qam red          the suite does not pass here: 
    git checkout -q --orphan new; git commit -qm 'all at once'                no commit there has tests that fail on the source before it (1 commits)
    mv .git git                                                               not a git repository
""")
def test_what_cannot_be_played_is_told_in_a_sentence(
    history: Repo, spoil: str, says: str
) -> None:
    history.sh(spoil)
    before = sorted(history.path.rglob("*"))
    code, printed = replay(history, "--suite", RUN)
    assert code == 2
    assert printed.startswith("replay.py: ")
    assert says in printed
    assert sorted(history.path.rglob("*")) == before
