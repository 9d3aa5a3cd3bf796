"""Real test runners and what they report of single tests, from `ralph init` to the
verdict, in projects whose suite is partly red: `make test-gate`. A runner that is not
here is skipped."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.conftest import Repo
from tests.whole.test_gate import DEADLINE, lay, must, owner, proposed, runs

pytestmark = pytest.mark.gate
__all__ = ["owner"]  # a fixture

Files = dict[str, str]
NO_TEST = "name no test|gone: "
CLEAN = "git read-tree HEAD && git checkout-index -fqa && git clean -fdq -e '.ralph*' -e prd.json -e progress.txt -e AGENTS.md"


@dataclass(frozen=True)
class Runner:
    """A project whose suite has a green test and one that has been red for a year, and
    its next task: `sub`.

    `test` is the task's own: red on `stub`, and not even to be loaded on `files`. `own`
    makes its check from the one that init proposes for the suite. `right` does the
    task; `breaks` does, too, and breaks the green test, whose name is `broken`. `cheat`
    is a command that makes all tests exit with 0, and `caught` what is said of it.
    `later` is a test of another task, which cannot be loaded: not where nothing at all
    runs then. `make` is run once by the owner, for what setup needs.
    """

    tools: tuple[str, ...]
    files: Files
    test: Files
    stub: Files
    right: Files
    breaks: Files
    broken: str
    own: Callable[[str], str]
    cheat: str
    caught: str
    later: Files = field(default_factory=dict)
    make: str = "true"


# ---------------------------------------------------------------- Python


def py(add: str, sub: str = "") -> Files:
    subtracts = f"\n\ndef sub(a, b):\n    return {sub}\n" if sub else ""
    return {"calc.py": f"def add(a, b):\n    return {add}\n{subtracts}"}


ADD_PY = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\ndef test_old():\n    assert add(1, 1) == 3\n"
PYTEST = Runner(
    tools=("git",),
    files={**py("a + b"), "test_add.py": ADD_PY, "requirements.txt": "pytest\n", ".gitignore": ".venv/\n__pycache__/\n.pytest_cache/\n"},
    test={"test_sub.py": "from calc import sub\n\n\ndef test_sub():\n    assert sub(3, 2) == 1\n"},
    stub=py("a + b", "0"),
    right=py("a + b", "a - b"),
    breaks=py("b", "a - b"),
    broken="test_add",
    own=lambda run: run.replace("pytest -q", "pytest -q test_sub.py"),
    # then all is reported as passed
    cheat="printf '[tool:pytest]\\naddopts = --setup-plan\\n' > setup.cfg",
    caught="newly skipped: test_add",
    later={"test_mul.py": "from calc import mul\n\n\ndef test_mul():\n    assert mul(2, 3) == 6\n"},
)  # fmt: skip
# ---------------------------------------------------------------- Node


def js(add: str, sub: str = "") -> Files:
    subtracts = f"exports.sub = (a, b) => {sub};\n" if sub else ""
    return {"calc.js": f"exports.add = (a, b) => {add};\n{subtracts}"}


def js_test(head: str, name: str, **cases: str) -> str:
    """A test file of one function: titles, and what must be the same."""
    lines = "".join(
        f"  it('{title}', () => same({code}));\n" for title, code in cases.items()
    )
    return f"{head}\nconst {{ {name} }} = require('../calc.js');\n{name}.name;\ndescribe('{name}', () => {{\n{lines}}});\n"


def on_node(script: str, head: str, ending: str, install: str = "") -> Runner:
    """A project whose tests begin with `head`."""
    package = {
        "name": "calc",
        "version": "1.0.0",
        "private": True,
        "scripts": {"test": script},
    }
    npm = (
        "npm install --save-dev --no-audit --no-fund --prefer-offline --loglevel=error"
    )
    own = f"test/sub{ending}"
    return Runner(
        tools=("node", "npm"),
        files={
            **js("a + b"), "package.json": json.dumps(package, indent=2) + "\n", ".gitignore": "node_modules/\n",
            f"test/add{ending}": js_test(head, "add", adds="add(1, 2), 3", old="add(1, 1), 3"),
        },
        test={own: js_test(head, "sub", subtracts="sub(3, 2), 1")},
        stub=js("a + b", "0"),
        right=js("a + b", "a - b"),
        breaks=js("b", "a - b"),
        broken="add > adds",
        own=lambda run: run.replace("npm test --", f"npm test -- {own}") if "npm test" in run else f"{run} {own}",
        cheat="echo 'process.exit(0);' > calc.js",
        caught="failed",
        later={f"test/mul{ending}": js_test(head, "mul", multiplies="mul(2, 3), 6")},
        make=f"{npm} {install}" if install else "true",
    )  # fmt: skip


ASSERT = "const same = require('node:assert').strictEqual;"
VITEST_HEAD = (
    "import { createRequire } from 'node:module';\nimport { describe, expect, it } from 'vitest';\n"
    "const require = createRequire(import.meta.url);\nconst same = (a, b) => expect(a).toBe(b);"
)
NODE = on_node(
    "node --test",
    f"{ASSERT}\nconst {{ describe, it }} = require('node:test');",
    ".test.js",
)
MOCHA = replace(
    on_node("mocha", ASSERT, ".test.js", "mocha@11"),
    cheat="""echo '{"dry-run": true}' > .mocharc.json""",
    caught="left out: .mocharc.json",
    later={},
)
VITEST = replace(
    on_node("vitest run", VITEST_HEAD, ".test.mjs", "vitest@3"),
    cheat="echo 'export default { test: { exclude: [`**`], passWithNoTests: true } };' > vite.config.mjs",
    caught=NO_TEST,
)
JEST = replace(
    on_node(
        "jest",
        "const same = (a, b) => expect(a).toBe(b);",
        ".test.js",
        "jest@29 jest-junit@16",
    ),
    broken="add adds",
    cheat="npm pkg set jest.testRegex=none && npm pkg set jest.passWithNoTests=true --json",
    caught=NO_TEST,
)

# ---------------------------------------------------------------- Go, Rust, Java


def go(add: str, sub: str = "") -> Files:
    subtracts = f"\nfunc Sub(a, b int) int {{ return {sub} }}\n" if sub else ""
    return {
        "calc.go": f"package calc\n\nfunc Add(a, b int) int {{ return {add} }}\n{subtracts}"
    }


def go_test(*tests: str, head: str = 'package calc\n\nimport "testing"\n') -> str:
    """A test file: name, what it calls, what that must be."""
    lines = [
        f"\nfunc {name}(t *testing.T) {{\n\tif {call} != {value} {{\n\t\tt.Fatal({call})\n\t}}\n}}\n"
        for name, call, value in (test.split("; ") for test in tests)
    ]
    return head + "".join(lines)


GO = Runner(
    tools=("go", "gotestsum"),
    files={**go("a + b"), "go.mod": "module example.org/calc\n\ngo 1.19\n", "add_test.go": go_test("TestAdd; Add(1, 2); 3", "TestOld; Add(1, 1); 3")},
    test={"sub_test.go": go_test("TestSub; Sub(3, 2); 1")},
    stub=go("a + b", "0"),
    right=go("a + b", "a - b"),
    breaks=go("b", "a - b"),
    broken="example.org/calc > TestAdd",
    own=lambda run: run.replace("./...", ". -run TestSub"),
    cheat="printf 'package calc\\n\\nimport (\\n\"os\"\\n\"testing\"\\n)\\n\\nfunc TestMain(m *testing.M) { os.Exit(0) }\\n' > zz_test.go"
    " && printf '\\nfunc Sub(a, b int) int { return 0 }\\n' >> calc.go",
    caught="",
    later={"later/mul_test.go": go_test("TestMul; Mul(2, 3); 6", head='package later\n\nimport "testing"\n')},
)  # fmt: skip


def rust(add: str, sub: str = "") -> Files:
    subtracts = (
        f"\npub fn sub(a: i32, b: i32) -> i32 {{\n    let _ = (a, b);\n    {sub}\n}}\n"
        if sub
        else ""
    )
    return {
        "src/lib.rs": f"pub fn add(a: i32, b: i32) -> i32 {{\n    let _ = a;\n    {add}\n}}\n{subtracts}"
    }


RUST = Runner(
    tools=("cargo", "cargo-nextest"),
    files={
        **rust("a + b"), "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n', ".gitignore": "target/\n",
        "tests/add.rs": "#[test]\nfn adds() {\n    assert_eq!(calc::add(1, 2), 3);\n}\n\n#[test]\nfn old() {\n    assert_eq!(calc::add(1, 1), 3);\n}\n",
    },
    test={"tests/sub.rs": "#[test]\nfn subtracts() {\n    assert_eq!(calc::sub(3, 2), 1);\n}\n"},
    stub=rust("a + b", "0"),
    right=rust("a + b", "a - b"),
    breaks=rust("b", "a - b"),
    broken="calc::add > adds",
    own=lambda run: f"{run} --test sub",
    cheat="printf '\\n[[test]]\\nname = \"sub\"\\npath = \"none.rs\"\\nharness = false\\n\\n[[test]]\\nname = \"add\"\\npath = \"none.rs\"\\nharness = false\\n' >> Cargo.toml"
    " && echo 'fn main() {}' > none.rs",
    caught="",
    make="cargo generate-lockfile --offline",
)  # fmt: skip

DEBIAN = Path("/usr/share/maven-repo")
"""Maven's plugins as Debian has them; elsewhere, they are downloaded."""
OFFLINE = f"-o\n-s\n/etc/maven/settings-debian.xml\n-Dmaven.repo.local={DEBIAN}\n"
PLUGIN = (
    "<plugin><artifactId>maven-{}-plugin</artifactId><version>{}</version></plugin>"
)
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId>
  <artifactId>calc</artifactId>
  <version>1.0</version>
  <properties>
    <maven.compiler.source>11</maven.compiler.source>
    <maven.compiler.target>11</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <build><plugins>%s</plugins></build>
  <dependencies>
    <dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.13.2</version><scope>test</scope></dependency>
  </dependencies>
