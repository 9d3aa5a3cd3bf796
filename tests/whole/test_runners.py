"""Real test runners and what they report of single tests, from `ralph init` to the
verdict, in projects whose suite is partly red: `make test-gate`. A runner that is not
here is skipped."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Repo
from tests.whole.test_gate import (
    DEADLINE,
    NPM,
    files_of,
    lay,
    must,
    owner,
    proposed,
    runs,
)

pytestmark = pytest.mark.gate
__all__ = ["owner"]  # a fixture

Files = dict[str, str]
NO_TEST = "name no test|gone: "
CLEAN = "git read-tree HEAD && git checkout-index -fqa && git clean -fdq -e '.ralph*' -e prd.json -e progress.txt -e AGENTS.md"


@dataclass(frozen=True)
class Runner:
    """A project whose suite has a green test and one that has been red for a year, and
    its next task: `sub`. Files are texts, as `files_of` reads them.

    `code` is the code, where ADD stands for what `add` gives, and MORE for `sub` once
    that is there; in it, SUB for what it gives. `test` is the task's own: red on the
    stub, and not even to be loaded on `files`. `own` makes its check from the one that
    init proposes for the suite: a pattern, and what stands there instead. `broken` is
    the name of the green test. `cheat` is a command that makes all tests exit with 0,
    and `caught` what is said of it. `later` is a test of another task, which cannot be
    loaded: not where nothing at all runs then. `make` is run once by the owner, for
    what setup needs.
    """

    tools: str
    code: str
    sub: str
    files: str
    test: str
    own: str
    broken: str
    cheat: str
    caught: str
    later: str = ""
    make: str = "true"

    def calc(self, add: str, sub: str = "") -> Files:
        more = self.sub.replace("SUB", sub) if sub else ""
        return files_of(self.code.replace("ADD", add).replace("MORE", more))

    @property
    def base(self) -> Files:
        return {**self.calc("a + b"), **files_of(self.files)}

    @property
    def stub(self) -> Files:
        return self.calc("a + b", "0")

    @property
    def right(self) -> Files:
        return self.calc("a + b", "a - b")

    @property
    def breaks(self) -> Files:
        """Does the task, too, and breaks the green test."""
        return self.calc("b", "a - b")

    def own_of(self, run: str) -> str:
        pattern, instead = self.own.split(" => ")
        return re.sub(pattern, instead, run, count=1)


# ---------------------------------------------------------------- Python

PYTEST = Runner(
    tools="git",
    code="""
-- calc.py
def add(a, b):
    return ADD
MORE""",
    sub="\n\ndef sub(a, b):\n    return SUB\n",
    files="""
-- test_add.py
from calc import add


def test_add():
    assert add(1, 2) == 3


def test_old():
    assert add(1, 1) == 3
-- requirements.txt
pytest
-- .gitignore
.venv/
__pycache__/
.pytest_cache/
""",
    test="""
-- test_sub.py
from calc import sub


def test_sub():
    assert sub(3, 2) == 1
""",
    own=r"pytest -q => \g<0> test_sub.py",
    broken="test_add",
    # then all is reported as passed
    cheat="printf '[tool:pytest]\\naddopts = --setup-plan\\n' > setup.cfg",
    caught="newly skipped: test_add",
    later="""
-- test_mul.py
from calc import mul


def test_mul():
    assert mul(2, 3) == 6
