"""What a loop reads before it does anything, and the two locks."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable

import pytest

from _ralph.checks.results import Own
from _ralph.errors import Stop
from _ralph.loop.loop import HOLDER, Loop
from _ralph.model import CheckResult
from _ralph.state.records import Waited
from tests.conftest import Repo

Opened = Callable[..., Loop]


@pytest.fixture(autouse=True)
def plan(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})


# ---------------------------------------------------------------- the plan


# ---------------------------------------------------------------- the locks


def test_who_enters_the_room_is_alone_and_reads_what_others_left(
    opened: Opened,
) -> None:
    first, second = opened(1), opened(2)
    green = CheckResult("true", "true", True, 0, 0.1)
    order: list[object] = []

    def enters() -> None:
        with second.in_room() as results:
            order.append("second")
            known = results.newest(second.first_tip, "true")
            order.append(known.ok if known else None)
            order.append(second.history.this_run.waited.command)

    waits = threading.Thread(target=enters)
    with first.in_room() as results:
        assert os.readlink(first.paths.private / HOLDER) == "1"
        waits.start()
        time.sleep(0.2)
        order.append("first")
        results.known.own["T1"] = Own("x", {})
        results.add(first.first_tip, [green])
        with first.plan_locked():
            first.write(Waited(command="why"), "waits")
    waits.join(10)
    assert order == ["first", "second", True, "why"]
    assert not os.path.lexists(first.paths.private / HOLDER)


def test_a_room_in_which_a_loop_died_is_entered_by_nobody_until_it_is_cleared(
    opened: Opened,
) -> None:
    loop = opened()
    (loop.paths.private / HOLDER).symlink_to("2")
    began = time.monotonic()
    with pytest.raises(Stop) as stopped, loop.in_room(time.time() + 0.3):
        raise AssertionError
    assert stopped.value.word == "limit"
    assert time.monotonic() - began >= 0.3
    (loop.paths.private / HOLDER).unlink()
    with loop.in_room():
        pass


WATCHED = """
import contextlib
from _ralph.loop import loop
real, held = loop.Loop.plan_locked, []
@contextlib.contextmanager
def plan_locked(self):
    with real(self):
        held.append(self)
        try:
            yield
        finally:
            held.clear()
def watched(what):
    def called(*given, **named):
        open({log!r}, "a").write(f"{{what.__name__}} {{'inside' if held else 'outside'}}\\n")
        return what(*given, **named)
    return called
loop.Loop.plan_locked = plan_locked
loop.Loop.in_room = watched(loop.Loop.in_room)
loop.Loop.stand_by = watched(loop.Loop.stand_by)
loop.Loop.notify = watched(loop.Loop.notify)
"""


def test_nobody_waits_or_tells_anything_while_he_holds_the_plan_s_lock(
    repo: Repo,
) -> None:
    repo.plan({"checks": ["test -f T1"]}, {"checks": ["false"]}, limits={"attempts": 1})
    log = repo.outside / "waits"
    words = ("--jobs", "2", "--notify", f"cat >> {repo.outside}/told")
    watch = WATCHED.format(log=str(log))
    code, _, printed = repo.run(repo.agent("P(task).touch()"), *words, first=watch)
    assert code == 4, printed
    waits = log.read_text().splitlines()
    assert {"in_room outside", "notify outside"} == set(waits)
    assert '"blocked"' in repo.read("../told")


def test_an_attempt_that_passes_makes_few_calls_of_git(repo: Repo) -> None:
    log, git = repo.outside / "calls", shutil.which("git")
    repo.tool("git", f'echo git >> {log}; exec {git} "$@"')
    counts = []
    for number in (2, 5):
        log.write_text("")
        checks = [{"run": f"test -f T{n}", "once": True} for n in range(1, number + 1)]
        repo.plan(*({"checks": [check]} for check in checks))
        assert repo.run(repo.agent("P(task).touch()"))[0] == 0
        counts.append(len(log.read_text().split()))
        repo.write("progress.txt", "")
        repo.git("branch", "-qD", "ralph/p")
    assert (counts[1] - counts[0]) / 3 < 13
