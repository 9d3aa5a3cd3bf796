"""What ralph costs: every figure is a ratio to a floor that is measured in the same run.

`make bench` prints the table; BENCH_SCALE=0.1 is quick, names of figures measure just those.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import pty
import select
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCALE = float(os.environ.get("BENCH_SCALE", "1"))
ROUNDS = 5 if SCALE >= 1 else 3
WORKS, SLEEPS = "sh -c ': > $RALPH_TASK_ID'", "sleep 3600"
SLOW_TO_BUILD_UP = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
ENV = {
    k: v for k, v in os.environ.items() if not k.startswith(("RALPH", "GIT_")) and k not in SLOW_TO_BUILD_UP
}
ENV |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PYTHONPATH": str(ROOT)}


@dataclass(frozen=True)
class Measured:
    """`value` is what the goal is about; `floor` and `ours` are seconds, `memory` is in MB."""

    value: float = 0.0
    floor: float = 0.0
    ours: float = 0.0
    memory: float = 0.0


@dataclass(frozen=True)
class Figure:
    """One row of the table: `goal` is the most that `value` may be, or, as a speed, the least."""

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
        words, cwd=cwd, env={**ENV, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3, 4):  # 3 and 4: a limit, a blocked task
        raise RuntimeError(f"{shlex.join(words)} ended with {process.returncode} in {cwd}")
    return time.perf_counter() - started, used.ru_maxrss / (1024 if sys.platform == "linux" else 1 << 20)


def ralph(cwd: Path, *words: str, **env: str) -> tuple[float, float]:
    return run([str(Path(sys.executable).with_name("ralph")), *words], cwd, **env)


def loop(cwd: Path, agent: str, iterations: int, *words: str, **env: str) -> tuple[float, float]:
    limits = ["--max-iterations", str(iterations), "--max-attempts", "1000000", "--no-awake"]
    return ralph(cwd, "run", "--agent", agent, *limits, *words, **env)


def medians(rounds: int, *jobs: Callable[[], float]) -> list[float]:
    """The median of what each job gives, in seconds; they take turns."""
    found = [[job() for job in jobs] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*found, strict=True)]


def timed(job: Callable[[], object]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def plan(cwd: Path, tasks: int, check: str = "") -> None:
    """Write prd.json with new tasks, 250 bytes each; if no other, their check is that a file is there."""
    name, words = f"{time.monotonic_ns():x}", "What is to be done, and why, in some words. " * 2
    entries = [
        {
            "id": f"{name}-{i}", "title": f"task {i}", "description": words, "priority": i, "passes": False,
            "checks": [[check] if check else ["test", "-e", f"{name}-{i}"]],
        }
        for i in range(tasks)
    ]  # fmt: skip
    (cwd / "prd.json").write_text(json.dumps({"project": "p", "userStories": entries}, indent=1))


def repository(cwd: Path, files: int = 1) -> Path:
    """A new git repository in `cwd`, with so many files."""
    for i in range(files):
        (cwd / f"d{i // 100}").mkdir(parents=True, exist_ok=True)
        (cwd / f"d{i // 100}" / f"f{i}").write_text(f"{i}\n")
    (cwd / ".gitignore").write_text(".ralph/\n")
    for words in ("init -q", "config user.email a@b.invalid", "config user.name A", "config gc.auto 0"):
        run(["git", *words.split()], cwd)
    run(["sh", "-c", "git add -A && git commit -qm start"], cwd)
    return cwd


def an_attempt(cwd: Path, agent: str, many: int, *words: str, **given: str) -> float:
    """Seconds of one attempt: what `many` take more in one run than one."""
    took = []
    for iterations in (1, 1 + many):
        plan(cwd, 40, **given)
        took.append(loop(cwd, agent, iterations, *words)[0])
    return (took[1] - took[0]) / many


# ---------------------------------------------------------------- the figures


def start(*words: str) -> Callable[[Path], Measured]:
    """A command against a Python that imports click, in a repository with a plan of 100 tasks."""

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


def attempt_in_folder(cwd: Path) -> Measured:
    many = scaled(30, 5)

    def floor() -> float:
        for i in range(many):
            subprocess.Popen(["sh", "-c", f": > {i}"], cwd=cwd).wait()
            subprocess.Popen(["test", "-e", str(i)], cwd=cwd).wait()
            with (cwd / "new").open("wb") as file:
                file.write(b"x" * 10_000)
                file.flush()
                os.fsync(file.fileno())
            (cwd / "new").replace(cwd / "state")
        return 0.0

    ours: Callable[[], float] = lambda: an_attempt(cwd, WORKS, many, "--no-git")  # noqa: E731
    found = medians(ROUNDS, lambda: timed(floor) / many, ours)
    return Measured(found[1] / found[0], *found)


def attempt_with_git(durable: bool) -> Callable[[Path], Measured]:
    """With the `durable` floor, what it commits outlives a power cut, as what ralph commits does."""

    def measure(cwd: Path) -> Measured:
        many, other = scaled(30, 5), repository(cwd / "floor")
        git, sync = ("git -c core.fsync=all", "sync -f .") if durable else ("git", ":")
        work = f": > $$-$i; env test -e $$-$i; {sync}; {git} add -A; {git} commit -qm $i"
        repository(cwd / "ours")
        floor = lambda: run(["sh", "-c", f"for i in $(seq {many}); do {work}; done"], other)[0] / many  # noqa: E731
        found = medians(ROUNDS, floor, lambda: an_attempt(cwd / "ours", WORKS, many))
        return Measured(found[1] / found[0], *found)

    return measure


def flood(agent: str) -> Callable[[Path], Measured]:
    """The speed at which an agent's output is read, against reading the same pipe."""

    def measure(cwd: Path) -> Measured:
        piece = events() if agent == "claude" else b"The quick brown fox jumps over it.\n" * 170
        with (cwd / "block").open("wb") as file:  # in pieces: a child is counted with its parent's memory
            for _ in range((32 << 20) // len(piece)):
                file.write(piece)
        (cwd / "end").write_text('{"type":"result","is_error":false,"result":"done"}\n')
        fake, memory = cwd / agent, []

        def ours(times: int) -> float:
            fake.write_text(f'#!/bin/sh\n: > "$RALPH_TASK_ID"\nexec cat {"block " * times} end\n')
            fake.chmod(0o755)
            plan(cwd, 1)
            path = f"{cwd}{os.pathsep}{ENV['PATH']}"
            took, most = loop(cwd, agent, 1, "--no-git", "--full-permissions", IS_SANDBOX="1", PATH=path)
            assert json.loads((cwd / "prd.json").read_text())["userStories"][0]["passes"]
            memory.append(most)
            return took

        def read() -> None:
            words = ["cat", *["block"] * times]
            with subprocess.Popen(words, cwd=cwd, stdout=subprocess.PIPE) as process:
                assert process.stdout
                while os.read(process.stdout.fileno(), 1 << 16):
                    pass

        times = scaled(32)
        floor, nothing, all_of_it = medians(3, lambda: timed(read), lambda: ours(0), lambda: ours(times))
        return Measured(floor / (all_of_it - nothing), floor, all_of_it - nothing, max(memory))

    return measure


def events() -> bytes:
    """Two lines as Claude Code prints them: words, then what a tool gave, 3 KB on average."""
    words, usage = "The quick brown fox jumps over it.\n", {"input_tokens": 9, "output_tokens": 1}
    said = {"id": "m", "content": [{"type": "text", "text": words * 15}], "usage": usage}
    given = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": words * 140}]}
    both = ({"type": "assistant", "message": said}, {"type": "user", "message": given})
    return "".join(json.dumps(event) + "\n" for event in both).encode()


def long_line(cwd: Path) -> Measured:
    """An event of 60 MB, which is more than ralph keeps of one, and the end of the agent after it."""
    end = '{"type":"result","is_error":false,"result":"done"}'
    script = f"""printf '{{"type":"assistant","x":"'; head -c 60000000 /dev/zero | tr '\\0' x; echo '"}}'; echo '{end}'"""
    (cwd / "claude").write_text(f'#!/bin/sh\n: > "$RALPH_TASK_ID"\n{script}\n')
    (cwd / "claude").chmod(0o755)
    plan(cwd, 1)
    path = f"{cwd}{os.pathsep}{ENV['PATH']}"
    took, memory = loop(cwd, "claude", 1, "--no-git", "--full-permissions", IS_SANDBOX="1", PATH=path)
    assert json.loads((cwd / "prd.json").read_text())["userStories"][0]["passes"]
    return Measured(ours=took, memory=memory)


def silence(terminal: bool) -> Callable[[Path], Measured]:
    """Processor time of ralph's two processes, in ms a minute, while its agent is silent (Linux)."""

    def measure(cwd: Path) -> Measured:
        plan(cwd, 1)
        ours, theirs = pty.openpty() if terminal else os.pipe()
        words = [str(Path(sys.executable).with_name("ralph")), "run", "--no-git", "--no-awake"]
        with subprocess.Popen([*words, "--agent", SLEEPS], cwd=cwd, env=ENV, stdout=theirs) as process:
            watched = [process.pid]
            time.sleep(3)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            watched += map(int, children)
            before, started = spent_by(watched), time.monotonic()
            while time.monotonic() - started < scaled(60, 5):
                if select.select([ours], [], [], 1.0)[0]:
                    os.read(ours, 4096)
            used, seconds = spent_by(watched) - before, time.monotonic() - started
            process.terminate()
        os.close(ours)
        os.close(theirs)
        return Measured(used * 60 / seconds / 1e6)

    return measure


def spent_by(pids: list[int]) -> int:
    """Nanoseconds that processes have used so far."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids)


def long_list(check: str) -> Callable[[Path], Measured]:
    """One attempt that passes, or with a `check` that stays red, does not; in a list of 10,000 tasks."""

    def measure(cwd: Path) -> Measured:
        plan(cwd, scaled(10_000), check)
        source, many = (cwd / "prd.json").read_text(), 3

        def ours() -> float:
            took = [loop(cwd, WORKS, n, "--no-git")[0] for n in (1, 1 + many)]
            return (took[1] - took[0]) / many

        found = medians(3, lambda: timed(lambda: json.dumps(json.loads(source))), ours)
        return Measured(found[1] / found[0], *found)

    return measure


def records(cwd: Path, count: int) -> None:
    """A plan with one task done, and the records of its two halves repeated in progress.txt."""
    plan(cwd, 40)
    loop(cwd, WORKS, 1, "--no-git")
    first, *blocks = (cwd / "progress.txt").read_text().split("\n## ")
    begun, pair, ended = blocks[0], "\n## ".join(blocks[1:3]), blocks[3]
    (cwd / "progress.txt").write_text("\n## ".join([first, begun, *[pair] * (count // 2), ended]))


def long_notes(growth: bool) -> Callable[[Path], Measured]:
    """What 10,000 records add to a start, or to an attempt."""

    def measure(cwd: Path) -> Measured:
        folders, many = (cwd / "long", cwd / "short"), scaled(30, 3)
        for folder, count in zip(folders, (scaled(10_000), 2), strict=True):
            folder.mkdir()
            records(folder, count)
            shutil.copy(folder / "progress.txt", folder / "kept")
            shutil.copy(folder / "prd.json", folder / "kept.json")

        def took(folder: Path, iterations: int) -> float:
            shutil.copy(folder / "kept", folder / "progress.txt")
            shutil.copy(folder / "kept.json", folder / "prd.json")
            for made in folder.glob("*-*"):  # else its check is green before the work
                made.unlink()
            return loop(folder, WORKS, iterations, "--no-git")[0]

        def read() -> float:
            with (folders[0] / "kept").open(encoding="utf-8") as file:
                return timed(lambda: sum(1 for _ in file))

        first, more = (
            [lambda f=f: took(f, 1) for f in folders],
            [lambda f=f: took(f, 1 + many) for f in folders],
        )
        floor, long, short, long_more, short_more = medians(ROUNDS, read, *first, *more)
        if growth:
            one = (long_more - long) / many, (short_more - short) / many
            return Measured(one[0] / one[1], one[1], one[0])
        return Measured((long - short) / floor, floor, long - short)

    return measure


def many_files(cwd: Path) -> Measured:
    big, small = repository(cwd / "big", scaled(50_000)), repository(cwd / "small")
    status = lambda: run(["git", "status", "--porcelain"], big)[0]  # noqa: E731
    jobs = [lambda folder=folder: an_attempt(folder, WORKS, scaled(5)) for folder in (big, small)]
    floor, ours, without = medians(3, status, *jobs)
    return Measured((ours - without) / floor, floor, ours - without)


def long_run(cwd: Path) -> Measured:
    """An attempt of a run of 1,000 against one of a run of 100, none of which passes; and the memory."""
    used: dict[int, float] = {}

    def took(iterations: int) -> float:
        folder = Path(tempfile.mkdtemp(dir=cwd))
        plan(folder, 40, "false")
        seconds, used[iterations] = loop(folder, "true", iterations, "--no-git")
        return seconds

    few, many = scaled(100, 5), scaled(1000, 50)
    once, short, long = took(1), took(few), took(many)
    floor, ours = (short - once) / (few - 1), (long - once) / (many - 1)
    return Measured(ours / floor, floor, ours, max(used[many] - used[few], 0.0))


CLICK, PIPE, JSON = "python -c 'import click'", "the same pipe in 64 KiB blocks", "json.loads, json.dumps"
# fmt: off
FIGURES = (
    Figure("help", "ralph --help", CLICK, 1.3, start("--help")),
    Figure("version", "ralph --version", CLICK, 1.3, start("--version")),
    Figure("status", "ralph status, 100 tasks", CLICK, 2.0, start("status")),
    Figure("folder", "an attempt that passes, --no-git", "its two processes, 10 KB replaced", 3.0, attempt_in_folder),
    Figure("git", "an attempt that passes, with git", "its two processes, add, commit", 2.0, attempt_with_git(False)),
    Figure("durable", "the same", "the same with core.fsync=all, sync", float("inf"), attempt_with_git(True)),
    Figure("plain", "1 GB of plain output: speed", PIPE, 0.5, flood("talker"), speed=True, memory=60),
    Figure("stream", "1 GB of stream-json: speed", PIPE, 0.25, flood("claude"), speed=True, memory=60),
    Figure("line", "a line of 60 MB of stream-json", "", float("inf"), long_line, memory=200),
    Figure("silence", "processor time in a silent minute", "", 10, silence(False), "ms"),
    Figure("live", "the same with the live view", "", 1000, silence(True), "ms"),
    Figure("tasks", "an attempt that passes, 10,000 tasks", JSON, 4.0, long_list("")),
    Figure("failing", "an attempt that fails, 10,000 tasks", JSON, 4.0, long_list("false")),
    Figure("notes", "a start: what 10,000 records add", "reading them line by line", 5.0, long_notes(False)),
    Figure("growth", "an attempt after 10,000 records", "after two", 1.15, long_notes(True)),
    Figure("files", "an attempt: what 50,000 files add", "git status", 6.0, many_files),
    Figure("long", "an attempt in a run of 1,000", "in a run of 100", 1.15, long_run, memory=1),
)
# fmt: on


# ---------------------------------------------------------------- the table


HEAD = "| figure | floor | floor took | ralph took | ratio | goal | met | load |\n|---|---|---:|---:|---:|---|---|---:|"


def measured(key: str) -> Measured:
    figure = next(figure for figure in FIGURES if figure.key == key)
    with tempfile.TemporaryDirectory(prefix="ralph-bench-", ignore_cleanup_errors=True) as folder:
        return figure.measure(Path(folder))


def row(figure: Figure) -> str:
    with multiprocessing.get_context("fork").Pool(1) as fresh:  # so that no figure weighs on the next
        found = fresh.apply(measured, (figure.key,))
    goal, value = [], []
    if figure.goal < float("inf"):
        goal.append(f"at {'least' if figure.speed else 'most'} {figure.goal:g} {figure.unit}")
    if figure.goal < float("inf") or found.floor:
        value.append(f"{found.value:.2f} {figure.unit}")
    if figure.memory < float("inf"):
        goal.append(f"{figure.memory:g} MB")
        value.append(f"{found.memory:.1f} MB")
    took = [f"{seconds * 1000:.1f} ms" if seconds else "" for seconds in (found.floor, found.ours)]
    end = [("yes" if figure.met(found) else "no") if goal else "", f"{os.getloadavg()[0]:.1f}"]
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
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(f.key for f in FIGURES))
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there, too")
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
