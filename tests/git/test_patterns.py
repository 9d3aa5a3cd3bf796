"""Patterns of `protect` and `allow`: how they are read, and that they mean what git
means by them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _ralph.errors import BadInput
from _ralph.git.patterns import (
    matching,
    normal,
    plain_names,
    uncovered_tests,
    unmatched,
)
from _ralph.state import prd

NAMES = [
    "tests/test_a.py", "tests/unit/test_b.py", "tests/unit/deep/test_c.py", "tests/conftest.py", "conftest.py",
    "src/tests/test_d.py", "src/app.py", "src/app.test.js", "src/[id].js", "src/i.js", "app/[slug]/page.js",
    "package.json", "pkg/package.json", ".github/workflows/ci.yml", "a b/c d.txt", "-x", "#a", "été/ü.txt",
    "testsuite/x.py", "src/tests.py", "odd,v", "new\nline.txt", "back\\slash.txt",
]  # fmt: skip
TESTS = {
    "tests/test_a.py",
    "tests/unit/test_b.py",
    "tests/unit/deep/test_c.py",
    "tests/conftest.py",
}
DEEP = TESTS | {"src/tests/test_d.py"}
CONFTEST = {"tests/conftest.py", "conftest.py"}
PACKAGE = {"package.json", "pkg/package.json"}
SOURCES = {"src/app.py", "src/tests.py", "src/tests/test_d.py"}

READ: dict[str, tuple[str, set[str]]] = {
    "tests/**": ("tests/**", TESTS),
    "./tests/**": ("tests/**", TESTS),
    "/tests/**": ("tests/**", TESTS),
    "././/tests///**": ("tests/**", TESTS),
    " tests/**\r\n": ("tests/**", TESTS),
    "tests/**/*": ("tests/**", TESTS),
    "tests/**/**": ("tests/**", TESTS),
    "tests/***": ("tests/**", TESTS),
    "tests/**/": ("tests/**", TESTS),
    "tests/.": ("tests/**", TESTS),
    "/tests/": ("tests/**", TESTS),
    "./tests": ("/tests", TESTS),
    "/tests": ("/tests", TESTS),
    "tests/*": ("tests/*", TESTS),
    "tests": ("tests", DEEP),
    "tests/": ("**/tests/**", DEEP),
    "**/tests/**": ("**/tests/**", DEEP),
    "**/tests": ("**/tests", DEEP),
    "conftest.py": ("conftest.py", CONFTEST),
    "**/conftest.py": ("**/conftest.py", CONFTEST),
    "./conftest.py": ("/conftest.py", {"conftest.py"}),
    "/conftest.py": ("/conftest.py", {"conftest.py"}),
    "tests/conftest.py": ("tests/conftest.py", {"tests/conftest.py"}),
    "test_*.py": ("test_*.py", DEEP - {"tests/conftest.py"}),
    "**/test_?.py": ("**/test_?.py", DEEP - {"tests/conftest.py"}),
    "tests/**/test_[bc].py": ("tests/**/test_[bc].py", {"tests/unit/test_b.py", "tests/unit/deep/test_c.py"}),
    "tests/**/test_[!a-b].py": ("tests/**/test_[!a-b].py", {"tests/unit/deep/test_c.py"}),
    "src/**.py": ("src/**/*.py", SOURCES),
    "**.js": ("**/*.js", {"src/app.test.js", "src/[id].js", "src/i.js", "app/[slug]/page.js"}),
    "*.test.*": ("*.test.*", {"src/app.test.js"}),
    "package.json": ("package.json", PACKAGE),
    ".github": (".github", {".github/workflows/ci.yml"}),
    ".github/**": (".github/**", {".github/workflows/ci.yml"}),
    "a b/**": ("a b/**", {"a b/c d.txt"}),
    "src/[id].js": ("src/[id].js", {"src/[id].js", "src/i.js"}),
    "app/[[]slug]/**": ("app/[[]slug]/**", {"app/[slug]/page.js"}),
    "-x": ("-x", {"-x"}),
    "#a": ("#a", {"#a"}),
    "é*/ü.txt": ("é*/ü.txt", {"été/ü.txt"}),
    "odd[,]v": ("odd[,]v", {"odd,v"}),
    "new*": ("new*", {"new\nline.txt"}),
    "{{cookiecutter.name}}/**": ("{{cookiecutter.name}}/**", set()),
    "Tests/**": ("Tests/**", set()),
    ".": ("**", set(NAMES)),
    "/": ("**", set(NAMES)),
    "*": ("*", set(NAMES)),
    "**": ("**", set(NAMES)),
}  # fmt: skip

SOMEWHERE = 'a path from the top folder of the repository, such as "tests/**"'
WORDS_OF_REGEX = 'it looks like a regular expression; expected a pattern such as "tests/**" or "*.test.js"'
BRACES = "braces are not read; expected one pattern for each"
SEVERAL = "it holds several patterns; expected one pattern per entry"
SLASHES = f"folders are divided by /, and [*] is a *; expected {SOMEWHERE}"
MACHINE = f"it names a place on one machine; expected {SOMEWHERE}"
REFUSED = {
    "": f"it is empty; expected {SOMEWHERE}",
    " \t": f"it is empty; expected {SOMEWHERE}",
    "tests/{unit,e2e}/**": BRACES,
    "@(unit|e2e)/**": BRACES,
    "t{1..3}.py": BRACES,
    "tests/**,conftest.py": SEVERAL,
    "tests/**\nconftest.py": SEVERAL,
    "tests/**|conftest.py": SEVERAL,
    "tests\\unit\\**": SLASHES,
    ".\\tests": SLASHES,
    "/mnt/shop/tests/**": MACHINE,
    "/Users/me/shop/tests/**": MACHINE,
    "C:\\shop\\tests": MACHINE,
    "C:/shop/tests": MACHINE,
    "~/shop/tests/**": MACHINE,
    "$PWD/tests/**": MACHINE,
    "../tests/**": f"it leads upwards; expected {SOMEWHERE}",
    "src/../tests/**": f"it leads upwards; expected {SOMEWHERE}",
    "!tests/new.py": "! is not supported; expected the files to protect; for exceptions, use a task's `allow`",
    ":(glob)tests/**": f"the pathspecs of git are not read; expected {SOMEWHERE}",
    "^tests/.*": WORDS_OF_REGEX,
    ".*_test.py$": WORDS_OF_REGEX,
}  # fmt: skip


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with all NAMES in its index."""
    root = tmp_path_factory.mktemp("names")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    index(root, NAMES)
    return root


