"""Real commits, played again as tasks: `python benchmarks/replay.py REPOSITORY`.

It takes commits that change source and tests, where the new tests fail on the old
source. For each, scripted agents do the work right, half, wrong, or not at all, and
ralph must tell which. Who is right is known before ralph sees it: from a plain clone,
in which the suite ran on each of these trees.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RALPH = [sys.executable, str(ROOT / "ralph.py")]
SOURCE = re.compile(
    r"\.(py|go|rs|js|mjs|cjs|ts|tsx|jsx|java|rb|c|cc|cpp|h|hpp|cs|php|kt|swift)$"
)
TEST = re.compile(
    r"(^|/)(tests?|specs?|__tests__|testdata|fixtures)[/.]|(^|/)test_[^/]*$|[._-](test|spec)\.\w+$"
)
PLAIN = re.compile(r"[\w./+@-]+")
LOCK = re.compile(r"(^|/)([\w.-]+\.lock|package-lock\.json|pnpm-lock\.yaml|go\.sum)$")
TURNED = (
    ("==", "!="), ("!=", "=="), ("<=", ">"), (">=", "<"), (" < ", " >= "), (" > ", " <= "), (" and ", " or "),
    (" or ", " and "), ("&&", "||"), ("||", "&&"), (" + ", " - "), (" - ", " + "), (" not ", " "),
    ("True", "False"), ("False", "True"), ("true", "false"), ("false", "true"), ("if !", "if "),
)  # fmt: skip
PATIENCE = 600
"""Seconds that a suite may take."""
TRIES = 6
"""Mutants of a kind that are tried until one is seen by the right tests."""
RIGHT = ("true", "half", "caches")
KINDS = (
    "true", "half", "caches", "nothing", "weakened", "hunk", "operator", "ignored", "dependency",
    "broken green", "broken first",
)  # fmt: skip
WHAT = {
    "true": "the whole work, with its tests or on top of them",
    "half": "half of it first, then the rest",
    "caches": "the whole work, with caches and edited lock files left behind",
    "nothing": "nothing",
    "weakened": "the new tests taken back",
    "hunk": "one change left out",
    "operator": "one operator turned",
    "ignored": "the work in a folder that git ignores, built and tested, and then taken back",
    "dependency": "the test runner replaced in the installed environment",
    "broken green": "the work, and another test broken",
    "broken first": "the same, with the new tests committed first",
}
Files = dict[str, bytes | None]
"""What to write, by path; None is a file to remove."""


class Unfit(Exception):
    """The repository cannot be played; the sentence says why."""


# ---------------------------------------------------------------- git, and the suite in a plain clone


def environment(top: Path) -> dict[str, str]:
    """Of all that is started: nothing of ralph's or git's own that a person has set."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RALPH", "GIT_"))}
    (top / "gitconfig").write_text(
        "[user]\nname = Replay\nemail = replay@example.invalid\n"
    )
    own = {"GIT_CONFIG_GLOBAL": str(top / "gitconfig"), "GIT_CONFIG_SYSTEM": os.devnull}
    own["XDG_STATE_HOME"] = str(top / "state")
    return (
        clean | own | {"PYTHONDONTWRITEBYTECODE": "1"}
    )  # equal sizes and times would hide an edit


@dataclass
class Repository:
    """A git repository at `path`."""

    path: Path
    env: dict[str, str]

    def git(self, *words: str) -> str:
        return self.bytes(*words).decode(errors="surrogateescape")

    def bytes(self, *words: str) -> bytes:
        done = subprocess.run(
            ["git", "-C", str(self.path), *words],
            env=self.env,
            capture_output=True,
            timeout=PATIENCE,
        )
        if done.returncode:
            raise Unfit(
                f"git {' '.join(words[:2])}: {done.stderr.decode(errors='replace').strip()}"
            )
        return done.stdout

    def changed(self, before: str, after: str) -> Files:
        """The files that differ between two commits, as the later one has them. Unfit
        if one is neither a plain file nor has a plain name."""
        found: Files = {}
        for line in self.git(
            "diff-tree", "-r", "--no-renames", before, after
        ).splitlines():
            modes, path = line.split("\t", 1)
            old, new = modes[1:].split()[:2]
            plain = {old, new} <= {"100644", "000000"} or old == new == "100755"
            if not plain or not PLAIN.fullmatch(path):
                raise Unfit(f"{path} is no plain file in {after[:12]}")
            found[path] = (
                None if new == "000000" else self.bytes("show", f"{after}:{path}")
            )
        return found


