"""MATLAB files as multi-label authors exchange them: ``data`` [n, d] and ``target`` [q, n]."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from d2ace.data.container import MultiLabelData
from d2ace.data.files import MAX_BYTES, Source, fault
from d2ace.data.tables import as_data, as_rows

_PAIRS = (("data", "target"), ("X", "Y"))
_MAX_RATIO = 2000  # variables are deflated, which reaches 1,032, and are 1 to 8 bytes a cell


def read_mat(source: Source) -> MultiLabelData:
    """The dataset in a MATLAB file of version 4 to 7.

    ``target`` is accepted in either orientation; if it is square, it is taken as [q, n]. Labels may
    be 0/1 or -1/+1.
    """
    content = _content(source, _PAIRS)
    X, Y = content.values()
    n = X.shape[0]
    if Y.ndim == 2 and Y.shape[1] == n and (Y.shape[0] != n or tuple(content) == _PAIRS[0]):
        Y = Y.T
    return as_data(source.path, source.path.stem, X, Y, signs=True)


def read_mat_features(source: Source) -> MultiLabelData:
    """``data`` of a MATLAB file, which need hold nothing else; labels are left aside."""
    (X,) = _content(source, [pair[:1] for pair in _PAIRS]).values()
    return as_rows(source.path, source.path.stem, X)


def _content(source: Source, choices: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The variables of the first of ``choices`` that the file holds."""
    from scipy.io import loadmat, whosmat

    path = source.path
    try:
        held = {name: shape for name, shape, _ in whosmat(io.BytesIO(source.stored))}
        names = next((names for names in choices if set(names) <= set(held)), None)
        if names is None:
            listed = ", ".join(sorted(held)[:8]) or "nothing"
            wanted = " and ".join(map(repr, choices[0]))
            message = f"has no variables {wanted} (it holds {listed})"
            raise fault(path, None, message)
        cells = sum(math.prod(held[name]) for name in names)
        if cells > min(MAX_BYTES // 8, _MAX_RATIO * len(source.stored)):
            raise fault(path, None, f"declares {cells} cells, more than the file can hold")
        content = loadmat(io.BytesIO(source.stored), variable_names=names)
        return {name: _table(content[name]) for name in names}
    except NotImplementedError:
        message = "is a MATLAB 7.3 (HDF5) file; save it with -v7"
        raise fault(path, None, message) from None
    except Exception as error:  # SciPy's reader raises whatever a damaged file makes it stumble on
        if type(error).__module__.startswith("d2ace"):
            raise
        raise fault(path, None, f"is damaged or not a MATLAB file ({error})") from None


def _table(value: Any) -> Any:
    return sp.csr_matrix(value) if sp.issparse(value) else np.asarray(value)
