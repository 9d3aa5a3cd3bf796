"""Running checks on a commit, in the clean room: what this run knows of a tree is not
run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from _ralph import files, text
from _ralph.checks.places import Places, setup_failed
from _ralph.checks.results import BEFORE, Results
from _ralph.checks.room import Room
from _ralph.errors import SetupFailed, StopNow
from _ralph.git.git import Late
from _ralph.model import Check, CheckResult, Plan
from _ralph.process.process import Command, Ended, run_process

_PREFIX_TIMEOUT = 60.0
"""Seconds in which a prefix must start a program."""


@dataclass(frozen=True)
class Job:
    """Checks to be run on a commit. `name` is what their logs are called, `label`
    stands before what is shown of them, `env` is added to their environment. `before`
    is what the commit was before commit hooks rewrote it."""

    commit: str
    checks: Sequence[Check]
    name: str
    label: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    again: bool = False  # run them, whatever is known of these files


@dataclass
class Checked:
    """What checks say of a commit, and lines for a person about what happened in the
    room. A `setup` that is red is the only result."""

    checks: list[CheckResult] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def red(self) -> list[CheckResult]:
        return [check for check in self.checks if not check.ok]

    @property
    def red_setup(self) -> CheckResult | None:
        """The result of `setup`, if that was red."""
        if self.red and self.red[0].name == "setup":
            return self.red[0]
        return None


@contextmanager
def git_may_not_end(room: Room, found: list[CheckResult]) -> Iterator[None]:
    """Work in a room where a hook or a check may have left a file of terabytes, or a
    FIFO called .gitattributes: git does not end then, and that is a red result, added
    to what was `found`. StopNow if ralph must stop."""
    try:
        yield
    except Late as error:
        room.place.remove()
        late = CheckResult("git", "git", False, tail=str(error), timed_out=True)
        found.append(late)
    if room.places.control.stop_now:
        raise StopNow


def run_checks(places: Places, folder: Path, job: Job) -> Checked:
    """Run all checks of a job in the room at `folder`, as one program. StopNow if ralph
    must stop."""
    room = Room.at(places, folder, job.env)
    found = Checked(notices=room.notices)
    with git_may_not_end(room, found.checks):
        setup = room.prepare(job.commit, job.name, job.before)
        if setup:
            found.checks.append(setup)
        else:
            found.checks += room.run(list(job.checks), job.name, job.label)
    return found


def results_of(places: Places, results: Results, job: Job) -> Checked:
    """What the checks of a job say: from what this run knows of these files, else from
    the clean room. Where that still holds these files as the plan's checks left them,
    only what is not known runs. StopNow if ralph must stop, SetupFailed if the prefix
    starts nothing."""
    todo = list(job.checks)
    holds = results.built == places.home.tree(job.commit)
    if not job.again:
        todo = results.missing(job.commit, job.checks)
        if not todo and (job.checks or holds):
            return Checked(results.recalled(job.commit, job.checks))
    results.room_changes()
    room = Room.at(places, places.paths.room, job.env)
    found = Checked(notices=room.notices)
    with git_may_not_end(room, found.checks):
        setup = None
        if job.again or not (holds and room.go_on(job.commit)):
            todo = list(job.checks)
            setup = room.prepare(job.commit, job.name, job.before)
        if setup:
            found.checks.append(setup)
        else:
            found.checks += room.run(todo, job.name, job.label)
    if found.red:
        why = prefix_fails(places, room.path)
        if why:
            raise SetupFailed(why)
    # Remember what they said; with what was known before, in the order of the job.
    wanted = [check.command for check in job.checks]
    others = [one for one in found.checks if one.command not in wanted]
    ran = {one.command: one for one in found.checks if one.command in wanted}
    results.add(job.commit, ran.values())
    for result in results.recalled(job.commit, job.checks):
        ran.setdefault(result.command, result)
    if len(ran) == len(set(wanted)) and not others:
        results.built = places.home.tree(job.commit)
    known = [ran[command] for command in wanted if command in ran]
    return Checked(known + others, found.notices)


def prefix_fails(places: Places, cwd: Path) -> str:
    """Why the prefix cannot even start `true` in a place that is there; nothing if it
    can, or there is no prefix."""
    if places.prefix is None or not cwd.is_dir():
        return ""
    with places.inside(cwd) as wrap:
        command = Command(wrap(["true"], {}), cwd, places.env(cwd), _PREFIX_TIMEOUT)
        done = run_process(command, places.control)
    if done.succeeded or done.ended is Ended.INTERRUPTED:
        return ""
    why = text.last_line(done.tail) or f"exit {done.exit}"
    return f"{places.prefix} starts nothing at all: {why}"


def require_setup(found: Checked) -> Checked:
    """The results of a job on the branch's own files. SetupFailed if `setup` was
    red."""
    if found.red_setup:
        raise SetupFailed(setup_failed(found.red_setup))
    return found


def baseline(
    places: Places,
    results: Results,
    commit: str,
    checks: Iterable[Check],
    name: str,
    env: Mapping[str, str] | None = None,
) -> Checked:
    """What checks say on a commit of the branch, before the work. SetupFailed if
    `setup` is red there."""
    job = Job(commit, tuple(checks), name, label=BEFORE, env=env or {})
    return require_setup(results_of(places, results, job))


def valid_for(places: Places, plan: Plan, run_id: str, reopened: int) -> str:
    """What the results of a run hold for: everything that checks see beside a tree, and
    how often people opened tasks again, since they may have changed what no tree
    shows."""
    home = places.paths.root
    copies = [files.signature(home / name) for name in places.from_home.copied]
    seen = (run_id, plan.setup, places.keep, copies, reopened)
    return files.digest(repr(seen).encode("utf-8", "surrogatepass"))
