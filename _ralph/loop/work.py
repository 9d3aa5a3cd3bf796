"""The agent at work: a workspace at the base, two snapshots, and what differs between
them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from _ralph import codec, files, text
from _ralph.agents.prompt import Briefing, prompt_values, render_prompt
from _ralph.checks import trust
from _ralph.checks.elsewhere import changed_at_home
from _ralph.checks.places import prepare_workspace, setup_failed
from _ralph.errors import SetupFailed, StopNow
from _ralph.git.checkout import remove_lock, remove_unusable
from _ralph.git.litter import changed_at, leads_nowhere, litter
from _ralph.git.notes import Start, note_start, noted_start
from _ralph.git.snapshot import settle, snapshot, with_work, work
from _ralph.git.throwaway import copy_state
from _ralph.loop.claim import is_last, program_of
from _ralph.loop.loop import Loop
from _ralph.loop.roles import cut_off, run_role
from _ralph.loop.stages import Begun, Worked
from _ralph.model import AgentResult, Share, Task
from _ralph.state.limits import attempts_at

_LARGEST = 1 << 26
"""Bytes of a copy of ralph's own files that are looked at: an agent can write any."""


@dataclass(frozen=True)
class Ended:
    """How the agent of an attempt ended, noted beside its snapshot: a loop that is
    killed afterwards loses nothing."""

    attempt: str
    result: AgentResult


def first_snapshot(loop: Loop, begun: Begun) -> Start:
    """The workspace, with the base or the task's unfinished work on it checked out, and
    the first snapshot. Where `setup` is red on the base, too, that is waited for."""
    place = loop.places.workspace(begun.worker, begun.task.allow)
    base = loop.git.tree(begun.base)
    tree = base
    if begun.left:  # what is protected stands as in the base; the prompt says what
        tree = loop.places.restored(begun.base, begun.left, begun.task.allow)[0]
    loop.view.doing("preparing the workspace")

    def check_out() -> None:
        head, name = begun.base, begun.name
        red = prepare_workspace(loop.places, place, tree, head, name)
        if red is None:
            return
        tip = f"{name}-tip"
        if tree == base or prepare_workspace(loop.places, place, base, head, tip):
            raise SetupFailed(setup_failed(red))
        # The unfinished work is what makes it red, so its agent starts all the same.
        prepare_workspace(loop.places, place, tree, head, name)

    loop.when_setup_works(begun.task.id, check_out)
    if loop.control.stop_now:
        raise StopNow
    copies = copy_state(place)
    files.clear(loop.paths.handoff(begun.worker))
    files.clear(loop.paths.results(begun.worker))
    start = Start(begun.id, tree, settle(place, tree), copies)
    if {start.tree, start.snapshot} != {base}:
        loop.branch.pin("attempt", start.tree, start.snapshot, loop=begun.worker)
    note_start(place, start)
    return start


def run_agent(loop: Loop, begun: Begun) -> AgentResult:
    """Run the agent in its workspace, and end all that it started; how it ended, which
    is noted. StopNow if ralph must stop."""
    root = loop.paths.workspace(begun.worker)
    env = loop.places.env(root) | begun.variables(loop.paths)
    env["RALPH_RESULTS"] = str(loop.paths.results(begun.worker))
    prompt = prompt_for(loop, begun)
    most = attempts_at(loop.limits, begun.task)
    loop.view.doing(f"attempt {begun.number} of {most}")
    result = run_role(loop, begun.agent, prompt, begun.name, env, begun.share, root)
    if loop.control.stop_now:
        raise StopNow
    note = codec.dumped(Ended(begun.id, result))
    files.atomic_write(end_note(loop, begun), note)
    return result


