"""What a red `setup` means: its result on the branch's own files decides."""

from __future__ import annotations

import time
import venv

import pytest

from tests.conftest import Repo
from tests.scripts import LOOKS_OFTEN

SOON = f"""{LOOKS_OFTEN}
from _ralph.loop import setup
setup.BACKOFF = (1.0, 2.0)
"""
AWAY = "test ! -e {0}/away || {{ echo the registry is away; exit 3; }}"
MAKES = """
(OUT / f"ran-{attempt}").write_text(prompt)
P("T1.txt").touch()
"""


def starts(repo: Repo) -> int:
    return len(list(repo.outside.glob("ran-*")))


def away(repo: Repo, condition: str = "true") -> str:
    """A setup that is red while the registry is away and `condition` holds in the
    checkout."""
    return f"! {{ {condition}; }} || {{ {AWAY.format(repo.outside)} ; }}"


def test_red_at_the_start_no_agent_is_paid(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, setup=away(repo))
    repo.write("../away", "")
    code, summary, said = repo.run(repo.agent(MAKES))
    assert (code, starts(repo), repo.records("start")) == (2, 0, [])
    assert "setup failed with exit 3" in summary["reason"], said
    (repo.outside / "away").unlink()
    assert repo.run(repo.agent(MAKES))[0] == 0


def test_the_cause_is_said_and_not_the_hints_after_it(repo: Repo) -> None:
    lines = [
        "resolving",
        "ERROR: no such package",
        *(f"hint {i}: {'x' * 60}" for i in range(9)),
    ]
    setup = repo.program("../setup", f"cat << END; exit 3\n{chr(10).join(lines)}\nEND")
    repo.plan({"checks": ["test -f T1.txt"]}, setup=str(setup))
    reason = repo.run(repo.agent(MAKES))[1]["reason"]
    assert ": ERROR: no such package hint 0" in reason and "hint 8" not in reason


def test_pip_without_a_virtual_environment_is_told_to_make_one(repo: Repo) -> None:
    """Else it would install into the person's Python."""
    # as pip does
    refuses = "echo 'ERROR: Could not find an activated virtualenv (required).'; exit 3"
    setup = repo.program(
        "../pip", f'test -z "$PIP_REQUIRE_VIRTUALENV" || {{ {refuses}; }}'
    )
    repo.plan({"checks": ["test -f T1.txt"]}, setup=f"{setup} install .")
    code, _, said = repo.run(repo.agent(MAKES))
    assert (
        code == 2
        and "python3 -m venv .venv && .venv/bin/pip install" in said
        and starts(repo) == 0
    )


@pytest.mark.parametrize("where", ["the workspace", "the room"])
def test_red_later_on_the_branch_s_own_files_it_is_waited_for(
    repo: Repo, where: str
) -> None:
    """The registry comes back with the notification that it is away; no attempt counts
    for it."""
    if where == "the workspace":
        setup, agent = (
            away(repo, "case $PWD in */work-*) true;; *) false;; esac"),
            MAKES,
        )
        repo.write("../away", "")
    else:
        setup, agent = away(repo), f"(OUT / 'away').touch()\n{MAKES}"
    repo.plan({"checks": ["test -f T1.txt"]}, setup=setup)
    back = f"cat > {repo.outside}/news; rm -f {repo.outside}/away"
    done = repo.ralph(
        "run", "--agent", repo.agent(agent), "--notify", back, first=SOON, timeout=90
    )
    assert (done.returncode, repo.verdicts(), starts(repo)) == (0, ["T1 passed"], 1), (
        done.stdout
    )
    assert (
        "setup failed with exit 3" in done.stdout and "it is tried again" in done.stdout
    )


@pytest.mark.parametrize(
    ("words", "least"), [(("--max-hours", "0.001"), 2.0), (("--no-wait",), 0.0)]
)
def test_a_wait_for_setup_ends_with_the_run_and_counts_no_attempt(
    repo: Repo, words: tuple[str, ...], least: float
) -> None:
    repo.write("../away", "")
    repo.plan(
        {"checks": ["test -f T1.txt"]},
        setup=away(repo, "case $PWD in */work-*) true;; *) false;; esac"),
    )
    began = time.monotonic()
    done = repo.ralph("run", "--agent", repo.agent(MAKES), *words, first=SOON)
    assert done.returncode == 75 and "setup failed with exit 3" in done.stderr, (
        done.stderr
    )
    assert (
        least <= time.monotonic() - began < 40
        and starts(repo) == 0
        and not repo.alive()
    )
    (repo.outside / "away").unlink()
    assert repo.run(repo.agent(MAKES))[0] == 0
    assert (
        repo.verdicts()[-1] == "T1 passed"
        and repo.records("verdict")[-1]["attempt"] == 1
    )


def test_red_on_a_candidate_alone_is_a_red_check(repo: Repo) -> None:
    """And on the work that it leaves, the next agent starts all the same, with setup's
    words."""
    setup = "test ! -e broken.lock || { echo broken lock file; exit 3; }"
    repo.plan({"checks": ["test -f T1.txt"]}, setup=setup)
    agent = repo.agent(
        f"{MAKES}\n(P('broken.lock').touch if attempt == 1 else P('broken.lock').unlink)()"
    )
    code, _, said = repo.run(agent)
    assert (code, repo.verdicts()) == (0, ["T1 failed", "T1 passed"]), said
    assert repo.records("verdict")[0]["checks"] == {setup: False}
    first, second = ((repo.outside / f"ran-{number}").read_text() for number in (1, 2))
    assert "fails on this task's unfinished work" not in first
    assert (
        "fails on this task's unfinished work" in second
        and "broken lock file" in second
    )


def test_an_editable_install_into_a_python_that_places_share_is_refused_at_the_start(
    repo: Repo,
) -> None:
    venv.create(repo.outside / "conda", symlinks=True)
    (site,) = (repo.outside / "conda").glob("lib/python*/site-packages")
    repo.plan({"checks": ["test -f T1.txt"]}, setup=f"pwd > {site}/shop.pth")
    repo.env["PATH"] = f"{repo.outside}/conda/bin:{repo.env['PATH']}"
    code, summary, said = repo.run(repo.agent(MAKES))
    assert (code, starts(repo)) == (2, 0), said
    assert "Let `setup` make a Python of its own in each checkout" in summary["reason"]


@pytest.mark.parametrize("when", [["*.lock"], []])
def test_a_when_that_says_too_little_is_named(repo: Repo, when: list[str]) -> None:
    """Green in the room, where setup ran before the work; red in one made anew, where
    it runs after it."""
    setup = (
        {"run": "ls T1.txt > built 2> /dev/null; true", "when": when}
        if when
        else "true"
    )
    repo.write(".gitignore", "built\n")
    repo.commit("ignore")
    check = (
        "! grep -qs T1 built"
        if when
        else "case $PWD in *room-1) true;; *) false;; esac"
    )
    repo.plan(
        {"checks": ["test -f T1.txt"]}, checks=[check], setup=setup, keep=["cache/"]
    )
    code, summary, said = repo.run(repo.agent(MAKES))
    assert (code, repo.passed()) == (4, ["T1"]), said
    reason = summary["reason"]
    why = "it passed in the clean room, and fails in a new checkout: something outside the checkout, or what `keep`"
    assert why in reason
    assert (
        "a `when` of setup that says too little (*.lock): name what else" in reason
    ) is bool(when)
