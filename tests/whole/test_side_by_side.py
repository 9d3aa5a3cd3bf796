"""Several at once: loops side by side, one room, one branch."""

from __future__ import annotations

import itertools
import json
import signal
import time
from typing import Any

import pytest

from tests.conftest import LITTLE_GRACE, Repo, sample
from tests.oracle import (
    BRANCH,
    end,
    every_start_has_one_verdict,
    fresh_clone_is_green,
    nothing_runs_within,
    still_running,
)
from tests.scripts import (
    LOOKS_OFTEN,
    MEET,
    NEVER_STUCK,
    RESULT,
    ROW,
    SOON,
    limited_for,
    own,
    paid,
    runs,
    speaker,
    until,
    wait_for_records,
)
from tests.whole.test_conflicts import prompts
from tests.whole.test_kills import ralphs

WORKS = "P(f'{task}.txt').write_text('good')"


def tasks(count: int, **top: object) -> list[dict[str, Any]]:
    return [{"checks": [f"grep -q good T{n}.txt"], **top} for n in range(1, count + 1)]


def chained(count: int) -> list[dict[str, Any]]:
    """Tasks of which each needs all that stand before it."""
    needs = ([f"T{n}" for n in range(1, number)] for number in range(1, count + 1))
    return [
        {**task, "dependsOn": before}
        for task, before in zip(tasks(count), needs, strict=True)
    ]


def most_at_once(repo: Repo) -> int:
    """How many attempts the records have open at once."""
    steps = {"start": 1, "verdict": -1}
    return max(
        itertools.accumulate(steps.get(record["event"], 0) for record in repo.records())
    )


def test_tasks_are_worked_side_by_side_and_land_one_after_the_other(repo: Repo) -> None:
    repo.plan(*tasks(6))
    code, summary, printed = repo.run(
        repo.agent(f"time.sleep(0.5); {WORKS}"), "--jobs", "3"
    )
    assert (code, summary["passed"]) == (0, 6), printed
    assert most_at_once(repo) == 3
    assert sorted(repo.verdicts()) == [f"T{n} passed" for n in range(1, 7)]
    assert {start.get("worker", 0) for start in repo.records("start")} == {0, 2, 3}
    assert fresh_clone_is_green(
        repo, BRANCH, [f"grep -q good T{n}.txt" for n in range(1, 7)]
    )


# ---------------------------------------------------------------- the line before the room


def test_what_is_green_alone_and_red_together_does_not_land_and_is_told_what_came_between(
    repo: Repo,
) -> None:
    repo.plan(
        *tasks(2), checks=['test -z "$(cat number-* 2>/dev/null | sort | uniq -d)"']
    )
    agent = repo.agent(
        f"""{MEET}
import subprocess
begun("T1", "T2")
others = len([one for one in P(".").glob("number-*") if one.name != f"number-{{task}}"])
if task == "T2" and number() == 1: wait(lambda: has_landed("T1"))
{WORKS}
P(f"number-{{task}}").write_text(f"{{others}}\\n")
"""
    )
    code, _, printed = repo.run(agent, "--jobs", "2")
    assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
    assert repo.verdicts() == ["T1 passed", "T2 failed", "T2 passed"]
    between = repo.git("log", "-1", "--format=%h %s", f"{BRANCH}~1").strip()
    said = f"checked on top of what was committed meanwhile: {between}"
    assert (
        said in repo.records("verdict")[1]["notices"] and said in prompts(repo, "T2")[1]
    )
    assert repo.commits() == ["T2: task 2", "T1: task 1"]


def test_a_check_may_hold_what_there_is_only_once(repo: Repo) -> None:
    """A fixed port, a database: one candidate at a time is in the room, also when a
    base is looked at."""
    port = repo.outside / "port"
    repo.plan(
        *tasks(6),
        checks=[f"mkdir {port} && sleep 0.1 && rmdir {port}"],
        limits={"attempts": 1},
    )
    code, _, printed = repo.run(repo.agent(WORKS), "--jobs", "6")
    assert (code, len(repo.passed())) == (0, 6), printed


# ---------------------------------------------------------------- who takes up what


