"""Before the first night: `ralph init` writes what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from _ralph import prd
from _ralph.detect import detect_checks, detect_protected
from _ralph.model import BadInput
from _ralph.prompt import resource
from _ralph.workspace import top_level


def init_workspace(prd_path: Path) -> list[str]:
    """Write prd.json, AGENTS.md and the .gitignore line where they are missing; what was done."""
    folder = prd_path.parent
    folder.mkdir(parents=True, exist_ok=True)
    root = top_level(folder) or folder
    checks = detect_checks(root)
    said = [_init_plan(prd_path, checks)]
    rulebook = root / "AGENTS.md"
    if rulebook.exists():
        said.append("AGENTS.md is there and stays as it is")
    else:
        shutil.copyfile(resource("templates/AGENTS.md"), rulebook)
        said.append("wrote AGENTS.md: the rules every attempt reads; it is yours to keep")
    said.append(_ignore_scratch(root))
    if not top_level(folder):
        said.append("this is not a git repository yet: git init")
    return [*said, f"next: edit {prd_path}; git add -A && git commit -m plan; ralph doctor; ralph run"]


def eject_prompt(prd_path: Path) -> list[str]:
    """Write the built-in prompt template as PROMPT.md beside prd.json."""
    target = prd_path.parent / "PROMPT.md"
    if target.exists():
        raise BadInput(f"{target} is there already; nothing was written")
    shutil.copyfile(resource("templates/prompt.md"), target)
    return [f'wrote {target}; use it with --prompt {target} or "prompt": "PROMPT.md" in {prd_path.name}']


def _init_plan(path: Path, checks: list[str]) -> str:
    if not path.exists():
        starter = json.loads(resource("templates/prd.json").read_text("utf-8"))
        starter["project"] = path.parent.resolve().name
        starter["checks"] = checks
        starter["protect"] = detect_protected(top_level(path.parent) or path.parent)
        path.write_text(json.dumps(starter, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return (
            f"wrote {path}; checks found here: {', '.join(checks) or 'none, name your own'}; "
            f"protected: {', '.join(starter['protect']) or 'nothing yet'}"
        )
    plan = prd.load(path)
    if plan.checks or any(task.checks for task in plan.tasks) or plan.list_key is None or not checks:
        return f"{path} is there and stays as it is"
    prd.rewrite(plan, prd.add_checks(plan, checks))
    return f"added to {path}: checks {', '.join(checks)}"


def _ignore_scratch(root: Path) -> str:
    ignore = root / ".gitignore"
    lines = ignore.read_text("utf-8", "replace").splitlines() if ignore.exists() else []
    if ".ralph/" in lines:
        return ".gitignore names .ralph/ already"
    with ignore.open("a", encoding="utf-8") as file:
        file.write(("\n" if lines and not ignore.read_bytes().endswith(b"\n") else "") + ".ralph/\n")
    return "added .ralph/ to .gitignore"
