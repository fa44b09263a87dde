"""A folder of images with ``labels.csv``, the layout to choose for your own images."""

from __future__ import annotations

import csv
import io

from d2ace.data.container import UnknownDataError
from d2ace.data.readers.source import fault

from .container import ImageData, ImageSplit, chosen_splits, image_data
from .tree import Tree, inside

LABELS = "labels.csv"
_MAX_BYTES = 1 << 30


def read_csv(tree: Tree, split: str | None = None) -> ImageData:
    """``labels.csv``: a line per image, ``image`` its path below the folder, ``split`` optional.

    Either one column for each label, with 0 and 1, or one column ``labels`` that names the labels
    of the image, separated by semicolons (labels are then sorted by the alphabet).
    """
    place = tree.place(LABELS)
    if not tree.has(LABELS):
        raise UnknownDataError(f"{place}: no such file; it lists the images and their labels")
    lines, columns = _table(tree.text(LABELS, _MAX_BYTES), place)
    images = [
        inside(name, f"{place}, line {line}")
        for name, line in zip(columns.pop("image"), lines, strict=True)
    ]
    homes = columns.pop("split", ["all"] * len(images))
    if "" in homes:
        raise fault(place, lines[homes.index("")], "names no split; give every image one, or none")
    named = list(columns) == ["labels"]
    names, labels = _listed(columns["labels"]) if named else _marked(columns, lines, place)
    parts = []
    for wanted in chosen_splits(split, list(dict.fromkeys(homes)), place):
        rows = [row for row, home in enumerate(homes) if home == wanted]
        parts.append(
            ImageSplit(wanted, [images[row] for row in rows], [labels[row] for row in rows])
        )
    return image_data(tree.root.stem, tree, names, parts)


def _table(text: str, place: str) -> tuple[list[int], dict[str, list[str]]]:
    """Line numbers, and the cells of each column."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
    except csv.Error as error:
        raise fault(place, reader.line_num, f"is not CSV ({error})") from None
    header = rows[0][1] if rows else []
    if "image" not in header or len(set(header)) < len(header):
        raise fault(place, 1, "needs a header with the column 'image' and no name twice")
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise fault(place, line, f"has {len(row)} cells, and the header has {len(header)}")
    columns = {name: [row[at] for _, row in rows[1:]] for at, name in enumerate(header)}
    return [line for line, _ in rows[1:]], columns


def _listed(cells: list[str]) -> tuple[list[str], list[list[int]]]:
    """Labels that are named: ``"sky;water"``."""
    named = [[word.strip() for word in cell.split(";") if word.strip()] for cell in cells]
    names = sorted({word for words in named for word in words})
    number = {name: at for at, name in enumerate(names)}
    return names, [[number[word] for word in words] for words in named]


def _marked(
    columns: dict[str, list[str]], lines: list[int], place: str
) -> tuple[list[str], list[list[int]]]:
    """Labels that have a column each."""
    labels: list[list[int]] = [[] for _ in lines]
    for at, (name, cells) in enumerate(columns.items()):
        for row, cell in enumerate(cells):
            if cell not in ("0", "1"):
                message = f"the label {name!r} is {cell[:20]!r}; it must be 0 or 1"
                raise fault(place, lines[row], message)
            if cell == "1":
                labels[row].append(at)
    return list(columns), labels
