"""One attempt: where it starts, what its agent leaves, what is made of its handoff."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from _ralph.loop.attempt import (
    begin,
    prompt_for,
    salvage,
    work_here,
)
from _ralph.loop.changed import changed_tests
from _ralph.loop.jobs import Attempt, Checked, CheckJob
from _ralph.loop.run import Run

from _ralph.errors import NeedsPerson
from _ralph.model import AgentResult, Check, CheckResult, Outcome, Verdict
from _ralph.state.layout import new_log
from _ralph.state.records import AttemptEnded
from tests.conftest import Repo
from tests.git.test_branch import work_on
from tests.git.test_workspace import FILE, head, listing

Opened = Callable[..., Run]
TWO = ({"checks": ["test -f work.txt"]}, {"checks": ["true"]})


def left_behind(run: Run, commit: str, attempts: int = 0, lacks: str = "") -> None:
    """Let the first task have unfinished work, the tree of `commit`, after so many
    attempts."""
    known = run.history.of(run.plan.tasks[0])
    known.left, known.base, known.lacks = (
        run.git.tree(commit),
        run.branch.commit_at(f"{commit}^"),
        lacks,
    )
    known.attempts, known.command = attempts, "claude"


def test_an_attempt_begins_with_its_record_and_at_the_tip(
    repo: Repo, opened: Opened
) -> None:
    repo.plan(*TWO, agent="sh")
    run = opened()
    new_log(run.paths, "0001-T1.out").write_text("of an older run")
    one = begin(run, run.plan.tasks[0])
    assert (one.number, one.iteration, one.base, one.left) == (1, 1, head(repo), "")
    assert not (run.paths.logs / "0001-T1.out").exists()
    (start,) = repo.records("start")
    assert (start["task"], start["command"], start["base"], start["run"]) == (
        "T1",
        "sh",
        one.base,
        "id",
    )
    assert [*run.history.open_starts] == [1]


@pytest.mark.parametrize(
    ("attempts", "lacks", "left", "leftover", "clean"),
    [
        (0, "", True, "", False),
        (1, "", True, "", False),
        (2, "", False, "", True),  # the last one
        (1, "checks", True, "checks", False),
        (2, "judge", True, "judge", False),
    ],
)
def test_what_an_attempt_begins_with(
    repo: Repo,
    opened: Opened,
    attempts: int,
    lacks: str,
    left: bool,
    leftover: str,
    clean: bool,
) -> None:
    repo.plan(*TWO, agent="sh")
    run, work = opened(), work_on(repo, head(repo))
    left_behind(run, work, attempts, lacks)
    one = begin(run, run.plan.tasks[0])
    assert (bool(one.left), one.leftover, one.clean) == (left, leftover, clean)
    if clean:
        assert (
            "work.txt" in listing(repo, one.earlier)
            and "it started clean" in one.notices[0]
        )
    else:
        assert one.left == run.git.tree(work)


def test_unfinished_work_goes_on_from_the_new_tip_with_markers_where_that_conflicts(
    repo: Repo, opened: Opened
) -> None:
    repo.plan(*TWO, agent="sh")
    for name, marked in (("other.txt", []), ("work.txt", ["work.txt"])):
        run, base = opened(), head(repo)
        left_behind(run, work_on(repo, base))
        run.branch.land(
            work_on(repo, run.tip, name, content="theirs\n"), run.tip, "somebody"
        )
        one = begin(run, run.plan.tasks[0])
        assert not one.clean and {"work.txt", name} <= listing(repo, one.left).keys()
        assert one.conflict.marked == marked and bool(one.conflict.own) == bool(marked)
        assert (
            run.history.open_starts[one.iteration].conflict == one.conflict
        )  # a kill forgets none of it
        if marked:
            kept = listing(repo, one.left)["work.txt"][1]
            assert "theirs\n" in kept and "work\n" in kept and "<<<<<<< " in kept


def test_the_last_attempt_starts_clean_but_not_after_a_conflict(
    repo: Repo, opened: Opened
) -> None:
    repo.plan(*TWO, agent="sh")
    for verdict in (Verdict.FAILED, Verdict.CONFLICT):
        run = opened()
        left_behind(run, work_on(repo, head(repo)), attempts=2)
        known = run.history.of(run.plan.tasks[0])
        known.last = AttemptEnded(task="T1", iteration=1, verdict=verdict)
        assert begin(run, run.plan.tasks[0]).clean is (verdict is Verdict.FAILED)


def test_unfinished_work_on_commits_that_a_person_dropped_starts_clean(
    repo: Repo, opened: Opened
) -> None:
    repo.plan(*TWO, agent="sh")
    run, start = opened(), head(repo)
    run.branch.land(dropped := work_on(repo, start, "dropped.txt"), start, "somebody")
    left_behind(run, work_on(repo, dropped))
    repo.git("update-ref", run.branch.ref, start)
    run.tip = start
    one = begin(run, run.plan.tasks[0])
    assert one.clean and not one.left and "dropped.txt" in listing(repo, one.earlier)


SCRIPT = """
echo good > work.txt; echo bad > tests/test_a.py; echo '{}' > prd.json; mkfifo pipe
printf 'status: done\\nlearned: use make\\n' > "$RALPH_HANDOFF"
"""


def agent_at_work(
    repo: Repo, opened: Opened, script: str, **top: object
) -> tuple[Run, Attempt]:
    repo.write("tests/test_a.py", "def test(): ...\n")
    repo.commit("test")
    repo.plan(*TWO, agent=str(repo.program("../agent", script)), **top)
    run = opened()
    return run, begin(run, run.plan.tasks[0])


def test_what_an_agent_leaves(repo: Repo, opened: Opened) -> None:
    run, one = agent_at_work(repo, opened, SCRIPT, protect=["tests/**"])
    found = work_here(run, one)
    assert found.result.outcome is Outcome.DONE
    assert listing(repo, found.left).keys() - listing(repo, one.base).keys() == {
        "work.txt"
    }
    bad = (
        repo.git("show", f"{found.left}:tests/test_a.py"),
        repo.git("show", f"{found.tree}:tests/test_a.py"),
    )
    assert bad == ("bad\n", "def test(): ...\n")
    assert found.restored[0] == "tests/test_a.py" and found.restored[1].startswith(
        "prd.json (a copy; "
    )
    assert found.notices == ["git cannot add pipe; it was removed"]
    assert found.said.startswith("status: done")
    assert repo.read("prd.json").startswith('{\n  "project"')


def test_an_agent_that_removes_its_workspace_loses_its_work(
    repo: Repo, opened: Opened
) -> None:
    run, one = agent_at_work(repo, opened, 'rm -rf "$PWD"')
    found = work_here(run, one)
    assert found.left == "" and "all work in it is lost" in found.notices[0]
    assert run.places.workspace(1).root.is_dir()


def test_a_setup_that_fails_on_the_branch_needs_a_person(
    repo: Repo, opened: Opened
) -> None:
    run, one = agent_at_work(repo, opened, "touch ran", setup="echo no; exit 3")
    with pytest.raises(NeedsPerson, match="setup failed with exit 3"):
        work_here(run, one)
    assert not (run.places.workspace(1).root / "ran").exists()


def test_only_what_an_agent_began_is_salvaged(repo: Repo, opened: Opened) -> None:
    run, one = agent_at_work(repo, opened, "echo good > work.txt")
    salvage(run, one)
    assert one.left == ""
    work_here(run, one)
    one.left, other = "", replace(one, id="0")
    salvage(run, other)
    assert other.left == ""
    salvage(run, one)
    assert "work.txt" in listing(repo, one.left)


@pytest.mark.parametrize("why", ["new", "a manifest changed", "not due"])
def test_what_setup_did_is_no_work_and_what_an_agent_adds_to_it_is(
    repo: Repo, opened: Opened, why: str
) -> None:
    """Whether it ran before this attempt or an earlier one."""
    repo.write("gen/tracked", "tracked\n")
    work = "echo mine > gen/mine; echo edited >> gen/made; rm -f gen/other; echo b >> a.txt"
    setup = "echo $$ > gen/made; echo x > gen/other; echo x > 'gen/[a] b'; echo $$ >> gen/tracked"
    run, one = agent_at_work(
        repo, opened, work, setup={"run": setup, "when": ["deps.txt"]}
    )
    for number in range(1 if why == "new" else 2):
        if number and why == "a manifest changed":
            one.left = run.git.tree(
                work_on(repo, one.base, "deps.txt", content="new\n")
            )
        found = work_here(run, one)
    added = {"deps.txt"} if why == "a manifest changed" else set()
    assert listing(repo, found.left).keys() - listing(repo, one.base).keys() == {
        "gen/mine",
        *added,
    }
    assert listing(repo, found.left)["gen/tracked"] == (FILE, "tracked\n")
    assert listing(repo, found.left)["a.txt"] == (FILE, "a\nb\n")


def test_protected_files_in_unfinished_work_are_the_base_s_again(
    repo: Repo, opened: Opened
) -> None:
    """They may have been the task's own to change when it was left; a person can take
    that back."""
    run, one = agent_at_work(
        repo, opened, "cat tests/test_a.py > seen", protect=["tests/**"]
    )
    one.left = run.git.tree(work_on(repo, one.base, "tests/test_a.py"))
    found = work_here(run, one)
    assert listing(repo, found.left)["seen"] == (FILE, "def test(): ...\n")
    assert found.restored == []


def test_a_new_file_that_is_large_is_named(repo: Repo, opened: Opened) -> None:
    run, one = agent_at_work(
        repo, opened, "head -c 1500000 /dev/zero > big; echo x > small"
    )
    assert work_here(run, one).notices == ["big is new and has 1.5 MB"]


@pytest.mark.parametrize(
    ("said", "text", "wanted"),
    [
        ("learned: a", "<handoff>x</handoff>", "learned: a"),
        (" \n", "a <handoff>x</handoff> b <handoff>learned: y</handoff> c", "learned: y"),
        ("", "<handoff>x", "next step: make this check green: y"),
        ("", "learned: a", "next step: make this check green: y"),
    ],
)  # fmt: skip
def test_the_handoff_is_a_file_or_the_end_of_the_last_message_or_what_is_red(
    said: str, text: str, wanted: str
) -> None:
    one = Attempt.__new__(Attempt)
    one.said, one.result = said, AgentResult(Outcome.DONE, text=text)
    one.checks = [CheckResult(name, name, name == "x", 1, 0.1) for name in "xyz"]
    assert one.handoff_text == wanted
    one.checks = []
    assert one.handoff_text == ("" if wanted.startswith("next") else wanted)


def test_tests_that_were_there_and_are_changed_are_named(
    repo: Repo, opened: Opened
) -> None:
    run, one = agent_at_work(repo, opened, "true")
    one.tip = head(repo)
    for name, tests in (
        ("tests/test_a.py", ["tests/test_a.py"]),
        ("tests/test_new.py", []),
        ("a.py", []),
    ):
        one.commit, one.changed = work_on(repo, one.tip, name), [name]
        assert changed_tests(run, one) == tests


PACKAGE = '{"scripts": {"test": "%s"}, "dependencies": {%s}}'
PYPROJECT = (
    '[project]\ndependencies = [%s]\n[tool.pytest.ini_options]\naddopts = "%s"\n'
)


@pytest.mark.parametrize(
    ("name", "before", "after", "check", "named"),
    [
        (
            "package.json",
            PACKAGE % ("jest", ""),
            PACKAGE % ("true", ""),
            "npm test",
            True,
        ),
        ("web/package.json", PACKAGE % ("jest", ""), "{", "cd web && yarn test", True),
        (
            "package.json",
            PACKAGE % ("jest", ""),
            PACKAGE % ("jest", '"a": "1"'),
            "npm test",
            False,
        ),
        (
            "package.json",
            PACKAGE % ("jest", ""),
            PACKAGE % ("true", ""),
            "python3 -m pytest",
            False,
        ),
        ("package.json", "[]", "[1]", "npm test", True),
        (
            "pyproject.toml",
            PYPROJECT % ("", ""),
            PYPROJECT % ("", "-k nothing"),
            "python3 -m pytest",
            True,
        ),
        (
            "pyproject.toml",
            PYPROJECT % ("", ""),
            PYPROJECT % ("'a'", ""),
            "python3 -m pytest",
            False,
        ),
        ("Makefile", "test:\n\ttrue", "test:\n\tfalse", "make -s test", True),
        ("jest.config.ts", "x", "y", "npx jest", True),
        ("README.md", "x", "y", "make", False),
        (
            "setup.cfg",
            "",
            "[tool:pytest]\naddopts = --setup-plan\n",
            "python3 -m pytest",
            True,
        ),  # new ones
        ("pyproject.toml", "", "[project]\n", "python3 -m pytest", False),
    ],
)
def test_what_decides_what_a_check_does_is_named_like_a_test(
    repo: Repo,
    opened: Opened,
    name: str,
    before: str,
    after: str,
    check: str,
    named: bool,
) -> None:
    if before:
        repo.write(name, before)
        repo.commit("before")
    repo.plan({"checks": [check]}, agent="sh")
    run = opened()
    one = begin(run, run.plan.tasks[0])
    one.tip = head(repo)
    repo.write(name, after)
    repo.commit("after")
    one.commit, one.changed = head(repo), [name]
    assert changed_tests(run, one) == ([name] if named else [])


def test_the_prompt_says_what_was_red_and_what_came_of_the_last_attempt(
    repo: Repo, opened: Opened
) -> None:
    repo.plan(*TWO, checks=["test -f base.txt"], agent="sh")
    run = opened()
    known = run.history.of(run.plan.tasks[0])
    run.results.end(
        CheckJob(commit=run.tip, checks=[Check("x", "test -f base.txt")], name="x"),
        Checked(
            checks=[CheckResult("x", "test -f base.txt", False, 1, 0.1)], commit=run.tip
        ),
    )
    known.last = AttemptEnded(
        task="T1", iteration=1, verdict=Verdict.FAILED, reason="it was not finished"
    )
    one = begin(run, run.plan.tasks[0])
    run.results.before[one.task.key] = {"test -f work.txt": False}
    said = prompt_for(run, one)
    assert "it was not finished" in said and str(run.paths.handoff(1)) in said
    assert said.count("test -f work.txt") >= 2 and said.count("test -f base.txt") >= 2


def test_a_prompt_can_be_seen_before_the_first_commit(repo: Repo) -> None:
    repo.git("switch", "-q", "--orphan", "new")
    repo.plan({"checks": ["true"]})
    done = repo.ralph("prompt")
    assert done.returncode == 0 and "task 1" in done.stdout


def test_an_attempt_that_passes_makes_thirteen_calls_of_git_and_forks_three_workers(
    repo: Repo,
) -> None:
    log, git = repo.outside / "calls", shutil.which("git")
    repo.tool("git", f'echo git >> {log}; exec {git} "$@"')
    forks = f"""
