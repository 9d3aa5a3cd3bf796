"""What a run looks at before it begins, and says, before an agent is paid."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from _ralph.checks import opening
from _ralph.checks.faults import Fault
from _ralph.checks.guard import Guard
from _ralph.errors import AgentUnavailable, BadInput
from _ralph.loop.loop import Loop
from _ralph.loop.start import look
from _ralph.model import Check, CheckResult
from _ralph.state.options import Options
from tests.conftest import Repo, cases
from tests.scripts import own


def loop_of(repo: Repo, **options: Any) -> Loop:
    """What a loop would work with here."""
    return look(Options(prd=repo.path / "prd.json", **options))


# ---------------------------------------------------------------- warnings


def unseen(repo: Repo) -> list[str]:
    loop = loop_of(repo)
    return opening.unseen(loop.places, loop.agents)


def test_what_is_not_committed_is_named_and_what_a_check_needs(repo: Repo) -> None:
    repo.plan({"checks": ["sh tools/check.sh"]})
    repo.write("AGENTS.md", "rules\n")
    assert unseen(repo) == []
    repo.write("a/new.txt", "x")
    repo.write("tools/check.sh", "true")
    (said,) = unseen(repo)
    assert "a/new.txt, tools/check.sh" in said
    assert said.endswith("a check names tools/check.sh: commit it")
    repo.plan({"checks": ["sh tools/precheck.sh"]})
    assert "a check names" not in unseen(repo)[0]


def unprotected(repo: Repo) -> list[str]:
    loop = loop_of(repo)
    return opening.unprotected(loop.plan, loop.git)


def test_patterns_that_protect_nothing_and_tests_that_none_covers_are_named(
    repo: Repo,
) -> None:
    repo.write("tests/test_a.py", "x")
    repo.commit("test")
    repo.plan({"checks": ["true"]}, protect=["spec/**", "conftest.py"])
    loose, tests = unprotected(repo)
    assert loose.endswith(": spec/**")
    assert "tests/test_a.py" in tests
    repo.plan({"checks": ["true"]}, protect=["tests/**"])
    assert unprotected(repo) == []


KEY: dict[str, Any] = {"like": "claude", "argv": ["mine"], "permissions": {"edit": []}}


def test_what_a_run_says_in_its_first_lines(repo: Repo) -> None:
    """What changes the night; all other warnings are doctor's."""
    repo.tool("mine", "exit 1")
    repo.plan({"checks": ["test -f T1.txt"]}, agents={"mine": KEY})
    repo.write("new.txt", "x")
    (repo.outside / "package.json").touch()
    words = ("--agent", "mine", "--max-attempts", "1")
    printed = repo.ralph("run", *words, ANTHROPIC_API_KEY="k").stdout
    before = printed.partition("iteration 1")[0]
    for said in (
        "made branch ralph/p",
        "not committed, so the agent will not see them: new.txt",
        "mine: ANTHROPIC_API_KEY is billed",
        "nothing limits what ANTHROPIC_API_KEY is billed; set --max-usd, or a budget",
        f"{repo.outside}/package.json lies above ralph's checkouts",
    ):
        assert said in before
    limited = ("--max-usd", "1", "--jobs", "2")
    printed = repo.ralph("run", *words, *limited, ANTHROPIC_API_KEY="k").stdout
    assert "one at a time until the price of an attempt is known" in printed
    assert "nothing limits" not in printed


@cases("""
full  allow                named
-     .claude/skills/x.md  .claude/skills/x.md
yes   .claude/skills/x.md
-     skills/x.md
""")
def test_a_folder_that_claude_may_not_write_is_named(
    repo: Repo, full: str, allow: str, named: str
) -> None:
    repo.plan({"checks": ["false"], "allow": [allow]})
    loop = loop_of(repo, full_permissions=bool(full))
    found = opening.denied_paths(loop.plan, loop.agents.named("claude"))
    assert " ".join(found) == named


