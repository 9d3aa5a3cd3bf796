"""Results of single tests, as a check reports them: JUnit XML, which an agent may have
written."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.etree.ElementTree import Element

from _ralph import files, text
from _ralph.model import SingleTests

_BYTES = 64 << 20
_SECONDS = 60.0
"""What the results of one check may hold, and take to read, at most."""
_MESSAGE = 2_000
_MESSAGES = 500
"""Characters of what one failure says, and failures of which it is kept."""
_CONTROL = bytes({*range(1, 32)} - {*b"\t\n\r"})
_REFERENCE = re.compile(
    rb"&#(0*([0-8]|1[124-9]|2\d|3[01])|x0*([0-8bcef]|1[\da-f]));", re.IGNORECASE
)
"""No XML, but some runners write what a test said as it is, escapes of colours too; and
mocha as numbers."""
_FAILURES = {"failure", "error"}
_SKIPS = {"skipped", "disabled", "notrun"}
_PASSED, _SKIPPED, _FAILED = range(3)
_NO_TITLE = {"test", "pytest", "Mocha Tests"}
"""Classes and suites that say nothing: `node --test` writes `test` for all."""
_FILE = re.compile(r"\S+\.[cm]?[jt]sx?")
"""The name of a case that stands for a test file: in vitest, jest and node."""


class _Unread(Exception):
    """Why results cannot be read: what follows `its results`."""


@dataclass
class _Bounded:
    """Files of results, one after the other, within what is `left` of bytes, and until
    `ends` (monotonic seconds)."""

    left: int
    ends: float
    file: IO[bytes] | None = None

    def read(self, size: int = files.PIECE, /) -> bytes:
        assert self.file
        piece = self.file.read(size)
        while b"&" in piece[-9:] and (rest := self.file.read(9)):
            piece += rest  # a reference ends in the piece that it begins in
        self.left -= len(piece)
        if self.left < 0:
            raise _Unread(f"are over {_BYTES >> 20} MB")
        if time.monotonic() > self.ends:
            raise _Unread(f"take over {_SECONDS:.0f} seconds to read")
        return _REFERENCE.sub(b"", piece.translate(None, _CONTROL))


def read(path: Path, root: Path) -> SingleTests:
    """What the file at `path`, or the .xml files in a folder, say of single tests. In
    their names, paths in the folder `root` are relative to it, as places differ.
    Whatever stands there, this ends within a minute or so, and does not raise."""
    if not os.path.lexists(path):
        why = "it wrote no results to RALPH_RESULTS; does the tool pass it on?"
        return SingleTests(unread=why)
    report = _Report(root)
    source = _Bounded(_BYTES, time.monotonic() + _SECONDS)
    try:
        for file in sorted(files.walk(path)):
            if file == path or file.suffix == ".xml":
                _parse(file, source, report)
    except RecursionError:
        return SingleTests(unread="its results are too many folders, one in the other")
    except _Unread as why:
        return SingleTests(unread=f"its results {why}")
    return report.tests()


def _parse(path: Path, source: _Bounded, report: _Report) -> None:
    """Tell `report` of each suite and test in a file; what was told is dropped."""
    from defusedxml.ElementTree import ParseError, iterparse

    source.file = files.open_regular(path)
    if source.file is None:
        raise _Unread("are no regular file that can be read")
    try:
        with source.file:
            for event, element in iterparse(source, ("start", "end"), forbid_dtd=True):
                kind = _kind(element)
                if kind == "testsuite" and event == "start":
                    report.open(element)
                elif kind == "testsuite":
                    report.close()
                elif kind == "testcase" and event == "end":
                    report.add(element)
                if kind in ("testsuite", "testcase") and event == "end":
                    element.clear()
    except (ParseError, ValueError, LookupError, OSError) as error:
        # ValueError: a DOCTYPE; LookupError: an encoding that there is not
        raise _Unread(f"are no JUnit XML: {text.one_line(str(error))}") from None


@dataclass
class _Suite:
    """A suite while it is read: the names down to it, its file, how many tests it
    counts, those that passed so far, and how many others there were."""

    name: str = ""
    file: str = ""
    counts: str = ""
    passed: list[str] = field(default_factory=list)
    others: int = 0


class _Report:
    """All tests so far, and the suites that are open."""

    def __init__(self, root: Path) -> None:
        tops = {os.path.abspath(root), os.path.realpath(root)}
        self._tops = sorted(tops, key=len, reverse=True)
        self._states: dict[str, int] = {}
        self._messages: dict[str, str] = {}
        self._uncollected: list[str] = []
        self._suites = [_Suite()]
        self._left = _BYTES  # of all names together: each holds those around it

    def tests(self) -> SingleTests:
        """What was found."""
        if not self._states:
            return SingleTests(unread="its results name no test")
        found = SingleTests(uncollected=self._uncollected)
        for name, state in self._states.items():
            if state == _PASSED:
                found.passed.append(name)
            elif state == _SKIPPED:
                found.skipped.append(name)
            else:
                found.failed[name] = self._messages.get(name, "")
        return found

    def open(self, suite: Element) -> None:
        """A suite begins."""
        name = self._joined(self._suites[-1].name, self._title(suite, "name"))
        counts = suite.get("tests", "")[:9]
        self._suites.append(_Suite(name, self._file(suite), counts))

    def close(self) -> None:
        """A suite ends. Where it counts no more tests than those that did not pass, the
        others were only prepared: `pytest --setup-only`."""
        suite = self._suites.pop()
        if suite.counts.isdecimal() and int(suite.counts) <= suite.others:
            for name in suite.passed:
                self._states[name] = max(_SKIPPED, self._states[name])

    def add(self, case: Element) -> None:
        """A test, by what it is called in every run and place: its file, its class, or
        else the suites that it is in, and its name. A name that stands there twice is
        as its worst."""
        suite = self._suites[-1]
        owner = self._title(case, "classname") or suite.name
        title = self._name(case, "name")
        name = self._joined(self._file(case), owner, title) or "(no name)"
        failures = [child for child in case if _kind(child) in _FAILURES]
        state = _FAILED if failures else _PASSED
        # What is skipped may have failed: a `todo`
        if _SKIPS & {case.get("status"), *map(_kind, case)}:
            state = _SKIPPED
        self._states[name] = max(state, self._states.get(name, _PASSED))
        if state == _PASSED:
            suite.passed.append(name)
            return
        suite.others += 1
        if state == _SKIPPED or name in self._messages:
            return
        said = ""
        if len(self._messages) < _MESSAGES:
            for one in failures:
                said += "\n".join([one.get("message", ""), *one.itertext()]) + "\n"
        said = self._plain(said[: 2 * _MESSAGE])
        self._messages[name] = said.strip()[:_MESSAGE]
        # pytest and Go leave the class of a module or package empty
        of_none = case.get("classname") == "" and not case.get("file")
        of_file = owner == "Test suite failed to run" or _FILE.fullmatch(title)
        if of_none or of_file:
            self._uncollected.append(name)

    def _joined(self, *names: str) -> str:
        """The name that they make together; a part with whose words the next one begins
        is left out."""
        parts: list[str] = []
        for name in names:
            before = parts[-1] if parts else name
            behind = name[len(before) : len(before) + 1]
            if parts and name.startswith(before) and not behind.isalnum():
                parts[-1] = name
            elif name:
                parts.append(name)
        whole = " > ".join(parts)
        self._left -= len(whole)
        if self._left < 0:
            raise _Unread(f"have over {_BYTES >> 20} MB of names")
        return whole

    def _file(self, element: Element) -> str:
        """The file that it names, if it is in the place, else that of the suite around
        it."""
        name = self._name(element, "file")
        return self._suites[-1].file if not name or name.startswith("/") else name

    def _title(self, element: Element, key: str) -> str:
        """What it calls a class or a suite, if that says anything."""
        name = self._name(element, key)
        return "" if name in _NO_TITLE else name

    def _name(self, element: Element, key: str) -> str:
        return " ".join(self._plain(element.get(key, "")).split())

    def _plain(self, said: str) -> str:
        """The same without secrets and without the folder of the place."""
        for top in self._tops:
            said = said.replace(f"file://{top}/", "").replace(f"{top}/", "")
        return text.clean(text.redact(said))


def _kind(element: Element) -> str:
    """The name of an element without its namespace."""
    return element.tag.rpartition("}")[2]
