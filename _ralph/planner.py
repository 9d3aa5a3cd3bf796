"""New tasks: in a person's own words, from a file, or from a brief by the planner, a role that only
reads. What a stranger wrote is held against the schema before it becomes the plan."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from _ralph import files, inbox, jsontext, place, prd, text
from _ralph.attempt import write
from _ralph.ends import AgentUnavailable, BadInput, RalphError, TryLater
from _ralph.files import resource
from _ralph.git import git, top_level
from _ralph.model import AgentResult, Outcome, Paths, Plan, Task
from _ralph.night import add_tasks, new_entries
from _ralph.progress import replay
from _ralph.prompt import render_prompt
from _ralph.roles import json_objects, run_role
from _ralph.session import Options, Run, at_rest, is_starter
from _ralph.setup import next_steps
from _ralph.views import spent_words

_BRIEF, _ANSWER = 24 * 1024, 12 * 1024
_LARGEST, _LONGEST = 16 << 20, 1 << 20
TASK_KEYS = (
    "id", "title", "description", "acceptanceCriteria", "priority", "dependsOn", "checks", "allow", "notes",
)  # fmt: skip
"""What a planner may say of a task; that one is done, or which agent works it, is not for it to say."""


def add_to_plan(prd_path: Path, use_git: bool, what: str, given: dict[str, Any]) -> list[str]:
    """Add one task with the title `what`, or those of the JSON file `what` (`-` is stdin); `given` is
    what else was said of it. While a loop runs, they wait in its inbox. What was done, in lines."""
    entries, options = _entries(what, given), Options(prd_path, git=use_git)
    with at_rest(options) as run:
        state = (run.paths, run.plan, run.history) if run else place.read_state(prd_path, use_git)
        place.stay_on_branch(*state, use_git=use_git)
        paths, plan, _ = state
        there = {task.id for task in plan.tasks}
        known = [entry for entry in entries if entry.get("id") is not None and str(entry["id"]) in there]
        said = [f"{text.one_line(str(entry['id']))} is there already, and stays as it is" for entry in known]
        new = [entry for entry in entries if entry not in known]
        _refuse_what_nothing_proves(plan, new)
        tasks = add_tasks(run, new) if run else _leave(paths, plan, new)
    when = "" if run else ": the running loop takes it after its attempt"
    for task in tasks:
        weak = "" if task.checks else "; no check of its own proves it (--check)"
        said.append(text.one_line(f"added {task.id}: {task.title}{when}{weak}", 400))
    return said or ["nothing was new"]


def _refuse_what_nothing_proves(plan: Plan, entries: list[dict[str, Any]]) -> None:
    """Where every task has checks of its own, one without any would stop the next run."""
    if plan.checks or plan.settings.get("judge") or not all(task.checks for task in plan.tasks):
        return
    if bare := [entry for entry in entries if not entry.get("checks")]:
        title = prd.title_of(bare[0])
        raise BadInput(f"nothing would prove {title!r}: the plan has no checks; --check 'COMMAND' names one")


def _entries(what: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    path = Path(what)
    if what == "-" or os.path.isfile(what) or (path.suffix == ".json" and len(what.split()) == 1):
        if given:
            raise BadInput(f"{what} is a file of tasks; what they are stands in it, and not in options")
        return prd.tasks_in(Path("stdin") if what == "-" else path, _read(what))
    if not what.strip():
        raise BadInput("the title is empty; say what is to be done")
    return [{"title": what.strip(), **given}]


def _leave(paths: Paths, plan: Plan, entries: list[dict[str, Any]]) -> list[Task]:
    """Leave `entries` for the loop, as the tasks that they become in a plan in which others wait too."""
    if not entries:
        return []
    for message in [message for message in inbox.peek(paths) if message.get("event") == "add"]:
        if waiting := new_entries(plan, message["tasks"]):
            plan = prd.read(prd.add_tasks(plan, waiting), plan.path)
    plan = prd.read(prd.add_tasks(plan, entries), plan.path)
    prd.validate(plan)
    tasks = list(plan.tasks[-len(entries) :])
    inbox.leave(paths, {"event": "add", "tasks": [task.raw for task in tasks]})
    return tasks


def read_brief(what: str) -> str:
    """The brief in the file `what`, or on stdin for `-`, as text for a prompt."""
    brief = text.clean(_read(what)).strip()
    if not brief:
        raise BadInput(f"the brief {what} is empty; say in it what is to be built, and why")
    return brief


def require_commit(prd_path: Path) -> None:
    """BadInput where git has nothing to plan from yet."""
    root = top_level(prd_path.parent)
    if root is None:
        raise BadInput("this is not a git repository; git init, and a first commit, come before a plan")
    if not git(root, "rev-parse", "-q", "--verify", "HEAD", check=False):
        raise BadInput("this repository has no commit yet; make one: git add -A && git commit -m start")


def may_replace(run: Run) -> None:
    """BadInput if prd.json holds what a person would miss: work, or tasks of their own."""
    name, tasks = run.paths.prd.name, run.plan.tasks
    done = sum(task.passed for task in tasks)
    ways = f"`ralph add` adds to it; --force replaces it, and keeps the old one in {run.paths.private}/aside"
    if run.history.iteration or any(task.passed or task.blocked for task in tasks):
        made = text.count(run.history.iteration, "iteration")
        raise BadInput(f"{name} has work in it ({done} of {len(tasks)} passed, {made}); {ways}")
    if not is_starter(run.plan) and files.digest(run.plan.text.encode()) != run.history.planned:
        raise BadInput(f"{name} holds {text.count(len(tasks), 'task')} already; {ways}")


def make_plan(run: Run, brief: str, source: str) -> None:
    """Let the planner write prd.json from `brief`, with a second try if the first cannot be used.

    RalphError, and everything as it was, if neither can be.
    """
    whole = run.log("brief.md")
    whole.write_text(brief, encoding="utf-8")
    brief = text.clip(brief, _BRIEF, f"cut here; the whole brief stands in {whole}")
    values: dict[str, Any] = {**_values(run, brief), "errors": "", "answer": ""}
    results: list[AgentResult] = []
    for name in ("plan", "plan-again"):
        with copied(run) as folder:
            prompt = render_prompt(resource("templates/plan.md"), values)
            spent = sum(result.usd or 0.0 for result in results)
            result = run_role(run, run.planner, prompt, name, run.env(), spent, folder)
        _require_answer(result)
        results.append(result)
        try:
            _adopt(run, document(run, _answer(run, result, name)))
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
def copied(run: Run) -> Iterator[Path]:
    """A clone to plan in, with the tracked files as they are here: nothing that is done in it is done
    to the tree, however it ends. The state files, which a program can reach all the same, are guarded."""
    git, folder = run.git_tree.git, files.clear(run.paths.private / "planning")
    here = git("stash", "create", check=False).strip() or git("rev-parse", "HEAD").strip()
    git("clone", "-q", "--shared", "--no-checkout", str(run.paths.root), str(folder))
    git("-C", str(folder), "checkout", "-q", "--detach", here)
    notes = run.journal.signature()
    run.guard.take(run.guarded())
    try:
        yield folder
    finally:
        if not run.control.check_supervisor():  # else another one may be at work: it puts them back
            said = [f"{path.name} had been changed, and was put back" for path in run.guard.restore()]
            if run.journal.signature() != notes:
                said += [line.split("\n")[0] for line in run.journal.guard()]
            run.guard.release()
            run.view.lines(said)
            files.clear(folder)


def _answer(run: Run, result: AgentResult, name: str) -> str:
    """All that the planner said: of a command that prints no events, its whole output."""
    if run.planner.streams:
        return result.text[-_LONGEST:]
    printed = files.read_regular(run.paths.scratch / f"{name}.out") or b""
    return printed[-_LONGEST:].decode("utf-8", "replace")


def document(run: Run, said: str) -> str:
    """The prd.json that the planner's answer makes: its tasks and description, under what a person
    had said at the top level. BadInput with what is wrong."""
    answers = [found for found in json_objects(said) if isinstance(found.get("userStories"), list)]
    if not answers:
        raise BadInput("no JSON object with a list `userStories` was found in the answer")
    answer, was = answers[-1], run.plan
    top = dict(was.top)
    for key in ("openQuestions", was.list_key or ""):
        top.pop(key, None)
    top.setdefault("project", was.project)
    top["description"] = text.clip(str(answer.get("description") or ""), 4000)
    if not was.checks and isinstance(answer.get("checks"), list):
        top["checks"] = answer["checks"]
    if not isinstance(questions := answer.get("questions") or [], list):
        raise BadInput("questions: expected a list")
    if questions:
        top["openQuestions"] = questions
    tasks = [_own_keys(task) for task in answer["userStories"]]
    source = jsontext.dump({**top, "userStories": tasks}, "  ") + "\n"
    plan = prd.read(source, was.path)
    prd.validate(plan)
    _require_proof(run, plan)
    return source


def told(run: Run) -> list[str]:
    """The plan for a person who says go or not: the tasks, what is open, and the commands that follow."""
    tasks, asked = run.plan.tasks, prd.open_questions(run.plan)
    ids = max(len(text.one_line(task.id)) for task in tasks)
    lines = ["", *(f"every task: {text.one_line(check.command, 500)}" for check in run.plan.checks)]
    for task in tasks:
        lines.append(f"{text.one_line(task.id):{ids}}  {text.one_line(task.title, 90)}")
        facts = [f"after {text.few(list(task.depends_on))}"] if task.depends_on else []
        facts += [text.count(len(task.criteria), "criterion").replace("criterions", "criteria")]
        facts += [f"proved by {text.one_line(check.command, 500)}" for check in task.checks]
        facts += [f"may change {text.few(list(task.allow))}"] if task.allow else []
        lines += [f"{'':{ids}}    {fact}" for fact in facts]
    if asked:
        lines += ["", f"{text.count(len(asked), 'open question')}:"]
        for number, (question, proposal) in enumerate(asked, 1):
            lines.append(f"{number}. {question}")
            lines += [f"   proposed, and planned so: {proposal}"] if proposal else []
        lines += ["", "Answer them in the brief and plan again."]
        lines += [f"Or, where the proposals are right, take openQuestions out of {run.paths.prd.name}."]
        return lines
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
    tasks = [] if is_starter(plan) else [f"{task.id}: {task.title}" for task in plan.tasks if task.passed]
    return {
        "brief": brief,
        "checks": [check.command for check in plan.checks],
        "protect": list(plan.settings.get("protect", [])),
        "done": tasks[-100:],
        "prd": run.paths.prd.name,
        "rulebook": text.clip(text.clean(rulebook.decode("utf-8", "replace")), 6000),
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
        prd=files.digest(run.plan.text.encode()),
    )


def _read(what: str) -> str:
    """The text of a file that a person named, or of stdin for `-`; BadInput if it is none."""
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if what == "-" else Path(what).open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise BadInput(f"{what} cannot be read ({error.strerror}); - reads standard input") from None
    if len(data) > _LARGEST:
        raise BadInput(f"{what} is larger than 16 MB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{what}: byte {error.start} is not UTF-8") from None