def test_submodules_that_are_not_there_are_named(repo: Repo) -> None:
    (repo.outside / "other").mkdir()
    other = str(Repo(repo.outside / "other").path)
    allowed = ("-c", "protocol.file.allow=always")
    repo.git(*allowed, "submodule", "-q", "add", other, "sub")
    repo.commit("sub")
    repo.plan({"checks": ["true"]})
    git = loop_of(repo).git
    assert opening.absent_submodules(git) == []
    repo.git("submodule", "-q", "deinit", "-f", "sub")
    (said,) = opening.absent_submodules(git)
    assert said.startswith("submodules that are not there: sub; git submodule update")


# ---------------------------------------------------------------- agents


@cases("""
tasks                                  top                                                 option  agents
[{}]                                   {}                                                  -       claude
[{}]                                   {"agent": ["a", "b"]}                               -       a b
[{"agent": "c", "passes": true}, {}]   {"agent": "a"}                                      -       a
[{"agent": "c"}]                       {}                                                  x       x
[{}]                                   {"agent": "a", "fallback": "b", "judge": "claude"}  -       a b claude
""")
def test_the_agents_that_a_run_needs(
    repo: Repo, tasks: str, top: str, option: str, agents: str
) -> None:
    repo.plan(*json.loads(tasks), checks=["true"], **json.loads(top))
    found = loop_of(repo, agent=(option,) if option else ()).agents.needed
    assert [agent.command for agent in found] == agents.split()


@cases("""
command        limited  said
sh             -        -
sh             usd      a limit in dollars cannot be enforced: sh does not report dollars
sh             tokens   a limit in tokens
no-such-agent  -        is not on PATH
""")
def test_an_agent_must_be_there_and_report_what_is_limited(
    repo: Repo, command: str, limited: str, said: str
) -> None:
    repo.plan({"checks": ["true"]}, agent=command)
    loop = loop_of(repo, limits={limited: 3} if limited else {})
    given = (loop.settings, loop.places, loop.agents.named(command))
    if said:
        with pytest.raises((BadInput, AgentUnavailable), match=said):
            opening.require_agent(*given)
    else:
        assert opening.require_agent(*given) == []


def test_a_missing_agent_and_one_that_cannot_keep_to_its_permissions_end_with_5(
    repo: Repo,
) -> None:
    repo.plan(own("T1"))
    code, _, printed = repo.run("no-such-agent-anywhere")
    assert code == 5
    assert "not on PATH" in printed
    fake = repo.tool("claude", "exit 0")
    done = repo.ralph("run", "--agent", "claude", PATH=f"{fake.parent}:/usr/bin:/bin")
    confines = sys.platform == "darwin"  # macOS brings a sandbox
    if not confines and not all(
        (Path("/usr/bin") / tool).exists() for tool in ("bwrap", "socat")
    ):
        assert done.returncode == 5
        assert "--full-permissions" in done.stderr


def test_where_nothing_is_left_to_do_no_agent_is_needed(repo: Repo) -> None:
    passed = {"checks": ["true"], "passes": True}
    repo.plan(passed, agent="no-such-agent", fallback="nor-this-one")
    done = repo.ralph("run")
    assert done.returncode == 0, done.stderr


