"""`ralph job`: the file that starts a run on cron, systemd and others. The engines are
the templates in `templates/jobs/`; here are the values and the quoting that they
use."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from _ralph import files, text
from _ralph.agents.registry import Agent
from _ralph.errors import GOES_ON, BadInput, Exit
from _ralph.loop import opening
from _ralph.loop.options import Options, load_plan
from _ralph.model import Json
from _ralph.state import layout
from _ralph.state.history import History
from _ralph.state.limits import Limits

HELD = (Exit.USAGE, Exit.PERSON, Exit.AGENT)
"""After these a person is needed. After `Exit.ERROR` an engine tries again, but not for
ever."""
_SAFE = re.compile(r"[\w@+=:,./-]+", re.ASCII)
_OBEYED = re.compile(
    r"(ANTHROPIC|CLAUDE|AWS|OPENAI|GEMINI)_.*|.*_PROXY|XDG_(CONFIG|STATE)_HOME|RALPH_PLACES",
    re.IGNORECASE,
)
"""Variables that ralph, git and agents obey, beside those that the agents' rows
name."""


@dataclass(frozen=True)
class Planned:
    """One plan of a job: `ralph run` with `words`, in the folder `root`."""

    name: str
    root: str
    prd: str
    notes: str
    words: tuple[str, ...]
    night: tuple[
        str, ...
    ]  # the words that end a run in the morning, where nothing else bounds its time
    branch: str
    keys: tuple[str, ...]  # the variables that its agents are billed by
    origin: str  # where its repository can be cloned
    set_here: tuple[str, ...] = ()  # variables of now that it would miss elsewhere


def job_file(engine: str, prds: Sequence[Path], options: Options) -> str:
    """The file that `engine` takes to run the plans `prds` with the options given.
    Makes the folder of its log. BadInput for a plan that cannot be run, and names that
    no such file can hold."""
    plans = list(dict.fromkeys(planned(replace(options, prd=prd)) for prd in prds))
    if len({(plan.root, plan.branch) for plan in plans}) < len(plans):
        raise BadInput(
            "two of these plans would land on the same branch; give each a branchName"
        )
    state, path, program = layout.state_folder(), search_path(), started()
    folders = [str(state), *(plan.root for plan in plans)]
    words = [word for plan in plans for word in plan.words]
    plain = all(
        folder == folder.strip() and not folder.endswith("\\") for folder in folders
    )
    if (
        not plain
        or "\\" in str(state)
        or not all(map(str.isprintable, [*folders, path, *program, *words]))
    ):
        raise BadInput(
            "a name here has characters that cannot stand in a job file; rename it"
        )
    state.mkdir(parents=True, exist_ok=True)
    values = {
        "name": plans[0].name
        if len(plans) == 1
        else _name(plans[0].root, [plan.name for plan in plans]),
        "plans": plans,
        "keys": sorted({key for plan in plans for key in plan.keys}),
        "set_here": sorted({name for plan in plans for name in plan.set_here}),
        "state": str(state),
        "path": path,
        "program": program,
        "goes_on": sorted(map(int, GOES_ON)),
        "held": sorted(map(int, HELD)),
    }
    return render(engine, values)


def planned(options: Options) -> Planned:
    """One plan as its job needs it. BadInput if it cannot be read, or is wrong."""
    paths = layout.locate(options.prd)
    try:
        run = opening.build_run(options, paths, load_plan(paths, options), History())
    except BadInput as error:
        raise BadInput(f"in {paths.prd.parent}: {error}") from None
    prd, notes = (
        os.path.relpath(path, paths.root) for path in (paths.prd, paths.progress)
    )
    words = ["--prd", prd] if prd != "prd.json" else []
    team = opening.agents_of(run)
    keys = {key for agent in team for key in agent.row.get("keys", [])}
    origin = run.git("config", "--get", "remote.origin.url", check=False).strip()
    if not origin or re.match("https?://[^/]*@", origin):  # which can be a secret
        origin = "REPOSITORY"
    bounded = options.until or run.limits.hours != Limits().hours
    return Planned(
        _name(paths.root, paths.prd), str(paths.root), prd, notes, tuple(words),
        () if bounded else ("--until", "07:00"), run.branch.name, tuple(sorted(keys)), origin,
        tuple(set_here(team)),
    )  # fmt: skip


def set_here(team: Sequence[Agent]) -> list[str]:
    """The variables of now that decide what ralph, git and these agents do, and that
    cron does not set."""
    named = {
        name
        for agent in team
        for name in (*agent.row.get("keys", []), agent.row.get("root_needs"))
    }
    for agent in team:
        places = (*agent.row.get("login", []), *agent.row.get("config", []))
        named |= {place[1:] for place in places if place.startswith("$")}
    return [
        name for name in sorted(os.environ) if name in named or _OBEYED.fullmatch(name)
    ]


def _name(root: str | Path, plans: object) -> str:
    """A name for all that belongs to a job, which every engine takes, and no other job
    has."""
    kind = text.slug(os.path.basename(root)).lower().replace("_", "-")
    return f"ralph-{kind}-{files.digest(os.fsencode(str(plans)))[:6]}"


def search_path() -> str:
    """The PATH of now: the folders that exist, each once."""
    entries = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(
        dict.fromkeys(e for e in entries if e.startswith("/") and os.path.isdir(e))
    )


def started() -> tuple[str, ...]:
    """ralph as it was started now, by absolute names."""
    program = os.path.abspath(sys.argv[0])
    return (sys.executable, program) if program.endswith(".py") else (program,)


def render(engine: str, values: Json) -> str:
    """The template of an engine with these values."""
    import jinja2

    loader = jinja2.FileSystemLoader(files.resource("templates/jobs"))
    blocks: Json = {
        "trim_blocks": True,
        "lstrip_blocks": True,
        "keep_trailing_newline": True,
    }
    env = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **blocks)
    env.filters |= FILTERS
    return env.get_template(f"{engine}.j2").render(**values)


def _crontab(command: str) -> str:
    """A command of the shell for a line of a crontab, where % is a newline."""
    # In some crons a backslash also escapes another one; '' between them is nothing to
    # the shell.
    return re.sub(r"\\(?=[\\%])", r"\\''", command).replace("%", r"\%")


def _unit(word: str) -> str:
    """A word of a systemd unit's line, in quotes where it needs them."""
    if _SAFE.fullmatch(word):
        return word
    quoted = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{quoted}"'


def _literal(value: str) -> str:
    """A text for a GitHub workflow, in which `${{` would begin an expression."""
    return str(value).replace(
        "${{", "${{ '${{' }}"
    )  # else Markup would quote what is put in


FILTERS: Mapping[str, Callable[..., str]] = {
    "word": shlex.quote,
    "command": shlex.join,
    "crontab": _crontab,
    "literal": _literal,
    "unit": _unit,
}
"""How the templates quote, with `tojson` for YAML; a word and a command are a
shell's."""
