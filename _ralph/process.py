"""Processes: run one with deadlines, end everything it started, survive each other's death."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import selectors
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from _ralph.ends import SHORTAGES

GRACE = 5.0
"""Seconds between TERM and KILL for what an attempt leaves behind."""
_KILL_DEADLINE = 10.0
_STOP_DEADLINE = 120
_CHUNK = 1 << 16
_LONGEST_LINE = 32 << 20  # the longest seen from a real agent had 20 MB
_PR_SET_CHILD_SUBREAPER = 36

TYPE_CHECKING = False
if TYPE_CHECKING:
    import psutil

LineHandler = Callable[[bytes], str | None]
"""Gets each complete line of stdout; answers `stop` to end the process, `quiet` if the line
is no sign of life, else None."""


class Control:
    """What was asked of this process from outside: read by every wait, set by signals.

    `interrupts` counts SIGINT, `stop_signal` is the signal that says stop now. `orphaned` means
    that the supervisor is gone: end everything and write nothing. `on_tick` is called about once
    a second while something is waited for.
    """

    def __init__(self, supervisor: int | None = None) -> None:
        self.interrupts = 0
        self.stop_signal: int | None = None
        self.orphaned = False
        self.on_interrupt: Callable[[], object] | None = None
        self.on_tick: Callable[[], object] | None = None
        self._ticked = 0.0
        self._supervisor = supervisor
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def install(self) -> None:
        """Let signals set flags and wake the selector; nothing else happens in a handler."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        hup_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, self._note)
        # A handler and not SIG_IGN: handlers are reset in children, an ignored signal is not.
        signal.signal(signal.SIGHUP, (lambda *_: None) if hup_ignored else self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self.interrupts += 1
        if number in (signal.SIGTERM, signal.SIGHUP) or self.interrupts > 1:
            self.stop_signal = self.stop_signal or number

    def stop_at_interrupt(self) -> None:
        """Let the first interrupt stop at once: there is no attempt that could be finished before."""

        def stop() -> None:
            self.stop_signal = self.stop_signal or signal.SIGINT

        self.on_interrupt = stop

    @property
    def stop_now(self) -> bool:
        return self.stop_signal is not None or self.orphaned

    def tick(self) -> float:
        """Call `on_tick` if its second is over; the longest that a wait may last now, in seconds."""
        if self.on_tick is None:
            return 60.0
        if time.monotonic() - self._ticked >= 1.0:
            self._ticked = time.monotonic()
            self.on_tick()
        return 1.0

    def check_supervisor(self) -> bool:
        """Whether the supervisor is gone, asked now."""
        if self._supervisor is not None and select.select([self._supervisor], [], [], 0)[0]:
            self.read(self._supervisor)
        return self.orphaned

    def files(self) -> list[int]:
        """File descriptors that become readable when something was asked."""
        return [self._wake_read] + ([] if self._supervisor is None else [self._supervisor])

    def read(self, fd: int) -> None:
        """Empty the pipe that woke a selector; the end of the supervisor's is its death."""
        with contextlib.suppress(BlockingIOError):
            if os.read(fd, 512) == b"" and fd == self._supervisor:
                self.orphaned = True
        if self.interrupts and self.on_interrupt:  # said here, for a handler may do nothing
            self.on_interrupt()
            self.on_interrupt = None

    def sleep(self, until: float, interrupted: Callable[[], bool]) -> None:
        """Wait for wall-clock time `until` (unix seconds), or until `interrupted()`; no longer than
        that is away now, for a clock can be set back."""
        end = time.monotonic() + until - time.time()
        with selectors.DefaultSelector() as selector:
            for fd in self.files():
                selector.register(fd, selectors.EVENT_READ)
            while not interrupted() and (left := min(until - time.time(), end - time.monotonic())) > 0:
                for key, _ in selector.select(min(left, 5.0, self.tick())):
                    self.read(key.fd)


@dataclass
class ProcessResult:
    """`ended` says who ended it: `itself`, `deadline`, `idle`, `stop` (the line handler),
    `interrupted` (ralph was told to stop) or `missing` (it could not be started).
    `tail` is the end of its output, `survivors` the processes that not even KILL ended."""

    exit: int | None = None
    seconds: float = 0.0
    ended: str = "itself"
    tail: str = ""
    error: str = ""
    survivors: list[int] = field(default_factory=list)


def run_process(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    control: Control,
    stdin: bytes = b"",
    idle: float | None = None,
    out: Path | None = None,
    err: Path | None = None,
    on_line: LineHandler | None = None,
    by_line: bool = True,
    cap: int = 16 << 20,
    tail: int = 1 << 16,
) -> ProcessResult:
    """Run `argv` in a session of its own and end all that it started, however it ends.

    stdout goes to the transcript `out`, stderr to `err` (without `err` both share one pipe, in
    order), each capped at `cap` bytes on disk. Deadlines `timeout` and `idle` are in seconds. Without
    `by_line`, `on_line` gets stdout in pieces as they come, which costs next to nothing.
    Memory is constant but for one line at a time. Never raises for what the process does.
    """
    started = time.monotonic()
    with _Transcript(out, cap) as out_log, _Transcript(err, cap) as err_log:
        try:
            child = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if err else subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in SHORTAGES:
                raise  # of the system's, and nothing that the command could help
            return ProcessResult(exit=127, ended="missing", error=str(error))
        pump = _Pump(child, stdin, control, on_line, by_line, tail)
        pump.attach(out_log, err_log)
        ended = pump.run(started + timeout, idle)
        survivors = sweep(0.0 if control.orphaned else GRACE, child, pump.strays)
        pump.drain()
    return ProcessResult(child.returncode, time.monotonic() - started, ended, pump.text(), "", survivors)


def sweep(
    grace: float, child: subprocess.Popen[bytes] | None = None, strays: Sequence[int] = ()
) -> list[int]:
    """End every descendant of this process: TERM, `grace` seconds, then KILL until none is left.

    Returns the pids that are still there after that (a process in an uninterruptible wait).
    On Linux, where this process is a subreaper, having no child means that nothing is left.
    """
    if not _reap(child) and not _alive(strays):
        return []
    started = time.monotonic()
    signalled: set[int] = set()
    while time.monotonic() - started < grace + _KILL_DEADLINE:
        left = _descendants() | _alive(strays)
        kill = time.monotonic() - started >= grace
        for pid in left if kill else left - signalled:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
        signalled |= left
        time.sleep(0.01)
        if not _reap(child) and not _alive(strays):
            return []
    return sorted(_descendants() | _alive(strays))


def mark_run(run_id: str) -> None:
    """Let this process, and so all that it starts, carry `run_id`: in the environment and, for that
    can be cleared, on Linux in a limit that nobody comes near (tens of thousands of years)."""
    os.environ["RALPH_RUN_ID"] = run_id
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):
            hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
            resource.setrlimit(resource.RLIMIT_RTTIME, (_number(run_id), hard))


