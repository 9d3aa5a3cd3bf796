"""The working tree: snapshots of it, and putting it back."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from _ralph import files, text
from _ralph.commits import Commits
from _ralph.ends import BadInput, RalphError, TryLater
from _ralph.git import Git, git, git_output, nul
from _ralph.protect import LeftAlone, Protected, cached
from _ralph.refs import Refs


class Folder:
    """A workspace without git, and what an attempt asks of one: nothing can be compared or put back."""

    with_git = False

    def branch(self) -> str:
        """The current branch's full ref name, empty when HEAD is detached."""
        return ""

    def head(self) -> str:
        """The last commit, empty if there is none."""
        return ""

    def clean_tree(self) -> str:
        """The last commit's tree, as a snapshot names it."""
        return ""

    def recent(self, since: int | None = None) -> list[str]:
        """The last commits, a line each; those since the pass of iteration `since`, if given."""
        return []

    def snapshot(self) -> str:
        """A name for the state of the tree; two calls give the same name if nothing changed."""
        return ""

    def rest(self) -> str:
        """A snapshot while no agent works: files new since the last one are a person's, or what checks
        wrote, and are left out of the work from now on."""
        return ""

    def tidy(self, tree: str, during: str = "checks ran") -> list[str]:
        """Undo what others than the agent wrote, such as checks; files they made new are left out of the
        work from now on. What was done, in words that say when."""
        return []

    def new_nested(self) -> list[str]:
        """Git repositories inside this one that the last snapshot saw and none before it; they are
        not followed."""
        return []

    def changes(self, before: str, after: str) -> tuple[list[str], str]:
        """The files that differ between two snapshots, and `4 files, +120 -8`."""
        return [], ""

    def remember(self) -> str:
        """Note where HEAD and all refs are, for `settle`; HEAD's commit."""
        return ""

    def protect(self, patterns: list[str]) -> None:
        """Note what the change of protected and of untracked files must be told from."""

    def hold(self, *trees: str) -> None:
        """Keep the snapshots that an attempt begins and ends with: no `git gc` takes them."""

    def vital(self) -> list[Path]:
        """Files of git's own that decide what it does here."""
        return []

    def settle(self, branch: str, head: str, label: str, before: str = "") -> list[str]:
        """Put HEAD and all refs back to where the attempt found them, and where other commits'
        files stand in the tree, the snapshot `before`; what was found."""
        return []

    def restore_protected(self, before: str, after: str, patterns: list[str], allow: list[str]) -> list[str]:
        """Put back what changed under protected patterns between two snapshots; lines for the record."""
        return []

    def touched(self) -> list[str]:
        """What happened to files that are not in git and so cannot be put back."""
        return []


