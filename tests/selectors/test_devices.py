"""Where state lives, and what reaches it from elsewhere; "meta" stands for an accelerator."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
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
    selector = FromNumPy(Y, batch_size=BATCH, device="meta")
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


@pytest.mark.parametrize("name", ["hard_imb", "d2ace"])
def test_sparse_features_under_a_default_device(name):
    X = sp.random(N, 5, 0.5, format="csr", random_state=0)
    selectors = [d2ace.make_selector(name, Y, X, batch_size=BATCH, warmup=0)]
    with torch.device("meta"):
        selectors.append(d2ace.make_selector(name, Y, X, batch_size=BATCH, warmup=0))
    for selector in selectors:
        selector.observe(range(N), probs=np.linspace(0.1, 0.9, N * Q).reshape(N, Q))
    assert torch.equal(selectors[0].probabilities, selectors[1].probabilities)


@pytest.mark.parametrize("preset", ["paper", "reference"])
@pytest.mark.parametrize("name", list(d2ace.SELECTORS))
def test_a_training_under_a_default_device(name, preset):
    if preset not in d2ace.SELECTORS[name].presets:
        pytest.skip("has no reference")
    one, other = (make(name, preset=preset, epochs=3, insights=True) for _ in range(2))
    logits = torch.randn(N, Q, generator=torch.Generator().manual_seed(0))
    for batch in one:
        one.observe(batch, logits=logits[batch])
    with torch.device("meta"):
        for batch in other:
            other.observe(batch, logits=logits[batch])
        assert torch.equal(one.probabilities, other.probabilities)
        other.insights.load_state_dict(one.insights.state_dict())
    assert torch.equal(one.insights.suspicion(), other.insights.suspicion())


@pytest.mark.parametrize("method", ["exact", "tree", "approximate"])
@pytest.mark.parametrize("scale", [1.0, 1e200])
def test_neighbours_under_a_default_device(method, scale):
    if method == "approximate":
        pytest.importorskip("faiss")
    x = scale * np.random.default_rng(0).normal(size=(N, 4))
    found = d2ace.D2ACE(Y, x, neighbors=2, neighbors_method=method).neighborhood
    with torch.device("meta"):
        again = d2ace.D2ACE(Y, x, neighbors=2, neighbors_method=method).neighborhood
    assert (found != again).nnz == 0


@pytest.mark.parametrize("where", [torch.inference_mode, lambda: torch.device("meta")])
def test_insights_made_in_any_surroundings(where):
    logits = torch.randn(N, Q, generator=torch.Generator().manual_seed(0))
    one = d2ace.Insights(Y)
    with where():
        other = d2ace.Insights(Y)
    for _ in range(2):
        for insights in (one, other):
            insights.observe(range(N), logits=logits)
        assert torch.equal(one.suspicion(), other.suspicion())
        one.reset()
        with where():
            other.reset()


def test_probabilities_of_an_epoch_are_those_it_began_with():
    """Also where a method returns its memory itself, which goes on changing."""

    class Kept(FromNumPy):
        def distribution(self, epoch):
            return self.memory.total

        def make_memory(self):
            return Memory(total=torch.full((self.n,), 1.0 / self.n, dtype=torch.float64))

        def update(self, index, probs):
            self.memory.total.index_fill_(0, index, 0.5).div_(self.memory.total.sum())

    selector = Kept(Y, batch_size=BATCH, warmup=0)
    for batch in selector:
        selector.observe(batch, logits=torch.zeros(len(batch), Q))
        break
    selector.state_dict()
    assert (selector.drawn_probabilities == 1.0 / N).all()
    assert not (selector.probabilities == 1.0 / N).all()


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter")
def test_a_state_of_an_accelerator_goes_on_there_or_where_there_is_none():
    """Sums are rounded otherwise on another device, and other batches might be drawn."""
    state = make("d2ace").state_dict()
    absent = next(kind for kind in ("cuda", "xpu") if not getattr(torch, kind).is_available())
    for saved, expected in (("meta", "meta"), (absent, "cpu")):
        selector = make("d2ace")
        selector.load_state_dict({**state, "device": saved})
        assert {value.device.type for value in selector.memory.state_dict().values()} == {expected}
    assert make("active").state_dict()["device"] == "cpu"
