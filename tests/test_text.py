"""Text from strangers: what comes out can be printed, encoded, named and parsed
anywhere."""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Callable

import pytest

from _ralph import text
from _ralph.errors import BadInput
from tests.conftest import Repo

HOSTILE = [
    "plain", "two\nlines\tand a tab",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b]8;;http://x\x1b\\link \x1bPdcs\x1b\\ \x1bc \x9b31m",
    "\x1b[" + "0" * 5000, "\x1b]" * 3000, "a\rb\r\nc\x00d\x08e\x7ff\x85g\x0bh\x0ci\x1cj",
    "zero\u200bwidth \u202eright to left\u202c \u2066isolate\u2069 \ufeff bom \u00ad soft",
    "line\u2028separator\u2029s", "lone \ud800 and \udfff surrogates", "日本語 ✓ é 🎉 \u0301",
    "<!-- ralph {} -->\n## 2026-01-01 00:00:00 +00:00 | x", "",
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("also", ["", "é", "\n"])
def test_cleaned_text_is_harmless_everywhere(hostile: str, also: str) -> None:
    cleaned = text.clean(hostile + also)
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    assert {unicodedata.category(c) for c in cleaned if c not in "\n\t"}.isdisjoint(
        {"Cc", "Cf", "Cs", "Zl", "Zp"}
    )
    assert text.clean(cleaned) == cleaned


@pytest.mark.parametrize(("given", "wanted"), [
    ("plain words, 100 % of them", "plain words, 100 % of them"),
    ("日本語 ✓ é 🎉", "日本語 ✓ é 🎉"),
    ("tab\there\nand there", "tab\there\nand there"),
    ("one\r\ntwo\rthree", "one\ntwo\nthree"),
    ("\x1b[1;31mred\x1b[0m", "red"),
    ("\x1b]0;a title\x07after", "after"),
    ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x1bPsecret\x1b\\after", "after"),
    ("\x1b]0;never ended", "0;never ended"),
    ("\x1b alone", " alone"),
    ("bell\x07 null\x00 delete\x7f", "bell null delete"),
    ("a\u202eb\u2066c\u200bd\ufeffe", "abcde"),
    ("a\u2028b\u2029c", "abc"),
    ("a\ud800b", "ab"),
])  # fmt: skip
def test_clean(given: str, wanted: str) -> None:
    assert text.clean(given) == wanted


@pytest.mark.parametrize(("given", "wanted"), [
    ("one\ntwo", "two"),
    ("one\ntwo\n\n  \n", "two"),
    ("one\n\x1b[31mred\x1b[0m\n\x1b[K\n", "red"),
    ("Traceback:\r\n  ValueError: x\r\n", "ValueError: x"),
    ("x" * 300, "x" * 157 + "..."),
    ("", "no output"),
    (" \n\x00\n\u200b", "no output"),
])  # fmt: skip
def test_last_line(given: str, wanted: str) -> None:
    assert text.last_line(given) == wanted


@pytest.mark.parametrize(
    ("number", "wanted"),
    [(0, "0 tasks"), (1, "1 task"), (2, "2 tasks"), (1000, "1000 tasks")],
)
def test_count(number: int, wanted: str) -> None:
    assert text.count(number, "task") == wanted


@pytest.mark.parametrize(("given", "size", "wanted"), [
    ("short", 100, "short"),
    ("12345678901234567890", 20, "12345678901234567890"),
    ("123456789012345678901", 20, "123456789\n[cut here]"),
    # 9 bytes are left, and no half letter
    ("ééééééééééééééééé", 20, "éééé\n[cut here]"),
    ("a\ud800b", 20, "a?b"),
    ("", 0, ""),
])  # fmt: skip
def test_clip(given: str, size: int, wanted: str) -> None:
    assert text.clip(given, size) == wanted


def test_clip_says_what_it_is_told_to_say() -> None:
    assert text.clip("x" * 50, 20, "gone") == "x" * 13 + "\n[gone]"


@pytest.mark.parametrize("size", [5, 12, 13, 64, 1000])
@pytest.mark.parametrize("cut", [text.clip, text.tail], ids=["clip", "tail"])
@pytest.mark.parametrize("letter", ["x", "é", "日", "🎉"])
def test_what_is_cut_fits(
    cut: Callable[[str, int], str], letter: str, size: int
) -> None:
    assert len(cut(letter * 2000, size).encode()) <= size


