"""`ralph plan`: an agent that only reads writes the plan, from a brief or a list of
tasks in any form. Its answer must fit the schema, and the clean room says what its
checks are worth."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import click

from _ralph import files, text
from _ralph.agents import sums
from _ralph.agents.prompt import render_prompt, rules_of
from _ralph.commands.doctor import no_proofs
from _ralph.commands.init import next_steps, write_starters
from _ralph.commands.run import alone
from _ralph.commands.sources import read_sources
from _ralph.errors import (
    AgentUnavailable,
    BadInput,
    Exit,
    NeedsPerson,
    RalphError,
    TryLater,
)
from _ralph.files import resource
from _ralph.git.git import freeze_settings
from _ralph.loop.behind import require_other_side
from _ralph.loop.checking import retry_if_killed
from _ralph.loop.jobs import CheckJob
from _ralph.loop.opening import end_left, open_prefix, read_run, require_agent
from _ralph.loop.options import Options, is_starter
from _ralph.loop.roles import cut_off, json_objects, place_of_role, run_role
from _ralph.loop.run import Run
from _ralph.loop.setup import red_setup, setup_failed
from _ralph.loop.view import View
from _ralph.loop.worker import WorkerDied
from _ralph.model import AgentResult, Json, Outcome, Plan, Share, spent_on
from _ralph.process.process import Control
from _ralph.show.live import Terminal
from _ralph.state import edit, jsontext, layout, limits, prd
from _ralph.state.facts import spent
from _ralph.state.history import RunHistory, replay
from _ralph.state.layout import new_log
from _ralph.state.records import Added

_ANSWER = 64 * 1024
_LONGEST = 1 << 20
TASK_KEYS = (
    "id", "title", "description", "acceptanceCriteria", "priority", "dependsOn", "checks", "allow", "notes",
)  # fmt: skip
"""What a planner may say of a task; not whether it passes, nor which agent works it."""


@dataclass(frozen=True)
class Answer:
    """A planner's message with a plan that fits the schema; the ids of the tasks that
    are `done`: the brief says so, and their checks are green; and what is `wrong` with
    its checks, a line each."""

    message: str
    done: Collection[str]
    wrong: Sequence[str]


def plan_from(named: Sequence[str], options: Options, force: bool) -> int:
    """`ralph plan`: let an agent write the plan from these files, folders or standard
    input; the exit status."""
    brief = read_sources(named)
    layout.locate(options.prd)
    if not options.prd.exists() and not prd.plan_above(options.prd):
        click.echo("\n".join(write_starters(options.prd)))
    view, source = Terminal(), text.one_line(text.few(named), 160)

    def work(control: Control, run_id: str) -> int:
        return _plan(read_run(options, control, view, run_id), brief, source, force)

    return alone(options, "plan", work, view)


def _plan(run: Run, brief: Mapping[str, str], source: str, force: bool) -> int:
    """The planning, alone on its plan; its exit status."""
    run.notices += run.journal.open()
    layout.note_plan(run.paths)
    freeze_settings(run.git, run.paths.private)
    if not force:
        _may_replace(run)
    run.history.this_run = (
        RunHistory()
    )  # what a run has used is no limit of the planner
    if stop := limits.spent(run.limits, run.history, 0.0, time.time()):
        raise NeedsPerson(stop.reason)
    if run.agents.back_at(run.agents.planner):
        raise TryLater(
            f"the planner cannot run now: {run.agents.away(run.agents.planner).reason}"
        )
    require_agent(run, run.agents.planner)
    open_prefix(run)
    run.view.lines(end_left(run))
    require_other_side(run, run.branch.beginning(), [run.agents.planner])
    run.view.line(f"planning with {run.agents.planner.command}", color="cyan")
    run.view.doing("planning")
    make_plan(run, brief, source)
    run.view.doing("")
    click.echo(in_words(run).rstrip())
    return Exit.PERSON if prd.open_questions(run.plan) else Exit.COMPLETE


def _may_replace(run: Run) -> None:
    """BadInput if prd.json holds something to lose: work, or tasks that a person
    wrote."""
    tasks, history, source = run.plan.tasks, run.history, run.plan.text.encode()
    if history.iteration or not (
        is_starter(run.plan) or files.digest(source) == history.planned
    ):
        done, made = (
            sum(task.passed for task in tasks),
            text.count(history.iteration, "iteration"),
        )
        raise BadInput(
            f"{run.paths.prd.name} holds {text.count(len(tasks), 'task')} already ({done} passed, {made}); "
            f"`ralph add` adds to it; --force replaces it, and keeps the old one in {run.paths.private}/aside"
        )


def make_plan(run: Run, brief: Mapping[str, str], source: str) -> None:
    """Let the planner write prd.json from `brief`, with a second try if the first
    cannot be used. RalphError if neither can; then only the record of what it cost is
    new."""
    results: list[AgentResult] = []
    try:
        _ask(run, brief, results)
    except RalphError:
        if any(result.usd or result.tokens.total for result in results):
            _note(run, f"no plan was made from {source}", results)
        raise
    digest, tasks = (
        files.digest(run.plan.text.encode()),
        text.count(len(run.plan.tasks), "task"),
    )
    _note(run, f"{tasks} planned from {source}", results, digest)


def _ask(run: Run, brief: Mapping[str, str], results: list[AgentResult]) -> None:
    """Ask the planner, once more if something is wrong with its answer, and put its
    plan in place; `results` gets what each turn cost."""
    values: Json = {**_values(run), "brief": brief, "wrong": [], "answer": ""}
    answer: Answer | None = None
    for name in ("plan", "plan-again"):
        prompt = render_prompt(resource("templates/plan.md"), values)
        result = _turn(run, prompt, name, results)
        results.append(result)
        if answer and result.outcome is not Outcome.DONE:
            break
        _require_answer(result)
        message = _answer(run, result, name)
        try:
            answer = try_answer(run, message)
            wrong = answer.wrong
        except BadInput as error:
            wrong = [f"the plan cannot be used: {error}"]
        run.view.lines([*wrong])
        if not wrong:
            break
        values |= {
            "wrong": wrong,
            "answer": text.clean(text.tail(result.text, _ANSWER)),
        }
    if answer is None:
        out = run.paths.logs / "plan-again.out"
        raise RalphError(
            f"the planner wrote no usable plan, twice; its last output is in {out}"
        )
    _adopt(run, answer)


def try_answer(run: Run, message: str) -> Answer:
    """What a planner's message is worth: its checks are run in the clean room, behind
    `setup` and the checks of the plan, on the files that the planner has seen. BadInput
    if it holds no plan that fits the schema."""
    before, view = run.plan, run.view
    plan, claimed = read_answer(run, before, message)
    checks = {
        check.command: check
        for check in (*plan.checks, *(c for t in plan.tasks for c in t.checks))
    }
    job = CheckJob(
        commit=run.branch.beginning(), checks=[*checks.values()], name="plan-checks"
    )
    view.doing("trying the checks, which must be red now")
    run.settings.plan = plan
    run.use(run.control, View())
    try:
        checked = run.wait(retry_if_killed(run, job))
    finally:
        run.settings.plan = before
        run.use(run.control, view)
    if red := red_setup(checked):
        untried = f"{setup_failed(red)}; so no check was tried"
        if plan.setup != before.setup:
            return Answer(message, [], [untried])
        view.lines([untried])
        return Answer(message, [], [])
    green = {result.command for result in checked.checks if result.ok}
    done, wrong = [], []
    for task in [task for task in plan.tasks if task.id in claimed]:
        red_ones = [
            check.command for check in task.checks if check.command not in green
        ]
        if task.checks and not red_ones:
            done.append(task.id)
        else:
            why = (
                f"its check is red: {red_ones[0]}"
                if red_ones
                else "it has no check of its own"
            )
            wrong.append(f"{task.id} is done, says the brief, but {why}")
    return Answer(message, done, [*wrong, *no_proofs(_marked(plan, done), green)])


def _marked(plan: Plan, done: Collection[str]) -> Plan:
    """The plan, in which these tasks pass."""
    tasks = [task for task in plan.tasks if task.id in done]
    return prd.read(edit.set_passed(plan, tasks, True), plan.path)


def _turn(run: Run, prompt: str, name: str, before: list[AgentResult]) -> AgentResult:
    """One turn of the planner, in a checkout of its own of what the first attempt will
    see."""
    here = run.branch.beginning()
    share = (limits.share(run.limits, run.history, [], 1) or Share()).without(
        spent_on(before)
    )
    new_log(run.paths, name + sums.SUFFIX)  # clears those of an earlier planner

    def work(inside: Run) -> AgentResult:
        place = place_of_role(inside, here)
        env = inside.places.env(place.root)
        return run_role(
            inside, inside.agents.planner, prompt, name, env, share, place.root
        )

    try:
        return run.wait(run.in_worker(work, AgentResult))
    except WorkerDied as error:
        return cut_off(run, run.agents.planner, name, str(error))


def _answer(run: Run, result: AgentResult, name: str) -> str:
    """The planner's whole message; of a command that prints no events, its whole
    output."""
    if run.agents.planner.streams:
        return result.text[-_LONGEST:]
    printed = files.read_regular(run.paths.logs / f"{name}.out") or b""
    return printed[-_LONGEST:].decode("utf-8", "replace")


def read_answer(run: Run, was: Plan, message: str) -> tuple[Plan, list[str]]:
    """The plan from the planner's answer: its tasks and description, with what a person
    had written at the top level of the plan that `was`; and the ids of the tasks of
    which the brief says that they are done. BadInput with what is wrong."""
    answers = [
        one for one in json_objects(message) if isinstance(one.get("userStories"), list)
    ]
    if not answers:
        raise BadInput(
            "no JSON object with a list `userStories` was found in the answer"
        )
    answer, top = answers[-1], dict(was.top)
    for key in ("openQuestions", was.list_key or ""):
        top.pop(key, None)
    top.setdefault("project", was.project)
    top["description"] = text.clip(str(answer.get("description") or ""), 4000)
    if not was.checks:
        top |= {
            key: answer[key]
            for key in ("setup", "checks")
            if answer.get(key) and not top.get(key)
        }
    questions = answer.get("questions") or []
    if not isinstance(questions, list):
        raise BadInput("questions: expected a list")
    if questions:
        top["openQuestions"] = questions
    tasks = [_own_keys(task) for task in answer["userStories"]]
    plan = prd.read(jsontext.dump({**top, "userStories": tasks}, "  ") + "\n", was.path)
    prd.validate(plan)
    _require_proof(run, plan)
    stories = zip(plan.tasks, answer["userStories"], strict=True)
    return plan, [task.id for task, story in stories if story.get("done") is True]


def in_words(run: Run) -> str:
    """The plan for a person to approve: the tasks, open questions, and the commands
    that follow."""
    asked = prd.open_questions(run.plan)
    words = {"line": text.one_line, "few": text.few, "count": text.count}
    values = {**words, "plan": run.plan, "asked": asked, "prd": run.paths.prd}
    tasks = render_prompt(resource("templates/planned.txt"), values)
    return tasks + "\n".join([] if asked else next_steps(run.options.prd))


def _own_keys(task: object) -> Json:
    if not isinstance(task, dict):
        raise BadInput(
            f"userStories: expected task objects, found {text.one_line(str(task), 60)}"
        )
    return {**{key: task[key] for key in TASK_KEYS if key in task}, "passes": False}


def _require_proof(run: Run, plan: Plan) -> None:
    for task in plan.tasks:
        if not task.criteria:
            raise BadInput(
                f"{task.id} has no acceptanceCriteria; say what must be true when it is done"
            )
        if not (task.checks or run.agents.judge):
            raise BadInput(
                f"{task.id} has no checks; name one that is red now, and green when it is done"
            )


def _values(run: Run) -> Json:
    plan = run.plan
    tasks = (
        []
        if is_starter(plan)
        else [f"{task.id}: {task.title}" for task in plan.tasks if task.passed]
    )
    return {
        "checks": [check.command for check in plan.checks],
        "protect": list(plan.settings.get("protect", [])),
        "done": tasks[-100:],
        "prd": run.paths.prd.name,
        "rulebook": text.clip(text.clean(rules_of(run.paths.rulebook)), 6000),
    }


def _require_answer(result: AgentResult) -> None:
    """The error for a planner that did not come to its end."""
    errors = {Outcome.LIMITED: TryLater, Outcome.UNAVAILABLE: AgentUnavailable}
    if result.outcome is not Outcome.DONE:
        error = errors.get(result.outcome, RalphError)
        raise error(f"the planner did not finish ({result.outcome}): {result.reason}")
    if result.no_price:
        raise NeedsPerson(result.no_price)


def _adopt(run: Run, answer: Answer) -> None:
    """Put the plan of this answer in place of the one that stands there now: somebody
    may have edited it while the planner was at work. That is moved aside, unless its
    tasks are the example."""

    def planned(now: Plan) -> str:
        if not is_starter(now):
            copy = run.paths.private / "replaced"
            files.atomic_write(copy, now.text.encode())
            kept = files.move_aside(
                copy, run.paths.private / "aside", run.paths.prd.name
            )
            run.view.line(f"the old {run.paths.prd.name} is kept at {kept}")
        return _marked(read_answer(run, now, answer.message)[0], answer.done).text

    run.settings.plan = edit.apply(run.plan, planned)
    run.history = replay(run.journal.records(run.plan))


def _note(
    run: Run, what: str, results: list[AgentResult], prd_digest: str = ""
) -> None:
    """Record what it cost, which counts toward the plan's budget."""
    took = spent_on(results)
    run.view.line(f"{what} | {spent(took)}", color="green" if prd_digest else "yellow")
    planner = text.one_line(run.agents.planner.command, 80)
    run.write(
        Added(**vars(took), prd=prd_digest),
        what,
        [f"- planner: {planner}, {spent(took)}"],
    )