def test_a_loop_keeps_its_task_and_its_workspace_until_it_passes_or_is_blocked(
    repo: Repo,
) -> None:
    repo.plan(*tasks(5), limits={"attempts": 3})
    where = "(OUT / 'where').open('a').write(f'{task} {P.cwd().name} {P(\"built\").exists()}\\n')"
    agent = repo.agent(
        f"{where}\nP('built').touch()\ntime.sleep(0.2)\nif task != 'T4' and attempt == 3: {WORKS}\nelse: P(f'{{task}}.part').touch()"
    )
    repo.write(".gitignore", "built\n")
    repo.commit("ignore")
    code, _, printed = repo.run(agent, "--jobs", "2")
    assert (code, repo.passed()) == (4, ["T1", "T2", "T3", "T5"]), printed
    seen: dict[str, list[str]] = {}
    for line in repo.read("../where").splitlines():
        seen.setdefault(line.split()[0], []).append(line.split()[1])
    assert all(
        len(places) == 3 and len(set(places)) == 1 for places in seen.values()
    ), seen
    order = [one["task"] for one in repo.records("start")]
    assert sorted(order[:6]) == sorted(["T1", "T2"] * 3), order


def test_more_loops_than_tasks_and_none_at_all(repo: Repo) -> None:
    repo.plan(*tasks(2))
    refused = repo.ralph("run", "--agent", repo.agent(WORKS), "--jobs", "0")
    assert (
        refused.returncode == 2
        and "'--jobs'" in refused.stderr
        and "Traceback" not in refused.stderr
    )
    code, _, printed = repo.run(repo.agent(WORKS), "--jobs", "64")
    assert (code, repo.passed()) == (0, ["T1", "T2"]), printed


def test_the_plan_says_how_many_and_the_command_line_goes_before_it(repo: Repo) -> None:
    repo.plan(*tasks(4), limits={"jobs": 2})
    agent = repo.agent(f"time.sleep(0.3); {WORKS}")
    assert repo.run(agent)[0] == 0 and most_at_once(repo) == 2
    repo.plan(*tasks(4), limits={"jobs": 2}, project="other")
    repo.write("progress.txt", "")
    assert repo.run(agent, "--jobs", "3")[0] == 0 and most_at_once(repo) == 3


def test_once_is_one_attempt_with_any_number_of_loops(repo: Repo) -> None:
    repo.plan(*tasks(3), limits={"jobs": 3})
    code, summary, _ = repo.run(repo.agent(WORKS), "--once", "--jobs", "4")
    assert (code, summary["stop"], repo.verdicts()) == (0, "once", ["T1 passed"])


def test_iterations_are_those_of_all_loops(repo: Repo) -> None:
    repo.plan(*tasks(5))
    code, summary, _ = repo.run(
        repo.agent(f"time.sleep(0.2); {WORKS}"), "--jobs", "4", "--max-iterations", "3"
    )
    assert (code, summary["stop"], len(repo.records("start")), len(repo.passed())) == (
        3,
        "limit",
        3,
        3,
    )


def test_a_chain_is_worked_one_after_the_other(repo: Repo) -> None:
    repo.plan(*chained(5))
    code, _, printed = repo.run(repo.agent(WORKS), "--jobs", "4")
    assert (code, repo.verdicts()) == (0, [f"T{n} passed" for n in range(1, 6)]), (
        printed
    )
    assert most_at_once(repo) == 1


def test_a_task_that_a_person_adds_is_taken_up_by_a_loop_that_is_free(
    repo: Repo,
) -> None:
    repo.plan(*tasks(1))
    agent = repo.agent(f"{MEET}\nif task == 'T1': wait((OUT / 'go').exists)\n{WORKS}")
    process = repo.start("run", "--agent", agent, "--jobs", "2", first=LOOKS_OFTEN)
    wait_for_records(repo, "start", 1)
    assert repo.ralph("add", "more", "--check", "grep -q good T2.txt").returncode == 0
    until(lambda: "T2 passed" in repo.verdicts(), 8)
    repo.write("../go", "")
    printed = process.communicate(timeout=20)[0]
    assert (process.returncode, repo.verdicts()) == (0, ["T2 passed", "T1 passed"]), (
        printed
    )


