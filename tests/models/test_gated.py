"""The layer behind CLIF's gates: its values and its gradients, kept or computed again."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from d2ace.models import gated
from d2ace.models.gated import gated_logits

SLOPE = 0.1


def arguments(rows=5, labels=7, fan_in=4, width=3, dtype=torch.float64):
    torch.manual_seed(0)
    shapes = (rows, fan_in), (labels, fan_in), (width, fan_in), (width,), (labels, width)
    return tuple(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)


def directly(f, gates, weight, bias, v):
    hidden = F.leaky_relu((f[:, None] * gates) @ weight.T + bias, SLOPE)
    return (hidden * v).sum(2)


@pytest.fixture(params=[1, 3, 7], ids="{}_labels_at_once".format)
def labels_at_once(request, monkeypatch):
    monkeypatch.setattr(gated, "CHUNK_ELEMENTS", request.param * 5 * 4)


@pytest.mark.parametrize("kept", [0, 2**20], ids=["computed_again", "kept"])
def test_values_and_gradients_are_those_of_the_formula(labels_at_once, monkeypatch, kept):
    monkeypatch.setattr(gated, "KEPT_ELEMENTS", kept)
    tensors = arguments()
    torch.testing.assert_close(gated_logits(*tensors, SLOPE), directly(*tensors))
    assert torch.autograd.gradcheck(lambda *given: gated_logits(*given, SLOPE), tensors)


def test_of_the_inner_tensors_at_most_one_is_kept(monkeypatch):
    def kept_numbers(limit):
        monkeypatch.setattr(gated, "KEPT_ELEMENTS", limit)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: sizes.append(tensor.numel()), lambda _: None
        ):
            gated_logits(*given, SLOPE)
        return sum(sizes) - sum(tensor.numel() for tensor in given)

    given = arguments()
    assert kept_numbers(5 * 7 * 3) == 5 * 7 * 3
    assert kept_numbers(5 * 7 * 3 - 1) == 0


def test_nothing_is_kept_where_nobody_goes_back(monkeypatch):
    def largest():
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            gated_logits(*given, SLOPE)
        return max(event.self_cpu_memory_usage for event in profiled.key_averages())

    given = arguments(rows=64, labels=100, fan_in=8, width=16)
    monkeypatch.setattr(gated, "CHUNK_ELEMENTS", 64 * 16 * 2)
    inner = 64 * 100 * 16 * 8
    assert largest() >= inner
    with torch.no_grad():
        assert largest() < inner / 5


def test_sums_over_many_chunks_keep_their_digits_in_half_precision(monkeypatch):
    monkeypatch.setattr(gated, "CHUNK_ELEMENTS", 0)  # a label at a time
    positive = [tensor.detach().abs() for tensor in arguments(labels=600)]  # far from the kink
    half = tuple(tensor.bfloat16().requires_grad_() for tensor in positive)
    gated_logits(*half, SLOPE).sum().backward()
    rounded = tuple(tensor.detach().double().requires_grad_() for tensor in half)
    directly(*rounded).sum().backward()
    for ours, expected in zip(half, rounded, strict=True):
        assert (ours.grad - expected.grad).norm() < 0.01 * expected.grad.norm()


def test_no_rows_give_no_logits():
    f, *others = arguments()
    assert gated_logits(f[:0], *others, SLOPE).shape == (0, 7)
