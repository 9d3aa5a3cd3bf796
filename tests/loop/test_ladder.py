"""Which agent works an attempt: a ladder, and a fallback while a provider is away."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from tests.conftest import Repo
from tests.scripts import LIMIT, LOOKS_OFTEN, RESULT, plan, speaker

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


def with_models(repo: Repo, tasks: str, models: str, script: str = MODELS) -> str:
    """A plan whose agent climbs these models. A task may have models of its own behind
    a colon, and with ! a check that is never green. The agent without a model."""
    say = speaker(repo, script)
    rows = []
    for task in tasks.split():
        id, _, own = task.partition(":")
        row: dict[str, Any] = {"id": id.strip("!"), "checks": [f"test -f {id}.txt"]}
        if own:
            row["agent"] = [f"{say} {model}" for model in own.split(",")]
        rows.append(row)
    plan(repo, *rows, agent=[f"{say} {model}" for model in models.split()])
    return say


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
    with_models(repo, "T1 T2", "other", MODELS.replace("if rung == 'refused'", script))
    done = repo.ralph("run", first=LOOKS_OFTEN + LOGIN)
    assert done.returncode == code, done.stdout
    assert repo.passed() == (["T1"] if code else ["T1", "T2"])
    assert calls(repo) == ["T1 other", *["T2 other"] * 2]
    if not code:
        assert repo.records("verdict")[-1]["attempt"] == 1


# The tasks, the models, the options, the exit status and who was called.
ROWS = """
one rung for each failed attempt, the last again | T1 T9! | haiku sonnet opus | --max-attempts 5 | 4 | T1 haiku, T1 sonnet, T1 opus, T9! haiku, T9! sonnet, T9! opus, T9! opus, T9! opus
a task has its own ladder | T1:haiku,opus T2 | other | | 0 | T1 haiku, T1 opus, T2 other
the command line goes before both | T1:haiku | other | --agent '{say} sonnet' --agent '{say} opus' | 0 | T1 sonnet, T1 opus
a fallback while the agent is limited | T1 T2 | limited | --fallback '{say} other' | 0 | T1 limited, T1 other, T2 other
a fallback while it is refused | T1 T2 | refused | --fallback '{say} other' | 0 | T1 refused, T1 other, T2 other
the fallback is limited, the agent never comes back | T1 | refused | --fallback '{say} limited' --max-wait 0 | 75 | T1 refused, T1 limited
the fallback never comes back, the agent is limited | T1 | limited | --fallback '{say} refused' --max-wait 0 | 75 | T1 limited, T1 refused
neither comes back | T1 | refused | --fallback '{say} refused again' | 5 | T1 refused, T1 refused
no fallback for work that failed | T9! | haiku | --fallback '{say} other' --max-attempts 2 | 4 | T9! haiku, T9! haiku
once is one attempt and no fallback | T1 | limited | --fallback '{say} other' --once | 75 | T1 limited
the agent of one task does not keep the others | T1:refused T2 | other | | 5 | T1 refused, T2 other
"""
CALLS = dict(row.split(" | ", 1) for row in ROWS.strip().splitlines())


@pytest.mark.parametrize("name", CALLS)
def test_which_agent_works_an_attempt(repo: Repo, name: str) -> None:
    tasks, models, words, code, wanted = map(str.strip, CALLS[name].split("|"))
    say = with_models(repo, tasks, models)
    done = repo.ralph("run", *shlex.split(words.format(say=say)))
    assert done.returncode == int(code), done.stdout + done.stderr
    assert ", ".join(calls(repo)) == wanted.replace("!", "")
    assert not repo.records("wait")


def test_a_task_that_is_opened_again_begins_at_the_first_rung(repo: Repo) -> None:
    with_models(repo, "T9!", "haiku opus")
    assert repo.ralph("run", "--max-attempts", "2").returncode == 4
    assert repo.ralph("retry", "T9").returncode == 0
    assert repo.ralph("run", "--max-iterations", "1").returncode == 3
    assert calls(repo) == ["T9 haiku", "T9 opus", "T9 haiku"]


def test_every_rung_and_the_fallback_are_looked_at_before_the_first_attempt(
    repo: Repo,
) -> None:
    say = with_models(repo, "T1", "other")
    for option in ("--agent", "--fallback"):
        done = repo.ralph("run", "--agent", say, option, "no-such-agent")
        assert done.returncode == 5 and "'no-such-agent' is not on PATH" in done.stderr
    plain = repo.agent(WORKS)
    done = repo.ralph("run", "--fallback", plain, "--max-usd", "1")
    said = f"a limit in dollars cannot be enforced: {plain} does not report dollars"
    assert done.returncode == 2 and said in done.stderr
    assert not (repo.path / "progress.txt").exists()