def test_what_is_under_way_has_not_passed_whatever_the_plan_says(repo: Repo) -> None:
    """An agent that marks its own task at home: nobody begins what depends on it."""
    repo.plan(*chained(2), limits={"attempts": 1})
    home = repo.path / "prd.json"
    agent = repo.agent(
        f"home = P({str(home)!r})\nif task == 'T1': home.write_text(home.read_text().replace('false', 'true', 1)); P('x').touch(); time.sleep(1)\nelse: {WORKS}"
    )
    code, _, printed = repo.run(agent, "--jobs", "2", first=LOOKS_OFTEN)
    assert (code, repo.passed(), repo.verdicts()) == (4, [], ["T1 failed"]), printed


def test_a_task_that_gets_another_title_while_it_is_worked_is_not_worked_twice(
    repo: Repo,
) -> None:
    repo.plan(*tasks(1))
    agent = repo.agent(f"{MEET}\nwait((OUT / 'go').exists)\n{WORKS}")
    process = repo.start("run", "--agent", agent, "--jobs", "2", first=LOOKS_OFTEN)
    wait_for_records(repo, "start", 1)
    repo.write("prd.json", repo.read("prd.json").replace("task 1", "another title"))
    time.sleep(1)
    repo.write("../go", "")
    printed = process.communicate(timeout=20)[0]
    assert process.returncode == 0 and most_at_once(repo) == 1, printed
    assert len(repo.commits()) == 1


# ---------------------------------------------------------------- how it ends


@pytest.mark.parametrize("how", ["stop", "SIGINT"])
def test_those_under_way_finish_when_it_is_asked_to_stop(repo: Repo, how: str) -> None:
    repo.plan(*tasks(4))
    process = repo.start(
        "run",
        "--agent",
        repo.agent(f"{MEET}\nwait((OUT / 'go').exists)\n{WORKS}"),
        "--jobs",
        "2",
    )
    wait_for_records(repo, "start", 2)
    if how == "stop":
        assert repo.ralph("stop").returncode == 0
    else:
        process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    repo.write("../go", "")
    printed = process.communicate(timeout=30)[0]
    assert process.returncode == (3 if how == "stop" else 130), printed
    assert (
        sorted(repo.verdicts()) == ["T1 passed", "T2 passed"]
        and len(repo.records("start")) == 2
    )
    assert nothing_runs_within(repo, 0.5), still_running(repo)


@pytest.mark.parametrize("number", sample([signal.SIGINT, signal.SIGTERM], 2))
def test_a_signal_ends_all_that_is_under_way(
    repo: Repo, number: signal.Signals
) -> None:
    repo.plan(*tasks(4))
    agent = repo.agent(
        f"{runs(repo)}(OUT / f'on-{{task}}').touch()\nif not (OUT / 'go').exists(): P('x').touch(); time.sleep(600)\n{WORKS}"
    )
    process = repo.start("run", "--agent", agent, "--jobs", "3")
    for name in ("T1", "T2", "T3"):
        repo.wait_for(f"../on-{name}")
    for _ in range(2 if number == signal.SIGINT else 1):
        process.send_signal(number)
        time.sleep(0.3)
    printed = process.communicate(timeout=20)[0]
    assert process.returncode == 128 + number, printed
    assert nothing_runs_within(repo, 0.5), still_running(repo)
    assert repo.verdicts() == [], "who must stop now writes nothing"
    repo.write("../go", "")
    code, _, printed = repo.run(agent, "--jobs", "3")
    assert (code, len(repo.passed())) == (0, 4), printed
    assert every_start_has_one_verdict(repo)


