"""What ordinary tools keep outside of a checkout, and what must not reach a verdict by
it, with the tools themselves: `make test-gate`. A tool that is not here comes from the
registry, or its tests are skipped."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from filelock import FileLock

from tests.conftest import ROOT, Repo
from tests.whole.test_gate import DEADLINE, lay, must, owner, runs

pytestmark = pytest.mark.gate
__all__ = ["owner"]  # a fixture

FROM_NPM = ("bun", "mise", "pnpm", "turbo")
POSTGRES = Path("/usr/lib/postgresql")
Get = Callable[[str], None]


@pytest.fixture
def get(owner: Repo, tmp_path_factory: pytest.TempPathFactory) -> Get:
    """Put a tool on the owner's PATH, installed once for all workers; what it caches is
    the owner's own."""
    for name in ("UV_CACHE_DIR", "CARGO_TARGET_DIR"):
        owner.env.pop(name, None)

    def put(tool: str) -> None:
        if runs(tool):
            return
        folder = tmp_path_factory.getbasetemp().parent / f"tool-{tool}"
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                _install(tool, folder)
        programs = folder / ("node_modules/.bin" if tool in FROM_NPM else "bin")
        if not (programs / tool).exists():
            pytest.skip(f"not to be had here: {tool}")
        owner.tool(tool, f'exec {shlex.quote(str(programs / tool))} "$@"')

    return put


def _install(tool: str, folder: Path) -> None:
    if tool in FROM_NPM:
        folder.mkdir()
        words = ["npm", "install", "--no-audit", "--prefix", str(folder), tool]
    else:
        venv.create(folder, with_pip=True)
        words = [str(folder / "bin/pip"), "install", "-q", tool]
    if shutil.which(words[0]):
        subprocess.run(words, capture_output=True, timeout=DEADLINE)


def work(repo: Repo, script: str, *words: str) -> tuple[int, str]:
    """A run whose agent does `script`, a shell's; its exit status, and all that it
    said."""
    agent = repo.agent(f"sys.exit(sh({script!r}).returncode)")
    code, _, said = repo.run(agent, *words, timeout=DEADLINE)
    return code, f"{said}\n{repo.read('progress.txt')}"


def clone_is_green(repo: Repo, *commands: str, **env: str) -> None:
    folder = repo.outside / "clone"
    repo.git("clone", "-q", "-b", "ralph/p", ".", str(folder))
    for command in commands:
        must(repo, command, folder, **env)


# ---------------------------------------------------------------- dependencies that are linked from a cache


@dataclass(frozen=True)
class Linked:
    """A tool that hard-links what it installs from one cache: how it installs, its
    files, a dependency's file, what an agent adds to it, and work that is green by that
    alone: a file and its content."""

    install: str
    files: str
    dependency: str
    edit: str
    file: str
    work: str
    check: str


BUN = Linked(
    install="bun install --silent",
    files="""
-- package.json
{"name": "shop", "private": true, "dependencies": {"kleur": "4.1.5"}}
-- .gitignore
node_modules/
-- tax.js
module.exports = (net) => net;
""",
    dependency="node_modules/kleur/index.js",
    edit="module.exports.tax = () => 119;",
    file="tax.js",
    work="module.exports = require('kleur').tax;",
    check="node -e \"require('assert').equal(require('./tax.js')(100), 119)\"",
)


UV = Linked(
    install="uv sync -q",
    files="""
-- pyproject.toml
[project]
name = "shop"
version = "1"
requires-python = ">=3.11"
dependencies = ["humanize"]
-- .gitignore
.venv/
__pycache__/
-- tax.py
def tax(net):
    return net
""",
    dependency=".venv/lib/python3*/site-packages/humanize/filesize.py",
    edit="tax = lambda net: 119",
    file="tax.py",
    work="from humanize.filesize import tax",
    check="uv run -q python -c 'import tax; assert tax.tax(100) == 119'",
)


LINKED = {
    "bun": BUN,
    "pnpm": replace(BUN, install="pnpm install --silent"),
    "uv": UV,
}


@pytest.mark.parametrize("name", LINKED)
def test_an_edit_of_a_dependency_stays_in_its_workspace(
    name: str, owner: Repo, get: Get
) -> None:
    stack = LINKED[name]
    get(name)
    lay(owner, stack.files)
    must(owner, stack.install)
    owner.commit("shop")
    mine = next(owner.path.glob(stack.dependency))
    if mine.stat().st_nlink == 1:
        pytest.skip("nothing is hard-linked here")
    before = mine.read_bytes()
    owner.plan({"checks": [stack.check]}, setup=stack.install)
    tried = owner.outside / "tried"
    edit = f"echo {shlex.quote(stack.edit)} >> $(ls {stack.dependency})"
    edit += f"; echo {shlex.quote(stack.work)} > {stack.file}"
    script = f"{stack.install} && {edit} && {stack.check} && touch {tried}"
    code, said = work(owner, script, "--max-iterations", "1")
    assert tried.exists(), said  # else it would prove nothing
    assert code in (3, 4) and owner.passed() == [], said
    assert mine.read_bytes() == before


