"""Processes: run one with deadlines, heed signals meanwhile, end everything that it
started."""

from __future__ import annotations

import contextlib
import enum
import os
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from _ralph.errors import SHORTAGES
from _ralph.process import leftovers
from _ralph.process.leftovers import Leftovers
from _ralph.process.transcript import Transcript

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""What says to finish or to stop."""
SPARED: set[int] = set()
"""Children that no sweep ends: the loops, and what keeps the machine awake."""
GRACE = 5.0
"""Seconds between TERM and KILL for what an attempt leaves behind."""
_KILL_DEADLINE = 10.0
_SOON = 10.0
"""Seconds that a program may take that is only asked something."""
_CHUNK = 1 << 18
"""Bytes that are read at once."""
_TAIL = 1 << 16
_LONGEST_LINE = 32 << 20  # the longest seen from a real agent had 20 MB

OutputHandler = Callable[[bytes], str | None]
"""Gets what a process prints; returns `stop` to end the process, `quiet` if that is no
sign of life, else None."""


class Control:
    """The signals that this process got, which every wait heeds."""

    def __init__(self, alive: int | None = None) -> None:
        self.interrupts = 0  # how often SIGINT came
        self.stop_signal: int | None = None  # the one that says to stop now
        self.finishing = False  # SIGUSR1 came: begin nothing new
        self.orphaned = False  # the supervisor is gone: end everything, write nothing
        self.patient = False  # the first SIGINT is no reason to stop now
        # Called once a second, during a wait
        self.on_tick: Callable[[], object] | None = None
        self._due = 0.0
        self._alive = alive
        self._wake: int | None = None

    def install(self) -> None:
        """Handle signals: the handlers only set flags and wake what waits."""
        self._wake, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        hangup = signal.getsignal(signal.SIGHUP)
        for number in SIGNALS:
            signal.signal(number, self._note)
        # A handler and not SIG_IGN: handlers are reset in children, an ignored signal
        # is not.
        signal.signal(signal.SIGCHLD, _ignore)
        if hangup in (signal.SIG_IGN, _ignore):  # nohup, here or in the loop
            signal.signal(signal.SIGHUP, _ignore)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self.finishing = True
            return
        if number == signal.SIGINT:
            self.interrupts += 1
            if self.interrupts == 1 and self.patient:
                return
        self.stop_signal = self.stop_signal or number

    @property
    def stop_now(self) -> bool:
        return self.stop_signal is not None or self.orphaned

    def wait(self, seconds: float, fds: Iterable[int] = ()) -> list[int]:
        """Wait until one of `fds` can be read, a child ends or a signal comes, at most
        `seconds`; those of `fds` that can be read."""
        if self.on_tick is not None:
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + 1.0
                self.on_tick()
            seconds = min(seconds, 1.0)
        if self._wake is None:  # nothing says that a child has ended
            seconds = min(seconds, 0.2)
        own = [fd for fd in (self._wake, self._alive) if fd is not None]
        ready = select.select([*own, *fds], [], [], seconds)[0]
        if self._wake is not None and self._wake in ready:
            os.read(self._wake, 512)
        if self._alive in ready:  # nothing is ever written to it
            self.orphaned = True
        return [fd for fd in ready if fd not in own]


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """A handler that does nothing."""


class Ended(enum.StrEnum):
    """How a process ended."""

    ITSELF = "itself"
    DEADLINE = "deadline"
    IDLE = "idle"
    STOPPED = "stop"  # by the handler of its output
    INTERRUPTED = "interrupted"
    MISSING = "missing"  # it never started


@dataclass(frozen=True)
class Command:
    """What to run, where, for how long (seconds), and where its output goes."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    timeout: float
    stdin: bytes = b""
    idle: Callable[[], float] = lambda: float("inf")
    """The silence that is allowed by then, in seconds."""
    out: Path | None = None
    err: Path | None = None
    """The transcript of stderr; without one, both share one pipe, in order."""
    cap: int = 16 << 20
    """The bytes of each transcript on disk."""


