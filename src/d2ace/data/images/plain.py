"""The plain layouts: a CSV of labels beside the images, YOLO's label files, and Corel5k."""

from __future__ import annotations

import csv
import io
from pathlib import PurePosixPath

from d2ace.data.container import DataError, UnknownDataError
from d2ace.data.files import fault
from d2ace.data.images.container import ImageData, Part, image_data
from d2ace.data.images.tree import IMAGE_SUFFIXES, Tree, inside
from d2ace.data.labels import suggest

LABELS_CSV = "labels.csv"
_MAX_LIST = 1 << 30


def read_csv(tree: Tree, split: str | None = None) -> ImageData:
    """``labels.csv``: a line per image, ``image`` its path below the folder, ``split`` optional.

    Either one column for each label, with 0 and 1, or one column ``labels`` that names the labels
    of the image, separated by semicolons (labels are then sorted by the alphabet).
    """
    place = tree.place(LABELS_CSV)
    if not tree.has(LABELS_CSV):
        raise UnknownDataError(f"{place}: no such file; it lists the images and their labels")
    reader = csv.reader(io.StringIO(tree.text(LABELS_CSV, _MAX_LIST), newline=""), strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise fault(place, reader.line_num, f"is not CSV ({error})") from None
    header = [cell.strip() for cell in rows[0][1]] if rows else []
    if "image" not in header or len(set(header)) < len(header):
        raise fault(place, 1, "needs a header with the column 'image' and no name twice")
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise fault(place, line, f"has {len(row)} cells, and the header has {len(header)}")
    columns = {name: [row[i].strip() for _, row in rows[1:]] for i, name in enumerate(header)}
    lines = [line for line, _ in rows[1:]]
    images = [
        inside(name, f"{place}, line {line}")
        for name, line in zip(columns.pop("image"), lines, strict=True)
    ]
    homes = columns.pop("split", ["all"] * len(images))
    if list(columns) == ["labels"]:
        named = [[w.strip() for w in cell.split(";") if w.strip()] for cell in columns["labels"]]
        names = sorted({word for words in named for word in words})
        number = {name: i for i, name in enumerate(names)}
        labels = [[number[word] for word in words] for words in named]
    else:
        names = list(columns)
        labels = [[] for _ in images]
        for i, (name, cells) in enumerate(columns.items()):
            for row, cell in enumerate(cells):
                if cell not in ("0", "1"):
                    message = f"the label {name!r} is {cell[:20]!r}; it must be 0 or 1"
                    raise fault(place, lines[row], message)
                if cell == "1":
                    labels[row].append(i)
    known = list(dict.fromkeys(homes))
    parts = [
        Part(
            wanted,
            [image for image, home in zip(images, homes, strict=True) if home == wanted],
            [one for one, home in zip(labels, homes, strict=True) if home == wanted],
        )
        for wanted in _chosen(split, known, place)
    ]
    return image_data(tree.root.stem, tree, names, parts)


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
    names = [line.strip() for line in tree.text("classes.txt").split("\n") if line.strip()]
    known = tree.folders("labels")
    parts = []
    for wanted in _chosen(split, known, tree.place("labels")):
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
        parts.append(Part(wanted, [f"{folder}/{file}" for file in files], labels))
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


def read_corel5k(tree: Tree, split: str | None = None) -> ImageData:
    """Corel5k: ``labels/words``, ``labels/{training,test}_label`` and the two folders of images.

    Row i of split ``train`` is row i of MULAN's tabular Corel5k; the images lack row 298 of its
    test part.
    """
    if not tree.has("labels/words"):
        raise UnknownDataError(
            f"{tree.root}: holds no labels/words; give corel5k.zip or the folder it was unpacked in"
        )
    names = tree.text("labels/words").split()
    sources = {"train": ("training_label", "train_jpeg"), "test": ("test_label", "test_jpeg")}
    parts = []
    for wanted in _chosen(split, list(sources), str(tree.root)):
        listed, folder = f"labels/{sources[wanted][0]}", sources[wanted][1]
        files, labels = [], []
        for line, content in enumerate(tree.text(listed).split("\n"), start=1):
            numbers = content.split()
            if not numbers:
                continue
            if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in numbers):
                raise fault(tree.place(listed), line, "is not 'image label label ...' in numbers")
            columns = [int(word) - 1 for word in numbers[1:]]
            if not all(0 <= column < len(names) for column in columns):
                message = f"has a label outside 1 to {len(names)}, the lines of labels/words"
                raise fault(tree.place(listed), line, message)
            files.append(f"{folder}/{numbers[0]}.jpeg")
            labels.append(columns)
        parts.append(Part(wanted, files, labels))
    return image_data("corel5k-images", tree, names, parts)


def _chosen(split: str | None, known: list[str], place: str) -> list[str]:
    """The one split asked for, or all of them."""
    if not known:
        raise DataError(f"{place}: holds no split")
    if split is None:
        return known
    if split not in known:
        hint = suggest(split, known) or f"; there is: {', '.join(known)}"
        raise UnknownDataError(f"{place}: has no split {split!r}{hint}")
    return [split]
