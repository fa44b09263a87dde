"""What can be known to be wrong before anything runs: each of these raises one sentence."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from d2ace.errors import UserError
from d2ace.models import MODELS, make_model
from d2ace.models.backbones import IDENTITY
from d2ace.selectors import make_selector
from d2ace.selectors.registry import selector_file


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that no run can have."""
    from d2ace.training import RunConfig

    try:
        RunConfig.from_dict({"data": "digits", **settings})
    except ValueError as error:
        raise UserError(_clause(error)) from None


def check_model(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown model, and options it does not take, by making a tiny one.

    That of an image model has no backbone, whose weights may have to be fetched first.
    """
    if name in MODELS and MODELS[name].input == "image":
        options = {**options, "backbone": IDENTITY, "weights": "none"}
        options |= {key: "random" for key in options if key == "label_vectors"}
    try:
        make_model(name, 4, _labels(), **options)
    except (TypeError, ValueError) as error:
        raise UserError(_clause(error)) from None


def check_selector(
    name: str, options: Mapping[str, Any], folder: Path | None = None
) -> dict[str, Any]:
    """The settings for a selector: its name, its options, the checksum of its file if it has one.

    A file lies in ``folder`` (beside the grid file) or where the command was typed.
    """
    chosen: dict[str, Any] = {"selector": name, "selector_options": dict(options)}
    file = selector_file(name)
    if file is not None:
        found = [place / file for place in (folder, Path()) if place is not None]
        here = next((path.resolve() for path in found if path.is_file()), None)
        if here is None:
            raise UserError(f"there is no file {file} for the selector {name!r}")
        chosen["selector"] = f"{here}:{name.rpartition(':')[2]}"
        chosen["selector_source"] = hashlib.sha256(here.read_bytes()).hexdigest()
    elif ":" not in name:  # a user's own is asked when it is made
        try:
            make_selector(name, _labels(), np.eye(4), **options)
        except (TypeError, ValueError) as error:
            raise UserError(_clause(error)) from None
    return chosen


def _labels() -> Any:
    return np.array([[1, 0], [0, 1], [1, 1], [1, 0]])


def _clause(error: Exception) -> str:
    """The sentence of an error, to stand behind the place where it was made."""
    return str(error).rstrip(".")
