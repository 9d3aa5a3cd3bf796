"""A night as a whole: what passes and what is blocked, the last check, tasks that
cannot be done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Repo, sample
from tests.scripts import LIMIT, LOOKS_OFTEN, RESULT, plan, speaker

MAKES = 'P(f"{task}.txt").write_text("good\\n")'


def own(task: str, **more: Any) -> dict[str, Any]:
    return {"checks": [f"grep -q good {task}.txt"], **more}


def rechecks(repo: Repo) -> list[tuple[int, bool, list[str]]]:
    """Each last check: how many attempts there were before it, whether it was green,
    and what it broke."""
    found, attempts = [], 0
    for record in repo.records():
        attempts += record["event"] == "verdict"
        if record["event"] == "recheck":
            broken = [key.split("\n")[0] for key in record.get("broken", [])]
            found.append((attempts, record.get("ok", False), broken))
    return found


# ---------------------------------------------------------------- the last check


def test_the_last_check_is_in_a_place_made_anew(repo: Repo) -> None:
    """What setup made in the room, and what an earlier check left there, is not in
    it."""
    setup = f"echo x >> setup.log; pwd >> {repo.outside}/setups; cat setup.log | wc -l >> {repo.outside}/setups"
    repo.write(".gitignore", "*.log\n*.cache\n")
    repo.commit("ignore")
    check = f"test -f T1.txt && {{ pwd; ls *.cache 2> /dev/null; touch x.cache; true; }} >> {repo.outside}/checks"
    repo.plan(
        {"checks": [check]},
        setup={"run": setup, "when": "package.json"},
        keep=["*.cache"],
    )
    assert repo.run(repo.agent(MAKES))[0] == 0
    places = [str(repo.places / name) for name in ("room-1", "work-1", "room-2")]
    assert repo.read("../setups").split() == [
        word for place in places for word in (place, "1")
    ]
    assert repo.read("../checks").split() == [places[0], places[2]]  # it found no cache
    assert not (repo.places / "room-1").exists()


def test_a_check_that_only_a_warm_room_makes_green_is_found_by_the_last_check(
    repo: Repo,
) -> None:
    """T1's product lies in the room, for the plan keeps it; a fresh checkout has
    none."""
    repo.write(".gitignore", "built/\n")
    repo.commit("ignore")
    builds = {
        "checks": [
            {"run": "test -f T1.txt && mkdir -p built && touch built/x", "once": True}
        ]
    }
    repo.plan(
        builds, {"checks": ["test -f T2.txt && test -f built/x"]}, keep=["built/"]
    )
    agent = repo.agent(
        "P(f'{task}.txt').touch()\nif task == 'T2' and attempt == 1: P('b').touch()"
    )
    code, summary, _ = repo.run(agent, "--max-iterations", "2")
    assert (code, summary["stop"], repo.passed()) == (3, "limit", ["T1"])
    assert rechecks(repo) == [(2, False, ["T2"])]


# How a run ends after T2 broke T1: the exit status, the words it is started with, and
# what its agent does then.
STOPS: dict[str, tuple[int, list[str], str]] = {
    "limit": (3, ["--max-iterations", "2"], ""),
    "once": (3, ["--once", "--task", "T2"], ""),
    "asked": (
        3,
        [],
        "[it] = P('HOME/.git/ralph').iterdir(); (it / 'stop').write_text(os.environ['RALPH_RUN_ID'])",
    ),
    "stuck": (4, [], "P('x').touch()"),
    "unavailable": (5, [], "sys.exit('not logged in')"),
    "limited": (75, ["--max-wait", "0"], f"print({LIMIT!r}); sys.exit(1)"),
}


@pytest.mark.parametrize("stop", sample(STOPS, 4))
def test_before_every_ordinary_stop_what_no_longer_holds_is_set_back(
    repo: Repo, stop: str
) -> None:
    wanted, words, then = STOPS[stop]
    plan(repo, own("T1"), own("T2"), own("T3"), limits={"attempts": 1})
    at = "T2" if stop == "asked" else "T3"
    works = f"if task != 'T3': {MAKES}\nif task == 'T2': P('T1.txt').unlink()\nif task == 'T1': P('T3.txt').touch()\n"
    deed = f"if task == '{at}': {then.replace('HOME', str(repo.path)) or 'pass'}\n"
    agent = speaker(repo, f"{works}{deed}print({RESULT!r})")
    if stop == "once":
        assert repo.run(agent, "--once")[0] == 0
    soon = f"{LOOKS_OFTEN}\nlimits.STUCK = 1\nfrom _ralph.state import history\nhistory.RETRY_LOGIN = 0.5\n"
    code, summary, printed = repo.run(agent, *words, first=soon)
    assert (code, summary["stop"]) == (wanted, stop), printed
    assert repo.passed() == ["T2"]
    # a stuck run may check what is left once more
    assert (False, ["T1"]) in [check[1:] for check in rechecks(repo)]
    assert "T1 passed at iteration 1, broken since" in printed
    assert repo.records()[-1]["event"] == "stop"


def test_nothing_is_checked_again_where_nothing_landed_since(repo: Repo) -> None:
    repo.plan(own("T1"), {"checks": ["false"]}, limits={"attempts": 1})
    agent = repo.agent(MAKES)
    assert repo.run(agent)[0] == repo.run(agent)[0] == 4
    assert repo.ralph("retry", "T2").returncode == 0
    assert repo.run(agent)[0] == 4
    assert rechecks(repo) == [(2, True, [])]


def test_what_was_set_back_is_worked_in_the_same_run_and_told_why(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    agent = repo.agent(
        "(OUT / f'{task}-prompt').write_text(prompt)\n"
        + MAKES
        + '\nif task == "T2" and not (OUT / "once").exists(): (OUT / "once").touch(); P("T1.txt").unlink()'
    )
    code, _, _ = repo.run(agent)
    assert code == 0
    assert repo.verdicts() == ["T1 passed", "T2 passed", "T1 passed"]
    assert rechecks(repo) == [(2, False, ["T1"]), (3, True, [])]
    assert "T1 passed at iteration 1, broken since\n    | " in repo.read("progress.txt")
    told = repo.read("../T1-prompt")
    assert (
        "it passed at iteration 1, and later work broke it" in told
        and "T2: task 2" in told
    )
    assert "Its work is still there" in told and "put aside" not in told


def test_what_is_worked_again_must_keep_what_the_others_passed_by(repo: Repo) -> None:
    """T3 breaks the two before it, which exclude each other: one of them is left to a
    person."""
    repo.plan(
        {"checks": ["grep -q 1 x.txt"]}, {"checks": ["grep -q 2 x.txt"]}, own("T3")
    )
    code, summary, _ = repo.run(
        repo.agent("P('x.txt').write_text(task[1:])\n" + MAKES), timeout=90
    )
    assert code == 4
    assert [task["state"] for task in summary["tasks"]] == [
        "passed",
        "blocked",
        "passed",
    ]
    assert "grep -q 1 x.txt failed" in summary["tasks"][1]["reason"]
    passed, failed = [f"T{i} passed" for i in (1, 2, 3, 1)], ["T2 failed"] * 3
    assert repo.verdicts() == passed + failed and repo.landed("x.txt") == "1"


# ---------------------------------------------------------------- tasks that cannot be done


@pytest.mark.parametrize("first", sample([1, 3], 2))
def test_three_impossible_tasks_in_the_middle_do_not_cost_those_behind_them(
    repo: Repo, first: int
) -> None:
    """Where something has passed in this run; else three in a row say that nothing
    will."""
    impossible = range(first, first + 3)
    tasks = [
        {"checks": ["false"]} if i in impossible else own(f"T{i}") for i in range(1, 8)
    ]
    repo.plan(*tasks, limits={"attempts": 1})
    code, summary, _ = repo.run(repo.agent(MAKES), timeout=90)
    assert code == 4
    if first == 1:
        assert (summary["stop"], repo.verdicts()) == (
            "stuck",
            ["T1 failed", "T2 failed", "T3 failed"],
        )
    else:
        assert summary["stop"] == "blocked"
        assert repo.passed() == [f"T{i}" for i in (1, 2, 6, 7)]


# ---------------------------------------------------------------- people meanwhile


def test_the_second_night_begins_with_what_was_merged_and_sees_the_new_task(
    repo: Repo,
) -> None:
    repo.plan(own("T1"))
    assert repo.run(repo.agent(MAKES))[0] == 0
    repo.git("merge", "--no-ff", "-m", "merged", "ralph/p")
    repo.write("people.txt", "theirs\n")
    repo.git("add", "people.txt", "prd.json", "progress.txt")
    repo.git("commit", "-qm", "the day")
    assert (
        repo.ralph("add", "the second", "--check", "test -f second.txt").returncode == 0
    )
    agent = repo.agent(
        "(OUT / 'saw').write_text(P('prd.json').read_text() + P('people.txt').read_text()); P('second.txt').touch()"
    )
    code, summary, printed = repo.run(agent)
    assert (code, summary["passed"], summary["total"]) == (0, 2, 2), printed
    assert "restarted from your HEAD" in printed
    assert "the second" in repo.read("../saw") and "theirs" in repo.read("../saw")
    assert len(repo.commits()) == 1 and repo.has_landed("people.txt")
    repo.git("merge", "-q", "--ff-only", "ralph/p")
    assert (repo.path / "second.txt").exists()


def test_every_task_ends_as_one_commit_on_a_branch_and_home_stays_as_it_was(
    repo: Repo,
) -> None:
    repo.plan(own("T1"), own("T2"), checks=["test -f a.txt"])
    code, summary, _ = repo.run(repo.agent(MAKES))
    assert (code, summary["stop"], summary["passed"], summary["total"]) == (
        0,
        "complete",
        2,
        2,
    )
    assert repo.passed() == ["T1", "T2"]
    assert repo.commits() == ["T2: task 2", "T1: task 1"]
    message = repo.git("log", "-1", "--format=%B", "ralph/p~1")
    assert "Ralph-Attempt: " in message and "Ralph-Agent: " in message
    assert repo.git("show", "--format=", "--name-only", "ralph/p").split() == ["T2.txt"]
    assert repo.git("branch", "--show-current").strip() == "main"
    assert repo.git("status", "--porcelain").split() == [
        "??",
        "prd.json",
        "??",
        "progress.txt",
    ]
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
    for needed in (
        "attempt 2 of 3",
        "a bad word",
        "`words`",
        "writing a bad word",
        "words are checked",
    ):
        assert needed in second


def test_a_task_that_fails_three_times_is_blocked_and_its_work_is_parked(
    repo: Repo,
) -> None:
    repo.plan(
        {**own("T1"), "priority": 1}, {"dependsOn": ["T1"], **own("T2")}, own("T3")
    )
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
    assert (
        "3 failed attempts"
        in json.loads(repo.read("prd.json"))["userStories"][0]["blocked"]
    )
    assert not repo.has_landed("T1.txt") and repo.has_landed("T3.txt")
    parked = repo.records("verdict")[2]["parked"]
    assert repo.git("show", f"{parked}:T1.txt") == "bad 3"
    before = repo.git(
        "for-each-ref", "--format=%(refname)", "refs/ralph/parked/**/0003-T1-before"
    ).strip()
    assert repo.git("show", f"{before}:T1.txt") == "bad 2"

    assert repo.ralph("retry", "T1", "--answer", "write good").returncode == 0
    code, _, _ = repo.run(repo.agent('P(f"{task}.txt").write_text("good")'))
    assert code == 0
    assert repo.passed() == ["T1", "T2", "T3"]


def test_a_task_does_not_start_in_anothers_leftovers(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    agent = repo.agent(
        "P(f'{task}-half.txt').touch()\nif task == 'T2': P('T2.txt').write_text('good')"
    )
    assert repo.run(agent, "--once", "--task", "T1")[0] == 3
    assert repo.run(agent, "--once", "--task", "T2")[0] == 0
    assert repo.git("diff", "--name-only", "main", "ralph/p").split() == [
        "T2-half.txt",
        "T2.txt",
    ]
    agent = repo.agent(
        "P('T1.txt').write_text('good' if P('T1-half.txt').exists() else '')"
    )
    assert repo.run(agent, "--once", "--task", "T1")[0] == 0  # its own were not lost
