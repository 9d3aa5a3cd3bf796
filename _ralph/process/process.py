"""Processes: run one with deadlines, heed signals meanwhile, end everything that it
started."""

from __future__ import annotations

import contextlib
import errno
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
from _ralph.process import mark
from _ralph.process.mark import Kin
from _ralph.process.transcript import Transcript

GRACE = 5.0
"""Seconds between TERM and KILL for what an attempt leaves behind."""
_KILL_DEADLINE = 10.0
_CHUNK = _TAIL = 1 << 16
_LONGEST_LINE = 32 << 20  # the longest seen from a real agent had 20 MB

LineHandler = Callable[[bytes], str | None]
"""Gets each complete line of stdout; returns `stop` to end the process, `quiet` if the
line is no sign of life, else None."""


class Control:
    """The signals that this process got, which every wait heeds."""

    def __init__(self, alive: int | None = None) -> None:
        self.interrupts = 0  # how often SIGINT came
        self.stop_signal: int | None = None  # the one that says to stop now
        self.finishing = False  # SIGUSR1 came: begin nothing new
        self.orphaned = False  # the supervisor is gone: end everything, write nothing
        self.on_interrupt: Callable[[], object] | None = (
            None  # called after the first SIGINT
        )
        self.on_tick: Callable[[], float] | None = (
            None  # called during a wait: in how many seconds again
        )
        self._asked = False
        self._due = 0.0
        self._alive = alive
        self._wake: int | None = None

    def install(self) -> None:
        """Handle signals: the handlers only set flags and wake what waits."""
        self._wake, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        ignored = signal.getsignal(signal.SIGHUP) in (
            signal.SIG_IGN,
            _ignore,
        )  # nohup, here or in the loop
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._note)
        # A handler and not SIG_IGN: handlers are reset in children, an ignored signal
        # is not.
        for number in (signal.SIGCHLD, *((signal.SIGHUP,) if ignored else ())):
            signal.signal(number, _ignore)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.interrupts += number == signal.SIGINT
        if number == signal.SIGUSR1:
            self.finishing = True
            return
        if number != signal.SIGINT or self.interrupts > 1 or self.on_interrupt is None:
            self.stop_signal = self.stop_signal or number

    @property
    def stop_now(self) -> bool:
        return self.stop_signal is not None or self.orphaned

    def wait(self, seconds: float, fds: Iterable[int] = ()) -> list[int]:
        """Wait until one of `fds` can be read, a child ends or a signal comes, at most
        `seconds`; those of `fds` that can be read."""
        if self.on_tick is not None:
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + self.on_tick()
            seconds = min(seconds, max(self._due - time.monotonic(), 0.0))
        own = [fd for fd in (self._wake, self._alive) if fd is not None]
        ready = select.select([*own, *fds], [], [], seconds)[0]
        if self._wake is not None and self._wake in ready:
            os.read(self._wake, 512)
        if self._alive in ready:  # nothing is ever written to it
            self.orphaned = True
        if (
            self.interrupts and self.on_interrupt and not self._asked
        ):  # here: a handler may do nothing
            self._asked = True
            self.on_interrupt()
        return [fd for fd in ready if fd not in own]

    def sleep(
        self, until: float, interrupted: Callable[[], bool], step: float = 5.0
    ) -> None:
        """Wait for wall-clock time `until` (unix seconds), or until `interrupted()`,
        which is asked each `step` seconds. A clock that is set back makes the wait no
        longer."""
        end = time.monotonic() + until - time.time()
        while (
            not interrupted()
            and (left := min(until - time.time(), end - time.monotonic())) > 0
        ):
            self.wait(min(left, step))


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """A handler that does nothing."""


@dataclass
class ProcessResult:
    """How a process ended."""

    exit: int | None = None
    seconds: float = 0.0
    # or deadline, idle, stop (the line handler), interrupted, missing (never started)
    ended: str = "itself"
    tail: str = ""  # the end of its output, or why it was not started
    survivors: list[int] = field(default_factory=list)  # what not even KILL ended


