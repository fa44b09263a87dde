"""Trim: when it starts, whom it takes, and that it leaves everything else alone."""

from __future__ import annotations

import copy
import io
import math
import pickle
from typing import Any

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as bce

import d2ace
from d2ace.selectors import trimming

N, Q, BATCH = 60, 4, 16
LABELS = (torch.rand(N, Q, generator=torch.Generator().manual_seed(0)) < 0.4).to(torch.int64)
RISING = [0.5, 0.4, 0.405]  # by more than one per cent after epoch 3


def make(rows: str = "random", labels: Any = LABELS, **options: Any) -> d2ace.Trim:
    given = {"batch_size": BATCH, "epochs": 12, "dtype": torch.float64}
    return d2ace.Trim(labels, rows=rows, **(given | options))


def predictions(epoch: int) -> Tensor:
    """Of a model that learns the labels by heart."""
    source = torch.Generator().manual_seed(50 + epoch)
    guess = torch.rand(N, Q, generator=source, dtype=torch.float64)
    return LABELS + 0.7**epoch * (guess - LABELS)


def train(selector: d2ace.Selector, losses: list[float]) -> list[Tensor | None]:
    """An epoch for each loss; the weights of all pairs in each."""
    weights = []
    for loss in losses:
        probs = predictions(selector.epoch)
        for batch in selector:
            selector.loss_weight(batch)
            selector.observe(batch, probs=probs[batch])
        weights.append(selector.loss_weight(range(N)))
        selector.validated(loss)
    return weights


def weighed(weights: list[Tensor | None]) -> list[bool]:
    return [weight is not None for weight in weights]


class TestWorkedNumbers:
    """The example of the card: ten rows, one label, the first five positive."""

    labels = torch.tensor([[1]] * 5 + [[0]] * 5)
    first = torch.tensor([0.2, 0.9, 0.8, 0.8, 0.6, 0.3, 0.1, 0.6, 0.2, 0.2]).double()
    second = torch.tensor([0.4, 0.9, 0.8, 0.8, 0.8, 0.5, 0.1, 0.4, 0.2, 0.2]).double()

    def weights(self, **options: Any) -> list[float]:
        selector = d2ace.Trim(self.labels, start=3, dtype=torch.float64, **options)
        for probs in (self.first, self.second):
            list(selector)
            selector.observe(range(10), probs=probs.unsqueeze(1))
        list(selector)
        return selector.loss_weight(range(10)).flatten().tolist()

    def test_one_positive_and_as_much_of_the_negatives(self):
        # r = .7 .1 .2 .2 .3 | .4 .1 .5 .2 .2: the positive with .7, and of .5, .4, .2 the first
        assert self.weights() == [0.25, 1, 1, 1, 1, 1, 1, 0.25, 1, 1]

    def test_two_positives(self):
        # .7 + .3 = 1.0 is enough for .5 + .4, and not for the next .2
        assert self.weights(share=0.4) == [0.25, 1, 1, 1, 0.25, 0.25, 1, 0.25, 1, 1]

    def test_ties_go_by_row(self):
        # .7 + .3 + .2 = 1.2: of two positives with .2 the first; .5 + .4 + .2 = 1.1 takes row 8
        expected = [0.25, 1, 0.25, 1, 0.25, 0.25, 1, 0.25, 0.25, 1]
        assert self.weights(share=0.6) == expected

    def test_an_exact_fit_is_taken_despite_rounding(self):
        score = torch.tensor([[0.1 + 0.2], [0.9], [0.3], [0.0]]).double()
        labels = torch.tensor([[True], [True], [False], [False]])
        chosen = trimming.worst_pairs(score[[0, 2, 3]], labels[[0, 2, 3]], 1.0)
        assert chosen.flatten().tolist() == [True, True, False]


