"""The clean room: a checkout where no agent ever works. What is green here is what
lands."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from _ralph import files, text
from _ralph.checks import exact
from _ralph.checks.places import MESSAGE_HOOKS, Places
from _ralph.git import patterns
from _ralph.git.checkout import Checkout, remove_repositories
from _ralph.git.git import BULK, names_in, nul
from _ralph.git.notes import note_setup, noted_setup
from _ralph.git.throwaway import carry
from _ralph.model import Check, CheckResult

HOOK_TIMEOUT = 600.0
"""Seconds that a commit hook may take."""
_MESSAGE = ".git/COMMIT_EDITMSG"
_HOOKS = ".git/ralph-hooks"
"""Copies of hooks that stand elsewhere than in home's `.git/hooks`."""


@dataclass
class Room:
    """The clean room: it holds the files of one commit and what `setup` made, nothing
    else but what `keep` names. No agent ever works there."""

    places: Places
    place: Checkout
    env: Mapping[str, str]
    notices: list[str] = field(default_factory=list)
    _tree: str = ""
    _head: str = ""

    @classmethod
    def at(
        cls, places: Places, folder: Path, env: Mapping[str, str] | None = None
    ) -> Room:
        """The room at `folder`; `env` is added to the environment of all that runs
        there."""
        index = places.paths.index_of(folder)
        return cls(places, Checkout(places.home, folder, index), env or {})

    @property
    def path(self) -> Path:
        """Where checks run."""
        return self.place.root

    @property
    def is_set_up(self) -> bool:
        """Whether it is there, and `setup` ended well in it."""
        return self.place.exists and self.place.beside("setup").exists()

    def prepare(self, commit: str, name: str) -> CheckResult | None:
        """Make the room hold `commit`: one look at all that is there, then a checkout;
        or a room made anew, where it belongs to another stamp or is not as `setup` left
        it. The result of `setup` if it is red."""
        noted, made = noted_setup(self.place)
        if self.places.stamp(commit) != noted or not self.place.exists:
            return self._make_anew(commit, name)
        carry(self.place, self.places.from_home.copied)
        tracked = self.place.tracked(commit)
        spoiled = exact.restore(self.path, tracked, self._is_kept, made)
        if spoiled:
            why = f"{text.few(spoiled)} was not as setup had left it"
            self.notices.append(f"the room is made again: {why}")
            return self._make_anew(commit, name)
        self.hold(commit)
        if not self.is_set_up:  # git could not check it out where it was
            return self._make_anew(commit, name)
        return None

    def hold(self, tree: str, head: str = "") -> None:
        """Check out a commit, or a tree that is staged on the commit `head`, and give
        the room its `.git`; nothing that git does not track is touched."""
        self._tree = tree
        self._head = head or tree
        if self.place.reset(tree):
            files.clear(self.place.beside("setup"))
        self.places.add_git_and_settings(self.place, self._head)

    def go_on(self, commit: str) -> bool:
        """Go on where earlier checks ended on the files of `commit`: what they built
        stays, tracked files are put back. False if the room is not there any more."""
        self._tree = self._head = commit
        if self.is_set_up and not self._put_back():
            self.places.let_tools_trust(self.place)
        return self.is_set_up

    def run(
        self, checks: Sequence[Check], name: str, label: str = ""
    ) -> list[CheckResult]:
        """Run all checks as one program: what one builds, the next can use; what one
        changes in tracked files is named and put back."""
        results: list[CheckResult] = []
        for number, check in enumerate(checks, 1):
            if results and not self.place.exists:
                failed = self.prepare(self._tree, f"{name}-again")
                if failed:
                    return [failed]
            elif results:
                changed = self._put_back()
                if changed:
                    what = f"check {results[-1].name} changed {text.few(changed)}"
                    self.notices.append(f"{what}; put back before the next check")
            log = f"{name}-check{number}"
            result = self.places.run(check, self.path, log, label, self.env)
            results.append(self._if_there(result))
        return results

    def hook(self, hook: str, name: str) -> CheckResult | None:
        """Run a commit hook, as git does; its result, None if there is none."""
        if hook not in self.places.hooks(self.path):
            return None
        words = ["git", "-c", f"core.hooksPath={self._copy_hooks()}"]
        words += ["hook", "run", hook]
        if hook in MESSAGE_HOOKS:
            words += ["--", _MESSAGE, *MESSAGE_HOOKS[hook]]
        env = {**self.env, "GIT_EDITOR": ":", "GIT_PREFIX": ""}
        env["GIT_INDEX_FILE"] = str(self.path / ".git/index")
        frozen = self.places.home.calls.env
        env |= {name: frozen[name] for name in frozen if name[:11] == "GIT_CONFIG_"}
        check = Check(hook, tuple(words), HOOK_TIMEOUT)
        result = self.places.run(check, self.path, f"{name}-{hook}", env=env)
        return self._if_there(result)

    def _if_there(self, result: CheckResult) -> CheckResult:
        """The result of what ran here, red if the room is no longer there."""
        if self.place.exists:
            return result
        gone = "it removed or replaced the checkout that it ran in"
        return replace(result, ok=False, tail=gone)

    def _copy_hooks(self) -> Path:
        """The folder of the hooks that run here. Home's own are copied, since the other
        side of a prefix may not see them where they are. Those in home's `.git/hooks`
        always stand at `.git/hooks`, and others have another name: a hook for all
        repositories calls those, and would else call itself."""
        local = self.places.home.common / "hooks"
        hooks = self.path / self.places.from_home.hooks
        copies = {local: self.path / ".git/hooks"}
        if not hooks.is_relative_to(self.path):
            copies.setdefault(hooks, self.path / _HOOKS)
        for source, copy in copies.items():
            files.clear(copy)
            if source.is_dir():
                shutil.copytree(source, copy, ignore_dangling_symlinks=True)
        return copies.get(hooks, hooks)

    def said(self, message: str, name: str) -> tuple[str, list[CheckResult]]:
        """What the hooks for messages make of one, and their results, up to the first
        that is red."""
        # An earlier check or hook can have spoiled it
        self.places.add_git_and_settings(self.place, self._head)
        path = files.clear(self.path / _MESSAGE)
        path.write_text(f"{message}\n", encoding="utf-8", errors="replace")
        results: list[CheckResult] = []
        for hook in MESSAGE_HOOKS:
            result = self.hook(hook, name)
            if not result:
                continue
            left = files.read_regular(path) or b""
            message = left.decode("utf-8", "replace").replace("\0", "") or message
            results.append(result)
            if not result.ok:
                break
        return message, results

    def staged(self) -> str:
        """The tree of the tracked files as a hook left them, and of those that it
        staged beside them: not what setup made, nor what was copied from home."""
        remove_repositories(self.place, self._tree)
        self.place.git.maybe("add", "-u", "--sparse", "--", ":/", timeout=BULK)
        made, copied = noted_setup(self.place)[1], self.places.from_home.copied
        ours = {*self.place.git.names("ls-files", "-z"), *made, *copied}
        index = self.path / ".git/index"
        theirs = self.places.home.seen_at(self.path, index).maybe("ls-files", "-z")
        new = []
        for name in names_in(theirs):
            if name not in ours and (self.path / name).is_file():
                new.append(name)
        if new:
            words = ["--literal-pathspecs", "add", "-f", "--sparse"]
            words += ["--pathspec-from-file=-", "--pathspec-file-nul"]
            self.place.git.maybe(*words, stdin=nul(new), timeout=BULK)
        return self.place.git("write-tree", timeout=BULK).strip()

    def _put_back(self) -> list[str]:
        """Undo what was done to tracked files; their names."""
        changed = self.place.changed(self._tree, untracked="no")
        if changed:
            self.hold(self._tree)
        return changed

    def _make_anew(self, commit: str, name: str) -> CheckResult | None:
        """Throw the room away, check out `commit`, run `setup`, once more if it is red,
        and list what it made; its result if it stays red."""
        self.place.remove()
        self.hold(commit)
        result = self.places.set_up(self.place, name, self.env)
        if result and not result.ok:
            return result
        if result:
            self._put_back()
            self.places.add_git_and_settings(self.place, commit)
        made = exact.listing(self.path, self.place.tracked(commit), self._is_kept)
        note_setup(self.place, self.places.stamp(commit), made)
        return None

    @functools.cached_property
    def _is_kept(self) -> Callable[[str], bool]:
        kept = patterns.matcher(self.places.keep)
        return lambda name: kept(name) or kept(f"{name}/\0")
