"""The branch that verified work lands on, and the refs of work that did not pass."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput, NeedsPerson, RalphError, StopNow, TryLater
from _ralph.git.git import BULK, Git, Late, attempted, git_output, no_space, nul

PARKED = "refs/ralph/parked"
_KEPT = 50
_SIGNING = 15.0
_ONLY = """#!/bin/sh
test "$1" != prepared || cut -d' ' -f3 | grep -qxF -e ORIG_HEAD -e {}
"""
"""A hook `reference-transaction`: nothing moves but one branch, and where HEAD was."""


class Moved(Exception):
    """Somebody else moved the branch: the work must be checked again on the new tip."""


@dataclass
class Branch:
    """The branch `name` of a repository. `plan` is a short name, in the names of this plan's other refs;
    `repacks` whether `repack` can be done in time."""

    git: Git
    name: str
    plan: str
    repacks: bool = True

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.name}"

    def tip(self) -> str:
        """The commit that the branch is at; nothing if it does not exist."""
        return self.commit_at(self.ref)

    def contains(self, commit: str, tip: str) -> bool:
        """Whether `commit` is in the history of `tip`."""
        return attempted(self.git, "merge-base", "--is-ancestor", commit, tip)[0] == 0

    @property
    def is_ahead(self) -> bool:
        """Whether it has commits that HEAD lacks."""
        ended = attempted(self.git, "merge-base", "--is-ancestor", self.ref, "HEAD")
        return ended[0] == 1  # 128 if there is no such branch

    @property
    def rival(self) -> str:
        """A branch beside which git cannot make this one, as `ralph` beside `ralph/p`; nothing if none is."""
        own, names = f"{self.name}/", self.git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads")
        others = (name for name in names.splitlines() if name != self.name)
        return next((name for name in others if f"{name}/".startswith(own) or own.startswith(f"{name}/")), "")

    def beginning(self) -> str:
        """The commit that a run begins at: HEAD if that contains the branch, or there is none; else its tip.
        In a clone that is the remote's branch, as for `git switch`. BadInput without a commit."""
        tip, head = self.commits_at(self.ref, "HEAD")
        tip = tip or self._remote_tip()
        if not (tip or head):
            raise BadInput("this repository has no commit yet; make one: git add -A && git commit -m start")
        return head if head and (not tip or self.contains(tip, head)) else tip

    def _remote_tip(self) -> str:
        """The commit of the one remote-tracking branch of this name; nothing if there is none, or several."""
        found = self.git("for-each-ref", "--format=%(objectname)", f"refs/remotes/*/{self.name}").split()
        return found[0] if len(set(found)) == 1 else ""

    def open(self) -> tuple[str, list[str]]:
        """Make the branch if there is none, or move it forward to where the run begins; its tip, and what was
        done. BadInput without a commit."""
        start, tip = self.beginning(), self.tip()
        if not tip:
            try:
                self.git("update-ref", "-m", "ralph: begin", self.ref, start, "")
            except (StopNow, TryLater):
                raise
            except RalphError as error:
                raise BadInput(f"the branch {self.name} cannot be made: {error}") from None
            there = ", where the remote's is" if start == self._remote_tip() else ""
            return start, [f"made branch {self.name}{there}"]
        if start != tip:
            try:
                self.land(start, tip, "carried forward to HEAD")
            except Moved:
                return self.open()
            return start, [f"branch {self.name} was merged; carried forward to HEAD"]
        behind = int(self.git("rev-list", "--count", f"{tip}..HEAD", check=False) or 0)
        missing = text.count(behind, "commit")
        note = f"branch {self.name} continues from its tip; it lacks {missing} of HEAD"
        return tip, [note] if behind else []

    def land(self, commit: str, tip: str, why: str) -> None:
        """Move the branch from `tip` to `commit`. Where it is checked out, that working tree follows by
        git's fast-forward rules. Moved if the branch is elsewhere; NeedsPerson if edits are in the way."""
        said = ""
        for pause in (0.0, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0):  # somebody else's git may have a lock
            time.sleep(pause)
            worktree = self._checked_out()
            if worktree is None:
                words = ("update-ref", "-m", f"ralph: {why}", self.ref, commit, tip)
                code, _, said = attempted(self.git, *words)
                if code == 0:
                    return
            else:
                code, said = self._fast_forward(worktree, commit, tip)
            now = self.tip()
            if now == commit or (now and now != tip and self.contains(commit, now)):
                return  # perhaps it had landed before ralph was killed
            if now != tip:
                raise Moved
            if code == 0:
                said = f"no error, but {self.name} did not move; see `git reflog` there"
            if full := no_space(self.git.common, "merge" if worktree else "update-ref", said):
                raise full
            if ".lock" not in said and self._checked_out() == worktree:
                break
        where = f": it is checked out in {worktree}" if worktree else ""
        raise NeedsPerson(
            f"verified work cannot land on {self.name}{where}; git says: {text.one_line(said, 400)}; "
            f"commit or move what is in the way, then run it again"
        )

    def _fast_forward(self, worktree: Path, commit: str, tip: str) -> tuple[int, str]:
        """Fast-forward a working tree that has the branch checked out: the exit status, and what git said.
        If the branch moves after the first line, git finds that this is no fast-forward; if a person switches
        to another one, a hook keeps git from moving that, and the files go back."""
        if self.tip() != tip:
            return 1, "the branch has moved"
        own = Git.at(worktree)
        hook = self.mark.with_name("reference-transaction")
        hook.parent.mkdir(parents=True, exist_ok=True)
        files.atomic_write(hook, os.fsencode(_ONLY.format(shlex.quote(self.ref))), 0o700)
        files.atomic_write(self.mark, os.fsencode("\0".join((str(worktree), tip, commit))))
        words = ("--ff-only", "--no-overwrite-ignore", "--no-stat", "-q", "--no-verify-signatures")
        plain = ("--no-autostash", "--no-squash", "--commit")  # whatever a person has set for own merges
        settings = ("-c", f"core.hooksPath={hook.parent}", "-c", f"branch.{self.name}.mergeOptions=")
        code, _, said = attempted(own, *settings, "merge", *words, *plain, commit, timeout=BULK)
        if code and own("symbolic-ref", "-q", "HEAD", check=False).strip() != self.ref:
            head = own("rev-parse", "-q", "--verify", "HEAD", check=False).strip()
            self._go_back(own, head or own("mktree").strip(), commit)  # an orphan branch has nothing yet
        files.clear(self.mark)
        return code, said

    @property
    def mark(self) -> Path:
        """Names a working tree during its fast-forward, and the two commits: for `recover`."""
        return self.git.common / "ralph" / self.plan / "fast-forward"

    def recover(self) -> None:
        """After a run that was killed: remove the locks of its git calls on this branch and on an index that
        was following it, and undo what was done of a fast-forward."""
        files.clear(self.git.common / f"{self.ref}.lock")
        worktree, *commits = os.fsdecode(files.read_regular(self.mark) or b"").split("\0")
        if len(commits) == 2 and Path(worktree).is_dir():
            own = Git.at(Path(worktree))
            for name in ("index.lock", "HEAD.lock"):
                files.clear(own.dir / name)
            if own("rev-parse", "HEAD", check=False).strip() == commits[0]:
                self._go_back(own, *commits)
        files.clear(self.mark)

    def _go_back(self, own: Git, tip: str, commit: str) -> None:
        """Move a working tree back from `commit` to `tip`: those files that are as in `commit`. Git's own
        rules protect all others."""
        look = own.seen_at(own.root, self.mark.with_suffix(".index"))
        look("read-tree", commit, timeout=BULK)
        look("update-index", "-q", "--refresh", check=False, timeout=BULK)
        others = set(look.names("diff-files", "-z", "--name-only", timeout=BULK))
        changed = own.names("diff-tree", "-r", "-z", "--name-only", tip, commit, timeout=BULK)
        listed = own.names("ls-tree", "-r", "-z", commit, timeout=BULK)
        there = {*changed} - others
        written = [entry for entry in listed if entry.partition("\t")[2] in there]
        if written:
            own("update-index", "-z", "--index-info", stdin=nul(written), timeout=BULK)
        own("update-index", "-q", "--refresh", check=False, timeout=BULK)
        own("read-tree", "-m", "-u", commit, tip, check=False, timeout=BULK)
        missing = ("checkout-index", "-q", "-u", "-z", "--stdin")
        own(*missing, stdin=nul(changed), check=False, timeout=BULK)

    def _checked_out(self) -> Path | None:
        """The working tree of a person that has this branch checked out. NeedsPerson while one rebases it."""
        entries = self.git("worktree", "list", "--porcelain", "-z", check=False).split("\0\0")
        for first, *lines in (entry.lstrip("\0").split("\0") for entry in entries):
            folder = Path(first.removeprefix("worktree "))
            if not first or not folder.is_dir():
                continue
            if f"branch {self.ref}" in lines:
                return folder
            if "detached" in lines and self._is_rebased_in(folder):
                raise NeedsPerson(
                    f"a rebase of {self.name} is under way in {folder}; end it, then run it again"
                )
        return None

    def _is_rebased_in(self, folder: Path) -> bool:
        own = Git.at(folder).dir
        names = (own / "rebase-merge/head-name", own / "rebase-apply/head-name")
        return any((files.read_regular(name) or b"").strip() == self.ref.encode() for name in names)

    def commit(self, tree: str, parent: str, message: str, sign: bool = False, merge: str = "") -> str:
        """A commit of `tree` on `parent`, and on `merge` if one is merged; if nothing is merged or changed,
        `parent` itself. With `sign` it is signed, if that takes no more than a few seconds."""
        if not merge and tree == self.git.tree(parent):
            return parent
        others = ("-p", merge) if merge else ()
        words = ["commit-tree", tree, "-p", parent, *others, "-F", "-"]
        data = message.encode("utf-8", "replace")
        if sign:
            with contextlib.suppress(Late):  # a key can need a passphrase, and nobody is there to type it
                code, made, _ = attempted(self.git, *words, "-S", stdin=data, timeout=_SIGNING)
                if code == 0:
                    return made.strip()
        return self.git(*words, stdin=data).strip()

    @cached_property
    def signs(self) -> bool:
        """Whether this person signs commits."""
        return self.git("config", "--bool", "commit.gpgSign", check=False).strip() == "true"

    def commit_at(self, ref: str) -> str:
        """The commit that a ref names; nothing if it is gone."""
        return self.commits_at(ref)[0] if ref else ""

    def commits_at(self, *refs: str) -> list[str]:
        """The commits that refs name; nothing for one that is gone."""
        asked = "".join(f"{ref}^{{commit}}\n" for ref in refs)
        found = self.git("cat-file", "--batch-check", stdin=os.fsencode(asked)).splitlines()
        return [line.split(" ")[0] if re.fullmatch(r"\w+ commit \d+", line) else "" for line in found]

    def pin_candidate(self, commit: str) -> None:
        """Protect what is in the clean room from `git gc`, until the next one."""
        self.git("update-ref", f"refs/ralph/candidate/{self.plan}", commit)

    def pin_attempt(self, worker: int, tree: str) -> None:
        """Protect what the attempt of a worker left from `git gc`, until its next one."""
        self.git("update-ref", f"refs/ralph/attempt/{self.plan}/{worker}", tree)

    def pin_work(self, task: str, tree: str) -> None:
        """Protect the unfinished work of a task from `git gc`."""
        name = f"{text.slug(task)}-{files.digest(task.encode('utf-8', 'replace'))[:4]}"
        files.sync_all(self.git.common)  # a ref outlives a power cut, and so must what it names
        self.git("update-ref", f"refs/ralph/work/{self.plan}/{name}", tree)

    def park_tree(self, tree: str, base: str, label: str) -> str:
        """Park work that did not pass as a commit on `base`; the ref's name."""
        return self.park(self.commit(tree, base, f"ralph: parked work of {label}\n"), label)

    def park(self, commit: str, label: str) -> str:
        """Park a commit below refs/ralph/parked/ under a free name; the ref's name."""
        own = f"{PARKED}/{self.plan}"
        listed = self.git("for-each-ref", "--sort=-creatordate", "--format=%(refname) %(objectname)", own)
        parked = dict(line.split(" ") for line in listed.splitlines())
        names = (f"{own}/{label}{f'-{n}' if n > 1 else ''}" for n in itertools.count(1))
        ref = next(name for name in names if parked.get(name, commit) == commit)
        files.sync_all(self.git.common)
        self.git("update-ref", ref, commit)
        for old in [name for name in parked if name != ref][_KEPT - 1 :]:
            self.git("update-ref", "-d", old)
        return ref

    def recent(self, tip: str, since: int | None = None) -> list[str]:
        """The last commits, a line each; those since the pass of iteration `since`, if given."""
        grep = ("log", "-1", "--format=%H", f"--grep=^Ralph-Iteration: {since}$", tip)
        passed = "" if since is None else self.git(*grep, check=False).strip()
        return self.log(f"{passed}..{tip}") if passed else self.log("-5", tip)

    def log(self, *span: str) -> list[str]:
        """The newest twenty commits of a span such as `base..tip`, a line each."""
        lines = self.git("log", "--no-show-signature", "--no-mailmap", *span, "--format=%h %s", check=False)
        return [text.one_line(line, 100) for line in lines.splitlines()][:20]

    def diff(self, before: str, after: str, size: int) -> str:
        """The first `size` bytes of the change between two trees or commits."""
        plain = ("--no-color", "--no-ext-diff", "--no-textconv")
        with git_output(self.git.root, "diff-tree", "-r", "-p", *plain, before, after) as output:
            found = output.read(size + 1)
        return text.clip(found.decode("utf-8", "replace"), size, "cut here")

    def repack(self) -> None:
        """Repack loose objects once there are many, as `git gc --auto` does; call it between attempts. Given
        up for this run if it takes too long."""
        loose = self.git.common / "objects/17"
        if self.repacks and loose.is_dir() and len(os.listdir(loose)) > 27:  # git's rule for 6,700 objects
            try:
                attempted(self.git, "repack", "-d", "-q", timeout=BULK)
            except (Late, StopNow):
                self.repacks = False


def default_branches(git: Git, here: str) -> set[str]:
    """Branches that work lands on only if they are named: main and master, and if `here` is neither, also
    the remote's default, and a branch that is the only one."""
    usual = {"main", "master"}
    if here in usual:
        return usual
    remote = git("symbolic-ref", "-q", "--short", "refs/remotes/origin/HEAD", check=False).strip()
    configured = git("config", "init.defaultBranch", check=False).strip()
    local = git("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
    people = [name for name in local if not name.startswith("ralph/")]
    only = people if len(people) == 1 and not remote else []
    return {*usual, remote.removeprefix("origin/"), configured, *only} - {""}


def current_branch(git: Git) -> str:
    """The branch that is checked out, without refs/heads/; nothing when HEAD is detached."""
    return git("symbolic-ref", "-q", "HEAD", check=False).strip().removeprefix("refs/heads/")
