"""The paper's preparation of a dataset: frequent features, usable labels, labelled rows.

The table of the paper lists the sizes of the raw datasets, but the authors' code filters before it
trains: it keeps the most frequent features of the large text sets, drops labels with at most 20
positives, then rows that are left without a label, and scales all rows to [0, 1] at once. `prepare`
applies the same filters, each of which can be changed or switched off. Scaling is the exception:
ranges learnt from all rows leak test data into training, so it is fitted on training rows, fold by
fold (`Prepared.scaled`); only ``protocol="reference"`` scales as the authors' code does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from . import catalogue
from .container import DataError, MultiLabelData
from .missing import Floats, filled, typical
from .scaling import Scaler
from .stratify import checked_labels, row_numbers

__all__ = ["PROTOCOLS", "PreparationReport", "Prepared", "prepare"]

PROTOCOLS = ("paper", "reference")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PreparationReport:
    """What preparation dropped: ``str(report)`` to read, ``dataclasses.asdict`` as data."""

    name: str
    protocol: str
    rows: int
    rows_dropped: int
    features: int
    features_dropped: int
    labels: int
    labels_dropped: int
    labels_dropped_names: tuple[str, ...]

    def __str__(self) -> str:
        """One sentence."""
        return (
            f"{self.name}, prepared by protocol {self.protocol!r}: kept "
            f"{self.rows - self.rows_dropped} of {self.rows} rows, "
            f"{self.features - self.features_dropped} of {self.features} features, "
            f"{self.labels - self.labels_dropped} of {self.labels} labels."
        )


@dataclass(frozen=True, eq=False)
class Fitted:
    """Prepared data as a model sees it, and what brings other rows there."""

    data: MultiLabelData
    fill: Floats
    """What a missing cell of each feature becomes, before scaling."""
    scaler: Scaler


@dataclass(frozen=True, eq=False)
class Prepared:
    """A prepared dataset and what became of the original.

    ``rows``, ``labels`` and ``features`` are the numbers, in the original, of what was kept:
    ``prepared.data.X[i]`` is its row ``prepared.rows[i]``.
    """

    data: MultiLabelData
    report: PreparationReport
    rows: Ints
    labels: Ints
    features: Ints
    by_all_rows: Fitted | None = None
    """Under ``protocol="reference"``: how ``data`` was scaled."""

    def fitted(self, train: npt.ArrayLike) -> Fitted:
        """The data filled and scaled to [0, 1] by what the ``train`` rows hold, and how.

        ``train`` are row numbers, or a mask of all rows.

        Under ``protocol="reference"`` it is scaled already, by all rows, and stays so.
        """
        return self.by_all_rows or _fitted(self.data, row_numbers(train, self.data.n))

    def scaled(self, train: npt.ArrayLike) -> MultiLabelData:
        """The data of `fitted`."""
        return self.fitted(train).data


def prepare(
    data: MultiLabelData,
    protocol: str = "paper",
    *,
    keep_features: float | None = None,
    min_positives: int = 21,
    drop_empty_rows: bool = True,
) -> Prepared:
    """Prepare ``data`` as the paper's experiments did.

    - ``keep_features``: share of the features to keep, those with the largest column sums (for
      counts and weights of words: the most frequent). ``None`` takes the catalogue's share for the
      dataset (2 % for the rcv1 subsets, 10 % for the yahoo sets) and otherwise keeps all.
    - ``min_positives``: labels with fewer positives are dropped; 21 drops those with at most 20,
      0 keeps all.
    - ``drop_empty_rows``: drop rows that have none of the remaining labels.
    - ``protocol``: ``"paper"``, or ``"reference"`` to scale on all rows right away, as the authors'
      code does; its results are comparable with theirs, and optimistic.

    Examples
    --------
    >>> from d2ace.data import make_multilabel
    >>> prepared = prepare(make_multilabel(500, 20, 30, imbalance=2.0))
    >>> print(prepared.report)
    synthetic-500x20x30, prepared by protocol 'paper': kept ... of 500 rows, ... of 30 labels.
    """
    if protocol not in PROTOCOLS:
        raise DataError(f"protocol is {protocol!r}; it must be one of {', '.join(PROTOCOLS)}")
    if keep_features is None:
        keep_features = _catalogue_share(data)
    if not 0.0 < keep_features <= 1.0:
        raise DataError(f"keep_features is {keep_features}; it must be above 0 and at most 1")
    _refuse_not_finite(data)
    Y = checked_labels(data.Y)
    n, q = Y.shape
    features = _frequent(data, keep_features)
    labels = np.flatnonzero(np.bincount(Y.indices, minlength=q) >= min_positives)
    if not labels.size:
        raise DataError(
            f"no label of {data.name} has {min_positives} positives or more; lower min_positives"
        )
    empty = np.diff(Y[:, labels].indptr) == 0
    rows = np.flatnonzero(~empty) if drop_empty_rows else np.arange(n)
    if not rows.size:
        raise DataError(f"no row of {data.name} has a label; pass drop_empty_rows=False")
    kept = _replace(
        data,
        X=data.X[rows][:, features],
        Y=data.Y[rows][:, labels],
        feature_names=tuple(data.feature_names[j] for j in features),
        label_names=tuple(data.label_names[j] for j in labels),
        missing=data.missing and data.missing.rows(rows).features(features),
    )
    report = PreparationReport(
        name=data.name,
        protocol=protocol,
        rows=n,
        rows_dropped=n - rows.size,
        features=data.X.shape[1],
        features_dropped=data.X.shape[1] - features.size,
        labels=q,
        labels_dropped=q - labels.size,
        labels_dropped_names=tuple(data.label_names[j] for j in np.setdiff1d(np.arange(q), labels)),
    )
    if protocol == "paper":
        return Prepared(kept, report, rows, labels, features)
    by_all_rows = _fitted(kept, np.arange(rows.size))
    return Prepared(by_all_rows.data, report, rows, labels, features, by_all_rows)


def _fitted(data: MultiLabelData, rows: Ints) -> Fitted:
    fill = typical(data.X[rows], data.missing and data.missing.rows(rows))
    X = filled(data.X, data.missing, fill)
    scaler = Scaler.fit(X, rows)
    return Fitted(_replace(data, X=scaler.transform(X), missing=None), fill, scaler)


def _refuse_not_finite(data: MultiLabelData) -> None:
    """Refuse cells that are not numbers, before any fold is trained."""
    X = data.X
    if np.isfinite(X.data if sp.issparse(X) else X).all():
        return
    cells = sp.coo_matrix(X)  # which keeps what is not a number, also of a dense table
    first = int(np.argmin(np.isfinite(cells.data)))
    row, column = int(cells.row[first]), int(cells.col[first])
    raise DataError(
        f"row {row} of {data.name} has {X[row, column]} as {data.feature_names[column]!r}; replace "
        "what is missing or infinite"
    )


def _frequent(data: MultiLabelData, share: float) -> Ints:
    """The features with the largest sums, in their original order; ties go to the first."""
    d = data.X.shape[1]
    if share == 1.0:
        return np.arange(d)
    keep = int(d * share + 1e-9)  # 0.29 * 100 is 28.999...
    if not keep:
        raise DataError(f"keep_features={share} leaves none of {d} features; raise it")
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.asarray(data.X.sum(axis=0, dtype=np.float64)).ravel()
    endless = np.flatnonzero(~np.isfinite(total))
    if endless.size:
        raise DataError(
            f"{data.name}: the sum of {data.feature_names[int(endless[0])]!r} is too large for a "
            "64-bit float; divide the feature by a power of ten"
        )
    return np.sort(np.argsort(-total, kind="stable")[:keep])


def _catalogue_share(data: MultiLabelData) -> float:
    """The share of a known dataset, unless somebody has chosen among its features already."""
    entry = catalogue.find(data.name)
    if entry is None or entry.feature_share is None or entry.d != data.X.shape[1]:
        return 1.0
    return entry.feature_share


def _replace(data: MultiLabelData, **changes: Any) -> MultiLabelData:
    """A plain dataset with some fields changed (row numbers a subclass keeps would not fit)."""
    names = ("name", "X", "Y", "feature_names", "label_names", "missing")
    fields: dict[str, Any] = {name: getattr(data, name) for name in names}
    return MultiLabelData(**(fields | changes))
