"""`ralph plan`: an agent that only reads writes the plan, from a brief or a list of
tasks in any form. Its answer must fit the schema, and its checks are tried as `doctor`
tries them."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from _ralph import files, text
from _ralph.agents.prompt import render_prompt, rules_of
from _ralph.checks.judge import json_objects
from _ralph.checks.opening import open_prefix, require_agent
from _ralph.checks.view import View
from _ralph.commands.init import next_steps, write_starters
from _ralph.commands.run import with_loop
from _ralph.errors import (
    AgentUnavailable,
    BadInput,
    Exit,
    NeedsPerson,
    RalphError,
    SetupFailed,
    TryLater,
)
from _ralph.files import resource
from _ralph.git.git import freeze_settings
from _ralph.loop.loop import Loop
from _ralph.loop.opening import trial
from _ralph.loop.roles import run_role
from _ralph.model import AgentResult, Json, Outcome, Plan, Share, spent_on
from _ralph.state import edit, jsontext, layout, limits, prd
from _ralph.state.history import RunHistory
from _ralph.state.log import Log
from _ralph.state.options import Options, is_starter
from _ralph.state.records import Added
from _ralph.state.summary import spent

LARGEST = 256 * 1024
"""Characters of a whole brief, some 64,000 tokens: more fills a planner's context before it
has seen the code."""
_ANSWER = 64 * 1024
TASK_KEYS = (
    "id", "title", "description", "acceptanceCriteria", "priority", "dependsOn", "checks", "allow", "notes",
)  # fmt: skip
"""What a planner may say of a task; not whether it passes, nor which agent works it."""


def plan_from(named: Sequence[str], options: Options, force: bool) -> int:
    """`ralph plan`: let an agent write the plan from these files or standard input; the
    exit status."""
    brief = read_brief(named)
    layout.locate(options.prd)
    if not options.prd.exists() and not prd.plan_above(options.prd):
        click.echo("\n".join(write_starters(options.prd)))

    def work(loop: Loop) -> int:
        loop.view.lines(loop.log.close_torn_record())
        layout.note_plan(loop.paths)
        if not force:
            _require_finished(loop)
        _make_ready(loop)
        _make_plan(loop, brief, text.one_line(text.few(named), 160))
        return _show_plan(loop)

    return with_loop(options, "plan", work)


# ---------------------------------------------------------------- the brief


def read_brief(named: Sequence[str]) -> dict[str, str]:
    """The texts of these files, and of standard input (`-`), by name. BadInput for what
    cannot be read, and if all of it is empty or too large."""
    found: dict[str, str] = {}
    for name in named:
        try:
            data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
            words = text.clean(data.decode("utf-8")).strip()
        except (OSError, ValueError) as error:
            raise BadInput(f"{name} cannot be read: {error}") from None
        if words:
            found[name] = words
    if not found:
        empty = f"the brief {text.few(named)} is empty"
        raise BadInput(f"{empty}; describe what to build, and why")
    if sum(map(len, found.values())) > LARGEST:
        most = f"the brief is larger than {LARGEST // 1024} KB"
        raise BadInput(f"{most}, too much for one session; give it the next part")
    return found


# ---------------------------------------------------------------- the planning


def _require_finished(loop: Loop) -> None:
    """BadInput if the plan that stands there is not done with: tasks are open, but for
    those of a planner that waits for answers, or HEAD lacks its work."""
    plan = loop.plan
    asks = prd.open_questions(plan) and not loop.history.iteration
    if is_starter(plan) or asks:
        return
    name = loop.paths.prd.name
    force = f"--force replaces the plan, and keeps this {name}"
    count = sum(not task.passed for task in plan.tasks)
    if count:
        open = text.count(count, "open task")
        raise BadInput(f"{name} has {open}; `ralph add` adds to them; {force}")
    if loop.branch.is_ahead:
        lands = "`ralph land` merges it"
        raise BadInput(f"HEAD lacks the work on {loop.branch.name}; {lands}; {force}")


def _make_ready(loop: Loop) -> None:
    """Everything that the planner needs. RalphError if it cannot work or be paid."""
    freeze_settings(loop.git, loop.paths.private)
    # what a run has used is no limit of the planner
    loop.history.this_run = RunHistory()
    stop = limits.spent(loop.limits, loop.history, 0.0, time.time())
    if stop:
        raise NeedsPerson(stop.reason)
    require_agent(loop.settings, loop.places, loop.agents.planner)
    loop.view.lines(open_prefix(loop.places))


def _make_plan(loop: Loop, brief: Mapping[str, str], source: str) -> None:
    """Let the planner write prd.json from `brief`. RalphError if its answers cannot be
    used; then only the record of what they cost is new."""
    results: list[AgentResult] = []
    red: list[str] = []
    loop.view.line(f"planning with {loop.agents.planner.command}", color="cyan")
    try:
        message = _ask(loop, brief, results, red)
        plan = edit.apply(loop.plan, lambda now: _replaced(loop, now, message))
        plan = edit.apply(plan, lambda now: _may_be_red(now, red))
        loop.use(replace(loop.settings, plan=plan))
    except RalphError:
        if any(result.usd or result.tokens.total for result in results):
            _note(loop, f"no plan was made from {source}", results)
        raise
    loop.log = Log(loop.paths.progress, loop.plan)
    loop.log.read()
    tasks = text.count(len(loop.plan.tasks), "task")
    _note(loop, f"{tasks} planned from {source}", results)


def _ask(
    loop: Loop, brief: Mapping[str, str], results: list[AgentResult], red: list[str]
) -> str:
    """Ask the planner, once more if something is wrong with its answer; its last
    message. `results` gets what each turn cost, `red` the checks that the plan is to
    mend. RalphError if that message holds no plan."""
    values: Json = {**_values(loop), "brief": brief, "wrong": [], "answer": ""}
    for name in ("plan", "plan-again"):
        message = _turn(loop, values, name, results)
        usable = True
        try:
            wrong = _try_checks(loop, _read_answer(loop, loop.plan, message), red)
        except BadInput as error:
            usable = False
            wrong = [f"the plan cannot be used: {error}"]
        loop.view.doing("")
        if not wrong:
            break
        loop.view.lines(wrong)
        values["wrong"] = wrong
        values["answer"] = text.clean(text.tail(message, _ANSWER))
    if not usable:
        out = loop.paths.logs / "plan-again.out"
        raise RalphError(
            f"the planner wrote no usable plan, twice; its last output is in {out}"
        )
    return message


def _turn(loop: Loop, values: Json, name: str, results: list[AgentResult]) -> str:
    """One turn of the planner, in a checkout of its own of what the first attempt will
    see; its last message. RalphError if it did not come to its end."""
    loop.view.doing("planning")
    prompt = render_prompt(resource("templates/plan.md"), values)
    share = limits.share(loop.limits, loop.history, [], 1) or Share()
    share = share.without(spent_on(results))
    place = loop.places.of_role(loop.branch.beginning())
    env = loop.places.env(place.root)
    planner = loop.agents.planner
    result = run_role(loop, planner, prompt, name, env, share, place.root)
    results.append(result)
    if result.outcome is not Outcome.DONE:
        kinds = {Outcome.LIMITED: TryLater, Outcome.UNAVAILABLE: AgentUnavailable}
        kind = kinds.get(result.outcome, RalphError)
        raise kind(f"the planner did not finish ({result.outcome}): {result.reason}")
    if result.no_price:
        raise NeedsPerson(result.no_price)
    return result.text


def _try_checks(loop: Loop, plan: Plan, red: list[str]) -> list[str]:
    """What is wrong with `setup` and the checks of a plan. `red` gets the commands of
    those of the plan that are red for no reason of the place."""
    loop.view.doing("trying the checks, which must be red now")
    shown, loop.places.view = loop.places.view, View()
    try:
        with trial(loop, plan) as tried:
            for _ in [*tried.checks(), *tried.own()]:
                pass  # doctor says them
            for one in tried.guards:
                if one.is_to_be_mended:
                    red.append(one.check.command)
            return tried.no_proofs()
    except SetupFailed as error:
        return [f"{error}; so no check was tried"]
    finally:
        loop.places.view = shown


# ---------------------------------------------------------------- the plan


def _read_answer(loop: Loop, was: Plan, message: str) -> Plan:
    """The plan from the planner's answer: its tasks and description, with what a person
    had written at the top level of the plan that `was`. BadInput with what is wrong."""
    answer: Json = {}
    for found in json_objects(message):
        if isinstance(found.get("userStories"), list):
            answer = found
    if not answer:
        raise BadInput(
            "no JSON object with a list `userStories` was found in the answer"
        )
    top = dict(was.top)
    for key in ("openQuestions", was.list_key or ""):
        top.pop(key, None)
    top.setdefault("project", was.project)
    if answer.get("description"):
        top["description"] = text.clip(str(answer["description"]), 4000)
    top["branchName"] = _branch(loop, was)
    if not was.checks:
        for key in ("setup", "checks"):
            if answer.get(key) and not top.get(key):
                top[key] = answer[key]
    questions = answer.get("questions")
    if questions and isinstance(questions, list):
        top["openQuestions"] = questions
    top["userStories"] = [_own_keys(task) for task in answer["userStories"]]
    plan = prd.read(jsontext.dump(top, "  ") + "\n", was.path)
    prd.validate(plan)
    for task in plan.tasks:
        if not task.criteria:
            raise BadInput(
                f"{task.id} has no acceptanceCriteria; say what must be true when it is done"
            )
        if not (task.checks or loop.agents.judge):
            raise BadInput(
                f"{task.id} has no checks; name one that is red now, and green when it is done"
            )
    return plan


def _branch(loop: Loop, was: Plan) -> str:
    """The branch of the new plan: that of the one that `was`, but for the next feature
    one of its own, so that it begins with a history of its own."""
    name = loop.branch.name
    has_passed = was.tasks and all(task.passed for task in was.tasks)
    if not has_passed or loop.branch.is_ahead:
        return name
    stem, _, number = name.rpartition("-")
    if not number.isdecimal():
        stem, number = name, "1"
    return f"{stem}-{int(number) + 1}"


def _may_be_red(plan: Plan, red: list[str]) -> str:
    """The text of a plan, with those of its checks marked that are `red`."""
    checks = []
    for entry, check in zip(plan.top.get("checks") or [], plan.checks, strict=False):
        if check.command in red:
            entry = entry if isinstance(entry, dict) else {"run": entry}
            entry = {**entry, "startsRed": True}
        checks.append(entry)
    return edit.set_members(plan, {"checks": checks}) if checks else plan.text


def _own_keys(task: object) -> Json:
    """What a planner may say of a task."""
    if not isinstance(task, dict):
        said = text.one_line(str(task), 60)
        raise BadInput(f"userStories: expected task objects, found {said}")
    own = {key: task[key] for key in TASK_KEYS if key in task}
    return {**own, "passes": False}


def _replaced(loop: Loop, now: Plan, message: str) -> str:
    """The text of the new plan, in place of the one that stands there `now`: somebody
    may have edited it while the planner was at work. That is kept, unless its tasks are
    the example."""
    plan = _read_answer(loop, now, message)
    if not is_starter(now):
        data = now.text.encode()
        kept = f"{files.digest(data)[:8]}-{now.path.name}"
        path = loop.paths.private / "aside" / kept
        path.parent.mkdir(parents=True, exist_ok=True)
        files.atomic_write(path, data)
        loop.view.line(f"the old {now.path.name} is kept at {path}")
    return plan.text


def _show_plan(loop: Loop) -> int:
    """Print the plan for a person to approve: the tasks, open questions, and the
    commands that follow; the exit status."""
    asked = prd.open_questions(loop.plan)
    words = {"line": text.one_line, "few": text.few, "count": text.count}
    values = {**words, "plan": loop.plan, "asked": asked, "prd": loop.paths.prd}
    said = render_prompt(resource("templates/planned.txt"), values)
    if asked:
        click.echo(said.rstrip())
        return Exit.PERSON
    click.echo(said + "\n".join(next_steps(loop.options.prd)))
    return Exit.COMPLETE


def _values(loop: Loop) -> Json:
    plan = loop.plan
    done = []
    if not is_starter(plan):
        done = [f"{task.id}: {task.title}" for task in plan.tasks if task.passed]
    return {
        "checks": [check.command for check in plan.checks],
        "protect": list(plan.settings.get("protect", [])),
        "done": done[-100:],
        "prd": loop.paths.prd.name,
        "rulebook": text.clip(text.clean(rules_of(loop.paths.rulebook)), 6000),
    }


def _note(loop: Loop, what: str, results: list[AgentResult]) -> None:
    """Record what it cost, which counts toward the plan's budget."""
    took = spent_on(results)
    loop.view.line(f"{what} | {spent(took)}", color="green")
    planner = text.one_line(loop.agents.planner.command, 80)
    lines = [f"- planner: {planner}, {spent(took)}"]
    with loop.plan_locked():
        loop.write(Added(**vars(took)), what, lines)
