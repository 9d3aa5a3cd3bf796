"""The shells that people sit in: whatever their environment names, the work is tested
and not home's files, and nothing of theirs is touched."""

from __future__ import annotations

import os
import venv
from pathlib import Path

import pytest

from _ralph import files
from tests.conftest import Repo, sample

ADDS = "import calc; assert calc.add(1, 2) == 3"
SUBTRACTS = "import calc; assert calc.sub(3, 1) == 2"
SETUP = 'python3 -m venv --without-pip .venv && echo "$PWD/src" > "$(echo .venv/lib/python*/site-packages)/shop.pth"'


def editable(repo: Repo, where: str) -> None:
    """A virtual environment that has home's package installed as `pip install -e .`
    does."""
    venv.create(where, symlinks=True)
    (site,) = Path(where).glob("lib/python*/site-packages")
    (site / "shop.pth").write_text(f"{repo.path}/src\n")


# What it sets (HOME is where home is, OUT above it), and the line by which a check runs
# code; behind it whether setup makes a virtual environment.
SHELLS = """
the project's own venv :: VIRTUAL_ENV=HOME/.venv PATH=HOME/.venv/bin:$PATH :: python -c '{0}' :: setup
a virtualenv elsewhere :: VIRTUAL_ENV=OUT/venv PATH=OUT/venv/bin:$PATH :: .venv/bin/python -c '{0}' :: setup
none active, and setup makes one :: X=x :: python3 -c '{0}' :: setup
conda :: CONDA_PREFIX=OUT/conda PATH=OUT/conda/bin:$PATH :: .venv/bin/python -c '{0}' :: setup
direnv's PYTHONPATH :: PYTHONPATH=HOME/src :: python3 -c '{0}'
NODE_PATH :: NODE_PATH=HOME/src :: cd $NODE_PATH && python3 -c '{0}'
a CI's workspace :: GITHUB_WORKSPACE=HOME :: cd $GITHUB_WORKSPACE/src && python3 -c '{0}'
CARGO_TARGET_DIR :: CARGO_TARGET_DIR=OUT/target :: mkdir -p $CARGO_TARGET_DIR && cp -n src/calc.py $CARGO_TARGET_DIR; cd $CARGO_TARGET_DIR && python3 -c '{0}'
an empty and a relative PATH :: PATH=:src:$PATH: :: cd src && python3 -c '{0}'
bytes that are no text :: ODD=\udcff\udcfe= LS_COLORS=\udc80 :: cd src && python3 -c '{0}'
a venv that is gone :: VIRTUAL_ENV=/gone/venv PATH=/gone/venv/bin:$PATH :: cd src && python3 -c '{0}'
"""


ROWS = {row.split(" :: ")[0]: row for row in SHELLS.strip().split("\n")}


WORK = """
path = P("src/calc.py")
code = path.read_text()
if task == "T1":
    code += "def sub(a, b):\\n    return a - b\\n"
else:
    code = code.replace("a + b", "a - b") + "# broken\\n"
path.write_text(code)
"""


def standing(repo: Repo) -> set[tuple[str, bytes]]:
    """All files of the person's, but caches of Python, ralph's own and git's."""
    own = ["/repo/.git/", "/repo/.ralph/", "/state/", "/__pycache__/"]
    own += ["/repo/prd.json", "/repo/progress.txt"]
    found = set()
    for path in files.walk(repo.outside):
        name = str(path).removeprefix(str(repo.outside))
        if not any(one in name for one in own):
            link = os.fsencode(os.readlink(path)) if path.is_symlink() else b""
            found.add((name, link or path.read_bytes()))
    return found


@pytest.mark.parametrize("name", sample(ROWS, 3))
def test_the_work_is_tested_in_every_shell_and_the_person_s_own_files_stay(
    repo: Repo, name: str
) -> None:
    """T1 is right; T2 is, too, but breaks what home's own file still does."""
    _, sets, check, *setup = ROWS[name].split(" :: ")
    repo.path, repo.outside = repo.path.resolve(), repo.outside.resolve()
    for path in ("src/calc.py", "../target/calc.py"):  # a build folder for all, too
        repo.write(path, "def add(a, b):\n    return a + b\n")
    repo.write(".gitignore", ".venv/\n__pycache__/\ntarget/\n")
    repo.commit("calc")
    first, second = check.format(SUBTRACTS), "grep -q broken src/calc.py"
    settings = {"setup": SETUP} if setup else {}
    repo.plan(
        {"checks": [first]},
        {"checks": [second]},
        checks=[check.format(ADDS)],
        limits={"attempts": 1},
        **settings,
    )
    repo.write("progress.txt", "")
    sets = sets.replace("HOME", str(repo.path)).replace("OUT", str(repo.outside))
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    for one in sets.split(" "):
        key, _, value = one.partition("=")
        env[key] = value.replace("$PATH", repo.env["PATH"])
        if key in ("VIRTUAL_ENV", "CONDA_PREFIX") and not value.startswith("/gone"):
            editable(repo, value)
    repo.env |= env
    agent = repo.agent(WORK)
    before = standing(repo)
    done = repo.ralph("doctor", "--agent", agent)
    assert done.returncode == 0, done.stdout
    ended = repo.ralph("run", "--agent", agent)
    assert ended.returncode == 4, ended.stdout + ended.stderr
    assert repo.verdicts() == ["T1 passed", "T2 failed"], ended.stdout
    assert standing(repo) == before
