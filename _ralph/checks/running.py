"""Running checks on a commit, in the clean room: what this run knows of a tree is not
run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from _ralph import files
from _ralph.checks.places import Places, setup_failed
from _ralph.checks.results import BEFORE, Results
from _ralph.checks.room import Room
from _ralph.errors import SetupFailed, StopNow
from _ralph.git.git import Late
from _ralph.model import Check, CheckResult, Plan


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
    changed: Sequence[str] = ()  # files that must not name a place of ralph's
    again: bool = False  # run them, whatever is known of these files


@dataclass
class Checked:
    """What checks say of a commit, and lines for a person about what happened in the
    room. A `setup` that is red is the only result. `naming` are changed files that name
    a place of ralph's: no check ran, as what follows the path would be green on this
    machine alone."""

    checks: list[CheckResult] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    naming: list[str] = field(default_factory=list)

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
    only what is not known runs. StopNow if ralph must stop."""
    todo = list(job.checks)
    holds = results.built == places.home.tree(job.commit)
    if not job.again:
        todo = results.missing(job.commit, job.checks)
        if not todo and (job.checks or holds):
            return Checked(results.recalled(job.commit, job.checks))
    results.built = ""
    results.save()
    room = Room.at(places, places.paths.room, job.env)
    found = Checked(notices=room.notices)
    with git_may_not_end(room, found.checks):
        setup = None
        if job.again or not (holds and room.go_on(job.commit)):
            todo = list(job.checks)
            setup = room.prepare(job.commit, job.name, job.before)
        found.naming = room.naming(job.changed)
        if setup:
            found.checks.append(setup)
        elif not found.naming:
            found.checks += room.run(todo, job.name, job.label)
    return remember(places, results, job, found)


def remember(places: Places, results: Results, job: Job, found: Checked) -> Checked:
    """Note what checks said; with what was known before, in the order of the job."""
    wanted = [check.command for check in job.checks]
    ran = {result.command: result for result in found.checks}
    others = [result for result in found.checks if result.command not in wanted]
    results.add(job.commit, [one for one in found.checks if one.command in wanted])
    for result in results.recalled(job.commit, job.checks):
        ran.setdefault(result.command, result)
    if all(command in ran for command in wanted) and not (others or found.naming):
        results.built = places.home.tree(job.commit)
    results.save()
    known = [ran[command] for command in wanted if command in ran]
    return Checked(known + others, found.notices, found.naming)


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


def green_in_either(
    first: Sequence[CheckResult], second: Sequence[CheckResult]
) -> list[CheckResult]:
    """The results of two runs: what is green in either is green."""
    again = {result.command: result for result in second}
    kept = []
    for result in first:
        kept.append(result if result.ok else again.get(result.command, result))
    return kept
