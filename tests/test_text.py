"""Text from strangers: what comes out can be printed, encoded, named and parsed
anywhere."""

from __future__ import annotations

import json
import re
import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _ralph import text
from _ralph.errors import BadInput
from tests.conftest import Repo, cases
from tests.test_hostile import hostile

NASTY = r"""[
"\u001b[31m", "\u001b[0m", "\u001b]0;title\u0007", "\u001b]8;;http://x\u001b\\", "\u001bc", "\u001bPdcs\u001b\\",
"\u001b[0000", "\u001b]", "\r", "\r\n", "\n", "\t", "\u0000", "\b", "\u0085", "\u000b", "\f", "\u001c",
"\u200b", "\u202e", "\u2066", "\ufeff", "\u00ad", "\u2028", "\u2029", "\ud800", "\udfff",
"日本語", "✓", "é", "🎉", "\u0301", "```",
"<!-- ralph {} -->", "## 2026-01-01 00:00:00 +00:00 | x", "    | ",
"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
]"""
_nasty = st.sampled_from(json.loads(NASTY))
TEXTS = st.lists(_nasty | st.text(max_size=8), max_size=12).map("".join)


@hostile
@given(said=TEXTS)
def test_cleaned_text_is_harmless_everywhere(said: str) -> None:
    cleaned = text.clean(said)
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    kinds = {unicodedata.category(c) for c in cleaned if c not in "\n\t\u200c\u200d"}
    assert kinds.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})
    assert text.clean(cleaned) == cleaned


@cases(r"""
said -> wanted
"plain words, 100 % of them" -> plain words, 100 % of them
"日本語 ✓ é 🎉" -> 日本語 ✓ é 🎉
"\u001b[1;31mred\u001b[0m" -> red
"\u001b]0;a title\u0007after" -> after
"\u001b]8;;http://x\u001b\\link\u001b]8;;\u001b\\" -> link
"\u001bPsecret\u001b\\after" -> after
"\u001b]0;never ended" -> 0;never ended
"\u001b alone" -> " alone"
"bell\u0007 null\u0000 delete\u007f" -> bell null delete
"a\u202eb\u2066c\u200bd\ufeffe\u2028f\ud800g" -> abcdefg
"tab\there\r\nand\rthere" -> "tab\there\nand\nthere"
""")
def test_clean(said: str, wanted: str) -> None:
    cleaned = text.clean(json.loads(said))
    assert cleaned == (json.loads(wanted) if wanted.startswith('"') else wanted)


@hostile
@given(said=TEXTS, size=st.integers(0, 200), note=st.sampled_from(["cut here", "x"]))
def test_clip_keeps_the_head_and_tail_the_end(said: str, size: int, note: str) -> None:
    whole = said.encode("utf-8", "replace")
    head, end = text.clip(said, size, note), text.tail(said, size)
    for part in (head, end):
        assert len(part.encode()) <= size or size < 12
    if len(whole) <= size:
        assert head.encode() == end.encode() == whole
        return
    kept = head.removesuffix(f"\n[{note}]").encode()
    assert whole.startswith(kept)
    assert whole.endswith(end.encode())
    assert len(head) == len(kept) or size - len(kept) < len(note) + 8


@cases(r"""
said -> wanted
US-001 -> US-001
Add a priority field -> Add-a-priority-field
../../etc/passwd -> etc-passwd
-rf -> rf
a/b\c:d e -> a-b-c-d-e
refs.lock -> refs-lock
@{-1}~^ -> 1
日本語 -> task
--- -> task
""")
def test_slug(said: str, wanted: str) -> None:
    assert text.slug(said) == wanted


@hostile
@given(said=TEXTS | st.sampled_from(["x\n" * 9000, "é" * 9000]))
def test_every_quoted_line_is_quoted(said: str) -> None:
    lines = text.quote(said)
    inner = []
    for line in lines:
        assert line.startswith("    | ")
        assert len(line.splitlines()) == 1
        inner.append(line[6:])
    assert len("\n".join(inner).encode()) <= 4000
    assert inner == text.clip(text.clean(said), 4000).splitlines()


@hostile
@given(said=TEXTS)
def test_nothing_in_a_fenced_text_ends_its_fence(said: str) -> None:
    opened, *inside, closed = text.fenced(text.clean(said), "diff").split("\n")
    assert opened == f"{closed}diff"
    assert closed == "`" * len(closed)
    assert not re.search(rf"^\s*{closed}", "\n".join(inside), re.M)


# ---------------------------------------------------------------- durations