@dataclass
class ProcessResult:
    """How a process ended, and what is known of it."""

    exit: int | None = None
    seconds: float = 0.0
    ended: Ended = Ended.ITSELF
    tail: str = ""  # the end of its output, or why it was not started
    survivors: list[int] = field(default_factory=list)  # what not even KILL ended

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself, with status 0."""
        return self.ended is Ended.ITSELF and self.exit == 0


def run_process(
    command: Command,
    control: Control,
    on_output: OutputHandler | None = None,
) -> ProcessResult:
    """Run a command in a session of its own, and end all that it started, however it
    ends.

    `on_output` gets each complete line of stdout. Memory is constant but for one line
    at a time. Never raises for what the process does.
    """
    started = time.monotonic()
    with (
        Transcript(command.out, command.cap) as out_log,
        Transcript(command.err, command.cap) as err_log,
        buffer(command.stdin) as stdin,
    ):
        mark = uuid.uuid4().hex
        try:
            child = _start(command, mark, stdin if command.stdin else None)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in SHORTAGES:
                raise  # the system's fault, not the command's
            why = str(error)
            if isinstance(error, FileNotFoundError) and os.path.exists(command.argv[0]):
                why = f"what the first line of {command.argv[0]} names is not there"
            return ProcessResult(exit=127, ended=Ended.MISSING, tail=why)
        logs: dict[int, Transcript] = {}
        for pipe, log in ((child.stdout, out_log), (child.stderr, err_log)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                logs[pipe.fileno()] = log
        pump = _Pump(child, logs, on_output)
        ended = pump.run(control, started + command.timeout, command.idle)
        grace = 0.0 if control.orphaned else GRACE
        left = leftovers.left_by_process(child.pid, mark)
        survivors = sweep(grace, child, left)
        pump.drain()
    return ProcessResult(
        exit=child.returncode,
        seconds=time.monotonic() - started,
        ended=ended,
        tail=pump.tail[-_TAIL:].decode("utf-8", "replace"),
        survivors=survivors,
    )


def _start(
    command: Command, mark: str, stdin: BinaryIO | None
) -> subprocess.Popen[bytes]:
    env = {**command.env, "PWD": str(command.cwd)}
    before = None
    if not leftovers.ADOPTS:
        env[leftovers.START] = mark
        before = partial(leftovers.note, os.getpid(), mark)
    return subprocess.Popen(
        command.argv,
        cwd=command.cwd,
        env=env,
        stdin=stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if command.err else subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=before,
    )


@contextlib.contextmanager
def buffer(data: bytes = b"") -> Iterator[BinaryIO]:
    """A nameless file for what a process reads or prints, instead of a pipe that could
    block; in memory if possible, as a disk may be full."""
    with _nameless() as file:
        file.write(data)
        file.seek(0)
        yield file


def _nameless() -> BinaryIO:
    # There is no such file on macOS, nor in every sandbox
    with contextlib.suppress(OSError, AttributeError):
        return os.fdopen(os.memfd_create("buffer"), "w+b")
    import tempfile

    return tempfile.TemporaryFile()


def ask(words: Sequence[str], folder: Path, env: Mapping[str, str]) -> str:
    """What a short program prints; nothing if it fails to start or to end soon."""
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SOON,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return os.fsdecode(done.stdout)


def reap(pid: int, seconds: float) -> int | None:
    """The wait status of our child `pid`, 0 if it was reaped before; None if it runs on
    after `seconds`."""
    last = time.monotonic() + seconds
    while True:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        if ended:
            return status
        left = last - time.monotonic()
        if left <= 0:
            return None
        await_end(pid, left)


def await_end(pid: int, seconds: float) -> None:
    """Wait until our child `pid` has ended, at most `seconds`; or a moment, where that
    cannot be seen."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):  # not on macOS, nor in every container
        time.sleep(min(seconds, 0.002))
        return
    try:
        select.select([fd], [], [], seconds)
    finally:
        os.close(fd)