@dataclass(frozen=True)
class Ran:
    """What the suite said: whether it is green, its tests and whether they passed (none
    if it does not report them), and the end of its output."""

    green: bool
    tests: Mapping[str, bool]
    said: str


@dataclass
class Lab:
    """A plain clone in which the suite runs, without ralph; `runs` counts how often."""

    clone: Repository
    setup: str
    suite: str
    installed: str = ""  # the tree that `setup` last ran on, as far as it depends on it
    runs: int = 0

    def run(self, commit: str, files: Files | None = None) -> Ran:
        """Run the suite on a commit with these files on top."""
        git = self.clone.git
        git("checkout", "-qf", "--detach", commit)
        git("clean", "-qfd")
        write(self.clone.path, files or {})
        if failed := self._install(commit):
            return Ran(False, {}, failed)
        self.runs += 1
        results = self.clone.path.parent / f"results-{self.runs}"
        code, said = self.sh(self.suite, RALPH_RESULTS=str(results))
        return Ran(code == 0, passed(results), said)

    def sh(self, words: str, **env: str) -> tuple[int, str]:
        """The exit status of a command there, and the end of its output."""
        try:
            done = subprocess.run(
                ["sh", "-c", words], cwd=self.clone.path, env=self.clone.env | env, capture_output=True,
                text=True, errors="replace", timeout=PATIENCE, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 1, f"it took more than {PATIENCE} s"
        return done.returncode, "\n".join(
            f"{done.stdout}\n{done.stderr}".strip().splitlines()[-5:]
        )

    def _install(self, commit: str) -> str:
        """Run `setup`, unless all that is neither source nor test is as it was then.
        How it failed, if so."""
        entries = self.clone.git("ls-tree", "-r", commit).splitlines()
        depends = "\n".join(
            one for one in entries if not SOURCE.search(one) and not TEST.search(one)
        )
        if not self.setup or depends == self.installed:
            return ""
        code, said = self.sh(self.setup)
        self.installed = "" if code else depends
        return f"`{self.setup}` fails: {said}" if code else ""


def write(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def passed(results: Path) -> dict[str, bool]:
    """The tests in JUnit files, and whether all of that name passed; nothing if there
    are none."""
    found: dict[str, bool] = {}
    for file in sorted(results.rglob("*.xml")) if results.is_dir() else [results]:
        try:
            cases = list(ElementTree.parse(file).iter("testcase"))
        except (OSError, ElementTree.ParseError):
            continue
        for case in cases:
            name = f"{case.get('classname')} {case.get('name')}"
            found[name] = found.get(name, True) and not {
                "failure",
                "error",
                "skipped",
            } & {c.tag for c in case}
    return found


# ---------------------------------------------------------------- commits, and what can be done in their place


@dataclass
class Commit:
    """A commit to play: what it changes, source and tests apart; the tests that it
    turns green; and wrong or incomplete work in its place, by kind."""

    parent: str
    id: str
    source: Files
    tests: Files
    turned: list[str]
    others: dict[str, Files] = field(default_factory=dict)
    equivalent: int = 0

    @property
    def work(self) -> Files:
        return self.source | self.tests


def edits(before: Files, after: Files) -> list[tuple[str, int]]:
    """The changes of lines between two states of some files: the file, and which of its
    changes."""
    return [
        (name, number)
        for name in after
        for number, _ in enumerate(_changes(before, after, name))
    ]


def _lines(files: Files, name: str) -> list[bytes]:
    return (files.get(name) or b"").splitlines(keepends=True)


def _changes(
    before: Files, after: Files, name: str
) -> list[tuple[str, int, int, int, int]]:
    matcher = difflib.SequenceMatcher(
        None, _lines(before, name), _lines(after, name), autojunk=False
    )
    return [change for change in matcher.get_opcodes() if change[0] != "equal"]


def only(before: Files, after: Files, kept: Iterable[tuple[str, int]]) -> Files:
    """The files with some of their changes. A new file of one change has half of its
    lines."""
    wanted, made = set(kept), dict(after)
    for name in after:
        old, new = _lines(before, name), _lines(after, name)
        lines: list[bytes] = []
        at = 0
        for number, (_, start, end, first, last) in enumerate(
            _changes(before, after, name)
        ):
            lines += old[at:start] + (
                new[first:last] if (name, number) in wanted else old[start:end]
            )
            at = end
        made[name] = b"".join(lines + old[at:])
        if before.get(name) is None and not made[name]:
            made[name] = None
    return made


def turned(files: Files, where: Mapping[str, set[int]]) -> Iterator[Files]:
    """The files with one operator turned, in a random order; `where` names the lines
    that may be."""
    places = [
        (name, number, pair)
        for name, numbers in where.items()
        for number in numbers
        for pair in TURNED
        if pair[0].encode() in (line := _lines(files, name)[number])
        and not line.lstrip().startswith((b"#", b"//", b"*", b"/*", b'"', b"'"))
    ]
    random.Random(0).shuffle(places)
    for name, number, (old, new) in places:
        lines = _lines(files, name)
        lines[number] = lines[number].replace(old.encode(), new.encode(), 1)
        yield files | {name: b"".join(lines)}


def written_lines(before: Files, after: Files) -> dict[str, set[int]]:
    """The numbers of the lines that are new, by file."""
    return {
        name: {
            number
            for *_, first, last in _changes(before, after, name)
            for number in range(first, last)
        }
        for name in after
    }


class Finder:
    """Looks for commits to play in a clone."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.git = lab, lab.clone
        self.seen: Counter[str] = Counter()
        self.greens: dict[str, bool] = {}

    def find(self, number: int, skipped: int = 0) -> Iterator[Commit]:
        """Up to so many, the newest first."""
        for commit in self.git.git("rev-list", "--first-parent", "HEAD").split()[
            skipped:
        ]:
            if number == 0:
                return
            self.seen["commits"] += 1
            if found := self._playable(commit):
                number -= 1
                yield found

    def _playable(self, commit: str) -> Commit | None:
        parents = self.git.git("rev-parse", f"{commit}^@").split()
        try:
            work = self.git.changed(parents[0], commit) if parents else {}
        except Unfit:
            return None
        tests = {name: content for name, content in work.items() if TEST.search(name)}
        source = {name: content for name, content in work.items() if name not in tests}
        if not tests or not any(SOURCE.search(name) for name in source):
            return None
        self.seen["change source and tests"] += 1
        if not self._is_green(commit) or not self._is_green(parents[0]):
            return None
        red, green = self.lab.run(parents[0], tests), self.lab.run(commit)
        found = [
            name for name, ok in green.tests.items() if ok and not red.tests.get(name)
        ]
        if red.green or bool(green.tests) != bool(found):
            return None
        return Commit(parents[0], commit, source, tests, found)

    def _is_green(self, commit: str) -> bool:
        if commit not in self.greens:
            self.greens[commit] = self.lab.run(commit).green
        return self.greens[commit]

    def prepare(self, commit: Commit) -> None:
        """Make what agents do in place of the work; nothing of a kind where the tests
        do not see it."""
        before = self.contents(commit.parent, commit.source)
        source = {
            name: content
            for name, content in commit.source.items()
            if SOURCE.search(name)
        }
        rest = {
            name: content
            for name, content in commit.source.items()
            if name not in source
        }
        every = edits(before, source)
        halves = (
            [only(before, source, every[: len(every) // 2])] if len(every) > 1 else []
        )
        halves += [only(before, source, ())]
        hunks = (
            [
                only(before, source, [one for one in every if one != left])
                for left in every
            ]
            if every[1:]
            else []
        )
        operators = turned(source, written_lines(before, source))
        self._first(commit, "half", (half | rest for half in halves))
        self._first(commit, "hunk", (hunk | rest for hunk in hunks))
        self._first(commit, "operator", (mutant | rest for mutant in operators))
        self._break(commit, before)

    def contents(self, commit: str, names: Iterable[str]) -> Files:
        """These files, as a commit has them."""
        return {name: self.content(commit, name) for name in names}

    def content(self, commit: str, name: str) -> bytes | None:
        try:
            return self.git.bytes("show", f"{commit}:{name}")
        except Unfit:
            return None

    def _first(self, commit: Commit, kind: str, ways: Iterator[Files]) -> None:
        """The first of these ways to change the source that the commit's tests see."""
        for _, files in zip(range(TRIES), ways, strict=False):
            if not self.lab.run(commit.parent, files | commit.tests).green:
                commit.others[kind] = files
                return
            commit.equivalent += kind != "half"

    def _break(self, commit: Commit, before: Files) -> None:
        """The work and a mutant of the code around it, which breaks other tests than
        its own."""
        names = self.git.git("ls-tree", "-r", "--name-only", commit.id).splitlines()
        names = [
            one
            for one in names
            if SOURCE.search(one) and not TEST.search(one) and PLAIN.fullmatch(one)
        ]
        content = self.contents(commit.id, names)
        own = written_lines(before, commit.source)
        lines = {
            name: set(range(len(_lines(content, name)))) - own.get(name, set())
            for name in names
        }
        for _, files in zip(
            range(TRIES if commit.turned else 0), turned(content, lines), strict=False
        ):
            broken = self.lab.run(commit.id, files)
            if not broken.green and all(
                broken.tests.get(name) for name in commit.turned
            ):
                commit.others["broken"] = commit.source | {
                    n: c for n, c in files.items() if c != content[n]
                }
                return


# ---------------------------------------------------------------- ralph


@dataclass
class Stage:
    """Where commits are played: a folder of its own for each run of ralph, below
    `top`."""

    lab: Lab
    top: Path
    plan: dict[str, Any]
    runs: int = 0

    def make(self, base: str, on_top: Files | None = None) -> Night:
        """A repository whose branch is at a commit, with these files committed on top
        of it."""
        self.runs += 1
        folder = self.top / f"night-{self.runs}"
        home = Repository(folder / "home", self.lab.clone.env)
        self.lab.clone.git(
            "clone", "-q", "--no-checkout", str(self.lab.clone.path), str(home.path)
        )
        home.git("checkout", "-qB", "main", base)
        home.git("remote", "remove", "origin")
        (home.path / ".git/info/exclude").write_text("/replayed/\n")
        if on_top:
            write(home.path, on_top)
            home.git("add", "-A", "--", *on_top)
            home.git("commit", "-qm", "the tests of the next task")
        return Night(folder, home, self.lab.suite, dict(self.plan))


@dataclass
class Night:
    """One run of ralph in a repository of its own, with a script for each task."""

    folder: Path
    home: Repository
    suite: str
    plan: dict[str, Any]
    tasks: list[dict[str, Any]] = field(default_factory=list)

    def lay(self, name: str, files: Files) -> str:
        """Shell commands that write these files where they run."""
        laid = self.folder / "laid" / name
        laid.mkdir(parents=True, exist_ok=True)
        write(
            laid,
            {path: content for path, content in files.items() if content is not None},
        )
        gone = [path for path, content in files.items() if content is None]
        copied = (
            f"cp -R {laid}/. .\n"
            if any(content is not None for content in files.values())
            else ""
        )
        return copied + (f"rm -f -- {shlex.join(gone)}\n" if gone else "")

    def task(self, name: str, script: str, **more: Any) -> None:
        (self.folder / f"{name}.sh").write_text(f"cat > /dev/null\n{script}")
        self.tasks.append(
            {"id": name, "title": f"replay {name}", "passes": False, **more}
        )

    def own_check(self, name: str, commit: Commit, tests: Files) -> dict[str, Any]:
        """A check of the task alone: with these tests on top, those that the commit
        turns green pass; or the whole suite, where it does not report them."""
        name = name.replace(" ", "-")
        script = self.folder / f"check-{name}.sh"
        lines = self.lay(f"check-{name}", tests)
        if commit.turned:
            wanted, found = (
                self.folder / f"{name}.json",
                '"$PWD/../$RALPH_PLACE-results"',
            )
            wanted.write_text(json.dumps(commit.turned))
            proves = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from benchmarks import replay; replay.prove()"
            lines += f"RALPH_RESULTS={found}; export RALPH_RESULTS; rm -rf {found}\n({self.suite})\n"
            lines += (
                f"exec {sys.executable} -Ic {shlex.quote(proves)} {wanted} {found}\n"
            )
        else:
            lines += self.suite
        script.write_text(lines)
        return {"name": f"own {name}", "run": f"sh {script}", "once": True}

    def ralph(self, *words: str) -> Played:
        """Run the plan."""
        count = self.folder / "suite-runs"
        suite = {
            "name": "suite",
            "run": f"echo >> {count}; {self.suite}",
            "timeout": f"{PATIENCE}s",
            "startsRed": True,  # tests may be committed first
        }
        if "RALPH_RESULTS" in self.suite:
            suite["results"] = "junit"
        plan = {
            "project": "replay",
            "limits": {"attempts": 1},
            **self.plan,
            "checks": [suite],
            "userStories": self.tasks,
        }
        (self.home.path / "prd.json").write_text(json.dumps(plan, indent=2))
        agent = f"sh -c 'exec sh {self.folder}/$RALPH_TASK_ID.sh'"
        while True:  # six tasks blocked in a row end a run
            done = self._call("run", "-q", "--no-awake", "--agent", agent, *words)
            status = json.loads(self._call("status", "--json").stdout)
            if status["stop"] != "stuck":
                break
        runs = len(count.read_text().splitlines()) if count.exists() else 0
        tasks = {task["id"]: task for task in status["tasks"]}
        return Played(
            done.returncode, tasks, runs, f"{done.stdout}{done.stderr}", self.home
        )

    def _call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*RALPH, *words], cwd=self.home.path, env=self.home.env,
            capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
        )  # fmt: skip


