"""Case studies: how selection treats rows and labels, recorded while a run trains.

Recording does not change the run: it draws no random number, and every pass is in evaluation mode.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace.evaluation import label_auc
from d2ace.selectors import Selector, feature_matrix, nearest

from .problem import Problem

__all__ = ["CHOSEN_EPOCHS", "Recorder"]

CHOSEN_EPOCHS = (20, 80)
_NEIGHBORS = 5


class Recorder:
    """Collects, for section "case studies" of a report:

    - at the start of the chosen epochs, P [n] and the loss of every instance by an evaluation pass,
    - after every epoch, the validation AUC of each label and the label weights in force,
    - once, the outlier score o_i: the mean, over the labels of i, of the share of its five nearest
    neighbours that lack the label (0 for a row without labels).
    """

    def __init__(self, problem: Problem, space: Any, epochs: int) -> None:
        self._problem, self._space = problem, space
        self.chosen = [epoch for epoch in CHOSEN_EPOCHS if epoch <= epochs]
        self._P: list[npt.NDArray[np.float64]] = []
        self._loss: list[npt.NDArray[np.float64]] = []
        self._auc: list[npt.NDArray[np.float64]] = []
        self._weights: dict[str, list[npt.NDArray[np.float64]]] = {}

    def start_of_epoch(self, epoch: int, selector: Selector, loss: Callable[[], Tensor]) -> None:
        """``loss()`` gives the instances' losses [n] in evaluation mode."""
        if epoch in self.chosen[len(self._P) :]:
            self._P.append(selector.probabilities.cpu().numpy())
            self._loss.append(loss().double().cpu().numpy())

    def end_of_epoch(self, selector: Selector, Y: Any, scores: Any) -> None:
        """Predictions ``scores`` for validation labels ``Y`` after the epoch."""
        self._auc.append(label_auc(Y, scores))
        for name, weight in selector.label_weights.items():
            self._weights.setdefault(name, []).append(weight.cpu().numpy())

    def arrays(self, draw_counts: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
        """Everything recorded, as plain arrays."""
        problem = self._problem
        n, q = problem.train.Y.shape
        return {
            "rows": problem.train.rows,
            "draw_counts": draw_counts,
            "outlier": outlier_score(self._space, problem.train.Y),
            "label_names": np.array(problem.label_names),
            "label_auc": np.array(self._auc).reshape(-1, q),
            "epochs": np.array(self.chosen[: len(self._P)], dtype=np.int64),
            "P": np.array(self._P).reshape(-1, n),
            "loss": np.array(self._loss).reshape(-1, n),
            **{f"label_weight_{name}": np.array(kept) for name, kept in self._weights.items()},
        }

    def file(self, draw_counts: npt.NDArray[np.int64]) -> bytes:
        """The content of ``record.npz``."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = self.arrays(draw_counts)
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()

    def state_dict(self) -> dict[str, Any]:
        """The part that a checkpoint keeps."""
        return {
            "P": [torch.from_numpy(p) for p in self._P],
            "loss": [torch.from_numpy(loss) for loss in self._loss],
            "auc": [torch.from_numpy(auc) for auc in self._auc],
            "weights": {
                name: [torch.from_numpy(weight) for weight in kept]
                for name, kept in self._weights.items()
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state that :meth:`state_dict` returned."""
        self._P = [p.numpy() for p in state["P"]]
        self._loss = [loss.numpy() for loss in state["loss"]]
        self._auc = [auc.numpy() for auc in state["auc"]]
        self._weights = {
            name: [weight.numpy() for weight in kept] for name, kept in state["weights"].items()
        }


def outlier_score(X: Any, Y: sp.csr_matrix) -> npt.NDArray[np.float64]:
    """o_i [n]: how much the neighbours of an instance disagree with its labels."""
    neighbors = nearest(feature_matrix(X, Y.shape[0]), _NEIGHBORS).cpu().numpy()
    n, k = neighbors.shape
    table = sp.csr_matrix(
        (np.full(n * k, 1.0 / k), neighbors.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n)
    )
    labels = Y.astype(np.float64)
    agreeing = np.asarray((table @ labels).multiply(labels).sum(1)).ravel()
    count = np.asarray(labels.sum(1)).ravel()
    return np.where(count > 0, 1.0 - agreeing / np.maximum(count, 1), 0.0)
