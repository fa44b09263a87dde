"""The numbers people quote to describe a multi-label dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .container import MultiLabelData
from .stratify import checked_labels

__all__ = ["describe"]


def describe(data: MultiLabelData) -> dict[str, Any]:
    """Describe a dataset in plain numbers, ready for ``json.dumps``.

    ============================  ==============================================================
    ``n``, ``d``, ``q``           rows, features, labels
    ``cardinality``               mean number of labels of a row
    ``density``                   cardinality / q
    ``distinct_label_sets``       how many different label sets occur (the empty one counts)
    ``mean_imbalance_ratio``      mean of IRLbl, the count of the most frequent label divided by
                                  the label's own count (MeanIR)
    ``max_imbalance_ratio``       its largest value
    ``scumble``                   how far frequent and rare labels meet in the same rows, 0 to 1
    ``rows_without_labels``       their share
    ``labels_without_positives``  their number; imbalance ratios leave them out
    ``sparse``                    whether the features are stored sparsely
    ``feature_density``           share of features that are not zero
    ============================  ==============================================================

    IRLbl, MeanIR and SCUMBLE as defined by Charte, Rivera, del Jesus and Herrera (2014, 2015); a
    row without labels has a SCUMBLE of 0. What is not defined (no rows, no positives) is 0.
    """
    labels = checked_labels(data.Y)
    n, q = labels.shape
    count = np.bincount(labels.indices, minlength=q)
    seen = count > 0
    ratio = np.zeros(q)
    ratio[seen] = count.max(initial=0) / count[seen]
    degree = np.diff(labels.indptr)
    labels.sort_indices()
    label_sets = {
        labels.indices[begin:end].tobytes()
        for begin, end in zip(labels.indptr[:-1], labels.indptr[1:], strict=True)
    }
    entries = data.X.shape[0] * data.X.shape[1]
    nonzero = np.count_nonzero(data.X.data if sp.issparse(data.X) else data.X)
    return {
        "name": data.name,
        "n": int(n),
        "d": int(data.X.shape[1]),
        "q": int(q),
        "cardinality": labels.nnz / n if n else 0.0,
        "density": labels.nnz / (n * q) if n * q else 0.0,
        "distinct_label_sets": len(label_sets),
        "mean_imbalance_ratio": float(ratio[seen].mean()) if seen.any() else 0.0,
        "max_imbalance_ratio": float(ratio.max(initial=0.0)),
        "scumble": _scumble(labels, ratio, degree),
        "rows_without_labels": float(np.mean(degree == 0)) if n else 0.0,
        "labels_without_positives": int(np.count_nonzero(~seen)),
        "sparse": bool(sp.issparse(data.X)),
        "feature_density": int(nonzero) / entries if entries else 0.0,
    }


def _scumble(labels: sp.csr_matrix, ratio: Any, degree: Any) -> float:
    """Mean over rows of 1 - geometric mean / arithmetic mean of the imbalance ratios present."""
    row = np.repeat(np.arange(degree.size), degree)
    present = ratio[labels.indices]
    total = np.bincount(row, weights=present, minlength=degree.size)
    logarithms = np.bincount(row, weights=np.log(present), minlength=degree.size)
    has = degree > 0
    spread = 1.0 - np.exp(logarithms[has] / degree[has]) * degree[has] / total[has]
    return max(0.0, float(spread.sum() / degree.size)) if degree.size else 0.0
