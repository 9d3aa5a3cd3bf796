"""What tables of tests share: results of checks in a few letters, and rules that
somebody could write instead."""

from __future__ import annotations

from _ralph.checks.suite import with_tests
from _ralph.model import CheckResult, SingleTests


def run(words: str, command: str = "suite") -> CheckResult:
    """The result of a check in which these tests ran: a name for each, with + (passed),
    - (failed), o (skipped) or ! (a file that could not be loaded). `exit 3` is an exit
    status that no test explains, `none` no results."""
    exit = 3 if "exit 3" in words else 0
    tests = SingleTests(unread="it wrote no results" if "none" in words else "")
    for word in words.replace("exit 3", "").replace("none", "").split():
        name, sign = word[:-1], word[-1]
        if sign == "+":
            tests.passed.append(name)
        elif sign == "o":
            tests.skipped.append(name)
        elif sign in "-!":
            tests.failed[name] = f"{name} is wrong"
            exit = exit or 1
        if sign == "!":
            tests.uncollected.append(name)
    plain = CheckResult(command, command, not exit, exit, tail="output")
    return with_tests(plain, tests)


def runs(words: str) -> list[CheckResult]:
    """The same for each part; `;` stands between two runs on the same files."""
    return [run(part) for part in words.split(";")] if words.strip() else []
