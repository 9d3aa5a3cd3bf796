"""Results of single tests, as a check reports them: JUnit XML, which an agent may have
written."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from _ralph import files, text
from _ralph.model import SingleTests

_BYTES, _FILES, _TESTS, _ELEMENTS, _DEPTH = 256 << 20, 10_000, 200_000, 2_000_000, 200
"""What the results of one check may hold at most."""
_TAG, _KINDS = 1 << 20, 10_000
"""Bytes of a tag with its attributes, and how many kinds of both there may be: all of
it is in memory."""
_NAME, _MESSAGE, _MESSAGES = 300, 2_000, 1_000_000
"""Characters of a test's name, of what one failure says, and of what all say."""
_CONTROL = bytes({*range(1, 32)} - {*b"\t\n\r"})
"""No XML, but some runners write what a test printed as it is: escapes of colours."""
_FAILURES = {"failure", "error", "rerunFailure", "rerunError"}
_SKIPS = {"skipped", "disabled", "notrun"}
_PASSED, _SKIPPED, _FAILED = range(3)
_NO_CLASS = {"", "test", "pytest", "Mocha Tests"}
"""Classes and suites that say nothing: `node --test` writes `test` for all."""


class _Unread(Exception):
    """Why results cannot be read: what follows `its results`."""


def read(path: Path, root: Path) -> SingleTests:
    """What the file at `path`, or the .xml files in a folder, say of single tests. In
    their names, paths in the folder `root` are relative to it, as places differ.
    Whatever stands there, this takes seconds and little memory, and does not raise."""
    if not os.path.lexists(path):
        return SingleTests(
            unread="it wrote no results to RALPH_RESULTS; does the tool pass it on?"
        )
    report, left, file = _Report(root), _BYTES, path
    try:
        for file in _files(path):
            left -= _parse(file, report, left)
    except _Unread as why:
        name = "" if file == path else f" ({text.redact(text.one_line(file.name))})"
        return SingleTests(unread=f"its results{name} {why}")
    return report.tests()


def _files(path: Path) -> list[Path]:
    """The files with results. Maven's Failsafe and TestNG write other XML beside those
    called `TEST-`."""
    if path.is_symlink() or not path.is_dir():
        return [path]
    try:
        found = [*itertools.islice(files.walk(path), _FILES + 1)]
    except RecursionError:
        raise _Unread("are too many folders, one in the other") from None
    if len(found) > _FILES:
        raise _Unread(f"are over {_FILES:,} files")
    reports = sorted(file for file in found if file.suffix == ".xml")
    if not reports:
        raise _Unread("are a folder without an .xml file")
    return [file for file in reports if file.name.startswith("TEST-")] or reports


def _parse(path: Path, report: _Report, limit: int) -> int:
    """Tell `report` of each element in a file; no tree is built. The bytes that it has,
    at most `limit`."""
    from defusedxml import DTDForbidden
    from defusedxml.ElementTree import DefusedXMLParser, ParseError

    file = files.open_regular(path)
    if file is None:
        raise _Unread("are no regular file that can be read")
    parser, size, fed = DefusedXMLParser(target=report, forbid_dtd=True), 0, 0
    try:
        with file:
            while piece := file.read(files.PIECE):
                size += len(piece)
                if size > limit:
                    raise _Unread(f"are over {_BYTES >> 20} MB")
                piece = piece.translate(None, _CONTROL)
                fed += len(piece)
                parser.feed(piece)
                if (
                    fed - parser.parser.CurrentByteIndex > _TAG
                    or len(parser.parser.intern) > _KINDS
                ):
                    raise _Unread(
                        "are no JUnit XML: a tag is over 1 MB, or there are too many kinds"
                    )
            parser.close()
    except DTDForbidden:
        raise _Unread("hold a DOCTYPE, and no test runner writes one") from None
    except (
        ParseError,
        ValueError,
        LookupError,
        OSError,
    ) as error:  # LookupError: an encoding
        raise _Unread(f"are no JUnit XML: {text.one_line(str(error))}") from None
    return size


