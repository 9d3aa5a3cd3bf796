"""Before the first night: `ralph init` writes what is missing, `ralph doctor` looks for trouble."""

from __future__ import annotations

import difflib
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _ralph import agents, attempt, prd, session, text
from _ralph.checks import every_check
from _ralph.detect import detect_checks, detect_protected
from _ralph.git import git, top_level
from _ralph.model import BadInput, Plan, RalphError
from _ralph.prompt import resource
from _ralph.workspace import GitTree

Echo = Callable[[str], Any]


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


def examine(options: session.Options, echo: Echo) -> int:
    """Print one line for every thing a night needs; how many of them are errors."""
    errors = 0
    for level, line in _findings(options, echo):
        echo(f"{level:7} {text.one_line(line, 500)}")
        errors += level == "error"
    echo(f"\n{text.count(errors, 'error')}" if errors else "\nno errors")
    return errors


def _findings(options: session.Options, echo: Echo) -> Iterator[tuple[str, str]]:
    try:
        paths = session.locate(options.prd, options.git)
    except RalphError as error:
        yield "error", str(error)
        return
    try:
        plan = session.load_plan(paths, options)
    except RalphError as error:
        yield "error", str(error)
        return
    run = session.peek(options)
    passed = sum(task.passed for task in plan.tasks)
    yield "ok", f"plan: {plan.project}, {passed} of {text.count(len(plan.tasks), 'task')} passed"
    yield from _plan_findings(plan)
    holder = session.running(paths)
    yield ("warning", f"lock: a loop runs here now (pid {holder['pid']})") if holder else ("ok", "lock: free")
    yield from _git_findings(run)
    yield from _agent_findings(run, echo)
    if holder is None:
        yield from _check_findings(run)
    free = shutil.disk_usage(paths.root).free / 1e9
    yield ("warning" if free < 1 else "ok"), f"disk: {free:.1f} GB free"


def _git_findings(run: session.Run) -> Iterator[tuple[str, str]]:
    if not isinstance(run.tree, GitTree):
        yield "warning", "git: off; only a task's own checks that go from red to green can prove work"
        return
    version = os.fsdecode(git(run.paths.root, "--version")).split()[2]
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 36):
        yield "error", f"git: {version} is too old to run commit hooks; 2.36 or newer is needed"
    if not run.tree.head():
        yield "error", "git: no commit yet; git add -A && git commit -m start"
        return
    if not git(run.paths.root, "var", "GIT_COMMITTER_IDENT", check=False):
        yield "error", "git: user.name and user.email are not set"
    if session.running(run.paths) is None:
        run.tree.begin(resuming=True)
        if session.unfinished(run.tree, run.history):
            yield (
                "ok",
                "git: unfinished work of the last attempt lies in the tree; `ralph run` goes on with it",
            )
        elif modified := run.tree.modified():
            yield "error", f"git: modified tracked files ({', '.join(modified[:5])}); commit or stash them"
    if loose := run.tree.untracked_protected(list(run.plan.settings.get("protect", []))):
        yield "error", f"protect: {loose[0]} is not in git, so it could not be put back; commit it"
    fresh = not run.branch or session.on_default_branch(run.tree)
    where = run.plan.branch or (
        session.own_branch(run.plan) if fresh else run.branch.removeprefix("refs/heads/")
    )
    hooks = f", commit hooks: {', '.join(found)}" if (found := run.tree.hooks()) else ""
    yield "ok", f"git: {version}, work on {where}{hooks}"


def _agent_findings(run: session.Run, echo: Echo) -> Iterator[tuple[str, str]]:
    import subprocess_tee

    seen: set[str] = set()
    for task in run.plan.tasks:
        agent = run.agent(None if task.passed else task)
        if agent.command in seen:
            continue
        seen.add(agent.command)
        try:
            agents.require(agent)
        except RalphError as error:
            yield "error", f"agent: {error}"
            continue
        version = ""
        if agent.row.get("version"):
            words = [agent.program, *agent.row["version"][1:]]
            command = f"timeout 30 {shlex.join(words)}" if shutil.which("timeout") else shlex.join(words)
            probe = subprocess_tee.run(command, shell=True, tee=False, quiet=True, check=False)
            version = ", " + text.one_line((probe.stdout or probe.stderr or "no version told").strip(), 60)
        yield "ok", f"agent: {agent.command} at {shutil.which(agent.program)}{version}"
        yield from _permission_findings(run, agent)
        yield from _purse_findings(agent)
    yield "ok", f"agents that ralph knows: {_known_agents(run)}"


