"""`ralph worker`: does one job from stdin on this machine, and sends events and the result to stdout. It
keeps a copy of the repository and its places here, and ends with its stdin, with all that it started."""

from __future__ import annotations

import base64
import contextlib
import os
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _ralph import __version__, files
from _ralph.agents import registry
from _ralph.errors import BadInput, RalphError, translate
from _ralph.git.git import BULK, Git, attempted, freeze_settings, git
from _ralph.loop.attempt import work_here
from _ralph.loop.candidate import checking, ignored_by
from _ralph.loop.jobs import Attempt, CheckJob, Worked
from _ralph.loop.opening import glance, open_sandbox
from _ralph.loop.run import Options, Run, with_checks
from _ralph.loop.view import Reporter
from _ralph.loop.wire import BEAT, PROTOCOL, Broken, Wire
from _ralph.loop.worker import Job
from _ralph.model import Check, Json, Share
from _ralph.process import process
from _ralph.process.mark import become_subreaper
from _ralph.process.process import Control
from _ralph.state import layout, lock
from _ralph.state.records import as_json

_PATIENCE = 120.0
_LOG = 1 << 20  # bytes of a log in one message
_LOGS = 16 << 20
ANSWER = "refs/ralph/answer"
_KNOWN = "refs/ralph/known"


def serve() -> int:
    """Do one job; the exit status. Errors are sent to the loop."""
    become_subreaper()
    wire = Wire(0, os.dup(1), Control())
    os.dup2(2, 1)  # nothing else may print into the messages
    os.set_blocking(wire.write, False)
    try:
        wire.send({"event": "hello", "ralph": __version__, "protocol": PROTOCOL})
        asked = wire.message(_PATIENCE)
        try:
            _serve(asked, wire)
        except Broken:
            raise
        except Exception as error:
            failed = translate(error)
            wire.send({"event": "error", "said": str(failed), "exit": int(failed.exit)})
    except Broken as error:
        print(f"ralph worker: {error}", file=sys.stderr)
        return 1
    return 0


def _serve(asked: Json, wire: Wire) -> None:
    """Prepare the copy of the repository, and do the job in it, under its lock."""
    cache = layout.places_folder() / "worker" / str(asked["project"]).replace("/", "-")
    os.environ["RALPH_PLACES"] = str(cache / "places")
    home = cache / "home"
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not home.is_dir():  # it is whole as soon as it is there, whenever this is killed
        new = files.clear(cache / "new")
        new.mkdir()
        git(new, "init", "-q", f"--object-format={asked.get('objects', 'sha1')}")
        new.rename(home)
    copy = Git.at(home)
    (home / str(asked["prd"])).parent.mkdir(parents=True, exist_ok=True)
    with lock.alone(layout.locate(home / str(asked["prd"])), "worker") as run_id:
        for left in (*copy.common.glob("*.lock"), *copy.common.glob("refs/**/*.lock")):
            files.clear(left)  # of a git call that was killed: it would fail every job from now on
        known = copy("for-each-ref", "--format=%(objectname)", _KNOWN, "refs/tags", check=False).split()
        wire.send({"event": "has", "commits": known})
        job = wire.message(_PATIENCE)
        bundle = wire.file(job, cache / "job.bundle", 3600.0)
        try:
            if job["file"]:
                copy("bundle", "unbundle", str(bundle), timeout=BULK)
            files.clear(bundle)
            _lay_out(job, copy)
            _do(job, _run_of(job, copy, run_id, wire), wire, cache)
        except RalphError as error:
            if type(error) is RalphError:  # git failed: perhaps at what a power cut left of the copy
                files.clear(home)
            raise


def _lay_out(job: Json, copy: Git) -> None:
    """Write the files and refs of home that this job needs: plan, notes, git's settings, hooks, commits."""
    hooks = files.clear(copy.common / "hooks")
    for name, data in job["files"].items():
        path = copy.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        files.clear(path).write_bytes(base64.b64decode(data))
        if path.parent == hooks:
            path.chmod(0o700)
    refs = {f"refs/heads/{job['branch']}": job["base"], **job["refs"]}
    old = set(copy("for-each-ref", "--format=%(refname)", _KNOWN).split()) - set(refs)
    lines = [*(f"update {ref} {one}" for ref, one in refs.items()), *(f"delete {ref}" for ref in old)]
    copy.update_refs(lines)
    copy("symbolic-ref", "HEAD", "refs/heads/none")


