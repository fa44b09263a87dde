"""Images with several labels each: load them, transform them, keep a frozen backbone's features.

Examples
--------
>>> from d2ace.data.images import image_dataset, load_images, train_transform
>>> data = load_images("voc2007", "data")  # doctest: +SKIP
>>> train = image_dataset(data, data.rows("trainval"), train_transform(448))  # doctest: +SKIP
"""

from .container import ImageData
from .dataset import ImageDataset, check_images, image_dataset, read_image, said_plainly
from .features import CachedFeatures, FeatureDataset, cache_features
from .load import KINDS, PLACES, load_images
from .transforms import (
    EFFICIENTNET_LITE,
    IMAGENET,
    Preprocessing,
    evaluation_transform,
    train_transform,
)
from .tree import IMAGE_SUFFIXES, Tree
from .vectors import LabelVectors, label_vectors

__all__ = [
    "EFFICIENTNET_LITE",
    "IMAGENET",
    "IMAGE_SUFFIXES",
    "KINDS",
    "PLACES",
    "CachedFeatures",
    "FeatureDataset",
    "ImageData",
    "ImageDataset",
    "LabelVectors",
    "Preprocessing",
    "Tree",
    "cache_features",
    "check_images",
    "evaluation_transform",
    "image_dataset",
    "label_vectors",
    "load_images",
    "read_image",
    "said_plainly",
    "train_transform",
]
