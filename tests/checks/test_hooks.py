"""Commit hooks make the candidate, checks examine it: what hooks do to the work and to
ralph's message, and when that is said. The real husky, commitlint, lint-staged and
pre-commit are in `test_gate.py`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from _ralph.checks.hooks import message_for, trailers, with_trailers
from _ralph.state.prd import load
from tests.checks.test_room import prepared
from tests.conftest import Repo, cases, within
from tests.git.support import head, listing, on_disk, places_of
from tests.git.test_branch import work_on
from tests.scripts import NEVER_STUCK

MAKES = "(OUT / 'paid').open('a').write(task + '\\n'); P(f'{task}.txt').write_text('good\\n')\n"
CONVENTIONAL = 'grep -qE "^(feat|fix): [a-z]" "$1" || { echo "type must be one of [feat, fix]"; exit 1; }'


def own(name: str, **more: Any) -> dict[str, Any]:
    checks = [f"test -f {name}.txt"]
    return {"id": name, "title": f"Add {name.lower()}", "checks": checks, **more}


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
    code, summary, printed = repo.run(agent)
    assert (code, paid(repo), repo.records("start")) == (2, [], []), printed
    reason = summary["reason"]
    assert repo.records("stop")[-1]["reason"] == reason
    for part in ("'T1: Add t1' for T1", 'write another "commit"', "must be one of"):
        assert part in reason
    edit_plan(repo, commit="feat: {{ task.title|lower }}")
    code, _, printed = repo.run(agent)
    assert (code, repo.commits(), paid(repo)) == (0, ["feat: add t1"], ["T1"]), printed
    lines = repo.git("log", "-1", "--format=%B", "ralph/p").splitlines()
    # linters refuse longer ones
    assert max(map(len, lines)) <= 100 < len(f"Ralph-Agent: {agent}")


@cases("""
title               commit                                    subject
Users can log in.   -                                         T1: Users can log in
Wait ...            -                                         T1: Wait ...
LONG                -                                         T1: vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv...
LONG                feat: {{ task.title|upper }} [skip ci]    feat: VVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVV... [skip ci]
LONG                {{ 'x' * 70 }}: {{ task.title }}          xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: vvvvvvvvvvvvvvvvv...
LONG                one task                                  one task
""")
def test_a_subject_keeps_to_git_s_conventions(
    repo: Repo, title: str, commit: str, subject: str
) -> None:
    """Titles are often sentences, such as user stories, and linters of messages refuse
    those."""
    repo.plan(own("T1", title=title.replace("LONG", "v" * 90)), commit=commit)
    places, plan = places_of(repo), load(repo.path / "prd.json")
    places.settings = replace(places.settings, plan=plan)
    assert message_for(places, plan.tasks[0], 1, 1) == subject


def test_a_hook_for_messages_that_refuses_the_files_is_a_check_like_others(
    repo: Repo,
) -> None:
    hook = "! grep -q bad T1.txt || { echo bad work; exit 1; }"
    repo.program(".git/hooks/commit-msg", hook)
    repo.plan(own("T1"))
    deed = "P('T1.txt').write_text('bad' if 'bad work' not in prompt else 'good')"
    code, _, printed = repo.run(repo.agent(deed))
    assert (code, repo.verdicts()) == (0, ["T1 failed", "T1 passed"]), printed


@cases(r"""
script                                                  left
echo "Change-Id: 1" >> "$1"                             T1\nChange-Id: 1\n\n
printf "\nwords\n\nChange-Id: 1\n" >> "$1"              T1\n\nwords\n\nChange-Id: 1\n
printf "other" > "$1"                                   other\n\n
printf "\nRalph-Attempt: 7\nralph-agent: me\n" >> "$1"  T1\n\n
true                                                    T1\n\n
""")
def test_a_commit_has_the_message_of_its_hook_and_ralph_s_trailers_behind_it(
    repo: Repo, script: str, left: str
) -> None:
    repo.program(".git/hooks/commit-msg", script)
    room = prepared(repo)
    said, (result,) = room.said("T1", "0001")
    assert result.ok
    given = trailers("worker", "a1")
    wanted = f"{left}Ralph-Agent: worker\nRalph-Attempt: a1\n"
    assert with_trailers(room.places, said, given) == wanted


def test_hooks_for_messages_run_as_git_runs_them(repo: Repo) -> None:
    """With the same words, on a message that ends with a line end: `echo >>` is a line
    of its own. A message that one refuses no other sees."""
    notes = f'echo "$0 $*" >> {repo.outside}/words'
    prepares = f'{notes}; echo "Prepared: 1" >> "$1"'
    repo.program(".git/hooks/prepare-commit-msg", prepares)
    repo.program(".git/hooks/commit-msg", f"{notes}; grep -q Prepared $1")
    said, results = prepared(repo).said("T1: é", "0001")
    assert said == "T1: é\nPrepared: 1\n"
    assert [result.ok for result in results] == [True, True]
    repo.git("commit", "-q", "--allow-empty", "-m", "T1: é")
    lines = [line.rpartition("hooks/")[2] for line in repo.read("../words").splitlines()]  # fmt: skip
    as_git = ["prepare-commit-msg .git/COMMIT_EDITMSG message", "commit-msg .git/COMMIT_EDITMSG"]  # fmt: skip
    assert lines == as_git * 2
    repo.program(".git/hooks/prepare-commit-msg", "exit 1")
    assert len(prepared(repo).said("T1: é", "0001")[1]) == 1


# ---------------------------------------------------------------- the files


def hooked(repo: Repo, script: str, leaves: str = "a.txt") -> tuple[bool, set[str]]:
    """Run the hook pre-commit on a candidate with `new.txt`: whether it is green, and
    the names of the tree that it leaves, as they differ from HEAD's."""
    repo.program(".git/hooks/pre-commit", script)
    commit = work_on(repo, head(repo), "new.txt")
    room = prepared(repo)
    assert room.prepare(commit, "0001") is None
    room.hold(repo.git("rev-parse", f"{commit}^{{tree}}").strip(), head(repo))
    result = room.hook("pre-commit", "0001")
    assert result
    tree = listing(repo, room.staged())
    assert on_disk(room.path).keys() >= {leaves, "new.txt"}
    before = listing(repo, "HEAD")
    changed = {name for name in tree if tree[name] != before.get(name)}
    return result.ok, changed | {f"-{name}" for name in before.keys() - tree.keys()}


