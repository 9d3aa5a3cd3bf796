"""Two snapshots of a working tree: what differs between them is the work, laid on the
tree that it began with. What git converts by itself, and what stood there before, never
is."""

from __future__ import annotations

import filecmp
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from _ralph import files, text
from _ralph.git import patterns
from _ralph.git.git import BULK, WHOLE, Git, no_space, nul

_FATAL_NAME = re.compile(
    r"^fatal: (?:(.+): clean filter '.*' failed|.*'([^'\n]+)')", re.MULTILINE
)
_IGNORED = "The following paths are ignored by one of your .gitignore files"
"""git ends with 1 where a file is named to be left out that it ignores anyway; it has
added the rest."""
_REFUSALS = 22
"""How many files that git cannot convert are left out, one after the other."""


@dataclass(frozen=True)
class Entry:
    """What a tree has under a name: mode and blob, as git writes them; the mode of
    nothing is zeros."""

    mode: str
    blob: str

    @property
    def exists(self) -> bool:
        return self.mode != "000000"

    @property
    def is_file(self) -> bool:
        return self.mode.startswith("100")


Changed = Mapping[str, tuple[Entry, Entry]]
"""The entries that differ between two trees, as they are in both."""


def take(
    git: Git, hiding: Sequence[str], apart: Iterable[str], start: str
) -> tuple[str, list[str]]:
    """The tree of all files that git does not ignore, but for those `apart`, which stay
    as they are in the index; and a line for each that git could not add. `start` was
    checked out there; `hiding` are words that name an ignore file."""
    said = _add_all(git, hiding, apart)
    made = git("write-tree", check=False, timeout=BULK).strip()
    if (
        not made
    ):  # the index is damaged, or what only it named is gone after `git gc --prune=now`
        git(
            "read-tree", start, timeout=BULK
        )  # reads nothing of the old one, and replaces it in one step
        said = _add_all(git, hiding, apart)
        made = git("write-tree", timeout=BULK).strip()
    return made, said


def _add_all(git: Git, hiding: Sequence[str], apart: Iterable[str]) -> list[str]:
    """`git add` all but `apart`; a line for each thing that git could not add. One that
    a filter refuses ends the whole call, so it is left out of the next."""
    left_out = [
        name for name in apart if not leads_out(git.root, name)
    ]  # git would add nothing at all
    said: list[str] = []
    for number in range(_REFUSALS):
        excluded = [f":(top,exclude,literal){name}" for name in left_out]
        words = (
            *hiding,
            "add",
            "-A",
            "--sparse",
            "--ignore-errors",
            "--",
            ":/",
            *excluded,
        )
        code, _, errors = git.tried(*words, timeout=BULK)
        failed = [
            line
            for line in errors.splitlines()
            if line.startswith(("error: ", "fatal: "))
        ]
        if code == 0 or (errors.startswith(_IGNORED) and not failed):
            return said
        named = [
            name
            for name in map("".join, _FATAL_NAME.findall(errors))
            if name not in left_out
        ]
        if number == 0 and "Permission denied" in errors:
            files.open_up(git.root)
        elif not named:
            break
        said += [
            f"git cannot add {text.one_line(name)}; it is not part of the work"
            for name in named
        ]
        left_out += named
    if full := no_space(git.root, "add", errors):
        raise full
    refused = (failed or [errors])[:3]
    return said + [
        f"git cannot add a part of the work: {text.one_line(line)}" for line in refused
    ]


def leads_out(root: Path, name: str) -> bool:
    """Whether a folder on the way to `name` is a link."""
    parent = (root / name).parent
    return parent.resolve() != parent


def differences(git: Git, before: str, after: str) -> Changed:
    """How two trees or commits differ."""
    if before == after:
        return {}
    fields, _ = git.differences(before, after)
    metas = (meta.lstrip(":").split(" ") for meta in fields[::2])
    pairs = ((Entry(meta[0], meta[2]), Entry(meta[1], meta[3])) for meta in metas)
    return dict(zip(fields[1::2], pairs, strict=True))


def work(git: Git, start: str, before: str, changed: Changed, fresh: Path) -> Changed:
    """What an agent did to the tree `start` while what stood there changed from the
    snapshot `before`: the entries that it has to replace, as they are in `start` and as
    they are now. `fresh` is an unused path, for files to compare with."""
    was = differences(git, start, before)  # by setup, and by git itself
    found = {}
    for name, (old, new) in changed.items():
        base = was[name][0] if name in was else old
        if base.exists or not old.exists:  # else it was made before the agent came
            found[name] = (base, new)
    edited = {
        name: pair
        for name, pair in found.items()
        if all(entry.is_file for entry in pair)
    }
    if edited and _converts(git, changed):
        try:
            found |= _unconverted(git, start, edited, fresh)
        finally:
            files.clear(fresh)
    return {name: (base, new) for name, (base, new) in found.items() if base != new}


