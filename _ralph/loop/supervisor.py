"""The supervisor: starts the loops, shows what they tell, starts one that died again,
and ends them. It never waits for an agent, a check or a hook."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from _ralph import files
from _ralph.checks.view import Reporter
from _ralph.errors import Exit, Stop, StopNow, stop_for
from _ralph.loop.final import may_check
from _ralph.loop.loop import HOLDER, Loop
from _ralph.loop.opening import is_open
from _ralph.model import Json
from _ralph.process import leftovers, process
from _ralph.process.process import Control
from _ralph.state.lock import remove_git_locks
from _ralph.state.records import stopped_by

RunLoop = Callable[[Loop], None]
"""The life of a loop. It ends by Stop, or by an error."""
_DEATHS = 3
"""Deaths of a loop at one task, or at none, that end no run."""
_DEADLINE = 60.0
"""Seconds that a loop may take to end when it is told to stop now."""


@dataclass
class Child:
    """A loop under way: its process, and the pipe on which it tells what happens."""

    number: int
    pid: int
    pipe: int
    rest: bytes = b""
    stop: Stop | None = None  # why it ended, as it said
    told: set[int] = field(default_factory=set)  # the signals that it got


@dataclass
class Supervisor:
    """Runs the loops of one run. `loop` is what each of them begins with."""

    loop: Loop
    run_loop: RunLoop
    # What is read from it is open while the supervisor, its only writer, lives
    alive: tuple[int, int] = field(default_factory=os.pipe)
    children: dict[int, Child] = field(default_factory=dict)
    deaths: Counter[str] = field(default_factory=Counter)
    first: Stop | None = None  # why the run ends
    late: float = 0.0  # when (monotonic) a loop that was told to stop now is killed

    def run(self) -> Stop:
        """Run the loops until all have ended; why the run ended."""
        try:
            self.start(1)
            while self.children:
                self.serve()
        finally:
            self.close()
        assert self.first
        return self.first

    def start(self, number: int) -> None:
        """Fork a loop. Signals wait until its handlers stand."""
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, process.SIGNALS)
        pid = os.fork()
        if pid == 0:
            try:
                self.be_loop(number, write)
            finally:  # whatever was raised: it would go on as a second supervisor
                os._exit(0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, process.SIGNALS)
        os.close(write)
        process.SPARED.add(pid)
        self.children[number] = Child(number, pid, read)

    def be_loop(self, number: int, pipe: int) -> None:
        """What the child does: the life of a loop, and why it ended."""
        os.setsid()
        alive, writes = self.alive
        os.close(writes)
        process.SPARED.clear()
        leftovers.become_subreaper()
        leftovers.note(os.getppid())
        control = Control(alive)
        above = self.loop.control
        control.patient = True
        control.install()
        control.interrupts = min(above.interrupts, 1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, process.SIGNALS)
        view = Reporter(pipe, self.loop.view.stays, self.loop.view.verbose)
        control.on_tick = view.tick
        loop = self.loop
        loop.number = number
        loop.tell = view.tell
        loop.control = loop.places.control = loop.git.calls.control = control
        loop.view = loop.places.view = view
        try:
            self.run_loop(loop)
        except Stop as stop:
            ended = stop
        except StopNow:
            ended = loop.asked_to_stop() or Stop("terminated", "terminated")
        except Exception as error:
            ended = stop_for(error)
        process.sweep(0.0, left=leftovers.left_by_loop(os.getpid()))
        if not control.orphaned:
            view.last_word(ended)

    def serve(self) -> None:
        """Hear what the loops tell for a moment; heed signals, and ends of loops."""
        control = self.loop.control
        pipes = {child.pipe: child for child in self.children.values()}
        for pipe in control.wait(1.0, list(pipes)):
            child = pipes[pipe]
            data = os.read(pipe, 1 << 16)
            *lines, child.rest = (child.rest + data).split(b"\n")
            for line in lines:
                self.hear(child, json.loads(line))
            if not data:
                self.ended(child)
        self.pass_on_signals()
        for child in self.children.values():
            # its agent may have stopped it
            process.send(signal.SIGCONT, [child.pid])

    def hear(self, child: Child, event: Json) -> None:
        """Take in one event of a loop."""
        match event["name"]:
            case "opened":
                self.start_others()
            case "stop":
                word, reason, code = event["args"]
                child.stop = Stop(word, reason, Exit(code))
                self.end_with(child.stop)
            case _:
                self.loop.view.hear(event, child.number)

    def start_others(self) -> None:
        """Loop 1 has opened the run: start the others."""
        if self.first is None:
            for number in range(2, self.loop.settings.jobs + 1):
                if number not in self.children:
                    self.start(number)

    def end_with(self, stop: Stop) -> None:
        """The run ends for this reason, if it is the first one: the others finish what
        they have begun, and the last of them makes the final check if that may be."""
        if self.first is not None:
            if stop.exit == Exit.PERSON and self.first.exit == Exit.LEFT:
                self.first = stop  # another run would not mend that
            return
        self.first = stop
        checks = may_check(self.loop, stop)
        self.signal_all(signal.SIGUSR1 if checks else signal.SIGINT)

    def pass_on_signals(self) -> None:
        """The first ^C asks the loops to finish, anything else to stop now."""
        control = self.loop.control
        if control.interrupts and self.first is None:
            said = "stopping after the attempts under way; interrupt again to stop now"
            self.loop.view.line(said)
            self.first = Stop("interrupted", "interrupted")
            self.signal_all(signal.SIGINT)
        if control.stop_signal is None:
            return
        asked = self.loop.asked_to_stop()
        if asked and (self.first is None or self.first.word == "interrupted"):
            self.first = asked
        self.signal_all(signal.SIGTERM)
        self.late = self.late or time.monotonic() + _DEADLINE
        if time.monotonic() > self.late:
            self.signal_all(signal.SIGKILL)

    def signal_all(self, number: signal.Signals) -> None:
        """Send the loops a signal, once."""
        for child in self.children.values():
            if number not in child.told:
                child.told.add(number)
                process.send(number, [child.pid])

    def ended(self, child: Child) -> None:
        """A loop has ended. One that said why had ended all that it started; any other
        died, and is started again. Nobody waits for the room that it was in."""
        del self.children[child.number]
        os.close(child.pipe)
        self.reap(child)
        if child.stop is None:
            process.sweep(0.0, left=leftovers.left_by_loop(child.pid))
        clear_room(self.loop, child.number)
        self.loop.view.ended(child.number)
        if child.stop is None:
            self.died(child)

    def died(self, child: Child) -> None:
        """Start a loop again that died: not where it dies again and again, nor where
        the run ends."""
        self.loop.log.read()
        task = ""
        for start in self.loop.history.open_starts.values():
            if start.worker == child.number:
                task = start.task
        said = f"loop {child.number} was killed"
        if task:
            said += f" at {task}"
        self.deaths[said] += 1
        told_to_end = self.loop.control.stop_now or signal.SIGTERM in child.told
        if told_to_end or self.deaths[said] > _DEATHS:
            self.end_with(Stop("error", f"{said}, {self.deaths[said]} times"))
            return
        if self.first is not None and not task:
            return  # it has nothing to finish
        self.loop.view.warn(f"{said}; it is started again")
        self.start(child.number)
        if self.first is not None:
            self.signal_all(signal.SIGUSR1)

    def reap(self, child: Child) -> None:
        """Wait for the end of a loop; one that does not end is killed."""
        while process.reap(child.pid, 10.0) is None:
            process.send(signal.SIGKILL, [child.pid])
        process.SPARED.discard(child.pid)

    def close(self) -> None:
        """End all loops that are left, now."""
        self.signal_all(signal.SIGTERM)
        for child in self.children.values():
            self.reap(child)
        process.sweep(0.0, left=leftovers.left_by_loop(os.getpid()))


def clear_room(loop: Loop, number: int | None = None) -> None:
    """Where a loop of this number (None: any) died, and what it started was ended: its
    git locks go; if that was in the clean room, those of the room, too, and the room is
    made anew."""
    holder = loop.paths.private / HOLDER
    in_room = os.path.lexists(holder)
    if in_room and number is not None and holder.is_symlink():
        in_room = os.readlink(holder) == str(number)
    remove_git_locks(loop.paths, loop.branch.name, number, in_room)
    if in_room:
        files.clear(loop.places.place(loop.paths.room).beside("setup"))
        files.clear(holder)


def close_run(loop: Loop, stop: Stop) -> Stop:
    """Write the one `stop` record, after the last loop has ended, and tell --notify;
    the stop, which the final check may have changed."""
    loop.read()
    stop = with_final_check(loop, stop)
    # One that goes on after a kill has the `run` record of the one before.
    ended = is_open(loop) or stop.exit != Exit.USAGE
    if loop.history.run and ended:
        with loop.plan_locked():
            loop.write(
                stopped_by(stop),
                f"iteration {loop.history.iteration} | stopped: {stop.reason}",
            )
    loop.control.stop_signal = None  # only another signal cuts --notify short
    loop.notify("stopped", stop.reason, stop=stop)
    return stop


def with_final_check(loop: Loop, stop: Stop) -> Stop:
    """The stop of a run, as the final check of this run changes it: a run that ends red
    ends with 4, since another one would not mend that."""
    last = loop.history.recheck
    if last is None or last.run != loop.run_id or not last.red:
        return stop
    counts = stop.exit == Exit.LEFT and not last.broken
    if stop.word == "once":
        if last.broken:
            what = "a task that had passed no longer holds"
            return Stop("once", f"one attempt, as asked, and {what}")
        counts = all(task.passed for task in loop.plan.tasks)
    if counts:
        reason = f"{stop.reason}, and not all checks are green: {', '.join(last.red)}"
        return Stop("red-checks", reason)
    return stop


def supervise(loop: Loop, run_loop: RunLoop) -> Stop:
    """A run, from its first loop to its `stop` record; why it ended."""
    return close_run(loop, Supervisor(loop, run_loop).run())
