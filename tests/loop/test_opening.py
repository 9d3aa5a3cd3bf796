"""What a run says before it begins, and what it finds that a killed one left."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _ralph.loop.run import Run

from _ralph import files
from _ralph.errors import AgentUnavailable, BadInput
from _ralph.loop.opening import (
    agents_of,
    branch_of,
    read_run,
    require_agent,
    require_repository,
    try_plan,
    uncopied,
    unprotected,
    unseen,
    version_of,
)
from _ralph.state.options import Options
from tests.conftest import Repo
from tests.git.test_branch import work_on
from tests.git.test_workspace import head
from tests.scripts import MAKES, own

Opened = Callable[..., Run]


def run_of(repo: Repo, **options: str) -> Run:
    return read_run(Options(prd=repo.path / "prd.json", **options))  # type: ignore[arg-type]


def test_a_look_writes_nothing(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    before = sorted(files.walk(repo.path))
    run_of(repo)
    assert sorted(files.walk(repo.path)) == before


def test_what_a_killed_edit_of_the_plan_left_half_written_goes(repo: Repo) -> None:
    repo.plan({"passes": True}, checks=["true"])
    mine = [
        repo.write(name, "mine\n")
        for name in (
            ".prd.json.bak",
            ".prd.json.mine.ralph-tmp",
            ".other.json.0f.ralph-tmp",
        )
    ]
    left = repo.write(".prd.json.0123456789ab.ralph-tmp", "{")
    assert repo.run(repo.agent("pass"))[0] == 0
    assert not left.exists() and all(path.exists() for path in mine)


def test_what_is_not_committed_is_named_and_first_what_a_check_needs(
    repo: Repo,
) -> None:
    repo.plan({"checks": ["sh tools/check.sh"]})
    repo.write("AGENTS.md", "rules\n")
    assert unseen(run_of(repo)) == []
    repo.write("a/new.txt", "x")
    repo.write("tools/check.sh", "true")
    (said,) = unseen(run_of(repo))
    assert "tools/check.sh, a/new.txt" in said and said.endswith(
        "a check names tools/check.sh: commit it"
    )
    repo.plan({"checks": ["sh tools/precheck.sh"]})
    assert "a check names" not in unseen(run_of(repo))[0]


def test_what_worktreeinclude_names_and_is_no_file_is_named(repo: Repo) -> None:
    repo.write(".gitignore", "conf*\n")
    repo.write(".worktreeinclude", "conf*\n")
    repo.commit("ignore")
    repo.plan({"checks": ["true"]})
    repo.write("conf", "x")
    (repo.path / "conf-link").symlink_to("conf")
    assert uncopied(run_of(repo)) == []
    (repo.path / "conf.d").symlink_to("..")
    (repo.path / "conf-gone").symlink_to("nothing")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(repo.path / "conf-socket"))
        (repo.path / "conf-door").symlink_to("conf-socket")
    (said,) = uncopied(run_of(repo))
    assert (
        said
        == ".worktreeinclude names what is no file to copy: conf-door, conf-gone, conf.d"
    )


def test_patterns_that_protect_nothing_and_tests_that_none_covers_are_named(
    repo: Repo,
) -> None:
    repo.write("tests/test_a.py", "x")
    repo.commit("test")
    repo.plan({"checks": ["true"]}, protect=["spec/**", "conftest.py"])
    loose, tests = unprotected(run_of(repo))
    assert (
        "spec/**" in loose and "conftest.py" not in loose and "tests/test_a.py" in tests
    )
    repo.plan({"checks": ["true"]}, protect=["./tests/**"])
    assert unprotected(run_of(repo)) == []


@pytest.mark.parametrize(
    ("tests", "protect", "allow", "alone"),
    [
        (["test.js"], ["test.*"], [], True),
        (["test.js"], ["test.*"], ["test.js"], False),
        (
            ["test.js", "more.test.js"],
            ["*.test.*", "test.*", "jest.config.*"],
            [],
            False,
        ),
        (["a.test.js"], ["*.test.*"], [], False),
    ],
)
def test_all_tests_in_one_protected_file(
    repo: Repo, tests: list[str], protect: list[str], allow: list[str], alone: bool
) -> None:
    for name in tests:
        repo.write(name, "")
    repo.plan({"checks": ["false"], "allow": allow}, protect=protect)
    said = "all tests are in test.js, which is protected, so no task can add to it without `allow`"
    assert unprotected(run_of(repo)) == [said] * alone


@pytest.mark.parametrize(
    ("option", "named", "before", "sits", "wanted"),
    [
        ("mine", "plans", "ralph/old", "main", "mine"),
        (None, "plans", "ralph/old", "main", "plans"),
        (None, None, "ralph/old", "main", "ralph/old"),
        (None, None, "", "main", "ralph/p"),
        (None, None, "", "feature", "ralph/p"),  # never the one that a person is on
        (None, None, "feature", "main", "feature"),  # named in the run before
        (None, None, "feature", "feature", "feature"),  # said to whoever sits there
    ],
)
def test_the_branch_is_the_one_named_else_that_of_the_run_before_else_its_own(
    repo: Repo,
    option: str | None,
    named: str | None,
    before: str,
    sits: str,
    wanted: str,
) -> None:
    repo.plan({"checks": ["true"]}, **({"branchName": named} if named else {}))
    repo.git("checkout", "-q", "-B", sits)
    run = run_of(repo)
    assert branch_of(Options(branch=option), run.plan, before) == wanted


def test_a_run_goes_on_where_its_passes_are_and_the_person_s_branch_stays(
    repo: Repo,
) -> None:
    repo.git("switch", "-qc", "feature")
    before = head(repo)
    repo.plan(
        {"checks": ["test -f T1"]},
        {"checks": ["test -f T2"]},
        {"checks": ["test -f T3"]},
    )
    agent = repo.agent("P(task).touch()")
    assert repo.ralph("run", "--agent", agent, "--max-iterations", "2").returncode == 3
    repo.git("switch", "-q", "main")
    assert repo.ralph("run", "--agent", agent).returncode == 0
    assert repo.verdicts() == ["T1 passed", "T2 passed", "T3 passed"]
    assert head(repo, "feature") == head(repo, "main") == before
    assert "next: ralph report; ralph land ralph/p" in repo.ralph("status").stdout
    assert repo.ralph("land").returncode == 0
    assert "next: " not in repo.ralph("status").stdout


def test_a_run_begins_at_the_tip_or_at_head_that_contains_it(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    base = head(repo)
    assert run_of(repo).branch.beginning() == base
    tip = work_on(repo, base)
    repo.git("branch", "ralph/p", tip)
    assert run_of(repo).branch.beginning() == tip
    repo.git("reset", "-q", "--hard", work_on(repo, tip, "merged.txt"))
    assert run_of(repo).branch.beginning() == head(repo)


@pytest.mark.parametrize(
    ("tasks", "top", "options", "agents"),
    [
        ([{}], {}, {}, ["claude"]),
        ([{}], {"agent": ["a", "b"]}, {}, ["a", "b"]),
        ([{"agent": "c"}, {}], {"agent": "a"}, {}, ["a", "c"]),
        ([{"agent": "c", "passes": True}, {}], {"agent": "a"}, {}, ["a"]),
        ([{"agent": "c"}], {}, {"agent": ("x",)}, ["x"]),
        (
            [{}],
            {"agent": "a", "fallback": "b", "judge": "claude"},
            {},
            ["a", "b", "claude"],
        ),
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
        (
            "sh",
            {"usd": 3},
            "a limit in dollars cannot be enforced: sh does not report dollars",
        ),
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
        require_agent(run, run.agents.named(command))
        return
    with pytest.raises((BadInput, AgentUnavailable), match=said):
        require_agent(run, run.agents.named(command))


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
            try_plan(run)
    else:
        try_plan(run)


def test_git_must_know_who_commits_and_take_the_branch(
    repo: Repo, opened: Opened
) -> None:
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
        with pytest.raises(
            BadInput,
            match=f"git cannot make a branch {name} beside the branch {rival}; use",
        ):
            require_repository(run)
    run.branch.name = "x/y/z"
    require_repository(run)
    run.branch.name = "a"
    repo.git("config", "--unset", "user.email")
    repo.git("config", "user.useConfigOnly", "true")
    with pytest.raises(BadInput, match="does not know who commits"):
        require_repository(run)


@pytest.mark.parametrize(
    ("source", "named", "status"),
    [
        ('{"userStories": [{"id": "T1", "ti', "line 1", 2),
        ("", "is empty", 2),
        (
            '{"userStories": [{"id": "a", "title": "x"}], "limits": {"hours": "many"}}',
            "limits.hours",
            0,
        ),
    ],
)
def test_a_broken_plan_ends_with_2_and_nothing_happens(
    repo: Repo, source: str, named: str, status: int
) -> None:
    """Which plans are broken, tests of the plan say."""
    repo.write("prd.json", source)
    done = repo.ralph(
        "run", "--agent", repo.agent("(OUT / 'ran').touch()"), "--check", "true"
    )
    assert done.returncode == 2
    assert done.stderr.startswith("ralph: prd.json") and named in done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert repo.read("prd.json") == source
    assert (
        not (repo.outside / "ran").exists()
        and not (repo.path / "progress.txt").exists()
    )
    assert repo.git("branch", "--format=%(refname:short)").split() == ["main"]
    assert repo.ralph("status").returncode == status


def test_a_plan_without_checks_is_refused_with_a_command_that_works(repo: Repo) -> None:
    repo.write("Makefile", "test:\n\ttest -f T1.txt\n")
    repo.commit("makefile")
    repo.plan({})
    agent = repo.agent(MAKES)
    code, _, printed = repo.run(agent)
    assert code == 2
    assert "`ralph init` adds those that it finds" in printed
    assert repo.ralph("init").returncode == 0 and repo.run(agent)[0] == 0
    assert json.loads(repo.read("prd.json"))["checks"] == ["make test"]


def test_foreign_gates_are_offered_and_never_run(repo: Repo) -> None:
    gate = f"touch {repo.outside}/gate-ran"
    repo.plan({}, qualityGates=[gate])
    code, _, printed = repo.run(repo.agent(MAKES))
    assert code == 2 and f"--check '{gate}'" in printed
    assert not (repo.outside / "gate-ran").exists()


def test_a_missing_agent_and_one_that_cannot_keep_to_its_permissions_end_with_5(
    repo: Repo,
) -> None:
    repo.plan(own("T1"))
    code, _, printed = repo.run("no-such-agent-anywhere")
    assert code == 5 and "not on PATH" in printed
    fake = repo.tool("claude", "exit 0")
    done = repo.ralph("run", "--agent", "claude", PATH=f"{fake.parent}:/usr/bin:/bin")
    if not all((Path("/usr/bin") / tool).exists() for tool in ("bwrap", "socat")):
        assert done.returncode == 5 and "--full-permissions" in done.stderr
    code = repo.ralph("run", "--agent", "aider", "--max-usd", "1").returncode
    assert code in (2, 5)


def test_where_nothing_is_left_to_do_no_agent_is_needed(repo: Repo) -> None:
    repo.plan(
        {"checks": ["true"], "passes": True},
        agent="no-such-agent",
        fallback="nor-this-one",
    )
    done = repo.ralph("run")
    assert done.returncode == 0, done.stderr


def test_where_there_is_no_plan_the_ways_are_named(repo: Repo, tmp_path: Path) -> None:
    for command in ("run", "status", "doctor", "report"):
        done = repo.ralph(command)
        assert (
            "prd.json; cd to your project, name its plan with --prd, or start one here: ralph init"
            in done.stderr + done.stdout
        )
    bare = Repo(tmp_path / "bare", git=False)
    assert (
        "cd to your project, or start one: git init && ralph init"
        in bare.ralph("run").stderr
    )


def test_a_program_is_named_from_where_one_stands(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    repo.commit("plan")
    repo.program("tools/agent.sh", "cat > /dev/null; touch $RALPH_TASK_ID.txt")
    repo.path /= "tools"
    done = repo.ralph("run", "--prd", "../prd.json", "--agent", "./agent.sh")
    assert done.returncode == 0, done.stdout
    (repo.path.parent / "prd.json").write_text(
        '{"checks": ["true"], "tasks": [{"title": "x"}]}'
    )
    assert (
        repo.ralph(
            "run", "--prd", "../prd.json", RALPH_RUN_AGENT="./agent.sh -x"
        ).returncode
        == 0
    )


@pytest.mark.parametrize("odd", ["a\0b", "a\ud83d"], ids=["NUL", "half a pair"])
@pytest.mark.parametrize(
    ("key", "exit"), [("branchName", 2), ("prompt", 2), ("setup", 2), ("checks", 4)]
)
def test_a_text_that_no_program_can_take_is_said(
    repo: Repo, key: str, exit: int, odd: str
) -> None:
    repo.plan({"checks": ["true"]}, **{key: [odd] if key == "checks" else odd})
    code, summary, printed = repo.run(repo.agent("P('work').touch()"))
    assert (code, "unexpected" in printed) == (exit, False), (summary, printed)
    assert key == "branchName" or "unexpected" not in repo.ralph("prompt").stderr
