"""`ralph init`: what it finds in a project, what it writes, and what it says to do
next."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest

from _ralph.commands.detect import Project
from _ralph.commands.init import local_settings
from _ralph.git import patterns
from tests.conftest import Repo, captured, cases

PROGRAMS = """bundle cargo composer ctest direnv dotnet go golangci-lint gradle java
make mise mix mvn npm php pnpm poetry pre-commit python3 ruby swift uv yarn"""
VENV = "python3 -m venv .venv && .venv/bin/pip install -q"
PYTEST = ".venv/bin/python -m pytest -q"
NPM = {"package-lock.json": "{}"}
DEV = {"vitest": "3", "eslint": "9", "typescript": "5", "publint": "0", "rimraf": "6"}


def project(root: Path, told: str) -> Project:
    """A repository in `root` with these files: their names, or JSON of what is in them,
    with the `scripts`, package `manager` and `dev` dependencies of a package.json."""
    if not told.startswith("{"):
        return Project(lay(root, dict.fromkeys(told.split(), "")))
    files = json.loads(told, strict=False)
    manager = files.pop("manager", "")
    package = {"devDependencies": files.pop("dev", DEV), "packageManager": manager}
    if "scripts" in files:
        package["scripts"] = files.pop("scripts")
        files["package.json"] = json.dumps(package)
        if "lock" not in told and not manager:
            files |= NPM
    return Project(lay(root, files))


def lay(root: Path, files: dict[str, str]) -> Path:
    """A repository with these files."""
    root.mkdir(exist_ok=True)
    assert captured(["git", "init", "-q"], root).returncode == 0
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bin folder of a PATH with git and `PROGRAMS` alone, which do nothing."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").symlink_to(str(shutil.which("git")))
    for name in PROGRAMS.split():
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def found(project: Project) -> tuple[str, list[str], list[str]]:
    """The command of setup, the names of the checks, and their commands."""
    setup = project.setup
    run = setup["run"] if isinstance(setup, dict) else setup or ""
    names, commands = [], []
    for check in project.checks(run):
        whole = check if isinstance(check, dict) else {"name": check, "run": check}
        names.append(whole["name"])
        commands.append(whole["run"])
    return run, names, commands


# A project, its setup, and its checks. $VENV and $PYTEST stand for what is above.
@cases("""
    told                                                                                     setup                                          checks
    README.md                                                                                -                                              -
    tests/test_a.py                                                                          $VENV pytest                                   $PYTEST
    {"test_a.py": "import unittest"}                                                         -                                              python3 -m unittest discover
    {"pyproject.toml": "[build-system]\\n[project]\\nname = 'x'", "tests/test_a.py": ""}     $VENV -e . pytest                              $PYTEST
    {"setup.py": "setup()", "test_a.py": ""}                                                 $VENV -e . pytest                              $PYTEST
    {"pyproject.toml": "[project]\\noptional-dependencies.tests = []\\noptional-dependencies.docs = []", "test_a.py": ""}  $VENV -e '.[tests]' pytest  $PYTEST
    {"pyproject.toml": "[tool.pytest"}                                                       $VENV pytest                                   $PYTEST
    {"uv.lock": "version = 1", "pyproject.toml": "[project.optional-dependencies]\\ndev = ['x']\\n[dependency-groups]\\ndocs = ['x']\\ntest = ['pytest']"}  uv sync --locked --group test --extra dev  uv run python -m pytest -q
    {"pyproject.toml": "[tool.poetry.group.dev.dependencies]\\npytest = '*'", "poetry.lock": ""}  poetry install --with dev                poetry run python -m pytest -q
    {"manage.py": "", "requirements.txt": "django"}                                          $VENV -r requirements.txt                      .venv/bin/python manage.py test
    {"Makefile": "check: build\\n\t./run\\n"}                                                -                                              make check
    .pre-commit-config.yaml go.mod                                                           -                                              pre-commit run --all-files; go test ./...
    {"scripts": {"build": "vite build", "typecheck": "tsc --noEmit", "lint": "eslint .", "test": "vitest run"}}  npm ci                      npm run typecheck; npm run lint; npm test
    {"scripts": {"typecheck": "tsc", "lint": "eslint .", "test": "vitest run"}, ".gitlab-ci.yml": "strategy: [lint]\\nrun: npm run type-check"}  npm ci  npm run lint; npm test
    {"scripts": {"test": "cd a && vitest run", "lint": "eslint . && tsc"}}                   npm ci                                         npx eslint .; npx tsc; npm test
    {"scripts": {"test": "npm run test-ci && tsc", "test-ci": "c8 x"}}                       npm ci                                         npm run test-ci; npx tsc
    {"scripts": {"test": "npm run lint && vitest run", "lint": "eslint . && node x.js"}}     npm ci                                         npx eslint .; node x.js; npx vitest run
    {"scripts": {"test": "vitest run"}, "pnpm-lock.yaml": ""}                                pnpm install --frozen-lockfile                 pnpm test
    {"scripts": {"test": "vitest run"}, "manager": "pnpm@9.1.0"}                                     -                                              -
    {"scripts": {"test": "vitest run"}, "yarn.lock": "__metadata:\\n version: 8"}            yarn install --immutable                       yarn run test
    {"Cargo.toml": "[package]", "Makefile": "test:\\n\tcargo test\\nlint:\\n\tcargo clippy\\n"}  -                                     cargo test; make lint
    {"requirements.txt": "pytest", "requirements-dev.txt": "", "tests/test_a.py": "", "scripts": {"test": "vitest run"}, "go.mod": ""}  $VENV -r requirements-dev.txt -r requirements.txt pytest && npm ci  $PYTEST; npm test; go test ./...
