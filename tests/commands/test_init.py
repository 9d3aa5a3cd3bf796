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

from _ralph.commands.detect import TABLE, Project, as_json, setup_hint
from _ralph.commands.init import write_starters
from _ralph.git import patterns
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


VENV = "python3 -m venv .venv && .venv/bin/pip install -q"
GROUPS = f"{VENV} 'pip>=25.1' && .venv/bin/pip install -q"
PYTEST = ".venv/bin/python -m pytest -q"
UNITTEST = "import unittest\n"
PROJECT = '[build-system]\nrequires = ["hatchling"]\n[project]\nname = "x"\n'
DEPS = f'{PROJECT}dependencies = ["click"]\n'
EXTRA = "[project.optional-dependencies]\n"
BUNDLE = "bundle config set --local path vendor/bundle && bundle install"
UV = '[[package]]\nname = "pytest"\n[[package]]\nname = "ruff"\n'


WORKFLOW = """
      - run: ruff check --output-format=github .
      - name: types
        run: |
          python -m pip install mypy ruff
          ruff format --check src
          ruff check --fix .
          python -m mypy
          mypy --python-version ${{ matrix.python }}
          black .
"""


def package(**named: object) -> str:
    """package.json of a project that needs something."""
    return json.dumps(
        {"scripts": {"test": "vitest run"}, "devDependencies": {"vitest": "3"}, **named}
    )


