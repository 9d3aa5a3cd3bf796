"""HEAD, branches and the other refs: what an attempt did to them is undone, and its commits are kept."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from _ralph import files, text
from _ralph.ends import BadInput, RalphError, TryLater
from _ralph.git import Git, remove_locks

_REFS = ("refs/heads", "refs/tags", "refs/ralph", "refs/worktree")
_HELD = tuple(f"refs/worktree/ralph/{name}" for name in ("clean", "begun", "ended"))  # a worktree's own
_HALFWAY = {
    "MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert",
    "rebase-merge": "rebase", "rebase-apply": "rebase", "sequencer": "cherry-pick",
    "BISECT_LOG": "bisect", "BISECT_START": "bisect",
}  # fmt: skip
_HOOKS = (
    "pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "pre-push", "pre-rebase",
    "post-checkout", "post-merge", "post-rewrite", "post-index-change", "reference-transaction",
)  # fmt: skip


class Refs:
    """The refs of a working tree's repository. `remember` and `settle` stand around an attempt; then
    `strange` says that HEAD had been on commits without those of the run."""

    def __init__(self, git: Git, aside: Path) -> None:
        self.strange = False
        self._git = git
        self._aside = aside
        self._vital: dict[Path, bytes] = {}
        self._shared = False
        self._before: dict[str, str] = {}
        self._listed: tuple[Mapping[str, object], dict[str, str], str] = {}, {}, ""

    def head(self) -> str:
        refs, branch = self._all()
        return refs.get(branch) or self._asked_head()

    def _asked_head(self) -> str:
        return self._git("rev-parse", "-q", "--verify", "HEAD^{commit}", check=False).strip()

    def branch(self) -> str:
        """The current branch's full ref name, empty when HEAD is detached."""
        return self._all()[1] or self._git("symbolic-ref", "-q", "HEAD", check=False).strip()

    def recent(self, since: int | None = None) -> list[str]:
        """The last commits, a line each; those since the pass of iteration `since`, if given."""
        span = ["-5"]
        if since is not None:
            found = self._git("log", "-1", "--format=%H", f"--grep=^Ralph-Iteration: {since}$", check=False)
            span = [f"{found.strip()}.."] if found.strip() else ["-5"]
        lines = self._git("log", *span, "--format=%h %s", check=False).splitlines()
        return [text.one_line(line, 100) for line in lines if not line.endswith(" ralph: notes")][:20]

    def remember(self) -> str:
        """Keep what an attempt may not change; HEAD's commit."""
        self._vital = {
            path: path.read_bytes() for path in (self._git.dir / "HEAD", self._git.common / "config")
        }
        # In other worktrees people may be at work on branches and config, right now.
        self._shared = self._git.dir != self._git.common or any((self._git.common / "worktrees").glob("*"))
        self._before = dict(self._all()[0])
        return self.head()

    def hold(self, *trees: str, commit: str = "", on: str = "", message: str = "ralph") -> None:
        """Name snapshots that are in no commit: the last good one, and those that an attempt began and
        ended with. Else they are gone when somebody runs `git gc --prune=now`. In the same step HEAD
        goes to `commit`, if there is one, from the commit `on`."""
        known, branch = self._all()
        moves = {ref: tree for ref, tree in zip(_HELD, trees, strict=False) if known.get(ref) != tree}
        lines = [f"option no-deref\nupdate {ref} {tree}\n" for ref, tree in moves.items()]
        lines += [f"update HEAD {commit} {on}\n"] if commit else []
        if not lines:
            return
        cleared = self._clear_way(known, *moves)
        self._git("update-ref", "-m", message, "--stdin", stdin="".join(lines).encode())
        self._before.update(moves)
        if known and not (commit or cleared):  # git need not be asked what there is now
            self._listed = self._signatures(), {**known, **moves}, branch

    def vital(self) -> list[Path]:
        """Files of git's own that decide what it does here."""
        hooks = [self._git.common / "hooks" / name for name in _HOOKS]
        own = [self._git.dir / "commondir", self._git.dir / "config.worktree"]
        own += [self._git.root / ".git"] if (self._git.root / ".git").is_file() else []
        return [*own, *hooks] if self._shared else [self._git.common / "config", *own, *hooks]

    def settle(self, branch: str, head: str, label: str) -> list[str]:
        """Put HEAD, branch and all refs back to where the attempt found them; what was found."""
        remove_locks(self._git.dir)
        said = self._mend() + self._end_halfway()
        now, current = self._all()
        as_it_was = (current, now.get(branch)) == (branch, head) and self._head_is_as_it_was()
        if branch and not as_it_was:
            said += self._settle_branch(branch, head, label)
        return said + self._settle_refs(now, branch, label)

    def _head_is_as_it_was(self) -> bool:
        """Whether HEAD names what it named at `remember`, and not by way of another name."""
        path = self._git.dir / "HEAD"
        return path not in self._vital or files.read_regular(path) == self._vital[path]

    def _settle_head(self, branch: str, head: str, label: str) -> list[str]:
        found, commit, own = self.branch(), self.head(), self._git.dir / "HEAD"
        if found == branch and self._head_is_as_it_was():
            return []
        named = os.fsdecode(files.read_regular(own) or b"").strip()
        if named.startswith("ref: ") and named != f"ref: {branch}":
            found = named.removeprefix("ref: ")  # which may be another name of where it led to
        self._park_commit(commit, head, label)
        self.strange = not self._is_ancestor(head, commit)
        self._git("symbolic-ref", "HEAD", branch)
        files.sync_all(self._git.dir)  # git does not sync its HEAD
        where = found.removeprefix("refs/heads/") or "a detached HEAD"
        return [f"the branch had been switched to {where}, and was put back"]

    def _settle_branch(self, branch: str, head: str, label: str) -> list[str]:
        said = self._settle_head(branch, head, label)
        tip = self._git("rev-parse", "-q", "--verify", branch, check=False).strip()
        if tip != head:
            if tip and self._is_ancestor(head, tip):
                kept = self.keep(tip, f"{label}-agent")
                said.append(f"commits on the branch were folded into the attempt; kept at {kept}")
            elif tip:
                said.append("the branch had been rewritten, and was put back")
                self._park_commit(tip, head, label)
                self.strange = True
        if tip != head or self._git("symbolic-ref", "-q", branch, check=False):
            said += self._clear_way(self._all()[0], branch)
            self._git("update-ref", "--no-deref", "-m", "ralph: put back", branch, head)
        self.reset_index()
        return said

    def _settle_refs(self, now: dict[str, str], branch: str, label: str) -> list[str]:
        """Put back the refs that an attempt should not have touched. In a shared repository a
        person may have moved them: there what was lost is kept, and said."""
        said = []
        for ref, was in list(self._before.items()):
            found = now.get(ref, "")
            if ref == branch or found == was:
                continue
            what = f"{ref.removeprefix('refs/')} had been {'moved' if found else 'deleted'}"
            self._before[ref] = found
            try:
                if self._shared:
                    lost = not (found and self._is_ancestor(was, found))
                    kept = (
                        f"; where it was is kept at {self.keep(was, f'{label}-ref')}" if lost else " forward"
                    )
                    said.append(f"{what}{kept}")
                    continue
                kept = self._kept(found, label)
                said += self._clear_way(self._all()[0], ref)
                if was.startswith("ref: "):
                    self._git("symbolic-ref", ref, was.removeprefix("ref: "))
                else:
                    self._git("update-ref", "--no-deref", "-m", "ralph: put back", ref, was)
                said.append(f"{what}, and was put back{kept}")
                self._before[ref] = was
            except RalphError as error:  # its commits are gone, or another name stands in its way
                said.append(f"{what} and could not be put back to {was}: {error}")
        return said

    def _kept(self, found: str, label: str) -> str:
        """Where a ref had gone, if there is something that can be kept."""
        with contextlib.suppress(RalphError):  # a name of nothing
            if found and not found.startswith("ref: "):
                return f"; where it had gone is kept at {self.keep(found, f'{label}-agent')}"
        return ""

    def _clear_way(self, known: Mapping[str, str], *wanted: str) -> list[str]:
        """Delete those of the `known` refs whose names do not go together with those `wanted`, as `a/b`
        with `a`; what was done, in words."""
        said = []
        for ref, name in known.items():
            if any(ref.startswith(f"{one}/") or one.startswith(f"{ref}/") for one in wanted):
                self._git("update-ref", "--no-deref", "-d", ref)
                kept = self._kept(name, "in-the-way") if ref.startswith(("refs/heads", "refs/tags")) else ""
                said.append(f"{ref.removeprefix('refs/')} stood in the way and was deleted{kept}")
        return said

    def _mend(self) -> list[str]:
        """Put back what git cannot work without; a change that it can work with may stay."""
        changed = [path for path, data in self._vital.items() if files.read_regular(path) != data]
        if not changed or not self._git.dir.is_dir():
            return []
        if self._asked_head() and self._git("var", "GIT_COMMITTER_IDENT", check=False):
            return []
        for path in changed:
            files.move_aside(path, self._aside, f"git-{path.name}")
            files.atomic_write(path, self._vital[path])
        names = " and ".join(path.name for path in changed)
        return [f"git could not work with its {names} as the attempt left it; put back"]

    def halfway(self) -> str:
        """What git has begun here and not ended: `merge`, `rebase`, ..., or nothing."""
        return next((word for name, word in _HALFWAY.items() if os.path.lexists(self._git.dir / name)), "")

    def _end_halfway(self) -> list[str]:
        said = []
        while word := self.halfway():
            for name in [name for name, of in _HALFWAY.items() if of == word]:
                files.move_aside(self._git.dir / name, self._aside, name)
            said.append(f"a {word} had been begun, and was given up")
        return said

    def keep(self, commit: str, label: str) -> str:
        """Hold `commit` under refs/ralph/parked/ by a name that holds nothing else; the ref."""
        known = self._all(check=True)[0]
        held = {**known, **self._before}
        names = (f"refs/ralph/parked/{label}{f'-{n}' if n > 1 else ''}" for n in itertools.count(1))
        ref = next(name for name in names if held.get(name, commit) == commit)
        self._clear_way(known, ref)
        self._git("update-ref", "--no-deref", ref, commit)
        return ref

    def _park_commit(self, commit: str, head: str, label: str) -> None:
        if commit and commit != head:
            self.keep(commit, f"{label}-agent")

    def _all(self, check: bool = False) -> tuple[dict[str, str], str]:
        """Every ref, each with what it names, which is `ref: ` and another one for a symbolic one; that of
        them which HEAD is on, or nothing. git is asked only where a file of it changed since."""
        now = self._signatures()
        if now == self._listed[0]:
            return self._listed[1:]
        names = "%(if)%(symref)%(then)ref: %(symref)%(else)%(objectname)%(end)"
        form = f"--format=%(refname)%00{names}%00%(HEAD)"
        lines = [
            line.split("\0") for line in self._git("for-each-ref", form, *_REFS, check=check).splitlines()
        ]
        found = {ref: name for ref, name, _ in lines}
        on = next((ref for ref, _, star in lines if star == "*"), "")
        self._listed = now if found else {}, found, on  # where git failed it is asked again
        return found, on

    def _signatures(self) -> dict[str, object]:
        """What changes whenever a ref or HEAD does, whatever way git keeps them (files, reftable)."""
        places = [self._git.dir / "HEAD", self._git.common / "packed-refs"]
        for top in {self._git.common, self._git.dir}:
            for folder, below, names in (*os.walk(top / "refs"), *os.walk(top / "reftable")):
                places += [Path(folder), *(Path(folder, name) for name in (*below, *names))]
        found = {str(place): files.signature(place) for place in places}
        # What a link leads to can change unseen: then git is always asked.
        return {name: object() if was and stat.S_ISLNK(was[2]) else was for name, was in found.items()}

    def _is_ancestor(self, older: str, newer: str) -> bool:
        return self._git("merge-base", older, newer, check=False).strip() == older

    def reset_index(self) -> None:
        """Make git's own index that of HEAD; the files stay as they are."""
        self._git("reset", "-q", check=False)

    def switch(self, *words: str) -> None:
        """Go to another branch; BadInput if git cannot."""
        try:
            self._git("switch", "-q", *words)
            files.sync_all(self._git.dir)
        except TryLater:
            raise
        except RalphError as error:
            raise BadInput(f"git cannot switch to the branch: {error}") from None

    def has_branch(self, name: str) -> bool:
        return bool(self._git("rev-parse", "-q", "--verify", f"refs/heads/{name}", check=False))

    def free_branch(self, wanted: str, prd: Path, same_plan: Callable[[str], bool]) -> str:
        """`wanted`, or a free name near it if it exists with another plan."""
        for number in range(1, 1000):
            name = wanted if number == 1 else f"{wanted}-{number}"
            there = self.plan_on(name, prd)
            if there is None or same_plan(there):
                return name
        raise RalphError(f"no free branch name near {wanted}")

    def default_branches(self, here: str) -> set[str]:
        """Names that no work should land on unasked: the usual ones, and where `here` is none of
        them, also the remote's default, and a branch that is the only one."""
        usual = {"main", "master"}
        if here in usual:
            return usual
        remote = self._git("symbolic-ref", "-q", "--short", "refs/remotes/origin/HEAD", check=False).strip()
        configured = self._git("config", "init.defaultBranch", check=False).strip()
        local = self._git("for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
        people = [name for name in local if not name.startswith("ralph/")]
        only = people if len(people) == 1 and not remote else []
        return {*usual, remote.removeprefix("origin/"), configured, *only} - {""}

    def plan_on(self, branch: str, prd: Path) -> str | None:
        """The text of prd.json as that branch has it."""
        name = self._git.name_of(prd)
        found = self._git("show", f"refs/heads/{branch}:{name}", check=False) if name else ""
        return found or None
