"""The fast methods against a slow transcription of the paper, on random visiting patterns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import d2ace
from d2ace.selectors.balance import pair_keys, selective_mask

# what is drawn may be warm-up alone
pytestmark = [
    pytest.mark.filterwarnings("ignore:All .* epochs are warm-up"),
    pytest.mark.filterwarnings("ignore:Epoch .* was drawn, but none of its batches observed"),
    pytest.mark.filterwarnings("ignore:Trim waits for a validation loss"),
]
FRACTIONS = st.sampled_from([0.0, 0.3, 0.5, 1.0])
OPTIONS: dict[str, dict[str, Any]] = {
    "random": {},
    "active": {"ddof": st.sampled_from([0, 1]), "pressure": st.sampled_from([1.0, 8.0, 100.0])},
    "recent": {"window": st.integers(2, 12)},
    "dihcl": {
        "metric": st.sampled_from(["dloss", "flip", "loss"]),
        "gamma": st.sampled_from([0.01, 0.3, 0.5, 1.0]),
        "gamma_on": st.sampled_from(["new", "old", "episode"]),
        "scale": st.sampled_from(["mean", "literal"]),
        "pace": st.sampled_from(["rate", "steps"]),
    },
    "balance": {"mode": st.just("sample"), "target": FRACTIONS},
    "hard_imb": {"neighbors": st.integers(0, 20)},
    "ml_unc": {
        "window": st.integers(2, 6),
        "trade_off": FRACTIONS,
        "mi_norm": st.sampled_from(["row_max", "none", "sqrt"]),
    },
    "d2ace": {
        "window": st.integers(2, 6),
        "trade_off": FRACTIONS,
        "flip_smoothing": st.sampled_from([0.1, 0.7, 1.0]),
        "neighbors": st.integers(0, 20),
        "include_self": st.booleans(),
        "mix": st.tuples(FRACTIONS, FRACTIONS),
        "mix_epochs": st.sampled_from([(2, 5), (3, 3), (30, 70)]),
        "mix_schedule": st.sampled_from(["linear", "exp"]),
        "label_weight": st.sampled_from(["exp", "linear", "none"]),
        "correlation": st.sampled_from(["local", "none"]),
        "weight_transform": st.sampled_from(["none", "exp"]),
        "hardness_loss": st.sampled_from(["bce", "prob"]),
        "scale_schedule": st.booleans(),
    },
    "online_batch": {"pressure": st.sampled_from([1.0, 8.0, 100.0])},
    "ada_boundary": {"pressure": st.sampled_from([1.0, 8.0, 100.0])},
    "info_batch": {"prune_ratio": st.sampled_from([0.0, 0.3, 0.9]), "delta": FRACTIONS},
    "trim": {},  # it draws as Random does; its loss weights are in test_trim.py
}


@dataclass
class Story:
    """A problem and who was visited with which predictions, epoch by epoch."""

    labels: np.ndarray
    features: np.ndarray | None
    common: dict[str, Any]
    options: dict[str, Any]
    epochs: list[list[tuple[list[int], np.ndarray]]] = field(default_factory=list)


@st.composite
def stories(draw: st.DrawFn, name: str) -> Story:
    """Partial epochs, repeated visits, exact 0 and 1, empty labels and rows, q = 1, n < b."""
    n, q = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = (rng.random((n, q)) < draw(st.sampled_from([0.1, 0.4, 0.9]))).astype(np.int64)
    if draw(st.booleans()):
        labels[:, rng.integers(q)] = draw(st.sampled_from([0, 1]))
    if draw(st.booleans()):
        labels[rng.integers(n)] = 0
    features = rng.integers(0, 3, (n, 2)) if draw(st.booleans()) else rng.normal(size=(n, 3))
    total = draw(st.integers(2, 9))
    common = {
        "batch_size": draw(st.integers(1, 15)),
        "epochs": total,
        "warmup": draw(st.integers(0, total)),
    }
    chosen = {key: draw(values) for key, values in OPTIONS[name].items() if draw(st.booleans())}
    if name == "balance":
        chosen["mode"] = "sample"
    story = Story(labels, features if draw(st.booleans()) else None, common, chosen)
    extreme = draw(st.sampled_from([0.0, 0.3, 1.0]))
    for _ in range(draw(st.integers(1, 7))):
        visits = []
        for _ in range(draw(st.integers(0, 4))):
            rows = rng.permutation(n)[: rng.integers(1, n + 1)].tolist()
            probs = rng.random((len(rows), q))
            exact = rng.random(probs.shape) < extreme
            probs[exact] = rng.choice([0.0, 0.5, 1.0], size=int(exact.sum()))
            visits.append((rows, probs))
        story.epochs.append(visits)
    return story


def compare(name: str, preset: str, story: Story, dtype: torch.dtype, tolerance: float) -> None:
    arguments = {**story.common, "preset": preset, **story.options}
    fast = d2ace.make_selector(name, story.labels, story.features, dtype=dtype, **arguments)
    slow = oracle.ORACLES[name](story.labels, story.features, **arguments)
    for epoch, visits in enumerate(story.epochs, start=1):
        ours = {key: value.numpy() for key, value in fast.weights.items()}
        theirs = slow.weights(epoch)
        assert ours.keys() == theirs.keys()
        for key, weights in ours.items():
            scale = max(1.0, np.abs(theirs[key]).max())
            np.testing.assert_allclose(weights, theirs[key], rtol=tolerance, atol=tolerance * scale)
        for key, weights in slow.label_weights(epoch).items():
            ours_now = fast.label_weights[key].numpy()
            np.testing.assert_allclose(ours_now, weights, rtol=tolerance, atol=tolerance)
        # a weight at the edge of a bin may fall to either side: convert the same weights
        slow.weights = lambda _, w=ours: w
        p = fast.probabilities.numpy()
        if not (name == "hard_imb" and preset == "reference" and dtype == torch.float32):
            theirs = slow.probabilities(epoch)
            np.testing.assert_allclose(p, theirs, rtol=max(tolerance, 1e-9), atol=1e-12)
        del slow.weights
        next(iter(fast))  # the epoch begins: its distribution is in force
        slow.drawn_probabilities, slow.drawn_epoch = p, epoch
        for rows, probs in visits:
            fast.learning_rate = slow.learning_rate = 0.5 + 0.5 * (len(rows) % 2)
            fast.observe(rows, probs=probs)
            slow.observe(rows, probs if dtype == torch.float64 else probs.astype(np.float32))


PRESETS = [(name, preset) for name, method in d2ace.SELECTORS.items() for preset in method.presets]


@pytest.mark.parametrize(("name", "preset"), PRESETS)
@given(data=st.data())
def test_double_precision_agrees_to_1e_9(name, preset, data):
    compare(name, preset, data.draw(stories(name)), torch.float64, 1e-9)


@pytest.mark.parametrize(("name", "preset"), [one for one in PRESETS if one[0] != "ml_unc"])
@given(data=st.data())
def test_single_precision_agrees_to_1e_5(name, preset, data):
    story = data.draw(stories(name))
    for magnified in ("weight_transform", "scale"):  # exp(w) magnifies the rounding of a large w
        story.options.pop(magnified, None)
    compare(name, preset, story, torch.float32, 1e-5)


@given(data=st.data())
def test_ml_unc_in_single_precision(data):
    # its bins of U have edges: keep predictions away from the values that fall on them
    story = data.draw(stories("ml_unc"))
    for visits in story.epochs:
        for _, probs in visits:
            probs += 1e-3 * (0.5 - probs) + 1e-5
    compare("ml_unc", "paper", story, torch.float32, 1e-5)


@given(
    size=st.integers(1, 20),
    q=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
    target=st.sampled_from([0.0, 0.25, 0.5, 0.7, 1.0]),
    cap=st.sampled_from([None, 1.5, 0.5]),
    tied=st.booleans(),  # as of a row that is twice in a batch
)
def test_balance_mask_agrees(size, q, seed, target, cap, tied):
    rng = np.random.default_rng(seed)
    labels = rng.random((size, q)) < rng.random(q)
    keys = rng.integers(0, 4, (size, q)) if tied else rng.random((size, q))
    ours = selective_mask(torch.from_numpy(labels), torch.from_numpy(keys), target, cap)
    np.testing.assert_allclose(ours, oracle.selective_mask(labels, keys, target, cap), rtol=1e-12)


@given(seed=st.integers(0, 2**40), epoch=st.integers(1, 500))
def test_balance_keys_look_uniform_and_depend_on_the_pair_alone(seed, epoch):
    rows = torch.arange(64)
    keys = pair_keys(seed, epoch, rows, 8)
    assert torch.equal(pair_keys(seed, epoch, rows.flip(0), 8), keys.flip(0))
    assert len(keys.unique()) == keys.numel()
    spread = keys.double() / 2**62
    assert abs(float(spread.mean())) < 0.2  # signed: symmetric about 0
    assert not torch.equal(keys, pair_keys(seed, epoch + 1, rows, 8))
