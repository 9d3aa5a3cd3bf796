"""The files in examples/ are valid where they are used, and do the work with two lines
changed."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

import ralph
from tests.conftest import ROOT, Repo, captured, cases
from tests.test_examples import block, needs, shell

EXAMPLES = ROOT / "examples"
ENGINES = [
    "crontab", "launchd.plist", "ralph.service", "slurm.sh", "kubernetes.yaml", "github.yml", "Dockerfile",
]  # fmt: skip
FILES = sorted(path.name for path in EXAMPLES.iterdir() if path.is_file())
WORKS = "P(f'{task}.txt').touch()"


def example(name: str) -> str:
    return (EXAMPLES / name).read_text("utf-8")


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_at_most_two_lines_to_change(name: str) -> None:
    lines = [line.strip() for line in example(name).splitlines()]
    marked = [number for number, line in enumerate(lines) if "CHANGE" in line]
    assert len(marked) <= 2
    for number in marked:
        assert re.match("(#|<!--) CHANGE: .", lines[number])
        assert not re.match("(#(?!SBATCH)|<!--|$)", lines[number + 1])


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_s_file_says_what_the_exit_codes_mean(name: str) -> None:
    words = " ".join(re.sub("#", " ", example(name)).split())
    assert "0 when every task passes" in words
    assert re.search("3 and 75|3, 75", words)
    assert "2, 4 and 5 a person is needed" in words
    calls = re.findall(r"\bralph run( -[^>|#&\n]*)", example(name))
    assert calls
    for call in calls:
        options = shlex.split(call.partition(" || ")[0])
        ralph.cli.commands["run"].make_context("run", options)


def steps() -> dict[str, str]:
    """The scripts of the workflow, by the names of its steps."""
    job = yaml.safe_load(example("github.yml"))["jobs"]["ralph"]
    return {step["name"]: step["run"] for step in job["steps"] if "run" in step}


def container() -> dict[str, Any]:
    """The one of the Job."""
    _, job = yaml.safe_load_all(example("kubernetes.yaml"))
    (found,) = job["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_every_script_is_good_for_every_shell(repo: Repo) -> None:
    scripts = {name.name: name.read_text() for name in EXAMPLES.glob("*.sh")}
    for name, script in steps().items():
        scripts[name] = f"#!/bin/bash\n{script}"
    scripts["pod"] = f"#!/bin/sh\n{container()['args'][0]}"
    shellcheck = Path(sys.executable).with_name("shellcheck")
    for name, script in scripts.items():
        path = repo.write(f"{name}.sh", script)
        # In the workflow, words are split where refs are listed.
        repo.sh(f"sh -n '{path}'; {shellcheck} -eSC2046 '{path}'")


# ---------------------------------------------------------------- cron, launchd, systemd


def as_started(name: str, home: str) -> tuple[list[str], str, str]:
    """What cron, launchd or systemd makes of its file: the words that it starts, the
    folder, and PATH."""
    content = example(name)
    if name == "crontab":
        lines = [line for line in content.splitlines() if not re.match("#|$", line)]
        path, job = lines
        found = re.fullmatch(r"30 22 \* \* 1-5 ([^%]*)", job)
        assert found
        assert path.startswith("PATH=")
        return ["/bin/sh", "-c", found[1]], home, path.removeprefix("PATH=")
    if name == "launchd.plist":
        made = plistlib.loads(content.encode())
        assert made["StartCalendarInterval"] == {"Hour": 22, "Minute": 30}
        return made["ProgramArguments"], "/", made["EnvironmentVariables"]["PATH"]
    content = content.replace("%h", home)
    unit = dict(re.findall(r"^(\w+)=(.*)$", content, re.MULTILINE))
    assert unit["SuccessExitStatus"].split()[:2] == ["3", "75"]
    path = unit["Environment"].removeprefix("PATH=")
    return shlex.split(unit["ExecStart"]), unit["WorkingDirectory"], path


@pytest.mark.parametrize("name", ["crontab", "launchd.plist", "ralph.service"])
def test_what_starts_every_night_does_the_work(repo: Repo, name: str) -> None:
    repo.path = repo.path.rename(repo.outside / "shop")
    repo.plan("test -f T1.txt", agent=repo.agent(WORKS))
    script = f'export PYTHONPATH={ROOT}\nexec {sys.executable} -m ralph "$@"'
    tool = repo.tool("ralph", script)
    words, folder, path = as_started(name, str(repo.outside))
    env = {"HOME": str(repo.outside), "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    assert path.endswith("/usr/local/bin:/usr/bin:/bin")
    done = captured(words, Path(folder), env)
    assert done.returncode == 0, done.stderr
    assert repo.passed() == ["T1"]
    printed = done.stdout
    if name != "ralph.service":
        printed = (repo.outside / "ralph-shop.log").read_text()
    assert "1 of 1 passed" in printed


@needs("systemd-analyze")
def test_systemd_takes_the_units(repo: Repo) -> None:
    for name in ("ralph.service", "ralph.timer"):
        repo.write(name, example(name))
    verify = "systemd-analyze verify --user $PWD/ralph.service $PWD/ralph.timer"
    assert repo.sh(verify, XDG_RUNTIME_DIR=str(repo.outside)) == ""


# ---------------------------------------------------------------- Kubernetes, Docker


def test_kubernetes_takes_the_manifests() -> None:
    version = kubernetes_validate.latest_version()
    for document in yaml.safe_load_all(example("kubernetes.yaml")):
        kubernetes_validate.validate(document, version, strict=True)
    rules = document["spec"]["podFailurePolicy"]["rules"]
    assert rules[0]["onExitCodes"]["values"] == [2, 4, 5]


def a_remote(repo: Repo, *tasks: dict[str, Any], **top: Any) -> Path:
    """Where the plan was pushed to; somebody's name for all clones."""
    repo.plan(*tasks, **top)
    repo.commit("plan")
    repo.git("clone", "-q", "--bare", ".", "../origin")
    settings = repo.write("../gitconfig", "[user]\nname = x\nemail = x@example.org\n")
    repo.env["GIT_CONFIG_GLOBAL"] = str(settings)
    return repo.outside / "origin"


