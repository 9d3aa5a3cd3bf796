"""The working tree: branch, snapshots, commits made from verified trees, parking, protection."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from _ralph import files, text
from _ralph.model import BadInput, RalphError, TryLater

GIT_TIMEOUT = 600.0
# Written by tools beside the work; untracked ones are neither evidence nor committed.
CACHES = frozenset(
    {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".tox", ".nox", ".hypothesis", ".coverage"}
    | {"node_modules", ".venv", ".cache", ".DS_Store", ".ralph", ".aider.tags.cache.v4"}
    | {".aider.chat.history.md", ".aider.input.history", ".aider.llm.history"}
)


class Folder:
    """A workspace without git: nothing can be compared, committed or put back."""

    with_git = False
    root: Path

    def __init__(self, root: Path) -> None:
        self.root = root

    def head(self) -> str:
        return ""

    def snapshot(self) -> str:
        """A name for the state of the tree; two calls give the same name if nothing changed."""
        return ""

    def rest(self) -> str:
        """The same, where nobody was at work: what is new is left out of the work from now on."""
        return ""

    def tidy(self, tree: str) -> list[str]:
        """Undo what checks wrote; files they made new are left out of the work from now on."""
        return []

    def remember(self, patterns: list[str]) -> str:
        """Keep what an attempt may not change, or what its change must be told from; HEAD's commit."""
        return ""

    def vital(self) -> list[Path]:
        """Files of git's own that decide what it does here."""
        return []

    def touched(self) -> list[str]:
        """What happened to files that are not in git and so cannot be put back."""
        return []

    def git_folders(self) -> list[Path]:
        """Where git keeps this repository: in a linked worktree, not below it."""
        return []

    def settle(self, branch: str, head: str, label: str) -> list[str]:
        """Put HEAD and branch back to where the attempt found them; what was found."""
        return []

    def leave_strange_tree(self, before: str, label: str) -> list[str]:
        return []

    def restore_protected(
        self, before: str, after: str, patterns: list[str], allow: list[str], aside: Path
    ) -> list[str]:
        return []

    def changes(self, before: str, after: str) -> tuple[list[str], str]:
        """The files that differ between two snapshots, and `4 files, +120 -8`."""
        return [], ""

    def diff(self, before: str, after: str, size: int) -> str:
        """The first `size` bytes of the change between two snapshots."""
        return ""

    def branch(self) -> str:
        return ""

    def commit(self, tree: str, parent: str, message: str, state: list[Path]) -> str:
        return ""

    def park(self, label: str) -> str | None:
        return None

    def checkout(self, tree: str) -> None:
        """Make the tree what it was at that snapshot."""

    def new_nested(self) -> list[str]:
        """Git repositories inside this one that the last snapshot saw and none before it; they are
        not followed."""
        return []

    def clean_tree(self) -> str:
        """The last commit's tree, as a snapshot names it."""
        return ""

    def commit_notes(self, message: str, state: list[Path]) -> str:
        return ""

    def hooks(self) -> list[str]:
        return []

    def hook_env(self) -> dict[str, str]:
        return {}

    def hook_folders(self) -> list[Path]:
        """Where a commit hook must be able to write, also in the sandbox."""
        return []

    def recent(self, since: int | None = None) -> list[str]:
        """The last commits, a line each; those since the pass of iteration `since`, if given."""
        return []