@dataclass
class _Pump:
    """Moves the output of a child to its transcripts, by descriptor, and to the handler
    of it."""

    child: subprocess.Popen[bytes]
    logs: dict[int, Transcript]
    on_output: OutputHandler | None
    tail: bytearray = field(default_factory=bytearray)
    line: bytearray = field(default_factory=bytearray)
    stop: bool = False
    active: float = field(default_factory=time.monotonic)

    def run(
        self, control: Control, deadline: float, idle: Callable[[], float]
    ) -> Ended:
        """Run until the child exits or must end."""
        while True:
            _reap(self.child)  # orphans too, or they would fill the process table
            if self.child.returncode is not None:
                return Ended.ITSELF
            if control.stop_now:
                return Ended.INTERRUPTED
            if self.stop:
                return Ended.STOPPED
            now = time.monotonic()
            if now >= deadline:
                return Ended.DEADLINE
            limit = min(deadline, self.active + idle())
            if now >= limit:
                return Ended.IDLE
            wait = min(limit - now, 60.0)
            if not self.logs:  # most end right after they have closed their output
                await_end(self.child.pid, min(wait, 0.05))
                wait = 0.0
            for fd in control.wait(wait, self.logs):
                self._read(fd)

    def drain(self) -> None:
        """Read what is left in the pipes after the last writer ended, and close
        them."""
        for fd in list(self.logs):
            while self._read(fd):
                pass
        if self.line:
            self._hand_over(bytes(self.line))
        for pipe in (self.child.stdout, self.child.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self, fd: int) -> bool:
        """Read once; whether there was something."""
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            del self.logs[fd]
            return False
        self.logs[fd].write(chunk)
        self.tail += chunk[-_TAIL:]
        if len(self.tail) > 2 * _TAIL:
            del self.tail[:-_TAIL]
        if self.child.stdout is not None and fd == self.child.stdout.fileno():
            if self.on_output:
                self._split(chunk)
            else:
                self.active = time.monotonic()
        return True

    def _split(self, chunk: bytes) -> None:
        """Hand over complete lines; the beginning of one over the limit is dropped."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._hand_over(bytes(self.line) + line)
            self.line.clear()
        self.line += rest
        if len(self.line) > _LONGEST_LINE:
            self.line.clear()

    def _hand_over(self, output: bytes) -> None:
        answer = self.on_output(output) if self.on_output else None
        if answer == "stop":
            self.stop = True
        if answer != "quiet":
            self.active = time.monotonic()


def sweep(
    grace: float,
    child: subprocess.Popen[bytes] | None = None,
    left: Leftovers | None = None,
) -> list[int]:
    """End what is `left` or, where this process adopts orphans, every descendant: TERM,
    `grace` seconds, then KILL until none is left.

    `SPARED` children stay, with their own. Returns the pids that survive (in an
    uninterruptible wait). Where orphans are adopted, having no child means that nothing
    is left.
    """
    started = time.monotonic()
    warned: set[int] = set()
    while _reap(child) or left:
        pids = left.left() if left else _descendants()
        if not pids and (left or SPARED):
            break
        spent = time.monotonic() - started
        if spent > grace + _KILL_DEADLINE:
            return sorted(pids)
        if spent >= grace:
            send(signal.SIGKILL, pids)
            if left:
                left.kill_groups()
        else:
            send(signal.SIGTERM, pids - warned)
            warned |= pids
        time.sleep(0.01)
    if left:
        _reap(child)
        left.forget()
    return []


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """Send processes a signal, as far as they are there: a script before what it waits
    for, or it would go on for a moment."""
    for pid in sorted(pids):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _reap(child: subprocess.Popen[bytes] | None) -> bool:
    """Reap ended children; whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if child is not None and pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)


def _descendants() -> set[int]:
    """The descendants of this process, without the children `SPARED` and theirs. All
    processes are looked at once: those of an attempt can be hundreds, which fork
    meanwhile."""
    import psutil

    below: dict[int, set[int]] = {}
    for process in psutil.process_iter(["ppid"]):
        below.setdefault(process.info["ppid"], set()).add(process.pid)
    found: set[int] = set()
    to_visit = [os.getpid()]
    while to_visit:
        children = below.get(to_visit.pop(), set()) - SPARED - found
        found |= children
        to_visit.extend(children)
    return found


def alive(pids: Iterable[int]) -> set[int]:
    """Those of `pids` that still run: one that nobody reaps does not."""
    if not pids:
        return set()
    import psutil

    found = set()
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.add(pid)
        except psutil.NoSuchProcess:
            continue
        except psutil.AccessDenied:  # somebody else's
            found.add(pid)
    return found