@st.composite
def scored(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, float]:
    """Scores with ties and zeros, labels of any frequency."""
    n, q = draw(st.integers(1, 25)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = rng.random((n, q)) < rng.choice([0.0, 0.1, 0.5, 0.95, 1.0], size=q)
    grid = draw(st.sampled_from([4, 64, 10**6]))  # few values: many ties
    scores = rng.integers(0, grid + 1, size=(n, q)) / grid
    return scores, labels, draw(st.sampled_from([0.0, 0.1, 0.2, 0.29, 0.5, 1.0]))


class TestWhichPairs:
    @given(scored())
    def test_agrees_with_the_slow_version(self, case):
        scores, labels, share = case
        chosen = trimming.worst_pairs(torch.from_numpy(scores), torch.from_numpy(labels), share)
        np.testing.assert_array_equal(chosen, oracle.trimmed(scores, labels.astype(float), share))

    @given(scored())
    def test_what_is_chosen_keeps_its_promises(self, case):
        scores, labels, share = case
        chosen = trimming.worst_pairs(
            torch.from_numpy(scores), torch.from_numpy(labels), share
        ).numpy()
        for r, y, taken in zip(scores.T, labels.T, chosen.T, strict=True):
            count = math.floor(share * y.sum() + 1e-9) if not y.all() else 0
            assert (taken & y).sum() == count
            for given_value in (y, ~y):  # nobody with a larger score is left out
                left, got = r[given_value & ~taken], r[given_value & taken]
                assert not got.size or not left.size or left.max() <= got.min()
            positive, negative = r[taken & y].sum(), r[taken & ~y].sum()
            assert negative <= positive + 1e-6
            rest = r[~y & ~taken]
            if count and rest.size and rest.max() > 0:  # the next one would be too much
                assert negative + rest.max() > positive - 1e-6

    @given(scored(), st.integers(1, 8))
    def test_blocks_of_labels_do_not_matter(self, case, width):
        scores, labels, share = case
        scores, labels = torch.from_numpy(scores), torch.from_numpy(labels)
        parts = [
            trimming.worst_pairs(some, these, share)
            for some, these in zip(scores.split(width, 1), labels.split(width, 1), strict=True)
        ]
        assert torch.equal(torch.cat(parts, 1), trimming.worst_pairs(scores, labels, share))

    @pytest.mark.filterwarnings("ignore")  # of epochs in which nothing is observed
    @given(
        data=st.data(),
        share=st.sampled_from([0.1, 0.2, 0.5]),
        weight=st.sampled_from([0.0, 0.25, 2.0]),
    )
    def test_a_whole_training_agrees_with_the_slow_version(self, data, share, weight):
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
        n, q = int(rng.integers(1, 20)), int(rng.integers(1, 5))
        labels = (rng.random((n, q)) < rng.choice([0.2, 0.6, 1.0])).astype(np.int64)
        options = {"share": share, "weight": weight, "warmup": int(rng.integers(0, 3))}
        options["fall"] = float(rng.choice([0.0, 0.01, 0.1]))
        fast = d2ace.Trim(labels, dtype=torch.float64, batch_size=n, epochs=9, **options)
        slow = oracle.TrimOracle(labels, batch_size=n, epochs=9, **options)
        for epoch in range(1, 8):
            list(fast)
            weights = fast.loss_weight(range(n))
            assert (weights is not None) == slow.trims(epoch)
            if weights is not None:
                mean = fast.memory.pairs.mean.numpy()  # ties: compare what is made of the same
                scores = np.where(np.isnan(slow.scores()), np.nan, abs(mean - labels))
                np.testing.assert_allclose(scores, slow.scores(), rtol=1e-12, atol=1e-12)
                np.testing.assert_array_equal(weights, slow.loss_weights(scores))
            for _ in range(rng.integers(0, 3)):
                rows = rng.permutation(n)[: rng.integers(1, n + 1)].tolist()
                probs = rng.choice([0.0, 0.3, 0.5, 1.0, rng.random()], size=(len(rows), q))
                fast.observe(rows, probs=probs)
                slow.observe(rows, probs)
            loss = float(rng.choice([0.5, 0.503, 0.52, 0.6]))
            fast.validated(loss)
            slow.validated(epoch, loss)

    def test_weights_are_the_weight_or_one(self):
        selector = make(start=2, weight=0.125)
        assert set(train(selector, RISING)[-1].unique().tolist()) == {0.125, 1.0}

    def test_rows_never_observed_are_never_trimmed(self):
        selector = make(start=2)
        list(selector)
        selector.observe(range(N // 2), probs=predictions(1)[: N // 2])
        list(selector)
        weight = selector.loss_weight(range(N))
        assert (weight[N // 2 :] == 1).all()
        positives = LABELS[: N // 2].sum(0)
        taken = ((weight[: N // 2] < 1) & (LABELS[: N // 2] == 1)).sum(0)
        assert taken.tolist() == [math.floor(0.2 * count + 1e-9) for count in positives.tolist()]

    def test_labels_with_few_positives_or_one_class_are_left_alone(self):
        labels = torch.zeros(N, 4, dtype=torch.int64)
        labels[:4, 1], labels[:, 2], labels[:5, 3] = 1, 1, 1  # none, four, all, five
        weight = train(make(labels=labels, start=2), RISING)[-1]
        assert (weight[:, :3] == 1).all()
        assert (weight[:5, 3] < 1).sum() == 1

    def test_an_invalid_prediction_leaves_the_mean_alone(self):
        selector, clean = (make(start=4, on_invalid="skip") for _ in range(2))
        for number in range(3):
            for one in (selector, clean):
                list(one)
                one.observe(range(N), probs=predictions(number))
        spoilt = selector.memory.pairs.mean.clone()
        spoilt.fill_(torch.nan)
        selector.observe(range(N), probs=spoilt)
        for one in (selector, clean):
            list(one)
        assert torch.equal(selector.loss_weight(range(N)), clean.loss_weight(range(N)))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    def test_half_precision_predictions(self, dtype):
        selector, exact = make(start=2), make(start=2)
        logits = (4 * torch.randn(N, Q, generator=torch.Generator().manual_seed(1))).to(dtype)
        for one, given_logits in ((selector, logits), (exact, logits.double())):
            list(one)
            one.observe(range(N), logits=given_logits)
            list(one)
        assert torch.equal(selector.loss_weight(range(N)), exact.loss_weight(range(N)))

    def test_sparse_labels_stay_sparse_and_give_the_same(self):
        dense, sparse = make(start=2), make(start=2, labels=sp.csr_matrix(LABELS.numpy()))
        weights = [train(one, RISING)[-1] for one in (dense, sparse)]
        assert torch.equal(*weights)

    def test_many_rows_and_labels_go_block_by_block(self):
        n, q = 3000, 200  # 600,000 pairs, more than are compared together
        rng = np.random.default_rng(0)
        labels = rng.random((n, q)) < 0.1
        probs = rng.random((n, q)).astype(np.float64) ** 6
        selector = d2ace.Trim(labels, start=2, dtype=torch.float64)
        list(selector)
        selector.observe(range(n), probs=probs)
        list(selector)
        weight = selector.loss_weight(range(n)).numpy()
        for block in (slice(0, 5), slice(85, 90), slice(195, 200)):
            chosen = oracle.trimmed(abs(probs - labels)[:, block], labels[:, block], 0.2)
            np.testing.assert_array_equal(weight[:, block] < 1, chosen)

    def test_one_pass_over_all_rows_after_each_epoch(self):
        selector = make(start=2, predictions="full_pass")
        for epoch in range(2):
            for batch in selector:
                selector.loss_weight(batch)
            selector.observe(range(N), probs=predictions(epoch))
        list(selector)
        scores = abs((predictions(0) + predictions(1)) / 2 - LABELS).numpy()
        expected = np.where(oracle.trimmed(scores, LABELS.numpy(), 0.2), 0.25, 1.0)
        np.testing.assert_array_equal(selector.loss_weight(range(N)), expected)


class TestWhen:
    def test_the_first_rise_above_one_per_cent(self):
        selector = make()
        weights = train(selector, [0.5, 0.4, 0.404, 0.4041, 0.3, 0.2])
        assert selector.first_trimmed_epoch == 5  # 0.404 is exactly one per cent more
        assert weighed(weights) == [False] * 4 + [True] * 2  # and it stays

    @pytest.mark.parametrize(("rise", "first"), [(0.0, 3), (0.05, 4), (0.5, None)])
    def test_how_much_is_an_option(self, rise, first):
        selector = make(rise=rise)
        train(selector, [0.4, 0.41, 0.43, 0.5])
        assert selector.first_trimmed_epoch == first

    @pytest.mark.parametrize("preset", ["paper", "reference"])
    def test_before_that_it_is_random_to_the_last_bit(self, preset):
        selector, random = make(preset=preset), d2ace.Random(LABELS, batch_size=16, preset=preset)
        for loss in [0.5, 0.4, 0.4]:
            assert list(selector) == list(random)
            assert selector.loss_weight(range(N)) is None
            selector.validated(loss)
        train(selector, RISING)  # and its batches stay those of Random
        for _ in range(3):
            list(random)
        assert list(selector) == list(random)

    def test_an_epoch_that_was_named_overrides_the_losses(self):
        assert weighed(train(make(start=5), RISING * 2)) == [False] * 4 + [True] * 2
        assert weighed(train(make(start=1), [0.5, 0.5])) == [True, True]

    def test_nothing_is_trimmed_in_warm_up(self):
        selector = make(warmup=5)
        assert weighed(train(selector, [0.3, 0.4, *RISING, 0.4])) == [False] * 5 + [True]
        with pytest.raises(
            ValueError, match=r"^start=5 lies within the warm-up \(warmup=5\), .*\.$"
        ):
            make(warmup=5, start=5)

    def at_training_losses(self, *losses: float, told: Any = (0.4, 0.5), **options: Any) -> Any:
        """The first trimmed epoch, with these training and validation losses of every pair."""
        selector = make(**options)
        for own, loss in zip(losses, told, strict=True):
            list(selector)
            right = math.exp(-own)  # the probability of the given label
            selector.observe(range(N), probs=torch.where(LABELS > 0, right, 1 - right).double())
            selector.validated(loss)
        return selector.first_trimmed_epoch

    def test_a_rise_alone_is_not_enough(self):
        assert self.at_training_losses(0.5, 0.5) is None
        assert self.at_training_losses(0.5, 0.6) is None
        assert self.at_training_losses(0.5, 0.451) is None
        assert self.at_training_losses(0.5, 0.449) == 3  # 10 % less
        assert self.at_training_losses(0.5, 0.48, 0.44, told=(0.4, 0.5, 0.403)) is None
        assert self.at_training_losses(0.5, 0.48, 0.44, told=(0.4, 0.5, 0.41)) == 4

    def test_the_training_loss_of_the_smallest_validation_loss_counts(self):
        assert self.at_training_losses(0.5, 0.46, 0.43, told=(0.4, 0.3, 0.5)) is None
        assert self.at_training_losses(0.5, 0.46, 0.41, told=(0.4, 0.3, 0.5)) == 4
        assert self.at_training_losses(0.5, 0.4, 0.38, told=(0.4, 0.4, 0.5)) == 4  # the first one

    @pytest.mark.parametrize(("fall", "first"), [(0.0, 3), (0.05, 3), (0.2, None), (1.0, None)])
    def test_how_far_the_training_loss_must_fall_is_an_option(self, fall, first):
        assert self.at_training_losses(0.5, 0.42, fall=fall) == first

    def test_no_unit_matters(self):
        first = set()
        for unit in (1.0, 1e-6, 1e9):
            selector = make()
            train(selector, [unit * loss for loss in [0.5, 0.4, 0.403, 0.41, 0.3]])
            first.add(selector.first_trimmed_epoch)
        assert first == {5}

    def test_the_training_loss_is_that_of_the_last_time_a_row_was_observed(self):
        selector = make()
        for right, loss in ((0.3, 0.5), (0.2, 0.4), (0.22, 0.5), (0.25, 0.5)):
            for batch in selector:  # -ln 0.2 = 1.61; 1.51 and 1.39 are 6 and 14 % less
                probs = torch.where(LABELS[batch] > 0, right, 1 - right)
                selector.observe(batch, probs=probs)
            assert selector.first_trimmed_epoch is None
            selector.validated(loss)
        assert selector.first_trimmed_epoch == 5

    def test_before_all_rows_were_trained_those_that_were_count(self):
        selector = make()
        for number, batch in enumerate(selector):  # the loss of a row is 0.105 throughout
            selector.observe(batch, probs=torch.where(LABELS[batch] > 0, 0.9, 0.1))
            selector.validated(0.4 + 0.1 * number)
        assert selector.first_trimmed_epoch is None

    def test_what_was_never_observed_starts_nothing(self):
        selector = make()
        for loss in (0.4, 0.6):
            selector.validated(loss)
        list(selector)
        selector.observe(range(N), probs=predictions(5))
        selector.validated(0.7)  # the training loss of the smallest is not known
        assert selector.first_trimmed_epoch is None

    def test_a_loss_within_an_epoch_counts_from_the_next_on(self):
        selector = make(fall=0)
        for number, batch in enumerate(selector):
            selector.validated(0.5 + 0.1 * number)  # several times, as steps are evaluated
            assert selector.loss_weight(batch) is None
            selector.observe(batch, probs=predictions(1)[batch])
        assert weighed(train(selector, [0.5])) == [True]

    @pytest.mark.parametrize(
        "loss",
        [0.5, np.float32(0.5), torch.tensor(0.5), torch.tensor([0.5]), np.array(0.5), 1],
        ids=repr,
    )
    def test_a_loss_may_be_any_number(self, loss):
        selector = make(fall=0)
        selector.validated(loss)
        selector.validated(1.2)
        assert selector.first_trimmed_epoch == 1

    @pytest.mark.parametrize(
        ("loss", "sentence"),
        [
            (math.nan, r"^The validation loss is nan, .*on_invalid='skip' to skip it\.$"),
            (math.inf, r"^The validation loss is inf, "),
            (torch.tensor(math.nan), r"^The validation loss is nan, "),
            (-0.1, r"^loss must be at least 0, .* got -0\.1\.$"),
            ("0.5", r"^loss must be a number, got '0\.5' \(str\)\.$"),
            (None, r"^loss must be a number, got None"),
            (True, r"^loss must be a number, got True"),
            (torch.ones(3), r"^loss must be a number, got tensor"),
            (torch.tensor(0.5, device="meta"), r"^loss must be a number, got tensor"),
        ],
        ids=repr,
    )
    def test_a_loss_that_is_none_is_refused_and_changes_nothing(self, loss, sentence):
        selector = make()
        selector.validated(0.4)
        before = selector.state_dict()
        with pytest.raises((ValueError, TypeError), match=sentence):
            selector.validated(loss)
        assert selector.state_dict()["extra"] == before["extra"]

    def test_a_loss_that_is_none_may_be_skipped(self):
        selector = make(on_invalid="skip")
        train(selector, [0.5, math.nan, math.inf, 0.4, math.nan])
        assert selector.first_trimmed_epoch is None
        train(selector, [0.5])
        assert selector.first_trimmed_epoch == 7

    def test_begun_anew_it_waits_again(self):
        selector = make()
        train(selector, RISING)
        selector.reset()
        assert selector.first_trimmed_epoch is None
        assert selector.awaits_validation
        assert weighed(train(selector, [*RISING, 0.4])) == [False] * 3 + [True]

    @pytest.mark.parametrize("name", [name for name in d2ace.SELECTORS if name != "trim"])
    def test_other_methods_do_not_look_at_it(self, name):
        selector = d2ace.make_selector(name, LABELS, batch_size=BATCH, epochs=5)
        before = selector.state_dict()
        selector.validated(0.5)
        selector.validated(9.5)
        assert selector.state_dict()["checksum"] == before["checksum"]
        assert not selector.awaits_validation


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def stepped(selector: d2ace.Selector, batches: Any, epoch: int) -> list[Any]:
    seen = []
    for batch in batches:
        seen.append((batch, None if (w := selector.loss_weight(batch)) is None else w.tolist()))
        selector.observe(batch, probs=predictions(epoch)[batch])
    return seen


class TestResuming:
    """Killed around the epoch after which the loss has risen, and the one that is trimmed first."""

    def whole(self, rows: str) -> list[Any]:
        selector, seen = make(rows, warmup=1), []
        for epoch, loss in enumerate([*RISING, 0.3, 0.3], start=1):
            seen += stepped(selector, selector, epoch)
            selector.validated(loss)
        return seen

    @pytest.mark.parametrize("rows", ["random", "d2ace", "dihcl", "balance"])
    @pytest.mark.parametrize("way", ["file", "copy", "pickle"])
    def test_killed_twice_around_the_start(self, rows, way):
        selector, seen = make(rows, warmup=1), []

        def killed() -> d2ace.Selector:
            if way == "copy":
                return copy.deepcopy(selector)
            if way == "pickle":
                return pickle.loads(pickle.dumps(selector))  # noqa: S301
            other = make(rows, warmup=1)
            other.load_state_dict(through_a_file(selector.state_dict()))
            return other

        for epoch, loss in enumerate([*RISING, 0.3, 0.3], start=1):
            for stop in (1, 2):  # inside every epoch, twice
                batches = iter(selector)
                for _ in range(stop):
                    seen += stepped(selector, [next(batches)], epoch)
                selector = killed()
            seen += stepped(selector, selector, epoch)
            selector = killed()  # before the loss is told, and after
            selector.validated(loss)
            selector = killed()
        assert seen == self.whole(rows)

    def test_a_state_is_small(self):
        selector = make(dtype=torch.float32)
        train(selector, RISING)
        memory = selector.state_dict()["memory"].values()
        assert sum(value.nbytes for value in memory) == N * Q * 5 + N * 16

    def test_other_rows_or_options_are_refused(self):
        state = make("active").state_dict()
        for other in (make(), make("active", share=0.1), make("recent"), d2ace.Active(LABELS)):
            with pytest.raises(ValueError, match=r"^The state was saved with "):
                other.load_state_dict(state)


class TestRowsOfOtherMethods:
    @pytest.mark.parametrize(
        ("rows", "options"),
        [("d2ace", {"window": 3}), ("active", {"pressure": 8.0}), ("info_batch", {"delta": 1.0})],
    )
    def test_batches_are_theirs_and_loss_weights_are_of_both(self, rows, options):
        selector = make(rows, warmup=1, start=3, **options)
        other = d2ace.make_selector(
            rows, LABELS, batch_size=BATCH, epochs=12, warmup=1, dtype=torch.float64, **options
        )
        trim = make(start=3)
        for epoch in range(1, 6):
            probs = predictions(epoch)
            for batch, same in zip(selector, other, strict=True):
                assert batch == same
                for one in (selector, other, trim):
                    one.observe(batch, probs=probs[batch])
            theirs, ours = other.loss_weight(range(N)), selector.loss_weight(range(N))
            if epoch < 3:
                assert (ours is None) == (theirs is None)
                continue
            list(trim)
            assert ours is not None
            factor = ours if theirs is None else ours / theirs
            assert set(factor.unique().tolist()) <= {0.25, 1.0}
            assert (factor < 1).any()
        assert torch.equal(selector.probabilities, other.probabilities)

    def test_with_importance_weighting_both_are_multiplied(self):
        both = make("active", warmup=1, start=2, importance_weighting=True)
        train(both, RISING)
        list(both)
        weight = both.loss_weight(range(N))
        importance = 1 / (N * both.drawn_probabilities.unsqueeze(1))
        assert set((weight / importance).unique().numpy().round(9).tolist()) == {0.25, 1.0}

    def test_balance_is_weighed_down_too(self):
        both = make("balance", warmup=0, start=2)
        alone = d2ace.Balance(LABELS, warmup=0, dtype=torch.float64)
        for one in (both, alone):
            train(one, RISING)
            list(one)
        batch = range(BATCH)
        mask, weight = alone.loss_weight(batch).double(), both.loss_weight(batch)
        assert set((weight / mask)[mask > 0].unique().tolist()) == {0.25, 1.0}

    def test_a_class_of_your_own_draws_the_batches(self):
        class Backwards(d2ace.Selector):
            name = "backwards"

            def instance_weights(self):
                return {"place": torch.arange(self.n, dtype=torch.float64)}

        selector = d2ace.Trim(LABELS, rows=Backwards, batch_size=BATCH, warmup=1, epochs=9)
        alone = Backwards(LABELS, batch_size=BATCH, warmup=1, epochs=9)
        for _ in range(3):
            for batch, same in zip(selector, alone, strict=True):
                assert batch == same
                selector.observe(batch, probs=predictions(1)[batch])
            selector.validated(0.5)
        assert isinstance(selector, d2ace.Trim)
        assert isinstance(selector, Backwards)
        assert selector.rows == "backwards"

    def test_its_options_are_checked(self):
        with pytest.raises(TypeError, match=r"^Trim has no option 'windw' \(did you mean 'window'"):
            make("recent", windw=3)
        with pytest.raises(TypeError, match=r"^Trim has no option 'window'"):
            make(window=3)
        with pytest.raises(ValueError, match=r"There is no selector 'dace'"):
            make("dace")
        with pytest.raises(ValueError, match=r"^rows='trim' is Trim itself, .*\.$"):
            make("trim")
        with pytest.raises(TypeError, match=r"^A selector is found by its name, got 3"):
            make(3)

    @pytest.mark.parametrize(
        "option",
        [
            {"share": 1.1},
            {"share": -0.1},
            {"weight": -1},
            {"rise": -0.1},
            {"fall": 1.1},
            {"start": 0},
        ],
        ids=str,
    )
    def test_options_out_of_range_are_named(self, option):
        (name,) = option
        with pytest.raises(ValueError, match=f"^{name} must be"):
            make(**option)


class TestLoss:
    def test_it_is_the_weighted_cross_entropy(self):
        selector, twin = make(start=2), make(start=2)
        for epoch in (1, 2):
            logits = torch.logit(predictions(epoch)).requires_grad_()
            for batch, _ in zip(selector, twin, strict=True):
                loss = selector.loss(logits[batch], LABELS[batch], torch.tensor(batch))
                pairs = bce(logits[batch], LABELS[batch].double(), reduction="none")
                weight = twin.loss_weight(batch)
                by_hand = pairs.mean() if weight is None else (pairs * weight).mean()
                assert torch.allclose(loss, by_hand, rtol=1e-14)
                (mine,) = torch.autograd.grad(loss, logits, retain_graph=True)
                (theirs,) = torch.autograd.grad(by_hand, logits, retain_graph=True)
                assert torch.allclose(mine, theirs, rtol=1e-12, atol=1e-15)
                for one in (selector, twin):
                    one.observe(batch, logits=logits[batch])
            assert (weight is not None) == (epoch == 2)

    def test_without_weights_it_is_torchs_own(self):
        selector = d2ace.Random(LABELS, batch_size=BATCH)
        batch = next(iter(selector))
        logits = torch.randn(BATCH, Q)
        expected = bce(logits, LABELS[batch].float())
        assert torch.equal(selector.loss(logits, LABELS[batch], batch), expected)

    def test_rows_weigh_as_a_whole(self):
        selector = d2ace.Active(LABELS, warmup=1, importance_weighting=True, dtype=torch.float64)
        train(selector, [0.5])
        rows = next(iter(selector))
        logits = torch.randn(len(rows), Q, dtype=torch.float64)
        weight = selector.loss_weight(rows)
        pairs = bce(logits, LABELS[rows].double(), reduction="none")
        assert weight.shape == (len(rows), 1)
        assert torch.allclose(selector.loss(logits, LABELS[rows], rows), (pairs * weight).mean())

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_and_autocast_do_not_round_it(self, dtype):
        selector = d2ace.Random(LABELS, batch_size=BATCH)
        batch, logits = next(iter(selector)), torch.randn(BATCH, Q).to(dtype)
        expected = bce(logits.float(), LABELS[batch].float())
        with torch.autocast("cpu", torch.bfloat16):
            loss = selector.loss(logits, LABELS[batch], batch)
        assert loss.dtype == torch.float32
        assert torch.equal(loss, expected)

    def test_targets_of_another_shape_are_refused(self):
        selector = d2ace.Random(LABELS, batch_size=BATCH)
        batch = next(iter(selector))
        with pytest.raises(ValueError, match=r"^targets must be .* the shape .* got \[16\]"):
            selector.loss(torch.randn(BATCH, Q), LABELS[batch][:, 0], batch)
        with pytest.raises(ValueError, match=r"^logits must have shape \[2, 4\] .* row per index"):
            selector.loss(torch.randn(BATCH, Q), LABELS[batch], batch[:2])

    @pytest.mark.parametrize(
        ("logits", "targets", "words"),
        [
            ("numpy", "long", r"^logits must be a floating-point tensor .* got ndarray\.$"),
            ("long", "long", r"^logits must be a floating-point tensor .* got torch\.int64\.$"),
            ("float", "numpy", r"^targets must be a tensor .* got ndarray\.$"),
            ("float", "sparse", r"^targets must be dense, got layout torch\.sparse_coo\.$"),
        ],
    )
    def test_what_is_no_tensor_of_numbers_is_refused(self, logits, targets, words):
        selector = d2ace.Random(LABELS, batch_size=BATCH)
        batch = next(iter(selector))
        given = LABELS[batch]
        kinds = {
            "numpy": given.numpy(),
            "long": given,
            "float": given.float(),
            "sparse": given.to_sparse(),
        }
        with pytest.raises((TypeError, ValueError), match=words):
            selector.loss(kinds[logits], kinds[targets], batch)
