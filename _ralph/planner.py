"""New tasks: in a person's own words, from a file, or from a brief by the planner, a role that only
reads. What a stranger wrote is held against the schema before it becomes the plan."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from _ralph import files, inbox, place, prd, text
from _ralph.attempt import write
from _ralph.model import (
    AgentResult,
    AgentUnavailable,
    BadInput,
    Outcome,
    Paths,
    Plan,
    RalphError,
    Task,
    TryLater,
)
from _ralph.night import add_tasks
from _ralph.progress import replay
from _ralph.prompt import render_prompt, resource
from _ralph.roles import json_objects, run_role
from _ralph.session import Options, Run, acquire, is_starter, peek
from _ralph.setup import next_steps
from _ralph.views import spent_words

_BRIEF, _ANSWER = 24 * 1024, 12 * 1024
_LARGEST = 16 << 20
TASK_KEYS = (
    "id", "title", "description", "acceptanceCriteria", "priority", "dependsOn", "checks", "allow", "notes",
)  # fmt: skip
"""What a planner may say of a task; that one is done, or which agent works it, is not for it to say."""


def add_to_plan(prd_path: Path, use_git: bool, what: str, given: dict[str, Any]) -> list[str]:
    """Add one task with the title `what`, or those of the JSON file `what` (`-` is stdin); `given` is
    what else was said of it. While a loop runs, they wait in its inbox. What was done, in lines."""
    entries = _entries(what, given)
    paths, plan, history = place.read_state(prd_path, use_git)
    place.stay_on_branch(paths, plan, history, use_git)
    there = {task.id for task in plan.tasks}
    said = [
        f"{entry['id']} is there already, and stays as it is"
        for entry in entries
        if str(entry.get("id")) in there
    ]
    entries = [entry for entry in entries if str(entry.get("id")) not in there]
    when = ""
    if entries and place.running(paths):
        when, tasks = ": the running loop takes it after its attempt", _with_ids(paths, plan, entries)
        inbox.leave(paths, {"event": "add", "tasks": [task.raw for task in tasks]})
    else:
        lock = acquire(paths)
        tasks = add_tasks(peek(Options(prd_path, git=use_git), writing=True), entries)
        lock.release()
    for task in tasks:
        weak = "" if task.checks else "; no check of its own proves it (--check)"
        said.append(text.clean(f"added {task.id}: {task.title}{when}{weak}"))
    return said


def _entries(what: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    path = Path(what)
    if what == "-" or path.is_file() or path.suffix == ".json":
        if given:
            raise BadInput(f"{what} is a file of tasks; what they are stands in it, and not in options")
        return prd.tasks_in(Path("stdin") if what == "-" else path, _read(what))
    if not what.strip():
        raise BadInput("the title is empty; say what is to be done")
    return [{"title": what.strip(), **given}]


def _with_ids(paths: Paths, plan: Plan, entries: list[dict[str, Any]]) -> list[Task]:
    """The tasks that `entries` become in a plan in which others wait to be taken in, with their ids."""
    for message in [message for message in inbox.peek(paths) if message.get("event") == "add"]:
        plan = prd.read(prd.add_tasks(plan, message["tasks"]), plan.path)
    plan = prd.read(prd.add_tasks(plan, entries), plan.path)
    prd.validate(plan, resource("prd.schema.json"))
    return list(plan.tasks[-len(entries) :])


def read_brief(what: str) -> str:
    """The brief in the file `what`, or on stdin for `-`, as text for a prompt."""
    brief = text.clean(_read(what)).strip()
    if not brief:
        raise BadInput(f"the brief {what} is empty; say in it what is to be built, and why")
    return text.clip(brief, _BRIEF, f"cut here; the whole brief stands in {what}")


def may_replace(run: Run) -> None:
    """BadInput if prd.json holds what a person would miss: work, or tasks of their own."""
    name, tasks = run.paths.prd.name, run.plan.tasks
    done = sum(task.passed for task in tasks)
    ways = f"`ralph add` adds to it; --force replaces it, and keeps the old one in {run.paths.private}/aside"
    if run.history.iteration or any(task.passed or task.blocked for task in tasks):
        made = text.count(run.history.iteration, "iteration")
        raise BadInput(f"{name} has work in it ({done} of {len(tasks)} passed, {made}); {ways}")
    if not is_starter(run.plan) and not prd.open_questions(run.plan):
        raise BadInput(f"{name} holds {text.count(len(tasks), 'task')} already; {ways}")


def make_plan(run: Run, brief: str, source: str) -> None:
    """Let the planner write prd.json from `brief`, with a second try if the first cannot be used.

    RalphError, and everything as it was, if neither can be.
    """
    values: dict[str, Any] = {**_values(run, brief), "errors": "", "answer": ""}
    results: list[AgentResult] = []
    for name in ("plan", "plan-again"):
        with put_back(run):
            prompt = render_prompt(resource("templates/plan.md"), values)
            spent = sum(result.usd or 0.0 for result in results)
            result = run_role(run, run.planner, prompt, name, run.env(), spent)
        _require_answer(result)
        results.append(result)
        try:
            _adopt(run, document(run, result.text))
            break
        except BadInput as error:
            run.view.line(f"! the plan cannot be used: {error}", color="yellow")
            answer = text.clean(text.tail(result.text, _ANSWER))
            values |= {"errors": text.one_line(str(error), 1000), "answer": answer}
    else:
        said = run.paths.scratch / "plan-again.out"
        raise RalphError(f"the planner wrote no plan that can be used, twice; its last words are in {said}")
    _note(run, source, results)


@contextlib.contextmanager
def put_back(run: Run) -> Iterator[None]:
    """What happens inside to files, branches and notes is undone and told."""
    tree, label = run.git_tree, "plan"
    tree.begin(resuming=bool(run.history.open_start))
    index, before = tree.git.dir / "index", tree.snapshot()
    staged, notes = files.read_regular(index), run.journal.signature()
    run.guard.take([*run.guarded(), *tree.vital()])
    head = tree.remember(list(run.plan.settings.get("protect", [])))
    try:
        yield
    finally:
        if not run.control.check_supervisor():  # else another run may be at work: it puts them back
            said = [f"{path.name} had been changed, and was put back" for path in run.guard.restore()]
            if run.journal.signature() != notes:
                said += [line.split("\n")[0] for line in run.journal.guard()]
            said += tree.settle(run.branch, head, label, before)
            after = tree.snapshot()
            if after != before:
                names = tree.changes(before, after)[0]
                tree.checkout(before)
                said.append(f"{text.few(names)} had been changed by the planner, and was put back")
                if staged is not None:
                    files.atomic_write(index, staged)
            run.guard.release()
            run.view.lines([*said, *tree.touched()])


def document(run: Run, said: str) -> str:
    """The prd.json that the planner's answer makes: its tasks and description, under what a person
    had said at the top level. BadInput with what is wrong."""
    answers = [found for found in json_objects(said) if isinstance(found.get("userStories"), list)]
    if not answers:
        raise BadInput("no JSON object with a list `userStories` was found in the answer")
    answer, was = answers[-1], run.plan
    top = dict(was.data) if isinstance(was.data, dict) else {}
    for key in ("openQuestions", was.list_key or ""):
        top.pop(key, None)
    top.setdefault("project", was.project)
    top["description"] = text.clip(str(answer.get("description") or ""), 4000)
    if not was.checks and isinstance(answer.get("checks"), list):
        top["checks"] = answer["checks"]
    if answer.get("questions"):
        top["openQuestions"] = answer["questions"]
    tasks = [_own_keys(task) for task in answer["userStories"]]
    source = json.dumps({**top, "userStories": tasks}, indent=2, ensure_ascii=False) + "\n"
    plan = prd.read(source, was.path)
    prd.validate(plan, resource("prd.schema.json"))
    _require_proof(run, plan)
    return source


def told(run: Run) -> list[str]:
    """The plan for a person who says go or not: the tasks, what is open, and the commands that follow."""
    tasks, asked = run.plan.tasks, prd.open_questions(run.plan)
    ids = max(len(text.clean(task.id)) for task in tasks)
    lines = [""]
    for task in tasks:
        lines.append(f"{text.clean(task.id):{ids}}  {text.one_line(task.title, 90)}")
        facts = [f"after {text.few(list(task.depends_on))}"] if task.depends_on else []
        facts += [text.count(len(task.criteria), "criterion").replace("criterions", "criteria")]
        facts += [f"proved by {text.one_line(check.command, 90)}" for check in task.checks]
        facts += [f"may change {text.few(list(task.allow))}"] if task.allow else []
        lines += [f"{'':{ids}}    {fact}" for fact in facts]
    if asked:
        lines += ["", f"{text.count(len(asked), 'open question')}:"]
        for number, (question, proposal) in enumerate(asked, 1):
            lines.append(f"{number}. {question}")
            lines += [f"   proposed, and planned so: {proposal}"] if proposal else []
        lines += ["", "Answer them in the brief and plan again."]
        lines += [f"Or, where the proposals are right, take openQuestions out of {run.paths.prd.name}."]
    return [*lines, "", f"Read the plan before you say go: {run.paths.prd}", *next_steps(run.options.prd)]


def _own_keys(task: Any) -> dict[str, Any]:
    if not isinstance(task, dict):
        raise BadInput(f"userStories: expected task objects, found {text.one_line(str(task), 60)}")
    return {**{key: task[key] for key in TASK_KEYS if key in task}, "passes": False}


def _require_proof(run: Run, plan: Plan) -> None:
    for task in plan.tasks:
        if not task.criteria:
            raise BadInput(f"{task.id} has no acceptanceCriteria; say what must be true when it is done")
        if not task.checks and not plan.checks and not run.judge:
            raise BadInput(
                f"{task.id} has no checks; name a command that is red now, and green when it is done"
            )


def _values(run: Run, brief: str) -> dict[str, Any]:
    plan, rulebook = run.plan, files.read_regular(run.paths.rulebook, 1 << 16) or b""
    reads_it = "AGENTS.md" in run.planner.row.get("reads", [])
    tasks = [] if is_starter(plan) else [f"{task.id}: {task.title}" for task in plan.tasks if task.passed]
    return {
        "brief": brief,
        "checks": [check.command for check in plan.checks],
        "protect": list(plan.settings.get("protect", [])),
        "done": tasks[-100:],
        "prd": run.paths.prd.name,
        "rulebook": "" if reads_it else text.clip(text.clean(rulebook.decode("utf-8", "replace")), 6000),
    }


def _require_answer(result: AgentResult) -> None:
    """The error for a planner that did not come to its end."""
    if result.outcome is Outcome.LIMITED:
        raise TryLater(f"the planner cannot work now: {result.reason}")
    if result.outcome is Outcome.UNAVAILABLE:
        raise AgentUnavailable(f"the planner cannot run: {result.reason}")
    if result.outcome is not Outcome.DONE:
        raise RalphError(f"the planner did not finish ({result.outcome}): {result.reason}")


def _adopt(run: Run, source: str) -> None:
    """Put the new plan in place; what stood there is kept aside, if it was a person's."""
    if not is_starter(run.plan):
        copy = run.paths.private / "replaced"
        shutil.copyfile(run.paths.prd, copy)
        kept = files.move_aside(copy, run.paths.private / "aside", run.paths.prd.name)
        run.view.line(f"the plan that stood in {run.paths.prd.name} is kept at {kept}")
    files.atomic_write(run.paths.prd, source.encode("utf-8"))
    run.plan = prd.load(run.paths.prd)
    run.history = replay(run.journal.records(), run.plan)


