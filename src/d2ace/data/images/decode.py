"""One image file made into 8-bit RGB by Pillow, whatever it is stored as."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from d2ace._util.errors import RunError
from d2ace.data.container import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 1 << 26
"""Largest image that is decoded (8192 x 8192)."""

FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
"""What is read. Pillow knows more, among them formats that start other programs (EPS)."""

_ORIENTATION = 0x0112


def decode(content: bytes, place: str) -> Image:
    """The image in ``content`` as RGB, upright.

    Grey-scale, palette, CMYK and 16-bit images are converted; transparency is ignored; the rotation
    that a camera noted in EXIF is carried out. Damaged and oversized images are a ``DataError``
    that starts with ``place``.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise RunError(
            "reading images needs Pillow, which is not installed; install it with "
            'pip install ".[image]" in a checkout of d2ace'
        ) from None
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise _oversized(place, f"has {width} x {height} pixels")
            image.load()
            return _upright(_rgb(image), _orientation(image))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _oversized(place, "is far too large") from None
    except DataError:
        raise
    except Exception as error:  # damaged bytes fail in as many ways as there are decoders
        unknown = isinstance(error, UnidentifiedImageError)
        reason = "no known format" if unknown else str(error) or type(error).__name__
        raise DataError(
            f"{place}: is a broken image ({reason}); copy it again, or leave it out (a dataset "
            'leaves such images out with on_broken="skip")'
        ) from None


def _oversized(place: str, what: str) -> DataError:
    return DataError(f"{place}: {what}, more than the {MAX_PIXELS} that are read; make it smaller")


def _rgb(image: Image) -> Image:
    from PIL import Image as pillow

    mode = image.mode
    if mode == "RGB":
        return image.copy()
    if mode == "I" or mode.startswith("I;16"):
        # Pillow would cut 16-bit grey values off at 255, which leaves a white image.
        grey = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
        return pillow.fromarray(grey).convert("RGB")
    if mode == "F":
        raise ValueError("it holds fractions, which have no fixed brightness; save it with 8 bits")
    if "transparency" in image.info:
        return image.convert("RGBA").convert("RGB")
    return image.convert("RGB")


def _orientation(image: Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged notes of the camera do not spoil the picture
        return 1


def _upright(image: Image, orientation: int) -> Image:
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    turn = turns.get(orientation)
    return image if turn is None else image.transpose(turn)
