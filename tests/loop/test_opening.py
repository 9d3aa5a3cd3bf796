"""Nothing is paid that cannot pass: nights that end before an agent is paid, and honest
nights that look like them. What a tool says is in `checks/test_faults.py`."""

from __future__ import annotations

import json
from xml.sax.saxutils import quoteattr

from _ralph import files
from tests.conftest import Repo, cases
from tests.scripts import COUNTS, own


def junit(cases: str) -> dict[str, str]:
    """A check that reports these tests: a name with + (passed), - (failed) or o
    (skipped), or what a test file says that cannot be loaded, after its name and a
    colon."""
    rows = []
    for case in cases.split(", "):
        name, _, message = case.partition(": ")
        said = f"<error message={quoteattr(message)}/>" if message else ""
        if name[-1] == "-":
            said = "<failure/>"
        if name[-1] == "o":
            said = "<skipped/>"
        owner = "" if message else "suite"
        name = name.rstrip("+-o")
        rows.append(f'<testcase classname="{owner}" name="{name}">{said}</testcase>')
    report = f"<testsuite>{''.join(rows)}</testsuite>"
    status = int("<error" in report or "<fail" in report)
    run = f"cat > $RALPH_RESULTS << 'END'\n{report}\nEND\nexit {status}"
    return {"name": "suite", "run": run, "results": "junit"}


def begin(repo: Repo, night: str) -> list[str]:
    """A repository as a night begins in it: `checks` of the plan (`junit ...` as above),
    its one `task`, a file that git `ignores`, the script of a pre-commit `hook`; and the
    run's options."""
    given = json.loads(night)
    checks = []
    for check in given.get("checks", ["true"]):
        reports = str(check).startswith("junit ")
        checks.append(junit(check.removeprefix("junit ")) if reports else check)
    ignored = given.get("ignores", "")
    repo.write(".gitignore", f"/{ignored or 'nothing'}\n")
    repo.commit("files")
    if ignored:
        repo.write(ignored, "x")
    if "hook" in given:
        repo.program(".git/hooks/pre-commit", given["hook"])
    task = {"checks": ["test -f T1.txt"], **given.get("task", {})}
    repo.plan(task, checks=checks)
    words: list[str] = given.get("options", [])
    return words


# Nights that cannot pass, and how they end.
VAIN = r"""
what -> night -> code -> said
red checks -> {"checks": ["echo boom; exit 3", "false"]} -> 4 -> no check is green before the work: echo boom; exit 3: failed with exit 3
a suite of which no test passes -> {"checks": ["junit a-, b-"]} -> 4 -> 2 failed: suite > a, suite > b
a suite that reports nothing, here and before -> {"checks": [{"run": "false", "results": "junit"}]} -> 4 -> no check is green before the work
tests that lack a module, beside a green check -> {"checks": ["true", "junit a+, tests/test_time.py: E   ModuleNotFoundError: No module named 'freezegun'"]} -> 4 -> No module named freezegun: tests/test_time.py does not run
a check that cannot start -> {"checks": ["no-such-tool --x"]} -> 4 -> no-such-tool is not found there
a file that only home has -> {"checks": ["cat dist/x.js && test -f T1.txt"], "ignores": "dist/x.js"} -> 4 -> dist/x.js is at home, git ignores it
a hook that refuses whatever is done -> {"hook": "echo no commits to ralph; exit 1"} -> 2 -> too: no commits to ralph
a prefix behind which nothing runs -> {"options": ["--wrap", "false"]} -> 2 -> the prefix 'false' starts nothing at all
a task's check that is blocked -> {"task": {"checks": ["echo 'direnv: error /x/.envrc is blocked. Run `direnv allow`'; exit 1"]}} -> 4 -> is blocked
"""


@cases(VAIN)
def test_nobody_is_paid_in_a_night_that_cannot_pass(
    repo: Repo, what: str, night: str, code: str, said: str
) -> None:
    words = begin(repo, night)
    ended, summary, printed = repo.run(repo.agent(COUNTS), *words)
    assert ended == int(code), printed
    assert not (repo.outside / "ran").exists(), printed
    assert said in " ".join(summary["reason"].split()), what


@cases(VAIN, of=4)
def test_doctor_says_before_what_ends_a_night(
    repo: Repo, what: str, night: str, code: str, said: str
) -> None:
    words = begin(repo, night)
    doctor = repo.ralph("doctor", "--agent", repo.agent(COUNTS), *words)
    assert said in doctor.stdout.replace(f"{repo.room}/", ""), doctor.stdout
    assert doctor.returncode == (0 if "task" in what else 2)


