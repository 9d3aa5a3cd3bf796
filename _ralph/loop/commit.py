"""From a tree to a commit, as `git commit` does it: the commit hooks in the clean room,
the message, ralph's trailers. What the hooks make of the work is what the checks then
see, and what lands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from _ralph import text
from _ralph.agents.prompt import render_message
from _ralph.errors import SetupFailed, StopNow
from _ralph.git.git import Late
from _ralph.git.snapshot import restore
from _ralph.loop.jobs import Attempt, Checked
from _ralph.loop.room import Room
from _ralph.loop.run import Run
from _ralph.model import CheckResult, Task

_SUBJECT = 72
"""Characters of a subject at most: git's convention, and a rule of most linters of
messages."""
_OWN = re.compile(r"^Ralph-(Agent|Attempt)\s*:.*\n?", re.IGNORECASE | re.MULTILINE)


def message_for(run: Run, task: Task, iteration: int, attempt: int) -> str:
    """The message of a passed task's commit, without ralph's trailers: the plan's
    template, for which a title that is a sentence loses its full stop, and a long one
    its end."""

    def rendered(title: str) -> str:
        values = {
            "task": replace(task, title=title),
            "iteration": iteration,
            "attempt": attempt,
        }
        where = f"{run.paths.prd.name}: commit"
        return render_message(run.settings.commit, values, where)

    title = text.one_line(task.title, 1000)
    title = title if title.endswith("..") else title.removesuffix(".")
    made = rendered(title)
    too_long = len(made.partition("\n")[0]) - _SUBJECT
    if too_long <= 0:
        return made
    return rendered(text.one_line(title, max(len(title) - too_long, 20)))


def message_of(run: Run, attempt: Attempt) -> str:
    """The message of an attempt's commit, without ralph's trailers."""
    return message_for(run, attempt.task, attempt.iteration, attempt.number)


def whole_message(run: Run, attempt: Attempt) -> str:
    """The message of an attempt's commit where no hook has a say in it, with ralph's
    trailers."""
    said = message_of(run, attempt)
    if "\n" in said:
        return _with_trailers(run, said, attempt)
    return f"{said}\n\n" + "".join(f"{trailer}\n" for trailer in _trailers(attempt))


def _trailers(attempt: Attempt) -> list[str]:
    agent = text.middle(
        attempt.command, 86
    )  # linters of messages refuse lines of more than 100
    return [
        f"Ralph-Agent: {agent}",
        f"Ralph-Attempt: {attempt.id}",
    ]


def _with_trailers(run: Run, said: str, attempt: Attempt) -> str:
    """A message as hooks left it, with ralph's trailers at its end. They say what
    landed after a kill, so nobody else may write such lines: a hook can be the
    agent's."""
    given = [f"--trailer={trailer}" for trailer in _trailers(attempt)]
    plain = ("--no-divider", "--where=end", "--if-exists=add", "--if-missing=add")
    stdin = f"{_OWN.sub('', said).strip()}\n".encode("utf-8", "replace")
    return run.git(
        "-c", "trailer.separators=:", "interpret-trailers", *plain, *given, stdin=stdin
    )


def commit_in_room(run: Run, attempt: Attempt) -> Checked:
    """Make the commit of an attempt's candidate: `pre-commit` runs on its files as
    staged, what it rewrites becomes the tree, the hooks for messages see ralph's
    without its trailers. The commit, and what the hooks said; where one is red it is
    the candidate as it was, and where `setup` is, that is the only result."""
    run.view.doing("running commit hooks")
    room = Room.at(
        run.places, run.paths.room_of(attempt.room), attempt.variables(run.paths)
    )

    def work() -> Checked:
        if setup := room.prepare(attempt.commit, attempt.name):
            return Checked(commit=attempt.commit, checks=[setup])
        tree, results = _pre_commit(run, attempt, room)
        if not Checked(checks=results).red:
            room.hold(tree, attempt.tip)
            said, more = room.said(message_of(run, attempt), attempt.name)
            results += more
        found = Checked(commit=attempt.commit, checks=results)
        if not found.red:
            words = _with_trailers(run, said, attempt)
            found.commit = run.branch.commit(
                tree, attempt.tip, words, sign=run.branch.signs
            )
            run.branch.pin_candidate(found.commit, attempt.room)
        return found

    return in_room(run, room, attempt.commit, work)


def _pre_commit(
    run: Run, attempt: Attempt, room: Room
) -> tuple[str, list[CheckResult]]:
    """Run the `pre-commit` hook; the tree that it leaves, with what is protected as
    before, and its result. One that rewrote files and failed, as formatters do, runs
    once more."""
    tree, allow = run.git.tree(attempt.commit), attempt.task.allow
    for _ in range(2):
        room.hold(tree, attempt.tip)
        result = room.hook("pre-commit", attempt.name)
        if not result or not room.place.exists:
            break
        before, tree = tree, room.staged()
        tree, _, _ = restore(
            run.git,
            attempt.tip,
            tree,
            run.plan.protected,
            allow,
            run.places.state(allow),
        )
        if result.ok or tree == before:
            break
    return tree, [result] if result else []


def try_messages(
    run: Run,
    commit: str,
    wanted: Sequence[tuple[Task, str]],
    number: int = 1,
    held: bool = False,
) -> Checked:
    """Try messages of ralph's with the hooks that see them, on the files of `commit`:
    the sentence about the first of these tasks whose message they refuse. `held` says
    that the room of this `number` holds these files as earlier checks left them. If
    `setup` is red, it is the only result."""
    room = Room.at(run.places, run.paths.room_of(number))

    def work() -> Checked:
        found = Checked(commit=commit)
        if not (held and room.go_on(commit)) and (
            setup := room.prepare(commit, "message")
        ):
            found.checks = [setup]
            return found
        for task, own in wanted:
            if red := _red(room, own):
                found.refused = _refusal(run, task, own, red)
                break
        return found

    return in_room(run, room, commit, work)


def _red(room: Room, own: str) -> CheckResult | None:
    """The result of the hook that refuses a message; None if all let it pass."""
    results = room.said(own, "message", f"the message {text.one_line(own, 60)!r}: ")[1]
    return next((result for result in results if not result.ok), None)


def _refusal(run: Run, task: Task, own: str, red: CheckResult) -> str:
    """The sentence about a message that a hook refuses, with the hook's own words."""
    why = text.one_line(text.tail(red.tail, 600), 300) or "it printed nothing"
    return (
        f"the hook {red.name} refuses ralph's message {text.one_line(own, 80)!r} for {task.id}; "
        f'change the template "commit" in {run.paths.prd.name}; the hook {red.outcome}: {why}'
    )


def in_room(run: Run, room: Room, commit: str, work: Callable[[], Checked]) -> Checked:
    """The result of `work` in the room, with its notices; red where git did not end
    there. StopNow if ralph was stopped, SetupFailed if it is red and the prefix does
    not answer."""
    try:
        found = work()
    except Late as error:  # a file of terabytes, from a hook or a check, or a FIFO called .gitattributes
        room.place.remove()
        late = CheckResult("git", "git", False, None, 0.0, str(error), timed_out=True)
        found = Checked(commit=commit, checks=[late])
    if run.control.stop_now:
        raise StopNow
    if found.red and (why := run.places.unanswered()):
        raise SetupFailed(why)
    found.notices = room.notices
    return found
