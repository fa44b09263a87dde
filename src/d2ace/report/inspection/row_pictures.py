"""Rows that are pictures: small ones, to stand in a page."""

from __future__ import annotations

import base64
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from d2ace.data import DataError, MultiLabelData

if TYPE_CHECKING:
    from d2ace.data.images import ImageData

_SIDE = 176  # pixels of the longer side
_PIXEL = re.compile(r"pixel_(\d{1,9})_(\d{1,9})")


class Photographs:
    """Image files, made small."""

    drawn = False

    def __init__(self, data: ImageData) -> None:
        self._data, self.files = data, data.files

    def address(self, row: int) -> str | None:
        """The picture of a row as a data URI; None of one that cannot be read."""
        from PIL import Image

        from d2ace.data.images import read_image

        try:
            picture = read_image(self._data, row)
        except DataError:
            return None
        picture.thumbnail((_SIDE, _SIDE), Image.Resampling.LANCZOS)
        return _address(picture, "JPEG", quality=82)


class PixelTables:
    """Tables whose features are the grey pixels of a picture, as those of ``digits`` are."""

    drawn = True  # a pixel is a square, however large

    def __init__(self, data: MultiLabelData, shape: tuple[int, int]) -> None:
        self._X: Any = data.X
        self._shape = shape

    def address(self, row: int) -> str | None:
        """The picture of a row as a data URI, black for its largest value."""
        from PIL import Image

        own = self._X[[row]]
        pixels = np.asarray(own.toarray() if sp.issparse(own) else own, dtype=np.float64)
        low, high = pixels.min(), pixels.max()
        if not np.isfinite([low, high]).all():
            return None
        grey = 255 - np.round(255 * (pixels - low) / (high - low or 1.0)).astype(np.uint8)
        return _address(Image.fromarray(grey.reshape(self._shape)), "PNG", optimize=True)


def pixel_shape(names: tuple[str, ...]) -> tuple[int, int] | None:
    """Height and width, if features are called ``pixel_ROW_COLUMN``, row by row."""
    found = [_PIXEL.fullmatch(name) for name in names]
    places = [(int(match[1]), int(match[2])) for match in found if match]
    if not places or len(places) < len(names):
        return None
    height, width = places[-1][0] + 1, places[-1][1] + 1
    if height * width != len(names):
        return None
    whole = [(row, column) for row in range(height) for column in range(width)]
    return (height, width) if places == whole else None


def _address(picture: Any, form: str, **options: Any) -> str:
    out = io.BytesIO()
    picture.save(out, form, **options)
    return f"data:image/{form.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"
