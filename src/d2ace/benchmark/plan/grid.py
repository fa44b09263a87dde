"""Grids: datasets x models x selectors x folds x seeds, written down as TOML or typed as options.

A grid file holds the axes ``datasets``, ``models``, ``selectors``, ``run_folds`` and ``seeds``,
and any setting of ``d2ace.train`` for all runs. ``[[study]]`` tables in it are grids of their own
that take from the top of the file what they do not say.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from d2ace._util.errors import UserError
from d2ace._util.hints import did_you_mean
from d2ace.data import DataError, catalogue
from d2ace.data.images import KINDS as KINDS_OF_IMAGES
from d2ace.data.images import PLACES
from d2ace.models import MODELS
from d2ace.selectors import warm_up_sentence
from d2ace.training import corrections_checksum, protocol_of, reads_images

from .checks import (
    check_model,
    check_selector,
    check_settings,
    data_checksum,
    files_checksum,
    images_checksum,
    values_of_own,
)
from .specs import DEFAULTS, FILES, LARGEST, RunSpec, complete, method_name
from .studies import Method, ablation, comparison, sweep

KINDS = {"grid": "main", "ablation": "ablation", "sweep": "sweep"}
"""What a study can be -> the name it has unless it is given one."""

_PER_ENTRY = {
    *("model", "model_options", "model_source", "fold", "seed"),
    *("selector", "selector_options", "selector_source", "data_source", "labels_source"),
    "model_files",
}
SETTINGS = [name for name in DEFAULTS if name not in _PER_ENTRY]
"""What can be set for all runs of a grid, or for all runs on a dataset."""

AXES = ("datasets", "models", "selectors", "run_folds", "seeds")
RESERVED = ("ablation", "sweep")
"""Names of studies that a report reads in another way than a comparison of methods."""
KEYS = [*AXES, "description", "name", "kind", "vary", "variants", "fallback", *SETTINGS]


@dataclass(frozen=True)
class Grid:
    """What is to be run, in the order in which it will be."""

    name: str
    specs: list[RunSpec]
    description: str = ""
    notes: list[str] = field(default_factory=list)


def packaged() -> dict[str, str]:
    """Names of the grids that come with the library, with their descriptions."""
    files = resources.files("d2ace.benchmark.plan").joinpath("grids").iterdir()
    names = sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))
    return {name: _parse(_read_packaged(name), name).get("description", "") for name in names}


def load_grid(grid: str | Path, changes: Mapping[str, Any] | None = None) -> Grid:
    """A packaged grid by name, or the grid file ``grid``; ``changes`` win over what it says."""
    path = Path(grid)
    is_file = _exists(path) and path.is_file()
    if path.suffix == ".toml" or is_file:
        if not is_file:
            raise UserError(f"there is no grid file {path}")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"the grid file {path} cannot be read: {error}") from None
        return make_grid(_parse(text, str(path)), str(path), path.parent, changes)
    known = packaged()
    if str(grid) not in known:
        raise UserError(
            f"there is no grid {str(grid)!r}{did_you_mean(str(grid), known)}; choose from "
            f"{', '.join(known)}, or name a .toml file"
        )
    return make_grid(_parse(_read_packaged(str(grid)), str(grid)), f"{grid}.toml", None, changes)


def make_grid(
    settings: Mapping[str, Any],
    where: str = "the options",
    folder: Path | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Grid:
    """The grid these settings describe.

    ``where`` they stand goes into the sentence of an error; ``folder`` is where files that they
    name may lie. ``changes`` win, in every study.
    """
    shared = dict(settings)
    tables = shared.pop("study", [{}])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise UserError(f"{where}: study must be written as [[study]] tables")
    specs: dict[tuple[str, str, str], RunSpec] = {}
    notes: dict[str, None] = {}
    for table in tables:
        try:
            study = _Study({**shared, **table}, folder, changes or {})
            for spec in study.specs():
                specs.setdefault((spec.study, spec.method, spec.key), spec)
        except (UserError, DataError) as error:
            raise UserError(f"{where}: {error}") from None
        notes |= dict.fromkeys(study.notes)
    idle = [spec for spec in specs.values() if _only_warms_up(spec.config)]
    if idle:
        every = warm_up_sentence("every method", idle[0].config["epochs"], idle[0].config["warmup"])
        notes[f"{len(idle)} of {len(specs)} runs: {every}"] = None
    name = Path(where).stem
    return Grid(name, list(specs.values()), str(shared.get("description", "")), list(notes))


class _Study:
    """One table of settings, checked."""

    def __init__(
        self, table: Mapping[str, Any], folder: Path | None, changes: Mapping[str, Any]
    ) -> None:
        table = {**table, **changes}
        known = [*KEYS, "study"]
        for key in table:
            if key not in KEYS:
                hint = did_you_mean(key, known) or f"; known are {', '.join(known)}"
                raise UserError(f"unknown key {key!r}{hint}")
        self.folder = folder
        self.changes = {key: changes[key] for key in SETTINGS if key in changes}
        self.notes: list[str] = []
        kind = table.get("kind", "grid")
        if not isinstance(kind, str) or kind not in KINDS:
            hint = did_you_mean(str(kind), KINDS)
            raise UserError(f"kind is {kind!r}{hint}; choose from {', '.join(KINDS)}")
        self.name = str(table.get("name", KINDS[kind]))
        if self.name in RESERVED and self.name != KINDS[kind]:
            raise UserError(f"name = {self.name!r} belongs to kind = {self.name!r}; take another")
        self.fixed = {key: table[key] for key in SETTINGS if key in table}
        self.datasets = self._datasets(table)
        self.models = [self._model(entry) for entry in _entries("models", table)]
        self.methods = [self._chosen(method) for method in self._methods(kind, table)]
        labels = [label for label, _, _ in self.methods]
        for label in labels:
            if labels.count(label) > 1:
                raise UserError(f"two selectors are called {label!r}; give one another label")
        self.run_folds = _whole_numbers("run_folds", table)
        self.seeds = _whole_numbers("seeds", table) or [0]

    def specs(self) -> Iterator[RunSpec]:
        """All methods of a dataset, model and fold together; another seed only after all that.

        So a grid that is stopped has complete comparisons, on the datasets listed first.
        """
        for seed in self.seeds:
            for dataset in self.datasets:
                for model in self.models:
                    images = reads_images(model["model"], model.get("model_source"))
                    usual = protocol_of(model["model"], images=images)
                    whole = complete({**usual, **dataset, **model})
                    _refuse_mismatch(whole, images)
                    check_settings(whole)
                    for fold in self.run_folds or range(whole["folds"]):
                        for label, selector, own in self.methods:
                            which = {"fold": fold, "seed": seed}
                            config = {**whole, **selector, **which}
                            check_settings(config)
                            yield RunSpec(self.name, label, config, own)

    def _chosen(self, method: Method) -> tuple[str, dict[str, Any], dict[str, Any] | None]:
        """The label of a method, its settings, and its own values where it is a user's own."""
        settings = check_selector(method.selector, method.options, self.folder)
        own = None
        if ":" in settings["selector"]:
            own = values_of_own(settings["selector"], method.options)
        return method.label or method_name(settings), settings, own

    def _datasets(self, table: Mapping[str, Any]) -> list[dict[str, Any]]:
        found = [self._dataset(entry) for entry in _entries("datasets", table)]
        fallback = table.get("fallback")
        if fallback is not None and not any(_is_here(config["data"]) for config in found):
            absent = ", ".join(config["data"] for config in found)
            self.notes.append(f"{absent}: not on this machine, {fallback} is taken instead")
            return [self._dataset(fallback)]
        return found

    def _dataset(self, entry: Any) -> dict[str, Any]:
        entry = _table("datasets", entry, ["name", *SETTINGS])
        config = {**self._locate(entry.pop("name")), **self.fixed, **entry, **self.changes}
        if isinstance(config.get("root"), str):
            config["root"] = str(self._beside(config["root"]) or Path(config["root"]).resolve())
            if config["data"] in KINDS_OF_IMAGES and config["data"] not in PLACES:
                config["data_source"] = images_checksum(config["data"], config["root"])
        if isinstance(config.get("labels_from"), str):
            path = self._beside(config["labels_from"]) or Path(config["labels_from"])
            config |= {"labels_from": str(path), "labels_source": corrections_checksum(path)}
        return config

    def _beside(self, name: str) -> Path | None:
        """What is called so in the folder of the grid file, or else here."""
        places = [place / name for place in (self.folder, Path()) if place is not None]
        return next((path.resolve() for path in places if _exists(path)), None)

    def _locate(self, name: str) -> dict[str, Any]:
        """A dataset by its name in the catalogue, or a file beside the grid file or here."""
        entry = catalogue.find(name)
        if entry is not None or name == catalogue.EMBEDDED:
            return {"data": name if entry is None else entry.name}
        if name in KINDS_OF_IMAGES:
            return {"data": name}
        path = self._beside(name)
        if path is None or not path.is_file():
            raise catalogue.unknown(name)
        return {"data": str(path), "data_source": data_checksum(path)}

    def _model(self, entry: Any) -> dict[str, Any]:
        entry = _table("models", entry, ["name", "options"])
        chosen = check_model(entry["name"], entry.get("options", {}), self.folder)
        options = chosen["model_options"]
        options |= {name: self._file(options[name]) for name in FILES if name in options}
        return chosen | {"model_files": files_checksum(options)}

    def _file(self, option: Any) -> Any:
        """An option of a model that may be a file: its path if it is one, else as it was given."""
        path = self._beside(option) if isinstance(option, str) else None
        return str(path) if path is not None and path.is_file() else option

    def _methods(self, kind: str, table: Mapping[str, Any]) -> list[Method]:
        for key, owner in (("vary", "sweep"), ("variants", "ablation")):
            if key in table and kind != owner:
                raise UserError(f"{key!r} belongs to a study of kind {owner!r}, not {kind!r}")
        if kind == "ablation":
            if "selectors" in table:
                raise UserError(
                    "an ablation is of d2ace; choose its parts by variants, without selectors"
                )
            return ablation(**{key: table[key] for key in ("variants",) if key in table})
        if kind == "sweep":
            base = _entries("selectors", {"selectors": ["d2ace"], **table})
            if len(base) != 1:
                raise UserError(f"a sweep varies one selector, got {len(base)}")
            if not isinstance(table.get("vary"), dict):
                raise UserError("a sweep needs vary = {option = [values]}")
            return sweep(table["vary"], self._selector(base[0]))
        if table.get("selectors") is None:
            return comparison()
        return [self._selector(entry) for entry in _entries("selectors", table)]

    def _selector(self, entry: Any) -> Method:
        entry = _table("selectors", entry, ["name", "label", "options"])
        return Method(entry["name"], entry.get("options", {}), entry.get("label"))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long a name, say
        return False


