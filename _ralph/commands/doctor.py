"""`ralph doctor`: everything that a run needs, looked at before it begins."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from _ralph import text
from _ralph.agents import registry
from _ralph.agents.registry import Agent
from _ralph.commands import init, probe
from _ralph.commands.options import ENGINES
from _ralph.errors import Exit, RalphError, StopNow, translate
from _ralph.git.git import BULK, freeze_settings
from _ralph.loop import opening
from _ralph.loop.attempt import prepare_workspace
from _ralph.loop.before import cannot_start, trying
from _ralph.loop.behind import require_other_side
from _ralph.loop.candidate import FURTHEST
from _ralph.loop.checking import checking
from _ralph.loop.commit import message_for, try_pre_commit
from _ralph.loop.jobs import Checked, CheckJob
from _ralph.loop.options import Options, load_plan, validated
from _ralph.loop.places import MESSAGE_HOOKS
from _ralph.loop.results import up_to
from _ralph.loop.run import Run
from _ralph.loop.setup import red_setup, setup_failed
from _ralph.loop.view import View
from _ralph.model import CheckResult, Finding, Findings, Json, Plan
from _ralph.process.process import Control, run_process
from _ralph.show.live import Terminal
from _ralph.state import facts, layout, limits, lock, prd
from _ralph.state.history import RunHistory, replay
from _ralph.state.records import Journal

_TEE = "import subprocess_tee, sys; print(subprocess_tee.run(sys.argv[1], tee=False, quiet=True).stdout)"
"""Python that prints what a command does. subprocess-tee has no deadline, so its
process has one."""
_PATIENCE = 30.0
_PERMISSIONS = {
    "plain": ("ok", "your own command; it runs as given, and can do all that you can"),
    "read": ("ok", "read only"),
    "edit": ("ok", "edit; {}"),
    "sandbox": ("ok", "full, inside ralph's sandbox"),
    "full": (
        "warning",
        "full; it can do all that you can, and --sandbox bwrap (on Linux) would limit it",
    ),
}
"""What an agent may do, and whether that is worth a warning."""


def examine(
    options: Options,
    control: Control,
    view: Terminal,
    echo: Callable[[str], object],
    try_agents: bool = False,
) -> int:
    """Print each finding as it is found, what is fine only if `verbose`, then how to go
    on; the exit status. BadInput outside of a repository."""
    run = _look(options, control)
    levels: Counter[str] = Counter()
    fine: list[str] = []
    trouble: set[str] = set()
    for name, part in _parts(run, try_agents):
        view.doing(name)
        for level, line in _caught(part):
            levels[level] += 1
            if level in ("error", "warning"):
                trouble.add(name)
            if level == "ok" and not options.verbose:
                fine.append(name)
            else:
                view.clear()
                echo(_laid_out(level, f"{name}: {line}"))
        if control.stop_now or control.interrupts:
            return 128 + (control.stop_signal or signal.SIGINT)
    view.clear()
    if fine := [name for name in dict.fromkeys(fine) if name not in trouble]:
        echo(_laid_out("ok", f"{', '.join(fine)} (-v says more)"))
    if levels["error"]:
        echo(
            f"\n{text.count(levels['error'], 'error')}; fix that, then run `ralph doctor` again"
        )
        return Exit.USAGE
    echo(
        "\nno errors"
        + (f", {text.count(levels['warning'], 'warning')}" if levels["warning"] else "")
    )
    others = ", ".join(ENGINES[1:])
    echo(f"to start it: {facts.command_line('run', options.prd, options.words)}")
    echo(
        f"every night: {facts.command_line('job cron', options.prd, options.words)} (or {others})"
    )
    return Exit.COMPLETE


def _laid_out(level: str, line: str) -> str:
    """A finding, wrapped beside its level on a terminal."""
    columns = shutil.get_terminal_size((1000, 24)).columns
    lines = [text.one_line(part, 500) for part in line.splitlines() if part.strip()]
    wrapped = (row for part in lines for row in text.wrap(part, max(columns - 8, 40)))
    return f"{level:7} " + "\n        ".join(wrapped)


def _look(options: Options, control: Control) -> Run:
    """A run to look at; where the plan cannot be read, with none."""
    paths = layout.locate(options.prd)
    plan = Plan(paths.prd, "", None, None, (), paths.root.name)
    with contextlib.suppress(RalphError, OSError):
        plan = validated(prd.load(paths.prd), options)
    history = replay(Journal(paths.progress).records(plan))
    return opening.build_run(options, paths, plan, history, control)


def _caught(part: Findings) -> Findings:
    """The findings of one part. An exception in it is an error; the other parts go
    on."""
    try:
        yield from part
    except StopNow:
        return
    except Exception as error:
        yield "error", str(translate(error))


def _parts(run: Run, try_agents: bool) -> Iterator[tuple[str, Findings]]:
    """Everything that is looked at, part by part: what a run requires at its start, and
    what that does not say."""
    yield "plan", _plan(run)
    yield "limits", _limits(run)
    yield "lock", _lock(run)
    yield "agent", _agents(run)
    own = {"git": _git, "python": _python, "sandbox": _sandbox}
    for name, part in opening.PARTS.items():
        yield name, chain(_required(part, run), own[name](run) if name in own else ())
    yield "settings", _settings(run)
    yield "disk", _disk(run)
    yield "places", _places(run)
    if try_agents:
        yield "probe", probe.turns(run, _team(run))


def _required(part: Callable[[Run], list[str]], run: Run) -> Findings:
    """What the opening of a run says about one part."""
    for warning in part(run):
        yield "warning", warning


# ---------------------------------------------------------------- plan, limits, machine


def _plan(run: Run) -> Findings:
    plan = load_plan(run.paths, run.options)
    passed = sum(task.passed for task in plan.tasks)
    yield (
        "ok",
        f"{plan.project}, {passed} of {text.count(len(plan.tasks), 'task')} passed",
    )
    if asked := prd.open_questions(plan):
        open = text.count(len(asked), "open question")
        yield (
            "warning",
            f"{open}, the first: {asked[0][0]}; a run follows the planner's proposals",
        )
    if bare := [task.id for task in plan.tasks if not task.passed and not task.checks]:
        advice = "any change passes them, so add one to each"
        yield "warning", f"no check of their own: {text.few(bare)}; {advice}"
    if run.places.keep and plan.setup and not plan.setup.when:
        anew = "setup has no `when`, so the clean room is made anew for each candidate"
        yield "warning", f"`keep` has no effect: {anew}"
    run.journal.require_file()


def _settings(run: Run) -> Findings:
    """Files that checks may need and no checkout has."""
    if ignored := init.local_settings(run.paths.root):
        unseen = (
            f"git ignores {text.few(ignored)}, so agents and checks do not see them"
        )
        yield (
            "warning",
            f"{unseen}; name in {init.INCLUDE} what they need",
        )


def _python(run: Run) -> Findings:
    """Which Python checks and agents use."""
    if own := registry.own_venv(run.paths.root):
        yield (
            "ok",
            f"setup, checks and agents run without ralph's own virtual environment, {own}",
        )


def _limits(run: Run) -> Findings:
    """What a run could use now, and whether it could begin at all."""
    if run.history.run is None:  # one that was cut off goes on with what it has used
        run.history.this_run = RunHistory()
    yield "ok", facts.limits_words(limits.used(run.limits, run.history), "a run")
    if stop := limits.spent(
        run.limits, run.history, run.history.this_run.seconds, time.time()
    ):
        yield "error" if stop.exit == Exit.PERSON else "warning", stop.reason


def _lock(run: Run) -> Findings:
    if holder := layout.running(run.paths):
        who = f"`ralph {holder.what}` is at work here (pid {holder.pid})"
        yield (
            "warning",
            f"{who}, so setup and checks were not run; `ralph stop` ends a loop",
        )
    else:
        yield "ok", "free"


def _git(run: Run) -> Findings:
    version = ".".join(map(str, opening.version_of(run.git)))
    hooks = run.places.hooks(run.paths.root)
    more = f", commit hooks: {', '.join(hooks)}" if hooks else ""
    yield "ok", f"{version}, verified work lands on {run.branch.name}{more}"
    yield from _warnings(_lacking(run))


def _lacking(run: Run) -> list[str]:
    """A warning of what a partial clone lacks: agents have no remote to fetch it
    from."""
    if not run.git("config", "--get-regexp", r"^remote\..*\.promisor$", check=False):
        return []
    words = ("rev-list", "--objects", "--missing=print", "-n", "100", "HEAD")
    lacks = sum(
        line.startswith("?")
        for line in run.git(*words, check=False, timeout=BULK).splitlines()
    )
    what = f"this is a partial clone; it lacks {text.count(lacks, 'file')} of the last 100 commits"
    return (
        [f"{what}, and agents cannot fetch them: git fetch --refetch --no-filter"]
        if lacks
        else []
    )


def _warnings(lines: Iterable[str]) -> Findings:
    return [("warning", line) for line in lines]


def _sandbox(run: Run) -> Findings:
    if run.places.prefix:
        open = (
            "" if run.plan.settings.get("network") is False else "; the network is open"
        )
        left = (
            "; without `end`, what a killed run left there may stay"
            if not run.settings.wrap[1]
            else ""
        )
        more = open if run.options.sandbox else left
        yield (
            "ok",
            f"setup, agents, hooks and checks run behind {run.places.prefix}{more}",
        )
        return
    fails = ""
    try:
        with opening.sandbox(run).started(run.paths.root, None) as wrap:
            argv, root = wrap(["true"], {}), run.paths.root
            tried = run_process(
                argv, cwd=root, env=os.environ, timeout=_PATIENCE, control=run.control
            )
        if tried.ended != "itself" or tried.exit:
            fails = (
                text.last_line(tried.tail)
                or f"bwrap did not start `true` within {_PATIENCE:g} s"
            )
    except RalphError as error:
        fails = str(error)
    yield (
        "ok",
        f"off, and not possible here: {fails}"
        if fails
        else "off; --sandbox bwrap would work here",
    )


def _disk(run: Run) -> Findings:
    free = shutil.disk_usage(run.paths.root).free / 1e9
    advice = "; make room, a run stops when the disk is full" if free < 1 else ""
    yield "warning" if advice else "ok", f"{free:.1f} GB free{advice}"
    for folder in (run.paths.root, run.paths.prd.parent):
        if not os.access(folder, os.W_OK):
            yield "error", f"{folder} is read-only, and ralph must write there"


# ---------------------------------------------------------------- the places


def _places(run: Run) -> Findings:
    """Setup in every place, and every check in the clean room, as a run does them."""
    if layout.running(run.paths) or (run.options.sandbox and not run.places.prefix):
        return  # they would disturb the loop, or run outside the sandbox
    yield "trying", "setup and every check, as a run would; that can take minutes"
    own = [check for task in run.plan.tasks if not task.passed for check in task.checks]
    checks = {check.command: check for check in (*run.plan.every_check, *own)}
    commit, setup = run.branch.beginning(), run.plan.setup
    job = CheckJob(commit=commit, checks=list(checks.values()), name="doctor")
    heard = _Setups()
    run.use(run.control, heard)
    with lock.alone(run.paths, "doctor") as run.run_id:
        layout.note_plan(run.paths)
        freeze_settings(run.git, run.paths.private)
        left = opening.end_left(run)
        there = (
            require_other_side(run, commit, _team(run))
            if run.places.prefix
            else set[str]()
        )
        checked = run.wait(checking(run, job))
        red, hooks, suites = red_setup(checked), list[Finding](), list[Finding]()
        if not red:
            suites, hooks = _suites(run, job, checked.checks), _hooks(run, commit)
            made = run.wait(
                run.in_worker(lambda inside: _workspaces(inside, commit), Checked)
            )
            red = red_setup(made)
    if red:
        yield "error", setup_failed(red)
        return
    if setup and (shared := opening.shared_python(run, run.paths.room)):
        yield "error", shared
    more = f" to work-{run.settings.jobs}" if run.settings.jobs > 1 else ""
    green = f"; setup is green there{heard.words}" if setup else ""
    yield (
        "ok",
        f"agents work in {run.paths.workspace()}{more}, checks run in {run.paths.room}{green}",
    )
    if setup and not setup.when and heard.seconds >= 1:
        yield "now", _slow(heard.seconds)
    for result in checked.checks:
        yield _judged(run, result)
    yield from suites
    yield from _warnings(
        no_proofs(run.plan, {result.command for result in checked.checks if result.ok})
    )
    if checked.checks:
        green = text.count(len(checked.checks) - len(checked.red), "check")
        names = [result.name for result in checked.red]
        yield (
            "now",
            f"{green} green"
            + (f", {len(names)} red: {text.few(names)}" if names else ""),
        )
    yield from hooks
    for agent in [] if run.places.here else _team(run):
        yield from _billed(run, agent, *registry.billed(agent, there))
    yield from _warnings([*left, *checked.notices])


def _suites(run: Run, job: CheckJob, results: list[CheckResult]) -> list[Finding]:
    """What single tests of the plan's checks did before the work: on this commit or,
    where a suite does not run, on the newest ancestor where it does, as that says what
    must stay green."""
    wanted, findings = (
        {check.command for check in run.plan.checks if check.results},
        list[Finding](),
    )
    for result in [one for one in results if one.command in wanted]:
        found, at = result, job.commit
        for commit in (
            []
            if result.is_sound or result.exit == 0
            else run.branch.ancestors(at, FURTHEST)
        ):
            earlier = replace(
                job,
                commit=commit,
                checks=up_to(job.checks, [result]),
                name="doctor-earlier",
            )
            checked = run.wait(checking(run, earlier))
            found = next(
                (one for one in checked.checks if one.command == result.command), result
            )
            if found.is_sound:
                at = commit
                break
        if found.is_sound:
            findings.append(
                ("now", f"{result.name}: {found.said} before the work, at {at[:12]}")
            )
    return findings


def _hooks(run: Run, commit: str) -> list[Finding]:
    """What the commit hooks say before any work, of the message of each open task and
    with nothing staged."""
    findings: list[Finding] = []
    if run.places.hooked(MESSAGE_HOOKS):
        messages = [
            (task, message_for(run, task, 1, 1))
            for task in run.plan.tasks
            if not task.passed
        ]
        refused = run.wait(trying(run, commit, messages)).refused
        findings += [("error", refused)] if refused else []
    if run.places.hooked(["pre-commit"]):
        for red in run.wait(
            run.in_worker(lambda inside: try_pre_commit(inside, commit), Checked)
        ).red:
            why = f"{red.outcome}, with nothing staged: {text.last_line(red.tail)}"
            findings.append(("warning", f"the hook pre-commit {why}"))
    return findings


class _Setups(View):
    """Notes how long `setup` takes, where it runs."""

    seconds = 0.0

    def hear(self, event: Json, _worker: int = 0) -> None:
        if event["name"] == "check" and event["args"][0]["name"] == "setup":
            self.seconds = max(self.seconds, event["args"][0]["seconds"])

    @property
    def words(self) -> str:
        return f" ({self.seconds:.1f} s)" if self.seconds else ""


def _slow(seconds: float) -> str:
    """What would make a setup without `when` run less often."""
    slow = f"setup takes {seconds:.1f} s, and runs again for each attempt and each candidate"
    return f"{slow}; if it depends on a few files alone, name them in its `when`"


def no_proofs(plan: Plan, green: Collection[str]) -> list[str]:
    """Warnings of tasks whose own checks are all green before the work."""
    reasons: dict[str, list[str]] = {}
    for task in plan.tasks:
        commands = [check.command for check in task.checks]
        if commands and not task.passed and {*commands} <= {*green}:
            reasons.setdefault(
                next(filter(None, map(_always_green, commands)), ""), []
            ).append(task.id)
    return [
        f"{ids[0]}: its own check is green already, so it proves nothing{why}"
        if len(ids) == 1
        else f"{text.few(ids)}: their own checks are green already, so they prove nothing{why}"
        for why, ids in reasons.items()
    ]


def _always_green(command: str) -> str:
    """Why a command is green whatever it finds, as far as its text shows."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", command)
    if excuse := re.search(r"(\|\||;)\s*(true|:|exit 0)\s*$", bare):
        return f": `{excuse[0].strip()}` makes it green whatever happens"
    piped = re.search(r"[^|]\|[^|]+$", bare) and "pipefail" not in bare
    return ": the exit status of a pipe is its last command's" if piped else ""