def test_the_runs_time_ends_all_that_is_under_way(repo: Repo) -> None:
    repo.plan(*tasks(4))
    began = time.monotonic()
    code, summary, printed = repo.run(
        repo.agent("P('x').touch(); time.sleep(600)"),
        "--jobs",
        "3",
        "--max-hours",
        "0.001",
        timeout=60,
    )
    assert (code, summary["stop"]) == (3, "limit"), printed
    assert time.monotonic() - began < 20
    assert nothing_runs_within(repo, 0.5), still_running(repo)
    # who was in line for the room is brought to a verdict by the next run
    assert len(repo.records("start")) == 3
    assert {one.partition(" ")[2] for one in repo.verdicts()} == {"interrupted"}
    code, _, printed = repo.run(repo.agent(WORKS), "--jobs", "2")
    assert (code, len(repo.passed())) == (0, 4), printed
    assert every_start_has_one_verdict(repo)
    assert repo.verdicts().count("T1 interrupted") == 1


@pytest.mark.parametrize(
    ("who", "count"),
    [
        *sample([("the supervisor", 5), ("the supervisor and the loops", 5)], 2),
        ("everything", 3),  # so that each task is one that was under way
    ],
)
def test_what_a_killed_supervisor_left_is_checked_before_an_agent_is_paid_for(
    repo: Repo, who: str, count: int
) -> None:
    repo.plan(*tasks(count))
    agent = repo.agent(
        f"{runs(repo)}{WORKS}\nif not (OUT / 'go').exists(): (OUT / f'on-{{task}}').touch(); time.sleep(600)"
    )
    process = repo.start("run", "-q", "--agent", agent, "--jobs", "3")
    for name in ("T1", "T2", "T3"):
        repo.wait_for(f"../on-{name}")
    halves = ralphs(repo)
    if who == "everything":
        end(repo)
    for half in {
        "the supervisor": halves[:1],
        "the supervisor and the loops": halves,
    }.get(who, []):
        half.suspend()
    for half in {
        "the supervisor": halves[:1],
        "the supervisor and the loops": halves,
    }.get(who, []):
        half.kill()
    process.communicate(timeout=10)
    if who == "the supervisor":
        assert nothing_runs_within(repo, 2), still_running(repo)
    assert repo.verdicts() == []
    repo.write("../go", "")
    code, _, printed = repo.run(agent, "--jobs", "3")
    names = [f"T{n}" for n in range(1, count + 1)]
    assert (code, repo.passed()) == (0, names), printed
    assert sorted(paid(repo)) == names, "somebody was paid twice"
    assert sorted(repo.verdicts()) == [f"{name} passed" for name in names]
    assert nothing_runs_within(repo, 0.5), still_running(repo)


def test_work_that_was_left_before_others_landed_takes_nothing_of_theirs_back(
    repo: Repo,
) -> None:
    """T1 failed, T2 landed, and T1's next attempt is killed before its agent has begun:
    what T1 left belongs to the commit that it began at, and not to the tip."""
    repo.plan(*tasks(2))
    agent = repo.agent(
        f"if task == 'T1' and attempt == 1: P('T1.txt').write_text('half')\nelse: {WORKS}"
    )
    assert repo.run(agent, "--once", "--task", "T1")[0] == 3
    assert repo.run(agent, "--once", "--task", "T2")[0] == 0
    killed = (
        "import os\nfrom _ralph.loop import work\n"
        "work.first_snapshot = lambda *_: [os.kill(one, 9) for one in (os.getppid(), os.getpid())]"
    )
    assert repo.ralph("run", "--agent", agent, first=killed).returncode == -9
    assert repo.gone_within(5)
    code, _, printed = repo.run(agent)
    assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
    assert repo.commits() == ["T1: task 1", "T2: task 2"], (
        "what had landed was taken back"
    )


def test_a_loop_that_is_killed_costs_its_attempt_and_the_others_go_on(
    repo: Repo,
) -> None:
    repo.plan(*tasks(3), limits={"attempts": 1})
    agent = repo.agent(
        f"{MEET}\n{runs(repo)}begun('T1', 'T2', 'T3')\n"
        "if task == 'T2' and number() == 1: os.kill(os.getppid(), 9); time.sleep(600)\n"
        f"if task != 'T2': wait(lambda: 'T2 interrupted' in (OUT / 'repo/progress.txt').read_text().replace('task 2 | ', ''))\n{WORKS}"
    )
    code, _, printed = repo.run(agent, "--jobs", "3")
    assert (code, len(repo.passed())) == (0, 3), printed
    assert sorted(repo.verdicts()) == [
        "T1 passed",
        "T2 interrupted",
        "T2 passed",
        "T3 passed",
    ]
    assert sorted(paid(repo)) == ["T1", "T2", "T2", "T3"]


