"""From work to a verdict: the work on the tip of the branch as a commit, and what hooks,
checks and the judge say of it. In the room."""

from __future__ import annotations

from collections.abc import Sequence

from _ralph import text
from _ralph.checks import hooks
from _ralph.checks.changed import changed_tests
from _ralph.checks.elsewhere import remove_strays
from _ralph.checks.evidence import Evidence, Question, gather
from _ralph.checks.hooks import Hooked, Message
from _ralph.checks.places import HOOKS
from _ralph.checks.results import Own, Results
from _ralph.checks.room import Room
from _ralph.checks.running import Job, baseline, prefix_fails, results_of
from _ralph.checks.verdict import Case, Decision, decide, kept_away
from _ralph.errors import SetupFailed
from _ralph.git.litter import changed_at, ignored_since
from _ralph.git.merge import merge, still_marked
from _ralph.loop.claim import own_checks, own_key, program_of
from _ralph.loop.loop import Loop
from _ralph.loop.roles import ask_judge
from _ralph.loop.stages import Candidate, Examined, Worked
from _ralph.model import Check, CheckResult, Verdict
from _ralph.state.limits import attempts_at


def make_candidate(loop: Loop, worked: Worked) -> Candidate:
    """The work, merged with the tip of the branch, as a commit. With a decision where
    they conflict, or where markers of an earlier conflict still stand."""
    begun = worked.begun
    branch = loop.branch
    tip = loop.tip()
    if not worked.tree:
        return Candidate(worked, tip, tip)
    said = hooks.message_for(loop.places, begun.task, begun.iteration, begun.number)
    trailers = hooks.trailers(begun.agent.command, begun.id)
    whole = "\n".join([said, "", *trailers, ""])
    if "\n" in said:  # it may have trailers of its own
        whole = hooks.with_trailers(loop.places, said, trailers)
    message = Message(said, trailers)
    signs = branch.signs and not loop.places.has_hooks()
    made = branch.commit(worked.tree, begun.base, whole, sign=signs)
    if made == begun.base:
        return Candidate(worked, tip, tip)
    marked = still_marked(loop.git, worked.tree, begun.conflict.marked)
    away = kept_away(worked.result)
    if marked and away:  # nobody has had the chance to resolve it
        cut_off = Decision(away, worked.result.reason)
        return Candidate(worked, tip, tip, cut_off)
    if marked:  # the next attempt starts clean
        reason = f"conflict markers are left in {text.few(marked)}"
        failed = Decision(Verdict.FAILED, reason)
        parked = branch.park(made, begun.name)
        return Candidate(worked, tip, tip, failed, parked)
    if tip != begun.base:
        merged = merge(loop.git, tip, made)
        if merged.conflicts:
            names = text.few(merged.conflicts)
            reason = f"it conflicts with what was committed meanwhile: {names}"
            return Candidate(worked, tip, tip, Decision(Verdict.CONFLICT, reason))
        made = branch.commit(merged.tree, tip, whole, sign=signs)
    branch.pin("candidate", made)
    return Candidate(worked, tip, made, message=message)


def examine(loop: Loop, results: Results, candidate: Candidate) -> Examined:
    """What hooks, checks and the judge say of a candidate. StopNow if ralph must
    stop."""
    worked = candidate.worked
    begun = worked.begun
    result = worked.result
    if candidate.decision:
        return Examined(candidate, candidate.commit, candidate.decision, result)
    program = program_of(loop, begun.task)
    hooked = Hooked(candidate.commit)
    evidence: list[Evidence] = []
    notices = remove_strays(loop.paths.places)
    # Of all tasks: one may undo what proved another
    every = [*program, *loop.plan.every_check]
    commands = {check.command for check in every}
    tests = changed_tests(loop.git, candidate.tip, candidate.commit, commands)
    can_pass = candidate.changes_tree or kept_away(result) is None
    # what follows a path of this machine would be green here alone
    if can_pass and not worked.naming:
        hooked, evidence = loop.when_setup_works(
            begun.task.id,
            lambda: gathered(loop, results, candidate, program, tests),
        )
    ignored: list[str] = []
    if any(not one.result.ok for one in evidence) or not candidate.changes_tree:
        ignored = ignored_by(loop, worked)
    decision = decide(
        Case(
            result=result,
            changed=hooked.commit != candidate.tip,
            evidence=evidence,
            naming=worked.naming,
            left_out=worked.restored,
            protected=worked.protected,
            ignored=ignored,
            judge=loop.agents.judge is not None,
        )
    )
    examined = Examined(
        candidate,
        hooked.commit,
        decision,
        result,
        checks=[one.result for one in evidence],
        tests=tests,
        notices=[*notices, *hooked.notices, *decision.notices],
    )
    if examined.passed and loop.agents.judge:
        return ask_judge(loop, examined, loop.agents.judge)
    return examined


def gathered(
    loop: Loop,
    results: Results,
    candidate: Candidate,
    program: list[Check],
    tests: list[str],
) -> tuple[Hooked, list[Evidence]]:
    """What hooks make of a candidate, and what they and checks say. SetupFailed if `setup` is red on the
    branch's own files, or the prefix starts nothing."""
    worked, tip = candidate.worked, candidate.tip
    begun = worked.begun
    env = begun.variables(loop.paths)
    hooked = Hooked(candidate.commit)
    # a recovered attempt does not know what was red before it
    own_checks(loop, results, begun, tip)
    if candidate.message and loop.places.has_hooks():
        # they do what they like in the room: nothing is known of it afterwards
        results.room_changes()
        loop.view.doing("running commit hooks")
        room = Room.at(loop.places, loop.paths.room, env)
        hooked = hooks.run_hooks(
            loop.branch,
            room,
            candidate.commit,
            tip,
            candidate.message,
            begun.task.allow,
            begun.name,
        )
        why = prefix_fails(loop.places, room.path) if hooked.red else ""
        if why:
            raise SetupFailed(why)
    commit = hooked.commit

    def run(
        on: str, checks: Sequence[Check], label: str, again: bool
    ) -> list[CheckResult]:
        loop.view.doing("running checks")
        name = begun.name + {tip: "-tip", commit: ""}.get(on, "-earlier")
        if again:
            name += "-again"
        job = Job(on, checks, name, label, env, again)
        checked = results_of(loop.places, results, job)
        if checked.red_setup:
            baseline(loop.places, results, tip, [], f"{begun.name}-tip")
        hooked.notices += checked.notices
        return checked.checks

    evidence: list[Evidence] = []
    if all(one.name in HOOKS for one in hooked.red):
        evidence = gather(
            Question(
                candidate=commit,
                tip=tip,
                program=program,
                plan=loop.plan.checks,
                own={check.command for check in begun.task.checks},
                began=results.known.own.get(own_key(loop, begun.task), Own()),
                allow=begun.task.allow,
                changed=worked.changed,
                tests=tests,
                gives_up=begun.number >= attempts_at(loop.limits, begun.task),
                outcome=worked.result.outcome,
                run=run,
                runs=results.runs,
                ancestors=loop.branch.ancestors,
            )
        )
    evidence += [Evidence(one) for one in hooked.results]
    return hooked, evidence


def ignored_by(loop: Loop, worked: Worked) -> list[str]:
    """What the attempt made in the workspace that git ignores."""
    place = loop.places.workspace(worked.begun.worker)
    if not place.exists:
        return []
    began = changed_at(place.beside("start"))
    return [text.one_line(name) for name in ignored_since(place, began)[:20]]