def _only_warms_up(config: Mapping[str, Any]) -> bool:
    """Whether a method has no epoch of its own, so that it is Random by another name."""
    return config["selector"] != "random" and config["warmup"] >= config["epochs"]


def _refuse_mismatch(config: Mapping[str, Any], for_images: bool) -> None:
    """Models for images are given images, and models for tables tables."""
    data, model = config["data"], config["model"]
    images = data in KINDS_OF_IMAGES
    if images != for_images:
        is_, wants = ("images", "tables") if images else ("a table", "images")
        raise UserError(f"{data} is {is_}, but {model} is a model for {wants}")


def _entries(axis: str, table: Mapping[str, Any]) -> list[Any]:
    entries = table.get(axis)
    if not isinstance(entries, list) or not entries:
        first = {"datasets": "emotions", "models": next(iter(MODELS))}.get(axis, "d2ace")
        got = "there are none" if entries is None else f"got {entries!r}"
        raise UserError(
            f'{axis} must be a list such as ["{first}"] (typed: --{axis} {first}), but {got}'
        )
    return entries


def _table(axis: str, entry: Any, known: Iterable[str]) -> dict[str, Any]:
    """An entry of an axis, whether it is a name or a table with a name."""
    entry = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise UserError(f"{axis} holds {entry!r}; an entry is a name, or a table with a name")
    for key in entry:
        if key not in known:
            hint = did_you_mean(key, known) or f"; known are {', '.join(known)}"
            raise UserError(f"unknown key {key!r} in {axis}, entry {entry['name']!r}{hint}")
    for key, kind in (("label", str), ("options", dict)):
        if key in entry and not isinstance(entry[key], kind):
            raise UserError(f"{key} of {entry['name']!r} in {axis} is {entry[key]!r}")
    return dict(entry)


def _whole_numbers(key: str, table: Mapping[str, Any]) -> list[int]:
    numbers = table.get(key, [])
    whole = isinstance(numbers, list) and all(
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= LARGEST
        for number in numbers
    )
    if not whole or len(set(numbers)) < len(numbers):
        raise UserError(
            f"{key} must be a list of different whole numbers up to {LARGEST}, got {numbers!r}"
        )
    return list(numbers)


def _is_here(name: str) -> bool:
    entry = catalogue.find(name)
    if entry is None:
        return True
    try:
        catalogue.locate(entry)
    except DataError:
        return False
    return True


def _read_packaged(name: str) -> str:
    files = resources.files("d2ace.benchmark.plan").joinpath("grids")
    return files.joinpath(f"{name}.toml").read_text(encoding="utf-8")


def _parse(text: str, where: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"the grid file {where} is not TOML: {error}") from None
