"""The report in a real browser: no error, nothing wider than a phone, and everything
can be read."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Repo
from tests.show.test_report import a_hostile_run, a_night, many, report, side_by_side

pytestmark = pytest.mark.browser
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
PAGES: dict[str, Callable[[Repo], None]] = {
    "empty": lambda repo: repo.plan({"checks": ["false"]}),
    "night": a_night,
    "hostile": a_hostile_run,
    "one iteration": lambda repo: many(repo, 1),
    "four workers": side_by_side,
    "500 iterations": lambda repo: many(repo, 500),
}
WIDTHS = (375, 1200)

# Put into a copy of the page, whose policy would refuse it, in a frame, because a
# window cannot be as narrow as a phone: writes what it measured into the <title> of the
# page around it.
PROBE = """
addEventListener("load", () => {
  const closed = document.documentElement.scrollHeight;
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  const colour = (words) => words.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((c) => c / 255).map((c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const [r, g, b, a = 1] = colour(getComputedStyle(one).backgroundColor);
      if (a) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const faint = new Set(), wide = new Set();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !one.getClientRects().length || one.closest("svg")) continue;
    const [a, b] = [light(colour(getComputedStyle(one).color)), light(behind(one))];
    if ((Math.max(a, b) + .05) / (Math.min(a, b) + .05) < 4.5) faint.add(one.outerHTML.slice(0, 90));
  }
  for (const one of document.querySelectorAll("body *:not(svg *)"))
    if (!one.closest("pre.diff > *") && one.getBoundingClientRect().right > innerWidth + .5) wide.add(one.outerHTML.slice(0, 90));
  const data = {};
  document.querySelectorAll("data").forEach((one) => { data[one.className] = Number(one.value); });
  const bars = [...document.querySelectorAll("svg rect")].map((one) => one.getBoundingClientRect());
  parent.document.title = JSON.stringify({
    width: innerWidth, scroll: document.documentElement.scrollWidth, opened: document.documentElement.scrollHeight - closed,
    faint: [...faint], wide: [...wide], data, invisible: bars.filter((one) => !(one.width > 0 && one.height > 0)).length,
  });
});
"""


@pytest.fixture(scope="module", autouse=True)
def _chromium() -> None:
    if CHROMIUM is None:
        pytest.skip("no Chromium here: install the package chromium")


def browse(page: Path, *words: str) -> tuple[str, str]:
    """What headless Chromium prints for `page` with these options: stdout, and the
    console's lines."""
    profile = page.parent / "profile"
    options = [
        "--headless", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
        "--no-first-run", "--enable-logging=stderr", "--v=0", "--window-size=1400,1000", *words,
    ]  # fmt: skip
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    process = subprocess.Popen(
        [str(CHROMIUM), *options, page.as_uri()],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        encoding="utf-8", errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, err
    return out, "\n".join(line for line in err.splitlines() if "CONSOLE" in line)


def measure(page: Path, width: int, dark: bool) -> dict[str, Any]:
    """The probe's figures of a copy of `page`."""
    source = page.read_text("utf-8")
    source = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", source)
    source = source.replace(
        "@media (prefers-color-scheme: dark)", f"@media {'all' if dark else 'not all'}"
    )
    copy = page.with_name("probed.html")
    copy.write_text(
        source.replace("</head>", f"<script>{PROBE}</script></head>"), "utf-8"
    )
    around = page.with_name("around.html")
    around.write_text(
        f'<title></title><iframe src="{copy.name}" width="{width}" height="900" frameborder="0">'
    )
    out, console = browse(around, "--dump-dom", "--allow-file-access-from-files")
    assert console == ""
    found: dict[str, Any] = json.loads(
        html.unescape(re.findall("<title>(.*?)</title>", out, re.DOTALL)[0])
    )
    return found


def page_of(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A page, and what `status --json` says of the same plan."""
    repo = Repo(folder)
    PAGES[name](repo)
    page = folder / "page.html"
    page.write_text(report(repo), "utf-8")
    return page, json.loads(repo.ralph("status", "--json").stdout)


@pytest.fixture(scope="module", params=PAGES)
def shown(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    return page_of(request.param, tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of("night", tmp_path_factory.mktemp("page"))[0]


def test_no_message_on_the_console(shown: tuple[Path, dict[str, Any]]) -> None:
    assert browse(shown[0], "--dump-dom")[1] == ""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_can_be_read(
    shown: tuple[Path, dict[str, Any]], width: int, dark: bool
) -> None:
    page, status = shown
    found = measure(page, width, dark)
    assert found["width"] == width
    assert (found["scroll"], found["wide"]) == (width, [])
    assert found["faint"] == []
    assert found["invisible"] == 0
    assert found["opened"] > 0 or not status["iterations"]
    told = {**status, **status["tokens"]}
    assert found["data"] == {name: told[name] for name in found["data"]}
    assert {"passed", "total", "iterations", "seconds"} <= found["data"].keys()


def test_a_script_would_be_refused_and_seen(night: Path) -> None:
    copy = night.with_name("with-a-script.html")
    script = "<script>document.title = 'ran'</script></head>"
    copy.write_text(night.read_text("utf-8").replace("</head>", script), "utf-8")
    out, console = browse(copy, "--dump-dom")
    assert "Content Security Policy" in console and "<title>ran" not in out


def test_what_is_too_wide_or_too_faint_would_be_seen(night: Path) -> None:
    copy = night.with_name("spoilt.html")
    spoilt = (
        '<main><p style="width: 2000px; color: #777; background: #888">wide and faint'
    )
    copy.write_text(
        night.read_text("utf-8").replace("<main>", f"{spoilt}</p>"), "utf-8"
    )
    found = measure(copy, 375, dark=False)
    assert found["scroll"] > 375 and found["wide"] and found["faint"]


def test_it_prints(night: Path) -> None:
    target = night.with_suffix(".pdf")
    browse(night, f"--print-to-pdf={target}")
    assert target.read_bytes().startswith(b"%PDF")
