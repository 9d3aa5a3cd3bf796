"""`ralph init`: what it finds in a project, what it writes, and what it says to do next."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from _ralph.detect import detect_checks, detect_protected
from tests.conftest import Repo

BIN = str(Path(sys.executable).parent)


def lay(root: Path, files: dict[str, str]) -> Path:
    """Write `files` under `root`; what is in .venv/bin can be run."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755 if ".venv" in name else 0o644)
    return root


def scripts(**named: str) -> str:
    return json.dumps({"name": "x", "scripts": named})


PROJECTS: dict[str, tuple[dict[str, str], list[str]]] = {
    "nothing": ({"README.md": "# x"}, []),
    "python, pytest in its tests only": ({"tests/test_a.py": ""}, ["python3 -m pytest -q"]),
    "python, tests at the top": ({"test_a.py": ""}, ["python3 -m pytest -q"]),
    "python, all in pyproject": (
        {"pyproject.toml": "[tool.pytest.ini_options]\n[tool.ruff]\nline-length = 99\n[tool.mypy]\nstrict = true\n"},
        ["python3 -m pytest -q", "ruff check .", "mypy ."],
    ),
    "python, mypy knows its files": ({"pyproject.toml": '[tool.mypy]\nfiles = ["src"]\n'}, ["mypy"]),
    "python, files of their own": (
        {"pytest.ini": "[pytest]", "ruff.toml": "", "mypy.ini": "[mypy]\npackages = x\n"},
        ["python3 -m pytest -q", "ruff check .", "mypy"],
    ),
    "python with uv": (
        {"pyproject.toml": "[tool.ruff]\n[dependency-groups]\ndev = ['pytest']", "uv.lock": '[[package]]\nname = "pytest"\n'},
        ["uv run python -m pytest -q", "ruff check ."],
    ),
    "python with poetry": (
        {"pyproject.toml": "[tool.ruff]\n[tool.poetry.group.dev.dependencies]\npytest = '*'",
         "poetry.lock": '[[package]]\nname = "pytest"\n[[package]]\nname = "ruff"\n'},
        ["poetry run python -m pytest -q", "poetry run python -m ruff check ."],
    ),
    "python with a .venv": (
        {"pyproject.toml": "[tool.pytest.ini_options]\n[tool.mypy]\n", ".venv/bin/pytest": ""},
        [".venv/bin/python -m pytest -q", "mypy ."],
    ),
    "django": ({"manage.py": "", "shop/tests.py": ""}, ["python3 manage.py test"]),
    "django with pytest": ({"manage.py": "", "pytest.ini": "[pytest]"}, ["python3 -m pytest -q"]),
    "npm": (
        {"package.json": scripts(build="tsc", typecheck="tsc --noEmit", lint="eslint .", test="vitest run"), "package-lock.json": "{}"},
        ["npm run typecheck", "npm run lint", "npm test"],
    ),
    "npm, the test that npm init writes": ({"package.json": scripts(test='echo "Error: no test specified" && exit 1')}, []),
    "npm, a test that never ends": ({"package.json": scripts(test="jest --watch", lint="eslint .")}, ["npm run lint"]),
    "npm, create-react-app": ({"package.json": scripts(test="react-scripts test")}, ["CI=true npm test"]),
    "npm, check is something else": ({"package.json": scripts(check="svelte-check", test="vitest run")}, ["npm run check", "npm test"]),
    "npm, check is all of them": ({"package.json": scripts(check="npm run lint && npm test", test="jest")}, ["npm test"]),
    "pnpm": ({"package.json": scripts(lint="biome ci", test="vitest run"), "pnpm-lock.yaml": ""}, ["pnpm run lint", "pnpm test"]),
    "yarn": ({"package.json": scripts(lint="eslint .", test="jest"), "yarn.lock": ""}, ["yarn run lint", "yarn test"]),
    "yarn, named by the package": ({"package.json": '{"packageManager": "yarn@4.1.0", "scripts": {"test": "jest"}}'}, ["yarn test"]),
    "bun": ({"package.json": scripts(test="bun test src"), "bun.lock": ""}, ["bun run test"]),
    "package.json that is broken": ({"package.json": "{"}, []),
    "package.json of another shape": ({"package.json": '["x"]'}, []),
    "rust": ({"Cargo.toml": "[package]", "Cargo.lock": ""}, ["cargo test"]),
    "rust and a Makefile": ({"Cargo.toml": "[package]", "Makefile": "test:\n\tcargo test\nlint:\n\tcargo clippy\n"}, ["cargo test", "make lint"]),
    "go": ({"go.mod": "module x", ".golangci.yml": ""}, ["go test ./...", "golangci-lint run"]),
    "gradle": ({"gradlew": "", "build.gradle.kts": ""}, ["./gradlew check"]),
    "gradle without a wrapper": ({"build.gradle": ""}, ["gradle check"]),
    "maven": ({"pom.xml": ""}, ["mvn -q verify"]),
    "dotnet": ({"shop.sln": "", "shop.csproj": ""}, ["dotnet test"]),
    "elixir": ({"mix.exs": ""}, ["mix test"]),
    "ruby": ({".rspec": "", "Gemfile": "", "Rakefile": ""}, ["bundle exec rspec"]),
    "rails": ({"bin/rails": "", "Rakefile": ""}, ["bin/rails test"]),
    "php": ({"phpunit.xml.dist": ""}, ["vendor/bin/phpunit"]),
    "deno": ({"deno.jsonc": ""}, ["deno test"]),
    "only a Makefile": ({"Makefile": ".PHONY: test lint\nlint:\n\ttrue\ntest: lint\n\ttrue\n"}, ["make lint", "make test"]),
    "a Makefile with check alone": ({"Makefile": "check: build\n\t./run\n"}, ["make check"]),
    "a Makefile with check for all": ({"Makefile": "test:\n\ttrue\ncheck: test\n"}, ["make test"]),
    "a Makefile of variables": ({"Makefile": "test := x\nlint = y\ntest-all:\n\ttrue\nmy-lint:\n\ttrue\n"}, []),
    "a Makefile, two targets a rule": ({"Makefile": "lint test:\n\ttrue\n"}, ["make lint", "make test"]),
    "a Makefile beside npm": (
        {"package.json": scripts(test="jest"), "Makefile": "test:\n\tnpm test\ntypecheck:\n\tnpx tsc\n"}, ["npm test", "make typecheck"],
    ),
    "two languages": (
        {"pyproject.toml": "[tool.pytest.ini_options]", "package.json": scripts(test="jest"), "package-lock.json": "{}"},
        ["python3 -m pytest -q", "npm test"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROJECTS)
def test_checks_of_a_project(tmp_path: Path, name: str) -> None:
    files, wanted = PROJECTS[name]
    assert detect_checks(lay(tmp_path, files)) == wanted


@pytest.mark.parametrize("name", ["Makefile", "package.json", "pyproject.toml", "uv.lock", "tests"])
@pytest.mark.parametrize("odd", ["folder", "dangling link", "bytes"])
def test_odd_files_are_no_project(tmp_path: Path, name: str, odd: str) -> None:
    path = tmp_path / name
    if odd == "folder":
        path.mkdir()
    elif odd == "bytes":
        path.write_bytes(bytes(range(256)))
    else:
        path.symlink_to("nowhere")
    assert detect_checks(tmp_path) == [] and detect_protected(tmp_path) == []


REAL = {
    "make": ({"Makefile": "lint:\n\tgrep -q good a.txt\ntest: lint\n\tgrep -q good a.txt\n"}, "a.txt"),
    "npm": ({"package.json": scripts(lint="grep -q good a.txt", test="grep -q good a.txt")}, "a.txt"),
    "ruff": ({"ruff.toml": "", "mypy.ini": "[mypy]\nfiles = a.py\n", "test_a.py": "import a\n\n\ndef test_a() -> None:\n    assert a.good()\n"}, "a.py"),
    "cargo": ({"Cargo.toml": '[package]\nname = "x"\nversion = "0.1.0"\n', "src/lib.rs": "mod a;\n"}, "src/a.rs"),
}  # fmt: skip
GOOD = {
    "a.txt": "good\n",
    "a.py": "def good() -> bool:\n    return True\n",
    "src/a.rs": "#[test]\nfn good() {\n    assert!(true);\n}\n",
}
BAD = {
    "a.txt": "bad\n",
    "a.py": "import os\n\n\ndef good() -> bool:\n    return 0\n",
    "src/a.rs": "#[test]\nfn good() {\n    assert!(false);\n}\n",
}


@pytest.mark.parametrize("tool", REAL)
def test_the_checks_are_green_on_good_work_and_red_on_bad(tmp_path: Path, tool: str) -> None:
    path = f"{BIN}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    if shutil.which(tool, path=path) is None or subprocess.run([tool, "--version"], env=env).returncode != 0:
        pytest.skip(f"{tool} is not installed here")  # a launcher without a toolchain is none
    files, worked = REAL[tool]
    for content, green in ((GOOD[worked], True), (BAD[worked], False)):
        checks = detect_checks(lay(tmp_path, {**files, worked: content}))
        assert checks
        for check in checks:
            done = subprocess.run(
                check, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
            )
            assert (done.returncode == 0) == green, (check, done.stdout, done.stderr)


# ---------------------------------------------------------------- what it says to do next

EDIT = (
    "next: edit {}: the tasks, and the checks that prove them. "
    "Or write what you want into brief.md, and after the commit: ralph plan brief.md"
)
COMMIT = "git add prd.json AGENTS.md .gitignore && git commit -m plan"
START = "git add -A && git commit -m start"
GO = "ralph doctor; ralph run"
PLAN = '{"userStories": [{"id": "A", "title": "a"%s}]}'


def said(repo: Repo, *words: str) -> list[str]:
    """The lines of `ralph init` that say what to do."""
    done = repo.ralph("init", *words)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("next: ", "then: "))]


