"""Rules that somebody could write instead: a table of these tests sees each of them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

TABLES = {
    "evidence": "test_what_runs_again_and_what_comes_of_it",
    "junit": "test_what_is_read",
    "suite": "test_how_single_tests_changed",
    "verdict": "test_what_an_attempt_is_worth",
}
# The module, what stands in its code, and what in its place.
MUTANTS = r"""
evidence: return self.binds and not self.result.ok => return not self.result.ok
evidence: if first and not first.ok:  => if False:  
evidence: (by_tests or question.gives_up) => True
evidence: (by_tests or question.gives_up) => False
evidence: if gone or ( => if (
evidence: (question.gives_up and not one.own) => False
evidence: question.outcome is not Outcome.DONE => False
evidence: if ran(found): => if True:
evidence: was_red and self.result.ok and not self.flaky => was_red and self.result.ok
evidence: (self.tests.breaks or self.tests.silent) => self.tests.breaks
junit: max(state, self._states.get(name, _PASSED)) => state
junit: max(state, self._states.get(name, _PASSED)) => min(state, self._states.get(name, _FAILED))
junit: state = _SKIPPED => pass
junit: max(_SKIPPED, self._states[name]) => self._states[name]
junit: max(_SKIPPED, self._states[name]) => _SKIPPED
junit: <= suite.others => < suite.others
junit: "failure", "error"} => "failure"}
junit: {case.get("status"), *map(_kind, case)} => {*map(_kind, case)}
junit: "error"} => "error", "flakyFailure"}
junit: forbid_dtd=True => forbid_dtd=False, forbid_entities=False
junit: "test",  => 
junit:  or suite.name => 
junit: _joined(self._file(case), owner => _joined(owner
junit: .replace(f"{top}/", "") => 
junit: rpartition("}") => rpartition("|")
junit: piece.translate(None, _CONTROL) => piece
junit: _REFERENCE.sub(b"", piece => bytes(piece
junit: b"&" in piece[-9:] => b"&" in piece[:0]
junit:  and not case.get("file") => 
junit: case.get("classname") == "" => not case.get("classname")
junit: _FILE.fullmatch(title) => _FILE.search(title)
junit: if state == _SKIPPED or => if 
suite: silent=green and bool(_states(before[-1:])) => silent=False
suite: green and bool(_states(before[-1:])) => green
suite: "failed": Kind.OLD => "failed": Kind.FAILED
suite: "skipped": Kind.SKIPPED => "skipped": Kind.GREEN
suite: "gone": Kind.GONE => "gone": Kind.GREEN
suite: len(now) > 1 and => False and
suite: states[name].add("gone") => pass
suite: then = _states(earlier) => then = _states([])
suite: Kind.LOST if kind in (Kind.SKIPPED, Kind.GONE) else kind => kind
suite: not before and set(earlier) == {"passed"} => set(earlier) == {"passed"}
suite: Kind.FAILED if whole else Kind.NEW => Kind.NEW
suite: Kind.FAILED if whole else Kind.NEW => Kind.FAILED
suite: was_red and all(run.ok for run in now) => was_red and now[0].ok
suite: not any(run.ok for run in before) => not before[0].ok
verdict: if one.red and not red: => if False:
verdict: turned and case.changed and not red => turned and not red
verdict: turned and case.changed and not red => turned and case.changed
verdict: turned and case.changed and not red => False
verdict: if away or result.outcome is Outcome.TIMED_OUT: => if away:
verdict: result.outcome is not Outcome.DONE and not (red and case.changed) => False
verdict: and not result.active and not changed => and not changed
verdict: and not result.active and not changed => and not result.active
verdict: if not proved: => if False:
verdict: if not case.changed and case.left_out: => if False:
verdict:     if case.changed: =>     if True:
"""


@pytest.mark.parametrize("row", MUTANTS.strip("\n").splitlines())
def test_a_table_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str
) -> None:
    name, _, change = row.partition(": ")
    old, _, new = change.partition(" => ")
    module = importlib.import_module(f"_ralph.checks.{name}")
    source = Path(str(module.__file__)).read_text("utf-8")
    assert source.count(old) == 1, old
    broken = ModuleType(module.__name__)
    monkeypatch.setitem(sys.modules, broken.__name__, broken)  # dataclasses look there
    exec(source.replace(old, new), vars(broken))
    tests = importlib.import_module(f"tests.checks.test_{name}")
    monkeypatch.setattr(tests, name, broken, raising=False)
    for public in vars(broken).keys() & vars(tests).keys():
        if not public.startswith("__"):
            monkeypatch.setattr(tests, public, getattr(broken, public))
    table = getattr(tests, TABLES[name])
    names, cases = table.pytestmark[0].args
    with pytest.raises(AssertionError):
        for case in cases:
            given = dict(zip(names, case, strict=True))
            if name == "junit":
                given["tmp_path"] = tmp_path
            table(**given)
