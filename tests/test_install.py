"""The wheel, in an empty environment, from another folder."""

from __future__ import annotations

import os
import re
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from _ralph import __version__
from tests.conftest import ROOT, Repo, captured


def listed() -> list[str]:
    """The files of the repository that are there."""
    words = ["git", "ls-files", "-co", "--exclude-standard"]
    names = captured(words, ROOT).stdout
    return [name for name in names.splitlines() if (ROOT / name).is_file()]


def built(tmp_path: Path) -> Path:
    """The wheel, built from a copy of them."""
    source = tmp_path / "source"
    for name in listed():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    if not source.exists():
        pytest.skip("not in a checkout")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    words = [*build, "--outdir", str(tmp_path), str(source)]
    done = captured(words, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(tmp_path.glob("*.whl"))


def environment(folder: Path) -> Path:
    """A virtual environment that holds the dependencies of this one, and no ralph."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for entry in site_packages().iterdir():
        if not (site / entry.name).exists() and "ralph" not in entry.name:
            (site / entry.name).symlink_to(entry)
    return folder


def site_packages() -> Path:
    folders = [Path(path) for path in sys.path if path.endswith("site-packages")]
    return next(folder for folder in folders if folder.is_dir())


def test_the_wheel_holds_what_it_needs_and_runs(tmp_path: Path) -> None:
    """What ralph is made of, byte for byte: what runs here (`ralph demo`, say) runs
    from it."""
    wheel = built(tmp_path)
    packed = zipfile.ZipFile(wheel)
    held = set(packed.namelist())
    for name in listed():
        inside = name
        if name.startswith(("templates/", "prd.schema.json")):
            inside = f"_ralph/{name}"
        if inside.startswith("_ralph/") or name == "ralph.py":
            assert packed.read(inside) == (ROOT / name).read_bytes(), name
            held.remove(inside)
    assert [name for name in held if ".dist-info/" not in name] == []

    bin = environment(tmp_path / "env") / "bin"
    home = tmp_path / "home"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}

    def run(*words: str | Path) -> str:
        done = captured(words, home, env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    pip = [sys.executable, "-m", "pip", "--python", str(bin / "python")]
    run(*pip, "install", "-q", "--no-deps", "--no-index", str(wheel))
    for command in ([bin / "ralph"], [bin / "ralph-prd"], [bin / "python", "-mralph"]):
        assert __version__ in run(*command, "--version")
    run("git", "init", "-q")
    run(bin / "ralph", "init")
    assert (home / "prd.json").exists()


# What notes which programs of a folder it sees, and the virtual environment that is
# active.
NOTES = 'echo "{} $(command -v speaker) $VIRTUAL_ENV" >> {}'


@pytest.mark.parametrize("place", ["../env", "../link", ".venv"])
def test_checks_and_agents_do_without_the_virtual_environment_of_ralph(
    repo: Repo, place: str
) -> None:
    """But not without that of the project: a checkout's own."""
    active = repo.path / place
    log = repo.outside / "seen"
    made = active.with_name("env") if place == "../link" else active
    venv.create(made, with_pip=False, symlinks=True)
    if place == "../link":
        active.symlink_to("env")
    repo.write(".gitignore", ".venv/\n")
    repo.commit("ignore")
    agent = f"{NOTES.format('agent', log)}; cat > /dev/null; touch T1.txt"
    repo.program(f"{place}/bin/speaker", agent)
    check = NOTES.format("check", log)
    setup = NOTES.format("setup", log)
    task = {"checks": ["test -f T1.txt"]}
    repo.plan(task, setup=setup, checks=[check], agent="speaker")
    repo.sh(
        f"{made}/bin/python -m ralph run -q --once",
        VIRTUAL_ENV=str(active),
        PATH=f"{active}/bin:{repo.env['PATH']}",
        PYTHONPATH=f"{ROOT}:{site_packages()}",
    )
    seen = "".join(sorted(set(log.read_text().splitlines(keepends=True))))
    own = ""
    if place == ".venv":
        own = f"{repo.places}/[^/ ]+/.venv"
    wanted = f"agent  {own}\n(check  {own}\n)+(setup  {own}\n)+"
    assert re.fullmatch(wanted, seen)


def test_a_shell_completes_commands_and_options(repo: Repo) -> None:
    def offered(*words: str) -> list[str]:
        typed = {"COMP_WORDS": " ".join(["ralph", *words])}
        typed["COMP_CWORD"] = str(len(words))
        said = repo.sh("$PYTHON -m ralph", _RALPH_COMPLETE="bash_complete", **typed)
        return [line.partition(",")[2] for line in said.splitlines()]

    assert offered("re") == ["report", "retry"]
    assert "--max-usd" in offered("run", "--max-u")
