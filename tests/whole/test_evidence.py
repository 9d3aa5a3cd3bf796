"""What passes, and what it costs to know: evidence, what binds, results remembered by
tree, the re-check. Each test is a night in a real repository."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

import pytest

from tests.conftest import ROOT, Repo
from tests.scripts import red

MAKES = 'P(f"{task}.txt").write_text("good\\n")'
IDLE = "pass"


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
    checks = ["test -f build/app && test -f T1.txt"]
    repo.plan({"checks": checks}, {"checks": ["test -f build/app"]}, checks=[BUILDS])
    code, _, printed = repo.run(repo.agent("if task == 'T1': " + MAKES))
    said = ["T1 passed", "T2 no-op", "T2 no-op"]
    assert (code, repo.verdicts()) == (4, said), printed
    assert repo.ralph("doctor", "--agent", "true").returncode == 0
    repo.git("switch", "-qc", "mine")
    assert repo.ralph("land").returncode == 0


# ---------------------------------------------------------------- evidence

ENDS = {"well": (3, IDLE), "with an error": (1, "sys.exit(3)")}


@pytest.mark.parametrize("ends", ENDS)
def test_a_check_that_turns_green_by_itself_passes_nothing(
    repo: Repo, ends: str
) -> None:
    attempts, script = ENDS[ends]
    repo.plan({"checks": [once_red(repo)]}, limits={"attempts": attempts})
    code, _, printed = repo.run(repo.agent(script))
    assert (code, repo.passed(), repo.commits()) == (4, [], []), printed
    (task,) = status(repo)["tasks"]
    assert task["flaky"] == repo.records("verdict")[-1]["flaky"] == ["once"]
    assert "flaky: once" in repo.ralph("status").stdout
    assert "flaky" in repo.ralph("report", "-o", "-").stdout


def test_a_flaky_check_and_a_change_of_a_dead_agent_are_no_pass(repo: Repo) -> None:
    repo.plan({"checks": [once_red(repo)]}, limits={"attempts": 1})
    before = f"P({str(repo.outside / 'up')!r}).unlink(missing_ok=True); "
    repo.run(repo.agent(before + "P('x').touch(); sys.exit(3)"))
    assert (repo.passed(), repo.verdicts()) == ([], ["T1 failed"])


# ---------------------------------------------------------------- what binds


def test_a_failed_attempt_that_turns_a_red_suite_green_binds_nobody(repo: Repo) -> None:
    repo.plan(
        {"checks": ["false"]}, own("T2"), own("T3"), checks=[red("test -f fixed")]
    )
    agent = repo.agent(MAKES + "\nif task == 'T1': P('fixed').touch()")
    code, summary, printed = repo.run(agent, "--max-attempts", "2")
    assert (code, repo.passed()) == (4, ["T2", "T3"]), printed
    passes = [one for one in repo.records("verdict") if one["verdict"] == "passed"]
    assert all(one["beside"] == ["test -f fixed"] for one in passes)
    assert "test -f fixed" in summary["reason"]


def test_a_task_that_mends_the_suite_passes_and_the_next_must_keep_it(
    repo: Repo,
) -> None:
    repo.plan({}, own("T2"), checks=[red("test -f fixed")])
    agent = repo.agent(
        "if task == 'T1': P('fixed').touch()\n"
        f"else:\n    {MAKES}\n    P('fixed').unlink() if attempt == 1 else P('fixed').touch()"
    )
    code, _, printed = repo.run(agent)
    assert (code, repo.verdicts()) == (0, ["T1 passed", "T2 failed", "T2 passed"]), (
        printed
    )
    assert not any(one.get("weak") for one in repo.records("verdict"))


def test_a_database_that_dies_in_the_night_blocks_nobody(repo: Repo) -> None:
    down = repo.outside / "down"
    repo.plan(own("T1"), own("T2"), own("T3"), checks=[f"test ! -e {down}"])
    agent = repo.agent(MAKES + f"\nif task == 'T2': P({str(down)!r}).touch()")
    code, summary, printed = repo.run(agent)
    assert (code, repo.passed()) == (4, ["T1", "T2", "T3"]), printed
    said = "T1 passed, T2 failed, T2 failed, T2 passed, T3 passed"
    assert ", ".join(repo.verdicts()) == said
    beside = [len(one.get("beside", [])) for one in repo.records("verdict")]
    assert beside == [0, 0, 0, 1, 1]
    assert "not all checks are green" in summary["reason"]


def test_a_check_that_cannot_start_costs_no_agent(repo: Repo) -> None:
    repo.plan({"checks": ["no-such-tool --help"]}, {"checks": ["./bin/tool --help"]})
    agent = repo.agent(
        "(OUT / task).touch(); P('bin').mkdir(); P('bin/tool').write_text('#!/bin/sh\\n'); sh('chmod +x bin/tool')"
    )
    code, summary, printed = repo.run(agent)
    assert (code, repo.passed()) == (4, ["T2"]), printed
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
    repo.plan({"checks": ["grep -q 3 T1.txt"]}, checks=[suite, linter])
    agent = repo.agent("P('T1.txt').write_text(str(attempt))")
    code, _, printed = repo.run(agent)
    assert (code, repo.passed()) == (4, ["T1"]), printed
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
    code, summary, _ = repo.run(agent)
    reason = summary["tasks"][0]["reason"]
    assert (code, repo.verdicts()) == (4, ["T1 failed"] * 3)
    assert "tests/a.py" in reason and "already done" not in reason
    assert (
        '"allow": ["conftest.py", "tests/a.py"]' in reason
        and '"allow": [' in repo.read("../p")
    )
    repo.ralph("retry", "T1")
    plan = json.loads(repo.read("prd.json"))
    plan["userStories"][0]["allow"] = ["tests/a.py"]
    repo.write("prd.json", json.dumps(plan))
    assert repo.run(agent)[0] == 0 and repo.landed("tests/a.py") == "x"


# ---------------------------------------------------------------- remembered by tree


@pytest.mark.parametrize("jobs", [1, 3])
def test_ten_tasks_that_pass_at_once_cost_ten_runs_of_the_suite_one_before_and_one_after(
    repo: Repo, jobs: int
) -> None:
    tasks = [f"T{number}" for number in range(1, 11)]
    checks = {task: counted(repo, task, f"test -f {task}.txt") for task in tasks}
    repo.plan(
        *({"checks": [check]} for check in checks.values()),
        checks=[counted(repo, "suite")],
    )
    code, _, printed = repo.run(repo.agent(MAKES), "--jobs", str(jobs))
    assert (code, repo.passed()) == (0, tasks), printed
    assert runs(repo, "suite") == 12
    assert {runs(repo, task) for task in tasks} == {3}


def test_a_tree_that_was_looked_at_goes_to_no_room_again(repo: Repo) -> None:
    repo.plan(
        {"checks": [counted(repo, "own", "false")]},
        checks=[counted(repo, "suite")],
        limits={"attempts": 4},
    )
    deeds = [
        "pass",
        "P('x').touch()",
        "pass",
        "pass",
    ]  # nothing; a change; the same change; clean, nothing
    code, _, _ = repo.run(
        repo.agent(f"exec({deeds}[attempt - 1])"), "--max-iterations", "3"
    )
    assert (code, repo.verdicts()) == (3, ["T1 failed"] * 3)
    assert (runs(repo, "suite"), runs(repo, "own")) == (2, 2)
    assert "failed with exit 1 (as before)" in repo.read("progress.txt")


def test_what_a_person_mends_beside_the_tree_counts_after_a_retry(repo: Repo) -> None:
    """The same tree is looked at again, in the same run."""
    key = repo.outside / "key"
    checks = [f"test -e {key} && test -f T1.txt"]
    repo.plan({"checks": checks}, limits={"attempts": 1})
    notify = f"test -e {key} || {{ touch {key}; cd {repo.path}; {repo.outside}/bin/ralph retry T1; }}"
    repo.tool("ralph", f'exec {sys.executable} {ROOT}/ralph.py "$@"')
    code, _, printed = repo.run(repo.agent(MAKES), "--notify", notify)
    assert (code, repo.passed()) == (0, ["T1"]), printed
    assert not any(
        one.get("flaky") or one.get("weak") for one in repo.records("verdict")
    )


# ---------------------------------------------------------------- the re-check


def test_what_is_red_once_in_the_re_check_is_flaky(repo: Repo) -> None:
    seen = repo.outside / "seen"
    in_new = f"case $PWD in */room-[2-9]*) test -e {seen} || {{ touch {seen}; exit 1; }};; esac"
    repo.plan({"checks": [f"{in_new}; test -f T1.txt"]})
    code, _, printed = repo.run(repo.agent(MAKES))
    assert (code, repo.passed()) == (0, ["T1"]), printed
    assert repo.records("recheck")[0]["flaky"] != []


def test_a_task_that_was_set_back_sees_why_and_must_keep_what_the_others_need(
    repo: Repo,
) -> None:
    repo.plan(
        {"checks": ["test -f T1.txt"]},
        {"checks": ["test -f T2.txt"]},
        limits={"attempts": 3},
    )
    agent = repo.agent(
        "n = len(list(pathlib.Path(OUT).glob('prompt*'))) + 1; (OUT / f'prompt{n}').write_text(prompt)\n"
        "P(f'{task}.txt').touch()\n"
        "if n == 2: P('T1.txt').unlink()\n"  # T2 breaks T1
        "if n == 3: P('T2.txt').unlink()\n"  # T1, worked again, would break T2
        "if n == 4: P('T2.txt').touch()\n"
    )
    code, _, printed = repo.run(agent)
    assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
    assert repo.verdicts() == ["T1 passed", "T2 passed", "T1 failed", "T1 passed"]
    again = repo.read("../prompt3")
    assert "T2: task 2" in again and "test -f T2.txt" in again
    assert "The first failing check was `test -f T1.txt`" in again


def test_a_pass_that_is_broken_a_second_time_is_left_to_a_person(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), {**own("T3"), "dependsOn": ["T1"]})
    agent = repo.agent(MAKES + "\nif task != 'T1': P('T1.txt').unlink()")
    code, _, printed = repo.run(agent, "--max-iterations", "2")
    assert (code, repo.passed()) == (3, ["T2"]), printed
    code, summary, printed = repo.run(agent)
    assert (code, repo.passed()) == (4, ["T2", "T3"]), printed
    assert summary["tasks"][0]["reason"].startswith("conflicting: it passed twice")


def test_what_is_green_in_the_room_and_red_in_one_made_anew_sets_nobody_back(
    repo: Repo,
) -> None:
    here = f"test -e {repo.outside}/other || case $PWD in */room-[2-9]*) exit 1;; esac"
    repo.plan({"checks": [f"{here}; test -f T1.txt"]}, checks=[here])
    code, summary, _ = repo.run(repo.agent(MAKES))
    assert (code, repo.passed()) == (4, ["T1"])
    assert (
        "it passed in the clean room, and fails in a new checkout" in summary["reason"]
    )
    assert repo.records("recheck")[0].get("broken", []) == []


def test_a_run_that_was_cut_short_leaves_its_final_check_due(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    agent = repo.agent(
        MAKES
        + "\nif task == 'T2' and not (OUT / 'again').exists():\n    (OUT / 'hangs').touch(); time.sleep(60)"
    )
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../hangs")
    process.send_signal(signal.SIGTERM)
    process.wait(20)
    assert (
        repo.passed() == ["T1"]
        and status(repo)["final_check_due"]
        and not repo.records("recheck")
    )
    (repo.outside / "again").touch()
    assert repo.run(agent)[0] == 0
    events = [one["event"] for one in repo.records()]
    after = events[events.index("stop") :]
    # what was cut off is closed, and then the check comes before anything is paid
    assert after[:4] == ["stop", "verdict", "run", "recheck"]
    assert not status(repo)["final_check_due"]


def test_two_no_ops_in_a_row_ask_whether_it_is_done_already(repo: Repo) -> None:
    repo.plan({}, checks=["true"])
    code, summary, _ = repo.run(repo.agent("(OUT / 'p').write_text(prompt)"))
    assert code == 4
    assert repo.verdicts() == ["T1 no-op", "T1 no-op"]
    assert "already done?" in summary["tasks"][0]["reason"]
    assert "add a test that proves it" in repo.read("../p")


# The checks of the plan; and of each task its own checks, and whether its pass is weak:
# none of all these went from red to green for it. Red beside it is another remark.
PASSES: list[tuple[list[Any], list[tuple[str, bool]]]] = [
    ([], [("test -f T1.txt", False), ("test -f a.txt", True)]),
    ([red("test -f T1.txt")], [("", False), ("", True)]),
    ([red("false")], [("test -f a.txt", True), ("test -f T2.txt", False)]),
]


@pytest.mark.parametrize(("checks", "tasks"), PASSES)
def test_a_pass_without_a_check_that_went_from_red_to_green_is_weak(
    repo: Repo, checks: list[Any], tasks: list[tuple[str, bool]]
) -> None:
    repo.plan(*({"checks": [own] if own else []} for own, _ in tasks), checks=checks)
    _, summary, printed = repo.run(repo.agent(MAKES))
    weak = [is_weak for _, is_weak in tasks]
    assert repo.verdicts() == ["T1 passed", "T2 passed"], printed
    assert printed.count("weak: nothing turned green") == sum(weak)
    beside = ["false"] if red("false") in checks else []
    for record, is_weak in zip(repo.records("verdict"), weak, strict=True):
        assert record.get("weak", False) is is_weak
        assert record.get("beside", []) == beside
    assert [task["weak"] for task in summary["tasks"]] == weak
    assert "(weak" in repo.ralph("status").stdout


def test_what_checks_and_setup_write_is_neither_work_nor_committed(repo: Repo) -> None:
    check = {"name": "litters", "run": "echo x > made-by-check.txt; echo y >> a.txt"}
    clean = "test -e made-by-check.txt && grep -qx a a.txt && test $(wc -l < a.txt) = 1"
    repo.plan({}, checks=[check, clean], setup="echo s > made-by-setup.txt")
    code, _, _ = repo.run(repo.agent("pass"), "--max-iterations", "1")
    assert (code, repo.verdicts()) == (3, ["T1 no-op"])
    assert repo.records("verdict")[0]["checks"] == {check["run"]: True, clean: True}
    assert (
        repo.read("a.txt") == "a\n" and not (repo.path / "made-by-setup.txt").exists()
    )
    assert repo.commits() == []
    assert "check litters changed a.txt; put back" in repo.read("progress.txt")