NESTED = "rm a.txt; unset GIT_DIR GIT_INDEX_FILE; git init -q a.txt; cd a.txt; git -c user.name=x -c user.email=x@x.invalid commit -nq --allow-empty -m x"


# What a hook does, and what is in the commit then; the nested repository is no
# submodule.
@cases("""
script -> leaves
test "$(git diff --cached --name-only)" = new.txt && test -z "$(git diff --name-only)" -> new.txt
exit 1 -> new.txt
echo formatted > new.txt; git add new.txt; echo too > a.txt; touch loose; exit 0 -> new.txt a.txt
NESTED -> new.txt -a.txt
mkdir gen; echo 1 > gen/out.txt; echo 2 > '*'; touch loose; git add gen '*'; rm a.txt -> new.txt gen/out.txt * -a.txt
""")
def test_what_a_hook_leaves_of_the_files(repo: Repo, script: str, leaves: str) -> None:
    script = script.replace("NESTED", NESTED)
    there = "new.txt" if "-a.txt" in leaves else "a.txt"
    with within(30):
        found = hooked(repo, script, there)
    assert found == (script != "exit 1", {*leaves.split()})
    assert repo.git("status", "--porcelain", "-uno") == ""


# A hook at work on $file, which the agent left as `good`; the verdict, what lands, and
# how often the hook runs.
REWRITES = r"""
failed | 2 |             | echo more >> $file; exit 1
passed | 1 | good\nmore\n | echo more >> $file
passed | 2 | good\nmore\n | grep -q more $file && exit 0; echo more >> $file; exit 1
failed | 1 |             | echo bad >> $file
failed | 1 |             | exit 1
"""


def test_what_hooks_write_is_checked_before_it_lands(repo: Repo) -> None:
    """A task each. A hook runs once for a candidate, and once more after it rewrote and
    failed."""
    rows = [row.split(" | ") for row in REWRITES.strip().splitlines()]
    scripts, tasks = [], []
    for number, (*_, script) in enumerate(rows, 1):
        name = f"T{number}.txt"
        scripts.append(f"{name}) {script} ;;")
        check = f"grep -q good {name} && ! grep -q bad {name}"
        tasks.append(own(f"T{number}", checks=[check]))
    ways = "\n".join(scripts)
    begin = f"file=$(git diff --cached --name-only HEAD)\necho $file >> {repo.outside}/hooked"
    repo.program(".git/hooks/pre-commit", f"{begin}\ncase $file in\n{ways}\nesac")
    repo.plan(*tasks, limits={"attempts": 1})
    repo.run(repo.agent(MAKES), first=NEVER_STUCK)
    wanted = [f"T{number} {row[0]}" for number, row in enumerate(rows, 1)]
    assert repo.verdicts() == wanted
    ran = repo.read("../hooked").split()
    for number, (_, runs, lands, _) in enumerate(rows, 1):
        name = f"T{number}.txt"
        landed = repo.landed(name) if repo.has_landed(name) else ""
        assert landed == lands.strip().replace(r"\n", "\n")
        assert ran.count(name) == int(runs)


