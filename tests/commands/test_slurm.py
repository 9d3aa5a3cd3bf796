"""Job files of `ralph job slurm` on a real Slurm: `make test-slurm`. What ralph said
and what Slurm did is shown in a table at the end."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands.test_job import ODD, agent_of, odd_repo
from tests.conftest import MARK, ROOT, Repo
from tests.slurm import CannotBeHad, Slurm
from tests.test_examples import line, shell
from tests.whole.test_prefix import kill_all

pytestmark = pytest.mark.slurm
OWN = {"checks": ["test -f T1.txt"]}
TWO = [{"checks": [f"test -f T{i}.txt"]} for i in (1, 2)]
WORK = "P(f'{task}.txt').touch()"


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    folder = tmp_path_factory.mktemp("slurm") / "cluster"
    try:
        made = Slurm(folder)
    except CannotBeHad as error:
        pytest.skip(str(error))
    yield made
    made.close()
    assert made.processes() == []


def keep_secrets(repo: Repo, script: str) -> None:
    """What the tests' repository needs where its job runs, in the file that is named
    for that."""
    (named,) = re.findall(r"^secrets=(.*)$", script, re.MULTILINE)
    path = Path(shlex.split(named)[0])
    names = (
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "PYTHONPATH",
        "XDG_STATE_HOME",
        MARK,
    )
    path.write_text(
        "".join(f"{name}={shlex.quote(repo.env[name])}\n" for name in names)
    )
    path.chmod(0o600)


class Submitted:
    """A job file, printed by ralph in `repo` and handed to sbatch."""

    def __init__(
        self, slurm: Slurm, repo: Repo, *words: str, slot: tuple[str, ...] = ()
    ) -> None:
        self.slurm, self.repo = slurm, repo
        repo.env |= {"PATH": f"{slurm.folder}/bin:{repo.env['PATH']}"}
        done = repo.ralph("job", "slurm", *words)
        assert done.returncode == 0, done.stderr
        self.file = done.stdout
        keep_secrets(repo, self.file)
        self.number = slurm.submit(self.file, *slot, cwd=repo.outside)

    def wait_for(self, state: str, seconds: float = 90) -> dict[str, str]:
        try:
            return self.slurm.wait_for(self.number, state, seconds)
        except AssertionError:
            print(self.log())
            raise

    def log(self) -> str:
        return "\n".join(
            path.read_text()
            for path in sorted(
                Path(self.repo.env["XDG_STATE_HOME"], "ralph").glob("*.log")
            )
        )


@pytest.fixture
def submit(slurm: Slurm, repo: Repo) -> Callable[..., Submitted]:
    return lambda *words, **given: Submitted(slurm, repo, *words, **given)


@pytest.fixture
def shown(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Adds a line to the table at the end: the job, what ralph said, what Slurm did."""

    def show(said: object, told: dict[str, str]) -> None:
        job = request.node.name.removeprefix("test_").replace("_", " ")
        did = f"{told['JobState']}, {told['Reason']}, {told['Restarts']} restarts"
        request.node.user_properties.append(("told", f"{job:66} | {said!s:24} | {did}"))

    return show


def exits(repo: Repo, prd: str = "prd.json") -> list[int]:
    """The exit status of every run of a plan."""
    from _ralph.state.records import parse

    notes = (repo.path / prd).parent / "progress.txt"
    return [
        int(one.get("exit", 0))
        for one in parse(notes.read_bytes().splitlines())
        if one["event"] == "stop"
    ]


Submit = Callable[..., Submitted]
Show = Callable[..., None]
ENDS = (("a", "COMPLETED", 0), ("b", "COMPLETED", 0), ("c", "SPECIAL_EXIT", 4))
# Slurm looks every 30 seconds for signals that are due within the next 30. One that is
# due as the job starts is sent before the job's shell can take it, and then never
# again.
SHORT = ("--time=1", "--signal=B:TERM@25")
"""A slot of a minute; the signal comes after 5 to 35 seconds."""
LONGER = ("--time=2", "--signal=B:TERM@60")
"""One of two minutes; the signal comes after 30 to 60 seconds, so there is time for
some work before it."""


def test_a_plan_that_passes(repo: Repo, submit: Submit, shown: Show) -> None:
    repo.plan(*TWO)
    job = submit("--agent", repo.agent(WORK), "--jobs", "2")
    told = job.wait_for("COMPLETED")
    assert (told["ExitCode"], told["Restarts"]) == ("0:0", "0") and repo.passed() == [
        "T1",
        "T2",
    ]
    assert "2 of 2 passed" in job.log()
    shown(exits(repo), told)


