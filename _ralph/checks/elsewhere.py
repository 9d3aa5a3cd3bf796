"""What would make checks test something else than the work: programs and paths of home,
a Python that all places share, what lies above the places. And work at home."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from _ralph import files, text
from _ralph.agents.surroundings import names_of
from _ralph.checks.missing import ABOVE
from _ralph.errors import BadInput
from _ralph.files import read_text
from _ralph.git.git import Git, uncommitted
from _ralph.git.litter import changed_at
from _ralph.model import Plan
from _ralph.state.layout import NOTE

_VENV = "python3 -m venv .venv && .venv/bin/pip install -e ."
_SITES = "import json, site; print(json.dumps([*site.getsitepackages(), site.getusersitepackages()]))"
_LINKS = ("*.pth", "__editable__*", "*.egg-link")
_STARTED = re.compile(r"(?:^|[;&|(])\s*(?:\w+=\S*\s+)*([\w.+-]+)")
PLACE = re.compile(r"work-\d+|room[\d-]*|land-\d+|role")
"""The names of ralph's checkouts."""
_PYTHON = re.compile(r"python[\d.]*|pytest|py\.test|tox|nox|mypy")


def require_own_files(plan: Plan, root: Path, env: Mapping[str, str]) -> None:
    """BadInput for a check, or a setup, that would use files of home at `root`, by its
    path or by the PATH in the environment `env`."""
    commands = [(f"check {check.name}", check.command) for check in plan.checks]
    for task in plan.tasks:
        commands += [(f"check {check.name}", check.command) for check in task.checks]
    if plan.setup:
        commands.append(("setup", plan.setup.run))
    find = functools.cache(functools.partial(shutil.which, path=env.get("PATH")))
    for what, command in commands:
        named = _names_home(command, root, env)
        if named:
            raise BadInput(
                f"{what} names {named}, your working tree: it would test the files "
                f"there and not the work; write paths from the top of the repository, "
                f"without {named}/"
            )
        program = _program_of_home(command, root, find)
        if program and not plan.setup:
            raise BadInput(
                f"{what} starts {program}, which no checkout has because git does not "
                f"track it; let `setup` create it: `ralph init` adds the one for this "
                f'project, or "setup": "{_VENV}"'
            )


def shared_python(
    env: Mapping[str, str], places: Path, home: Path, commands: Iterable[str]
) -> str:
    """What is wrong with the Python that `commands` use in the place that the
    environment `env` is for: the sentence about a package that is installed from home,
    or from another of the `places`; else nothing."""
    place = places / env.get("RALPH_PLACE", "")
    started: list[str] = []
    for command in commands:
        started += _STARTED.findall(command)
    bare = any(_PYTHON.fullmatch(word) for word in started)
    sites = [*place.glob(".venv/lib/python*/site-packages"), *_sites(env, place)]
    for site in dict.fromkeys(sites):
        own = site.is_relative_to(place)
        for link in _links(site):
            source = read_text(link)
            led = _leads(source, places, place if own else None)
            if not led and (own or bare):
                led = _leads(source, home, places)
            if led:
                return (
                    f"{link} leads to {led}: checks would test the files there and not "
                    f"the work. Let `setup` make a Python of its own in each checkout: "
                    f"{_VENV}"
                )
    return ""


def remove_strays(places: Path) -> list[str]:
    """Remove what ralph did not make in its own folders above the checkouts, where
    tools look for modules and settings; a line for each. A folder that RALPH_PLACES
    names can be a person's."""
    strays = []
    if Path(os.path.realpath(places)) != places or not places.is_dir():
        return []  # an agent replaced it, and what is there can be a person's
    for path in places.iterdir():
        half_written = path.name.endswith(files.TEMPORARY)
        if not (path.name == NOTE or half_written or PLACE.fullmatch(path.name)):
            strays.append(path)
    if not os.environ.get("RALPH_PLACES"):
        strays += [places.parent / name for name in ABOVE]
    said = []
    for path in strays:
        if os.path.lexists(path):
            files.clear(path)
            why = "checks would have used it, and no clone has it"
            said.append(f"removed {text.one_line(str(path))}: {why}")
    return said


def changed_at_home(home: Git, state: Collection[str], since: float) -> list[str]:
    """A line about files of home, but for ralph's own, that changed after `since` (unix
    seconds) while an attempt changed nothing; none where none did."""
    found = []
    for name in uncommitted(home):
        is_own = name in state or name.startswith(".ralph/")
        if not is_own and changed_at(home.root / name) >= since:
            found.append(name)
    if not found:
        return []
    where = f"{text.few(found)} changed in {home.root} meanwhile"
    return [f"it changed nothing, and {where}: does the agent use absolute paths?"]


def _names_home(command: str, root: Path, env: Mapping[str, str]) -> str:
    """How a command names home; nothing if it does not, or if home holds the person's
    own home."""
    if Path(env.get("HOME") or "/").is_relative_to(root):
        return ""
    found = names_of(root, env.get("PWD", "")).search(command)
    return found[0] if found else ""


def _program_of_home(
    command: str, root: Path, find: Callable[[str], str | None]
) -> str:
    """The program in a virtual environment of home that PATH finds for a command;
    `find` asks it."""
    for word in _STARTED.findall(command):
        found = Path(find(word) or "/")
        if found.is_relative_to(root) and (found.parent.parent / "pyvenv.cfg").exists():
            return str(found)
    return ""


def _sites(env: Mapping[str, str], place: Path) -> Iterator[Path]:
    """The folders of packages of the Python on the PATH of `env`. One that is part of
    the place is not started: it may be made of what an agent wrote."""
    for name in ("python3", "python"):
        found = Path(shutil.which(name, path=env.get("PATH")) or "/")
        if (found.parent.parent / "pyvenv.cfg").exists():
            yield from found.parent.parent.glob("lib/python*/site-packages")
        elif found.name and not found.is_relative_to(place):
            try:
                done = subprocess.run(
                    [found, "-I", "-S", "-c", _SITES],
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=10,
                )
                yield from map(Path, json.loads(done.stdout))
            except (OSError, ValueError, subprocess.TimeoutExpired):
                continue


def _links(site: Path) -> Iterator[Path]:
    """The files in a folder of packages that lead to a source elsewhere, as editable
    installs have them."""
    for pattern in _LINKS:
        yield from sorted(site.glob(pattern))
    for path in sorted(site.glob("*.dist-info/direct_url.json")):
        if re.search(r'"editable":\s*true', read_text(path)):
            yield path


def _leads(source: str, folder: Path, but: Path | None) -> str:
    """The path in `source` that lies in `folder` and not in `but`; nothing if none
    does."""
    names = "|".join(
        re.escape(name) for name in {str(folder), os.path.realpath(folder)}
    )
    for found in re.findall(rf"(?<![\w.-])(?:{names})(?![\w.-])[^\s'\",;:]*", source):
        real = Path(os.path.realpath(found))
        if but is None or not real.is_relative_to(os.path.realpath(but)):
            return str(found)
    return ""
