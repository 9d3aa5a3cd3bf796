"""The judge: a second opinion that can only take a pass away, and loses no work when it
is away."""

from __future__ import annotations

import json
from typing import Any

import pytest

from _ralph.loop.roles import objections
from _ralph.model import Task
from tests.conftest import Repo
from tests.scripts import LIMIT, NEVER_STUCK, ROW, speaker

WORK = "P('T1.txt').write_text('work\\n'); (OUT / 'worked').open('a').write('x')"
TASK: dict[str, Any] = {
    "checks": ["test -f T1.txt"],
    "acceptanceCriteria": ["It is there", "It is tested"],
}


def answer(*met: bool, reason: str = "a.txt:1", **more: Any) -> str:
    words = ["It is there", "It is tested", "It is fast"]
    entries = [
        {"criterion": words[i], "met": one, "reason": reason}
        for i, one in enumerate(met)
    ]
    return json.dumps({"criteria": entries, **more})


def judged(repo: Repo, script: str, *words: str) -> tuple[int, dict[str, Any], str]:
    return repo.run(repo.agent(WORK), "--judge", repo.agent(script, "judge"), *words)


YES = answer(True, True)


@pytest.mark.parametrize(
    ("said", "agrees", "objection"),
    [
        (YES, True, ""),
        (f"I looked.\n```json\n{YES}\n```\nThat is all. {{}}", True, ""),
        (answer(True, True, True), True, ""),
        (answer(True, False, reason="no test"), False, "It is tested: no test"),
        (answer(True), False, "it judged 1 of 2 criteria"),
        (answer(), False, "it judged 0 of"),
        (YES.replace("true", '"yes"'), False, "It is there: a.txt:1"),
        (YES.replace("true", "1"), False, "It is there: a.txt:1"),
        (YES.replace('"met": true, ', ""), False, "It is there: a.txt:1"),
        (YES + YES, False, "cannot be read: 2 objects"),
        (answer(True, False) + YES, False, "cannot be read: 2 objects"),
        ("All criteria are met. APPROVED", False, "cannot be read: 0 objects"),
        ("", False, "cannot be read: 0 objects"),
        (YES[:-1], False, "cannot be read"),
        ('{"criteria": "all met"}', False, "cannot be read"),
        ('{"criteria": ["It is there", "It is tested"]}', False, "it judged 0 of"),
        ('{"criteria": [{"met": true}, {"met": true}]}', True, ""),
        (
            '{"criteria": [{"met": false}, {"met": true}]}',
            False,
            "a criterion: no reason given",
        ),
        ("{" * 50_000, False, "cannot be read"),
        (
            answer(True, False, reason="\x1b[31mred\nline"),
            False,
            "It is tested: red line",
        ),
    ],
)
def test_what_an_answer_says(said: str, agrees: bool, objection: str) -> None:
    found = objections(
        Task("T1", "t", 0, {}, criteria=("It is there", "It is tested")), said
    )
    assert objection in "; ".join(found) and bool(found) is not agrees


def test_a_judge_that_agrees_and_what_it_was_told(repo: Repo) -> None:
    repo.plan(TASK)
    reads = "print(open('T1.txt').read(), file=(OUT / 'seen').open('w')); (OUT / 'where').write_text(os.getcwd())"
    code, _, printed = judged(
        repo, f"(OUT / 'asked').write_text(prompt); {reads}; print('''{YES}''')"
    )
    assert code == 0 and repo.passed() == ["T1"], printed
    asked = repo.read("../asked")
    for told in (
        "1. It is there",
        "2. It is tested",
        "test -f T1.txt: passed",
        "+work",
        "git diff ",
    ):
        assert told in asked
    assert (repo.read("../seen"), repo.read("../where")) == (
        "work\n\n",
        str(repo.places / "role"),
    )
    (record,) = repo.records("verdict")
    assert record["judge"]["agrees"] is True and "- judge: " in repo.read(
        "progress.txt"
    )