def index(root: Path, names: list[str]) -> None:
    entries = "".join(
        f"100644 e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\t{name}\0" for name in names
    )
    subprocess.run(["git", "read-tree", "--empty"], cwd=root, check=True)
    words = ["git", "update-index", "-z", "--index-info"]
    subprocess.run(words, cwd=root, input=entries.encode(), check=True)


def listed(root: Path, *patterns: str) -> set[str]:
    """What git itself lists under these patterns."""
    from_top = [
        pattern.strip("/") if "/" in pattern else f"**/{pattern}"
        for pattern in patterns
    ]
    specs = [
        f":(top,glob){pattern}{end}" for pattern in from_top for end in ("", "/**")
    ]
    done = subprocess.run(
        ["git", "ls-files", "-z", "--", *specs],
        cwd=root,
        capture_output=True,
        check=True,
    )
    return set(done.stdout.decode().split("\0")) - {""}


@pytest.mark.parametrize("pattern", READ)
def test_a_pattern_protects_what_is_meant(top: Path, pattern: str) -> None:
    form, meant = READ[pattern]
    assert normal(pattern, "here") == form == normal(form, "here")
    assert listed(top, form) == meant == matching([form], NAMES)
    assert unmatched([form], NAMES) == ([] if meant else [form])


@pytest.mark.parametrize("pattern", REFUSED, ids=lambda pattern: ascii(pattern)[:30])
def test_a_pattern_that_would_protect_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput) as refused:
        normal(pattern, "prd.json: protect[0]")
    place, _, why = str(refused.value).partition(": '" if "'" not in pattern else ': "')
    assert place == "prd.json: protect[0]" and REFUSED[pattern] in why


