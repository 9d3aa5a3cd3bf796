"""Patterns of files, as `protect` and `allow` have them: read, handed to git, or matched here.

Without a slash a pattern holds in every folder, with one from the top folder of the repository, as in
.gitignore; `*` stays within a folder, `**` stands for any number of them; a folder means all in it.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator

from _ralph import text
from _ralph.ends import BadInput

EXAMPLE = 'a path from the top folder of the repository, such as "tests/**"'

_GROUP = re.compile(r"[@+?*]?\(([^()]*\|[^()]*)\)|\{([^{}]*,[^{}]*)\}")
_CLASS = r"\[[!^]?+[^/][^\]/]*\]"
_BETWEEN = r"(?<!\[)[,|]|[\x00-\x1f\x7f]"

_REFUSED: tuple[tuple[str, str, str | Callable[[str], Iterable[str]]], ...] = (
    (r"^$", "it is empty", EXAMPLE),
    (r"^(['\"`]).*\1$", "it stands in quotes of its own", lambda said: [said[1:-1]]),
    (r"^!", "nothing is taken out again here; a task's own `allow` does that", "the files that are meant"),
    (r"^:", "the pathspecs of git are not read", lambda said: [re.sub(r"^:(\(.*?\)|\W*)", "", said)]),
    (r"^\^|\$$", "it looks like a regular expression", 'a pattern such as "tests/**" or "*.test.js"'),
    (r"^(~[^/]*(/|$)|\$|[A-Za-z]:[/\\])", "it names a place on one machine", EXAMPLE),
    (r"^/(home|Users|root|Volumes|private|tmp|mnt)/", "it names a place on one machine", EXAMPLE),
    (r"\\", "folders are divided by /, and [*] is a *", lambda said: [said.replace("\\", "/")]),
    (r"(^|/)\.\.(/|$)", "it leads upwards", lambda said: _inside(said)),
    (r"\{[^{}]*\.\.[^{}]*\}", "braces are not read", "one pattern for each"),
    (_BETWEEN, "one pattern for each", lambda said: _alternatives(said)),
    (r"[^/*]\*\*|^\*\*\*?[^/*].*/", "** stands alone between slashes", lambda said: _apart(said)),
    (r"\[\[:", "classes have no names here", 'a class such as "[a-z]"'),
    (rf"\[(?!{_CLASS[2:]})", "a [ without its ]", lambda said: [said.replace("[", "[[]")]),
)
"""What no pattern may look like, why, and what is meant."""


def normal(pattern: str, where: str) -> str:
    """The one form of a pattern; BadInput, with the form that is meant, for what would protect nothing."""
    said = pattern.strip()
    for wrong, why, meant in _REFUSED:
        if re.search(wrong, said):
            form = meant if isinstance(meant, str) else _quoted(meant(said))
            raise BadInput(f"{where}: {text.one_line(repr(pattern), 80)}: {why}; expected {form}")
    from_top = "/" in said.rstrip("/")  # as in .gitignore: a slash at the end says nothing of where
    parts = [part for part in said.split("/") if part not in ("", ".")]
    if not parts or said.endswith(("/", "/.")):
        parts = [*([] if from_top or not parts else ["**"]), *parts, "**"]
    whole = re.sub(r"(^|/)\*\*+(?=[^/*])", r"\1**/*", "/".join(parts))  # **.py
    whole = re.sub(r"(^|/)\*\*\*+(?=/|$)", r"\1**", whole)
    whole = re.sub(r"(?<![^/])\*\*(/\*\*)+(?![^/])", "**", whole)
    whole = re.sub(r"(?<![^/])\*\*/\*$", "**", whole)
    kept = re.match(r"(?!\*\*$)[^/]+$|[!:^~$'\"`\s]|\w:", whole)  # else it would read as something else
    return f"/{whole}" if from_top and kept else whole


def pathspecs(patterns: Iterable[str], exclude: bool = False) -> list[str]:
    """What git is to be asked for: the files under `patterns`, or all but those."""
    magic = ":(top,exclude,glob)" if exclude else ":(top,glob)"
    specs = []
    for pattern in map(_from_top, patterns):
        specs += [magic + pattern, *([] if pattern.endswith("**") else [f"{magic}{pattern}/**"])]
    return specs


def matching(patterns: Iterable[str], names: Iterable[str]) -> set[str]:
    """Those of `names` that lie under one of `patterns`, as git has it."""
    known = set(patterns)
    plain = plain_names(known)  # most are, and a look at the parts of a name costs little
    rest = re.compile(b"|".join(_expression(_from_top(pattern)) for pattern in known - plain) or b"(?!)")
    return {
        name for name in names if not plain.isdisjoint(name.split("/")) or rest.fullmatch(os.fsencode(name))
    }


def unmatched(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Those of `patterns` under which none of `names` lies."""
    known = list(names)
    return [pattern for pattern in patterns if not matching([pattern], known)]


