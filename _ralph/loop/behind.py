"""The other side of a prefix, a sandbox, too: what must be true there before an agent
is paid."""

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
_FOREIGN, _LOGIN = "the files of another user", "a login: "
_SCRIPT = f"""
read -r word && test "$word" = ralph || exit 80
test -d .git || exit 81
: > {_SEEN} || exit 82
git log -1 --format=%s || exit 83
owner() {{ set -- $(ls -nd "$1"); echo "$3"; }}
test "$(owner .)" = "$(owner {_SEEN})" || {{ echo {_FOREIGN}; chown "$(owner .)" {_SEEN} || exit 85; }}
while test "$1" != --; do command -v -- "$1" || {{ echo "$1"; exit 84; }}; shift; done
for login; do
    case $login in
        '$'*) test "$(printenv "${{login#?}}")" ;;
        *) test -f "$HOME/$login" ;;
    esac && echo "{_LOGIN}$login"
done
true
"""
_WRONG = {
    80: "what is written to it does not arrive there, so no prompt would; a container needs: -i",
    81: "it does not see the place {place}; a container needs: "
    "-v {{place}}:{{place}} -w {{place}}; or it is another user's, and needs: --user {user}",
    82: "it cannot write in the place {place}; a container may need: --user {user}",
    85: "what it makes is another user's, who cannot give it to you; a container needs: --user {user}",
    83: "git does not work there: {said}; a container needs git, and: -v {{objects}}:{{objects}}:ro",
}


def require_other_side(run: Run, tip: str, agents: Sequence[Agent]) -> set[str]:
    """BadInput where commands behind the prefix could not work on the commit `tip`,
    AgentUnavailable where one of the `agents` is missing there; what is there of their
    keys and logins, as rows name them."""
    if run.places.prefix is None:
        return set()
    result = run.wait(
        run.in_worker(lambda inside: look(inside, tip, agents), Checked)
    ).checks[0]
    if not result.ok and result.exit == 84:
        missing = text.last_line(result.tail)
        raise AgentUnavailable(
            f"{run.places.prefix} does not see the agent {missing!r}; install it where it does"
        )
    if why := what_is_wrong(run, result):
        raise BadInput(f"{run.places.prefix}: {why}")
    run.places.prefix = replace(run.places.prefix, foreign=_FOREIGN in result.tail)
    return {
        line.removeprefix(_LOGIN)
        for line in result.tail.splitlines()
        if line.startswith(_LOGIN)
    }


def look(run: Run, tip: str, agents: Sequence[Agent]) -> Checked:
    """Look at the other side, in the place of a role that holds `tip`."""
    place = place_of_role(run, tip)
    programs = [
        registry.found(agent.program) if run.places.here else agent.program
        for agent in agents
    ]
    logins = [name for agent in agents for name in registry.credential_names(agent)]
    check = Check(
        "prefix", ("/bin/sh", "-c", _SCRIPT, "sh", *programs, "--", *logins), _PATIENCE
    )
    result = run.places.run(
        check, place.root, "prefix", "before the work: ", stdin=b"ralph\n"
    )
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
        said = text.one_line(
            result.tail[-300:], 300
        )  # its last line may only name a manual
        return known.format(**values) if known else f"{result.outcome}: {said}"
    if files.read_regular(run.paths.role / _SEEN) is None:
        return f"what it writes in the place {run.paths.role} is not seen here; both sides need the same path"
    return ""