def test_one_that_ends_with_3_goes_on_until_it_passes(
    repo: Repo, submit: Submit, shown: Show
) -> None:
    repo.plan(*TWO, {"checks": ["test -f T3.txt"]})
    job = submit("--agent", repo.agent(WORK), "--max-iterations", "1")
    told = job.wait_for("COMPLETED")
    assert (
        exits(repo) == [3, 3, 0]
        and told["Restarts"] == "2"
        and repo.passed() == ["T1", "T2", "T3"]
    )
    shown(exits(repo), told)


def test_one_that_needs_a_person_is_held_and_released(
    repo: Repo, submit: Submit, shown: Show
) -> None:
    repo.plan(*TWO)
    agent = repo.agent(
        "if task == 'T2' and 'is it so' not in prompt: sys.exit('?')\n" + WORK
    )
    job = submit("--agent", agent, "--max-attempts", "1")
    told = job.wait_for("SPECIAL_EXIT")
    assert exits(repo) == [4] and repo.passed() == ["T1"]
    shown(exits(repo), told)
    assert f"then: scontrol release {job.number}" in job.log()
    time.sleep(3)
    assert exits(repo) == [4], "nothing is tried meanwhile"
    assert repo.ralph("retry", "T2", "--answer", "yes, is it so").returncode == 0
    job.slurm.call("scontrol", "release", job.number)
    told = job.wait_for("COMPLETED")
    assert exits(repo) == [4, 0] and repo.passed() == ["T1", "T2"]
    shown(exits(repo), told)


def test_the_signal_before_the_end_of_the_slot(
    repo: Repo, submit: Submit, shown: Show
) -> None:
    """On a busy machine the first signal may come before T2 has begun; then a slot more
    is needed."""
    repo.plan(*TWO)
    slow = "if task == 'T2' and not (OUT / 'begun').exists():\n    (OUT / 'begun').touch()\n    time.sleep(600)\n"
    job = submit("--agent", repo.agent(slow + WORK), slot=LONGER)
    told = job.wait_for("COMPLETED", 240)
    *signalled, last = exits(repo)
    assert (
        set(signalled) == {143}
        and last == 0
        and told["Restarts"] == str(len(signalled))
    )
    assert {"T1 passed", "T2 interrupted"} < set(repo.verdicts()) and repo.verdicts()[
        -1
    ] == "T2 passed"
    shown(exits(repo), told)


def test_an_attempt_that_is_longer_than_the_slot(
    repo: Repo, submit: Submit, shown: Show
) -> None:
    """It is paid for three times, and not for ever."""
    repo.plan(OWN)
    job = submit(
        "--agent",
        repo.agent("(OUT / 'paid').open('a').write('.'); time.sleep(600)"),
        slot=SHORT,
    )
    told = job.wait_for("SPECIAL_EXIT", 400)
    assert (
        repo.outside / "paid"
    ).read_text() == "..." and "interrupted 3 times" in repo.read("progress.txt")
    shown(exits(repo), told)


def test_an_array_of_three_plans(repo: Repo, slurm: Slurm, shown: Show) -> None:
    """As docs/many.md says it."""
    for name, check in {"a": "true", "b": "test -f T1.txt", "c": "false"}.items():
        repo.plan({"checks": [check]}, branchName=f"ralph/{name}")
        (repo.path / "plans" / name).mkdir(parents=True)
        (repo.path / "prd.json").rename(repo.path / "plans" / name / "prd.json")
    printing = line("many.md", "ralph job slurm").replace(
        "--agent claude", f"--agent '{repo.agent(WORK)}'"
    )
    repo.env["PATH"] = f"{slurm.folder}/bin:{repo.env['PATH']}"
    assert shell(repo, printing).returncode == 0
    keep_secrets(repo, repo.read("night.sh"))
    done = shell(repo, line("many.md", "sbatch night.sh"))
    number = done.stdout.split()[-1]
    kept = [
        path.read_bytes()
        for path in (slurm.folder / "state").rglob("*")
        if path.is_file()
    ]
    assert kept and not [one for one in kept if repo.mark.encode() in one], (
        "the environment is in Slurm's files"
    )
    for index, (name, state, code) in enumerate(ENDS):
        told = slurm.wait_for(f"{number}_{index}", state)
        assert exits(repo, f"plans/{name}/prd.json") == [code]
        shown([code], told)
    assert repo.has_landed("T1.txt", "ralph/b") and not repo.has_landed(
        "T1.txt", "ralph/c"
    )


