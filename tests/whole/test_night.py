"""A night as a whole: the last check, tasks that cannot be done, people's commits and edits meanwhile."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Repo, sample
from tests.loop.test_waits import LIMIT, RESULT, plan, speaker, wait_for_records

MAKES = 'P(f"{task}.txt").write_text("good\\n")'


def own(task: str, **more: Any) -> dict[str, Any]:
    return {"checks": [f"grep -q good {task}.txt"], **more}


def rechecks(repo: Repo) -> list[tuple[int, bool, list[str]]]:
    """Each last check: how many attempts there were before it, whether it was green, and what it broke."""
    found, attempts = [], 0
    for record in repo.records():
        attempts += record["event"] == "verdict"
        if record["event"] == "recheck":
            broken = [key.split("\n")[0] for key in record.get("broken", [])]
            found.append((attempts, record.get("ok", False), broken))
    return found


# ---------------------------------------------------------------- the last check


def test_the_last_check_is_in_a_place_made_anew(repo: Repo) -> None:
    """What setup made in the room, and what an earlier check left there, is not in it."""
    setup = (
        f"echo x >> setup.log; pwd >> {repo.outside}/setups; cat setup.log | wc -l >> {repo.outside}/setups"
    )
    repo.write(".gitignore", "*.log\n*.cache\n")
    repo.commit("ignore")
    check = (
        f"test -f T1.txt && {{ pwd; ls *.cache 2> /dev/null; touch x.cache; true; }} >> {repo.outside}/checks"
    )
    repo.plan({"checks": [check]}, setup={"run": setup, "when": "package.json"}, keep=["*.cache"])
    assert repo.run(repo.agent(MAKES))[0] == 0
    places = [str(repo.places / name) for name in ("room-1", "work-1", "room-2")]
    assert repo.read("../setups").split() == [word for place in places for word in (place, "1")]
    assert repo.read("../checks").split() == [places[0], places[2]]  # it found no cache
    assert not (repo.places / "room-1").exists()


def test_a_check_that_only_a_warm_room_makes_green_is_found_by_the_last_check(repo: Repo) -> None:
    """T1's product lies in the room, for the plan keeps it; a fresh checkout has none."""
    repo.write(".gitignore", "built/\n")
    repo.commit("ignore")
    builds = {"checks": [{"run": "test -f T1.txt && mkdir -p built && touch built/x", "once": True}]}
    repo.plan(builds, {"checks": ["test -f T2.txt && test -f built/x"]}, keep=["built/"])
    agent = repo.agent("P(f'{task}.txt').touch()\nif task == 'T2' and attempt == 1: P('b').touch()")
    code, summary, _ = repo.run(agent, "--max-iterations", "2")
    assert (code, summary["stop"], repo.passed()) == (3, "limit", ["T1"])
    assert rechecks(repo) == [(2, False, ["T2"])]


# How a run ends after T2 broke T1: the exit status, the words it is started with, and what its agent does then.
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
    "limited": (75, ["--no-wait"], f"print({LIMIT!r}); sys.exit(1)"),
}


@pytest.mark.parametrize("stop", sample(STOPS, 4))
def test_before_every_ordinary_stop_what_no_longer_holds_is_set_back(repo: Repo, stop: str) -> None:
    wanted, words, then = STOPS[stop]
    plan(repo, own("T1"), own("T2"), own("T3"), limits={"attempts": 1, "stuck": 1})
    at = "T2" if stop == "asked" else "T3"
    works = f"if task != 'T3': {MAKES}\nif task == 'T2': P('T1.txt').unlink()\nif task == 'T1': P('T3.txt').touch()\n"
    deed = f"if task == '{at}': {then.replace('HOME', str(repo.path)) or 'pass'}\n"
    agent = speaker(repo, f"{works}{deed}print({RESULT!r})")
    if stop == "once":
        assert repo.run(agent, "--once")[0] == 0
    code, summary, printed = repo.run(agent, *words)
    assert (code, summary["stop"]) == (wanted, stop), printed
    assert repo.passed() == ["T2"]
    assert rechecks(repo)[-1][1:] == (False, ["T1"])
    assert "T1 passed at iteration 1, broken since" in printed
    assert repo.records()[-1]["event"] == "stop"


def test_a_run_that_ends_with_a_red_check_of_the_plan_checks_once(repo: Repo) -> None:
    repo.plan(own("T1"), checks=["false"])
    code, summary, _ = repo.run(repo.agent(MAKES))
    assert (code, summary["stop"]) == (4, "red-checks")
    assert rechecks(repo) == [(1, False, [])]


