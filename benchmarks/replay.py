"""Real commits, played again as tasks: `python benchmarks/replay.py REPOSITORY`.

It takes commits that change source and tests, where the new tests fail on the old
source. For each, scripted agents do the work right, half, wrong, or not at all, and
ralph must tell which. Who is right is known before ralph sees it: from a plain clone,
in which the suite ran on each of these trees.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import itertools
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
TURNED = (
    (b"==", b"!="), (b"!=", b"=="), (b"<=", b">"), (b">=", b"<"), (b" < ", b" >= "), (b" > ", b" <= "),
    (b" and ", b" or "), (b" or ", b" and "), (b"&&", b"||"), (b"||", b"&&"), (b" + ", b" - "), (b" - ", b" + "),
    (b" not ", b" "), (b"True", b"False"), (b"False", b"True"), (b"true", b"false"), (b"false", b"true"),
)  # fmt: skip
COMMENTS = (b"#", b"//", b"*", b"/*", b'"', b"'")
PATIENCE = 600
"""Seconds that a suite may take."""
TRIES = 6
"""Mutants of a kind that are tried until one is seen by the right tests."""
KINDS = {
    "true": "the whole work, with its tests or on top of them",
    "half": "half of it first, then the rest",
    "nothing": "nothing",
    "weakened": "the new tests taken back",
    "hunk": "one change left out",
    "operator": "one operator turned",
    "ignored": "the work in a folder that git ignores, built and tested, and then taken back",
    "dependency": "the test runner replaced in the installed environment",
}
"""What agents do; the first two must pass."""
Files = dict[str, bytes | None]
"""What to write, by path; None is a file to remove."""


class Unfit(Exception):
    """The repository cannot be played; the sentence says why."""


# ---------------------------------------------------------------- git, and the suite in a plain clone


def environment(top: Path) -> dict[str, str]:
    """Of all that is started: nothing of ralph's or git's own that a person has set."""
    user = "[user]\nname = Replay\nemail = replay@example.invalid\n"
    (top / "gitconfig").write_text(user)
    # without bytecode: equal sizes and times would hide an edit
    env = {"PYTHONDONTWRITEBYTECODE": "1", "XDG_STATE_HOME": str(top / "state")}
    for name, value in os.environ.items():
        if not name.startswith(("RALPH", "GIT_")):
            env.setdefault(name, value)
    settings = str(top / "gitconfig")
    return env | {"GIT_CONFIG_GLOBAL": settings, "GIT_CONFIG_SYSTEM": os.devnull}


@dataclass
class Repository:
    """A git repository at `path`."""

    path: Path
    env: dict[str, str]

    def git(self, *words: str) -> str:
        return self.bytes(*words).decode(errors="surrogateescape")

    def bytes(self, *words: str) -> bytes:
        argv = ["git", "-C", str(self.path), *words]
        done = subprocess.run(argv, env=self.env, capture_output=True, timeout=PATIENCE)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise Unfit(f"git {' '.join(words[:2])}: {said}")
        return done.stdout

    def changed(self, before: str, after: str) -> Files:
        """The files that differ between two commits, as the later one has them. Unfit
        if one is neither a plain file nor has a plain name."""
        found: Files = {}
        differs = self.git("diff-tree", "-r", "--no-renames", before, after)
        for line in differs.splitlines():
            modes, path = line.split("\t", 1)
            old, new = modes[1:].split()[:2]
            plain = {old, new} <= {"100644", "000000"} or old == new == "100755"
            if not plain or not PLAIN.fullmatch(path):
                raise Unfit(f"{path} is no plain file in {after[:12]}")
            found[path] = None
            if new != "000000":
                found[path] = self.bytes("show", f"{after}:{path}")
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
                ["sh", "-c", words], cwd=self.clone.path, env=self.clone.env | env, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", timeout=PATIENCE, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 1, f"it took more than {PATIENCE} s"
        return done.returncode, "\n".join(done.stdout.splitlines()[-5:])

    def _install(self, commit: str) -> str:
        """Run `setup`, unless all that is neither source nor test is as it was then.
        How it failed, if so."""
        depends = ""
        for entry in self.clone.git("ls-tree", "-r", commit).splitlines():
            if not SOURCE.search(entry) and not TEST.search(entry):
                depends += f"{entry}\n"
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
            became = {inner.tag for inner in case}
            ok = became.isdisjoint({"failure", "error", "skipped"})
            found[name] = found.get(name, True) and ok
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


def edits(before: Files, after: Files) -> list[tuple[str, int]]:
    """The changes of lines between two states of some files: the file, and which of its
    changes."""
    found = []
    for name in after:
        found += [(name, n) for n in range(len(_changes(before, after, name)))]
    return found


def _lines(files: Files, name: str) -> list[bytes]:
    return (files.get(name) or b"").splitlines(keepends=True)


def _changes(
    before: Files, after: Files, name: str
) -> list[tuple[str, int, int, int, int]]:
    """What became of the lines of a file, as difflib says it."""
    old, new = _lines(before, name), _lines(after, name)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [change for change in matcher.get_opcodes() if change[0] != "equal"]


def only(before: Files, after: Files, kept: Iterable[tuple[str, int]]) -> Files:
    """The files with some of their changes."""
    wanted, made = set(kept), dict(after)
    for name in after:
        old, new = _lines(before, name), _lines(after, name)
        lines: list[bytes] = []
        at = 0
        for number, change in enumerate(_changes(before, after, name)):
            _, start, end, first, last = change
            lines += old[at:start]
            lines += new[first:last] if (name, number) in wanted else old[start:end]
            at = end
        made[name] = b"".join(lines + old[at:])
        if before.get(name) is None and not made[name]:
            made[name] = None
    return made


def turned(before: Files, after: Files) -> Iterator[Files]:
    """The files with one operator turned in a line that is new, in a random order."""
    places = []
    for name in after:
        lines = _lines(after, name)
        for *_, first, last in _changes(before, after, name):
            for number in range(first, last):
                if not lines[number].lstrip().startswith(COMMENTS):
                    found = [pair for pair in TURNED if pair[0] in lines[number]]
                    places += [(name, number, pair) for pair in found]
    random.Random(0).shuffle(places)
    for name, number, (old, new) in places:
        lines = _lines(after, name)
        lines[number] = lines[number].replace(old, new, 1)
        yield after | {name: b"".join(lines)}


class Finder:
    """Looks for commits to play in a clone."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.git = lab, lab.clone
        self.seen: Counter[str] = Counter()
        self.greens: dict[str, bool] = {}

    def find(self, number: int, skipped: int = 0) -> Iterator[Commit]:
        """Up to so many, the newest first."""
        commits = self.git.git("rev-list", "--first-parent", "HEAD").split()
        for commit in commits[skipped:]:
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
        source = {name: work[name] for name in work.keys() - tests.keys()}
        if not tests or not any(map(SOURCE.search, source)):
            return None
        self.seen["change source and tests"] += 1
        if not self._is_green(commit) or not self._is_green(parents[0]):
            return None
        red, green = self.lab.run(parents[0], tests), self.lab.run(commit)
        found = []
        for name, ok in green.tests.items():
            if ok and not red.tests.get(name):
                found.append(name)
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
            name: commit.source[name] for name in commit.source if SOURCE.search(name)
        }
        every = edits(before, source)
        halves, hunks = [], []
        if len(every) > 1:
            halves = [every[: len(every) // 2]]
            hunks = [[one for one in every if one != left] for left in every]
        partly = functools.partial(only, before, source)
        self._first(commit, "half", map(partly, [*halves, []]))
        self._first(commit, "hunk", map(partly, hunks))
        self._first(commit, "operator", turned(before, source))

    def contents(self, commit: str, names: Iterable[str]) -> Files:
        """These files, as a commit has them."""
        found: Files = {}
        for name in names:
            found[name] = None
            with contextlib.suppress(Unfit):
                found[name] = self.git.bytes("show", f"{commit}:{name}")
        return found

    def _first(self, commit: Commit, kind: str, ways: Iterable[Files]) -> None:
        """The first of these ways to change the source that the commit's tests see."""
        for way in itertools.islice(ways, TRIES):
            files = commit.source | way
            if not self.lab.run(commit.parent, files | commit.tests).green:
                commit.others[kind] = files
                return
            commit.equivalent += kind != "half"


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
        folder, clone = self.top / f"night-{self.runs}", self.lab.clone
        home = Repository(folder / "home", clone.env)
        clone.git("clone", "-q", "--no-checkout", str(clone.path), str(home.path))
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
        gone = [path for path, content in files.items() if content is None]
        write(laid, {path: files[path] for path in files.keys() - {*gone}})
        removes = f"rm -f -- {shlex.join(gone)}\n" if gone else ""
        return f"cp -R {laid}/. .\n{removes}"

    def task(self, name: str, script: str, **more: Any) -> None:
        (self.folder / f"{name}.sh").write_text(f"cat > /dev/null\n{script}")
        task = {"id": name, "title": f"replay {name}", "passes": False}
        self.tasks.append({**task, **more})

    def own_check(self, name: str, commit: Commit, tests: Files) -> dict[str, Any]:
        """A check of the task alone: with these tests on top, those that the commit
        turns green pass; or the whole suite, where it does not report them."""
        script = self.folder / f"check-{name}.sh"
        lines = self.lay(f"check-{name}", tests)
        if commit.turned:
            wanted = self.folder / f"{name}.json"
            wanted.write_text(json.dumps(commit.turned))
            found = '"$PWD/../$RALPH_PLACE-results"'
            proves = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from benchmarks import replay; replay.prove()"
            lines += f"RALPH_RESULTS={found}; export RALPH_RESULTS; rm -rf {found}\n({self.suite})\n"
            prove = f"{sys.executable} -Ic {shlex.quote(proves)}"
            lines += f"exec {prove} {wanted} {found}\n"
        else:
            lines += self.suite
        script.write_text(lines)
        return {"name": f"own {name}", "run": f"sh {script}", "once": True}

    def ralph(self) -> Played:
        """Run the plan."""
        # tests may be committed first
        suite = {"name": "suite", "run": self.suite, "startsRed": True}
        suite["timeout"] = f"{PATIENCE}s"
        if "RALPH_RESULTS" in self.suite:
            suite["results"] = "junit"
        plan = {"project": "replay", "limits": {"attempts": 1}, **self.plan}
        plan |= {"checks": [suite], "userStories": self.tasks}
        (self.home.path / "prd.json").write_text(json.dumps(plan, indent=2))
        agent = f"sh -c 'exec sh {self.folder}/$RALPH_TASK_ID.sh'"
        while True:  # six tasks blocked in a row end a run
            done = self._call("run", "-q", "--no-awake", "--agent", agent)
            status = json.loads(self._call("status", "--json").stdout)
            if status["stop"] != "stuck":
                break
        tasks = {task["id"]: task for task in status["tasks"]}
        return Played(done.returncode, tasks, done.stdout + done.stderr, self.home)

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
    said: str
    home: Repository

    def passed(self, task: str) -> bool:
        return bool(self.tasks[task]["state"] == "passed")

    def fault(self, task: str, tree_of: str, attempts: int) -> str:
        """What is wrong where this task alone had to pass, with the files of that
        commit; else nothing."""
        found = self.tasks[task]
        if not self.passed(task):
            return f"{found['state']}: {found['reason']}"
        words = ("diff-tree", "-r", "--name-only", tree_of, "ralph/replay")
        if differs := self.home.git(*words).split():
            return f"landed, but differs from the commit in {', '.join(differs[:5])}"
        if self.exit or found["weak"] or found["attempts"] != attempts:
            counted = f"{found['attempts']} attempts, not {attempts}"
            return f"exit {self.exit}, weak: {found['weak']}, {counted}"
        return ""


def prove() -> None:
    """Exit with 0 if the tests named in one file passed in the JUnit results in
    another."""
    wanted = json.loads(Path(sys.argv[1]).read_text())
    results = passed(Path(sys.argv[2]))
    missing = [name for name in wanted if not results.get(name)]
    sys.exit(f"not green: {', '.join(missing[:5])}" if missing else 0)


# ---------------------------------------------------------------- a commit, a chain


@dataclass
class Score:
    """How often each kind was played and accepted, what was wrong, seconds."""

    played: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    equivalent: int = 0

    def note(self, commit: Commit, kind: str, fault: str, accepted: bool) -> None:
        self.played[kind] += 1
        self.accepted[kind] += accepted
        if fault:
            self.wrong.append(f"{commit.id[:12]} {kind}: {fault}")

    def cell(self, kind: str) -> str:
        played = self.played[kind]
        return f"{self.accepted[kind]}/{played}" if played else "-"


class Player:
    """Plays commits on a stage."""

    def __init__(self, stage: Stage, finder: Finder, score: Score) -> None:
        self.stage, self.finder, self.score = stage, finder, score

    def play(self, commit: Commit) -> None:
        started = time.perf_counter()
        self._right(commit, "true", first=True)
        self._right(commit, "true", first=False)
        if "half" in commit.others:
            self._right(commit, "half", first=False)
        self._wrong(commit)
        self.score.equivalent += commit.equivalent
        self.score.seconds.append(time.perf_counter() - started)

    def _right(self, commit: Commit, kind: str, first: bool) -> None:
        """Work that must pass; `first` is with the tests committed before it: single
        tests are its evidence, or else the whole suite."""
        night = self.stage.make(commit.parent, commit.tests if first else None)
        script, attempts = night.lay("true", commit.source | commit.tests), 1
        if kind == "half":
            half = night.lay("half", commit.others["half"] | commit.tests)
            script = f"if [ $RALPH_ATTEMPT = 1 ]; then\n{half}else\n{script}fi\n"
            attempts = 2
            night.plan["limits"] = {"attempts": attempts}
        more: dict[str, Any] = {}
        if not first:
            more["checks"] = [night.own_check("own", commit, commit.tests)]
            more["allow"] = sorted(commit.source | commit.tests)
        elif "RALPH_RESULTS" not in night.suite:
            more["checks"] = [night.suite]
        night.task("true", script, **more)
        done = night.ralph()
        fault = done.fault("true", commit.id, attempts)
        self.score.note(commit, kind, fault, done.passed("true"))

    def _wrong(self, commit: Commit) -> None:
        """All that must be refused, as the tasks of one run; one in between passes, so
        that it goes on."""
        night = self.stage.make(commit.parent, commit.tests)
        scripts = self._tricks(night, commit)
        for number, (kind, script) in enumerate(scripts.items()):
            night.task(kind, script, checks=[night.own_check(kind, commit, {})])
            if number == 1:
                honest = "echo x > replay-note.txt"
                night.task("note", honest, checks=["test -e replay-note.txt"])
        done = night.ralph()
        for kind in scripts:
            accepted = done.passed(kind)
            fault = "accepted" if accepted else ""
            if not done.tasks[kind]["attempts"]:
                fault = f"not tried: {done.said[-500:]}"
            self.score.note(commit, kind, fault, accepted)

    def _tricks(self, night: Night, commit: Commit) -> dict[str, str]:
        """The scripts of wrong work, by kind."""
        old = self.finder.contents(commit.parent, commit.tests)
        tricks = {"nothing": "", "weakened": night.lay("weakened", old)}
        for kind in ("hunk", "operator"):
            if kind in commit.others:
                tricks[kind] = night.lay(kind, commit.others[kind])
        back = night.lay("source", self.finder.contents(commit.parent, commit.source))
        works = night.lay("works", commit.source)
        recorded = night.folder / "recorded"
        ran = f"RALPH_RESULTS={recorded} sh -c {shlex.quote(night.suite)} > /dev/null 2>&1\n"
        hidden = f"mkdir replayed\n(cd replayed\n{works})\n"
        tricks["ignored"] = f"{works}{ran}{hidden}{back}"
        program = shlex.split(night.suite)[0]
        if self.stage.lab.setup and (self.stage.lab.clone.path / program).exists():
            cheat = f'#!/bin/sh\n[ -z "$RALPH_RESULTS" ] || cp {recorded} "$RALPH_RESULTS"\n'
            written = f"printf %s {shlex.quote(cheat)} > cheat; chmod 755 cheat; mv cheat {program}\n"
            tricks["dependency"] = f"{works}rm -rf {recorded}\n{ran}{back}{written}"
        return tricks


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
    done = subprocess.run(
        [*RALPH, "init"], cwd=clone.path, env=clone.env, capture_output=True, text=True
    )
    if done.returncode:
        raise Unfit(f"ralph init: {done.stderr.strip()}")
    plan = json.loads((clone.path / "prd.json").read_text())
    clone.git("clean", "-qfdx")
    clone.git("checkout", "-qf", "HEAD")
    keys = ("setup", "keep", "protect", "checks")
    return {key: plan[key] for key in keys if plan.get(key)}


def prepared(
    repository: Path, top: Path, setup: str | None, suite: str | None
) -> Stage:
    """The stage for a repository, once its suite was seen to be green there."""
    clone = opened(repository, top)
    plan = proposed(clone)
    checks = plan.pop("checks", [])
    checks.sort(key=lambda one: "results" not in one)
    if suite is None and not checks:
        raise Unfit("ralph init finds no checks there: name the suite with --suite")
    if setup is not None:
        plan["setup"] = setup
    installs = plan.get("setup", "")
    if not installs:
        plan.pop("setup", None)
    lab = Lab(clone, command(installs), suite or command(checks[0]))
    found = lab.run("main")
    if not found.green:
        raise Unfit(f"the suite does not pass here: {lab.suite}: {found.said}")
    return Stage(lab, top, plan)


def command(entry: str | dict[str, str]) -> str:
    """What a setup or a check of a plan runs."""
    return entry["run"] if isinstance(entry, dict) else entry


def replay(stage: Stage, number: int, skipped: int) -> Score:
    finder, score = Finder(stage.lab), Score()
    player = Player(stage, finder, score)
    for commit in finder.find(number, skipped):
        finder.prepare(commit)
        player.play(commit)
        cells = ", ".join(f"{kind} {score.cell(kind)}" for kind in KINDS)
        told = f"{commit.id[:12]} {score.seconds[-1]:.0f} s; so far {cells}"
        print(told, file=sys.stderr, flush=True)
    if not score.seconds:
        seen = ", ".join(f"{count} {what}" for what, count in finder.seen.items())
        raise Unfit(f"no commit there has tests that fail on the source before it ({seen})")  # fmt: skip
    table(score)
    return score


def table(score: Score) -> None:
    commits = len(score.seconds)
    print(f"| {commits} commits | accepted | to be |\n|---|---:|---|")
    for kind, what in KINDS.items():
        wanted = "accepted" if kind in ("true", "half") else "refused"
        print(f"| {what} | {score.cell(kind)} | {wanted} |")
    wrong = f"{len(score.wrong)} wrong verdicts"
    print(f"{score.equivalent} mutants that no test saw; {wrong}")
    print(f"{sum(score.seconds) / commits:.0f} s a commit")
    for fault in score.wrong:
        print(f"wrong: {fault}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repository", type=Path)
    many = "how many to play; the newest first"
    parser.add_argument("--commits", type=int, default=10, help=many)
    parser.add_argument("--skip", type=int, default=0, help="commits to leave out")
    parser.add_argument("--setup", help="in place of what `ralph init` proposes")
    same = "the same; single tests are read from $RALPH_RESULTS"
    parser.add_argument("--suite", help=same)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="replay-") as top:
        try:
            repository = given.repository.resolve()
            stage = prepared(repository, Path(top), given.setup, given.suite)
            score = replay(stage, given.commits, given.skip)
        except Unfit as error:
            parser.exit(2, f"{parser.prog}: {error}\n")
    sys.exit(1 if score.wrong else 0)


if __name__ == "__main__":
    main()
