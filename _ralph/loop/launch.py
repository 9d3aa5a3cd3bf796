"""Workers elsewhere: a job goes through a command that a person named (`--launch 'ssh node7'`) to a `ralph
worker`, and what comes back is checked as a stranger's word is."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from _ralph import __version__, files, text
from _ralph.errors import BadInput, Exit, TryLater
from _ralph.git.git import BULK, attempted
from _ralph.git.workspace import restore, throwaway_config
from _ralph.loop.room import SETUP_TIMEOUT
from _ralph.loop.run import Run
from _ralph.loop.wire import BEAT, PROTOCOL, Broken, Wire
from _ralph.loop.worker import WorkerDied, raise_error
from _ralph.model import AgentResult, Attempt, Check, CheckResult, Outcome
from _ralph.process import process
from _ralph.state.records import made

_HELLO, _GREETING = 600.0, 60.0
"""Seconds until a worker answers, which may have to wait for a machine; the same where a run only asks
whether there is one."""
_SLACK = 900.0
_SILENCE = 6 * BEAT
"""Seconds after which a worker that says nothing is taken for dead, and its machine with it."""
_PAUSES = (5.0, 30.0, 120.0, 300.0)
"""Seconds between the tries to have a worker where none answers: a machine starts anew."""
_LOGS, _MOST_LOGS = 64 << 20, 200
_LOG_NAME = re.compile(r"[\w.-]{1,200}", re.ASCII)
_FIELDS = (
    "number", "iteration", "worker", "command", "base", "clean", "earlier", "baseline", "apart", "tip",
    "commit", "tree", "message", "leftover",
)  # fmt: skip
_COMMITS = ("base", "left", "apart", "tip", "commit")
_OPTIONS = ("agent_timeout", "idle_timeout", "full_permissions", "sandbox", "verbose")
_TEMPLATE = ".ralph/template.md"
_OBJECT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?", re.ASCII)


def work_elsewhere(run: Run, attempt: Attempt) -> dict[str, Any]:
    """Let an agent work behind the launch prefix; what came of it, as `attempt.work_here` tells it.
    WorkerDied where nothing came that can be believed."""
    prefix = run.launch_of(attempt.task)
    seconds = min(run.options.agent_timeout, run.time_left) + SETUP_TIMEOUT + _SLACK
    try:
        told, commit = _ask(run, prefix, attempt, {"kind": "attempt"}, seconds)
    except NoWorker as error:
        limited = AgentResult(Outcome.LIMITED, str(error))
        return {"result": limited.as_dict(), "left": attempt.left, "tree": "", "launch": prefix}
    with _believed():
        result: AgentResult = made(AgentResult, told["result"])
        found = {
            "result": result.as_dict(),
            "began": 0.0,
            "said": str(told["said"])[:65536],
            "left": "",
            "tree": "",
            **{name: _lines(told[name]) for name in ("notices", "ignored", "restored")},
        }
    if commit:
        found["left"], found["tree"] = _protected(run, attempt, attempt.base, commit)
    return found


@contextlib.contextmanager
def _believed() -> Iterator[None]:
    """WorkerDied where an answer is not what it should be."""
    try:
        yield
    except (Broken, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise WorkerDied(f"the worker's answer cannot be read: {error}") from None


def _lines(told: Any) -> list[str]:
    return [text.one_line(str(line), 500) for line in list(told)[:20]]


def _protected(run: Run, attempt: Attempt, base: str, commit: str) -> tuple[str, str]:
    """The tree of a worker's commit, and the same with all that is protected as in `base`. WorkerDied where
    it holds what no workspace could have left."""
    index = run.paths.private / f"launch-{attempt.worker}.index"
    git = run.git.seen_at(run.git.root, index)
    left = git.tree(commit)
    code, _, said = attempted(git, "read-tree", left, timeout=BULK)  # no path of it leads elsewhere
    if code:
        raise WorkerDied(f"the worker's answer holds what git refuses: {text.one_line(said, 200)}")
    own = tuple(f"{name}/" for name in (*run.state, ".ralph"))
    if any(name.startswith(own) for name in git.names("ls-files", "-z", "--", *own, timeout=BULK)):
        raise WorkerDied("the worker's answer has folders in the place of ralph's own files")
    tree, _, _ = restore(git, base, left, *run.protection(attempt.task), run.state)
    files.clear(index)
    return left, tree


class NoWorker(TryLater):
    """No worker answers behind a launch prefix: the machine is down, or the way there."""


def greet(run: Run, prefix: str) -> None:
    """Start a worker behind the prefix, and let it go. BadInput where it is of another version, NoWorker
    where none answers within a minute."""
    with _worker(run, prefix) as (wire, child):
        _meet(run, prefix, wire, child, _GREETING)


def _meet(run: Run, prefix: str, wire: Wire, child: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        hello = wire.message(seconds, begins="event")
    except Broken as error:
        if run.control.stop_now:
            raise WorkerDied("ralph was stopped") from None
        said = wire.beside()
        why = text.last_line(said) if said else str(error)
        process.ends_within(child.pid, 0.5)
        if child.poll() in (126, 127):
            raise BadInput(
                f"there is no ralph behind `{_short(prefix)}`: {why}; put it on the PATH there"
            ) from None
        raise NoWorker(f"no worker answers behind `{_short(prefix)}`: {why}") from None
    wire.met = True
    theirs = (hello.get("ralph"), hello.get("protocol"))
    if theirs != (__version__, PROTOCOL):
        raise BadInput(
            f"the worker behind `{_short(prefix)}` is ralph {theirs[0]}, and this is {__version__}; "
            f"install the same there"
        )


def _short(prefix: str) -> str:
    return text.one_line(prefix, 80)


def _ask(
    run: Run, prefix: str, attempt: Attempt, what: dict[str, Any], seconds: float
) -> tuple[dict[str, Any], str]:
    """Send a job to a worker behind the prefix: its value, and the commit that it answered with. Where none
    answers, it is tried again for some minutes; NoWorker then."""
    for pause in () if run.options.once or run.options.no_wait else _PAUSES:
        try:
            return _ask_once(run, prefix, attempt, what, seconds)
        except NoWorker as error:
            if pause > run.time_left:
                raise
            run.view.line(f"! {error}; once more in {text.duration(pause)}", "  ", "yellow")
            run.control.sleep(time.time() + pause, lambda: run.control.stop_now)
    return _ask_once(run, prefix, attempt, what, seconds)


def _ask_once(
    run: Run, prefix: str, attempt: Attempt, what: dict[str, Any], seconds: float
) -> tuple[dict[str, Any], str]:
    try:
        with _worker(run, prefix) as (wire, child):
            _meet(run, prefix, wire, child, _HELLO)
            job = {**_job(run, attempt), **what}
            objects = run.git("rev-parse", "--show-object-format").strip()
            own = attempt.worker if what["kind"] == "attempt" else "room"  # a copy for each that is at work
            copy = f"{run.paths.places.name}-{own}"
            wire.send({"project": copy, "prd": job["prd"], "objects": objects})
            known = _event(wire, "has", _HELLO)["commits"]
            wire.send(job, _bundle(run, attempt, job, known))
            return _answer(run, attempt, wire, time.monotonic() + seconds)
    except (Broken, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, OSError) as error:
        if run.control.stop_now:
            raise WorkerDied("ralph was stopped") from None
        raise WorkerDied(f"the worker did not answer: {error}; it is behind `{_short(prefix)}`") from None


def _answer(run: Run, attempt: Attempt, wire: Wire, end: float) -> tuple[dict[str, Any], str]:
    """Hear a worker until it is done."""
    while True:
        if time.monotonic() > end:
            raise Broken("it did not end in time")
        message = wire.message(max(min(end - time.monotonic(), _SILENCE), 0.1))
        match message.get("event"):
            case "log":
                _save_log(run, attempt, message)
            case "view":
                if run.report:
                    run.report({key: message.get(key) for key in ("event", "name", "args")})
            case "error":
                _raise(message)
            case "done":
                answer = wire.file(message, _file_of(run, attempt), max(end - time.monotonic(), 0.1))
                return dict(message["value"]), _taken(run, attempt, message, answer)


@contextlib.contextmanager
def _worker(run: Run, prefix: str) -> Iterator[tuple[Wire, subprocess.Popen[bytes]]]:
    """A worker behind the prefix, which ends with its stdin, whatever happens in here; and the prefix."""
    words = [*shlex.split(prefix), "ralph", "worker"]
    try:
        child = subprocess.Popen(
            words, cwd=run.paths.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise BadInput(f"--launch: {words[0]} cannot be started: {error.strerror}") from None
    assert child.stdin and child.stdout and child.stderr
    for stream in (child.stdin, child.stdout, child.stderr):
        os.set_blocking(stream.fileno(), False)
    wire = Wire(child.stdout.fileno(), child.stdin.fileno(), run.control, child.stderr.fileno())
    try:
        yield wire, child
    except Broken as error:
        said = wire.beside()
        raise Broken(f"{error}: {text.last_line(said)}" if said else str(error)) from None
    finally:
        for stream in (child.stdin, child.stdout, child.stderr):
            with contextlib.suppress(OSError):
                stream.close()
        process.ends_within(child.pid, 3.0 if wire.met else 0.1)
        process.sweep(process.GRACE, child)


def _raise(message: Mapping[str, Any]) -> NoReturn:
    """Raise what ended a job elsewhere: what a person or time must mend there ends the run, as it would
    here; all else costs the attempt."""
    said = text.one_line(str(message["said"]), 500)
    if message["exit"] in (Exit.PERSON, Exit.AGENT, Exit.LATER):
        raise_error({"said": f"{said} (on the worker's machine)", "exit": message["exit"]})
    raise WorkerDied(said)


def _event(wire: Wire, name: str, seconds: float) -> dict[str, Any]:
    message = wire.message(seconds)
    if message.get("event") == "error":
        if message["exit"] == Exit.LATER:  # one before it is about to end there
            raise NoWorker(str(message["said"]))
        _raise(message)
    if message.get("event") != name:
        raise Broken(f"it said {message.get('event')!r} in place of {name!r}")
    return message


def _job(run: Run, attempt: Attempt) -> dict[str, Any]:
    """What every worker must know; the commits come in a bundle."""
    left = attempt.left and run.branch.commit(attempt.left, attempt.base, "ralph: unfinished work\n")
    limits = {name: value for name, value in asdict(run.limits).items() if value < 10**12 and name != "until"}
    return {
        "prd": run.git.name_of(run.paths.prd),
        "branch": run.branch.name,
        "attempt": {
            **{name: getattr(attempt, name) for name in _FIELDS},
            "task": attempt.task.id,
            "left": left,
            "share": asdict(attempt.share),
        },
        "options": {
            **{name: getattr(run.options, name) for name in _OPTIONS},
            "limits": {**limits, "hours": run.time_left / 3600},  # clocks differ, and the rest of it does not
            "prompt": _TEMPLATE if run.own_prompt else None,
        },
        "carries": run.site.carried(),
        "stays": run.view.stays,
        "files": _files(run),
    }


def _files(run: Run) -> dict[str, str]:
    """The files of home that a worker needs and no commit has, by their names, in base64: plan, notes and
    rulebook, what `.worktreeinclude` names, a prompt template, and the settings of git that decide how files
    are checked out."""
    names = (*run.state, *run.site.carried())
    found = {name: files.read_regular(run.paths.root / name) for name in names}
    found[".git/config"] = throwaway_config(run.git).encode()
    for name in ("shallow", "info/attributes", "info/exclude"):
        found[f".git/{name}"] = files.read_regular(run.git.common / name)
    found[".git/info/sparse-checkout"] = files.read_regular(run.git.dir / "info/sparse-checkout")
    if run.own_prompt:
        found[_TEMPLATE] = files.read_regular(run.own_prompt)
    return {name: base64.b64encode(data).decode() for name, data in found.items() if data is not None}


def _bundle(run: Run, attempt: Attempt, job: dict[str, Any], known: list[Any]) -> Path | None:
    """A bundle of the commits that a worker needs of those it has not; None where it has all. The job gets
    their names."""
    git, given, target = run.git, job["attempt"], _file_of(run, attempt)
    asked = [one for one in known if isinstance(one, str) and _OBJECT.fullmatch(one)][:1000]
    lines = git("cat-file", "--batch-check", stdin="\n".join(asked).encode()).splitlines()
    has = [line.split(" ")[0] for line in lines if line.split(" ")[1] in ("commit", "tag")]
    parked = run.branch.commit_at(attempt.earlier or run.history.of(attempt.task).parked)
    needed = {parked, job.get("commit", ""), *(given[name] for name in _COMMITS)} - {""}
    refs = {f"refs/ralph/launch/{run.branch.plan}/{attempt.worker}/{one}": one for one in needed}
    format = "--format=%(refname) %(objectname)"
    tags = git("for-each-ref", f"--merged={given['base']}", format, "refs/tags", check=False).splitlines()
    job["refs"] = {f"refs/ralph/known/{one}": one for one in needed}
    job["refs"] |= dict(line.split(" ") for line in tags)
    git.update_refs(f"update {ref} {one}" for ref, one in refs.items())
    try:
        wanted = [*refs, *(line.split(" ")[0] for line in tags), *(f"^{one}" for one in has)]
        code, _, said = attempted(git, "bundle", "create", "-q", str(target), *wanted, timeout=BULK)
    finally:
        git.update_refs(f"delete {ref}" for ref in refs)
    if code and "empty bundle" not in said:
        raise Broken(f"git bundle failed: {text.one_line(said, 200)}")
    return None if code else target


def _file_of(run: Run, attempt: Attempt) -> Path:
    """Where the bundles of this worker lie for a moment."""
    return run.paths.private / f"launch-{attempt.worker}.bundle"


def _save_log(run: Run, attempt: Attempt, message: Mapping[str, Any]) -> None:
    """A part of a log that grows elsewhere, put where people and a recovery look for it."""
    name, at = str(message["name"]), int(message["at"])
    if not (_LOG_NAME.fullmatch(name) and name.startswith(f"{attempt.name}")) or at < 0:
        raise Broken(f"it tells of a log that is none of its own: {name[:60]!r}")
    path, data = run.paths.scratch / name, base64.b64decode(message["data"])
    if at == 0:
        files.clear(path)
        if len(list(run.paths.scratch.glob(f"{attempt.name}*"))) > _MOST_LOGS:
            raise Broken("it tells of too many logs")
    with path.open("ab") as out:
        if out.tell() + len(data) > _LOGS:
            raise Broken("its logs are too long")
        out.write(data)


def _taken(run: Run, attempt: Attempt, message: Mapping[str, Any], bundle: Path) -> str:
    """The one commit that a worker answered with, once git has it; nothing where there is none. Broken if it
    is anything but one commit on the attempt's base, or, where a candidate was checked, on the tip."""
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
        if parents != [attempt.tip if attempt.commit else attempt.base]:
            raise Broken("its commit is not on the commit that it was given")
        return commit
    finally:
        files.clear(bundle)


