"""What would make checks test something else than the work: programs and paths of home,
a Python that all places share, what lies above the places. And work at home."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from _ralph import files, text
from _ralph.agents.surroundings import names_of
from _ralph.errors import BadInput
from _ralph.files import read_text
from _ralph.git.git import Git, uncommitted
from _ralph.git.litter import changed_at
from _ralph.model import Plan
from _ralph.process.process import ask
from _ralph.state.layout import NOTE

ABOVE = ("node_modules", "package.json", "conftest.py", "pyproject.toml")
"""What tools look for in every folder above the one that they run in."""
PLACE = re.compile(r"work-\d+|room[\d-]*|land-\d+|role")
"""The names of ralph's checkouts."""
_VENV = "python3 -m venv .venv && .venv/bin/pip install -e ."
_SITES = (
    "import site; print(*site.getsitepackages(), site.getusersitepackages(), sep='\\n')"
)
_LINKS = ("*.pth", "__editable__*")
"""What an editable install leaves among the packages: it leads to the source."""
_STARTED = re.compile(r"(?:^|[;&|(])\s*(?:\w+=\S*\s+)*([\w.+-]+)")
"""What a command starts."""
_PYTHON = re.compile(r"python[\d.]*|pytest|py\.test|tox|nox|mypy")


def require_own_files(plan: Plan, root: Path, env: Mapping[str, str]) -> None:
    """BadInput for a check, or a setup, that would use files of home at `root`, by its
    path or by the PATH in the environment `env`."""
    commands = [(f"check {check.name}", check.command) for check in plan.every_check]
    if plan.setup:
        commands.append(("setup", plan.setup.run))
    home = names_of(root, env.get("PWD", ""))
    holds_all = Path(env.get("HOME") or "/").is_relative_to(root)
    for what, command in commands:
        named = None if holds_all else home.search(command)
        if named:
            raise BadInput(
                f"{what} names {named[0]}, your working tree: it would test the files "
                f"there and not the work; write paths from the top of the repository, "
                f"without {named[0]}/"
            )
        program = _program_of_home(command, root, env)
        if program and not plan.setup:
            raise BadInput(
                f"{what} starts {program}, which no checkout has because git does not "
                f"track it; let `setup` create it: `ralph init` adds the one for this "
                f'project, or "setup": "{_VENV}"'
            )


def _program_of_home(command: str, root: Path, env: Mapping[str, str]) -> str:
    """The program in a virtual environment of home that PATH finds for a command."""
    for word in _STARTED.findall(command):
        found = Path(shutil.which(word, path=env.get("PATH")) or "/")
        if found.is_relative_to(root) and (found.parent.parent / "pyvenv.cfg").exists():
            return str(found)
    return ""


def shared_python(
    env: Mapping[str, str], places: Path, home: Path, commands: Iterable[str]
) -> str:
    """What is wrong with the Python that `commands` use in the place that the
    environment `env` is for: the sentence about a package that is installed from home,
    or from another of the `places`; else nothing."""
    place = places / env.get("RALPH_PLACE", "")
    words = _STARTED.findall("\n;".join(commands))
    is_used = any(_PYTHON.fullmatch(word) for word in words)
    own = [*place.glob(".venv/lib/python*/site-packages")]
    for site in [*own, *_sites(env, place)]:
        for pattern in _LINKS:
            for link in site.glob(pattern):
                source = _leads_to(link, places)
                if source and site in own and source.is_relative_to(place.resolve()):
                    continue
                # Where no check starts it, another Python may have led home before
                if not source and (site in own or is_used):
                    source = _leads_to(link, home)
                if source:
                    return (
                        f"{link} leads to {source}: checks would test the files there "
                        f"and not the work. Let `setup` make a Python of its own in "
                        f"each checkout: {_VENV}"
                    )
    return ""


def _sites(env: Mapping[str, str], place: Path) -> Iterator[Path]:
    """The folders of packages of the Python on the PATH of `env`. One that is part of
    the place is not started: it may be made of what an agent wrote."""
    path = env.get("PATH")
    found = shutil.which("python3", path=path) or shutil.which("python", path=path)
    if not found:
        return
    prefix = Path(found).parent.parent
    if (prefix / "pyvenv.cfg").exists():
        yield from prefix.glob("lib/python*/site-packages")
    elif not Path(found).is_relative_to(place):
        said = ask([found, "-I", "-S", "-c", _SITES], Path("/"), os.environ)
        yield from map(Path, said.splitlines())


def _leads_to(link: Path, folder: Path) -> Path | None:
    """The path in a file that lies in `folder`; None if none does."""
    names = "|".join(map(re.escape, {str(folder), os.path.realpath(folder)}))
    path = re.compile(rf"(?<![\w.-])(?:{names})(?![\w.-])[^\s'\",;:]*")
    found = path.search(read_text(link))
    return Path(os.path.realpath(found[0])) if found else None


def above(places: Path) -> list[str]:
    """Warnings of what lies in folders above the places, where tools find it that a
    clone elsewhere does not have."""
    said = []
    for folder in places.parents:
        for name in ABOVE:
            path = folder / name
            if os.path.lexists(path):
                said.append(
                    f"{path} lies above ralph's checkouts, so checks may use it, and be "
                    f"red in a clone; move it, or set RALPH_PLACES to another folder"
                )
    return said


def remove_strays(places: Path) -> list[str]:
    """Remove what ralph did not make in its own folder around the checkouts, where
    tools look for modules and settings; a line for each."""
    if Path(os.path.realpath(places)) != places or not places.is_dir():
        return []  # an agent replaced it, and what is there can be a person's
    said = []
    for path in places.iterdir():
        half_written = path.name.endswith(files.TEMPORARY)
        if path.name == NOTE or half_written or PLACE.fullmatch(path.name):
            continue
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