# ---------------------------------------------------------------- what setup makes from sources


GENERATES = """
-- package.json
{
  "name": "shop",
  "private": true,
  "dependencies": {"kleur": "4.1.5"},
  "scripts": {"postinstall": "node generate.js", "test": "node test.js"}
}
-- .gitignore
node_modules/
made/
-- schema.json
["name"]
-- test.js
require('assert')(require('./made/client.js').includes('name'));
-- generate.js
const fs = require("fs");
const fields = JSON.parse(fs.readFileSync("schema.json"));
fs.mkdirSync("made", { recursive: true });
fs.writeFileSync("made/client.js", `module.exports = ${JSON.stringify(fields)};\\n`);
"""


@pytest.mark.parametrize(
    ("fields", "passes"),
    [('["name", "price"]', True), ('["price"]', False)],
    ids=["honest", "regression"],
)
def test_what_postinstall_makes_from_sources_is_of_the_tree_that_is_checked(
    fields: str, passes: bool, owner: Repo
) -> None:
    if not (runs("node") and runs("npm")):
        pytest.skip("not installed here: npm")
    lay(owner, GENERATES)
    must(owner, "npm install --no-audit --no-fund --prefer-offline --loglevel=error")
    owner.commit("shop")
    must(owner, "ralph init")
    setup = json.loads(owner.read("prd.json"))["setup"]
    assert setup == "npm ci"  # without `when`
    own = (
        "node -e \"require('assert')(require('./made/client.js').includes('price'));\""
    )
    owner.plan({"checks": [own]}, setup=setup, checks=["npm test"])
    edit = f"echo {shlex.quote(fields)} > schema.json"
    code, said = work(owner, edit, "--max-iterations", "1")
    assert code == (0 if passes else 3), said
    assert owner.passed() == (["T1"] if passes else []), said
    assert "Unknown env config" not in said
    if passes:
        clone_is_green(owner, "npm ci", "npm test", own)


# ---------------------------------------------------------------- checkouts that have to be trusted


@dataclass(frozen=True)
class Trusted:
    """A tool that reads the environment from a file once that is trusted: the file, how
    to trust it, how to run a command with it, what makes it active in a shell."""

    file: str
    content: str
    trust: str
    run: str
    activate: str


