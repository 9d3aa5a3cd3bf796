"""Conflicts: with workers side by side and with people. They cost no attempt, and an
agent resolves them."""

from __future__ import annotations

from tests.conftest import Repo, cases
from tests.scripts import MAKES, MEET, RESULT, own, plan, speaker

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


def test_tasks_at_once_that_add_a_line_to_one_file_take_at_most_one_more_session_each(
    repo: Repo,
) -> None:
    repo.git("config", "merge.conflictStyle", "zdiff3")  # for a person's own merges
    repo.write("deps.txt", "first\n")
    repo.commit("dependencies")
    repo.plan(*(f"grep -qx T{number} deps.txt" for number in range(1, 5)))
    agent = repo.agent(f"MENDS, JOBS = True, 4\n{ADDS_A_LINE}")
    repo.ends("0: T1 T2 T3 T4", agent, "--jobs", "4")
    assert len(repo.read("../ran").split()) <= 2 * 4
    landed = sorted(repo.landed("deps.txt").split())
    assert landed == ["T1", "T2", "T3", "T4", "first"]
    asked = [path.read_text() for path in repo.outside.glob("conflict-*")]
    assert asked
    for prompt in asked:
        assert "deps.txt" in prompt
        assert "conflict markers" in prompt


ADDS_BYTES = """
(OUT / f"on-{task}").touch()
while not (OUT / "on-T1").exists() or not (OUT / "on-T2").exists(): time.sleep(0.02)
with open(NAME, "rb") as file: found = file.read()
if found != FIRST:
    (OUT / "second").write_text(prompt)
    (OUT / "found").write_text(repr(found))
with open(NAME, "wb") as file: file.write(found + task.encode() + b"\\n")
"""


# A lock file, one in a folder, and a file that has no lines.
@cases(
    r"""
name                            first
uv.lock                         a = 1\n
packages/web/package-lock.json  {}\n
logo.png                        \0\1
""",
    of=3,
)
def test_what_git_cannot_mark_stands_as_the_branch_has_it_and_the_prompt_says_so(
    repo: Repo, name: str, first: str
) -> None:
    content = first.encode().decode("unicode_escape").encode()
    repo.write(name, "").write_bytes(content)
    repo.commit("made by a tool")
    repo.plan(f"grep -q T1 {name}", f"grep -q T2 {name}")
    agent = repo.agent(f"NAME, FIRST = {name!r}, {content!r}\n{ADDS_BYTES}")
    repo.ends("0: T1 T2", agent, "--jobs", "2")
    assert len(repo.records("start")) == 3
    landed = repo.records("verdict")[0]["task"].encode()
    assert repo.read("../found") == repr(content + landed + b"\n")
    prompt = repo.read("../second")
    assert name in prompt and "git show" in prompt


RESOLVES = """
import subprocess
begun("T1", "T2") if task != "T3" else None
# the words of the file, which may have conflict markers, each once
lines, turn = P("line.txt").read_text().splitlines(), number()
words = " ".join(line for line in lines if not line.startswith(("<<<<<<<", "=======", ">>>>>>>"))).split()
if task == "T2" and turn < 3: wait(lambda: has_landed("T1" if turn == 1 else "T3"))
if task == "T3": wait(lambda: len((OUT / "runs-T2").read_text()) == 2)
P("line.txt").write_text(" ".join(dict.fromkeys([*words, task])))
"""


def prompts(repo: Repo, task: str) -> list[str]:
    """What the agent was sent, attempt by attempt."""
    logs = (repo.path / ".ralph/log").glob(f"*-{task}.prompt.md")
    return [path.read_text() for path in sorted(logs)]


def test_a_conflict_costs_no_attempt_and_the_next_one_goes_on_from_the_merged_files(
    repo: Repo,
) -> None:
    repo.write("line.txt", "start\n")
    repo.commit("line")
    third = {"checks": ["grep -q T3 line.txt"], "dependsOn": ["T1"]}
    repo.plan("grep -q T1 line.txt", "grep -q T2 line.txt", third)
    agent = repo.agent(f"{MEET}{RESOLVES}")
    verdicts = "0: T1 passed, T2 conflict, T3 passed, T2 conflict, T2 passed"
    repo.judges(verdicts, agent, "--jobs", "2")
    assert {one["attempt"] for one in repo.records("start")} == {1}
    for sent in prompts(repo, "T2")[1:]:
        assert "judged **conflict**" in sent
        assert "resolve every one of them:\n- line.txt" in sent
    assert sorted(repo.landed("line.txt").split()) == ["T1", "T2", "T3", "start"]


def commits(repo: Repo) -> str:
    """Python for an agent, whose `turn` this is: at the first, a person commits T1.txt
    to ralph's branch, at home and not in the agent's environment."""
    repo.git("worktree", "add", "-q", "--detach", "../mine")
    env = {key: repo.env[key] for key in ("PATH", "HOME", "GIT_CONFIG_SYSTEM")}
    mine = f"cd {repo.outside}/mine && git switch -q ralph/p && echo mine > T1.txt && git add T1.txt && git commit -qm mine && git switch -q --detach"
    return f"""
with (OUT / 'turns').open('a') as turns: turns.write('x')
turn = (OUT / 'turns').stat().st_size
if turn == 1: subprocess.run(['sh', '-ec', {mine!r}], env={env!r}, check=True)
if turn == 3: (OUT / 'found').write_text(P('T1.txt').read_text())
"""


def test_markers_that_an_agent_leaves_are_red_and_the_next_attempt_starts_clean(
    repo: Repo,
) -> None:
    repo.plan("test -f T1.txt", limits={"attempts": 3})
    agent = repo.agent(f"{commits(repo)}if turn != 2: P('T1.txt').write_text('good')")
    printed = repo.judges("0: T1 conflict, T1 failed, T1 passed", agent).printed
    assert "conflict markers are left in T1.txt" in printed
    assert repo.read("../found") == "mine\n"


def test_markers_that_an_agent_had_no_time_for_stay_for_the_next_attempt(
    repo: Repo,
) -> None:
    plan(repo, own("T1"), limits={"attempts": 1})
    dies = "if turn == 2: os.kill(os.getppid(), 9); time.sleep(60)"
    agent = speaker(repo, f"{commits(repo)}{dies}\n{MAKES}\nprint({RESULT!r})")
    repo.judges("0: T1 conflict, T1 interrupted, T1 passed", agent)
    found = repo.read("../found")
    assert "<<<<<<< " in found and "mine" in found
