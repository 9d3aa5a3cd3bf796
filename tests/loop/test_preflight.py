"""What a run requires before it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from _ralph.errors import AgentUnavailable, BadInput
from _ralph.loop.preflight import agents_of, require_agent, require_repository, try_templates, version_of
from _ralph.loop.run import Run
from tests.conftest import Repo

Opened = Callable[..., Run]


@pytest.mark.parametrize(
    ("tasks", "top", "options", "agents"),
    [
        ([{}], {}, {}, ["claude"]),
        ([{}], {"agent": ["a", "b"]}, {}, ["a", "b"]),
        ([{"agent": "c"}, {}], {"agent": "a"}, {}, ["a", "c"]),
        ([{"agent": "c", "passes": True}, {}], {"agent": "a"}, {}, ["a"]),
        ([{"agent": "c"}], {}, {"agent": ("x",)}, ["x"]),
        ([{}], {"agent": "a", "fallback": "b", "judge": "claude"}, {}, ["a", "b", "claude"]),
        ([{"passes": True}], {"agent": "a", "judge": "claude"}, {}, ["claude"]),
    ],
)
def test_the_agents_that_a_run_needs(
    repo: Repo, opened: Opened, tasks: list[dict[str, Any]], top: dict[str, Any],
    options: dict[str, Any], agents: list[str],
) -> None:  # fmt: skip
    repo.plan(*tasks, checks=["true"], **top)
    assert [agent.command for agent in agents_of(opened(**options))] == agents


@pytest.mark.parametrize(
    ("command", "limits", "said"),
    [
        ("sh", {}, ""),
        ("sh", {"usd": 3}, "a limit in dollars cannot be enforced: sh does not report dollars"),
        ("sh", {"tokens": 3}, "a limit in tokens"),
        ("no-such-agent", {}, "is not on PATH"),
    ],
)
def test_an_agent_must_be_there_and_report_what_is_limited(
    repo: Repo, opened: Opened, command: str, limits: dict[str, int], said: str
) -> None:
    repo.plan({"checks": ["true"]}, agent=command)
    run = opened(limits=limits)
    if not said:
        require_agent(run, run.named(command))
        return
    with pytest.raises((BadInput, AgentUnavailable), match=said):
        require_agent(run, run.named(command))


@pytest.mark.parametrize(
    ("top", "said"),
    [
        ({}, ""),
        ({"commit": "{{ task.nothing }}"}, "prd.json: commit, for T1"),
        ({"commit": "{% if %}"}, "prd.json: commit"),
        ({"prompt": "gone.md"}, "there is no prompt template"),
        ({"prompt": "bad.md"}, "bad.md, line 2"),
    ],
)
def test_templates_are_tried_before_the_night(
    repo: Repo, opened: Opened, top: dict[str, str], said: str
) -> None:
    repo.write("bad.md", "x\n{{ task. }}\n")
    repo.plan({"checks": ["true"]}, **top)
    run = opened()
    if said:
        with pytest.raises(BadInput, match=said):
            try_templates(run)
    else:
        try_templates(run)


def test_git_must_know_who_commits_and_take_the_branch(repo: Repo, opened: Opened) -> None:
    repo.plan({"checks": ["true"]})
    run = opened()
    require_repository(run)
    assert version_of(run.git) >= (2, 38)
    run.branch.name = "a..b"
    with pytest.raises(BadInput, match=r"'a\.\.b' is not a valid branch name"):
        require_repository(run)
    for name, rival in (("main/p", "main"), ("x", "x/y/z")):
        if rival != "main":
            repo.git("branch", rival)
        run.branch.name = name
        with pytest.raises(BadInput, match=f"git cannot make a branch {name} beside the branch {rival}; use"):
            require_repository(run)
    run.branch.name = "x/y/z"
    require_repository(run)
    run.branch.name = "a"
    repo.git("config", "--unset", "user.email")
    repo.git("config", "user.useConfigOnly", "true")
    with pytest.raises(BadInput, match="does not know who commits"):
        require_repository(run)
