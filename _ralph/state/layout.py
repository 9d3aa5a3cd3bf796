"""Where the files of a plan are, which process is at work on it, and the folder of its
logs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from _ralph import codec, files, text
from _ralph.errors import BadInput
from _ralph.model import Paths, Plan
from _ralph.state import prd
from _ralph.state.history import History
from _ralph.state.log import Log

NOTE = "plan.json"
"""The file that says which plan a private folder belongs to."""
RUNNING = "running.json"
_IGNORED = b"**/.ralph/log/\n**/.ralph/report.html\n"
_KEPT = 49
"""Attempts of which the logs are kept, beside the next one."""


@dataclass
class Noted:
    """A plan as it was noted when it was last worked."""

    prd: Path
    root: Path  # the working tree around it
    branch: str = ""  # on which its work lands, if one is known


@dataclass
class Holder:
    """The process that runs here."""

    pid: int
    run_id: str  # what all that it started carries
    since: str = ""  # for people
    what: str = "run"  # or `plan`, `land`, `doctor`, `clean`
    boot: str = ""  # of the machine


def read_state(prd_path: Path) -> tuple[Paths, Plan, History]:
    """The paths, plan and history of a plan, for commands that only look."""
    paths = locate(prd_path)
    plan = prd.load(paths.prd)
    return paths, plan, history_of(paths, plan)


def history_of(paths: Paths, plan: Plan) -> History:
    """What the records say of a plan; a task whose block a person took away begins
    anew."""
    history = Log(paths.progress, plan).read()
    for record in history.opened(plan):
        history.reopen(record)
    return history


def locate(prd_path: Path) -> Paths:
    """The paths of the plan with this prd.json. BadInput outside of a git working
    tree."""
    folder = prd_path.parent.resolve()
    if not folder.is_dir():
        raise BadInput(f"there is no folder {prd_path.parent}")
    around = _plain_repository(folder)
    if not around:
        from _ralph.git.git import git_places  # 20 ms with the call

        around = git_places(folder)
    if not around:
        raise BadInput(
            f"{folder} is not in a git repository; cd to your project, or start one: git init && ralph init"
        )
    return paths_of(*around, folder / prd_path.name)


def _plain_repository(folder: Path) -> tuple[Path, Path] | None:
    """The root and the git folder around `folder`, where both are as `git init` makes
    them; None if only git can tell."""
    for root in (folder, *folder.parents):
        dot_git = root / ".git"
        if (dot_git / "HEAD").is_file():
            return root, dot_git
        if os.path.lexists(dot_git):
            break
    return None


def paths_of(root: Path, common: Path, path: Path) -> Paths:
    """The paths of the plan `path` in the working tree `root` of the repository
    `common`."""
    name = files.digest(os.fsencode(path))
    places = Path(os.path.realpath(places_folder()))
    return Paths(
        root=root,
        prd=path,
        progress=path.parent / "progress.txt",
        rulebook=root / "AGENTS.md",
        logs=path.parent / ".ralph/log",
        private=common / "ralph" / name,
        places=places / f"{text.slug(root.name)}-{name[:8]}",
    )


def note_plan(paths: Paths, branch: str = "") -> None:
    """Make the folder of the places, and leave a note on this plan for `ralph clean`
    and the next run: where it is, and the branch on which its work lands; as noted
    before, if none is given."""
    if paths.places.is_symlink():  # an agent can have put it there
        paths.places.unlink()
    paths.places.mkdir(parents=True, exist_ok=True, mode=0o700)
    before = noted(paths.private)
    if before and not branch:
        branch = before.branch
    note = Noted(paths.prd, paths.root, branch)
    if note != before:
        path = files.clear(paths.private / NOTE)
        files.atomic_write(path, codec.dumped(note))


def noted(private: Path) -> Noted | None:
    """The plan that is noted in its private folder; None if there is no note that can
    be read."""
    return codec.load(Noted, private / NOTE)


def places_folder() -> Path:
    """The folder that holds the places of all plans, outside of any repository; it may
    not exist yet."""
    named = os.environ.get("RALPH_PLACES")
    if named:
        return Path(named).expanduser().absolute()
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home).absolute() / "ralph"


def running(paths: Paths) -> Holder | None:
    """The process that is at work on this plan, or None: it has locked the file that
    says who it is."""
    if file := files.open_regular(paths.private / RUNNING):
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return last_holder(paths)
    return None


def loop_at_work(paths: Paths) -> Holder | None:
    """The process that runs a loop here, which `ralph plan` and `ralph doctor` are not,
    or None."""
    holder = running(paths)
    return holder if holder and holder.what == "run" else None


def stop_file(paths: Paths) -> Path:
    """Holds the id of the run that `ralph stop` asked to stop."""
    return paths.private / "stop"


def stop_is_asked(paths: Paths, run_id: str) -> bool:
    """Whether `ralph stop` asked this run to stop."""
    return files.read_regular(stop_file(paths), 100) == run_id.encode()


def last_holder(paths: Paths) -> Holder | None:
    """The last process that was at work on this plan, if it was killed or still is."""
    return codec.load(Holder, paths.private / RUNNING)


def own_branch(plan: Plan) -> str:
    """The branch that a plan without a branchName works on, from the default branch."""
    return f"ralph/{text.slug(plan.project).lower()}"


def log_name(iteration: int, task: str) -> str:
    """What the logs of an attempt at the task of this id are called: `0017-US-003`."""
    return f"{iteration:04}-{text.slug(task)}"


def new_log(paths: Paths, name: str) -> Path:
    """The path of a new file in the folder of logs."""
    return files.clear(logs_folder(paths) / name)


def logs_folder(paths: Paths) -> Path:
    """The folder `.ralph/log`, made if needed. Git is told to ignore it and the report;
    all else in `.ralph` is a person's."""
    paths.logs.mkdir(parents=True, exist_ok=True)
    ignore = paths.private.parents[1] / "info/exclude"
    there = ignore.read_bytes() if ignore.is_file() else b""
    if _IGNORED not in there:
        ignore.parent.mkdir(exist_ok=True)
        if there and not there.endswith(b"\n"):
            there += b"\n"
        files.atomic_write(ignore, there + _IGNORED)
    return paths.logs


def trim_logs(paths: Paths, under_way: Collection[int], new: str) -> None:
    """Delete the logs of all attempts but the newest and those `under_way`, by their
    iterations; and what an older run wrote under the names of the `new` one, as that
    would be counted as spent."""
    logs: dict[int, list[str]] = {}
    folder = logs_folder(paths)
    for name in os.listdir(folder):
        number = name.partition("-")[0]
        if name.startswith((f"{new}.", f"{new}-")):
            files.clear(folder / name)
        elif number.isdecimal():
            logs.setdefault(int(number), []).append(name)
    for iteration in sorted(logs)[:-_KEPT]:
        if iteration not in under_way:
            for name in logs[iteration]:
                files.clear(folder / name)
