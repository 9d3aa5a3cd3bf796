"""What the plan's checks say before any work: whether anything guards the run, and what
a person should know of what is red."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from _ralph import text
from _ralph.checks import faults
from _ralph.checks.evidence import earlier_runs, up_to
from _ralph.checks.faults import Fault
from _ralph.checks.places import Places
from _ralph.checks.results import BEFORE, Results
from _ralph.checks.running import Checked, Job, baseline, require_setup, results_of
from _ralph.files import read_text, table
from _ralph.git.branch import Branch
from _ralph.model import Check, CheckResult, Plan

CALL = re.compile(r"(?:npm|pnpm|yarn|bun)(?: run| -s| --silent)* ([\w:.-]+)")
"""A command that starts a script of package.json."""


@dataclass(frozen=True)
class Guard:
    """A check of the plan on the tip, before any work. `holds`: it, or a single test of
    it, is green. `starts_red`: it may be red, as the plan is to mend it, or as there is
    nothing to test yet. `fault` is what the place lacks. `unloaded` are sentences about
    test files that cannot run for want of a module that is not the project's own."""

    check: Check
    result: CheckResult
    holds: bool
    starts_red: bool = False
    fault: Fault | None = None
    unloaded: Sequence[str] = ()

    @property
    def why(self) -> str:
        """What is wrong with it: what the place lacks, else its outcome."""
        return self.fault.sentence if self.fault else self.result.outcome

    @property
    def is_to_be_mended(self) -> bool:
        """Whether it is red, and neither expected nor for want of what the place
        lacks."""
        return not (self.holds or self.starts_red or self.fault or self.unloaded)

    @property
    def red_lines(self) -> list[str]:
        """The end of its output, and where all of it is."""
        lines = text.last_lines(self.result.tail)
        shown = [f"    | {line}" for line in lines]
        return [*shown, f"    all of it: {self.result.log}"]


def guards_at(
    places: Places, branch: Branch, results: Results, tip: str
) -> tuple[list[Guard], Checked]:
    """What each check of the plan says on the tip, and what happened there. Where none
    is green, what is red runs once more, and a suite that reports nothing is asked on
    the commits before. SetupFailed if `setup` is red."""
    checks = places.settings.plan.checks

    def look() -> list[Guard]:
        guards = []
        for check in checks:
            runs = results.runs(tip, check.command)
            guards.append(guard_of(places, check, runs, tip))
        return guards

    found = baseline(places, results, tip, checks, "baseline")
    guards = look()
    if are_needed(guards):
        again = Job(tip, checks, "baseline-again", BEFORE, again=True)
        found.notices += require_setup(results_of(places, results, again)).notices
        guards = look()
    if are_needed(guards):
        guards = [look_back(places, branch, results, tip, guard) for guard in guards]
    return guards, found


def are_needed(guards: Sequence[Guard]) -> bool:
    """Whether nothing guards the run, and something should."""
    return bool(guards) and not any(one.holds or one.starts_red for one in guards)


def guard_of(
    places: Places, check: Check, runs: Sequence[CheckResult], tip: str
) -> Guard:
    """What all runs of a check on the tip say together: green in one of them is
    green."""
    for result in runs:
        if result.ok:
            return Guard(check, result, holds=True)
    starts_red = check.starts_red or places.settings.options.starts_red
    return Guard(
        check,
        result,
        holds=bool(result.tests and result.tests.passed),
        starts_red=starts_red or faults.has_nothing_to_test(result.tail),
        fault=faults.find(result.tail, places.home, places.paths.room),
        unloaded=() if starts_red else unloaded(places, result, tip),
    )


def unloaded(places: Places, result: CheckResult, tip: str) -> list[str]:
    """Sentences about the test files that lack a module which neither the commit `tip`
    has nor an open task names: they would guard nothing, and nobody would see it."""
    tests = result.tests
    if tests is None or not tests.uncollected:
        return []
    plan, tracked = places.settings.plan, places.home.entries(tip)
    tasks = [task.raw for task in plan.tasks if not task.passed]
    words = f"{plan.project} {json.dumps(tasks, ensure_ascii=False)}"
    said = []
    for name in tests.uncollected:
        module = faults.missing_module(tests.failed.get(name, ""))
        if module and not faults.is_own(module, tracked, f"{name} {words}"):
            said.append(f"No module named {module}: {name} does not run")
    return said


def look_back(
    places: Places, branch: Branch, results: Results, tip: str, guard: Guard
) -> Guard:
    """The same, as the newest commit before says where the suite ran whole, for one that
    reports nothing on the tip."""
    if not guard.check.results or guard.fault:
        return guard

    def run(
        commit: str, checks: Sequence[Check], label: str, again: bool
    ) -> list[CheckResult]:
        job = Job(commit, checks, "baseline-earlier", label, again=again)
        return results_of(places, results, job).checks

    checks = up_to(places.settings.plan.checks, [guard.check.command])
    earlier = earlier_runs(checks, branch.ancestors(tip), run, results.runs)
    return replace(guard, holds=bool(earlier))


# ---------------------------------------------------------------- in words


def ways_on(plan: Plan, root: Path, guards: Sequence[Guard]) -> list[str]:
    """What a person can do where nothing guards the run."""
    ways = ["mend it, or what it needs: `setup` in the plan installs that"]
    for guard in guards:
        line = with_results(guard.check, root)
        if line:
            ways.append(
                f"or count single tests, then old failures do not count, in "
                f"{where_in(plan, guard.check)}: {line}"
            )
    ways.append(
        'or, if the plan is to mend it: "startsRed": true in the check, or '
        "`ralph run --starts-red`"
    )
    return ways


def where_in(plan: Plan, check: Check) -> str:
    """Where a check stands: the line of the plan, or the option."""
    before, found, _ = plan.text.partition(json.dumps(check.run, ensure_ascii=False))
    if not found:
        return f"{plan.path.name} or --check"
    line = before.count("\n") + 1
    return f"{plan.path.name}, line {line}"


def with_results(check: Check, root: Path) -> str:
    """The check as it reports single tests, in JSON; nothing where it does so already,
    or its runner is not known."""
    command = check.command
    if check.results or re.search(r"[|;<>`$]", command):
        return ""
    manifest = read_text(root / "package.json")
    starts = command
    script = CALL.fullmatch(command)
    if script:
        said = re.search(rf'"{re.escape(script[1])}"\s*:\s*"([^"]*)"', manifest)
        starts = said[1] if said else ""
    run = reporting(command, starts, manifest)
    if not run:
        return ""
    return json.dumps({"run": run, "results": "junit"}, ensure_ascii=False)


def reporting(command: str, starts: str, manifest: str) -> str:
    """A command as it reports single tests; nothing if what it `starts` in the end is
    no runner that is known to, with a package.json that says `manifest`."""
    if command.startswith("npm "):
        command += " --"
    for row in table("detect.json")["reports"]:
        match = re.search(row["words"], starts)
        if match and row["needs"] in manifest:
            return match.expand(row["run"]).replace("{command}", command)
    return ""
