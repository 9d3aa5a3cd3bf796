"""Which changed files are named: tests that were there, and what decides what checks
do."""

from __future__ import annotations

import pytest

from _ralph.checks.changed import changed_tests
from _ralph.git.git import Git
from tests.conftest import Repo

SCRIPTS = '{"scripts": {"test": "%s"}, "dependencies": {%s}}'
OPTIONS = '[project]\ndependencies = [%s]\n[tool.pytest.ini_options]\naddopts = "%s"\n'
PYTEST = "python3 -m pytest"


@pytest.mark.parametrize(
    ("name", "before", "after", "command", "named"),
    [
        ("tests/test_a.py", "x", "y", "make", True),
        ("tests/test_new.py", "", "y", "make", False),
        ("a.py", "x", "y", "make", False),
        ("package.json", SCRIPTS % ("jest", ""), SCRIPTS % ("true", ""), "npm test", True),
        ("web/package.json", SCRIPTS % ("jest", ""), "{", "cd web && yarn test", True),
        ("package.json", SCRIPTS % ("jest", ""), SCRIPTS % ("jest", '"a": "1"'), "npm test", False),
        ("package.json", "[]", "[1]", "npm test", True),
        ("pyproject.toml", OPTIONS % ("", ""), OPTIONS % ("", "-k nothing"), PYTEST, True),
        ("pyproject.toml", OPTIONS % ("", ""), OPTIONS % ("'a'", ""), PYTEST, False),
        ("pyproject.toml", "", "[project]\n", PYTEST, False),
        ("Makefile", "test:\n\ttrue", "test:\n\tfalse", "make -s test", True),
        ("setup.cfg", "", "[tool:pytest]\naddopts = --setup-plan\n", PYTEST, True),
    ],
)  # fmt: skip
def test_what_decides_what_a_check_does_is_named_like_a_test(
    repo: Repo, name: str, before: str, after: str, command: str, named: bool
) -> None:
    commits = []
    for content in (before, after):
        path = repo.write(name, content)
        if not content:
            path.unlink()
        repo.git("add", "-A")
        repo.git("commit", "-q", "--allow-empty", "-m", "x")
        commits.append(repo.git("rev-parse", "HEAD").strip())
    tip, commit = commits
    found = changed_tests(Git.at(repo.path), tip, commit, [name], ["true", command])
    assert found == ([name] if named else [])
