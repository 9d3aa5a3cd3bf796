"""The gate: projects made with their own tools, from `ralph init` to a task that passes
and a fresh clone that is green, with no words but those that init and doctor say: `make
test-gate`.

The registries are those that pip and npm know on this machine; their caches are shared,
HOME is not. Plain `pytest` leaves these tests out; a project whose tools are missing is
skipped.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.conftest import ROOT, Repo

pytestmark = pytest.mark.gate
DEADLINE = 600.0
PROPOSED = ("setup", "keep", "checks", "protect")
BRANCH = "ralph/repo"
"""Where the work lands: init calls the project as its folder is called."""

CACHES = {
    "PIP_CACHE_DIR": ".cache/pip",
    "UV_CACHE_DIR": ".cache/uv",
    "npm_config_cache": ".npm",
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
    "PYENV_ROOT": ".pyenv",
}
"""What tools keep below HOME and may be shared: the variable, and where it lies if that
is not set."""

OURS = re.compile(
    "RALPH|GIT_|PYTHON|PYTEST|VIRTUAL_ENV|XDG_|UV_|npm_(?!config)|NODE_|MYPY|BENCH",
    re.IGNORECASE,
)
"""Variables that would tell a tool of this test run, not of the project's owner."""


# ---------------------------------------------------------------- the owner's machine


def surroundings(home: Path) -> dict[str, str]:
    """The environment of this machine with another HOME, and without the programs of
    these tests: the owner's tools are their own."""
    kept = {"NODE_EXTRA_CA_CERTS", "UV_DEFAULT_INDEX", "UV_INDEX"}
    env = {"HOME": str(home), "LC_ALL": "C.UTF-8"}
    for name, words in os.environ.items():
        if name in kept or not OURS.match(name):
            env.setdefault(name, words)
    for name, folder in CACHES.items():
        shared = os.environ.get(name) or str(Path.home() / folder)
        if "CACHE" in name.upper() or Path(shared).exists():
            env[name] = shared
    ours = str(Path(sys.executable).parent)
    path = [one for one in env["PATH"].split(os.pathsep) if one != ours]
    return {**env, "PATH": os.pathsep.join(path)}


@pytest.fixture
def owner(tmp_path: Path, repo: Repo) -> Repo:
    """A repository whose owner has a HOME with a .gitconfig, and `ralph` on the
    PATH."""
    home = tmp_path / "home"
    home.mkdir()
    user = "[user]\n\tname = Test\n\temail = test@example.invalid\n"
    (home / ".gitconfig").write_text(f"{user}[init]\n\tdefaultBranch = main\n")
    mark = {name: words for name, words in repo.env.items() if "MARK" in name}
    repo.env = {**surroundings(home), **mark}
    program = shlex.join([sys.executable, str(ROOT / "ralph.py")])
    repo.tool("ralph", f'exec {program} "$@"')
    (repo.path / "a.txt").unlink()
    return repo


