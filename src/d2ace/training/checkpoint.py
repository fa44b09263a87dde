"""The contents of a run's tensor files: the parts and their types."""

from __future__ import annotations

from torch import Tensor

from .verified import NUMBER, Parts

__all__ = ["BEST", "CHECKPOINT", "LOOP", "SPENT"]

CHECKPOINT: Parts = {
    "format": int,
    "config": str,
    "data": str,
    "processes": int,
    "spent": dict,
    "loop": dict,
}
"""``checkpoint.pt``."""

SPENT: Parts = {"setup": NUMBER, "test": NUMBER, "cpu": NUMBER}
"""Its part ``spent``: seconds."""

LOOP: Parts = {
    "model": dict,
    "optimizer": dict,
    "precision": dict,
    "selector": dict,
    "recorder": (dict, type(None)),
    "epoch": int,
    "position": int,
    "best_epoch": int,
    "best_score": NUMBER,
    "history": str,
    "draw_counts": Tensor,
    "epoch_counts": Tensor,
    "loss_sum": Tensor,
    "seconds": dict,
}
"""Its part ``loop``, which :class:`.loop.Loop` makes."""

BEST: Parts = {
    "format": int,
    "epoch": int,
    "config": str,
    "weights": dict,
    "scaler": (dict, type(None)),
    "fill": (Tensor, type(None)),
    "features": Tensor,
    "feature_names": list,
    "label_names": list,
    "thresholds": Tensor,
}
"""``best.pt``: everything that predictions on new rows need."""
