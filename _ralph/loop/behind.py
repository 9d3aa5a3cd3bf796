"""The other side of a prefix, a sandbox, too: what must be true there before an agent is paid."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from _ralph import files, text
from _ralph.agents import registry
from _ralph.agents.registry import Agent
from _ralph.errors import AgentUnavailable, BadInput, StopNow
from _ralph.loop.jobs import Checked
from _ralph.loop.roles import place_of_role
from _ralph.loop.run import Run
from _ralph.model import Check, CheckResult

_PATIENCE = 120.0
"""Seconds that the other side may take to answer: it may have to pull an image."""
_SEEN = ".git/ralph-seen"
_FOREIGN = "the files of another user"
_SCRIPT = f"""
test -d .git || exit 81
: > {_SEEN} || exit 82
git log -1 --format=%s || exit 83
owner() {{ set -- $(ls -nd "$1"); echo "$3"; }}
test "$(owner .)" = "$(owner {_SEEN})" || {{ echo {_FOREIGN}; chown "$(owner .)" {_SEEN} || exit 85; }}
for program; do command -v -- "$program" || {{ echo "$program"; exit 84; }}; done
"""
_WRONG = {
    81: "it does not see the place {place}; a container needs: "
    "-v {{place}}:{{place}} -w {{place}}; or it is another user's, and needs: --user {user}",
    82: "it cannot write in the place {place}; a container may need: --user {user}",
    85: "what it makes is another user's, who cannot give it to you; a container needs: --user {user}",
    83: "git does not work there: {said}; a container needs git, and: -v {{objects}}:{{objects}}:ro",
}


def require_other_side(run: Run, tip: str, agents: Sequence[Agent]) -> None:
    """BadInput where commands behind the prefix could not work on the commit `tip`, AgentUnavailable where
    one of the `agents` is missing there."""
    if run.places.prefix is None:
        return
    result = run.wait(run.in_worker(lambda inside: look(inside, tip, agents), Checked)).checks[0]
    if not result.ok and result.exit == 84:
        missing = text.last_line(result.tail)
        raise AgentUnavailable(
            f"{run.places.prefix} does not see the agent {missing!r}; install it where it does"
        )
    if why := what_is_wrong(run, result):
        raise BadInput(f"{run.places.prefix}: {why}")
    run.places.prefix = replace(run.places.prefix, foreign=_FOREIGN in result.tail)


def look(run: Run, tip: str, agents: Sequence[Agent]) -> Checked:
    """Look at the other side, in the place of a role that holds `tip`."""
    place = place_of_role(run, tip)
    programs = [registry.found(agent.program) if run.places.here else agent.program for agent in agents]
    check = Check("prefix", ("/bin/sh", "-c", _SCRIPT, "sh", *programs), _PATIENCE)
    result = run.places.run(check, place.root, "prefix", "before the work: ")
    if result is None:
        raise StopNow
    return Checked(checks=[result])


def what_is_wrong(run: Run, result: CheckResult) -> str:
    """Why commands behind the prefix could not work; nothing if they can."""
    values = {
        "place": run.paths.role,
        "user": f"{os.getuid()}:{os.getgid()}",
        "said": text.last_line(result.tail),
    }
    if not result.ok:
        known = _WRONG.get(result.exit or 0, "")
        return known.format(**values) if known else f"{result.outcome}: {text.last_line(result.tail)}"
    if files.read_regular(run.paths.role / _SEEN) is None:
        return f"what it writes in the place {run.paths.role} is not seen here; both sides need the same path"
    return ""
