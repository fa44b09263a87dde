"""The datasets known by name (`catalogue.toml`), and where their files may lie on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from d2ace._util.hints import did_you_mean
from d2ace.data.readers.source import present

from .cache import cache_dir
from .container import DataError, UnknownDataError

EMBEDDED = "digits"
"""The one dataset that comes with the package itself."""


@dataclass(frozen=True)
class File:
    """One file of a dataset: its place below the data folder, its checksums, its address."""

    path: str
    role: str
    size: int
    sha256: str
    known: tuple[str, ...] = ()
    url: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A catalogue entry; the head of `catalogue.toml` explains the fields."""

    name: str
    title: str
    domain: str
    n: int
    d: int
    q: int
    cardinality: float
    density: float
    citation: str
    files: tuple[File, ...]
    aliases: tuple[str, ...] = ()
    paper: Mapping[str, float] | None = None
    feature_share: float | None = None
    misaligned: Mapping[str, int] | None = None
    labels_at_end: int | None = None
    drop: tuple[str, ...] = ()
    defects: tuple[str, ...] = ()
    unfetchable: str | None = None

    def needed(self) -> list[File]:
        """The files that make the dataset: its data, and its label list if it has one."""
        return [file for file in self.files if file.role in ("data", "labels")]

    @property
    def label_location(self) -> str:
        """Where the labels are, in words."""
        if self.labels_at_end:
            return f"the last {self.labels_at_end} attributes"
        listed = next(file.path for file in self.files if file.role == "labels")
        return f"the attributes named in {Path(listed).name} (the last {self.q})"


@cache
def catalogue() -> Mapping[str, Dataset]:
    """All entries by name."""
    text = resources.files("d2ace.data").joinpath("catalogue.toml").read_text(encoding="utf-8")
    entries = _parse(text)
    return MappingProxyType({name: _entry(name, raw) for name, raw in entries.items()})


def _parse(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _entry(name: str, raw: dict[str, Any]) -> Dataset:
    files = tuple(File(**file | {"known": tuple(file.get("known", ()))}) for file in raw["files"])
    lists = {key: tuple(raw.get(key, ())) for key in ("aliases", "drop", "defects")}
    return Dataset(name, **raw | {"files": files} | lists)


def find(name: str) -> Dataset | None:
    """The entry with this name or alias, in whatever case."""
    wanted = name.casefold()
    for entry in catalogue().values():
        if wanted == entry.name or wanted in entry.aliases:
            return entry
    return None


def get(name: str) -> Dataset:
    """The entry with this name, or an error that suggests one."""
    entry = find(name)
    if entry is None:
        raise unknown(name)
    return entry


def unknown(name: str) -> UnknownDataError:
    """The error for a name that is neither in the catalogue nor a file."""
    known = [EMBEDDED, *catalogue()]
    hint = did_you_mean(name, known) or f"; known names: {', '.join(known)}"
    return UnknownDataError(f"no dataset and no file is called {name[:80]!r}{hint}")


def recognise(sha256: str) -> tuple[Dataset, File] | None:
    """The entry and the file that these bytes are."""
    for entry in catalogue().values():
        for file in entry.files:
            if sha256 == file.sha256 or sha256 in file.known:
                return entry, file
    return None


def fetched_folder() -> Path:
    """Where `fetch` puts files; the layout is that of ``D2ACE_DATA``."""
    return cache_dir() / "datasets"


def damaged(entry: Dataset, path: Path) -> DataError:
    """The error for a fetched file that is not what was fetched."""
    return DataError(
        f"{path}: is damaged: it is not what was fetched for {entry.name!r}; run: d2ace data fetch "
        f"{entry.name}, or set D2ACE_DATA to a copy of your own"
    )


def locate(entry: Dataset) -> dict[str, Path]:
    """Where the needed files lie: in ``D2ACE_DATA``, or else among the fetched files."""
    roots = [fetched_folder()]
    if local := os.environ.get("D2ACE_DATA"):
        if not Path(local).is_dir():
            raise UnknownDataError(f"D2ACE_DATA is {local!r}, which is not a folder; correct it")
        roots.insert(0, Path(local))
    for root in roots:
        found = {file.path: present(root / file.path) for file in entry.needed()}
        there = {path: place for path, place in found.items() if place is not None}
        if len(there) == len(found):
            return there
    raise DataError(f"the files of {entry.name!r} are not on this machine; {how_to_get(entry)}")


def how_to_get(entry: Dataset) -> str:
    """What a user can do to have the files."""
    paths = " and ".join(file.path for file in entry.needed())
    local = f"set D2ACE_DATA to a folder that holds {paths} (.gz is fine)"
    if entry.unfetchable:
        return f"the files cannot be fetched ({entry.unfetchable}), so {local}"
    return f"run: d2ace data fetch {entry.name}, or {local}"
