"""The wheel, in an empty environment, from another folder."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from _ralph import __version__
from tests.conftest import ROOT, Repo, _started
from tests.scripts import MAKES, own


def built(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    if not any(listed):
        pytest.skip("not in a checkout")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    words = [
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source),
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(tmp_path.glob("*.whl"))


def test_the_wheel_holds_what_it_needs_and_runs(tmp_path: Path) -> None:
    """What ralph is made of, byte for byte: what runs here (`ralph demo`, say) runs
    from it."""
    wheel = built(tmp_path)
    held = {
        name: zipfile.ZipFile(wheel).read(name)
        for name in zipfile.ZipFile(wheel).namelist()
    }
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True
    ).stdout.split("\n")
    parts = ("ralph.py", "prd.schema.json", "_ralph/", "templates/")
    needed = [
        name for name in listed if name.startswith(parts) and (ROOT / name).is_file()
    ]
    assert len(needed) > 50
    for name in needed:
        inside = (
            f"_ralph/{name}"
            if name.startswith(("templates/", "prd.schema.json"))
            else name
        )
        assert held[inside] == (ROOT / name).read_bytes(), name
    assert not [name for name in held if name.startswith(("tests/", "templates/"))]

    # An environment that holds the dependencies of this one and, of ralph, the wheel
    # alone.
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = str(tmp_path / "env/bin/python")
    site = next((tmp_path / "env/lib").glob("python3*")) / "site-packages"
    own = next(
        Path(p) for p in sys.path if p.endswith("site-packages") and Path(p).is_dir()
    )
    for entry in own.iterdir():
        if not (site / entry.name).exists() and "ralph" not in entry.name:
            (site / entry.name).symlink_to(entry)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "--disable-pip-version-check",
    ]
    words = [*pip, "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(words, check=True, timeout=120, env=env)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for command in (
        [str(tmp_path / "env/bin/ralph")],
        [str(tmp_path / "env/bin/ralph-prd")],
        [python, "-m", "ralph"],
    ):
        said = subprocess.run(
            [*command, "--version"],
            cwd=elsewhere,
            env=env,
            capture_output=True,
            text=True,
        )
        assert said.returncode == 0 and __version__ in said.stdout, said.stderr
    subprocess.run(["git", "init", "-q"], cwd=elsewhere, check=True, env=env)
    done = subprocess.run(
        [str(tmp_path / "env/bin/ralph"), "init"],
        cwd=elsewhere,
        env=env,
        capture_output=True,
    )
    assert done.returncode == 0 and (elsewhere / "prd.json").exists(), done.stderr


# What notes which programs of a folder it sees, and the virtual environment that is
# active.
NOTES = 'echo "{} $(command -v speaker) $VIRTUAL_ENV" >> {}'
SEES_OWN = """
from _ralph.agents import registry, surroundings
registry.own_venv = lambda home: ''
surroundings._leave_venv = lambda *_: None
"""


@pytest.mark.parametrize(("place", "sabotage", "seen"), [
    ("../env", "", False),
    ("../link", "", False),
    ("../env", SEES_OWN, True),  # without the rule
    (".venv", "", True),  # the project's own
])  # fmt: skip
def test_checks_and_agents_do_without_the_virtual_environment_of_ralph(
    repo: Repo, place: str, sabotage: str, seen: bool
) -> None:
    active = repo.path / place
    made = active.with_name("env") if place == "../link" else active
    venv.create(made, with_pip=False, symlinks=True)
    if made != active:
        active.symlink_to("env")
    log = repo.outside / "seen"
    notes = {
        part: NOTES.format(part, log) for part in ("setup", "check", "hook", "agent")
    }
    repo.write(".gitignore", ".venv/\n")
    repo.commit("ignore")
    repo.program(".git/hooks/pre-commit", notes["hook"])
    repo.program(
        f"{place}/bin/speaker", f"{notes['agent']}; cat > /dev/null; touch T1.txt"
    )
    repo.plan(
        {"checks": ["test -f T1.txt"]},
        setup=notes["setup"],
        checks=[notes["check"]],
        agent="speaker",
    )
    packages = [path for path in sys.path if path.endswith("site-packages")]
    repo.env |= {
        "VIRTUAL_ENV": str(active),
        "PATH": f"{active}/bin:{repo.env['PATH']}",
        "PYTHONPATH": ":".join([str(ROOT), *packages]),
    }
    words = [str(made / "bin/python"), *_started(sabotage), "run", "-q", "--once"]
    done = subprocess.run(
        words, cwd=repo.path, env=repo.env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    lines = {tuple(line.split(" ")) for line in log.read_text().splitlines()}
    if place == ".venv":  # the checkout's own, where setup made none
        assert {line[:2] for line in lines} == {(part, "") for part in notes}
        assert {Path(line[2]).parent.parent for line in lines} == {repo.places}
    else:
        told = (f"{active}/bin/speaker", str(active)) if seen else ("", "")
        assert lines == {(part, *told) for part in notes}


def test_a_shell_completes_commands_options_and_ids(repo: Repo) -> None:
    repo.plan({}, {}, {"id": "OTHER"})

    def offered(*words: str) -> list[str]:
        env = {
            **repo.env,
            "_RALPH_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("ralph", *words)),
            "COMP_CWORD": str(len(words)),
        }
        done = subprocess.run(
            [sys.executable, "-m", "ralph"], cwd=repo.path, env=env, capture_output=True, text=True,
            timeout=30,
        )  # fmt: skip
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert offered("re") == ["report", "retry"]
    assert "--max-usd" in offered("run", "--max-u")
    assert offered("retry", "T") == ["T1", "T2"]
    assert offered("run", "--task", "O") == ["OTHER"]
    repo.write("prd.json", "{")
    assert "T1" not in offered("retry", "T")


def test_it_runs_as_a_copy_in_a_repository_and_as_a_module(repo: Repo) -> None:
    import shutil

    for name in ("ralph.py", "prd.schema.json"):
        shutil.copy(ROOT / name, repo.path / name)
    for name in ("_ralph", "templates"):
        shutil.copytree(
            ROOT / name, repo.path / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    repo.commit("ralph itself")
    repo.plan(own("T1"))
    env = {**repo.env, "PYTHONPATH": ""}
    words = ["run", "--agent", repo.agent(MAKES), "-q"]
    done = subprocess.run(
        [sys.executable, "ralph.py", *words], cwd=repo.path, env=env, timeout=60
    )
    assert done.returncode == 0
    done = subprocess.run(
        [sys.executable, "-m", "ralph", "status"], cwd=repo.path, env=env, timeout=60
    )
    assert done.returncode == 0
    bare = subprocess.run(
        [sys.executable, "-S", "ralph.py", "status"],
        cwd=repo.path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert bare.returncode == 1 and bare.stderr == (
        "ralph: No module named 'click'; install what the head of ralph.py lists, or start it with: uv run ralph.py\n"
    )
