"""Which changed files are named: tests that were there, and what decides what checks
do."""

from __future__ import annotations

from _ralph.checks.changed import changed_tests
from _ralph.git.git import Git
from tests.conftest import Repo, cases

PLACED = {
    "JEST": '{"scripts": {"test": "jest"}, "dependencies": {}}',
    "TRUE": '{"scripts": {"test": "true"}, "dependencies": {}}',
    "DEPS": '{"scripts": {"test": "jest"}, "dependencies": {"a": "1"}}',
    "PLAIN": '[project]\ndependencies = []\n[tool.pytest.ini_options]\naddopts = ""\n',
    "NONE": '[project]\ndependencies = []\n[tool.pytest.ini_options]\naddopts = "-k nothing"\n',
    "NEEDS": "[project]\ndependencies = ['a']\n[tool.pytest.ini_options]\naddopts = \"\"\n",
}


@cases(r"""
name              before           after             command               named
tests/test_a.py   x                y                 make                  yes
tests/test_new.py  -                y                 make                  no
a.py              x                y                 make                  no
package.json      JEST             TRUE              npm test              yes
web/package.json  JEST             {                 cd web && yarn test   yes
package.json      JEST             DEPS              npm test              no
package.json      []               [1]               npm test              yes
pyproject.toml    PLAIN            NONE              python3 -m pytest     yes
pyproject.toml    PLAIN            NEEDS             python3 -m pytest     no
pyproject.toml    -                [project]         python3 -m pytest     no
Makefile          test: true  test: false  make -s test          yes
eslint.config.js  x                y                 npx eslint .          yes
setup.cfg         -                [tool:pytest]\naddopts = --setup-plan  python3 -m pytest  yes
""")
def test_what_decides_what_a_check_does_is_named_like_a_test(
    repo: Repo, name: str, before: str, after: str, command: str, named: str
) -> None:
    commits = []
    for content in (before, after):
        path = repo.write(name, PLACED.get(content, content))
        if not content:
            path.unlink()
        repo.git("add", "-A")
        repo.git("commit", "-q", "--allow-empty", "-m", "x")
        commits.append(repo.git("rev-parse", "HEAD").strip())
    tip, commit = commits
    found = changed_tests(Git.at(repo.path), tip, commit, ["true", command])
    assert found == ([name] if named == "yes" else [])