def test_what_a_hook_makes_and_stages_is_what_checks_see_and_what_lands(
    repo: Repo,
) -> None:
    """Also where it commits by itself; and what it did to what setup made is undone."""
    repo.write(".gitignore", "*.min\ndeps\n")
    repo.commit("ignored")
    script = "tr a-z A-Z < T1.txt > T1.min; git add -f T1.min; touch loose; echo 2 > b.txt; git add b.txt; echo worse > deps; git commit -nqm mine"
    repo.program(".git/hooks/pre-commit", script)
    there = "test -f T1.txt && test ! -e loose"
    check = f"{there} && grep -q GOOD T1.min && grep -q good deps"
    setup = {"run": "echo good > deps", "when": ["*.lock"]}
    repo.plan(own("T1", checks=[check]), setup=setup)
    code, _, printed = repo.run(repo.agent(MAKES))
    assert (code, repo.commits()) == (0, ["T1: Add t1"]), printed
    landed = repo.git("ls-tree", "-r", "--name-only", "ralph/p").split()
    assert landed == [".gitignore", "T1.min", "T1.txt", "a.txt", "b.txt"]


def test_a_hook_may_not_touch_what_is_protected_but_for_what_the_task_may(
    repo: Repo,
) -> None:
    repo.write("AGENTS.md", "old\n")
    repo.commit("rulebook")
    repo.program(".git/hooks/pre-commit", "echo gutted > a.txt; echo new > AGENTS.md")
    check = "test -f {}.txt && ! grep -q gutted a.txt && grep -q {} AGENTS.md"
    first = own("T1", checks=[check.format("T1", "old")])
    second = own("T2", checks=[check.format("T2", "new")], allow=["AGENTS.md"])
    repo.plan(first, second, protect=["a.txt"])
    printed = repo.run(repo.agent(MAKES), "--max-attempts", "1")[2]
    assert repo.verdicts()[:2] == ["T1 passed", "T2 passed"], printed


def test_what_is_signed_is_what_the_checks_see(repo: Repo) -> None:
    """With a stand-in for gpg, which makes a signature of nothing."""
    script = "cat > /dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\necho '-----BEGIN PGP SIGNATURE-----'"
    repo.git("config", "gpg.program", str(repo.program("../gpg", script)))
    repo.git("config", "commit.gpgSign", "true")
    repo.plan(own("T1"), own("T2"))
    agent = repo.agent(MAKES)
    for hook in (False, True):
        if hook:
            repo.program(".git/hooks/pre-commit", "echo formatted > T2.txt")
        repo.ralph("run", "-q", "--once", "--agent", agent)
    assert repo.verdicts() == ["T1 passed", "T2 passed"]
    for commit in repo.git("rev-list", "main..ralph/p").split():
        assert "BEGIN PGP SIGNATURE" in repo.git("cat-file", "commit", commit)
    words = ("for-each-ref", "--format=%(objectname)", "refs/ralph/candidate")
    assert repo.git(*words).split() == [repo.git("rev-parse", "ralph/p").strip()]


# ---------------------------------------------------------------- hooks that cannot work

GONE = "it removed or replaced the checkout"
QUICK = "from _ralph.checks import room; room.HOOK_TIMEOUT = 1.0"


@cases(r"""
script                       said
#!/no/such/program           cannot run
#!/bin/sh\nsleep 60          timed out
#!/bin/sh\nrm -rf "$PWD"     it removed or replaced the checkout
""")
def test_a_hook_for_messages_that_cannot_work_is_said_before_an_agent_is_paid(
    repo: Repo, script: str, said: str
) -> None:
    repo.write(".git/hooks/commit-msg", f"{script}\n").chmod(0o755)
    repo.plan(own("T1"), limits={"attempts": 1})
    code, summary, printed = repo.run(repo.agent(MAKES), first=QUICK)
    assert (code, paid(repo)) == (2, []), printed
    assert said in summary["reason"]
    assert "\n" not in summary["reason"]


# What a hook for files does at work on a task each, and what its verdict says.
SPOILS = {
    "T1": ("sleep 60", "timed out"),
    "T2": ('rm -rf "$PWD"', GONE),
    "T3": ("rm -f .gitattributes; mkfifo .gitattributes", ""),
    "T4": ("head -c 8000000 /dev/zero | tr '\\0' x", ""),
}