def test_one_that_is_cancelled_stays_so(
    repo: Repo, submit: Submit, shown: Show
) -> None:
    repo.plan(OWN)
    job = submit("--agent", repo.agent("(OUT / 'begun').touch(); time.sleep(600)"))
    repo.wait_for("../begun")
    job.slurm.call("scancel", job.number)
    told = job.wait_for("CANCELLED")
    assert repo.gone_within(10)
    time.sleep(3)
    assert job.slurm.job(job.number)["JobState"] == "CANCELLED"
    shown("", told)


def test_secrets_that_others_can_read(
    repo: Repo, submit: Submit, shown: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    repo.plan(OWN)
    job = submit("--agent", "true")
    told = job.wait_for("SPECIAL_EXIT")
    assert (
        "chmod 600 it; then: scontrol release" in job.log()
        and not (repo.path / "progress.txt").exists()
    )
    shown("", told)


@pytest.mark.parametrize("name", ODD)
def test_a_folder_with_an_odd_name(slurm: Slurm, tmp_path: Path, name: str) -> None:
    repo = odd_repo(tmp_path, name)
    repo.plan(OWN)
    job = Submitted(
        slurm, repo, "--agent", agent_of(repo), "--check", "test -n '%$HOME\\%'"
    )
    job.wait_for("COMPLETED")
    assert repo.passed() == ["T1"] and "1 of 1 passed" in job.log()


# What ralph ends with, and the state and restarts of the job some seconds later; 1 is
# tried once more here.
EXITS = {
    0: ("COMPLETED", 0), 1: ("SPECIAL_EXIT", 2), 2: ("SPECIAL_EXIT", 1), 3: ("COMPLETED", 1), 4: ("SPECIAL_EXIT", 1),
    5: ("SPECIAL_EXIT", 1), 75: ("COMPLETED", 1), 129: ("COMPLETED", 1), 130: ("COMPLETED", 1), 143: ("COMPLETED", 1),
}  # fmt: skip


def test_every_exit_code(slurm: Slurm, repo: Repo) -> None:
    """With a stand-in for ralph that ends so: with 1 always, with others once, then
    with 0."""
    repo.plan(OWN)
    made = Submitted(slurm, repo, "--agent", "true")
    slurm.call("scancel", made.number)
    program = re.escape(f"{sys.executable} {ROOT / 'ralph.py'} run")
    numbers = {}
    for code in EXITS:
        ends = f"test {code} != 1 -a 0$SLURM_RESTART_COUNT != 0 && exit; exit {code}"
        script = re.sub(
            program, f"sh -c {shlex.quote(ends)}".replace("\\", ""), made.file
        )
        assert script != made.file
        numbers[code] = slurm.submit(
            script.replace("-lt 10", "-lt 1"), cwd=repo.outside
        )
    found = {}
    for code, (state, _) in EXITS.items():
        told = slurm.wait_for(numbers[code], state)
        found[code] = (told["JobState"], int(told["Restarts"]))
    assert found == EXITS


def test_a_node_that_dies_and_comes_back(slurm: Slurm, tmp_path: Path) -> None:
    """The rig itself: a step that srun started ends with its node, and the node works
    again."""
    env = {**os.environ, **slurm.env}
    words = [*shlex.split(slurm.srun_prefix()), "--nodelist=n3"]
    begun = tmp_path / "begun"
    step = subprocess.Popen(
        [*words, "sh", "-c", f"touch {begun}; sleep 600"],
        env=env,
        stderr=subprocess.PIPE,
    )
    slurm.wait_until(begun.exists, 20, "the step")
    assert [process for process in slurm.processes("n3") if process.name() == "sleep"]
    slurm.kill_node("n3")
    assert slurm.processes("n3") == []
    step.kill()
    step.communicate(timeout=20)
    slurm.start_node("n3")
    slurm.wait_until(lambda: slurm.nodes()["n3"] == "IDLE", 60, "n3 to be back")
    words += ["sh", "-c", "echo on $SLURMD_NODENAME; cat"]
    told = subprocess.run(
        words, env=env, input="bytes", capture_output=True, text=True, timeout=60
    )
    assert told.stdout == "on n3\nbytes", told.stderr


# ---------------------------------------------------------------- behind srun, from outside of any job

SRUN = {
    "run": "srun -N1 -n1 -c4 --exact --job-name={id} --chdir={place}",
    "end": "scancel --name={id}",
}
"""As in docs/containers.md, but each command takes a node of its own."""


def behind(slurm: Slurm, repo: Repo) -> Repo:
    repo.env |= {"PATH": f"{slurm.folder}/bin:{repo.env['PATH']}"}
    return repo


def left(slurm: Slurm) -> str:
    """What Slurm still runs of ralph's."""
    slurm.wait_until(
        lambda: "ralph-" not in slurm.call("squeue", "-h", "-o", "%j %t"),
        20,
        "an empty queue",
    )
    return "".join(
        " ".join(one.cmdline()) for one in slurm.processes() if "sleep" in one.name()
    )


def test_eight_tasks_over_three_nodes(slurm: Slurm, repo: Repo) -> None:
    behind(slurm, repo).plan(
        *({"checks": [f"test -f T{i}.txt"]} for i in range(1, 9)), wrap=SRUN
    )
    agent = repo.agent(
        "P(f'{task}.txt').write_text(os.environ['SLURMD_NODENAME']); time.sleep(1)"
    )
    code, _, printed = repo.run(agent, "--jobs", "4", timeout=300)
    assert code == 0, printed
    assert {repo.landed(f"T{i}.txt") for i in range(1, 9)} == {"n1", "n2", "n3"}
    assert left(slurm) == ""


def test_a_step_that_still_runs_at_its_deadline_is_ended(
    slurm: Slurm, repo: Repo
) -> None:
    behind(slurm, repo).plan(OWN, wrap=SRUN)
    agent = repo.agent("print('on it', flush=True); sh('sleep 601 & sleep 602')")
    code, _, printed = repo.run(agent, "--once", "--agent-timeout", "5s", timeout=120)
    assert (code, repo.verdicts()) == (3, ["T1 timed-out"]), printed
    assert left(slurm) == ""


def test_a_step_that_outlived_a_kill_of_everything_is_ended_by_the_next_start(
    slurm: Slurm, repo: Repo
) -> None:
    behind(slurm, repo).plan(OWN, wrap=SRUN)
    slow = "if not (OUT / 'begun').exists():\n    (OUT / 'begun').touch()\n    sh('sleep 603')\n"
    agent = repo.agent(slow + WORK)
    process = repo.start("run", "--agent", agent)
    slurm.wait_until((repo.outside / "begun").exists, 60, "the agent")
    there = {one.pid for one in slurm.processes() if "SLURM_STEP_ID" in one.environ()}
    kill_all(repo, there)
    process.communicate(timeout=10)
    code, _, printed = repo.run(agent, timeout=120)
    assert code == 0 and left(slurm) == "", printed


def test_a_node_that_dies_costs_the_attempt_there(slurm: Slurm, repo: Repo) -> None:
    behind(slurm, repo).plan(OWN, wrap=SRUN)
    slow = "print('on it', flush=True)\nif not (OUT / 'node').exists():\n    (OUT / 'node').write_text(os.environ['SLURMD_NODENAME'])\n    time.sleep(600)\n"
    process = repo.start(
        "run", "--agent", repo.agent(slow + WORK), "--agent-timeout", "30s"
    )
    slurm.wait_until((repo.outside / "node").exists, 60, "the agent")
    node = (repo.outside / "node").read_text()
    slurm.kill_node(node)
    try:
        printed = process.communicate(timeout=240)[0]
    finally:
        slurm.start_node(node)
    assert process.returncode == 0, printed
    assert repo.verdicts()[-1] == "T1 passed" and len(repo.verdicts()) == 2, printed
    slurm.wait_until(lambda: slurm.nodes()[node] == "IDLE", 60, f"{node} to be back")


def test_the_signal_before_the_end_of_a_slot_behind_srun(
    repo: Repo, submit: Submit, shown: Show
) -> None:
    within = {**SRUN, "run": SRUN["run"].replace("-c4", "-c1")}
    repo.plan(*TWO, wrap=within)
    slow = "if task == 'T2' and not (OUT / 'begun').exists():\n    (OUT / 'begun').touch()\n    time.sleep(600)\n"
    job = submit(
        "--agent", repo.agent(slow + WORK), slot=("--cpus-per-task=4", *LONGER)
    )
    told = job.wait_for("COMPLETED", 240)
    *signalled, last = exits(repo)
    assert (
        set(signalled) == {143}
        and last == 0
        and told["Restarts"] == str(len(signalled))
    )
    assert repo.verdicts()[-1] == "T2 passed"
    shown(exits(repo), told)