@cases("""
said -> wanted
"90s" -> 90
"10m" -> 600
"2h" -> 7200
"1d" -> 86400
"1.5h" -> 5400
"45" -> 45
" 10 m " -> 600
45 -> 45
0.5 -> 0.5
""")
def test_seconds(said: str, wanted: str) -> None:
    assert text.seconds(json.loads(said)) == float(wanted)


NO_DURATIONS: list[Any] = json.loads("""[
"", "0", "0s", 0, -1, "-5m", "10 minutes", "1e3", "10M", "h", "1h30m", null, true, [], {}, NaN, Infinity,
"99999999999h"]""")


@pytest.mark.parametrize("given", [*NO_DURATIONS, 10**400, "9" * 400])
def test_no_duration(given: object) -> None:
    wanted = r"^limits\.x: expected a duration such as 90s, 10m or 2h, found "
    with pytest.raises(BadInput, match=wanted):
        text.seconds(given, "limits.x")


@cases("""
given -> wanted
0 -> 0.0 s
12.34 -> 12.3 s
59.9 -> 59.9 s
60 -> 1 min 0 s
3599 -> 59 min 59 s
3600 -> 1 h 0 min
90000 -> 25 h 0 min
""")
def test_duration(given: str, wanted: str) -> None:
    assert text.duration(float(given)) == wanted


NOW = 1_795_305_600.0  # 2026-11-22 00:00:00 UTC, midnight


@cases("""
said -> wanted
1795309200 -> 3600
3600 -> 3600
Suggested retry after 3600s. -> 3600
429 rate limit, please try again in 20s -> 20
try again in 2 hours 5 minutes. -> 7500
Try again in 3 days, 4 hours -> 273600
retry after 1.5s -> 1.5
Please try again in 7m12s. Visit -> 432
quota will reset after 21h18m3.5s. -> 76683.5
in 1 hour and 30 minutes -> 5400
in 1h5months -> 3600
in 2 minutes -> 120
after 90 seconds -> 90
You've hit your usage limit ... or try again at 10:26 PM. -> 80760
try again at 12:00 AM. -> 0
try again at 11:55 PM. -> 86100
try again at Nov 23rd, 2026 9:05 AM. -> 119100
try again at Nov 31st, 2026 9:05 AM. -> -
Sun, 22 Nov 2026 01:00:00 GMT -> 3600
in 500ms -> -
in 5 months -> -
in 1 hr -> -
in 3 tests -> -
at 25:99 PM -> -
soon -> -
""")
def test_the_moment_that_a_provider_names(
    said: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        found = text.moment(said, NOW)
    time.tzset()
    if wanted:
        assert found == NOW + float(wanted)
    else:
        assert found is None


def test_secrets_of_the_environment_stay_out_of_notes_and_prompts(repo: Repo) -> None:
    secret, other = "sk-0123456789abcdef", "correct horse battery"
    repo.env["MY_API_KEY"] = secret
    repo.env["db_password"] = other
    repo.env["SHORT_TOKEN"] = "12345678901"
    check = 'echo $MY_API_KEY "$db_password" $SHORT_TOKEN; test -f T1.txt'
    repo.plan(check, limits={"attempts": 2})
    agent = """
        (OUT / f"prompt{attempt}").write_text(prompt)
        said("ruled out", os.environ["MY_API_KEY"])
        said("question", os.environ["db_password"])
        P("progress.txt").open("a").write(os.environ["MY_API_KEY"])
        print(os.environ["MY_API_KEY"]); P("a.txt").write_text("x")
    """
    ran = repo.ends("4:", repo.agent(agent))
    notes = repo.read("progress.txt") + repo.read("prd.json") + json.dumps(ran.summary)
    for words in (notes, repo.read("../prompt2")):
        assert secret not in words
        assert other not in words
        for shown in ("[MY_API_KEY]", "[db_password]", "12345678901"):
            assert shown in words


def test_no_part_of_a_secret_stays_where_a_line_is_cut(repo: Repo) -> None:
    secret = "sk-0123456789abcdef-0123456789abcdef"
    repo.env["MY_API_KEY"] = secret
    check = 'printf "%s%05980d" "$MY_API_KEY" 0; test -f T1.txt'
    repo.plan(check, limits={"attempts": 1})
    repo.ends("4:", repo.agent('sys.exit("x" * 140 + os.environ["MY_API_KEY"])'))
    notes = repo.read("progress.txt")
    assert "x" * 140 in notes
    assert "0" * 200 in notes
    assert secret[:12] not in notes
    assert secret[-12:] not in notes