class GitTree(Folder):
    """A git working tree, seen through an index of ralph's own.

    Snapshots are git trees without the state files, without what was untracked when the run
    began and without caches. Hooks and fsmonitor are off in every call.
    """

    with_git = True

    def __init__(self, root: Path, private: Path, state: list[Path]) -> None:
        super().__init__(root)
        self.git_dir = Path(self._git("rev-parse", "--absolute-git-dir").removesuffix("\n"))
        self._common = _common_dir(self.git_dir)
        self._vital: dict[Path, bytes] = {}
        self._shared = False
        self._refs_before: dict[str, str] = {}
        self._named_before: set[str] = set()
        self._yours: dict[str, tuple[int, ...]] = {}
        self._index = private / "index"
        self._left_file = private / "untracked"
        self._resetting = private / "resetting"
        self._state = [rel for path in state if (rel := _inside(path, root))]
        self._left_alone: set[str] = set()
        self._nested: set[str] = set()
        self._nested_before: set[str] = set()
        self._written: tuple[files.Signature | None, str] = None, ""
        self._clean: tuple[str, str] = "", ""
        self._elsewhere = False

    def begin(self, resuming: bool, last_tree: str = "") -> list[str]:
        """Start from git's index; on a fresh start, note the untracked files to leave alone,
        all but those that ralph itself left in `last_tree`. Ignored ones are noted too: an agent
        that edits .gitignore must not get a file of secrets committed. What was done, in words."""
        self._index.parent.mkdir(parents=True, exist_ok=True)
        for stale in (*self._index.parent.glob("*.lock"), self._index):
            stale.unlink(missing_ok=True)
        if (self.git_dir / "index").exists():
            shutil.copyfile(self.git_dir / "index", self._index)
        if not self.head():
            raise BadInput("this repository has no commit yet; make one: git add -A && git commit -m start")
        if not self._git("var", "GIT_COMMITTER_IDENT", check=False):
            raise BadInput("git does not know who commits here; set git config user.name and user.email")
        self._leave_state_out({"GIT_INDEX_FILE": str(self._index)})
        said = self._finish_reset() if self._resetting.exists() else []
        untracked = self._look()[1]
        if resuming and self._left_file.exists():
            self._load_left_alone()
        else:
            known = (
                self._git("ls-tree", "-r", "-z", "--name-only", last_tree, check=False) if last_tree else ""
            )
            ignored = self._git("ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z", own=True)
            self._left_alone = set()
            self._left_alone = set(self._work_in(untracked)) - set(_names(known))
            self._left_alone |= {name for name in _names(ignored) if not _cached(name)}
            self._save_left_alone()
        for name in {*untracked, *self._left_alone}:
            if name.endswith(files.TEMPORARY):
                (self.root / name).unlink(missing_ok=True)
        return said

    def _finish_reset(self) -> list[str]:
        """Do the reset of the tree that was cut off, unless a person has committed since. What
        stands there may be a person's edits too: so it is parked, and said."""
        head, tree = self._resetting.read_text("ascii").split()
        if head != self.head():
            self._resetting.unlink()
            return []
        self._load_left_alone()
        kept = self.park(f"cut-off-{head[:12]}")
        self.checkout(tree)
        return [f"a reset of the files was cut off and is done now; what stood there is kept at {kept}"]

    def head(self) -> str:
        return self._git("rev-parse", "-q", "--verify", "HEAD^{commit}", check=False).strip()

    def branch(self) -> str:
        """The current branch's full ref name, empty when HEAD is detached."""
        return self._git("symbolic-ref", "-q", "HEAD", check=False).strip()

    def snapshot(self) -> str:
        return self._take(*self._look())

    def rest(self) -> str:
        changed, untracked = self._look()
        self._nested_before |= self._nested
        if new := self._work_in(untracked):
            self._left_alone.update(new)
            self._save_left_alone()
        return self._take(changed, untracked)

    def _look(self) -> tuple[bool, list[str]]:
        """Whether a file differs from what ralph's index has of it; and what that index does not
        know and git does not ignore, nested repositories with a / at their end."""
        words = ("status", "--porcelain", "-z", "-uall", "--no-renames", "--ignore-submodules=dirty")
        entries = _names(self._git(*words, own=True))
        untracked = [entry[3:] for entry in entries if entry.startswith("??")]
        self._nested = {name for name in untracked if name.endswith("/")}
        return any(entry[1] not in " ?" for entry in entries), untracked

    def _take(self, changed: bool, untracked: list[str]) -> str:
        """The tree of what `_look` found. While nobody touches the index, it is the tree written last."""
        if changed:
            self._git("add", "-u", "--", ":/", own=True)
        if new := self._work_in(untracked):
            self._git("update-index", "--add", "-z", "--stdin", stdin=_nul(new), own=True)
        if self._written[0] is None or self._written[0] != files.signature(self._index):
            tree = self._git("write-tree", own=True).strip()
            self._written = files.signature(self._index), tree
        return self._written[1]

    def new_nested(self) -> list[str]:
        new, self._nested_before = self._nested - self._nested_before, self._nested_before | self._nested
        return [text.one_line(name) for name in sorted(new)]

    def tidy(self, tree: str) -> list[str]:
        found = self.rest()
        if found == tree:
            return []
        changed = text.few(self.changes(tree, found)[0])
        self.checkout(tree)
        how = f"by them or by you, and put back; as it was then: git show {found[:12]}:FILE"
        return [f"{changed} had been changed while checks ran, {how}"]

    def checkout(self, tree: str) -> None:
        self.snapshot()  # so that every file of the work is known, and goes
        files.atomic_write(self._resetting, f"{self.head()} {tree}".encode())
        self._git("read-tree", "--reset", "-u", tree, own=True)
        files.sync_all(self.root)  # with the files cut short by a power cut, nobody would reset them again
        self._resetting.unlink()
        self.reset_index()

    def reset_index(self) -> None:
        """Make git's own index that of HEAD; the files stay as they are."""
        self._git("reset", "-q", check=False)

    def modified(self) -> list[str]:
        """Tracked files that differ from HEAD or are staged, state files apart; and those that
        git was told to assume unchanged, for nobody could see what is lost with them."""
        lines = self._git("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
        hidden = [name[2:] for name in _names(self._git("ls-files", "-v", "-z")) if name[0].islower()]
        return hidden + [entry[3:] for entry in _names(lines) if entry[3:] not in self._state]

    def git_folders(self) -> list[Path]:
        return [self.git_dir, self._common]

    def halfway(self) -> str:
        """What git has begun here and not ended: `merge`, `rebase`, ..., or nothing."""
        return next((word for name, word in _HALFWAY.items() if os.path.lexists(self.git_dir / name)), "")

    def _end_halfway(self) -> list[str]:
        said = []
        while word := self.halfway():
            for name in [name for name, of in _HALFWAY.items() if of == word]:
                files.move_aside(self.git_dir / name, self._index.parent / "aside", name)
            said.append(f"a {word} had been begun, and was given up")
        return said

    def remember(self, patterns: list[str]) -> str:
        self._vital = {path: path.read_bytes() for path in (self.git_dir / "HEAD", self._common / "config")}
        # In other worktrees people may be at work on branches and config, right now.
        self._shared = self.git_dir != self._common or any((self._common / "worktrees").glob("*"))
        self._refs_before, branch = self._refs(*_REFS)
        self._named_before = self._loose(patterns)
        yours = [name for name in self._left_alone if name not in self._state]
        self._yours = {name: signature for name in yours if (signature := self._signature(name))}
        return self._refs_before.get(branch) or self.head()

    def vital(self) -> list[Path]:
        hooks = [self._common / "hooks" / name for name in _HOOKS]
        return hooks if self._shared else [self._common / "config", *hooks]

    def touched(self) -> list[str]:
        now = {name: self._signature(name) for name in self._yours}
        groups = {
            "deleted": sorted(name for name in now if not now[name]),
            "changed": sorted(name for name, was in self._yours.items() if now[name] and now[name] != was),
        }
        self._yours = {}
        return [
            f"not in git, so it cannot be put back: {text.few(names)} had been {what}"
            for what, names in groups.items()
            if names
        ]

    def _signature(self, name: str) -> tuple[int, ...]:
        """Changes with the file; of a folder only whether it is there."""
        try:
            found = os.lstat(self.root / name)
        except OSError:
            return ()
        return (0,) if name.endswith("/") else (found.st_ino, found.st_size, found.st_mtime_ns)

    def _refs(self, *places: str, check: bool = False) -> tuple[dict[str, str], str]:
        """The refs below `places`, each with what it names; that of them which HEAD is on, or nothing."""
        form = "--format=%(refname) %(objectname) %(HEAD)"
        listed = self._git("for-each-ref", form, *places, check=check)
        lines = [line.split(" ", 2) for line in listed.splitlines()]
        return {ref: name for ref, name, _ in lines}, next((ref for ref, _, star in lines if star == "*"), "")

    def _settle_refs(self, now: dict[str, str], branch: str, label: str) -> list[str]:
        """Put back the refs that an attempt should not have touched. In a shared repository a
        person may have moved them: there what was lost is kept, and said."""
        said = []
        for ref, was in list(self._refs_before.items()):
            found = now.get(ref, "")
            if ref == branch or found == was:
                continue
            what = f"{ref.removeprefix('refs/')} had been {'moved' if found else 'deleted'}"
            self._refs_before[ref] = found
            try:
                if self._shared:
                    said.append(f"{what}; where it was is kept at {self._keep(was, f'{label}-ref')}")
                    continue
                kept = (
                    f"; where it had gone is kept at {self._keep(found, f'{label}-agent')}" if found else ""
                )
                self._git("update-ref", "-m", "ralph: put back", ref, was)
                said.append(f"{what}, and was put back{kept}")
                self._refs_before[ref] = was
            except RalphError as error:  # its commits are gone, or another name stands in its way
                said.append(f"{what} and could not be put back to {was}: {error}")
        return said

    def _loose(self, patterns: list[str], allow: Iterable[str] = ()) -> set[str]:
        """Untracked files with a protected name, whatever is ignored: an agent can ignore its own."""
        specs = [f":(top,glob)**/{name}" for name in sorted(_file_names(patterns))]
        if not specs:
            return set()
        specs += [f":(top,glob,exclude){pattern}" for pattern in _deep(allow)]
        found = _names(self._git("ls-files", "-o", "-z", "--", *specs, own=True))
        return {n for n in found if not _cached(n) and not self._left_alone.intersection(_with_parents(n))}

    def _mend(self) -> list[str]:
        """Put back what git cannot work without; a change that it can work with may stay."""
        changed = [path for path, data in self._vital.items() if files.read_regular(path) != data]
        if not changed or not self.git_dir.is_dir():
            return []
        if self.head() and self._git("var", "GIT_COMMITTER_IDENT", check=False):
            return []
        for path in changed:
            files.move_aside(path, self._index.parent / "aside", f"git-{path.name}")
            files.atomic_write(path, self._vital[path])
        names = " and ".join(path.name for path in changed)
        return [f"git could not work with its {names} as the attempt left it; put back"]

    def settle(self, branch: str, head: str, label: str) -> list[str]:
        remove_locks(self.git_dir)
        if not self._index.exists():
            self._git("read-tree", "HEAD", own=True)
            self._leave_state_out({"GIT_INDEX_FILE": str(self._index)})
        said = self._mend() + self._end_halfway()
        now, current = self._refs(*_REFS)
        if (current, now.get(branch)) != (branch, head):
            said += self._settle_branch(branch, head, label)
        return said + self._settle_refs(now, branch, label)

    def _settle_branch(self, branch: str, head: str, label: str) -> list[str]:
        said, found_branch, found_head = [], self.branch(), self.head()
        if found_branch != branch:
            where = found_branch.removeprefix("refs/heads/") or "a detached HEAD"
            said.append(f"the branch had been switched to {where}, and was put back")
            self._park_commit(found_head, head, label)
            self._elsewhere = not self._is_ancestor(head, found_head)
            self._git("symbolic-ref", "HEAD", branch)
            files.sync_all(self.git_dir)  # git does not sync its HEAD
        tip = self._git("rev-parse", "-q", "--verify", branch, check=False).strip()
        if tip != head:
            if tip and self._is_ancestor(head, tip):
                kept = self._keep(tip, f"{label}-agent")
                said.append(f"commits on the branch were folded into the attempt; kept at {kept}")
            elif tip:
                said.append("the branch had been rewritten, and was put back")
                self._park_commit(tip, head, label)
                self._elsewhere = True
            self._git("update-ref", "-m", "ralph: put back", branch, head)
        self.reset_index()
        return said

    def leave_strange_tree(self, before: str, label: str) -> list[str]:
        """Where HEAD had stood on commits without those of the run, their files are in the tree:
        to take them for work would undo passed tasks. They are parked, and the tree put back."""
        if not self._elsewhere:
            return []
        self._elsewhere = False
        kept = self.park(f"{label}-elsewhere")
        self.checkout(before)
        return [f"the files of another commit stood in the tree; put back, and kept at {kept}"]

    def restore_protected(
        self, before: str, after: str, patterns: list[str], allow: list[str], aside: Path
    ) -> list[str]:
        """Put back what changed under protected patterns between these two snapshots.

        Existing files are frozen; new ones are allowed and named, unless the pattern is a plain
        file name: those are moved aside. `allow` lifts both. Returns lines for the record.
        """
        if not patterns:
            return []
        specs = [
            *(f":(top,glob){p}" for p in _deep(patterns)),
            *(f":(top,glob,exclude){p}" for p in _deep(allow)),
        ]
        listed = self._git("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after, "--", *specs)
        named = _file_names(patterns)
        said = []
        fields = _names(listed)
        for meta, name in zip(fields[::2], fields[1::2], strict=False):
            mode, _, blob, _, status = meta.lstrip(":").split(" ")
            path = self.root / name
            if status == "A" and not os.path.lexists(path):
                continue  # it went with the folder that stood in a file's place
            if status == "A" and Path(name).name not in named:
                said.append(f"{text.one_line(name)} (new under a protected pattern; kept)")
                continue
            if mode == "160000":
                continue  # a submodule: its commit is not ours to restore
            files.move_aside(path, aside, text.slug(name))
            if status == "A":
                said.append(f"{text.one_line(name)} (new and protected; moved aside)")
                continue
            self._write_blob(path, blob, mode)
            said.append(text.one_line(name))
        for name in sorted(self._loose(patterns, allow) - self._named_before):  # hidden by an ignore rule
            files.move_aside(self.root / name, aside, text.slug(name))
            said.append(f"{text.one_line(name)} (new and protected; moved aside)")
        return said

    def untracked_protected(self, patterns: list[str]) -> list[str]:
        """Files under protected patterns that git does not track and that cannot be guarded."""
        if not patterns:
            return []
        specs = [f":(top,glob){pattern}" for pattern in _deep(patterns)]
        names = _names(self._git("ls-files", "-o", "--exclude-standard", "-z", "--", *specs))
        return [name for name in names if not _cached(name)]

    def changes(self, before: str, after: str) -> tuple[list[str], str]:
        if before == after:
            return [], ""
        listed = self._git("diff-tree", "-r", "-z", "--numstat", "--no-renames", before, after)
        lines = [entry.split("\t", 2) for entry in _names(listed)]
        added, removed = (sum(int(line[i]) for line in lines if line[i].isdigit()) for i in (0, 1))
        return [
            text.one_line(line[2]) for line in lines
        ], f"{text.count(len(lines), 'file')}, +{added} -{removed}"

    def diff(self, before: str, after: str, size: int) -> str:
        words = [
            "git",
            "diff-tree",
            "-r",
            "-p",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            before,
            after,
        ]
        with subprocess.Popen(words, cwd=self.root, stdout=subprocess.PIPE, env=_environment()) as process:
            assert process.stdout is not None
            found = process.stdout.read(size + 1)
            process.kill()
        return text.clip(found.decode("utf-8", "replace"), size, "cut here")

    def commit(self, tree: str, parent: str, message: str, state: list[Path]) -> str:
        """Commit the verified `tree` plus the state files on `parent`; the new commit's name.

        Doing it again is harmless: where HEAD is not `parent` any more, nothing happens.
        """
        head, there = self._last_commit()
        made = self._commit(tree, head, there, message, state) if head == parent else ""
        if made:
            self._clean = made, tree
        return made

    def commit_notes(self, message: str, state: list[Path]) -> str:
        """Commit the state files alone, where they differ from HEAD."""
        head, there = self._last_commit()
        made = self._commit(there, head, there, message, state)
        if made and self._clean[0] == head:
            self._clean = made, self._clean[1]
        return made

    def _last_commit(self) -> tuple[str, str]:
        """HEAD's commit and its tree."""
        commit, tree = self._git("rev-parse", "HEAD^{commit}", "HEAD^{tree}", check=False).split() or ("", "")
        return commit, tree

    def _commit(self, tree: str, head: str, there: str, message: str, state: list[Path]) -> str:
        """Put `tree` plus the state files on top of `head`, unless its tree `there` is the same."""
        with self._scratch_index(tree) as env:
            if keep := self._committable(state):
                self._git("update-index", "--add", "-z", "--stdin", stdin=_nul(keep), env=env)
            full = self._git("write-tree", env=env).strip()
        if full == there:
            return ""
        words, made = ["commit-tree", full, "-p", head, "-F", "-"], ""
        if self._signs:
            with contextlib.suppress(RalphError):  # a key that asks for its passphrase: nobody is there
                made = self._git(*words, "-S", stdin=message.encode(), check=False, timeout=30).strip()
        made = made or self._git(*words, stdin=message.encode()).strip()
        self._git("update-ref", "-m", f"ralph: {message.splitlines()[0]}", "HEAD", made, head)
        self.reset_index()
        return made

    @functools.cached_property
    def _signs(self) -> bool:
        return self._git("config", "--bool", "commit.gpgSign", check=False).strip() == "true"

    def park(self, label: str) -> str | None:
        """Keep the tree as it is now as a commit under refs/ralph/parked/; the ref's name."""
        message = f"ralph: parked work of {label}\n".encode()
        with self._scratch_index(self.snapshot()) as env:
            if self._state:  # as they are in HEAD, so that `git cherry-pick` brings the work alone
                held = self._git("ls-tree", "-z", "HEAD", "--", *self._state)
                self._git("update-index", "-z", "--index-info", stdin=os.fsencode(held), env=env)
            tree = self._git("write-tree", env=env).strip()
        made = self._git("commit-tree", tree, "-p", "HEAD", "-F", "-", stdin=message).strip()
        return self._keep(made, label)

    def clean_tree(self) -> str:
        head = self.head()
        if head != self._clean[0]:
            with self._scratch_index(head) as env:
                self._leave_state_out(env)
                self._clean = head, self._git("write-tree", env=env).strip()
        return self._clean[1]

    def recent(self, since: int | None = None) -> list[str]:
        span = ["-5"]
        if since is not None:
            found = self._git("log", "-1", "--format=%H", f"--grep=^Ralph-Iteration: {since}$", check=False)
            span = [f"{found.strip()}.."] if found.strip() else ["-5"]
        lines = self._git("log", *span, "--format=%h %s", check=False).splitlines()
        return [text.one_line(line, 100) for line in lines if not line.endswith(" ralph: notes")][:20]

    def hook_env(self) -> dict[str, str]:
        """What git gives its commit hooks: an index that holds the whole change."""
        index = self.hook_folders()[0] / "index"
        index.parent.mkdir(exist_ok=True)
        shutil.copyfile(self._index, index)
        return {"GIT_INDEX_FILE": str(index), "GIT_EDITOR": ":", "GIT_PREFIX": ""}

    def hook_folders(self) -> list[Path]:
        return [self._index.with_name("hook"), self._common / "objects"]

    def hooks(self) -> list[str]:
        """The commit hooks that this repository has."""
        scopes = self._git("config", "--show-scope", "--path", "--get-all", "core.hooksPath", check=False)
        own = [line.split("\t", 1)[1] for line in scopes.splitlines() if not line.startswith("command\t")]
        configured = own[-1] if own else ""
        folder = self.root / configured if configured else self._common / "hooks"
        return [name for name in ("pre-commit", "commit-msg") if os.access(folder / name, os.X_OK)]

    def switch(self, *words: str) -> None:
        """Go to another branch; BadInput if git cannot."""
        try:
            self._git("switch", "-q", *words)
            files.sync_all(self.git_dir)
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
        name = _inside(prd, self.root)
        found = self._git("show", f"refs/heads/{branch}:{name}", check=False) if name else ""
        return found or None

    def _is_ancestor(self, older: str, newer: str) -> bool:
        return self._git("merge-base", older, newer, check=False).strip() == older

    def _park_commit(self, commit: str, head: str, label: str) -> None:
        if commit and commit != head:
            self._keep(commit, f"{label}-agent")

    def _keep(self, commit: str, label: str) -> str:
        """Hold `commit` under refs/ralph/parked/ by a name that holds nothing else; the ref."""
        held = {**self._refs("refs/ralph/parked/", check=True)[0], **self._refs_before}
        names = (f"refs/ralph/parked/{label}{f'-{n}' if n > 1 else ''}" for n in itertools.count(1))
        ref = next(name for name in names if held.get(name, commit) == commit)
        self._git("update-ref", ref, commit)
        return ref

    def _work_in(self, untracked: list[str]) -> list[str]:
        """New files that belong to the work."""
        hidden = self._left_alone | set(self._state)
        return [
            n
            for n in untracked
            if not hidden.intersection(_with_parents(n)) and not n.endswith("/") and not _cached(n)
        ]

    def _load_left_alone(self) -> None:
        self._left_alone = set(_names(os.fsdecode(self._left_file.read_bytes())))

    def _save_left_alone(self) -> None:
        files.atomic_write(self._left_file, os.fsencode("\0".join(sorted(self._left_alone))))

    def _leave_state_out(self, env: dict[str, str]) -> None:
        """Take the state files out of that index, lest a reset of the tree write or remove them.
        git's own index is not asked for them: after a kill or an agent's `git rm --cached` it
        knows nothing of files that HEAD has."""
        if self._state:
            self._git("update-index", "--force-remove", "-z", "--stdin", stdin=_nul(self._state), env=env)

    def _tracked_state(self) -> list[str]:
        return _names(self._git("ls-files", "-z", "--", *self._state)) if self._state else []

    def _committable(self, state: Iterable[Path]) -> list[str]:
        """Those state files that exist, lie in the tree and are not ignored."""
        names = [rel for path in state if path.is_file() and (rel := _inside(path, self.root))]
        if not names:
            return []
        ignored = set(_names(self._git("check-ignore", "-z", "--stdin", stdin=_nul(names), check=False)))
        hidden = ignored.difference(self._tracked_state()) if ignored else ignored
        return [name for name in names if name not in hidden]

    @contextlib.contextmanager
    def _scratch_index(self, tree: str) -> Iterator[dict[str, str]]:
        path = self._index.with_name("commit-index")
        path.unlink(missing_ok=True)
        env = {"GIT_INDEX_FILE": str(path)}
        self._git("read-tree", tree, env=env)
        try:
            yield env
        finally:
            path.unlink(missing_ok=True)

    def _write_blob(self, path: Path, blob: str, mode: str) -> None:
        """Write a blob where it belongs; folders or links that stand in the way are moved off."""
        for parent in reversed(path.relative_to(self.root).parents):
            folder = self.root / parent
            if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir()):
                files.move_aside(folder, self._index.parent / "aside", text.slug(str(parent)))
            folder.mkdir(exist_ok=True)
        if mode == "120000":
            path.symlink_to(os.fsdecode(git(self.root, "cat-file", "blob", blob)))
        else:  # as git would check it out: line ends, LFS
            name = path.relative_to(self.root).as_posix()
            data = git(self.root, "cat-file", "--filters", f"--path={name}", blob)
            files.atomic_write(path, data, 0o755 if mode == "100755" else 0o644)

    def _git(
        self,
        *words: str,
        stdin: bytes = b"",
        own: bool = False,
        env: dict[str, str] | None = None,
        check: bool = True,
        timeout: float = GIT_TIMEOUT,
    ) -> str:
        """git's output; `own` uses ralph's index. RalphError with git's words where it fails."""
        extra = {"GIT_INDEX_FILE": str(self._index)} if own else env or {}
        return os.fsdecode(git(self.root, *words, stdin=stdin, env=extra, check=check, timeout=timeout))


def git(
    cwd: Path,
    *words: str,
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
    check: bool = True,
    timeout: float = GIT_TIMEOUT,
) -> bytes:
    """One git call with hooks, fsmonitor and prompts off; RalphError if it fails and `check`."""
    quiet = [word for setting in _QUIET for word in ("-c", setting)]
    try:
        done = subprocess.run(
            ["git", *quiet, *words],
            cwd=cwd,
            input=stdin,
            capture_output=True,
            timeout=timeout,
            env={**_environment(), **(env or {})},
        )
    except FileNotFoundError:
        raise BadInput("git is not installed, or the folder is gone; --no-git works without it") from None
    except subprocess.TimeoutExpired:
        raise RalphError(f"git {words[0]} did not end within {text.duration(timeout)}") from None
    if check and done.returncode != 0:
        said = text.one_line(done.stderr.decode("utf-8", "replace"), 300)
        if any(word in said for word in _BROKEN):
            raise BadInput(
                f"git cannot work here: {said}; mend that (see .git/HEAD and .git/config), then run it again"
            )
        if any(word in said for word in _FULL):
            raise TryLater(f"the disk is full (git {words[0]}: {said}); run the same command again")
        raise RalphError(f"git {words[0]} failed: {said or f'exit {done.returncode}'}")
    return done.stdout if done.returncode == 0 else b""


def _environment() -> dict[str, str]:
    """The environment of git calls: where git was told to look from outside does not count."""
    kept = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", *_IDENTITY)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key in kept}
    return {**clean, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def _common_dir(git_dir: Path) -> Path:
    """Where a linked worktree finds what it shares with the others, by gitrepository-layout."""
    shared = files.read_regular(git_dir / "commondir")
    return Path(os.path.realpath(git_dir / os.fsdecode(shared).rstrip("\n"))) if shared else git_dir


def remove_locks(git_dir: Path) -> None:
    """Remove the lock files of git calls that died with an agent or with a run."""
    for lock in (git_dir / "index.lock", git_dir / "HEAD.lock", *git_dir.glob("refs/**/*.lock")):
        files.clear(lock)


def top_level(folder: Path) -> Path | None:
    """The root of the git working tree around `folder`, or None; BadInput if git cannot read it."""
    there = any((parent / ".git").exists() for parent in (folder, *folder.parents))
    found = git(folder, "rev-parse", "--show-toplevel", check=there)
    return Path(os.fsdecode(found).rstrip("\n")) if found else None


_QUIET = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.splitIndex=false", "core.untrackedCache=false",
    "core.safecrlf=false", "core.quotePath=false", "gc.auto=0",
    "core.fsync=all",  # by itself git syncs a ref, but not the commit that it names
)  # fmt: skip
_BROKEN = (
    "not a git repository", "dubious ownership", "bad config", "config value", "repo version",
    "must be run in a work tree",
)  # fmt: skip
_HALFWAY = {
    "MERGE_HEAD": "merge", "CHERRY_PICK_HEAD": "cherry-pick", "REVERT_HEAD": "revert",
    "rebase-merge": "rebase", "rebase-apply": "rebase", "sequencer": "cherry-pick",
}  # fmt: skip
_HOOKS = (
    "pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "pre-push", "pre-rebase",
    "post-checkout", "post-merge", "post-rewrite", "post-index-change", "reference-transaction",
)  # fmt: skip
_REFS = ("refs/heads", "refs/tags", "refs/ralph")
_FULL = ("No space left on device", "Out of diskspace", "Disk quota exceeded")
_IDENTITY = tuple(
    f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL", "DATE")
)


def _inside(path: Path, root: Path) -> str:
    try:
        return path.absolute().relative_to(root).as_posix()
    except ValueError:
        return ""


def _file_names(patterns: Iterable[str]) -> set[str]:
    """Those patterns that are plain file names: no new file may have one."""
    return {p for p in patterns if "/" not in p and not set(p) & set("*?[")}


def _deep(patterns: Iterable[str]) -> list[str]:
    """A pattern without a slash holds in every folder, as in .gitignore; a folder means all in it."""
    deep = []
    for pattern in patterns:
        anchored = pattern.strip("/") if "/" in pattern.rstrip("/") else f"**/{pattern.strip('/')}"
        deep += [anchored, f"{anchored}/**"]
    return deep


def _with_parents(name: str) -> Iterator[str]:
    """`a/b/c`, `a/b/`, `a/`: the names under which a file can be left alone."""
    yield name
    while "/" in name:
        name = name.rpartition("/")[0]
        yield f"{name}/"


def _cached(name: str) -> bool:
    return bool(CACHES.intersection(name.split("/"))) or name.endswith((".pyc", ".egg-info/PKG-INFO"))


def _names(listed: str) -> list[str]:
    return [name for name in listed.split("\0") if name]


def _nul(names: Iterable[str]) -> bytes:
    return os.fsencode("\0".join(names) + "\0")
