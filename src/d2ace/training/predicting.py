"""A finished run, ready to predict: its best weights, its scaling, its names.

Runs on images are in :mod:`.saved_images`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace._util.errors import RunError, UserError
from d2ace._util.random_state import borrowed_generator
from d2ace._util.validation import as_table, refuse_dtype
from d2ace.data import Missing, MultiLabelData, Scaler, filled, numbered
from d2ace.evaluation import checked_threshold, decided
from d2ace.insights import Insights
from d2ace.models import MultiLabelModel, find_model, make_model

from .config import RunConfig
from .kept_insights import INSIGHTS, load_insights
from .problem import Rows
from .result import RunResult
from .verified import AGAIN

__all__ = ["SavedRun", "rebuilt"]


class SavedRun:
    """The trained model that :func:`load_run` returns, to use on rows before any scaling."""

    model: MultiLabelModel

    def __init__(
        self, place: Path, result: RunResult, config: RunConfig, saved: dict[str, Any]
    ) -> None:
        self._place, self.result = place, result
        self.label_names: list[str] = saved["label_names"]
        try:
            self.thresholds = _thresholds(saved["thresholds"], len(self.label_names))
            """Thresholds [q] that :meth:`predict` uses, one per label; tuned on validation rows."""
            self._restore(config, saved)
        except RunError:  # already explains itself, such as lost weights of a backbone
            raise
        except Exception as problem:  # parts of other shapes fail in as many ways as there are
            why = " ".join(f"{type(problem).__name__}: {problem}".split())
            raise RunError(
                f"{place} does not fit this version ({why}); it was left alone: {AGAIN}."
            ) from problem

    def _restore(self, config: RunConfig, saved: dict[str, Any]) -> None:
        self.feature_names: list[str] = saved["feature_names"]
        self._features: npt.NDArray[np.int64] = saved["features"].numpy()
        scaler = saved["scaler"]
        self._scaler = Scaler(**{key: part.numpy() for key, part in scaler.items()})
        fill = saved["fill"]
        self._fill = None if fill is None else fill.numpy()
        _refuse_unfit(self.feature_names, self._features, {**scaler, "fill": fill})
        self.model = rebuilt(config.model, config.model_options, len(self._features), saved)

    def predict_proba(self, X: Any) -> npt.NDArray[np.floating]:
        """Probabilities [n, q] for rows ``X`` [n, d], dense or sparse, not scaled.

        ``X`` has either all features of the dataset or only those that preparation kept, in their
        order. In a ``MultiLabelData`` or a DataFrame they are found by name. Missing cells of a
        ``MultiLabelData`` are filled as in training. The scaling of the training fold is applied.
        """
        missing = None
        if isinstance(X, MultiLabelData):
            X, missing = self._named(X)
        elif hasattr(X, "columns") and hasattr(X, "to_numpy"):
            X = self._framed(X)
        X = _numbers(X)
        if X.ndim != 2 or X.shape[1] not in (len(self.feature_names), len(self._features)):
            raise UserError(
                f"X has shape {tuple(X.shape)}, but the run was trained on rows of "
                f"{len(self.feature_names)} features."
            )
        if X.shape[1] != len(self._features):
            X = X[:, self._features]
            missing = missing and missing.features(self._features)
        if not np.isfinite(X.data if sp.issparse(X) else X).all():
            raise UserError("X contains NaN or infinity; replace them before predicting.")
        if self._fill is not None:
            X = filled(X, missing, self._fill)
        if sp.issparse(X) and self._scaler.low.any():
            X = X.toarray()  # trained on dense features: scaling moves zeros
        X = self._scaler.transform(X)
        rows = Rows(sp.csr_matrix(X) if sp.issparse(X) else X).to(torch.device("cpu"), self._dtype)
        with self.model.unchanging():
            pieces = [self.model.predict_proba(x).numpy() for x in rows.chunks()]
        return np.concatenate(pieces or [np.empty((0, len(self.label_names)), np.float32)])

    def _named(self, data: MultiLabelData) -> tuple[Any, Missing | None]:
        """The features of the run among those of ``data``, in the run's order."""
        columns = self._columns(data.feature_names)
        if columns is None:
            return data.X, data.missing
        return data.X[:, columns], data.missing and data.missing.features(columns)

    def _framed(self, frame: Any) -> Any:
        """The same for a DataFrame, whose columns may have numbers instead of names."""
        have = tuple(frame.columns)
        if not all(isinstance(name, str) for name in have):
            return frame.to_numpy()
        columns = self._columns(have)
        chosen = frame if columns is None else frame[[have[column] for column in columns]]
        return chosen.to_numpy()

    def _columns(self, have: tuple[str, ...]) -> list[int] | None:
        names = tuple(self.feature_names)
        if len(have) == len(self._features):  # after the preparation of training
            names = tuple(names[column] for column in self._features)
        return _columns(have, names)

    @cached_property
    def insights(self) -> Insights | None:
        """What training reveals about the data; None for a run without ``insights=True``.

        Rows have their indices in the data that you passed, and labels their names.
        Validation and test rows were not observed (``insights.unobserved``).
        """
        if not self.result.config.get("insights"):
            return None
        return load_insights(self._place.with_name(INSIGHTS), self.result, AGAIN)

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    def predict(self, X: Any, threshold: Any = None) -> npt.NDArray[np.uint8]:
        """Zeros and ones [n, q]: 1 where the probability reaches the threshold.

        The default is the run's :attr:`thresholds`, one for each label; pass a number, or one for
        each label, to override them.
        """
        labels = len(self.label_names)
        limit = self.thresholds if threshold is None else checked_threshold(threshold, labels)
        return decided(self.predict_proba(X), limit).astype(np.uint8)

    def __repr__(self) -> str:
        return f"SavedRun({self.result!r})"


