"""An ordinary loop over images, with loader workers, and D2ACE as its batch sampler.

python examples/images.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

import d2ace
from d2ace.data.images import evaluation_transform, image_dataset, load_images, train_transform
from d2ace.models import make_model

COLOURS = ("red", "green", "blue")


def paint(folder: Path, count: int) -> None:
    """Some images to train on: a folder with a CSV file of labels, as yours may be."""
    rng = np.random.default_rng(0)
    lines = ["image,split," + ",".join(COLOURS)]
    for number in range(count):
        labels = rng.integers(0, 2, 3)
        pixels = 40 + 150 * labels + rng.integers(0, 40, (48, 64, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.jpg")
        split = "train" if number % 4 else "test"
        lines.append(f"{number}.jpg,{split}," + ",".join(map(str, labels)))
    (folder / "labels.csv").write_text("\n".join(lines), encoding="utf-8")


def main(folder: Path, epochs: int) -> None:
    data = load_images("csv", folder)
    train = image_dataset(data, data.rows("train"), train_transform(32))
    test = image_dataset(data, data.rows("test"), evaluation_transform(32))

    torch.manual_seed(0)
    model = make_model("image_mlp", 3, train.labels, backbone="resnet18", weights="none", h=32)
    optimizer = torch.optim.Adam(model.param_groups(1e-3))
    selector = d2ace.make_selector(
        "d2ace",
        train.labels,
        neighbors=0,
        batch_size=16,
        epochs=epochs,
        warmup=1,
        mix_epochs=(1, 4),
    )
    loader = DataLoader(d2ace.IndexedDataset(train), batch_sampler=selector, num_workers=2)

    for epoch in range(1, epochs + 1):
        train.set_epoch(epoch)  # other crops
        for index, x, y in loader:
            output = model(x)
            loss = model.loss(output, y).total
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            selector.observe(index, logits=output.logits)
        print(f"epoch {epoch}: loss {loss.item():.3f}")

    images, labels = next(iter(DataLoader(test, batch_size=len(test))))
    score = d2ace.evaluation.mean_average_precision(labels, model.predict_proba(images))
    print(f"test mAP {score:.3f}")


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    with tempfile.TemporaryDirectory() as place:
        paint(Path(place), 64 if quick else 400)
        main(Path(place), epochs=2 if quick else 6)
