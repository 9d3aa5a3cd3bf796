"""`ralph init`: write the files that a project lacks."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

from _ralph import text
from _ralph.agents.prompt import render_prompt
from _ralph.commands.detect import Project, as_json
from _ralph.errors import BadInput
from _ralph.files import resource
from _ralph.git.git import git, top_level
from _ralph.model import Json, Plan, Setup
from _ralph.state import edit, prd
from _ralph.state.options import is_starter, starter
from _ralph.state.summary import command_line

SCHEMA = ".ralph/prd.schema.json"
INCLUDE = ".worktreeinclude"
CLAUDE = ".claude/settings.local.json"
EXAMPLES = (".example", ".sample", ".template", ".dist")


def write_starters(prd_path: Path) -> list[str]:
    """Write prd.json, AGENTS.md, the .gitignore line and .worktreeinclude where they
    are missing; what was done."""
    folder = prd_path.parent
    folder.mkdir(parents=True, exist_ok=True)
    root = top_level(folder) or folder
    _refuse_second_plan(prd_path, root)
    done = [_init_plan(prd_path, root)]
    _write_schema(prd_path)
    rulebook = root / "AGENTS.md"
    if rulebook.exists():
        done.append("AGENTS.md already exists; left as it is")
    else:
        plan = prd.load(prd_path)
        setup = plan.setup.run if plan.setup else ""
        plain = {check.command: check.name for check in _project(root).checks(setup)}
        commands = [plain.get(check.command, check.command) for check in plan.checks]
        values = {"setup": setup, "checks": commands}
        rulebook.write_text(
            render_prompt(resource("templates/AGENTS.md"), values), encoding="utf-8"
        )
        done.append(
            "wrote AGENTS.md: the rules every attempt reads; it is yours to edit"
        )
    done.append(_ignore_scratch(root))
    return done + _include_settings(root)


def eject_prompt(prd_path: Path) -> list[str]:
    """Write the built-in prompt template as PROMPT.md beside prd.json."""
    target = prd_path.parent / "PROMPT.md"
    if target.exists():
        raise BadInput(f"{target} already exists; nothing was written")
    shutil.copyfile(resource("templates/prompt.md"), target)
    return [
        f'wrote {target}; use it with --prompt {target} or "prompt": "PROMPT.md" in {prd_path.name}'
    ]


def _refuse_second_plan(path: Path, root: Path) -> None:
    """BadInput where the project has a plan in another folder, and no folder was
    named."""
    if path.exists() or path.parent != Path():
        return
    above = prd.plan_above(path)
    if above and above.resolve().is_relative_to(root.resolve()):
        raise BadInput(
            f"the plan of this repository is {above}: {command_line('init', above)} adds what it lacks; "
            f"for another one here: --prd {shlex.quote(str(path.absolute()))}"
        )


def _init_plan(path: Path, root: Path) -> str:
    """Write a plan with what is found here, or add that to a plan that does not say
    it."""
    project = _project(root)
    if not path.exists():
        proposal = _proposal(project, project.setup)
        name = text.one_line(path.parent.resolve().name)
        new = {"$schema": SCHEMA, "project": name, "description": "", **proposal}
        new |= {key: value for key, value in starter().items() if key not in new}
        path.write_text(
            json.dumps(new, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        watches = project.watches if not proposal["checks"] else ""
        no_check = f"; `{watches}` never ends, so it is no check" if watches else ""
        return f"wrote {path}; {_in_words(proposal)}{no_check}"
    plan = prd.load(path)
    missing = _missing(plan, project)
    if not missing:
        return f"{path} already exists; left as it is"
    edit.apply(plan, lambda now: edit.set_members(now, missing))
    return f"added to {path}: {_in_words(missing)}; nothing else was changed"


def _write_schema(path: Path) -> None:
    """Put the schema where a plan of `ralph init` names it, for editors: as this
    version has it."""
    if prd.load(path).top.get("$schema") == SCHEMA:
        target = path.parent / SCHEMA
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(resource("prd.schema.json"), target)


def _project(root: Path) -> Project:
    """The project in the folder that ralph was started in, if there is one, else the
    whole repository's."""
    here, top = Path.cwd(), root.resolve()
    inside = Project(root, str(here.relative_to(top))) if top in here.parents else None
    return inside if inside and (inside.setup or inside.checks("")) else Project(root)


def _proposal(project: Project, setup: Setup | None) -> Json:
    """What a plan says about this project; its checks are those for this `setup`."""
    return {
        **({"setup": as_json(setup)} if setup else {}),
        **({"keep": project.keep} if project.keep else {}),
        "checks": [
            as_json(check) for check in project.checks(setup.run if setup else "")
        ],
        "protect": project.protect,
    }


