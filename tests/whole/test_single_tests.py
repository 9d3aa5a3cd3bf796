"""Only what broke is red: nights in repositories whose suite is partly red, with a
small test runner that reports single tests. The oracle of what passes is what the same
tests say in a fresh clone."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.conftest import Repo
from tests.oracle import fresh_clone_is_green
from tests.scripts import NEVER_STUCK

# Runs every function test_* of tests/*.py. A file that cannot be imported stops all
# (`whole`), as in Go and Rust, or is an error of its own, as in pytest.
RUNNER = """
import os, pathlib, runpy, sys
from xml.sax.saxutils import quoteattr
sys.path.insert(0, os.getcwd())
sys.dont_write_bytecode = True
cases, code = [], 0
for file in sorted(pathlib.Path("tests").glob("*.py")):
    if sys.argv[2:] and file.stem not in sys.argv[2:]:
        continue
    try:
        found = runpy.run_path(str(file))
    except Exception as error:
        if sys.argv[1] == "whole":
            sys.exit(f"{file} does not compile: {error!r}")
        cases.append(("", file.stem, f"<error message={quoteattr(repr(error))}/>"))
        continue
    for name, test in found.items():
        if name.startswith("test_"):
            try:
                said = "<skipped/>" if test() == "skip" else ""
            except Exception as error:
                said = f"<failure message={quoteattr(repr(error))}/>"
            cases.append((file.stem, name, said))
rows = [f"<testcase classname={quoteattr(c)} name={quoteattr(n)}>{said}</testcase>" for c, n, said in cases]
code = int(any("<failure" in said or "<error" in said for _, _, said in cases))
print(len(cases), "tests")
if "RALPH_RESULTS" in os.environ:
    open(os.environ["RALPH_RESULTS"], "w").write(f"<testsuite name='all'>{''.join(rows)}</testsuite>")
sys.exit(code)
"""
OLD = """
from shop import price
def test_price(): assert price(2) == 4
def test_zero(): assert price(0) == 0
def test_old(): assert False, "red for a year"
def test_older(): assert False
"""
SHOP = "def price(n): return 2 * n\n"
FIRST = """
from shop import rebate
def test_rebate(): assert rebate(10) == 9
"""
REBATE = "def rebate(n): return n - 1\n"
WORKS = f'P("shop.py").write_text({SHOP + REBATE!r})'
BREAKS = f'P("shop.py").write_text({"def price(n): return 3 * n" + chr(10) + REBATE!r})'


def suite(how: str = "files", *names: str) -> dict[str, str]:
    command = " ".join([sys.executable, "-S", "run_tests.py", how, *names])
    return {"name": "tests", "run": command, "results": "junit"}


def shop(
    repo: Repo, how: str = "files", first: bool = True, old: str = OLD, **task: Any
) -> None:
    """A shop with two old failures, whose next test is written first."""
    repo.write("run_tests.py", RUNNER)
    repo.write("shop.py", SHOP)
    repo.write("tests/price.py", old)
    repo.commit("a shop")
    if first:
        repo.write("tests/rebate.py", FIRST)
        repo.commit("the next test, first")
    own = {"checks": [suite(how, "rebate") | {"name": "own"}]} if first else {}
    repo.plan({**own, **task}, checks=[suite(how)])


def last(repo: Repo) -> dict[str, Any]:
    return repo.records("verdict")[-1]


@pytest.mark.parametrize("how", ["files", "whole"])
def test_old_failures_block_nobody(repo: Repo, how: str) -> None:
    """What an agent's own run of the tests reports is no work."""
    shop(repo, how)
    tries = f'sh({suite(how)["run"]!r}); P(os.environ["RALPH_RESULTS"]).touch()'
    printed = repo.judges("0: T1 passed", repo.agent(f"{WORKS}\n{tries}")).printed
    assert not last(repo).get("weak")
    assert "old failures apart (tests: 3 passed; 2 old failures)" in printed
    assert repo.git("diff", "--name-only", "main", "ralph/p").split() == ["shop.py"]
    assert fresh_clone_is_green(repo, "ralph/p", [suite(how, "rebate")["run"]])
    assert not fresh_clone_is_green(repo, "ralph/p", [suite(how)["run"]])


@pytest.mark.parametrize("how", ["files", "whole"])
def test_work_that_breaks_a_test_that_was_green_fails_with_its_name(
    repo: Repo, how: str
) -> None:
    """With the next test written first the suite is red before the work, or does not
    even run."""
    shop(repo, how, old=OLD.replace("== 4", '== 4, "two cost four"'))
    keeps = f'P("{repo.outside}/prompt").write_text(prompt)\n'
    code, _, printed = repo.run(repo.agent(keeps + BREAKS), "--max-attempts", "2")
    assert code == 4 and repo.verdicts() == ["T1 failed", "T1 failed"], printed
    record = last(repo)
    assert "1 newly red: price > test_price; 2 old failures" in record["reason"]
    assert "AssertionError" in record["failure"]["tail"]
    prompt = repo.read("../prompt")
    for words in ("red: price > test_price", "two cost four"):
        assert words in prompt


# What becomes of the suite beside honest work, and what is said of it.
STOPS = {
    'P("tests/price.py").rename("tests/cost.py")': "2 gone: price > test_price, price > test_zero",
    'P("tests/price.py").write_text("def test_price(): return \'skip\'\\ndef test_zero(): pass\\n")': "1 newly skipped: price > test_price",
    'P("run_tests.py").write_text("")': "failed: it wrote no results to RALPH_RESULTS; does",
    'P("tests/price.py").write_text("(")': "failed with exit 1",
}  # fmt: skip