def _workspaces(run: Run, commit: str) -> Checked:
    """Make the workspaces, if no cut-off run left work there: the first `setup` that is
    red, if any."""
    for worker in [] if run.history.open_starts else range(1, run.settings.jobs + 1):
        place = run.places.workspace(worker)
        if red := prepare_workspace(run, place, run.git.tree(commit), commit, "doctor"):
            return Checked(checks=[red])
    return Checked()


def _judged(run: Run, result: CheckResult) -> Finding:
    """What the result of a check means before any work. One that lacks a program, or a
    module that `setup` would install, says nothing about the work; any other module may
    be what a task is to make."""
    state = f"check {result.name}: {'green' if result.ok else 'red'} now ({result.seconds:.1f} s)"
    if result.ok:
        return "ok", state
    why = result.said or text.last_line(result.tail)
    lacks = f"check {result.name} cannot run here: {why}"
    if os.environ.get("VIRTUAL_ENV") != run.places.env(run.paths.room).get(
        "VIRTUAL_ENV"
    ):
        lacks += " (checks run without ralph's own virtual environment)"
    for_all = result.command in {check.command for check in run.plan.checks}
    if result.missing:
        return "error" if for_all else "warning", cannot_start(result)
    if result.exit in (126, 127) and for_all:
        return (
            "error",
            f"{lacks}; a program is missing: install it, or let `setup` do it",
        )
    if not for_all or (result.is_sound and result.tests):
        return "ok", f"{state}: {why}"
    return (
        "warning",
        f"{state}: {why}; it blocks no task, but passes beside it are weak, and runs end with 4",
    )


