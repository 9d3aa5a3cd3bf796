"""What the throwaway `.git` of every place has from home."""

from __future__ import annotations

import re

from _ralph.git.git import Git, setting

_CARRIED = (
    "core.autocrlf", "core.eol", "core.filemode", "core.ignorecase", "core.symlinks",
    "core.precomposeunicode", "core.bigfilethreshold", "core.sparsecheckout", "core.sparsecheckoutcone",
    "extensions.objectformat",
)  # fmt: skip
_CARRIED_SECTIONS = (
    "user.",
    "filter.",
    "diff.",
    "merge.",
    "lfs.",
    "init.",
    "submodule.",
)
ANYBODY_S = "ralph-system"
"""In a throwaway `.git`, settings for the other side of a prefix, where the place can
be another user's. git before 2.38 heeds `safe.directory` only in a file that stands for
the system's, or the user's."""
_ANYBODY_S = "[include]\n\tpath = /etc/gitconfig\n[safe]\n\tdirectory = *\n"
_PACKED = "# pack-refs with: sorted \n"


def throwaway_git(home: Git) -> dict[str, str]:
    """What the throwaway `.git` of every place has from home, as files of a git folder:
    what decides how files are checked out, the identity, tags and remote-tracking
    branches. Local branches stay away: an agent that checks out `main` would seem to
    delete all that has landed."""
    form = "--format=%(objectname) %(refname) %(symref)"
    listed = home("for-each-ref", form, "refs/remotes", "refs/tags", check=False)
    entries = [line.split(" ") for line in listed.split("\n")[:-1]]
    there = {name for _, name, to in entries if not to}
    symbolic = {name: f"ref: {to}\n" for _, name, to in entries if to in there}
    packed = (
        f"{commit} {name}\n" for commit, name, _ in entries if name not in symbolic
    )
    own = {"config": _config(home), ANYBODY_S: _ANYBODY_S}
    return {**own, "packed-refs": "".join([_PACKED, *packed]), **symbolic}


def _config(home: Git) -> str:
    """The configuration of a throwaway `.git`."""
    listed = home.names("config", "--includes", "--list", "-z", check=False)
    kept: dict[str, str] = {}
    for entry in listed:
        key, _, value = entry.partition("\n")
        if key in _CARRIED or key.startswith(_CARRIED_SECTIONS):
            kept[key] = value
    if who := re.match("(.*) <(.*)>", home("var", "GIT_COMMITTER_IDENT", check=False)):
        kept |= {
            "user.name": who[1],
            "user.email": who[2],
        }  # it may stand in the environment alone
    version = 1 if "extensions.objectformat" in kept else 0
    head = f"[core]\n\trepositoryformatversion = {version}\n\tbare = false\n[commit]\n\tgpgsign = false\n"
    return head + "".join(setting(f"{key}\n{value}") for key, value in kept.items())