def test_what_a_hook_spoils_costs_its_attempt_and_not_the_run(repo: Repo) -> None:
    """Files that no commit holds are none of it."""
    lines = []
    for task, (deed, _) in SPOILS.items():
        lines.append(f"test ! -e {task}.txt || {{ {deed}; }}")
    repo.program(".git/hooks/pre-commit", "\n".join([*lines, "true"]))
    repo.plan(*map(own, SPOILS), limits={"attempts": 1})
    first = f"{QUICK}\n{NEVER_STUCK}"
    code, _, printed = repo.run(repo.agent(MAKES), first=first, timeout=100)
    for record in repo.records("verdict"):
        said = SPOILS[record["task"]][1]
        assert record["verdict"] == ("failed" if said else "passed"), printed
        assert said in str(record.get("failure", "")) + record.get("reason", "")
    assert code == 4


# ---------------------------------------------------------------- where hooks stand

CALLS_LOCAL = 'echo dispatcher; test ! -x .git/hooks/pre-commit || exec .git/hooks/pre-commit "$@"'
"""What many people have as hooks of all repositories."""


# Where they stand, core.hooksPath (by git's settings or by a variable), and where the
# room calls them.
@cases("""
folder      by        path                called
.git/hooks  -         -                   .git/hooks
../all      settings  {out}/all           .git/ralph-hooks
../all      variable  {out}/all           .git/ralph-hooks
.git/h      settings  .git/h              .git/ralph-hooks
.git/h      settings  {home}/.git/h       .git/ralph-hooks
../all      settings  ../all              .git/ralph-hooks
githooks    settings  githooks            githooks
githooks    settings  {home}/githooks     githooks
""")
def test_hooks_of_home_are_the_room_s(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, folder: str, by: str, path: str, called: str
) -> None:  # fmt: skip
    repo.program(f"{folder}/pre-commit", "echo called $0; exit 1")
    repo.git("add", "-A")
    repo.git("commit", "-qnm", "hooks", "--allow-empty")
    path = path.format(out=repo.outside.resolve(), home=repo.path.resolve())
    if by == "variable":
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", path)
    elif path:
        repo.git("config", "core.hooksPath", path)
    room = prepared(repo)
    result = room.hook("pre-commit", "0001")
    assert result
    said = result.tail.replace(f"{room.path}/", "").strip()
    assert said == f"called {called}/pre-commit"
    assert room.places.missing_hook(room.path) == ""


@pytest.mark.parametrize("local", [True, False])
def test_a_hook_for_all_repositories_calls_home_s_own_and_never_itself(
    repo: Repo, local: bool
) -> None:
    repo.program("../all/pre-commit", CALLS_LOCAL)
    repo.git("config", "core.hooksPath", str(repo.outside / "all"))
    if local:
        repo.program(".git/hooks/pre-commit", "echo local; exit 1")
    result = prepared(repo).hook("pre-commit", "0001")
    assert result
    said = ["dispatcher", "local"] if local else ["dispatcher"]
    assert (result.ok, result.tail.split()) == (not local, said)


HUSKY = "mkdir -p .husky/_ && printf '#!/bin/sh\\nexit 0\\n' > .husky/_/pre-commit && chmod +x .husky/_/pre-commit"


@pytest.mark.parametrize("made", [False, True])
def test_a_hook_that_no_setup_makes_is_said_before_an_agent_is_paid(
    repo: Repo, made: bool
) -> None:
    """What it refuses would land."""
    repo.write(".gitignore", ".husky/_\n")
    repo.commit("husky")
    repo.program(".husky/_/pre-commit", "exit 0")
    repo.git("config", "core.hooksPath", ".husky/_")
    repo.plan(own("T1"), setup=HUSKY if made else "true")
    agent = repo.agent(MAKES)
    ended, summary, printed = repo.run(agent)
    if made:
        assert (ended, paid(repo)) == (0, ["T1"]), printed
        return
    said = "home has .husky/_/pre-commit, and a new checkout has not"
    assert (ended, paid(repo), said in summary["reason"]) == (2, [], True), printed
    assert "let `setup` make it" in summary["reason"]
    assert said in " ".join(repo.ralph("doctor", "--agent", agent).stdout.split())


def test_a_hook_that_adds_all_adds_no_local_settings(repo: Repo) -> None:
    """Also where this repository ignores them by a file of its own settings."""
    repo.write(".worktreeinclude", ".env\n")
    repo.commit("include")
    repo.write("../ignored", ".env\n")
    repo.git("config", "core.excludesFile", str(repo.outside / "ignored"))
    repo.write(".env", "TOKEN=secret\n")
    repo.program(".git/hooks/pre-commit", "git add -A")
    repo.plan(own("T1"))
    assert repo.run(repo.agent(MAKES))[0] == 0
    assert ".env" not in repo.git("ls-tree", "-r", "--name-only", "ralph/p").split()
