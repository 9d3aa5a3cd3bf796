"""What home has and a place lacks, said in one sentence."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from _ralph.checks.missing import above, at_home_only
from _ralph.git.git import Git
from tests.conftest import Repo

IGNORED = "{} is at home, git ignores it, and no place has it: let `setup` make it, or name it in .worktreeinclude"
EDITED = "{} is at home and not committed, so no place has it: commit it"


@pytest.fixture
def place(repo: Repo) -> Path:
    """A clone, as a place has it, of a project with files that git does not track."""
    repo.write(".gitignore", "dist/\ngen/\nnode_modules/\n.venv/\n.env\n")
    repo.write("src/a.py", "")
    repo.commit("project")
    clone = repo.outside / "place"
    subprocess.run(["git", "clone", "-q", repo.path, clone], check=True, env=repo.env)
    for name in (
        "dist/index.js", "gen/schema.py", "src/gen/more.py", "node_modules/dep/index.js",
        ".venv/lib/python3.12/site-packages/requests/__init__.py", ".env", "new.txt",
        "../shared.py", "../node_modules/@up/dep/index.js", "../pkg/__init__.py",
    ):  # fmt: skip
        repo.write(name, "")
    return clone


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("Error: Cannot find module './dist/index.js'", IGNORED.format("dist/index.js")),
        ("Error: Cannot find module '../dist/index'", IGNORED.format("dist/index.js")),
        ("Error: Cannot find module 'PLACE/dist/index.js'", IGNORED.format("dist/index.js")),
        ("Error: ENOENT: no such file or directory, open 'PLACE/.env'", IGNORED.format(".env")),
        ("cat: dist: No such file or directory", IGNORED.format("dist")),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'dist/index.js'", IGNORED.format("dist/index.js")),
        ("ModuleNotFoundError: No module named 'gen.schema'", IGNORED.format("gen/schema.py")),
        ("ModuleNotFoundError: No module named 'gen.more'", IGNORED.format("src/gen/more.py")),
        ("E   ModuleNotFoundError: No module named 'requests'", IGNORED.format(".venv/lib/python3.12/site-packages/requests")),
        ("Module not found: Error: Can't resolve 'dep' in 'PLACE/src'", IGNORED.format("node_modules/dep")),
        ("cat: new.txt: No such file or directory", EDITED.format("new.txt")),
        ("ModuleNotFoundError: No module named 'shared'", "shared is OUT/shared.py, above the project, and no place has it: let `setup` install it"),
        ("Error: Cannot find module '@up/dep'", "@up/dep is OUT/node_modules/@up/dep, above the project, and no place has it: let `setup` install it"),
        ("ModuleNotFoundError: No module named 'pkg.sub'", "pkg.sub is OUT/pkg, above the project, and no place has it: let `setup` install it"),
        # home has no such thing either, the place has it, or nothing is said to be missing
        ("ModuleNotFoundError: No module named 'numpy'", ""),
        ("src/a.py does not exist", ""),
        ("wrote dist/index.js", ""),
        ("cat: /etc/dist: No such file or directory", ""),
        ("cat: ..: No such file or directory\n\0not found", ""),
    ],
)  # fmt: skip
def test_what_a_red_check_misses_and_home_has(
    repo: Repo, place: Path, output: str, sentence: str
) -> None:
    output = f"collecting\n{output.replace('PLACE', str(place))}\n1 failed"
    home = Git.at(repo.path)
    wanted = sentence.replace("OUT", str(home.root.parent))
    assert at_home_only(output, home, place) == wanted
    if sentence and "above" not in sentence:  # the place has it by now
        not_git = shutil.ignore_patterns(".git")
        shutil.copytree(repo.path, place, dirs_exist_ok=True, ignore=not_git)
        assert at_home_only(output, home, place) == ""


def test_what_is_on_another_commit_is_not_missing(repo: Repo, place: Path) -> None:
    repo.git("add", "new.txt")
    output = "cat: new.txt: No such file or directory"
    assert at_home_only(output, Git.at(repo.path), place) == ""


@pytest.mark.parametrize(
    "name", ["node_modules/x", "package.json", "conftest.py", "pyproject.toml"]
)
def test_what_lies_above_the_places_is_named(tmp_path: Path, name: str) -> None:
    places = tmp_path / "a/state/ralph/shop-1"
    places.mkdir(parents=True)
    before = above(places)
    found = tmp_path / "a" / name
    found.parent.mkdir(exist_ok=True)
    found.touch()
    (said,) = [line for line in above(places) if line not in before]
    named = tmp_path / "a" / name.partition("/")[0]
    assert said.startswith(f"{named} lies above ralph's checkouts")
    (places / "package.json").touch()  # ralph's own folder is another matter
    assert len(above(places)) == len(before) + 1


def test_doctor_and_a_run_say_what_lies_above(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1"]})
    repo.write("../state/node_modules/dep/index.js", "")
    agent = repo.agent("P('T1').touch()")
    named = f"{repo.outside.resolve()}/state/node_modules lies above ralph's checkouts"
    assert named in " ".join(repo.ralph("doctor", "--agent", agent).stdout.split())
    assert named in " ".join(repo.ralph("run", "--agent", agent).stdout.split())
