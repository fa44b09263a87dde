"""A finished run as a model to use: its best weights, its scaling, its names.

Runs on images are in :mod:`.saved_images`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from d2ace.data import Scaler
from d2ace.errors import RunError, UserError
from d2ace.models import MODELS, MultiLabelModel, make_model

from .config import RunConfig
from .files import load_tensors
from .problem import Rows
from .result import RunResult

__all__ = ["SavedRun", "load_run"]


class SavedRun:
    """What :func:`load_run` gives: the trained model, and how to use it on rows as they come."""

    model: MultiLabelModel

    def __init__(self, path: Path) -> None:
        self.result, saved = _opened(path)
        try:
            self.label_names: list[str] = saved["label_names"]
            # What chose the batches may be a file that is gone, and is not needed any more.
            forgotten: dict[str, Any] = {
                "selector": "random",
                "selector_options": {},
                "selector_source": None,
            }
            self._restore(RunConfig.from_dict(self.result.config | forgotten), saved)
        except RunError:  # has a sentence of its own, as about a backbone's weights that are gone
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as problem:
            raise RunError(
                f"{path / 'best.pt'} does not fit this version ({problem}); train the run again."
            ) from problem

    def _restore(self, config: RunConfig, saved: dict[str, Any]) -> None:
        self.feature_names: list[str] = saved["feature_names"]
        self._features: npt.NDArray[np.int64] = saved["features"].numpy()
        scaler = saved["scaler"]
        self._scaler = scaler and Scaler(**{key: part.numpy() for key, part in scaler.items()})
        self.model = rebuilt(config.model, config.model_options, len(self._features), saved)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Probabilities [n, q] for rows ``X`` [n, d], dense or sparse, as they were before scaling.

        ``X`` has either all features of the dataset or only those that preparation kept; the
        training fold's own scaling is applied.
        """
        X = X if sp.issparse(X) else np.asarray(X, dtype=np.float32)
        if X.ndim != 2 or X.shape[1] not in (len(self.feature_names), len(self._features)):
            raise UserError(
                f"X has shape {tuple(X.shape)}, but the run was trained on rows of "
                f"{len(self.feature_names)} features."
            )
        if X.shape[1] != len(self._features):
            X = sp.csr_matrix(X)[:, self._features] if sp.issparse(X) else X[:, self._features]
        if not np.isfinite(X.data if sp.issparse(X) else X).all():
            raise UserError("X contains NaN or infinity; replace them before predicting.")
        if self._scaler is not None:
            if sp.issparse(X) and self._scaler.low.any():
                X = X.toarray()  # trained on dense features, whose zeros move
            X = self._scaler.transform(X)
        rows = Rows(sp.csr_matrix(X) if sp.issparse(X) else X)
        pieces = [self.model.predict_proba(x).numpy() for x in rows.chunks()]
        return np.concatenate(pieces or [np.empty((0, len(self.label_names)), np.float32)])

    def predict(self, X: Any, threshold: float = 0.5) -> npt.NDArray[np.uint8]:
        """Zeros and ones [n, q]: which probabilities reach the threshold."""
        return (self.predict_proba(X) >= threshold).astype(np.uint8)

    def __repr__(self) -> str:
        return f"SavedRun({self.result!r})"


def load_run(path: str | Path) -> SavedRun:
    """The finished run in a folder, ready to predict."""
    result, _ = _opened(Path(path))
    model = result.config.get("model")
    if model in MODELS and MODELS[model].input == "image":
        from .saved_images import SavedImageRun

        return SavedImageRun(Path(path))
    return SavedRun(Path(path))


def _opened(path: Path) -> tuple[RunResult, dict[str, Any]]:
    if not path.is_dir():
        raise UserError(f"There is no folder {path}; name the out folder of a run.")
    if not (path / "result.json").exists():
        raise RunError(f"{path} holds no finished run; train it to its end first.")
    result = RunResult.read(path / "result.json")
    return result, load_tensors(path / "best.pt", "saved weights")


def rebuilt(
    name: str, options: dict[str, Any], n_features: int, saved: dict[str, Any]
) -> MultiLabelModel:
    """The model with its saved weights; label statistics are among them as buffers."""
    labels = np.zeros((1, len(saved["label_names"])), dtype=np.float32)
    with torch.random.fork_rng([]):
        restoring = MODELS[name].restoring(options, saved["weights"])
        model = make_model(name, n_features, labels, **restoring)
    model.load_state_dict(saved["weights"])
    return model.eval()
