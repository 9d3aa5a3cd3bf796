"""The shells that people sit in: whatever their environment names, the work is tested
and not home's files, and nothing of theirs is touched."""

from __future__ import annotations

import os
import venv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from _ralph import files
from tests.conftest import Repo, sample

ADDS = "import calc; assert calc.add(1, 2) == 3"
SUBTRACTS = "import calc; assert calc.sub(3, 1) == 2"
SETUP = 'python3 -m venv --without-pip .venv && echo "$PWD/src" > "$(echo .venv/lib/python*/site-packages)/shop.pth"'


def editable(repo: Repo, where: Path) -> Path:
    """A virtual environment that has home's package installed as `pip install -e .`
    does; its programs."""
    venv.create(where, symlinks=True)
    (site,) = where.glob("lib/python*/site-packages")
    (site / "shop.pth").write_text(f"{repo.path}/src\n")
    return where / "bin"


def active(repo: Repo, where: Path) -> dict[str, str]:
    return {
        "VIRTUAL_ENV": str(where),
        "PATH": f"{editable(repo, where)}:{repo.env['PATH']}",
    }


def shared_target(repo: Repo) -> dict[str, str]:
    """A build folder for all, with what was built of home's files."""
    target = repo.write("../target/calc.py", repo.read("src/calc.py")).parent
    return {"CARGO_TARGET_DIR": str(target.resolve())}


class Shell(NamedTuple):
    """What it sets, the Python or the line by which a check runs code, and the
    setup."""

    env: Callable[[Repo], dict[str, str]]
    check: str = "cd src && python3 -c '{0}'"
    setup: str = ""


SHELLS = {
    "the project's own venv": Shell(
        lambda repo: active(repo, repo.path / ".venv"), "python -c '{0}'", SETUP
    ),
    "a virtualenv elsewhere": Shell(
        lambda repo: active(repo, repo.outside / "venv"),
        ".venv/bin/python -c '{0}'",
        SETUP,
    ),
    "none active, and setup makes one": Shell(
        lambda repo: {}, "python3 -c '{0}'", SETUP
    ),
    "conda": Shell(
        lambda repo: {
            "CONDA_PREFIX": str(repo.outside / "conda"),
            "PATH": f"{editable(repo, repo.outside / 'conda')}:{repo.env['PATH']}",
        },
        ".venv/bin/python -c '{0}'",
        SETUP,
    ),
    "direnv's PYTHONPATH": Shell(
        lambda repo: {"PYTHONPATH": f"{repo.path}/src"}, "python3 -c '{0}'"
    ),
    "NODE_PATH": Shell(
        lambda repo: {"NODE_PATH": f"{repo.path}/src"},
        "cd $NODE_PATH && python3 -c '{0}'",
    ),
    "a CI's workspace": Shell(
        lambda repo: {"GITHUB_WORKSPACE": str(repo.path)},
        "cd $GITHUB_WORKSPACE/src && python3 -c '{0}'",
    ),
    "CARGO_TARGET_DIR": Shell(
        shared_target,
        "mkdir -p $CARGO_TARGET_DIR && cp -n src/calc.py $CARGO_TARGET_DIR; cd $CARGO_TARGET_DIR && python3 -c '{0}'",
    ),
    "an empty and a relative PATH": Shell(
        lambda repo: {"PATH": f":src:{repo.env['PATH']}:"}
    ),
    "bytes that are no text": Shell(
        lambda repo: {"ODD": os.fsdecode(b"\xff\xfe="), "LS_COLORS": "\udc80"}
    ),
    "a venv that is gone": Shell(
        lambda repo: {
            "VIRTUAL_ENV": "/gone/venv",
            "PATH": f"/gone/venv/bin:{repo.env['PATH']}",
        }
    ),
}


def standing(repo: Repo) -> dict[str, bytes]:
    """All files of the person's, but caches of Python, ralph's own and git's."""
    own = (repo.path / ".git", repo.path / ".ralph", repo.outside / "state")
    return {
        str(path): os.fsencode(os.readlink(path))
        if path.is_symlink()
        else path.read_bytes()
        for path in files.walk(repo.outside)
        if "__pycache__" not in path.parts
        and not any(path.is_relative_to(one) for one in own)
    }


@pytest.mark.parametrize("name", sample(SHELLS, 3))
def test_the_work_is_tested_in_every_shell_and_the_person_s_own_files_stay(
    repo: Repo, name: str
) -> None:
    """T1 is right; T2 is, too, but breaks what home's own file still does."""
    shell = SHELLS[name]
    repo.path, repo.outside = repo.path.resolve(), repo.outside.resolve()
    repo.write("src/calc.py", "def add(a, b):\n    return a + b\n")
    repo.write(".gitignore", ".venv/\n__pycache__/\ntarget/\n")
    repo.commit("calc")
    repo.env = {**repo.env, "PYTHONDONTWRITEBYTECODE": "1"}
    settings = {"setup": shell.setup} if shell.setup else {}
    repo.plan(
        {"checks": [shell.check.format(SUBTRACTS)]},
        {"checks": ["grep -q broken src/calc.py"]},
        checks=[shell.check.format(ADDS)],
        limits={"attempts": 1},
        **settings,
    )
    repo.write("progress.txt", "")
    agent = repo.agent(
        """
        path = P("src/calc.py")
        code = path.read_text()
        if task == "T1":
            code += "def sub(a, b):\\n    return a - b\\n"
        else:
            code = code.replace("a + b", "a - b") + "# broken\\n"
        path.write_text(code)
        """
    )
    repo.env |= shell.env(repo)
    before = standing(repo)
    done = repo.ralph("doctor", "--agent", agent)
    assert done.returncode == 0, done.stdout
    ended = repo.ralph("run", "--agent", agent)
    assert not ended.stderr.startswith("Traceback")
    assert ended.returncode == 4, ended.stdout
    assert repo.verdicts() == ["T1 passed", "T2 failed"], ended.stdout
    after = standing(repo)
    ralph_s = {f"{repo.path}/prd.json", f"{repo.path}/progress.txt"}
    assert {
        one for one in before | after if before.get(one) != after.get(one)
    } <= ralph_s
