"""Where state lives, and what reaches it from elsewhere; "meta" stands for an accelerator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import d2ace
from d2ace.selectors.history import Memory

N, Q, BATCH = 12, 3, 4
Y = np.random.default_rng(0).integers(0, 2, (N, Q))
LEARNING = [name for name in d2ace.SELECTORS if name not in ("random", "balance")]


def make(name, **options):
    return d2ace.make_selector(name, Y, batch_size=BATCH, **{"warmup": 1, **options})


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.parametrize("logits_on", ["meta", "cpu"])
def test_small_integers_and_predictions_from_elsewhere(name, logits_on):
    selector = make(name, device="meta")
    index = torch.zeros(BATCH, dtype=torch.int32, device="meta")
    selector.observe(index, logits=torch.zeros(BATCH, Q, device=logits_on))
    assert {value.device.type for value in selector.memory.state_dict().values()} == {"meta"}


@pytest.mark.parametrize("name", list(d2ace.SELECTORS))
def test_a_device_without_float64_is_refused_in_words(name):
    with pytest.raises(ValueError, match=r"device is 'mps', which has no float64; leave it out"):
        make(name, device="mps")


class FromNumPy(d2ace.Selector):
    """Makes its memory from arrays, which no device context moves."""

    merges_updates = True

    def make_memory(self):
        return Memory(total=torch.from_numpy(np.zeros(self.n, dtype=np.float32)))

    def update(self, index, probs):
        self.memory.total.index_copy_(
            0, index, (probs @ torch.ones(self.q, 1, device=probs.device)).squeeze(1)
        )

    def instance_weights(self):
        return {"total": self.memory.total}


def test_memory_made_from_arrays_is_moved():
    selector = FromNumPy(Y, batch_size=BATCH)
    index = torch.zeros(BATCH, dtype=torch.int64, device="meta")
    selector.observe(index, logits=torch.zeros(BATCH, Q, device="meta"))
    assert selector.memory.total.device.type == "meta"


def test_reading_weights_changes_nothing_under_autocast():
    seen, unseen = (FromNumPy(Y, batch_size=BATCH) for _ in range(2))
    logits = torch.randn(3, BATCH, Q, generator=torch.Generator().manual_seed(0))
    for selector in (seen, unseen):
        with torch.autocast("cpu", torch.bfloat16):
            for batch, predicted in zip(selector, logits, strict=True):
                selector.observe(batch, logits=predicted)
                if selector is seen:
                    assert selector.weights
            for row in range(N):  # flushes inside observe, as a full buffer does
                selector.observe([row], logits=logits[0, :1])
                if selector is seen:
                    assert selector.weights
    torch.testing.assert_close(seen.weights, unseen.weights, rtol=0, atol=0)
    expected = torch.sigmoid(logits[0, 0]).sum().double().expand(N)
    torch.testing.assert_close(seen.weights["total"], expected, rtol=1e-6, atol=0)