def lay(git: Git, tree: str, entries: Mapping[str, Entry]) -> str:
    """`tree` with these entries in the place of its own."""
    lines = [f"{entry.mode} {entry.blob}\t{name}" for name, entry in entries.items()]
    return git.edited(tree, lines) if lines else tree


def restore(
    git: Git,
    before: str,
    after: str,
    protect: Collection[str],
    allow: Collection[str],
    state: Collection[str],
    changed: Changed | None = None,
) -> tuple[str, dict[str, Entry], list[str]]:
    """The tree `after` with the files under `protect` as in `before`, but for those
    under `allow`: changed and deleted files are restored, new ones stay unless a
    pattern is their name or path (`conftest.py`). ralph's own files, `state`, are
    always restored. `changed` is how the trees differ, if that is known. The tree, what
    was restored, as it was before, and the names of what is new and stays."""
    if not (protect or state):
        return after, {}, []
    changed = differences(git, before, after) if changed is None else changed
    spelt = (
        patterns.folded if (git.common / "head").exists() else str
    )  # it is called HEAD
    protect, allow, state = ([*map(spelt, names)] for names in (protect, allow, state))
    names = {name: spelt(name) for name in changed}
    kept = {
        *state,
        *patterns.matching(protect, names.values())
        - patterns.matching(allow, names.values()),
    }
    plain, paths = (
        patterns.plain_names(protect),
        {pattern.strip("/") for pattern in (*protect, *state)},
    )
    found = {name: changed[name][0] for name in sorted(changed) if names[name] in kept}
    new = [
        name
        for name, was in found.items()
        if not was.exists
        and names[name].split("/")[-1] not in plain
        and names[name] not in paths
    ]
    back = {name: was for name, was in found.items() if name not in new}
    return lay(git, after, back), back, new


def _converts(git: Git, changed: Iterable[str]) -> bool:
    """Whether git converts files here as it reads or writes them, or did before
    `changed` was."""
    if any(PurePosixPath(name).name == ".gitattributes" for name in changed):
        return True
    keys = r"^core\.(autocrlf|attributesfile)$"
    settings = git.names("config", "-z", "--path", "--get-regexp", keys, check=False)
    named = dict(setting.partition("\n")[::2] for setting in settings)
    if named.get("core.autocrlf", "false").lower() not in (
        "false",
        "no",
        "off",
        "0",
        "",
    ):
        return True
    sources = (
        git.common / "info/attributes",
        Path(named.get("core.attributesfile", "")),
    )
    return any(files.read_regular(path, 1) for path in sources) or bool(
        _attributes(git)
    )


def _attributes(git: Git) -> list[str]:
    return git.names(
        "ls-files", "-z", "--", ":(top,glob)**/.gitattributes", timeout=BULK
    )


def _unconverted(git: Git, start: str, edited: Changed, fresh: Path) -> Changed:
    """Those of the files `edited` that still have the bytes of a fresh checkout of
    `start`, as `start` has them: one that was merely touched is no work, whatever git
    would make of it."""
    look = git.seen_at(files.clear(fresh) / "files", fresh / "index")
    look.root.mkdir(parents=True)
    look(*WHOLE, "read-tree", start, timeout=BULK)
    for names in (
        _attributes(look),
        edited,
    ):  # git heeds the attributes that stand there
        words = (*WHOLE, "checkout-index", "-f", "-z", "--stdin")
        look(*words, stdin=nul(names), check=False, timeout=BULK)
    same = [name for name in edited if _same(look.root / name, git.root / name)]
    return {
        name: (base, replace(now, blob=base.blob))
        for name in same
        for base, now in [edited[name]]
    }


def blob_of(path: Path, like: str) -> str:
    """What git calls a blob of a file's bytes in the repository that has the object
    `like`."""
    found = hashlib.new("sha256" if len(like) == 64 else "sha1", usedforsecurity=False)
    found.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as file:
        while piece := file.read(files.PIECE):
            found.update(piece)
    return found.hexdigest()


def _same(one: Path, other: Path) -> bool:
    """Whether two regular files have the same bytes."""
    if any(path.is_symlink() or not path.is_file() for path in (one, other)):
        return False
    return filecmp.cmp(one, other, shallow=False)
