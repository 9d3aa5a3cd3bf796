"""What passes is in the commit: nothing beside a checkout makes it green, and what an
agent left that is good on this machine alone is left out, or fails with a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Repo, rows
from tests.scripts import MAKES, NEVER_STUCK, of_verdicts, own

GOOD = "P('T1.txt').write_text('good\\n')\n"
LEAVES = "is a link that is absolute or leads out of the checkout"
NAMES = "names a checkout of ralph, which a clone does not have"


# Right work, a task each, and what its agent left beside it; what of that is left out.
LITTER = rows(r"""
T1 :: P('run.log').write_text('in ' + os.getcwd() + '\n') :: run.log
T2 :: sh(f'{sys.executable} -m venv --without-pip env') :: env/
T3 :: P('new').mkdir(); P('new/a.py').write_text('x'); P('new/x.log').write_text(os.getcwd()) :: new/x.log
""")


# What an agent does beside right work, and why that is red; nothing: it passes.
RED = rows(rf"""
T1 :: os.symlink('/usr/share', 'lib') :: lib {LEAVES}
T2 :: os.symlink('../work-2', 'lib') :: lib {LEAVES}
T3 :: os.symlink('a.txt', 'lib')
T5 :: os.symlink('.', 'here')
T4 :: P('a.txt').write_text('a\n' + os.getcwd() + '\n') :: a.txt {NAMES}
""")


def night(repo: Repo, table: dict[str, list[str]]) -> list[dict[str, Any]]:
    """The verdicts of a night in which each is worked so, in their order."""
    repo.plan(*[{"id": task, **own(task)} for task in table], limits={"attempts": 1})
    deeds = {task: cells[0] for task, cells in table.items()}
    script = f"exec({deeds!r}[task])\n{MAKES}\n"
    printed = repo.run(repo.agent(script), first=NEVER_STUCK)[2]
    assert of_verdicts(repo, "task") == [*table], printed
    return repo.records("verdict")


def test_right_work_with_litter_passes_without_it(repo: Repo) -> None:
    night(repo, LITTER)
    why = "(new, and names a checkout of ralph, which no clone has; left out)"
    left_out = [[f"{name} {why}"] for _, name in LITTER.values()]
    assert of_verdicts(repo, "restored") == left_out
    assert repo.passed() == [*LITTER]
    landed = repo.git("ls-tree", "-r", "--name-only", "ralph/p").split()
    assert landed == ["T1.txt", "T2.txt", "T3.txt", "a.txt", "new/a.py"]


def test_what_only_this_machine_has_is_red_with_a_sentence(repo: Repo) -> None:
    verdicts = night(repo, RED)
    for record, [_, *why] in zip(verdicts, RED.values(), strict=True):
        if why:
            assert record["verdict"] == "failed"
            assert record["reason"].startswith(why[0])
        else:
            assert record["verdict"] == "passed"


def test_what_an_agent_puts_above_its_checkout_goes_before_the_checks(
    repo: Repo,
) -> None:
    """As node looks for modules."""
    repo.plan("test -f ../node_modules/dep/index.js", limits={"attempts": 1})
    deed = "P('../node_modules/dep').mkdir(parents=True)\nP('../node_modules/dep/index.js').touch()\n"
    repo.ends("4:", repo.agent(GOOD + deed))
    (verdict,) = repo.records("verdict")
    (notice,) = [one for one in verdict["notices"] if "node_modules" in one]
    assert notice.startswith("removed /") and "no clone has it" in notice


@pytest.mark.parametrize("more", ["P('b.txt').touch()", ""])
def test_an_agent_that_works_at_home_by_its_path_is_named(
    repo: Repo, more: str
) -> None:
    repo.write("old.txt", "an edit of before\n")
    repo.plan("grep -q good T1.txt", limits={"attempts": 1})
    works = f"P({str(repo.path)!r}, 'a.txt').write_text('mine\\n')"
    repo.run(repo.agent(f"{works}\n{more}"))
    (verdict,) = repo.records("verdict")
    notices = "\n".join(verdict.get("notices", []))
    said = f"it changed nothing, and a.txt changed in {repo.path} meanwhile"
    assert (said in notices) == (more == "")
    assert ("absolute paths" in notices) == (more == "")


def test_a_folder_of_checkouts_that_an_agent_replaced_is_not_cleared(
    repo: Repo,
) -> None:
    repo.write("../mine/precious", "theirs")
    repo.plan("grep -q good T1.txt", limits={"attempts": 1})
    deed = "folder = os.path.dirname(os.getcwd())\nos.rename(folder, folder + '-old')\nos.symlink(OUT / 'mine', folder)\n"
    code, _, said = repo.run(repo.agent(GOOD + deed))
    assert repo.read("../mine/precious") == "theirs", said
    assert code == 4