PROJECTS: dict[str, tuple[dict[str, str], str | None, list[str]]] = {
    "nothing": ({"README.md": "# x"}, None, []),
    "python, pytest in its tests only": ({"tests/test_a.py": "import pytest\n"}, f"{VENV} pytest", [PYTEST]),
    "python, tests at the top": ({"test_a.py": "def test_a(): ..."}, f"{VENV} pytest", [PYTEST]),
    "python, unittest at the top": ({"test_a.py": UNITTEST, "a.py": ""}, None, ["python3 -m unittest discover"]),
    "python, unittest in a package": ({"tests/__init__.py": "", "tests/test_a.py": UNITTEST}, None, ["python3 -m unittest discover"]),
    "python, unittest in a folder": ({"tests/test_a.py": UNITTEST}, None, ["python3 -m unittest discover -s tests"]),
    "python, unittest and a name": ({"pyproject.toml": PROJECT, "tests/test_a.py": UNITTEST}, None, ["python3 -m unittest discover -s tests"]),
    "python, unittest and a dependency": (
        {"pyproject.toml": DEPS, "tests/test_a.py": UNITTEST}, f"{VENV} -e .", [".venv/bin/python -m unittest discover -s tests"],
    ),
    "python, unittest and pytest": ({"test_a.py": UNITTEST, "test_b.py": "import pytest"}, f"{VENV} pytest", [PYTEST]),
    "python, a src layout": ({"pyproject.toml": PROJECT, "src/x/__init__.py": "", "tests/test_a.py": ""}, f"{VENV} -e . pytest", [PYTEST]),
    "python, an extra for tests": (
        {"pyproject.toml": f'{DEPS}{EXTRA}docs = ["sphinx"]\ntest = ["pytest-cov"]\n', "tests/test_a.py": ""}, f"{VENV} -e '.[test]' pytest", [PYTEST],
    ),
    "python, an extra for each": (
        {"pyproject.toml": f'{PROJECT}{EXTRA}test = ["pytest>=8"]\nlint = ["ruff", "mypy_extensions"]\n[tool.ruff]\n[tool.mypy]\n'},
        f"{VENV} -e '.[test,lint]' pytest", [PYTEST],
    ),
    "python, a group for tests": ({"pyproject.toml": f'{DEPS}[dependency-groups]\ndev = ["pytest"]\n'}, f"{GROUPS} -e . --group dev pytest", [PYTEST]),
    "python, groups without a package": (
        {"pyproject.toml": '[dependency-groups]\ndocs = ["sphinx"]\ntests = ["pytest"]\n'}, f"{GROUPS} --group tests pytest", [PYTEST],
    ),
    "python, setup.py": (
        {"setup.py": 'setup(install_requires=["x"], extras_require={"dev": ["tox", "pytest"]})'}, f"{VENV} -e . pytest", [PYTEST],
    ),
    "python, setup.py alone": ({"setup.py": 'setup(name="x")', "test_a.py": UNITTEST}, None, ["python3 -m unittest discover"]),
    "python, setup.cfg": (
        {"setup.py": "", "setup.cfg": "[options]\ninstall_requires =\n  x\n[options.extras_require]\nt =\n  pytest\n"}, f"{VENV} -e . pytest", [PYTEST],
    ),
    "python, requirements": ({"requirements.txt": "flask\npytest\n", "tests/test_a.py": ""}, f"{VENV} -r requirements.txt", [PYTEST]),
    "python, requirements without pytest": ({"requirements.txt": "flask\n", "tests/test_a.py": ""}, f"{VENV} -r requirements.txt pytest", [PYTEST]),
    "python, requirements of two kinds": (
        {"requirements.txt": "flask\n", "requirements-dev.txt": "pytest==8\n", "requirements-docs.txt": "sphinx\n"},
        f"{VENV} -r requirements-dev.txt -r requirements.txt", [PYTEST],
    ),
    "python, requirements in a folder": (
        {"requirements/base.txt": "flask\n", "requirements/test.txt": "-r base.txt\npytest\n"}, f"{VENV} -r requirements/test.txt", [PYTEST],
    ),
    "python, all in pyproject": (
        {"pyproject.toml": "[tool.pytest.ini_options]\n[tool.ruff]\nline-length = 99\n[tool.mypy]\nstrict = true\n"},
        f"{VENV} pytest", [PYTEST],
    ),
    "python, linters that nothing runs": ({"pyproject.toml": '[tool.mypy]\nfiles = ["src"]\n[tool.ruff]\n'}, None, []),
    "python, files of their own": (
        {"pytest.ini": "[pytest]", "ruff.toml": "", "mypy.ini": "[mypy]\npackages = x\n"},
        f"{VENV} pytest", [PYTEST],
    ),
    "python, a pyproject that is broken": ({"pyproject.toml": "[tool.pytest"}, f"{VENV} pytest", [PYTEST]),
    "python, a pyproject of another shape": ({"pyproject.toml": "project = 1\ntool = 2\ndependency-groups = 'pytest'\n"}, f"{VENV} pytest", [PYTEST]),
    "python with uv": (
        {"pyproject.toml": "[tool.ruff]\n[dependency-groups]\ndev = ['pytest']", "uv.lock": '[[package]]\nname = "pytest"\n'},
        "uv sync --locked --group dev", ["uv run python -m pytest -q"],
    ),
    "uv, another group and an extra": (
        {"pyproject.toml": f'{DEPS}{EXTRA}lint = ["ruff"]\n[dependency-groups]\ndocs = ["x"]\ntest = ["pytest"]\n[tool.ruff]\n', "uv.lock": UV},
        "uv sync --locked --extra lint --group test", ["uv run python -m pytest -q"],
    ),
    "uv, the older list": ({"pyproject.toml": '[tool.uv]\ndev-dependencies = ["pytest"]\n', "uv.lock": UV}, "uv sync --locked", ["uv run python -m pytest -q"]),
    "uv, no pytest in the lock": (
        {"pyproject.toml": DEPS, "uv.lock": "", "tests/test_a.py": ""}, "uv sync --locked && uv pip install -q pytest", ["uv run python -m pytest -q"],
    ),
    "uv, unittest": ({"pyproject.toml": DEPS, "uv.lock": "", "test_a.py": UNITTEST}, "uv sync --locked", ["uv run python -m unittest discover"]),
    "uv, a workspace": (
        {"pyproject.toml": '[dependency-groups]\ndev = ["pytest"]\n[tool.uv.workspace]\nmembers = ["a"]\n', "uv.lock": UV},
        "uv sync --locked --all-packages --group dev", ["uv run python -m pytest -q"],
    ),
    "python with poetry": (
        {"pyproject.toml": "[tool.ruff]\n[tool.poetry.group.dev.dependencies]\npytest = '*'",
         "poetry.lock": '[[package]]\nname = "pytest"\n[[package]]\nname = "ruff"\n'},
        "poetry install --with dev", ["poetry run python -m pytest -q"],
    ),
    "poetry, a group that is optional": (
        {"pyproject.toml": "[tool.poetry.group.test]\noptional = true\n[tool.poetry.group.test.dependencies]\npytest = '*'", "poetry.lock": UV},
        "poetry install --with test", ["poetry run python -m pytest -q"],
    ),
    "pdm": ({"pyproject.toml": f'{DEPS}{EXTRA}test = ["pytest"]\n', "pdm.lock": UV}, "pdm sync -G test", ["pdm run python -m pytest -q"]),
    "pipenv": ({"Pipfile": "", "Pipfile.lock": '{"develop": {"pytest": {}}}', "test_a.py": ""}, "pipenv sync --dev", ["pipenv run python -m pytest -q"]),
    "python with a .venv": (
        {"pyproject.toml": "[tool.pytest.ini_options]\n[tool.mypy]\n", ".venv/bin/pytest": ""},
        f"{VENV} pytest", [PYTEST],
    ),
    "poetry's groups without its lock": (
        {"pyproject.toml": f"{PROJECT}dependencies = []\n[tool.poetry.group.dev.dependencies]\npytest = '*'"}, f"{VENV} -e . pytest", [PYTEST],
    ),
    "linters of tox": (
        {"tox.ini": "[testenv]\n[testenv:lint]\n[testenv:typing]\n[testenv:docs]\n", "requirements.txt": "pytest\n"},
        f"{VENV} -r requirements.txt tox", [PYTEST, ".venv/bin/python -m tox -e lint,typing"],
    ),
    "linters of pre-commit": (
        {".pre-commit-config.yaml": "", "requirements.txt": "pytest\npre-commit\n"},
        f"{VENV} -r requirements.txt", [PYTEST, ".venv/bin/python -m pre_commit run --all-files"],
    ),
    "linters of pre-commit, elsewhere": ({".pre-commit-config.yaml": "", "go.mod": ""}, None, ["pre-commit run --all-files", "go test ./..."]),
    "linters of a workflow": (
        {".github/workflows/ci.yml": WORKFLOW, "requirements.txt": "pytest\n"}, f"{VENV} -r requirements.txt ruff mypy",
        [PYTEST, ".venv/bin/python -m ruff check --output-format=github .", ".venv/bin/python -m ruff format --check src", ".venv/bin/python -m mypy"],
    ),
    "linters of a workflow, with uv": (
        {".github/workflows/ci.yml": "  - run: uv run ruff check .\n  - run: uvx mypy src\n", "pyproject.toml": DEPS, "uv.lock": UV},
        "uv sync --locked", ["uv run ruff check .", "uvx mypy src"],
    ),
    "django": ({"manage.py": "", "shop/tests.py": ""}, None, ["python3 manage.py test"]),
    "django with requirements": ({"manage.py": "", "requirements.txt": "django\n"}, f"{VENV} -r requirements.txt", [".venv/bin/python manage.py test"]),
    "django with pytest": ({"manage.py": "", "pytest.ini": "[pytest]"}, f"{VENV} pytest", [PYTEST]),
    "npm": (
        {"package.json": scripts(build="tsc", typecheck="tsc --noEmit", lint="eslint .", test="vitest run"), "package-lock.json": "{}"},
        None, ["npm run typecheck", "npm run lint", "npm test"],
    ),
    "npm, dependencies": ({"package.json": package(), "package-lock.json": "{}"}, "npm ci", ["npm test"]),
    "npm, the older lock": ({"package.json": package(), "npm-shrinkwrap.json": "{}"}, "npm ci", ["npm test"]),
    "npm, a build that tests need": (
        {"package.json": scripts(test="vitest run", lint="eslint .", build="tsc -b && vite build"), "package-lock.json": "{}"},
        None, ["npm run build", "npm run lint", "npm test"],
    ),
    "npm, workspaces": ({"package.json": '{"workspaces": ["a"]}', "package-lock.json": "{}"}, "npm ci", []),
    "npm, no lock": ({"package.json": package()}, "npm install --no-package-lock", ["npm test"]),
    "npm, the test that npm init writes": ({"package.json": scripts(test='echo "Error: no test specified" && exit 1')}, None, []),
    "npm, a test that never ends, and one that does": (
        {"package.json": scripts(test="jest --watch", **{"test:ci": "jest --ci"})}, None, ["npm run test:ci"],
    ),
    "npm, a test that never ends": ({"package.json": scripts(test="jest --watch", lint="eslint .")}, None, ["npm run lint"]),
    "npm, create-react-app": ({"package.json": scripts(test="react-scripts test")}, None, ["CI=true npm test"]),
    "npm, check is something else": ({"package.json": scripts(check="svelte-check", test="vitest run")}, None, ["npm run check", "npm test"]),
    "npm, check is all of them": ({"package.json": scripts(check="npm run lint && npm test", test="jest")}, None, ["npm test"]),
    "pnpm": ({"package.json": package(), "pnpm-lock.yaml": ""}, "pnpm install --frozen-lockfile", ["pnpm test"]),
    "pnpm, no lock": ({"package.json": package(packageManager="pnpm@9.1.0")}, "pnpm install --no-lockfile", ["pnpm test"]),
    "yarn": ({"package.json": package(), "yarn.lock": "__metadata:\n  version: 8\n"}, "yarn install --immutable", ["yarn test"]),
    "yarn 1": ({"package.json": package(), "yarn.lock": "# yarn lockfile v1\n"}, "yarn install --frozen-lockfile", ["yarn test"]),
    "yarn, named by the package": ({"package.json": '{"packageManager": "yarn@4.1.0", "scripts": {"test": "jest"}}'}, None, ["yarn test"]),
    "yarn, no lock": ({"package.json": package(packageManager="yarn@4.1.0")}, "yarn install", ["yarn test"]),
    "bun": ({"package.json": package(), "bun.lock": ""}, "bun install --frozen-lockfile", ["bun run test"]),
    "a package manager that nobody knows": ({"package.json": package(packageManager="rm -rf@1"), "package-lock.json": "{}"}, "npm ci", ["npm test"]),
    "package.json that is broken": ({"package.json": "{"}, None, []),
    "package.json of another shape": ({"package.json": '["x"]'}, None, []),
    "package.json with odd scripts": ({"package.json": '{"scripts": ["x"], "dependencies": []}'}, None, []),
    "rust": ({"Cargo.toml": "[package]", "Cargo.lock": ""}, None, ["cargo test"]),
    "rust, dependencies": ({"Cargo.toml": "[package]\n[dev-dependencies]\nserde = '1'\n", "Cargo.lock": ""}, None, ["cargo test"]),
    "rust, a workspace": ({"Cargo.toml": "[workspace]\nmembers = ['a']\n"}, None, ["cargo test"]),
    "rust and a Makefile": ({"Cargo.toml": "[package]", "Makefile": "test:\n\tcargo test\nlint:\n\tcargo clippy\n"}, None, ["cargo test", "make lint"]),
    "go": ({"go.mod": "module x", ".golangci.yml": ""}, None, ["go test ./...", "golangci-lint run"]),
    "go, dependencies": ({"go.mod": "module x\n\nrequire (\n\ty v1\n)\n"}, None, ["go test ./..."]),
    "gradle": ({"gradlew": "", "build.gradle.kts": ""}, None, ["./gradlew check"]),
    "gradle without a wrapper": ({"build.gradle": ""}, None, ["gradle check"]),
    "maven": ({"pom.xml": ""}, None, ["mvn -q verify"]),
    "dotnet": ({"shop.sln": "", "shop.csproj": ""}, None, ["dotnet test"]),
    "elixir": ({"mix.exs": "defp deps, do: []"}, None, ["mix test"]),
    "elixir, dependencies": ({"mix.exs": 'defp deps do\n[{:jason, "~> 1.4"}]\n'}, "mix deps.get", ["mix test"]),
    "ruby": ({".rspec": "", "Gemfile": "source 'x'\ngem 'rspec'\n", "Rakefile": ""}, BUNDLE, ["bundle exec rspec"]),
    "ruby, rspec in the Gemfile": ({"Gemfile": "gem 'rspec-rails'\n"}, BUNDLE, ["bundle exec rspec"]),
    "rails": ({"bin/rails": "", "Rakefile": ""}, None, ["bin/rails test"]),
    "php": ({"phpunit.xml.dist": "", "composer.json": '{"require-dev": {"phpunit/phpunit": "*"}}'}, "composer install", ["vendor/bin/phpunit"]),
    "cmake": (
        {"CMakeLists.txt": "project(x)\nenable_testing()\n"}, None, ["cmake -B build", "cmake --build build", "ctest --test-dir build"],
    ),
    "cmake without tests": ({"CMakeLists.txt": "project(x)\n"}, None, []),
    "deno": ({"deno.jsonc": ""}, None, ["deno test"]),
    "only a Makefile": ({"Makefile": ".PHONY: test lint\nlint:\n\ttrue\ntest: lint\n\ttrue\n"}, None, ["make lint", "make test"]),
    "a Makefile with check alone": ({"Makefile": "check: build\n\t./run\n"}, None, ["make check"]),
    "a Makefile with check for all": ({"Makefile": "test:\n\ttrue\ncheck: test\n"}, None, ["make test"]),
    "a Makefile of variables": ({"Makefile": "test := x\nlint = y\ntest-all:\n\ttrue\nmy-lint:\n\ttrue\n"}, None, []),
    "a Makefile, two targets a rule": ({"Makefile": "lint test:\n\ttrue\n"}, None, ["make lint", "make test"]),
    "a Makefile beside npm": (
        {"package.json": scripts(test="jest"), "Makefile": "test:\n\tnpm test\ntypecheck:\n\tnpx tsc\n"}, None, ["npm test", "make typecheck"],
    ),
    "two languages": (
        {"pyproject.toml": DEPS, "test_a.py": "", "package.json": package(), "package-lock.json": "{}", "go.mod": "require y v1\n"},
        f"{VENV} -e . pytest && npm ci", [PYTEST, "npm test", "go test ./..."],
    ),
}  # fmt: skip