def _run_of(job: Json, copy: Git, run_id: str, wire: Wire) -> Run:
    """A run as the loop has it, on the copy. It is orphaned when stdin ends."""
    control = Control(alive=0)
    control.install()
    given = {**job["options"], "prd": copy.root / job["prd"], "branch": job["branch"]}
    if given["prompt"]:
        given["prompt"] = copy.root / given["prompt"]
    view = Reporter(wire.send, stays=job["stays"], verbose=given["verbose"])
    options = Options(**given)
    paths, plan, history = layout.read_state(options.prd)  # which the loop has validated
    run = glance(options, paths, with_checks(plan, options), history)
    run = replace(run, control=control, view=view, run_id=run_id)
    freeze_settings(run.git, run.paths.private)
    hooks = job["hooks"] or str(copy.common / "hooks")
    run.gear = replace(run.site.gear, carried=list(job["carries"]), hooks=hooks)
    open_sandbox(run)
    return run


@dataclass
class _Logs:
    """Sends the logs of a job as they grow, and now and then a sign of life, as a machine can vanish
    silently."""

    folder: Path
    name: str
    wire: Wire
    sent: dict[str, int] = field(default_factory=dict)
    beat: float = 0.0

    def send(self) -> None:
        for path in sorted(self.folder.glob(f"{self.name}*")):
            at = self.sent.get(path.name, 0)
            while at < _LOGS and (data := _part(path, at)):
                said = base64.b64encode(data).decode()
                self.wire.send({"event": "log", "name": path.name, "at": at, "data": said})
                at += len(data)
            self.sent[path.name] = at
        if time.monotonic() - self.beat > BEAT:
            self.beat = time.monotonic()
            self.wire.send({"event": "alive"})


def _part(path: Path, at: int) -> bytes:
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(at)
        return file.read(_LOG)
    return b""


def _do(job: Json, run: Run, wire: Wire, cache: Path) -> None:
    """Do the job in a process of its own, and answer. If the loop is gone, end everything at once."""
    begun: Job[Any]
    if job["kind"] == "attempt":
        attempt = _attempt_of(job["attempt"], run)
        name, commit_of = attempt.name, "left"
        begun = run.in_worker(lambda inside: _attempt(inside, attempt), Worked)
    elif job["kind"] == "checks":
        checks = [Check(**one) for one in job["checks"]["checks"]]
        given = CheckJob(**{**job["checks"], "checks": checks})
        name, commit_of = given.name, "commit"
        begun = checking(run, given)
    else:
        raise BadInput(f"unknown kind of job: {job['kind']!r}")
    logs = _Logs(run.paths.scratch, name, wire)
    run.control.on_tick = logs.send
    while not begun.ready:
        try:
            run.pool.serve(run.control, 1.0)
        except Broken:
            run.control.orphaned = True
        if run.control.orphaned:
            process.sweep(0.0)
            raise Broken("the loop is gone")
    value = begun.value
    logs.send()
    commit, bundle = getattr(value, commit_of), cache / "answer.bundle"
    known = [job["base"], *job["refs"].values()]
    if commit and commit not in known:
        run.git("update-ref", ANSWER, commit)
        since = [f"^{one}" for one in known]
        attempted(run.git, "bundle", "create", "-q", str(bundle), ANSWER, *since, timeout=BULK)
    wire.send(
        {"event": "done", "value": as_json(value), "commit": commit}, bundle if bundle.exists() else None
    )
    files.clear(bundle)


def _attempt_of(given: Json, run: Run) -> Attempt:
    """The attempt of a job."""
    task, left = run.plan.task(given["task"]), given["left"] and run.git.tree(given["left"])
    agent, share = run.named(given["agent"]), Share(**given["share"])
    return Attempt(**{**given, "task": task, "left": left, "agent": agent, "share": share})


def _attempt(run: Run, attempt: Attempt) -> Worked:
    """Run the agent; what it left, as a commit on its base."""
    registry.require(attempt.agent)
    found = work_here(run, attempt)
    attempt.began = found.began
    found.ignored = ignored_by(run, attempt)
    if found.left:
        words = ("commit-tree", found.left, "-p", attempt.base, "-m", "ralph: what an agent left")
        found.left = run.git(*words).strip()
    return found
