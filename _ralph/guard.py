"""Safety copies: what an attempt may not change, and how it is put back."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from _ralph import files, text
from _ralph.ends import BadInput


class Guard:
    """Copies of a few small files, taken before a stranger's program runs, durable until `release`.

    `folder` holds them, named by content, with a manifest that a later process can restore from:
    as long as it stands, what the files say is not a person's word.
    """

    def __init__(self, folder: Path, aside: Path) -> None:
        self._folder = folder
        self._aside = aside
        self._seen: dict[str, tuple[object, ...]] = {}
        self._taken: dict[str, Any] | None = None
        self._data: dict[str, bytes] = {}

    def take(self, paths: list[Path]) -> None:
        """Copy what is not copied yet. OSError means that nothing is safe: do not go on."""
        if self.holds and self._seen == {str(path): _signature(path) for path in paths}:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._data = {}
        self._taken = {str(path): self._copy(path) for path in paths}
        if self._taken != self._manifest():
            data = json.dumps(self._taken, indent=1).encode()
            files.atomic_write(self._folder / "manifest.json", data)
        for stale in set(os.listdir(self._folder)).difference(self._data, ["manifest.json"]):
            files.clear(self._folder / stale)
        self._seen = {str(path): _signature(path) for path in paths}

    def restore(self) -> dict[Path, Path | None]:
        """Put back every file that differs; for each, where the version found there is kept.

        Nothing is followed and nothing blocks: a link, FIFO or folder in a file's place is
        moved aside like any other version.
        """
        found: dict[Path, Path | None] = {}
        taken_then = self._manifest() if self._taken is None else self._taken
        for name, taken in taken_then.items():
            path = Path(name)
            now = _signature(path)
            if name in self._seen and self._seen[name] == now:
                continue
            if not self._same(path, taken):
                found[path] = self._put_back(path, taken)
            self._seen[name] = _signature(path)
        return found

    def release(self) -> None:
        """From now on a change of the files is a person's."""
        self._taken, self._seen = {}, {}
        if self.holds:
            files.clear(self._folder / "manifest.json")
            files.fsync_dir(self._folder)  # one that comes back after a power cut would undo a pass

    @property
    def holds(self) -> bool:
        """Whether copies were taken, by this process or one that died, and not released."""
        return (self._folder / "manifest.json").exists()

    def _manifest(self) -> dict[str, Any]:
        """What was taken by a process that died, as far as its copies are still what they were."""
        try:
            loaded = json.loads((self._folder / "manifest.json").read_bytes())
            return {name: taken for name, taken in loaded.items() if taken is None or self._whole(taken)}
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            return {}

    def _whole(self, taken: dict[str, Any]) -> bool:
        copy = taken["copy"]  # None for a link to nothing
        return copy is None or files.digest(files.read_regular(self._folder / str(copy)) or b"") == copy

    def _copy(self, path: Path) -> dict[str, Any] | None:
        if not os.path.lexists(path):
            return None
        target = Path(os.path.realpath(path))
        link = os.readlink(path) if path.is_symlink() else None
        if link is not None and not os.path.lexists(target):
            return {"copy": None, "link": link, "target": str(target)}
        data = target.read_bytes()
        name = files.digest(data)
        self._data[name] = data  # for an agent may reach the copies on disk
        if files.read_regular(self._folder / name) != data:
            files.atomic_write(self._folder / name, data, 0o600)
        return {
            "copy": name,
            "size": len(data),
            "links": target.stat().st_nlink,
            "mode": stat.S_IMODE(target.stat().st_mode),
            "link": link,
            "target": str(target),
        }

    def _same(self, path: Path, taken: dict[str, Any] | None) -> bool:
        if taken is None:
            return not os.path.lexists(path)
        if os.path.realpath(path) != taken["target"]:  # a folder on the way became a link
            return False
        if taken["link"] is not None and not self._is_link(path, taken):
            return False
        target = Path(taken["target"])
        if taken["copy"] is None:
            return not os.path.lexists(target)
        data = files.read_regular(target, taken["size"] + 1)
        if data is None or files.digest(data) != taken["copy"]:
            return False
        status = target.stat()
        return (stat.S_IMODE(status.st_mode), status.st_nlink) == (taken["mode"], taken["links"])

    def _is_link(self, path: Path, taken: dict[str, Any]) -> bool:
        return path.is_symlink() and os.readlink(path) == str(taken["link"])

    def _put_back(self, path: Path, taken: dict[str, Any] | None) -> Path | None:
        """Make `path` what it was; where the version found there is kept."""
        if taken is None:
            return files.move_aside(path, self._aside, path.name)
        target = Path(taken["target"])
        self._make_way(target.parent)
        if taken["link"] is not None and not self._is_link(path, taken):
            kept = files.move_aside(path, self._aside, path.name)
            os.symlink(taken["link"], path)
        else:
            kept = files.move_aside(target, self._aside, path.name)
        if taken["copy"] is None:
            return files.move_aside(target, self._aside, path.name) or kept
        data = self._data.get(taken["copy"])
        if data is None:
            data = (self._folder / taken["copy"]).read_bytes()
        files.atomic_write(target, data, taken["mode"])
        return kept

    def _make_way(self, folder: Path) -> None:
        """Make `folder` a folder again; what else stands in its place, or in that of one above it, is
        moved aside, but for a link to where ralph's own folder is. BadInput where git's folder went."""
        around = Path(os.path.realpath(self._folder)).parents
        for part in (*reversed(folder.parents), folder):
            if part.is_dir() and (not part.is_symlink() or Path(os.path.realpath(part)) in around):
                continue
            if part.name == ".git" and os.path.lexists(part):
                said = text.one_line((files.read_regular(part, 4096) or b"").decode("utf-8", "replace"))
                raise BadInput(
                    f"an attempt put something else in the place of the folder {part} ({said or 'no file'}); "
                    f"move that away and git's folder back there, then run it again"
                )
            files.move_aside(part, self._aside, part.name)
        folder.mkdir(parents=True, exist_ok=True)


def _signature(path: Path) -> tuple[object, ...]:
    """Changes with every change of the file, of the link to it, and of their names and places."""
    target = os.path.realpath(path)
    return files.signature(path), files.signature(Path(target)), target