""")
def test_setup_and_checks_of_a_project(
    tmp_path: Path, only: Path, told: str, setup: str, checks: str
) -> None:
    run, names, _ = found(project(tmp_path / "repo", told))
    wanted = f"{setup}|{checks}".replace("$VENV", VENV).replace("$PYTEST", PYTEST)
    assert f"{run}|{'; '.join(names)}" == wanted


def test_what_is_not_installed_is_named(tmp_path: Path, only: Path) -> None:
    for name in ("go", "java"):
        (only / name).unlink()
    here = project(tmp_path / "repo", "go.mod pdm.lock mvnw")
    assert here.absent == ["pdm", "go", "java"]


def test_checks_follow_a_setup_of_ones_own(tmp_path: Path) -> None:
    here = project(tmp_path, "tests/test_a.py")
    for setup, python in (("", "python3"), ("make .venv", ".venv/bin/python")):
        (check,) = here.checks(setup)
        assert check["name"] == f"{python} -m pytest -q"


@cases("""
    told                                                               wanted
    test_a.py                                                          $PYTEST --continue-on-collection-errors --junitxml=$RALPH_RESULTS
    {"scripts": {"test": "jest"}, "dev": {"jest-junit": "17"}}         JEST_JUNIT_OUTPUT_FILE=$RALPH_RESULTS JEST_JUNIT_CLASSNAME={filepath} JEST_JUNIT_REPORT_TEST_SUITE_ERRORS=true npm test -- --reporters=default --reporters=jest-junit
    {"scripts": {"test": "node --test"}}                               node --test --test-reporter=spec --test-reporter-destination=stdout --test-reporter=junit --test-reporter-destination=$RALPH_RESULTS
