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

import psutil

ROOT = Path(__file__).resolve().parent.parent
SCALE = float(os.environ.get("BENCH_SCALE", "1"))
ROUNDS = 5 if SCALE >= 1 else 3
MANY = 8
TASKS = 16
"""Attempts in a run beside its first: with ten that pass, the branch is checked once
more."""
WORKS, TRIES, SLEEPS = (
    "sh -c ': > $RALPH_TASK_ID'",
    "sh -c 'echo $$ > tried'",
    "sleep 3600",
)
SLOW_TO_BUILD_UP = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
ENV = {
    k: v
    for k, v in os.environ.items()
    if not k.startswith(("RALPH", "GIT_")) and k not in SLOW_TO_BUILD_UP
}
ENV |= {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "PYTHONPATH": str(ROOT),
}


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
    """One row of the table: `goal` is the most that `value` may be, or, as a speed, the
    least."""

    key: str
    what: str
    floor: str
    goal: float
    measure: Callable[[Path], Measured]
    unit: str = "x"
    speed: bool = False
    memory: float = float("inf")

    def met(self, found: Measured) -> bool:
        near = found.value >= self.goal if self.speed else found.value <= self.goal
        return near and found.memory <= self.memory


# ---------------------------------------------------------------- tools


def scaled(number: int, least: int = 1) -> int:
    return max(int(number * SCALE), least)


def run(words: list[str], cwd: Path, **env: str) -> tuple[float, float]:
    """Seconds that a command took, and the most memory of it or a descendant, in MB."""
    started = time.perf_counter()
    with subprocess.Popen(
        words,
        cwd=cwd,
        env={**ENV, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3, 4):  # 3 and 4: a limit, a blocked task
        raise RuntimeError(
            f"{shlex.join(words)} ended with {process.returncode} in {cwd}"
        )
    return time.perf_counter() - started, used.ru_maxrss / (
        1024 if sys.platform == "linux" else 1 << 20
    )


def ralph(cwd: Path, *words: str, **env: str) -> tuple[float, float]:
    return run([str(Path(sys.executable).with_name("ralph")), *words], cwd, **env)


def loop(
    cwd: Path, agent: str, iterations: int, *words: str, **env: str
) -> tuple[float, float]:
    limits = [
        "--max-iterations",
        str(iterations),
        "--max-attempts",
        "1000000",
        "--no-awake",
    ]
    return ralph(cwd, "run", "--agent", agent, *limits, *words, **env)


def medians(rounds: int, *jobs: Callable[[], float]) -> list[float]:
    """The median of what each job gives, in seconds; they take turns."""
    found = [[job() for job in jobs] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*found, strict=True)]