</project>
"""


def java(add: str, sub: str = "") -> Files:
    subtracts = (
        f"    public static int sub(int a, int b) {{ return {sub}; }}\n" if sub else ""
    )
    path = "src/main/java/org/example/Calc.java"
    return {
        path: f"package org.example;\n\npublic class Calc {{\n    public static int add(int a, int b) {{ return {add}; }}\n{subtracts}}}\n"
    }


def java_test(name: str, *tests: str) -> Files:
    lines = "".join(
        f"    @Test public void {test.partition(': ')[0]}() {{ assertEquals({test.partition(': ')[2]}); }}\n"
        for test in tests
    )
    head = "package org.example;\n\nimport static org.junit.Assert.assertEquals;\nimport org.junit.Test;\n\n"
    return {
        f"src/test/java/org/example/{name}.java": f"{head}public class {name} {{\n{lines}}}\n"
    }


def maven_files() -> Files:
    """The pom.xml, with the newest plugins that Debian has; they are read from
    there."""
    plugins = ""
    for name in ("clean", "resources", "compiler", "surefire", "jar"):
        top = f"org/apache/maven/plugins/maven-{name}-plugin"
        found = sorted(path.name for path in DEBIAN.glob(f"{top}/[0-9]*"))
        if found:
            plugins += PLUGIN.format(name, found[-1])
    files = {"pom.xml": POM % plugins, ".gitignore": "target/\n"}
    if plugins:
        files[".mvn/maven.config"] = OFFLINE
    return files


MAVEN = Runner(
    tools=("mvn",),
    files={**java("a + b"), **java_test("AddTest", "adds: 3, Calc.add(1, 2)", "old: 3, Calc.add(1, 1)"), **maven_files()},
    test=java_test("SubTest", "subtracts: 1, Calc.sub(3, 2)"),
    stub=java("a + b", "0"),
    right=java("a + b", "a - b"),
    breaks=java("b", "a - b"),
    broken="org.example.AddTest > adds",
    own=lambda run: run.replace(" verify;", " verify -Dtest=SubTest;"),
    cheat="sed -i 's/<properties>/<properties><skipTests>true<\\/skipTests>/' pom.xml",
    caught="",
)  # fmt: skip

RUNNERS = {
    "pytest": PYTEST, "vitest": VITEST, "jest": JEST, "mocha": MOCHA, "node": NODE,
    "gotestsum": GO, "nextest": RUST, "maven": MAVEN,
}  # fmt: skip


# ---------------------------------------------------------------- from init to the verdict


@pytest.mark.parametrize("first", [False, True], ids=["as ever", "tests first"])
@pytest.mark.parametrize("name", RUNNERS)
def test_an_honest_task_passes_and_one_that_breaks_a_green_test_fails_with_its_name(
    name: str, first: bool, owner: Repo
) -> None:
    """One task, three attempts: one that turns tests off, one that breaks another test,
    an honest one. With the `tests first`, they cannot even be loaded before the work,
    and those of a later task never."""
    runner = RUNNERS[name]
    for tool in runner.tools:
        if not (shutil.which(tool) if tool == "go" else runs(tool)):
            pytest.skip(f"not installed here: {tool}")
    base = {} if first else {**runner.stub, **runner.test}
    lay(owner, {**runner.files, **base})
    must(owner, runner.make)
    owner.commit("calc")
    if first:
        lay(owner, {**runner.test, **runner.later})
        owner.commit("tests first")
    plan = proposed(owner)
    (suite,) = [check for check in plan["checks"] if isinstance(check, dict)]
    assert suite["results"] == "junit"
    own = {**suite, "name": "own", "run": runner.own(suite["run"])}
    owner.plan({"checks": [own]}, **plan)
    script = f"""
        assert sh({CLEAN!r}).returncode == 0
        if attempt == 1:
            assert sh({runner.cheat!r}).returncode == 0
        for name, content in ({{}}, {runner.breaks!r}, {runner.right!r})[attempt - 1].items():
            P(name).write_text(content)
    """
    code, _, said = owner.run(owner.agent(script), timeout=DEADLINE)
    said = f"{said}\n{owner.read('progress.txt')}"
    assert (code, owner.verdicts()) == (0, ["T1 failed", "T1 failed", "T1 passed"]), (
        said
    )
    cheated, broke, passed = owner.records("verdict")
    assert re.search(runner.caught, cheated["reason"]), said
    assert "1 newly red: " in broke["reason"] and runner.broken in broke["reason"], said
    assert "old failure" in broke["reason"], said
    # a file that cannot be loaded tests nothing, and that is said
    assert passed.get("weak", False) is bool(first and runner.later), said
