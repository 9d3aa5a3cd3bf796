"""The environment of what runs in a place: what names home names the place there, and
places share nothing."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path

from _ralph.files import table

_TABLE = table("detect.json")["places"]
_ROLE = 65  # more than there can be workspaces


def in_place(
    env: Mapping[str, str], home: Path, place: Path, own: frozenset[str] = frozenset()
) -> dict[str, str]:
    """The environment `env` of a project at `home` for a command that runs in its
    checkout `place`.

    A value that names `home` names `place`, by whole components of a path; but for the
    variables `own`, which name the configuration of agents. A virtual environment that
    is active, and not the project's, is left.
    """
    kept = {*own, *_TABLE["not home's"]}
    moved = dict(env)
    if not Path(env.get("HOME") or "/").is_relative_to(
        home
    ):  # else the whole of home would seem to move
        names = names_of(home, env.get("PWD", ""))
        for name, value in env.items():
            if name not in kept and not name.startswith("RALPH_"):
                moved[name] = names.sub(lambda _: str(place), value)
    _leave_venv(moved, place)
    moved |= _TABLE["set"]
    for file, values in _TABLE["set beside"].items():
        moved |= values if (home / file).exists() else {}
    moved |= {
        name: value
        for name, value in _TABLE["set where it is not"].items()
        if name not in moved
    }
    for name, folder in _TABLE["inside"].items():
        if not Path(os.path.normpath(place / moved.get(name, ""))).is_relative_to(
            place
        ):
            moved[name] = str(place / folder)
    moved |= {
        name: str(place / folder)
        for name, folder in _TABLE["inside but for setup"].items()
    }
    return {**moved, "RALPH_PLACE": place.name, "RALPH_SLOT": str(slot_of(place))}


def shared_caches(env: Mapping[str, str]) -> dict[str, str]:
    """The caches in the environment `env` from which `setup` may link files: each of
    them is replaced by a copy afterwards, but those that an agent or a check links are
    not."""
    return {name: env.get(name, "") for name in _TABLE["inside but for setup"]}


def forwarded_env(env: Mapping[str, str]) -> dict[str, str]:
    """What of the environment of a command in a place must be told to the other side of
    a prefix: ralph's own variables, and those that keep places apart."""
    apart = {*_TABLE["set"], *_TABLE["inside"], *_TABLE["inside but for setup"]}
    apart |= {name for values in _TABLE["set beside"].values() for name in values}
    own = {
        name: value
        for name, value in env.items()
        if name in apart or name.startswith("RALPH_")
    }
    git = {
        name: value
        for name, value in env.items()
        if name in ("GIT_INDEX_FILE", "GIT_EDITOR", "GIT_PREFIX")
    }
    return {**own, **git}


def slot_of(place: Path) -> int:
    """A small number that no other place of the plan has at the same time: a
    workspace's own, 0 for the first clean room under any name, and numbers above all of
    these for the others."""
    kind, _, number = place.name.partition("-")
    other = kind.removeprefix("room")
    if other.isdecimal():  # room2
        return _ROLE + int(other)
    return int(number) if kind == "work" else 0 if kind == "room" else _ROLE


def _leave_venv(env: dict[str, str], place: Path) -> None:
    """Take a virtual environment that is not the place's out of an environment."""
    venv = env.get("VIRTUAL_ENV", "")
    if venv and not Path(venv).is_relative_to(place):
        del env["VIRTUAL_ENV"]
        env["PATH"] = path_without(f"{venv}/bin", env.get("PATH", ""), place)


def path_without(folder: str, path: str, project: Path) -> str:
    """A PATH without a folder, by whatever name; a link in the `project` is the
    project's own."""
    real = os.path.realpath(folder)

    def is_it(entry: str) -> bool:
        return os.path.realpath(entry) == real and not Path(
            os.path.abspath(entry)
        ).is_relative_to(project)

    left = [entry for entry in path.split(os.pathsep) if not is_it(entry)]
    return (
        os.pathsep.join(left) or os.defpath
    )  # an empty entry means the current folder


@functools.cache
def names_of(home: Path, pwd: str) -> re.Pattern[str]:
    """What matches the path of home, as it is and as the person who stands in `pwd`
    wrote it."""
    names = {str(home), os.path.realpath(home)}
    if pwd and Path(os.path.realpath(pwd)).is_relative_to(home):  # unset under cron
        below = Path(os.path.realpath(pwd)).relative_to(home)
        names |= {pwd.removesuffix(f"/{below}")} if below.parts else {pwd}
    either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![\w./-])(?:{either})(?![\w.-]|/\.\.)")
