"""The page on the insights of a run, with the data it was trained on if they are still there."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d2ace._util import validation as inputs
from d2ace._util.errors import UserError
from d2ace.data import DataError, MultiLabelData, load
from d2ace.insights import Insights
from d2ace.training import RunConfig, load_run, protocol_of

from .inspection import TOP, Inspection, write_inspection

if TYPE_CHECKING:
    from d2ace.data.images import ImageData

_OTHERWISE = "so rows are shown without their features or pictures."


def inspect_run(
    run: str | Path, out: str | Path, *, above: float | None = None, top: int = TOP
) -> Inspection:
    """Write the page on the insights of the run in a folder; see :func:`write_inspection`.

    If the data cannot be read or have changed, the page says so and does not show them.
    """
    saved = load_run(run)
    insights = saved.insights
    if insights is None:
        raise UserError(
            f"{run} was trained without insights; train it again in another folder with "
            "d2ace train --insights, or with insights=True."
        )
    config, images = saved.result.config, saved.model.input == "image"
    data, remark = _data_of(config, insights, images=images)
    if config.get("labels_from"):
        remark = (
            f"{remark} This run was trained with the corrections in "
            f"{Path(config['labels_from']).name}: to add corrections, append the lines of "
            "label_issues.csv to that file."
        ).strip()
    again = _again(config, images=images)
    return write_inspection(
        insights, out, data=data, above=above, top=top, again=again, remark=remark
    )


def _data_of(
    config: dict[str, Any], insights: Insights, *, images: bool
) -> tuple[MultiLabelData | ImageData | None, str]:
    """The data of a run, or none and why."""
    try:
        data = _load_images(config) if images else load(config["data"], repair=config["repair"])
    except DataError as problem:
        why = str(problem).rstrip(".")
        return None, f"The data could not be read now ({why}), {_OTHERWISE}"
    if not _same(data, insights, corrected=bool(config.get("labels_from"))):
        return None, f"The data have changed since the training, {_OTHERWISE}"
    return data, ""


def _load_images(config: dict[str, Any]) -> ImageData:
    from d2ace.data.images import load_images

    return load_images(
        config["data"],
        config["root"],
        unlabelled=config["unlabelled"],
        on_broken=config["on_broken"],
    )


def _same(data: MultiLabelData | ImageData, insights: Insights, *, corrected: bool) -> bool:
    """Whether these are the rows and, unless they were corrected, the labels of the insights."""
    names = insights.label_names or []
    if data.n != insights.n or not set(names) <= set(data.label_names):
        return False
    if corrected:
        return True
    columns = [data.label_names.index(name) for name in names]
    try:
        insights.refuse_other_labels(inputs.label_matrix(data.Y[:, columns]))
    except UserError:
        return False
    return True


def _again(config: dict[str, Any], *, images: bool) -> str:
    """The words behind ``d2ace train`` that train the run once more, elsewhere."""
    usual = {item.name: item.default for item in fields(RunConfig) if item.metadata}
    usual |= protocol_of(config["model"], images=images)
    words = [config["data"]]
    for name in usual:
        if name in ("insights", "labels_from"):
            continue
        value, word = config[name], f"--{name.replace('_', '-')}"
        if isinstance(value, dict):
            for option, chosen in value.items():
                words += [word.removesuffix("s"), f"{option}={json.dumps(chosen)}"]
        elif value != usual[name]:
            words += [word] if value is True else [word, str(value)]
    return shlex.join([*words, "--insights", "--out", "corrected"])
