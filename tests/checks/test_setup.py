"""What a red `setup` means: its result on the branch's own files decides."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Repo, cases
from tests.scripts import LOOKS_OFTEN

SOON = f"""{LOOKS_OFTEN}
from _ralph.state import limits
limits.BACKOFF = (1.0, 2.0)
"""
AWAY = "echo the registry is away; exit 3"
IN_WORKSPACE = "case $PWD in */work-*) ! test -e {0}/away;; esac || {{ " + AWAY + "; }}"
MAKES = """
(OUT / f"ran-{attempt}").write_text(prompt)
P("T1.txt").touch()
"""
HINTS = "\n".join(f"hint {number}: {'x' * 60}" for number in range(9))


def plan(repo: Repo, setup: str | dict[str, Any], **more: Any) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, setup=setup, **more)


def prompts(repo: Repo) -> list[str]:
    """What the agents got that were started."""
    return [path.read_text() for path in sorted(repo.outside.glob("ran-*"))]


# The cause, and not the hints after it; and as pip does, which would install into the
# person's Python.
@cases("""
why -> script -> said
failed -> printf 'resolving\\nERROR: no such package\\nHINTS'; exit 3 -> : ERROR: no such package hint 0
pip -> test -z "$PIP_REQUIRE_VIRTUALENV" || { echo 'ERROR: Could not find an activated virtualenv'; exit 3; } -> python3 -m venv .venv && .venv/bin/pip install
""")
def test_red_at_the_start_no_agent_is_paid(
    repo: Repo, why: str, script: str, said: str
) -> None:
    script = script.replace("HINTS", HINTS)
    plan(repo, str(repo.program("../setup", script)))
    code, summary, printed = repo.run(repo.agent(MAKES))
    assert (code, prompts(repo)) == (2, []), printed
    assert said in summary["reason"]
    assert "hint 8" not in summary["reason"]
    if why == "failed":
        assert "the last run stopped at" in repo.ralph("status").stdout
        repo.program("../setup", "true")
        assert repo.run(repo.agent(MAKES))[0] == 0


@pytest.mark.parametrize("where", ["the workspace", "the room"])
def test_red_later_on_the_branch_s_own_files_it_is_waited_for(
    repo: Repo, where: str
) -> None:
    """The registry comes back with the notification that it is away; no attempt counts
    for it."""
    away = repo.outside / "away"
    if where == "the workspace":
        away.touch()
        agent, setup = MAKES, IN_WORKSPACE.format(repo.outside)
    else:
        agent = f"(OUT / 'away').touch()\n{MAKES}"
        setup = f"! test -e {away} || {{ {AWAY}; }}"
    plan(repo, setup)
    notify = f"cat > {away}-said; rm -f {away}"
    words = ("--agent", repo.agent(agent), "--notify", notify)
    done = repo.ralph("run", *words, first=SOON, timeout=90)
    assert (done.returncode, repo.verdicts()) == (0, ["T1 passed"]), done.stdout
    assert len(prompts(repo)) == 1
    assert "setup failed with exit 3" in done.stdout
    assert "it is tried again" in done.stdout


@cases("""
options            code
--max-hours 0.001  3
--max-wait 0       75
""")
def test_a_wait_for_setup_ends_with_the_run_and_counts_no_attempt(
    repo: Repo, options: str, code: str
) -> None:
    repo.write("../away", "")
    plan(repo, IN_WORKSPACE.format(repo.outside))
    done = repo.ralph("run", "--agent", repo.agent(MAKES), *options.split(), first=SOON)
    assert (done.returncode, prompts(repo)) == (int(code), []), done.stdout
    assert "setup failed with exit 3" in done.stdout + done.stderr
    for record in repo.records("verdict"):
        assert "attempt" not in record


def test_red_on_a_candidate_alone_is_a_red_check(repo: Repo) -> None:
    """And on the work that it leaves, the next agent starts all the same, with setup's
    words from the verdict."""
    setup = "test ! -e broken.lock || { echo broken lock file; exit 3; }"
    plan(repo, setup)
    lock = "(P('broken.lock').touch if attempt == 1 else P('broken.lock').unlink)()"
    code, _, printed = repo.run(repo.agent(f"{MAKES}\n{lock}"))
    assert (code, repo.verdicts()) == (0, ["T1 failed", "T1 passed"]), printed
    assert repo.records("verdict")[0]["checks"] == {setup: False}
    first, second = prompts(repo)
    assert "\nbroken lock file" not in first
    assert "\nbroken lock file" in second
