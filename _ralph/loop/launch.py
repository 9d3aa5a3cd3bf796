"""Workers elsewhere: jobs are sent to a `ralph worker` behind a command (`--launch 'ssh node7'`). Its answers
are not trusted."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shlex
import subprocess
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic

from _ralph import __version__, files, text
from _ralph.errors import AgentUnavailable, BadInput, NeedsPerson, TryLater
from _ralph.git.git import BULK, attempted
from _ralph.git.workspace import restore, throwaway_config
from _ralph.loop.jobs import Attempt, Checked, CheckJob, Worked
from _ralph.loop.room import SETUP_TIMEOUT
from _ralph.loop.run import Run
from _ralph.loop.wire import BEAT, PROTOCOL, Broken, Wire
from _ralph.loop.worker import Result, WorkerDied
from _ralph.model import AgentResult, Json, Outcome
from _ralph.process import process
from _ralph.state.records import made

_HELLO, _GREETING = 600.0, 60.0
"""Seconds until a worker answers, which may wait for a machine; and at the start of a run, which only asks
whether there is one."""
_SLACK = 900.0
_SILENCE = 6 * BEAT
"""Seconds of silence after which a worker, or its machine, counts as dead."""
_PAUSES = (5.0, 30.0, 120.0, 300.0)
"""Seconds between retries while no worker answers: a machine may be rebooting."""
_LOGS, _MOST_LOGS = 64 << 20, 200
_LOG_NAME = re.compile(r"[\w.-]{1,200}", re.ASCII)
_FIELDS = ("number", "iteration", "worker", "base", "clean", "earlier", "baseline")
_OPTIONS = ("checks", "agent_timeout", "idle_timeout", "full_permissions", "sandbox", "verbose")
_TEMPLATE = ".ralph/template.md"
_OBJECT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?", re.ASCII)
_UNREADABLE = (Broken, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, OSError)
"""What a malformed answer can raise."""


@dataclass(kw_only=True)
class Order(Generic[Result]):
    """What a worker behind `prefix` is to do: the message `job`, and the commits that it `needs`. Its logs
    begin with `name`, its answer is a `result`, and a commit in it is on `parent`. It works in the copy of
    the repository called `copy`, one for each that can be at work."""

    prefix: str
    job: Json
    needs: Collection[str]
    name: str
    result: type[Result]
    parent: str
    copy: str
    seconds: float


def work_elsewhere(run: Run, attempt: Attempt) -> Worked:
    """Run an agent behind the launch prefix; what it left. WorkerDied if the answer is unusable."""
    prefix = run.launch_of(attempt.task)
    left = attempt.left and run.branch.commit(attempt.left, attempt.base, "ralph: unfinished work\n")
    parked = run.branch.commit_at(attempt.earlier or run.history.of(attempt.task).parked)
    begun = {name: getattr(attempt, name) for name in _FIELDS}
    begun |= {"task": attempt.task.id, "agent": attempt.command}
    begun |= {"left": left, "share": asdict(attempt.share)}
    order = Order(
        prefix=prefix,
        job={"kind": "attempt", "attempt": begun},
        needs={attempt.base, left, parked},
        name=attempt.name,
        result=Worked,
        parent=attempt.base,
        copy=str(attempt.worker),
        seconds=min(run.options.agent_timeout, run.time_left) + SETUP_TIMEOUT + _SLACK,
    )
    try:
        found, commit = _ask(run, order)
    except NoWorker as error:
        limited = AgentResult(Outcome.LIMITED, str(error))
        return Worked(result=limited, left=attempt.left, notices=attempt.notices, launch=prefix)
    trees = _protected(run, order, commit, attempt.task.allow) if commit else ("", "")
    return Worked(
        result=found.result,
        left=trees[0],
        tree=trees[1],
        restored=_lines(found.restored),
        notices=[*attempt.notices, *_lines(found.notices)],
        ignored=_lines(found.ignored),
        said=found.said[:65536],
    )


def check_elsewhere(run: Run, job: CheckJob) -> Checked:
    """Run setup, hooks and checks behind --launch-checks; as `candidate.check_commit`."""
    order = Order(
        prefix=str(run.options.launch_checks),
        job={"kind": "checks", "checks": asdict(job)},
        needs={job.commit, job.tip},
        name=job.name,
        result=Checked,
        parent=job.tip or job.commit,
        copy="room",
        seconds=sum(check.timeout for check in job.checks) * 4 + SETUP_TIMEOUT + _SLACK,
    )
    found, commit = _ask(run, order)
    if commit:
        left, tree = _protected(run, order, commit, job.allow)
        if left != tree:
            raise WorkerDied("the hooks elsewhere changed protected files")
        run.branch.pin_candidate(commit)
    message = found.message[:65536] if commit else job.message
    commit = commit or (job.tip if found.commit == job.tip else job.commit)  # hooks can undo all of it
    return replace(found, notices=_lines(found.notices), commit=commit or job.commit, message=message)


def _lines(told: list[str]) -> list[str]:
    return [text.one_line(line, 500) for line in told[:20]]


def _protected(run: Run, order: Order[Any], commit: str, allow: Collection[str]) -> tuple[str, str]:
    """The tree of a worker's commit, as it is and with all protected files as in its parent. WorkerDied if
    it holds what no workspace could."""
    index = run.paths.private / f"launch-{order.copy}.index"
    git = run.git.seen_at(run.git.root, index)
    left = git.tree(commit)
    code, _, said = attempted(git, "read-tree", left, timeout=BULK)  # no path of it leads elsewhere
    if code:
        raise WorkerDied(f"git refuses the worker's commit: {text.one_line(said, 200)}")
    names = git.names("--literal-pathspecs", "ls-files", "-z", "--", *run.state(), ".ralph", timeout=BULK)
    if not {*names} <= {*run.state()}:
        raise WorkerDied("the worker's commit has something else in place of ralph's own files")
    tree, _, _ = restore(git, order.parent, left, run.plan.protected, allow, run.state(allow))
    files.clear(index)
    return left, tree


class NoWorker(TryLater):
    """No worker answers behind a launch prefix: the machine is down, or the way there."""


def greet(run: Run, prefix: str) -> None:
    """Check that a worker answers behind the prefix. BadInput if its version differs, NoWorker if none
    answers within a minute."""
    with _worker(run, prefix, _GREETING):
        pass


def _short(prefix: str) -> str:
    return text.one_line(prefix, 80)


def _ask(run: Run, order: Order[Result]) -> tuple[Result, str]:
    """Send an order; the result, and the commit that came with it, if any. Retries for some minutes while no
    worker answers, then NoWorker."""
    for pause in () if run.options.once or run.options.no_wait else _PAUSES:
        try:
            return _ask_once(run, order)
        except NoWorker as error:
            if pause > run.time_left:
                raise
            run.view.line(f"! {error}; trying again in {text.duration(pause)}", "  ", "yellow")
            run.control.sleep(time.time() + pause, lambda: run.control.stop_now)
    return _ask_once(run, order)


def _ask_once(run: Run, order: Order[Result]) -> tuple[Result, str]:
    try:
        with _worker(run, order.prefix, _HELLO) as wire:
            objects = run.git("rev-parse", "--show-object-format").strip()
            project, prd = f"{run.paths.places.name}-{order.copy}", run.git.name_of(run.paths.prd)
            wire.send({"project": project, "prd": prd, "objects": objects})
            try:
                known = list(_next(wire, _HELLO)["commits"])
            except TryLater as error:  # another one holds its place
                raise NoWorker(str(error)) from None
            refs, bundle = _bundle(run, order, known)
            wire.send({**_home(run), **order.job, "base": order.parent, "refs": refs}, bundle)
            return _answer(run, order, wire)
    except _UNREADABLE as error:
        if run.control.stop_now:
            raise WorkerDied("ralph was stopped") from None
        prefix = _short(order.prefix)
        raise WorkerDied(f"no usable answer from the worker behind `{prefix}`: {error}") from None


def _answer(run: Run, order: Order[Result], wire: Wire) -> tuple[Result, str]:
    """Read a worker's messages until it is done."""
    end = time.monotonic() + order.seconds
    while True:
        if time.monotonic() > end:
            raise Broken("it did not end in time")
        message = _next(wire, max(min(end - time.monotonic(), _SILENCE), 0.1))
        match message.get("event"):
            case "log":
                _save_log(run, order, message)
            case "view":
                run.view.hear({key: message.get(key) for key in ("event", "name", "args")})
            case "done":
                answer = wire.file(message, _file_of(run, order), max(end - time.monotonic(), 0.1))
                return made(order.result, message["value"]), _taken(run, order, message, answer)