TRUSTED = {
    "direnv": Trusted(
        ".envrc", "export PYTHONPATH=$PWD/src\nexport RATE=7\n",
        "direnv allow .", "direnv exec . {}", 'eval "$(direnv export bash)"',
    ),
    "mise": Trusted(
        "mise.toml", '[env]\nPYTHONPATH = "{{config_root}}/src"\nRATE = "7"\n',
        "mise trust", "mise exec -- {}", 'eval "$(mise hook-env -s bash --force)"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("passes", [True, False], ids=["honest", "a - b"])
@pytest.mark.parametrize("name", TRUSTED)
def test_every_checkout_is_trusted_as_home_is(
    name: str, passes: bool, owner: Repo, get: Get
) -> None:
    """Active in the shell that ralph is started in, so PYTHONPATH names home. The work
    changes the file that was trusted, as it may."""
    tool = TRUSTED[name]
    if name in FROM_NPM:
        get(name)
    elif not runs(name):
        pytest.skip(f"not installed here: {name}")
    owner.env["MISE_PARANOID"] = "1"  # else mise trusts what it is started with
    owner.write(tool.file, tool.content)
    owner.write("src/calc.py", "def add(a, b):\n    return a + b\n")
    owner.write(".gitignore", "__pycache__/\n")
    owner.commit("shop")
    shell = f"{tool.trust} > /dev/null 2>&1 && bash -c '{tool.activate}; env -0'"
    for one in must(owner, shell, BASH_ENV="").split("\0"):
        if re.match(r"\w+=", one):
            key, _, value = one.partition("=")
            owner.env[key] = value
    assert owner.env["PYTHONPATH"] == f"{owner.path}/src" and owner.env["RATE"] == "7"
    must(owner, "ralph init")
    own = 'python3 -c \'import calc, os; calc.sub; assert os.environ["RATE"] == "8"\''
    adds = "python3 -c 'import calc; assert calc.add(1, 2) == 3'"
    task = {"checks": [tool.run.format(own)], "allow": [tool.file]}
    owner.plan(task, checks=[adds, tool.run.format(adds)])
    edits = f"echo 'def sub(a, b): return a - b' >> src/calc.py && sed -i s/7/8/ {tool.file}"
    if not passes:
        edits += " && sed -i 's/a + b/a - b/' src/calc.py"
    code, said = work(owner, edits, "--max-iterations", "1")
    assert (code, owner.passed()) == ((0, ["T1"]) if passes else (3, [])), said
    assert passes or "AssertionError" in said


# ---------------------------------------------------------------- a database for each place


@pytest.fixture
def database(owner: Repo, tmp_path: Path) -> Iterator[None]:
    """A server of PostgreSQL for this test, which the owner's environment names."""
    found = sorted(POSTGRES.glob("*/bin/initdb"))
    if not found and not runs("initdb"):
        pytest.skip("not installed here: PostgreSQL's server")
    programs = found[-1].parent if found else Path(str(shutil.which("initdb"))).parent
    folder = tmp_path / "database"
    folder.mkdir()
    start: list[str] = []
    if os.geteuid() == 0:  # the server refuses it
        shutil.chown(folder, "nobody")
        for above in (tmp_path, *tmp_path.parents[:3]):
            above.chmod(above.stat().st_mode | 0o011)
        start = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    initdb = [*start, str(programs / "initdb"), "-D", str(folder), "-A", "trust"]
    words = [*initdb, "-U", "shop", "--no-sync"]
    subprocess.run(words, check=True, capture_output=True, cwd="/")
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    control = [*start, str(programs / "pg_ctl"), "-D", str(folder), "-w"]
    words = [*control, "-l", str(folder / "log"), "-o", options, "start"]
    subprocess.run(words, check=True, cwd="/", stdout=subprocess.DEVNULL)
    owner.env |= {"PGHOST": str(folder), "PGUSER": "shop"}
    owner.env["PATH"] += f":{programs}"
    try:
        yield
    finally:
        words = [*control, "-m", "immediate", "stop"]
        subprocess.run(words, cwd="/", capture_output=True)


PRODUCTS = """
-- migrations/1.sql
create table product (name text);
-- test.sql
insert into product values ('tea');
-- package.json
{"scripts": {"test": "psql $DATABASE_URL -q -v ON_ERROR_STOP=1 -f test.sql"}}
"""


MIGRATE = "set -e\nfor one in migrations/*; do psql $DATABASE_URL -q -v ON_ERROR_STOP=1 -f $one; done"


def of_the_docs(owner: Repo) -> dict[str, object]:
    """The plan on the page about databases, for a small project that has a migration
    and a test."""
    page = (ROOT / "docs/setup.md").read_text("utf-8")
    section = page.partition("## Databases and ports")[2]
    example = re.findall(r"```json\n(.*?)```", section, re.DOTALL)[0]
    plan: dict[str, object] = json.loads(example)
    lay(owner, PRODUCTS)
    owner.program("migrate.sh", MIGRATE)
    owner.commit("shop")
    plan.pop("tasks")
    return plan


HAS = 'psql -d shop_$RALPH_SLOT -Atc "select {} from product"'
ALTER = "alter table product add column {} int"


@pytest.mark.usefixtures("database")
def test_each_place_has_a_database_of_its_own(owner: Repo) -> None:
    plan = of_the_docs(owner)
    owner.plan(HAS.format("price"), HAS.format("weight"), **plan)
    script = f"""
        name = "price" if task == "T1" else "weight"
        P("migrations/" + name + ".sql").write_text({ALTER!r}.format(name))
        open(OUT / "slots", "a").write(os.environ["RALPH_PLACE"] + " " + os.environ["RALPH_SLOT"] + "\\n")
        time.sleep(1)  # both are at work
        sys.exit(sh("psql -q -v ON_ERROR_STOP=1 -d shop_$RALPH_SLOT -f migrations/" + name + ".sql").returncode)
    """
    agent = owner.agent(script)
    said = owner.ends("0: T1 T2", agent, "--jobs", "2", timeout=DEADLINE).printed
    slots = owner.read("../slots").splitlines()
    assert sorted(slots[:2]) == ["work-1 1", "work-2 2"], said
    made = must(owner, "psql -d postgres -Atc 'select datname from pg_database'")
    assert {"shop_0", "shop_1", "shop_2"} <= set(made.split())
    both = HAS.format("price, weight")
    clone_is_green(owner, str(plan["setup"]), both, RALPH_SLOT="clone")
