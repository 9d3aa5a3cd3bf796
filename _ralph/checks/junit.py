"""Results of single tests, as a check reports them: JUnit XML, which an agent may have
written."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from _ralph import files, text
from _ralph.model import SingleTests

_BYTES = 64 << 20
_SECONDS = 60.0
"""What the results of one check may hold, and take to read, at most."""
_MESSAGE = 2_000
_MESSAGES = 500
"""Characters of what one failure says, and failures of which it is kept."""
_CONTROL = bytes({*range(1, 32)} - {*b"\t\n\r"})
"""No XML, but some runners write what a test printed as it is: escapes of colours."""
_FAILURES = {"failure", "error", "rerunFailure", "rerunError"}
_SKIPS = {"skipped", "disabled", "notrun"}
_PASSED, _SKIPPED, _FAILED = range(3)
_NO_TITLE = {"test", "pytest", "Mocha Tests"}
"""Classes and suites that say nothing: `node --test` writes `test` for all."""
_FILE = re.compile(r"\S+\.[cm]?[jt]sx?")
"""The name of a case that stands for a test file: in vitest, jest and node."""


class _Unread(Exception):
    """Why results cannot be read: what follows `its results`."""


def read(path: Path, root: Path) -> SingleTests:
    """What the file at `path`, or the .xml files in a folder, say of single tests. In
    their names, paths in the folder `root` are relative to it, as places differ.
    Whatever stands there, this ends within a minute or so, and does not raise."""
    if not os.path.lexists(path):
        why = "it wrote no results to RALPH_RESULTS; does the tool pass it on?"
        return SingleTests(unread=why)
    report = _Report(root)
    left = _BYTES
    ends = time.monotonic() + _SECONDS
    try:
        for file in sorted(files.walk(path)):
            if file == path or file.suffix == ".xml":
                left -= _parse(file, report, left, ends)
    except RecursionError:
        return SingleTests(unread="its results are too many folders, one in the other")
    except _Unread as why:
        return SingleTests(unread=f"its results {why}")
    return report.tests()


def _parse(path: Path, report: _Report, limit: int, ends: float) -> int:
    """Tell `report` of each element in a file; no tree is built. The bytes that it has,
    at most `limit`."""
    from defusedxml.ElementTree import DefusedXMLParser, ParseError

    file = files.open_regular(path)
    if file is None:
        raise _Unread("are no regular file that can be read")
    parser = DefusedXMLParser(target=report, forbid_dtd=True)
    size = 0
    try:
        with file:
            while piece := file.read(files.PIECE):
                size += len(piece)
                if size > limit:
                    raise _Unread(f"are over {_BYTES >> 20} MB")
                if time.monotonic() > ends:
                    raise _Unread(f"take over {_SECONDS:.0f} seconds to read")
                parser.feed(piece.translate(None, _CONTROL))
            parser.close()
    except (ParseError, ValueError, LookupError, OSError) as error:
        # ValueError: a DOCTYPE; LookupError: an encoding that there is not
        raise _Unread(f"are no JUnit XML: {text.one_line(str(error))}") from None
    return size


@dataclass
class _Test:
    """A test while it is read: the kinds of elements in it, its status among them, what
    its failures say, and whether a failure would mean that a file of tests could not be
    loaded."""

    name: str
    kinds: set[str]
    stands_for_file: bool
    said: str = ""


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
    """All tests so far, and where in a file the parser is, which calls `start`, `data`
    and `end`."""

    def __init__(self, root: Path) -> None:
        tops = {os.path.abspath(root), os.path.realpath(root)}
        self._tops = sorted(tops, key=len, reverse=True)
        self._states: dict[str, int] = {}
        self._messages: dict[str, str] = {}
        self._uncollected: list[str] = []
        self._errors = 0  # that runs count, and no case shows
        self._telling = 0  # failures that are open
        self._suites = [_Suite()]  # those that are open
        self._open: list[_Test] = []

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
        if self._errors > 0:  # gotestsum, before Go 1.24
            found.uncollected.append("a package that the results do not name")
        return found

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        kind = _kind(tag)
        if kind == "testsuites":
            errors = attributes.get("errors", "")[:9]
            self._errors += int(errors) if errors.isdecimal() else 0
        elif kind == "testsuite":
            name = _joined(self._suites[-1].name, self._title(attributes, "name"))
            counts = attributes.get("tests", "")[:9]
            self._suites.append(_Suite(name, self._file(attributes), counts))
        elif kind == "testcase":
            self._open.append(self._test(attributes))
        elif self._open:
            self._open[-1].kinds.add(kind)
            self._errors -= kind == "error"
            if kind in _FAILURES:
                self._telling += 1
                self.data(attributes.get("message", "") + "\n")

    def data(self, piece: str) -> None:
        if self._telling and len(self._messages) < _MESSAGES:
            test = self._open[-1]
            test.said = (test.said + piece)[: 2 * _MESSAGE]

    def end(self, tag: str) -> None:
        kind = _kind(tag)
        if kind == "testsuite":
            self._close(self._suites.pop())
        elif kind == "testcase":
            self._add(self._open.pop())
        elif self._open and kind in _FAILURES:
            self._telling -= 1

    def _test(self, attributes: Mapping[str, str]) -> _Test:
        """A test, with what it is called in every run and place: its file, its class,
        or else the suites that it is in, and its name."""
        owner = self._title(attributes, "classname") or self._suites[-1].name
        title = self._name(attributes, "name")
        name = _joined(self._file(attributes), owner, title) or "(no name)"
        status = {attributes.get("status", "")} & _SKIPS
        # pytest and Go leave the class of a module or package empty
        of_none = attributes.get("classname") == "" and not attributes.get("file")
        of_file = owner == "Test suite failed to run" or _FILE.fullmatch(title)
        return _Test(name, status, of_none or bool(of_file))

    def _add(self, test: _Test) -> None:
        """A name that stands there twice is as its worst. What is skipped may have
        failed: a `todo`."""
        state = _PASSED
        if test.kinds & _SKIPS:
            state = _SKIPPED
        elif test.kinds & _FAILURES:
            state = _FAILED
        self._states[test.name] = max(state, self._states.get(test.name, _PASSED))
        if state == _PASSED:
            self._suites[-1].passed.append(test.name)
            return
        self._suites[-1].others += 1
        if state == _FAILED and test.name not in self._messages:
            self._messages[test.name] = self._plain(test.said).strip()[:_MESSAGE]
            if test.stands_for_file:
                self._uncollected.append(test.name)

    def _close(self, suite: _Suite) -> None:
        """Where a suite counts no more tests than those that did not pass, the others
        were only prepared: `pytest --setup-only`."""
        if suite.counts.isdecimal() and int(suite.counts) <= suite.others:
            for name in suite.passed:
                self._states[name] = max(_SKIPPED, self._states[name])

    def _file(self, attributes: Mapping[str, str]) -> str:
        """The file that they name, if it is in the place, else that of the suite around
        them."""
        name = self._name(attributes, "file")
        return self._suites[-1].file if not name or name.startswith("/") else name

    def _title(self, attributes: Mapping[str, str], key: str) -> str:
        """What they call a class or a suite, if it says anything."""
        name = self._name(attributes, key)
        return "" if name in _NO_TITLE else name

    def _name(self, attributes: Mapping[str, str], key: str) -> str:
        return " ".join(self._plain(attributes.get(key, "")).split())

    def _plain(self, said: str) -> str:
        """The same without secrets and without the folder of the place."""
        for top in self._tops:
            said = said.replace(f"file://{top}/", "").replace(f"{top}/", "")
        return text.clean(text.redact(said))


def _kind(tag: str) -> str:
    """The name of an element without its namespace."""
    return tag.rpartition("}")[2]


def _joined(*names: str) -> str:
    """The name that they make together; a part with which the next one begins is left
    out."""
    parts: list[str] = []
    for name in names:
        if parts and name.startswith(parts[-1]):
            parts[-1] = name
        elif name:
            parts.append(name)
    return " > ".join(parts)