def timed(job: Callable[[], object]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def plan(cwd: Path, tasks: int, check: str = "", **top: Any) -> None:
    """Write prd.json with new tasks, 250 bytes each, and what else it says at its
    `top`; if no other, their check is that a file is there, and it is not run again at
    the end."""
    name, words = (
        f"{time.monotonic_ns():x}",
        "What is to be done, and why, in some words. " * 2,
    )
    entries = [
        {
            "id": f"{name}-{i}", "title": f"task {i}", "description": words, "priority": i, "passes": False,
            "checks": [{"run": [check] if check else ["test", "-e", f"{name}-{i}"], "once": True}],
        }
        for i in range(tasks)
    ]  # fmt: skip
    (cwd / "prd.json").write_text(
        json.dumps({"project": "p", **top, "userStories": entries}, indent=1)
    )


def repository(cwd: Path, files: int = 1) -> Path:
    """A new git repository in `cwd`, with so many files."""
    cwd.mkdir(exist_ok=True)
    for i in range(files):
        (cwd / f"d{i // 100}").mkdir(parents=True, exist_ok=True)
        (cwd / f"d{i // 100}" / f"f{i}").write_text(f"{i}\n")
    (cwd / ".gitignore").write_text(".ralph/\nprd.json\nprogress.txt\n")
    for words in (
        "init -q",
        "config user.email a@b.invalid",
        "config user.name A",
        "config gc.auto 0",
    ):
        run(["git", *words.split()], cwd)
    run(["sh", "-c", "git add -A && git commit -qm start"], cwd)
    return cwd


def an_attempt(
    cwd: Path,
    agent: str,
    many: int = MANY,
    tasks: int = 40,
    check: str = "",
    **top: Any,
) -> float:
    """Seconds of one attempt: what `many` take more in one run than one."""
    took = []
    for iterations in (1, 1 + many):
        plan(cwd, tasks, check, **top)
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


def attempt_with_git(durable: bool) -> Callable[[Path], Measured]:
    """With the `durable` floor, what it commits outlives a power cut, as what ralph
    commits does."""

    def measure(cwd: Path) -> Measured:
        many, other = MANY, repository(cwd / "floor")
        git, sync = ("git -c core.fsync=all", "sync -f .") if durable else ("git", ":")
        work = (
            f": > $$-$i; env test -e $$-$i; {sync}; {git} add -A; {git} commit -qm $i"
        )
        loop_once(repository(cwd / "ours"))
        floor = lambda: (  # noqa: E731
            run(["sh", "-c", f"for i in $(seq {many}); do {work}; done"], other)[0]
            / many
        )
        found = medians(ROUNDS + 4, floor, lambda: an_attempt(cwd / "ours", WORKS))
        return Measured(found[1] / found[0], *found)

    return measure


def ten_minutes(cwd: Path) -> Measured:
    """What ralph adds to an attempt that takes ten minutes, in percent; `floor` is
    those minutes."""
    loop_once(repository(cwd))
    ours = statistics.median(an_attempt(cwd, WORKS) for _ in range(ROUNDS))
    return Measured(100 * ours / 600, 600, ours)


def a_check(cwd: Path) -> Measured:
    """What a check takes in the clean room beyond itself: eight more of them in a plan,
    each of which runs before the work of a task and after it."""
    loop_once(repository(cwd, 1000))
    more = 8

    def one(checks: int) -> float:
        took = []
        for iterations in (1, 1 + MANY):
            plan(cwd, 40)
            read = json.loads((cwd / "prd.json").read_text())
            for task in read["userStories"]:
                task["checks"] += [{"run": ["true"], "once": True}] * checks
            (cwd / "prd.json").write_text(json.dumps(read, indent=1))
            took.append(loop(cwd, WORKS, iterations)[0])
        return (took[1] - took[0]) / MANY

    check = lambda: run(["true"], cwd)[0]  # noqa: E731
    floor, few, many = medians(ROUNDS, check, lambda: one(0), lambda: one(more))
    ours = (many - few) / (2 * more) - floor
    return Measured(ours * 1000, floor, ours)


def a_prefix(cwd: Path) -> Measured:
    """What `wrap` adds to an attempt beyond its own two commands, of which each runs
    three times: with the agent, and with its check before and after the work."""
    loop_once(repository(cwd))
    behind = {"run": "nice -n 0", "end": "nice -n 0 true"}

    def its_own() -> float:
        words = (
            f"for i in $(seq {3 * MANY}); do nice -n 0 env true; nice -n 0 true; done"
        )
        return run(["sh", "-c", words], cwd)[0] / MANY

    floor, plain, ours = medians(
        ROUNDS + 4,
        its_own,
        lambda: an_attempt(cwd, WORKS),
        lambda: an_attempt(cwd, WORKS, wrap=behind),
    )
    return Measured(1000 * (ours - plain - floor), floor, ours - plain)


def set_up(cwd: Path) -> Measured:
    """An attempt where `setup` leaves 20,000 files in each place, in seconds; the floor
    is one look at them in one place."""
    count, home = scaled(20_000), repository(cwd / "home")
    (home / ".gitignore").write_text(".ralph/\nprd.json\nprogress.txt\ndeps/\n")
    (home / "some.lock").write_text("1\n")
    run(["sh", "-c", "git add -A && git commit -qm lock"], home)
    (cwd / "make.py").write_text(
        f"""import os
for i in range({count}):
    i % 50 or os.makedirs(f"deps/{{i // 50}}")
    open(f"deps/{{i // 50}}/{{i}}", "w").write(f"{{i}}\\n" * 100)
"""
    )
    setup = {"run": f"{sys.executable} -S {cwd / 'make.py'}", "when": ["*.lock"]}
    plan(home, 1, setup=setup)
    loop(home, WORKS, 1)
    (room,) = Path(ENV["XDG_STATE_HOME"], "ralph").glob("*/room-*")

    def look() -> None:
        waiting = [str(room)]
        while waiting:
            entries = [*os.scandir(waiting.pop())]
            waiting += [
                entry.path
                for entry in entries
                if entry.is_dir() and entry.name != ".git"
            ]
            for entry in entries:
                entry.stat(follow_symlinks=False)

    found = medians(
        ROUNDS, lambda: timed(look), lambda: an_attempt(home, WORKS, setup=setup)
    )
    return Measured(found[1], *found)


def runs_of(what: str, when: bool = False) -> Callable[[Path], Measured]:
    """How often the whole suite, or `setup`, runs for ten tasks that all pass at once,
    of which one changes the lock file."""

    def measure(cwd: Path) -> Measured:
        home, log = repository(cwd / "home"), cwd / "log"
        (home / "some.lock").write_text("1\n")
        run(["sh", "-c", "git add -A && git commit -qm lock"], home)
        counts, most = (
            f"echo x >> {shlex.quote(str(log))}",
            {"when": ["*.lock"]} if when else {},
        )
        top = (
            {"checks": [counts]}
            if what == "suite"
            else {"checks": ["true"], "setup": {"run": counts, **most}}
        )
        plan(home, 10, **top)
        changes = "case $RALPH_TASK_ID in *-5) echo 2 > some.lock;; esac"
        loop(home, f"sh -c {shlex.quote(f'{changes}; : > $RALPH_TASK_ID')}", 20)
        assert all(
            task["passes"]
            for task in json.loads((home / "prd.json").read_text())["userStories"]
        )
        return Measured(len(log.read_text().split()))

    return measure


def flood(agent: str) -> Callable[[Path], Measured]:
    """The speed at which an agent's output is read, against reading the same pipe."""

    def measure(cwd: Path) -> Measured:
        piece = (
            events()
            if agent == "claude"
            else b"The quick brown fox jumps over it.\n" * 170
        )
        with (cwd / "block").open(
            "wb"
        ) as file:  # in pieces: a child is counted with its parent's memory
            for _ in range((32 << 20) // len(piece)):
                file.write(piece)
        (cwd / "end").write_text('{"type":"result","is_error":false,"result":"done"}\n')
        fake, memory, home = cwd / agent, [], loop_once(repository(cwd / "home"))

        def ours(times: int) -> float:
            block, end = shlex.quote(str(cwd / "block")), shlex.quote(str(cwd / "end"))
            fake.write_text(
                f'#!/bin/sh\n: > "$RALPH_TASK_ID"\nexec cat {f"{block} " * times} {end}\n'
            )
            took, most = passes(fake, home)
            memory.append(most)
            return took

        def read() -> None:
            words = ["cat", *["block"] * times]
            with subprocess.Popen(words, cwd=cwd, stdout=subprocess.PIPE) as process:
                assert process.stdout
                while os.read(process.stdout.fileno(), 1 << 16):
                    pass

        times = scaled(32)
        floor, nothing, all_of_it = medians(
            3, lambda: timed(read), lambda: ours(0), lambda: ours(times)
        )
        return Measured(
            floor / (all_of_it - nothing), floor, all_of_it - nothing, max(memory)
        )

    return measure


def passes(program: Path, home: Path) -> tuple[float, float]:
    """Seconds and MB of a run in `home` whose task the agent `program` makes pass."""
    program.chmod(0o755)
    plan(home, 1)
    path = f"{program.parent}{os.pathsep}{ENV['PATH']}"
    found = loop(home, program.name, 1, "--full-permissions", IS_SANDBOX="1", PATH=path)
    assert json.loads((home / "prd.json").read_text())["userStories"][0]["passes"]
    return found


def events() -> bytes:
    """Two lines as Claude Code prints them: words, then what a tool gave, 3 KB on
    average."""
    words, usage = (
        "The quick brown fox jumps over it.\n",
        {"input_tokens": 9, "output_tokens": 1},
    )
    said = {
        "id": "m",
        "content": [{"type": "text", "text": words * 15}],
        "usage": usage,
    }
    given = {
        "role": "user",
        "content": [
            {"tool_use_id": "t", "type": "tool_result", "content": words * 140}
        ],
    }
    both = ({"type": "assistant", "message": said}, {"type": "user", "message": given})
    lines = [json.dumps(event, separators=(",", ":")) + "\n" for event in both]
    return "".join(lines).encode()


def long_line(cwd: Path) -> Measured:
    """An event of 60 MB, which is more than ralph keeps of one, and the end of the
    agent after it."""
    end = '{"type":"result","is_error":false,"result":"done"}'
    script = f"""printf '{{"type":"assistant","x":"'; head -c 60000000 /dev/zero | tr '\\0' x; echo '"}}'; echo '{end}'"""
    (cwd / "claude").write_text(f'#!/bin/sh\n: > "$RALPH_TASK_ID"\n{script}\n')
    took, memory = passes(cwd / "claude", repository(cwd / "home"))
    return Measured(ours=took, memory=memory)


@contextlib.contextmanager
def asleep(cwd: Path, jobs: int, out: int) -> Iterator[list[int]]:
    """The pids of a supervisor and of its loops, whose agents sleep (Linux)."""
    plan(repository(cwd), jobs)
    words = [
        str(Path(sys.executable).with_name("ralph")),
        "run",
        "--no-awake",
        "--jobs",
        str(jobs),
    ]
    with subprocess.Popen(
        [*words, "--agent", SLEEPS], cwd=cwd, env=ENV, stdout=out
    ) as process:
        try:
            while len(agents := children(children([process.pid]))) < jobs:
                time.sleep(0.1)
                if process.poll() is not None:
                    raise RuntimeError(
                        f"ralph ended with {len(agents)} of {jobs} agents at work"
                    )
            time.sleep(3)
            yield [process.pid, *children([process.pid])]
        finally:
            process.terminate()


def children(pids: list[int]) -> list[int]:
    """Those of all of them; a process may end meanwhile, as a check does."""
    found: list[int] = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found += map(
                int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            )
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


def memory_of_loops(cwd: Path) -> Measured:
    """The most that one of eight loops has for itself, in MB: what it shares with the
    supervisor is there once."""
    with asleep(cwd, 8, subprocess.DEVNULL) as (_, *loops):
        return Measured(
            max(psutil.Process(pid).memory_full_info().uss for pid in loops) / 1e6
        )


def side_by_side(cwd: Path) -> Measured:
    """TASKS tasks with 4 loops, from the start of the command to its end; the floor
    is what agents sleep."""
    seconds = max(5 * SCALE, 1)
    plan(repository(cwd), TASKS)
    took, _ = loop(
        cwd, f"sh -c 'sleep {seconds}; : > $RALPH_TASK_ID'", TASKS, "--jobs", "4"
    )
    assert all(
        task["passes"]
        for task in json.loads((cwd / "prd.json").read_text())["userStories"]
    )
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
        text = json.dumps({"project": "p", "checks": [f"sleep {look}"], "tasks": tasks})
        (repository(cwd) / "prd.json").write_text(text)
        began = time.time()
        loop(cwd, agent, 2 * TASKS, "--jobs", "8")
        ended = time.time()
        done = json.loads((cwd / "prd.json").read_text())["tasks"]
        assert all(task["passes"] for task in done)
        floor = work + (TASKS + 2) * look if look else TASKS / 8 * work
        return Measured((ended - began) / floor, floor, ended - began)

    return measure


def spent_by(pids: list[int]) -> int:
    """Nanoseconds that processes have used so far."""
    return sum(
        int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids
    )


def long_list(agent: str, check: str) -> Callable[[Path], Measured]:
    """What 10,000 tasks add to an attempt that passes, or with a `check` that stays
    red, does not."""

    def measure(cwd: Path) -> Measured:
        folder, tasks = loop_once(repository(cwd / "home")), scaled(10_000)
        plan(folder, tasks, check)
        source = (folder / "prd.json").read_text()
        floor, long, short = medians(
            ROUNDS,
            lambda: timed(lambda: json.dumps(json.loads(source))),
            lambda: an_attempt(folder, agent, 3, tasks, check),
            lambda: an_attempt(folder, agent, 3, 40, check),
        )
        return Measured((long - short) / floor, floor, long - short)

    return measure


def records(cwd: Path, count: int) -> str:
    """Notes of a run in `cwd`: the records of the two halves of an attempt are
    repeated."""
    plan(cwd, 40)
    loop(cwd, WORKS, 1)
    first, *blocks = (cwd / "progress.txt").read_text().split("\n## ")
    begun, pair, ended = blocks[0], blocks[1:3], blocks[3:]
    return "\n## ".join([first, begun, *pair * (count // 2), *ended])


def long_notes(growth: bool) -> Callable[[Path], Measured]:
    """What 10,000 records add to a start, or to an attempt."""

    def measure(cwd: Path) -> Measured:
        folder = repository(cwd / "home")
        long_before, short_before = (
            records(folder, count) for count in (scaled(10_000), 2)
        )

        def took(before: str, iterations: int) -> float:
            (folder / "progress.txt").write_text(before)
            plan(folder, 40)
            return loop(folder, WORKS, iterations)[0]

        def read() -> float:
            (cwd / "kept").write_text(long_before)
            with (cwd / "kept").open(encoding="utf-8") as file:
                return timed(lambda: sum(1 for _ in file))

        jobs = [
            lambda b=b, n=n: took(b, n)
            for n in (1, 1 + MANY)
            for b in (long_before, short_before)
        ]
        floor, long, short, long_more, short_more = medians(ROUNDS, read, *jobs)
        if growth:
            one = (long_more - long) / MANY, (short_more - short) / MANY
            return Measured(one[0] / one[1], one[1], one[0])
        return Measured((long - short) / floor, floor, long - short)

    return measure


def many_files(cwd: Path) -> Measured:
    big, small = (
        loop_once(repository(cwd / name, n))
        for name, n in (("big", scaled(50_000)), ("small", 1))
    )
    status = lambda: run(["git", "status", "--porcelain"], big)[0]  # noqa: E731
    jobs = [
        lambda folder=folder: an_attempt(folder, WORKS, scaled(5))
        for folder in (big, small)
    ]
    floor, ours, without = medians(3, status, *jobs)
    return Measured((ours - without) / floor, floor, ours - without)


def new_files(cwd: Path) -> Measured:
    """What 60,000 new files add to an attempt, without the time in which the agent
    makes them: a run of one attempt that makes them, less a run of one that makes one
    file beside them."""
    count, other, home = (
        scaled(60_000),
        repository(cwd / "floor"),
        loop_once(repository(cwd / "home")),
    )
    maker, made = cwd / "make.py", iter(range(1_000_000))
    maker.write_text(
        f"""import os, pathlib, sys
name = sys.argv[1] if sys.argv[1:] else os.environ["RALPH_TASK_ID"]
for i in range({count}):
    i % 100 or os.makedirs(f"many-{{name}}/{{i // 100}}")
    pathlib.Path(f"many-{{name}}/{{i // 100}}/{{i}}").write_text(f"{{name}} {{i}}\\n")
pathlib.Path(name).touch()
"""
    )
    words = [sys.executable, "-S", str(maker)]

    def one(agent: str) -> float:
        plan(home, 1)
        return loop(home, agent, 1)[0]

    def floor() -> float:
        run([*words, str(next(made))], other)
        return run(["sh", "-c", "git add -A && git commit -qm many"], other)[0]

    def making() -> float:
        return run([*words, str(next(made))], cwd)[0]

    found = medians(
        3 if SCALE >= 1 else 1,
        floor,
        making,
        lambda: one(shlex.join(words)),
        lambda: one(WORKS),
    )
    ours = found[2] - found[3] - found[1]
    return Measured(ours / found[0], found[0], ours)


def long_run(cwd: Path) -> Measured:
    """An attempt of a run of 1,000 against one of a run of 100, none of which passes;
    and the memory."""
    used: dict[int, float] = {}

    def took(iterations: int) -> float:
        folder = repository(Path(tempfile.mkdtemp(dir=cwd)))
        plan(folder, 40, "false")
        seconds, used[iterations] = loop(folder, TRIES, iterations)
        return seconds

    few, many = scaled(100, 5), scaled(1000, 50)
    once, short, long = took(1), took(few), took(many)
    floor, ours = (short - once) / (few - 1), (long - once) / (many - 1)
    return Measured(ours / floor, floor, ours, max(used[many] - used[few], 0.0))


def single_tests(cwd: Path) -> Measured:
    """A file with 100,000 tests, each with 1 KB of output, against its parser alone."""
    said, report = "The quick brown fox jumps over it.\n" * 30, cwd / "report.xml"
    with report.open("w") as file:
        file.write('<testsuites><testsuite name="pytest">\n')
        for i in range(scaled(100_000)):
            name = f'classname="tests.test_{i // 100}.TestSome" name="test_{i}" time="0.001"'
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
CLICK, PIPE, JSON = (
    "python -c 'import click'",
    "the same pipe in 64 KiB blocks",
    "json.loads, json.dumps",
)
# fmt: off
FIGURES = (
    Figure("ten", "an attempt of ten minutes: what ralph adds", "ten minutes", 0.1, ten_minutes, "%"),
    Figure("jobs", "16 tasks of 5 s with 4 loops", "the sleep of 4 tasks", 1.15, side_by_side),
    Figure("loops", "16 tasks of 2 s with 8 loops, checks that take none", SLEEP, 1.2, eight_loops(0)),
    Figure("loops-check", "the same with a check of 1 s", SLEEP, 1.1, eight_loops(1)),
    Figure("check", "a check in the clean room, 1,000 files: what it takes more", "the check", 20, a_check, "ms"),
    Figure("help", "ralph --help", CLICK, 1.3, start("--help")),
    Figure("version", "ralph --version", CLICK, 1.3, start("--version")),
    Figure("status", "ralph status, 100 tasks", CLICK, 2.0, start("status")),
    Figure("git", "an attempt that passes", "its two processes, git add, git commit", 6.2, attempt_with_git(False)),
    Figure("wrap", "an attempt behind a prefix with `end`: what it takes more", "the prefix itself", 20, a_prefix, "ms"),
    Figure("durable", "the same", "the same with core.fsync=all, sync", float("inf"), attempt_with_git(True)),
    Figure("setup", "an attempt where setup left 20,000 files, with `when`", "one look at them", 0.2, set_up, "s"),
    Figure("suite", "runs of the suite for 10 tasks that pass", "", 1 + 10 + 1, runs_of("suite"), "runs"),
    Figure("setups", "runs of setup for them, one changes the lock file", "", 1 + 10 + 10 + 1, runs_of("setup"), "runs"),
    Figure("when", "the same with `when`", "", 2 + 2 + 1, runs_of("setup", when=True), "runs"),
    Figure("plain", "1 GB of plain output: speed", PIPE, 0.5, flood("talker"), speed=True, memory=60),
    Figure("stream", "1 GB of stream-json: speed", PIPE, 0.25, flood("claude"), speed=True, memory=60),
    Figure("line", "a line of 60 MB of stream-json", "", float("inf"), long_line, memory=200),
    Figure("silence", "processor time in a silent minute", "", 10, silence(False), "ms"),
    Figure("live", "the same with the live view", "", 1000, silence(True), "ms"),
    Figure("idle", "processor time in a minute of 4 silent loops", "", 25, silence(False, 4), "ms"),
    Figure("loop", "memory of its own of one of 8 loops", "", 25, memory_of_loops, "MB"),
    Figure("tasks", "an attempt that passes: what 10,000 tasks add", JSON, 4.0, long_list(WORKS, "")),
    Figure("failing", "an attempt that fails: the same", JSON, 4.0, long_list(TRIES, "false")),
    Figure("notes", "a start: what 10,000 records add", "reading them line by line", 5.0, long_notes(False)),
    Figure("growth", "an attempt after 10,000 records", "after two", 1.15, long_notes(True)),
    Figure("files", "an attempt: what 50,000 tracked files add", "git status", 6.0, many_files),
    Figure("new", "an attempt: what 60,000 new files add", "git add, git commit of them", 3.0, new_files),
    Figure("tests", "results of 100,000 tests with 1 KB of output each", "the XML parser alone", 4.0, single_tests, memory=100),
    Figure("long", "an attempt in a run of 1,000", "in a run of 100", 1.15, long_run, memory=1),
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
    with multiprocessing.get_context("fork").Pool(
        1
    ) as fresh:  # so that no figure weighs on the next
        found = fresh.apply(measured, (figure.key,))
    goal, value = [], []
    if figure.goal < float("inf"):
        goal.append(
            f"at {'least' if figure.speed else 'most'} {figure.goal:g} {figure.unit}"
        )
    if figure.goal < float("inf") or found.floor or found.value:
        value.append(f"{found.value:.2f} {figure.unit}")
    if figure.memory < float("inf"):
        goal.append(f"{figure.memory:g} MB")
        value.append(f"{found.memory:.1f} MB")
    took = [
        f"{seconds * 1000:.1f} ms" if seconds else ""
        for seconds in (found.floor, found.ours)
    ]
    end = [
        ("yes" if figure.met(found) else "no") if goal else "",
        f"{os.getloadavg()[0]:.1f}",
    ]
    return f"| {' | '.join([figure.what, figure.floor, *took, ', '.join(value), ', '.join(goal), *end])} |"


def machine() -> str:
    git = subprocess.getoutput("git --version")
    disk = subprocess.getoutput(f"stat -fc %T {shlex.quote(tempfile.gettempdir())}")
    system = f"Python {platform.python_version()}, {git}, {disk}, {platform.system()} {platform.release()}"
    return f"{os.cpu_count()} cores, {system}, BENCH_SCALE={SCALE:g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "figures", nargs="*", metavar="FIGURE", help=", ".join(f.key for f in FIGURES)
    )
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the table there, too"
    )
    given = parser.parse_args()
    if unknown := set(given.figures) - {figure.key for figure in FIGURES}:
        parser.error(f"no such figure: {', '.join(sorted(unknown))}")
    told = [f"{machine()}\n\n{HEAD}"]
    print(told[0], flush=True)
    for figure in FIGURES:
        if not given.figures or figure.key in given.figures:
            told.append(row(figure))
            print(told[-1], flush=True)
    if given.markdown:
        given.markdown.write_text("\n".join(told) + "\n")


if __name__ == "__main__":
    main()
