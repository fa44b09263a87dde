"""The inputs of a selector, checked once: features, devices, and what a method returns.

Every refusal is one sentence that names the argument, the value and what is expected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace._util.errors import ContractError
from d2ace._util.observations import array_tensor, state_device
from d2ace._util.validation import (
    NUMPY_HAS,
    Features,
    as_array,
    csr,
    refuse_dtype,
    torch_device,
)


def feature_matrix(features: Features, n: int) -> Tensor | sp.csr_array:
    """``features`` as a dense tensor or a float64 CSR matrix of n rows.

    A tensor is left on its device, where that has float64.
    """
    matrix: Any
    if isinstance(features, Tensor):
        if features.is_complex():
            raise TypeError(f"features must be real numbers, got dtype {features.dtype}.")
        matrix = features.detach().to(state_device(features.device))
        if matrix.is_floating_point() and matrix.dtype not in NUMPY_HAS:  # as a search asks for
            matrix = matrix.float()
        matrix = matrix if matrix.layout == torch.strided else csr(matrix.cpu())
    elif sp.issparse(features):
        matrix = sp.csr_array(features)
    else:
        array = as_array("features", features)
        if array.dtype.kind not in "biuf":
            refuse_dtype("features must be numbers", array.dtype)
        matrix = array_tensor(array)
    if matrix.ndim != 2 or matrix.shape[0] != n or matrix.shape[1] < 1:
        raise ValueError(
            f"features must be a matrix with one row per row of labels ({n}), "
            f"got shape {tuple(matrix.shape)}."
        )
    if isinstance(matrix, Tensor):
        matrix = matrix if matrix.is_floating_point() else matrix.to(torch.float64)
        finite = bool(torch.isfinite(matrix).all())
    else:
        matrix = matrix.astype(np.float64)
        finite = bool(np.isfinite(matrix.data).all())
    if not finite:
        raise ValueError(
            "features hold NaN or infinite values; impute or drop those rows, "
            "or pass features=None to use each instance alone as its neighbourhood."
        )
    return matrix


def chosen_device(device: torch.device | str) -> torch.device:
    """The device for the state, checked: a missing device is refused at once."""
    chosen = torch_device(device)
    if state_device(chosen) != chosen:
        raise ValueError(
            f"device is {device!r}, which has no float64; leave it out: predictions from there are "
            "kept on the processor."
        )
    try:
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ValueError(
            f"device is {str(device)!r}, which this torch does not have; leave it out to keep "
            "state where the predictions are, or use 'cpu'."
        ) from None
    return chosen


def named_weights(selector: Any, weights: Any) -> dict[str, Tensor]:
    """What a method's ``instance_weights`` returned, checked."""
    if not isinstance(weights, dict):
        raise ContractError(
            f"{type(selector).__name__}.instance_weights must return a dictionary of named "
            f"weights, got {type(weights).__name__}; return {{'name': weights}}."
        )
    for name, weight in weights.items():
        if not isinstance(weight, Tensor) or weight.shape != (selector.n,):
            found = list(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
            raise ContractError(
                f"{type(selector).__name__}.instance_weights must return tensors "
                f"[{selector.n}], a number for each row; got {found} for {name!r}."
            )
    return weights


def loss_weights(selector: Any, weight: Any, rows: int) -> Tensor:
    """What a method's ``pair_weights`` returned, checked."""
    shapes = [(rows, 1), (rows, selector.q)]
    if not isinstance(weight, Tensor) or tuple(weight.shape) not in shapes:
        found = list(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise ContractError(
            f"{type(selector).__name__}.pair_weights must return a tensor [{rows}, 1] or "
            f"[{rows}, {selector.q}] for {rows} rows, got {found}."
        )
    return weight.to(selector.dtype)


def probability_tensor(selector: Any, probabilities: Any) -> Tensor:
    """What a method's ``distribution`` returned, checked; a copy, as it may be its memory."""
    if not isinstance(probabilities, Tensor):
        raise ContractError(
            f"{type(selector).__name__}.distribution must return a tensor [n] of probabilities, "
            f"got {type(probabilities).__name__}; wrap them in torch.as_tensor(...)."
        )
    p = probabilities.to(torch.float64, copy=True)
    total = float(p.sum()) if p.shape == (selector.n,) and bool((p > 0).all()) else 0.0
    if not abs(total - 1.0) < 1e-6:
        raise ContractError(
            f"{type(selector).__name__}.distribution must return {selector.n} positive "
            f"probabilities that sum to 1, got shape {tuple(p.shape)} with sum {float(p.sum())}."
        )
    return p
