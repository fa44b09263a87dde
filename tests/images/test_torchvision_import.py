"""torchvision is imported in one place, by every process that needs it, or missed in a sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from d2ace.torchvision_import import torchvision


class Resized(Dataset[torch.Tensor]):
    """Needs torchvision in whatever process reads it."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        resize = torchvision().transforms.v2.functional.resize
        return resize(torch.full((3, 8, 8), float(index)), [4, 4], antialias=True)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True
    )


def test_models_and_transforms_are_there() -> None:
    module = torchvision()
    assert module is torchvision() is sys.modules["torchvision"]
    assert module.models.resnet18().fc.in_features == 512
    assert module.transforms.v2.Resize([4, 4])(torch.zeros(3, 8, 8)).shape == (3, 4, 4)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_loader_workers_have_it(start: str) -> None:
    loader = DataLoader(Resized(), num_workers=1, multiprocessing_context=start)
    assert [float(batch.mean()) for batch in loader] == [0, 1, 2, 3]


def test_a_fresh_process_imports_it_without_a_warning() -> None:
    done = python(
        "from d2ace.torchvision_import import torchvision; print(torchvision().__version__)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == torchvision().__version__


def test_the_library_itself_does_not_import_it() -> None:
    done = python(
        "import sys, d2ace, d2ace.data, d2ace.data.images, d2ace.torchvision_import;"
        "print([name for name in ('torchvision', 'PIL', 'defusedxml') if name in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_missing_torchvision_is_one_sentence_with_the_command() -> None:
    done = python(
        "import sys; sys.modules['torchvision'] = None\n"
        "from d2ace.errors import RunError\n"
        "from d2ace.torchvision_import import torchvision\n"
        "try: torchvision()\n"
        "except RunError as error: print(error)"
    )
    assert 'pip install "d2ace[image]"' in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1