class GitTree(Folder):
    """A git working tree, seen through an index of ralph's own.

    Snapshots are git trees without the state files, without what was untracked when the run
    began and without caches. Hooks and fsmonitor are off in every call.
    """

    with_git = True

    def __init__(self, root: Path, private: Path, state: list[Path]) -> None:
        self.git = Git(root)
        self.refs = Refs(self.git, private / "aside")
        self._root = root
        self._index = private / "index"
        self._own = {"GIT_INDEX_FILE": str(self._index)}
        self._resetting = private / "resetting"
        self._aside = private / "aside"
        self.commits = Commits(self.git, self.refs, private, state)
        self._left = LeftAlone(private / "untracked", self.commits.state)
        self._protected = Protected(self.git, self._own, self._left, private / "aside")
        self._nested: set[str] = set()
        self._nested_before: set[str] = set()
        self._refused: list[str] = []
        self._begun = time.time()
        self._written: tuple[files.Signature | None, str] = None, ""

    def branch(self) -> str:
        return self.refs.branch()

    def head(self) -> str:
        return self.refs.head()

    def clean_tree(self) -> str:
        return self.commits.clean_tree()

    def commit(self, tree: str, parent: str, message: str) -> None:
        """Commit the verified `tree` on `parent`, as `Commits.make` does it."""
        holds = self._written == (files.signature(self._index), tree)
        self.commits.make(tree, parent, message, self._index if holds else None)

    def park(self, label: str) -> str:
        """Keep the tree as it is now as a commit under refs/ralph/parked/; the ref's name."""
        return self.commits.park(self.snapshot(), label)

    def recent(self, since: int | None = None) -> list[str]:
        return self.refs.recent(since)

    def remember(self) -> str:
        return self.refs.remember()

    def protect(self, patterns: list[str]) -> None:
        self._protected.remember(patterns)

    def hold(self, *trees: str) -> None:
        self.refs.hold(self.clean_tree(), *trees)

    def vital(self) -> list[Path]:
        return self.refs.vital()

    def restore_protected(self, before: str, after: str, patterns: list[str], allow: list[str]) -> list[str]:
        return self._protected.restore(before, after, patterns, allow)

    def untracked_protected(self, patterns: list[str]) -> list[str]:
        return self._protected.untracked(patterns)

    def touched(self) -> list[str]:
        said, self._refused = self._refused, []
        return said + self._protected.touched()

    def settle(self, branch: str, head: str, label: str, before: str = "") -> list[str]:
        said = self.refs.settle(branch, head, label)
        if before and self._written[0] != files.signature(self._index):  # it is gone, or another's
            files.clear(self._index)  # a folder can stand there
            self.git("read-tree", before, env=self._own)
        if before and self.refs.strange:  # to take those files for work would undo passed tasks
            kept = self.park(f"{label}-elsewhere")
            self.checkout(before)
            said.append(f"the files of another commit stood in the tree; put back, and kept at {kept}")
            self.refs.strange = False
        self._protected.doubt()
        return said

    def begin(self, resuming: bool, last_tree: str = "") -> list[str]:
        """Start from git's index; on a fresh start, note the untracked files to leave alone,
        all but those that ralph itself left in `last_tree`. What was done, in words."""
        self._index.parent.mkdir(parents=True, exist_ok=True)
        for stale in (*self._index.parent.glob("*.lock"), self._index):
            files.clear(stale)
        if (self.git.dir / "index").exists():
            shutil.copyfile(self.git.dir / "index", self._index)
        if not self.head():
            raise BadInput("this repository has no commit yet; make one: git add -A && git commit -m start")
        if not self.git("var", "GIT_COMMITTER_IDENT", check=False):
            raise BadInput("git does not know who commits here; set git config user.name and user.email")
        self.commits.leave_state_out(self._own)
        self.git("update-index", "-q", "--refresh", env=self._own, check=False)
        self._begun = self._left.noted_at() if resuming else time.time()
        self.git.mend = self._open_up
        said = self._finish_reset() if self._resetting.exists() else []
        untracked = self._look()[1]
        if not (resuming and self._left.load()):
            self._leave_alone_all(untracked, last_tree)
        for name in {*untracked, *self._left.names}:
            if name.endswith(files.TEMPORARY):
                (self._root / name).unlink(missing_ok=True)
        return said

    def _open_up(self) -> bool:
        """What was closed before the work began is a person's."""
        return files.open_up(self._root, self._begun)

    def _leave_alone_all(self, untracked: list[str], last_tree: str) -> None:
        """Ignored files too: an agent that edits .gitignore must not get a file of secrets committed."""
        listed = ("ls-tree", "-r", "-z", "--name-only", last_tree)
        known = self.git.names(*listed, check=False) if last_tree else []
        words = ("ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z")
        ignored = self.git.names(*words, env=self._own)
        self._left.names = set()
        new = set(self._left.work_in(untracked)).difference(known)
        self._left.note(new | {name for name in ignored if not cached(name)})

    def _finish_reset(self) -> list[str]:
        """Do the reset of the tree that was cut off, unless a person has committed since. What
        stands there may be a person's edits too: so it is parked, and said."""
        head, tree = self._resetting.read_text("ascii").split()
        if head != self.head():
            self._resetting.unlink()
            return []
        self._left.load()
        kept = self.park(f"cut-off-{head[:12]}")
        self.checkout(tree)
        return [f"a reset of the files was cut off and is done now; what stood there is kept at {kept}"]

    def snapshot(self) -> str:
        return self._take(*self._look())

    def rest(self) -> str:
        changed, untracked = self._look()
        self._nested_before |= self._nested
        if new := self._left.work_in(untracked):
            self._left.note(self._left.names.union(new))
        return self._take(changed, untracked)

    def _look(self) -> tuple[bool, list[str]]:
        """Whether a file differs from what ralph's index has of it; and what that index does not
        know and git does not ignore, nested repositories with a / at their end."""
        words = ("status", "--porcelain", "-z", "-uall", "--no-renames", "--ignore-submodules=dirty")
        # That it looked must not change the index: else the tree would be written anew each time.
        entries = self.git.names(*words, env={**self._own, "GIT_OPTIONAL_LOCKS": "0"})
        untracked = [entry[3:] for entry in entries if entry.startswith("??")]
        self._nested = {name for name in untracked if name.endswith("/")}
        return any(entry[1] not in " ?" for entry in entries), untracked

    def _take(self, changed: bool, untracked: list[str]) -> str:
        """The tree of what `_look` found. While nobody touches the index, it is the tree written last."""
        new = self._left.work_in(untracked)
        while refused := self._add(changed, new):
            changed, new = True, [name for name in new if name not in refused]
        if self._written[0] is None or self._written[0] != files.signature(self._index):
            tree = self.git("write-tree", env=self._own).strip()
            self._written = files.signature(self._index), tree
        return self._written[1]

    def _add(self, changed: bool, new: list[str]) -> list[str]:
        """Take what changed and the `new` files into ralph's index; those that git refuses, if any, which
        are moved aside."""
        try:
            if changed:
                self.git("add", "-u", "--", ":/", env=self._own)
            if new:
                self.git("update-index", "--add", "-z", "--stdin", stdin=nul(new), env=self._own)
        except (BadInput, TryLater):
            raise
        except RalphError as error:
            if refused := self._move_refused(str(error), new):
                return refused
            raise
        return []

    def _move_refused(self, said: str, new: list[str]) -> list[str]:
        """Move aside the changed and `new` files that git names in what it `said`: a FIFO or a socket in
        a file's place, text that is not in the encoding that .gitattributes claims. Their names. What
        was there before the work began is a person's, and stays."""
        words = ("diff-files", "--name-only", "--diff-filter=d", "-z")
        names = {name: text.one_line(name) for name in (*self.git.names(*words, env=self._own), *new)}
        refused = [name for name, shown in names.items() if f"'{shown}'" in said or f" {shown}: " in said]
        refused = [name for name in refused if (self._root / name).lstat().st_ctime >= self._begun]
        for name in refused:
            kept = files.move_aside(self._root / name, self._aside, text.slug(name))
            self._refused.append(f"git cannot take {names[name]}; it was moved aside to {kept}")
        return refused

    def new_nested(self) -> list[str]:
        new, self._nested_before = self._nested - self._nested_before, self._nested_before | self._nested
        return [text.one_line(name) for name in sorted(new)]

    def tidy(self, tree: str, during: str = "checks ran") -> list[str]:
        found = self.rest()
        if found == tree:
            return []
        changed = text.few(self.changes(tree, found)[0])
        self.checkout(tree)
        how = f"and put back, whoever did it; as it was then: git show {found[:12]}:FILE"
        return [f"{changed} had been changed while {during}, {how}"]

    def checkout(self, tree: str) -> None:
        """Make the tree what it was at that snapshot."""
        self._open_up()
        self.snapshot()  # so that every file of the work is known, and goes
        files.atomic_write(self._resetting, f"{self.head()} {tree}".encode())
        self.git("read-tree", "--reset", "-u", tree, env=self._own)
        files.sync_all(self._root)  # with the files cut short by a power cut, nobody would reset them again
        self._reset_submodules()
        self._resetting.unlink()
        self.refs.reset_index()

    def _reset_submodules(self) -> None:
        """To the commits that the tree names: else the next task's commit would take along where an
        agent left them."""
        if not (self._root / ".gitmodules").exists():
            return
        fields = self.git.names("diff-files", "--raw", "-z", "--ignore-submodules=dirty", env=self._own)
        for meta, name in zip(fields[::2], fields[1::2], strict=False):
            if meta.startswith(":160000 160000"):
                words, here = ("checkout", "-q", "-f", "--detach", meta.split(" ")[2]), str(self._root)
                git(self._root / name, *words, env={"GIT_CEILING_DIRECTORIES": here}, check=False)

    def modified(self) -> list[str]:
        """Tracked files that differ from HEAD or are staged, state files apart; and those that
        git was told to assume unchanged, for nobody could see what is lost with them."""
        lines = self.git.names("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
        hidden = [name[2:] for name in self.git.names("ls-files", "-v", "-z") if name[0].islower()]
        return hidden + [entry[3:] for entry in lines if entry[3:] not in self.commits.state]

    def changes(self, before: str, after: str) -> tuple[list[str], str]:
        if before == after:
            return [], ""
        listed = self.git.names("diff-tree", "-r", "-z", "--numstat", "--no-renames", before, after)
        lines = [entry.split("\t", 2) for entry in listed]
        added, removed = (sum(int(line[i]) for line in lines if line[i].isdigit()) for i in (0, 1))
        names = [text.one_line(line[2]) for line in lines]
        return names, f"{text.count(len(names), 'file')}, +{added} -{removed}"

    def diff(self, before: str, after: str, size: int) -> str:
        """The first `size` bytes of the change between two snapshots."""
        plain = ("--no-color", "--no-ext-diff", "--no-textconv")
        with git_output(self._root, "diff-tree", "-r", "-p", *plain, before, after) as output:
            found = output.read(size + 1)
        return text.clip(found.decode("utf-8", "replace"), size, "cut here")

    def hook_env(self) -> dict[str, str]:
        """What git gives its commit hooks: an index that holds the whole change."""
        index = self.hook_folders()[0] / "index"
        index.parent.mkdir(exist_ok=True)
        shutil.copyfile(self._index, index)
        return {"GIT_INDEX_FILE": str(index), "GIT_EDITOR": ":", "GIT_PREFIX": ""}

    def hook_folders(self) -> list[Path]:
        return [self._index.with_name("hook"), self.git.common / "objects"]

    def hooks(self) -> list[str]:
        """The commit hooks that this repository has."""
        scopes = self.git("config", "--show-scope", "--path", "--get-all", "core.hooksPath", check=False)
        own = [line.split("\t", 1)[1] for line in scopes.splitlines() if not line.startswith("command\t")]
        configured = own[-1] if own else ""
        folder = self._root / configured if configured else self.git.common / "hooks"
        return [name for name in ("pre-commit", "commit-msg") if os.access(folder / name, os.X_OK)]
