"""A folder that a command fills: it replaces files that it wrote itself, and no others.

A list (``d2ace-files.json``) holds their names and checksums. So a report can be written again over
itself, but files of others, and files that you edited, are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from d2ace._util.atomic import write_whole
from d2ace._util.errors import RunError, UserError

LIST = "d2ace-files.json"


class WrittenFolder:
    """The files of one folder, by their names within it (``tables/scores.csv``)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            if folder.exists() and not folder.is_dir():
                raise UserError(f"{folder} is a file; name a folder")
            self._known = self._listed()
        except OSError as error:
            raise UserError(f"{folder} cannot be used: {error.strerror}; name another") from None

    def _listed(self) -> dict[str, list[str]]:
        """File -> checksums it may have: two of them, should a writer have been killed."""
        path = self.folder / LIST
        if not path.exists() and not path.is_symlink():
            return {}
        try:
            files = json.loads(path.read_text(encoding="utf-8"))["files"]
            return {str(name): [str(one) for one in sums] for name, sums in files.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise UserError(
                f"{path} is not a list of files that d2ace wrote; it was left alone: choose "
                "another folder, or move it away"
            ) from None

    def check(self, names: Iterable[str]) -> None:
        """Refuse to write these files where one would replace what is not ours."""
        try:
            for name in names:
                self._check(name)
        except OSError as error:
            raise UserError(
                f"{self.folder} cannot be used: {error.strerror}; choose another folder"
            ) from None

    def _check(self, name: str) -> None:
        path = self.folder / name
        for above in [
            one for one in path.parents if one not in (self.folder, *self.folder.parents)
        ]:
            if above.is_symlink() or (above.exists() and not above.is_dir()):
                raise self._in_the_way(above, "is not a folder that d2ace made")
        if not path.exists() and not path.is_symlink():
            return
        if path.is_symlink() or not path.is_file() or name not in self._known:
            raise self._in_the_way(path, "was not written by d2ace, and would be replaced")
        if _checksum(path.read_bytes()) not in self._known[name]:
            raise self._in_the_way(path, "was changed since d2ace wrote it, and would be replaced")

    def _in_the_way(self, path: Path, why: str) -> UserError:
        return UserError(f"{path} {why}; it was left alone: choose another folder, or move it away")

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write the files, each whole; whatever else is in the folder stays."""
        self.check(files)
        sums = {name: _checksum(content) for name, content in files.items()}
        try:
            for folder in dict.fromkeys((self.folder / name).parent for name in files):
                folder.mkdir(parents=True, exist_ok=True)
            # Until all are written, some may be old.
            self._list({name: [*self._known.get(name, []), one] for name, one in sums.items()})
            for name, content in files.items():
                write_whole(self.folder / name, content)
            self._list({name: [one] for name, one in sums.items()})
        except OSError as error:
            raise RunError(
                f"{self.folder} cannot be written to: {error.strerror or error}; free some space, "
                "or choose another folder"
            ) from None

    def _list(self, changed: Mapping[str, list[str]]) -> None:
        self._known |= changed
        listed = {"files": dict(sorted(self._known.items()))}
        write_whole(self.folder / LIST, (json.dumps(listed, indent=1) + "\n").encode())


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