def test_checks_of_tasks_that_did_not_pass_are_no_part_of_the_last_check(repo: Repo) -> None:
    repo.plan(own("T1"), {"checks": [f"echo x >> {repo.outside}/ran; false"]}, limits={"attempts": 1})
    code, _, _ = repo.run(repo.agent(MAKES))
    assert (code, repo.read("../ran")) == (4, "x\nx\nx\n")  # before the work, after it, once more
    assert rechecks(repo) == [(2, True, [])]


def test_nothing_is_checked_again_where_nothing_landed_since(repo: Repo) -> None:
    repo.plan(own("T1"), {"checks": ["false"]}, limits={"attempts": 1})
    agent = repo.agent(MAKES)
    assert repo.run(agent)[0] == repo.run(agent)[0] == 4
    assert repo.ralph("retry", "T2").returncode == 0
    assert repo.run(agent)[0] == 4
    assert rechecks(repo) == [(2, True, [])]


def test_before_the_end_the_whole_branch_is_checked_and_what_broke_is_worked_again(repo: Repo) -> None:
    """T4 breaks T1."""
    repo.plan(*[own(f"T{i}") for i in range(1, 12)])
    agent = repo.agent(MAKES + "\nif task == 'T4' and attempt == 1: P('T1.txt').unlink(missing_ok=True)")
    code, _, _ = repo.run(agent)
    assert (code, len(repo.passed())) == (0, 11)
    order = [verdict.split()[0] for verdict in repo.verdicts()]
    assert order == [*(f"T{i}" for i in range(1, 12)), "T1"]
    assert rechecks(repo) == [(11, False, ["T1"]), (12, True, [])]


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
    assert "it passed at iteration 1, and later work broke it" in told and "T2: task 2" in told
    assert "Its work is still there" in told and "put aside" not in told


def test_what_is_worked_again_must_keep_what_the_others_passed_by(repo: Repo) -> None:
    """T3 breaks the two before it, which exclude each other: one of them is left to a person."""
    repo.plan({"checks": ["grep -q 1 x.txt"]}, {"checks": ["grep -q 2 x.txt"]}, own("T3"))
    code, summary, _ = repo.run(repo.agent("P('x.txt').write_text(task[1:])\n" + MAKES), timeout=90)
    assert code == 4
    assert [task["state"] for task in summary["tasks"]] == ["passed", "blocked", "passed"]
    assert "grep -q 1 x.txt failed" in summary["tasks"][1]["reason"]
    passed, failed = [f"T{i} passed" for i in (1, 2, 3, 1)], ["T2 failed"] * 3
    assert repo.verdicts() == passed + failed and repo.landed("x.txt") == "1"


# ---------------------------------------------------------------- tasks that cannot be done


@pytest.mark.parametrize("first", sample([1, 3], 2))
def test_three_impossible_tasks_in_the_middle_do_not_cost_those_behind_them(repo: Repo, first: int) -> None:
    """Where something has passed in this run; else three in a row say that nothing will."""
    impossible = range(first, first + 3)
    tasks = [{"checks": ["false"]} if i in impossible else own(f"T{i}") for i in range(1, 8)]
    repo.plan(*tasks, limits={"attempts": 1})
    code, summary, _ = repo.run(repo.agent(MAKES), timeout=90)
    assert code == 4
    if first == 1:
        assert (summary["stop"], repo.verdicts()) == ("stuck", ["T1 failed", "T2 failed", "T3 failed"])
    else:
        assert summary["stop"] == "blocked"
        assert repo.passed() == [f"T{i}" for i in (1, 2, 6, 7)]


@pytest.mark.parametrize(("limits", "tried"), sample([({"stuck": 2}, 2), ({}, 6)], 2))
def test_so_many_in_a_row_end_the_run_though_something_passed(
    repo: Repo, limits: dict[str, int], tried: int
) -> None:
    repo.plan(own("T1"), *[{"checks": ["false"]}] * 9, limits={"attempts": 1, **limits})
    code, summary, _ = repo.run(repo.agent(MAKES), timeout=90)
    assert (code, summary["stop"], len(repo.verdicts())) == (4, "stuck", 1 + tried)
    assert rechecks(repo)[-1] == (1 + tried, True, [])


# ---------------------------------------------------------------- people meanwhile


def commits(name: str, content: str) -> str:
    """What a person does on ralph's branch while the agent works, in the shell, and then switches away."""
    return (
        f"""cd {{0}}/mine && git switch -q ralph/p && echo "{content}" > {name} && git add {name} && """
        f"""git commit -qm "mine {name}" && git switch -q --detach"""
    )


def with_tree(repo: Repo) -> None:
    """A folder beside home in which a person works."""
    repo.git("worktree", "add", "-q", "--detach", f"{repo.outside}/mine")


