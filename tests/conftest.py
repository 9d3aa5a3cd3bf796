"""What the tests share: a real repository, a scripted agent, and ralph as a real
process."""

from __future__ import annotations

import ast
import contextlib
import copy
import gc
import importlib
import json
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, NamedTuple, TypeVar

import filelock
import psutil
import pytest

import ralph
from _ralph import codec, files, text
from _ralph.agents import prompt
from _ralph.checks.results import Known
from _ralph.loop.work import Ended
from _ralph.state import prd, records
from _ralph.state.settings import DEFAULT_COMMIT

ROOT = Path(__file__).resolve().parent.parent
MARK = "RALPH_TEST_MARK"
WHOLE = os.environ.get("CRASH_STEP") == "1"
"""Whether sweeps are taken whole, as `make test-crash` does."""
Case = TypeVar("Case")

# What every scripted agent begins with. To import pathlib or subprocess takes longer
# than all else that most of them do, so P is a path that does without, and modules are
# imported when they are used.
AGENT_HEAD = """\
import os, sys, time
class later:
    def __init__(self, module): self.module = module
    def __getattr__(self, name): return getattr(__import__(self.module), name)
class P:
    def __init__(self, *parts): self.path = os.path.join(*parts)
    def __fspath__(self): return self.path
    __str__ = __fspath__
    def __truediv__(self, name): return P(self, name)
    def __getattr__(self, name): return getattr(pathlib.Path(self), name)
    def cwd(): return P(os.getcwd())
    def exists(self): return os.path.exists(self)
    def open(self, *given, **named): return open(self, *given, **named)
    def read_text(self, **named):
        with open(self, **named) as file: return file.read()
    def write_text(self, words, **named):
        with open(self, "w", **named) as file: return file.write(words)
    def touch(self):
        try: os.utime(self)
        except OSError: os.close(os.open(self, os.O_CREAT | os.O_WRONLY, 0o666))
    def unlink(self, missing_ok=False):
        try: os.unlink(self)
        except FileNotFoundError:
            if not missing_ok: raise
class sh:
    def __init__(self, command): self.returncode = os.spawnl(os.P_WAIT, "/bin/sh", "sh", "-c", command)
json, pathlib, signal, subprocess = map(later, ("json", "pathlib", "signal", "subprocess"))
OUT = P(os.path.dirname(__file__))
prompt = sys.stdin.read()
task, attempt = os.environ["RALPH_TASK_ID"], int(os.environ["RALPH_ATTEMPT"])
def said(label, words): P(os.environ["RALPH_HANDOFF"]).open("a").write(f"{label}: {words}\\n")
"""