from _ralph.loop import worker
first = worker.start
def noted(*given):
    open({str(log)!r}, "a").write("fork\\n")
    return first(*given)
from _ralph.loop import run
run.start = noted
"""
    counts = []
    for number in (2, 5):
        log.write_text("")
        repo.plan(
            *(
                {"checks": [{"run": f"test -f T{n}", "once": True}]}
                for n in range(1, number + 1)
            )
        )
        assert repo.run(repo.agent("P(task).touch()"), first=forks)[0] == 0
        counts.append(Counter(log.read_text().split()))
        repo.write("progress.txt", "")
        repo.git("branch", "-qD", "ralph/p")
    assert {
        what: (counts[1][what] - counts[0][what]) / 3 for what in ("git", "fork")
    } == {
        "git": 13,
        "fork": 3,
    }


def test_names_of_tests_that_git_would_take_for_patterns_cost_nothing(
    repo: Repo,
) -> None:
    repo.write("tests/test_old.py", "old\n")
    repo.commit("tests")
    repo.plan({"checks": ["test -f T1.txt"]})
    deeds = "P('T1.txt').touch(); os.makedirs(':(nosuch)x'); P(':(nosuch)x/test_a.py').write_text('x')"
    code, _, printed = repo.run(
        repo.agent(f"{deeds}; P('tests/test_old.py').write_text('new')")
    )
    assert code == 0, printed
    assert repo.records("verdict")[0]["tests"] == ["tests/test_old.py"]
