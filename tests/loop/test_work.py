"""An agent at work: what stands in its workspace, and what of all that it leaves is its
work."""

from __future__ import annotations

from collections.abc import Callable

from _ralph.loop.loop import Loop
from _ralph.loop.stages import Begun, Worked
from _ralph.loop.work import first_snapshot, run_agent, second_snapshot
from _ralph.model import Outcome, Verdict
from tests.conftest import Repo
from tests.git.support import listing
from tests.git.test_branch import work_on
from tests.loop.test_claim import claimed, ends

Opened = Callable[..., Loop]
TASK = {"checks": ["test -f work.txt"]}


def begun_by(repo: Repo, opened: Opened, script: str) -> tuple[Loop, Begun]:
    """An attempt of an agent that runs this script of the shell; a test is protected."""
    repo.write("tests/test_a.py", "def test(): ...\n")
    repo.commit("test")
    agent = repo.program("../agent", script)
    repo.plan(TASK, agent=str(agent), protect=["tests/**"])
    loop = opened()
    return loop, claimed(loop)


def worked(loop: Loop, begun: Begun) -> Worked:
    start = first_snapshot(loop, begun)
    result = run_agent(loop, begun)
    return second_snapshot(loop, begun, start, result)


SCRIPT = """
echo good > work.txt; echo bad > tests/test_a.py; echo '{}' > prd.json; mkfifo pipe
printf 'status: done\\nlearned: use make\\n' > "$RALPH_HANDOFF"
"""


def test_what_an_agent_leaves(repo: Repo, opened: Opened) -> None:
    loop, begun = begun_by(repo, opened, SCRIPT)
    found = worked(loop, begun)
    assert found.result.outcome is Outcome.DONE
    new = listing(repo, found.left).keys() - listing(repo, begun.base).keys()
    assert new == {"work.txt"}
    assert repo.git("show", f"{found.left}:tests/test_a.py") == "bad\n"
    assert repo.git("show", f"{found.tree}:tests/test_a.py") == "def test(): ...\n"
    assert found.restored[0] == "tests/test_a.py"
    assert found.restored[1].startswith("prd.json (a copy; ")
    assert [*found.notices] == ["git cannot add pipe; it was removed"]
    assert found.handoff.startswith("status: done")
    assert repo.read("prd.json").startswith('{\n  "project"')


def test_protected_files_in_unfinished_work_are_the_base_s_again(
    repo: Repo, opened: Opened
) -> None:
    """They may have been the task's own to change when it was left; a person can take
    that back."""
    loop, begun = begun_by(repo, opened, "cat tests/test_a.py > seen")
    commit = work_on(repo, begun.base, "tests/test_a.py")
    ends(loop, "T1", Verdict.FAILED, left=loop.git.tree(commit), base=begun.base)
    again = claimed(loop)
    assert again.left
    found = worked(loop, again)
    assert listing(repo, found.left)["seen"] == ("100644", "def test(): ...\n")
    assert [*found.restored] == []