@cases(r"""
what -> night -> said
no test yet -> {"checks": ["echo 'no tests ran in 0.01s'; exit 5"]}
a check that the plan is to mend -> {"checks": [{"run": "test -f T1.txt", "startsRed": true}]}
a suite that is to be mended, as the option says -> {"checks": ["test -f T1.txt"], "options": ["--starts-red"]}
a red check beside others that guard -> {"checks": ["true", "echo no interpreter; exit 3"]} -> it binds as soon as it is green; mend it, or delete it (prd.json, line 5)
a suite with old failures, and tests first -> {"checks": ["junit a+, b-, test_x: ModuleNotFoundError: No module named 'counting'"], "task": {"title": "Write counting"}} -> passes are weak until it can be loaded
tests first that do not compile -> {"checks": ["junit a+, pkg: ./x_test.go:3:2: undefined: Count"]} -> does not run
a flaky check -> {"checks": ["test -e ../../seen || { touch ../../seen; exit 1; }"]}
a hook that formats, and fails for it -> {"hook": "grep -qx end a.txt || { echo end >> a.txt; exit 1; }"}
a program that a task is to make -> {"task": {"title": "Write ./tally", "checks": ["test -f T1.txt || { echo 'sh: 1: tally: not found'; exit 127; }"]}}
""")
def test_an_honest_night_is_not_refused(
    repo: Repo, what: str, night: str, said: str
) -> None:
    words = begin(repo, night)
    ended, _, printed = repo.run(repo.agent(COUNTS), *words)
    assert repo.read("../ran") == "T1 ", printed
    assert repo.passed() == ["T1"], printed
    assert said in printed, what
    assert ended in (0, 4)


def test_a_hook_is_tried_with_what_it_let_pass(repo: Repo) -> None:
    """One that wants every commit to be small, and none to be a merge."""
    repo.git("switch", "-qc", "side")
    repo.write("b.txt", "b\n")
    repo.commit("side")
    repo.git("switch", "-q", "main")
    repo.write("c.txt", "c\n")
    repo.commit("main")
    repo.git("merge", "-q", "side", "-m", "merge")
    few = "test $(git diff --cached --name-only | wc -l) = 1"
    repo.program(".git/hooks/pre-commit", f"{few} && test ! -e .git/MERGE_HEAD")
    repo.plan(own("T1"))
    assert repo.run(repo.agent(COUNTS))[0] == 0


def test_a_run_that_was_killed_goes_on_where_its_suite_is_red(repo: Repo) -> None:
    red = repo.outside / "red"
    repo.plan(own("T1"), checks=[f"test ! -e {red}"])
    hangs = repo.agent("(OUT / 'up').touch(); time.sleep(60)", "hangs")
    run = repo.start("run", "--agent", hangs)
    repo.wait_for("../up")
    repo.kill()
    run.wait()
    red.touch()
    code, _, printed = repo.run(repo.agent(COUNTS))
    assert (code, repo.passed()) == (4, ["T1"]), printed
    assert repo.records("run")[-1]["continues"]


def test_what_was_green_on_this_very_commit_is_tried_again_later(repo: Repo) -> None:
    check, setup = (f"test ! -e {repo.outside}/{name}" for name in ("check", "setup"))
    repo.plan(own("T1"), checks=[check], setup=setup)
    assert repo.run(repo.agent(COUNTS))[0] == 0
    plan = json.loads(repo.read("prd.json"))
    plan["userStories"].append({**own("T2"), "id": "T2", "title": "b"})
    repo.write("prd.json", json.dumps(plan))
    for name in ("check", "setup"):
        away = repo.write(f"../{name}", "")
        files.clear(repo.places)  # or setup would not run again
        code, summary, _ = repo.run(repo.agent(COUNTS))
        assert (code, repo.read("../ran")) == (75, "T1 "), summary
        assert "found it green on this very commit" in summary["reason"]
        away.unlink()
    assert repo.run(repo.agent(COUNTS))[0] == 0


def test_the_ways_on_name_the_line_that_counts_single_tests(repo: Repo) -> None:
    repo.write("test_a.py", "def test_a():\n    assert False\n")
    repo.commit("test")
    repo.plan(own("T1"), checks=["exit 3 # pytest -q"])
    printed = repo.run(repo.agent(COUNTS))[2]
    for said in (printed, repo.ralph("doctor", "--agent", "true").stdout):
        assert "to go on:" in said
        assert '"results": "junit"}' in said
        assert "in prd.json, line 4: {" in said
        assert 'startsRed": true in the check, or `ralph run --starts-red`' in said
