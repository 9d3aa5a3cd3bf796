"""Which agent works an attempt: a ladder, and a fallback while a provider is away."""

from __future__ import annotations

import pytest

from tests.conftest import Repo
from tests.scripts import LIMIT, LOOKS_OFTEN, RESULT, plan, speaker

OWN, SECOND, THIRD = (
    {"id": f"T{i}", "checks": [f"test -f T{i}.txt"]} for i in (1, 2, 3)
)
WORKS = "P(f'{task}.txt').touch()"
REFUSED = '{"type":"result","is_error":true,"api_error_status":401,"result":"no","total_cost_usd":0,"usage":{}}'
MODELS = f"""
rung = (sys.argv + ['-'])[1]
with (OUT / 'calls').open('a') as calls: calls.write(f'{{task}} {{rung}}\\n')
if rung == 'limited': print('''{LIMIT}'''); sys.exit(1)
if rung == 'refused': print('''{REFUSED}'''); sys.exit(1)
if rung in ('opus', 'other'): {WORKS}
else: P('tried').write_text(str(time.time()))
print('''{RESULT}''')
"""


def calls(repo: Repo) -> list[str]:
    return repo.read("../calls").splitlines()


def worked_by(repo: Repo) -> list[str]:
    return [record["command"].split("/")[-1] for record in repo.records("verdict")]


LOGIN = "\nfrom _ralph.state import history\nhistory.RETRY_LOGIN = 1.0\n"


@pytest.mark.parametrize(("lost", "code"), [(1, 0), (2, 5)])
def test_an_agent_that_worked_and_lost_its_login_is_tried_once_more(
    repo: Repo, lost: int, code: int
) -> None:
    """Another program may have won a race for its token; no attempt is counted."""
    script = f"""
lost = len(OUT.joinpath('calls').read_text().split('T2 other')) - 1
if task == 'T2' and lost <= {lost}: rung = 'refused'
if rung == 'refused'"""
    say = speaker(repo, MODELS.replace("if rung == 'refused'", script))
    plan(repo, OWN, SECOND, agent=f"{say} other")
    done = repo.ralph("run", first=LOOKS_OFTEN + LOGIN)
    assert done.returncode == code, done.stdout
    assert repo.passed() == (["T1"] if code else ["T1", "T2"])
    assert calls(repo) == ["T1 other", *["T2 other"] * 2]
    if not code:
        assert repo.records("verdict")[-1]["attempt"] == 1


# ---------------------------------------------------------------- a ladder


def test_each_failed_attempt_is_one_rung_and_the_last_is_repeated(repo: Repo) -> None:
    say = speaker(repo, MODELS)
    ladder = [f"{say} haiku", f"{say} sonnet", f"{say} opus"]
    never = {"checks": ["false"], "id": "T9"}
    plan(repo, OWN, never, agent=ladder, limits={"attempts": 5})
    assert repo.ralph("run").returncode == 4
    up = ["haiku", "sonnet", "opus", "opus", "opus"]
    first = [f"T1 {rung}" for rung in up[:3]]
    assert calls(repo) == first + [f"T9 {rung}" for rung in up]
    assert worked_by(repo) == [f"speaker {rung}" for rung in [*up[:3], *up]]
    assert "Ralph-Agent: " in repo.git("log", "-1", "--format=%B", "ralph/p")


def test_a_task_has_its_own_ladder_and_the_command_line_goes_before_both(
    repo: Repo,
) -> None:
    say = speaker(repo, MODELS)
    own = {**OWN, "agent": [f"{say} haiku", f"{say} opus"]}
    plan(repo, own, SECOND, agent=f"{say} other")
    assert repo.ralph("run").returncode == 0
    assert calls(repo) == ["T1 haiku", "T1 opus", "T2 other"]
    plan(repo, {**THIRD, "agent": f"{say} haiku"}, project="next")
    words = ("--agent", f"{say} sonnet", "--agent", f"{say} opus")
    assert repo.ralph("run", *words).returncode == 0
    assert calls(repo)[3:] == ["T3 sonnet", "T3 opus"]