def test_next_in_an_empty_folder_and_until_the_plan_runs(folder: Repo) -> None:
    (folder.path / "a.txt").unlink()
    assert said(folder) == [EDIT.format("prd.json"), f"then: git init; {START}; {GO}"]
    folder.git("init", "-q", "-b", "work")
    folder.git("config", "user.email", "test@example.invalid")
    folder.git("config", "user.name", "Test")
    assert said(folder) == [EDIT.format("prd.json"), f"then: {START}; {GO}"]
    folder.commit("start")
    assert said(folder) == [EDIT.format("prd.json"), f"then: {GO}"]
    commit = "git add prd.json && git commit -m plan"
    folder.write("prd.json", PLAN % "")
    assert said(folder) == [
        'next: name the commands that prove the work under "checks" in prd.json', f"then: {commit}; {GO}",
    ]  # fmt: skip
    folder.write("prd.json", PLAN % ', "checks": ["test -f T1.txt"]')
    (last,) = said(folder)
    assert last == f"next: {commit}; {GO}"
    subprocess.run(commit, shell=True, cwd=folder.path, env=folder.env, check=True, stdout=subprocess.DEVNULL)
    assert said(folder) == [f"next: {GO}"]
    assert folder.run(folder.agent("P('T1.txt').touch()"))[0] == 0


