"""What checks said in this run, by tree, in one file beside the room: what ran on some
files need not run on them again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from _ralph import files
from _ralph.codec import as_json, made
from _ralph.model import Check, CheckResult

BEFORE = "before the work: "
"""What stands before checks that are shown, where they run on the tip."""
MOST_SUITES = 8
"""Trees and checks of which the results of single tests are remembered: the tip, the
candidate, and the ancestors that were asked. Those of one can take 2 MB."""


@dataclass(frozen=True)
class Own:
    """What a task's own checks said before its first attempt in this run: on which
    commit, and which were green, by their commands."""

    commit: str = ""
    green: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class _Said:
    """What a check said of a tree."""

    tree: str
    result: CheckResult


@dataclass(frozen=True)
class _File:
    """What the file holds."""

    run: str
    valid: str
    said: list[_Said] = field(default_factory=list)
    own: dict[str, Own] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)
    built: str = ""


@dataclass
class Results:
    """The results of a run. They hold as long as `valid`, a digest of all that checks
    see beside a tree, is the same. `own` is what a task's own checks said before its
    first attempt, by the task's key; `accepted` are messages that the commit hooks let
    pass; `built` is the tree that the room holds as the plan's checks left it."""

    path: Path
    run: str  # its id
    valid: str
    tree_of: Callable[[str], str]  # the tree of a commit
    own: dict[str, Own] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    built: str = ""
    _said: dict[tuple[str, str], list[CheckResult]] = field(default_factory=dict)

    @classmethod
    def read(
        cls, path: Path, run: str, valid: str, tree_of: Callable[[str], str]
    ) -> Results:
        """What the file at `path` holds; nothing where it is missing, damaged or of
        another run; only `own` where it is valid for something else."""
        results = cls(path, run, valid, tree_of)
        try:
            found = made(_File, json.loads(files.read_regular(path) or b""))
        except (OSError, ValueError, RecursionError):
            return results
        if found.run != run:
            return results
        results.own = found.own
        if found.valid != valid:
            return results
        for said in found.said:
            key = said.tree, said.result.command
            results._said.setdefault(key, []).append(said.result)
        results.accepted = set(found.accepted)
        results.built = found.built
        return results

    def save(self) -> None:
        """Replace the file. OSError leaves the old one as it was."""
        said = []
        for (tree, _), results in self._said.items():
            said += [_Said(tree, result) for result in results]
        accepted = sorted(self.accepted)
        content = _File(self.run, self.valid, said, self.own, accepted, self.built)
        files.make_way(self.path)
        files.atomic_write(self.path, json.dumps(as_json(content)).encode())

    def runs(self, commit: str, command: str) -> list[CheckResult]:
        """What a check said of the files of `commit`, each time that it ran on them,
        the newest last."""
        key = self.tree_of(commit), command
        said = self._said.pop(key, [])
        if said:
            self._said[key] = said  # the last used are the last that are forgotten
        return said

    def newest(self, commit: str, command: str) -> CheckResult | None:
        """What a check said of the files of `commit` the last time."""
        runs = self.runs(commit, command)
        return runs[-1] if runs else None

    def missing(self, commit: str, checks: Iterable[Check]) -> list[Check]:
        """Those of `checks` that must run on `commit`: they did not yet, or their
        program was missing, which can be installed meanwhile."""
        left = []
        for check in checks:
            known = self.newest(commit, check.command)
            if known is None or known.missing:
                left.append(check)
        return left

    def recalled(self, commit: str, checks: Iterable[Check]) -> list[CheckResult]:
        """What those of `checks` said of `commit` that have run on it, in order."""
        found = [self.newest(commit, check.command) for check in checks]
        return [replace(one, seconds=0.0, recalled=True) for one in found if one]

    def add(self, commit: str, results: Iterable[CheckResult]) -> None:
        """Remember what checks said of `commit`."""
        tree = self.tree_of(commit)
        for result in results:
            self._said.setdefault((tree, result.command), []).append(result)

    def forget_old(self) -> None:
        """Forget single tests that were not used for long."""
        suites = []
        for key, results in self._said.items():
            if any(one.tests and not one.tests.unread for one in results):
                suites.append(key)
        for key in suites[:-MOST_SUITES]:
            del self._said[key]