def only_git(folder: Path, monkeypatch: pytest.MonkeyPatch, *programs: str) -> None:
    """A PATH with git and these programs, and nothing else that this machine has."""
    (folder / "bin").mkdir()
    (folder / "bin/git").symlink_to(str(shutil.which("git")))
    for name in programs:
        (folder / "bin" / name).write_text("#!/bin/sh\n")
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"))


@pytest.mark.parametrize("name", PROJECTS)
def test_setup_and_checks_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    only_git(tmp_path, monkeypatch)
    files, setup, wanted = PROJECTS[name]
    found = Project(lay(tmp_path, files))
    assert (found.setup.run if found.setup else None) == setup
    assert [check.name for check in found.checks(setup or "")] == wanted


def test_checks_follow_a_setup_of_ones_own(tmp_path: Path) -> None:
    lay(tmp_path, {"tests/test_a.py": "", ".pre-commit-config.yaml": ""})
    checks = Project(tmp_path).checks("")
    assert [check.name for check in checks] == [
        "python3 -m pytest -q",
        "pre-commit run --all-files",
    ]
    checks = Project(tmp_path).checks("make .venv")
    assert [check.name for check in checks] == [
        PYTEST,
        ".venv/bin/python -m pre_commit run --all-files",
    ]


TO_RALPH = "--reporter=default --reporter=junit --outputFile.junit=$RALPH_RESULTS"
JEST = "JEST_JUNIT_OUTPUT_FILE=$RALPH_RESULTS JEST_JUNIT_CLASSNAME={{filepath}} JEST_JUNIT_REPORT_TEST_SUITE_ERRORS=true {} --reporters=default --reporters=jest-junit"
NODE = "--test --test-reporter=spec --test-reporter-destination=stdout --test-reporter=junit --test-reporter-destination=$RALPH_RESULTS"
MOCHA = "--reporter xunit --reporter-option output=$RALPH_RESULTS"
GOTESTSUM = "gotestsum --junitfile=$RALPH_RESULTS -- ./..."
NEXTEST = (
    "mkdir -p $RALPH_RESULTS && echo \"profile.default.junit.path = '$RALPH_RESULTS/junit.xml'\" > $RALPH_RESULTS/nextest.toml"
    " && cargo nextest run --no-fail-fast --tool-config-file ralph:$RALPH_RESULTS/nextest.toml"
)
MAVEN = (
    "find . -path '*/surefire-reports/*' -delete; {} -q -fae verify; status=$?; mkdir -p $RALPH_RESULTS;"
    " find . -path '*/surefire-reports/TEST-*.xml' -exec cp {{}} $RALPH_RESULTS ';'; exit $status"
)
JEST_JUNIT = {"devDependencies": {"jest": "30", "jest-junit": "17"}}
CARGO = {"Cargo.toml": "[package]"}


