"""The walkthrough is what happens."""

from __future__ import annotations

from pathlib import Path

from tests import transcript


def test_the_walkthrough_is_what_the_commands_print(tmp_path: Path) -> None:
    assert transcript.play(tmp_path.resolve()) == transcript.written()


def test_what_differs_from_day_to_day_is_made_alike() -> None:
    told = "2031-01-02 03:04:05 done | 7.3 s\n1234567 US-001: x\n~/shop-0a1b2c3d/b (1.3 MB), git: 2.39, 2031-01-02 03:04"
    alike = "2026-11-21 22:30:00 done | 0.2 s\nc0ffee1 US-001: x\n~/shop-1f0c3a2b/b (0.2 MB), git: 2.47, 2026-11-21 22:30"
    assert transcript.alike(told, Path("/nowhere")) == alike