@dataclass
class _Test:
    """A test while it is read: the kinds of elements in it, its status among them, and
    what its failures say."""

    name: str
    kinds: set[str]
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
    """All tests so far, and where in a file the parser is, which calls the methods with
    plain names."""

    def __init__(self, root: Path) -> None:
        tops = sorted(
            {os.path.abspath(root), os.path.realpath(root)}, key=len, reverse=True
        )
        self._tops = [f"{scheme}{top}/" for scheme in ("file://", "") for top in tops]
        self._states: dict[str, int] = {}
        self._messages: dict[str, str] = {}
        self._said = self._elements = self._depth = self._telling = 0
        self._suites = [_Suite()]  # those that are open
        self._open: list[_Test] = []

    def tests(self) -> SingleTests:
        """What was found."""
        found = [
            [name for name, one in self._states.items() if one == state]
            for state in range(3)
        ]
        failed = {name: self._messages.get(name, "") for name in found[_FAILED]}
        unread = "" if self._states else "its results name no test"
        return SingleTests(found[_PASSED], failed, found[_SKIPPED], unread)

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        kind = _kind(tag)
        self._count()
        self._depth += 1
        if self._depth == 1 and kind not in ("testsuites", "testsuite"):
            raise _Unread(
                f"are no JUnit XML: they begin with <{text.one_line(kind, 60)}>"
            )
        if self._depth > _DEPTH:
            raise _Unread(f"are no JUnit XML: over {_DEPTH} elements, one in the other")
        if kind == "testsuite":
            name, file = self._suite(attributes), self._file(attributes)
            self._suites.append(_Suite(name, file, attributes.get("tests", "")))
        elif kind == "testcase":
            self._open.append(
                _Test(self._name(attributes), {attributes.get("status", "")} & _SKIPS)
            )
        elif self._open:
            self._open[-1].kinds.add(kind)
            if kind in _FAILURES:
                self._telling += 1
                self.data(attributes.get("message", "") + "\n")

    def data(self, piece: str) -> None:
        if self._telling and self._said < _MESSAGES:
            self._open[-1].said = _ends(self._open[-1].said + piece, 4 * _MESSAGE)

    def end(self, tag: str) -> None:
        kind = _kind(tag)
        self._depth -= 1
        if kind == "testsuite":
            self._close(self._suites.pop())
        elif kind == "testcase":
            self._add(self._open.pop())
        elif self._open and kind in _FAILURES:
            self._telling -= 1

    def _count(self, *_: object) -> None:
        """Whatever the parser tells takes time."""
        self._elements += 1
        if self._elements > _ELEMENTS:
            raise _Unread(f"hold over {_ELEMENTS:,} elements")

    comment = pi = start_ns = _count

    def _add(self, test: _Test) -> None:
        """A name that stands there twice is as its worst. What is skipped may have
        failed: a `todo`."""
        state = (
            _SKIPPED
            if test.kinds & _SKIPS
            else _FAILED
            if test.kinds & _FAILURES
            else _PASSED
        )
        self._states[test.name] = max(state, self._states.get(test.name, _PASSED))
        if state == _PASSED:
            self._suites[-1].passed.append(test.name)
        else:
            self._suites[-1].others += 1
        if len(self._states) > _TESTS:
            raise _Unread(f"name over {_TESTS:,} tests")
        if state == _FAILED and self._said < _MESSAGES:
            said = _ends(self._plain(text.clean(test.said)).strip(), _MESSAGE)
            self._said += len(said)
            self._messages.setdefault(test.name, said)

    def _close(self, suite: _Suite) -> None:
        """Where a suite counts no more tests than those that did not pass, the others
        were only prepared: `pytest --setup-only`."""
        if suite.counts.isdecimal() and int(suite.counts[:9]) <= suite.others:
            for name in suite.passed:
                self._states[name] = max(_SKIPPED, self._states[name])

    def _name(self, attributes: Mapping[str, str]) -> str:
        """What a test is called in every run and place: its file, its class, or else
        the suites that it is in, and its name."""
        owner = self._part(attributes, "classname")
        owner = self._suites[-1].name if owner in _NO_CLASS else owner
        return (
            _joined(self._file(attributes), owner, self._part(attributes, "name"))
            or "(no name)"
        )

    def _suite(self, attributes: Mapping[str, str]) -> str:
        """The names of a suite and of those around it."""
        name = self._part(attributes, "name")
        return _joined(self._suites[-1].name, "" if name in _NO_CLASS else name)

    def _file(self, attributes: Mapping[str, str]) -> str:
        """The file that they name, if it is in the place, else that of the suite around
        them."""
        name = self._part(attributes, "file")
        return self._suites[-1].file if not name or name.startswith("/") else name

    def _part(self, attributes: Mapping[str, str], key: str) -> str:
        return " ".join(
            text.clean(_short(self._plain(attributes.get(key, "")))).split()
        )

    def _plain(self, said: str) -> str:
        """The same without secrets and without the folder of the place."""
        for top in self._tops:
            said = said.replace(top, "")
        return text.redact(said)


def _kind(tag: str) -> str:
    """The name of an element without its namespace."""
    return tag.rpartition("}")[2]


def _joined(*parts: str) -> str:
    """The name that they make together; a part with which the next one begins is left
    out."""
    named = itertools.pairwise([*filter(None, parts), ""])
    return _short(" > ".join(part for part, after in named if not _begins(after, part)))


def _short(name: str) -> str:
    """A name; if it is long, its beginning and a hash, as two that begin alike stay
    two."""
    return (
        name
        if len(name) <= _NAME
        else f"{name[:_NAME]}... {files.digest(name.encode())}"
    )


def _begins(line: str, part: str) -> bool:
    """Whether `line` is `part`, or that and more words."""
    return line.startswith(part) and not line[len(part) : len(part) + 1].isalnum()


def _ends(said: str, size: int) -> str:
    """What was said; of more than `size` characters the beginning and the end."""
    return (
        said
        if len(said) <= size
        else f"{said[: size // 2]}\n[cut here]\n{said[-size // 2 :]}"
    )