def kill_run(run_id: str) -> list[int]:
    """Kill what still carries `run_id`, and its descendants; the pids."""
    import psutil

    marked: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if _carries(process, run_id):
                for one in [process, *process.children(recursive=True)]:
                    marked[one.pid] = one
    marked.pop(os.getpid(), None)
    for process in marked.values():
        with contextlib.suppress(psutil.Error):
            process.kill()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and any(map(_runs, marked.values())):
        time.sleep(0.01)
    return sorted(marked)


def supervise(loop: Callable[[Control], int], beside: Callable[[int], object] | None = None) -> int | None:
    """Run `loop` in a child; its exit status, or None if it was killed.

    Whatever it leaves behind is killed at once, however it ended. Must be called before any
    thread exists. The loop hears of this process's death through a pipe. Signals are handed on;
    the loop sits in its own session, so each arrives once. `beside` is called with our pid once the
    loop has begun: what it starts is no descendant of the loop, and ends with it.
    """
    become_subreaper()
    alive_read, alive_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(alive_write)
        os._exit(_loop_process(loop, alive_read))
    os.close(alive_read)
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    def hand_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if number == signal.SIGALRM else number)
        if number in (signal.SIGTERM, signal.SIGHUP):
            signal.alarm(_STOP_DEADLINE)  # a loop that hangs in a system call hears no TERM

    signal.signal(signal.SIGALRM, hand_on)
    for number in (signal.SIGINT, signal.SIGTERM, *(() if ignored else (signal.SIGHUP,))):
        signal.signal(number, hand_on)
    if beside:
        beside(os.getpid())
    status = os.waitpid(pid, 0)[1]
    sweep(0.0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None


def become_subreaper() -> bool:
    """Let orphaned descendants become our children (Linux); whether that worked."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def _loop_process(loop: Callable[[Control], int], supervisor: int) -> int:
    os.setsid()
    become_subreaper()
    control = Control(supervisor)
    control.install()
    code = 1
    try:
        code = loop(control)
    except BaseException:
        import traceback

        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


class _Pump:
    """Moves bytes between one child and its transcripts, its parser and the deadlines."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        stdin: bytes,
        control: Control,
        on_line: LineHandler | None,
        by_line: bool,
        tail: int,
    ) -> None:
        self.strays: list[int] = []
        self._child = child
        self._stdin = memoryview(stdin)
        self._control = control
        self._on_line = on_line
        self._by_line = by_line
        self._keep = tail
        self._tail = bytearray()
        self._line = bytearray()
        self._skipping = False
        self._stop = False
        self._active = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._logs: dict[int, _Transcript] = {}
        self._exit_fd: int | None = None
        with contextlib.suppress(AttributeError, OSError):  # not there, or forbidden in a container
            self._exit_fd = os.pidfd_open(child.pid)

    def attach(self, out: _Transcript, err: _Transcript) -> None:
        for pipe, log in ((self._child.stdout, out), (self._child.stderr, err)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe, selectors.EVENT_READ)
                self._logs[pipe.fileno()] = log
        if self._child.stdin is not None:
            os.set_blocking(self._child.stdin.fileno(), False)
            self._selector.register(self._child.stdin, selectors.EVENT_WRITE)
        for fd in [*self._control.files(), *([] if self._exit_fd is None else [self._exit_fd])]:
            self._selector.register(fd, selectors.EVENT_READ)

    def run(self, deadline: float, idle: float | None) -> str:
        """Until the child exits or must end; the word for `ProcessResult.ended`."""
        while self._child.poll() is None:
            now = time.monotonic()
            limit = deadline if idle is None else min(deadline, self._active + idle)
            if self._control.stop_now:
                return "interrupted"
            if self._stop:
                return "stop"
            if now >= limit:
                return "deadline" if now >= deadline else "idle"
            self._turn(min(limit - now, self._control.tick(), 1.0 if sys.platform != "linux" else 60.0))
            if sys.platform != "linux":
                self.strays = sorted(_descendants() | _alive(self.strays))
        return "itself"

    def drain(self) -> None:
        """Read what is still in the pipes, now that no writer is left, and close them."""
        for fd in list(self._logs):
            while self._read(fd):
                pass
        if self._line:
            self._hand_over(bytes(self._line))
        self._selector.close()
        if self._exit_fd is not None:
            os.close(self._exit_fd)
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def text(self) -> str:
        return self._tail[-self._keep :].decode("utf-8", "replace")

    def _turn(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            if key.fd in self._logs:
                if self._read(key.fd) is False:
                    self._selector.unregister(key.fileobj)
            elif key.events & selectors.EVENT_WRITE:
                self._feed(key.fd)
            elif key.fd != self._exit_fd:
                self._control.read(key.fd)

    def _feed(self, fd: int) -> None:
        try:
            self._stdin = self._stdin[os.write(fd, self._stdin[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # the child reads no more
            self._stdin = self._stdin[:0]
        if not self._stdin and self._child.stdin is not None:
            self._selector.unregister(self._child.stdin)
            with contextlib.suppress(OSError):
                self._child.stdin.close()

    def _read(self, fd: int) -> bool | None:
        """True if there was something, None if there is nothing now, False at the end."""
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return False
        if not chunk:
            return False
        self._logs[fd].write(chunk)
        self._tail += chunk
        if len(self._tail) > 2 * self._keep:
            del self._tail[: -self._keep]
        if self._child.stdout is None or fd != self._child.stdout.fileno():
            return True
        if self._on_line and self._by_line:
            self._split(chunk)
        else:
            self._hand_over(chunk)
        return True

    def _split(self, chunk: bytes) -> None:
        """Hand over complete lines; one longer than the limit is dropped, not kept."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole = bytes(self._line) + line if self._line else line
            self._line.clear()
            if not self._skipping:
                self._hand_over(whole)
            self._skipping = False
        if not self._skipping:
            self._line += rest
        if len(self._line) > _LONGEST_LINE:
            self._line.clear()
            self._skipping = True

    def _hand_over(self, line: bytes) -> None:
        answer = self._on_line(line) if self._on_line else None
        self._stop = self._stop or answer == "stop"
        if answer != "quiet":
            self._active = time.monotonic()


class _Transcript:
    """A file that keeps the head and the tail of what is written to it, `cap` bytes in all.

    A disk that is full or gone stops the transcript, never the process.
    """

    def __init__(self, path: Path | None, cap: int) -> None:
        self._half = cap // 2
        self._size = 0
        self._fd = -1
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> _Transcript:
        return self

    def write(self, chunk: bytes) -> None:
        if self._fd < 0:
            return
        view = memoryview(chunk)
        try:
            while view:
                at, room = self._place()
                written = os.pwrite(self._fd, view[:room], at)
                self._size += written
                view = view[written:]
        except OSError:
            self._close()

    def _place(self) -> tuple[int, int]:
        """Where the next byte goes, and how many fit before the place changes."""
        if self._size < self._half:
            return self._size, self._half - self._size
        at = (self._size - self._half) % self._half  # a ring behind the head
        return self._half + at, self._half - at

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0 and self._size > 2 * self._half:
            at = (self._size - self._half) % self._half
            with contextlib.suppress(OSError):
                ring = os.pread(self._fd, self._half, self._half)
                note = b"\n[%d bytes cut here]\n" % (self._size - 2 * self._half)
                place, whole = self._half, memoryview(ring)
                for part in (note, whole[at:], whole[:at]):  # joined, they would be in memory three times
                    place += os.pwrite(self._fd, part, place)
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _reap(child: subprocess.Popen[bytes] | None) -> bool:
    """Collect ended children; whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        if child is not None and pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)


def _number(run_id: str) -> int:
    return (1 << 60) + zlib.crc32(run_id.encode())


def _carries(process: psutil.Process, run_id: str) -> bool:
    if process.environ().get("RALPH_RUN_ID") == run_id:
        return True
    return sys.platform == "linux" and process.rlimit(resource.RLIMIT_RTTIME)[0] == _number(run_id)


def _descendants() -> set[int]:
    import psutil

    with contextlib.suppress(psutil.Error):
        return {process.pid for process in psutil.Process().children(recursive=True)}
    return set()


def _runs(process: psutil.Process) -> bool:
    """Whether it is more than a zombie that its parent has not collected."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _alive(pids: Sequence[int]) -> set[int]:
    """Those of `pids` that still run: what left our tree where there is no subreaper."""
    if not pids:
        return set()
    import psutil

    return {pid for pid in pids if psutil.pid_exists(pid)}