def verify_elsewhere(run: Run, attempt: Attempt) -> dict[str, Any]:
    """Let the candidate be checked behind the launch prefix; as `candidate.verify` tells it."""
    longest = sum(check.timeout for check in (*run.plan.checks, *attempt.task.checks))
    seconds = longest * 4 + SETUP_TIMEOUT + _SLACK
    told, commit = _ask(run, str(run.options.launch_checks), attempt, {"kind": "verify"}, seconds)
    with _believed():
        checks = [made(CheckResult, check) for check in told["checks"]]
        notices, message = _lines(told["notices"]), str(told["message"])[:65536]
    tree = attempt.tree
    if commit:
        left, tree = _protected(run, attempt, attempt.tip, commit)
        if left != tree:
            raise WorkerDied("the checks elsewhere answered with a commit that changes protected files")
    return {
        "checks": [check.as_dict() for check in checks],
        "notices": notices,
        "ignored": attempt.ignored,
        "commit": commit or attempt.commit,
        "tree": tree,
        "message": message if commit else attempt.message,
    }


def checks_elsewhere(
    run: Run, commit: str, checks: list[Check], name: str, room: str, label: str
) -> tuple[list[CheckResult], list[str]]:
    """Run checks on a commit elsewhere, in the room of this name: their results, and notices."""
    stand_in = Attempt(run.plan.tasks[0], 0, 0, worker=0, base=commit)
    what = {"kind": "checks", "commit": commit, "checks": [asdict(check) for check in checks]}
    what |= {"name": name, "room": room, "label": label}
    seconds = sum(check.timeout for check in checks) + SETUP_TIMEOUT + _SLACK
    told, _ = _ask(run, str(run.options.launch_checks), stand_in, what, seconds)
    with _believed():
        return [made(CheckResult, check) for check in told["checks"]], _lines(told["notices"])