def started_by(words: str, **named: object) -> dict[str, str]:
    """package.json of a project whose tests are started so."""
    return {"package.json": package(scripts={"test": words}, **named)}


# What is there, and the command that reports single tests; none where nothing is known
# to report them.
REPORTS: dict[str, tuple[dict[str, str], str]] = {
    "pytest": ({"test_a.py": "import pytest\n"}, "python3 -m pytest -q --continue-on-collection-errors --junitxml=$RALPH_RESULTS"),
    "pytest with uv": (
        {"pyproject.toml": DEPS, "test_a.py": "", "uv.lock": UV}, "uv run python -m pytest -q --continue-on-collection-errors --junitxml=$RALPH_RESULTS",
    ),
    "unittest": ({"test_a.py": UNITTEST}, ""),
    "vitest": (started_by("vitest run"), f"npm test -- {TO_RALPH}"),
    "vitest, with words": (started_by("cross-env TZ=UTC ./node_modules/.bin/vitest run --coverage src"), f"npm test -- {TO_RALPH}"),
    "vitest with pnpm": ({**started_by("vitest"), "pnpm-lock.yaml": ""}, f"pnpm test {TO_RALPH}"),
    "vitest with yarn": ({**started_by("vitest"), "yarn.lock": ""}, f"yarn test {TO_RALPH}"),
    "vitest with bun": ({**started_by("vitest"), "bun.lock": ""}, f"bun run test {TO_RALPH}"),
    "vitest after something": (started_by("tsc && vitest run"), ""),
    "vitest before something": (started_by("vitest run; echo done"), ""),
    "vitest and a pipe": (started_by("vitest run | tee log"), ""),
    "something like vitest": (started_by("vitest-preview"), ""),
    "a script that starts another": (started_by("npm run vitest:unit"), ""),
    "jest": (started_by("NODE_ENV=test jest --ci", **JEST_JUNIT), JEST.format("npm test --")),
    "jest with yarn": ({**started_by("jest", **JEST_JUNIT), "yarn.lock": ""}, JEST.format("yarn test")),
    "jest without its reporter": (started_by("jest"), ""),
    "jest, create-react-app": (started_by("react-scripts test", **JEST_JUNIT), ""),
    "mocha": (started_by("nyc --reporter=text mocha --check-leaks test/"), f"npm test -- {MOCHA}"),
    "node": (started_by("node --test"), f"node {NODE}"),
    "node, with files": (started_by("node --import tsx --test 'test/**/*.ts'"), f"node --import tsx {NODE} 'test/**/*.ts'"),
    "node, another program": (started_by("node --test-only.js"), ""),
    "node, a script before": ({"package.json": package(scripts={"pretest": "tsc", "test": "node --test"})}, ""),
    "cargo": (CARGO, ""),
    "cargo, nextest is used": ({**CARGO, ".config/nextest.toml": "[profile.ci]\n"}, NEXTEST),
    "cargo, nextest is installed": ({**CARGO, "bin/cargo-nextest": ""}, NEXTEST),
    "cargo, nextest reports elsewhere": ({**CARGO, ".config/nextest.toml": "[profile.default.junit]\n", "bin/cargo-nextest": ""}, ""),
    "go": ({"go.mod": "module x\n\nrequire gotest.tools/gotestsum v1.12.0\n"}, ""),
    "go, a tool": ({"go.mod": "module x\n\ntool gotest.tools/gotestsum\n"}, f"go tool {GOTESTSUM}"),
    "go, one of some tools": ({"go.mod": "tool (\n\tx\n\tgotest.tools/gotestsum\n)\n"}, f"go tool {GOTESTSUM}"),
    "go, gotestsum is used": ({"go.mod": "module x\n", "Makefile": "test:\n\tgotestsum ./...\n"}, GOTESTSUM),
    "go, gotestsum is installed": ({"go.mod": "module x\n", "bin/gotestsum": ""}, GOTESTSUM),
    "maven": ({"pom.xml": ""}, MAVEN.format("mvn")),
    "maven with a wrapper": ({"pom.xml": "", "mvnw": ""}, MAVEN.format("./mvnw")),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTS)
def test_checks_report_single_tests_where_the_runner_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    files, command = REPORTS[name]
    only_git(
        tmp_path, monkeypatch, *(name[4:] for name in files if name.startswith("bin/"))
    )
    checks = Project(lay(tmp_path / "repo", files)).checks("")
    reporting = [check for check in checks if check.results]
    assert [(check.run, check.results) for check in reporting] == (
        [(command, "junit")] if command else []
    )
    assert all(
        as_json(check) == check.run for check in checks if check not in reporting
    )


def test_documentation_that_nextest_leaves_out_is_started_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_git(tmp_path, monkeypatch, "cargo-nextest")
    checks = Project(lay(tmp_path / "repo", {**CARGO, "src/lib.rs": ""})).checks("")
    assert [check.name for check in checks] == [
        "cargo nextest run --no-fail-fast",
        "cargo test --doc",
    ]