def shell(
    repo: Repo, script: str, folder: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """`script` as its owner would run it in the project, or in another folder."""
    return subprocess.run(
        script, shell=True, cwd=folder or repo.path, env={**repo.env, **env}, timeout=DEADLINE,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def must(repo: Repo, script: str, folder: Path | None = None, **env: str) -> str:
    done = shell(repo, script, folder, **env)
    assert done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout}"
    return done.stdout


@cache
def runs(tool: str) -> bool:
    """Whether a program is installed here: a launcher without a toolchain is none."""
    words = [shutil.which(tool) or "false", "--version"]
    return subprocess.run(words, capture_output=True).returncode == 0


@pytest.fixture(scope="session")
def uv(tmp_path_factory: pytest.TempPathFactory) -> str | None:
    """The folder with uv in it, installed once for all workers; None if it cannot be
    had."""
    if found := shutil.which("uv"):
        return str(Path(found).parent)
    folder = tmp_path_factory.getbasetemp().parent / "uv"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            words = [sys.executable, "-m", "pip", "install", "-q", "--target"]
            subprocess.run([*words, str(folder), "uv"], timeout=DEADLINE)
            folder.mkdir(exist_ok=True)
    return str(folder / "bin") if (folder / "bin/uv").exists() else None


# ---------------------------------------------------------------- the projects


@dataclass(frozen=True)
class Project:
    """What its owner has, and what agents do to it.

    `make` lays the project with the owner's own tools, all of it committed. `only`
    narrows the check that init proposes to the test of the task, which is there and
    red. `right` is work that makes it green. `wrong` makes it green where the agent
    works and nowhere else: Python that leaves the work in an ignored place, then files.
    """

    tools: tuple[str, ...]
    make: Callable[[Repo], None]
    only: str
    right: dict[str, str]
    hides: str
    wrong: dict[str, str]
    hidden: str
    setup: bool = True
    """Whether the checks cannot run before a setup did."""


def proposed(repo: Repo) -> dict[str, Any]:
    """What `ralph init` proposes for a project."""
    must(repo, "ralph init")
    plan = json.loads(repo.read("prd.json"))
    return {key: plan[key] for key in PROPOSED if key in plan}


def files_of(text: str) -> dict[str, str]:
    """The files of a text, each below a line with its name, as in `-- src/a.js`."""
    files = {}
    for block in re.split("^-- ", text, flags=re.MULTILINE)[1:]:
        name, _, files[name] = block.partition("\n")
    return files


def lay(repo: Repo, files: dict[str, str] | str) -> None:
    given = files_of(files) if isinstance(files, str) else files
    for name, content in given.items():
        repo.write(name, content)


RIGHT_JS = "module.exports = (net) => Math.round(net * 119) / 100;\n"
NPM = "npm install --save-dev --no-audit --no-fund --prefer-offline --loglevel=error"


NODE_FILES = """
-- package.json
{
  "name": "shop",
  "version": "1.0.0",
  "private": true,
  "scripts": {"test": "mocha"}
}
-- .gitignore
node_modules/
-- src/tax.js
module.exports = (net) => net;
-- test/tax.test.js
const assert = require("assert");
const tax = require("../src/tax.js");

it("adds 19 %", () => assert.strictEqual(tax(100), 119));
-- test/cart.test.js
const assert = require("assert");
const bold = require("picocolors").createColors(true).bold;

it("prints in bold", () => assert.ok(bold("x").length > 1));
"""


def node(repo: Repo) -> None:
    lay(repo, NODE_FILES)
    must(repo, f"{NPM} mocha@10 picocolors")
    repo.commit("shop")


NODE = Project(
    tools=("node", "npm"),
    make=node,
    only=" -- test/tax.test.js",
    right={"src/tax.js": RIGHT_JS},
    hides=f"P('node_modules/taxes').mkdir(exist_ok=True); P('node_modules/taxes/index.js').write_text({RIGHT_JS!r})",
    wrong={"src/tax.js": 'module.exports = require("taxes");\n'},
    hidden="node_modules",
)

RIGHT_PY = "def with_tax(net: int) -> float:\n    return round(net * 1.19, 2)\n"
EXTRA = '[project.optional-dependencies]\ndev = ["pytest"]'
GROUP = '[dependency-groups]\ndev = ["pytest"]'
SHOP = """
-- .gitignore
.venv/
__pycache__/
*.egg-info/
.pytest_cache/
-- src/shop/__init__.py
-- src/shop/cart.py
import attrs


@attrs.define
class Cart:
    net: int = 100
-- src/shop/tax.py
def with_tax(net: int) -> float:
    return net
-- tests/test_cart.py
from shop.cart import Cart


def test_cart() -> None:
    assert Cart().net == 100
-- tests/test_tax.py
from shop.tax import with_tax


def test_tax() -> None:
    assert with_tax(100) == 119
-- pyproject.toml
[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "shop"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["attrs"]

TESTS

[tool.setuptools.packages.find]
where = ["src"]

[tool.pytest.ini_options]
testpaths = ["tests"]
"""


def pip(repo: Repo) -> None:
    lay(repo, SHOP.replace("TESTS", EXTRA))
    makes = "python3 -m venv .venv && .venv/bin/python -m pip install -q -e '.[dev]'"
    must(repo, makes)
    repo.commit("shop")


def with_uv(repo: Repo) -> None:
    lay(repo, SHOP.replace("TESTS", GROUP))
    done = shell(repo, "uv sync -q")
    if "Failed to fetch" in done.stdout:
        pytest.skip("uv reaches no registry here")
    assert done.returncode == 0, done.stdout
    repo.commit("shop")


SITE = f"next(P('.venv/lib').glob('python3*/site-packages')).joinpath('taxes.py').write_text({RIGHT_PY!r})"
PIP = Project(
    tools=("git",),
    make=pip,
    only=" tests/test_tax.py",
    right={"src/shop/tax.py": RIGHT_PY},
    hides=SITE,
    wrong={"src/shop/tax.py": 'from taxes import with_tax\n\n__all__ = ["with_tax"]\n'},
    hidden=".venv",
)
# `uv run` makes the .venv itself
UV = replace(PIP, tools=("uv",), make=with_uv, setup=False)

RIGHT_RS = "pub fn with_tax(net: u32) -> u32 {\n    net * 119 / 100\n}\n"


RUST_FILES = """
-- .gitignore
/target
-- src/lib.rs
pub fn with_tax(net: u32) -> u32 {
    net
}
-- tests/tax.rs
#[test]
fn adds_19_percent() {
    assert_eq!(shop::with_tax(100), 119);
}
-- tests/sum.rs
#[test]
fn sums() {
    assert_eq!(1 + 1, 2);
}
"""


def rust(repo: Repo) -> None:
    must(repo, "cargo init -q --lib --name shop --vcs none")
    lay(repo, RUST_FILES)
    must(repo, "cargo generate-lockfile --offline")
    repo.commit("shop")


RUST = Project(
    tools=("cargo",),
    make=rust,
    only=" --test tax",
    right={"src/lib.rs": RIGHT_RS},
    hides=f"P('target').mkdir(exist_ok=True); P('target/taxes.rs').write_text({RIGHT_RS!r})",
    wrong={"src/lib.rs": 'include!("../target/taxes.rs");\n'},
    hidden="target",
    setup=False,
)


PROJECTS = {"node": NODE, "pip": PIP, "uv": UV, "rust": RUST}


@pytest.fixture(params=PROJECTS)
def project(request: pytest.FixtureRequest) -> Project:
    return PROJECTS[request.param]


# ---------------------------------------------------------------- from init to the clone


def plain(check: str | dict[str, str]) -> str:
    """The command of a check in a shell of one's own: by its name, if it reports single
    tests to ralph."""
    return check["name"] if isinstance(check, dict) else check


@dataclass
class Begun:
    """A project with a plan: what init proposed and one task, whose check is red."""

    repo: Repo
    plan: dict[str, Any]

    @property
    def setup(self) -> str:
        """The command of the setup, if there is one."""
        found = self.plan.get("setup", "")
        return str(found["run"] if isinstance(found, dict) else found)

    def agent(self, *lines: str) -> str:
        """A scripted agent that does `lines`, then tries the task's check itself, as
        agents do."""
        check = self.plan["userStories"][0]["checks"][0]
        tries = f"(OUT / 'tried').write_text(str(sh({check!r}).returncode))"
        return self.repo.agent("\n".join((*lines, tries)))

    def run(self, agent: str, *words: str) -> tuple[int, str]:
        """Its exit status and all that it said; where the agent worked, the task's
        check was green, or this would prove nothing."""
        done = shell(self.repo, shlex.join(["ralph", "run", "--agent", agent, *words]))
        said = f"{done.stdout}\n{self.repo.read('progress.txt')}"
        assert self.repo.read("../tried") == "0", said
        return done.returncode, said

    def clone_is_green(self) -> None:
        """A fresh clone of the branch, the plan's setup in it, and every check
        green."""
        folder = self.repo.outside / "clone"
        self.repo.git("clone", "-q", "-b", BRANCH, ".", str(folder))
        checks = [*self.plan["checks"], *self.plan["userStories"][0]["checks"]]
        for command in filter(None, (self.setup, *map(plain, checks))):
            must(self.repo, command, folder)


def writes(files: dict[str, str]) -> str:
    return f"for name, content in {files!r}.items(): P(name).parent.mkdir(exist_ok=True), P(name).write_text(content)"


@pytest.fixture
def begin(owner: Repo, uv: str | None) -> Callable[[Project], Begun]:
    """Make a project, `ralph init` it, write the task, and follow what init said."""

    def made(project: Project) -> Begun:
        owner.env["PATH"] += f"{os.pathsep}{uv}" if uv else ""
        for tool in project.tools:
            if not runs(tool) and not (tool == "uv" and uv):
                pytest.skip(f"not installed here: {tool}")
        project.make(owner)
        said = must(owner, "ralph init")
        plan = json.loads(owner.read("prd.json"))
        assert plan["checks"], said
        check = plain(plan["checks"][0]) + project.only
        task = {"id": "T1", "title": "The red test turns green", "checks": [check]}
        plan["userStories"] = [task | {"passes": False}]
        for number, known in enumerate(plan["checks"]):
            if isinstance(known, str):  # red as a whole, as doctor then says
                entry = {"name": known, "run": known, "startsRed": True}
                plan["checks"][number] = entry
        owner.write("prd.json", json.dumps(plan, indent=2) + "\n")
        steps = re.findall(r"^(?:next|then): .*", said, re.MULTILINE)
        for command in re.findall(r"git (?:add|commit|init)[^;\n]*", "\n".join(steps)):
            must(owner, command)
        return Begun(owner, plan)

    return made


Begin = Callable[[Project], Begun]


def test_a_task_from_init_to_a_green_clone(project: Project, begin: Begin) -> None:
    begun = begin(project)
    repo = begun.repo
    assert begun.setup or not project.setup, begun.plan
    assert "test" in "".join(begun.plan["protect"])
    doctor = must(repo, f"ralph doctor --agent {sys.executable}", COLUMNS="1000")
    assert "\nerror" not in doctor

    def home() -> list[str]:
        """What git says of the owner's tree, but for the state files."""
        status = repo.git("status", "--porcelain", "--branch").splitlines()
        ours = ("prd.json", "progress.txt")
        tree = [line for line in status if not line.endswith(ours)]
        return [*tree, repo.git("rev-parse", "main")]

    before = home()
    code, said = begun.run(begun.agent(writes(project.right)))
    assert (code, repo.passed()) == (0, ["T1"]), said
    assert home() == before and repo.alive() == []
    begun.clone_is_green()


def test_work_in_an_ignored_place_does_not_pass(project: Project, begin: Begin) -> None:
    begun = begin(project)
    agent = begun.agent(project.hides, writes(project.wrong))
    code, said = begun.run(agent, "--max-iterations", "1")
    assert code in (3, 4) and begun.repo.passed() == [], said
    landed = shell(begun.repo, f"git rev-list main..{BRANCH} -- 2> /dev/null")
    assert landed.stdout == "", said
    ignored = "(is|are) (ignored by git|not part of the work)"
    assert re.search(f"{re.escape(project.hidden)}.* {ignored}", said), said


# ---------------------------------------------------------------- dependencies

ADDED = {
    "node": (f"sh({NPM + ' left-pad'!r})", "src/tax.js", f'require("left-pad");\n{RIGHT_JS}'),
    "pip": (
        "sh('.venv/bin/python -m pip install -q tomli-w'); t = P('pyproject.toml'); "
        "t.write_text(t.read_text().replace('\"attrs\"', '\"attrs\", \"tomli-w\"'))",
        "src/shop/tax.py", f"import tomli_w  # noqa: F401\n\n\n{RIGHT_PY}",
    ),
    "uv": ("sh('uv add -q tomli-w')", "src/shop/tax.py", f"import tomli_w  # noqa: F401\n\n\n{RIGHT_PY}"),
}  # fmt: skip


@pytest.mark.parametrize("name", ADDED)
def test_a_dependency_that_is_declared_is_installed_in_the_room(
    name: str, begin: Begin
) -> None:
    adds, path, content = ADDED[name]
    begun = begin(PROJECTS[name])
    code, said = begun.run(begun.agent(adds, writes({path: content})))
    assert (code, begun.repo.passed()) == (0, ["T1"]), said
    begun.clone_is_green()


# ---------------------------------------------------------------- hooks


HUSKY = """
-- package.json
{
  "name": "shop",
  "version": "1.0.0",
  "private": true,
  "scripts": {"test": "node test.js", "prepare": "husky"},
  "lint-staged": {"*.js": "prettier --write"},
  "commitlint": {"extends": ["@commitlint/config-conventional"]}
}
-- .gitignore
node_modules/
-- tax.js
module.exports = (net) => net;
-- test.js
if (require("./tax.js")(100) !== 119) process.exit(1);
-- .husky/pre-commit
npx lint-staged
-- .husky/commit-msg
npx --no -- commitlint --edit "$1"
"""


def test_husky_with_commitlint_and_lint_staged(owner: Repo) -> None:
    """The message is refused before an agent is paid, with the template that helps;
    what lands is formatted, and commitlint agrees with it."""
    if not (runs("node") and runs("npm")):
        pytest.skip("not installed here: npm")
    lay(owner, HUSKY)
    packages = "husky@9 prettier@3 lint-staged@15 @commitlint/cli@19 @commitlint/config-conventional@19"
    must(owner, f"{NPM} {packages}")
    must(owner, "npm run prepare && git add -A && git commit -qm 'feat: shop'")
    install = "npm ci --no-audit --no-fund --prefer-offline"
    setup = {"run": install, "when": ["package*.json", ".npmrc"]}
    title = "As a customer I see the tax of 19 percent in each price, so that I know what I pay."
    task = {"title": title, "checks": ["node test.js"]}
    owner.plan(task, setup=setup)
    works = "P('tax.js').write_text('module.exports=(net)=>Math.round(net*119)/100')"
    agent = owner.agent(f"{works}; (OUT / 'paid').touch()")
    command = shlex.join(["ralph", "run", "--agent", agent])
    for asked in (f"ralph doctor --agent {sys.executable}", command):
        refused = shell(owner, asked, COLUMNS="1000")
        assert refused.returncode == 2, refused.stdout
        assert "subject-case" in refused.stdout
        assert 'write another "commit" in prd.json' in refused.stdout
    assert not (owner.outside / "paid").exists()
    owner.plan(task, setup=setup, commit="feat: {{ task.title|lower }}")
    must(owner, command)
    assert owner.landed("tax.js") == RIGHT_JS
    assert owner.commits()[0].startswith("feat: as a customer i see the tax")
    must(owner, "npx commitlint --from main --to ralph/p")


FORMATS = """
-- .gitignore
.venv/
-- fmt.py
import sys
from pathlib import Path

for name in sys.argv[1:]:
    before = Path(name).read_text()
    Path(name).write_text(before.rstrip() + "\\n")
    if before != Path(name).read_text():
        sys.exit(f"rewrote {name}")
-- .pre-commit-config.yaml
repos:
  - repo: local
    hooks:
      - {id: fmt, name: one line end, entry: python3 fmt.py, language: system, files: '[.]txt$'}
      - {id: own, name: in its own environment, entry: python -c '', language: python, files: '[.]txt$'}
      - {id: words, name: conventional, entry: "^feat: ", language: pygrep, args: [--negate], stages: [commit-msg]}
"""


def test_pre_commit_with_a_formatter_that_rewrites_and_fails_once(owner: Repo) -> None:
    lay(owner, FORMATS)
    makes = "python3 -m venv .venv && .venv/bin/python -m pip install -q pre-commit"
    must(owner, f"{makes} && .venv/bin/pre-commit install -t pre-commit -t commit-msg")
    must(owner, "git add -A && git commit -qm 'feat: formats'")
    owner.plan("test -f a.txt", commit="feat: {{ task.title }}")
    agent = owner.agent("P('a.txt').write_text('x\\n\\n\\n')")
    said = must(owner, shlex.join(["ralph", "run", "--agent", agent]))
    assert "pre-commit: failed" in said and owner.verdicts() == ["T1 passed"], said
    assert owner.landed("a.txt") == "x\n"
    must(owner, "git switch -q ralph/p && .venv/bin/pre-commit run --all-files")
