"""The agent at work: a workspace at the base, two snapshots, and what differs between
them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from _ralph import codec, files, text
from _ralph.agents.prompt import Briefing, prompt_values, render_prompt
from _ralph.checks import trust
from _ralph.checks.places import prepare_workspace, setup_failed
from _ralph.errors import SetupFailed, StopNow
from _ralph.git.checkout import Checkout, remove_lock, remove_unusable
from _ralph.git.litter import leads_nowhere, litter
from _ralph.git.notes import Start, note_start, noted_start
from _ralph.git.snapshot import settle, snapshot, with_work, work
from _ralph.git.throwaway import copy_state
from _ralph.loop.claim import is_last, program_of
from _ralph.loop.loop import Loop
from _ralph.loop.roles import cut_off, run_role
from _ralph.loop.stages import Begun, Worked
from _ralph.model import AgentResult, Share, Task
from _ralph.state.limits import attempts_at

_LAST_WORDS = 1 << 16
"""Bytes of an agent's last message that are noted."""


@dataclass(frozen=True)
class Ended:
    """How the agent of an attempt ended, noted beside its snapshot: a loop that is
    killed afterwards loses nothing."""

    attempt: str
    result: AgentResult
    began: float = 0.0


@dataclass(frozen=True)
class Ready:
    """A workspace in which an agent can start."""

    place: Checkout
    start: Start  # the tree that was checked out, and the snapshot of what stands there
    copies: Mapping[str, bytes]  # of ralph's own files


def first_snapshot(loop: Loop, begun: Begun) -> Ready:
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
    start = Start(begun.id, tree, settle(place, tree))
    if {start.tree, start.snapshot} != {base}:
        loop.branch.pin("attempt", start.tree, start.snapshot, loop=begun.worker)
    note_start(place, start)
    return Ready(place, start, copies)


def run_agent(loop: Loop, begun: Begun, ready: Ready) -> Ended:
    """Run the agent in its workspace, and end all that it started; how it ended, which
    is noted. StopNow if ralph must stop."""
    env = loop.places.env(ready.place.root) | begun.variables(loop.paths)
    env["RALPH_RESULTS"] = str(loop.paths.results(begun.worker))
    prompt = prompt_for(loop, begun)
    began = time.time()
    most = attempts_at(loop.limits, begun.task)
    loop.view.doing(f"attempt {begun.number} of {most}")
    root = ready.place.root
    result = run_role(loop, begun.agent, prompt, begun.name, env, begun.share, root)
    if loop.control.stop_now:
        raise StopNow
    ended = Ended(begun.id, result, began)
    note_end(loop, begun.worker, ended)
    return ended


def second_snapshot(
    loop: Loop,
    begun: Begun,
    ended: Ended,
    ready: Ready,
) -> Worked:
    """The second snapshot, and what differs between the two: the work."""
    place = ready.place
    start = ready.start
    notices = [*begun.notices]
    if not place.exists:
        place.open()
        gone = "the workspace was removed or replaced; all work in it is lost"
        return Worked(
            begun, ended.result, ended.began, begun.left, notices=[*notices, gone]
        )
    handoff = files.read_regular(loop.paths.handoff(begun.worker), 1 << 16) or b""
    copies = changed_copies(place, ready.copies)
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
        f"{text.one_line(name)} is new under a protected pattern" for name in new
    ]
    for name, was in back.items():
        note = "" if was.exists else " (new and protected; left out)"
        restored.append(text.one_line(name) + note)
    restored += [
        f"{name} (a copy; what is changed in it does not count)" for name in copies
    ]
    protected = [text.one_line(name) for name in back]
    rulebook = loop.git.name_of(loop.paths.rulebook)
    if rulebook in copies:
        protected.append(rulebook)
    changed = loop.git.difference(base, tree)
    if loop.settings.jobs > 1 or left != tree:
        loop.branch.pin("attempt", left, tree, loop=begun.worker)
    return Worked(
        begun,
        ended.result,
        ended.began,
        left,
        tree,
        changed=[*changed],
        restored=restored,
        protected=protected,
        naming=leads_nowhere(place, changed),
        notices=notices,
        said=text.redact(handoff.decode("utf-8", "replace")),
    )


def changed_copies(place: Checkout, copies: Mapping[str, bytes]) -> list[str]:
    """Those of ralph's own files of which the agent changed the copy in its
    workspace."""
    changed = []
    for name, data in copies.items():
        if files.read_regular(place.root / name, len(data) + 1) != data:
            changed.append(text.one_line(name))
    return changed


# ---------------------------------------------------------------- after a kill


def note_end(loop: Loop, worker: int, ended: Ended) -> None:
    """Note how an agent ended."""
    result = replace(ended.result, text=ended.result.text[-_LAST_WORDS:])
    path = loop.paths.private / f"work-{worker}.ended"
    files.make_way(path)
    files.atomic_write(path, codec.dumped(replace(ended, result=result)))


def noted_end(loop: Loop, begun: Begun) -> Ended:
    """How the agent of an attempt ended, as it was noted; else as one that was cut off,
    with what it had reported by then."""
    ended = codec.load(Ended, loop.paths.private / f"work-{begun.worker}.ended")
    if ended and ended.attempt == begun.id:
        return ended
    result = cut_off(loop, begun.agent, begun.name, "the attempt was cut off")
    return Ended(begun.id, result)


def collect_again(loop: Loop, begun: Begun) -> Worked | None:
    """What an attempt left whose loop died; None if its agent had not started."""
    place = loop.places.workspace(begun.worker, begun.task.allow)
    start = noted_start(place)
    if start is None or start.attempt != begun.id:
        return None
    remove_lock(place)
    ended = noted_end(loop, begun)
    return second_snapshot(loop, begun, ended, Ready(place, start, {}))


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