@contextlib.contextmanager
def _worker(run: Run, prefix: str, patience: float) -> Iterator[Wire]:
    """A worker behind the prefix, which is ended on exit. BadInput if its version differs, NoWorker if none
    answers within `patience` seconds."""
    try:
        words = [*shlex.split(prefix), "ralph", "worker"]
        child = subprocess.Popen(
            words, cwd=run.paths.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", error)
        raise BadInput(f"--launch: `{_short(prefix)}` cannot be started: {why}") from None
    assert child.stdin and child.stdout and child.stderr
    streams = (child.stdin, child.stdout, child.stderr)
    for stream in streams:
        os.set_blocking(stream.fileno(), False)
    wire = Wire(child.stdout.fileno(), child.stdin.fileno(), run.control, child.stderr.fileno())
    grace = 0.1
    try:
        _require_hello(run, prefix, wire, child, patience)
        grace = 3.0
        yield wire
    except Broken as error:
        said = wire.stderr_tail()
        raise Broken(f"{error}: {said}" if said else str(error)) from None
    finally:
        for stream in streams:
            with contextlib.suppress(OSError):
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace)
        process.sweep(process.GRACE, child)


def _require_hello(
    run: Run, prefix: str, wire: Wire, child: subprocess.Popen[bytes], patience: float
) -> None:
    behind = f"behind `{_short(prefix)}`"
    try:
        hello = wire.message(patience, begins="event")
    except Broken as error:
        if run.control.stop_now:
            raise WorkerDied("ralph was stopped") from None
        why = wire.stderr_tail() or str(error)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.5)
        if child.returncode in (126, 127):
            raise BadInput(f"there is no ralph {behind}: {why}; put it on the PATH there") from None
        raise NoWorker(f"no worker answers {behind}: {why}") from None
    theirs = hello.get("ralph")
    if (theirs, hello.get("protocol")) != (__version__, PROTOCOL):
        raise BadInput(
            f"the worker {behind} is ralph {theirs}, protocol {hello.get('protocol')}, and this is "
            f"{__version__}, protocol {PROTOCOL}; install the same there"
        )


