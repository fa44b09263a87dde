"""Three steps of every model on every real dataset at hand."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from problems import NAMES, train

from d2ace.data import DataWarning, catalogue, prepare
from d2ace.models import make_model

QUICK = ("birds", "emotions", "enron", "scene", "yeast")


@pytest.fixture(scope="module")
def batch(real):
    """The first rows of a prepared dataset, scaled to [0, 1], and the labels of all rows."""

    @cache
    def prepared(name: str):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            kept = prepare(real(name))
        data = kept.scaled(np.arange(len(kept.rows)))
        rows = min(8, max(2, 2000 // data.Y.shape[1]))  # seconds, also with many labels
        X, Y = data.X[:rows], data.Y[:rows]
        dense = [part.toarray() if sp.issparse(part) else np.asarray(part) for part in (X, Y)]
        return *(torch.from_numpy(part.astype(np.float32)) for part in dense), data.Y

    return prepared


@pytest.mark.parametrize(
    "dataset",
    [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name in catalogue.catalogue()
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_three_steps_on_real_data(batch, dataset, name):
    X, Y, Y_train = batch(dataset)
    model = make_model(name, X.shape[1], Y_train)
    train(model, X, Y, steps=3, lr=1e-4)
    assert torch.isfinite(model.predict_proba(X)).all()