def test_a_task_that_is_opened_again_begins_at_the_first_rung(repo: Repo) -> None:
    say = speaker(repo, MODELS)
    ladder = [f"{say} haiku", f"{say} opus"]
    plan(repo, {"checks": ["false"]}, agent=ladder, limits={"attempts": 2})
    assert repo.ralph("run").returncode == 4
    assert repo.ralph("retry", "T1").returncode == 0
    assert repo.ralph("run", "--max-iterations", "1").returncode == 3
    assert calls(repo) == ["T1 haiku", "T1 opus", "T1 haiku"]


def test_every_rung_and_the_fallback_are_looked_at_before_the_first_attempt(
    repo: Repo,
) -> None:
    say = speaker(repo, MODELS)
    away = "no-such-agent"
    for agent, fallback in (([say, away], say), (say, away)):
        plan(repo, OWN, agent=agent, fallback=fallback)
        done = repo.ralph("run")
        assert done.returncode == 5 and "'no-such-agent' is not on PATH" in done.stderr
    plain = repo.agent(WORKS)
    plan(repo, OWN, agent=say, fallback=plain)
    done = repo.ralph("run", "--max-usd", "1")
    said = f"a limit in dollars cannot be enforced: {plain} does not report dollars"
    assert done.returncode == 2 and said in done.stderr
    assert not (repo.path / "progress.txt").exists()


# ---------------------------------------------------------------- a fallback


@pytest.mark.parametrize("why", ["limited", "refused"])
def test_the_fallback_works_while_the_agent_cannot_be_had(repo: Repo, why: str) -> None:
    say = speaker(repo, MODELS)
    plan(repo, OWN, SECOND, agent=f"{say} {why}", fallback=f"{say} other")
    code = repo.ralph("run")
    assert (code.returncode, repo.passed()) == (0, ["T1", "T2"]), code.stderr
    assert calls(repo) == [f"T1 {why}", "T1 other", "T2 other"]
    assert repo.verdicts()[1:] == ["T1 passed", "T2 passed"]
    assert not repo.records("wait")


def test_where_both_are_away_the_sooner_is_waited_for_and_none_means_5(
    repo: Repo,
) -> None:
    say = speaker(repo, MODELS)
    plan(repo, OWN, agent=f"{say} refused", fallback=f"{say} limited")
    done = repo.ralph("run", "--max-wait", "0")
    assert done.returncode == 75 and calls(repo) == ["T1 refused", "T1 limited"]
    # the first comes back
    plan(repo, OWN, agent=f"{say} limited", fallback=f"{say} refused", project="second")
    assert repo.ralph("run", "--max-wait", "0").returncode == 75
    agents = {"agent": f"{say} refused", "fallback": f"{say} refused again"}
    plan(repo, OWN, **agents, project="third")
    done = repo.ralph("run")
    assert done.returncode == 5 and "the agent cannot run" in done.stdout


def test_the_fallback_is_not_for_work_that_failed(repo: Repo) -> None:
    say = speaker(repo, MODELS)
    agents = {"agent": f"{say} haiku", "fallback": f"{say} other"}
    plan(repo, {"checks": ["false"]}, **agents, limits={"attempts": 2})
    assert repo.ralph("run").returncode == 4
    assert calls(repo) == ["T1 haiku", "T1 haiku"]


def test_once_is_one_attempt_and_no_fallback(repo: Repo) -> None:
    say = speaker(repo, MODELS)
    plan(repo, OWN, agent=f"{say} limited", fallback=f"{say} other")
    assert repo.ralph("run", "--once").returncode == 75
    assert calls(repo) == ["T1 limited"]


def test_one_tasks_own_agent_that_is_away_does_not_keep_the_others(repo: Repo) -> None:
    say = speaker(repo, MODELS)
    plan(repo, {**OWN, "agent": f"{say} refused"}, SECOND, agent=f"{say} other")
    done = repo.ralph("run")
    assert (done.returncode, repo.passed()) == (5, ["T2"])
    assert calls(repo) == ["T1 refused", "T2 other"]
    assert "the agent cannot run: no" in done.stdout