""",
)

# ---------------------------------------------------------------- Node

NODE_FILES = """
-- package.json
{"name": "calc", "version": "1.0.0", "private": true, "scripts": {"test": "SCRIPT"}}
-- .gitignore
node_modules/
-- test/addENDING
HEAD
const { add } = require('../calc.js');
add.name;
describe('add', () => {
  it('adds', () => same(add(1, 2), 3));
  it('old', () => same(add(1, 1), 3));
});
"""
NODE_TEST = """
-- test/NAMEENDING
HEAD
const { NAME } = require('../calc.js');
NAME.name;
describe('NAME', () => {
  it('TITLE', () => same(CASE));
});
"""


def on_node(script: str, head: str, ending: str, install: str = "") -> Runner:
    """A project whose tests begin with `head`."""
    test = NODE_TEST.replace("HEAD", head).replace("ENDING", ending)
    sub = test.replace("NAME", "sub").replace("TITLE", "subtracts")
    mul = test.replace("NAME", "mul").replace("TITLE", "multiplies")
    files = NODE_FILES.replace("SCRIPT", script).replace("HEAD", head)
    return Runner(
        tools="node npm",
        code="\n-- calc.js\nexports.add = (a, b) => ADD;\nMORE",
        sub="exports.sub = (a, b) => SUB;\n",
        files=files.replace("ENDING", ending),
        test=sub.replace("CASE", "sub(3, 2), 1"),
        own=rf"npm test --|$ => \g<0> test/sub{ending}",
        broken="add > adds",
        cheat="echo 'process.exit(0);' > calc.js",
        caught="failed",
        later=mul.replace("CASE", "mul(2, 3), 6"),
        make=f"{NPM} {install}" if install else "true",
    )


ASSERT = "const same = require('node:assert').strictEqual;"
EXPECT = "const same = (a, b) => expect(a).toBe(b);"
VITEST_HEAD = f"""import {{ createRequire }} from 'node:module';
import {{ describe, expect, it }} from 'vitest';
const require = createRequire(import.meta.url);
{EXPECT}"""
NODE_HEAD = f"{ASSERT}\nconst {{ describe, it }} = require('node:test');"
NODE = on_node("node --test", NODE_HEAD, ".test.js")
MOCHA = replace(
    on_node("mocha", ASSERT, ".test.js", "mocha@11"),
    cheat="""echo '{"dry-run": true}' > .mocharc.json""",
    caught="left out: .mocharc.json",
    later="",
)
VITEST = replace(
    on_node("vitest run", VITEST_HEAD, ".test.mjs", "vitest@3"),
    cheat="echo 'export default { test: { exclude: [`**`], passWithNoTests: true } };' > vite.config.mjs",
    caught=NO_TEST,
)
JEST = replace(
    on_node("jest", EXPECT, ".test.js", "jest@29 jest-junit@16"),
    broken="add adds",
    cheat="npm pkg set jest.testRegex=none && npm pkg set jest.passWithNoTests=true --json",
    caught=NO_TEST,
)

# ---------------------------------------------------------------- Go, Rust, Java

GO = Runner(
    tools="go gotestsum",
    code="""
-- calc.go
package calc

func Add(a, b int) int { return ADD }
MORE""",
    sub="\nfunc Sub(a, b int) int { return SUB }\n",
    files="""
-- go.mod
module example.org/calc

go 1.19
-- add_test.go
package calc

import "testing"

func TestAdd(t *testing.T) {
	if Add(1, 2) != 3 {
		t.Fatal(Add(1, 2))
	}
}

func TestOld(t *testing.T) {
	if Add(1, 1) != 3 {
		t.Fatal(Add(1, 1))
	}
}
""",
    test="""
-- sub_test.go
package calc

import "testing"

func TestSub(t *testing.T) {
	if Sub(3, 2) != 1 {
		t.Fatal(Sub(3, 2))
	}
}
""",
    own=r"\./\.\.\. => . -run TestSub",
    broken="example.org/calc > TestAdd",
    cheat='printf \'package calc\\n\\nimport (\\n"os"\\n"testing"\\n)\\n\\nfunc TestMain(m *testing.M) { os.Exit(0) }\\n\' > zz_test.go'
    " && printf '\\nfunc Sub(a, b int) int { return 0 }\\n' >> calc.go",
    caught="",
    later="""
-- later/mul_test.go
package later

import "testing"

func TestMul(t *testing.T) {
	if Mul(2, 3) != 6 {
		t.Fatal(Mul(2, 3))
	}
}
""",
)
RUST = Runner(
    tools="cargo cargo-nextest",
    code="""
-- src/lib.rs
pub fn add(a: i32, b: i32) -> i32 {
    let _ = a;
    ADD
}
MORE""",
    sub="\npub fn sub(a: i32, b: i32) -> i32 {\n    let _ = (a, b);\n    SUB\n}\n",
    files="""
-- Cargo.toml
[package]
name = "calc"
version = "0.1.0"
edition = "2021"
-- .gitignore
target/
-- tests/add.rs
#[test]
fn adds() {
    assert_eq!(calc::add(1, 2), 3);
}

#[test]
fn old() {
    assert_eq!(calc::add(1, 1), 3);
}
""",
    test="""
