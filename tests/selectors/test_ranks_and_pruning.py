"""Online-Batch, Ada-Boundary and InfoBatch, beyond their worked numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import d2ace

N, Q = 40, 3
LABELS = torch.zeros(N, Q, dtype=torch.int64)  # so that the loss grows with the prediction


def make(name: str, **options: Any) -> d2ace.Selector:
    given = {"batch_size": 8, "epochs": 20, "warmup": 1, "dtype": torch.float64}
    return d2ace.make_selector(name, LABELS, **(given | options))


def told(selector: d2ace.Selector, values: Tensor) -> d2ace.Selector:
    """After its first epoch, with one prediction for all labels of each row."""
    list(selector)
    selector.observe(range(N), probs=values.unsqueeze(1).expand(N, Q))
    return selector


def drawn_rows(selector: d2ace.Selector) -> list[int]:
    return [row for batch in selector for row in batch]


RISING = torch.linspace(0.05, 0.95, N, dtype=torch.float64)


class TestOnlineBatch:
    def test_only_the_order_of_losses_counts(self):
        one = told(make("online_batch"), RISING).probabilities
        other = told(make("online_batch"), RISING**3).probabilities
        assert torch.equal(one, other)
        assert (one.diff() > 0).all()
        steps = one[1:] / one[:-1]
        assert torch.allclose(steps, torch.tensor(100 ** (1 / N)).double())

    def test_equal_losses_share_their_ranks(self):
        pairs = RISING[::2].repeat_interleave(2)
        p = told(make("online_batch"), pairs).probabilities
        assert torch.equal(p[::2], p[1::2])
        rank = torch.arange(N, 0, -2, dtype=torch.float64) - 0.5  # 39.5 for the two smallest
        expected = (100 ** (-rank / N)).repeat_interleave(2)
        assert torch.allclose(p, expected / expected.sum())

    def test_nothing_known_is_uniform(self):
        p = make("online_batch", warmup=0).probabilities
        assert torch.allclose(p, torch.tensor(1 / N).double())


class TestAdaBoundary:
    def test_right_and_wrong_predictions_are_alike(self):
        p = told(make("ada_boundary"), RISING).probabilities
        assert torch.allclose(p, p.flip(0))
        assert p.argmax() in (N // 2 - 1, N // 2)

    def test_distances_are_not_stretched(self):
        p = told(make("ada_boundary"), 0.5 + 0.01 * RISING).probabilities
        assert p.max() / p.min() == pytest.approx(1)  # all within the first step of 1/n

    def test_a_row_never_observed_is_on_the_boundary(self):
        selector = make("ada_boundary", warmup=0)
        selector.observe(range(1, N), probs=torch.full((N - 1, Q), 0.9))
        p = selector.probabilities
        assert p.argmax() == 0
        assert p[0] / p[1] == pytest.approx(100**0.8)


class TestInfoBatch:
    """Here 24 rows have a small loss, and 16 a large one."""

    losses = torch.where(torch.arange(N) < 24, 0.1, 0.8)

    def start(self, **options: Any) -> d2ace.Selector:
        return told(make("info_batch", **options), self.losses)

    @pytest.mark.parametrize(("ratio", "kept"), [(0.0, 24), (0.3, 16), (0.5, 12), (0.9, 2)])
    def test_an_epoch_has_all_hard_rows_and_a_share_of_the_easy_ones(self, ratio, kept):
        selector = self.start(prune_ratio=ratio)
        assert selector.rows_per_epoch == 16 + kept
        assert len(selector) == -(-(16 + kept) // 8)
        batches = list(selector)
        assert [len(batch) for batch in batches[:-1]] == [8] * (len(batches) - 1)
        rows = sorted(row for batch in batches for row in batch)
        assert len(rows) == len(set(rows)) == 16 + kept
        assert rows[-16:] == list(range(24, N))
        weight = selector.loss_weight(rows)
        assert weight.shape == (len(rows), 1)
        assert weight.flatten().tolist() == pytest.approx([1 / (1 - ratio)] * kept + [1.0] * 16)

    def test_easy_rows_are_a_simple_random_sample(self):
        together = torch.zeros(24, 24)
        epochs = 400
        for seed in range(epochs):
            rows = torch.tensor(drawn_rows(self.start(seed=seed)))
            drawn = torch.zeros(24)
            drawn[rows[rows < 24]] = 1
            together += torch.outer(drawn, drawn)
        assert (together.diagonal() / epochs - 0.5).abs().max() < 0.1  # four standard errors
        pairs = together[~torch.eye(24, dtype=torch.bool)] / epochs
        assert (pairs - 12 * 11 / (24 * 23)).abs().max() < 0.1

    def test_the_last_epochs_are_complete(self):
        selector = self.start(delta=0.875)  # of 20 epochs, 17.5
        sizes, weighed = [], []
        for _ in range(19):
            rows = drawn_rows(selector)
            sizes.append(len(rows))
            weighed.append(selector.loss_weight(rows) is not None)
            selector.observe(range(N), probs=self.losses.unsqueeze(1).expand(N, Q))
        assert sizes == [28] * 16 + [N] * 3  # epochs 2 to 17, and 18 to 20
        assert weighed == [True] * 16 + [False] * 3

    def test_weights_are_those_of_the_start_of_the_epoch(self):
        selector = self.start()
        batches = iter(selector)
        first = next(batches)
        expected = [2.0 if row < 24 else 1.0 for row in range(N)]
        selector.observe(first, probs=torch.full((8, Q), 0.99))
        assert selector.loss_weight(range(N)).flatten().tolist() == expected
        twin = make("info_batch")
        twin.load_state_dict(selector.state_dict())
        assert twin.loss_weight(range(N)).flatten().tolist() == expected
        assert list(twin) == list(batches)
        assert twin.loss_weight(range(N)).flatten().tolist() == expected

    def test_equal_losses_leave_nobody_out(self):
        selector = make("info_batch", warmup=0)  # nothing is known yet
        for value in (0.1, 0.3):
            rows = drawn_rows(selector)
            assert sorted(rows) == list(range(N))
            assert (selector.loss_weight(rows) == 1).all()
            selector.observe(range(N), probs=torch.full((N, Q), value))

    def test_one_easy_row_keeps_its_chance(self):
        selector = told(make("info_batch"), torch.where(torch.arange(N) < 1, 0.1, 0.8))
        rows = drawn_rows(selector)
        assert sorted(rows) == list(range(N))
        assert (selector.loss_weight(rows) == 1).all()

    @pytest.mark.parametrize(
        "option",
        [
            {"draw": "batch"},
            {"draw": "once"},
            {"rows_per_epoch": 0.5},
            {"rows_per_epoch": (1.0, 0.5)},
            {"importance_weighting": True},
        ],
        ids=str,
    )
    def test_options_that_would_undo_it_are_refused(self, option):
        (name,) = option
        with pytest.raises(ValueError, match=rf"^{name}=.* is not possible for InfoBatch, .*\.$"):
            make("info_batch", **option)
