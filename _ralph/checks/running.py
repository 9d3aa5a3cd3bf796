"""Running checks on a commit, in the clean room: what this run knows of a tree is not
run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from _ralph import files, text
from _ralph.checks.places import Places, setup_failed
from _ralph.checks.results import BEFORE, Results
from _ralph.checks.room import Room
from _ralph.errors import SetupFailed
from _ralph.model import Check, CheckResult, Plan
from _ralph.process.process import Ended

_PREFIX_TIMEOUT = 60.0
"""Seconds in which a prefix must start a program."""


@dataclass(frozen=True)
class Job:
    """Checks to be run on a commit. `name` is what their logs are called, `label`
    stands before what is shown of them, `env` is added to their environment."""

    commit: str
    checks: Sequence[Check]
    name: str
    label: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
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
        red = self.red[:1]
        return red[0] if red and red[0].name == "setup" else None


def run_checks(
    places: Places, folder: Path, job: Job, rest: Sequence[Check] | None = None
) -> Checked:
    """Run all checks of a job in the room at `folder`, as one program; or only `rest`
    of them, if the room still holds these files as the plan's checks left them. StopNow
    if ralph must stop."""
    room = Room.at(places, folder, job.env)
    if rest is None or not room.go_on(job.commit):
        rest = job.checks
        setup = room.prepare(job.commit, job.name)
        if setup:
            return Checked([setup], room.notices)
    return Checked(room.run(rest, job.name, job.label), room.notices)


def results_of(places: Places, results: Results, job: Job) -> Checked:
    """What the checks of a job say: from what this run knows of these files, else from
    the clean room. StopNow if ralph must stop, SetupFailed if the prefix starts
    nothing."""
    known = results.recalled(job.commit, job.checks)
    rest = results.missing(job.commit, job.checks)
    tree = places.home.tree(job.commit)
    holds = results.known.built == tree and not job.again
    if not (job.again or rest) and (job.checks or holds):
        return Checked(known)
    results.room_changes()
    folder = places.paths.room
    found = run_checks(places, folder, job, rest if holds else None)
    why = prefix_fails(places, folder) if found.red else ""
    if why:
        raise SetupFailed(why)
    if found.red_setup:
        return found
    results.add(job.commit, found.checks)
    results.known.built = tree
    # with what was known before, in the order of the job
    said = {one.command: one for one in [*known, *found.checks]}
    found.checks = [said[check.command] for check in job.checks]
    return found


def prefix_fails(places: Places, cwd: Path) -> str:
    """Why the prefix cannot even start `true` in a place that is there; nothing if it
    can, or there is no prefix."""
    if places.prefix is None or not cwd.is_dir():
        return ""
    done = places.start(["true"], cwd, places.env(cwd), _PREFIX_TIMEOUT)
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