def _note(run: Run, source: str, results: list[AgentResult]) -> None:
    """The record of it: what it cost counts for the plan's life."""
    whole = AgentResult(Outcome.DONE, seconds=sum(result.seconds for result in results))
    told = [result.usd for result in results if result.usd is not None]
    whole = replace(whole, usd=sum(told) if told else None)
    for result in results:
        whole.tokens.add(result.tokens)
    tasks = text.count(len(run.plan.tasks), "task")
    run.view.line(f"{tasks} planned | {spent_words(whole)}", color="green")
    write(
        run,
        "add",
        f"{tasks} planned from {text.one_line(source, 80)}",
        [f"- planner: {text.one_line(run.planner.command, 80)}, {spent_words(whole)}"],
        usd=whole.usd,
        tokens=whole.tokens.as_dict(),
        seconds=round(whole.seconds, 1),
    )


def _read(what: str) -> str:
    """The text of a file that a person named, or of stdin for `-`; BadInput if it is none."""
    if what == "-":
        data: bytes | None = sys.stdin.buffer.read(_LARGEST + 1)
    else:
        data = files.read_regular(Path(what).resolve(), _LARGEST + 1)
    if data is None:
        raise BadInput(f"there is no file {what}; - reads standard input")
    if len(data) > _LARGEST:
        raise BadInput(f"{what} is larger than 16 MB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{what}: byte {error.start} is not UTF-8") from None