def test_tests_that_do_not_run_any_more_are_red(repo: Repo) -> None:
    shop(repo, "whole", first=False)
    own = {"checks": ["grep -q new shop.py"]}
    repo.plan(*[own] * len(STOPS), checks=[suite("whole")], limits={"attempts": 1})
    honest = 'P("shop.py").write_text(P("shop.py").read_text() + "# new\\n")'
    stops = f"exec({[*STOPS]!r}[int(task[1:]) - 1])"
    repo.run(repo.agent(f"{honest}\n{stops}"), first=NEVER_STUCK)
    for record, reason in zip(repo.records("verdict"), STOPS.values(), strict=True):
        assert record["verdict"] == "failed" and reason in record["reason"]


def test_a_task_may_remove_the_tests_that_it_is_allowed_to(repo: Repo) -> None:
    shop(repo, first=False)
    without = OLD.replace("def test_zero(): assert price(0) == 0\n", "")
    removes = repo.agent(f'P("tests/price.py").write_text({without!r})')
    repo.plan({"checks": []}, checks=[suite()])
    repo.run(removes, "--max-attempts", "1")
    assert '"allow": ["tests/price.py"]' in last(repo)["reason"]
    repo.plan({"id": "T2", "allow": ["tests/price.py"]}, checks=[suite()])
    code, _, printed = repo.run(removes)
    assert (code, repo.verdicts()[-1]) == (0, "T2 passed"), printed
    assert "1 test gone, as `allow` lets it: price > test_zero" in last(repo)["notices"]


def test_tests_that_are_gone_since_they_last_ran_make_a_pass_weak_by_name(
    repo: Repo,
) -> None:
    """The suite does not compile before the work, and the work runs one test of it."""
    shop(repo, "whole")
    alone = RUNNER.replace('sorted(pathlib.Path("tests").glob("*.py"))', '[pathlib.Path("tests/rebate.py")]')  # fmt: skip
    assert alone != RUNNER
    cheats = f"{WORKS}\nP('run_tests.py').write_text({alone!r})"
    repo.judges("0: T1 passed", repo.agent(cheats))
    assert last(repo)["weak"]
    said = "2 tests green on an earlier commit, and not run: price > test_price, price > test_zero"
    assert said in last(repo)["notices"]
    assert said in " ".join(repo.ralph("status").stdout.split())
    assert "price &gt; test_zero" in repo.ralph("report", "-o", "-").stdout


def test_a_test_that_is_flaky_blocks_nobody_and_is_named(repo: Repo) -> None:
    flaky = f"""
import pathlib
def test_flaky():
    runs = pathlib.Path({str(repo.outside)!r}, "runs")
    runs.write_text(str(int(runs.read_text()) + 1) if runs.exists() else "1")
    assert runs.read_text() != "2"
"""
    shop(repo, first=False, old=OLD + flaky)
    repo.judges("0: T1 passed", repo.agent('P("notes.txt").write_text("hm")'))
    assert last(repo)["flaky"] == ["price > test_flaky"]


def test_names_with_times_in_them_block_nobody(repo: Repo) -> None:
    """In an old file, and in a new one, as nobody but the final check sees."""
    timed = 'import time\nglobals()[f"test_at_{time.time_ns()}"] = lambda: None\n'
    shop(repo, first=False, old=OLD + timed)
    agent = repo.agent(f'P("tests/times.py").write_text({timed!r})')
    repo.judges("0: T1 passed", agent)


def test_work_lands_beside_old_failures_and_not_where_a_green_test_breaks(
    repo: Repo,
) -> None:
    shop(repo)
    repo.run(repo.agent(WORKS))
    wants = "assert 'rebate' not in open('shop.py').read()"
    repo.write("tests/other.py", f"def test_other(): {wants}\n")
    repo.commit("a person's own")
    done = repo.ralph("land")
    assert done.returncode == 4
    assert "1 newly red: other > test_other" in done.stderr, done.stdout
    repo.write("tests/other.py", "def test_other(): pass\n")
    repo.commit("a person's own, again")
    done = repo.ralph("land")
    assert done.returncode == 0 and "red before, too: tests" in done.stdout, done.stdout


BAD = [
    ("gotestsomething --junitfile=$RALPH_RESULTS", "task", "gotestsomething"),
    ("env -u RALPH_RESULTS true", "plan", "it wrote no results to RALPH_RESULTS; does the tool pass it on?"),
]  # fmt: skip


@pytest.mark.parametrize(("run", "where", "said"), BAD)
def test_results_that_cannot_be_had_are_red_with_a_sentence_that_helps(
    repo: Repo, run: str, where: str, said: str
) -> None:
    check = {"name": "tests", "run": run, "results": "junit"}
    turns = {"name": "turns", "run": "test -e new.txt"}
    if where == "plan":  # red before the work: it blocks nobody
        repo.plan({"checks": [turns]}, checks=[check])
    else:
        repo.plan({"checks": [turns, check]})
    agent = repo.agent('P("new.txt").touch()')
    code, _, printed = repo.run(agent, "--max-attempts", "1", "--starts-red")
    assert code == 4 and said in printed
    assert repo.passed() == (["T1"] if where == "plan" else [])