def test_next_without_git(folder: Repo) -> None:
    folder.write("prd.json", PLAN % ', "checks": ["true"]')
    assert said(folder, "--no-git") == ["next: ralph doctor --no-git; ralph run --no-git"]
    assert not (folder.path / ".gitignore").exists()


def test_next_for_a_list_whose_tasks_need_checks(repo: Repo) -> None:
    repo.write("prd.json", '[{"title": "a"}]')
    repo.write("Makefile", "test:\n\ttrue\n")
    assert (
        said(repo)[0] == 'next: name the commands that prove the work under "checks" in the tasks of prd.json'
    )
    assert repo.read("prd.json") == '[{"title": "a"}]'


def test_checks_are_added_to_a_plan_that_has_none(repo: Repo) -> None:
    repo.write("prd.json", PLAN % "")
    repo.write("Makefile", "test:\n\ttrue\n")
    assert said(repo) == [f"next: {COMMIT}; {GO}"]
    assert json.loads(repo.read("prd.json")) == {**json.loads(PLAN % ""), "checks": ["make test"]}
    before = repo.read("prd.json")
    repo.write("Makefile", "lint:\n\ttrue\n")
    said(repo)
    assert repo.read("prd.json") == before


@pytest.mark.parametrize("where", ["plans/a b.json", "../other/prd.json"])
def test_next_for_a_plan_elsewhere(repo: Repo, where: str) -> None:
    path = repo.path / where
    if where.startswith(".."):  # another repository
        repo.git("clone", "-q", ".", "../other")
        repo.git("-C", "../other", "config", "user.email", "test@example.invalid")
        repo.git("-C", "../other", "config", "user.name", "Test")
    path.parent.mkdir(exist_ok=True)
    path.write_text(PLAN % ', "checks": ["true"]')
    (last,) = said(repo, "--prd", where)
    git, doctor, run = last.removeprefix("next: ").split("; ")
    assert shlex.quote(path.name) in git
    subprocess.run(git, shell=True, cwd=repo.path, env=repo.env, check=True, stdout=subprocess.DEVNULL)
    assert said(repo, "--prd", where) == [f"next: {doctor}; {run}"]
    words = shlex.split(run)[1:]
    assert repo.ralph(*words, "--agent", repo.agent("P('x').touch()")).returncode == 0


def test_in_a_subfolder_no_second_plan_is_made_by_mistake(repo: Repo) -> None:
    repo.ralph("init")
    (repo.path / "sub").mkdir()
    words = [sys.executable, "-m", "ralph", "init"]
    done = subprocess.run(words, cwd=repo.path / "sub", env=repo.env, capture_output=True, text=True)
    assert done.returncode == 2 and f"is {repo.path}/prd.json; " in done.stderr
    asked_for = done.stderr.rpartition(": ")[2].split()
    assert subprocess.run([*words, *asked_for], cwd=repo.path / "sub", env=repo.env).returncode == 0
    assert (repo.path / "sub/prd.json").exists()


def test_what_git_ignores_is_not_to_be_added(repo: Repo) -> None:
    repo.write(".gitignore", "prd.json\nprogress.txt\n")
    repo.write("prd.json", PLAN % ', "checks": ["true"]')
    assert said(repo) == ["next: git add AGENTS.md .gitignore && git commit -m plan; " + GO]
