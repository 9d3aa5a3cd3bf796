"""A workspace as it stands on disk: where its files lie, which loop runs there, what plan and notes
say. Everything here only reads, takes no lock, and is quick to import."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from _ralph import files, prd, text
from _ralph.ends import BadInput
from _ralph.git import git, git_places
from _ralph.journal import Journal
from _ralph.model import Paths, Plan
from _ralph.progress import History, replay


def read_state(prd_path: Path, use_git: bool = True) -> tuple[Paths, Plan, History]:
    """What `status` and `prompt` need: everything read, nothing written, no lock taken."""
    paths = locate(prd_path, use_git)
    plan = prd.load(paths.prd)
    return paths, plan, replay(journal_of(paths).records(), plan.key)


def locate(prd_path: Path, use_git: bool = True) -> Paths:
    """Where this workspace's files lie, from the place of its prd.json."""
    folder = prd_path.parent.resolve()
    if not folder.is_dir():
        raise BadInput(f"there is no folder {prd_path.parent}")
    if not use_git:  # ralph's own folder is then somewhere else, so that no agent's `rm` finds it
        root, private = (
            folder,
            state_folder() / f"{text.slug(folder.name)}-{files.digest(os.fsencode(folder))}",
        )
    elif found := git_places(folder):
        root, private = found[0], found[1] / "ralph"
    else:
        raise BadInput(f"{folder} is not in a git repository; `git init` makes one, --no-git works without")
    return Paths(
        root=root,
        prd=folder / prd_path.name,
        progress=folder / "progress.txt",
        rulebook=root / "AGENTS.md",
        scratch=root / ".ralph",
        private=private,
    )


def state_folder() -> Path:
    """This user's folder for what ralph keeps outside of any workspace; it may not exist yet."""
    try:
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:  # no HOME, and a user that the system does not know
        raise BadInput("there is no home folder for ralph's own files; set HOME or XDG_STATE_HOME") from None
    return home / "ralph"


def journal_of(paths: Paths) -> Journal:
    name = files.digest(os.fsencode(paths.progress))[:8]
    return Journal(paths.progress, paths.private / f"{name}.progress", paths.private / "aside")


def running(paths: Paths) -> dict[str, Any] | None:
    """The process that runs a loop here (`pid`, `since`, `run_id`), or None; takes no lock."""
    entry = running_entry(paths)
    try:
        return entry if entry and abs(began(entry["pid"]) - entry["created"]) < 1 else None
    except (ValueError, KeyError, TypeError):
        return None


def began(pid: int) -> float:
    """When a process began, in seconds since some moment that no change of the clock moves;
    ValueError if there is none."""
    import psutil

    try:
        boot = psutil.boot_time() if psutil.LINUX else 0.0  # there psutil adds it, by the clock of now
        return psutil.Process(pid).create_time() - boot
    except psutil.Error:
        raise ValueError(f"no process {pid}") from None


def loop_at_work(paths: Paths) -> dict[str, Any] | None:
    """The process that runs a loop here and takes messages, which `ralph plan` does not, or None."""
    holder = running(paths)
    return holder if holder and holder.get("what") != "plan" else None


def running_entry(paths: Paths) -> dict[str, Any]:
    """What the last process said of itself that ran here, also if it is dead; empty if nothing."""
    try:
        entry = json.loads((paths.private / "running.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return entry if isinstance(entry, dict) else {}


def elsewhere(paths: Paths, plan: Plan, history: History) -> str | None:
    """The branch that holds this plan's work, if nothing of it can be seen from here."""
    name = plan.branch or own_branch(plan)
    if history.iteration or git(paths.root, "branch", "--show-current").decode().strip() == name:
        return None
    there = git(paths.root, "rev-parse", "-q", "--verify", f"refs/heads/{name}", check=False)
    return name if there else None


def own_branch(plan: Plan) -> str:
    """The branch that a plan without a branchName works on, from the default branch."""
    return f"ralph/{text.slug(plan.project).lower()}"