def test_a_plan_has_the_command_that_reports_and_the_rulebook_has_the_plain_one(
    repo: Repo,
) -> None:
    lay(repo.path, {"web/package.json": package(), "web/package-lock.json": "{}"})
    words = [sys.executable, "-m", "ralph", "init"]
    done = subprocess.run(
        words,
        cwd=repo.path / "web",
        env=repo.env,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "; checks: cd web && npm test; " in done.stdout
    name = "cd web && npm test"
    check = {"name": name, "run": f"{name} -- {TO_RALPH}", "results": "junit"}
    assert json.loads(repo.read("web/prd.json"))["checks"] == [check]
    assert f"run `{name}`." in repo.read("AGENTS.md")


@pytest.mark.parametrize(
    "name", ["Makefile", "package.json", "pyproject.toml", "uv.lock", "tests"]
)
@pytest.mark.parametrize("odd", ["folder", "dangling link", "bytes"])
def test_odd_files_are_no_project(tmp_path: Path, name: str, odd: str) -> None:
    path = tmp_path / name
    if odd == "folder":
        path.mkdir()
    elif odd == "bytes":
        path.write_bytes(bytes(range(256)))
    else:
        path.symlink_to("nowhere")
    found = Project(tmp_path)
    assert (
        found.checks("") == [] and found.setup is None and set(found.protect) <= {name}
    )


@pytest.mark.parametrize(
    ("files", "kept"),
    [({"Cargo.toml": ""}, ["target/"]), ({"gradlew": "", "build.gradle": ""}, [".gradle/"]), ({"mix.exs": ""}, ["_build/"]),
     ({"Package.swift": ""}, [".build/"]), ({"package.json": "{}", "pom.xml": ""}, [])],
)  # fmt: skip
def test_caches_to_keep(tmp_path: Path, files: dict[str, str], kept: list[str]) -> None:
    assert Project(lay(tmp_path, files)).keep == kept


PIP_READS = ("requirements*.txt", "constraints*.txt", "pyproject.toml")
NPM_READS = ("package-lock.json", "package.json", ".npmrc", "patches/**")
LOCKED = {"package-lock.json": "{}"}


def scripted(**named: str) -> dict[str, str]:
    return {"package.json": package(scripts=named), **LOCKED}


# What a setup depends on; nothing, where it runs code of the project.
DEPENDS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "npm": ({"package.json": package(), **LOCKED}, NPM_READS),
    "npm, no lock": ({"package.json": package()}, NPM_READS[1:]),
    "npm, husky": (scripted(prepare="husky", postinstall="patch-package"), NPM_READS),
    "npm, husky of old": (scripted(prepare="husky install || true"), NPM_READS),
    "npm, both": (scripted(prepare="husky && patch-package"), NPM_READS),
    "npm, a generator": (scripted(postinstall="node scripts/gen.js"), ()),
    "npm, a generator after husky": (scripted(prepare="husky && npm run build"), ()),
    "npm, one that begins like husky": (scripted(prepare="husky.sh"), ()),
    "npm, a build": (scripted(prepare="tsc"), ()),
    "npm, before": (scripted(preinstall="./check"), ()),
    "npm, of a member": ({"package.json": package(workspaces=["a"]), "a/package.json": scripts(install="gen"), **LOCKED}, ()),
    "npm, prisma": ({"package.json": package(dependencies={"@prisma/client": "5"}), **LOCKED}, ()),
    "npm, an addon": ({"package.json": package(), "binding.gyp": "{}", **LOCKED}, ()),
    "pnpm": ({"package.json": package(), "pnpm-lock.yaml": ""}, ("pnpm-lock.yaml", "pnpm-workspace.yaml", ".pnpmfile.cjs", *NPM_READS[1:])),
    "yarn": ({"package.json": package(), "yarn.lock": "__metadata:\n"}, ("yarn.lock", ".yarnrc.yml", ".yarn/**", *NPM_READS[1:])),
    "bun": ({"package.json": package(), "bun.lock": ""}, ("bun.lock", "bun.lockb", "bunfig.toml", *NPM_READS[1:])),
    "pip": ({"requirements.txt": "pytest\n"}, PIP_READS),
    "pip, a folder": ({"requirements/test.txt": "pytest\n"}, (*PIP_READS, "requirements/**")),
    "pip, the project": ({"pyproject.toml": f'{DEPS}readme = "README.md"\n', "setup.py": "setup()"}, (*PIP_READS, "setup.py", "README*")),
    "pip, a version made of code": ({"pyproject.toml": f'{DEPS}dynamic = [\n  "version",\n]\n'}, ()),
    "pip, an extension in C": ({"setup.py": "setup(install_requires=['x'], ext_modules=[])"}, ()),
    "pip, Rust": ({"pyproject.toml": DEPS.replace("hatchling", "maturin")}, ()),
    "uv": ({"pyproject.toml": DEPS, "uv.lock": UV}, ("uv.lock", "uv.toml", ".python-version", "pyproject.toml")),
    "uv, Cython": ({"pyproject.toml": DEPS.replace("hatchling", "Cython"), "uv.lock": UV}, ()),
    "poetry": ({"pyproject.toml": DEPS, "poetry.lock": UV}, ("poetry.lock", "poetry.toml", "pyproject.toml")),
    "elixir": ({"mix.exs": "{:a, 1}"}, ("mix.exs", "mix.lock")),
    "php": ({"composer.json": '{"require": {}}'}, ("composer.json", "composer.lock")),
    "php, scripts": ({"composer.json": '{"require": {}, "scripts": {"post-autoload-dump": "x"}}'}, ()),
    "two, one of them with scripts": ({"requirements.txt": "pytest\n", **scripted(prepare="tsc")}, ()),
}  # fmt: skip


@pytest.mark.parametrize("name", DEPENDS)
def test_what_a_setup_depends_on(tmp_path: Path, name: str) -> None:
    files, wanted = DEPENDS[name]
    setup = Project(lay(tmp_path, files)).setup
    assert setup and setup.when == wanted
    assert [patterns.normal(pattern, "here") for pattern in wanted] == [*wanted]
    assert not patterns.matching(wanted, ["src/a.py", "docs/notes.txt"])


