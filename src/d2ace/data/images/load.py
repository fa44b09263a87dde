"""`load_images`: a multi-label image dataset from any of the layouts that are read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from d2ace._util.hints import did_you_mean
from d2ace.data.container import DataError, DataWarning, UnknownDataError

from .coco import read_coco
from .container import ImageData, missing_rows
from .corel5k import read_corel5k
from .dataset import check_images
from .labelcsv import read_csv
from .tree import Tree
from .voc import read_voc2007
from .yolo import read_yolo

KINDS: dict[str, Callable[[Tree, str | None], ImageData]] = {
    "voc2007": read_voc2007,
    "coco": read_coco,
    "corel5k-images": read_corel5k,
    "csv": read_csv,
    "yolo": read_yolo,
}
"""Reader of each layout; the first three are datasets, the last two take anybody's images."""

PLACES = {
    "voc2007": ("voc2007",),
    "coco": ("coco",),
    "corel5k-images": ("images/corel5k/corel5k.zip", "corel5k-images"),
}
"""Where a dataset is looked for in ``D2ACE_DATA`` when no root is given."""


def load_images(
    kind: str,
    root: str | os.PathLike[str] | None = None,
    split: str | None = None,
    *,
    unlabelled: Literal["keep", "drop"] = "keep",
    on_broken: Literal["error", "skip"] = "error",
) -> ImageData:
    """Load images and their labels; pixels are read later, by `image_dataset`.

    Parameters
    ----------
    kind
        ``"voc2007"``, ``"coco"``, ``"corel5k-images"``, ``"csv"`` or ``"yolo"``;
        ``docs/how-to/images.md`` shows the layouts.
    root
        The folder, or a zip archive of it, which need not be unpacked. The three datasets are
        looked for in ``D2ACE_DATA`` by default.
    split
        One split (``"trainval"``, ``"val2014"``, ...). By default the training and the test split
        of the dataset; ``data.rows("test")`` gives the rows of one.
    unlabelled
        ``"drop"``: leave out images without any label, as published COCO results do (82,081 and
        40,137 of 2014).
    on_broken
        ``"error"``: a missing image is an error now, a broken one when it is read. ``"skip"``:
        every image is decoded now, and rows without a readable one are left out, with a warning
        that states the count. So a row stays the same image from here on.
    """
    if kind not in KINDS:
        hint = did_you_mean(str(kind), KINDS) or f"; known: {', '.join(KINDS)}"
        raise UnknownDataError(f"no image dataset or layout is called {str(kind)[:80]!r}{hint}")
    for option, value, known in (
        ("unlabelled", unlabelled, ("keep", "drop")),
        ("on_broken", on_broken, ("error", "skip")),
    ):
        if value not in known:
            raise UnknownDataError(f"{option}={value!r} is unknown; use {' or '.join(known)}")
    data = KINDS[kind](Tree(_root(kind, root)), split)
    if unlabelled == "drop":
        data = data.subset(np.diff(data.Y.indptr) > 0)
    if on_broken == "skip":
        return _readable(data)
    absent = missing_rows(data)
    if absent.size:
        more = f" (and {absent.size - 1} more of {data.n})" if absent.size > 1 else ""
        raise DataError(
            f"{data.place(absent[0])}: no such image{more}; complete the folder, or leave such "
            'images out with on_broken="skip"'
        )
    return data


def _root(kind: str, root: str | os.PathLike[str] | None) -> Path:
    if root is not None:
        path = Path(root)
        inner = path / "corel5k.zip"
        return inner if kind == "corel5k-images" and inner.is_file() else path
    places = PLACES.get(kind)
    if places is None:
        raise UnknownDataError(f"the layout {kind!r} needs a root: the folder with the images")
    folder = os.environ.get("D2ACE_DATA")
    for place in places if folder else ():
        path = Path(folder or "") / place
        if path.exists():
            return path
    raise UnknownDataError(
        f"the images of {kind!r} are not found; give the root, or set D2ACE_DATA to a folder that "
        f"holds {places[0]}"
    )


def _readable(data: ImageData) -> ImageData:
    bad = check_images(data)
    if not bad.size:
        return data
    if bad.size == data.n:
        raise DataError(f"{data.place(0)}: and all {data.n} images are missing or broken")
    shown = ", ".join(data.place(row) for row in bad[:3])
    more = ", ..." if bad.size > 3 else ""
    warnings.warn(
        f"{bad.size} of {data.n} images are missing or broken and were left out: {shown}{more}",
        DataWarning,
        stacklevel=3,
    )
    return data.subset(np.delete(np.arange(data.n), bad))