def _numbers(X: Any) -> Any:
    """A numeric table unchanged; objects and text as float32, if they can be converted."""
    try:
        X = as_table("X", X)
        if X.dtype.kind in "OUS":
            with suppress(ValueError, TypeError):
                X = X.astype(np.float32)
        if X.dtype.kind not in "biuf":
            refuse_dtype("X must hold real numbers", X.dtype)
    except (ValueError, TypeError) as problem:
        raise UserError(str(problem)) from problem
    return sp.csr_matrix(X) if sp.issparse(X) else X


def _columns(have: tuple[str, ...], want: tuple[str, ...]) -> list[int] | None:
    """Positions of the features ``want`` in ``have``; None if both are the same."""
    if have == want:
        return None
    place = {name: column for column, name in enumerate(have)}
    absent = [name for name in want if name not in place]
    # Features without names can only be identified by position.
    if numbered(have) or numbered(want):
        if len(have) == len(want):
            return [place[name] for name in want] if not absent else None
        raise UserError(
            f"The data has {len(have)} features and the run {len(want)}, and names to match them "
            "are missing; give rows with the features of the run."
        )
    if absent or len(place) < len(have):
        what = f"no feature {absent[0]!r}" if absent else "two features of one name"
        more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
        raise UserError(
            f"The data has {what}{more}, but the run was trained on {len(want)} features; give "
            "rows that have each of them once."
        )
    return [place[name] for name in want]


def _refuse_unfit(
    names: list[str], columns: npt.NDArray[np.int64], vectors: dict[str, Tensor | None]
) -> None:
    """Intact parts must also fit each other."""
    if columns.ndim != 1 or not all(0 <= column < len(names) for column in columns):
        raise ValueError(f"its features are not among the {len(names)} that have names")
    for name, vector in vectors.items():
        if vector is not None and vector.shape != columns.shape:
            raise ValueError(f"its {name} is not of {len(columns)} features")


def _thresholds(saved: Tensor, labels: int) -> npt.NDArray[np.float64]:
    if saved.shape != (labels,) or saved.dtype != torch.float64 or not saved.isfinite().all():
        raise ValueError(f"its thresholds are not {labels} finite numbers")
    return saved.numpy().copy()


def rebuilt(
    name: str, options: dict[str, Any], n_features: int, saved: dict[str, Any]
) -> MultiLabelModel:
    """The model with its saved weights; label statistics are among them as buffers."""
    labels = np.zeros((1, len(saved["label_names"])), dtype=np.float32)
    with borrowed_generator():
        restoring = find_model(name).restoring(options, saved["weights"])
        model = make_model(name, n_features, labels, **restoring)
    first, _ = next(model.named_parameters())
    if saved["weights"][first].dtype == torch.float64:  # trained with precision="64-true"
        model.double()
    model.load_state_dict(saved["weights"])
    return model.eval()
