"""The branch that verified work lands on, and the refs of work that did not pass."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput, NeedsPerson, RalphError, StopNow, TryLater
from _ralph.git.git import BULK, Git, Late, no_space, nul
from _ralph.git.merge import merge

PARKED = "refs/ralph/parked"
_KEPT = 50
_MERGED = "merged"
_SIGNING = 15.0


class Moved(Exception):
    """Somebody else moved the branch: the work must be made and examined again on the
    new tip."""


@dataclass
class Branch:
    """A branch of a repository."""

    git: Git
    name: str
    plan: str  # a short name, in the names of this plan's other refs

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"

    def tip(self) -> str:
        """The commit that the branch is at; nothing if it does not exist."""
        return self.commit_at(self.ref)

    def contains(self, commit: str, tip: str) -> bool:
        """Whether `commit` is in the history of `tip`."""
        return self.git.tried("merge-base", "--is-ancestor", commit, tip)[0] == 0

    @property
    def is_ahead(self) -> bool:
        """Whether it has work that HEAD lacks."""
        tip, head = self.commits_at(self.ref, "HEAD")
        return bool(tip and head) and not self._is_merged(tip, head)

    def _is_merged(self, tip: str, head: str) -> bool:
        """Whether `head` has all that is in `tip`: its history or, after a squash
        merge, its content."""
        if self.contains(tip, head):
            return True
        found = merge(self.git, head, tip)
        return not found.conflicts and found.tree == self.git.tree(head)

    @property
    def rival(self) -> str:
        """A branch beside which git cannot make this one, as `ralph` beside `ralph/p`;
        nothing if none is."""
        own, names = (
            f"{self.name}/",
            self.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads"),
        )
        others = (name for name in names.splitlines() if name != self.name)
        return next(
            (
                name
                for name in others
                if f"{name}/".startswith(own) or own.startswith(f"{name}/")
            ),
            "",
        )

    @property
    def seat(self) -> Path | None:
        """The working tree of a person that has this branch checked out; None if there
        is none."""
        folder = self.git(
            "for-each-ref", "--format=%(worktreepath)", self.ref
        ).removesuffix("\n")
        return Path(folder) if folder and Path(folder).is_dir() else None

    def beginning(self, before: str = "") -> str:
        """The commit that a run begins at: the branch's tip, or HEAD if that has all of
        its work. A new branch begins at the remote's branch of that name, as for `git
        switch`, else at the tip of `before`, the branch of earlier runs, if HEAD lacks
        its work, else at HEAD. BadInput without a commit."""
        tip, head, earlier = self.commits_at(
            self.ref, "HEAD", f"refs/heads/{before or self.name}"
        )
        tip = tip or self._remote_tip() or earlier
        if not (tip or head):
            raise BadInput(
                "this repository has no commit yet; make one: git add -A && git commit -m start"
            )
        return head if head and (not tip or self._is_merged(tip, head)) else tip

    def _remote_tip(self) -> str:
        """The commit of the one remote-tracking branch of this name; nothing if there
        is none, or several."""
        found = self.git(
            "for-each-ref", "--format=%(objectname)", f"refs/remotes/*/{self.name}"
        ).split()
        return found[0] if len(set(found)) == 1 else ""

    def open(self, before: str = "") -> tuple[str, list[str]]:
        """Make the branch if there is none, or let it begin again where HEAD has all of
        its work; its tip, and what was done. `before` is as for `beginning`. BadInput
        without a commit."""
        start, tip = self.beginning(before), self.tip()
        if not tip:
            return start, [self._make(start, before)]
        if start == tip:
            missing = int(
                self.git("rev-list", "--count", f"{tip}..HEAD", check=False) or 0
            )
            lacks = f"it lacks {text.count(missing, 'commit')} of HEAD"
            return tip, [
                f"branch {self.name} continues from its tip; {lacks}"
            ] if missing else []
        kept = ""
        if not self.contains(tip, start):
            kept = f"; its old tip is parked at {self.park(tip, _MERGED)}"
        try:
            self.land(start, tip, "begin again at HEAD", forward=not kept)
        except Moved:
            return self.open(before)
        return start, [
            f"HEAD has all that branch {self.name} has; it begins again there{kept}"
        ]

    def _make(self, start: str, before: str) -> str:
        """Make the branch at `start`; a line that says where that is. BadInput if git
        refuses."""
        try:
            self.git("update-ref", "-m", "ralph: begin", self.ref, start, "")
        except (StopNow, TryLater):
            raise
        except RalphError as error:
            raise BadInput(f"the branch {self.name} cannot be made: {error}") from None
        if start == self._remote_tip():
            return f"made branch {self.name}, where the remote's is"
        head, earlier = self.commits_at("HEAD", f"refs/heads/{before or self.name}")
        if start == earlier != head:
            return f"made branch {self.name}, at the tip of {before}"
        return f"made branch {self.name}"

    def has_landed(self, commit: str) -> bool:
        """Whether the branch has `commit`, or had it before it began again at HEAD: in
        its history or, after a squash merge, its content."""
        tip = self.tip()
        if not (tip and self.commit_at(commit)):
            return False  # a clone has only what was pushed
        where = (self.ref, f"{PARKED}/{self.plan}/{_MERGED}*")
        contained = self.git(
            "for-each-ref", f"--contains={commit}", *where, check=False
        )
        return bool(contained) or self._is_merged(commit, tip)

    def landed(self, tip: str) -> dict[str, str]:
        """What landed, as commits by the ids of their attempts, the newest first: among
        the last thousand that lead to `tip`, or that the branch had before it began
        again at HEAD."""
        form = "--format=%H %(trailers:key=Ralph-Attempt,valueonly,separator=%x20)"
        before = f"--glob={PARKED}/{self.plan}/{_MERGED}*"
        words = ("log", "-1000", "--no-show-signature", form, tip, before)
        lines = (
            line.split(" ") for line in self.git(*words, timeout=BULK).splitlines()
        )
        found: dict[str, str] = {}
        for commit, *ids in lines:
            found.setdefault(
                ids[-1], commit
            )  # ralph's own is the last: a hook may have written others
        found.pop("", None)
        return found

    def land(self, commit: str, tip: str, why: str, forward: bool = True) -> None:
        """Move the branch from `tip` to `commit`. Moved if it is elsewhere, unless it
        is ahead of `commit` already and `forward` allows that; NeedsPerson if git
        refuses."""
        said = ""
        for pause in (
            0.0,
            0.1,
            0.3,
            1.0,
            2.0,
            4.0,
            8.0,
        ):  # somebody else's git may have a lock
            time.sleep(pause)
            words = ("update-ref", "-m", f"ralph: {why}", self.ref, commit, tip)
            code, _, said = self.git.tried(*words)
            if code == 0:
                return
            now = self.tip()
            if now == commit or (
                forward and now and now != tip and self.contains(commit, now)
            ):
                return
            if now != tip:
                raise Moved
            if full := no_space(self.git.common, "update-ref", said):
                raise full
            if ".lock" not in said:
                break
        raise NeedsPerson(
            f"verified work cannot land on {self.name}; git says: {text.one_line(said, 400)}; "
            f"fix that, then run ralph again"
        )

    def commit(
        self, tree: str, parent: str, message: str, sign: bool = False, merge: str = ""
    ) -> str:
        """A commit of `tree` on `parent`, and on `merge` if one is merged; if nothing
        is merged or changed, `parent` itself. With `sign` it is signed, if that takes
        no more than a few seconds."""
        if not merge and tree == self.git.tree(parent):
            return parent
        others = ("-p", merge) if merge else ()
        words = ["commit-tree", tree, "-p", parent, *others, "-F", "-"]
        data = message.encode("utf-8", "replace")
        if sign:
            with contextlib.suppress(
                Late
            ):  # a key can need a passphrase, and nobody is there to type it
                code, made, _ = self.git.tried(
                    *words, "-S", stdin=data, timeout=_SIGNING
                )
                if code == 0:
                    return made.strip()
        commit = self.git(*words, stdin=data).strip()
        self.git.note_tree(commit, tree)
        return commit

    @cached_property
    def signs(self) -> bool:
        """Whether this person signs commits."""
        return (
            self.git("config", "--bool", "commit.gpgSign", check=False).strip()
            == "true"
        )

    def commit_at(self, ref: str) -> str:
        """The commit that a ref names; nothing if it is gone."""
        return self.commits_at(ref)[0] if ref else ""

    def commits_at(self, *refs: str) -> list[str]:
        """The commits that refs name; nothing for one that is gone."""
        asked = "".join(f"{ref}^{{commit}}\n" for ref in refs)
        found = self.git(
            "cat-file", "--batch-check", stdin=os.fsencode(asked)
        ).splitlines()
        return [
            line.split(" ")[0] if re.fullmatch(r"\w+ commit \d+", line) else ""
            for line in found
        ]

    def pin_candidate(self, commit: str) -> None:
        """Protect what is in the clean room from `git gc`, until the next one is."""
        self.git("update-ref", f"refs/ralph/candidate/{self.plan}", commit)

    def pin_attempt(self, worker: int, *trees: str) -> None:
        """Protect what the attempt of a worker began with, or left, from `git gc`,
        until its next one."""
        lines = [f"040000 tree {tree}\t{number}" for number, tree in enumerate(trees)]
        made = (
            trees[0]
            if len(trees) == 1
            else self.git("mktree", "-z", stdin=nul(lines)).strip()
        )
        self.git("update-ref", f"refs/ralph/attempt/{self.plan}/{worker}", made)

    def pin_work(self, task: str, tree: str) -> None:
        """Protect the unfinished work of a task from `git gc`."""
        name = f"{text.slug(task)}-{files.digest(task.encode('utf-8', 'replace'))[:4]}"
        self.git.sync()  # a ref outlives a power cut, and so must what it names
        self.git("update-ref", f"refs/ralph/work/{self.plan}/{name}", tree)

    def park_tree(self, tree: str, base: str, label: str) -> str:
        """Park work that did not pass as a commit on `base`; the ref's name."""
        return self.park(
            self.commit(tree, base, f"ralph: parked work of {label}\n"), label
        )

    def park(self, commit: str, label: str) -> str:
        """Park a commit below refs/ralph/parked/ under a free name; the ref's name."""
        own = f"{PARKED}/{self.plan}"
        listed = self.git(
            "for-each-ref",
            "--sort=-creatordate",
            "--format=%(refname) %(objectname)",
            own,
        )
        parked = dict(line.split(" ") for line in listed.splitlines())
        names = (f"{own}/{label}{f'-{n}' if n > 1 else ''}" for n in itertools.count(1))
        ref = next(name for name in names if parked.get(name, commit) == commit)
        self.git.sync()
        self.git("update-ref", ref, commit)
        for old in [name for name in parked if name != ref][_KEPT - 1 :]:
            self.git("update-ref", "-d", old)
        return ref

    def recent(self, tip: str) -> list[str]:
        """The last commits, a line each."""
        return self.log("-5", tip)

    def look(self) -> tuple[str, list[str]]:
        """The commit that the branch is at, and its last commits, a line each; nothing
        if it is gone."""
        form = (
            "--no-show-signature",
            "--no-mailmap",
            "-5",
            "--format=%H %h %s",
            self.ref,
            "--",
        )
        lines = self.git("log", *form, check=False).splitlines()
        tip, recent = (
            lines[0].partition(" ")[0] if lines else "",
            [line.partition(" ")[2] for line in lines],
        )
        return tip, [text.one_line(line, 100) for line in recent]

    def ancestors(self, commit: str, most: int) -> list[str]:
        """The first-parent ancestors of a commit, the newest first, at most so many."""
        return self.git(
            "rev-list", "--first-parent", f"-{most + 1}", commit, check=False
        ).split()[1:]

    def log(self, *span: str) -> list[str]:
        """The newest twenty commits of a span such as `base..tip`, a line each."""
        lines = self.git(
            "log",
            "--no-show-signature",
            "--no-mailmap",
            *span,
            "--format=%h %s",
            check=False,
        )
        return [text.one_line(line, 100) for line in lines.splitlines()][:20]

    def diff(self, before: str, after: str, size: int) -> str:
        """The first `size` bytes of the change between two trees or commits."""
        plain = ("--no-color", "--no-ext-diff", "--no-textconv")
        with self.git.stream("diff-tree", "-r", "-p", *plain, before, after) as output:
            found = output.read(size + 1)
        return text.clip(found.decode("utf-8", "replace"), size, "cut here")


def current_branch(git: Git) -> str:
    """The branch that is checked out, without refs/heads/; nothing when HEAD is
    detached."""
    return (
        git("symbolic-ref", "-q", "HEAD", check=False)
        .strip()
        .removeprefix("refs/heads/")
    )
