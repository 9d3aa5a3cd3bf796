"""A plan that breaks while a run is under way is waited for: nothing new starts, and
nothing is lost."""

from __future__ import annotations

from tests.conftest import Repo, cases
from tests.scripts import COUNTS, LOOKS_OFTEN, MAKES, own, until

SEES = (
    "(OUT / f'on-{task}').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.02)\n"
)


# How a person leaves the plan, `whole` being how it was; and whether they mend it.
@cases(
    """
how                    mended  line
cut off                -       head -c 100 ../whole > prd.json
cut off                yes     head -c 100 ../whole > prd.json
gone                   yes     rm prd.json
a FIFO                 yes     rm prd.json; mkfifo prd.json
a merge under way      yes     { echo '<<<<<<< HEAD'; cat ../whole; echo =======; cat ../whole; } > prd.json
two tasks with one id  yes     sed s/T3/T1/ ../whole > prd.json
""",
    of=2,
)
def test_a_plan_that_breaks_at_night_is_waited_for(
    repo: Repo, how: str, mended: str, line: str
) -> None:
    repo.plan(*map(own, ("T1", "T2", "T3")))
    words = ["run", "--jobs", "2", "--agent", repo.agent(f"{SEES}{COUNTS}")]
    words += ["--notify", f"cat >> {repo.outside}/told"]
    if not mended:
        words += ["--max-hours", "0.0025"]
    night = repo.start(*words, first=LOOKS_OFTEN)
    for task in ("T1", "T2"):
        repo.wait_for(f"../on-{task}")
    repo.sh(f"cp prd.json ../whole; {line}")
    repo.write("../go", "")
    repo.wait_for("../told")
    until(lambda: len(repo.commits()) == 2)  # those under way land
    status = repo.ralph("status")
    assert status.returncode == 2 and "prd.json" in status.stderr
    assert not (repo.outside / "on-T3").exists()
    if mended:
        repo.sh("rm -f prd.json; sed 's/task 3/words of mine/' ../whole > prd.json")
    said, _ = night.communicate(timeout=60)
    assert night.returncode == (0 if mended else 3) and "prd.json" in said, said
    if not mended:
        assert repo.read("prd.json") == repo.read("../whole")[:100]
        repo.sh("mv ../whole prd.json")
        assert repo.run(repo.agent(COUNTS))[0] == 0
    assert repo.passed() == ["T1", "T2", "T3"]
    assert sorted(repo.read("../ran").split()) == repo.passed()
    assert ("words of mine" in repo.read("prd.json")) == bool(mended)


def test_what_was_blocked_while_the_plan_was_broken_is_not_worked_again(
    repo: Repo,
) -> None:
    repo.plan("test -e nothing", own("T2"), limits={"attempts": 1})
    breaks = f"sh('cd {repo.path}; cp prd.json ../whole; echo > prd.json')"
    words = ("run", "--agent", repo.agent(f"if task == 'T1': {breaks}\n{MAKES}"))
    told = f"cat >> {repo.outside}/told"
    process = repo.start(*words, "--notify", told, first=LOOKS_OFTEN)
    repo.wait_for("../told")  # what blocks waits for the plan
    process.terminate()
    process.wait()
    assert repo.verdicts() == []
    repo.sh("mv ../whole prd.json")
    agent = repo.agent(MAKES)
    for _ in range(2):
        assert repo.run(agent)[0] == 4
        assert repo.verdicts() == ["T1 failed", "T2 passed"]
    assert '"blocked": "1 failed' in repo.read("prd.json")
    repo.ralph("retry", "T1")
    assert repo.run(agent)[0] == 4 and repo.verdicts()[2:] == ["T1 failed"]