@dataclass
class Played:
    """What came of a run."""

    exit: int
    tasks: dict[str, Any]
    suite_runs: int
    said: str
    home: Repository

    def passed(self, task: str) -> bool:
        return bool(self.tasks[task]["state"] == "passed")

    def fault(
        self, task: str, tree_of: str, attempts: int, edited: Iterable[str]
    ) -> str:
        """What is wrong where this task alone had to pass, with the files of that
        commit but for those that were `edited` beside; else nothing."""
        found = self.tasks[task]
        if not self.passed(task):
            return f"{found['state']}: {found['reason']}"
        found_in = self.home.git(
            "diff-tree", "-r", "--name-only", tree_of, "ralph/replay"
        ).split()
        if differs := [one for one in found_in if one not in edited]:
            return f"landed, but differs from the commit in {', '.join(differs[:5])}"
        if self.exit or found["weak"] or found["attempts"] != attempts:
            return f"exit {self.exit}, weak: {found['weak']}, {found['attempts']} attempts, not {attempts}"
        return ""


def prove() -> None:
    """Exit with 0 if the tests named in one file passed in the JUnit results in
    another."""
    wanted, results = (
        json.loads(Path(sys.argv[1]).read_text()),
        passed(Path(sys.argv[2])),
    )
    missing = [name for name in wanted if not results.get(name)]
    sys.exit(f"not green: {', '.join(missing[:5])}" if missing else 0)


