"""What checks said in this run, by tree, in one file beside the room: what ran on some
files need not run on them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from _ralph import codec, files
from _ralph.checks.suite import ran
from _ralph.model import Check, CheckResult

BEFORE = "before the work: "
"""What stands before checks that are shown, where they run on the tip."""
MOST_TREES = 32
"""Trees of which the results are remembered: those that were used last."""
MOST_SUITES = 8
"""Trees and checks of which the results of single tests are remembered: the tip, the
candidate, and the ancestors that were asked. Those of one can take 2 MB."""
_ByCheck = dict[str, list[CheckResult]]


@dataclass(frozen=True)
class Own:
    """What a task's own checks said before its first attempt in this run: on which
    commit, and which were green, by their commands."""

    commit: str = ""
    green: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class _File:
    """What the file holds."""

    run: str
    valid: str
    said: dict[str, dict[str, list[CheckResult]]] = field(default_factory=dict)
    own: dict[str, Own] = field(default_factory=dict)
    built: str = ""


@dataclass
class Results:
    """The results of a run. They hold as long as `valid`, a digest of all that checks
    see beside a tree, is the same. `own` is what a task's own checks said before its
    first attempt, by the task's key; `built` is the tree that the room holds as the
    plan's checks left it."""

    path: Path
    run: str  # its id
    valid: str
    tree_of: Callable[[str], str]  # the tree of a commit
    own: dict[str, Own] = field(default_factory=dict)
    built: str = ""
    said: dict[str, _ByCheck] = field(default_factory=dict)  # by trees

    @classmethod
    def read(
        cls, path: Path, run: str, valid: str, tree_of: Callable[[str], str]
    ) -> Results:
        """What the file at `path` holds; nothing where it is missing, damaged or of
        another run; only `own` where it is valid for something else."""
        results = cls(path, run, valid, tree_of)
        found = codec.load(_File, path)
        if found is None or found.run != run:
            return results
        results.own = found.own
        if found.valid == valid:
            results.said = found.said
            results.built = found.built
        return results

    def save(self) -> None:
        """Replace the file, which no later run reads, so that it need not outlive a
        power cut. OSError leaves the old one as it was."""
        self._forget()
        content = _File(self.run, self.valid, self.said, self.own, self.built)
        files.make_way(self.path)
        files.atomic_write(self.path, codec.dumped(content), durable=False)

    def room_changes(self) -> None:
        """Note that the room does not hold what it did, before anything runs there."""
        if self.built:
            self.built = ""
            self.save()

    def runs(self, commit: str, command: str) -> list[CheckResult]:
        """What a check said of the files of `commit`, each time that it ran on them,
        the newest last."""
        tree = self.tree_of(commit)
        if tree not in self.said:
            return []
        # the last used are the last that are forgotten
        self.said[tree] = self.said.pop(tree)
        return self.said[tree].get(command, [])

    def newest(self, commit: str, command: str) -> CheckResult | None:
        """What a check said of the files of `commit` the last time."""
        runs = self.runs(commit, command)
        return runs[-1] if runs else None

    def missing(self, commit: str, checks: Iterable[Check]) -> list[Check]:
        """Those of `checks` that did not run on `commit` yet."""
        return [check for check in checks if not self.runs(commit, check.command)]

    def recalled(self, commit: str, checks: Iterable[Check]) -> list[CheckResult]:
        """What those of `checks` said of `commit` that have run on it, in order."""
        found = [self.newest(commit, check.command) for check in checks]
        return [replace(one, seconds=0.0, recalled=True) for one in found if one]

    def add(self, commit: str, results: Iterable[CheckResult]) -> None:
        """Remember what checks said of `commit`."""
        known = self.said.setdefault(self.tree_of(commit), {})
        for result in results:
            known.setdefault(result.command, []).append(result)

    def _forget(self) -> None:
        """Forget what was not used for long. Of a suite that did not run whole stays
        that it did not, so that it is not asked again."""
        for tree in list(self.said)[:-MOST_TREES]:
            del self.said[tree]
        suites = []
        for known in self.said.values():
            for command, runs in known.items():
                if any(run.tests and not run.tests.unread for run in runs):
                    suites.append((known, command))
        for known, command in suites[:-MOST_SUITES]:
            if ran(known[command]):
                del known[command]
            else:
                known[command] = [replace(run, tests=None) for run in known[command]]
