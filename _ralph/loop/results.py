"""What checks said in this run, remembered by tree: what ran on some files need not run
on them again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from _ralph.git.git import Git
from _ralph.loop.jobs import Checked, CheckJob
from _ralph.model import Check, CheckResult

_MOST_SUITES = 24
"""Trees and checks of which the results of single tests are remembered, for each clean
room."""


@dataclass
class Results:
    """The results of this run, by tree and command. They hold for one `setup`, `keep`
    and set of copies, the `surroundings`. `built` says which tree a clean room holds as
    the plan's checks left it, by its number; `before` says which checks of a task's own
    were green before its work, by the task's key, `before_at` on which commit;
    `accepted` are messages that the commit hooks let pass."""

    git: Git
    surroundings: str = ""
    built: dict[int, str] = field(default_factory=dict)
    before: dict[str, dict[str, bool]] = field(default_factory=dict)
    before_at: dict[str, str] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    _said: dict[tuple[str, str], list[CheckResult]] = field(default_factory=dict)

    def runs(self, commit: str, command: str) -> list[CheckResult]:
        """What a check said of the files of `commit`, each time that it ran on them."""
        if not self._said:
            return []
        key = self.git.tree(commit), command
        if said := self._said.pop(key, []):
            self._said[key] = said  # the last used are the last that are forgotten
        return said

    def newest(self, commit: str, command: str) -> CheckResult | None:
        """What a check said of the files of `commit` the last time that it ran on
        them."""
        return next(reversed(self.runs(commit, command)), None)

    def is_flaky(self, commit: str, command: str) -> bool:
        """Whether a check was red and green on the files of `commit`."""
        return (
            len({one.ok for one in self.runs(commit, command) if not one.missing}) > 1
        )

    def _known(self, commit: str, command: str) -> CheckResult | None:
        """What a check says of the files of `commit`, if it need not run again: not
        where its program was missing, as that can be installed meanwhile."""
        found = self.newest(commit, command)
        return None if found and found.missing else found

    def recall(self, job: CheckJob) -> Checked | None:
        """The results of a job, if all of its checks have run on these files."""
        if job.again:
            return None
        found = [self._known(job.commit, check.command) for check in job.checks]
        known = [replace(one, seconds=0.0, recalled=True) for one in found if one]
        if len(known) < len(job.checks) or not (
            known or self.holds(job.room, job.commit)
        ):
            return None
        return Checked(checks=known, commit=job.commit)

    def holds(self, room: int, commit: str) -> bool:
        """Whether a clean room holds the files of `commit` as the plan's checks left
        them."""
        return room in self.built and self.built[room] == self.git.tree(commit)

    def begin(self, job: CheckJob) -> CheckJob:
        """The job as it must run: where the room holds these files as the plan's checks
        left them, only what is not known."""
        held = self.holds(job.room, job.commit)
        self.built.pop(job.room, None)
        if job.again or not held:
            return job
        return replace(
            job,
            known=[
                one.command
                for one in job.checks
                if self._known(job.commit, one.command)
            ],
        )

    def end(self, job: CheckJob, found: Checked) -> Checked:
        """Remember what a job found; with the results that were known before it, in
        order."""
        wanted = {check.command for check in job.checks}
        for result in found.checks:
            if result.command in wanted:
                self._said.setdefault(
                    (self.git.tree(found.commit), result.command), []
                ).append(result)
        ran = {result.command: result for result in found.checks}
        if job.known and ran.keys() <= wanted:
            left = [
                check
                for check in job.checks
                if check.command in job.known and check.command not in ran
            ]
            before = self.recall(replace(job, checks=left)) if left else None
            ran |= {
                result.command: result for result in (before.checks if before else [])
            }
        rest = [result for command, result in ran.items() if command not in wanted]
        if wanted <= ran.keys() and all(one.ok for one in rest):  # `setup` was not red
            self.built[job.room] = self.git.tree(found.commit)
        return replace(
            found,
            checks=[ran[one.command] for one in job.checks if one.command in ran]
            + rest,
        )

    def forget_old_tests(self, rooms: int) -> None:
        """Forget the results of single tests that were not used for long: those of a
        suite can take 20 MB. What `rooms` candidates need at once stays."""
        with_tests = [
            key for key, said in self._said.items() if any(one.tests for one in said)
        ]
        for key in with_tests[: -_MOST_SUITES * rooms]:
            del self._said[key]

    def forget(self, task: str) -> None:
        """Forget all results, and what was before the work at a task: a person opened
        it, and may have changed what no tree shows."""
        self._said.clear()
        self.accepted.clear()
        self.before.pop(task, None)
        self.before_at.pop(task, None)


def up_to(checks: list[Check], last: Iterable[CheckResult]) -> list[Check]:
    """The program up to the last of these results; all of it for what is no check of
    it, such as `setup`."""
    commands = [check.command for check in checks]
    ends = [
        commands.index(one.command) + 1 if one.command in commands else len(checks)
        for one in last
    ]
    return checks[: max(ends, default=0)]
