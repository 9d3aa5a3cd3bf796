"""The environment of what runs in a place: what names home names the place there, and
places share nothing."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from _ralph.files import table

_TABLE = table("detect.json")["places"]
_ROLE = 65  # more than there can be workspaces
_COMPOSE = "COMPOSE_PROJECT_NAME"
"""What keeps containers and volumes of two places apart."""
_BUN = "BUN_INSTALL_CACHE_DIR"
"""The cache from which Bun links files, also where it is told not to."""
_PNPM = "npm_config_package_import_method"
"""What older pnpm reads, and npm warns of, as it does not know it."""
_GIT_S_OWN = ("GIT_INDEX_FILE", "GIT_EDITOR", "GIT_PREFIX")


def in_place(
    env: Mapping[str, str],
    home: Path,
    place: Path,
    venv: bool = False,
) -> dict[str, str]:
    """The environment `env` of a project at `home` for a command that runs in its
    checkout `place`.

    A value that names `home` names `place`, by whole components of a path. A virtual
    environment that is active, and not the project's, is left; with `venv`, one that
    stands in `place` is active.
    """
    moved = dict(env)
    kept = _TABLE["not home's"]
    # Else the whole of home would seem to move
    if not Path(env.get("HOME") or "/").is_relative_to(home):
        names = names_of(home, env.get("PWD", ""))
        for name, value in env.items():
            if name not in kept and not name.startswith("RALPH_"):
                moved[name] = names.sub(lambda _: str(place), value)
    _leave_venv(moved, place)
    if venv and not os.path.isdir(moved.get("VIRTUAL_ENV", "")):
        _enter_venv(moved, place / ".venv")
    moved |= _TABLE["set"]
    if (home / "pnpm-lock.yaml").exists():
        moved[_PNPM] = "copy"
    moved[_BUN] = str(place / "node_modules/.cache/bun")
    moved.setdefault("PIP_REQUIRE_VIRTUALENV", "1")
    for name, folder in _TABLE["inside"].items():
        if not Path(os.path.normpath(place / moved.get(name, ""))).is_relative_to(
            place
        ):
            moved[name] = str(place / folder)
    slot = slot_of(place)
    plan = re.sub(r"[^a-z0-9_-]", "-", place.parent.name.lower())
    moved.setdefault(_COMPOSE, f"{plan}-{slot}")
    moved["RALPH_PLACE"] = place.name
    moved["RALPH_SLOT"] = str(slot)
    return moved


def shared_caches(env: Mapping[str, str]) -> dict[str, str]:
    """The caches in the environment `env` from which `setup` may link files: each of
    them is replaced by a copy afterwards, but those that an agent or a check links are
    not."""
    return {_BUN: env.get(_BUN, "")}


def forwarded_env(env: Mapping[str, str], more: Collection[str]) -> dict[str, str]:
    """What of the environment of a command in a place must be told to the other side of
    a prefix: ralph's own variables, those that keep places apart, and `more`."""
    names = {*more, *_TABLE["set"], *_TABLE["inside"], *_GIT_S_OWN}
    names |= {_COMPOSE, _BUN, _PNPM}
    names.update(name for name in env if name.startswith("RALPH_"))
    return {name: value for name, value in env.items() if name in names}


def slot_of(place: Path) -> int:
    """A small number that no other place of the plan has at the same time: a
    workspace's own, 0 for the clean room under any name, and one above all of these for
    the others."""
    kind, _, number = place.name.partition("-")
    if kind == "work":
        return int(number)
    return 0 if kind == "room" else _ROLE


def _leave_venv(env: dict[str, str], place: Path) -> None:
    """Take a virtual environment that is not the place's out of an environment."""
    venv = env.get("VIRTUAL_ENV", "")
    if venv and not Path(venv).is_relative_to(place):
        del env["VIRTUAL_ENV"]
        env["PATH"] = path_without(f"{venv}/bin", env.get("PATH", ""), place)


def _enter_venv(env: dict[str, str], venv: Path) -> None:
    """Make a virtual environment active, if it is there, as its own `activate` does."""
    if (venv / "pyvenv.cfg").is_file():
        env["VIRTUAL_ENV"] = str(venv)
        env["PATH"] = f"{venv}/bin{os.pathsep}{env.get('PATH', os.defpath)}"
        env.pop("PYTHONHOME", None)


def path_without(folder: str, path: str, project: Path) -> str:
    """A PATH without a folder, by whatever name; a link in the `project` is the
    project's own."""
    real = os.path.realpath(folder)
    left = []
    for entry in path.split(os.pathsep):
        own = Path(os.path.abspath(entry)).is_relative_to(project)
        if own or os.path.realpath(entry) != real:
            left.append(entry)
    # An empty entry means the current folder
    return os.pathsep.join(left) or os.defpath


@functools.cache
def names_of(home: Path, pwd: str) -> re.Pattern[str]:
    """What matches the path of home, as it is and as the person who stands in `pwd`
    wrote it."""
    names = {str(home), os.path.realpath(home)}
    here = Path(os.path.realpath(pwd))
    if pwd and here.is_relative_to(home):  # unset under cron
        below = here.relative_to(home)
        names.add(pwd.removesuffix(f"/{below}"))
    longest_first = sorted(names, key=len, reverse=True)
    either = "|".join(re.escape(name) for name in longest_first)
    return re.compile(rf"(?<![\w./-])(?:{either})(?![\w.-]|/\.\.)")