# ---------------------------------------------------------------- agents


def _team(run: Run) -> list[Agent]:
    """Every agent that the tasks may need, and the judge."""
    workers = run.agents.workers or [run.agents.named(run.agents.ladder()[0])]
    return [agent for agent in (*workers, run.agents.judge) if agent]


def _agents(run: Run) -> Findings:
    for agent in _team(run):
        yield from _caught(chain(_agent(run, agent), _permissions(run, agent)))


def _agent(run: Run, agent: Agent) -> Findings:
    yield from _warnings(opening.require_agent(run, agent))
    named = [
        Path(word).name for word in agent.words if Path(word).name in run.agents.rows
    ]
    if agent.name == "plain" and named:
        unseen = (
            f"of {agent.command} ralph sees the exit status alone, no limit and no cost"
        )
        yield (
            "warning",
            f"{unseen}: {named[0]} is not its first word (`env NAME=VALUE` may precede it)",
        )
    if run.places.here:
        yield (
            "ok",
            f"{agent.command} at {shutil.which(agent.program)}{_version(run, agent)}",
        )
        yield from _billed(run, agent, *registry.credentials(agent, os.environ))


def _billed(run: Run, agent: Agent, key: str | None, login: str | None) -> Findings:
    """Who pays, with the name of a key or of a login that an agent has."""
    units = [
        unit for unit in ("dollars", "tokens") if unit in agent.row.get("reports", [])
    ]
    if key and login:
        yield (
            "warning",
            f"{key} is billed instead of the subscription ({login}); unset it to use the subscription",
        )
    elif key:
        yield "ok", f"{key} is set and is billed"
    elif login:
        yield "ok", f"logged in ({login}), and no key in the environment overrides it"
    elif agent.row.get("keys"):
        wanted = registry.known_credentials(agent)
        yield (
            "warning",
            f"no login found ({wanted}); log in, unless it has one elsewhere",
        )
    if key and units and not (run.limits.in_dollars or run.limits.in_tokens):
        option = "--max-usd" if "dollars" in units else "--max-tokens"
        yield (
            "warning",
            f"nothing limits what {key} is billed; set {option}, or a budget in the plan",
        )


