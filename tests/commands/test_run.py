"""`ralph run`: its options, its first and last lines, and the script that is told."""

from __future__ import annotations

import json
from typing import Any

from tests.conftest import Repo, cases
from tests.scripts import (
    LOOKS_OFTEN,
    MAKES,
    RESULT,
    limited_for,
    once,
    own,
    plan,
    speaker,
)

# ---------------------------------------------------------------- news

TOLD = ("--notify", "cat >> ../told.jsonl")


def news(repo: Repo) -> list[dict[str, Any]]:
    """What --notify's command was told, an object a line."""
    return [json.loads(line) for line in repo.read("../told.jsonl").splitlines()]


NEWS = """\
passed T1 1 None
blocked T2 1 None
waiting None 1 None
passed T3 2 None
stopped None 2 blocked
"""


def test_every_event_is_told_with_its_task_its_reason_and_the_sums(repo: Repo) -> None:
    tasks = own("T1"), {"checks": ["false"]}, own("T3")
    plan(repo, *tasks, project="Shop", limits={"attempts": 1})
    limited = f"if task == 'T3' and {once(repo, 'limited')}: print({limited_for(2)}); sys.exit()"
    say = speaker(repo, f"{limited}\n{MAKES}\nprint({RESULT!r})")
    assert repo.ralph("run", "--agent", say, *TOLD, first=LOOKS_OFTEN).returncode == 4
    told = news(repo)
    lines = ""
    for one in told:
        assert (one["project"], one["branch"]) == ("Shop", "ralph/shop")
        lines += f"{one['event']} {one['task']} {one['passed']} {one['stop']}\n"
    assert lines == NEWS
    first, blocked, waiting, _, last = told
    assert first["text"] == "Shop: T1 passed | 1 of 3 passed | $0.25"
    assert blocked["reason"].startswith("1 failed attempt")
    assert blocked["usd"] == 0.5
    assert waiting["reason"].startswith("waiting for the provider until ")
    stopped = f"Shop: stopped: {last['reason']} | 2 of 3 passed | $"
    assert last["text"].startswith(stopped)


@cases("""
command                     said
sleep 60                    --notify did not end within 1 seconds
echo no network >&2; exit 6  --notify ended with exit 6: no network
kill -9 $$                  --notify ended with exit -9: no output
""")
def test_a_notify_command_that_fails_costs_one_sentence(
    repo: Repo, command: str, said: str
) -> None:
    soon = "from _ralph.loop import loop; loop._NOTIFY_TIMEOUT = 1.0"
    repo.plan("false", own("T2"), limits={"attempts": 1})
    words = ("--agent", repo.agent(MAKES), "--notify", command)
    done = repo.ralph("run", *words, first=soon)
    assert (done.returncode, repo.passed()) == (4, ["T2"]), done.stderr
    assert done.stdout.count(f"! {said}") == done.stdout.count("--notify ") == 3
    assert not repo.alive()


# ---------------------------------------------------------------- first and last lines


def test_the_first_line_says_what_is_to_come_and_every_stop_how_to_go_on(
    repo: Repo,
) -> None:
    repo.plan(own("T1"), own("T2"), own("T3"))
    agent = repo.agent("P(f'{task}.txt').touch()")
    words = ["--max-iterations", "1", "--max-hours", "2", "--agent", agent]
    first, *_, last = repo.ralph("run", *words).stdout.splitlines()
    limits = "this run: 0 of 1 iterations, 0 s of 2 h 0 min"
    assert first[20:] == f"3 of 3 tasks to do on branch ralph/p | {agent} | {limits}"
    assert last[20:] == "next: ralph run"
    assert repo.ralph("status").stdout.endswith("\nnext: ralph run\n")
