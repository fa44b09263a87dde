"""The images of Corel5k, row by row the ones of the tabular dataset."""

from __future__ import annotations

from d2ace.data.container import UnknownDataError
from d2ace.data.readers.source import fault

from .container import ImageData, ImageSplit, chosen_splits, image_data
from .tree import Tree


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
    for wanted in chosen_splits(split, list(sources), str(tree.root)):
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
        parts.append(ImageSplit(wanted, files, labels))
    return image_data("corel5k-images", tree, names, parts)
