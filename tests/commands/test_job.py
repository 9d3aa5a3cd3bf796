"""`ralph job`: what it prints is taken by each engine as it is, and does the work."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

import ralph
from _ralph.commands import job
from _ralph.commands.options import ENGINES, words_typed
from _ralph.files import resource
from tests.conftest import ROOT, Repo
from tests.test_examples import block, shell

OWN = {"checks": ["test -f T1.txt"]}
WORKS = "P(f'{task}.txt').touch()"


@pytest.fixture(autouse=True)
def no_options(request: pytest.FixtureRequest) -> None:
    """A variable for `ralph run` would stand in every file."""
    if "repo" in request.fixturenames:
        del request.getfixturevalue("repo").env["RALPH_RUN_NO_AWAKE"]


ODD = ["plain", 'a b 100% it\'s "quoted" $HOME `id` \\n & ; # caf\u00e9']


def odd_repo(folder: Path, name: str) -> Repo:
    """A repository below `name`; what ralph keeps is in a folder of that name without
    its backslashes."""
    repo = Repo(folder / name)
    del repo.env["RALPH_RUN_NO_AWAKE"]
    repo.env["XDG_STATE_HOME"] = str(folder / f"state of {name}".replace("\\", ""))
    return repo


def agent_of(repo: Repo) -> str:
    """An agent that does every task, by a command that any folder's name can stand
    in."""
    return f"{sys.executable} {shlex.quote(repo.agent(WORKS).partition(' -IS ')[2])}"


def printed(repo: Repo, engine: str, *words: str) -> str:
    done = repo.ralph("job", engine, *words)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


def three_plans(repo: Repo, *own: str) -> list[str]:
    """Plans for a, b and c, in folders of their own; how they are named from the
    repository."""
    for name in ("a", "b", "c"):
        repo.plan(
            {"checks": [f"test -f {name}1.txt", *own], "id": f"{name}1"},
            branchName=f"ralph/{name}",
        )
        (repo.path / "plans" / name).mkdir(parents=True)
        (repo.path / "prd.json").rename(repo.path / "plans" / name / "prd.json")
    return [f"plans/{name}/prd.json" for name in ("a", "b", "c")]


# ---------------------------------------------------------------- what is refused

# What is done to a good plan, the words, and what the one line says.
WRONG: dict[str, tuple[str, list[str], str]] = {
    "no engine": ("", [], "Missing argument 'ENGINE'"),
    "an engine that is not known": ("", ["pbs"], "'pbs' is not one of 'cron', 'launchd', 'systemd', 'slurm', 'kubernetes', 'github'"),
    "an engine that is a path": ("", ["../prompt"], "'../prompt' is not one of"),
    "no plan": ("rm prd.json", ["slurm"], "prd.json"),
    "one plan of two is missing": ("", ["slurm", "prd.json", "no/prd.json"], "there is no folder no"),
    "a plan that is cut off": ("printf '{\"tasks\": [' > prd.json", ["slurm"], "prd.json"),
    "one plan of two is wrong": ("mkdir no; echo '{\"tasks\": []}' > no/prd.json", ["slurm", "prd.json", "no/prd.json"], "/no: prd.json: tasks is an empty list"),
    "a plan without tasks": ("echo '{\"tasks\": []}' > prd.json", ["cron"], "prd.json"),
    "an option that is wrong": ("", ["cron", "--until", "25:00"], "25:00"),
    "no repository": ("rm -rf .git", ["cron"], "is not in a git repository"),
    "a newline in a check": ("", ["kubernetes", "--check", "a\nb"], "characters that cannot stand in a job file"),
    "an escape in a name": ("", ["slurm", "--agent", "a\x1b"], "characters that cannot stand in a job file"),
}  # fmt: skip


def test_there_is_a_template_for_each_engine() -> None:
    assert sorted(ENGINES) == sorted(
        path.stem for path in resource("templates/jobs").glob("*.j2")
    )


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line(repo: Repo, name: str) -> None:
    prepare, words, said = WRONG[name]
    repo.plan(OWN)
    subprocess.run(["sh", "-ec", prepare], cwd=repo.path, env=repo.env, check=True)
    done = repo.ralph("job", *words)
    assert done.returncode == 2 and done.stdout == "" and said in done.stderr
    assert len(done.stderr.splitlines()) == 1 or "engine" in name, done.stderr


@pytest.mark.parametrize("name", ["a\nb", "ends\\", "tab\there"])
@pytest.mark.parametrize("engine", ["cron", "slurm", "systemd", "launchd"])
def test_a_folder_that_no_job_file_can_name(
    tmp_path: Path, name: str, engine: str
) -> None:
    repo = Repo(tmp_path)
    repo.path = repo.path.rename(tmp_path / name)
    repo.plan(OWN)
    done = repo.ralph("job", engine)
    assert (
        done.returncode == 2
        and "characters that cannot stand in a job file; rename it" in done.stderr
    )


def test_no_log_in_a_folder_with_a_backslash_which_slurm_cannot_name(
    repo: Repo,
) -> None:
    repo.plan(OWN)
    done = repo.ralph("job", "slurm", XDG_STATE_HOME=f"{repo.outside}/a\\b")
    assert (
        done.returncode == 2
        and "characters that cannot stand in a job file; rename it" in done.stderr
    )


@pytest.mark.parametrize(
    ("words", "limits", "night"),
    [
        ([], {}, "run --until 07:00 >>"),
        (["--until", "06:00"], {}, "run --until 06:00 >>"),
        (["--max-hours", "3"], {}, "run --max-hours 3 >>"),
        ([], {"hours": 3}, "run >>"),
    ],
)
def test_a_night_ends_at_seven_unless_its_time_is_bounded_otherwise(
    repo: Repo, words: list[str], limits: dict[str, Any], night: str
) -> None:
    repo.plan(OWN, limits=limits)
    assert night in printed(repo, "cron", *words)


def test_plans_of_one_job_have_a_branch_each_and_its_name_stays(repo: Repo) -> None:
    plans = three_plans(repo)
    first, again = (
        printed(repo, "slurm", *plans, "--max-usd", usd) for usd in ("1", "2")
    )
    assert first.replace("--max-usd 1", "--max-usd 2") == again, (
        "the file of secrets is the same"
    )
    assert printed(repo, "slurm", plans[0], f"./{plans[0]}") == printed(
        repo, "slurm", plans[0]
    )
    done = repo.ralph("job", "slurm", *plans, "--branch", "work")
    assert (
        done.returncode == 2
        and "would land on the same branch; give each a branchName" in done.stderr
    )


@pytest.mark.parametrize("command", ["doctor", "job"])
def test_what_run_takes_is_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Every option of `ralph run`, with a value of its kind; a run that gets these
    words means the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my prompt.md").write_text("x")
    values = {
        "max_usd": "2.5", "max_hours": "90m", "until": "06:30", "prompt": "my prompt.md", "sandbox": "bwrap",
        "max_wait": "1h", "agent_timeout": "2h", "idle_timeout": "90", "max_tokens": "7000000",
        "notify_on": "passed",
    }  # fmt: skip
    run, other = ralph.cli.commands["run"], ralph.cli.commands[command]
    own, words = {
        "doctor": ({"probe"}, ["--probe"]),
        "job": ({"engine", "plans"}, ["cron", "x.json"]),
    }[command]
    given: list[str] = ["--check", "one 'two'"]
    for option in run.params:
        assert isinstance(option, click.Option)
        if option.hidden:  # it is gone
            continue
        given += (
            [option.opts[-1]]
            if option.is_flag
            else [option.opts[-1], values.get(str(option.name), "7")]
        )
    args = [*words[:1], *given, *words[1:]]
    told = words_typed(other.make_context(command, [*args]), args, own)
    assert (
        run.make_context("run", list(told)).params
        == run.make_context("run", given).params
    )
    assert words_typed(other.make_context(command, words[:1]), words[:1], own) == ()


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--max-hours 3s -v", "--max-hours 3s -v"),
        ("-v -q -j4 --max-usd=2", "-v -q --jobs 4 --max-usd 2"),
        (
            "-qj 4 --agent 'a --b' --once --agent c",
            "--quiet --jobs 4 --agent 'a --b' --agent c --once",
        ),
        ("--prd x.json --check -v", "--check -v"),
    ],
)
def test_options_are_handed_on_as_they_were_typed(
    monkeypatch: pytest.MonkeyPatch, typed: str, words: str
) -> None:
    monkeypatch.setenv("RALPH_RUN_NO_WAIT", "1")
    monkeypatch.setenv("RALPH_RUN_MAX_WAIT", "2h")
    args = shlex.split(typed)
    context = ralph.cli.commands["run"].make_context(
        "run", [*args], auto_envvar_prefix="RALPH_RUN"
    )
    assert (
        shlex.join(words_typed(context, args, {"prd"}))
        == f"{words} --max-wait 2h --no-wait"
    )


def test_the_plan_and_the_prompt_are_named_from_the_root_of_their_repository(
    repo: Repo,
) -> None:
    """From any folder, and for clones side by side."""
    plans = three_plans(repo)
    repo.write("plans/my prompt.md", "x")
    other = repo.copy(repo.outside / "other")
    other.plan(OWN)
    repo.path = repo.path / "plans"
    told = printed(
        repo,
        "slurm",
        "a/prd.json",
        str(other.path / "prd.json"),
        "--prompt",
        "my prompt.md",
    )
    home = repo.path.parent
    assert (
        f"  cd {home} || hold \"fix that\" 2\n  set -- --prd {plans[0]} --prompt 'plans/my prompt.md' ;;"
        in told
    )
    assert f"  cd {other.path} || " in told and "#SBATCH --array=0-1\n" in told


# ---------------------------------------------------------------- cron and systemd


def cron(told: str, tmp: Path) -> subprocess.CompletedProcess[str]:
    """Do with the printed line what cron does at half past ten, in cron's
    environment."""
    (line,) = re.findall(r"^30 22 \* \* 1-5 (.*)$", told, re.MULTILINE)
    assert not re.search(r"(?<!\\)%", line)
    env = {
        "HOME": str(tmp),
        "SHELL": "/bin/sh",
        "PATH": "/usr/bin:/bin",
        "LOGNAME": "somebody",
    }
    words = ["/bin/sh", "-c", line.replace(r"\%", "%")]
    return subprocess.run(
        words, cwd=tmp, env=env, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("name", ODD)
def test_the_crontab_line_does_the_work_from_cron(tmp_path: Path, name: str) -> None:
    repo = odd_repo(tmp_path, name)
    repo.plan({**OWN, "title": "one"}, {"checks": ["test -f T2.txt"]})
    repo.git("config", "user.name", "cron")
    told = printed(
        repo, "cron", "--agent", agent_of(repo), "--check", "test -n '%$HOME\\%'"
    )
    ran = cron(told, tmp_path)
    (log,) = Path(repo.env["XDG_STATE_HOME"], "ralph").glob("*.log")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", ""), log.read_text()
    assert repo.passed() == ["T1", "T2"] and "2 of 2 passed" in log.read_text()
    assert repo.has_landed("T1.txt") and repo.has_landed("T2.txt")
    assert repo.git("status", "--porcelain") == "?? prd.json\n?? progress.txt\n"


def test_what_cron_does_not_have_is_named_and_never_its_value(repo: Repo) -> None:
    login = ["$MINE_TOKEN", "~/x"]
    row = {
        "argv": ["mine"],
        "permissions": {"edit": []},
        "keys": ["MINE_KEY"],
        "login": login,
    }
    repo.tool("mine", "true")
    repo.plan(OWN, agents={"mine": row}, agent="mine")
    assert "MINE_" not in printed(repo, "cron")
    repo.env |= {
        "MINE_KEY": "secret",
        "MINE_TOKEN": "secret",
        "HTTPS_PROXY": "secret",
        "MINE_OTHER": "x",
    }
    told = printed(repo, "cron")
    assert re.search(
        "which are set here: .*HTTPS_PROXY, MINE_KEY, MINE_TOKEN(, XDG.*)?[.]\n", told
    ), told
    assert "secret" not in told and "above the line" in told


@pytest.mark.parametrize("crons", ["Debian's", "the first"])
@pytest.mark.parametrize(
    "word", ["%", "\\", "\\%", "\\\\", "a\\\\%b", "%%", "\\'%", "it's \\% 'x'"]
)
def test_percent_signs_and_backslashes_survive_every_cron(
    tmp_path: Path, word: str, crons: str
) -> None:
    line = job.FILTERS["crontab"](
        f"cd {tmp_path} && printf %s {shlex.quote(word)} >> log"
    )
    read, escaped = "", False
    for letter in line:  # as do_command.c reads a line
        assert escaped or letter != "%", "the rest of the line would be stdin"
        if escaped and letter in ("%" if crons == "Debian's" else "%\\"):
            read = read[:-1]
        escaped = letter == "\\" and not escaped
        read += letter
    subprocess.run(["/bin/sh", "-c", read], check=True, timeout=20)
    assert (tmp_path / "log").read_text() == word


def test_a_line_for_each_plan_and_a_word_on_one_that_is_too_long(repo: Repo) -> None:
    told = printed(
        repo, "cron", *three_plans(repo), "--agent", "true", "--until", "06:00"
    )
    assert (
        told.count("\n30 22 ") == 3
        and told.count(" --until ") == 3
        and "longer than" not in told
    )
    told = printed(repo, "cron", "plans/a/prd.json", "--check", f"true {'x' * 1000}")
    assert (
        "# The line is longer than some crons read" in told
        and "run --until 07:00 --prd plans/a" in told
    )


@pytest.mark.parametrize("words", [["-m", "ralph"], [str(ROOT / "ralph.py")], []])
def test_the_line_names_ralph_as_it_was_started(repo: Repo, words: list[str]) -> None:
    (plan, *_) = three_plans(repo)
    script = Path(sys.executable).with_name("ralph")
    program = [sys.executable, *words] if words else [str(script)]
    if not words and not script.exists():
        pytest.skip("ralph is not installed here")
    call = [
        *program,
        *f"job cron --prd {plan} --agent true --full-permissions --judge true".split(),
    ]
    done = subprocess.run(
        call, cwd=repo.path, env=repo.env, capture_output=True, text=True, timeout=60
    )
    started = f"{sys.executable} {ROOT / 'ralph.py'}" if words else str(script)
    assert f"PATH={repo.env['PATH']}"[:20] in done.stdout
    assert (
        f"{started} run --until 07:00 --prd {plan} --agent true --full-permissions --judge true >> "
        in done.stdout
    )


def plists(told: str) -> list[dict[str, Any]]:
    """What macOS reads in the printed files, each of which begins as XML does."""
    start = "<?xml"
    assert told.startswith(start)
    return [plistlib.loads(f"{start}{part}".encode()) for part in told.split(start)[1:]]


@pytest.mark.parametrize("name", ODD)
def test_launchd_does_the_work_with_what_the_plist_says(
    tmp_path: Path, name: str
) -> None:
    repo = odd_repo(tmp_path, name)
    repo.plan({**OWN, "title": "one"}, {"checks": ["test -f T2.txt"]})
    repo.git("config", "user.name", "launchd")
    repo.env["HTTPS_PROXY"] = "secret"
    told = printed(
        repo, "launchd", "--agent", agent_of(repo), "--check", "test -n '%$HOME\\%'"
    )
    (made,) = plists(told)
    assert "which are set here: HTTPS_PROXY" in told and "secret" not in told
    assert (made["ExitTimeOut"], made["AbandonProcessGroup"]) == (150, False)
    nights = made["StartCalendarInterval"]
    assert nights == [{"Weekday": day, "Hour": 22, "Minute": 30} for day in range(1, 6)]
    log = Path(made["StandardOutPath"])
    assert (
        log.parent == Path(repo.env["XDG_STATE_HOME"], "ralph")
        and log.stem == made["Label"]
    )
    env = {
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(log.parents[1]),
        **made["EnvironmentVariables"],
    }
    with log.open("ab") as out:
        words, folder = made["ProgramArguments"], made["WorkingDirectory"]
        ran = subprocess.run(
            words, cwd=folder, env=env, stdout=out, stderr=out, timeout=60
        )
    assert ran.returncode == 0, log.read_text()
    assert (
        repo.passed() == ["T1", "T2"]
        and repo.has_landed("T1.txt")
        and repo.has_landed("T2.txt")
    )


def test_launchd_gets_a_file_for_each_plan(repo: Repo) -> None:
    lists = plists(printed(repo, "launchd", *three_plans(repo), "--agent", "true"))
    assert len({made["Label"] for made in lists}) == 3
    for name, made in zip("abc", lists, strict=True):
        assert {f"plans/{name}/prd.json", "--until", "07:00"} <= {
            *made["ProgramArguments"]
        }


@pytest.mark.parametrize(
    ("root", "guarded"),
    [
        ("/Users/ann/Documents", True),
        ("/Users/ann/Desktop/a/b", True),
        ("/Users/ann/Downloads/a", True),
    ]
    + [
        (root, False)
        for root in (
            "/Users/ann/a/Documents",
            "/Users/ann",
            "/Users",
            "/",
            "/a/b/Desktop",
        )
    ],
)
def test_launchd_s_file_names_a_folder_that_macos_guards(
    root: str, guarded: bool
) -> None:
    plan = job.Planned("ralph-x", root, "prd.json", "progress.txt", (), (), "b", (), "")
    values = {
        "plans": [plan],
        "program": ("/bin/ralph",),
        "state": "/s",
        "path": "/bin",
        "set_here": [],
    }
    told = job.render("launchd", values)
    assert plists(told)[0]["WorkingDirectory"] == root
    assert ("Full Disk Access" in told) == guarded


def units(told: str, folder: Path) -> list[str]:
    """Write the printed units as a person would; their paths."""
    parts = re.split(r"^# (ralph-\S+\.(?:service|timer))\n", told, flags=re.MULTILINE)
    for name, unit in zip(parts[1::2], parts[2::2], strict=True):
        (folder / name).write_text(unit, "utf-8")
    return [str(folder / name) for name in parts[1::2]]


def verify(paths: list[str], runtime: Path) -> str:
    """What systemd-analyze has to say about units; nothing if they are good."""
    env = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(runtime)}
    words = ["systemd-analyze", "verify", "--user", *paths]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    return done.stderr + (f"exit {done.returncode}" if done.returncode else "")


needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="needs systemd-analyze"
)


@needs_systemd
@pytest.mark.parametrize("name", ODD)
def test_systemd_takes_the_units(tmp_path: Path, name: str) -> None:
    repo = odd_repo(tmp_path, name)
    plans = three_plans(repo)
    told = printed(
        repo,
        "systemd",
        *plans,
        "--agent",
        agent_of(repo),
        "--check",
        "test -n '%$HOME\\%'",
    )
    paths = units(told, tmp_path)
    assert len(paths) == 6 and verify(paths, tmp_path) == ""
    service = Path(paths[0])
    broken = (
        service.read_text("utf-8")
        .replace("%%", "%")
        .replace("KillMode=mixed", "KillMode=most")
    )
    service.write_text(broken, "utf-8")
    assert "kill mode" in verify([str(service)], tmp_path).lower().replace(
        "killmode", "kill mode"
    )


def test_the_timer_stops_where_a_person_is_needed(repo: Repo) -> None:
    """What systemd runs after each end of the service, with a stand-in for
    systemctl."""
    repo.plan(OWN)
    repo.tool("systemctl", f"echo $* >> {repo.outside}/called")
    told = printed(repo, "systemd")
    (timer,) = re.findall(r"^# (ralph-\S+\.timer)$", told, re.MULTILINE)
    (command,) = re.findall(r"^ExecStopPost=/bin/(.*)$", told, re.MULTILINE)
    for code in AFTER:
        shell(repo, command.replace("$$", "$"), EXIT_STATUS=str(code))
    assert (repo.outside / "called").read_text() == f"--user stop {timer}\n" * 3
    assert "SuccessExitStatus=3 75 129 130 143\n" in told


ODD_WORDS = [
    "plain", "a b", "50%n", "$HOME ${X}", 'say "x"', "back\\slash \\n", ";", "'", "caf\u00e9", "a%%b$$c", "", "# *", "{x} [y] ~ `id`",
]  # fmt: skip


@needs_systemd
def test_systemd_reads_every_word_as_it_was(tmp_path: Path) -> None:
    """What systemd itself has read, from the dump that its analyzer makes."""
    folder = tmp_path / " ".join(ODD_WORDS)
    folder.mkdir()
    plan = job.Planned(
        "ralph-x",
        str(folder),
        "prd.json",
        "progress.txt",
        tuple(ODD_WORDS),
        (),
        "b",
        (),
        "",
    )
    values: dict[str, Any] = {
        "goes_on": [3],
        "held": [4],
        "state": str(folder),
        "path": f"/bin:{folder}",
    }
    told = job.render(
        "systemd", {"plans": [plan], "program": ("/bin/echo",), "name": "x", **values}
    )
    units(told, tmp_path)
    env = {
        "PATH": os.environ["PATH"],
        "XDG_RUNTIME_DIR": str(tmp_path),
        "SYSTEMD_LOG_LEVEL": "debug",
    }
    analyze = ["systemd-analyze", "verify", "--user", str(tmp_path / "ralph-x.service")]
    done = subprocess.run(analyze, env=env, capture_output=True, text=True, timeout=60)
    read = dict(
        reversed(re.findall(r"^\s*([\w ]+): (.*)$", done.stdout, re.MULTILINE))
    )  # the first of each
    assert done.returncode == 0, done.stderr
    assert read["WorkingDirectory"] == str(folder)
    assert read["Environment"] == f"PATH=/bin:{folder}"
    assert read["StandardOutputFileToAppend"] == f"{folder}/ralph-x.log"
    line = ["bash", "-c", f"printf '%s\\0' {read['Command Line']}"]
    words = subprocess.run(
        line, capture_output=True, text=True, check=True, timeout=20
    ).stdout.split("\0")[:-1]
    assert [word.replace("$$", "$") for word in words] == [
        "/bin/echo",
        "run",
        *ODD_WORDS,
    ]


# ---------------------------------------------------------------- Kubernetes


def manifests(told: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(told) if document]


def pod(told: str) -> dict[str, Any]:
    found: dict[str, Any] = manifests(told)[1]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("version", ["1.33", "latest"])
@pytest.mark.parametrize("name", ODD)
def test_kubernetes_takes_the_manifests(
    tmp_path: Path, name: str, version: str
) -> None:
    repo = odd_repo(tmp_path, name)
    plans = three_plans(repo)
    newest = kubernetes_validate.latest_version() if version == "latest" else version
    for given in (plans, plans[:1]):
        told = printed(
            repo,
            "kubernetes",
            *given,
            "--agent",
            agent_of(repo),
            "--check",
            "test -n '%$HOME\\%'",
        )
        found = manifests(told)
        for document in found:
            kubernetes_validate.validate(document, newest, strict=True)
        assert found[1]["spec"]["completions"] == len(given)
        assert (found[0]["spec"]["accessModes"] == ["ReadWriteMany"]) == (
            len(given) > 1
        )
    found[1]["spec"]["backOffLimitPerIndex"] = 20
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(found[1], newest, strict=True)


def test_a_pod_clones_works_and_the_next_one_goes_on(repo: Repo) -> None:
    """What each container runs, in a folder that stands for its volume; kubelet's
    `$(NAME)` among it."""
    plans = three_plans(repo, "test -n '$(INDEX) ${{ x }} %'")
    repo.git("remote", "add", "origin", str(repo.path))
    repo.commit("plans")
    agent = repo.agent("if task == 'b1': P('b1.txt').touch()")
    check = "test $$ -gt 1 && test '$$(INDEX)$HOME' = '$''$(IN''DEX)$HO''ME'"
    told = printed(
        repo,
        "kubernetes",
        *plans,
        "--agent",
        agent,
        "--max-iterations",
        "1",
        "--check",
        check,
    )
    (container,) = pod(told)["containers"]
    assert container["volumeMounts"] == [
        {"name": "state", "mountPath": "/ralph", "subPathExpr": "$(INDEX)"}
    ]
    volume = repo.outside / "volume"
    volume.mkdir()
    (script,) = container["args"]
    expanded = re.sub(
        r"\$\((INDEX|HOME)\)|\$\$", lambda found: "1" if found[1] else "$", script
    )
    for ended in (0, 0):
        done = shell(repo, f"cd {volume}; {expanded}", INDEX="1")
        assert done.returncode == ended, done.stdout + done.stderr
    notes = (volume / "repository/plans/b/progress.txt").read_text()
    assert (
        notes.count("passed") >= 1
        and "2 of" not in notes
        and not repo.has_landed("b1.txt", "main")
    )
    done = shell(repo, f"rm -r {volume}/*; cd {volume}; {expanded}", INDEX="0")
    assert done.returncode == 3, "its one attempt did not pass"


def test_exit_codes_and_keys_in_a_manifest(repo: Repo) -> None:
    repo.plan(OWN)
    told = printed(repo, "kubernetes", "--agent", "claude")
    policy = manifests(told)[1]["spec"]["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in policy] == ["FailIndex", "Ignore"]
    assert policy[0]["onExitCodes"]["values"] == [2, 4, 5]
    assert "# Secrets such as ANTHROPIC_API_KEY" in told
    assert "--no-wait" not in told, "a wait for the provider costs no pod"


@pytest.mark.parametrize(
    ("url", "shown"),
    [("https://me:secret@host/shop.git", "REPOSITORY"), ("https://secret@host/shop.git", "REPOSITORY"),
     ("https://host/shop.git", "https://host/shop.git"), ("git@host:shop.git", "git@host:shop.git")],
)  # fmt: skip
def test_a_secret_in_the_address_of_the_repository_is_not_printed(
    repo: Repo, url: str, shown: str
) -> None:
    repo.plan(OWN)
    repo.git("remote", "add", "origin", url)
    told = printed(repo, "kubernetes")
    assert f"origin={shown} " in told and "secret@" not in told


# ---------------------------------------------------------------- GitHub, and state without a disk that stays


@pytest.mark.parametrize("name", ODD)
def test_the_workflow_is_what_its_schema_says(tmp_path: Path, name: str) -> None:
    repo = odd_repo(tmp_path, name)
    file = tmp_path / "workflow.yml"
    agent, check = agent_of(repo), "test -n '%$HOME\\% ${{ github.token }}'"
    told = printed(
        repo,
        "github",
        *three_plans(repo),
        "--agent",
        agent,
        "--agent",
        "claude",
        "--check",
        check,
    )
    schema = "-m check_jsonschema --builtin-schema vendor.github-workflows"
    words = [sys.executable, *schema.split(), str(file)]
    bad = (
        [(told.replace("runs-on:", "runs-in:"), False)]
        if name == next(iter(ODD))
        else []
    )
    for content, good in ((told, True), *bad):
        file.write_text(content, "utf-8")
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert (done.returncode == 0) == good, done.stdout
    assert "ANTHROPIC_API_KEY: ${{ secrets.ANTHROPIC_API_KEY }}" in told
    for script in re.findall(r"\$\{\{ (.*?) \}\}", told):
        assert re.fullmatch(r"(matrix|secrets)\.\w+|'\$\{\{'", script), script


def test_a_name_is_no_expression_of_the_workflow(repo: Repo) -> None:
    repo.plan(OWN, branchName="ralph/${{x}}")
    folder = repo.path / "plans" / "${{ github.token }}"
    folder.mkdir(parents=True)
    (repo.path / "prd.json").rename(folder / "prd.json")
    told = printed(repo, "github", str(folder / "prd.json"))
    (job_,) = yaml.safe_load(told)["jobs"].values()
    (plan,) = job_["strategy"]["matrix"]["include"]
    escaped = "${{ '${{' }}"
    assert plan["prd"] == f"plans/{escaped} github.token }}}}/prd.json"
    assert plan["notes"] == f"plans/{escaped} github.token }}}}/progress.txt"
    assert plan["branch"] == f"ralph/{escaped}x}}}}"


def runner(repo: Repo, told: str, plan: int, agent: str) -> list[int]:
    """The steps of the workflow for one plan, by a runner that begins with a clone;
    their exit statuses."""
    (job_,) = yaml.safe_load(told)["jobs"].values()
    values = job_["strategy"]["matrix"]["include"][plan]
    home = repo.outside / "runner"
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run(
        ["git", "clone", "-q", str(repo.outside / "origin"), str(home)],
        env=repo.env,
        check=True,
    )
    env = {
        name: values[re.sub(r"\W|matrix", "", value)]
        for name, value in job_["env"].items()
    }
    env |= {
        "GITHUB_STEP_SUMMARY": str(repo.outside / "summary"),
        "RALPH_RUN_AGENT": agent,
        "RUNNER": str(home),
    }
    codes = []
    for step in job_["steps"]:
        if step.get("name") in ("go on", "run", "keep"):
            script = step["run"].replace("${{ '${{' }}", "${{")
            done = shell(
                repo, f"cd $RUNNER\nexec bash -e -c {shlex.quote(script)}", **env
            )
            codes.append(done.returncode)
            assert done.returncode == 0 or step["name"] == "run", done.stderr
    return codes


@pytest.mark.xfail(
    sys.platform == "darwin",
    reason="the job runs on Linux, with its `timeout`",
    strict=True,
)
def test_the_next_runner_goes_on_from_what_the_last_one_pushed(repo: Repo) -> None:
    """Plan, notes, branch and parked work, each night in a new clone; two plans keep
    out of each other's way."""
    tasks = [
        {"id": f"T{i}", "title": "t", "checks": [f"test -f T{i}.txt"]} for i in (1, 2)
    ]
    for name in ("a", "b"):
        repo.write(
            f"plans/{name}/prd.json",
            json.dumps({"project": name, "userStories": tasks}),
        )
    repo.commit("plans")
    subprocess.run(
        ["git", "clone", "-q", "--bare", str(repo.path), str(repo.outside / "origin")],
        env=repo.env,
        check=True,
    )
    agent = repo.agent(
        "P(f'{task}.txt' if task != 'T2' or 'really' in prompt else 'other.txt').touch()"
    )
    given = [
        "--max-iterations",
        "1",
        "--max-attempts",
        "1",
        "--check",
        "test -n '${{ x }}'",
    ]
    told = printed(repo, "github", "plans/a/prd.json", "plans/b/prd.json", *given)

    def git(*words: str) -> str:
        return repo.git("--git-dir", str(repo.outside / "origin"), *words)

    for plan in (0, 1):
        assert runner(repo, told, plan, agent) == [0, 0, 0], (
            "a limit is no failure: T2 is left"
        )
    assert runner(repo, told, 0, agent) == [0, 4, 0], "T2 needs a person"
    assert "a: 1 of 2" in (repo.outside / "summary").read_text().replace("**", "")
    assert git("log", "--format=%s", "main..ralph/a").splitlines() == ["T1: t"]
    assert git("log", "--format=%s", "main..ralph/b").splitlines() == ["T1: t"]
    (parked,) = git("for-each-ref", "--format=%(refname)", "refs/ralph/parked").split()
    assert "other.txt" in git("ls-tree", "--name-only", parked)
    notes = git("show", "refs/ralph/state/ralph/a:plans/a/progress.txt")
    assert notes.count("| stopped") == 2 and git(
        "ls-tree", "-r", "--name-only", "refs/ralph/state/ralph/a"
    ).split() == ["plans/a/prd.json", "plans/a/progress.txt"]
    assert git("log", "--format=%s", "main").splitlines() == ["plans", "start"]

    clone = repo.outside / "clone"
    subprocess.run(
        ["git", "clone", "-q", str(repo.outside / "origin"), str(clone)],
        env=repo.env,
        check=True,
    )
    for words in ("git archive", "ralph retry T2"):
        script = block("many.md", words).replace("ralph/shop", "ralph/a")
        script = re.sub(
            r"\bprd.json progress.txt", "plans/a/prd.json plans/a/progress.txt", script
        )
        who = {
            f"GIT_{role}_{what}": "x"
            for role in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        done = shell(repo, f"cd {clone}; {script}", RALPH_PRD="plans/a/prd.json", **who)
        assert done.returncode == 0, done.stderr
        assert words != "git archive" or "T2" in done.stdout
    assert runner(repo, told, 0, agent) == [0, 0, 0], "its question is answered"
    assert git("log", "--format=%s", "main..ralph/a").splitlines() == ["T2: t", "T1: t"]


# ---------------------------------------------------------------- Slurm, with stand-ins; tests/commands/test_slurm.py has a real one


SLURM = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "1"}
AFTER = {
    0: "", 3: "requeue 5_1", 75: "requeue 5_1", 129: "requeue 5_1", 130: "requeue 5_1", 143: "requeue 5_1", 1: "requeue 5_1",
    2: "requeuehold State=SpecialExit 5_1", 4: "requeuehold State=SpecialExit 5_1", 5: "requeuehold State=SpecialExit 5_1",
}  # fmt: skip