def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    control: Control,
    stdin: bytes = b"",
    idle: Callable[[], float | None] = lambda: None,
    out: Path | None = None,
    err: Path | None = None,
    on_line: LineHandler | None = None,
    by_line: bool = True,
    cap: int = 16 << 20,
    spare: frozenset[int] = frozenset(),
) -> ProcessResult:
    """Run `argv` in a session of its own, and end all that it started, however it ends.

    stdout goes to the transcript `out`, stderr to `err` (without `err` both share one
    pipe, in order), each capped at `cap` bytes on disk. `timeout` is in seconds, as is
    the silence that `idle` allows by then. Without `by_line`, `on_line` gets stdout in
    pieces as they come, which is cheap. Memory is constant but for one line at a time.
    `spare` are children of ours that are not ended. Never raises for what the process
    does.
    """
    started, own = time.monotonic(), uuid.uuid4().hex
    with (
        Transcript(out, cap) as out_log,
        Transcript(err, cap) as err_log,
        buffer(stdin) as given,
    ):
        try:
            child = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**env, "PWD": str(cwd)}
                | ({} if mark.ADOPTS else {mark.START: own}),
                stdin=given if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if err else subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=None
                if mark.ADOPTS
                else partial(mark.note, os.getpid(), own),
            )
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in SHORTAGES:
                raise  # the system's fault, not the command's
            return ProcessResult(exit=127, ended="missing", tail=str(error))
        pipes = [
            (pipe, log)
            for pipe, log in ((child.stdout, out_log), (child.stderr, err_log))
            if pipe
        ]
        for pipe, _ in pipes:
            os.set_blocking(pipe.fileno(), False)
        logs = {pipe.fileno(): log for pipe, log in pipes}
        kin = mark.kin_of(child.pid, own)
        pump = _Pump(child, logs, on_line, by_line and on_line is not None, kin)
        ended = pump.run(control, started + timeout, idle)
        survivors = sweep(0.0 if control.orphaned else GRACE, child, kin, spare)
        pump.drain()
    said = pump.tail[-_TAIL:].decode("utf-8", "replace")
    return ProcessResult(
        child.returncode, time.monotonic() - started, ended, said, survivors
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
    with contextlib.suppress(
        OSError, AttributeError
    ):  # not on macOS, nor in every sandbox
        return os.fdopen(os.memfd_create("buffer"), "w+b")
    import tempfile

    try:
        return tempfile.TemporaryFile()
    except FileNotFoundError:  # what tempfile says where it can write nowhere
        raise OSError(
            errno.ENOSPC, "the disk is full, or `ulimit -f` is too low", "/tmp"
        ) from None


def reap(pid: int, seconds: float) -> int | None:
    """The wait status of our child `pid`, 0 if it was reaped before; None if it runs on
    after `seconds`."""
    began = time.monotonic()
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0):
            if (left := began + seconds - time.monotonic()) <= 0:
                return None
            await_end(pid, left)
        return ended[1]
    return 0


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
    of its lines."""

    child: subprocess.Popen[bytes]
    logs: dict[int, Transcript]
    on_line: LineHandler | None
    by_line: bool
    kin: Kin | None
    tail: bytearray = field(default_factory=bytearray)
    line: bytearray = field(default_factory=bytearray)
    skipping: bool = False
    stop: bool = False
    active: float = field(default_factory=time.monotonic)

    def run(
        self, control: Control, deadline: float, idle: Callable[[], float | None]
    ) -> str:
        """Run until the child exits or must end; the word for `ProcessResult.ended`."""
        began = time.monotonic()
        while not self._has_ended():
            now = time.monotonic()
            silence = idle()
            limit = (
                deadline if silence is None else min(deadline, self.active + silence)
            )
            if control.stop_now:
                return "interrupted"
            if self.stop:
                return "stop"
            if now >= limit:
                return "deadline" if now >= deadline else "idle"
            soon = (
                60.0 if self.logs else 0.05
            )  # most end right after they have closed their output
            # what leaves its parents was seen before; what runs long is looked at
            # rarely
            if self.kin:
                self.kin.watch()
                soon = min(soon, 1.0, 0.1 + (now - began) / 10)
            for fd in control.wait(min(limit - now, soon), self.logs):
                self._read(fd)
        return "itself"

    def _has_ended(self) -> bool:
        """Whether the child has ended. Orphans are reaped, too, or a night of them
        would fill the process table."""
        _reap(self.child)
        return self.child.returncode is not None

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
        self.tail += chunk
        if len(self.tail) > 2 * _TAIL:
            del self.tail[:-_TAIL]
        if self.child.stdout is not None and fd == self.child.stdout.fileno():
            (self._split if self.by_line else self._hand_over)(chunk)
        return True

    def _split(self, chunk: bytes) -> None:
        """Hand over complete lines; one over the limit is dropped."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole = bytes(self.line) + line if self.line else line
            self.line.clear()
            if not self.skipping:
                self._hand_over(whole)
            self.skipping = False
        if not self.skipping:
            self.line += rest
        if len(self.line) > _LONGEST_LINE:
            self.line.clear()
            self.skipping = True

    def _hand_over(self, line: bytes) -> None:
        answer = self.on_line(line) if self.on_line else None
        self.stop = self.stop or answer == "stop"
        if answer != "quiet":
            self.active = time.monotonic()


def sweep(
    grace: float,
    child: subprocess.Popen[bytes] | None = None,
    kin: Kin | None = None,
    spare: frozenset[int] = frozenset(),
) -> list[int]:
    """End `kin` or, where this process adopts orphans, every descendant: TERM, `grace`
    seconds, then KILL until none is left.

    `spare` are children that stay, with their own. Returns the pids that survive (in an
    uninterruptible wait). Where orphans are adopted, having no child means that nothing
    is left.
    """
    started = time.monotonic()
    signalled: set[int] = set()
    while _reap(child) or kin:
        left, spent = (
            kin.left() if kin else _descendants(spare),
            time.monotonic() - started,
        )
        if not left and (kin or spare):
            break
        if spent > grace + _KILL_DEADLINE:
            return sorted(left)
        kill = spent >= grace
        for pid in left if kill else left - signalled:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
        if kill and kin:
            kin.kill_groups()
        signalled |= left
        time.sleep(0.01)
    if kin:
        _reap(child)
        kin.forget()
    return []


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


def _descendants(spare: frozenset[int] = frozenset()) -> set[int]:
    """The descendants of this process, without the children `spare` and theirs. All
    processes are looked at once: those of an attempt can be hundreds, which fork
    meanwhile."""
    import psutil

    below: dict[int, set[int]] = {}
    for process in psutil.process_iter(["ppid"]):
        below.setdefault(process.info["ppid"], set()).add(process.pid)
    all_below, new = set[int](), {os.getpid()}
    while (
        new := set[int]().union(*(below.get(pid, ()) for pid in new))
        - spare
        - all_below
    ):
        all_below |= new
    return all_below


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