def person(repo: Repo, deed: str) -> str:
    """Python for an agent: a person does that now, at home and not in the agent's environment."""
    env = {key: repo.env[key] for key in ("PATH", "HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")}
    return f"subprocess.run(['sh', '-ec', {deed.format(repo.outside)!r}], env={env!r}, check=True)\n"


def test_a_persons_commit_that_merges_is_part_of_what_lands(repo: Repo) -> None:
    with_tree(repo)
    repo.plan(
        {"checks": ["grep -q good T1.txt && ! test -f other.txt || grep -q other other.txt"]}, own("T2")
    )
    deed = person(repo, commits("other.txt", "other"))
    code, _, printed = repo.run(repo.agent(f"if task == 'T2': {deed}{MAKES}"))
    assert (code, repo.verdicts()) == (0, ["T1 passed", "T2 passed"]), printed
    assert repo.commits() == ["T2: task 2", "mine other.txt", "T1: task 1"]
    assert not (repo.outside / "mine/T2.txt").exists()


def test_a_conflict_with_a_person_s_commit_costs_no_attempt_and_is_resolved(repo: Repo) -> None:
    with_tree(repo)
    repo.plan(own("T1"), limits={"attempts": 1})
    deed = person(repo, commits("T1.txt", "mine"))
    agent = repo.agent(
        f"if not (OUT / 'once').exists(): (OUT / 'once').touch(); {deed}"
        "else: (OUT / 'found').write_text(P('T1.txt').read_text()); (OUT / 'sent').write_text(prompt)\n"
        + MAKES
    )
    code, _, printed = repo.run(agent)
    assert (code, repo.verdicts()) == (0, ["T1 conflict", "T1 passed"]), printed
    found = repo.read("../found")
    assert "mine\n" in found and "good\n" in found and "<<<<<<< " in found
    assert "**conflict**" in repo.read("../sent") and "- T1.txt" in repo.read("../sent")
    assert repo.commits() == ["T1: task 1", "mine T1.txt"]


def test_markers_that_an_agent_leaves_are_red_and_the_next_attempt_starts_clean(repo: Repo) -> None:
    with_tree(repo)
    repo.plan({"checks": ["test -f T1.txt"]}, limits={"attempts": 3})
    deed = person(repo, commits("T1.txt", "mine"))
    agent = repo.agent(
        f"with (OUT / 'turns').open('a') as turns: turns.write('x')\n"
        f"turn = (OUT / 'turns').stat().st_size\n"
        f"if turn == 1: {deed}"
        "if turn == 3: (OUT / 'found').write_text(P('T1.txt').read_text())\n"
        "if turn != 2: P('T1.txt').write_text('good')"
    )
    code, _, printed = repo.run(agent)
    assert (code, repo.verdicts()) == (0, ["T1 conflict", "T1 failed", "T1 passed"]), printed
    assert "conflict markers are left in T1.txt" in printed and repo.read("../found") == "mine\n"


def test_the_second_night_begins_with_what_was_merged_and_sees_the_new_task(repo: Repo) -> None:
    repo.plan(own("T1"))
    assert repo.run(repo.agent(MAKES))[0] == 0
    repo.git("merge", "--no-ff", "-m", "merged", "ralph/p")
    repo.write("people.txt", "theirs\n")
    repo.git("add", "people.txt", "prd.json", "progress.txt")
    repo.git("commit", "-qm", "the day")
    assert repo.ralph("add", "the second", "--check", "test -f second.txt").returncode == 0
    agent = repo.agent(
        "(OUT / 'saw').write_text(P('prd.json').read_text() + P('people.txt').read_text()); P('second.txt').touch()"
    )
    code, summary, printed = repo.run(agent)
    assert (code, summary["passed"], summary["total"]) == (0, 2, 2), printed
    assert "begins again at HEAD" in printed
    assert "the second" in repo.read("../saw") and "theirs" in repo.read("../saw")
    assert len(repo.commits()) == 1 and repo.has_landed("people.txt")
    repo.git("merge", "-q", "--ff-only", "ralph/p")
    assert (repo.path / "second.txt").exists()


