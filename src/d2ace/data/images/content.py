"""What a feature map depends on, as one key: the backbone, the transform and the image files."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import nn

from d2ace._util.atomic import write_whole
from d2ace._util.errors import UserError

from .dataset import ImageDataset

VERSION = 1
"""Part of every key: raised when maps are computed or stored in another way."""

_PLAIN = (bool, int, float, str, list, tuple, type(None), torch.dtype)
"""Settings of a module that its text describes."""
_FIXED = {
    *("CenterCrop", "ConvertImageDtype", "Grayscale", "Identity", "Normalize", "PILToTensor"),
    *("Pad", "RGB", "Resize", "ToDtype", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor"),
}
"""Transforms of torchvision that give one image one tensor, and keep their settings openly."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def content_key(module: nn.Module, dataset: ImageDataset, folder: Path) -> str:
    """SHA-256 over all that decides the feature maps of ``dataset``."""
    parts = [
        str(VERSION),
        module_digest(module),
        json.dumps(describe_transform(dataset.transform), sort_keys=True),
        images_digest(dataset, folder),
    ]
    return _digest(part.encode() for part in parts)


def module_digest(module: nn.Module) -> str:
    """SHA-256 of the structure, the settings of every part, every parameter and every buffer."""
    hasher = hashlib.sha256(_ADDRESS.sub("", repr(module)).encode())
    for name, part in module.named_modules():
        settings = {key: value for key, value in _public(part).items() if isinstance(value, _PLAIN)}
        hasher.update(f"{name}:{_kind(part)}:{_ADDRESS.sub('', repr(settings))}\n".encode())
    for name, tensor in sorted([*module.named_parameters(), *module.named_buffers()]):
        value = tensor.detach().cpu().contiguous()
        hasher.update(f"{name}:{value.dtype}:{tuple(value.shape)}\n".encode())
        hasher.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return hasher.hexdigest()


def describe_transform(transform: Any) -> Any:
    """What a transform does, in words; one that draws or cannot be described is refused."""
    if getattr(transform, "random", False):
        raise UserError(
            "features cannot be cached behind a transform that draws at random; use "
            "evaluation_transform"
        )
    if hasattr(transform, "describe"):
        return transform.describe()
    official = type(transform).__module__.startswith("torchvision.transforms")
    name = type(transform).__name__ if official else None
    if name == "Compose":
        return [describe_transform(step) for step in transform.transforms]
    if type(transform) is nn.Sequential:
        return [describe_transform(step) for step in transform]
    if name not in _FIXED:
        raise UserError(
            f"the transform {repr(transform)[:80]} may draw at random, or does not say what it "
            "does, so cached features would be ambiguous; use evaluation_transform, or give "
            "it a method describe()"
        )
    return {"kind": _kind(transform), **{k: repr(v) for k, v in _public(transform).items()}}


def _kind(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _public(thing: Any) -> dict[str, Any]:
    """What an object was made with, as far as it keeps that openly."""
    return {
        key: value
        for key, value in sorted(vars(thing).items())
        if not key.startswith("_") and key != "training"
    }


def images_digest(dataset: ImageDataset, folder: Path) -> str:
    """SHA-256 over the SHA-256 of each image file, in the order of the rows.

    Files are read again only when size or time of change of one differ from those of the last time,
    which are kept in ``folder`` with a checksum: a look at 100,000 files is quick, reading them is
    not.
    """
    data = dataset.data
    files = [data.files[row] for row in dataset.rows]
    stamps = [[file, *data.tree.stamp(file)] for file in files]
    seen = json.dumps([os.fspath(data.tree.root.resolve()), stamps]).encode()
    kept = folder / "digests" / _digest([seen])
    known = kept.read_bytes() if kept.is_file() else b""
    if known[64:] == _digest([seen, known[:64]]).encode():
        return known[:64].decode("ascii")
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
        found = threads.map(lambda file: hashlib.sha256(data.tree.read(file)).digest(), files)
        result = _digest(found)
    kept.parent.mkdir(exist_ok=True)
    write_whole(kept, (result + _digest([seen, result.encode()])).encode())
    return result


def _digest(parts: Iterable[bytes]) -> str:
    """SHA-256 of the parts, each closed off by its length."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(part)
        hasher.update(len(part).to_bytes(8, "little"))
    return hasher.hexdigest()
