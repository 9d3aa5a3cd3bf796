"""The branch that verified work lands on, and the refs of work that did not pass."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput, NeedsPerson
from _ralph.git.git import BULK, Git, Late, no_space, nul
from _ralph.git.merge import merge

PARKED = "refs/ralph/parked"
_KEPT = 50
"""Parked commits of a plan that are kept, the newest."""
AWAY = "switch away: git switch - (or git switch --detach)"
"""What a person can do who sits on ralph's branch."""
_MERGED = "merged"
_SIGNING = 15.0
"""Seconds that a signature may take: a key can need a passphrase, and nobody is there
to type it."""
_PAUSES = (0.0, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each try to move the branch: somebody else's git may have a lock."""
_PLAIN_LOG = ("log", "--no-show-signature", "--no-mailmap")


class Moved(Exception):
    """Somebody else moved the branch: the work must be made and examined again on the
    new tip."""


@dataclass
class Branch:
    """A branch of a repository. `plan` is a short name, in the names of this plan's
    other refs."""

    git: Git
    name: str
    plan: str

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"

    @property
    def _merged(self) -> str:
        """The refs of old tips, from before the branch began again at HEAD."""
        return f"{PARKED}/{self.plan}/{_MERGED}*"

    def tip(self) -> str:
        """The commit that the branch is at; nothing if it does not exist."""
        # A ref that was just written is mostly a file of its own.
        data = files.read_regular(self.git.common / self.ref, 100) or b""
        if re.fullmatch(rb"[0-9a-f]{40,64}\n", data):
            return data.decode().strip()
        return self.commit_at(self.ref)

    def contains(self, commit: str, tip: str) -> bool:
        """Whether `commit` is in the history of `tip`."""
        return self.git.run("merge-base", "--is-ancestor", commit, tip).code == 0

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
    def seat(self) -> Path | None:
        """The working tree of a person that has this branch checked out; None if there
        is none."""
        heads = [self.git.common / "HEAD", *self.git.common.glob("worktrees/*/HEAD")]
        if all(self._is_elsewhere(head) for head in heads):
            return None  # mostly, and git need not be asked
        asked = self.git("for-each-ref", "--format=%(worktreepath)", self.ref)
        folder = asked.removesuffix("\n")
        return Path(folder) if folder and Path(folder).is_dir() else None

    def _is_elsewhere(self, head: Path) -> bool:
        """Whether a file HEAD names a commit, or another branch."""
        said = os.fsdecode(files.read_regular(head, 4096) or b"")
        here = f"{re.escape(self.ref)}|refs/heads/.invalid"  # as beside reftables
        return bool(re.fullmatch(rf"[0-9a-f]{{40,64}}\n|ref: (?!({here})\n).+\n", said))

    # ---------------------------------------------------------------- where it begins

    def beginning(self) -> str:
        """The commit that a run begins at: the branch's tip, or HEAD if that has all of
        its work. A new branch begins at the remote's branch of that name, as for `git
        switch`, else at HEAD. BadInput without a commit."""
        tip, head = self.commits_at(self.ref, "HEAD")
        tip = tip or self._remote_tip()
        if not tip and not head:
            raise BadInput(
                "this repository has no commit yet; make one: git add -A && git commit "
                "-m start"
            )
        if head and (not tip or self._is_merged(tip, head)):
            return head
        return tip

    def _remote_tip(self) -> str:
        """The commit of the one remote-tracking branch of this name; nothing if there
        is none, or several."""
        pattern = f"refs/remotes/*/{self.name}"
        found = self.git("for-each-ref", "--format=%(objectname)", pattern).split()
        return found[0] if len(set(found)) == 1 else ""

    def open(self) -> tuple[str, list[str]]:
        """Make the branch if there is none, or let it begin again where HEAD has all of
        its work; its tip, and what was done. BadInput without a commit."""
        start = self.beginning()
        tip = self.tip()
        if not tip:
            made = self.git.run("update-ref", "-m", "ralph: begin", self.ref, start, "")
            if made.code:  # as beside a branch `ralph` it refuses `ralph/p`
                raise BadInput(
                    f"the branch {self.name} cannot be made: "
                    f"{text.one_line(made.error)}; use another with --branch or "
                    f"branchName"
                )
            where = ", where the remote's is" if start == self._remote_tip() else ""
            return start, [f"made branch {self.name}{where}"]
        if start == tip:
            missing = int(self.git.maybe("rev-list", "--count", f"{tip}..HEAD") or 0)
            lacks = f"it lacks {text.count(missing, 'commit')} of HEAD"
            said = f"branch {self.name} continues from its tip; {lacks}"
            return tip, [said] if missing else []
        kept = ""
        if not self.contains(tip, start):
            kept = f"; its old tip is parked at {self.park(tip, _MERGED)}"
        try:
            self.land(start, tip, "begin again at HEAD", forward=not kept)
        except Moved:
            return self.open()
        return start, [f"{self.name} is merged; restarted from your HEAD{kept}"]

    # ---------------------------------------------------------------- what landed

    def has_landed(self, commit: str) -> bool:
        """Whether the branch has `commit`, or had it before it began again at HEAD: in
        its history or, after a squash merge, its content."""
        tip, known = self.commits_at(self.ref, commit)
        if not tip or not known:
            return False  # a clone has only what was pushed
        asked = ("for-each-ref", f"--contains={commit}", self.ref, self._merged)
        return bool(self.git.maybe(*asked)) or self._is_merged(commit, tip)

    def landed(self, tip: str) -> dict[str, str]:
        """What landed, as commits by the ids of their attempts, the newest first: among
        the last thousand that lead to `tip`, or that the branch had before it began
        again at HEAD."""
        trailers = "%(trailers:key=Ralph-Attempt,valueonly,separator=%x20)"
        words = (*_PLAIN_LOG, "-1000", f"--format=%H {trailers}")
        found: dict[str, str] = {}
        listed = self.git(*words, tip, f"--glob={self._merged}", timeout=BULK)
        for line in listed.splitlines():
            commit, *ids = line.split(" ")
            # ralph's own is the last: a hook may have written others
            if ids[-1]:
                found.setdefault(ids[-1], commit)
        return found

    def land(self, commit: str, tip: str, why: str, forward: bool = True) -> None:
        """Move the branch from `tip` to `commit`. Moved if it is elsewhere, unless it
        is ahead of `commit` already and `forward` allows that; NeedsPerson if git
        refuses."""
        words = ("update-ref", "-m", f"ralph: {why}", self.ref, commit, tip)
        said = ""
        for pause in _PAUSES:
            time.sleep(pause)
            done = self.git.run(*words)
            if done.code == 0:
                return
            now, said = self.tip(), done.error
            if now == commit:
                return
            if now != tip:
                if forward and now and self.contains(commit, now):
                    return
                raise Moved
            full = no_space(self.git.common, "update-ref", said)
            if full:
                raise full
            if ".lock" not in said:
                break
        raise NeedsPerson(
            f"verified work cannot land on {self.name}; git says: "
            f"{text.one_line(said, 400)}; fix that, then run ralph again"
        )

    # ---------------------------------------------------------------- commits

    def commit(
        self, tree: str, parent: str, message: str, sign: bool = False, merge: str = ""
    ) -> str:
        """A commit of `tree` on `parent`, and on `merge` if one is merged; if nothing
        is merged or changed, `parent` itself. With `sign` it is signed, if that takes
        no more than a few seconds."""
        if not merge and tree == self.git.tree(parent):
            return parent
        words = ["commit-tree", tree, "-p", parent, "-F", "-"]
        if merge:
            words += ["-p", merge]
        data = message.encode("utf-8", "replace")
        made = None
        if sign:
            with suppress(Late):
                made = self.git.maybe(*words, "-S", stdin=data, timeout=_SIGNING)
        commit = (made or self.git(*words, stdin=data)).strip()
        self.git.remember_tree(commit, tree)
        return commit

    @cached_property
    def signs(self) -> bool:
        """Whether this person signs commits."""
        return self.git.maybe("config", "--bool", "commit.gpgSign") == "true\n"

    def commit_at(self, ref: str) -> str:
        """The commit that a ref names; nothing if it is gone."""
        return self.commits_at(ref)[0] if ref else ""

    def commits_at(self, *refs: str) -> list[str]:
        """The commits that refs name; nothing for one that is gone."""
        asked = "".join(f"{ref}^{{commit}}\n" for ref in refs)
        listed = self.git("cat-file", "--batch-check", stdin=os.fsencode(asked))
        found = []
        for line in listed.splitlines():
            is_commit = re.fullmatch(r"\w+ commit \d+", line)
            found.append(line.split(" ")[0] if is_commit else "")
        return found

    def log(self, span: str, most: int = 20) -> list[str]:
        """The newest commits that lead to one, or of a span such as `base..tip`, a line
        each."""
        lines = self.git.maybe(*_PLAIN_LOG, f"-{most}", span, "--format=%h %s") or ""
        return [text.one_line(line, 100) for line in lines.splitlines()]

    def ancestors(self, commit: str) -> list[str]:
        """The ten first-parent ancestors of a commit, the newest first."""
        words = ("rev-list", "--first-parent", "-11", commit)
        return self.git(*words).split()[1:]

    def diff(self, before: str, after: str, size: int) -> str:
        """The first `size` bytes of the change between two trees or commits."""
        words = ("diff-tree", "-r", "-p", "--no-color", "--no-ext-diff")
        change = self.git(*words, "--no-textconv", before, after, timeout=BULK)
        return text.clip(change, size)

    # ---------------------------------------------------------------- pinned, parked

    def pin(self, kind: str, *objects: str, loop: int = 0) -> None:
        """Protect a commit or tree, or several trees, from `git gc`, until the next one
        of the same kind is pinned: the `candidate` in the clean room, or what the
        `attempt` of a loop began with or left."""
        made = objects[0]
        if len(objects) > 1:
            lines = [f"040000 tree {tree}\t{tree}" for tree in sorted({*objects})]
            made = self.git("mktree", "-z", stdin=nul(lines)).strip()
        ref = f"refs/ralph/{kind}/{self.plan}"
        self.git("update-ref", f"{ref}/{loop}" if loop else ref, made)

    def pin_work(self, task: str, tree: str) -> None:
        """Protect the unfinished work of a task from `git gc`."""
        name = f"{text.slug(task)}-{files.digest(task.encode('utf-8', 'replace'))[:4]}"
        self.git.sync()  # a ref outlives a power cut, and so must what it names
        self.git("update-ref", f"refs/ralph/work/{self.plan}/{name}", tree)

    def park_tree(self, tree: str, base: str, label: str) -> str:
        """Park work that did not pass as a commit on `base`; the ref's name."""
        commit = self.commit(tree, base, f"ralph: parked work of {label}\n")
        return self.park(commit, label)

    def park(self, commit: str, label: str) -> str:
        """Park a commit below refs/ralph/parked/ under a free name, and forget the
        oldest; the ref's name."""
        own = f"{PARKED}/{self.plan}"
        words = ("for-each-ref", "--sort=-creatordate")
        listed = self.git(*words, "--format=%(refname) %(objectname)", own)
        parked = dict(line.split(" ") for line in listed.splitlines())
        ref, number = f"{own}/{label}", 1
        while parked.get(ref, commit) != commit:
            number += 1
            ref = f"{own}/{label}-{number}"
        self.git.sync()
        self.git("update-ref", ref, commit)
        others = [name for name in parked if name != ref]
        for old in others[_KEPT - 1 :]:
            self.git("update-ref", "-d", old)
        return ref


def current_branch(git: Git) -> str:
    """The branch that is checked out, without refs/heads/; nothing when HEAD is
    detached."""
    ref = git.maybe("symbolic-ref", "-q", "HEAD") or ""
    return ref.strip().removeprefix("refs/heads/")