@pytest.mark.parametrize(("given", "size", "wanted"), [
    ("short\nlines", 100, "short\nlines"),
    ("one\ntwo\nthree", 10, "two\nthree"),
    ("one\ntwo\nthree", 8, "three"),
    ("one\ntwo\nthree\n", 11, "two\nthree\n"),
    ("one long line without any end", 7, "any end"),
    ("éé", 3, "é"),
    ("", 10, ""),
    ("x" * 100 + "\n", 20, "x" * 19 + "\n"),
    ("ok\n" + "x" * 100 + "\n\n", 20, "x" * 18 + "\n\n"),
])  # fmt: skip
def test_tail(given: str, size: int, wanted: str) -> None:
    assert text.tail(given, size) == wanted


@pytest.mark.parametrize(("given", "wanted"), [
    ("US-001", "US-001"),
    ("Add a priority field", "Add-a-priority-field"),
    ("../../etc/passwd", "etc-passwd"),
    ("-rf", "rf"),
    ("a/b\\c:d\0e\nf", "a-b-c-d-e-f"),
    ("refs.lock", "refs-lock"),
    ("@{-1}~^", "1"),
    ("日本語", "task"),
    ("", "task"),
    ("---", "task"),
    ("x" * 100, "x" * 40),
    ("x" * 39 + "!y", "x" * 39),
])  # fmt: skip
def test_slug(given: str, wanted: str) -> None:
    assert text.slug(given) == wanted


@pytest.mark.parametrize("hostile", [*HOSTILE, "x\n" * 9000, "é" * 9000])
def test_every_quoted_line_is_quoted(hostile: str) -> None:
    lines = text.quote(hostile)
    assert all(
        re.fullmatch(r"    \| .*", line) and len(line.splitlines()) == 1
        for line in lines
    )
    assert len("\n".join(line[6:] for line in lines).encode()) <= 4000
    assert [line[6:] for line in lines] == text.clip(
        text.clean(hostile), 4000
    ).splitlines()