def test_a_branch_that_people_went_past_goes_on_from_its_tip_and_says_so(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    assert repo.run(repo.agent(MAKES), "--once")[0] == 0
    repo.write("people.txt", "theirs\n")
    repo.git("add", "people.txt")
    repo.git("commit", "-qm", "the day")
    code, _, printed = repo.run(repo.agent(MAKES))
    assert code == 0 and "ralph/p continues from its tip; it lacks 1 commit of HEAD" in printed
    assert [not repo.has_landed("people.txt"), repo.has_landed("T1.txt"), repo.has_landed("T2.txt")] == [
        True
    ] * 3


def saves(repo: Repo, *deeds: str) -> str:
    """Python for an agent: a person's editor writes prd.json at home."""
    return f"HOME = P({str(repo.path)!r}, 'prd.json'); whole = HOME.read_text()\n" + "\n".join(deeds) + "\n"


def test_a_plan_half_saved_in_the_middle_of_a_run_is_waited_for(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    half = saves(repo, "if task == 'T1': HOME.write_text(whole[:60])")
    agent = repo.agent(
        f"{half}(OUT / f'{{task}}-prompt').write_text(prompt)\n{MAKES}\n(OUT / f'{{task}}-did').touch()"
    )
    whole = repo.read("prd.json")
    process = repo.start("run", "--agent", agent)
    wait_for_records(repo, "start", 1)
    repo.wait_for("../T1-did")
    repo.write("prd.json", whole[:80])  # an editor writes on
    (room_log,) = [repo.path / ".ralph/log/0001-T1-check1.log"]
    repo.wait_for(str(room_log))
    repo.write("prd.json", whole.replace("task 2", "words of mine"))
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert repo.passed() == ["T1", "T2"]
    assert "words of mine" in repo.read("../T2-prompt") and "words of mine" in repo.read("prd.json")
    assert "! prd.json" not in said


def test_a_plan_that_stays_broken_is_waited_for_and_said(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), own("T3"))
    whole = repo.read("prd.json")
    agent = repo.agent(saves(repo, "if task == 'T1': HOME.write_text(whole[:60])") + MAKES)
    process = repo.start("run", "--agent", agent, "--notify", f"cat >> {repo.outside}/news")
    repo.wait_for("../news")
    assert repo.verdicts() in ([], ["T1 passed"])
    shown = repo.ralph("status")
    assert shown.returncode == 0 and shown.stdout.startswith("! prd.json, line")
    assert "T3" in shown.stdout and json.loads(repo.ralph("status", "--json").stdout)["trouble"]
    repo.write("prd.json", whole)
    said, _ = process.communicate(timeout=40)
    assert process.returncode == 0, said
    assert repo.verdicts() == [f"T{i} passed" for i in (1, 2, 3)] and repo.passed() == ["T1", "T2", "T3"]
    assert said.count("nothing new starts until it can be read") == 1


def test_a_plan_that_stays_broken_ends_with_the_run_s_time(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    whole = repo.read("prd.json")
    agent = repo.agent(saves(repo, "if task == 'T1': HOME.write_text(whole[:60])") + MAKES)
    code, summary, _ = repo.run(agent, "--max-hours", "6s", timeout=60)
    assert (code, summary["stop"]) == (3, "limit") and repo.verdicts() == ["T1 passed"]
    assert repo.run(agent)[0] == 2  # at a start it is an error
    repo.write("prd.json", whole)
    assert repo.run(agent)[0] == 0 and repo.verdicts() == ["T1 passed", "T2 passed"]


def test_what_passed_while_the_plan_was_broken_is_not_worked_again_after_a_kill(repo: Repo) -> None:
    repo.plan(*map(own, ("T1", "T2")))
    whole = repo.read("prd.json")
    agent = repo.agent(saves(repo, "if task == 'T1': HOME.write_text(whole[:60])") + MAKES)
    process = repo.start("run", "--agent", agent, "--notify", f"cat >> {repo.outside}/news")
    wait_for_records(repo, "verdict", 1)
    process.kill()
    process.wait()
    assert repo.gone_within(5) and repo.verdicts() == ["T1 passed"]
    repo.write("prd.json", whole)
    assert repo.run(agent)[0] == 0 and repo.passed() == ["T1", "T2"]
    assert repo.verdicts() == ["T1 passed", "T2 passed"]


def test_what_was_blocked_while_the_plan_was_broken_is_not_worked_again(repo: Repo) -> None:
    repo.plan({"checks": ["test -e nothing"]}, own("T2"), limits={"attempts": 1})
    whole = repo.read("prd.json")
    agent = repo.agent(saves(repo, "if task == 'T1': HOME.write_text(whole[:60])") + MAKES)
    process = repo.start("run", "--agent", agent)
    wait_for_records(repo, "verdict", 1)
    process.terminate()
    process.wait()
    repo.write("prd.json", whole)
    agent = repo.agent(MAKES)
    for _ in range(2):
        assert repo.run(agent)[0] == 4 and repo.verdicts() == ["T1 failed", "T2 passed"]
    assert json.loads(repo.read("prd.json"))["userStories"][0]["blocked"]
    repo.ralph("retry", "T1")
    assert repo.run(agent)[0] == 4 and repo.verdicts() == ["T1 failed", "T2 passed", "T1 failed"]
