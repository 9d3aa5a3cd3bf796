"""From work to a verdict: the work on the tip of the branch as a commit, and what hooks,
checks and the judge say of it. In the room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from _ralph import text
from _ralph.checks import hooks
from _ralph.checks.changed import changed_tests
from _ralph.checks.evidence import FURTHEST, Evidence, Question, gather
from _ralph.checks.hooks import Hooked, Message
from _ralph.checks.places import HOOKS, MESSAGE_HOOKS
from _ralph.checks.results import Own, Results
from _ralph.checks.room import Room
from _ralph.checks.running import Job, baseline, results_of
from _ralph.checks.verdict import Case, Decision, after_judge, decide, kept_away
from _ralph.git.merge import merge, still_marked
from _ralph.loop.before import own_checks, own_key, program_of, refused
from _ralph.loop.branch import tip_of
from _ralph.loop.loop import Loop
from _ralph.loop.roles import ask_judge
from _ralph.loop.setup import when_setup_works
from _ralph.loop.stages import Begun, Candidate, Examined, Worked
from _ralph.model import Check, CheckResult, Verdict
from _ralph.state.limits import attempts_at

_MADE_OF = (*HOOKS, ".pre-commit-config.yaml")
"""Names of files that commit hooks are made of."""
KILLED = "its checks killed ralph twice"


def make_candidate(loop: Loop, worked: Worked) -> Candidate:
    """The work, merged with the tip of the branch, as a commit. With a decision where
    they conflict, or where markers of an earlier conflict still stand."""
    begun, branch = worked.begun, loop.branch
    tip = tip_of(loop)
    if not worked.tree:
        return Candidate(worked, tip, tip)
    words = message_of(loop, begun).whole
    signs = branch.signs and not loop.places.has_hooks()
    made = branch.commit(worked.tree, begun.base, words, sign=signs)
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
        made = branch.commit(merged.tree, tip, words, sign=signs)
    branch.pin_candidate(made)
    return Candidate(worked, tip, made)


def message_of(loop: Loop, begun: Begun) -> Message:
    """The message of an attempt's commit, and ralph's trailers."""
    said = hooks.message_for(loop.places, begun.task, begun.iteration, begun.number)
    given = hooks.trailers(begun.agent.command, begun.id)
    whole = "\n".join([said, "", *given, ""])
    if "\n" in said:  # it may have trailers of its own
        whole = hooks.with_trailers(loop.places, said, given)
    return Message(said, given, whole)


def examine(loop: Loop, results: Results, candidate: Candidate) -> Examined:
    """What hooks, checks and the judge say of a candidate. StopNow if ralph must
    stop."""
    worked, begun = candidate.worked, candidate.worked.begun
    result = worked.result
    if worked.deaths > 1:
        killed = Decision(Verdict.FAILED, KILLED)
        return Examined(candidate, candidate.tip, killed, result)
    if candidate.decision:
        return Examined(candidate, candidate.commit, candidate.decision, result)
    program = program_of(loop, begun.task)
    tests = tests_changed(loop, candidate, program)
    hooked = Hooked(candidate.commit)
    evidence: list[Evidence] = []
    notices: list[str] = [*hook_notices(worked)]
    naming: list[str] = []
    refusal = ""
    if candidate.changes_tree or kept_away(result) is None:
        # A recovered attempt does not know what was red before it
        when_setup_works(
            loop,
            begun.task.id,
            lambda: own_checks(loop, results, begun, candidate.tip),
        )
        # The commit that the commit hooks make of it
        if candidate.changes_tree and loop.places.has_hooks():
            hooked = commit_with_hooks(loop, results, candidate)
            notices += hooked.notices
            refusal = refusal_of(loop, results, candidate, hooked)
        # What the checks say of that commit
        asked = Asker(loop, results, candidate, hooked, program)
        if all(one.name in HOOKS for one in hooked.red):
            evidence = when_setup_works(
                loop, begun.task.id, lambda: gather(question(asked, tests))
            )
            notices += asked.notices
            naming = asked.naming
        evidence += [Evidence(one) for one in hooked.results]
    ignored: list[str] = []
    if any(not one.result.ok for one in evidence) or not candidate.changes_tree:
        ignored = ignored_by(loop, worked)
    case = Case(
        result=result,
        changed=hooked.commit != candidate.tip,
        program=program,
        evidence=evidence,
        naming=naming,
        left_out=worked.restored,
        protected=worked.protected,
        ignored=ignored,
        judge=loop.agents.judge is not None,
    )
    decision = decide(case)
    results.forget_old()
    results.save()
    if decision.verdict is Verdict.FAILED and begun.base != candidate.tip:
        between = "; ".join(loop.branch.log(f"{begun.base}..{candidate.tip}"))
        notices.append(f"checked on top of what was committed meanwhile: {between}")
    examined = Examined(
        candidate,
        hooked.commit,
        decision,
        result,
        checks=[one.result for one in evidence],
        tests=tests,
        refused=refusal,
        notices=[*notices, *decision.notices],
    )
    if examined.passed and loop.agents.judge:
        return judged(loop, examined)
    return examined


def tests_changed(loop: Loop, candidate: Candidate, program: list[Check]) -> list[str]:
    """The tests that a candidate changed, and the files that decide what checks do."""
    if not candidate.changes_tree:
        return []
    commands = [check.command for check in program]
    changed = candidate.worked.changed
    return changed_tests(loop.git, candidate.tip, candidate.commit, changed, commands)


def hook_notices(worked: Worked) -> list[str]:
    """Lines about changed files that commit hooks are made of."""
    found = []
    for name in worked.changed:
        if Path(name).name in _MADE_OF:
            what = "which commit hooks are made of"
            found.append(f"the attempt changed {text.one_line(name)}, {what}")
    return found


def commit_with_hooks(loop: Loop, results: Results, candidate: Candidate) -> Hooked:
    """The commit that the commit hooks make of a candidate. They do what they like in
    the room, so nothing is known of it afterwards."""
    begun = candidate.worked.begun
    results.built = ""
    results.save()
    loop.view.doing("running commit hooks")
    room = Room.at(loop.places, loop.paths.room, begun.variables(loop.paths))
    return hooks.run_hooks(
        loop.places,
        loop.branch,
        room,
        candidate.commit,
        candidate.tip,
        message_of(loop, begun),
        begun.task.allow,
        begun.name,
    )


def refusal_of(
    loop: Loop, results: Results, candidate: Candidate, hooked: Hooked
) -> str:
    """Why the hooks let no message of ralph's pass, if they refuse it on the branch's
    own files, too: no other attempt can mend that."""
    if all(one.name not in MESSAGE_HOOKS for one in hooked.red):
        return ""
    begun = candidate.worked.begun
    said = hooks.message_for(loop.places, begun.task, begun.iteration, begun.number)
    results.accepted.discard(said)  # it let it pass before, and changed its mind
    return refused(loop, results, begun.task, said, candidate.tip)


class Asker:
    """Runs checks for the evidence on a candidate, and gathers what a person should
    know of that."""

    def __init__(
        self,
        loop: Loop,
        results: Results,
        candidate: Candidate,
        hooked: Hooked,
        program: list[Check],
    ) -> None:
        self.loop, self.results, self.candidate = loop, results, candidate
        self.commit, self.program = hooked.commit, program
        self.begun = candidate.worked.begun
        self.notices: list[str] = []
        self.naming: list[str] = []

    def run(
        self, commit: str, checks: Sequence[Check], label: str, again: bool
    ) -> list[CheckResult]:
        """Run checks on a commit. SetupFailed if `setup` is red on the branch's own
        files."""
        loop, begun = self.loop, self.begun
        loop.view.doing("running checks")
        work = commit == self.commit
        suffix = "" if work else "-tip" if commit == self.candidate.tip else "-earlier"
        job = Job(
            commit,
            checks,
            begun.name + suffix + ("-again" if again else ""),
            label=label,
            env=begun.variables(loop.paths),
            before=self.candidate.commit if work else "",
            changed=self.candidate.worked.changed if work else (),
            again=again,
        )
        found = results_of(loop.places, self.results, job)
        if found.red_setup:
            tip, name = self.candidate.tip, f"{begun.name}-tip"
            baseline(loop.places, self.results, tip, [], name)
        self.notices += found.notices
        self.naming += found.naming
        return found.checks


def question(asker: Asker, tests: list[str]) -> Question:
    """What is asked of a candidate."""
    loop, begun = asker.loop, asker.begun
    most = attempts_at(loop.limits, begun.task)
    worked = asker.candidate.worked
    asker.notices, asker.naming = [], []
    return Question(
        candidate=asker.commit,
        tip=asker.candidate.tip,
        program=asker.program,
        plan=loop.plan.checks,
        own={check.command for check in begun.task.checks},
        began=asker.results.own.get(own_key(loop, begun.task), Own()),
        allow=begun.task.allow,
        changed=worked.changed,
        tests=tests,
        gives_up=begun.number >= most,
        outcome=worked.result.outcome,
        run=asker.run,
        runs=asker.results.runs,
        ancestors=lambda commit: loop.branch.ancestors(commit, FURTHEST),
    )


def ignored_by(loop: Loop, worked: Worked) -> list[str]:
    """What the attempt made in the workspace that git ignores."""
    place = loop.places.workspace(worked.begun.worker)
    if not worked.began or not place.exists:
        return []
    return [text.one_line(name) for name in place.ignored_since(worked.began)[:20]]


def judged(loop: Loop, examined: Examined) -> Examined:
    """Ask the judge about work that passes by evidence. One that is limited or cannot
    answer now is waited for."""
    judgement, answer, result = ask_judge(loop, examined)
    decision = after_judge(examined.decision, result, answer)
    own = examined.result
    if result.no_price and not own.no_price:
        own = replace(own, no_price=result.no_price)
    return replace(examined, decision=decision, judgement=judgement, result=own)
