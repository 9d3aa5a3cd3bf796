"""Where everything of a plan lies, which loop runs on it, what plan and notes say. Everything here but
`note_plan` only reads, takes no lock, and is quick to import."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _ralph import files, text
from _ralph.errors import BadInput
from _ralph.git.git import git_places
from _ralph.model import Paths, Plan
from _ralph.state import prd
from _ralph.state.history import History, replay
from _ralph.state.log import Journal
from _ralph.state.records import Record

NOTE = "plan.json"
"""Says in the private folder of a plan, and in that of its places, whose they are."""


@dataclass(frozen=True)
class Noted:
    """A plan as it was noted when it was last worked: its prd.json, the working tree and the git folder
    around it, the file system that this lies on, and the branch on which its work lands, if one is known."""

    prd: Path
    root: Path
    common: Path
    device: int
    branch: str

    @property
    def paths(self) -> Paths:
        return paths_of(self.root, self.common, self.prd)


def read_state(prd_path: Path) -> tuple[Paths, Plan, History]:
    """What `status` and `prompt` need: everything read, nothing written, no lock taken."""
    paths = locate(prd_path)
    plan = prd.load(paths.prd)
    return paths, plan, history_of(plan, Journal(paths.progress).records(plan.key))


def history_of(plan: Plan, records: Iterable[Record]) -> History:
    """What the records say of a plan; a task whose block a person took away begins anew."""
    history = replay(records)
    for task in history.opened(plan):
        history.of(task).start_anew()
    return history


def locate(prd_path: Path) -> Paths:
    """Where the files of this plan lie, from the place of its prd.json. BadInput outside of a git
    working tree."""
    folder = prd_path.parent.resolve()
    if not folder.is_dir():
        raise BadInput(f"there is no folder {prd_path.parent}")
    found = git_places(folder)
    if not found:
        raise BadInput(
            f"{folder} is not in a git repository; cd to your project, or start one: git init && ralph init"
        )
    return paths_of(*found, folder / prd_path.name)


def paths_of(root: Path, common: Path, path: Path) -> Paths:
    """Where the files of the plan `path` lie, in the working tree `root` of the repository `common`."""
    name = files.digest(os.fsencode(path))
    return Paths(
        root=root,
        prd=path,
        progress=path.parent / "progress.txt",
        rulebook=root / "AGENTS.md",
        scratch=root / ".ralph",
        private=common / "ralph" / name,
        places=Path(os.path.realpath(places_folder())) / f"{text.slug(root.name)}-{name[:8]}",
    )


def note_plan(paths: Paths, branch: str = "") -> None:
    """Leave word of this plan for `ralph land` and `ralph clean`: where it is, and the branch on which its
    work lands; without one, that which was noted before."""
    common, before = paths.private.parent.parent, noted(paths.private)
    said = {"prd": os.fspath(paths.prd), "root": os.fspath(paths.root), "common": os.fspath(common)}
    branch = branch or (before.branch if before else "")
    data = json.dumps({**said, "device": os.stat(common).st_dev, "branch": branch}).encode()
    if paths.places.is_symlink():  # an agent can have put it there, to lead elsewhere
        paths.places.unlink()
    paths.places.mkdir(parents=True, exist_ok=True, mode=0o700)
    for note in (paths.private / NOTE, paths.places / NOTE):
        if files.read_regular(note) != data:
            files.atomic_write(files.clear(note), data)


def noted(folder: Path) -> Noted | None:
    """The plan that is noted in a folder; None where nothing is that can be read."""
    try:
        said = json.loads(files.read_regular(folder / NOTE, 1 << 16) or b"")
        if "\0" in f"{said}":
            return None
        prd, root, common = (Path(said[name]) for name in ("prd", "root", "common"))
        return Noted(prd, root, common, int(said["device"]), str(said["branch"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def note_words(paths: Paths, words: Sequence[str]) -> None:
    """Remember the options of this run, for what `status` and `report` say of going on."""
    files.atomic_write(paths.private / "words", json.dumps(list(words)).encode(), 0o600)


def last_words(paths: Paths) -> list[str]:
    """The options of the last run; none where they are not known."""
    try:
        return [
            str(word) for word in json.loads(files.read_regular(paths.private / "words", 1 << 16) or b"[]")
        ]
    except (ValueError, TypeError, RecursionError):
        return []


def places_folder() -> Path:
    """The folder that holds the places of all plans."""
    named = os.environ.get("RALPH_PLACES")
    return Path(named).expanduser().absolute() if named else state_folder()


def worker_copies(paths: Paths) -> list[Path]:
    """The copies of this plan's repository that workers behind `--launch` keep on this machine."""
    return sorted(paths.places.parent.glob(f"worker/{glob.escape(paths.places.name)}-*"))


def state_folder() -> Path:
    """This user's folder for what ralph keeps outside of any repository; it may not exist yet."""
    try:
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:  # no HOME, and a user that the system does not know
        raise BadInput("there is no home folder for ralph's own files; set HOME or XDG_STATE_HOME") from None
    return home.absolute() / "ralph"


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
    """The process that runs a loop here, which `ralph plan` and `ralph doctor` are not, or None."""
    holder = running(paths)
    return holder if holder and holder.get("what", "run") == "run" else None


def stop_file(paths: Paths) -> Path:
    """Holds the id of the run that `ralph stop` asked to stop."""
    return paths.private / "stop"


def stop_is_asked(paths: Paths, run_id: str) -> bool:
    """Whether `ralph stop` asked this run to stop."""
    return files.read_regular(stop_file(paths), 100) == run_id.encode()


def running_entry(paths: Paths) -> dict[str, Any]:
    """What the last process said of itself that ran here, also if it is dead; empty if nothing."""
    try:
        entry = json.loads((paths.private / "running.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return entry if isinstance(entry, dict) else {}


def own_branch(plan: Plan) -> str:
    """The branch that a plan without a branchName works on, from the default branch."""
    return f"ralph/{text.slug(plan.project).lower()}"


def weight(folder: Path) -> int:
    """The bytes that a folder takes on disk."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except OSError:
                continue
    return total
