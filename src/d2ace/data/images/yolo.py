"""The YOLO layout: a text file of boxes for each image."""

from __future__ import annotations

from pathlib import PurePosixPath

from d2ace.data.container import UnknownDataError
from d2ace.data.readers.source import fault

from .container import ImageData, ImageSplit, chosen_splits, image_data
from .tree import IMAGE_SUFFIXES, Tree


def read_yolo(tree: Tree, split: str | None = None) -> ImageData:
    """YOLO: ``classes.txt``, ``labels/<split>/x.txt`` and ``images/<split>/x.jpg``.

    The images may also lie in ``<split>/``. A line of a label file is ``class x y width height``,
    with the class counted from 0 in ``classes.txt``; the boxes are not used. An image without label
    file has no labels.
    """
    if not tree.has("classes.txt"):
        raise UnknownDataError(
            f"{tree.place('classes.txt')}: no such file; it names the classes, one in a line"
        )
    names = [line.strip() for line in tree.text("classes.txt").rstrip().split("\n")]
    if "" in names:  # left out, it would move every class behind it
        line = names.index("") + 1
        raise fault(tree.place("classes.txt"), line, "is blank, but names a class; name it")
    known = tree.folders("labels")
    parts = []
    for wanted in chosen_splits(split, known, tree.place("labels")):
        folder = f"images/{wanted}" if tree.names(f"images/{wanted}") else wanted
        files = [
            name
            for name in tree.names(folder)
            if PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES
        ]
        described = set(tree.names(f"labels/{wanted}"))
        labels = []
        for file in files:
            text = f"{PurePosixPath(file).stem}.txt"
            path = f"labels/{wanted}/{text}"
            labels.append(_yolo_labels(tree, path, len(names)) if text in described else [])
        parts.append(ImageSplit(wanted, [f"{folder}/{file}" for file in files], labels))
    return image_data(tree.root.stem, tree, names, parts)


def _yolo_labels(tree: Tree, path: str, q: int) -> list[int]:
    found = []
    for line, content in enumerate(tree.text(path).split("\n"), start=1):
        first, *box = content.split() or [""]
        if not first:
            continue
        if not first.isascii() or not first.isdigit() or len(first) > 9 or len(box) < 4:
            message = f"{content[:40]!r} is not 'class x y width height'"
            raise fault(tree.place(path), line, message)
        if int(first) >= q:
            message = f"has class {first}, but classes.txt names {q} (counted from 0)"
            raise fault(tree.place(path), line, message)
        found.append(int(first))
    return found
