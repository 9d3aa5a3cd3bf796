"""Conflicts: with workers side by side and with people. They cost no attempt, and an
agent resolves them."""

from __future__ import annotations

import pytest

from tests.conftest import Repo, sample
from tests.scripts import MEET, RESULT, plan, speaker
from tests.whole.test_night import MAKES, own

ADDS_A_LINE = """
lines = P("deps.txt").read_text().splitlines()
if task not in lines:
    lines.append(task)
    (OUT / f"on-{task}").touch()
    while sum(name.startswith("on-") for name in os.listdir(OUT)) < JOBS: time.sleep(0.02)
elif MENDS:
    (OUT / f"conflict-{task}").write_text(prompt)
    lines = [line for line in lines if not line.startswith(("<<<<<<<", "=======", ">>>>>>>"))]
P("deps.txt").write_text("".join(f"{line}\\n" for line in lines))
(OUT / "ran").open("a").write(f"{task} ")
"""


def depends(*tasks: str) -> list[dict[str, object]]:
    return [{"id": task, "checks": [f"grep -qx {task} deps.txt"]} for task in tasks]


def test_tasks_at_once_that_add_a_line_to_one_file_take_at_most_one_more_session_each(
    repo: Repo,
) -> None:
    repo.git("config", "merge.conflictStyle", "zdiff3")  # for a person's own merges
    repo.write("deps.txt", "first\n")
    repo.commit("dependencies")
    names = [f"T{number}" for number in range(1, 5)]
    repo.plan(*depends(*names))
    agent = repo.agent(f"MENDS, JOBS = True, 4\n{ADDS_A_LINE}")
    code, _, said = repo.run(agent, "--jobs", "4")
    assert (code, repo.passed()) == (0, names), said
    assert len(repo.read("../ran").split()) <= 2 * len(names)
    assert sorted(repo.landed("deps.txt").split()) == [*names, "first"]
    asked = [path.read_text() for path in repo.outside.glob("conflict-*")]
    assert asked
    for prompt in asked:
        assert "deps.txt" in prompt
        assert "conflict markers" in prompt


KEPT = {
    "a lock file": ("uv.lock", b"a = 1\n"),
    "a lock file in a folder": ("packages/web/package-lock.json", b"{}\n"),
    "a file that has no lines": ("logo.png", b"\0\1"),
}


@pytest.mark.parametrize("what", sample(KEPT, 3))
def test_what_git_cannot_mark_stands_as_the_branch_has_it_and_the_prompt_says_so(
    repo: Repo, what: str
) -> None:
    name, first = KEPT[what]
    repo.write(name, "").write_bytes(first)
    repo.commit("made by a tool")
    repo.plan(
        *({"id": task, "checks": [f"grep -q {task} {name}"]} for task in ("T1", "T2"))
    )
    makes = f"""
        (OUT / f"on-{{task}}").touch()
        while not (OUT / "on-T1").exists() or not (OUT / "on-T2").exists(): time.sleep(0.02)
        with open({name!r}, "rb") as file: found = file.read()
        if found != {first!r}:
            (OUT / "second").write_text(prompt)
            (OUT / "found").write_text(repr(found))
        with open({name!r}, "wb") as file: file.write(found + task.encode() + b"\\n")
    """
    code, _, said = repo.run(repo.agent(makes), "--jobs", "2")
    assert (code, repo.passed(), len(repo.records("start"))) == (0, ["T1", "T2"], 3), (
        said
    )
    assert repo.read("../found") == repr(
        first + repo.records("verdict")[0]["task"].encode() + b"\n"
    )
    assert name in repo.read("../second") and "git show" in repo.read("../second")


RESOLVES = """
def resolved(text):
    # the words of a text with conflict markers, each once
    lines = [line for line in text.splitlines() if not line.startswith(("<<<<<<<", "=======", ">>>>>>>"))]
    return " ".join(dict.fromkeys(" ".join(lines).split()))
"""


def prompts(repo: Repo, task: str) -> list[str]:
    """What the agent was sent, attempt by attempt."""
    return [
        path.read_text()
        for path in sorted((repo.path / ".ralph/log").glob(f"*-{task}.prompt.md"))
    ]


