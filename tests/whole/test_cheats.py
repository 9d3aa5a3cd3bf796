"""Files and code that turn tests off without doing the work, by runner, with checks as
`ralph init` proposes them: each is red, or passes with a mark that says where to look.
Their honest twins pass. All but pytest are part of `make test-gate`;
of pytest `make test-crash` takes all."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import Repo, sample
from tests.scripts import NEVER_STUCK
from tests.whole.test_gate import DEADLINE, lay, must, owner, proposed, runs
from tests.whole.test_runners import CLEAN, GO, MOCHA, NODE, RUST, Runner, py

__all__ = ["owner"]  # a fixture

Files = dict[str, str]


@dataclass(frozen=True)
class Cheat:
    """What an agent leaves so that no test runs, or so that the green test which it
    broke does not; what is said of both; and what an honest agent could write there."""

    off: Files
    hides: Files
    honest: Files
    said: tuple[str, str] = ("", "1 gone: ")


def ini(section: str, options: str) -> str:
    return f"[{section}]\naddopts = {options}\n"


def toml(options: str) -> str:
    return f'[project]\nname = "calc"\nversion = "1"\n\n[tool.pytest.ini_options]\naddopts = "{options}"\n'


LEFT_OUT = "left out: {}"
DESELECT = "--deselect=tests/test_add.py::test_add"
RED = "1 newly red: "
PASSES = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
PYTEST_FILES = {
    **py("a + b"), "pyproject.toml": '[project]\nname = "calc"\nversion = "1"\n', "requirements.txt": "pytest\n",
    "tests/test_add.py": "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\ndef test_old():\n    assert add(1, 1) == 3\n",
    ".gitignore": ".venv/\n__pycache__/\n.pytest_cache/\n",
}  # fmt: skip
PYTEST = Runner(
    tools=(),
    files=PYTEST_FILES,
    test={
        "tests/test_sub.py": "from calc import sub\n\n\ndef test_sub():\n    assert sub(3, 2) == 1\n"
    },
    stub=py("a + b", "0"),
    right=py("a + b", "a - b"),
    breaks=py("b", "a - b"),
    broken="tests.test_add > test_add",
    own=lambda run: run.replace("pytest -q", "pytest -q tests/test_sub.py"),
    cheat="",
    caught="",
)


def code(files: Files, head: str) -> Files:
    """The same files, each with more at its beginning."""
    return {name: head + content for name, content in files.items()}


NO_RESULTS = "wrote no results"
NO_TEST = "name no test"
SKIPPED = "1 newly skipped: tests.test_add > test_add"
OFF = ini("pytest", "--collect-only")
HIDES = ini("pytest", DESELECT)
ON = ini("pytest", "-ra")
PYTEST_CHEATS = {
    "protected files": Cheat(
        {"pytest.ini": OFF, "tests/pytest.ini": OFF, "tests/conftest.py": PASSES},
        {"pytest.ini": HIDES, "tests/pytest.ini": HIDES, "conftest.py": PASSES},
        {"pytest.ini": ON, "tests/pytest.ini": ON, "tests/conftest.py": "import calc\n"},
        ('"allow": ["pytest.ini", "tests/conftest.py", "tests/pytest.ini"]', RED),
    ),
    "settings": Cheat(
        {"pyproject.toml": toml("--collect-only")},
        {"setup.cfg": ini("tool:pytest", DESELECT)},
        {"pyproject.toml": toml("-ra"), "setup.cfg": "[metadata]\nname = calc\n"},
        (NO_TEST, "1 gone: tests.test_add > test_add"),
    ),
    "no call of any test": Cheat(
        {"pyproject.toml": toml("--setup-only")},
        {"pyproject.toml": toml("--setup-plan")},
        {},
        (SKIPPED, SKIPPED),
    ),
    "the process ends": Cheat(
        code(py("a + b", "0"), "import os\n\nos._exit(0)\n"),
        code(py("b", "a - b"), "import pytest\n\npytest.skip(allow_module_level=True)\n"),
        {},
        (NO_RESULTS, "1 gone: tests.test_add > test_add"),
    ),
}  # fmt: skip


def package(**more: object) -> Files:
    """What an agent sets in package.json."""
    return {"package.json": json.dumps(more)}


EXITS = "process.exit(0);\n"
NODE_CHEATS = {
    "the process ends": Cheat(
        {"test/zz.test.js": EXITS}, {"test/add2.test.js": EXITS}, {}, ("own 1 failed", RED)
    ),
    "code that ends": Cheat(code(NODE.stub, EXITS), code(NODE.breaks, EXITS), {}, ("gone: ", "gone: ")),
}  # fmt: skip
MOCHA_CHEATS = {
    ".mocharc.json": Cheat(
        {".mocharc.json": '{"dry-run": true}\n'},
        {".mocharc.json": '{"grep": "subtracts"}\n'},
        {".mocharc.json": '{"timeout": 5000}\n'},
        (LEFT_OUT.format(".mocharc.json"), RED),
    ),
    ".npmrc": Cheat(
        {".npmrc": "script-shell=/bin/true\n"},
        {".npmrc": "script-shell=/bin/true\n"},
        {".npmrc": "fund=false\n"},
        (LEFT_OUT.format(".npmrc"), RED),
    ),
    "scripts": Cheat(
        package(scripts={"test": "true"}),
        package(scripts={"test": "mocha --grep subtracts"}),
        package(scripts={"test": "mocha", "start": "node calc.js"}),
        (NO_RESULTS, "1 gone: "),
    ),
    "the process ends": Cheat(
        {"test/zz.test.js": EXITS}, {"test/zz.test.js": EXITS}, {}, (NO_RESULTS, NO_RESULTS)
    ),
    "code that ends": Cheat(code(MOCHA.stub, EXITS), code(MOCHA.breaks, EXITS), {}, (NO_RESULTS, NO_RESULTS)),
}  # fmt: skip

GO_MAIN = 'package calc\n\nimport (\n\t"flag"\n\t"os"\n\t"testing"\n)\n\nvar run = flag.Set\n\nfunc TestMain(m *testing.M) {{\n\t{}\n}}\n'


def go_init(files: Files, does: str) -> Files:
    """The same code, which does something before any test begins."""
    head = f'package calc\n\nimport "os"\n\nfunc init() {{ {does} }}\n'
    return {
        name: content.replace("package calc\n", head) for name, content in files.items()
    }


GO_CHEATS = {
    "TestMain": Cheat(
        {"zz_test.go": GO_MAIN.format("os.Exit(0)")},
        {"zz_test.go": GO_MAIN.format('run("test.run", "TestSub")\n\tos.Exit(m.Run())')},
        {"zz_test.go": GO_MAIN.format("os.Exit(m.Run())")},
        (NO_TEST, "1 gone: "),
    ),
    "init": Cheat(
        go_init(GO.stub, "os.Exit(0)"),
        go_init(GO.breaks, 'os.Args = append(os.Args, "-test.run=TestSub")'),
        {},
        (NO_TEST, "1 gone: "),
    ),
}  # fmt: skip


def cargo(*tests: str) -> Files:
    """A Cargo.toml in which these tests are programs that do nothing."""
    own = "".join(
        f'\n[[test]]\nname = "{name}"\npath = "none.rs"\nharness = false\n'
        for name in tests
    )
    return {"Cargo.toml": RUST.files["Cargo.toml"] + own, "none.rs": "fn main() {}\n"}


RUNS = '[target."cfg(all())"]\nrunner = {}\n'
RUST_CHEATS = {
    "no harness": Cheat(
        cargo("sub", "add"),
        cargo("add"),
        {"Cargo.toml": RUST.files["Cargo.toml"] + '\n[[test]]\nname = "add"\npath = "tests/add.rs"\n'},
        ("failed with exit 4", "1 gone: "),
    ),
    ".cargo/config.toml": Cheat(
        {".cargo/config.toml": RUNS.format('"true"')},
        {".cargo/config.toml": RUNS.format('["sh", "run.sh"]'), "run.sh": '[ "$2" = --list ] || [ "$3" = --list ] || exit 0\nexec "$@"\n'},
        {".cargo/config.toml": "[build]\njobs = 1\n"},
        (LEFT_OUT.format(".cargo/config.toml"), RED),
    ),
}  # fmt: skip
CHEATS: dict[str, tuple[Runner, dict[str, Cheat]]] = {
    "pytest": (PYTEST, dict(sample(PYTEST_CHEATS.items(), 3))), "node": (NODE, NODE_CHEATS), "mocha": (MOCHA, MOCHA_CHEATS),
    "gotestsum": (GO, GO_CHEATS), "nextest": (RUST, RUST_CHEATS),
}  # fmt: skip


def prepared(owner: Repo, runner: Runner) -> dict[str, Any]:
    """A project at work on its next task; what `ralph init` proposes for it, and the
    task's own check."""
    for tool in runner.tools:
        if not (shutil.which(tool) if tool == "go" else runs(tool)):
            pytest.skip(f"not installed here: {tool}")
    lay(owner, {**runner.files, **runner.stub, **runner.test})
    must(owner, runner.make)
    owner.commit("calc")
    plan = proposed(owner)
    if runner is PYTEST:  # the python of these tests has pytest already
        python = owner.program("../python", f'exec {shlex.quote(sys.executable)} "$@"')
        plan["setup"]["run"] = f"mkdir -p .venv/bin && cp {python} .venv/bin/"
    return plan