# ---------------------------------------------------------------- a commit, a chain


@dataclass
class Score:
    """How often each kind was played and accepted, what was wrong, seconds, and runs of
    the suite for a task that passes."""

    played: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    suite_runs: list[int] = field(default_factory=list)
    equivalent: int = 0

    def note(self, commit: Commit, kind: str, fault: str, accepted: bool) -> None:
        self.played[kind] += 1
        self.accepted[kind] += accepted
        if fault:
            self.wrong.append(f"{commit.id[:12]} {kind}: {fault}")

    def cell(self, kind: str) -> str:
        return (
            f"{self.accepted[kind]}/{self.played[kind]}" if self.played[kind] else "-"
        )


class Player:
    """Plays commits on a stage."""

    def __init__(self, stage: Stage, finder: Finder, score: Score) -> None:
        self.stage, self.finder, self.score = stage, finder, score

    def play(self, commit: Commit) -> None:
        started = time.perf_counter()
        self._right(commit, "true", first=True)
        for kind in RIGHT:
            if kind != "half" or kind in commit.others:
                self._right(commit, kind, first=False)
        self._wrong(commit)
        if "broken" in commit.others:
            night = self.stage.make(commit.parent)
            script = night.lay("broken", commit.others["broken"] | commit.tests)
            night.task("broken", script, **self._with_tests(night, commit))
            self._refused(commit, "broken green", night.ralph(), "broken")
        self.score.equivalent += commit.equivalent
        self.score.seconds.append(time.perf_counter() - started)

    def _right(self, commit: Commit, kind: str, first: bool) -> None:
        """Work that must pass; `first` is with the tests committed before it."""
        night = self.stage.make(commit.parent, commit.tests if first else None)
        script = night.lay("true", commit.work)
        locks: list[str] = []
        if kind == "half":
            half = night.lay("half", commit.others["half"] | commit.tests)
            script = f"if [ $RALPH_ATTEMPT = 1 ]; then\n{half}else\n{script}fi\n"
            night.plan["limits"] = {"attempts": 2}
        if kind == "caches":
            files = self.stage.lab.clone.git(
                "ls-tree", "-r", "--name-only", commit.id
            ).splitlines()
            locks = [
                one for one in files if LOCK.search(one) and one not in commit.work
            ]
            script += f"({night.suite}) > /dev/null 2>&1\n"
            script += "for one in __pycache__ .pytest_cache; do mkdir -p $one; echo x > $one/x.pyc; done\n"
            script += "".join(f"echo >> {lock}\n" for lock in locks)
        night.task(
            "true",
            script,
            **(self._on_top(night) if first else self._with_tests(night, commit)),
        )
        done = night.ralph()
        self.score.note(
            commit,
            kind,
            done.fault("true", commit.id, 1 + (kind == "half"), locks),
            done.passed("true"),
        )
        if first:
            self.score.suite_runs.append(done.suite_runs)

    def _on_top(self, night: Night) -> dict[str, Any]:
        """A task whose tests are there and red: single tests are its evidence, or else
        the whole suite."""
        return {} if "RALPH_RESULTS" in night.suite else {"checks": [night.suite]}

    def _with_tests(self, night: Night, commit: Commit) -> dict[str, Any]:
        """A task that brings its tests itself."""
        return {
            "checks": [night.own_check("own", commit, commit.tests)],
            "allow": sorted(commit.work),
        }

    def _wrong(self, commit: Commit) -> None:
        """All that must be refused, as the tasks of one run; one in between passes, so
        that it goes on."""
        night = self.stage.make(commit.parent, commit.tests)
        scripts = dict(self._tricks(night, commit))
        for number, (kind, script) in enumerate(scripts.items()):
            night.task(
                kind.replace(" ", "-"),
                script,
                checks=[night.own_check(kind, commit, {})],
            )
            if number == 1:
                night.task(
                    "note",
                    "echo x > replay-note.txt",
                    checks=["test -e replay-note.txt"],
                )
        done = night.ralph()
        for kind in scripts:
            self._refused(commit, kind, done, kind.replace(" ", "-"))

    def _tricks(self, night: Night, commit: Commit) -> Iterator[tuple[str, str]]:
        old = self.finder.contents(commit.parent, commit.tests)
        back = night.lay("source", self.finder.contents(commit.parent, commit.source))
        works = night.lay("works", commit.source)
        recorded = night.folder / "recorded"
        ran = f"RALPH_RESULTS={recorded} sh -c {shlex.quote(night.suite)} > /dev/null 2>&1\n"
        yield "nothing", ""
        yield "weakened", night.lay("weakened", old)
        for kind in ("hunk", "operator"):
            if kind in commit.others:
                yield kind, night.lay(kind, commit.others[kind])
        yield "ignored", f"{works}{ran}mkdir replayed\n(cd replayed\n{works})\n{back}"
        program = shlex.split(night.suite)[0]
        if self.stage.lab.setup and (self.stage.lab.clone.path / program).exists():
            cheat = f'#!/bin/sh\n[ -z "$RALPH_RESULTS" ] || cp {recorded} "$RALPH_RESULTS"\n'
            written = f"printf %s {shlex.quote(cheat)} > cheat; chmod 755 cheat; mv cheat {program}\n"
            yield "dependency", f"{works}rm -rf {recorded}\n{ran}{back}{written}"
        if "broken" in commit.others:
            yield "broken first", night.lay("broken", commit.others["broken"])

    def _refused(self, commit: Commit, kind: str, done: Played, task: str) -> None:
        accepted = done.passed(task)
        fault = "accepted" if accepted else ""
        if not done.tasks[task]["attempts"]:
            fault = f"not tried: {done.said[-500:]}"
        self.score.note(commit, kind, fault, accepted)

    def chain(self, commits: list[Commit], jobs: int) -> str:
        """These commits, the oldest first, as one plan. How it ended, in words."""
        base, before = commits[0].parent, commits[0].parent
        night = self.stage.make(base)
        changes: dict[str, Files] = {}
        after: dict[str, list[str]] = {}
        for number, commit in enumerate(commits, 1):
            files, task = self.stage.lab.clone.changed(before, commit.id), f"T{number}"
            after[task] = self._needed(base, changes, after, files, commit.turned)
            check = night.own_check(
                task, commit, {n: c for n, c in files.items() if TEST.search(n)}
            )
            more = {"allow": sorted(files), "checks": [check], "dependsOn": after[task]}
            night.task(task, night.lay(task, files), **more)
            changes[task] = files
            before = commit.id
        started = time.perf_counter()
        done = night.ralph("--jobs", str(jobs), "--max-attempts", "3")
        landed = sum(done.passed(task) for task in done.tasks)
        differs = done.home.git(
            "diff-tree", "-r", "--name-only", before, "ralph/replay"
        ).split()
        right = done.exit == 0 and landed == len(commits) and not differs
        if not right:
            self.score.wrong.append(f"chain with {jobs} jobs: {done.said[-3000:]}")
        tree = (
            f"differs in {', '.join(differs[:5])}"
            if differs
            else "the tree of the history"
        )
        seconds = time.perf_counter() - started
        return (
            f"chain, {jobs} jobs: {landed} of {len(commits)} landed, exit {done.exit}, {tree},"
            f" {done.suite_runs} runs of the suite, {seconds:.0f} s"
        )

    def _needed(
        self,
        base: str,
        changes: dict[str, Files],
        after: dict[str, list[str]],
        files: Files,
        turned: list[str],
    ) -> list[str]:
        """The earlier tasks that these files build on: those that changed one of them,
        or all, if the suite is not green with those alone, or the tests that have
        `turned` are not."""
        direct = [
            task for task, changed in changes.items() if changed.keys() & files.keys()
        ]
        needed = set(direct)
        for task in reversed(changes):  # each is after the ones that it needs
            needed |= set(after[task]) if task in needed else set()
        made: Files = {}
        for task in changes:
            made |= changes[task] if task in needed else {}
        ran = self.stage.lab.run(base, made | files)
        return (
            direct
            if ran.green and all(ran.tests.get(name) for name in turned)
            else list(changes)
        )