WORDS = st.lists(st.sampled_from([*"ab-]^!/", "*", "**", "?", "[ab]", "[!a]", "[a-b]", "/**/", "a/", "."]), min_size=1, max_size=6)  # fmt: skip
PATHS = st.lists(st.sampled_from([*"ab-]^!/", "a/", ".", "["]), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(
    words=st.lists(WORDS, min_size=1, max_size=3),
    paths=st.lists(PATHS, min_size=1, max_size=8),
)
def test_whatever_is_read_means_what_git_means_by_it(
    top: Path, words: list[list[str]], paths: list[list[str]]
) -> None:
    patterns = []
    for parts in words:
        try:
            patterns.append(normal("".join(parts), "here"))
        except BadInput:
            continue
    names = {
        "/".join(p for p in "".join(parts).split("/") if p not in ("", ".", ".."))
        for parts in paths
    } - {""}
    names = {
        name
        for name in names
        if not any(other.startswith(f"{name}/") for other in names)
    }
    other = top.with_name("fuzzed")
    if not other.exists():
        subprocess.run(["git", "init", "-q", str(other)], check=True)
    index(other, sorted(names))
    assert [normal(pattern, "again") for pattern in patterns] == patterns
    if patterns:
        assert matching(patterns, names) == listed(other, *patterns)


def test_no_pattern_matches_nothing() -> None:
    assert matching([], NAMES) == set() and unmatched([], NAMES) == []


def test_only_a_bare_file_name_is_plain() -> None:
    patterns = [
        "conftest.py",
        "/conftest.py",
        "**/conftest.py",
        "tests/**",
        "*.snap",
        "uv.lock",
    ]
    assert plain_names(patterns) == {"conftest.py", "uv.lock"}


def test_tests_that_no_pattern_covers() -> None:
    names = [
        *NAMES, "main_test.go", "test.mjs", "index.test-d.ts", "contest.js", "web/a.spec.ts", "shop/tests.py",
        "FooTest.java", "spec/design.md", "spec/a_spec.rb", "tests/README.md",
    ]  # fmt: skip
    assert uncovered_tests(["tests/**"], names) == [
        "FooTest.java", "conftest.py", "index.test-d.ts", "main_test.go", "shop/tests.py", "spec/a_spec.rb",
        "src/app.test.js", "src/tests.py", "src/tests/test_d.py", "test.mjs", "web/a.spec.ts",
    ]  # fmt: skip
    assert uncovered_tests(["**"], names) == []


@pytest.mark.parametrize("protect", ['"./tests/**"', '["./tests/**"]'])
def test_the_plan_is_read_with_patterns_in_their_one_form(
    tmp_path: Path, protect: str
) -> None:
    source = f'{{"protect": {protect}, "tasks": [{{"title": "a", "allow": ["/tests/a.py", "./b.py"]}}]}}'
    plan = prd.read(source, tmp_path / "prd.json")
    assert plan.settings["protect"] == ["tests/**"]
    assert plan.tasks[0].allow == ("tests/a.py", "/b.py")


@pytest.mark.parametrize(
    ("source", "place"),
    [('{"protect": ["a", "b\\\\c"], "tasks": [{"title": "a"}]}', "prd.json: protect[1]: "),
     ('{"tasks": [{"title": "a"}, {"title": "b", "allow": "{a,b}"}]}', "prd.json: tasks[1].allow[0]: ")],
)  # fmt: skip
def test_a_refused_pattern_is_named_with_its_place(
    tmp_path: Path, source: str, place: str
) -> None:
    with pytest.raises(BadInput) as refused:
        prd.read(source, tmp_path / "prd.json")
    assert str(refused.value).startswith(place)
