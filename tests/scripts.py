"""Small scripted agents, and what tests say with them: an agent that works, one that
speaks as Claude does."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.conftest import Repo

LEVELS: dict[str, list[str]] = {"read": [], "edit": [], "full": []}
ROW = {"like": "claude", "argv": ["speaker", "{args}"], "permissions": LEVELS}
"""Claude Code under another name."""
RESULT = '{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s-1","total_cost_usd":0.25,"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":7}}'
LIMIT = '{"type":"result","is_error":true,"terminal_reason":"api_error","api_error_status":429,"result":"limited","total_cost_usd":0,"usage":{}}'


# A run that tries a whole table of tasks, however many of them are blocked in a row.
NEVER_STUCK = """
from _ralph.state import limits
limits.BLOCKED_AT_ONCE = limits.STUCK = 99
"""


# A run that looks five times a second at what people do while it waits, and not every
# five seconds; that begins again one second after a provider's limit has ended, and not
# up to ten.
LOOKS_OFTEN = """
from _ralph.loop import claim, loop
from _ralph.process import process
from _ralph.state import limits
claim._LOOK, loop._PATIENCE = 0.2, 0.2
real = process.Control.wait
process.Control.wait = lambda control, seconds, *given: real(control, min(seconds, 0.2), *given)
limits.JITTER = 1.0
"""


def speaker(repo: Repo, script: str) -> str:
    """An executable called `speaker` that runs `script`; its path."""
    return str(repo.program("../speaker", f'exec {repo.agent(script, "speaker")} "$@"'))


def plan(repo: Repo, *tasks: dict[str, Any] | str, **top: Any) -> None:
    repo.plan(*tasks, agents={"speaker": ROW}, **top)


def overage(resets_in: float) -> str:
    info = {
        "status": "rejected",
        "resetsAt": int(time.time() + resets_in),
        "isUsingOverage": True,
    }
    return json.dumps({"type": "rate_limit_event", "rate_limit_info": info})


def cost(usd: float, **more: Any) -> str:
    return json.dumps({**json.loads(RESULT), "total_cost_usd": usd, **more})


def wait_for_records(repo: Repo, event: str, number: int) -> None:
    """Wait until there are so many records of this kind."""
    end = time.monotonic() + 30
    while (
        not (repo.path / "progress.txt").exists() or len(repo.records(event)) < number
    ):
        assert time.monotonic() < end, f"no {number} records of {event}"
        time.sleep(0.02)


def of_verdicts(repo: Repo, key: str) -> list[Any]:
    """What the records of the verdicts have under a key; None where they have none."""
    return [record.get(key) for record in repo.records("verdict")]


MAKES = 'P(f"{task}.txt").write_text("good\\n")'


def own(task: str) -> dict[str, Any]:
    return {"checks": [f"grep -q good {task}.txt"]}


def named(checks: dict[str, str]) -> list[dict[str, Any]]:
    """Tasks by their ids, with a check each."""
    return [{"id": task, "checks": [check]} for task, check in checks.items()]


def red(command: str) -> dict[str, object]:
    """A check of the plan that may be red when a run begins."""
    return {"run": command, "startsRed": True}


COUNTS = f"(OUT / 'ran').open('a').write(f'{{task}} ')\n{MAKES}"
"""An agent that works, and notes for which task it was paid."""


def once(repo: Repo, label: str) -> str:
    """Python that is true for an agent or a check the first time only."""
    return f"not P({str(repo.outside)!r}, {label!r} + task).exists() and not P({str(repo.outside)!r}, {label!r} + task).touch()"


def runs(repo: Repo) -> str:
    """A line of an agent's script that counts how often it was paid for."""
    return f"P({str(repo.outside)!r}, 'runs').open('a').write(task + ' ')\n"


def paid(repo: Repo) -> list[str]:
    return (repo.outside / "runs").read_text().split()


# For agents that wait for each other: marks in a folder that all can see, and what has
# landed.
MEET = """
def wait(seen):
    end = time.time() + 20
    while not seen() and time.time() < end: time.sleep(0.02)
def begun(*tasks): (OUT / f"begun-{task}").touch(); wait(lambda: all((OUT / f"begun-{one}").exists() for one in tasks))
def has_landed(one):
    git = ["git", "-C", str(OUT / "repo"), "log", "--format=%s", "ralph/p"]
    return f"{one}: " in subprocess.run(git, capture_output=True, text=True).stdout
def number():
    with (OUT / f"runs-{task}").open("a") as log: log.write("x")
    return len((OUT / f"runs-{task}").read_text())
"""


SOON = "from _ralph.state import limits\nlimits.JITTER = 1.0"


def limited_for(seconds: float) -> str:
    """Python that is what an agent prints whose provider is limited for so long."""
    told = {
        "type": "rate_limit_event",
        "rate_limit_info": {"status": "rejected", "resetsAt": 0},
    }
    reset = (
        f"json.dumps({told!r}).replace(': 0', f': {{int(time.time()) + {seconds}}}')"
    )
    return f"{reset} + '\\n' + {LIMIT!r}"


def until(seen: Callable[[], object], seconds: float = 20) -> None:
    """Wait for something that another process does."""
    last = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if seen():
                return
        assert time.monotonic() < last, "it did not come"
        time.sleep(0.02)


# Each leaves a descendant behind in another way; all of them sleep for ten minutes.
DESCENDANTS = {
    "plain child": "subprocess.Popen(['sleep', '600'])",
    "holds stdout": "subprocess.Popen('sleep 600', shell=True, stdout=sys.stdout)",
    "own group": "subprocess.Popen(['sleep', '600'], process_group=0)",
    "own session": "subprocess.Popen(['sleep', '600'], start_new_session=True)",
    "double fork": "sh('(setsid sh -c \"sleep 600 & sleep 600\" >/dev/null 2>&1 &)')",
    "ignores TERM": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; sleep 600; sleep 600'])",
    # and no parent left
    "cleared environment": "sh('(setsid env -i /bin/sleep 600 > /dev/null 2>&1 &)')",
}

# The ways in which ralph finds them, each as Python that it runs before: the second one
# where orphans are not adopted, as on macOS.
SESSIONS = "from _ralph.process import leftovers; leftovers.ADOPTS = False\n"
WAYS = {"adopted": "", "by session": SESSIONS}
if sys.platform == "darwin":
    del WAYS["adopted"]


def kinds(way: str = next(iter(WAYS))) -> dict[str, str]:
    """The descendants that are found in this way, that of this system if none is named.
    The second one misses what left its session and its parent, and whose environment
    cannot be read."""
    lost = ("double fork", "cleared environment") if WAYS[way] else ()
    return {kind: deed for kind, deed in DESCENDANTS.items() if kind not in lost}


HANGS = "\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n(OUT / 'hanging').touch()\ntime.sleep(600)"
