"""Commit hooks make the candidate, checks examine it: what hooks do to the work and to
ralph's message, and when that is said. The real husky, commitlint, lint-staged and
pre-commit are in `test_gate.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Repo

MAKES = "(OUT / 'paid').open('a').write(task + '\\n'); P(f'{task}.txt').write_text('good\\n')\n"
CONVENTIONAL = 'grep -qE "^(feat|fix): [a-z]" "$1" || { echo "type must be one of [feat, fix]"; exit 1; }'


def own(name: str, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "title": f"Add {name.lower()}",
        "checks": [f"test -f {name}.txt"],
        **more,
    }


def edit_plan(repo: Repo, **top: Any) -> None:
    repo.write("prd.json", json.dumps({**json.loads(repo.read("prd.json")), **top}))


def paid(repo: Repo) -> list[str]:
    path = repo.outside / "paid"
    return path.read_text().split() if path.exists() else []


# ---------------------------------------------------------------- the message


def test_a_message_that_a_hook_refuses_is_said_before_an_agent_is_paid(
    repo: Repo,
) -> None:
    repo.program(".git/hooks/commit-msg", CONVENTIONAL)
    repo.plan(own("T1"), limits={"attempts": 1})
    agent = repo.agent(MAKES)
    helps = 'change the template "commit" in prd.json; the hook failed with exit 1'
    doctor = repo.ralph("doctor", "--agent", agent)
    assert doctor.returncode == 2 and helps in doctor.stdout, doctor.stdout
    for _ in range(2):  # and no number of such nights blocks the task
        code, summary, printed = repo.run(agent)
        assert (code, paid(repo), repo.records("start")) == (2, [], []), printed
        for words in ("'T1: Add t1' for T1", helps, "type must be one of"):
            assert words in summary["reason"]
    edit_plan(repo, commit="feat: {{ task.title|lower }}")
    assert repo.ralph("doctor", "--agent", agent).returncode == 0
    code, _, printed = repo.run(agent)
    assert (code, repo.commits(), paid(repo)) == (0, ["feat: add t1"], ["T1"]), printed
    lines = repo.git("log", "-1", "--format=%B", "ralph/p").splitlines()
    assert (
        max(map(len, lines)) <= 100 < len(f"Ralph-Agent: {agent}")
    )  # linters refuse longer ones


@pytest.mark.parametrize(
    ("title", "template", "subject"),
    [
        ("Users can log in.", "", "T1: Users can log in"),
        ("Wait ...", "", "T1: Wait ..."),
        ("v" * 68, "", "T1: " + "v" * 68),
        ("v" * 69, "", "T1: " + "v" * 65 + "..."),
        (
            "v" * 500,
            "feat: {{ task.title|upper }} [skip ci]",
            "feat: " + "V" * 53 + "... [skip ci]",
        ),
        (
            "v" * 90,
            "{{ 'x' * 70 }}: {{ task.title }}",
            "x" * 70 + ": " + "v" * 17 + "...",
        ),
        ("v" * 90, "one task", "one task"),
    ],
)
def test_a_subject_keeps_to_git_s_conventions(
    repo: Repo, title: str, template: str, subject: str
) -> None:
    """Titles are often sentences, such as user stories, and linters of messages refuse
    those."""
    repo.plan(own("T1", title=title), **({"commit": template} if template else {}))
    assert repo.run(repo.agent(MAKES))[0] == 0
    assert repo.commits() == [subject] and repo.passed() == ["T1"]


@pytest.mark.parametrize(
    "hook",
    ["", 'grep -q "^Signed-off-by: A <a@b.c>$" "$1" && test "$(wc -l < "$1")" = 6'],
)
def test_a_message_may_have_a_body_and_trailers(repo: Repo, hook: str) -> None:
    """Those of ralph join them, and none is taken for one of ralph's."""
    if hook:
        repo.program(".git/hooks/commit-msg", hook)
    more = "Why: it is late\n\nSigned-off-by: A <a@b.c>\nRalph-Attempt: 1"
    repo.plan(own("T1"), commit="feat: {{ task.title }}\n" + more)
    code, _, printed = repo.run(repo.agent(MAKES))
    assert (code, repo.passed()) == (0, ["T1"]), printed
    said = repo.git("log", "-1", "--format=%B", "ralph/p").splitlines()
    assert said[:5] == [
        "feat: Add t1",
        "",
        "Why: it is late",
        "",
        "Signed-off-by: A <a@b.c>",
    ]
    assert [line.partition(":")[0] for line in said[5:7]] == [
        "Ralph-Agent",
        "Ralph-Attempt",
    ]
    repo.write("progress.txt", "")  # the commit says what has passed
    assert repo.run(repo.agent("raise SystemExit(1)"))[0] == 0


