"""`ralph init`: what it finds in a project, what it writes, and what it says to do
next."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from _ralph.commands.detect import Project
from _ralph.commands.init import local_settings, write_starters
from _ralph.git import patterns
from tests.conftest import Repo

PROGRAMS = ["bun", "bundle", "cargo", "composer", "ctest", "deno", "dotnet", "go", "golangci-lint", "gradle", "java", "make", "mix", "mvn", "npm", "pdm", "php", "pipenv", "pnpm", "poetry", "pre-commit", "python3", "ruby", "swift", "uv", "yarn"]  # fmt: skip
PROJECT = '[build-system]\nrequires = ["hatchling"]\n[project]\nname = "x"\n'
DEPS = f'{PROJECT}dependencies = ["click"]\n'
EXTRA = "[project.optional-dependencies]\n"
GROUP = "[dependency-groups]\n"
UNIT = "import unittest\n"
UV = '[[package]]\nname = "pytest"\n'
VENV = "python3 -m venv .venv && .venv/bin/pip install -q"
GROUPS = f"{VENV} 'pip>=25.1' && .venv/bin/pip install -q"
PYTEST = ".venv/bin/python -m pytest -q"
NPM = {"package-lock.json": "{}"}
BUNDLE = "bundle config set --local path vendor/bundle && bundle install"
DEV = {"vitest": "3", "eslint": "9", "typescript": "5"}


def package(test: str = "vitest run", **named: object) -> str:
    """package.json of a project with dependencies."""
    return json.dumps({"scripts": {"test": test}, "devDependencies": DEV, **named})


def scripts(**named: str) -> dict[str, str]:
    """The file of a project with these scripts."""
    return {
        "package.json": json.dumps({"scripts": named, "devDependencies": DEV}),
        **NPM,
    }


def lay(root: Path, files: dict[str, str]) -> Path:
    """A repository with these files."""
    subprocess.run(["git", "init", "-q", root], check=True)
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def only(folder: Path, monkeypatch: pytest.MonkeyPatch, programs: list[str]) -> None:
    """A PATH with git and these programs alone."""
    (folder / "bin").mkdir()
    (folder / "bin/git").symlink_to(str(shutil.which("git")))
    for name in programs:
        (folder / "bin" / name).write_text("#!/bin/sh\n")
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"))


# A project, its setup, and its checks. Of the 95 that version 0.3 was made for, these
# are not found any more: linters that only tox or a workflow names, `test:ci`,
# create-react-app, and pnpm or yarn without a lock file.
PROJECTS: dict[str, tuple[dict[str, str], str, list[str]]] = {
    "nothing": ({"README.md": "# x"}, "", []),
    "pytest in its tests only": ({"tests/test_a.py": "import pytest\n"}, f"{VENV} pytest", [PYTEST]),
    "tests at the top": ({"test_a.py": "def test_a(): ..."}, f"{VENV} pytest", [PYTEST]),
    "one file of tests": ({"setup.py": "setup()", "test.py": UNIT}, f"{VENV} -e . pytest", [f"{PYTEST} test.py"]),
    "unittest at the top": ({"test_a.py": UNIT}, "", ["python3 -m unittest discover"]),
    "unittest in a package": ({"tests/__init__.py": "", "tests/test_a.py": UNIT}, "", ["python3 -m unittest discover"]),
    "unittest in a folder": ({"tests/test_a.py": UNIT}, "", ["python3 -m unittest discover -s tests"]),
    "unittest and a dependency": ({"pyproject.toml": DEPS, "tests/test_a.py": UNIT}, f"{VENV} -e .", [".venv/bin/python -m unittest discover -s tests"]),
    "unittest and pytest": ({"test_a.py": UNIT, "test_b.py": "import pytest"}, f"{VENV} pytest", [PYTEST]),
    "a src layout": ({"pyproject.toml": PROJECT, "src/x/__init__.py": "", "tests/test_a.py": ""}, f"{VENV} -e . pytest", [PYTEST]),
    "an extra for tests": ({"pyproject.toml": f'{DEPS}{EXTRA}docs = ["sphinx"]\ntest = ["x"]\n', "test_a.py": ""}, f"{VENV} -e '.[test]' pytest", [PYTEST]),
    "an extra, dotted": ({"pyproject.toml": f'{DEPS}optional-dependencies.tests = ["pytest"]\n'}, f"{VENV} -e '.[tests]' pytest", [PYTEST]),
    "extras of tox": ({"pyproject.toml": f'{DEPS}{EXTRA}socks = []\nhttp2 = []\ndocs = []\n', "tox.ini": "[testenv]\ndeps = pytest\nextras =\n  socks\n  http2\n"}, f"{VENV} -e '.[socks,http2]' pytest", [PYTEST]),
    "an extra of a workflow": ({"pyproject.toml": f'{DEPS}{EXTRA}ci = ["pytest"]\n', ".github/workflows/a.yml": 'run: pip install -e ".[ci]"\n'}, f"{VENV} -e '.[ci]' pytest", [PYTEST]),
    "a group for tests": ({"pyproject.toml": f'{DEPS}{GROUP}dev = ["pytest"]\n'}, f"{GROUPS} --group dev -e . pytest", [PYTEST]),
    "groups without a package": ({"pyproject.toml": f'{GROUP}docs = ["sphinx"]\ntests = ["pytest"]\n'}, f"{GROUPS} --group tests pytest", [PYTEST]),
    "setup.py": ({"setup.py": 'setup(extras_require={"dev": ["pytest"], "x": []})'}, f"{VENV} -e '.[dev]' pytest", [PYTEST]),
    "setup.cfg": ({"setup.py": "", "setup.cfg": "[options]\n[options.extras_require]\ntests =\n  pytest\n[tool:pytest]\ntestpaths =\n  a\n"}, f"{VENV} -e '.[tests]' pytest", [PYTEST]),
    "requirements": ({"requirements.txt": "flask\npytest\n", "tests/test_a.py": ""}, f"{VENV} -r requirements.txt", [PYTEST]),
    "requirements without pytest": ({"requirements.txt": "flask\n", "tests/test_a.py": ""}, f"{VENV} -r requirements.txt pytest", [PYTEST]),
    "requirements of two kinds": ({"requirements.txt": "flask\n", "requirements-dev.txt": "pytest==8\n", "requirements-docs.txt": ""}, f"{VENV} -r requirements-dev.txt -r requirements.txt", [PYTEST]),
    "requirements in a folder": ({"requirements/base.txt": "flask\n", "requirements/test.txt": "-r base.txt\npytest\n"}, f"{VENV} -r requirements/test.txt", [PYTEST]),
    "all in pyproject": ({"pyproject.toml": "[tool.pytest.ini_options]\n[tool.ruff]\n[tool.mypy]\n"}, f"{VENV} pytest", [PYTEST]),
    "linters that nothing runs": ({"pyproject.toml": "[tool.mypy]\n[tool.ruff]\n"}, "", []),
    "files of their own": ({"pytest.ini": "[pytest]", "ruff.toml": "", "mypy.ini": ""}, f"{VENV} pytest", [PYTEST]),
    "a pyproject that is broken": ({"pyproject.toml": "[tool.pytest"}, f"{VENV} pytest", [PYTEST]),
    "a pyproject of another shape": ({"pyproject.toml": "project = 1\ntool = 2\ndependency-groups = 'pytest'\n"}, f"{VENV} pytest", [PYTEST]),
    "uv": ({"pyproject.toml": f"{GROUP}dev = ['pytest']", "uv.lock": UV}, "uv sync --locked --group dev", ["uv run python -m pytest -q"]),
    "uv, another group and an extra": ({"pyproject.toml": f'{DEPS}{EXTRA}dev = ["x"]\n{GROUP}docs = ["x"]\ntest = ["pytest"]\n', "uv.lock": UV}, "uv sync --locked --group test --extra dev", ["uv run python -m pytest -q"]),
    "uv, the older list": ({"pyproject.toml": '[tool.uv]\ndev-dependencies = ["pytest"]\n', "uv.lock": UV}, "uv sync --locked", ["uv run python -m pytest -q"]),
    "uv, unittest": ({"pyproject.toml": DEPS, "uv.lock": "", "test_a.py": UNIT}, "uv sync --locked", ["uv run python -m unittest discover"]),
    "uv, a workspace": ({"pyproject.toml": f'{GROUP}dev = ["pytest"]\n[tool.uv.workspace]\n', "uv.lock": UV}, "uv sync --locked --group dev --all-packages", ["uv run python -m pytest -q"]),
    "poetry": ({"pyproject.toml": "[tool.poetry.group.dev.dependencies]\npytest = '*'", "poetry.lock": UV}, "poetry install --with dev", ["poetry run python -m pytest -q"]),
    "poetry, a group that is optional": ({"pyproject.toml": "[tool.poetry.group.test]\noptional = true\n[tool.poetry.group.test.dependencies]\npytest = '*'", "poetry.lock": UV}, "poetry install --with test", ["poetry run python -m pytest -q"]),
    "pdm": ({"pyproject.toml": f'{DEPS}{EXTRA}test = ["pytest"]\n', "pdm.lock": UV}, "pdm sync -G test", ["pdm run python -m pytest -q"]),
    "pipenv": ({"Pipfile": "", "Pipfile.lock": '{"develop": {"pytest": {}}}', "test_a.py": ""}, "pipenv sync --dev", ["pipenv run python -m pytest -q"]),
    "a .venv": ({"pyproject.toml": "[tool.pytest.ini_options]\n", ".venv/bin/pytest": ""}, f"{VENV} pytest", [PYTEST]),
    "poetry's groups without its lock": ({"pyproject.toml": f"{PROJECT}dependencies = []\n[tool.poetry.group.dev.dependencies]\npytest = '*'"}, f"{VENV} -e . pytest", [PYTEST]),
    "pre-commit": ({".pre-commit-config.yaml": "", "requirements.txt": "pytest\n"}, f"{VENV} -r requirements.txt", [PYTEST, "pre-commit run --all-files"]),
    "pre-commit, elsewhere": ({".pre-commit-config.yaml": "", "go.mod": ""}, "", ["pre-commit run --all-files", "go test ./..."]),
    "linters of a workflow": ({".github/workflows/ci.yml": "- run: ruff check .\n", "requirements.txt": "pytest\n"}, f"{VENV} -r requirements.txt", [PYTEST]),
    "django": ({"manage.py": "", "shop/tests.py": ""}, "", ["python3 manage.py test"]),
    "django with requirements": ({"manage.py": "", "requirements.txt": "django\n"}, f"{VENV} -r requirements.txt", [".venv/bin/python manage.py test"]),
    "django with pytest": ({"manage.py": "", "pytest.ini": "[pytest]"}, f"{VENV} pytest", [PYTEST]),
    "npm": (scripts(build="vite build", typecheck="tsc --noEmit", lint="eslint .", test="vitest run"), "npm ci", ["npm run typecheck", "npm run lint", "npm test"]),
    "npm, the older lock": ({"package.json": package(), "npm-shrinkwrap.json": "{}"}, "npm ci", ["npm test"]),
    "npm, a build that tests need": (scripts(test="vitest run", lint="eslint .", build="tsc -b"), "npm ci", ["npm run build", "npm run lint", "npm test"]),
    "npm, workspaces": ({"package.json": '{"workspaces": ["a"]}', **NPM}, "npm ci", []),
    "npm, no lock": ({"package.json": package()}, "npm install --no-package-lock", ["npm test"]),
    "npm, no dependencies": ({"package.json": '{"scripts": {"test": "node a.js"}}'}, "", ["npm test"]),
    "npm, the test that npm init writes": (scripts(test='echo "Error: no test specified" && exit 1'), "npm ci", []),
    "npm, a test that never ends": (scripts(test="jest --watch", lint="eslint ."), "npm ci", ["npm run lint"]),
    "npm, check is something else": (scripts(check="svelte-check", test="vitest run"), "npm ci", ["npm run check", "npm test"]),
    "npm, check is all of them": (scripts(check="npm run lint && npm test", test="jest"), "npm ci", ["npm test"]),
    "npm, a test of other scripts": (scripts(test="npm run lint && npm run unit", lint="eslint .", unit="vitest run"), "npm ci", ["npm run lint", "npm run unit"]),
    "npm, a test of programs": (scripts(test="eslint . && tsc && node a.js"), "npm ci", ["npx eslint .", "npx tsc", "node a.js"]),
    "npm, a test with one before": (scripts(pretest="npm run lint", lint="eslint .", test="vitest run"), "npm ci", ["npm run lint", "npx vitest run"]),
    "npm, a test for the shell": (scripts(test="cd a && vitest run", lint="eslint . | cat && tsc"), "npm ci", ["npm run lint", "npm test"]),
    "npm, a test of itself": (scripts(test="npm test"), "npm ci", ["npm test"]),
    "pnpm": ({"package.json": package("pnpm lint && vitest run", packageManager="pnpm@10"), "pnpm-lock.yaml": ""}, "pnpm install --frozen-lockfile", ["pnpm run test"]),
    "pnpm, a workspace": ({"package.json": "{}", "pnpm-lock.yaml": "", "pnpm-workspace.yaml": ""}, "pnpm install --frozen-lockfile", []),
    "pnpm, no lock": ({"package.json": package(packageManager="pnpm@9.1.0")}, "", []),
    "yarn": ({"package.json": package(), "yarn.lock": "__metadata:\n  version: 8\n"}, "yarn install --immutable", ["yarn run test"]),
    "yarn 1": ({"package.json": package(), "yarn.lock": "# yarn lockfile v1\n"}, "yarn install --frozen-lockfile", ["yarn run test"]),
    "bun": ({"package.json": package(), "bun.lock": ""}, "bun install --frozen-lockfile", ["bun run test"]),
    "a package manager that nobody knows": ({"package.json": package(packageManager="rm -rf@1"), **NPM}, "npm ci", ["npm test"]),
    "package.json that is broken": ({"package.json": "{"}, "", []),
    "package.json of another shape": ({"package.json": '["x"]'}, "", []),
    "package.json with odd scripts": ({"package.json": '{"scripts": ["x"], "dependencies": []}'}, "", []),
    "rust": ({"Cargo.toml": "[package]", "Cargo.lock": ""}, "", ["cargo test"]),
    "rust, a workspace": ({"Cargo.toml": "[workspace]\nmembers = ['a']\n", "a/src/lib.rs": ""}, "", ["cargo test"]),
    "rust and a Makefile": ({"Cargo.toml": "[package]", "Makefile": "test:\n\tcargo test\nlint:\n\tcargo clippy\n"}, "", ["cargo test", "make lint"]),
    "go": ({"go.mod": "module x", ".golangci.yml": ""}, "", ["go test ./...", "golangci-lint run"]),
    "gradle": ({"gradlew": "", "build.gradle.kts": ""}, "", ["./gradlew check"]),
    "gradle without a wrapper": ({"build.gradle": ""}, "", ["gradle check"]),
    "maven": ({"pom.xml": ""}, "", ["mvn -q verify"]),
    "dotnet": ({"shop.sln": "", "shop.csproj": ""}, "", ["dotnet test"]),
    "elixir": ({"mix.exs": "defp deps, do: []"}, "", ["mix test"]),
    "elixir, dependencies": ({"mix.exs": 'defp deps do\n[{:jason, "~> 1.4"}]\n'}, "mix deps.get", ["mix test"]),
    "ruby": ({".rspec": "--require x\n", "Gemfile": "source 'x'\ngem 'x'\n", "Rakefile": ""}, BUNDLE, ["bundle exec rspec"]),
    "ruby, rspec in the Gemfile": ({"Gemfile": "gem 'rspec-rails'\n"}, BUNDLE, ["bundle exec rspec"]),
    "rails": ({"bin/rails": "", "Rakefile": ""}, "", ["bin/rails test"]),
    "php": ({"phpunit.xml.dist": "", "composer.json": '{"require-dev": {"phpunit/phpunit": "*"}}'}, "composer install", ["vendor/bin/phpunit"]),
    "cmake": ({"CMakeLists.txt": "enable_testing()\n"}, "", ["cmake -B build", "cmake --build build", "ctest --test-dir build"]),
    "cmake without tests": ({"CMakeLists.txt": "project(x)\n"}, "", []),
    "deno": ({"deno.jsonc": ""}, "", ["deno test"]),
    "only a Makefile": ({"Makefile": ".PHONY: test lint\nlint:\n\ttrue\ntest: lint\n\ttrue\n"}, "", ["make lint", "make test"]),
    "a Makefile with check alone": ({"Makefile": "check: build\n\t./run\n"}, "", ["make check"]),
    "a Makefile with check for all": ({"Makefile": "test:\n\ttrue\ncheck: test\n"}, "", ["make test"]),
    "a Makefile of variables": ({"Makefile": "test := x\nlint = y\ntest-all:\n\ttrue\nmy-lint:\n\ttrue\n"}, "", []),
    "a Makefile, two targets a rule": ({"Makefile": "lint test:\n\ttrue\n"}, "", ["make lint", "make test"]),
    "a Makefile beside npm": ({**scripts(test="jest"), "Makefile": "test:\n\tnpm test\ntypecheck:\n\tnpx tsc\n"}, "npm ci", ["npm test", "make typecheck"]),
    "two languages": ({"pyproject.toml": DEPS, "test_a.py": "", "package.json": package(), **NPM, "go.mod": ""}, f"{VENV} -e . pytest && npm ci", [PYTEST, "npm test", "go test ./..."]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROJECTS)
def test_setup_and_checks_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    only(tmp_path, monkeypatch, PROGRAMS)
    files, setup, wanted = PROJECTS[name]
    found = Project(lay(tmp_path / "repo", files))
    run = found.setup.run if found.setup else ""
    assert (run, [check.name for check in found.checks(run)]) == (setup, wanted)


def test_nothing_is_proposed_whose_program_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(tmp_path, monkeypatch, ["python3"])
    files = {"uv.lock": "", "test_a.py": "", "go.mod": "", "mvnw": "", "yarn.lock": ""}
    found = Project(lay(tmp_path / "repo", {**files, "package.json": package()}))
    assert (found.setup, found.checks("")) == (None, [])
    assert {"uv", "go", "java", "yarn"} <= set(found.absent)


def test_checks_follow_a_setup_of_ones_own(tmp_path: Path) -> None:
    lay(tmp_path, {"tests/test_a.py": ""})
    for setup, command in (("", "python3 -m pytest -q"), ("make .venv", PYTEST)):
        (check,) = Project(tmp_path).checks(setup)
        assert check.name == command


VITEST = "--reporter=default --reporter=junit --outputFile.junit=$RALPH_RESULTS"
JEST = "JEST_JUNIT_OUTPUT_FILE=$RALPH_RESULTS JEST_JUNIT_CLASSNAME={filepath} JEST_JUNIT_REPORT_TEST_SUITE_ERRORS=true npm test -- --reporters=default --reporters=jest-junit"
NODE = "--test --test-reporter=spec --test-reporter-destination=stdout --test-reporter=junit --test-reporter-destination=$RALPH_RESULTS"
GOTESTSUM = "gotestsum --junitfile=$RALPH_RESULTS -- ./..."
NEXTEST = (
    "mkdir -p $RALPH_RESULTS && echo \"profile.default.junit.path = '$RALPH_RESULTS/junit.xml'\" > $RALPH_RESULTS/nextest.toml"
    " && cargo nextest run --no-fail-fast --tool-config-file ralph:$RALPH_RESULTS/nextest.toml"
)
MAVEN = (
    "find . -path '*/surefire-reports/*' -delete; mvn -q -fae verify; status=$?; mkdir -p $RALPH_RESULTS;"
    " find . -path '*/surefire-reports/TEST-*.xml' -exec cp {} $RALPH_RESULTS ';'; exit $status"
)
CARGO = {"Cargo.toml": "[package]", "src/lib.rs": ""}
JUNIT = {
    "package.json": package("jest", devDependencies={"jest": "30", "jest-junit": "17"}),
    **NPM,
}

# What is there, a program more, and the commands: the one that reports single tests
# in place of the plain one, where the runner can.
REPORTS: dict[str, tuple[dict[str, str], str, list[str]]] = {
    "pytest": ({"test_a.py": "import pytest\n"}, "", [f"{PYTEST} --continue-on-collection-errors --junitxml=$RALPH_RESULTS"]),
    "unittest": ({"test_a.py": UNIT}, "", ["python3 -m unittest discover"]),
    "vitest": (scripts(test="TZ=UTC vitest run src"), "", [f"npm test -- {VITEST}"]),
    "vitest with pnpm": ({"package.json": package(), "pnpm-lock.yaml": ""}, "", [f"pnpm run test {VITEST}"]),
    "vitest, one of two": (scripts(test="eslint . && vitest run"), "", ["npx eslint .", f"npx vitest run {VITEST}"]),
    "vitest before something": (scripts(test="vitest run; echo done"), "", ["npm test"]),
    "something like vitest": (scripts(test="vitest-preview"), "", ["npm test"]),
    "jest": (JUNIT, "", [JEST]),
    "jest without its reporter": (scripts(test="jest"), "", ["npm test"]),
    "mocha": (scripts(test="nyc mocha test/"), "", ["npm test -- --reporter xunit --reporter-option output=$RALPH_RESULTS"]),
    "node": (scripts(test="node --import tsx --test 'a/*.ts'"), "", [f"node --import tsx {NODE} 'a/*.ts'"]),
    "node, another program": (scripts(test="node --test-only.js"), "", ["npm test"]),
    "nextest": (CARGO, "cargo-nextest", [NEXTEST, "cargo test --doc"]),
    "nextest reports elsewhere": ({**CARGO, ".config/nextest.toml": "[profile.default.junit]\n"}, "cargo-nextest", ["cargo test"]),
    "go, a tool": ({"go.mod": "tool (\n\tx\n\tgotest.tools/gotestsum\n)\n"}, "", [f"go tool {GOTESTSUM}"]),
    "go, no tool": ({"go.mod": "require gotest.tools/gotestsum v1.12.0\n"}, "", ["go test ./..."]),
    "gotestsum": ({"go.mod": "module x\n"}, "gotestsum", [GOTESTSUM]),
    "maven": ({"pom.xml": ""}, "", [MAVEN]),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTS)
def test_checks_report_single_tests_where_the_runner_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    files, program, commands = REPORTS[name]
    only(tmp_path, monkeypatch, [*PROGRAMS, *program.split()])
    found = Project(lay(tmp_path / "repo", files))
    checks = found.checks(found.setup.run if found.setup else "")
    assert [check.command for check in checks] == commands
    for check in checks:
        assert bool(check.results) == ("$RALPH_RESULTS" in check.command)


PIP = ("pyproject.toml", "setup.py", "setup.cfg", "*requirements*.txt", "requirements/**", "constraints*.txt")  # fmt: skip
LOCK = ("package-lock.json", "npm-shrinkwrap.json", "package.json", ".npmrc", "patches/**")  # fmt: skip

# What a setup depends on; nothing, where it runs code of the project.
DEPENDS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "npm, husky": (scripts(prepare="husky && patch-package"), LOCK),
    "npm, husky of old": (scripts(prepare="husky install || true"), LOCK),
    "npm, a generator": (scripts(prepare="husky && npm run build"), ()),
    "npm, one that begins like husky": (scripts(postinstall="husky.sh"), ()),
    "npm, of a member": ({"package.json": package(), "a/package.json": scripts(install="gen")["package.json"], **NPM}, ()),
    "npm, prisma": ({"package.json": package(dependencies={"@prisma/client": "5"}), **NPM}, ()),
    "npm, an addon": ({"package.json": package(), "binding.gyp": "{}", **NPM}, ()),
    "pip, the project": ({"pyproject.toml": f'{DEPS}dynamic = ["version"]\n[tool.hatch.build.hooks.vcs]\n'}, PIP),
    "pip, an extension in C": ({"setup.py": "setup(ext_modules=[])"}, ()),
    "pip, Rust": ({"pyproject.toml": DEPS.replace("hatchling", "maturin")}, ()),
    "pip, a generator": ({"pyproject.toml": f"{DEPS}[tool.hatch.build.hooks.custom]\n"}, ()),
    "uv": ({"pyproject.toml": DEPS, "uv.lock": UV}, ("uv.lock", "uv.toml", ".python-version", "pyproject.toml")),
    "php": ({"composer.json": '{"require": {}}'}, ("composer.json", "composer.lock")),
    "php, scripts": ({"composer.json": '{"require": {}, "scripts": {"post-autoload-dump": "x"}}'}, ()),
    "two, one of them with scripts": ({"requirements.txt": "flask\n", **scripts(prepare="tsc")}, ()),
}  # fmt: skip


@pytest.mark.parametrize("name", DEPENDS)
def test_what_a_setup_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    only(tmp_path, monkeypatch, PROGRAMS)
    files, wanted = DEPENDS[name]
    setup = Project(lay(tmp_path / "repo", files)).setup
    assert setup and setup.when == wanted
    assert not patterns.matching(wanted, ["src/a.py", "docs/notes.txt"])


MISE = "mise.toml .mise.toml mise/config.toml .mise/config.toml .config/mise.toml .config/mise/mise.toml .config/mise/config.toml .config/mise/conf.d/a.toml"


@pytest.mark.parametrize("file", [".envrc", *MISE.split()])
def test_what_a_person_trusts_is_trusted_in_each_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    only(tmp_path, monkeypatch, ["npm", "mise", "direnv"])
    root = lay(tmp_path / "repo", {file: "", "package.json": package(), **NPM})
    setup = Project(root).setup
    trust = "mise trust" if "mise" in file else "direnv allow ."
    assert setup and setup.run == f"{trust} && npm ci"
    assert patterns.matching(setup.when, [file]) == {file}
    lay(root, {".gitignore": f"{file}\n"})
    setup = Project(root).setup
    assert setup and setup.run == "npm ci", "no checkout has it"


PYTEST_FILES = ["conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini"]  # fmt: skip
PROTECTED: dict[str, tuple[dict[str, str], list[str]]] = {
    "nothing": ({"a.txt": ""}, []),
    "pytest": ({"tests/test_a.py": ""}, ["tests/**", *PYTEST_FILES]),
    "tests beside the code": ({"src/a.test.ts": "", "src/b.spec.tsx": ""}, ["*.test.*", "*.spec.*"]),
    "tests in folders of packages": ({"packages/a/tests/a.js": "", "packages/b/test/b.js": ""}, ["**/tests/**", "**/test/**"]),
    "a test at the top": ({"test.js": "", "index.test-d.ts": ""}, ["test.*", "*.test-d.*"]),
    "tests of go": ({"a_test.go": "", "go.sum": ""}, ["*_test.*"]),
    "tests of java": ({"src/test/java/ATest.java": ""}, ["**/test/**"]),
    "apps of django": ({"manage.py": "", "shop/tests.py": ""}, ["**/tests.py"]),
    "before it is there": ({"package.json": package(), **NPM, "Cargo.toml": ""}, [".npmrc", "vitest.config.*", "vitest.workspace.*", ".cargo/config.toml", ".cargo/config"]),
    "CI": ({".github/workflows/ci.yml": "", ".husky/pre-commit": ""}, [".github/**", ".husky/**"]),
}  # fmt: skip


@pytest.mark.parametrize("name", PROTECTED)
def test_protection_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    only(tmp_path, monkeypatch, PROGRAMS)
    files, wanted = PROTECTED[name]
    root = lay(tmp_path / "repo", files)
    lay(root, {"node_modules/x/tests/a.test.js": "", ".gitignore": "node_modules\n"})
    assert Project(root).protect == wanted
    assert patterns.uncovered_tests(wanted, files) == []
    assert [patterns.normal(pattern, "here") for pattern in wanted] == wanted


@pytest.mark.parametrize("name", ["Makefile", "package.json", "pyproject.toml", "uv.lock", "tests"])  # fmt: skip
@pytest.mark.parametrize("odd", ["folder", "dangling link", "bytes"])
def test_odd_files_are_no_project(tmp_path: Path, name: str, odd: str) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    path = tmp_path / name
    if odd == "folder":
        path.mkdir()
    elif odd == "bytes":
        path.write_bytes(bytes(range(256)))
    else:
        path.symlink_to("nowhere")
    found = Project(tmp_path)
    assert (found.checks(""), found.setup) == ([], None)


def test_it_looks_where_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(tmp_path, monkeypatch, PROGRAMS)
    files = {"packages/ui/package.json": package(), "packages/ui/e2e/a.js": "", "web/package.json": package(), "web/package-lock.json": "{}", "web/tests/a.test.js": "", "a b/Package.swift": ""}  # fmt: skip
    root = lay(tmp_path / "repo", {"package.json": '{"workspaces": ["packages/*"]}', **NPM, **files})  # fmt: skip
    member, web, swift = (Project(root, name) for name in ("packages/ui", "web", "a b"))
    assert member.setup and member.setup.run == "npm ci"
    assert "packages/ui/e2e/**" in member.protect
    assert web.setup and web.setup.run == "cd web && npm ci"
    assert web.setup.when == (*LOCK[:4], "web/patches/**")
    names = [project.checks("")[0].name for project in (member, web, swift)]
    assert names == ["cd packages/ui && npm test", "cd web && npm test", "cd 'a b' && swift test"]  # fmt: skip
    assert web.checks("")[0].command == f"cd web && npm test -- {VITEST}"


# ---------------------------------------------------------------- what it writes

EDIT = "next: edit {}: the tasks, and the checks that prove them. Or write what you want into brief.md, and after the commit: ralph plan brief.md"
COMMIT = "git add prd.json AGENTS.md .gitignore && git commit -m plan"
START = "git add -A && git commit -m start"
GO = "ralph doctor; ralph run"
PLAN = '{"userStories": [{"id": "A", "title": "a"%s}]}'
LIB = {"Cargo.toml": "[package]", "tests/a.rs": "", "Makefile": "lint:\n\ttrue\n"}
FOUND = {"branchName": "ralph/repo", "keep": ["target/"], "checks": ["cargo test", "make lint"], "protect": ["tests/**", ".cargo/config.toml", ".cargo/config"]}  # fmt: skip
WORDS = ["  branchName: ralph/repo", "  keep: target/", "  checks: cargo test, make lint", "  protect: tests/**, .cargo/config.toml, .cargo/config"]  # fmt: skip


def init(repo: Repo, *words: str) -> list[str]:
    """The lines of `ralph init`."""
    done = repo.ralph("init", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def tools(repo: Repo) -> Repo:
    """A repository where cargo and make are installed."""
    for name in ("cargo", "make", "npm"):
        repo.tool(name, "true")
    return repo


def test_a_new_plan_says_what_was_found(tools: Repo) -> None:
    lay(tools.path, LIB)
    assert init(tools)[:5] == ["wrote prd.json", *WORDS]
    plan = json.loads(tools.read("prd.json"))
    assert [*plan] == ["$schema", "project", "description", *FOUND, "userStories"]
    assert {key: plan[key] for key in FOUND} == FOUND


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
  "protect": ["*.test.*", ".npmrc", "vitest.config.*", "vitest.workspace.*"],
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
    lay(tools.path, {**scripts(lint="x .", test="node a.test.js"), "a.test.js": ""})
    init(tools)
    return tools


def test_what_it_writes_is_formatted_and_is_never_overwritten(written: Repo) -> None:
    names = ("prd.json", "AGENTS.md", ".gitignore", ".ralph/prd.schema.json")
    first = [written.read(name) for name in names]
    assert first[0] == GOLDEN and first[1].endswith("-->\n\n" + RULES)
    assert init(written)[0] == "prd.json already exists; left as it is"
    assert [written.read(name) for name in names] == first


@pytest.mark.parametrize("program", ["prettier --check prd.json", "prettier --check AGENTS.md", "markdownlint AGENTS.md"])  # fmt: skip
def test_formatters_find_nothing_in_it(tools: Repo, program: str) -> None:
    words = shlex.split(program)
    if not shutil.which(words[0]):
        pytest.skip(f"{words[0]} is not installed here")
    many = [f"requirements-dev-{number}.txt" for number in range(9)]  # a long setup
    lay(tools.path, {**dict.fromkeys(many, "x"), **scripts(lint="x .", test="vitest")})
    init(tools)
    tools.ralph("add", "one", "--check", "true")
    plan = tools.read("prd.json").replace('"passes": false', '"passes": true')
    tools.write("prd.json", plan)
    subprocess.run(words, cwd=tools.path, check=True)


def test_editors_get_the_schema_that_a_plan_names(written: Repo) -> None:
    plan = json.loads(written.read("prd.json"))
    schema = written.path / plan["$schema"]
    for old in (None, "{}"):  # a clone has none, an earlier version another
        schema.unlink() if old is None else schema.write_text(old)
        init(written)
        found = jsonschema.Draft202012Validator(json.loads(schema.read_text()))
        assert found.is_valid(plan) and not found.is_valid(plan | {"checks": 7})
    assert not written.git("ls-files", "--others", "--exclude-standard", ".ralph")
    written.plan({}, checks=["true"])
    schema.unlink()
    init(written)
    assert not schema.exists()  # that plan does not name it


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ({}, "branchName keep checks protect"),
        ({"branchName": "x", "checks": ["true"]}, "keep protect"),
        ({"checks": [], "protect": []}, "branchName keep checks"),
        ({"branchName": "x", "setup": "make", "checks": ["true"], "protect": "x"}, ""),
        ({"branchName": "x", "setup": {"run": "make", "when": ["a"]}, "protect": "x"}, "keep checks"),
    ],
)  # fmt: skip
def test_a_plan_gets_what_it_does_not_say(
    tools: Repo, own: dict[str, object], added: str
) -> None:
    lay(tools.path, LIB)
    plan = json.loads(PLAN % "") | own
    tools.write("prd.json", json.dumps(plan))
    said = init(tools)
    if added:
        lines = [line for line in WORDS if line.split(":")[0].strip() in added.split()]
        assert said[: 1 + len(lines)] == ["added to prd.json, and changed nothing else", *lines]  # fmt: skip
    wanted = plan | {key: FOUND[key] for key in added.split()}
    assert json.loads(tools.read("prd.json")) == wanted
    assert init(tools)[0] == "prd.json already exists; left as it is"


def test_a_plan_that_has_run_keeps_its_branch(tools: Repo) -> None:
    tools.write("prd.json", PLAN % "")
    tools.write("progress.txt", "")
    init(tools)
    assert "branchName" not in tools.read("prd.json")


def test_a_new_plan_is_filled_in_once_there_is_a_project(tools: Repo) -> None:
    init(tools)
    lay(tools.path, LIB)
    init(tools)
    plan = json.loads(tools.read("prd.json"))
    assert {key: plan[key] for key in FOUND} == FOUND


def test_local_settings_are_named_for_the_checkouts(repo: Repo) -> None:
    ignored = "web/.env.local .env .env.example .claude/settings.local.json .claude/skills/a/b.md .claude/worktrees/x .mcp.json CLAUDE.local.md node_modules/x/.env.test .env.d/bin/python"
    lay(repo.path, dict.fromkeys([*ignored.split(), ".env.tracked"], "secret"))
    repo.write(".gitignore", ".env\n.env.local\n.env.d/\n.env.example\n.claude/\nnode_modules/\n.mcp.json\n*.local.md\n")  # fmt: skip
    names = [".claude/settings.local.json", ".claude/skills", ".env", ".env.local", ".mcp.json", "CLAUDE.local.md"]  # fmt: skip
    lines = init(repo)
    said = f"wrote .worktreeinclude: agents and checks get copies of {', '.join(names)}"
    assert said in lines
    assert "add prd.json AGENTS.md .gitignore .worktreeinclude &&" in lines[-1]
    assert repo.read(".worktreeinclude").splitlines() == names
    repo.write(".worktreeinclude", "# mine\n.env*\n.claude/\n")
    init(repo)
    assert repo.read(".worktreeinclude") == "# mine\n.env*\n.claude/\n"
    assert local_settings(repo.path) == [".mcp.json", "CLAUDE.local.md"]


def test_of_claude_only_what_git_ignores_is_named(repo: Repo) -> None:
    repo.write(".gitignore", "*.local.json\n.env.example\n")
    lay(repo.path, {".claude/settings.json": "", ".env.example": "", ".env": ""})
    assert local_settings(repo.path) == []
    lay(repo.path, {".claude/settings.local.json": ""})
    assert local_settings(repo.path) == [".claude/settings.local.json"]


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
    subprocess.run(commit, shell=True, cwd=folder.path, env=folder.env, check=True)
    assert said(folder) == [f"next: {GO}"]
    assert folder.run(folder.agent("P('T1.txt').touch()"))[0] == 0


def test_next_for_a_list_whose_tasks_need_checks(tools: Repo) -> None:
    tools.write("prd.json", '[{"title": "a"}]')
    tools.write("Makefile", "test:\n\ttrue\n")
    assert said(tools)[0].endswith('under "checks" in the tasks of prd.json')
    assert tools.read("prd.json") == '[{"title": "a"}]'


def test_what_git_ignores_is_not_to_be_added(repo: Repo) -> None:
    repo.write(".gitignore", "prd.json\nprogress.txt\n")
    repo.write("prd.json", PLAN % ', "checks": ["true"]')
    commit = "git add AGENTS.md .gitignore && git commit -m plan"
    assert said(repo) == [f"next: {commit}; {GO}"]


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
    commit, doctor, run = last.removeprefix("next: ").split("; ")
    assert shlex.quote(path.name) in commit
    subprocess.run(commit, shell=True, cwd=repo.path, env=repo.env, check=True)
    assert said(repo, "--prd", where) == [f"next: {doctor}; {run}"]
    words = shlex.split(run)[1:]
    assert repo.ralph(*words, "--agent", repo.agent("P('x').touch()")).returncode == 0


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    plan = tmp_path / os.fsdecode(b"p\xff") / "prd.json"
    write_starters(plan)
    assert json.loads(plan.read_text())["project"] == "p"


def test_in_a_subfolder_no_second_plan_is_made_by_mistake(repo: Repo) -> None:
    init(repo)
    (repo.path / "sub").mkdir()
    words = [sys.executable, "-m", "ralph", "init"]
    done = subprocess.run(words, cwd=repo.path / "sub", env=repo.env, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 2 and f"is {repo.path}/prd.json: " in done.stderr
    asked_for = done.stderr.rpartition(": ")[2].split()
    subprocess.run([*words, *asked_for], cwd=repo.path / "sub", env=repo.env, check=True)  # fmt: skip
    assert (repo.path / "sub/prd.json").exists()
