"""Names in tables: of files with the same name, and of versions of a method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from d2ace.benchmark.plan import DEFAULTS, canonical, data_place, work_of
from d2ace.benchmark.store import StoredRun

_ELSEWHERE = (
    *("model", "model_options", "selector", "selector_options", "selector_source"),
    *("fold", "seed", "data_source"),
)
_IN_THE_NAME = ("repair", "protocol")  # of the dataset
_NO_EFFECT = ("epoch_loss", "record", "insights")  # on scores
_SETTINGS = [key for key in DEFAULTS if key not in (*_ELSEWHERE, *_IN_THE_NAME, *_NO_EFFECT)]


class Shown(Protocol):
    """A run that is to be shown, planned or stored."""

    @property
    def key(self) -> str:
        """Its name in a store."""

    @property
    def dataset(self) -> str:
        """Its dataset, by the name of its file."""

    @property
    def config(self) -> dict[str, Any]:
        """Its settings."""


def tell_apart(*groups: Iterable[Shown]) -> dict[str, str]:
    """Run key -> dataset, with the folder of a file where a group has another of its name.

    Files are the same if their contents are; for runs stored without a checksum, if their paths
    are. If the contents at one path changed, the checksum identifies them. Names of the catalogue
    stay. Several groups (the stores of a comparison) get the same names.
    """
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    crowded: set[str] = set()
    groups = tuple(list(group) for group in groups)
    for group in groups:
        here: dict[str, set[str]] = {}
        for run in group:
            here.setdefault(run.dataset, set()).add(_identity(run.config))
            found.setdefault(run.dataset, {}).setdefault(_identity(run.config), run.config)
        crowded |= {dataset for dataset, files in here.items() if len(files) > 1}
    names = {dataset: _distinct(dataset, found[dataset]) for dataset in crowded}
    return {
        run.key: names.get(run.dataset, {}).get(_identity(run.config), run.dataset)
        for group in groups
        for run in group
    }


def dataset_names(runs: Iterable[StoredRun]) -> dict[str, str]:
    """Run key -> dataset, with the settings in which the run differs from most: "[epochs=20]".

    Otherwise runs of different lengths, for example, would be averaged as if they were the same.
    The finished runs decide what is usual, so that failed ones get the names that tables show.
    """
    runs = list(runs)
    counting = [run for run in runs if run.status == "finished"] or runs
    settings = {run.key: _settings(run) for run in runs}
    usual = {}
    for key in _SETTINGS:
        counts = Counter(settings[run.key][key] for run in counting)
        usual[key] = max(counts, key=lambda text: (counts[text], text)) if counts else ""
    names = {}
    for run in runs:
        here = settings[run.key]
        unusual = [f"{key}={text}" for key, text in here.items() if text != usual[key]]
        names[run.key] = f"{run.dataset} [{', '.join(unusual)}]" if unusual else run.dataset
    return names


def _settings(run: StoredRun) -> dict[str, str]:
    """A run's settings besides data, model and method, in one form (see `work_of`)."""
    work = work_of(run.config)
    # An edited file counts as another model, and other corrections as other data.
    for key in ("model_source", "model_files", "labels_source"):
        if work.get(key):
            work[key] = work[key][:8]
    return {key: canonical(work.get(key, DEFAULTS[key])) for key in _SETTINGS}


class Version(NamedTuple):
    """A method as it is shown."""

    name: str
    outdated: bool
    """Whether it never finished, but another version of the same name did."""


def versions(runs: Iterable[StoredRun]) -> list[Version]:
    """The methods of runs, with what tells versions of one name apart: "Mine [9f86d081]".

    An edited selector file, or another option under the same label, counts as another method: their
    runs must not be averaged. A version that only failed (a mistake that was fixed) does not change
    the name of the others.
    """
    runs = list(runs)
    own = [_version(work_of(run.config)) for run in runs]
    tried: dict[tuple[str, str], list[dict[str, str]]] = {}
    finished: dict[tuple[str, str], list[dict[str, str]]] = {}
    for run, version in zip(runs, own, strict=True):
        tried.setdefault((run.study, run.method), []).append(version)
        if run.status == "finished":
            finished.setdefault((run.study, run.method), []).append(version)
    varied = {where: _varied(found) for where, found in finished.items()}
    among_all = {where: _varied(found) for where, found in tried.items()}
    named = []
    for run, version in zip(runs, own, strict=True):
        where = (run.study, run.method)
        done = version in finished.get(where, [])
        words = [version[key] for key in (varied if done else among_all)[where] if key in version]
        name = f"{run.method} [{', '.join(words)}]" if words else run.method
        named.append(Version(name, outdated=not done and where in finished))
    return named


def _version(work: Mapping[str, Any]) -> dict[str, str]:
    """What a method is -> as shown."""
    parts = {"selector": str(work["selector"])}
    if work["selector_source"]:
        parts["source"] = work["selector_source"][:8]
    options = work["selector_options"].items()
    return parts | {f"option {key}": f"{key}={canonical(value)}" for key, value in options}


def _varied(versions: Iterable[Mapping[str, str]]) -> list[str]:
    seen = {canonical(parts): parts for parts in versions}
    keys = dict.fromkeys(key for parts in seen.values() for key in parts)
    return [key for key in keys if len({parts.get(key) for parts in seen.values()}) > 1]


def _identity(config: Mapping[str, Any]) -> str:
    return str(config.get("data_source") or data_place(config))


def _distinct(dataset: str, files: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Identity -> name; ``dataset`` is what they are all called."""
    paths = {data_place(config) for config in files.values()}
    depth = 0
    while depth < 32 and len({_tail(path, depth) for path in paths}) < len(paths):
        depth += 1
    names = {}
    for identity, config in files.items():
        path = data_place(config)
        name = dataset.replace(_tail(path, 0), _tail(path, depth), 1)
        alike = sum(data_place(other) == path for other in files.values())
        source = config.get("data_source")
        names[identity] = f"{name} [{source[:8]}]" if alike > 1 and source else name
    return names


def _tail(path: str, depth: int) -> str:
    """A file with the last folders above it; from the second on with its ending."""
    if "/" not in path and "\\" not in path:
        return path
    place = Path(path)
    name = place.stem if depth < 2 else place.name
    above = place.parent.parts[-max(1, depth - 1) :] if depth else ()
    return "/".join([*(part.strip("/\\") for part in above), name]).lstrip("/")