def test_the_patterns_of_the_table_are_read_as_they_stand() -> None:
    rows = [*TABLE["kinds"], *TABLE["tools"].values(), *TABLE["runners"]]
    lists = [row.get(key, []) for row in rows for key in ("when", "also", "protect")]
    for pattern in {
        pattern
        for one in [*lists, TABLE["tests"], TABLE["beside tests"]]
        for pattern in one
    }:
        assert patterns.normal(pattern, "here") == pattern


@pytest.mark.parametrize(
    ("file", "tool", "run"),
    [(".envrc", "direnv", "direnv allow ."), ("mise.toml", "mise", "mise trust")],
)
def test_what_a_person_trusts_is_trusted_in_each_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, tool: str, run: str
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path / "repo"], check=True)
    root = lay(tmp_path / "repo", {file: "", "package.json": package(), **LOCKED})
    only_git(tmp_path, monkeypatch)
    setup = Project(root).setup
    assert setup and setup.run == "npm ci", "nobody uses it here"
    (tmp_path / "bin" / tool).write_text("#!/bin/sh\n")
    (tmp_path / "bin" / tool).chmod(0o755)
    setup = Project(root).setup
    assert (
        setup and setup.run == f"{run} && npm ci" and setup.when == (file, *NPM_READS)
    )
    lay(root, {".gitignore": f"{file}\n"})
    setup = Project(root).setup
    assert setup and setup.run == "npm ci", "no checkout has it"


HINT = 'a program or a module is missing; "setup": "npm ci" in the plan installs what this project names'


NOT_FOUND = "Error [ERR_MODULE_NOT_FOUND]: Cannot find"


@pytest.mark.parametrize(
    ("output", "exit_status", "level"),
    [
        ("sh: 1: vitest: not found", 127, "error"),
        ("", 126, "error"),
        ("> vitest run\nsh: 1: vitest: not found\n", 1, "error"),
        ("bash: line 1: jest: command not found", 1, "error"),
        (
            "/usr/bin/python3: No module named pytest",
            1,
            "warning",
        ),  # nothing here names it
        ("Error: Cannot find module 'express'", 1, "warning"),
        (f"{NOT_FOUND} package 'zod' imported from /w/a.js", 1, "warning"),
        ("Error: Cannot find module './a.js'", 1, ""),
        (
            f"{NOT_FOUND} module '/w/a.js' imported from /w/b.js\n  code: 'ERR_MODULE_NOT_FOUND'",
            1,
            "",
        ),
        ("AssertionError: page not found in list", 1, ""),
        ("1 failed", 1, ""),
        ("", None, ""),
    ],
)
def test_what_a_red_check_lacks(
    tmp_path: Path, output: str, exit_status: int | None, level: str
) -> None:
    assert (
        setup_hint(
            output, exit_status, lay(tmp_path, {"Makefile": "test:\n\tvitest\n"})
        )
        is None
    )
    lay(tmp_path, {"package.json": package(), **LOCKED})
    assert setup_hint(output, exit_status, tmp_path) == (
        (level, HINT) if level else None
    )
    lay(
        tmp_path,
        {
            "package.json": package(
                dependencies={"express": "1", "zod": "1", "pytest": "1"}
            )
        },
    )
    assert setup_hint(output, exit_status, tmp_path) == (
        ("error", HINT) if level else None
    )