def test_a_conflict_costs_no_attempt_and_the_next_one_goes_on_from_the_merged_files(
    repo: Repo,
) -> None:
    repo.write("line.txt", "start\n")
    repo.commit("line")
    checks = [{"checks": [f"grep -q T{n} line.txt"]} for n in (1, 2, 3)]
    repo.plan(checks[0], checks[1], {**checks[2], "dependsOn": ["T1"]})
    agent = repo.agent(
        f"""{MEET}{RESOLVES}
import subprocess
begun("T1", "T2") if task != "T3" else None
line, turn = P("line.txt").read_text(), number()
if task == "T2" and turn < 3: wait(lambda: has_landed("T1" if turn == 1 else "T3"))
if task == "T3": wait(lambda: len((OUT / "runs-T2").read_text()) == 2)
P("line.txt").write_text(resolved(f"{{line}} {{task}}") + "\\n")
"""
    )
    code, _, printed = repo.run(agent, "--jobs", "2")
    assert (code, repo.passed()) == (0, ["T1", "T2", "T3"]), printed
    assert repo.verdicts() == [
        "T1 passed",
        "T2 conflict",
        "T3 passed",
        "T2 conflict",
        "T2 passed",
    ]
    assert [one["attempt"] for one in repo.records("start") if one["task"] == "T2"] == [
        1,
        1,
        1,
    ]
    for sent in prompts(repo, "T2")[1:]:
        assert (
            "judged **conflict**" in sent
            and "resolve every one of them:\n- line.txt" in sent
        )
    assert sorted(repo.landed("line.txt").split()) == ["T1", "T2", "T3", "start"]


def commits(name: str, content: str) -> str:
    """What a person does on ralph's branch while the agent works, in the shell, and
    then switches away."""
    return (
        f"""cd {{0}}/mine && git switch -q ralph/p && echo "{content}" > {name} && git add {name} && """
        f"""git commit -qm "mine {name}" && git switch -q --detach"""
    )


def with_tree(repo: Repo) -> None:
    """A folder beside home in which a person works."""
    repo.git("worktree", "add", "-q", "--detach", f"{repo.outside}/mine")


def person(repo: Repo, deed: str) -> str:
    """Python for an agent: a person does that now, at home and not in the agent's
    environment."""
    env = {key: repo.env[key] for key in ("PATH", "HOME", "GIT_CONFIG_SYSTEM")}
    return f"subprocess.run(['sh', '-ec', {deed.format(repo.outside)!r}], env={env!r}, check=True)\n"


def test_a_persons_commit_that_merges_is_part_of_what_lands(repo: Repo) -> None:
    with_tree(repo)
    repo.plan(
        {
            "checks": [
                "grep -q good T1.txt && ! test -f other.txt || grep -q other other.txt"
            ]
        },
        own("T2"),
    )
    deed = person(repo, commits("other.txt", "other"))
    code, _, printed = repo.run(repo.agent(f"if task == 'T2': {deed}{MAKES}"))
    assert (code, repo.verdicts()) == (0, ["T1 passed", "T2 passed"]), printed
    assert repo.commits() == ["T2: task 2", "mine other.txt", "T1: task 1"]
    assert not (repo.outside / "mine/T2.txt").exists()


def test_markers_that_an_agent_leaves_are_red_and_the_next_attempt_starts_clean(
    repo: Repo,
) -> None:
    with_tree(repo)
    repo.plan({"checks": ["test -f T1.txt"]}, limits={"attempts": 3})
    deed = person(repo, commits("T1.txt", "mine"))
    agent = repo.agent(
        f"with (OUT / 'turns').open('a') as turns: turns.write('x')\n"
        f"turn = (OUT / 'turns').stat().st_size\n"
        f"if turn == 1: {deed}"
        "if turn == 3: (OUT / 'found').write_text(P('T1.txt').read_text())\n"
        "if turn != 2: P('T1.txt').write_text('good')"
    )
    code, _, printed = repo.run(agent)
    assert (code, repo.verdicts()) == (0, ["T1 conflict", "T1 failed", "T1 passed"]), (
        printed
    )
    assert (
        "conflict markers are left in T1.txt" in printed
        and repo.read("../found") == "mine\n"
    )


def test_markers_that_an_agent_had_no_time_for_stay_for_the_next_attempt(
    repo: Repo,
) -> None:
    with_tree(repo)
    plan(repo, {"checks": ["grep -q good T1.txt"]}, limits={"attempts": 1})
    deed = person(repo, commits("T1.txt", "mine"))
    agent = speaker(
        repo,
        f"""
with (OUT / 'turns').open('a') as turns: turns.write('x')
turn = (OUT / 'turns').stat().st_size
if turn == 1: {deed}
if turn == 2:
    os.kill(os.getppid(), 9); time.sleep(60)
if turn == 3: (OUT / 'found').write_text(P('T1.txt').read_text())
P('T1.txt').write_text('good')
print({RESULT!r})
""",
    )
    code, _, printed = repo.run(agent)
    verdicts = ["T1 conflict", "T1 interrupted", "T1 passed"]
    assert (code, repo.verdicts()) == (0, verdicts), printed
    assert "<<<<<<< " in repo.read("../found") and "mine" in repo.read("../found")