def _version(run: Run, agent: Agent) -> str:
    if not agent.row.get("version"):
        return ""
    words = shlex.join([agent.program, *agent.row["version"][1:]])
    # Behind a pipe of its own: what it leaves running cannot hold ours.
    command = f"{words} < /dev/null 2> /dev/null | head -n 1"
    argv = [sys.executable, "-P", "-c", _TEE, command]
    said = run_process(
        argv, cwd=run.paths.root, env=os.environ, timeout=_PATIENCE, control=run.control
    )
    return ", " + text.one_line(
        (said.tail if said.exit == 0 else "").strip() or "no version", 60
    )


def _permissions(run: Run, agent: Agent) -> Findings:
    loose = set(agent.words) & set(agent.row["permissions"].get("full", []))
    if agent.permissions != "full" and loose:
        yield (
            "warning",
            f"{' '.join(loose)} gives it full permissions; use --full-permissions instead",
        )
    if agent.name in run.plan.settings.get("agents", {}):
        yield (
            "warning",
            f"the plan itself defines it; read what it runs: {shlex.join(agent.row['argv'])}",
        )
        return
    level, means = _PERMISSIONS["plain" if agent.name == "plain" else agent.permissions]
    own = agent.row.get("edit_means", "it works in this folder, inside its own sandbox")
    yield level, f"permissions: {means.format(own)}"
    needed = agent.row.get("root_needs") if agent.permissions == "full" else None
    if needed and os.geteuid() == 0 and os.environ.get(needed) != "1":
        yield (
            "error",
            f"as root, {agent.name} refuses full permissions without {needed}=1",
        )