def _next(wire: Wire, seconds: float) -> Json:
    """The next message of a worker. Its error is raised: one that needs a person or time ends the run, as it
    would here; any other only costs the attempt."""
    message = wire.message(seconds)
    if message.get("event") != "error":
        return message
    said = f"{text.one_line(str(message['said']), 500)} (on the worker's machine)"
    ends = {int(one.exit): one for one in (NeedsPerson, AgentUnavailable, TryLater)}
    raise ends.get(message["exit"], WorkerDied)(said)


def _home(run: Run) -> Json:
    """What every job needs from home but commits, which come in a bundle."""
    limits = {name: value for name, value in asdict(run.limits).items() if value < 10**12 and name != "until"}
    return {
        "prd": run.git.name_of(run.paths.prd),
        "branch": run.branch.name,
        "options": {
            **{name: getattr(run.options, name) for name in _OPTIONS},
            "limits": {**limits, "hours": run.time_left / 3600},  # clocks differ, and the rest of it does not
            "prompt": _TEMPLATE if run.own_prompt else None,
        },
        "carries": run.site.gear.carried,
        "hooks": "" if os.path.isabs(run.site.gear.hooks) else run.site.gear.hooks,
        "stays": run.view.stays,
        "files": _files(run),
    }


def _files(run: Run) -> dict[str, str]:
    """The files that a worker needs and no commit has, by name, in base64: plan, notes, rulebook, what
    `.worktreeinclude` names, a prompt template, git's settings for checking out files, and commit hooks."""
    own = (*run.site.gear.carried, *run.state())
    found = {name: files.read_regular(Path(os.path.realpath(run.paths.root / name))) for name in own}
    hooks, folder = run.site.hooks(run.paths.root)
    for name in hooks if os.path.isabs(run.site.gear.hooks) else ():
        found[f".git/hooks/{name}"] = files.read_regular(Path(os.path.realpath(Path(folder, name))))
    found[".git/config"] = throwaway_config(run.git).encode()
    for name in ("shallow", "info/attributes", "info/exclude"):
        found[f".git/{name}"] = files.read_regular(run.git.common / name)
    found[".git/info/sparse-checkout"] = files.read_regular(run.git.dir / "info/sparse-checkout")
    if run.own_prompt:
        found[_TEMPLATE] = files.read_regular(run.own_prompt)
    return {name: base64.b64encode(data).decode() for name, data in found.items() if data is not None}


