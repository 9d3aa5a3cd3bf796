"""Patterns of `protect`, `allow`, `keep` and `when`: what they protect, and what is
refused as it would protect nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from _ralph.errors import BadInput
from _ralph.git.patterns import (
    matching,
    normal,
    plain_names,
    uncovered_tests,
)
from _ralph.state import prd
from tests.conftest import cases

NAMES = """tests/test_a.py
tests/unit/test_b.py
tests/unit/deep/test_c.py
tests/conftest.py
conftest.py
src/tests/test_d.py
src/app.py
src/app.test.js
src/[id].js
src/i.js
app/[slug]/page.js
package.json
pkg/package.json
.github/workflows/ci.yml
a/c,d.txt
-x
#a
été/ü.txt
testsuite/x.py
src/tests.py
odd,v
a b/c d.txt""".splitlines()
SOMEWHERE = 'a path from the top folder of the repository, such as "tests/**"'


@cases("""
pattern                  meant
tests/**                 TESTS
./tests/**               TESTS
/tests/                  TESTS
tests/*                  TESTS
tests                    TESTS src/tests/test_d.py
**/tests/**              TESTS src/tests/test_d.py
conftest.py              tests/conftest.py conftest.py
./conftest.py            conftest.py
tests/conftest.py        tests/conftest.py
test_*.py                tests/test_a.py tests/unit/test_b.py tests/unit/deep/test_c.py src/tests/test_d.py
tests/**/test_[bc].py    tests/unit/test_b.py tests/unit/deep/test_c.py
tests/**/test_[!a-b].py  tests/unit/deep/test_c.py
*.test.*                 src/app.test.js
.github/**               .github/workflows/ci.yml
a b/**                   SPACED
app/[[]slug]/**          app/[slug]/page.js
\\#a                      #a
é*/ü.txt                 été/ü.txt
odd[,]v                  odd,v
Tests/**
**                       ALL SPACED
""")
def test_a_pattern_protects_what_git_would_ignore_by_it(
    tmp_path: Path, pattern: str, meant: str
) -> None:
    read = normal(pattern, "here")
    tests = "tests/test_a.py tests/unit/test_b.py tests/unit/deep/test_c.py tests/conftest.py"
    every = " ".join(NAMES[:-1])
    wanted = {*meant.replace("TESTS", tests).replace("ALL", every).split()}
    if "SPACED" in wanted:
        wanted = wanted - {"SPACED"} | {NAMES[-1]}
    assert normal(read, "here") == read
    assert matching([read], NAMES) == wanted
    (tmp_path / "rules").write_text(f"{read}\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    words = ["git", "-c", f"core.excludesFile={tmp_path}/rules", "check-ignore"]
    names = "\0".join(NAMES).encode()
    done = subprocess.run(
        [*words, "-z", "--stdin"], cwd=tmp_path, input=names, capture_output=True
    )
    assert {*done.stdout.decode().split("\0")} - {""} == wanted


@cases(r"""
pattern                    said
-                          it names no file
tests/{unit,e2e}/**        braces are not read; expected one pattern for each
@(unit|e2e)/**             braces are not read
tests/**,conftest.py       it holds several patterns
tests\unit\**              folders are divided by /
/Users/me/shop/tests/**    it names a place on one machine
$PWD/tests/**              it names a place on one machine
../tests/**                it has a part . or ..
!tests/new.py              for exceptions, use a task's `allow`
#a                         a # begins a comment
:(glob)tests/**            the pathspecs of git are not read; expected SOMEWHERE
^tests/.*                  it looks like a regular expression
""")
def test_a_pattern_that_would_protect_nothing_is_refused(
    pattern: str, said: str
) -> None:
    with pytest.raises(BadInput) as refused:
        normal(pattern, "prd.json: protect[0]")
    assert str(refused.value).startswith("prd.json: protect[0]: ")
    assert said.replace("SOMEWHERE", SOMEWHERE) in str(refused.value)


def test_only_a_bare_file_name_or_its_beginning_is_plain() -> None:
    plain = {"conftest.py", "uv.lock", ".mocharc.*"}
    others = {"/conftest.py", "tests/**", "*.snap", "test_*.py", "*", "a?"}
    assert plain_names(plain | others) == plain


def test_tests_that_no_pattern_covers() -> None:
    uncovered = [
        "FooTest.java",
        "conftest.py",
        "index.test-d.ts",
        "main_test.go",
        "shop/tests.py",
        "spec/a_spec.rb",
        "src/app.test.js",
        "src/tests.py",
        "src/tests/test_d.py",
        "test.mjs",
        "web/a.spec.ts",
    ]
    names = [*NAMES, *uncovered, "contest.js", "spec/design.md", "tests/README.md"]
    assert uncovered_tests(["tests/**"], [*dict.fromkeys(names)]) == uncovered
    assert uncovered_tests(["**"], names) == []


def test_the_plan_is_read_with_its_patterns_and_a_refused_one_is_named(
    tmp_path: Path,
) -> None:
    task = {"title": "a", "allow": ["/tests/a.py", "./b.py"]}
    plan = prd.read(as_json("./tests/**", task), tmp_path / "prd.json")
    assert plan.settings["protect"] == ["/tests/**"]
    assert plan.tasks[0].allow == ("/tests/a.py", "/b.py")
    with pytest.raises(BadInput, match=r"^prd.json: tasks\[0\].allow\[0\]: '{a,b}'"):
        task["allow"] = "{a,b}"
        prd.read(as_json("x", task), tmp_path / "prd.json")


def as_json(protect: str, task: Mapping[str, object]) -> str:
    return json.dumps({"protect": protect, "tasks": [task]})
