"""What the tests of `d2ace.models` share: small problems, and the real datasets."""

from __future__ import annotations

import pytest
import torch
from realdata import data_root, real

__all__ = ["data_root", "real"]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