@pytest.mark.parametrize(
    ("other", "code", "said"),
    [
        ("nowhere", 5, "'nowhere' is not on PATH"),
        ("half 'typed", 2, "cannot be split into words"),
    ],
)
def test_an_agent_that_cannot_be_had_lets_the_others_finish(
    repo: Repo, other: str, code: int, said: str
) -> None:
    """A person adds a task for an agent that is not there, while others are at work."""
    repo.plan(
        *tasks(1), agent=repo.agent(f"{MEET}\nwait((OUT / 'go').exists)\n{WORKS}")
    )
    process = repo.start("run", "--jobs", "2", first=LOOKS_OFTEN)
    wait_for_records(repo, "start", 1)
    plan = json.loads(repo.read("prd.json"))
    plan["userStories"].append({**plan["userStories"][0], "id": "T2", "agent": other})
    repo.write("prd.json", json.dumps(plan))
    time.sleep(1)
    repo.write("../go", "")
    printed = process.communicate(timeout=60)[0]
    assert process.returncode == code and said in printed
    assert (
        repo.verdicts() == ["T1 passed"] and repo.records("stop")[-1]["exit"] == code
    ), printed
    assert nothing_runs_within(repo, 0.5), still_running(repo)


def test_a_full_disk_in_one_place_loses_nothing(repo: Repo) -> None:
    """Where git can take no snapshot the run ends, and the next start goes on with what
    stands there."""
    repo.plan(*tasks(3))
    full = repo.outside / "full"
    full.touch()
    repo.tool(
        "git",
        f'case "$GIT_WORK_TREE $*" in *work-2*" add "*) if [ -e {full} ]; then echo "fatal: write error: No space left on device" >&2; exit 128; fi;; esac\n'
        f'PATH="${{PATH#*:}}" exec git "$@"',
    )
    agent = repo.agent(f"{MEET}\n{runs(repo)}begun('T1', 'T2', 'T3')\n{WORKS}")
    done = repo.ralph("run", "--agent", agent, "--jobs", "3")
    assert (
        done.returncode == 75
        and "the disk is full" in done.stderr
        and "Traceback" not in done.stderr
    )
    assert nothing_runs_within(repo, 0.5), still_running(repo)
    full.unlink()
    code, _, printed = repo.run(agent, "--jobs", "3")
    assert (code, len(repo.passed())) == (0, 3), printed
    assert sorted(paid(repo)) == ["T1", "T2", "T3"], "somebody was paid twice"


# ---------------------------------------------------------------- money, providers, people


def test_a_providers_limit_holds_back_its_own_tasks_and_no_others(repo: Repo) -> None:
    limited = f"""
if not (OUT / 'limited').exists():
    (OUT / 'limited').touch()
    print({limited_for(4)}); sys.exit(1)
{WORKS}
print('{RESULT}')
"""
    first, other = (
        speaker(repo, limited),
        repo.agent(f"time.sleep(0.3); {WORKS}", "other"),
    )
    own = [
        {**task, "agent": first if n in (0, 2) else other}
        for n, task in enumerate(tasks(6))
    ]
    repo.plan(*own, agents={"speaker": ROW})
    done = repo.ralph("run", "--jobs", "2", first=SOON)
    assert done.returncode == 0, done.stdout
    (wait,) = repo.records("wait")
    ended = {record["task"]: record["time"] for record in repo.records("verdict")}
    assert repo.verdicts()[0] == "T1 limited" and len(repo.passed()) == 6
    for name in ("T2", "T4", "T5", "T6"):
        assert ended[name] < wait["until"], repo.verdicts()
    begun = [
        one["time"] for one in repo.records("start") if one["task"] in ("T1", "T3")
    ][1:]
    assert min(begun) >= wait["until"] - 1 and len(begun) == 2


