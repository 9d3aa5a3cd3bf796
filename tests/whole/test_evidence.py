"""What passes, and what it costs to know: evidence, what binds, results remembered by
tree, the re-check. Each test is a night in a real repository."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.conftest import ROOT, Repo, cases
from tests.scripts import of_verdicts, red

MAKES = 'P(f"{task}.txt").write_text("good\\n")'


def own(task: str) -> dict[str, object]:
    return {"checks": [f"test -f {task}.txt"]}


def counted(repo: Repo, name: str, command: str = "true") -> str:
    """A check that counts its runs."""
    return f"echo x >> {repo.outside}/{name}; {command}"


def runs(repo: Repo, name: str) -> int:
    log = repo.outside / name
    return len(log.read_text().split()) if log.exists() else 0


def once_red(repo: Repo) -> dict[str, str]:
    """A check that is red the first time that it runs, and green ever after."""
    return {
        "name": "once",
        "run": f"test -e {repo.outside}/up || {{ touch {repo.outside}/up; exit 1; }}",
    }


def status(repo: Repo) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(repo.ralph("status", "--json").stdout)
    return found


# ---------------------------------------------------------------- one order

BUILDS = "mkdir -p build && cp a.txt build/app"


def test_what_a_check_of_the_plan_builds_an_own_check_may_use_and_is_no_work(
    repo: Repo,
) -> None:
    repo.write(".gitignore", "build/\n")
    repo.commit("ignore")
    both = "test -f build/app && test -f T1.txt"
    repo.plan(both, "test -f build/app", checks=[BUILDS])
    agent = repo.agent("if task == 'T1': " + MAKES)
    repo.judges("4: T1 passed, T2 no-op, T2 no-op", agent)
    assert repo.ralph("doctor", "--agent", "true").returncode == 0
    repo.git("switch", "-qc", "mine")
    assert repo.ralph("land").returncode == 0


# ---------------------------------------------------------------- evidence


@cases("""
ends           attempts  script
well           3         pass
with an error  1         sys.exit(3)
""")
def test_a_check_that_turns_green_by_itself_passes_nothing(
    repo: Repo, ends: str, attempts: str, script: str
) -> None:
    repo.plan({"checks": [once_red(repo)]}, limits={"attempts": int(attempts)})
    repo.ends("4:", repo.agent(script))
    assert repo.commits() == []
    (task,) = status(repo)["tasks"]
    assert task["flaky"] == ["once"]
    assert repo.records("verdict")[-1]["flaky"] == ["once"]
    assert "flaky: once" in repo.ralph("status").stdout
    assert "flaky" in repo.ralph("report", "-o", "-").stdout


def test_a_flaky_check_and_a_change_of_a_dead_agent_are_no_pass(repo: Repo) -> None:
    repo.plan({"checks": [once_red(repo)]}, limits={"attempts": 1})
    before = f"P({str(repo.outside / 'up')!r}).unlink(missing_ok=True); "
    repo.run(repo.agent(before + "P('x').touch(); sys.exit(3)"))
    assert (repo.passed(), repo.verdicts()) == ([], ["T1 failed"])


# ---------------------------------------------------------------- what binds


def test_a_failed_attempt_that_turns_a_red_suite_green_binds_nobody(repo: Repo) -> None:
    repo.plan("false", own("T2"), own("T3"), checks=[red("test -f fixed")])
    agent = repo.agent(MAKES + "\nif task == 'T1': P('fixed').touch()")
    summary = repo.ends("4: T2 T3", agent, "--max-attempts", "2").summary
    assert of_verdicts(repo, "beside")[-2:] == [["test -f fixed"]] * 2
    assert "test -f fixed" in summary["reason"]


def test_a_task_that_mends_the_suite_passes_and_the_next_must_keep_it(
    repo: Repo,
) -> None:
    repo.plan({}, own("T2"), checks=[red("test -f fixed")])
    agent = repo.agent(
        "if task == 'T1': P('fixed').touch()\n"
        f"else:\n    {MAKES}\n    P('fixed').unlink() if attempt == 1 else P('fixed').touch()"
    )
    repo.judges("0: T1 passed, T2 failed, T2 passed", agent)
    assert not any(of_verdicts(repo, "weak"))


def test_a_database_that_dies_in_the_night_blocks_nobody(repo: Repo) -> None:
    down = repo.outside / "down"
    repo.plan(*map(own, ("T1", "T2", "T3")), checks=[f"test ! -e {down}"])
    agent = repo.agent(MAKES + f"\nif task == 'T2': P({str(down)!r}).touch()")
    verdicts = "4: T1 passed, T2 failed, T2 failed, T2 passed, T3 passed"
    summary = repo.judges(verdicts, agent).summary
    assert repo.passed() == ["T1", "T2", "T3"]
    beside = [len(one or []) for one in of_verdicts(repo, "beside")]
    assert beside == [0, 0, 0, 1, 1]
    assert "not all checks are green" in summary["reason"]


def test_a_check_that_cannot_start_costs_no_agent(repo: Repo) -> None:
    repo.plan("no-such-tool --help", "./bin/tool --help")
    agent = repo.agent(
        "(OUT / task).touch(); P('bin').mkdir(); P('bin/tool').write_text('#!/bin/sh\\n'); sh('chmod +x bin/tool')"
    )
    summary = repo.ends("4: T2", agent).summary
    assert repo.verdicts() == ["T1 set-aside", "T2 passed"]
    assert "no-such-tool" in summary["reason"]
    assert "install it, or let `setup` do it" in summary["reason"]
    assert "blocked" not in repo.read("prd.json")
    assert not (repo.outside / "T1").exists()
    repo.tool("no-such-tool", "test -f T1.txt")
    assert repo.run(repo.agent(MAKES))[0] == 0


def test_red_that_does_not_bind_is_not_run_again_nor_the_suite_with_it(
    repo: Repo,
) -> None:
    """The suite: before the work, for each of three attempts, at the end."""
    suite, linter = counted(repo, "suite"), "no-such-linter ."
    repo.plan("grep -q 3 T1.txt", checks=[suite, linter])
    agent = repo.agent("P('T1.txt').write_text(str(attempt))")
    repo.ends("4: T1", agent)
    assert repo.records("verdict")[-1]["beside"] == [linter]
    assert runs(repo, "suite") == 5


# ---------------------------------------------------------------- what was left out


def test_work_that_is_all_left_out_says_what_and_what_lets_it_in(repo: Repo) -> None:
    repo.write("tests/a.py", "real\n")
    repo.commit("tests")
    repo.plan({}, checks=["test -f a.txt"], protect=["tests/**", "conftest.py"])
    agent = repo.agent(
        "P('tests/a.py').write_text('x'); P('conftest.py').touch(); (OUT / 'p').write_text(prompt)"
    )
    summary = repo.judges("4: T1 failed, T1 failed, T1 failed", agent).summary
    reason = summary["tasks"][0]["reason"]
    assert "tests/a.py" in reason and "already done" not in reason
    assert '"allow": ["conftest.py", "tests/a.py"]' in reason
    assert '"allow": [' in repo.read("../p")
    repo.ralph("retry", "T1")
    plan = json.loads(repo.read("prd.json"))
    plan["userStories"][0]["allow"] = ["tests/a.py"]
    repo.write("prd.json", json.dumps(plan))
    repo.ends("0: T1", agent)
    assert repo.landed("tests/a.py") == "x"


# ---------------------------------------------------------------- remembered by tree


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_ten_tasks_that_pass_at_once_cost_ten_runs_of_the_suite_one_before_and_one_after(
    repo: Repo, jobs: str
) -> None:
    tasks = [f"T{number}" for number in range(1, 11)]
    checks = [counted(repo, task, f"test -f {task}.txt") for task in tasks]
    repo.plan(*checks, checks=[counted(repo, "suite")])
    repo.ends(f"0: {' '.join(tasks)}", repo.agent(MAKES), "--jobs", jobs)
    assert runs(repo, "suite") == 12
    for task in tasks:
        assert runs(repo, task) == 3


def test_a_tree_that_was_looked_at_goes_to_no_room_again(repo: Repo) -> None:
    """An agent that does nothing; a change; and leaves that change as it is."""
    red_always = counted(repo, "own", "false")
    repo.plan(red_always, checks=[counted(repo, "suite")], limits={"attempts": 4})
    agent = repo.agent("if attempt == 2: P('x').touch()")
    failed = "3: T1 failed, T1 failed, T1 failed"
    repo.judges(failed, agent, "--max-iterations", "3")
    assert (runs(repo, "suite"), runs(repo, "own")) == (2, 2)
    assert "failed with exit 1 (as before)" in repo.read("progress.txt")


def test_what_a_person_mends_beside_the_tree_counts_after_a_retry(repo: Repo) -> None:
    """The same tree is looked at again, in the same run."""
    key = repo.outside / "key"
    repo.plan(f"test -e {key} && test -f T1.txt", limits={"attempts": 1})
    notify = f"test -e {key} || {{ touch {key}; cd {repo.path}; {repo.outside}/bin/ralph retry T1; }}"
    repo.tool("ralph", f'exec {sys.executable} {ROOT}/ralph.py "$@"')
    repo.ends("0: T1", repo.agent(MAKES), "--notify", notify)
    assert not any(of_verdicts(repo, "flaky"))
    assert not any(of_verdicts(repo, "weak"))


# ---------------------------------------------------------------- the re-check


def test_what_is_red_once_in_the_re_check_is_flaky(repo: Repo) -> None:
    seen = repo.outside / "seen"
    in_new = f"case $PWD in */room-[2-9]*) test -e {seen} || {{ touch {seen}; exit 1; }};; esac"
    repo.plan(f"{in_new}; test -f T1.txt")
    repo.ends("0: T1", repo.agent(MAKES))
    assert repo.records("recheck")[0]["flaky"] != []


SET_BACK = r"""
n = len(list(pathlib.Path(OUT).glob("prompt*"))) + 1
(OUT / f"prompt{n}").write_text(prompt)
P(f"{task}.txt").touch()
if n == 2: P("T1.txt").unlink()  # T2 breaks T1
if n == 3: P("T2.txt").unlink()  # T1, worked again, would break T2
if n == 4: P("T2.txt").touch()
"""


def test_a_task_that_was_set_back_sees_why_and_must_keep_what_the_others_need(
    repo: Repo,
) -> None:
    repo.plan("test -f T1.txt", "test -f T2.txt", limits={"attempts": 3})
    verdicts = "0: T1 passed, T2 passed, T1 failed, T1 passed"
    repo.judges(verdicts, repo.agent(SET_BACK))
    assert [bool(one.get("ok")) for one in repo.records("recheck")] == [False, True]
    assert "T1 passed at iteration 1, broken since: " in repo.read("progress.txt")
    again = repo.read("../prompt3")
    assert "it passed at iteration 1, and later work broke it" in again
    assert "Its work is still there" in again
    assert "T2: task 2" in again and "test -f T2.txt" in again
    assert "The first failing check was `test -f T1.txt`" in again


def test_a_pass_that_is_broken_a_second_time_is_left_to_a_person(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), {**own("T3"), "dependsOn": ["T1"]})
    agent = repo.agent(MAKES + "\nif task != 'T1': P('T1.txt').unlink()")
    repo.ends("3: T2", agent, "--max-iterations", "2")
    summary = repo.ends("4: T2 T3", agent).summary
    assert summary["tasks"][0]["reason"].startswith("conflicting: it passed twice")


def test_what_is_green_in_the_room_and_red_in_one_made_anew_sets_nobody_back(
    repo: Repo,
) -> None:
    here = f"test -e {repo.outside}/other || case $PWD in */room-[2-9]*) exit 1;; esac"
    repo.plan(f"{here}; test -f T1.txt", checks=[here])
    summary = repo.ends("4: T1", repo.agent(MAKES)).summary
    said = "it passed in the clean room, and fails in a new checkout"
    assert said in summary["reason"]
    assert not repo.records("recheck")[0].get("broken")


def test_a_run_that_was_cut_short_leaves_its_final_check_due(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    hangs = "(OUT / 'hangs').touch(); time.sleep(60)"
    second = "task == 'T2' and not (OUT / 'again').exists()"
    agent = repo.agent(f"{MAKES}\nif {second}: {hangs}")
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../hangs")
    process.terminate()
    process.wait(20)
    assert repo.passed() == ["T1"] and not repo.records("recheck")
    assert status(repo)["final_check_due"]
    repo.write("../again", "")
    repo.ends("0: T1 T2", agent)
    events = " ".join(one["event"] for one in repo.records())
    # what was cut off is closed, and then the check comes before anything is paid
    assert " stop verdict run recheck " in events
    assert not status(repo)["final_check_due"]


def test_two_no_ops_in_a_row_ask_whether_it_is_done_already(repo: Repo) -> None:
    repo.plan({}, checks=["true"])
    agent = repo.agent("(OUT / 'p').write_text(prompt)")
    summary = repo.judges("4: T1 no-op, T1 no-op", agent).summary
    assert "already done?" in summary["tasks"][0]["reason"]
    assert "add a test that proves it" in repo.read("../p")


# A check of the plan that is red before the work; of each task its own check; and the
# one whose pass is weak: nothing went from red to green for it. Red beside it is
# another remark.
@cases("""
of_the_plan     first           second          weak
-               test -f T1.txt  test -f a.txt   T2
test -f T1.txt  -               -               T2
false           test -f a.txt   test -f T2.txt  T1
""")
def test_a_pass_without_a_check_that_went_from_red_to_green_is_weak(
    repo: Repo, of_the_plan: str, first: str, second: str, weak: str
) -> None:
    tasks: list[dict[str, Any] | str] = [first or {}, second or {}]
    repo.plan(*tasks, checks=[red(of_the_plan)] if of_the_plan else [])
    _, summary, printed = repo.run(repo.agent(MAKES))
    assert repo.verdicts() == ["T1 passed", "T2 passed"], printed
    assert printed.count("weak: nothing turned green") == 1
    beside = ["false"] if of_the_plan == "false" else None
    assert of_verdicts(repo, "beside") == [beside, beside]
    is_weak = [name == weak for name in ("T1", "T2")]
    assert [bool(one) for one in of_verdicts(repo, "weak")] == is_weak
    assert [task["weak"] for task in summary["tasks"]] == is_weak
    assert "(weak" in repo.ralph("status").stdout


def test_what_checks_and_setup_write_is_neither_work_nor_committed(repo: Repo) -> None:
    litters = "echo x > made-by-check.txt; echo y >> a.txt"
    clean = "test -e made-by-check.txt && grep -qx a a.txt && test $(wc -l < a.txt) = 1"
    checks = [{"name": "litters", "run": litters}, clean]
    repo.plan({}, checks=checks, setup="echo s > made-by-setup.txt")
    repo.judges("3: T1 no-op", repo.agent("pass"), "--max-iterations", "1")
    assert of_verdicts(repo, "checks") == [{litters: True, clean: True}]
    assert repo.read("a.txt") == "a\n"
    assert not (repo.path / "made-by-setup.txt").exists()
    assert repo.commits() == []
    assert "check litters changed a.txt; put back" in repo.read("progress.txt")