""")
def test_checks_report_single_tests_where_the_runner_can(
    tmp_path: Path, only: Path, told: str, wanted: str
) -> None:
    here = project(tmp_path / "repo", told)
    assert found(here)[2] == [wanted.replace("$PYTEST", PYTEST)]
    assert [check["results"] for check in here.checks("")] == ["junit"]


# What a setup depends on; nothing, where it runs code of the project. Trust is home's
# to give, and no setup's.
@cases("""
    told                                                        wanted
    {"scripts": {"prepare": "husky && npm run build"}}          -
    {".mise/config.toml": "", "scripts": {"test": "vitest run"}}  mise.toml .mise.toml **/mise/** .mise/** package-lock.json npm-shrinkwrap.json package.json .npmrc patches/**
    {"pyproject.toml": "[build-system]\\nrequires = ['hatchling']\\n[project]\\nname = 'x'\\ndynamic = ['version']\\n[tool.hatch.build.hooks.vcs]"}  pyproject.toml setup.py setup.cfg *requirements*.txt requirements/** constraints*.txt
""")
def test_what_a_setup_depends_on(
    tmp_path: Path, only: Path, told: str, wanted: str
) -> None:
    setup = project(tmp_path / "repo", told).setup
    assert setup
    when = setup["when"] if isinstance(setup, dict) else []
    assert " ".join(when) == wanted
    assert not patterns.matching(when, ["src/a.py", "docs/notes.txt"])


@cases("""
    files                                      wanted
    a.txt                                      -
    tests/test_a.py                            tests/** conftest.py pytest.ini .pytest.ini pytest.toml .pytest.toml tox.ini
    src/a.test.ts src/b.spec.tsx               *.test.* *.spec.*
    .github/workflows/ci.yml .husky/pre-commit  .github/** .husky/**
""")
def test_protection_of_a_project(
    tmp_path: Path, only: Path, files: str, wanted: str
) -> None:
    lay(
        tmp_path, {"node_modules/x/tests/a.test.js": "", ".gitignore": "node_modules\n"}
    )
    assert " ".join(project(tmp_path, files).protect) == wanted
    assert patterns.uncovered_tests(wanted.split(), files.split()) == []


@pytest.mark.parametrize("name", ["package.json", "pyproject.toml"])
def test_odd_files_are_no_project(tmp_path: Path, name: str) -> None:
    path = lay(tmp_path, {}) / name
    for odd in ("bytes", "link"):
        if odd == "bytes":
            path.write_bytes(bytes(range(256)))
        else:
            path.unlink()
            path.symlink_to("nowhere")
        here = Project(tmp_path)
        assert (here.checks(""), here.setup) == ([], None)


# ---------------------------------------------------------------- what it writes

EDIT = "next: edit {}: the tasks, and the checks that prove them. Or write what you want into brief.md, and after the commit: ralph plan brief.md"
START = "git add -A && git commit -m start"
GO = "ralph doctor; ralph run"
PLAN = '{"userStories": [{"id": "A", "title": "a"%s}]}'
LIB = {"Cargo.toml": "[package]", "tests/a.rs": "", "Makefile": "lint:\n\ttrue\n"}
FOUND = json.loads("""
{"branchName": "ralph/repo", "keep": ["target/"], "checks": ["cargo test", "make lint"], "protect": ["tests/**", ".cargo/config*"]}
""")


def init(repo: Repo, *words: str) -> list[str]:
    """The lines of `ralph init`."""
    done = repo.ralph("init", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def tools(repo: Repo) -> Repo:
    """A repository where cargo, make and npm are installed."""
    for name in ("cargo", "make", "npm"):
        repo.tool(name, "true")
    return repo


GOLDEN = """{
  "$schema": ".ralph/prd.schema.json",
  "project": "repo",
  "description": "",
  "branchName": "ralph/repo",
  "setup": {
    "run": "npm ci",
    "when": [
      "package-lock.json",
      "npm-shrinkwrap.json",
      "package.json",
      ".npmrc",
      "patches/**"
    ]
  },
  "checks": ["npm run lint", "npm test"],
  "protect": ["*.test.*", "vitest.config.*", "vitest.workspace.*", ".npmrc"],
  "userStories": [
    {
      "id": "US-001",
      "title": "One small thing, done in one session",
      "description": "What is to be built, and why.",
      "acceptanceCriteria": ["What must be true when it is done"],
      "checks": [],
      "priority": 1,
      "passes": false
    }
  ]
}
"""
"""As prettier writes it."""
RULES = "- Set up a fresh checkout with `npm ci`.\n- Before you end, run `npm run lint`.\n- Before you end, run `npm test`.\n"


@pytest.fixture
def written(tools: Repo) -> Repo:
    """A repository after `ralph init`."""
    project(
        tools.path,
        '{"scripts": {"lint": "x .", "test": "node a.test.js"}, "a.test.js": ""}',
    )
    init(tools)
    return tools


def test_what_it_writes_is_formatted_and_is_never_overwritten(written: Repo) -> None:
    names = ("prd.json", "AGENTS.md", ".gitignore", ".ralph/prd.schema.json")
    first = [written.read(name) for name in names]
    assert first[0] == GOLDEN
    assert first[1].endswith("-->\n\n" + RULES)
    assert init(written)[0] == "prd.json already exists; left as it is"
    assert [written.read(name) for name in names] == first


def test_editors_get_the_schema_that_a_plan_names(written: Repo) -> None:
    plan = json.loads(written.read("prd.json"))
    schema = written.path / plan["$schema"]
    schema.write_text("{}")  # that of another version
    init(written)
    known = jsonschema.Draft202012Validator(json.loads(schema.read_text()))
    assert known.is_valid(plan)
    assert not known.is_valid(plan | {"checks": 7})
    assert not written.git("ls-files", "--others", "--exclude-standard", ".ralph")


@cases("""
    own                                                                                   added
    {}                                                                                    branchName keep checks protect
    {"branchName": "x", "checks": ["true"]}                                               keep protect
    {"checks": [], "protect": []}                                                         branchName keep checks
    {"branchName": "x", "setup": "make", "checks": ["true"], "protect": "x"}              -
    {"branchName": "x", "setup": {"run": "make", "when": ["a"]}, "protect": "x"}          keep checks
""")
def test_a_plan_gets_what_it_does_not_say(tools: Repo, own: str, added: str) -> None:
    lay(tools.path, LIB)
    plan = json.loads(PLAN % "") | json.loads(own)
    tools.write("prd.json", json.dumps(plan))
    said = init(tools)
    lines = []
    for key in added.split():
        told = FOUND[key] if key == "branchName" else ", ".join(FOUND[key])
        lines.append(f"  {key}: {told}")
    if added:
        assert said[0] == "added to prd.json, and changed nothing else"
        assert said[1 : 1 + len(lines)] == lines
    wanted = plan | {key: FOUND[key] for key in added.split()}
    assert json.loads(tools.read("prd.json")) == wanted
    assert init(tools)[0] == "prd.json already exists; left as it is"


def test_a_plan_that_has_run_keeps_its_branch(tools: Repo) -> None:
    tools.write("prd.json", PLAN % "")
    tools.write("progress.txt", "")
    init(tools)
    assert "branchName" not in tools.read("prd.json")


def test_local_settings_are_named_for_the_checkouts(repo: Repo) -> None:
    ignored = "web/.env.local .env .env.example .claude/settings.local.json .claude/skills/a/b.md .claude/worktrees/x .codex/config.toml .mcp.json CLAUDE.local.md node_modules/x/.env.test .env.d/bin/python"
    project(repo.path, f"{ignored} .env.tracked .gemini/settings.json")
    lines = ".env .env.local .env.d/ .env.example .claude/ .codex node_modules/ .mcp.json *.local.md"
    repo.write(".gitignore", lines.replace(" ", "\n"))
    names = [
        ".claude/settings.local.json",
        ".claude/skills",
        ".codex/config.toml",
        ".env",
        ".env.local",
        ".mcp.json",
        "CLAUDE.local.md",
    ]
    printed = init(repo)
    said = f"wrote .worktreeinclude: agents and checks get copies of {', '.join(names)}"
    assert said in printed
    assert "add .gitignore .worktreeinclude AGENTS.md prd.json &&" in printed[-1]
    assert repo.read(".worktreeinclude").splitlines() == names
    repo.write(".worktreeinclude", "# mine\n.env*\n.claude/\n.codex/\n")
    init(repo)
    assert repo.read(".worktreeinclude") == "# mine\n.env*\n.claude/\n.codex/\n"
    assert local_settings(repo.path) == [".mcp.json", "CLAUDE.local.md"]


# ---------------------------------------------------------------- what it says to do next


def said(repo: Repo, *words: str) -> list[str]:
    """The lines of `ralph init` that say what to do."""
    return [line for line in init(repo, *words) if line[:6] in ("next: ", "then: ")]


def test_next_in_an_empty_folder_and_until_the_plan_runs(folder: Repo) -> None:
    (folder.path / "a.txt").unlink()
    assert "git init && ralph init" in folder.ralph("init").stderr
    folder.git("init", "-q", "-b", "work")
    folder.git("config", "user.email", "test@example.invalid")
    folder.git("config", "user.name", "Test")
    assert said(folder) == [EDIT.format("prd.json"), f"then: {START}; {GO}"]
    folder.commit("start")
    assert said(folder) == [EDIT.format("prd.json"), f"then: {GO}"]
    commit = "git add prd.json && git commit -m plan"
    folder.write("prd.json", PLAN % "")
    name = 'next: name the commands that prove the work under "checks" in prd.json'
    assert said(folder) == [name, f"then: {commit}; {GO}"]
    folder.write("prd.json", PLAN % ', "checks": ["test -f T1.txt"]')
    assert said(folder) == [f"next: {commit}; {GO}"]
    folder.sh(commit)
    assert said(folder) == [f"next: {GO}"]
    assert folder.run(folder.agent("P('T1.txt').touch()"))[0] == 0