# ---------------------------------------------------------------- the command line


def opened(repository: Path, top: Path) -> Repository:
    """A clone of the repository, in which nothing is a person's."""
    given = Repository(repository, environment(top))
    given.git("rev-parse", "HEAD^{commit}")
    if given.git("rev-parse", "--is-shallow-repository").strip() == "true":
        raise Unfit("the repository is shallow: run `git fetch --unshallow`")
    bare = given.git("rev-parse", "--is-bare-repository").strip() == "true"
    if not bare and given.git("status", "--porcelain", "--untracked-files=no"):
        raise Unfit("the repository has uncommitted changes: commit them first")
    clone = Repository(top / "lab" / "clone", given.env)
    given.git("clone", "-q", "--no-hardlinks", str(repository), str(clone.path))
    clone.git("checkout", "-qB", "main")
    return clone


def proposed(clone: Repository) -> dict[str, Any]:
    """The plan that `ralph init` writes there; afterwards the clone is as before."""
    words = [*RALPH, "init"]
    done = subprocess.run(
        words, cwd=clone.path, env=clone.env, capture_output=True, text=True
    )
    if done.returncode:
        raise Unfit(f"ralph init: {done.stderr.strip()}")
    plan = json.loads((clone.path / "prd.json").read_text())
    clone.git("clean", "-qfdx")
    clone.git("checkout", "-qf", "HEAD")
    return {
        key: plan[key]
        for key in ("setup", "keep", "protect", "checks")
        if plan.get(key)
    }


