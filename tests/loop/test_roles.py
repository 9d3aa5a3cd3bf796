"""The judge: a second opinion that can only take a pass away, and loses no work when it
is away. How its answer is read, tests of the checks say."""

from __future__ import annotations

from typing import Any

from tests.conftest import Repo
from tests.scripts import LIMIT, LOOKS_OFTEN, NEVER_STUCK, ROW, cost, speaker

WORK = "P('T1.txt').write_text('work\\n'); (OUT / 'worked').open('a').write('x')"
TASK: dict[str, Any] = {
    "checks": ["test -f T1.txt"],
    "acceptanceCriteria": ["It is there", "It is tested"],
}


YES = """{"criteria": [
    {"criterion": "It is there", "met": true, "reason": "a.txt:1"},
    {"criterion": "It is tested", "met": true, "reason": "a.txt:2"}]}"""
SAYS_YES = f"print('''{YES}''')"


def says_yes(**more: Any) -> str:
    """The same by a judge that speaks as Claude does, for 50 cents."""
    return cost(0.5, result=YES, **more)


def judged(repo: Repo, script: str, *words: str) -> tuple[int, dict[str, Any], str]:
    judge = repo.agent(script, "judge")
    return repo.run(repo.agent(WORK), "--judge", judge, *words)


def counts(repo: Repo) -> str:
    """A line of a judge's script: `n` is how often it was asked."""
    return "asked = OUT / 'asked'; asked.open('a').write('x'); n = len(asked.read_text())\n"  # fmt: skip


def test_a_judge_that_agrees_and_what_it_was_told(repo: Repo) -> None:
    repo.plan(TASK)
    reads = "(OUT / 'seen').write_text(open('T1.txt').read() + os.getcwd())"
    script = f"(OUT / 'told').write_text(prompt); {reads}; {SAYS_YES}"
    code, _, printed = judged(repo, script)
    assert (code, repo.passed()) == (0, ["T1"]), printed
    told = repo.read("../told")
    for part in ("1. It is there", "2. It is tested", "test -f T1.txt: passed", "+work", "git diff "):  # fmt: skip
        assert part in told
    assert repo.read("../seen") == f"work\n{repo.places / 'role'}"
    (record,) = repo.records("verdict")
    assert record["judge"]["agrees"] is True
    assert "- judge: " in repo.read("progress.txt")


def test_a_judge_that_says_no_fails_the_attempt_and_the_next_one_is_told(
    repo: Repo,
) -> None:
    repo.plan(TASK)
    no = YES.replace('true, "reason": "a.txt:2"', 'false, "reason": "there is no test"')
    script = f"{counts(repo)}print('''{no}''' if n < 2 else '''{YES}''')"
    worker = repo.agent(WORK + "; (OUT / 'prompt').write_text(prompt)")
    code, summary, _ = repo.run(worker, "--judge", repo.agent(script, "judge"))
    assert (code, repo.verdicts()) == (0, ["T1 failed", "T1 passed"]), summary
    reason = "the judge says no: It is tested: there is no test"
    assert repo.records("verdict")[0]["reason"] == reason
    assert "- It is tested: there is no test" in repo.read("../prompt")


# The third: the form of an answer that it was shown is none.
NO_YES = f"""
print('fine')
sys.exit(1)
print(prompt)
print({YES!r}); sys.exit(3)
print('yes', flush=True); time.sleep(60)
"""


def test_whatever_is_no_clear_yes_is_a_no(repo: Repo) -> None:
    """A task each, behind one that the judge agrees with."""
    answers = [SAYS_YES, *NO_YES.strip().splitlines()]
    repo.plan(*[TASK] * len(answers), limits={"attempts": 1})
    worker = repo.agent("P('T1.txt').write_text(task)")
    judge = repo.agent(f"exec({answers!r}[int(task[1:]) - 1])", "judge")
    words = ("--judge", judge, "--agent-timeout", "2s")
    code, _, printed = repo.run(worker, *words, first=NEVER_STUCK)
    assert (code, repo.passed()) == (4, ["T1"]), printed
    verdicts = "T1 passed, T2 failed, T3 failed, T4 failed, T5 failed, T6 failed"
    assert ", ".join(repo.verdicts()) == verdicts


