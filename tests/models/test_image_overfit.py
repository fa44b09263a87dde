"""Image models learn 32 real photographs by heart, end to end from pixels."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest
import torch
from imagery import IMAGE_NAMES, TinyNet
from torch import Tensor

from d2ace.evaluation import mean_average_precision
from d2ace.models import make_model

SETTINGS = {"image_mlp": {"p": 0.0}, "ml_gcn": {"h": 256}, "hst": {"h": 128}}


@pytest.fixture(scope="module")
def photographs(data_root) -> tuple[Tensor, Tensor]:
    """32 images of Corel5k at 64 x 64, and their labels with at least two of them."""
    Image = pytest.importorskip("PIL.Image", reason="Pillow reads the images")
    file = data_root / "images" / "corel5k" / "corel5k.zip"
    if not file.is_file():
        pytest.skip(f"no real images: {file} is absent")
    pixels, labels = [], np.zeros((32, 374), dtype=np.float32)
    with zipfile.ZipFile(file) as archive:
        lines = archive.read("labels/training_label").decode().splitlines()
        for row, line in enumerate(lines[::140][:32]):
            name, *present = line.split()
            labels[row, [int(label) - 1 for label in present]] = 1
            with archive.open(f"train_jpeg/{name}.jpeg") as stream:
                image = Image.open(stream).convert("RGB").resize((64, 64))
            pixels.append(np.asarray(image, dtype=np.float32).transpose(2, 0, 1) / 255)
    images = (torch.from_numpy(np.stack(pixels)) - 0.45) / 0.25
    return images, torch.from_numpy(labels[:, labels.sum(0) >= 2])


@pytest.mark.parametrize("name", IMAGE_NAMES)
def test_overfits_32_photographs(name, photographs):
    X, Y = photographs
    assert Y.shape[1] > 8
    model = make_model(name, 3, Y, backbone=TinyNet(64), freeze="none", **SETTINGS[name])
    optimiser = torch.optim.Adam(model.param_groups(3e-3))
    before = mean_average_precision(Y, model.predict_proba(X))
    for epoch in range(1, 31):
        model.on_epoch_start(epoch, 8, [(X, Y)])
        for step, rows in enumerate(torch.randperm(32).split(8) + torch.randperm(32).split(8)):
            terms = model.loss(model(X[rows]), Y[rows])
            optimiser.zero_grad()
            terms.total.backward()
            optimiser.step()
            model.on_step((epoch - 1) * 8 + step)
        after = mean_average_precision(Y, model.predict_proba(X))
        if after > 0.95 and epoch >= 7:  # by then all terms of HST take part
            break
    assert after > 0.95, f"training mAP {before:.3f} -> {after:.3f} after {epoch} epochs"
    assert before < 0.6