def _bundle(run: Run, order: Order[Any], known: list[Any]) -> tuple[dict[str, str], Path | None]:
    """The refs that a worker needs, and a bundle of their commits that are not `known` there; None if all
    are."""
    git, target = run.git, _file_of(run, order)
    asked = [one for one in known if isinstance(one, str) and _OBJECT.fullmatch(one)][:1000]
    lines = git("cat-file", "--batch-check", stdin="\n".join(asked).encode()).splitlines()
    has = [line.split(" ")[0] for line in lines if line.split(" ")[1] in ("commit", "tag")]
    needed = {*order.needs} - {""}
    own = {f"refs/ralph/launch/{run.branch.plan}/{order.copy}/{one}": one for one in needed}
    words = (f"--merged={order.parent}", "--format=%(refname) %(objectname)", "refs/tags")
    tags = dict(line.split(" ") for line in git("for-each-ref", *words, check=False).splitlines())
    git.update_refs(f"update {ref} {one}" for ref, one in own.items())
    try:
        wanted = [*own, *tags, *(f"^{one}" for one in has)]
        code, _, said = attempted(git, "bundle", "create", "-q", str(target), *wanted, timeout=BULK)
    finally:
        git.update_refs(f"delete {ref}" for ref in own)
    if code and "empty bundle" not in said:
        raise Broken(f"git bundle failed: {text.one_line(said, 200)}")
    return {f"refs/ralph/known/{one}": one for one in needed} | tags, None if code else target


def _file_of(run: Run, order: Order[Any]) -> Path:
    """The temporary file for this worker's bundles."""
    return run.paths.private / f"launch-{order.copy}.bundle"


def _save_log(run: Run, order: Order[Any], message: Json) -> None:
    """Append a part of a log that grows elsewhere to the copy in the scratch folder."""
    name, at = str(message["name"]), int(message["at"])
    if not (_LOG_NAME.fullmatch(name) and name.startswith(order.name)) or at < 0:
        raise Broken(f"it sent a log that is not its own: {name[:60]!r}")
    path, data = run.paths.scratch / name, base64.b64decode(message["data"])
    if at == 0:
        files.clear(path)
        if len(list(run.paths.scratch.glob(f"{order.name}*"))) > _MOST_LOGS:
            raise Broken("it sent too many logs")
    with path.open("ab") as out:
        if out.tell() + len(data) > _LOGS:
            raise Broken("its logs are too long")
        out.write(data)


def _taken(run: Run, order: Order[Any], message: Json, bundle: Path) -> str:
    """Fetch the commit that a worker answered with; nothing if there is none. Broken if the bundle is
    anything but one commit on the order's parent."""
    commit, git = str(message.get("commit") or ""), run.git
    try:
        if not commit or not message["file"]:
            return ""
        heads = git("bundle", "list-heads", str(bundle), check=False).split()
        if len(heads) != 2 or heads[0] != commit:
            raise Broken("its bundle holds other refs than the one commit")
        code, _, said = attempted(git, "bundle", "unbundle", str(bundle), timeout=BULK)
        if code:
            raise Broken(f"git refuses its bundle: {text.one_line(said, 200)}")
        parents = git("rev-list", "--parents", "-1", commit, check=False).split()[1:]
        if parents != [order.parent]:
            raise Broken("its commit is not on the commit that it was given")
        return commit
    finally:
        files.clear(bundle)
