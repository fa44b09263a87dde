"""Images with several labels each: load them, transform them, keep a frozen backbone's features.

Examples
--------
>>> from d2ace.data.images import image_dataset, load_images, train_transform
>>> data = load_images("voc2007", "data")  # doctest: +SKIP
>>> train = image_dataset(data, data.rows("trainval"), train_transform(448))  # doctest: +SKIP
"""

from .container import ImageData
from .dataset import ImageDataset, check_images, image_dataset, read_image
from .features import CachedFeatures, FeatureDataset, cache_features
from .load import KINDS, load_images
from .transforms import (
    EFFICIENTNET_LITE,
    IMAGENET,
    Preprocessing,
    evaluation_transform,
    train_transform,
)
from .vectors import LabelVectors, label_vectors

# isort: split
# For the packages that stand above this one:
from .dataset import said_plainly as said_plainly
from .load import PLACES as PLACES
from .tree import IMAGE_SUFFIXES as IMAGE_SUFFIXES
from .tree import Tree as Tree

__all__ = [
    "EFFICIENTNET_LITE",
    "IMAGENET",
    "KINDS",
    "CachedFeatures",
    "FeatureDataset",
    "ImageData",
    "ImageDataset",
    "LabelVectors",
    "Preprocessing",
    "cache_features",
    "check_images",
    "evaluation_transform",
    "image_dataset",
    "label_vectors",
    "load_images",
    "read_image",
    "train_transform",
]
