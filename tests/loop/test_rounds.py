"""Between the attempts: which task is next, why a run stops, what the re-check sets
back."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from _ralph.loop.attempt import begin
from _ralph.loop.jobs import Attempt
from _ralph.loop.run import Run, asked_to_stop

from _ralph.errors import Exit, RalphError
from _ralph.loop import rounds
from _ralph.model import AgentResult, Outcome, Verdict
from _ralph.state import layout
from _ralph.state.history import NEVER, Away
from _ralph.state.records import AttemptBegan, AttemptEnded
from tests.conftest import Repo
from tests.git.test_branch import work_on
from tests.git.test_workspace import head

Opened = Callable[..., Run]


def attempt_of(run: Run, number: int = 0, **more: Any) -> Attempt:
    task = run.plan.tasks[number]
    return Attempt(task, 1, 1, run.agents.agent(task), **more)


def under_way(run: Run, number: int, worker: int) -> None:
    async def steps() -> None: ...

    run.pool.add(attempt_of(run, number, worker=worker), steps())


@pytest.mark.parametrize(
    ("tasks", "busy", "jobs", "task"),
    [
        ([{}, {}], [], 1, "T1"),
        ([{"passes": True}, {}], [], 1, "T2"),
        ([{"blocked": "why"}, {}], [], 1, "T2"),
        ([{"dependsOn": ["T2"]}, {}], [], 1, "T2"),
        ([{"priority": 2}, {"priority": 1}], [], 1, "T2"),
        ([{}, {}], [0], 1, None),
        ([{}, {}], [0], 2, "T2"),
        ([{}, {"dependsOn": ["T1"]}, {}], [0], 2, "T3"),
        (
            [{"passes": True}, {"dependsOn": ["T1"]}],
            [0],
            2,
            None,
        ),  # marked, while it is under way
        ([{"agent": "gone"}, {}], [], 1, "T2"),
    ],
)
def test_the_next_task(
    repo: Repo,
    opened: Opened,
    tasks: list[dict[str, Any]],
    busy: list[int],
    jobs: int,
    task: str | None,
) -> None:
    repo.plan(*tasks, checks=["true"])
    run = opened(limits={"jobs": jobs})
    run.history.this_run.away = {"gone": Away(reset=NEVER)}
    for number in busy:
        under_way(run, number, number + 1)
    found = rounds.next_task(run)
    assert (found and found.id) == task
    run.pool.close()


def test_with_a_task_that_is_asked_for_no_other_is_worked(
    repo: Repo, opened: Opened
) -> None:
    repo.plan({}, {"dependsOn": ["T1"]}, {}, checks=["true"])
    assert [task.id for task in rounds.ready(opened(task="T3"))] == ["T3"]
    assert rounds.ready(opened(task="T2")) == []


@pytest.mark.parametrize(
    ("signals", "stop"),
    [
        ([], None),
        ([signal.SIGTERM], Exit.TERMINATED),
        ([signal.SIGHUP], Exit.HANGUP),
        ([signal.SIGINT], Exit.INTERRUPTED),
        ([signal.SIGINT, signal.SIGTERM], Exit.TERMINATED),
    ],
)
def test_the_stop_that_a_signal_asks_for(
    repo: Repo, opened: Opened, signals: list[signal.Signals], stop: Exit | None
) -> None:
    repo.plan({}, checks=["true"])
    run = opened()
    run.control.on_interrupt = lambda: (
        None
    )  # as a run has it: the first one lets attempts end
    for number in signals:
        run.control._note(number, None)
    found = asked_to_stop(run)
    assert (found and found.exit) == stop


def test_a_stop_that_a_person_asks_for_is_heard_by_this_run_alone(
    repo: Repo, opened: Opened
) -> None:
    repo.plan({}, checks=["true"])
    run = opened()
    layout.stop_file(run.paths).write_bytes(b"another")
    assert asked_to_stop(run) is None
    layout.stop_file(run.paths).write_bytes(run.run_id.encode())
    assert (stop := asked_to_stop(run)) and stop.word == "asked"


@pytest.mark.parametrize(
    ("tasks", "options", "word", "code", "said"),
    [
        (
            [{"passes": True}],
            {},
            "complete",
            0,
            "every task passes, and all checks are green",
        ),
        (
            [{"passes": True}, {}],
            {"task": "T1"},
            "complete",
            0,
            "T1 passes, and all checks are green",
        ),
        (
            [{"passes": True}, {"blocked": "why?"}],
            {},
            "blocked",
            4,
            "1 left, and a person is needed: T2: why?",
        ),
        ([{"blocked": "x"}, {"dependsOn": ["T1"]}], {}, "blocked", 4, "2 left"),
    ],
)
def test_where_nothing_is_left_to_try(
    repo: Repo, opened: Opened, tasks: list[dict[str, Any]], options: dict[str, str], word: str, code: int, said: str
) -> None:  # fmt: skip
    repo.plan(*tasks, checks=["true"])
    stop = rounds.finish(opened(**options))
    assert (
        stop is not None
        and (stop.word, stop.exit) == (word, code)
        and stop.reason.startswith(said)
    )


def test_the_recheck_is_of_a_new_checkout_and_sets_back_what_is_red_there(
    repo: Repo, opened: Opened
) -> None:
    repo.plan(
        {"checks": ["test -f a.txt"], "passes": True},
        {"checks": ["test -f gone"], "passes": True},
    )
    run = opened()
    assert not rounds.recheck(run)
    assert repo.passed() == ["T1"] and [one.name for one in run.paths.rooms] == [
        "room-2"
    ]
    (record,) = repo.records("recheck")
    assert record["broken"] == [run.plan.tasks[1].key] and record["commit"] == run.tip
    assert rounds.recheck(run), "nothing has changed since"
    assert len(repo.records("recheck")) == 1


@pytest.mark.parametrize(
    ("verdict", "more", "options", "word", "code"),
    [
        (Verdict.FAILED, {}, {}, None, 0),
        (Verdict.FAILED, {}, {"once": True}, "once", 3),
        (Verdict.PASSED, {}, {"once": True}, "once", 0),
        (Verdict.INTERRUPTED, {"leftover": "checks"}, {"once": True}, None, 0),
        (Verdict.UNAVAILABLE, {}, {"once": True}, "unavailable", 5),
        (Verdict.LIMITED, {}, {"once": True}, "limited", 75),
        (Verdict.LIMITED, {}, {}, None, 0),  # others may work, or it is waited for
        (
            Verdict.PASSED,
            {"result": AgentResult(Outcome.DONE, no_price="why")},
            {},
            "no-price",
            4,
        ),
    ],
)
def test_the_stop_that_an_attempt_means(
    repo: Repo, opened: Opened, verdict: Verdict, more: dict[str, Any], options: dict[str, Any],
    word: str | None, code: int,
) -> None:  # fmt: skip
    repo.plan({}, checks=["true"])
    run = opened(**options)
    one = attempt_of(run, verdict=verdict, **more)
    reset = {Verdict.UNAVAILABLE: NEVER, Verdict.LIMITED: time.time() + 60}.get(
        verdict, 0.0
    )
    run.history.this_run.away = {"claude": Away(reset=reset)}
    stop = rounds.after_attempt(run, one)
    assert (stop and stop.word, stop.exit if stop else 0) == (word, code)


@pytest.mark.parametrize(
    ("away", "options", "word", "said"),
    [
        (
            Away(reset=NEVER, reason="no login"),
            {},
            "unavailable",
            "the agent cannot run: no login",
        ),
        (
            Away(reset=4e9, reason="busy"),
            {"no_wait": True},
            "limited",
            "no attempt can be made now: busy",
        ),
        (
            Away(reset=4e9, reason="busy"),
            {"once": True},
            "limited",
            "no attempt can be made now: busy",
        ),
        (Away(reset=4e9, reason="busy"), {}, "limited", "more than --max-wait allows"),
        (Away(reset=1.0), {}, None, ""),  # it is back by now
    ],
)
@pytest.mark.parametrize("role", ["claude", "judge"])
def test_the_stop_for_an_agent_or_a_judge_that_cannot_be_used(
    repo: Repo,
    opened: Opened,
    role: str,
    away: Away,
    options: dict[str, Any],
    word: str | None,
    said: str,
) -> None:
    repo.plan({}, checks=["true"], judge="judge")
    run = opened(**options)
    run.history.this_run.away = {role: away}
    stop = rounds.wait_or_finish(run)
    assert (stop and stop.word) == word and said in (stop.reason if stop else "")
    assert not (repo.path / "progress.txt").exists()


def test_an_agent_is_waited_for_once_and_a_wait_that_is_cut_short_goes_on(
    repo: Repo, opened: Opened
) -> None:
    repo.plan({}, checks=["true"])
    run = opened()
    reset = time.time() + 60
    run.history.this_run.away = {"claude": Away(time.time(), reset, reason="why")}
    run.control.sleep = lambda until, interrupted: None  # type: ignore[method-assign]
    for _ in range(2):
        assert rounds.wait_or_finish(run) is None
    (wait,) = repo.records("wait")
    assert reset < wait["until"] < reset + 5 and wait["command"] == "claude"
    assert rounds.next_task(run) is None


def test_a_task_that_a_person_unblocked_is_open_with_their_answer(
    repo: Repo, opened: Opened
) -> None:
    repo.plan({"notes": "which?\nthe blue one"}, checks=["true"])
    run = opened()
    known = run.history.of(run.plan.tasks[0])
    known.last = AttemptEnded(
        task="T1",
        iteration=1,
        verdict=Verdict.FAILED,
        blocked="x",
        handoff={"question": "which?"},
    )
    rounds.read_edits(run)
    (record,) = repo.records("retry")
    assert record["answer"] == "the blue one" and not known.blocked


@pytest.mark.parametrize("answers", [["", "yes"], ["yes", ""], ["yes", "yes"]])
def test_a_note_that_was_there_before_is_no_answer(
    repo: Repo, answers: list[str]
) -> None:
    repo.plan({"notes": "the wiki"}, checks=["false"])
    asks, known = (
        repo.agent(
            "n = OUT / 'n'; n.open('a').write('x')\n"
            "said('question', f'q{n.stat().st_size}')"
        ),
        "",
    )
    for number, answer in enumerate(answers, 1):
        repo.run(asks, "--max-attempts", "1")
        repo.ralph("retry", "T1", "--answer", answer)
        prompt = repo.ralph("prompt").stdout
        known = f'("q{number}"): {answer}' if answer else known
        assert known in prompt and prompt.count("A person answered") == bool(known)


def test_an_error_beside_others_waits_for_them(repo: Repo, opened: Opened) -> None:
    repo.plan({}, {}, checks=["true"])
    run = opened()
    with pytest.raises(RalphError, match="no"):
        rounds.stop_after_others(run, RalphError("no"))
    under_way(run, 0, 1)
    stop = rounds.stop_after_others(run, RalphError("no"))
    assert (stop.word, stop.reason, stop.exit) == ("error", "no", Exit.ERROR)
    run.pool.close()


def test_the_run_begins_with_what_was_red_before(repo: Repo, opened: Opened) -> None:
    repo.plan({}, checks=["test -f a.txt", "test -f gone"])
    run = opened()
    for _ in range(2):
        rounds.open_run_record(run)
    (record,) = repo.records("run")
    assert record[
        "base"
    ] == run.tip and "- red before the work: test -f gone\n" in repo.read(
        "progress.txt"
    )
    known = {
        command: run.results.newest(run.tip, command)
        for command in ("test -f a.txt", "test -f gone")
    }
    assert [found and found.ok for found in known.values()] == [True, False]


def test_what_had_landed_before_a_crash_has_passed_and_what_was_under_way_is_kept(
    repo: Repo, opened: Opened
) -> None:
    repo.plan({"checks": ["true"]}, {"checks": ["true"]}, {"checks": ["true"]})
    run = opened()
    tip, ids = run.tip, ("one", "two", "three")
    for number, own in enumerate(ids, 1):
        begun = AttemptBegan(
            task=f"T{number}",
            title=f"task {number}",
            iteration=number,
            id=own,
            command="claude",
            base=tip,
        )
        run.write(begun, "begins")
    tree = run.git.tree(work_on(repo, tip))
    commit = run.branch.commit(tree, tip, "T1: task 1\n\nRalph-Attempt: one\n")
    forged = run.branch.commit(
        tree, tip, "T2: Ralph-Attempt: two\n\nRalph-Attempt: other\n"
    )
    run.branch.land(commit, tip, "T1")
    run.branch.park(forged, "0002-T2")
    run.tip = commit
    rounds.resume(run)
    assert repo.passed() == ["T1"] and run.branch.tip() == commit
    assert repo.verdicts() == ["T1 passed", "T2 interrupted", "T3 interrupted"]
    assert not run.history.open_starts and run.history.holds(run.plan.tasks[0])
    rounds.resume(run)
    assert len(repo.verdicts()) == 3


GONE = "1" * 40


@pytest.mark.parametrize(
    ("left", "base", "cut"), [("", GONE, 3), (GONE, "", 1), ("HEAD^{tree}", GONE, 0)]
)
def test_a_clone_goes_on_without_the_work_that_it_lacks(
    repo: Repo, opened: Opened, left: str, base: str, cut: int
) -> None:
    """A log from elsewhere names commits and trees that are not here; attempts were cut
    off as well."""
    repo.plan({"checks": ["true"]}, agent="sh")
    run = opened()
    left, base = head(repo, left) if left.startswith("HEAD") else left, base or run.tip
    run.write(
        AttemptEnded(
            task="T1",
            title="task 1",
            iteration=1,
            verdict=Verdict.FAILED,
            base=base,
            left=left,
        ),
        "failed",
    )
    for number in range(2, 2 + cut):
        run.write(
            AttemptBegan(
                task="T1", title="task 1", iteration=number, command="sh", base=base
            ),
            "begins",
        )
        rounds.resume(run)
    rounds.resume(run)
    assert repo.verdicts() == ["T1 failed", *["T1 interrupted"] * cut]
    assert begin(run, run.plan.tasks[0]).left == ""
