"""What a tool says where the place is at fault, and not the work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from _ralph.checks import faults
from _ralph.git.git import Git
from tests.conftest import Repo, cases

IGNORED = "{} is at home, git ignores it, and no place has it: let `setup` make it, or name it in .worktreeinclude"


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
    ):  # fmt: skip
        repo.write(name, "")
    return clone


# What is missing of home (no tool says the last ones, or home has it as little).
@cases("""
line                                                                       missing
Error: Cannot find module './dist/index.js'                                dist/index.js
Error: Cannot find module '../dist/index'                                  dist/index.js
Error: Cannot find module 'PLACE/dist/index.js'                            dist/index.js
src/a.ts(1,20): error TS2307: Cannot find module './dist' or its types.    dist
Error: ENOENT: no such file or directory, open 'PLACE/.env'                .env
cat: dist: No such file or directory                                       dist
cat: .env: No such file or directory                                       .env
/bin/sh: 1: .venv/lib: not found                                           .venv/lib
FileNotFoundError: [Errno 2] No such file or directory: 'dist/index.js'    dist/index.js
ModuleNotFoundError: No module named 'gen.schema'                          gen/schema.py
ModuleNotFoundError: No module named 'gen.more'                            src/gen/more.py
E ModuleNotFoundError: No module named 'requests'                          .venv/lib/python3.12/site-packages/requests
Module not found: Error: Can't resolve 'dep' in 'PLACE/src'                node_modules/dep
sh: 1: no-such-tool: not found                                             no-such-tool is not found there
/bin/sh: no-such-tool: command not found                                   no-such-tool is not found there
[Errno 2] No such file or directory: 'no-such-tool'                        no-such-tool is not found there
mise ERROR Config files in /x/mise.toml are not trusted.                   it is not trusted there: mise ERROR
direnv: error /x/.envrc is blocked. Run `direnv allow`                     it is not trusted there: direnv
ModuleNotFoundError: No module named 'numpy'
cat: src/a.py: No such file or directory
cat: new.txt: No such file or directory
cat: /etc/dist: No such file or directory
wrote dist/index.js
sh: 1: ./bin/tool: not found
FAILED test_user_is_blocked: not trusted
""")
def test_what_a_red_check_misses_and_home_has(
    repo: Repo, place: Path, line: str, missing: str
) -> None:
    output = f"collecting\n  {line.replace('PLACE', str(place))}\n1 failed"
    fault = faults.find(output, Git.at(repo.path), place)
    is_home_s = (repo.path / (missing or "-")).exists()
    sentence = IGNORED.format(missing) if is_home_s else missing
    assert (fault.sentence if fault else "").startswith(sentence)
    assert (fault is None) is (not sentence)
    if is_home_s:  # the place has it by now
        not_git = shutil.ignore_patterns(".git")
        shutil.copytree(repo.path, place, dirs_exist_ok=True, ignore=not_git)
        assert faults.find(output, Git.at(repo.path), place) is None


@cases("""
name       words          named
dist/x.js  Build x.js     yes
tally      Write ./tally  yes
tally      Write tally-up
-          anything
""")
def test_what_the_words_of_a_task_name_it_may_be_to_make(
    name: str, words: str, named: str
) -> None:
    assert faults.Fault(name, "").is_named_in(words) is bool(named)


@cases("""
module     words                   own
./a        -                       yes
shop.cart  -                       yes
cart       -                       yes
price      Write the price module  yes
freezegun  Write the price module
""")
def test_a_module_is_the_project_s_own(module: str, words: str, own: str) -> None:
    assert faults.is_own(module, ["src/shop/cart.py"], words) is bool(own)


@cases("""
program  check
npm      npm test
cargo    cargo test
go       go test ./...
python3  python3 -m pytest -q
python3  python3 -m unittest discover -s spec
make     make test
""")
def test_the_first_evening_of_a_new_project(
    tmp_path: Path, program: str, check: str
) -> None:
    """With the words of the real tools, as they are installed here."""
    if not shutil.which(program):
        pytest.skip(f"{program} is not on PATH")
    env = {**os.environ, "HOME": str(tmp_path)}
    for name in ("RUSTUP_HOME", "CARGO_HOME"):
        default = Path.home() / f".{name.partition('_')[0].lower()}"
        env.setdefault(name, str(default))
    (tmp_path / "project").mkdir()
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"  # it has pytest
    done = subprocess.run(
        check, shell=True, cwd=tmp_path / "project", env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0
    assert faults.has_nothing_to_test(done.stdout), done.stdout


@cases("""
line                                                                nothing
npm error Missing script: "test"                                    yes
npm error enoent Could not read package.json: Error: ENOENT         yes
error: could not find `Cargo.toml` in `/x` or any parent directory  yes
No test files found, exiting with code 1                            yes
no tests ran in 0.01s                                               yes
1 failed, no tests ran
""")
def test_a_tool_says_that_there_is_nothing_to_test(line: str, nothing: str) -> None:
    assert faults.has_nothing_to_test(f"begin\n{line}\n") is bool(nothing)