def test_a_judge_that_says_no_fails_the_attempt_and_the_next_one_is_told(
    repo: Repo,
) -> None:
    repo.plan(TASK)
    no, yes = answer(True, False, reason="there is no test for it"), YES
    code, summary, _ = repo.run(
        repo.agent(WORK + "; (OUT / 'prompt').write_text(prompt)"),
        "--judge",
        repo.agent(f"n = OUT / 'n'; n.open('a').write('x')\nprint('''{no}''' if n.stat().st_size < 2 else '''{yes}''')", "judge"),
    )  # fmt: skip
    assert code == 0 and repo.verdicts() == ["T1 failed", "T1 passed"], summary
    assert (
        repo.records("verdict")[0]["reason"]
        == "the judge says no: It is tested: there is no test for it"
    )
    assert "- It is tested: there is no test for it" in repo.read("../prompt")


NO_YES = [
    "print('fine')",
    "sys.exit(1)",
    "print(prompt)",  # the form of an answer that it was shown is none
    f"print('''{YES}'''); sys.exit(3)",
    "print('yes', flush=True); time.sleep(60)",
]


def test_whatever_is_no_clear_yes_is_a_no(repo: Repo) -> None:
    """A task each, behind one that the judge agrees with."""
    answers = [f"print('''{YES}''')", *NO_YES]
    repo.plan(*[TASK] * len(answers), limits={"attempts": 1})
    worker = repo.agent("P('T1.txt').write_text(task)")
    judge = repo.agent(f"exec({answers!r}[int(task[1:]) - 1])", "judge")
    words = ("--judge", judge, "--agent-timeout", "2s")
    code, _, printed = repo.run(worker, *words, first=NEVER_STUCK)
    assert (code, repo.passed()) == (4, ["T1"]), printed
    assert repo.verdicts() == ["T1 passed", *(f"T{n} failed" for n in range(2, 7))]


def test_a_judge_that_is_limited_is_asked_again_later_and_the_work_not_done_again(
    repo: Repo,
) -> None:
    yes = json.dumps({"type": "result", "is_error": False, "result": YES, "total_cost_usd": 0.5, "usage": {"input_tokens": 9}})  # fmt: skip
    row = {
        **ROW,
        "argv": ["speaker", "{permissions}"],
        "permissions": {"read": ["--read"]},
    }
    repo.plan(TASK, agents={"speaker": row})
    judge = speaker(repo, f"(OUT / 'argv').write_text(' '.join(sys.argv)); n = OUT / 'n'; n.open('a').write('x')\nprint('''{LIMIT}''' if n.stat().st_size < 3 else {yes!r})")  # fmt: skip
    worker = f"{repo.agent(WORK)}"
    for _ in range(2):
        code, summary, _ = repo.run(worker, "--judge", judge, "--max-wait", "0")
        assert (code, summary["tasks"][0]["attempts"]) == (75, 0)
    code, summary, _ = repo.run(worker, "--judge", judge, "--max-wait", "0")
    assert (code, repo.passed(), summary["usd"]) == (0, ["T1"], 0.5)
    assert repo.read("../worked") == "x"
    assert repo.read("../argv").endswith("--read")
    assert repo.verdicts() == ["T1 limited", "T1 limited", "T1 passed"]


def test_a_judge_that_cannot_run_ends_the_run_with_5(repo: Repo) -> None:
    repo.plan(TASK)
    code, _, _ = judged(repo, "sys.exit(127)")
    assert (code, repo.verdicts()) == (5, ["T1 unavailable"])
    code, _, printed = repo.run(repo.agent(WORK), "--judge", "no-such-judge")
    assert code == 5 and "no-such-judge" in printed


def test_a_plan_without_checks_passes_by_its_judge_alone_and_is_weak(
    repo: Repo,
) -> None:
    repo.plan({"acceptanceCriteria": ["It is there"]})
    code, _, _ = judged(repo, f"print('''{answer(True)}''')")
    assert code == 0 and repo.records("verdict")[0]["weak"] is True
    assert "weak" in repo.ralph("status").stdout


