"""What version 0.3 had and this one has not: it is named, with what to do instead."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

import ralph
from _ralph.commands import options
from tests.conftest import Repo
from tests.scripts import MAKES, own

# One line a case: keys of the plan, keys of its task, the exit status, what is said.
KEYS: dict[str, tuple[dict[str, Any], dict[str, Any], int, str]] = {
    "launch": ({"launch": "ssh node7"}, {}, 2, "`launch` is gone: --wrap, or"),
    "launch of a task": ({}, {"launch": "ssh node7"}, 2, "`launch` is gone: --wrap"),
    "network": ({"network": False}, {}, 2, "`network` is gone: --wrap 'bwrap.sh {place}'"),
    "notifyOn": ({"notifyOn": ["passed"]}, {}, 0, "`notifyOn` is gone: the command"),
    "branch": ({"branch": "mine"}, {}, 0, "`branch` is gone: use branchName"),
    "a row's events": ({"agents": {"mine": {"argv": ["mine"], "events": []}}}, {}, 2, "agents.mine: Additional properties are not allowed ('events' was"),
    "limits.stuck": ({"limits": {"stuck": 9}}, {}, 0, "`limits.stuck` is gone: six"),
}  # fmt: skip
OPTIONS = {
    "--launch x": (2, "--launch is gone: --wrap, or `wrap` in the plan"),
    "--launch-checks x": (2, "--launch-checks is gone: --wrap, or"),
    "--sandbox bwrap": (
        2,
        "--sandbox is gone: --wrap 'bwrap.sh {place}' does the same",
    ),
    "--no-wait": (0, "--no-wait is gone: use --max-wait 0"),
    "--notify-on passed": (0, "--notify-on is gone: the command of --notify is told"),
}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_named_and_one_that_confined_agents_is_an_error(
    repo: Repo, key: str
) -> None:
    top, task, exit, said = KEYS[key]
    command = "run" if exit else "doctor"  # they open in the same way
    repo.plan({**own("T1"), **task}, **top)
    done = repo.ralph(command, "--agent", repo.agent(MAKES))
    assert done.returncode == exit, done.stdout
    assert f"prd.json: {said}" in done.stdout + done.stderr
    assert repo.passed() == []


@pytest.mark.parametrize("words", OPTIONS)
def test_an_option_is_named(repo: Repo, words: str) -> None:
    exit, said = OPTIONS[words]
    command = "run" if exit else "doctor"
    repo.plan(own("T1"))
    done = repo.ralph(command, "--agent", repo.agent(MAKES), *words.split())
    assert done.returncode == exit and said in done.stdout + done.stderr, done.stdout


def test_no_wait_means_what_it_meant() -> None:
    run = ralph.cli.commands["run"].make_context("run", ["--no-wait"])
    assert options.chosen_for_run(run.params).limits["max_wait"] == 0


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["run"], {"RALPH_RUN_MAX_USD": "5"}),
        (["doctor"], {"RALPH_PRD": "other.json"}),
        (["land"], {"RALPH_RUN_WRAP": "podman run x"}),
    ],
)
def test_commands_that_read_them_refuse_them(
    words: list[str], env: dict[str, str]
) -> None:
    found = CliRunner().invoke(ralph.cli, words, env=env, prog_name="ralph")
    assert found.exit_code == 2
    assert f"{next(iter(env))} is set, and not read any more" in found.output