def _known_agents(run: session.Run) -> str:
    """Every row, whether it is installed, and what it may do without full permissions."""
    told = []
    for name, row in run.rows.items():
        if name:
            means = row.get("edit_means", "nothing") if "edit" in row.get("permissions", {}) else "nothing"
            told.append(f"{name} ({means if shutil.which(row['argv'][0]) else 'not installed'})")
    return "; ".join(told)


def _purse_findings(agent: agents.Agent) -> Iterator[tuple[str, str]]:
    """Who pays: a key in the environment takes the place of a subscription without a word."""
    keys, places = agent.row.get("keys", []), agent.row.get("login", [])
    key = next((name for name in keys if os.environ.get(name)), None)
    login = next(
        (p for p in places if os.environ.get(p[1:]) or os.path.isfile(os.path.expanduser(f"~/{p}"))), None
    )
    if key and login:
        yield "warning", f"purse: {key} is set, so it is billed, and not the subscription ({login})"
    elif key:
        yield "ok", f"purse: {key} is set and is billed"
    elif login:
        yield "ok", f"purse: the login in {login}; no key in the environment takes its place"
    elif keys:
        wanted = " or ".join([*keys, *places])
        yield "warning", f"purse: no login found here ({wanted}); the agent may know one of its own"


def _permission_findings(run: session.Run, agent: agents.Agent) -> Iterator[tuple[str, str]]:
    loose = set(agent.words) & set(agent.row["permissions"].get("full", []))
    if agent.permissions != "full" and loose:
        yield "warning", f"permissions: {' '.join(loose)} in the command gives the agent everything"
    if agent.name in run.plan.settings.get("agents", {}):
        yield (
            "warning",
            f"permissions: the row {agent.name} is the plan's own: {shlex.join(agent.row['argv'])}",
        )
    elif agent.name == "plain":
        yield "ok", "permissions: a command of your own; it runs as given, with all that you may do"
    elif agent.permissions == "full":
        yield "warning", "permissions: full; the agent may do anything that you may do"
        if agent.name == "claude" and os.geteuid() == 0 and not os.environ.get("IS_SANDBOX"):
            yield "error", "permissions: as root, Claude Code refuses full permissions without IS_SANDBOX=1"
    else:
        means = agent.row.get("edit_means", "it works in this folder, inside its own sandbox")
        yield "ok", f"permissions: edit; {means}"


def _plan_findings(plan: Plan) -> Iterator[tuple[str, str]]:
    known = {name for names in prd.ALIASES.values() for name in names} | {"id", "checks", "priority", "allow"}
    for task in plan.tasks:
        for key in set(task.raw) - known:
            if near := difflib.get_close_matches(key, known, 1, 0.8):
                yield (
                    "warning",
                    f"plan: {task.id} has {key!r}, which ralph does not read; is {near[0]!r} meant?",
                )
    bare = [task.id for task in plan.tasks if not task.passed and not task.checks]
    if bare:
        who = ", ".join(bare[:5]) + (" and more" if len(bare) > 5 else "")
        yield "warning", f"plan: no check of their own: {who}; a pass will be weak, any change can be enough"


def _check_findings(run: session.Run) -> Iterator[tuple[str, str]]:
    for_all = {check.command for check in run.plan.checks}
    for result in attempt.run_all(run, every_check(run.plan), "doctor"):
        said = f"check: {result.name}: {'green' if result.ok else 'red'} now ({result.seconds:.1f} s)"
        why = "" if result.ok else f": {text.last_line(result.tail)}"
        if result.exit in (126, 127):
            yield "error", f"{said}{why}; it cannot run here"
        elif result.ok or result.command not in for_all:
            yield "ok", said
        else:
            yield "warning", f"{said}{why}; it does not count until it has been green once"


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
