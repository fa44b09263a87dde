"""What can be known to be wrong before anything runs: each of these raises one sentence."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from d2ace._util.errors import UserError
from d2ace._util.own_class import Family, is_own, own_file, shown_name
from d2ace.data import label_file
from d2ace.data.images import KINDS, Tree
from d2ace.models import IDENTITY, MODEL_FAMILY, MODELS, make_model
from d2ace.selectors import SELECTOR_FAMILY, Selector, find_selector

from .specs import FILES, training_settings


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that no run can have."""
    from d2ace.training import RunConfig

    try:
        RunConfig.from_dict({"data": "digits", **training_settings(settings)})
    except ValueError as error:
        raise UserError(error) from None


def check_model(
    name: str, options: Mapping[str, Any], folder: Path | None = None
) -> dict[str, Any]:
    """The settings for a model: its name, its options, the checksum of its file if it has one.

    An unknown model, and options it does not take, are refused by making a tiny one. That of an
    image model has no backbone, whose weights may have to be fetched first.
    """
    chosen = {"model": name, "model_options": dict(options)}
    try:
        if is_own(name):  # a user's own is asked when it is made
            return chosen | _own(MODEL_FAMILY, name, folder)
        tiny = dict(options)
        if name in MODELS and MODELS[name].input == "image":
            tiny |= {"backbone": IDENTITY, "weights": "none"}
            tiny |= {key: "random" for key in tiny if key == "label_vectors"}
        make_model(name, 4, _labels(), **tiny)
    except (TypeError, ValueError) as error:
        raise UserError(error) from None
    return chosen


def check_selector(
    name: str, options: Mapping[str, Any], folder: Path | None = None
) -> dict[str, Any]:
    """The settings for a selector: its name, its options, the checksum of its file if it has one.

    A file lies in ``folder`` (beside the grid file) or where the command was typed.
    """
    for setting in ("batch_size", "epochs", "warmup", "seed", "insights"):
        if setting in options:
            raise UserError(
                f"{setting} is a setting of the run, not an option of the selector {name!r}; write "
                f"{setting} = {options[setting]!r} beside the selectors"
            )
    chosen: dict[str, Any] = {"selector": name, "selector_options": dict(options)}
    try:
        if is_own(name):  # a user's own is asked when it is made
            return chosen | _own(SELECTOR_FAMILY, name, folder)
        tiny_selector(find_selector(name), options)
    except (TypeError, ValueError) as error:
        raise UserError(error) from None
    return chosen


def _own(family: Family[Any], name: str, folder: Path | None) -> dict[str, Any]:
    """Where a class of a user's own is, and the checksum of its file."""
    file = own_file(name)
    if file is not None:
        found = [place / file for place in (folder, Path()) if place is not None]
        here = next((path.resolve() for path in found if path.is_file()), None)
        if here is None:
            raise UserError(f"there is no file {file} for the {family.kind} {name!r}")
        name = f"{here}:{shown_name(name)}"
    source = family.source(name)
    return {family.kind: name} | ({} if source is None else {f"{family.kind}_source": source})


def tiny_selector(method: type[Selector], options: Mapping[str, Any]) -> Selector:
    """The selector for four rows: what options it takes, and what it makes of them."""
    return method(_labels(), np.eye(4), **options)


def values_of_own(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a user's own selector has for these options unless it is given them."""
    try:
        method = find_selector(name)
    except (TypeError, ValueError) as error:
        raise UserError(error) from None
    found: dict[str, Any] = {}
    for option in options:
        others = {key: value for key, value in options.items() if key != option}
        found |= own_values(method, [option], others)
    return found


def own_values(
    method: type[Selector], options: Iterable[str], fixed: Mapping[str, Any]
) -> dict[str, Any]:
    """The default values of these options while others are ``fixed``, as far as they are known."""
    found = {option: _own_value(method, option, fixed) for option in options}
    return {option: value for option, value in found.items() if _is_plain(value)}


def _own_value(method: type[Selector], option: str, fixed: Mapping[str, Any]) -> Any:
    """What an option is by default; of None, which leaves it to the preset, what comes of it."""
    signatures = [
        inspect.signature(vars(owner)["__init__"]).parameters
        for owner in method.__mro__
        if "__init__" in vars(owner)  # the rest of the options goes on to the class above
    ]
    default = next((one[option].default for one in signatures if option in one), None)
    if default is not None:
        return default
    try:
        return getattr(tiny_selector(method, fixed), option, None)
    except Exception:  # a user's own may want more than a few rows
        return None


def _is_plain(value: Any) -> bool:
    """Whether a value is a number, a word, or several of these: what JSON keeps."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, (bool, int, str)) or (
        isinstance(value, float) and math.isfinite(value)
    )


def data_checksum(path: Path) -> str:
    """SHA-256 of a data file, and of the label list beside it where there is one."""
    digest = hashlib.sha256()
    try:
        for file in (path, label_file(path)):
            if file is not None:
                digest.update(file.read_bytes())
    except OSError as error:
        raise UserError(f"the data file {path} cannot be read: {error.strerror}") from None
    return digest.hexdigest()


def files_checksum(options: Mapping[str, Any]) -> str | None:
    """SHA-256 of the files that options of a model name; None where they name none."""
    digest, found = hashlib.sha256(), False
    for name in FILES:
        file = Path(options[name]).expanduser() if isinstance(options.get(name), str) else None
        if file is not None and file.is_file():
            digest.update(name.encode() + hashlib.sha256(file.read_bytes()).digest())
            found = True
    return digest.hexdigest() if found else None


def images_checksum(kind: str, root: str) -> str:
    """SHA-256 of names, sizes and labels of the images in a folder; no pixel is read."""
    data = KINDS[kind](Tree(root), None)
    digest = hashlib.sha256()
    for row, file in enumerate(data.files):
        labels = data.Y.indices[data.Y.indptr[row] : data.Y.indptr[row + 1]].tolist()
        size = data.tree.stamp(file)[0]
        digest.update(f"{file}\0{size}\0{data.splits[row]}\0{labels}\n".encode())
    digest.update("\n".join([*data.split_names, "", *data.label_names]).encode())
    return digest.hexdigest()


def check_unchanged(config: Mapping[str, Any]) -> None:
    """Refuse files that are no longer what they were when the run was described."""
    source, files = config.get("data_source"), config.get("model_files")
    if source is not None:
        images = config["data"] in KINDS
        now = (
            images_checksum(config["data"], config["root"])
            if images
            else data_checksum(Path(config["data"]))
        )
        _refuse_changed(config["data"], source, now)
    if files is not None:
        named = ", ".join(name for name in FILES if name in config["model_options"])
        _refuse_changed(f"a file of {named}", files, files_checksum(config["model_options"]))


def _refuse_changed(what: str, described: str, now: str | None) -> None:
    if now != described:
        raise UserError(
            f"{what} has changed since this run was described (the checksum was "
            f"{described[:8]}..., now {str(now)[:8]}...); start the grid again to run it anew"
        )


def _labels() -> Any:
    return np.array([[1, 0], [0, 1], [1, 1], [1, 0]])