def test_an_attempt_that_began_before_a_limit_does_not_end_the_wait_for_it(
    repo: Repo,
) -> None:
    repo.plan(*tasks(3), agents={"speaker": ROW})
    say = speaker(
        repo,
        f"""{MEET}
begun("T1", "T2") if task != "T3" else None
if task == "T1" and number() == 1: print({limited_for(4)}); sys.exit(1)
if task == "T2": time.sleep(1.5)
{WORKS}
print('{RESULT}')
""",
    )
    done = repo.ralph("run", "--jobs", "2", "--agent", say, first=SOON)
    assert (done.returncode, repo.verdicts()[:2]) == (0, ["T1 limited", "T2 passed"]), (
        done.stdout
    )
    (wait,) = repo.records("wait")
    assert all(one["time"] >= wait["until"] - 1 for one in repo.records("start")[2:]), (
        done.stdout
    )


PAYS = {**ROW, "argv": ["speaker", "{budget}", "{args}"]}
SPENDS = f"""
# As Claude: it keeps to its own limit, as far as it is told one; each request costs 10
# cents.
allowed = float(sys.argv[sys.argv.index("--max-budget-usd") + 1])
wanted, usd = 0.4, 0.0
while usd < wanted - 0.001 and usd + 0.1 <= allowed + 0.001:
    usd += 0.1
    time.sleep(0.05)
(OUT / "spent").open("a").write(f"{{usd:.1f}} of {{allowed:.2f}}\\n")
result = json.loads('''{RESULT}''')
if usd < wanted - 0.001:
    print(json.dumps({{**result, "is_error": True, "subtype": "error_max_budget_usd", "total_cost_usd": usd}}))
else:
    {WORKS}
    print(json.dumps({{**result, "total_cost_usd": usd}}))
"""


@pytest.mark.parametrize("limit", sample(["1.9", "0.9", "3"], 3))
def test_four_loops_never_spend_more_than_the_limit(repo: Repo, limit: str) -> None:
    repo.plan(*tasks(8), agents={"speaker": PAYS}, limits={"attempts": 9})
    words = ("--jobs", "4", "--max-usd", limit)
    code, summary, printed = repo.run(speaker(repo, SPENDS), *words, first=NEVER_STUCK)
    assert code in (3, 4), printed
    spent = [float(line.split()[0]) for line in repo.read("../spent").splitlines()]
    assert (
        summary["usd"] == pytest.approx(sum(spent))
        and sum(spent) <= float(limit) + 1e-6
    ), spent
    shares = [float(line.split()[2]) for line in repo.read("../spent").splitlines()]
    assert all(share >= 0.1 for share in shares[:-1]), (
        shares
    )  # nobody is sent with next to nothing


def test_the_last_attempt_gets_what_is_left_and_not_a_cent(repo: Repo) -> None:
    """Nobody else is under way, and attempts take more on average than what is left."""
    repo.plan(*chained(3), agents={"speaker": PAYS})
    script = f"(OUT / 'allowed').open('a').write(sys.argv[sys.argv.index('--max-budget-usd') + 1] + ' ')\n{WORKS}\n"
    say = speaker(
        repo,
        script
        + f"print(json.dumps({{**json.loads('''{RESULT}'''), 'total_cost_usd': 0.4}}))",
    )
    code, _, printed = repo.run(say, "--jobs", "2", "--max-usd", "1")
    assert (code, len(repo.passed())) == (0, 3), printed
    assert repo.read("../allowed").split()[-1] == "0.20"


def test_people_are_told_of_a_block_while_others_are_under_way(repo: Repo) -> None:
    repo.plan(*tasks(3), limits={"attempts": 1})
    agent = repo.agent(
        f"{MEET}\nbegun('T1', 'T2', 'T3')\nif task == 'T1': P('x').touch(); sys.exit()\nwait((OUT / 'told').exists); time.sleep(0.5)\n{WORKS}"
    )
    notify = f"cat >> {repo.outside}/told; sleep 1"
    code, _, printed = repo.run(agent, "--jobs", "3", "--notify", notify)
    assert (code, repo.passed()) == (4, ["T2", "T3"]), printed
    assert sorted(repo.verdicts()) == ["T1 failed", "T2 passed", "T3 passed"]
    assert repo.read("../told").count('"blocked"') >= 1