def test_what_the_slurm_script_does_after_every_exit_code(repo: Repo) -> None:
    repo.tool("scontrol", f"echo $* >> {repo.outside}/called")
    repo.tool("squeue", "echo ${STATE:-RUNNING}")
    script = printed(
        repo,
        "slurm",
        *three_plans(repo),
        "--agent",
        "true",
        "--check",
        "it's '%$HOME\\%'",
    )
    program = re.escape(f"{sys.executable} {ROOT / 'ralph.py'} run")
    stand_in = f'sh -c \'printf "%s\\n" "$@" > {repo.outside}/given; exit $CODE\' sh'
    script = re.sub(program, lambda _: stand_in, script)
    for number, said in AFTER.items():
        for more, wanted in (
            ({}, said),
            ({"SLURM_RESTART_COUNT": "10"}, AFTER[2] if number == 1 else said),
            ({"STATE": "CANCELLED"}, ""),
        ):
            (repo.outside / "called").write_text("")
            done = shell(repo, script, **SLURM, CODE=str(number), **more)
            assert done.returncode == number, done.stderr
            assert (repo.outside / "called").read_text().strip() == wanted, (
                number,
                more,
            )
    assert (repo.outside / "given").read_text().splitlines()[-2:] == [
        "--check",
        "it's '%$HOME\\%'",
    ]
    assert "--prd\nplans/b/prd.json" in (repo.outside / "given").read_text()


def test_the_slurm_script_hands_the_signal_on_and_waits(repo: Repo) -> None:
    repo.plan(OWN)
    repo.tool("scontrol", f"echo $* >> {repo.outside}/called")
    repo.tool("squeue", "echo RUNNING")
    script = printed(
        repo, "slurm", "--agent", repo.agent("(OUT / 'begun').touch(); time.sleep(600)")
    )
    process = subprocess.Popen(
        ["sh", "-c", script],
        env={**repo.env, "SLURM_JOB_ID": "7"},
        stdout=subprocess.DEVNULL,
    )
    repo.wait_for("../begun")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143 and repo.verdicts() == ["T1 interrupted"]
    assert (repo.outside / "called").read_text() == "requeue 7\n"
