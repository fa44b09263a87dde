"""Every row of the specification's table of edge cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import d2ace
from d2ace.selectors import neighbors, probability
from d2ace.selectors.balance import selective_mask

RNG = np.random.default_rng(0)
Y = (RNG.random((20, 4)) < 0.4).astype(int)
X = RNG.normal(size=(20, 3))


@pytest.fixture(autouse=True)
def _same_numbers():
    """Each test draws the same ones, whichever came before it."""
    global RNG
    RNG = np.random.default_rng(1)


QUANTISED = ["active", "recent", "hard_imb", "ml_unc", "d2ace", "online_batch", "ada_boundary"]
ALL = list(d2ace.SELECTORS)


def make(name: str, y=Y, x=X, **options):
    return d2ace.make_selector(name, y, x, **{"dtype": torch.float64, "batch_size": 6, **options})


def observe_all(selector, probs) -> None:
    selector.observe(range(selector.n), probs=np.broadcast_to(probs, (selector.n, selector.q)))


def uniform(selector) -> None:
    p = selector.probabilities
    assert torch.allclose(p, torch.full_like(p, 1 / selector.n), rtol=1e-12)


class TestFewVisits:
    def test_one_visit_has_no_history(self):
        for name, key, value in (
            ("active", "variance", 0.0),
            ("recent", "entropy", 0.0),
            ("dihcl", "hardness", 1.0),
        ):
            selector = make(name)
            observe_all(selector, 0.8)
            assert torch.equal(selector.weights[key], torch.full((20,), value).double())
        selector = make("d2ace", trade_off=0.0)
        observe_all(selector, 0.8)
        selector.flush()
        assert not selector.memory.changes.any()
        assert not selector.memory.flips.any()

    def test_never_visited(self):
        ln2, expected = math.log(2), 4 * math.log(2)
        d = make("d2ace", warmup=0)
        assert torch.allclose(d.metric("uncertainty"), torch.full((20, 4), 0.5).double())
        assert torch.allclose(d.metric("hardness"), torch.full((20, 4), ln2).double())
        h = make("hard_imb", neighbors=0)
        assert torch.allclose(h.weights["hardness"], torch.full((20,), expected).double())
        assert not make("active").weights["variance"].any()
        assert not make("recent").weights["entropy"].any()
        assert torch.equal(make("dihcl").weights["hardness"], torch.ones(20).double())
        for name in ALL:  # nothing known yet: everything still works
            assert len(list(make(name, warmup=0))) == 4

    def test_a_short_window_divides_by_what_is_there(self):
        selector = make("ml_unc", y=[[1]], x=None, trade_off=0.0, window=5)
        for p in (0.1, 0.5, 0.2):
            selector.observe([0], probs=[[p]])
        selector.flush()
        assert float(selector.uncertainty_matrix()) == pytest.approx((0.4 + 0.3) / 2)
        recent = make("recent", y=[[1]], x=None, window=5)
        for p in (0.9, 0.1, 0.9):
            recent.observe([0], probs=[[p]])
        third = -(1 / 3 * math.log2(1 / 3) + 2 / 3 * math.log2(2 / 3))
        assert float(recent.weights["entropy"]) == pytest.approx(third)

    @pytest.mark.parametrize("name", ALL)
    def test_stale_values_are_used_as_they_are(self, name):
        selector = make(name, warmup=1)
        for batch in selector:
            selector.observe(batch, probs=RNG.random((len(batch), 4)))
        before = selector.weights
        selector.set_epoch(50)
        after = selector.weights
        assert all(torch.equal(before[key], after[key]) for key in before)


class TestExtremePredictions:
    @pytest.mark.parametrize("name", ALL)
    @pytest.mark.parametrize("p", [0.0, 1.0])
    def test_exact_zero_and_one(self, name, p):
        selector = make(name, warmup=1)
        for visit in (p, p, 1.0 - p):
            observe_all(selector, visit)
        selector.set_epoch(2)
        for weights in selector.weights.values():
            assert torch.isfinite(weights).all()
        assert torch.isfinite(selector.probabilities).all()

    def test_entropy_is_exactly_zero_and_loss_is_capped(self):
        selector = make("d2ace", trade_off=1.0)
        observe_all(selector, 1.0)
        selector.flush()
        assert not selector.metric("uncertainty").any()
        assert float(selector.metric("hardness").max()) == pytest.approx(16.118096, abs=1e-6)

    @pytest.mark.parametrize("name", ALL)
    def test_a_skipped_pair_keeps_its_last_value(self, name):
        probs = RNG.random((3, 20, 4))
        broken = probs.copy()
        broken[2, 7, 1] = np.nan
        kept = probs.copy()
        kept[2, 7, 1] = kept[1, 7, 1]
        one, other = make(name, on_invalid="skip"), make(name)
        for a, b in zip(broken, kept, strict=True):
            observe_all(one, a)
            observe_all(other, b)
        if name in ("dihcl", "ml_unc", "d2ace", "random", "balance"):
            for key, value in other.state_dict()["memory"].items():
                assert torch.equal(one.state_dict()["memory"][key], value), key
        others = np.delete(np.arange(20), 7)
        for key, value in other.state_dict()["memory"].items():
            assert torch.equal(one.state_dict()["memory"][key][others], value[others]), key
        assert all(torch.isfinite(w).all() for w in one.weights.values())


class TestLabels:
    def test_a_label_without_positives(self):
        y = Y.copy()
        y[:, 2] = 0
        selector = make("d2ace", y=y)
        observe_all(selector, RNG.random((20, 4)))
        selector.flush()
        matrix = selector.metric("uncertainty").clone()
        c = selector.local_correlation.cosines(selector.local_correlation.masked(matrix))
        assert not c[2].any()
        assert not c[:, 2].any()
        assert c.diagonal().tolist() == [1, 1, 0, 1]
        everything_else = make("d2ace", y=np.delete(y, 2, 1))
        observe_all(everything_else, 0.5)
        imbalance = make("hard_imb", y=y).label_weights["imbalance"]
        assert imbalance[2] == 0.0
        assert torch.isfinite(make("hard_imb", y=y).imbalance).all()

    def test_all_labels_empty(self):
        for name in ALL:
            selector = make(name, y=np.zeros((20, 4)), warmup=0)
            observe_all(selector, RNG.random((20, 4)))
            batches = len(selector)
            assert len(list(selector)) == batches

    def test_a_label_positive_everywhere(self):
        y = Y.copy()
        y[:, 0] = 1
        for name in ALL:
            selector = make(name, y=y, warmup=0)
            observe_all(selector, RNG.random((20, 4)))
            assert torch.isfinite(selector.probabilities).all()
        mask = selective_mask(torch.ones(6, 1, dtype=torch.bool), torch.rand(6, 1))
        assert sorted(mask.ravel().tolist()) == [0, 0, 0, 1, 1, 1]  # only thinned out

    def test_an_instance_without_positives(self):
        y = Y.copy()
        y[5] = 0
        selector = make("d2ace", y=y)
        observe_all(selector, RNG.random((20, 4)))
        selector.flush()
        phi = selector.local_correlation.enhancement(selector.metric("hardness"))
        assert phi[5] == 0.0
        assert selector.probabilities[5] > 0
        assert make("hard_imb", y=y).imbalance[5] == 1.0

    def test_equal_imbalance_has_no_minority(self):
        assert torch.equal(make("hard_imb", y=np.eye(20, 4)[:4], x=X[:4]).imbalance, torch.ones(4))

    def test_one_label(self):
        y = (RNG.random((20, 1)) < 0.5).astype(int)
        probs = RNG.random((20, 1))
        for name in ALL:
            selector = make(name, y=y, warmup=0)
            observe_all(selector, probs)
            assert torch.isfinite(selector.probabilities).all()
        unc = make("ml_unc", y=y)
        observe_all(unc, probs)
        unc.flush()
        assert torch.allclose(unc.weights["uncertainty"], unc.uncertainty_matrix().ravel())
        d = make("d2ace", y=y, neighbors=0)
        observe_all(d, probs)
        d.flush()
        u = d.metric("uncertainty").clone()
        phi = d.local_correlation.enhancement(u)
        assert torch.allclose(phi, u.ravel() * torch.from_numpy(y).ravel())


class TestProbabilities:
    @pytest.mark.parametrize("name", QUANTISED)
    def test_equal_weights_are_uniform(self, name):
        selector = make(name, y=np.ones((20, 4)), warmup=0, x=None)
        observe_all(selector, 0.3)
        uniform(selector)

    @pytest.mark.parametrize("kind", ["probs", "logits"])
    @pytest.mark.parametrize(("n", "q"), [(2407, 6), (645, 19), (61, 159)])
    @pytest.mark.parametrize("name", QUANTISED)
    def test_rounding_of_equal_weights_is_uniform(self, name, n, q, kind):
        options = {"warmup": 0, "epochs": 10, "dtype": torch.float32}
        selector = make(name, y=np.zeros((n, q)), x=None, **options)
        row = torch.linspace(0.05, 0.95, q)
        for share in (1.0, 0.9):
            values = row * share if kind == "probs" else torch.logit(row * share)
            for rows in torch.arange(n).split(29):
                selector.observe(rows, **{kind: values.repeat(len(rows), 1)})
        uniform(selector)

    @pytest.mark.parametrize("transform", ["none", "exp"])
    def test_rounding_of_equal_weights_is_uniform_after_a_transform(self, transform):
        options = {"warmup": 0, "epochs": 10, "dtype": torch.float32}
        uniform(make("d2ace", np.zeros((645, 19)), None, weight_transform=transform, **options))

    @pytest.mark.parametrize("name", QUANTISED)
    @given(
        seed=st.integers(0, 2**31),
        n=st.integers(2, 300),
        q=st.integers(1, 40),
        different=st.integers(1, 3),
    )
    def test_rows_alike_are_drawn_alike(self, name, seed, n, q, different):
        rng = np.random.default_rng(seed)
        options = {"warmup": 0, "epochs": 10, "dtype": torch.float32}
        # kinds of rows; what they are told differs by far more than noise
        kinds = rng.integers(0, different, n)
        y = (rng.random((3, q)) < 0.5).astype(int)[kinds]
        selector = make(name, y=y, x=None, **options)
        for visit in ([0.1, 0.3, 0.6], [0.2, 0.7, 0.9]):
            probs = np.array(visit, dtype=np.float32)[kinds]
            selector.observe(range(n), probs=np.repeat(probs[:, None], q, axis=1))
        p = selector.probabilities
        for kind in range(3):
            alike = p[torch.from_numpy(kinds == kind)]
            if len(alike):  # at most one step of the quantisation index apart
                assert float(alike.max() / alike.min()) <= 100 ** (1 / n) * (1 + 1e-12)

    def test_a_small_spread_beyond_rounding_counts(self):
        w = torch.tensor([1.0, 1.0 + 1e-5], dtype=torch.float64)
        assert torch.equal(probability.level(w, torch.float32), w)
        near = torch.tensor([-1.0, -1.0 - 1e-6], dtype=torch.float64)
        assert probability.level(near, torch.float32).unique().tolist() == [-1.0 - 1e-6]
        assert torch.equal(probability.level(near, torch.float64), near)

    def test_no_hardness_is_uniform(self):
        selector = make("dihcl", gamma=1.0, warmup=0)
        for _ in range(2):
            observe_all(selector, 0.3)
        assert not selector.weights["hardness"].any()
        uniform(selector)

    @pytest.mark.filterwarnings("ignore:All 3 epochs are warm-up")
    @pytest.mark.parametrize("name", ALL)
    def test_no_selective_epoch(self, name):
        selector = make(name, epochs=3, warmup=3)
        for _ in range(3):
            uniform(selector)
            assert sorted(row for batch in selector for row in batch) == list(range(20))
            selector.validated(0.5)

    def test_a_single_selective_epoch_has_full_pressure(self):
        selector = make("active", epochs=4, warmup=3)
        assert selector.selection_pressure(4) == 100.0

    def test_pressure_of_one_is_uniform(self):
        selector = make("d2ace", pressure=1.0, warmup=0)
        observe_all(selector, RNG.random((20, 4)))
        uniform(selector)

    @pytest.mark.parametrize("name", QUANTISED)
    def test_pressure_ends_at_one(self, name):
        selector = make(name, epochs=12)
        assert selector.selection_pressure(12) == pytest.approx(1.0)
        assert selector.selection_pressure(40) == 1.0


class TestNeighbourhood:
    def test_more_neighbours_than_rows(self):
        selector = make("d2ace", neighbors=500)
        present = Y.any(axis=0)
        assert np.array_equal(selector.neighborhood.toarray() > 0, np.tile(present, (20, 1)))

    def test_no_neighbours_and_no_features(self):
        for selector in (make("d2ace", neighbors=0), make("d2ace", x=None)):
            assert np.array_equal(selector.neighborhood.toarray() > 0, Y > 0)
        assert torch.equal(make("hard_imb", x=None).imbalance, torch.ones(20).double())

    def test_ready_neighbours(self):
        index = neighbors.nearest(torch.from_numpy(X), 6)
        own = make("d2ace", x=None, neighbors=index.numpy())
        assert np.array_equal(
            own.neighborhood.toarray() > 0, make("d2ace").neighborhood.toarray() > 0
        )

    def test_duplicates_observe_the_first_occurrence(self):
        one, other = make("d2ace", replacement=True), make("d2ace")
        first, second = RNG.random((2, 4)), RNG.random((1, 4))
        one.observe([3, 9, 3], probs=np.concatenate([first, second]))
        other.observe([3, 9], probs=first)
        for key, value in other.state_dict()["memory"].items():
            assert torch.equal(one.state_dict()["memory"][key], value)


def test_the_reference_pressure_of_hard_imb_is_constant():
    selector = make("hard_imb", preset="reference", epochs=10)
    assert {selector.selection_pressure(epoch) for epoch in range(4, 11)} == {8.0}


def test_literal_dihcl_never_overflows():
    # rows that were drawn against all odds are credited with 1/(n P), and again in the next epoch
    rng = np.random.default_rng(0)
    y = (rng.random((200, 80)) < 0.1).astype(np.uint8)
    selector = d2ace.DIHCL(y, batch_size=32, epochs=20, warmup=5, scale="literal")
    selector.learning_rate = 1e-5
    for _ in range(15):
        for batch in selector:
            selector.observe(batch, logits=2 * rng.standard_normal((len(batch), 80)))
    assert torch.isfinite(selector.weights["hardness"]).all()


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_features_of_any_storage(half):
    x = torch.from_numpy(X).to(half)
    plain = make("d2ace", x=x.float()).neighborhood.toarray()
    for stored in (x.to_sparse(), x.float().numpy().astype(">f4")):
        assert np.array_equal(make("d2ace", x=stored).neighborhood.toarray(), plain)


def test_full_pass_is_not_for_dihcl():
    with pytest.raises(ValueError, match=r"full_pass.*DIHCL"):
        make("dihcl", predictions="full_pass")


def test_a_full_pass_after_each_epoch_makes_visits_epochs():
    selector = make("d2ace", predictions="full_pass", warmup=2)
    for epoch in range(1, 6):
        batches = list(selector)
        assert len(batches) == 4
        observe_all(selector, RNG.random((20, 4)))
        state = selector.state_dict()
        assert state["progress"]["epoch"] == epoch + 1  # told after the epoch, not inside it
        assert set(state["memory"]["visits"].tolist()) == {epoch}


def test_balance_thins_out_and_weights_up_over_an_epoch():
    y = np.zeros((40, 2), dtype=int)
    y[:6, 0] = 1
    y[:34, 1] = 1
    selector = d2ace.Balance(y, batch_size=40, warmup=1)
    assert selector.loss_weight(range(40)) is None
    list(selector)
    assert selector.loss_weight(range(40)) is None
    list(selector)
    weight = selector.loss_weight(range(40)).numpy()
    np.testing.assert_allclose(weight.sum(axis=0), 40)
    np.testing.assert_allclose(weight[:6, 0], 20 / 6, rtol=1e-6)
    np.testing.assert_allclose(weight[34:, 1], 20 / 6, rtol=1e-6)
    assert (weight[6:, 0] == 1).sum() == 20
    assert np.array_equal(selector.loss_weight(list(range(40))).numpy(), weight)
    capped = d2ace.Balance(y, batch_size=40, warmup=0, cap=2.0)
    list(capped)
    assert float(capped.loss_weight(range(40)).max()) == 2.0


def test_exact_multiples_stay_in_their_bin():
    # (1 - 0.7) * 10 is 3.0000000000000004 in floating point, but its index is 3
    w = torch.tensor([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0], dtype=torch.float64)
    assert probability.quantisation_index(w).tolist() == [10, 9, 8, 7, 6, 5, 4, 3, 2, 0]


def test_quantisation_bounds_hold():
    for s in (1.0, 8.0, 100.0):
        p = probability.quantised(torch.from_numpy(RNG.random(50)), s)
        assert float(p.max() / p.min()) <= s * (1 + 1e-12)
        assert float(p.min()) >= 1 / (50 * s) * (1 - 1e-12)
