"""What ralph costs: every figure is a ratio to a floor that is measured in the same run.

`make bench` prints the table; BENCH_SCALE=0.1 is quick, names of figures measure just
those.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import pty
import select
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCALE = float(os.environ.get("BENCH_SCALE", "1"))
ROUNDS = 5 if SCALE >= 1 else 3
MANY = 8
TASKS = 16
"""Attempts in a run beside its first: with ten that pass, the branch is checked once
more."""
WORKS = "sh -c ': > $RALPH_TASK_ID'"
ENV = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "PYTHONPATH": str(ROOT),
}
OURS = ("RALPH", "GIT_", "PYTHON")
ENV |= {k: v for k, v in os.environ.items() if not k.startswith(OURS)}


@dataclass(frozen=True)
class Measured:
    """`value` is what the goal is about; `floor` and `ours` are seconds, `memory` is in
    MB."""

    value: float = 0.0
    floor: float = 0.0
    ours: float = 0.0
    memory: float = 0.0


@dataclass(frozen=True)
class Figure:
    """One row of the table: `goal` is the most that `value` may be."""

    key: str
    what: str
    floor: str
    goal: float
    measure: Callable[[Path], Measured]
    unit: str = "x"
    memory: float = float("inf")


# ---------------------------------------------------------------- tools


def scaled(number: int, least: int = 1) -> int:
    return max(int(number * SCALE), least)


def run(words: list[str], cwd: Path, **env: str) -> tuple[float, float]:
    """Seconds that a command took, and the most memory of it or a descendant, in MB."""
    started = time.perf_counter()
    quiet: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(words, cwd=cwd, env={**ENV, **env}, **quiet) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3, 4):  # 3 and 4: a limit, a blocked task
        ended = f"ended with {process.returncode} in {cwd}"
        raise RuntimeError(f"{shlex.join(words)} {ended}")
    unit = 1024 if sys.platform == "linux" else 1 << 20
    return time.perf_counter() - started, used.ru_maxrss / unit


def ralph(cwd: Path, *words: str, **env: str) -> tuple[float, float]:
    return run([str(Path(sys.executable).with_name("ralph")), *words], cwd, **env)


def loop(
    cwd: Path, agent: str, iterations: int, *words: str, **env: str
) -> tuple[float, float]:
    limits = f"--max-iterations {iterations} --max-attempts 1000000 --no-awake"
    return ralph(cwd, "run", "--agent", agent, *limits.split(), *words, **env)


def medians(rounds: int, *jobs: Callable[[], float]) -> list[float]:
    """The median of what each job gives, in seconds; they take turns."""
    found = [[job() for job in jobs] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*found, strict=True)]


def timed(job: Callable[[], object]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def plan(cwd: Path, tasks: int, **top: Any) -> None:
    """Write prd.json with new tasks, 250 bytes each, and what else it says at its
    `top`; their check is that a file is there, and it is not run again at the end."""
    name = f"{time.monotonic_ns():x}"
    words = "What is to be done, and why, in some words. " * 2
    entries = []
    for i in range(tasks):
        run = ["test", "-e", f"{name}-{i}"]
        task: dict[str, Any] = {"id": f"{name}-{i}", "title": f"task {i}"}
        task |= {"description": words, "priority": i, "passes": False}
        entries.append({**task, "checks": [{"run": run, "once": True}]})
    text = json.dumps({"project": "p", **top, "userStories": entries}, indent=1)
    (cwd / "prd.json").write_text(text)


def repository(cwd: Path, files: int = 1) -> Path:
    """A new git repository in `cwd`, with so many files."""
    cwd.mkdir(exist_ok=True)
    for i in range(files):
        folder = cwd / f"d{i // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{i}").write_text(f"{i}\n")
    (cwd / ".gitignore").write_text(".ralph/\nprd.json\nprogress.txt\n")
    user = "git config user.email a@b.invalid && git config user.name A"
    commits = "git config gc.auto 0 && git add -A && git commit -qm start"
    run(["sh", "-c", f"git init -q && {user} && {commits}"], cwd)
    return cwd


def an_attempt(
    cwd: Path,
    agent: str,
    many: int = MANY,
    tasks: int = 40,
    **top: Any,
) -> float:
    """Seconds of one attempt: what `many` take more in one run than one."""
    took = []
    for iterations in (1, 1 + many):
        plan(cwd, tasks, **top)
        took.append(loop(cwd, agent, iterations)[0])
    return (took[1] - took[0]) / many


def loop_once(cwd: Path) -> Path:
    """One attempt, so that the places are there; the repository again."""
    plan(cwd, 1)
    loop(cwd, WORKS, 1)
    return cwd


# ---------------------------------------------------------------- the figures


def start(*words: str) -> Callable[[Path], Measured]:
    """A command against a Python that imports click, in a repository with a plan of 100
    tasks."""

    def measure(cwd: Path) -> Measured:
        plan(repository(cwd), 100)
        if words == ("status",):
            loop(cwd, WORKS, scaled(20))
        click = [sys.executable, "-c", "import click"]
        floor, ours = medians(
            scaled(21, 3), lambda: run(click, cwd)[0], lambda: ralph(cwd, *words)[0]
        )  # fmt: skip
        return Measured(ours / floor, floor, ours)

    return measure


def attempt_with_git(cwd: Path) -> Measured:
    many, other = MANY, repository(cwd / "floor")
    work = ": > $$-$i; env test -e $$-$i; git add -A; git commit -qm $i"
    words = ["sh", "-c", f"for i in $(seq {many}); do {work}; done"]
    loop_once(repository(cwd / "ours"))
    found = medians(
        ROUNDS + 4,
        lambda: run(words, other)[0] / many,
        lambda: an_attempt(cwd / "ours", WORKS),
    )
    return Measured(found[1] / found[0], *found)


def a_check(cwd: Path) -> Measured:
    """What a check takes in the clean room beyond itself: eight more of them in a plan,
    each of which runs after the work of a task."""
    loop_once(repository(cwd, 1000))
    more = [{"name": f"more {i}", "run": ["true"], "once": True} for i in range(8)]

    floor, few, many = medians(
        ROUNDS,
        lambda: run(["true"], cwd)[0],
        lambda: an_attempt(cwd, WORKS),
        lambda: an_attempt(cwd, WORKS, checks=more),
    )
    ours = (many - few) / len(more) - floor
    return Measured(ours * 1000, floor, ours)


def runs_of(what: str, when: bool = False) -> Callable[[Path], Measured]:
    """How often the whole suite, or `setup`, runs for ten tasks that all pass at once,
    of which one changes the lock file."""

    def measure(cwd: Path) -> Measured:
        home, log = repository(cwd / "home"), cwd / "log"
        (home / "some.lock").write_text("1\n")
        run(["sh", "-c", "git add -A && git commit -qm lock"], home)
        counts = f"echo x >> {shlex.quote(str(log))}"
        setup: dict[str, Any] = {"run": counts}
        if when:
            setup["when"] = ["*.lock"]
        if what == "suite":
            plan(home, 10, checks=[counts])
        else:
            plan(home, 10, checks=["true"], setup=setup)
        changes = "case $RALPH_TASK_ID in *-5) echo 2 > some.lock;; esac"
        loop(home, f"sh -c {shlex.quote(f'{changes}; : > $RALPH_TASK_ID')}", 20)
        must_pass(home)
        return Measured(len(log.read_text().split()))

    return measure


def must_pass(home: Path) -> None:
    """Every task of the plan there has passed."""
    plan = json.loads((home / "prd.json").read_text())
    assert all(task["passes"] for task in plan["userStories"])


@contextlib.contextmanager
def asleep(cwd: Path, jobs: int, out: int) -> Iterator[list[int]]:
    """The pids of a supervisor and of its loops, whose agents sleep (Linux)."""
    plan(repository(cwd), jobs)
    ralph = str(Path(sys.executable).with_name("ralph"))
    words = [ralph, "run", "--no-awake", "--jobs", str(jobs), "--agent", "sleep 3600"]
    with subprocess.Popen(words, cwd=cwd, env=ENV, stdout=out) as process:
        try:
            while len(agents := children(children([process.pid]))) < jobs:
                time.sleep(0.1)
                if process.poll() is not None:
                    at_work = f"{len(agents)} of {jobs} agents at work"
                    raise RuntimeError(f"ralph ended with {at_work}")
            time.sleep(3)
            yield [process.pid, *children([process.pid])]
        finally:
            process.terminate()


def children(pids: list[int]) -> list[int]:
    """Those of all of them; a process may end meanwhile, as a check does."""
    found: list[int] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            found += map(int, listed.split())
    return found


def silence(terminal: bool, jobs: int = 1) -> Callable[[Path], Measured]:
    """Processor time of ralph's processes, in ms a minute, while its agents are
    silent."""

    def measure(cwd: Path) -> Measured:
        ours, theirs = pty.openpty() if terminal else os.pipe()
        with asleep(cwd, jobs, theirs) as watched:
            before, started = spent_by(watched), time.monotonic()
            while time.monotonic() - started < scaled(60, 5):
                if select.select([ours], [], [], 1.0)[0]:
                    os.read(ours, 4096)
            used, seconds = spent_by(watched) - before, time.monotonic() - started
        os.close(ours)
        os.close(theirs)
        return Measured(used * 60 / seconds / 1e6)

    return measure


def side_by_side(cwd: Path) -> Measured:
    """TASKS tasks with 4 loops, from the start of the command to its end; the floor
    is what agents sleep."""
    seconds = max(5 * SCALE, 1)
    plan(repository(cwd), TASKS)
    agent = f"sh -c 'sleep {seconds}; : > $RALPH_TASK_ID'"
    took, _ = loop(cwd, agent, TASKS, "--jobs", "4")
    must_pass(cwd)
    floor = TASKS / 4 * seconds
    return Measured(took / floor, floor, took)


def eight_loops(check: float) -> Callable[[Path], Measured]:
    """TASKS tasks whose agent takes two seconds, with 8 loops, and a check of the plan
    that takes so many seconds. The floor is what agents and checks sleep: checks run
    one after another, the looks before and after included."""

    def measure(cwd: Path) -> Measured:
        work, look = 2 * SCALE, check * SCALE
        agent = f"sh -c 'sleep {work}; echo > $RALPH_TASK_ID'"
        tasks = [{"title": f"task {number}"} for number in range(1, TASKS + 1)]
        content = {"project": "p", "checks": [f"sleep {look}"], "userStories": tasks}
        (repository(cwd) / "prd.json").write_text(json.dumps(content))
        took, _ = loop(cwd, agent, 2 * TASKS, "--jobs", "8")
        must_pass(cwd)
        floor = work + (TASKS + 2) * look if look else TASKS / 8 * work
        return Measured(took / floor, floor, took)

    return measure


def spent_by(pids: list[int]) -> int:
    """Nanoseconds that processes have used so far."""
    stats = [Path(f"/proc/{pid}/schedstat").read_text() for pid in pids]
    return sum(int(stat.split()[0]) for stat in stats)


def long_list(cwd: Path) -> Measured:
    """What 10,000 tasks add to an attempt that passes."""
    folder, tasks = loop_once(repository(cwd / "home")), scaled(10_000)
    plan(folder, tasks)
    source = (folder / "prd.json").read_text()
    floor, long, short = medians(
        ROUNDS,
        lambda: timed(lambda: json.dumps(json.loads(source))),
        lambda: an_attempt(folder, WORKS, 3, tasks),
        lambda: an_attempt(folder, WORKS, 3, 40),
    )
    return Measured((long - short) / floor, floor, long - short)


def records(cwd: Path, count: int) -> str:
    """Notes of a run in `cwd`: the records of the two halves of an attempt are
    repeated."""
    plan(cwd, 40)
    loop(cwd, WORKS, 1)
    first, *blocks = (cwd / "progress.txt").read_text().split("\n## ")
    begun, pair, ended = blocks[0], blocks[1:3], blocks[3:]
    return "\n## ".join([first, begun, *pair * (count // 2), *ended])


def long_notes(cwd: Path) -> Measured:
    """What 10,000 records add to a start."""
    folder = repository(cwd / "home")
    long_before, short_before = records(folder, scaled(10_000)), records(folder, 2)

    def took(before: str) -> float:
        (folder / "progress.txt").write_text(before)
        plan(folder, 40)
        return loop(folder, WORKS, 1)[0]

    def read() -> float:
        (cwd / "kept").write_text(long_before)
        with (cwd / "kept").open(encoding="utf-8") as file:
            return timed(lambda: sum(1 for _ in file))

    floor, long, short = medians(
        ROUNDS, read, lambda: took(long_before), lambda: took(short_before)
    )
    return Measured((long - short) / floor, floor, long - short)


def many_files(cwd: Path) -> Measured:
    big = loop_once(repository(cwd / "big", scaled(50_000)))
    small = loop_once(repository(cwd / "small"))
    floor, ours, without = medians(
        3,
        lambda: run(["git", "status", "--porcelain"], big)[0],
        lambda: an_attempt(big, WORKS, scaled(5)),
        lambda: an_attempt(small, WORKS, scaled(5)),
    )
    return Measured((ours - without) / floor, floor, ours - without)


def single_tests(cwd: Path) -> Measured:
    """A file with 100,000 tests, each with 1 KB of output, against its parser alone."""
    said, report = "The quick brown fox jumps over it.\n" * 30, cwd / "report.xml"
    with report.open("w") as file:
        file.write('<testsuites><testsuite name="pytest">\n')
        for i in range(scaled(100_000)):
            name = f'classname="tests.test_{i // 100}.TestSome" name="test_{i}"'
            file.write(f"<testcase {name}><system-out>{said}</system-out></testcase>\n")
        file.write("</testsuite></testsuites>\n")
    parse = "from xml.parsers import expat; expat.ParserCreate().ParseFile(open(sys.argv[1], 'rb'))"
    read = "from _ralph.checks import junit; junit.read(Path(sys.argv[1]), Path())"
    memory: list[float] = []

    def one(code: str) -> float:
        script = f"import sys; from pathlib import Path; {code}"
        took, most = run([sys.executable, "-c", script, str(report)], cwd)
        memory.append(most)
        return took

    floor, ours = medians(ROUNDS, lambda: one(parse), lambda: one(read))
    return Measured(ours / floor, floor, ours, max(memory))


SLEEP = "what agents and checks sleep"
CLICK, JSON = "python -c 'import click'", "json.loads, json.dumps"
# fmt: off
FIGURES = (
    Figure("jobs", "16 tasks of 5 s with 4 loops", "the sleep of 4 tasks", 1.15, side_by_side),
    Figure("loops", "16 tasks of 2 s with 8 loops, checks that take none", SLEEP, 1.2, eight_loops(0)),
    Figure("loops-check", "the same with a check of 1 s", SLEEP, 1.1, eight_loops(1)),
    Figure("check", "a check in the clean room, 1,000 files: what it takes more", "the check", 20, a_check, "ms"),
    Figure("help", "ralph --help", CLICK, 1.3, start("--help")),
    Figure("status", "ralph status, 100 tasks", CLICK, 2.0, start("status")),
    Figure("git", "an attempt that passes", "its two processes, git add, git commit", 6.2, attempt_with_git),
    Figure("suite", "runs of the suite for 10 tasks that pass", "", 1 + 10 + 1, runs_of("suite"), "runs"),
    Figure("setups", "runs of setup for them, one changes the lock file", "", 1 + 10 + 10 + 1, runs_of("setup"), "runs"),
    Figure("when", "the same with `when`", "", 2 + 2 + 1, runs_of("setup", when=True), "runs"),
    Figure("silence", "processor time in a silent minute", "", 10, silence(False), "ms"),
    Figure("live", "the same with the live view", "", 1000, silence(True), "ms"),
    Figure("idle", "processor time in a minute of 4 silent loops", "", 25, silence(False, 4), "ms"),
    Figure("tasks", "an attempt that passes: what 10,000 tasks add", JSON, 4.0, long_list),
    Figure("notes", "a start: what 10,000 records add", "reading them line by line", 5.0, long_notes),
    Figure("files", "an attempt: what 50,000 tracked files add", "git status", 6.0, many_files),
    Figure("tests", "results of 100,000 tests with 1 KB of output each", "the XML parser alone", 4.0, single_tests, memory=100),
)
# fmt: on


# ---------------------------------------------------------------- the table


HEAD = "| figure | floor | floor took | ralph took | ratio | goal | met | load |\n|---|---|---:|---:|---:|---|---|---:|"


def measured(key: str) -> Measured:
    figure = next(figure for figure in FIGURES if figure.key == key)
    with tempfile.TemporaryDirectory(
        prefix="ralph-bench-", ignore_cleanup_errors=True
    ) as folder:
        ENV["XDG_STATE_HOME"] = f"{folder}/state"
        return figure.measure(Path(folder))


def row(figure: Figure) -> str:
    # so that no figure weighs on the next
    with multiprocessing.get_context("fork").Pool(1) as fresh:
        found = fresh.apply(measured, (figure.key,))
    goal = [f"at most {figure.goal:g} {figure.unit}"]
    value = [f"{found.value:.2f} {figure.unit}"]
    if figure.memory < float("inf"):
        goal.append(f"{figure.memory:g} MB")
        value.append(f"{found.memory:.1f} MB")
    cells = [figure.what, figure.floor]
    for seconds in (found.floor, found.ours):
        cells.append(f"{seconds * 1000:.1f} ms" if seconds else "")
    cells += [", ".join(value), ", ".join(goal)]
    met = found.value <= figure.goal and found.memory <= figure.memory
    cells += ["yes" if met else "no", f"{os.getloadavg()[0]:.1f}"]
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    git = subprocess.getoutput("git --version")
    disk = subprocess.getoutput(f"stat -fc %T {shlex.quote(tempfile.gettempdir())}")
    system = f"Python {platform.python_version()}, {git}, {disk}, {platform.system()} {platform.release()}"
    return f"{os.cpu_count()} cores, {system}, BENCH_SCALE={SCALE:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    every = {figure.key: figure for figure in FIGURES}
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(every))
    named = parser.parse_args().figures
    if unknown := {*named} - {*every}:
        parser.error(f"no such figure: {', '.join(sorted(unknown))}")
    print(f"{machine()}\n\n{HEAD}", flush=True)
    for key, figure in every.items():
        if not named or key in named:
            print(row(figure), flush=True)


if __name__ == "__main__":
    main()