PYTEST_FILES = [
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
]
PROTECTED: dict[str, tuple[list[str], list[str]]] = {
    "nothing": (["a.txt"], []),
    "pytest": (
        ["tests/test_a.py", "src/x.py"],
        ["tests/**", *PYTEST_FILES],
    ),
    "tests beside the code": (["src/a.ts", "src/a.test.ts", "src/b.spec.tsx"], ["*.test.*", "*.spec.*"]),
    "tests in folders of packages": (["packages/a/tests/a.js", "packages/b/test/b.js"], ["**/tests/**", "**/test/**"]),
    "a test at the top": (["index.js", "test.js", "index.test-d.ts"], ["test.*", "*.test-d.*"]),
    "tests of go": (["a.go", "a_test.go", "go.sum"], ["*_test.*"]),
    "tests of java": (["src/main/A.java", "src/test/java/ATest.java"], ["**/test/**"]),
    "maven": (["pom.xml"], [".mvn/maven.config", ".mvn/jvm.config", ".mvn/extensions.xml", ".mvn/wrapper/maven-wrapper.properties"]),
    "tests of ruby": (["spec/a_spec.rb", "Gemfile.lock"], ["spec/**"]),
    "apps of django": (["manage.py", "shop/tests.py"], ["**/tests.py"]),
    "configuration and CI, and no lock": (
        ["package-lock.json", "vitest.config.ts", ".github/workflows/ci.yml"], ["vitest.config.*", ".github/**"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROTECTED)
@pytest.mark.parametrize("how", ["no repository", "not tracked", "tracked"])
def test_protection_of_a_project(tmp_path: Path, name: str, how: str) -> None:
    files, wanted = PROTECTED[name]
    lay(tmp_path, dict.fromkeys(files, ""))
    lay(
        tmp_path, {"node_modules/x/tests/a.test.js": "", ".gitignore": "node_modules\n"}
    )
    if how != "no repository":
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    if how == "tracked":
        subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    assert Project(tmp_path).protect == wanted
    assert patterns.uncovered_tests(wanted, files) == []
    assert [patterns.normal(pattern, "here") for pattern in wanted] == wanted


def test_what_decides_what_the_runners_do_is_protected_before_it_is_there(
    tmp_path: Path,
) -> None:
    lay(tmp_path, {"package.json": package(), "Cargo.toml": "[package]"})
    assert Project(tmp_path).protect == [
        ".npmrc", "vitest.config.*", "vitest.workspace.*", ".cargo/config.toml", ".cargo/config",
    ]  # fmt: skip


MONOREPO = {
    "package.json": json.dumps({"workspaces": ["packages/*"]}), "package-lock.json": "{}", "packages/ui/package.json": package(),
    "web/package.json": package(), "web/package-lock.json": "{}", "web/tests/a.test.js": "", "docs/a.md": "", "Makefile": "test:\n",
    "a b/Package.swift": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("folder", "setup", "when", "check", "protect"),
    [
        ("web", "cd web && npm ci", NPM_READS[:3], "cd web && npm test", ["web/tests/**"]),
        # a member: its lock is at the top
        ("packages/ui", "npm ci", NPM_READS, "cd packages/ui && npm test", []),
        # no project of its own
        ("docs", "npm ci", NPM_READS, "make test", ["**/tests/**"]),
        ("a b", "", (), "cd 'a b' && swift test", []),
    ],
)  # fmt: skip
def test_init_looks_where_it_is_run(
    repo: Repo,
    folder: str,
    setup: str,
    when: tuple[str, ...],
    check: str,
    protect: list[str],
) -> None:
    lay(repo.path, MONOREPO)
    words = [sys.executable, "-m", "ralph", "init"]
    subprocess.run(
        words,
        cwd=repo.path / folder,
        env=repo.env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    plan = json.loads(repo.read(f"{folder}/prd.json"))
    found = plan.get("setup", {"run": "", "when": []})
    names = [one["name"] if isinstance(one, dict) else one for one in plan["checks"]]
    assert (found["run"], names, tuple(found["when"][: len(when)])) == (
        setup,
        [check],
        when,
    )
    assert ("web/patches/**" in found["when"]) == (folder == "web")
    assert [pattern for pattern in plan["protect"] if "tests" in pattern] == protect


REAL = {
    "make": ({"Makefile": "lint:\n\tgrep -q good a.txt\ntest: lint\n\tgrep -q good a.txt\n"}, "a.txt"),
    "npm": ({"package.json": scripts(lint="grep -q good a.txt", test="grep -q good a.txt")}, "a.txt"),
    "ruff": ({".github/workflows/a.yml": "run: ruff check .\n", "test_a.py": "import a\n\n\ndef test_a() -> None:\n    assert a.good()\n"}, "a.py"),
    "cargo": ({"Cargo.toml": '[package]\nname = "x"\nversion = "0.1.0"\n', "src/lib.rs": "mod a;\n"}, "src/a.rs"),
}  # fmt: skip
# Good work, and bad.
WORK = {
    "a.txt": ("good\n", "bad\n"),
    "a.py": ("def good() -> bool:\n    return True\n", "import os\n\n\ndef good() -> bool:\n    return 0\n"),
    "src/a.rs": ("#[test]\nfn good() {\n    assert!(true);\n}\n", "#[test]\nfn good() {\n    assert!(false);\n}\n"),
}  # fmt: skip


@pytest.mark.parametrize("tool", REAL)
def test_the_checks_are_green_on_good_work_and_red_on_bad(
    tmp_path: Path, tool: str
) -> None:
    path = f"{BIN}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    if (
        shutil.which(tool, path=path) is None
        or subprocess.run([tool, "--version"], env=env).returncode != 0
    ):
        pytest.skip(
            f"{tool} is not installed here"
        )  # a launcher without a toolchain is none
    files, worked = REAL[tool]
    for content, green in zip(WORK[worked], (True, False), strict=True):
        checks = Project(lay(tmp_path, {**files, worked: content})).checks("")
        assert checks
        for check in checks:
            done = subprocess.run(
                check.run,
                shell=True,
                cwd=tmp_path,
                env=env,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert (done.returncode == 0) == green, (check, done.stdout, done.stderr)


# ---------------------------------------------------------------- what it says to do next

EDIT = "next: edit {}: the tasks, and the checks that prove them. Or write what you want into brief.md, and after the commit: ralph plan brief.md"
COMMIT = "git add prd.json AGENTS.md .gitignore && git commit -m plan"
START = "git add -A && git commit -m start"
GO = "ralph doctor; ralph run"
PLAN = '{"userStories": [{"id": "A", "title": "a"%s}]}'


def said(repo: Repo, *words: str) -> list[str]:
    """The lines of `ralph init` that say what to do."""
    done = repo.ralph("init", *words)
    assert done.returncode == 0, done.stderr
    return [
        line
        for line in done.stdout.splitlines()
        if line.startswith(("next: ", "then: "))
    ]


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
    subprocess.run(
        commit,
        shell=True,
        cwd=folder.path,
        env=folder.env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert said(folder) == [f"next: {GO}"]
    assert folder.run(folder.agent("P('T1.txt').touch()"))[0] == 0


def test_next_without_a_repository(folder: Repo) -> None:
    folder.write("prd.json", PLAN % ', "checks": ["true"]')
    folder.write("tests/a.test.js", "")
    assert said(folder) == [f"next: git init; {START}; {GO}"]
    assert folder.read(".gitignore") == ".ralph/\n"
    assert json.loads(folder.read("prd.json"))["protect"] == ["tests/**"]


def test_next_for_a_list_whose_tasks_need_checks(repo: Repo) -> None:
    repo.write("prd.json", '[{"title": "a"}]')
    repo.write("Makefile", "test:\n\ttrue\n")
    assert (
        said(repo)[0]
        == 'next: name the commands that prove the work under "checks" in the tasks of prd.json'
    )
    assert repo.read("prd.json") == '[{"title": "a"}]'


def test_checks_are_added_to_a_plan_that_has_none(repo: Repo) -> None:
    repo.write("prd.json", PLAN % "")
    repo.write("Makefile", "test:\n\ttrue\n")
    assert said(repo) == [f"next: {COMMIT}; {GO}"]
    assert json.loads(repo.read("prd.json")) == {
        **json.loads(PLAN % ""),
        "checks": ["make test"],
    }
    before = repo.read("prd.json")
    repo.write("Makefile", "lint:\n\ttrue\n")
    said(repo)
    assert repo.read("prd.json") == before


ELIXIR = {"mix.exs": "defp deps do\n[{:jason, '1'}]\n", "test/a_test.exs": ""}
SETUP = {"run": "mix deps.get", "when": ["mix.exs", "mix.lock"]}
FOUND = {
    "setup": SETUP,
    "keep": ["_build/"],
    "checks": ["mix test"],
    "protect": ["test/**"],
}
WORDS = "setup: mix deps.get; keep: _build/; checks: mix test; protect: test/**"


def test_a_new_plan_names_a_schema_for_editors_which_init_keeps_up_to_date(
    repo: Repo,
) -> None:
    repo.ralph("init")
    plan = json.loads(repo.read("prd.json"))
    schema = repo.path / plan["$schema"]
    for old in (None, "{}"):  # a clone has none, an earlier version another
        schema.unlink() if old is None else schema.write_text(old)
        repo.ralph("init")
        found = jsonschema.Draft202012Validator(json.loads(schema.read_text()))
        assert found.is_valid(plan) and not found.is_valid(plan | {"checks": 7})
    assert not repo.git("ls-files", "--others", "--exclude-standard", ".ralph")
    repo.plan({}, checks=["true"])
    schema.unlink()
    repo.ralph("init")
    assert not schema.exists()  # that plan does not name it


def test_a_new_plan_says_what_was_found(repo: Repo) -> None:
    lay(repo.path, ELIXIR)
    assert f"wrote prd.json; {WORDS}" in repo.ralph("init").stdout
    plan = json.loads(repo.read("prd.json"))
    assert {key: plan[key] for key in FOUND} == FOUND and len(plan["userStories"]) == 1
    assert [*plan] == ["$schema", "project", "description", *FOUND, "userStories"]


def test_a_script_that_never_ends_is_named_where_no_check_is_found(repo: Repo) -> None:
    lay(repo.path, {"package.json": scripts(test="jest --watch")})
    assert "checks: none found" in (said := repo.ralph("init").stdout)
    assert "; `jest --watch` never ends, so it is no check\n" in said


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ({}, "setup keep checks protect"),
        ({"checks": ["true"]}, "setup keep protect"),
        ({"checks": [], "protect": []}, "setup keep checks"),
        ({"setup": "", "keep": "x/", "checks": ["true"], "protect": "x"}, ""),
    ],
)
def test_a_plan_gets_what_it_does_not_say(
    repo: Repo, own: dict[str, object], added: str
) -> None:
    lay(repo.path, ELIXIR)
    plan = {"userStories": [{"id": "A", "title": "a"}], **own}
    repo.write("prd.json", json.dumps(plan))
    first = repo.ralph("init").stdout.splitlines()[0]
    told = "; ".join(
        words for words in WORDS.split("; ") if words.partition(":")[0] in added.split()
    )
    left = "prd.json already exists; left as it is"
    assert first == (
        f"added to prd.json: {told}; nothing else was changed" if added else left
    )
    assert json.loads(repo.read("prd.json")) == plan | {
        key: FOUND[key] for key in added.split()
    }
    assert "left as it is" in repo.ralph("init").stdout.splitlines()[0]


def test_a_plan_that_nobody_edited_is_filled_in(repo: Repo) -> None:
    repo.ralph("init")
    lay(repo.path, ELIXIR)
    assert f"added to prd.json: {WORDS}" in repo.ralph("init").stdout
    assert {key: json.loads(repo.read("prd.json"))[key] for key in FOUND} == FOUND


def test_settings_of_this_machine_are_named_for_the_checkouts(repo: Repo) -> None:
    ignored = "web/.env.local .env .env.example .claude/settings.local.json node_modules/x/.env.test"
    lay(repo.path, dict.fromkeys([*ignored.split(), ".env.tracked"], "secret"))
    repo.write(
        ".gitignore", ".env\n.env.local\n.env.example\n.claude/\nnode_modules/\n"
    )
    lines = repo.ralph("init").stdout.splitlines()
    names = [".env", ".env.local", ".claude/settings.local.json"]
    assert (
        f"wrote .worktreeinclude: these ignored files are copied for agents and checks: {', '.join(names)}"
        ". Remove any that they must not see" in lines
    )
    assert repo.read(".worktreeinclude").splitlines() == names
    assert (
        "git add prd.json AGENTS.md .gitignore .worktreeinclude && git commit -m plan"
        in lines[-1]
    )
    repo.write(".worktreeinclude", "mine\n")
    repo.ralph("init")
    assert repo.read(".worktreeinclude") == "mine\n"


def test_without_such_settings_nothing_is_named(repo: Repo) -> None:
    repo.write(".gitignore", ".env.example\n")
    lay(
        repo.path,
        {".env.example": "", ".env.tracked": "", ".claude/settings.local.json": ""},
    )
    repo.ralph("init")
    assert not (repo.path / ".worktreeinclude").exists()


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
    subprocess.run(
        git,
        shell=True,
        cwd=repo.path,
        env=repo.env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert said(repo, "--prd", where) == [f"next: {doctor}; {run}"]
    words = shlex.split(run)[1:]
    assert repo.ralph(*words, "--agent", repo.agent("P('x').touch()")).returncode == 0


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    plan = tmp_path / os.fsdecode(b"p\xff") / "prd.json"
    write_starters(plan)
    assert json.loads(plan.read_text())["project"] == "p"


def test_in_a_subfolder_no_second_plan_is_made_by_mistake(repo: Repo) -> None:
    repo.ralph("init")
    (repo.path / "sub").mkdir()
    words = [sys.executable, "-m", "ralph", "init"]
    done = subprocess.run(
        words, cwd=repo.path / "sub", env=repo.env, capture_output=True, text=True
    )
    assert done.returncode == 2 and f"is {repo.path}/prd.json: " in done.stderr
    asked_for = done.stderr.rpartition(": ")[2].split()
    assert (
        subprocess.run(
            [*words, *asked_for], cwd=repo.path / "sub", env=repo.env
        ).returncode
        == 0
    )
    assert (repo.path / "sub/prd.json").exists()


def test_what_git_ignores_is_not_to_be_added(repo: Repo) -> None:
    repo.write(".gitignore", "prd.json\nprogress.txt\n")
    repo.write("prd.json", PLAN % ', "checks": ["true"]')
    assert said(repo) == [
        "next: git add AGENTS.md .gitignore && git commit -m plan; " + GO
    ]


def test_the_rulebook_says_what_was_found_and_no_prompt_carries_a_placeholder(
    repo: Repo,
) -> None:
    repo.write(
        "package.json",
        json.dumps({"scripts": {"test": "node --test"}, "dependencies": {"a": "1"}}),
    )
    repo.write("package-lock.json", "{}")
    assert repo.ralph("init").returncode == 0
    rules = repo.read("AGENTS.md")
    assert (
        "- Set up a fresh checkout with `npm ci`.\n- Before you end, run `npm test`.\n"
        in rules
    )
    (repo.path / "AGENTS.md").unlink()
    repo.write(
        "prd.json",
        json.dumps(
            {
                "userStories": [{"id": "T1", "title": "t", "checks": ["true"]}],
                "checks": [],
            }
        ),
    )
    (repo.path / "package.json").unlink()
    (repo.path / "package-lock.json").unlink()
    assert repo.ralph("init").returncode == 0
    assert repo.read("AGENTS.md").rstrip().endswith("-->")
    assert "AGENTS.md" not in repo.ralph("prompt").stdout


def test_init_writes_what_is_missing_and_overwrites_nothing(repo: Repo) -> None:
    done = repo.ralph("init")
    assert done.returncode == 0, done.stderr
    written = {
        name: repo.read(name) for name in ("prd.json", "AGENTS.md", ".gitignore")
    }
    again = repo.ralph("init")
    assert again.returncode == 0
    assert {name: repo.read(name) for name in written} == written
    assert json.loads(written["prd.json"])["project"] == "repo"
