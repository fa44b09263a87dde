"""The shared building blocks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from d2ace.models.layers import (
    FeedForward,
    LabelwiseLinear,
    batch_mean,
    full_precision,
    over_labels,
)


@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize("last_act", [True, False])
def test_mlp_is_a_chain(slope, last_act):
    mlp = FeedForward([4, 6, 3], slope=slope, dropout=0.5, last_act=last_act).eval()
    act = nn.LeakyReLU(slope)
    x = torch.randn(5, 4)
    expected = mlp.layers[1](act(mlp.layers[0](x)))
    expected = act(expected) if last_act else expected
    torch.testing.assert_close(mlp(x), expected)


def test_mlp_drops_after_every_acting_layer():
    mlp = FeedForward([4, 50], dropout=0.5)
    assert (mlp(torch.rand(8, 4)) == 0).float().mean() > 0.3
    bare = FeedForward([4, 50], dropout=0.5, last_act=False)
    assert (bare(torch.rand(8, 4)) == 0).float().mean() == 0


def test_names_of_weights_do_not_depend_on_dropout():
    assert (
        FeedForward([4, 6, 3]).state_dict().keys()
        == FeedForward([4, 6, 3], dropout=0.3).state_dict().keys()
    )


def test_normalisation_stands_between_map_and_activation():
    mlp = FeedForward([4, 6], norm=True)
    x = torch.randn(9, 4)
    out = mlp.layers[0](x)
    out = (out - out.mean(0)) / (out.var(0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(mlp(x), out.relu())


def test_labelwise_classifier_is_a_grouped_convolution():
    q, h = 5, 7
    head = LabelwiseLinear(q, h)
    conv = nn.Conv1d(q, q, h, groups=q)
    conv.weight.data, conv.bias.data = head.weight.data[:, None], head.bias.data
    u = torch.randn(3, q, h)
    torch.testing.assert_close(head(u), conv(u)[..., 0])
    torch.testing.assert_close(head(u[:, 2:4], slice(2, 4)), head(u)[:, 2:4])
    same = u[:, 0]
    torch.testing.assert_close(head.shared(same), head(same[:, None].expand(-1, q, -1)))


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (10, 1), (35, 3), (100, 10), (1000, 10)])
def test_chunks_cover_all_labels_within_the_limit(limit, most):
    seen = []

    def function(labels: slice) -> torch.Tensor:
        seen.append(labels.stop - labels.start)
        return torch.arange(labels.start, labels.stop)[None].float()

    out = over_labels(function, 10, elements_per_label=10, limit=limit)
    assert out.tolist() == [list(range(10))]
    assert max(seen) <= most
    assert sum(seen) == 10
    assert len(seen) == -(-10 // most)


def test_chunks_are_computed_again_only_beyond_what_may_be_kept():
    w = torch.ones(1, 10, requires_grad=True)
    calls = []

    def function(labels: slice) -> torch.Tensor:
        calls.append(labels)
        return torch.exp(w[:, labels])

    for keep, expected in ((100, 2), (99, 4)):
        calls.clear()
        over_labels(function, 10, 10, limit=50, keep=keep).sum().backward()
        assert len(calls) == expected
    calls.clear()
    with torch.no_grad():
        over_labels(function, 10, 10, limit=50, keep=0)
    assert len(calls) == 2


def test_weighted_mean_and_precision():
    values, weight = torch.tensor([1.0, 3.0]), torch.tensor([0.5, 1.5])
    assert batch_mean(values) == 2
    assert batch_mean(values, weight) == 2.5
    assert full_precision(values.bfloat16()).dtype is torch.float32
    assert full_precision(values.double()).dtype is torch.float64
