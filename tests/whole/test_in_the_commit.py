"""What passes is in the commit: nothing beside a checkout makes it green, and what an
agent left that is good on this machine alone is left out, or fails with a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Repo
from tests.scripts import NEVER_STUCK

GOOD = "P('T1.txt').write_text('good\\n')\n"
HERE = "os.getcwd()"
GREEN: dict[str, Any] = {"checks": ["grep -q good T1.txt"]}
LEAVES = "is a link that is absolute or leads out of the checkout"
NAMES = "names a checkout of ralph, which a clone does not have"

# Right work, a task each, and what its agent left beside it; what of that is left out.
LITTER = {
    "T1": (f"P('run.log').write_text('in ' + {HERE} + '\\n')", "run.log"),
    "T2": ("sh(f'{sys.executable} -m venv --without-pip env')", "env/"),
    "T3": (
        "P('new').mkdir(); P('new/a.py').write_text('x'); "
        f"P('new/x.log').write_text({HERE})",
        "new/x.log",
    ),
}
# What an agent does beside right work, and why that is red; nothing: it passes.
RED = {
    "T1": ("os.symlink('/usr/share', 'lib')", f"lib {LEAVES}"),
    "T2": ("os.symlink('../work-2', 'lib')", f"lib {LEAVES}"),
    "T3": ("os.symlink('a.txt', 'lib')", ""),
    "T5": ("os.symlink('.', 'here')", ""),
    "T4": (f"P('a.txt').write_text('a\\n' + {HERE} + '\\n')", f"a.txt {NAMES}"),
}


def night(repo: Repo, rows: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """The verdicts, by task, of a night in which each is worked so."""
    tasks = [{"id": task, "checks": [f"grep -q good {task}.txt"]} for task in rows]
    repo.plan(*tasks, limits={"attempts": 1})
    deeds = {task: deed for task, (deed, _) in rows.items()}
    script = f"exec({deeds!r}[task])\nP(f'{{task}}.txt').write_text('good')\n"
    printed = repo.run(repo.agent(script), first=NEVER_STUCK)[2]
    verdicts = {one["task"]: one for one in repo.records("verdict")}
    assert verdicts.keys() == rows.keys(), printed
    return verdicts


def test_right_work_with_litter_passes_without_it(repo: Repo) -> None:
    verdicts = night(repo, LITTER)
    why = "(new, and names a checkout of ralph, which no clone has; left out)"
    for task, (_, name) in LITTER.items():
        assert verdicts[task]["restored"] == [f"{name} {why}"]
    assert repo.passed() == [*LITTER]
    landed = repo.git("ls-tree", "-r", "--name-only", "ralph/p").split()
    assert landed == ["T1.txt", "T2.txt", "T3.txt", "a.txt", "new/a.py"]


def test_what_only_this_machine_has_is_red_with_a_sentence(repo: Repo) -> None:
    verdicts = night(repo, RED)
    for task, (_, why) in RED.items():
        assert verdicts[task]["verdict"] == ("failed" if why else "passed")
        assert verdicts[task].get("reason", "").startswith(why)


def test_what_an_agent_puts_above_its_checkout_goes_before_the_checks(
    repo: Repo,
) -> None:
    """As node looks for modules."""
    repo.plan("test -f ../node_modules/dep/index.js", limits={"attempts": 1})
    deed = "P('../node_modules/dep').mkdir(parents=True)\nP('../node_modules/dep/index.js').touch()\n"
    code, _, said = repo.run(repo.agent(GOOD + deed))
    (verdict,) = repo.records("verdict")
    assert code == 4 and repo.passed() == [], said
    (notice,) = [one for one in verdict["notices"] if "node_modules" in one]
    assert notice.startswith("removed /") and "no clone has it" in notice


@pytest.mark.parametrize("changed", [True, False])
def test_an_agent_that_works_at_home_by_its_path_is_named(
    repo: Repo, changed: bool
) -> None:
    repo.write("old.txt", "an edit of before\n")
    repo.plan(GREEN, limits={"attempts": 1})
    deed = f"P({json.dumps(str(repo.path))}, 'a.txt').write_text('mine\\n')\n"
    repo.run(repo.agent(deed + ("P('b.txt').touch()\n" if changed else "")))
    (verdict,) = repo.records("verdict")
    named = [one for one in verdict.get("notices", []) if "absolute paths" in one]
    said = f"it changed nothing, and a.txt changed in {repo.path} meanwhile"
    assert [one.startswith(said) for one in named] == ([] if changed else [True])


def test_a_folder_of_checkouts_that_an_agent_replaced_is_not_cleared(
    repo: Repo,
) -> None:
    (repo.outside / "mine").mkdir()
    (repo.outside / "mine/precious").write_text("theirs")
    repo.plan(GREEN, limits={"attempts": 1})
    deed = "folder = os.path.dirname(os.getcwd())\nos.rename(folder, folder + '-old')\nos.symlink(OUT / 'mine', folder)\n"
    code, _, said = repo.run(repo.agent(GOOD + deed))
    assert (repo.outside / "mine/precious").read_text() == "theirs", said
    assert code == 4