def test_a_later_task_whose_message_is_refused_is_blocked_and_no_agent_paid(
    repo: Repo,
) -> None:
    repo.program(
        ".git/hooks/commit-msg",
        'grep -q "^T[13]" "$1" || { echo no such ticket; exit 1; }',
    )
    repo.plan(own("T1"), {"id": "X2", "title": "two"}, own("T3"), checks=["true"])
    code, summary, printed = repo.run(repo.agent(MAKES))
    assert (code, repo.passed(), paid(repo)) == (4, ["T1", "T3"], ["T1", "T3"]), printed
    reason = summary["tasks"][1]["reason"]
    assert (
        "'X2: two'" in reason
        and "no such ticket" in reason
        and 'change the template "commit"' in reason
    )
    edit_plan(repo, commit="T1: {{ task.title }}")
    repo.ralph("retry", "X2")
    assert repo.run(repo.agent(MAKES))[0] == 0


def test_a_message_is_tried_once_as_long_as_it_is_the_same(repo: Repo) -> None:
    repo.program(
        ".git/hooks/commit-msg", f'cat "$1" >> {repo.outside}/seen; ! grep -q " 2" "$1"'
    )
    repo.plan({"checks": ["grep -q two x"]}, commit="fix: x")
    agent = repo.agent("P('x').write_text('one' if attempt == 1 else 'two')")
    assert repo.run(agent)[0] == 0
    assert (
        repo.read("../seen") == "fix: x\n" * 3
    )  # before the first attempt, and with each candidate
    repo.plan(
        {"id": "U1", "checks": ["test -e y"]},
        commit="fix: {{ attempt }}",
        limits={"attempts": 3},
    )
    code, summary, _ = repo.run(repo.agent("pass"))
    assert (code, repo.verdicts()[2:]) == (4, ["U1 failed", "U1 failed"])
    assert "'fix: 2'" in summary["tasks"][0]["reason"]


def test_a_hook_for_messages_that_refuses_the_files_is_a_check_like_others(
    repo: Repo,
) -> None:
    repo.program(
        ".git/hooks/commit-msg", "! grep -q bad T1.txt || { echo bad work; exit 1; }"
    )
    repo.plan(own("T1"))
    agent = repo.agent(
        "P('T1.txt').write_text('bad' if 'bad work' not in prompt else 'good')"
    )
    code, _, printed = repo.run(agent)
    assert (code, repo.verdicts()) == (0, ["T1 failed", "T1 passed"]), printed


def test_a_hook_that_changes_its_mind_in_the_night_costs_no_second_attempt(
    repo: Repo,
) -> None:
    """It refuses now what it has let pass: that is no agent's fault, and the work is
    kept."""
    hook = repo.program(".git/hooks/commit-msg", "exit 0")
    repo.plan(own("T1"))
    agent = repo.agent(
        MAKES
        + f"P({str(hook)!r}).write_text('#!/bin/sh\\necho tickets only; exit 1\\n')"
    )
    code, summary, printed = repo.run(agent)
    assert (code, repo.verdicts()) == (4, ["T1 failed"]), printed
    assert "tickets only" in summary["tasks"][0]["reason"]
    assert (
        repo.git("show", f"{repo.records('verdict')[0]['parked']}:T1.txt") == "good\n"
    )


def test_a_hook_whose_folder_stands_in_the_tree_is_tried_there(repo: Repo) -> None:
    repo.program(".husky/commit-msg", CONVENTIONAL)
    repo.commit("fix: hooks")
    repo.git("config", "core.hooksPath", ".husky")
    repo.plan(own("T1"))
    assert repo.run(repo.agent(MAKES))[0] == 2 and paid(repo) == []


def test_a_hook_finds_the_commit_that_it_is_asked_to_go_on_from(repo: Repo) -> None:
    """Where the room still stands as the plan's checks left it, and where the candidate
    was checked out."""
    repo.program(
        ".git/hooks/commit-msg", f"git rev-parse --verify HEAD >> {repo.outside}/heads"
    )
    repo.plan({"checks": ["test -f T1.txt"]}, checks=["true"])
    assert repo.run(repo.agent(MAKES))[0] == 0
    assert {*repo.read("../heads").split()} == {repo.git("rev-parse", "main").strip()}


def test_without_a_hook_for_messages_there_is_nothing_to_try(repo: Repo) -> None:
    repo.program(".git/hooks/pre-commit", "true")
    repo.plan(own("T1"))
    code, _, printed = repo.run(repo.agent(MAKES))
    assert code == 0 and "the message" not in printed


# ---------------------------------------------------------------- the files


