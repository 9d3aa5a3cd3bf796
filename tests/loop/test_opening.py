"""Nothing is paid that cannot pass: nights that end before an agent is paid, and honest
nights that look like them. What a tool says is in `checks/test_faults.py`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest

from _ralph import files
from tests.conftest import Repo, sample
from tests.scripts import COUNTS, own

GREEN = {"checks": ["test -f T1.txt"]}


def junit(*cases: str) -> dict[str, str]:
    """A check that reports these tests: a name with + (passed), - (failed) or o
    (skipped), or what a test file says that cannot be loaded, after its name and a
    colon."""
    rows = []
    for case in cases:
        name, _, message = case.partition(": ")
        said = f"<error message={quoteattr(message)}/>" if message else ""
        if name[-1] == "-":
            said = "<failure/>"
        if name[-1] == "o":
            said = "<skipped/>"
        owner = "" if message else "suite"
        name = name.rstrip("+-o")
        rows.append(f'<testcase classname="{owner}" name="{name}">{said}</testcase>')
    status = int(any("<error" in row or "<fail" in row for row in rows))
    report = f"<testsuite>{''.join(rows)}</testsuite>"
    run = f"cat > $RALPH_RESULTS << 'END'\n{report}\nEND\nexit {status}"
    return {"name": "suite", "run": run, "results": "junit"}


def says(*lines: str) -> str:
    """A red check that prints these lines."""
    return f"cat << 'END'; exit 1\n{chr(10).join(lines)}\nEND"


@dataclass
class Night:
    """What a run starts with: the plan's checks, its one task, a file that git ignores,
    the script of a pre-commit hook, and options. `said` is what the run says where it
    ends, or goes on."""

    checks: list[Any] = field(default_factory=list)
    said: str = ""
    task: dict[str, Any] = field(default_factory=lambda: GREEN)
    ignored: str = ""
    hook: str = ""
    words: list[str] = field(default_factory=list)

    def make(self, repo: Repo) -> None:
        repo.write(".gitignore", f"/{self.ignored or 'nothing'}\n")
        repo.commit("files")
        if self.ignored:
            repo.write(self.ignored, "x")
        if self.hook:
            repo.program(".git/hooks/pre-commit", self.hook)
        repo.plan(self.task, checks=self.checks)


NEEDS = "cat dist/x.js && test -f T1.txt"
FREEZE = "tests/test_time.py: E   ModuleNotFoundError: No module named 'freezegun'"
BLOCKED = "direnv: error /x/.envrc is blocked. Run `direnv allow`"
# Nights that cannot pass, and how they end.
VAIN: dict[str, tuple[int, Night]] = {
    "red checks": (4, Night(["echo boom; exit 3", "false"], "no check is green before the work: echo boom; exit 3: failed with exit 3")),
    "a suite of which no test passes": (4, Night([junit("a-", "b-")], "2 failed: suite > a, suite > b")),
    "a suite that reports nothing, here and before": (4, Night([{"run": "false", "results": "junit"}], "no check is green before the work")),
    "tests that lack a module, beside a green check": (4, Night(["true", junit("a+", FREEZE)], "No module named freezegun: tests/test_time.py does not run")),
    "a check that cannot start": (4, Night(["no-such-tool --x"], "no-such-tool is not found there")),
    "a file that only home has": (4, Night([NEEDS], "dist/x.js is at home, git ignores it", ignored="dist/x.js")),
    "a hook that refuses whatever is done": (2, Night(["true"], "too: no commits to ralph", hook="echo no commits to ralph; exit 1")),
    "a prefix behind which nothing runs": (2, Night(["true"], "the prefix 'false' starts nothing at all", words=["--wrap", "false"])),
    "a task's check that is blocked": (4, Night(["true"], "is blocked", task={"checks": [says(BLOCKED)]})),
}  # fmt: skip


@pytest.mark.parametrize("name", VAIN)
def test_nobody_is_paid_in_a_night_that_cannot_pass(repo: Repo, name: str) -> None:
    code, night = VAIN[name]
    night.make(repo)
    ended, summary, printed = repo.run(repo.agent(COUNTS), *night.words)
    assert ended == code, printed
    assert not (repo.outside / "ran").exists(), printed
    assert night.said in " ".join(summary["reason"].split()), summary["reason"]


@pytest.mark.parametrize("name", sample(VAIN, 4))
def test_doctor_says_before_what_ends_a_night(repo: Repo, name: str) -> None:
    night = VAIN[name][1]
    night.make(repo)
    doctor = repo.ralph("doctor", "--agent", repo.agent(COUNTS), *night.words)
    assert night.said in doctor.stdout.replace(f"{repo.room}/", ""), doctor.stdout
    assert doctor.returncode == (0 if "task" in name else 2)


COUNTING = "test_x: ModuleNotFoundError: No module named 'counting'"
TALLY = "test -f T1.txt || { echo 'sh: 1: tally: not found'; exit 127; }"
HONEST: dict[str, Night] = {
    "no test yet": Night(["echo 'no tests ran in 0.01s'; exit 5"]),
    "a check that the plan is to mend": Night([{"run": "test -f T1.txt", "startsRed": True}]),
    "a suite that is to be mended, as the option says": Night(["test -f T1.txt"], words=["--starts-red"]),
    "a red check beside others that guard": Night(["true", "echo no interpreter; exit 3"], "it binds as soon as it is green; mend it, or delete it (prd.json, line 5)"),
    "a suite with old failures, and tests first": Night([junit("a+", "b-", COUNTING)], "passes are weak until it can be loaded", {"title": "Write counting", **GREEN}),
    "tests first that do not compile": Night([junit("a+", "pkg: ./x_test.go:3:2: undefined: Count")], "does not run"),
    "a flaky check": Night(["test -e ../../seen || { touch ../../seen; exit 1; }"]),
    "a hook that formats, and fails for it": Night(["true"], hook="grep -qx end a.txt || { echo end >> a.txt; exit 1; }"),
    "a program that a task is to make": Night(["true"], "", {"title": "Write ./tally", "checks": [TALLY]}),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_night_is_not_refused(repo: Repo, name: str) -> None:
    night = HONEST[name]
    night.make(repo)
    ended, _, printed = repo.run(repo.agent(COUNTS), *night.words)
    assert repo.read("../ran") == "T1 ", printed
    assert repo.passed() == ["T1"], printed
    assert night.said in printed
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
