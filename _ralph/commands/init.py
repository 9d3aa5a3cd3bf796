"""`ralph init`: write the files that a project lacks."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from _ralph import files, text
from _ralph.agents.prompt import render_prompt
from _ralph.commands.detect import Project
from _ralph.errors import BadInput
from _ralph.files import read_regular, resource
from _ralph.git import patterns
from _ralph.git.git import in_folder, names_in
from _ralph.model import Json, Plan
from _ralph.state import edit, jsontext, prd
from _ralph.state.layout import locate, own_branch
from _ralph.state.options import is_starter, starter
from _ralph.state.summary import command_line

INCLUDE = ".worktreeinclude"
SETTINGS = (".env", ".mcp.json", "CLAUDE.local.md")
"""What agents and checks read, and many projects do not commit."""
AGENTS_FOLDERS = (".claude", ".codex", ".gemini")
EXAMPLES = (".example", ".sample", ".template", ".dist")


def write_starters(path: Path) -> list[str]:
    """Write prd.json, AGENTS.md, the .gitignore line and .worktreeinclude where they
    are missing; what was done, a line each. BadInput outside of a repository."""
    path.parent.mkdir(parents=True, exist_ok=True)
    paths = locate(path)
    root = paths.root
    project = Project(root)
    done = _write_plan(path, project)
    if project.absent:
        done.append(f"  not proposed, as not installed: {', '.join(project.absent)}")
    plan = prd.load(path)
    schema = starter()["$schema"]
    if plan.top.get("$schema") == schema:  # for editors, as this version has it
        (path.parent / schema).parent.mkdir(exist_ok=True)
        shutil.copyfile(resource("prd.schema.json"), path.parent / schema)
    if paths.rulebook.exists():
        done.append("AGENTS.md already exists; left as it is")
    else:
        files.atomic_write(paths.rulebook, _rules(plan).encode())
        done.append("wrote AGENTS.md, the rules for every attempt; edit it as you like")
    if _add_line(root / ".gitignore", ".ralph/"):
        done.append("added .ralph/ to .gitignore")
    settings = local_settings(root)
    if settings and not (root / INCLUDE).exists():
        files.atomic_write(root / INCLUDE, "\n".join([*settings, ""]).encode())
        names = ", ".join(settings)
        done.append(f"wrote {INCLUDE}: agents and checks get copies of {names}")
    return done


def eject_prompt(prd_path: Path) -> list[str]:
    """Write the built-in prompt template as PROMPT.md beside prd.json."""
    target = prd_path.parent / "PROMPT.md"
    if target.exists():
        raise BadInput(f"{target} already exists; nothing was written")
    shutil.copyfile(resource("templates/prompt.md"), target)
    in_plan = f'"prompt": "PROMPT.md" in {prd_path.name}'
    return [f"wrote {target}; use it with --prompt {target} or {in_plan}"]


def _write_plan(path: Path, project: Project) -> list[str]:
    """Write a plan with what was found, or add what a plan lacks of that; what was
    written, a line each."""
    if not path.exists():
        name = text.one_line(path.parent.resolve().name)
        plan = prd.read(jsontext.dump(starter() | {"project": name}), path)
        found = _found(project, plan)
        found.setdefault("checks", [])
        top = plan.top | found
        top["userStories"] = top.pop("userStories")  # last
        files.atomic_write(path, (jsontext.dump(top, "  ") + "\n").encode())
        return [f"wrote {path}", *_in_words(found)]
    plan = prd.load(path)
    found = _found(project, plan)
    if not found or plan.list_key is None:
        return [f"{path} already exists; left as it is"]
    edit.apply(plan, lambda now: edit.set_members(now, found))
    return [f"added to {path}, and changed nothing else", *_in_words(found)]


def _found(project: Project, plan: Plan) -> Json:
    """What a plan does not say about the project."""
    found: Json = {}
    if not plan.branch and not (plan.path.parent / "progress.txt").exists():
        found["branchName"] = own_branch(plan)  # earlier runs stay this plan's
    setup = plan.top.get("setup", project.setup)
    found["setup"] = setup
    if not setup or isinstance(setup, dict):  # else nothing could stay
        found["keep"] = project.keep
    if not _can_be_proved(plan):
        found["checks"] = project.checks(str(setup))
    found["protect"] = project.protect
    known = plan.top.keys() - {"checks"}
    return {key: value for key, value in found.items() if value and key not in known}


def _in_words(found: Json) -> list[str]:
    """A line for each key: `  checks: npm run lint, npm test`."""
    lines = []
    for key, value in found.items():
        names = []
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, dict):
                entry = entry.get("name", entry["run"])
            names.append(entry)
        lines.append(f"  {key}: {', '.join(names) or 'none found'}")
    return lines


def _rules(plan: Plan) -> str:
    """AGENTS.md with the setup and the checks of a plan."""
    commands = []
    for check in plan.checks:
        # with results, its name is the plain command
        commands.append(check.name if check.results else check.command)
    values = {"setup": plan.setup and plan.setup.run, "checks": commands}
    return render_prompt(resource("templates/AGENTS.md"), values)


def _add_line(path: Path, line: str) -> bool:
    """Add a line at the end of a file; False if it is in there."""
    there = (read_regular(path) or b"").decode("utf-8", "surrogateescape")
    if line in there.splitlines():
        return False
    there = there.rstrip("\n") + "\n" if there else ""
    files.atomic_write(path, f"{there}{line}\n".encode("utf-8", "surrogateescape"))
    return True


def local_settings(root: Path) -> list[str]:
    """What agents and checks read, git ignores, and .worktreeinclude does not name, as
    lines for that file."""
    lines = set()
    words = ("ls-files", "-oiz", "--directory", "--exclude-standard")
    for path in names_in(in_folder(root).maybe(*words)):
        folder, _, name = path.rpartition("/")
        if folder in AGENTS_FOLDERS:
            inside = [name] if name else os.listdir(root / folder)
            lines |= {f"{folder}/{one}" for one in inside if one != "worktrees"}
        elif name.startswith(SETTINGS) and not name.endswith(EXAMPLES):
            lines.add(name)
    named = (read_regular(root / INCLUDE) or b"").decode("utf-8", "replace")
    return sorted(lines - patterns.matching(named.splitlines(), lines))


def _can_be_proved(plan: Plan) -> bool:
    return bool(plan.checks or any(task.checks for task in plan.tasks))


def next_steps(path: Path) -> list[str]:
    """What to do now, then the commands that follow."""
    plan = prd.load(path)
    commands = [
        *_git_steps(path),
        command_line("doctor", path),
        command_line("run", path),
    ]
    then = "; ".join(commands)
    if is_starter(plan):
        first = (
            f"edit {path}: the tasks, and the checks that prove them. Or write "
            f"what you want into brief.md, and after the commit: ralph plan brief.md"
        )
    elif not _can_be_proved(plan):
        first = f'name the commands that prove the work under "checks" in {path}'
    else:
        return [f"next: {then}"]
    return [f"next: {first}", f"then: {then}"]


def _git_steps(path: Path) -> list[str]:
    """The command that commits the plan, where that is not done."""
    root = locate(path).root
    if not in_folder(root).maybe("rev-parse", "-q", "--verify", "HEAD"):
        return ["git add -A && git commit -m start"]
    files = [path, *(root / name for name in ("AGENTS.md", ".gitignore", INCLUDE))]
    names = [os.path.relpath(file) for file in files]
    words = ("ls-files", "-omz", "--exclude-standard", "--")
    changed = sorted(names_in(in_folder(Path())(*words, *names)))
    return [f"git add {shlex.join(changed)} && git commit -m plan"] if changed else []
