"""torchvision is imported in one place, only when needed, or missed in a sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from d2ace._util.errors import RunError
from d2ace._util.torchvision import torchvision

FRESH = """
import sys
import d2ace, d2ace.data, d2ace.data.images, d2ace._util.torchvision
print([name for name in ("torchvision", "PIL", "defusedxml") if name in sys.modules])
print(d2ace._util.torchvision.torchvision().__version__)
"""


def test_models_and_transforms_are_there() -> None:
    module = torchvision()
    assert module is torchvision() is sys.modules["torchvision"]
    assert module.models.resnet18().fc.in_features == 512
    assert module.transforms.v2.Resize([4, 4])(torch.zeros(3, 8, 8)).shape == (3, 4, 4)


def test_a_fresh_process_imports_it_on_request_without_a_warning() -> None:
    command = [sys.executable, "-W", "error", "-c", FRESH]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["[]", torchvision().__version__], done.stderr
    assert done.stderr == ""


def test_a_missing_torchvision_is_one_sentence_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision", None)
    remedy = r'not installed; install it with pip install "\.\[image\]" in a checkout of d2ace\.$'
    with pytest.raises(RunError, match=remedy):
        torchvision()