@pytest.mark.parametrize("lands", [True, False])
def test_a_task_that_gets_another_id_while_it_is_worked_is_the_one_that_is_marked(
    repo: Repo, lands: bool
) -> None:
    """A person puts a task before it, and counts anew; no task has a check of its
    own."""
    repo.plan({"title": "first"}, checks=["true"], limits={"attempts": 1})
    agent = repo.agent(
        f"if {lands}: {WORKS}\n(OUT / 'hanging').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.05)"
    )
    process = repo.start("run", "--max-iterations", "1", "--agent", agent)
    repo.wait_for("../hanging")
    repo.plan(
        {"title": "new"}, {"title": "first"}, checks=["true"], limits={"attempts": 1}
    )
    (repo.outside / "go").touch()
    assert process.wait(30) == 3
    found = json.loads(repo.read("prd.json"))["userStories"]
    assert [(task["passes"], "blocked" in task) for task in found] == [
        (False, False),
        (lands, not lands),
    ]


def test_a_task_in_place_of_the_one_that_is_worked_has_not_passed(repo: Repo) -> None:
    repo.plan({"title": "first"}, checks=["true"])
    other = {
        "project": "p",
        "checks": ["true"],
        "userStories": [{"id": "T1", "title": "second", "passes": False}],
    }
    agent = repo.agent(
        f"{WORKS}\nP({str(repo.path / 'prd.json')!r}).write_text({json.dumps(other)!r})"
    )
    assert repo.run(agent, "--max-iterations", "1")[0] == 3
    assert repo.passed() == [] and len(repo.commits()) == 1


def test_gc_takes_no_work_that_waits_for_the_clean_room(repo: Repo) -> None:
    held, go = repo.outside / "held", repo.outside / "go"
    waits = f"test -f T1.txt || exit 1; touch {held}; while [ ! -e {go} ]; do sleep 0.05; done"
    repo.plan({"checks": [waits]}, {"checks": ["test -f T2.txt"]})
    agent = repo.agent(
        f"{MEET}\nif task == 'T2': wait(P({str(held)!r}).exists)\n{WORKS}"
    )
    process = repo.start("run", "--jobs", "2", "--agent", agent)
    until(lambda: repo.git("for-each-ref", "refs/ralph/attempt").count("\n") == 2)
    repo.git("gc", "-q", "--prune=now")
    go.touch()
    printed = process.communicate(timeout=30)[0]
    assert (process.returncode, repo.passed()) == (0, ["T1", "T2"]), printed


def test_a_task_that_gets_other_checks_while_it_is_worked_has_not_passed_them(
    repo: Repo,
) -> None:
    repo.plan(*tasks(1))
    agent = repo.agent(
        f"{WORKS}\n(OUT / 'hanging').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.05)"
    )
    process = repo.start("run", "--max-iterations", "1", "--agent", agent)
    repo.wait_for("../hanging")
    repo.plan({"checks": ["test -f other.txt"], "title": "wholly another task"})
    (repo.outside / "go").touch()
    assert process.wait(30) == 3 and repo.passed() == []


def test_an_interrupted_baseline_is_recorded(repo: Repo) -> None:
    repo.plan(own("T1"), {"checks": [f"touch {repo.outside}/before; sleep 100"]})
    agent = repo.agent("(OUT / 'up').touch(); time.sleep(600)")
    process = repo.start("run", "--jobs", "2", "--agent", agent, first=LITTLE_GRACE)
    repo.wait_for("../up")
    repo.wait_for("../before")
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    assert process.wait(20) == 130
    assert (len(repo.records("start")), repo.verdicts()) == (2, [])
    assert repo.records()[-1]["stop"] == "interrupted" and repo.alive() == []
    agent = repo.agent(WORKS)
    repo.plan(*tasks(2))
    code, _, printed = repo.run(agent, "--jobs", "2")
    assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
    assert every_start_has_one_verdict(repo)
    cut_off = [one for one in repo.records("verdict") if one.get("uncounted")]
    assert len(cut_off) == 2