def test_kill_9_while_the_judge_reads_loses_nothing(repo: Repo) -> None:
    repo.plan(TASK)
    script = f"(OUT / 'reading').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.05)\nprint('''{YES}''')"
    judge = repo.agent(script, "judge")
    process = repo.start("run", "--agent", repo.agent(WORK), "--judge", judge)
    repo.wait_for("../reading")
    process.kill()
    process.wait(10)
    assert repo.gone_within(10) and repo.passed() == []
    (repo.outside / "go").touch()
    assert repo.run(repo.agent(WORK), "--judge", judge)[0] == 0
    assert (repo.passed(), repo.read("../worked")) == (["T1"], "x")


def test_the_commit_hooks_decide_also_where_only_a_judge_does(repo: Repo) -> None:
    repo.plan({"acceptanceCriteria": ["It is there"]}, limits={"attempts": 1})
    repo.program(".git/hooks/pre-commit", "echo no; exit 1")
    code, _, _ = judged(repo, f"print('''{answer(True)}''')")
    assert (code, repo.verdicts()) == (4, ["T1 failed"])


def test_the_time_of_the_judge_counts(repo: Repo) -> None:
    repo.plan(TASK)
    judged(repo, f"time.sleep(0.5); print('''{YES}''')")
    assert repo.records("verdict")[0]["seconds"] >= 0.5


def test_what_a_judge_changes_is_no_part_of_the_work(repo: Repo) -> None:
    repo.plan(TASK, {"checks": ["false"]}, limits={"attempts": 1})
    flip = "p = P('prd.json'); p.write_text('{}')"
    script = f"P('T1.txt').write_text('mine'); P('new.txt').touch(); P('a.txt').unlink(); {flip}"
    judged(
        repo, f"{script}\nsh('git commit -qam mine; rm -rf .git')\nprint('''{YES}''')"
    )
    assert repo.passed() == ["T1"]
    assert repo.commits() == ["T1: task 1"] and repo.landed("T1.txt") == "work\n"
    assert repo.git("diff", "--name-only", "main", "ralph/p").split() == ["T1.txt"]
    assert repo.read("a.txt") == "a\n" and not (repo.path / "new.txt").exists()


def test_each_judgement_begins_with_the_candidate_and_nothing_else(repo: Repo) -> None:
    """What one judge left behind, also where git ignores it, tells the next one
    nothing."""
    repo.write(".gitignore", "*.log\n")
    repo.commit("ignore")
    repo.plan(
        TASK,
        {"checks": ["test -f T1.txt"], "acceptanceCriteria": ["x"], "title": "again"},
    )
    leaves = "print(sorted(os.listdir('.')), file=(OUT / 'listed').open('a')); P('left.log').touch(); P('new.txt').touch()"
    judge = repo.agent(f"{leaves}\nprint('''{YES}''')", "judge")
    repo.run(
        repo.agent(WORK + "; P(f'{task}.txt').write_text('work')"), "--judge", judge
    )
    assert repo.passed() == ["T1", "T2"]
    first, second = repo.read("../listed").splitlines()
    assert first == "['.git', '.gitignore', 'T1.txt', 'a.txt']"
    assert second == "['.git', '.gitignore', 'T1.txt', 'T2.txt', 'a.txt']"


def test_work_that_waited_for_the_judge_is_judged_on_what_was_committed_meanwhile(
    repo: Repo,
) -> None:
    repo.plan(TASK, agents={"speaker": ROW})
    yes = json.dumps({"type": "result", "is_error": False, "result": YES, "usage": {}})
    judge = speaker(repo, f"n = OUT / 'n'; n.open('a').write('x')\n(OUT / 'saw').write_text(' '.join(sorted(os.listdir('.'))))\nprint('''{LIMIT}''' if n.stat().st_size < 2 else {yes!r})")  # fmt: skip
    assert repo.run(repo.agent(WORK), "--judge", judge, "--max-wait", "0")[0] == 75
    repo.git("switch", "-q", "ralph/p")
    repo.write("mine.txt", "a person's\n")
    repo.git("add", "mine.txt")
    repo.git("commit", "-qm", "mine")
    repo.git("switch", "-q", "main")
    code, _, printed = repo.run(repo.agent(WORK), "--judge", judge, "--max-wait", "0")
    assert (code, repo.commits()) == (0, ["T1: task 1", "mine"]), printed
    assert repo.read("../worked") == "x" and {"T1.txt", "mine.txt"} <= {
        *repo.read("../saw").split()
    }