@pytest.mark.parametrize(("rewrites", "runs"), [(False, 1), (True, 2)])
def test_a_hook_runs_once_for_a_candidate_and_once_more_after_it_rewrote_and_failed(
    repo: Repo, rewrites: bool, runs: int
) -> None:
    formats = (
        "grep -q formatted T1.txt || { echo formatted >> T1.txt; exit 1; }"
        if rewrites
        else "true"
    )
    repo.program(
        ".git/hooks/pre-commit", f"echo build >> {repo.outside}/builds\n{formats}"
    )
    repo.plan(own("T1"), checks=["true"])
    code, _, printed = repo.run(repo.agent(MAKES))
    assert (code, repo.verdicts()) == (0, ["T1 passed"]), printed
    assert repo.read("../builds").count("build") == runs
    assert repo.landed("T1.txt") == "good\n" + "formatted\n" * rewrites


def test_a_file_that_a_hook_makes_and_stages_lands(repo: Repo) -> None:
    repo.write(".gitignore", "*.min\n")
    repo.commit("ignored")
    repo.program(
        ".git/hooks/pre-commit",
        "tr a-z A-Z < T1.txt > T1.min; git add -f T1.min; touch loose",
    )
    repo.plan(
        own("T1", checks=["test -f T1.txt && grep -q GOOD T1.min && test ! -e loose"])
    )
    code, _, printed = repo.run(repo.agent(MAKES))
    assert (code, repo.landed("T1.min")) == (0, "GOOD\n"), printed
    assert not repo.has_landed("loose")


BAD = {
    "an interpreter that is missing": ("#!/no/such/program\n", "cannot run"),
    "one that hangs": ("#!/bin/sh\nsleep 60\n", "timed out"),
    "one that says nothing and fails": ("#!/bin/sh\nexit 9\n", "failed with exit"),
    "one that removes the checkout": (
        '#!/bin/sh\nrm -rf "$PWD"\n',
        "it removed or replaced the checkout",
    ),
    "one that removes the message": (
        '#!/bin/sh\nrm "$1"\n',
        "a commit message that git refuses",
    ),
    "one that empties the message": (
        '#!/bin/sh\necho > "$1"\n',
        "a commit message that git refuses",
    ),
    "one that writes a NUL": (
        "#!/bin/sh\nprintf 'x\\000y' > \"$1\"\n",
        "a commit message that git refuses",
    ),
    "one that removes git's folder": (
        "#!/bin/sh\nrm -rf .git\n",
        "a commit message that git refuses",
    ),
}
QUICK = "from _ralph.loop import room; room.HOOK_TIMEOUT = 1.0"


@pytest.mark.parametrize("what", BAD)
def test_a_hook_for_messages_that_cannot_work_is_said_in_a_sentence(
    repo: Repo, what: str
) -> None:
    script, said = BAD[what]
    repo.write(".git/hooks/commit-msg", script).chmod(0o755)
    repo.plan(own("T1"))
    code, summary, printed = repo.run(repo.agent(MAKES), first=QUICK)
    assert (code, paid(repo)) == (2, []) and "Traceback" not in printed, printed
    assert said in summary["reason"] and "\n" not in summary["reason"]


@pytest.mark.parametrize(
    "what", [what for what, (_, said) in BAD.items() if "message" not in said]
)
def test_a_hook_for_files_that_cannot_work_is_a_red_check(
    repo: Repo, what: str
) -> None:
    script, said = BAD[what]
    repo.write(".git/hooks/pre-commit", script).chmod(0o755)
    repo.plan(own("T1"), limits={"attempts": 1})
    code, summary, printed = repo.run(repo.agent(MAKES), first=QUICK)
    assert (code, repo.verdicts()) == (
        4,
        ["T1 failed"],
    ) and "Traceback" not in printed, printed
    assert "pre-commit" in summary["tasks"][0]["reason"]
    assert said in repo.read("progress.txt")


def test_a_hook_that_commits_by_itself_loses_nothing(repo: Repo) -> None:
    repo.program(
        ".git/hooks/pre-commit", "echo 2 > b.txt; git add b.txt; git commit -nqm mine"
    )
    repo.plan(own("T1"))
    code, _, printed = repo.run(repo.agent(MAKES))
    assert (code, repo.commits()) == (0, ["T1: Add t1"]), printed
    assert (repo.landed("T1.txt"), repo.landed("b.txt")) == ("good\n", "2\n")


