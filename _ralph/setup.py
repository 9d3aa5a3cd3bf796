"""Before the first night: `ralph init` writes what is missing."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

from _ralph import edit, prd
from _ralph.detect import detect_checks, detect_protected
from _ralph.ends import BadInput
from _ralph.files import resource
from _ralph.git import git, top_level
from _ralph.model import Plan
from _ralph.run import is_starter, starter


def write_starters(prd_path: Path, use_git: bool = True) -> list[str]:
    """Write prd.json, AGENTS.md and the .gitignore line where they are missing; what was done."""
    folder = prd_path.parent
    folder.mkdir(parents=True, exist_ok=True)
    root = (top_level(folder) if use_git else None) or folder
    _refuse_second_plan(prd_path, root)
    said = [_init_plan(prd_path, root)]
    rulebook = root / "AGENTS.md"
    if rulebook.exists():
        said.append("AGENTS.md is there and stays as it is")
    else:
        shutil.copyfile(resource("templates/AGENTS.md"), rulebook)
        said.append("wrote AGENTS.md: the rules every attempt reads; it is yours to keep")
    if use_git:
        said.append(_ignore_scratch(root))
    return said


def eject_prompt(prd_path: Path) -> list[str]:
    """Write the built-in prompt template as PROMPT.md beside prd.json."""
    target = prd_path.parent / "PROMPT.md"
    if target.exists():
        raise BadInput(f"{target} is there already; nothing was written")
    shutil.copyfile(resource("templates/prompt.md"), target)
    return [f'wrote {target}; use it with --prompt {target} or "prompt": "PROMPT.md" in {prd_path.name}']


def _refuse_second_plan(path: Path, root: Path) -> None:
    """Who stands in a subfolder and names no folder may not know that there is a plan."""
    above = None if path.exists() or path.parent != Path() else prd.plan_above(path)
    if above and above.resolve().is_relative_to(root.resolve()):
        own = shlex.quote(str(path.absolute()))
        raise BadInput(f"the plan of this repository is {above}; for another one here: --prd {own}")


def _init_plan(path: Path, root: Path) -> str:
    checks = detect_checks(root)
    if not path.exists():
        new = starter()
        new["project"] = path.parent.resolve().name
        new["checks"] = checks
        new["protect"] = detect_protected(root)
        path.write_text(json.dumps(new, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return (
            f"wrote {path}; checks found here: {', '.join(checks) or 'none'}; "
            f"protected: {', '.join(new['protect']) or 'nothing yet'}"
        )
    plan = prd.load(path)
    if _can_be_proved(plan) or plan.list_key is None or not checks:
        return f"{path} is there and stays as it is"
    edit.rewrite(plan, edit.add_checks(plan, checks))
    return f"added to {path}: checks {', '.join(checks)}"


def _can_be_proved(plan: Plan) -> bool:
    return bool(plan.checks or any(task.checks for task in plan.tasks))


def next_steps(path: Path, use_git: bool = True) -> list[str]:
    """What a person does now, then the commands that follow."""
    plan = prd.load(path)
    first = []
    if is_starter(plan):
        first.append(
            f"next: edit {path}: the tasks, and the checks that prove them. "
            f"Or write what you want into brief.md, and after the commit: ralph plan brief.md"
        )
    elif not _can_be_proved(plan):
        where = f'"checks" in {path}' if plan.list_key else f'"checks" in the tasks of {path}'
        first.append(f"next: name the commands that prove the work under {where}")
    option = f" --prd {shlex.quote(str(path))}" if path != Path("prd.json") else ""
    option += "" if use_git else " --no-git"
    commands = _git_steps(path) if use_git else []
    commands += [f"ralph doctor{option}", f"ralph run{option}"]
    return [*first, f"{'then' if first else 'next'}: {'; '.join(commands)}"]


def _git_steps(path: Path) -> list[str]:
    """The commands that bring the plan into git, where it is not there as it is."""
    here = "git" if path.parent == Path() else f"git -C {shlex.quote(str(path.parent))}"
    start = f"{here} add -A && {here} commit -m start"
    root = top_level(path.parent)
    if root is None:
        return [f"{here} init", start]
    if not git(root, "rev-parse", "-q", "--verify", "HEAD", check=False):
        return [start]
    folder = path.parent.resolve()
    names = [path.name, *(os.path.relpath(root / name, folder) for name in ("AGENTS.md", ".gitignore"))]
    changed = os.fsdecode(git(folder, "ls-files", "-omz", "--exclude-standard", "--", *names)).split("\0")
    new = [name for name in names if name in changed]
    return [f"{here} add {shlex.join(new)} && {here} commit -m plan"] if new else []


def _ignore_scratch(root: Path) -> str:
    ignore = root / ".gitignore"
    there = ignore.read_text("utf-8", "surrogateescape") if ignore.exists() else ""
    if ".ralph/" in there.splitlines():
        return ".gitignore names .ralph/ already"
    with ignore.open("a", encoding="utf-8") as file:
        file.write(".ralph/\n" if there.endswith("\n") or not there else "\n.ralph/\n")
    return "added .ralph/ to .gitignore"
