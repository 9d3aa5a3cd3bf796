"""From a tree to a commit, as `git commit` does it: the commit hooks in the clean room,
the message, ralph's trailers. What the hooks make of the work is what the checks then
see, and what is committed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from _ralph import text
from _ralph.agents.prompt import render_message
from _ralph.checks.places import Places, setup_failed
from _ralph.checks.room import Room
from _ralph.errors import SetupFailed
from _ralph.git.branch import Branch
from _ralph.model import CheckResult, Task

_SUBJECT = 72
"""Characters of a subject at most: git's convention, and a rule of most linters of
messages."""
_TRIED = 3
"""Commits with which `pre-commit` is tried before an agent is paid."""
_OWN = re.compile(r"^Ralph-(Agent|Attempt)\s*:.*\n?", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Message:
    """The message of a task's commit: what hooks see of it, and ralph's trailers, which
    come after what they leave."""

    said: str
    trailers: Sequence[str]


@dataclass
class Hooked:
    """The commit that the hooks make of a candidate; the candidate itself where there
    are none or one is red. `results` are what they said; a red `setup` is the only
    one."""

    commit: str
    results: list[CheckResult] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def red(self) -> list[CheckResult]:
        return [result for result in self.results if not result.ok]


def message_for(places: Places, task: Task, iteration: int, attempt: int) -> str:
    """The message of a passed task's commit, without ralph's trailers: the plan's
    template, for which a title that is a sentence loses its full stop, and a long one
    its end."""
    settings = places.settings
    where = f"{settings.paths.prd.name}: commit"

    def rendered(title: str) -> str:
        named = replace(task, title=title)
        values = {"task": named, "iteration": iteration, "attempt": attempt}
        return render_message(settings.commit, values, where)

    title = re.sub(r"(?<!\.)\.$", "", text.one_line(task.title, 1000))
    made = rendered(title)
    too_long = len(made.partition("\n")[0]) - _SUBJECT
    if too_long <= 0:
        return made
    return rendered(text.one_line(title, max(len(title) - too_long, 20)))


def trailers(agent: str, attempt_id: str) -> list[str]:
    """The lines that say who made a commit: an `agent`, in the attempt of this id."""
    short = text.one_line(agent, 86)  # linters of messages refuse lines of over 100
    return [f"Ralph-Agent: {short}", f"Ralph-Attempt: {attempt_id}"]


def with_trailers(places: Places, said: str, given: Sequence[str]) -> str:
    """A message as hooks left it, with ralph's trailers at its end. They say what is
    committed after a kill, so nobody else may write such lines: a hook can be the
    agent's."""
    words = ["-c", "trailer.separators=:", "interpret-trailers", "--no-divider"]
    words += ["--where=end", "--if-exists=add", "--if-missing=add"]
    words += [f"--trailer={trailer}" for trailer in given]
    stdin = f"{_OWN.sub('', said).strip()}\n".encode("utf-8", "replace")
    return places.home(*words, stdin=stdin)


def run_hooks(
    branch: Branch,
    room: Room,
    candidate: str,
    tip: str,
    message: Message,
    allow: Sequence[str],
    name: str,
) -> Hooked:
    """Make the commit of a candidate: `pre-commit` runs on its files as staged on
    `tip`, what it rewrites becomes the tree, but for what is protected; the hooks for
    messages see ralph's without its trailers. StopNow if ralph must stop."""
    hooked = Hooked(candidate, notices=room.notices)
    setup = room.prepare(candidate, name)
    if setup:
        hooked.results.append(setup)
        return hooked
    tree, result = _pre_commit(room, candidate, tip, allow, name)
    if result:
        hooked.results.append(result)
    if hooked.red:
        return hooked
    room.hold(tree, tip)
    said, more = room.said(message.said, name)
    hooked.results += more
    if not hooked.red:
        words = with_trailers(room.places, said, message.trailers)
        hooked.commit = branch.commit(tree, tip, words, sign=branch.signs)
        branch.pin("candidate", hooked.commit)
    return hooked


def _pre_commit(
    room: Room,
    candidate: str,
    tip: str,
    allow: Sequence[str],
    name: str,
) -> tuple[str, CheckResult | None]:
    """Run the `pre-commit` hook; the tree that it leaves, with what is protected as
    before, and its result. One that rewrote files and failed, as formatters do, runs
    once more."""
    tree, result = room.places.home.tree(candidate), None
    for _ in range(2):
        room.hold(tree, tip)
        result = room.hook("pre-commit", name)
        if not result or not room.place.exists:
            break
        before = tree
        tree = room.places.restored(tip, room.staged(), allow)[0]
        if result.ok or tree == before:
            break
    return tree, result


def refused_message(room: Room, task: Task, said: str) -> str:
    """Try a message with the hooks that see it, in a room that holds the files to try
    it on. Why they refuse it, in a sentence, or nothing."""
    shown = repr(text.one_line(said, 80))
    for result in room.said(said, "message")[1]:
        if not result.ok:
            why = text.one_line(text.tail(result.tail, 600), 300)
            return (
                f"the hook {result.name} refuses ralph's message {shown} for {task.id}; "
                f'write another "commit" in {room.places.paths.prd.name}; the hook '
                f"{result.outcome}: {why or 'it printed nothing'}"
            )
    return ""


def refused_commits(places: Places, tip: str) -> CheckResult | None:
    """What `pre-commit` says where it refuses whatever is committed: the newest commits
    that are no merges, each staged on its parent or on nothing. None if it lets one of
    them pass, or there is no such hook. SetupFailed if `setup` is red on `tip`."""
    if not places.has_hooks(["pre-commit"]):
        return None
    git = places.home
    room = Room.at(places, places.paths.room)
    setup = room.prepare(tip, "hooks")
    if setup:
        raise SetupFailed(setup_failed(setup))
    refused: list[CheckResult] = []
    for commit in git("rev-list", "--no-merges", f"-{_TRIED}", tip).split():
        parent = git.maybe("rev-parse", "-q", "--verify", f"{commit}^")
        if parent is None:
            nothing = git("mktree").strip()
            parent = git("commit-tree", nothing, "-m", "nothing")
        result = _pre_commit(room, commit, parent.strip(), (), "hooks")[1]
        if result is None or result.ok:
            return None
        refused.append(result)
    return refused[0]
