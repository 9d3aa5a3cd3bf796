"""Commits made from verified trees: the working tree and git's own index are not asked."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from _ralph import files
from _ralph.ends import RalphError
from _ralph.git import Git, nul
from _ralph.refs import Refs


class Commits:
    """Snapshots hold no state files; what is committed does. `state` are their names."""

    def __init__(self, git: Git, refs: Refs, private: Path, state: list[Path]) -> None:
        # A person may have linked one to a file of the tree: that one changes with it.
        places = dict.fromkeys(place for path in state for place in (path, Path(os.path.realpath(path))))
        self.state = [name for place in places if (name := git.name_of(place))]
        self._git = git
        self._refs = refs
        self._private = private
        self._clean: tuple[str, str] = "", ""
        self._made: tuple[str, str] = "", ""

    def make(self, tree: str, parent: str, message: str, index: Path | None = None) -> None:
        """Commit the verified `tree` plus the state files on `parent`. An `index` that holds that tree
        saves reading it anew.

        Doing it again is harmless: where HEAD is not `parent` any more, nothing happens.
        """
        made = self._commit(tree, parent, message, index, tree, tree) if self._refs.head() == parent else ""
        if made:
            self._clean = made, tree

    def notes(self, message: str) -> None:
        """Commit the state files alone, where they differ from HEAD."""
        head = self._refs.head()
        made = self._commit(head, head, message, None)
        if made and self._clean[0] == head:
            self._clean = made, self._clean[1]

    def _commit(self, tree: str, head: str, message: str, index: Path | None, *held: str) -> str:
        """Put `tree` plus the state files on top of `head`, unless that has the same tree; the new
        commit's name, if there is one."""
        with self._scratch_index(tree, index) as env:
            if keep := self._committable():
                self._git("update-index", "--add", "-z", "--stdin", stdin=nul(keep), env=env)
            full = self._git("write-tree", env=env).strip()
        if full == self._tree_of(head):
            return ""
        words, made = ["commit-tree", full, "-p", head, "-F", "-"], ""
        if self._signs:
            with contextlib.suppress(RalphError):  # a key that asks for its passphrase: nobody is there
                made = self._git(*words, "-S", stdin=message.encode(), check=False, timeout=30).strip()
        made = made or self._git(*words, stdin=message.encode()).strip()
        self._refs.hold(*held, commit=made, on=head, message=f"ralph: {message.splitlines()[0]}")
        self._refs.reset_index()
        self._made = made, full
        return made

    def _tree_of(self, commit: str) -> str:
        if self._made[0] != commit:
            self._made = commit, self._git("rev-parse", f"{commit}^{{tree}}").strip()
        return self._made[1]

    @functools.cached_property
    def _signs(self) -> bool:
        return self._git("config", "--bool", "commit.gpgSign", check=False).strip() == "true"

    def park(self, tree: str, label: str) -> str:
        """Keep a snapshot as a commit under refs/ralph/parked/; the ref's name."""
        message = f"ralph: parked work of {label}\n".encode()
        with self._scratch_index(tree) as env:
            if self.state:  # as they are in HEAD, so that `git cherry-pick` brings the work alone
                held = self._git("ls-tree", "-z", "HEAD", "--", *self.state)
                self._git("update-index", "-z", "--index-info", stdin=os.fsencode(held), env=env)
            full = self._git("write-tree", env=env).strip()
        made = self._git("commit-tree", full, "-p", "HEAD", "-F", "-", stdin=message).strip()
        return self._refs.keep(made, label)

    def clean_tree(self) -> str:
        """The last commit's tree, as a snapshot names it."""
        head = self._refs.head()
        if head != self._clean[0]:
            with self._scratch_index(head) as env:
                self.leave_state_out(env)
                self._clean = head, self._git("write-tree", env=env).strip()
        return self._clean[1]

    def leave_state_out(self, env: dict[str, str]) -> None:
        """Take the state files out of that index, lest a reset of the tree write or remove them.
        git's own index is not asked for them: after a kill or an agent's `git rm --cached` it
        knows nothing of files that HEAD has."""
        if self.state:
            self._git("update-index", "--force-remove", "-z", "--stdin", stdin=nul(self.state), env=env)

    def _committable(self) -> list[str]:
        """Those state files that exist, lie in the tree and are not ignored."""
        names = [name for name in self.state if (self._git.root / name).is_file()]
        if not names:
            return []
        hidden = set(self._git.names("check-ignore", "-z", "--stdin", stdin=nul(names), check=False))
        if hidden:
            hidden.difference_update(self._git.names("ls-files", "-z", "--", *names))
        return [name for name in names if name not in hidden]

    @contextlib.contextmanager
    def _scratch_index(self, tree: str, index: Path | None = None) -> Iterator[dict[str, str]]:
        path = files.clear(self._private / "commit-index")
        files.clear(self._private / "commit-index.lock")  # of a git that was killed
        env = {"GIT_INDEX_FILE": str(path)}
        if index:
            shutil.copyfile(index, path)
        else:
            self._git("read-tree", tree, env=env)
        try:
            yield env
        finally:
            path.unlink(missing_ok=True)