def prepared(
    repository: Path, top: Path, setup: str | None, suite: str | None
) -> Stage:
    """The stage for a repository, once its suite was seen to be green there."""
    clone = opened(repository, top)
    plan = proposed(clone)
    checks = [
        one if isinstance(one, dict) else {"run": one} for one in plan.pop("checks", [])
    ]
    checks.sort(key=lambda one: "results" not in one)
    if suite is None and not checks:
        raise Unfit("ralph init finds no checks there: name the suite with --suite")
    if setup is not None:
        plan["setup"] = json.loads(setup) if setup.startswith("{") else setup
    if not plan.get("setup"):
        plan.pop("setup", None)
    installs = plan.get("setup", "")
    lab = Lab(
        clone,
        installs["run"] if isinstance(installs, dict) else installs,
        suite or checks[0]["run"],
    )
    found = lab.run("main")
    if not found.green:
        raise Unfit(f"the suite does not pass here: {lab.suite}: {found.said}")
    return Stage(lab, top, plan)


def replay(stage: Stage, number: int, chain: int, skipped: int) -> Score:
    finder, score = Finder(stage.lab), Score()
    player = Player(stage, finder, score)
    commits = []
    for commit in finder.find(number, skipped):
        finder.prepare(commit)
        player.play(commit)
        commits.append(commit)
        cells = ", ".join(f"{kind} {score.cell(kind)}" for kind in KINDS)
        print(
            f"{commit.id[:12]} {score.seconds[-1]:.0f} s; so far {cells}",
            file=sys.stderr,
            flush=True,
        )
    if not commits:
        seen = ", ".join(f"{count} {what}" for what, count in finder.seen.items())
        raise Unfit(
            f"no commit there has tests that fail on the source before it ({seen})"
        )
    table(score, len(commits))
    for jobs in (1, 4) if chain else ():
        try:
            said = player.chain(commits[:chain][::-1], jobs)
        except (
            Unfit
        ) as error:  # between them the history changes what cannot be laid down
            said = f"chain, {jobs} jobs: not played: {error}"
        print(said, flush=True)
    for fault in score.wrong:
        print(f"wrong: {fault}")
    return score