def captured(
    argv: Sequence[str | Path],
    folder: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """A program, and what it printed; it has nothing to read."""
    return subprocess.run(
        argv, cwd=folder, env=env, timeout=timeout, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )  # fmt: skip


class Ran(NamedTuple):
    """What a run of ralph said: its summary, and what was printed beside it."""

    summary: dict[str, Any]
    printed: str


class Repo:
    """A git repository with a plan and an agent, all in one folder of their own."""

    template: ClassVar[
        Path
    ]  # one commit on main; a copy costs a tenth of what git takes to make it

    def __init__(
        self, folder: Path, git: bool = True, like: Path | None = None
    ) -> None:
        self.path = folder / "repo"
        if git:
            shutil.copytree(like or Repo.template, self.path, symlinks=True)
        else:  # a plain folder, which becomes a repository yet
            self.path.mkdir(parents=True)
            self.write("a.txt", "a\n")
        self.outside = folder
        self.awake = False
        self.mark = f"{folder.name}-{os.getpid()}-{time.time_ns()}"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "no-home"),
            "LC_ALL": "C",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(folder / "state"),
            MARK: self.mark,
        }

    def copy(self, folder: Path) -> Repo:
        return Repo(folder, like=self.path)

    def keep(self) -> None:
        """Note how everything here stands, for `again`."""
        shutil.copytree(self.outside, f"{self.outside}-kept", symlinks=True)

    def again(self) -> Repo:
        """The same, as it stood at `keep`: what took a run to make takes each test a
        copy. The path is the same, too: it is part of what ralph notes."""
        files.clear(self.outside)
        shutil.copytree(f"{self.outside}-kept", self.outside, symlinks=True)
        made = copy.copy(self)
        made.env = dict(self.env)
        return made

    def git(self, *words: str) -> str:
        done = captured(["git", *words], self.path, self.env)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def commit(self, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", message)

    def write(self, name: str, content: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return path

    def program(self, name: str, script: str) -> Path:
        """A script of the shell that can be run."""
        path = self.write(name, f"#!/bin/sh\n{script}\n").resolve()
        path.chmod(0o755)
        return path

    def tool(self, name: str, script: str) -> Path:
        """The same, the first of its name on PATH."""
        path = self.program(f"../bin/{name}", script)
        self.env["PATH"] = f"{path.parent}:{self.env['PATH']}"
        return path

    def read(self, name: str) -> str:
        return (self.path / name).read_text()

    def plan(self, *tasks: dict[str, Any] | str, **top: Any) -> None:
        """Write prd.json; every task gets an id, a title and `passes: false` if it has
        none. A text stands for a task with this check."""
        full = []
        for i, task in enumerate(tasks, 1):
            given = {"checks": [task]} if isinstance(task, str) else task
            full.append({"id": f"T{i}", "title": f"task {i}", "passes": False, **given})
        plan = {"project": "p", **top, "userStories": full}
        self.write("prd.json", json.dumps(plan, indent=2) + "\n")

    def agent(self, script: str, name: str = "agent") -> str:
        """A scripted agent: Python, with the attempt's names and the folder `outside`
        at hand; its command."""
        path = self.outside / f"{name}.py"
        path.write_text(AGENT_HEAD + textwrap.dedent(script))
        # without site-packages it starts in two thirds of the time
        return f"{sys.executable} -IS {path}"

    def words(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The words of a command; no run keeps this machine awake, but where that is
        what is tested."""
        if words[:1] == ("run",) and not self.awake:
            return ("run", "--no-awake", *words[1:])
        return words

    def ralph(
        self, *words: str, timeout: float = 60, first: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """`ralph` as a process of its own, forked from this one where that is safe: to
        start Python and to import everything costs more than a whole attempt. `first`
        is Python that it runs before."""
        if sys.platform != "linux":
            return self.ralph_anew(*words, timeout=timeout, first=first, **env)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            pid = os.fork()
            if pid == 0:
                become_ralph(
                    self.path,
                    {**self.env, **env},
                    self.words(words),
                    first,
                    (out.fileno(), err.fileno()),
                )
            ended = os.pidfd_open(pid)
            if not select.select([ended], [], [], timeout)[0]:
                os.kill(pid, signal.SIGKILL)
            os.close(ended)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            for stream in (out, err):
                stream.seek(0)
            return subprocess.CompletedProcess(
                words, code, out.read().decode(), err.read().decode()
            )

    def ralph_anew(
        self, *words: str, timeout: float = 60, first: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """The same as a person starts it, by a program of its own."""
        argv = [sys.executable, *_started(first), *self.words(words)]
        return captured(argv, self.path, {**self.env, **env}, timeout)

    def sh(self, script: str, **env: str) -> str:
        """What a person does in a shell at home, $PYTHON at hand; what it prints."""
        given = {"PYTHON": sys.executable, **self.env, **env}
        done = captured(["sh", "-ec", f"exec 2>&1\n{script}"], self.path, given)
        assert done.returncode == 0, (script, done.stdout)
        return done.stdout

    def start(self, *words: str, first: str = "") -> subprocess.Popen[str]:
        """ralph in the background, signals as a terminal would leave them; `first` as
        for `ralph`."""

        def begin() -> None:
            listen()
            if sys.platform == "linux":  # forked, as by `ralph`: no program is started
                # the pipe goes, too, on which Popen waits for that
                os.closerange(3, 1 << 16)
                become_ralph(self.path, self.env, self.words(words), first)

        argv = [sys.executable, *_started(first), *self.words(words)]
        return subprocess.Popen(
            argv, cwd=self.path, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, preexec_fn=begin,
        )  # fmt: skip

    def run(
        self, agent: str, *words: str, timeout: float = 60, first: str = ""
    ) -> tuple[int, dict[str, Any], str]:
        """`ralph run --json`: the exit status, the summary, and what was printed beside
        it."""
        done = self.ralph(
            "run", "--json", "--agent", agent, *words, timeout=timeout, first=first
        )
        summary = json.loads(done.stdout)
        assert summary["exit"] == done.returncode, done.stderr
        return done.returncode, summary, done.stderr

    def ends(self, wanted: str, agent: str, *words: str, **given: Any) -> Ran:
        """A run that ends so: its exit status and the tasks that have passed then, as
        in `4: T1 T3`."""
        code, summary, printed = self.run(agent, *words, **given)
        assert " ".join([f"{code}:", *self.passed()]) == wanted, printed
        return Ran(summary, printed)

    def judges(self, wanted: str, agent: str, *words: str, **given: Any) -> Ran:
        """The same with all verdicts, as in `0: T1 failed, T1 passed`."""
        code, summary, printed = self.run(agent, *words, **given)
        assert f"{code}: {', '.join(self.verdicts())}" == wanted, printed
        return Ran(summary, printed)

    def landed(self, name: str, branch: str = "ralph/p") -> str:
        """A file as it stands on ralph's branch; git's own error where it is not
        there."""
        return self.git("show", f"{branch}:{name}")

    def has_landed(self, name: str, branch: str = "ralph/p") -> bool:
        """Whether a file is part of ralph's branch."""
        return bool(self.git("ls-tree", "-r", "--name-only", branch, "--", name))

    def commits(self, branch: str = "ralph/p", since: str = "main") -> list[str]:
        """The subjects of what landed, newest first."""
        return self.git("log", "--format=%s", f"{since}..{branch}").splitlines()

    @property
    def places(self) -> Path:
        """Where agents and checks of this repository's plan work."""
        plan = os.fsencode(self.path.resolve() / "prd.json")
        return self.outside / f"state/ralph/repo-{files.digest(plan)[:8]}"

    @property
    def workspace(self) -> Path:
        return self.places / "work-1"

    @property
    def room(self) -> Path:
        """The clean room; after a final check it is another one."""
        rooms = sorted(self.places.glob("room-*"))
        return rooms[-1] if rooms else self.places / "room-1"

    def passed(self) -> list[str]:
        tasks = json.loads(self.read("prd.json"))["userStories"]
        return [task["id"] for task in tasks if task["passes"]]

    def records(self, event: str = "") -> list[dict[str, Any]]:
        from _ralph.state.records import parse

        found = parse((self.path / "progress.txt").read_bytes().split(b"\n"))
        return [record for record in found if event in ("", record["event"])]

    def verdicts(self) -> list[str]:
        found = self.records("verdict")
        return [f"{record['task']} {record['verdict']}" for record in found]

    def alive(self) -> list[psutil.Process]:
        """Every process that was started from here, however far it went, and any that
        stands here."""
        found = []
        for process in self.candidates():
            with contextlib.suppress(psutil.Error, OSError):
                here = process.cwd().startswith(str(self.outside))
                ours = process.environ().get(MARK) == self.mark or here
                if process.pid == os.getpid() or not ours:
                    continue
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def kill(self) -> None:
        """`kill -9` of all that is alive. All are held before, so that none notices how
        another one ends."""
        doomed = self.alive()
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in doomed:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def candidates(self) -> Iterator[psutil.Process]:
        """The processes that can be of this test; on Linux few are, and to ask the
        kernel takes a tenth of what psutil takes for each."""
        mark, outside = os.fsencode(f"{MARK}={self.mark}"), str(self.outside)
        for pid in psutil.pids():
            with contextlib.suppress(psutil.Error, OSError):
                if sys.platform == "linux":
                    environ = Path(f"/proc/{pid}/environ").read_bytes()
                    here = os.readlink(f"/proc/{pid}/cwd").startswith(outside)
                    if mark not in environ and not here:
                        continue
                yield psutil.Process(pid)

    def wait_for(self, name: str, timeout: float = 20) -> None:
        end = time.monotonic() + timeout
        while not (self.path / name).exists():
            assert time.monotonic() < end, f"{name} did not appear"
            time.sleep(0.02)

    def gone_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True


def sample(cases: Iterable[Case], of: int) -> list[Case]:
    """Every `of`-th case of a sweep; `make test-crash` takes them all."""
    return list(cases)[:: 1 if WHOLE else of]


def cases(table: str, *, of: int = 1) -> pytest.MarkDecorator:
    """Cases of a test, a line each (every `of`-th), below a line of its parameters.
    Cells are two blanks apart, and `\\n` in one is a new line; or they are parted as
    the parameters are, by ` -> ` or ` | `, and stand as they are. `-` is an empty one,
    as is what a line lacks."""
    names, *lines = filter(None, map(str.strip, table.splitlines()))
    parts, gap = {*re.findall(r" (->|\|) ", names)}, r"\s{2,}"
    if parts:
        gap = rf"\s*(?<!\S)(?:{'|'.join(map(re.escape, parts))})(?!\S)\s*"
    parameters = re.split(gap, names)
    rows = []
    for line in sample(lines, of):
        cells = re.split(gap, line)
        if not parts:
            cells = [cell.replace(r"\n", "\n") for cell in cells]
        cells += [""] * (len(parameters) - len(cells))
        rows.append(["" if cell == "-" else cell for cell in cells])
    return pytest.mark.parametrize(parameters, rows)


def rows(table: str) -> dict[str, list[str]]:
    """A table of any words by its first cells: what stands between ` :: `."""
    lines = (line.split(" :: ") for line in table.split("\n") if line)
    return {name: cells for name, *cells in lines}


def _started(first: str) -> list[str]:
    return ["-c", f"{first}\nimport ralph; ralph.main()"] if first else ["-m", "ralph"]


def is_ralph(process: psutil.Process) -> bool:
    """Whether it is a `ralph run` that `Repo.start` began, or was forked by one."""
    words = process.cmdline()
    return words[1:4] == ["-m", "ralph", "run"] or words == psutil.Process().cmdline()


# One second, and not five, for what is deaf to TERM.
LITTLE_GRACE = "from _ralph.process import process; process.GRACE = 1.0"


def listen() -> None:
    """Heed signals as a program that a terminal starts, also where the tests run under
    nohup."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def become_ralph(
    folder: Path,
    env: dict[str, str],
    words: tuple[str, ...],
    first: str,
    out: tuple[int, ...] = (),
) -> None:
    """Be in this forked process what `python -m ralph` would be, with `out` for stdout
    and stderr if its streams do not stand yet; never returns."""
    code = 1
    try:
        gc.disable()  # it does not live long
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        if out:
            streams = (os.open(os.devnull, os.O_RDONLY), *out)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
        sys.stdin = os.fdopen(0)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape")
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace")
        sys.argv = [str(ROOT / "ralph.py"), *words]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        text._secrets.cache_clear()
        exec(first, {})
        ralph.main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def pytest_configure(config: pytest.Config) -> None:
    """Put what tests make into memory, if there is room: a sync waits for all that
    others write to the disk. `make test-crash` uses the disk; so do tests of real
    programs, whose own sandboxes have another /dev."""
    python = shutil.which("python3")
    if python and Path(python).read_bytes()[:2] == b"#!":
        # A version manager's script starts thirty processes where one is meant.
        os.environ["PATH"] = f"{sys.base_prefix}/bin:{os.environ['PATH']}"
    if not shutil.which("setsid"):
        os.environ["PATH"] += f":{ROOT}/tests/darwin/bin"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # 256 on macOS
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 1024)), hard))
    real = str(config.getoption("markexpr")) in ("agents", "gate", "slurm")
    memory = Path("/dev/shm")
    if memory.is_dir() and not (WHOLE or real):
        there = os.statvfs(memory)
        free = there.f_bavail * there.f_frsize
        if free > 4 << 30 and not there.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


@pytest.fixture(scope="session", autouse=True)
def imported() -> None:
    """What a forked ralph need not import again."""
    for path in (ROOT / "_ralph").rglob("[a-z]*.py"):
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for library in ("filelock", "jinja2", "jsonschema", "pathspec"):
        importlib.import_module(library)
    for name in ("judge.md", "plan.md", "prompt.md", "notes.md", "last.md"):
        prompt._compiled((ROOT / "templates" / name).read_text("utf-8"))
    prompt.compile_prompt(ROOT / "templates/prompt.md")
    prompt.render_message(
        DEFAULT_COMMIT, {"task": {"id": "T1", "title": "t"}}, "prd.json: commit"
    )
    plan = '{"project": "p", "userStories": [{"id": "T1", "title": "t"}]}'
    prd.validate(prd.read(plan, Path("prd.json")))
    filelock.FileLock(os.devnull)  # looks at its own parameters once
    psutil.Process()
    for kind in (*records.KINDS.values(), Known, Ended):
        with contextlib.suppress(ValueError):
            codec.from_json(kind, {})
    gc.freeze()  # nothing of it goes before the end


@pytest.fixture(scope="session", autouse=True)
def template(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = Repo(tmp_path_factory.mktemp("template"), git=False)
    made.git("init", "-q", "-b", "main", "--template=")
    made.git("config", "user.email", "test@example.invalid")
    made.git("config", "user.name", "Test")
    made.commit("start")
    (made.path / ".git/hooks").mkdir()
    Repo.template = made.path


NOTES_PATTERNS = """
import re._compiler as compiler
def compile(pattern, flags=0, real=compiler.compile):
    with open("../patterns", "a") as noted:
        print((pattern, int(flags)), file=noted)
    return real(pattern, flags)
compiler.compile = compile
"""


@pytest.fixture(scope="session")
def rehearsed(template: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a run compiles as it goes, a forked one need not: it takes a tenth of it."""
    made = Repo(tmp_path_factory.mktemp("rehearsal"))
    made.plan("grep -q good T1")
    made.write("../patterns", "")
    made.run(made.agent("P('T1').write_text('good')"), first=NOTES_PATTERNS)
    vars(re)["_MAXCACHE"] = 1 << 14  # else those of the tests take the place of these
    for line in made.read("../patterns").splitlines():
        re.compile(*ast.literal_eval(line))


@pytest.fixture
def repo(tmp_path: Path, rehearsed: None) -> Iterator[Repo]:
    made = Repo(tmp_path)
    yield made
    made.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Repo:
    """A plain folder, which is no repository yet."""
    return Repo(tmp_path, git=False)


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Adds to the counts that stand at the end of a test run."""
    return lambda what, number: request.node.user_properties.append(
        (f"count {what}", number)
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for what, number in getattr(report, "user_properties", []):
                if what.startswith("count ") and report.when == "teardown":
                    counts[what[6:]] += number
    if counts:
        terminalreporter.write_sep("=", "what was tried")
        for what, number in counts.items():
            terminalreporter.write_line(f"{number:7} {what}")


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


class Hangs(AssertionError):
    """No OSError, which the code under test may catch."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """A failure instead of a test that hangs, on a FIFO for instance."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise Hangs(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    outer, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, outer)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def nothing_hangs() -> Iterator[None]:
    with within(120):
        yield


@pytest.fixture
def own_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Places of ralph in this process are the test's own."""
    monkeypatch.setenv("RALPH_PLACES", str(tmp_path / "places"))


@pytest.fixture
def no_settings_of_this_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """git in this process reads no one's settings; it would replace /dev/null where a
    test sets one."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
