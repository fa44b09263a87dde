"""PASCAL VOC in the layout of its development kit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from d2ace._util.hints import did_you_mean
from d2ace.data.container import DataError, UnknownDataError
from d2ace.data.readers.source import fault

from .container import ImageData, ImageSplit, image_data
from .tree import Tree

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
)  # fmt: skip
"""The 20 classes in the order of VOC, which is that of the alphabet."""

SPLITS = ("trainval", "test")
_IDENTIFIER = re.compile(r"[A-Za-z0-9][\w-]*")
_MAX_XML = 16 << 20
_NUMBER = {name: number for number, name in enumerate(CLASSES)}


def read_voc2007(tree: Tree, split: str | None = None) -> ImageData:
    """VOC2007: one split of ``ImageSets/Main``, or by default ``trainval`` and ``test``.

    An object flagged difficult does not make its class positive, and an image without any other
    object keeps its row, without labels.
    """
    base = _base(tree)
    parts = [_part(tree, base, name) for name in ((split,) if split else SPLITS)]
    return image_data("voc2007", tree, CLASSES, parts)


def _base(tree: Tree) -> str:
    for base in ("", "VOC2007/", "VOCdevkit/VOC2007/"):
        if tree.names(f"{base}ImageSets/Main"):
            return base
    raise UnknownDataError(
        f"{tree.root}: holds no VOCdevkit/VOC2007/ImageSets/Main; give the folder that the VOC2007 "
        "archives were unpacked in"
    )


def _part(tree: Tree, base: str, split: str) -> ImageSplit:
    listed = f"{base}ImageSets/Main/{split}.txt"
    there = tree.names(f"{base}ImageSets/Main")
    if f"{split}.txt" not in there:
        known = [name[:-4] for name in there if name.endswith(".txt") and "_" not in name]
        raise UnknownDataError(
            f"{tree.place(listed)}: no such split; there is {', '.join(known) or 'none'} "
            f"(trainval and test come in two archives of VOC2007)"
        )
    files, labels = [], []
    for line, identifier in enumerate(tree.text(listed).split("\n"), start=1):
        identifier = identifier.strip()
        if not identifier:
            continue
        if not _IDENTIFIER.fullmatch(identifier):
            raise fault(
                tree.place(listed), line, f"{identifier[:80]!r} is not the name of an image"
            )
        files.append(f"{base}JPEGImages/{identifier}.jpg")
        labels.append(_labels(tree, f"{base}Annotations/{identifier}.xml"))
    return ImageSplit(split, files, labels)


def _labels(tree: Tree, name: str) -> list[int]:
    """Numbers of the classes with an object that is not flagged difficult."""
    found = []
    for class_name, difficult in _objects(tree.read(name, _MAX_XML), tree.place(name)):
        if class_name not in _NUMBER:
            hint = did_you_mean(class_name, CLASSES) or "; the 20 classes of VOC are known"
            raise DataError(f"{tree.place(name)}: has an object of class {class_name[:60]!r}{hint}")
        if not difficult:
            found.append(_NUMBER[class_name])
    return found


def _objects(content: bytes, place: str) -> Sequence[tuple[str, bool]]:
    try:
        from defusedxml import DefusedXmlException, ElementTree
    except ImportError:
        raise DataError(
            f"{place}: reading it needs defusedxml; install it with "
            'pip install ".[image]" in a checkout of d2ace'
        ) from None
    try:
        root = ElementTree.fromstring(content, forbid_dtd=True)
    except DefusedXmlException:
        raise DataError(
            f"{place}: declares a document type or entities, which an annotation has no use for"
        ) from None
    except ElementTree.ParseError as error:
        message = f"is not well-formed XML ({error}); unpack the archive again"
        raise fault(place, error.position[0], message) from None
    except (ValueError, LookupError) as error:
        raise fault(place, 1, f"cannot be decoded ({error}); unpack the archive again") from None
    if root.tag != "annotation":
        raise DataError(f"{place}: starts with <{root.tag[:60]}>, not with VOC's <annotation>")
    found = []
    for item in root.findall("object"):  # a part (head, hand) is nested deeper and does not count
        difficult = (item.findtext("difficult") or "0").strip()
        if difficult not in ("0", "1"):
            raise DataError(f"{place}: has <difficult>{difficult[:20]}</difficult>; it is 0 or 1")
        found.append(((item.findtext("name") or "").strip(), difficult == "1"))
    return found