@pytest.mark.parametrize(
    "script",
    [
        "head -c 200000 /dev/zero | tr '\\0' x",
        "echo another",
        'same=$(cat "$1"); printf %s "$same"',
    ],
)
def test_a_hook_cannot_lose_the_trailers(repo: Repo, script: str) -> None:
    hook = repo.program(".git/hooks/commit-msg", f'{script} > "$1"')
    assert hook.exists()
    repo.plan(own("T1"))
    assert repo.run(repo.agent(MAKES))[0] == 0
    trailer = "--format=%(trailers:key=Ralph-Attempt,valueonly)"
    assert repo.git("log", "-1", trailer, "ralph/p").split() == [
        repo.records("start")[0]["id"]
    ]
    message = repo.git("log", "-1", "--format=%B", "ralph/p")
    assert len(message) < 70_000 and message.count("Ralph-Attempt") == 1


def test_git_that_is_late_in_the_room(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), limits={"attempts": 1})
    repo.program(".git/hooks/pre-commit", "test -f T2.txt || truncate -s 2T a.txt")
    first = "from _ralph.loop import room; room.BULK = 2.0"
    code, _, printed = repo.run(repo.agent(MAKES), first=first)
    assert (code, repo.verdicts()) == (4, ["T1 failed", "T2 passed"]), printed
    assert "git add did not end" in repo.records("verdict")[0]["failure"]["tail"]


@pytest.mark.parametrize(
    ("hook", "deed"),
    [
        ("commit-msg", 'rm "$1"'), ("commit-msg", 'rm "$1"; mkfifo "$1"'), ("commit-msg", "rm -rf .git"),
        ("commit-msg", 'ln -sf /etc/passwd "$1"'), ("commit-msg", 'printf "x\\000y" > "$1"'), ("commit-msg", ': > "$1"'),
        ("pre-commit", "rm -f .gitattributes; mkfifo .gitattributes"),
    ],
)  # fmt: skip
def test_what_a_hook_spoils_costs_its_attempt_and_not_the_run(
    repo: Repo, hook: str, deed: str
) -> None:
    """A spoilt message is red; files that no commit holds are none of it."""
    repo.program(
        f".husky/{hook}", f"test -e T1.txt || exit 0\n{deed}"
    )  # not on the branch's own files
    repo.commit("hooks")
    repo.git("config", "core.hooksPath", ".husky")
    repo.plan(
        {"checks": ["test -f T1.txt"]},
        {"checks": ["test -f T2.txt"]},
        limits={"attempts": 1},
    )
    code, _, printed = repo.run(repo.agent(MAKES), timeout=100)
    spoilt = hook == "commit-msg"
    assert (code, repo.passed()) == ((4, ["T2"]) if spoilt else (0, ["T1", "T2"])), (
        printed
    )
    assert "root:" not in repo.git("log", "--all")
    if spoilt:
        assert (
            "a commit message that git refuses"
            in repo.records("verdict")[0]["failure"]["tail"]
        )


# A commit hook at work on $file, which the agent left as `good`; the verdict, and what
# lands.
HOOKS: dict[str, tuple[str, str, str]] = {
    "rewrites, and fails each time": ("echo more >> $file; exit 1", "failed", ""),
    "rewrites each time": ("echo more >> $file", "passed", "good\nmore\n"),
    "rewrites and fails, then rewrites": ("echo more >> $file; test $(wc -l < $file) = 3", "passed", "good\nmore\nmore\n"),
    "rewrites and fails, and then no more": ("grep -q more $file && exit 0; echo more >> $file; exit 1", "passed", "good\nmore\n"),
    "rewrites what then fails a check": ("echo bad >> $file", "failed", ""),
    "says no": ("exit 1", "failed", ""),
    "says nothing": ("true", "passed", "good\n"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("names", "red"), [(list(HOOKS), False), (["rewrites each time", "says no"], True)]
)
def test_what_hooks_write_is_checked_before_it_lands(
    repo: Repo, names: list[str], red: bool
) -> None:
    """A task each; `red` with a check of the plan that is never green."""
    hooks = {f"T{number}": HOOKS[name] for number, name in enumerate(names, 1)}
    cases = "\n".join(
        f"{task}.txt) {script} ;;" for task, (script, _, _) in hooks.items()
    )
    repo.program(
        ".git/hooks/pre-commit",
        f"file=$(git diff --cached --name-only HEAD)\ncase $file in\n{cases}\nesac",
    )
    own_checks = (
        {"checks": [f"grep -q good {task}.txt && ! grep -q bad {task}.txt"]}
        for task in hooks
    )
    repo.plan(*own_checks, checks=["false"] * red, limits={"attempts": 1, "stuck": 99})
    repo.run(repo.agent(MAKES))
    assert repo.verdicts() == [
        f"{task} {verdict}" for task, (_, verdict, _) in hooks.items()
    ]
    for task, (_, _, lands) in hooks.items():
        assert repo.has_landed(f"{task}.txt") is bool(lands), task
        if lands:
            assert repo.landed(f"{task}.txt") == lands