def test_a_program_is_named_from_where_one_stands(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    repo.commit("plan")
    repo.program("tools/agent.sh", "cat > /dev/null; touch $RALPH_TASK_ID.txt")
    repo.path /= "tools"
    done = repo.ralph("run", "--prd", "../prd.json", "--agent", "./agent.sh")
    assert done.returncode == 0, done.stdout


# ---------------------------------------------------------------- the plan


@cases("""
source                                                               named                             status
{"userStories": [{"id": "T1", "ti                                    line 1                            2
{"userStories": [{"id": 1.5, "title": "a"}]}                         userStories[0].id                 2
{"userStories": [{"id": "a", "title": "x"}], "network": false}       `network` is gone: --wrap         0
{"tasks": [{"title": "a"}]}                                          `ralph init` adds those that it finds  0
""")
def test_a_plan_that_no_run_can_use_ends_with_2_and_nothing_happens(
    repo: Repo, source: str, named: str, status: str
) -> None:
    """Which plans are broken, tests of the plan say."""
    repo.write("prd.json", source)
    words = () if "tasks" in source else ("--check", "true")
    done = repo.ralph("run", "--agent", repo.agent("(OUT / 'ran').touch()"), *words)
    assert done.returncode == 2
    assert done.stderr.startswith("ralph: prd.json")
    assert named in done.stderr
    assert repo.read("prd.json") == source
    assert not [*repo.outside.glob("**/ran")]
    assert not (repo.path / "progress.txt").exists()
    assert repo.git("branch", "--format=%(refname:short)").split() == ["main"]
    assert repo.ralph("status").returncode == int(status)


def test_a_task_that_is_asked_for_and_not_there_is_said(repo: Repo) -> None:
    repo.plan(own("T1"))
    code, summary, _ = repo.run(repo.agent("pass"), "--task", "T9")
    assert (code, "there is no task 'T9'" in summary["reason"]) == (2, True)


def test_where_there_is_no_plan_the_ways_are_named(repo: Repo, tmp_path: Path) -> None:
    ways = "prd.json; cd to your project, name its plan with --prd, or start one here: ralph init"
    for command in ("run", "status"):
        done = repo.ralph(command)
        assert ways in done.stderr + done.stdout
    bare = Repo(tmp_path / "bare", git=False)
    said = bare.ralph("run").stderr
    assert "cd to your project, or start one: git init && ralph init" in said


# ---------------------------------------------------------------- git and the branch


def test_git_must_know_who_commits_and_take_the_branch(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    loop = loop_of(repo)
    opening.require_branch(loop.git, loop.branch)
    for name, said in (
        ("a..b", r"'a\.\.b' is not a valid branch name"),
        ("main", "main is checked out in .*; switch away"),
    ):
        loop.branch.name = name
        with pytest.raises(BadInput, match=said):
            opening.require_branch(loop.git, loop.branch)
    loop.branch.name = "x/y/z"
    opening.require_branch(loop.git, loop.branch)
    repo.git("config", "--unset", "user.email")
    repo.git("config", "user.useConfigOnly", "true")
    with pytest.raises(BadInput, match="does not know who commits"):
        opening.require_branch(loop.git, loop.branch)


@cases("""
option  named  before     sits     wanted
mine    plans  ralph/old  main     mine
-       plans  ralph/old  main     plans
-       -      ralph/old  main     ralph/old
-       -      -          main     ralph/p
-       -      -          feature  ralph/p
-       -      feature    feature  feature
""")
def test_the_branch_is_the_one_named_else_that_of_the_run_before_else_its_own(
    repo: Repo, option: str, named: str, before: str, sits: str, wanted: str
) -> None:
    """Never the one that a person is on; one who sits on that of the run before is
    told."""
    repo.plan({"checks": ["true"]}, branchName=named)
    if before:
        key = loop_of(repo).log.key
        record = {"v": 2, "event": "run", "plan": key, "branch": before}
        repo.write("progress.txt", f"<!-- ralph {json.dumps(record)} -->\n")
    repo.git("checkout", "-q", "-B", sits)
    assert loop_of(repo, branch=option or None).branch.name == wanted


@cases("""
known -> is_to_be_mended
{"holds": false} -> yes
{"holds": true}
{"holds": false, "starts_red": true}
{"holds": false, "fault": ["x", "x is missing"]}
{"holds": false, "unloaded": ["No module named x: a.py does not run"]}
""")
def test_a_plan_is_to_mend_what_is_red_by_itself(
    known: str, is_to_be_mended: str
) -> None:
    red = CheckResult("a", "make a", ok=False)
    given = json.loads(known)
    if "fault" in given:
        given["fault"] = Fault(*given["fault"])
    guard = Guard(Check("a", "make a"), red, **given)
    assert guard.is_to_be_mended is bool(is_to_be_mended)