-- tests/sub.rs
#[test]
fn subtracts() {
    assert_eq!(calc::sub(3, 2), 1);
}
""",
    own="$ =>  --test sub",
    broken="calc::add > adds",
    cheat='printf \'\\n[[test]]\\nname = "sub"\\npath = "none.rs"\\nharness = false\\n\\n[[test]]\\nname = "add"\\npath = "none.rs"\\nharness = false\\n\' >> Cargo.toml'
    " && echo 'fn main() {}' > none.rs",
    caught="",
    make="cargo generate-lockfile --offline",
)

DEBIAN = Path("/usr/share/maven-repo")
"""Maven's plugins as Debian has them; elsewhere, they are downloaded."""
OFFLINE = f"""
-- .mvn/maven.config
-o
-s
/etc/maven/settings-debian.xml
-Dmaven.repo.local={DEBIAN}
"""
PLUGIN = (
    "<plugin><artifactId>maven-{}-plugin</artifactId><version>{}</version></plugin>"
)
MAVEN_FILES = """
-- src/test/java/org/example/AddTest.java
package org.example;

import static org.junit.Assert.assertEquals;
import org.junit.Test;

public class AddTest {
    @Test public void adds() { assertEquals(3, Calc.add(1, 2)); }
    @Test public void old() { assertEquals(3, Calc.add(1, 1)); }
}
-- .gitignore
target/
-- pom.xml
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId>
  <artifactId>calc</artifactId>
  <version>1.0</version>
  <properties>
    <maven.compiler.source>11</maven.compiler.source>
    <maven.compiler.target>11</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <build><plugins>PLUGINS</plugins></build>
  <dependencies>
    <dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.13.2</version><scope>test</scope></dependency>
  </dependencies>
</project>
"""


def maven_files() -> str:
    """With the newest plugins that Debian has; they are read from there."""
    plugins = ""
    for name in ("clean", "resources", "compiler", "surefire", "jar"):
        top = f"org/apache/maven/plugins/maven-{name}-plugin"
        found = sorted(path.name for path in DEBIAN.glob(f"{top}/[0-9]*"))
        if found:
            plugins += PLUGIN.format(name, found[-1])
    files = MAVEN_FILES.replace("PLUGINS", plugins)
    return files + OFFLINE.lstrip() if plugins else files


MAVEN = Runner(
    tools="mvn",
    code="""
-- src/main/java/org/example/Calc.java
package org.example;

public class Calc {
    public static int add(int a, int b) { return ADD; }
MORE}
""",
    sub="    public static int sub(int a, int b) { return SUB; }\n",
    files=maven_files(),
    test="""
-- src/test/java/org/example/SubTest.java
package org.example;

import static org.junit.Assert.assertEquals;
import org.junit.Test;

public class SubTest {
    @Test public void subtracts() { assertEquals(1, Calc.sub(3, 2)); }
}
""",
    own=" verify; =>  verify -Dtest=SubTest;",
    broken="org.example.AddTest > adds",
    cheat="sed -i 's/<properties>/<properties><skipTests>true<\\/skipTests>/' pom.xml",
    caught="",
)

RUNNERS = {
    "pytest": PYTEST, "vitest": VITEST, "jest": JEST, "mocha": MOCHA, "node": NODE,
    "gotestsum": GO, "nextest": RUST, "maven": MAVEN,
}  # fmt: skip


def begun(owner: Repo, runner: Runner, *layers: Files) -> dict[str, Any]:
    """A project with a commit for each of these layers; what `ralph init` proposes for
    it, with its one check that reports single tests as `suite`."""
    for tool in runner.tools.split():
        if not (shutil.which(tool) if tool == "go" else runs(tool)):
            pytest.skip(f"not installed here: {tool}")
    for number, files in enumerate(layers, 1):
        lay(owner, files)
        if number == 1:
            must(owner, runner.make)
        owner.commit(f"layer {number}")
    return proposed(owner)


def own_check(plan: dict[str, Any], runner: Runner) -> dict[str, str]:
    """The check of the task alone, from the only one that reports single tests."""
    (suite,) = [check for check in plan["checks"] if isinstance(check, dict)]
    assert suite["results"] == "junit"
    return {**suite, "name": "own", "run": runner.own_of(suite["run"])}


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
    base, test = runner.base, files_of(runner.test)
    if first:
        plan = begun(owner, runner, base, {**test, **files_of(runner.later)})
    else:
        plan = begun(owner, runner, {**base, **runner.stub, **test})
    owner.plan({"checks": [own_check(plan, runner)]}, **plan)
    script = f"""
        assert sh({CLEAN!r}).returncode == 0
        if attempt == 1:
            assert sh({runner.cheat!r}).returncode == 0
        for name, content in ({{}}, {runner.breaks!r}, {runner.right!r})[attempt - 1].items():
            P(name).write_text(content)
    """
    three = "0: T1 failed, T1 failed, T1 passed"
    said = owner.judges(three, owner.agent(script), timeout=DEADLINE).printed
    said = f"{said}\n{owner.read('progress.txt')}"
    cheated, broke, passed = owner.records("verdict")
    assert re.search(runner.caught, cheated["reason"]), said
    for words in ("1 newly red: ", runner.broken, "old failure"):
        assert words in broke["reason"], said
    # a file that cannot be loaded tests nothing, and that is said
    assert passed.get("weak", False) is bool(first and runner.later), said