def second_snapshot(
    loop: Loop, begun: Begun, start: Start, result: AgentResult
) -> Worked:
    """The second snapshot, and what differs between the two: the work."""
    place = loop.places.workspace(begun.worker, begun.task.allow)
    notices = [*begun.notices]
    if not place.exists:
        place.open()
        gone = "the workspace was removed or replaced; all work in it is lost"
        return Worked(begun, result, begun.left, notices=[*notices, gone])
    handoff = files.read_regular(loop.paths.handoff(begun.worker), 1 << 16) or b""
    began = changed_at(place.beside("start"))
    copies = []
    for name, was in start.copies.items():
        there = files.read_regular(place.root / name, _LARGEST) or b""
        if files.digest(there) != was:
            copies.append(name)
    notices += remove_unusable(place, start.tree)
    after, refused = snapshot(place, start.tree)
    notices += refused
    found = work(place, start, after)
    left_behind, restored = litter(place, start.tree, found)
    kept = {name: pair for name, pair in found.items() if name not in left_behind}
    left = with_work(place.git, start, after, kept)
    base = loop.git.tree(begun.base)
    tree, back, new = loop.places.restored(begun.base, left, begun.task.allow)
    notices += [
        f"{text.one_line(name)} is new and matches `protect`; it counts" for name in new
    ]
    protected = [text.one_line(name) for name in back]
    restored += protected
    restored += [
        f"{name} (a copy; what is changed in it does not count)" for name in copies
    ]
    rulebook = loop.git.name_of(loop.paths.rulebook)
    if rulebook in copies:
        protected.append(rulebook)
    changed = loop.git.difference(base, tree)
    if not changed:
        notices += changed_at_home(loop.git, loop.places.state(), began)
    if loop.settings.jobs > 1 or left != tree:
        loop.branch.pin("attempt", left, tree, loop=begun.worker)
    return Worked(
        begun,
        result,
        left,
        tree,
        changed=[*changed],
        restored=restored,
        protected=protected,
        naming=leads_nowhere(place, changed),
        notices=notices,
        handoff=text.redact(handoff.decode("utf-8", "replace")),
    )


# ---------------------------------------------------------------- after a kill


def end_note(loop: Loop, begun: Begun) -> Path:
    """The file in which it is noted how the agent of an attempt ended."""
    return loop.paths.private / f"work-{begun.worker}.ended"


def noted_end(loop: Loop, begun: Begun) -> AgentResult:
    """How the agent of an attempt ended, as it was noted; else as one that was cut off,
    with what it had reported by then."""
    ended = codec.load(Ended, end_note(loop, begun))
    if ended and ended.attempt == begun.id:
        return ended.result
    return cut_off(loop, begun.agent, begun.name, "the attempt was cut off")


def collect_again(loop: Loop, begun: Begun) -> Worked | None:
    """What an attempt left whose loop died; None if its agent had not started."""
    place = loop.places.workspace(begun.worker, begun.task.allow)
    start = noted_start(place)
    if start is None or start.attempt != begun.id:
        return None
    remove_lock(place)
    return second_snapshot(loop, begun, start, noted_end(loop, begun))


# ---------------------------------------------------------------- the prompt


def prompt_for(loop: Loop, begun: Begun) -> str:
    """The prompt of this attempt."""
    task = begun.task
    history = loop.history.of(begun.task)
    checks = program_of(loop, task)
    beside = [f"{start.task}: {start.title}" for start in loop.others_at_work]
    last_parked = history.last.parked if history.last else ""
    briefing = Briefing(
        plan=loop.plan,
        task=task,
        history=loop.history,
        paths=loop.paths,
        checks=checks,
        handoff=loop.paths.handoff(begun.worker),
        attempts=attempts_at(loop.limits, task),
        reads_rulebook=begun.agent.cli.reads_rulebook,
        trusted=trust.trusted_files(loop.places.from_home.trust),
        recent=loop.branch.log(begun.base, 5),
        beside=beside,
        clean_start=begun.clean or not begun.left,
        red_before=begun.red,
        failing_before=begun.failing,
        parked=loop.branch.commit_at(begun.earlier or last_parked),
        conflict=begun.conflict,
    )
    return render_prompt(loop.settings.prompt, prompt_values(briefing))


def preview(loop: Loop, task: Task) -> str:
    """The prompt that an attempt would get now; nothing is run."""
    known = loop.history.of(task)
    base = loop.branch.tip() or loop.branch.commit_at("HEAD")
    begun = Begun(
        task=task,
        agent=loop.agents.agent(task),
        number=known.attempts + 1,
        iteration=loop.history.iteration + 1,
        id="",
        worker=1,
        share=Share(),
        base=base,
        left=known.unfinished.left,
    )
    return prompt_for(loop, replace(begun, clean=is_last(loop, begun)))
