"""What a metric is handed, checked once: labels, scores, threshold, policy.

Every refusal is one sentence that names the argument, the value and what is expected.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from d2ace._util.validation import label_array, real_matrix

Array = npt.NDArray[Any]
Undefined = Literal["skip", "nan", "half", "error"]


class Pairs(NamedTuple):
    """Checked input: truth [n, q] as booleans, scores [n, q] finite floating-point numbers."""

    truth: Array
    scores: Array


def checked(Y_true: Any, scores: Any) -> Pairs:
    """Both arguments of a metric as matrices of one shape on the host."""
    truth, values = label_array(Y_true, "Y_true"), _scores(scores)
    if truth.shape != values.shape:
        raise ValueError(
            f"Y_true has shape {truth.shape} and scores has shape {values.shape}; "
            f"both must be [instances, labels] of the same size."
        )
    return Pairs(truth, values)


def checked_threshold(threshold: Any, labels: int) -> Array:
    """``threshold`` as one finite number [] or one for each label [q], in float64."""
    given = threshold.detach().cpu() if hasattr(threshold, "detach") else threshold
    try:
        limit = np.asarray(given)
    except ValueError:  # a ragged list
        limit = np.asarray(None)
    if limit.dtype.kind not in "iuf" or limit.shape not in ((), (labels,)):
        shown = f"shape {limit.shape}" if limit.ndim else f"{threshold!r}"
        raise TypeError(
            f"threshold must be a number, or one number for each of the {labels} labels, got "
            f"{shown} ({type(threshold).__name__})."
        )
    if not np.isfinite(limit).all():
        raise ValueError(f"threshold must be finite, got {limit[~np.isfinite(limit)][0]}.")
    return limit.astype(np.float64)


def checked_policy(undefined: str) -> Undefined:
    """``undefined`` if it is one of the four policies."""
    for policy in get_args(Undefined):
        if undefined == policy:
            return policy
    words = ", ".join(repr(word) for word in get_args(Undefined))
    raise ValueError(f"undefined must be one of {words}, got {undefined!r}.")


def _scores(scores: Any) -> Array:
    values = real_matrix("scores", scores)
    if sp.issparse(values):
        values = values.toarray()
    if values.dtype.kind != "f":
        return values.astype(np.float64)
    finite = np.isfinite(values)
    if not finite.all():
        row, column = np.unravel_index(int(finite.argmin()), finite.shape)
        raise ValueError(
            f"scores[{row}, {column}] is {values[row, column]}, but scores must be finite; "
            f"look for a diverged model or a logarithm of 0."
        )
    return values
