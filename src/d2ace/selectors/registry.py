"""Methods by name."""

from __future__ import annotations

from typing import Any

from d2ace.words import did_you_mean

from . import inputs
from .active import Active
from .balance import Balance
from .base import Selector
from .d2ace import D2ACE
from .dihcl import DIHCL
from .hard_imb import HardImb
from .ml_unc import MLUnc
from .random import Random
from .recent import Recent

SELECTORS: dict[str, type[Selector]] = {
    method.name: method
    for method in (Random, Active, Recent, DIHCL, Balance, HardImb, MLUnc, D2ACE)
}


def make_selector(
    name: str, labels: inputs.Labels, features: inputs.Features = None, **options: Any
) -> Selector:
    """The selector called ``name`` (a key of ``SELECTORS``), with its options."""
    if name not in SELECTORS:
        raise ValueError(
            f"There is no selector {name!r}{did_you_mean(str(name), list(SELECTORS))}; "
            f"choose from {', '.join(SELECTORS)}."
        )
    return SELECTORS[name](labels, features, **options)
