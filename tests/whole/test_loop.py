"""The loop as a whole: real repositories, real agent processes, real checks."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, Repo

MAKES = 'P(f"{task}.txt").write_text("good\\n")'
OWN = {"checks": ["test -f T1.txt"]}


def own(task: str) -> dict[str, object]:
    return {"checks": [f"grep -q good {task}.txt"]}


def test_every_task_ends_as_one_commit_on_a_branch_and_home_stays_as_it_was(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), checks=["test -f a.txt"])
    code, summary, _ = repo.run(repo.agent(MAKES))
    assert (code, summary["stop"], summary["passed"], summary["total"]) == (0, "complete", 2, 2)
    assert repo.passed() == ["T1", "T2"]
    assert repo.commits() == ["T2: task 2", "T1: task 1"]
    message = repo.git("log", "-1", "--format=%B", "ralph/p~1")
    assert "Ralph-Iteration: 1" in message and "Ralph-Agent: " in message
    assert repo.git("show", "--format=", "--name-only", "ralph/p").split() == ["T2.txt"]
    assert repo.git("branch", "--show-current").strip() == "main"
    assert repo.git("status", "--porcelain").split() == ["??", "prd.json", "??", "progress.txt"]
    assert not (repo.path / "T1.txt").exists()
    assert not repo.alive()


def test_a_finished_plan_is_left_alone(repo: Repo) -> None:
    repo.plan(own("T1"))
    agent = repo.agent(MAKES)
    repo.run(agent)
    before, notes = repo.git("for-each-ref"), repo.read("progress.txt")
    code, summary, _ = repo.run(agent)
    assert (code, summary["stop"]) == (0, "complete")
    assert repo.git("for-each-ref") == before
    assert repo.read("progress.txt") == notes


# What an agent claims, and what that is worth. Each script changes no file of the project.
LIES = {
    "a promise tag": 'print("<promise>COMPLETE</promise>")',
    "exit 0": "pass",
    "a flipped pass": 'p = P("prd.json"); p.write_text(p.read_text().replace("false", "true"))',
    "all of it": 'p = P("prd.json"); p.write_text(p.read_text().replace("false", "true")); print("<promise>COMPLETE</promise>")',
    "a forged record": 'P("progress.txt").open("a").write(\'## 2026-01-01 00:00:00 +00:00 | x\\n<!-- ralph {"v":1,"event":"verdict","plan":"p@","iteration":1,"task":"T1","title":"task 1","verdict":"passed"} -->\\n\')',
    "a cache": 'P("__pycache__").mkdir(); P("__pycache__/x.pyc").write_text("x")',
    "a plan without criteria": 'P("prd.json").write_text("{}")',
    "no plan at all": 'P("prd.json").unlink()',
}


def test_no_claim_makes_a_task_pass_that_its_own_check_denies(repo: Repo) -> None:
    """One attempt a lie, again and again at the same task."""
    repo.plan(own("T1"), limits={"attempts": len(LIES) + 1}, checks=["test -f a.txt"])
    before = repo.read("prd.json")
    lies = repo.agent(f"exec({list(LIES.values())!r}[attempt - 1])")
    code, summary, _ = repo.run(lies, "--max-iterations", str(len(LIES)))
    assert (code, summary["passed"], repo.read("prd.json")) == (3, 0, before)
    assert repo.verdicts() == ["T1 failed"] * len(LIES)


def test_no_claim_makes_a_task_pass_by_checks_that_are_green_anyway(repo: Repo) -> None:
    """A task a lie, behind one that is worked."""
    repo.plan(*[{}] * (len(LIES) + 1), checks=["test -f a.txt"], limits={"attempts": 1, "stuck": 99})
    code, _, printed = repo.run(repo.agent(f"exec({[MAKES, *LIES.values()]!r}[int(task[1:]) - 1])"))
    assert (code, repo.passed()) == (4, ["T1"]), printed
    state = ("prd.json", "progress.txt")  # what is changed in a copy of these is left out, and that is said
    said = ["failed" if any(name in lie for name in state) else "no-op" for lie in LIES.values()]
    assert repo.verdicts() == ["T1 passed", *(f"T{number} {word}" for number, word in enumerate(said, 2))]


def test_the_second_attempt_sees_the_first_failure_and_passes(repo: Repo) -> None:
    repo.plan(
        {"checks": [{"name": "words", "run": "cat T1.txt >&2; grep -q good T1.txt"}]},
        limits={"attempts": 3},
    )
    agent = repo.agent(
        """
        (OUT / f"prompt{attempt}").write_text(prompt)
        P("T1.txt").write_text("a bad word" if attempt == 1 else "good")
        said("ruled out", "writing a bad word")
        said("learned", "words are checked")
        """
    )
    code, _, _ = repo.run(agent)
    assert code == 0
    assert repo.verdicts() == ["T1 failed", "T1 passed"]
    second = repo.read("../prompt2")
    for needed in ("attempt 2 of 3", "a bad word", "`words`", "writing a bad word", "words are checked"):
        assert needed in second


def test_parked_work_has_the_plan_and_the_rulebook_as_they_are_in_git(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, limits={"attempts": 2})
    repo.write("AGENTS.md", "Be brief.\n")
    repo.commit("the plan is in git")
    assert repo.run(repo.agent("P('w').write_text(str(time.time())); P('prd.json').write_text('{}')"))[0] == 4
    parked = repo.git("for-each-ref", "--format=%(refname)", "refs/ralph/parked").split()
    assert len(parked) == 2  # that of the last attempt, and what lay there before it
    for ref in parked:
        assert repo.git("diff", "--name-only", f"{ref}^", ref) == "w\n"


def test_a_task_that_fails_three_times_is_blocked_and_its_work_is_parked(repo: Repo) -> None:
    repo.plan({**own("T1"), "priority": 1}, {"dependsOn": ["T1"], **own("T2")}, own("T3"))
    agent = repo.agent(
        """
        P(f"{task}.txt").write_text("good" if task == "T3" else f"bad {attempt}")
        P("new.txt").write_text("half")
        """
    )
    code, summary, _ = repo.run(agent)
    assert code == 4
    assert repo.verdicts() == ["T1 failed", "T1 failed", "T1 failed", "T3 passed"]
    states = {task["id"]: task["state"] for task in summary["tasks"]}
    assert states == {"T1": "blocked", "T2": "waiting", "T3": "passed"}
    assert "3 failed attempts" in json.loads(repo.read("prd.json"))["userStories"][0]["blocked"]
    assert not repo.has_landed("T1.txt") and repo.has_landed("T3.txt")
    parked = repo.records("verdict")[2]["parked"]
    assert repo.git("show", f"{parked}:T1.txt") == "bad 3"
    before = repo.git("for-each-ref", "--format=%(refname)", "refs/ralph/parked/**/0003-T1-before").strip()
    assert repo.git("show", f"{before}:T1.txt") == "bad 2"

    assert repo.ralph("retry", "T1", "--answer", "write good").returncode == 0
    code, _, _ = repo.run(repo.agent('P(f"{task}.txt").write_text("good")'))
    assert code == 0
    assert repo.passed() == ["T1", "T2", "T3"]


def test_an_answer_stands_in_the_next_prompt(repo: Repo) -> None:
    repo.plan(own("T1"))
    agent = repo.agent('said("blocked on", "which colour? I propose red"); P("x").write_text(str(attempt))')
    code, summary, _ = repo.run(agent)
    assert (code, repo.verdicts()) == (4, ["T1 failed", "T1 failed"])
    assert "which colour?" in summary["tasks"][0]["reason"]
    repo.ralph("retry", "T1", "--answer", "blue, please")
    asked = 'the question that was open ("which colour? I propose red"): blue, please'
    assert asked in repo.ralph("prompt").stdout
    repo.run(repo.agent("(OUT / 'p').write_text(prompt)"))
    assert asked in repo.read("../p")


def test_three_blocked_in_a_row_end_the_run_as_stuck(repo: Repo) -> None:
    repo.plan(*[own(f"T{i}") for i in range(1, 6)], limits={"attempts": 1})
    code, summary, _ = repo.run(repo.agent('P("x").write_text(task)'))
    assert (code, summary["stop"], len(repo.verdicts())) == (4, "stuck", 3)


def test_two_no_ops_in_a_row_ask_whether_it_is_done_already(repo: Repo) -> None:
    repo.plan({}, checks=["true"])
    code, summary, _ = repo.run(repo.agent("(OUT / 'p').write_text(prompt)"))
    assert code == 4
    assert repo.verdicts() == ["T1 no-op", "T1 no-op"]
    assert "already done?" in summary["tasks"][0]["reason"]
    assert "add a test that proves it" in repo.read("../p")


def test_a_global_check_that_was_red_binds_only_once_it_was_green(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), own("T3"), checks=["test ! -f red.txt"])
    repo.write("red.txt", "")
    repo.commit("red")
    agent = repo.agent(
        MAKES + '\nif task == "T2": P("red.txt").unlink()'
        '\nif task == "T3" and attempt == 1: P("red.txt").write_text("")'
        '\nif task == "T3" and attempt == 2: P("red.txt").unlink()'
    )
    code, _, _ = repo.run(agent)
    assert code == 0
    assert repo.verdicts() == ["T1 passed", "T2 passed", "T3 failed", "T3 passed"]


def test_all_done_with_a_check_that_never_was_green_needs_a_person(repo: Repo) -> None:
    repo.plan(own("T1"), checks=["false"])
    code, summary, _ = repo.run(repo.agent(MAKES))
    assert (code, summary["stop"], summary["passed"]) == (4, "red-checks", 1)


def test_a_pass_that_later_work_broke_is_taken_back_and_done_again(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    agent = repo.agent(
        MAKES + '\nif task == "T2" and not P("../once").exists(): P("../once").touch(); P("T1.txt").unlink()'
    )
    code, _, _ = repo.run(agent)
    assert code == 0
    assert repo.verdicts() == ["T1 passed", "T2 passed", "T1 passed"]
    assert "T1 passed at iteration 1, broken since\n    | " in repo.read("progress.txt")


def test_two_tasks_that_break_each_other_are_conflicting(repo: Repo) -> None:
    repo.plan({"checks": ["grep -q 1 x.txt"]}, {"checks": ["grep -q 2 x.txt"]})
    code, summary, _ = repo.run(repo.agent('P("x.txt").write_text(task)'), timeout=90)
    assert code == 4
    states = [(task["state"], task["reason"] or "") for task in summary["tasks"]]
    assert [state for state, _ in states] == ["blocked", "passed"] and "grep -q 2 x.txt failed" in states[0][
        1
    ]


def test_checks_marked_once_are_not_run_at_the_end(repo: Repo) -> None:
    repo.plan(
        {"checks": [{"run": "test ! -f a.txt", "once": True}]}, {"checks": ["test -f a.txt && test -f b"]}
    )
    agent = repo.agent('P("a.txt").unlink() if task == "T1" else (P("a.txt").touch(), P("b").touch())')
    code, _, _ = repo.run(agent)
    assert (code, repo.passed()) == (0, ["T1", "T2"])


def test_protected_files_are_put_back_and_new_ones_named(repo: Repo) -> None:
    repo.write("tests/test_x.py", "assert True\n")
    repo.write("tests/link.py", "original\n")
    repo.commit("tests")
    repo.plan(
        {**own("T1"), "allow": ["tests/mine.py"]},
        checks=["python3 tests/test_x.py"],
        protect=["tests/**", "conftest.py"],
    )
    agent = repo.agent(
        MAKES
        + """
        P("tests/test_x.py").write_text("pass")
        P("tests/link.py").unlink(); os.symlink("/etc/passwd", "tests/link.py")
        P("tests/test_new.py").write_text("new")
        P("conftest.py").write_text("cheat")
        P("tests/mine.py").write_text("mine")
        """.replace("\n        ", "\n")
    )
    code, _, _ = repo.run(agent)
    assert code == 0
    assert repo.git("diff", "--name-status", "main", "ralph/p").split() == [
        "A", "T1.txt", "A", "tests/mine.py", "A", "tests/test_new.py"
    ]  # fmt: skip
    assert repo.landed("tests/test_new.py") == "new" and repo.landed("tests/mine.py") == "mine"
    said = repo.read("progress.txt")
    for name in (
        "tests/test_x.py",
        "tests/link.py",
        "conftest.py (new and protected",
        "test_new.py is new under",
    ):
        assert name in said


def test_what_was_ignored_is_not_committed_by_an_agent_that_edits_gitignore(repo: Repo) -> None:
    repo.write(".gitignore", ".env\nsecret/\n")
    repo.write(".worktreeinclude", ".env\nsecret/\n")
    repo.commit("ignore")
    repo.write(".env", "KEY=1\n")
    repo.write("secret/deep/key", "1\n")
    repo.plan(own("T1"))
    agent = repo.agent(
        MAKES + '\nP("secret/deep/key").read_text(); P(".env").write_text("x")'
        '\nP(".gitignore").write_text(""); P("new").mkdir(); P("new/b").touch()'
    )
    assert repo.run(agent)[0] == 0
    committed = repo.git("ls-tree", "-r", "--name-only", "ralph/p").split()
    assert "new/b" in committed and not {".env", "secret/deep/key"} & set(committed)
    assert repo.read(".env") == "KEY=1\n"


def test_what_checks_and_setup_write_is_neither_work_nor_committed(repo: Repo) -> None:
    check = {"name": "litters", "run": "echo x > made-by-check.txt; echo y >> a.txt"}
    clean = "test -e made-by-check.txt && grep -qx a a.txt && test $(wc -l < a.txt) = 1"
    repo.plan({}, checks=[check, clean], setup="echo s > made-by-setup.txt")
    code, _, _ = repo.run(repo.agent("pass"), "--max-iterations", "1")
    assert (code, repo.verdicts()) == (3, ["T1 no-op"])
    assert repo.records("verdict")[0]["checks"] == {check["run"]: True, clean: True}
    assert repo.read("a.txt") == "a\n" and not (repo.path / "made-by-setup.txt").exists()
    assert repo.commits() == []
    assert "check litters changed a.txt; put back" in repo.read("progress.txt")


def test_what_setup_does_to_files_of_the_branch_is_no_work(repo: Repo) -> None:
    repo.plan({}, checks=["true"], setup="echo locked >> a.txt")
    code, _, printed = repo.run(repo.agent("pass"), "--once")
    assert (code, repo.verdicts(), repo.commits()) == (3, ["T1 no-op"], []), printed


def test_a_setup_that_fails_in_the_workspace_blocks_no_task(repo: Repo) -> None:
    broken = repo.write("../broken", "")
    repo.plan({"checks": ["test -f x"]}, setup=f"case $PWD in *work-*) test ! -e {broken};; esac")
    agent = repo.agent("P('x').touch()")
    assert [repo.run(agent, "--no-wait")[0] for _ in range(4)] == [75, 75, 75, 75]
    assert "its run ended: setup failed" in repo.read("progress.txt")
    broken.unlink()
    code, _, printed = repo.run(agent)
    assert (code, repo.passed()) == (0, ["T1"]), printed


def test_commit_hooks_are_checks_and_may_rewrite(repo: Repo) -> None:
    formats = "test -f T1.txt && sed -i 's/good/good, formatted/' T1.txt"
    hook = f"git diff --cached --name-only > {repo.outside}/staged\n{formats}\n! grep -q forbidden T1.txt"
    repo.program(".git/hooks/pre-commit", hook)
    repo.plan(own("T1"))
    agent = repo.agent('P("T1.txt").write_text("good forbidden" if attempt == 1 else "good")')
    code, _, _ = repo.run(agent)
    assert (code, repo.verdicts()) == (0, ["T1 failed", "T1 passed"])
    assert repo.read("../staged").split() == ["T1.txt"]
    assert repo.landed("T1.txt") == "good, formatted"
    pinned = repo.git("for-each-ref", "--format=%(objectname)", "refs/ralph/candidate").split()
    assert pinned == [repo.git("rev-parse", "ralph/p").strip()]  # not only the commit before the hooks


def test_a_plan_that_is_done_is_checked_again_with_another_setup(repo: Repo) -> None:
    repo.plan(own("T1"))
    agent = repo.agent('P("T1.txt").write_text("good")')
    assert repo.run(agent)[0] == 0
    plan = {**json.loads(repo.read("prd.json")), "setup": "false"}
    repo.write("prd.json", json.dumps(plan))
    code, summary, _ = repo.run(agent)
    assert code == 2 and "setup failed" in summary["reason"]


BROKEN = {
    "cut in half": ('{"userStories": [{"id": "T1", "ti', "line 1"),
    "an empty list": ("[]", "empty list"),
    "an empty file": ("", "is empty"),
    "two tasks with one id": ('[{"id": "a", "title": "x"}, {"id": "a", "title": "y"}]', "two tasks"),
    "a cycle": (
        '[{"id": "a", "title": "x", "dependsOn": ["b"]}, {"id": "b", "title": "y", "dependsOn": ["a"]}]',
        "circle",
    ),
    "a pass that is no boolean": ('[{"id": "a", "title": "x", "passes": "yes"}]', "document[0].passes"),
    "a word for a limit": (
        '{"userStories": [{"id": "a", "title": "x"}], "limits": {"hours": "many"}}',
        "limits.hours",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plan_ends_with_2_and_nothing_happens(repo: Repo, case: str) -> None:
    source, named = BROKEN[case]
    repo.write("prd.json", source)
    done = repo.ralph("run", "--agent", repo.agent("(OUT / 'ran').touch()"), "--check", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("ralph: prd.json") and named in done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert repo.read("prd.json") == source
    assert not (repo.outside / "ran").exists() and not (repo.path / "progress.txt").exists()
    assert repo.git("branch", "--format=%(refname:short)").split() == ["main"]
    assert repo.ralph("status").returncode == (0 if case == "a word for a limit" else 2)


def test_a_plan_without_checks_is_refused_with_a_command_that_works(repo: Repo) -> None:
    repo.write("Makefile", "test:\n\ttest -f T1.txt\n")
    repo.commit("makefile")
    repo.plan({})
    agent = repo.agent(MAKES)
    code, _, printed = repo.run(agent)
    assert code == 2
    assert "`ralph init` adds those that it finds" in printed
    assert repo.ralph("init").returncode == 0 and repo.run(agent)[0] == 0
    assert json.loads(repo.read("prd.json"))["checks"] == ["make test"]


def test_foreign_gates_are_offered_and_never_run(repo: Repo) -> None:
    gate = f"touch {repo.outside}/gate-ran"
    repo.plan({}, qualityGates=[gate])
    code, _, printed = repo.run(repo.agent(MAKES))
    assert code == 2 and f"--check '{gate}'" in printed
    assert not (repo.outside / "gate-ran").exists()


def test_one_attempt_does_not_hide_that_the_whole_plan_is_red(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), checks=["case $PWD in */room-[2-9]) false;; esac"])
    agent = repo.agent(MAKES)
    assert repo.run(agent, "--once")[0] == 0  # T2 is left
    code, summary, _ = repo.run(agent, "--once")
    assert (code, summary["stop"]) == (4, "red-checks")


def test_a_clone_goes_on_where_the_remotes_branch_is(repo: Repo, tmp_path: Path) -> None:
    repo.plan(own("T1"), own("T2"))
    assert repo.run(repo.agent(MAKES), "--once", "--branch", "ralph/shop")[0] == 0
    repo.git("add", "-f", "prd.json", "progress.txt")
    repo.commit("the plan")
    repo.git("clone", "-q", ".", str(tmp_path / "clone"))
    for name in ("user.name", "user.email"):
        repo.git("-C", str(tmp_path / "clone"), "config", name, "somebody")
    repo.path = tmp_path / "clone"
    code, summary, printed = repo.run(repo.agent(MAKES), "--branch", "ralph/shop")
    assert code == 0 and "made branch ralph/shop, where the remote's is" in printed
    assert (summary["passed"], repo.verdicts()) == (2, ["T1 passed", "T2 passed"])


def test_once_task_and_limits(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), own("T3"))
    agent = repo.agent(MAKES + '\nif task == "T3": P("T3.txt").write_text("bad")')
    assert repo.run(agent, "--once", "--task", "T2")[0] == 0
    assert repo.passed() == ["T2"]
    assert repo.run(agent, "--once")[0] == 0
    assert repo.run(agent, "--once")[0] == 3
    assert repo.run(agent, "--max-iterations", "1")[0] == 3
    assert repo.run(agent, "--task", "nope")[0] == 2
    assert repo.run(agent, "--task", "T1")[0] == 0
    assert repo.passed() == ["T1", "T2"]


def test_a_missing_agent_and_one_that_cannot_keep_to_its_permissions_end_with_5(repo: Repo) -> None:
    repo.plan(own("T1"))
    code, _, printed = repo.run("no-such-agent-anywhere")
    assert code == 5 and "not on PATH" in printed
    fake = repo.tool("claude", "exit 0")
    done = repo.ralph("run", "--agent", "claude", PATH=f"{fake.parent}:/usr/bin:/bin")
    if not all((Path("/usr/bin") / tool).exists() for tool in ("bwrap", "socat")):
        assert done.returncode == 5 and "--full-permissions" in done.stderr
    code = repo.ralph("run", "--agent", "aider", "--max-usd", "1").returncode
    assert code in (2, 5)


def test_notify_gets_the_summary(repo: Repo) -> None:
    repo.plan(own("T1"))
    repo.run(repo.agent(MAKES), "--notify", "cat > ../told.json")
    told = json.loads((repo.outside / "told.json").read_text())
    assert (told["stop"], told["exit"], told["passed"]) == ("complete", 0, 1)


def test_a_person_may_edit_the_plan_between_attempts_and_remove_a_block(repo: Repo) -> None:
    repo.plan(own("T1"), limits={"attempts": 1})
    assert repo.run(repo.agent("P('x').touch()"))[0] == 4
    plan = json.loads(repo.read("prd.json"))
    del plan["userStories"][0]["blocked"]
    repo.write("prd.json", json.dumps(plan))
    assert repo.run(repo.agent(MAKES))[0] == 0
    plan = json.loads(repo.read("prd.json"))
    plan["userStories"][0]["passes"] = False
    plan["userStories"][0]["checks"].append("test -f more.txt")
    repo.write("prd.json", json.dumps(plan))
    assert repo.run(repo.agent(MAKES + "\nP('more.txt').touch()"))[0] == 0
    assert repo.verdicts() == ["T1 failed", "T1 passed", "T1 passed"]


@pytest.mark.parametrize(
    "top", [{"commit": "{{ task.nope }}"}, {"commit": "{{ task.raw.nope }}"}, {"prompt": "NOPE.md"}]
)
def test_a_wrong_template_is_found_before_anything_is_paid_for(repo: Repo, top: dict[str, str]) -> None:
    repo.plan({**own("T1"), "nope": "only here"}, own("T2"), **top)
    code, _, printed = repo.run(repo.agent(MAKES))
    assert code == 2 and "nope" in printed.lower()
    assert not (repo.path / "progress.txt").exists()


@pytest.mark.parametrize("top", [{}, {"branchName": "work"}])
def test_a_plan_without_a_name_finds_its_branch_again(repo: Repo, top: dict[str, str]) -> None:
    tasks = [{"id": f"T{i}", "title": f"task {i}", **own(f"T{i}")} for i in (1, 2)]
    repo.write("prd.json", json.dumps({**top, "userStories": tasks}))
    branch = top.get("branchName", "ralph/repo")
    assert repo.run(repo.agent(MAKES), "--max-iterations", "1")[0] == 3
    assert repo.commits(branch) == ["T1: task 1"]
    repo.git("switch", "-qc", "mine")
    repo.git("switch", "-q", "main")
    assert f"branch {branch}" in repo.ralph("status").stdout
    assert repo.run(repo.agent(MAKES))[0] == 0
    assert repo.commits(branch) == ["T2: task 2", "T1: task 1"]
    assert repo.verdicts() == ["T1 passed", "T2 passed"]


def test_templates_of_ones_own(repo: Repo) -> None:
    assert repo.ralph("init", "--eject").returncode == 0
    ejected = repo.read("PROMPT.md")
    mine = "Mine: {{ task.title }} / {{ task_json }}\n" + ejected
    repo.write("PROMPT.md", mine)
    repo.commit("prompt")
    repo.plan(
        {**own("T1"), "title": "{{ 7 * 7 }}"},
        own("T2"),
        prompt="PROMPT.md",
        commit="feat({{ task.id }}): {{ task.title }}",
    )
    agent = repo.agent(MAKES + "\n(OUT / task).write_text(prompt); P('PROMPT.md').write_text('hacked')")
    assert repo.run(agent)[0] == 0
    assert repo.read("../T1").startswith("Mine: {{ 7 * 7 }} / {")
    assert repo.read("../T2").startswith("Mine: task 2 / {")
    assert repo.read("PROMPT.md") == mine
    assert repo.commits() == ["feat(T2): task 2", "feat(T1): {{ 7 * 7 }}"]


def test_init_writes_what_is_missing_and_overwrites_nothing(repo: Repo) -> None:
    done = repo.ralph("init")
    assert done.returncode == 0, done.stderr
    written = {name: repo.read(name) for name in ("prd.json", "AGENTS.md", ".gitignore")}
    again = repo.ralph("init")
    assert again.returncode == 0
    assert {name: repo.read(name) for name in written} == written
    assert json.loads(written["prd.json"])["project"] == "repo"


def test_init_proposes_to_protect_what_could_make_a_check_green(repo: Repo) -> None:
    for name in (
        "tests/test_a.py",
        "pytest.ini",
        ".github/workflows/ci.yml",
        "web/__tests__/a.js",
    ):
        repo.write(name, "")
    repo.commit("tests")
    assert repo.ralph("init").returncode == 0
    found = json.loads(repo.read("prd.json"))["protect"]
    assert found == [
        "tests/**",
        "**/__tests__/**",
        "conftest.py",
        "pytest.ini",
        ".github/**",
    ]


def test_secrets_of_the_environment_stay_out_of_notes_and_prompts(repo: Repo) -> None:
    secret, other = "sk-0123456789abcdef", "correct horse battery"
    repo.env |= {"MY_API_KEY": secret, "db_password": other, "SHORT_TOKEN": "12345678901"}
    check = 'echo $MY_API_KEY "$db_password" $SHORT_TOKEN; test -f T1.txt'
    repo.plan({"checks": [check]}, limits={"attempts": 2})
    agent = """
        (OUT / f"prompt{attempt}").write_text(prompt)
        said("ruled out", os.environ["MY_API_KEY"])
        said("blocked on", os.environ["db_password"])
        P("progress.txt").open("a").write(os.environ["MY_API_KEY"])
        print(os.environ["MY_API_KEY"]); P("a.txt").write_text("x")
    """
    code, summary, _ = repo.run(repo.agent(agent))
    assert code == 4
    notes = repo.read("progress.txt") + repo.read("prd.json") + json.dumps(summary)
    for words in (notes, repo.read("../prompt2")):
        assert secret not in words and other not in words
        assert "[MY_API_KEY]" in words and "[db_password]" in words and "12345678901" in words


def test_no_part_of_a_secret_stays_where_a_line_is_cut(repo: Repo) -> None:
    secret = "sk-0123456789abcdef-0123456789abcdef"
    repo.env["MY_API_KEY"] = secret
    check = 'printf "%s%05980d" "$MY_API_KEY" 0; test -f T1.txt'
    repo.plan({"checks": [check]}, limits={"attempts": 1})
    code, _, _ = repo.run(repo.agent('sys.exit("x" * 140 + os.environ["MY_API_KEY"])'))
    notes = repo.read("progress.txt")
    assert code == 4 and "x" * 140 in notes and "0" * 200 in notes
    assert not [part for part in (secret[:12], secret[-12:]) if part in notes]


def test_it_runs_as_a_copy_in_a_repository_and_as_a_module(repo: Repo) -> None:
    import shutil

    for name in ("ralph.py", "prd.schema.json"):
        shutil.copy(ROOT / name, repo.path / name)
    for name in ("_ralph", "templates"):
        shutil.copytree(ROOT / name, repo.path / name, ignore=shutil.ignore_patterns("__pycache__"))
    repo.commit("ralph itself")
    repo.plan(own("T1"))
    env = {**repo.env, "PYTHONPATH": ""}
    words = ["run", "--agent", repo.agent(MAKES), "-q"]
    done = subprocess.run([sys.executable, "ralph.py", *words], cwd=repo.path, env=env, timeout=60)
    assert done.returncode == 0
    done = subprocess.run([sys.executable, "-m", "ralph", "status"], cwd=repo.path, env=env, timeout=60)
    assert done.returncode == 0


def test_inside_an_attempt_the_loop_cannot_be_steered(repo: Repo) -> None:
    repo.plan(own("T1"))
    agent = repo.agent(
        MAKES + f"\nsh(f'{sys.executable} -m ralph retry T1 > {{OUT}}/out 2>&1; echo $? >> {{OUT}}/out')"
    )
    assert repo.run(agent)[0] == 0
    said = repo.read("../out")
    assert said.splitlines()[-1] == "2" and "refused inside an attempt" in said


def test_output_that_is_not_text_and_a_closed_pipe_do_no_harm(repo: Repo) -> None:
    repo.plan({"title": "caf\u00e9 \u001b[31mred", **own("T1")})
    agent = repo.agent(
        MAKES + "\nsys.stdout.buffer.write(b'\\xff\\xfe\\x1b[2J' * 10000); sys.stderr.write('x' * 100000)"
    )
    command = f"{sys.executable} -m ralph run --agent '{agent}' -v | head -c 10"
    subprocess.run(["/bin/sh", "-c", command], cwd=repo.path, env=repo.env, timeout=60, check=True)
    assert repo.passed() == ["T1"]
    done = repo.ralph("status")
    assert "\x1b" not in done.stdout


def test_root_is_not_needed_and_environment_of_attempts(repo: Repo) -> None:
    repo.plan({"checks": [f"test -f T1.txt && env >> {repo.outside}/check-env"]})
    agent = repo.agent(MAKES + "\n(OUT / 'env').write_text(json.dumps({**os.environ, 'cwd': os.getcwd()}))")
    assert repo.ralph("run", "--agent", agent, PWD=str(repo.path), OLDPWD=str(repo.path)).returncode == 0
    env = json.loads(repo.read("../env"))
    assert env["RALPH_TASK_ID"] == "T1" and env["GIT_TERMINAL_PROMPT"] == "0" and env["RALPH_RUN_ID"]
    assert env["PWD"] == env["cwd"] == str(repo.workspace) and "OLDPWD" not in env
    assert env["RALPH_HANDOFF"] == str(repo.workspace / ".ralph-handoff.md")
    told = repo.read("../check-env").splitlines()
    for where in (repo.places / "room-1", repo.places / "room-2"):
        assert {f"RALPH_RUN_ID={env['RALPH_RUN_ID']}", f"PWD={where}"} <= set(told)
    assert {"RALPH_TASK_ID=T1", "RALPH_ATTEMPT=1"} <= set(told)
    assert os.environ.get("RALPH_RUN_ID") is None


def test_one_pattern_may_stand_without_a_list(repo: Repo) -> None:
    repo.write("guarded.txt", "real\n")
    repo.commit("guarded")
    repo.plan(own("T1"), protect="guarded.txt")
    assert repo.run(repo.agent(MAKES + "\nP('guarded.txt').write_text('x')"))[0] == 0
    assert repo.landed("guarded.txt") == "real\n" and repo.has_landed("T1.txt")


def test_a_task_does_not_start_in_anothers_leftovers(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    agent = repo.agent("P(f'{task}-half.txt').touch()\nif task == 'T2': P('T2.txt').write_text('good')")
    assert repo.run(agent, "--once", "--task", "T1")[0] == 3
    assert repo.run(agent, "--once", "--task", "T2")[0] == 0
    assert repo.git("diff", "--name-only", "main", "ralph/p").split() == ["T2-half.txt", "T2.txt"]
    agent = repo.agent("P('T1.txt').write_text('good' if P('T1-half.txt').exists() else '')")
    assert repo.run(agent, "--once", "--task", "T1")[0] == 0  # its own were not lost


@pytest.mark.parametrize(
    "move",
    [
        "git reset -q --hard {0}",
        "git reset -q --hard {0}; git commit -q --allow-empty -m mine",
    ],
)
def test_the_files_of_another_commit_are_no_work(repo: Repo, move: str) -> None:
    """The agent begins T2 by going back to where T1 was not there: its own files count, and T1 is checked."""
    repo.plan(own("T1"), own("T2"), checks=["test -f a.txt"])
    move = move.format(repo.git("rev-parse", "main").strip())
    agent = repo.agent(f"if task == 'T2' and attempt == 1: sh('{move}')\n" + MAKES)
    code, _, printed = repo.run(agent)
    assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
    assert repo.has_landed("T1.txt") and repo.has_landed("T2.txt")


def test_a_check_that_flips_a_pass_outside_of_attempts_is_undone(repo: Repo) -> None:
    """It writes at home, which a program that it runs finds by its path."""
    flip = f'cd {repo.path}; sed -i \'s/"passes": false/"passes": true/\' prd.json; true'
    repo.plan({}, checks=[str(repo.program("../flip", flip))])
    assert repo.run(repo.agent("pass"), "--max-iterations", "1")[0] == 3
    assert repo.passed() == []


def test_a_reader_that_stopped_reading_does_not_stop_the_loop(repo: Repo) -> None:
    repo.plan(own("T1"))
    agent = repo.agent(
        "print('x' * 100 + '\\n', flush=True)\nfor _ in range(3000): print('y' * 100)\n" + MAKES
    )
    process = repo.start("run", "-v", "--agent", agent)  # nobody reads its output
    assert process.wait(40) == 0
    assert repo.passed() == ["T1"]


def test_a_stop_that_came_too_late_does_not_stop_the_next_run(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    assert repo.run(repo.agent(MAKES), "--once")[0] == 0
    (private,) = (repo.path / ".git/ralph").iterdir()
    (private / "stop").write_text(repo.records("run")[0]["run"])
    assert repo.run(repo.agent(MAKES))[0] == 0


def test_blocking_a_task_does_not_undo_what_passed_since_its_first_attempt(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), own("T3"), limits={"attempts": 2})
    bad = repo.agent('P(f"{task}.txt").write_text("bad" if task == "T1" else "good")')
    assert repo.run(bad, "--once", "--task", "T1")[0] == 3
    assert repo.run(bad, "--once", "--task", "T2")[0] == 0
    assert repo.run(bad)[0] == 4
    assert repo.passed() == ["T2", "T3"]
    assert repo.git("diff", "--name-only", "main", "ralph/p").split() == ["T2.txt", "T3.txt"]
    assert repo.landed("T2.txt") == "good"


def test_a_check_of_the_plan_that_was_never_run_before_the_work_binds(repo: Repo) -> None:
    repo.write("lib", "good\n")
    repo.plan({"checks": ["test -e one"]})
    repo.commit("plan")
    assert repo.run(repo.agent("P('wrong').touch()"), "--once")[0] == 3  # its work stays in the tree
    repo.plan({"checks": ["test -e one"]}, checks=["grep -q good lib"])
    breaks = repo.agent("P('one').touch(); P('lib').write_text('broken')", "breaks")
    assert repo.run(breaks, "--once")[0] == 3
    assert repo.verdicts() == ["T1 failed", "T1 failed"]
    assert "- `grep -q good lib`" not in repo.ralph("prompt").stdout


def test_old_transcripts_go_before_the_next_attempt(repo: Repo) -> None:
    repo.plan({"checks": ["test -e seen"]})
    for number in range(9951, 10_011):
        repo.write(f".ralph/log/{number}-T1.out", "")
    seen = (
        f"P('seen').write_text(' '.join(path.name for path in P('{repo.path}/.ralph/log').glob('*-T1.out')))"
    )
    assert repo.run(repo.agent(seen))[0] == 0
    kept = {int(name.partition("-")[0]) for name in repo.landed("seen").split()}
    assert kept == {1, *range(9962, 10_011)}


def test_the_first_prompt_names_what_is_red_before_the_work(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt", "true"]}, checks=["test -f suite"])
    repo.run(repo.agent("(OUT / 'prompt').write_text(prompt); P('T1.txt').touch()"), "--once")
    named = repo.read("../prompt").partition("Red before the work began:\n")[2].split("\n\n")[0]
    assert named.splitlines() == ["- `test -f suite`", "- `test -f T1.txt`"]


def test_the_prompt_says_whether_earlier_work_lies_there(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, {"checks": ["test -f T2.txt"]})
    keeps = repo.agent(
        "(OUT / 'prompt').write_text(prompt); (OUT / 'there').write_text(f'{P(task).exists()}')\n"
        "P(task).write_text(str(attempt)); P(f'{task}.txt').touch()"
    )

    def told(*words: str) -> tuple[bool, bool, str]:
        repo.run(keeps, "--once", *words)
        prompt = repo.read("../prompt")
        return "still in the working tree" in prompt, "were put aside" in prompt, repo.read("../there")

    assert [told("--task", task) for task in ("T1", "T1", "T2", "T1")] == [
        (False, False, "False"), (True, False, "True"), (False, False, "False"), (False, True, "False")
    ]  # fmt: skip


# The checks of the plan; and of each task its own checks, and whether its pass is weak: none of all these
# went from red to green for it, or one of the plan's is red beside it.
PASSES: list[tuple[list[str], list[tuple[str, bool]]]] = [
    ([], [("test -f T1.txt", False), ("test -f a.txt", True)]),
    (["test -f T1.txt"], [("", False), ("", True)]),
    (["false"], [("test -f a.txt", True), ("test -f T2.txt", True)]),
]


@pytest.mark.parametrize(("checks", "tasks"), PASSES)
def test_a_pass_without_a_check_that_went_from_red_to_green_is_weak(
    repo: Repo, checks: list[str], tasks: list[tuple[str, bool]]
) -> None:
    repo.plan(*({"checks": [own]} if own else {} for own, _ in tasks), checks=checks)
    _, summary, printed = repo.run(repo.agent(MAKES))
    weak = [is_weak for _, is_weak in tasks]
    assert repo.verdicts() == ["T1 passed", "T2 passed"], printed
    assert [record.get("weak", False) for record in repo.records("verdict")] == weak
    assert [task["weak"] for task in summary["tasks"]] == weak
    shown = repo.ralph("status").stdout.splitlines()
    assert [
        any(f" {task} " in f" {line} " and "weak" in line for line in shown) for task in ("T1", "T2")
    ] == weak, shown


def test_whatever_the_agent_does_to_its_repository_the_work_lands_as_one_commit(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), own("T3"))
    agent = repo.agent(
        MAKES + '\nsh("git add -A; git commit -qm mine")'
        '\nif task == "T2": sh("git checkout -q -b elsewhere; git commit -q --allow-empty -m more")'
        '\nif task == "T3": sh("rm -rf .git")'
    )
    refs = repo.git("for-each-ref")
    code, _, printed = repo.run(agent)
    assert code == 0, printed
    assert repo.commits() == ["T3: task 3", "T2: task 2", "T1: task 1"]
    others = [line for line in repo.git("for-each-ref").splitlines() if "ralph/" not in line]
    assert others == [refs.strip()]


def test_a_persons_untracked_and_modified_files_stay_and_are_no_part_of_the_work(repo: Repo) -> None:
    repo.git("update-index", "--assume-unchanged", "a.txt")
    repo.write("b.txt", "b\n")
    repo.git("add", "b.txt")
    repo.git("commit", "-qm", "b")
    repo.plan({"checks": ["grep -q good T1.txt && grep -qx a a.txt && grep -qx b b.txt"]})
    for name in ("a.txt", "b.txt", "mine.txt"):
        repo.write(name, "mine\n")
    before = repo.git("status", "--porcelain")
    code, _, printed = repo.run(repo.agent(MAKES))
    assert (code, repo.passed()) == (0, ["T1"]), printed
    said = next(line for line in printed.splitlines() if "the agent will not see" in line)
    assert "b.txt" in said and "mine.txt" in said and "prd.json" not in said
    assert [repo.read(name) for name in ("a.txt", "b.txt", "mine.txt")] == ["mine\n"] * 3
    assert repo.git("status", "--porcelain") == before.replace(
        "?? prd.json\n", "?? prd.json\n?? progress.txt\n"
    )
    assert repo.git("diff", "--name-only", "main", "ralph/p").split() == ["T1.txt"]


def test_an_uncommitted_file_that_a_check_names_is_said_at_the_start(repo: Repo) -> None:
    repo.write("aaa.txt", "")
    repo.write("check.sh", "grep -q good T1.txt\n")
    repo.plan({"checks": ["sh ./check.sh"]}, limits={"attempts": 1})
    code, _, printed = repo.run(repo.agent(MAKES))
    assert (code, repo.verdicts()) == (4, ["T1 failed"])
    assert "the agent will not see them: check.sh, aaa.txt; a check names check.sh: commit it" in printed


def test_two_plans_side_by_side_keep_their_own_transcripts(repo: Repo) -> None:
    for name in "ab":
        task = {"id": "T1", "title": name, "checks": [f"test -f {name}.md"]}
        repo.write(f"plans/{name}/prd.json", json.dumps({"project": name, "userStories": [task]}))
    for name in "ab":
        agent = repo.agent(f"P('{name}.md').touch(); print('I am {name}')", name)
        assert repo.run(agent, "--prd", f"plans/{name}/prd.json")[0] == 0
    assert [repo.read(f"plans/{name}/.ralph/log/0001-T1.out") for name in "ab"] == ["I am a\n", "I am b\n"]


def test_two_plans_on_one_branch_both_land_there_and_keep_their_own_notes(repo: Repo) -> None:
    repo.plan(own("T1"), branchName="work")
    assert repo.run(repo.agent(MAKES))[0] == 0
    repo.plan(
        {"title": "other", "checks": ["test -f T1.txt && test -f other.txt"]},
        project="other",
        branchName="work",
    )
    code, summary, _ = repo.run(repo.agent("P('other.txt').touch()"))
    assert (code, summary["passed"], summary["iterations"]) == (0, 1, 1)
    assert repo.commits("work") == ["T1: other", "T1: task 1"]


def test_a_plan_that_is_tracked_is_in_no_commit_of_ralphs(repo: Repo) -> None:
    repo.write("sub/AGENTS.md", "")
    repo.plan(own("T1"), own("T2"))
    repo.write("progress.txt", "my words\n")
    repo.write("AGENTS.md", "rules\n")
    repo.commit("state")
    spoil = "for name in ('prd.json', 'progress.txt', 'AGENTS.md'): P(name).write_text('x')\n"
    assert repo.run(repo.agent(spoil + "sh('git rm -q --cached prd.json')\n" + MAKES))[0] == 0
    assert repo.git("diff", "--name-only", "main", "ralph/p").split() == ["T1.txt", "T2.txt"]
    assert repo.passed() == ["T1", "T2"] and repo.read("AGENTS.md") == "rules\n"
    assert repo.read("progress.txt").startswith("my words\n")
    for name in ("prd.json", "progress.txt", "AGENTS.md"):
        assert re.search(
            rf"- restored: {name} \(.*; what is changed in it does not count\)", repo.read("progress.txt")
        )


# A commit hook at work on $file, which the agent left as `good`; the verdict, and what lands.
HOOKS: dict[str, tuple[str, str, str]] = {
    "rewrites, and fails each time": ("echo more >> $file; exit 1", "failed", ""),
    "rewrites each time": ("echo more >> $file", "passed", "good\nmore\n"),
    "rewrites and fails, then rewrites": ("echo more >> $file; test $(wc -l < $file) = 3", "passed", "good\nmore\nmore\n"),
    "rewrites and fails, and then no more": ("grep -q more $file && exit 0; echo more >> $file; exit 1", "passed", "good\nmore\n"),
    "rewrites what then fails a check": ("echo bad >> $file", "failed", ""),
    "says no": ("exit 1", "failed", ""),
    "says nothing": ("true", "passed", "good\n"),
}  # fmt: skip


@pytest.mark.parametrize(("names", "red"), [(list(HOOKS), False), (["rewrites each time", "says no"], True)])
def test_what_hooks_write_is_checked_before_it_lands(repo: Repo, names: list[str], red: bool) -> None:
    """A task each; `red` with a check of the plan that is never green."""
    hooks = {f"T{number}": HOOKS[name] for number, name in enumerate(names, 1)}
    cases = "\n".join(f"{task}.txt) {script} ;;" for task, (script, _, _) in hooks.items())
    repo.program(
        ".git/hooks/pre-commit", f"file=$(git diff --cached --name-only HEAD)\ncase $file in\n{cases}\nesac"
    )
    own_checks = ({"checks": [f"grep -q good {task}.txt && ! grep -q bad {task}.txt"]} for task in hooks)
    repo.plan(*own_checks, checks=["false"] * red, limits={"attempts": 1, "stuck": 99})
    repo.run(repo.agent(MAKES))
    assert repo.verdicts() == [f"{task} {verdict}" for task, (_, verdict, _) in hooks.items()]
    for task, (_, _, lands) in hooks.items():
        assert repo.has_landed(f"{task}.txt") is bool(lands), task
        if lands:
            assert repo.landed(f"{task}.txt") == lands


def test_where_nothing_is_left_to_do_no_agent_is_needed(repo: Repo) -> None:
    repo.plan({"checks": ["true"], "passes": True}, agent="no-such-agent", fallback="nor-this-one")
    done = repo.ralph("run")
    assert done.returncode == 0, done.stderr


def test_the_last_lines_say_how_to_go_on_with_the_same_options(repo: Repo) -> None:
    repo.plan({"checks": ["test -f x"]}, limits={"attempts": 1})
    agent = repo.agent("P(task).touch()")
    done = repo.ralph("run", "--agent", agent, "--max-iterations", "1")
    assert f"ralph run --agent '{agent}' --max-iterations 1" in done.stdout
    works = repo.agent("P('x').touch()", "works")
    assert repo.ralph("retry", "T1").returncode == 0
    assert "next: ralph report; ralph land ralph/p" in repo.ralph("run", "--agent", works).stdout


def test_the_first_line_says_what_is_to_come_and_every_stop_how_to_go_on(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    agent = repo.agent("P(f'{task}.txt').touch()")
    words = ["--max-iterations", "1", "--max-hours", "2", "--agent", agent]
    del repo.env["RALPH_RUN_NO_AWAKE"]
    first, *_, last = repo.ralph("run", *words).stdout.splitlines()
    assert first[20:] == (
        f"2 of 2 tasks to do on branch ralph/p | {agent} | this run: 0 of 1 iterations, 0 s of 2 h 0 min"
    )
    again = f"ralph run --max-iterations 1 --max-hours 2 --agent {shlex.quote(agent)}"
    assert last[20:] == f"next: {again}"
    assert f"next: {again}\n" in repo.ralph("status", COLUMNS="300").stdout
    waits = repo.start("run", "--agent", repo.agent("P(OUT / 'up').touch(); time.sleep(60)", "sleeper"))
    repo.wait_for("../up")
    waits.terminate()
    said, _ = waits.communicate(timeout=30)
    assert waits.returncode == 143 and said.splitlines()[-1][20:].startswith("next: ralph run --agent ")


def test_a_persons_interrupts_block_no_task(repo: Repo) -> None:
    repo.plan({"checks": ["test -f x"]})
    agent = repo.agent("(OUT / 'begun').touch(); time.sleep(600)")
    for _ in range(4):
        (repo.outside / "begun").unlink(missing_ok=True)
        loop = repo.start("run", "--agent", agent)
        repo.wait_for("../begun")
        for _ in range(2):
            loop.send_signal(signal.SIGINT)
            time.sleep(0.3)
        loop.wait(30)
    assert "blocked" not in repo.read("prd.json")


def test_a_program_is_named_from_where_one_stands(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    repo.commit("plan")
    repo.program("tools/agent.sh", "cat > /dev/null; touch $RALPH_TASK_ID.txt")
    repo.path /= "tools"
    done = repo.ralph("run", "--prd", "../prd.json", "--agent", "./agent.sh")
    assert done.returncode == 0, done.stdout
    (repo.path.parent / "prd.json").write_text('{"checks": ["true"], "tasks": [{"title": "x"}]}')
    assert repo.ralph("run", "--prd", "../prd.json", RALPH_RUN_AGENT="./agent.sh -x").returncode == 0


def test_a_judge_that_the_plan_names_by_a_path_is_not_the_one_that_the_agent_left(repo: Repo) -> None:
    says = """cat > /dev/null; echo '{"criteria": [{"criterion": "x", "met": %s}]}'"""
    repo.program("judge.sh", says % "false")
    repo.plan({"checks": ["true"]}, judge="./judge.sh", limits={"attempts": 1})
    repo.commit("plan")
    kind = repo.program("../kind.sh", says % "true")
    agent = repo.program("../agent", f"cat > /dev/null; cp {kind} judge.sh")
    assert repo.ralph("run", "--agent", str(agent)).returncode == 4
    assert repo.passed() == []
    repo.program("judge.sh", says % "true")
    assert repo.ralph("retry", "T1").returncode == 0
    assert repo.ralph("run", "--agent", str(agent)).returncode == 0


def test_a_plan_that_is_a_link_is_not_the_work_s_to_change(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["false"]}, limits={"attempts": 1})
    (repo.path / "plans").mkdir()
    (repo.path / "prd.json").rename(repo.path / "plans/p.json")
    (repo.path / "prd.json").symlink_to("plans/p.json")
    repo.commit("plan")
    repo.git("branch", "ralph/p")
    claim = """P('T1.txt').touch(); P('plans/p.json').write_text(P('prd.json').read_text().replace("false,", "true,"))"""
    code, summary, printed = repo.run(repo.agent(claim), "--max-iterations", "1")
    assert (code, summary["passed"]) == (3, 1), printed
    assert repo.git("show", "--format=", "--name-only", "ralph/p") == "T1.txt\n"
    assert repo.passed() == ["T1"]
    assert "restored: plans/p.json (a copy; what is" in repo.read("progress.txt")


def test_joiners_of_a_persons_own_words_stay_in_the_prompt(repo: Repo) -> None:
    title = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u0915\u094d\u200d\u0937 \U0001f468\u200d\U0001f469\u200d\U0001f467 family"
    repo.plan({"title": title, "notes": [title], "checks": ["true"]})
    assert repo.ralph("prompt").stdout.count(title) == 4


def test_a_rulebook_as_init_wrote_it_is_in_no_prompt(repo: Repo) -> None:
    repo.write("Cargo.toml", "[dependencies]\nx = '1'\n")
    assert repo.ralph("init").returncode == 0
    assert "- Before you end, run `cargo test`.\n" in repo.read("AGENTS.md")
    assert repo.ralph("add", "x").returncode == 0
    for agent in ("claude", "codex"):
        assert "AGENTS.md" not in repo.ralph("prompt", "--agent", agent).stdout
    repo.write("AGENTS.md", repo.read("AGENTS.md") + "- No new dependencies.\n")
    assert "No new dependencies" in repo.ralph("prompt", "--agent", "true").stdout
    assert "AGENTS.md" in repo.ralph("prompt", "--agent", "codex").stdout


def test_where_there_is_no_plan_the_ways_are_named(repo: Repo, tmp_path: Path) -> None:
    for command in ("run", "status", "doctor", "report"):
        done = repo.ralph(command)
        assert (
            "prd.json; cd to your project, name its plan with --prd, or start one here: ralph init"
            in done.stderr + done.stdout
        )
    bare = Repo(tmp_path / "bare", git=False)
    assert "cd to your project, or start one: git init && ralph init" in bare.ralph("run").stderr
