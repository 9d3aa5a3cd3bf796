"""What version 0.3 had and this one has not: it is named, with what to do instead."""

from __future__ import annotations

import json

from click.testing import CliRunner

import ralph
from _ralph.commands import options
from tests.conftest import Repo, cases
from tests.scripts import MAKES, own


@cases("""
    plan                                                exit  said
    {"launch": "ssh node7"}                             2     `launch` is gone: --wrap, or
    {"tasks": [{"launch": "ssh node7"}]}                2     `launch` is gone: --wrap
    {"network": false}                                  2     `network` is gone: --wrap 'bwrap.sh {place}'
    {"notifyOn": ["passed"]}                            0     `notifyOn` is gone: the command
    {"branch": "mine"}                                  0     `branch` is gone: use branchName
    {"agents": {"mine": {"argv": ["m"], "events": []}}}  2     agents.mine: Additional properties are not allowed ('events' was
    {"limits": {"stuck": 9}}                            0     `limits.stuck` is gone: six
""")
def test_a_key_is_named_and_one_that_confined_agents_is_an_error(
    repo: Repo, plan: str, exit: str, said: str
) -> None:
    command = "doctor" if exit == "0" else "run"  # they open in the same way
    top = json.loads(plan)
    (task,) = top.pop("tasks", [{}])
    repo.plan({**own("T1"), **task}, **top)
    done = repo.ralph(command, "--agent", repo.agent(MAKES))
    assert done.returncode == int(exit), done.stdout
    assert f"prd.json: {said}" in done.stdout + done.stderr
    assert repo.passed() == []


@cases("""
    words                exit  said
    --launch x           2     --launch is gone: --wrap, or `wrap` in the plan
    --launch-checks x    2     --launch-checks is gone: --wrap, or
    --sandbox bwrap      2     --sandbox is gone: --wrap 'bwrap.sh {place}' does the same
    --no-wait            0     --no-wait is gone: use --max-wait 0
    --notify-on passed   0     --notify-on is gone: the command of --notify is told
""")
def test_an_option_is_named(repo: Repo, words: str, exit: str, said: str) -> None:
    command = "doctor" if exit == "0" else "run"
    repo.plan(own("T1"))
    done = repo.ralph(command, "--agent", repo.agent(MAKES), *words.split())
    assert done.returncode == int(exit), done.stdout
    assert said in done.stdout + done.stderr


def test_no_wait_means_what_it_meant() -> None:
    run = ralph.cli.commands["run"].make_context("run", ["--no-wait"])
    assert options.chosen_for_run(run.params).limits["max_wait"] == 0


@cases("""
    command  name                value
    run      RALPH_RUN_MAX_USD   5
    doctor   RALPH_PRD           other.json
    land     RALPH_RUN_WRAP      podman run x
""")
def test_commands_that_read_them_refuse_them(
    command: str, name: str, value: str
) -> None:
    env = {name: value}
    found = CliRunner().invoke(ralph.cli, [command], env=env, prog_name="ralph")
    assert found.exit_code == 2
    assert f"{name} is set, and not read any more" in found.output