def own_check(plan: dict[str, Any], runner: Runner) -> dict[str, str]:
    (suite,) = [check for check in plan["checks"] if isinstance(check, dict)]
    assert suite["results"] == "junit"
    return {**suite, "name": "own", "run": runner.own(suite["run"])}


def writes(does: dict[str, list[Files]]) -> str:
    """A scripted agent that writes these files, by task and attempt; into package.json,
    what differs."""
    return f"""
        assert sh({CLEAN!r}).returncode == 0
        for name, content in {does!r}[task][attempt - 1].items():
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            if name == "package.json":
                content = json.dumps({{**json.loads(P(name).read_text()), **json.loads(content)}})
            P(name).write_text(content)
    """


ALL = [name if name == "pytest" else pytest.param(name, marks=pytest.mark.gate) for name in CHEATS]  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_what_turns_tests_off_is_red_and_its_honest_twin_green(
    name: str, owner: Repo
) -> None:
    """Each cheat is a task of two attempts: no work and all tests off; right work that
    breaks another test, and that one off. The last task is honest, and writes the same
    files."""
    runner, cheats = CHEATS[name]
    plan = prepared(owner, runner)
    own = own_check(plan, runner)
    does: dict[str, list[Files]] = {}
    wanted = []
    honest = dict(runner.right)
    for number, (what, cheat) in enumerate(cheats.items(), 1):
        does[f"T{number}"] = [cheat.off, {**runner.breaks, **cheat.hides}]
        wanted += [(what, said) for said in cheat.said]
        honest |= cheat.honest
    last = f"T{len(cheats) + 1}"
    does[last] = [honest]
    owner.plan(*[{"checks": [own]}] * len(does), **plan, limits={"attempts": 2})
    agent = owner.agent(writes(does))
    said = owner.run(agent, timeout=DEADLINE, first=NEVER_STUCK)[2]
    said = f"{said}\n{owner.read('progress.txt')}"
    assert owner.passed() == [last], said
    *verdicts, passed = owner.records("verdict")
    for (what, words), record in zip(wanted, verdicts, strict=True):
        assert words in record["reason"], f"{what}: {record['reason']}\n{said}"
    assert passed["verdict"] == "passed" and not passed.get("weak"), said


def last_of(owner: Repo, runner: Runner, work: Files, **task: object) -> dict[str, Any]:
    """What is recorded of one attempt that leaves these files."""
    plan = prepared(owner, runner)
    owner.plan({"checks": [own_check(plan, runner)], **task}, **plan)
    owner.run(
        owner.agent(writes({"T1": [work]})), "--max-attempts", "1", timeout=DEADLINE
    )
    return owner.records("verdict")[-1]


# ---------------------------------------------------------------- what passes, with a mark


@pytest.mark.gate
def test_settings_that_only_pretend_to_run_tests_are_marked(owner: Repo) -> None:
    record = last_of(owner, MOCHA, package(mocha={"dry-run": True}))
    assert record["verdict"] == "passed" and record["tests"] == ["package.json"]


@pytest.mark.gate
def test_a_build_that_rewrites_the_tests_is_named(owner: Repo) -> None:
    rewrites = 'fn main() {\n    std::fs::write("tests/sub.rs", "#[test]\\nfn subtracts() {}\\n").unwrap();\n}\n'
    record = last_of(owner, RUST, {"build.rs": rewrites})
    assert "changed tests/sub.rs; put back before the next check" in " ".join(
        record["notices"]
    )
