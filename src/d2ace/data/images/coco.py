"""MS-COCO: ``annotations/instances_<split>.json`` and a folder of images for each split."""

from __future__ import annotations

import json
from typing import Any

from d2ace.data.container import DataError, UnknownDataError

from .container import ImageData, ImageSplit, image_data
from .tree import Tree, inside

PAIRS = (("train2014", "val2014"), ("train2017", "val2017"))
"""What is read by default: the first pair that is there."""

_PREFIX = "instances_"


def read_coco(tree: Tree, split: str | None = None) -> ImageData:
    """COCO: one split, or by default ``train2014`` and ``val2014`` (or else those of 2017).

    Labels are ordered by category id. Any annotated object makes its category positive, a crowd
    too. An image without annotation keeps its row, without labels. Images lie in ``<split>/``,
    ``images/<split>/``, ``images/`` or the root.
    """
    found = _annotations(tree)
    splits = (split,) if split else next((p for p in PAIRS if found.keys() >= set(p)), ())
    if not splits or splits[0] not in found:
        wanted = split or "train2014 and val2014"
        raise UnknownDataError(
            f"{tree.root}: has no annotations/{_PREFIX}*.json for {wanted}; there is: "
            f"{', '.join(found) or 'none'} (choose with split)"
        )
    categories: dict[int, str] = {}
    parts = []
    for name in splits:
        content = _parsed(tree, found[name])
        place = tree.place(found[name])
        these = _categories(content, place)
        if categories and these != categories:
            raise DataError(f"{place}: has other categories than {splits[0]}; use files that agree")
        categories = these
        parts.append(_part(tree, name, content, categories, place))
    return image_data("coco", tree, [categories[key] for key in sorted(categories)], parts)


def _annotations(tree: Tree) -> dict[str, str]:
    """Annotation file of each split."""
    found: dict[str, str] = {}
    for file in tree.names("annotations"):
        stem = file.removesuffix(".gz")
        if stem.startswith(_PREFIX) and stem.endswith(".json"):
            found.setdefault(stem[len(_PREFIX) : -5], f"annotations/{file}")
    return found


def _parsed(tree: Tree, file: str) -> dict[str, Any]:
    place = tree.place(file)
    try:
        content = json.loads(tree.expanded(file), object_hook=_without_outline)
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        reason = str(error) if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise DataError(f"{place}: is not valid JSON ({reason}); unpack it again") from None
    keys = ("images", "annotations", "categories")
    if not isinstance(content, dict) or not all(isinstance(content.get(k), list) for k in keys):
        raise DataError(f"{place}: is no COCO instances file: it needs the lists {', '.join(keys)}")
    return content


def _without_outline(item: dict[str, Any]) -> dict[str, Any]:
    """Outlines are most of the file (330 MB for train2014), and are dropped while it is parsed."""
    item.pop("segmentation", None)
    return item


def _categories(content: dict[str, Any], place: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for item in content["categories"]:
        number, name = _field(item, "id", int, place), _field(item, "name", str, place)
        if number in found:
            raise DataError(f"{place}: has two categories with id {number}")
        found[number] = name
    return found


def _part(
    tree: Tree, split: str, content: dict[str, Any], categories: dict[int, str], place: str
) -> ImageSplit:
    column = {number: position for position, number in enumerate(sorted(categories))}
    names: dict[int, str] = {}
    for item in content["images"]:
        number = _field(item, "id", int, place)
        if number in names:
            raise DataError(f"{place}: has two images with id {number}")
        names[number] = inside(_field(item, "file_name", str, place), place)
    labels: dict[int, list[int]] = {number: [] for number in names}
    for item in content["annotations"]:
        image = _field(item, "image_id", int, place)
        category = _field(item, "category_id", int, place)
        if image not in labels:
            raise DataError(f"{place}: annotates image {image}, which it does not list")
        if category not in column:
            raise DataError(f"{place}: uses category {category}, which it does not list")
        labels[image].append(column[category])
    folder = _folder(tree, split, list(names.values()))
    return ImageSplit(split, [folder + name for name in names.values()], list(labels.values()))


def _folder(tree: Tree, split: str, names: list[str]) -> str:
    candidates = (f"{split}/", f"images/{split}/", "images/", "")
    for folder in candidates:
        if any(tree.has(folder + name) for name in names[:20]):  # a few may be missing
            return folder
    return candidates[0]


def _field(item: Any, key: str, kind: type, place: str) -> Any:
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        word = "number" if kind is int else "text"
        raise DataError(f"{place}: an entry has no {word} {key!r}: {str(item)[:80]}")
    return value