def plain_names(patterns: Iterable[str]) -> set[str]:
    """Those patterns that are plain file names: no new file may have one."""
    return {pattern for pattern in patterns if not set(pattern) & set("*?[/")}


_TESTS = re.compile(
    r"""(.*/)?(
    (tests?|__tests__|e2e|cypress)/.*(?<!\.md)
    | spec/.*\.rb
    | (test_[^/]*|[^/]*_test|conftest|tests)\.py
    | [^/]*\.(test|spec|cy)\.[cm]?[jt]sx?
    | [^/]*_test\.(go|exs|rb|cc|cpp|dart)
    | [^/]*_spec\.rb
    | [^/]*Tests?\.(java|kt|cs|php|swift)
    )""",
    re.VERBOSE | re.DOTALL,
)


def uncovered_tests(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Those of `names` that are tests by their look, and under none of `patterns`."""
    tests = {name for name in names if _TESTS.fullmatch(name)}
    return sorted(tests - matching(patterns, tests))


def _from_top(pattern: str) -> str:
    """The same pattern, seen from the top folder."""
    return pattern.strip("/") if "/" in pattern else f"**/{pattern}"


def _expression(pattern: str) -> bytes:
    """A glob of git as a regular expression over bytes. Git takes what is spelt the same for a match, too,
    as [id].js in a pattern and a name."""
    spelt = os.fsencode(pattern)
    tokens = re.compile(rb"(?<![^/])\*\*+/|(?<![^/])\*\*+$|\*+|\?|" + _CLASS.encode() + rb"|.", re.DOTALL)
    return rb"(?s:(?:%s|%s)(?:/.*)?)" % (re.escape(spelt), tokens.sub(_piece, spelt))


def _piece(token: re.Match[bytes]) -> bytes:
    word = token[0]
    if word[:2] == b"**" and word[-1:] == b"/":
        return b"(?:[^/]*+/)*"
    if word[:1] == b"*":
        ends = token.end() == len(token.string)
        alone = token.start() == 0 or token.string[token.start() - 1 : token.start()] == b"/"
        return b".*" if len(word) > 1 and ends and alone else b"[^/]*"
    if len(word) > 1:
        return _one_of(word[1:-1])
    return b"[^/]" if word == b"?" else re.escape(word)


def _one_of(body: bytes) -> bytes:
    """The bytes that [body] stands for; never a slash."""
    others, found, at = body[:1] in (b"!", b"^"), set(), 0
    body = body[others:]
    while at < len(body):
        found.add(body[at])
        ranged = body[at + 1 : at + 2] == b"-" and at + 2 < len(body)
        found.update(range(body[at], body[at + 2] + 1) if ranged else ())
        at += 3 if ranged else 1
    chosen = (set(range(1, 256)) - found if others else found) - {ord("/")}
    return b"[%s]" % b"".join(rb"\x%02x" % value for value in sorted(chosen)) if chosen else b"(?!)"


# ---------------------------------------------------------------- what a refused one means


def _quoted(patterns: Iterable[str]) -> str:
    return ", ".join(f'"{text.one_line(found, 80)}"' for found in patterns if found) or EXAMPLE


def _alternatives(said: str) -> Iterator[str]:
    """The first patterns of those that commas, braces and bars hold together."""
    return itertools.islice(dict.fromkeys(itertools.islice(_expanded(said), 16)), 8)


def _expanded(said: str) -> Iterator[str]:
    if found := _GROUP.search(said):
        for choice in re.split(r"[,|]", found[1] or found[2]):
            yield from _expanded(said[: found.start()] + choice.strip() + said[found.end() :])
    else:
        yield from filter(None, (part.strip() for part in re.split(_BETWEEN, said)))


def _inside(said: str) -> list[str]:
    """A path without its steps upwards, if it stays in the repository."""
    whole = posixpath.normpath(said)
    return [] if whole.startswith(("..", "/..")) or whole == "." else [whole]


def _apart(said: str) -> list[str]:
    """`tests**` as `tests/**`, `a**/b` as `a/**/b`."""
    apart = re.sub(r"(?<=[^/*])\*\*+|\*\*+(?=[^/*])", "/**/", said)
    return [re.sub(r"/+", "/", apart).strip("/")]