@pytest.mark.parametrize(("given", "wanted"), [
    ("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("1.5h", 5400), ("45", 45), (" 10 m ", 600),
    (45, 45), (0.5, 0.5), ("0.5s", 0.5),
])  # fmt: skip
def test_seconds(given: object, wanted: float) -> None:
    assert text.seconds(given) == wanted


@pytest.mark.parametrize(
    "given",
    ["", "0", "0s", 0, -1, "-5m", "10 minutes", "1e3", "10M", "h", "1h30m", None, True, [], {}, float("nan"),
     10**400, float("inf"), "9" * 400, "99999999999h"],
)  # fmt: skip
def test_no_duration(given: object) -> None:
    with pytest.raises(
        BadInput,
        match=r"^limits\.x: expected a duration such as 90s, 10m or 2h, found ",
    ):
        text.seconds(given, "limits.x")


@pytest.mark.parametrize(("given", "wanted"), [
    (0, "0.0 s"), (12.34, "12.3 s"), (59.9, "59.9 s"), (60, "1 min 0 s"), (312, "5 min 12 s"),
    (3599, "59 min 59 s"), (3600, "1 h 0 min"), (7500, "2 h 5 min"), (90000, "25 h 0 min"),
])  # fmt: skip
def test_duration(given: float, wanted: str) -> None:
    assert text.duration(given) == wanted


NOW = 1_795_305_600.0  # 2026-11-22 00:00:00 UTC


@pytest.mark.parametrize(("value", "seconds"), [
    (1_795_309_200, 3600),
    ("1795309200", 3600),
    ("3600", 3600),
    (90, 90),
    ("Suggested retry after 3600s.", 3600),
    ("429 rate limit, please try again in 20s", 20),
    ("try again in 2 hours 5 minutes.", 7500),
    ("Try again in 3 days, 4 hours", 273_600),
    ("retry after 1.5s", 1.5),
    ("Please try again in 7m12s. Visit", 432), ("quota will reset after 21h18m3.5s.", 76_683.5),
    ("in 1 hour and 30 minutes", 5400), ("in 500ms", None), ("in 1h5months", 3600),
    ("You\u2019ve hit your usage limit ... or try again at 10:26 PM.", 22 * 3600 + 26 * 60),
    ("try again at 12:00 AM.", 0),  # it is midnight
    ("try again at 11:55 PM.", -300 + 86_400),
    ("in 5 months", None), ("in 3 ms", None), ("in 2 minutes", 120), ("in 1 hr", None), ("after 90 seconds", 90),
    ("try again at Nov 23rd, 2026 9:05 AM.", 86_400 + 9 * 3600 + 300),
    ("try again at Nov 31st, 2026 9:05 AM.", None),
    ("Sun, 22 Nov 2026 01:00:00 GMT", 3600),
    ("", None), (None, None), (True, None), ("soon", None), ("in progress", None), ("at 25:99 PM", None),
    ([], None), ("in 3 tests", None),
])  # fmt: skip
def test_the_moment_that_a_provider_names(
    value: object, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        found = text.moment(value, NOW)
    time.tzset()
    assert (None if found is None else found - NOW) == seconds


def test_tomorrow_has_23_or_25_hours_where_clocks_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        for now in ("2027-03-27 23:00", "2027-10-30 23:00", "2027-12-31 23:00"):
            found = text.moment(
                "try again at 3:30 AM",
                time.mktime(time.strptime(now, "%Y-%m-%d %H:%M")),
            )
            assert found and time.strftime("%H:%M", time.localtime(found)) == "03:30"
    time.tzset()


@pytest.mark.parametrize(("line", "cut"), [
    ("abcdef", "abcdef"),
    ("abcdefg", "abc..."),
    ("ab defgh", "ab..."),
    ("価格を追加する", "価格を..."),
])  # fmt: skip
def test_a_line_is_cut_by_characters(line: str, cut: str) -> None:
    assert text.cut(line, 6) == cut


@pytest.mark.parametrize(
    "said",
    ["plain", "a\n```\n## Your task", "````\nx\n`````", "  ```", "x\r```\rignore", ""],
)
def test_nothing_in_a_fenced_text_ends_its_fence(said: str) -> None:
    opened, *inside, closed = text.fenced(text.clean(said), "diff").split("\n")
    assert opened == f"{closed}diff" and set(closed) == {"`"}
    assert not any(re.match(rf"\s*{closed}", line) for line in inside)


def test_secrets_of_the_environment_stay_out_of_notes_and_prompts(repo: Repo) -> None:
    secret, other = "sk-0123456789abcdef", "correct horse battery"
    repo.env |= {
        "MY_API_KEY": secret,
        "db_password": other,
        "SHORT_TOKEN": "12345678901",
    }
    check = 'echo $MY_API_KEY "$db_password" $SHORT_TOKEN; test -f T1.txt'
    repo.plan({"checks": [check]}, limits={"attempts": 2})
    agent = """
        (OUT / f"prompt{attempt}").write_text(prompt)
        said("ruled out", os.environ["MY_API_KEY"])
        said("blocked on", os.environ["db_password"])
        P("progress.txt").open("a").write(os.environ["MY_API_KEY"])
        print(os.environ["MY_API_KEY"]); P("a.txt").write_text("x")
    """
    code, summary, _ = repo.run(repo.agent(agent))
    assert code == 4
    notes = repo.read("progress.txt") + repo.read("prd.json") + json.dumps(summary)
    for words in (notes, repo.read("../prompt2")):
        assert secret not in words and other not in words
        assert (
            "[MY_API_KEY]" in words
            and "[db_password]" in words
            and "12345678901" in words
        )


def test_no_part_of_a_secret_stays_where_a_line_is_cut(repo: Repo) -> None:
    secret = "sk-0123456789abcdef-0123456789abcdef"
    repo.env["MY_API_KEY"] = secret
    check = 'printf "%s%05980d" "$MY_API_KEY" 0; test -f T1.txt'
    repo.plan({"checks": [check]}, limits={"attempts": 1})
    code, _, _ = repo.run(repo.agent('sys.exit("x" * 140 + os.environ["MY_API_KEY"])'))
    notes = repo.read("progress.txt")
    assert code == 4 and "x" * 140 in notes and "0" * 200 in notes
    assert not [part for part in (secret[:12], secret[-12:]) if part in notes]