def table(score: Score, commits: int) -> None:
    print(f"| {commits} commits | accepted | to be |\n|---|---:|---|")
    for kind in KINDS:
        print(
            f"| {WHAT[kind]} | {score.cell(kind)} | {'accepted' if kind in RIGHT else 'refused'} |"
        )
    print(
        f"{score.equivalent} mutants that no test saw; {len(score.wrong)} wrong verdicts"
    )
    print(
        f"{sum(score.seconds) / commits:.0f} s a commit; runs of the suite for a task: {set(score.suite_runs)}"
    )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument(
        "--commits", type=int, default=10, help="how many to play; the newest first"
    )
    parser.add_argument(
        "--chain", type=int, default=0, help="play so many of them as one plan, too"
    )
    parser.add_argument("--skip", type=int, default=0, help="commits to leave out")
    parser.add_argument(
        "--setup", help="in place of what `ralph init` proposes: a command, or JSON"
    )
    parser.add_argument(
        "--suite", help="the same; single tests are read from $RALPH_RESULTS"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="replay-") as top:
        try:
            stage = prepared(
                given.repository.resolve(), Path(top), given.setup, given.suite
            )
            score = replay(stage, given.commits, given.chain, given.skip)
        except Unfit as error:
            parser.exit(2, f"{parser.prog}: {error}\n")
    sys.exit(1 if score.wrong else 0)


if __name__ == "__main__":
    main()