def test_an_answer_that_cannot_be_read_is_asked_for_once_more_on_the_same_work(
    repo: Repo,
) -> None:
    repo.plan(TASK, TASK, limits={"attempts": 1})
    script = f"{counts(repo)}print('hm' if n != 2 else '''{YES}''')"
    worker = repo.agent("P('T1.txt').write_text(task); (OUT / 'worked').open('a').write('x')")  # fmt: skip
    code, _, printed = repo.run(worker, "--judge", repo.agent(script, "judge"))
    assert (code, repo.verdicts()) == (4, ["T1 passed", "T2 failed"]), printed
    assert (repo.read("../worked"), repo.read("../asked")) == ("xx", "xxxx")


def test_a_judge_that_is_limited_is_waited_for_and_the_work_not_done_again(
    repo: Repo,
) -> None:
    """In the room, and without a verdict; or the run ends, and the next one asks it."""
    permissions = {"read": ["--read"]}
    row = {**ROW, "argv": ["speaker", "{permissions}"], "permissions": permissions}
    repo.plan(TASK, agents={"speaker": row})
    notes = "(OUT / 'argv').write_text(' '.join(sys.argv))\n"
    script = f"{notes}{counts(repo)}print('''{LIMIT}''' if n < 4 else {says_yes()!r})"
    judge, worker = speaker(repo, script), repo.agent(WORK)
    for number in (1, 2):
        words = ("--judge", judge, "--max-wait", "0")
        code, summary, _ = repo.run(worker, *words)
        assert (code, summary["tasks"][0]["attempts"]) == (75, 0)
        assert repo.read("../asked") == "x" * number
    soon = f"{LOOKS_OFTEN}limits.BACKOFF = (1.0,)\n"
    code, summary, printed = repo.run(worker, "--judge", judge, first=soon)
    assert (code, repo.passed(), summary["usd"]) == (0, ["T1"], 0.5), printed
    assert "the judge cannot answer now: " in printed
    assert (repo.read("../worked"), repo.read("../asked")) == ("x", "xxxx")
    assert repo.read("../argv").endswith("--read")
    assert repo.verdicts() == ["T1 passed"]


def test_a_judge_that_cannot_run_ends_the_run_with_5_and_the_work_is_kept(
    repo: Repo,
) -> None:
    repo.plan(TASK)
    code, summary, _ = judged(repo, "sys.exit(127)")
    assert (code, repo.passed()) == (5, [])
    assert "the judge cannot run" in summary["reason"]
    code, _, printed = repo.run(repo.agent(WORK), "--judge", "no-such-judge")
    assert code == 5
    assert "no-such-judge" in printed
    code, _, printed = judged(repo, SAYS_YES)
    assert (code, repo.verdicts()) == (0, ["T1 passed"]), printed
    assert repo.read("../worked") == "x"


def test_a_plan_without_checks_passes_by_its_judge_alone_and_is_weak(
    repo: Repo,
) -> None:
    repo.plan({"acceptanceCriteria": ["It is there"]})
    code, _, _ = judged(repo, SAYS_YES)
    assert code == 0
    assert repo.records("verdict")[0]["weak"] is True
    assert "weak" in repo.ralph("status").stdout


def test_what_a_judge_changes_is_no_part_of_the_work(repo: Repo) -> None:
    repo.plan(TASK, {"checks": ["false"]}, limits={"attempts": 1})
    deeds = "P('T1.txt').write_text('mine'); P('new.txt').touch(); P('a.txt').unlink(); P('prd.json').write_text('{}')"
    commits = "sh('git commit -qam mine; rm -rf .git')"
    judged(repo, f"{deeds}\n{commits}\n{SAYS_YES}")
    assert repo.passed() == ["T1"]
    assert repo.commits() == ["T1: task 1"]
    assert repo.landed("T1.txt") == "work\n"
    assert repo.git("diff", "--name-only", "main", "ralph/p").split() == ["T1.txt"]
    assert repo.read("a.txt") == "a\n"
