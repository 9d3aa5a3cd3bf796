"""From checks to evidence: what runs again and why, by a runner that says what stands
in a table, and counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _ralph.checks.evidence import Evidence, Question, gather
from _ralph.checks.results import Known, Own, Results
from _ralph.model import Check, CheckResult, Outcome
from tests.checks import scripted
from tests.conftest import cases

LINT, SUITE, OWN = Check("lint", "lint"), Check("suite", "suite", results="junit"), Check("own", "own")  # fmt: skip
PROGRAM = (LINT, SUITE, OWN)


class Room:
    """Runs checks as a table says: for each commit, `NAME RUN; RUN, NAME ...`. The last
    run of a check is as all that follow. For `suite` a run is what
    `scripted.run` reads, for others + or -."""

    def __init__(self, **commits: str) -> None:
        self.results = Results(Path("unused"), lambda commit: commit, Known(""))
        self.calls: list[str] = []
        self.left: dict[tuple[str, str], list[str]] = {}
        for commit, rows in commits.items():
            for row in filter(None, rows.split(", ")):
                name, _, runs = row.partition(" ")
                self.left[commit, name] = runs.split("; ")

    def run(
        self, commit: str, checks: Sequence[Check], label: str, again: bool
    ) -> list[CheckResult]:
        self.calls.append(" ".join([commit, *(check.command for check in checks)]))
        if (commit, "setup") in self.left:
            return [CheckResult("setup", "make deps", False, 1)]
        due = checks if again else self.results.missing(commit, checks)
        for check in due:
            known = self.left.get((commit, check.command), ["+"])
            words = known.pop(0) if len(known) > 1 else known[0]
            result = CheckResult(check.name, check.command, words == "+", 1)
            if check.results:
                result = scripted.run(words, check.command)
            self.results.add(commit, [result])
        return self.results.recalled(commit, checks)

    def ask(self, **more: Any) -> list[Evidence]:
        """The evidence for the candidate `new`, made on `tip`, whose own checks ran
        there before the work."""
        first = self.run("tip", PROGRAM, "", False)
        green = {one.command: one.ok for one in first if one.command == "own"}
        self.calls.clear()
        given: dict[str, Any] = {
            "candidate": "new",
            "tip": "tip",
            "program": PROGRAM,
            "plan": PROGRAM[:2],
            "own": {"own"},
            "began": Own("tip", green),
            "run": self.run,
            "runs": self.results.runs,
            "ancestors": lambda _: [f"p{n}" for n in range(1, 11)],
        }
        return gather(Question(**given | more))

    @property
    def steps(self) -> str:
        """What ran after the candidate and the tip."""
        return ", ".join(self.calls[2:])


def earlier(words: str) -> dict[str, str]:
    """What ran on ancestors of the tip: nothing, but for what these words say."""
    found = {f"p{number}": "suite none" for number in range(1, 20)}
    for row in filter(None, words.split(", ")):
        commit, _, said = row.partition(" ")
        found[commit] = said
    return found


# Runs on the tip, on the candidate, and on ancestors of the tip (p1 the newest), as
# `Room` reads them; `last` for the task's last attempt, `killed` for an agent that did
# not end well. What runs more than once, what is then red and binds, what turned green.
@cases("""
tip | new | more -> steps | red | turned
suite a+, own -             | suite a+, own +                    |                  ->                                 | | own
suite a+, own -             | suite a+, own -                    |                  ->                                 | own |
suite a+, own -             | suite a+, own -                    | last             -> new lint suite own              | own |
suite a+, own -             | suite a+, own -; +                 | last             -> new lint suite own              | |
suite a+, own -             | suite a-; a+, own +                |                  -> new lint suite                  | | own
suite a+, own -             | suite a-, own +                    |                  -> new lint suite                  | suite | own
suite a+; a-, own -         | suite a-, own +                    | last             -> new lint suite, tip lint suite  | | own
suite a+, own -             | suite b+, own +                    |                  -> new lint suite, tip lint suite  | suite | own
suite a+ t1+; a+ t2+, own - | suite a+ t3+; a+ t4+, own +        |                  -> new lint suite, tip lint suite  | | own
suite a+, own -             | suite none, own +                  |                  ->                                 | suite | own
suite a+, own -             | suite a-, own -                    |                  ->                                 | suite own |
suite a+ b-, own -          | suite a+ b-, own +                 |                  ->                                 | | own
suite a+ b-, own +          | suite a+ b+                        |                  ->                                 | | suite
lint +, own -               | lint -, own +                      |                  ->                                 | lint | own
lint +, own -               | lint -, own +                      | last             -> new lint, tip lint              | lint | own
lint +; -, own -            | lint -, own +                      | last             -> new lint, tip lint              | | own
lint +, own -               | lint -; +, own +                   | last             -> new lint                        | | own
lint -, own -               | lint -, own +                      | last             ->                                 | | own
lint -, suite a+, own -     | lint -, suite a-, own +            |                  -> new lint suite                  | suite | own
suite a+ b-, own +          | suite a+ b+                        | killed           -> tip lint suite                  | | suite
suite a+ b-; b+ a+, own +   | suite a+ b+                        | killed           -> tip lint suite                  | |
own -; +                    | own +                              | killed           -> tip lint suite own              | |
own -                       | own +                              | killed           -> tip lint suite own              | | own
own -                       | own -                              | killed           ->                                 | own |
suite none, own -           | suite a-, own +                    | p1 suite a+      -> p1 lint suite, new lint suite   | suite | own
suite none, own -           | suite a+, own +                    | p1 suite none, p2 suite a+ x!, p3 suite a+ -> p1 lint suite, p2 lint suite, p3 lint suite | | own
suite x!, own -             | suite a-, own +                    | p1 suite a-      -> p1 lint suite, p2 lint suite, p3 lint suite, p4 lint suite, p5 lint suite, p6 lint suite, p7 lint suite, p8 lint suite, p9 lint suite, p10 lint suite | | own
suite none, own -           | suite none, own +                  | p1 suite a+      -> p1 lint suite                   | | own
suite none, own -           | lint -, suite a-, own +            | p1 suite a+      -> p1 lint suite                   | lint suite | own
suite a+ exit 3, own -      | suite a+ exit 3, own +             |                  ->                                 | | own
suite a+ exit 3, own -      | suite none, own +                  |                  ->                                 | suite | own
suite a+ exit 3, own -      | suite a- exit 3, own +             |                  -> new lint suite                  | suite | own
""")
def test_what_runs_again_and_what_comes_of_it(
    tip: str, new: str, more: str, steps: str, red: str, turned: str
) -> None:
    room = Room(tip=tip, new=new, **earlier(more))
    outcome = Outcome.FAILED if more == "killed" else Outcome.DONE
    evidence = room.ask(gives_up=more == "last", outcome=outcome)
    assert room.steps == steps
    assert " ".join(one.result.name for one in evidence if one.red) == red
    assert " ".join(one.result.name for one in evidence if one.turned) == turned


def test_a_check_of_a_passed_task_that_must_be_kept_binds() -> None:
    kept = Check("kept", "kept")
    room = Room(tip="kept -, own -", new="kept -")
    found = room.ask(program=(LINT, SUITE, kept, OWN))
    assert [one.red for one in found] == [False, False, True, False]


def test_what_landed_meanwhile_is_no_evidence_for_a_killed_agent() -> None:
    room = Room(first="own -")
    room.run("first", PROGRAM, "", False)
    began = Own("first", {"own": False})
    assert room.ask(began=began)[2].turned is False  # it is green on the tip
    room = Room(tip="own -")
    found = room.ask(began=began, outcome=Outcome.TIMED_OUT)
    assert found[2].turned and found[2].base is False


def test_a_setup_that_is_red_the_second_time_proves_nothing() -> None:
    room = Room(tip="suite a+, own -", new="suite a-")

    def run(*given: Any) -> list[CheckResult]:
        found = room.run(*given)
        return [CheckResult("setup", "make deps", False, 1)] if given[3] else found

    assert [one.red for one in room.ask(run=run)] == [False, True, False]