def test_a_pod_clones_and_pushes_and_the_next_one_goes_on(repo: Repo) -> None:
    tasks = [{"checks": [f"test -f T{i}.txt"]} for i in (1, 2)]
    agent = repo.agent(WORKS)
    origin = a_remote(repo, *tasks, agent=agent, limits={"iterations": 1})
    volume = repo.outside / "volume"
    volume.mkdir()
    (script,) = container()["args"]
    for exit in (3, 0):
        shell(repo, f"cd {volume}; {script}", exit=exit, REPOSITORY=str(origin))
    pushed = repo.git("-C", str(origin), "log", "--format=%s", "main..ralph/p")
    assert pushed == "T2: task 2\nT1: task 1\n"


def test_the_dockerfile_copies_what_ralph_is_built_from() -> None:
    lines = re.sub(r"\\\n", " ", example("Dockerfile")).splitlines()
    assert json.loads(lines[-1].removeprefix("ENTRYPOINT ")) == ["ralph"]
    copied: list[str] = []
    for line in lines:
        if line.startswith("COPY"):
            copied += line.split()[1:-1]
        if line.startswith("RUN "):
            subprocess.run(["sh", "-nc", line.removeprefix("RUN ")], check=True)
    built = "LICENSE README.md _ralph prd.schema.json pyproject.toml ralph.py templates"
    assert sorted(copied) == built.split()


# ---------------------------------------------------------------- GitHub


def test_the_workflow_is_what_its_schema_says() -> None:
    words = "-m check_jsonschema --builtin-schema vendor.github-workflows"
    file = str(EXAMPLES / "github.yml")
    subprocess.run([sys.executable, *words.split(), file], check=True, timeout=60)


def runner(repo: Repo, origin: Path, exit: int) -> None:
    """The steps of the workflow, by a runner that begins with a clone; the run ends
    with `exit`."""
    home = repo.outside / "runner"
    shutil.rmtree(home, ignore_errors=True)
    repo.git("clone", "-q", str(origin), str(home))
    summary = str(repo.outside / "summary")
    for name, code in (("go on", 0), ("run", exit), ("keep", 0)):
        script = f"cd {home} && exec bash -e -c {shlex.quote(steps()[name])}"
        shell(
            repo, script, exit=code, BRANCH="ralph/night", GITHUB_STEP_SUMMARY=summary
        )


def test_the_next_runner_goes_on_from_what_the_last_one_pushed(repo: Repo) -> None:
    """Plan, notes, branch and parked work; a person answers in a clone, as
    docs/many.md says."""
    tasks = [{"title": "t", "checks": [f"test -f T{i}.txt"]} for i in (1, 2)]
    agent = repo.agent("""
        done = task == "T1" or "yes, really" in prompt
        P(f"{task}.txt" if done else "other").touch()
    """)
    limits = {"iterations": 1, "attempts": 1}
    origin = a_remote(repo, *tasks, agent=agent, limits=limits)

    def pushed(*words: str) -> str:
        return repo.git("-C", str(origin), *words)

    runner(repo, origin, 0)  # a limit is no failure: T2 is left
    runner(repo, origin, 4)  # T2 needs a person
    assert "1 of 2" in repo.read("../summary").replace("**", "")
    assert pushed("log", "--format=%s", "main..ralph/night") == "T1: t\n"
    parked = pushed("for-each-ref", "--format=%(refname)", "refs/ralph/parked")
    assert "other" in pushed("ls-tree", "--name-only", parked.strip())
    state = pushed("ls-tree", "--name-only", "refs/ralph/state/ralph/night")
    assert state.split() == ["prd.json", "progress.txt"]

    repo.git("clone", "-q", str(origin), "../clone")
    for words in ("git archive", "ralph retry T2"):
        script = block("many.md", words).replace("ralph/shop", "ralph/night")
        shell(repo, f"cd ../clone; {script}")
    runner(repo, origin, 0)  # its question is answered
    assert pushed("log", "--format=%s", "main..ralph/night") == "T2: t\nT1: t\n"


# ---------------------------------------------------------------- Slurm; tests/test_slurm.py has a real one


@cases("""
    code  state      calls
    0     RUNNING    -
    3     CANCELLED  -
    4     RUNNING    -
    75    RUNNING    requeue 5_1\\n
    143   RUNNING    requeue 5_1\\n
""")
def test_slurm_is_asked_to_start_again_what_goes_on(
    repo: Repo, code: str, state: str, calls: str
) -> None:
    called = repo.write("../called", "")
    repo.tool("scontrol", f"echo $* >> {called}")
    repo.tool("squeue", f"echo {state}")
    repo.tool("ralph", f"test $3 = plans/search/prd.json && exit {code}")
    script = f"SLURM_ARRAY_JOB_ID=5 SLURM_ARRAY_TASK_ID=1 sh {EXAMPLES}/slurm.sh"
    assert repo.sh(f"{script} || echo $?") == ("" if code == "0" else f"{code}\n")
    assert called.read_text() == calls