def _missing(plan: Plan, project: Project) -> Json:
    """The part of the proposal that the plan lacks. An empty list counts as an answer,
    except for checks, and in a plan that nobody has edited."""
    if plan.list_key is None:
        return {}
    proposal = _proposal(project, plan.setup if "setup" in plan.top else project.setup)
    lacking = {
        key
        for key in proposal
        if key not in plan.top or (is_starter(plan) and not plan.top[key])
    }
    lacking = lacking - {"checks"} if _can_be_proved(plan) else lacking | {"checks"}
    return {key: value for key, value in proposal.items() if key in lacking and value}


def _in_words(proposal: Json) -> str:
    """`setup: npm ci; checks: npm test; protect: none found`."""
    lists = proposal | ({"setup": [proposal["setup"]]} if "setup" in proposal else {})
    return "; ".join(
        f"{key}: {', '.join(map(_name, lists[key])) or 'none found'}" for key in lists
    )


def _name(found: str | Json) -> str:
    """What a setup, a check or a pattern is called in one line."""
    return str(found.get("name", found["run"])) if isinstance(found, dict) else found


def _can_be_proved(plan: Plan) -> bool:
    return bool(plan.checks or any(task.checks for task in plan.tasks))


def next_steps(path: Path) -> list[str]:
    """What to do now, then the commands that follow."""
    plan = prd.load(path)
    first = []
    if is_starter(plan):
        first.append(
            f"next: edit {path}: the tasks, and the checks that prove them. "
            f"Or write what you want into brief.md, and after the commit: ralph plan brief.md"
        )
    elif not _can_be_proved(plan):
        where = (
            f'"checks" in {path}'
            if plan.list_key
            else f'"checks" in the tasks of {path}'
        )
        first.append(f"next: name the commands that prove the work under {where}")
    commands = [
        *_git_steps(path),
        command_line("doctor", path),
        command_line("run", path),
    ]
    return [*first, f"{'then' if first else 'next'}: {'; '.join(commands)}"]


def _git_steps(path: Path) -> list[str]:
    """The commands that commit the plan, where that is not done."""
    here = "git" if path.parent == Path() else f"git -C {shlex.quote(str(path.parent))}"
    start = f"{here} add -A && {here} commit -m start"
    root = top_level(path.parent)
    if root is None:
        return [f"{here} init", start]
    if not git(root, "rev-parse", "-q", "--verify", "HEAD", check=False):
        return [start]
    folder = path.parent.resolve()
    beside = ("AGENTS.md", ".gitignore", INCLUDE)
    names = [path.name, *(os.path.relpath(root / name, folder) for name in beside)]
    changed = git(folder, "ls-files", "-omz", "--exclude-standard", "--", *names).split(
        "\0"
    )
    new = [name for name in names if name in changed]
    return [f"{here} add {shlex.join(new)} && {here} commit -m plan"] if new else []


def _ignore_scratch(root: Path) -> str:
    ignore = root / ".gitignore"
    there = ignore.read_text("utf-8", "surrogateescape") if ignore.exists() else ""
    if ".ralph/" in there.splitlines():
        return ".gitignore lists .ralph/ already"
    with ignore.open("a", encoding="utf-8") as file:
        file.write(".ralph/\n" if there.endswith("\n") or not there else "\n.ralph/\n")
    return "added .ralph/ to .gitignore"


def _include_settings(root: Path) -> list[str]:
    """Name in .worktreeinclude the local settings that git ignores: a checkout lacks
    them."""
    names = local_settings(root)
    if not names:
        return []
    (root / INCLUDE).write_text(
        "".join(f"{name}\n" for name in names), encoding="utf-8"
    )
    copied = f"these ignored files are copied for agents and checks: {', '.join(names)}"
    return [f"wrote {INCLUDE}: {copied}. Remove any that they must not see"]


def local_settings(root: Path) -> list[str]:
    """Local settings that git ignores, as lines of .worktreeinclude; none where that
    file exists."""
    if (root / INCLUDE).exists() or not top_level(root):
        return []
    words = ("ls-files", "-oiz", "--directory", "--exclude-standard")
    ignored = git(root, *words, check=False).split("\0")
    names = {name.rpartition("/")[2] for name in ignored}
    settings = sorted(
        name
        for name in names
        if name.startswith(".env") and not name.endswith(EXAMPLES)
    )
    if (root / CLAUDE).is_file() and any(
        CLAUDE.startswith(name) for name in ignored if name
    ):
        settings.append(CLAUDE)
    return settings
