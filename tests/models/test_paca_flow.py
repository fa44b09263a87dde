"""PACA's conditional flow against a slow formulation, autograd and numeric integration."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from d2ace.models import layers
from d2ace.models.paca_flow import ConditionalFlow, sigmoidal_flow
from d2ace.models.paca_mixture import sigmoid_mixture
from d2ace.models.recompute import recomputed

SIZES = [(5, 4), (14, 52), (3, 1), (1, 2), (2, 250)]  # q, D
every_size = pytest.mark.parametrize(("q", "D"), SIZES)


def perturbed(q: int, D: int, scale: float = 0.5) -> ConditionalFlow:
    """A flow in double precision, with weights away from their start."""
    flow = ConditionalFlow(q, D).double()
    with torch.no_grad():
        for parameter in flow.parameters():
            parameter += scale * torch.randn_like(parameter) / math.sqrt(parameter.shape[-1])
    return flow


def slow_density(flow: ConditionalFlow, z: Tensor) -> Tensor:
    """Section by section as the method is written: one-hot codes, all labels at once, clipping."""
    stage, delta = flow.sigmoidal, 1e-6
    B, q, D, K, T = len(z), flow.n_labels, stage.D, stage.K, stage.T
    codes = torch.eye(q, dtype=z.dtype)
    input_degree = [i + 1 for i in range(D)]
    hidden_degree = [t % max(D - 1, 1) + 1 for t in range(stage.instance.out_features)]
    mask1 = torch.tensor([[float(i <= t) for i in input_degree] for t in hidden_degree])
    mask2 = torch.tensor([[float(t < i) for t in hidden_degree] for i in input_degree] * K)
    per_instance = F.linear(z, stage.instance.weight * mask1, stage.instance.bias)
    hidden = F.elu(per_instance[:, None] + stage.label(codes))
    parameters = F.linear(hidden, stage.conditioner.weight * mask2, stage.conditioner.bias)
    parameters = stage.mixture(parameters.view(B, q, K, D).transpose(2, 3))
    raw_slope, offset, raw_weight = parameters.split(T, -1)
    slope = F.softplus(raw_slope)
    t = slope * z[:, None, :, None] + offset
    o = (raw_weight.softmax(-1) * t.sigmoid()).sum(-1) * (1 - delta) + delta / 2
    z1 = torch.log(o / (1 - o))
    inner = raw_weight.log_softmax(-1) + F.logsigmoid(t) + F.logsigmoid(-t) + slope.log()
    logdet1 = inner.logsumexp(-1) + math.log(1 - delta) - o.log() - (1 - o).log()
    scale, shift = (
        part.second(part.first(codes).relu()) + part.direct(codes)
        for part in (flow.affine.scale, flow.affine.shift)
    )
    scale = F.softplus(scale)
    normal = torch.distributions.Normal(0, 1).log_prob(z1 * scale + shift)
    return (normal + logdet1 + scale.log()).sum(-1)


def first_stage(flow: ConditionalFlow, z: Tensor) -> tuple[Tensor, Tensor]:
    """z1 and its log-derivatives [D, q, B]."""
    return sigmoidal_flow(*flow.sigmoidal.shared(z), flow.sigmoidal.per_label())


@every_size
@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_agrees_with_the_slow_formulation(q, D, scale):
    flow = perturbed(q, D, scale)
    z = 2 * torch.randn(6, D, dtype=torch.float64)
    expected = slow_density(flow, z)
    torch.testing.assert_close(flow(z), expected, rtol=0, atol=1e-11 * D)
    flow.float()
    torch.testing.assert_close(flow(z.float()), expected.float(), rtol=0, atol=2e-5 * math.sqrt(D))


@every_size
def test_gradients_agree_with_the_slow_formulation(q, D):
    flow = perturbed(q, D)
    z = torch.randn(6, D, dtype=torch.float64, requires_grad=True)
    towards = torch.randn(6, q, dtype=torch.float64)
    inputs = [z, *flow.parameters()]
    fast = torch.autograd.grad(flow(z), inputs, towards)
    slow = torch.autograd.grad(slow_density(flow, z), inputs, towards)
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", [1, 3, 6])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_chunks_of_labels_change_nothing(monkeypatch, size, dtype, tolerance):
    q, D, B = 8, 7, 5
    flow = perturbed(q, D).to(dtype)
    z = torch.randn(B, D, dtype=dtype, requires_grad=True)
    inputs, towards = [z, *flow.parameters()], torch.randn(B, q, dtype=dtype)
    whole = flow(z)
    whole_gradients = torch.autograd.grad(whole, inputs, towards)
    monkeypatch.setattr(layers, "KEPT_ELEMENTS", 0)
    monkeypatch.setattr(layers, "CHUNK_ELEMENTS", size * B * flow.widest)
    chunked = flow(z)
    gradients = torch.autograd.grad(chunked, inputs, towards)
    torch.testing.assert_close(chunked, whole, rtol=tolerance, atol=tolerance)
    for one, other in zip(gradients, whole_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=30 * tolerance, atol=30 * tolerance)
    with torch.no_grad():
        torch.testing.assert_close(flow(z), whole, rtol=tolerance, atol=tolerance)


def test_chunks_leave_out_gradients_nobody_wants(monkeypatch):
    flow = perturbed(4, 3)
    flow.sigmoidal.mixture.requires_grad_(False)
    monkeypatch.setattr(layers, "KEPT_ELEMENTS", 0)
    monkeypatch.setattr(layers, "CHUNK_ELEMENTS", 0)
    flow(torch.randn(2, 3, dtype=torch.float64)).sum().backward()
    assert flow.sigmoidal.mixture.weight.grad is None
    assert flow.sigmoidal.conditioner.weight.grad is not None


def test_recomputation_of_any_function_of_rows():
    common, rows = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(
        lambda a, b: recomputed(lambda s, r: (r[:, None] * s).sin(), [a], [b], 2), (common, rows)
    )


def test_coordinates_depend_on_earlier_ones_only():
    D = 5
    flow = perturbed(3, D)
    z = torch.randn(1, D, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda z: first_stage(flow, z)[0][:, :, 0], z)
    jacobian = jacobian[:, :, 0].transpose(0, 1)  # [q, D, D]
    assert (jacobian.triu(1) == 0).all()
    assert (jacobian.diagonal(dim1=1, dim2=2) > 0).all()
    assert (jacobian.tril(-1) != 0).any()


def test_log_determinant_is_that_of_the_jacobian():
    D = 4
    flow = perturbed(3, D)
    z = torch.randn(1, D, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda z: first_stage(flow, z)[0][:, :, 0], z)
    expected = torch.linalg.slogdet(jacobian[:, :, 0].transpose(0, 1))
    assert (expected.sign == 1).all()
    torch.testing.assert_close(first_stage(flow, z)[1].sum(0)[:, 0], expected.logabsdet)


def test_first_coordinate_ignores_the_label():
    flow = perturbed(3, 4)
    z1, _ = first_stage(flow, torch.randn(2, 4, dtype=torch.float64))
    assert torch.equal(z1[0, 0], z1[0, 1])
    assert not torch.equal(z1[1, 0], z1[1, 1])


@pytest.mark.parametrize(("q", "D"), [(14, 52), (174, 34), (1, 1), (53, 256)])
def test_second_stage_starts_close_to_the_identity(q, D):
    scale, shift = ConditionalFlow(q, D).affine()
    assert scale.shape == shift.shape == (q, D)
    assert (scale - 1).abs().max() < 0.01
    assert shift.abs().max() < 0.01


def test_initialisation():
    q, D, Hf = 16, 50, 256
    flow = ConditionalFlow(q, D, Hf)
    stage = flow.sigmoidal
    assert stage.K == 15
    bounds = [
        (stage.instance.weight, D),
        (stage.label.weight, q),
        (stage.conditioner.weight, Hf),
        (stage.mixture.weight, 15),
        (flow.affine.scale.first.weight, q),
    ]
    for weight, fan_in in bounds:
        assert 0.97 / math.sqrt(fan_in) < weight.abs().max() <= 1 / math.sqrt(fan_in)
    assert (stage.label.bias == 0).all()
    for part in (flow.affine.scale, flow.affine.shift):
        assert max(part.second.weight.abs().max(), part.direct.weight.abs().max()) <= 0.001
    assert (flow.affine.shift.second.bias == 0).all()
    assert set(flow.state_dict()) == {name for name, _ in flow.named_parameters()}


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_density_integrates_to_one(scale):
    flow = perturbed(3, 1, scale)
    u = torch.linspace(-9, 9, 4001, dtype=torch.float64)  # z = sinh u: fine in the middle, far out
    with torch.no_grad():
        density = flow(u.sinh()[:, None]).exp() * u.cosh()[:, None]
    total = torch.trapezoid(density, u, dim=0)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [0.0, 1e-20, 30.0, 1e4])
def test_far_points_and_extreme_weights_stay_finite(size):
    flow = ConditionalFlow(3, 4)
    with torch.no_grad():
        flow.sigmoidal.mixture.bias[:8] = -200.0  # softplus underflows
        flow.affine.scale.direct.bias[:2] = -200.0
    z = (size * torch.randn(5, 4)).requires_grad_()
    density = flow(z)
    assert torch.isfinite(density).all()
    density.sum().backward()
    for tensor in (z, *flow.parameters()):
        assert torch.isfinite(tensor.grad).all()


def mixture_by_logarithms(raw_slope, offset, raw_weight, z):
    """Term by term on logarithmic scale, where nothing leaves the range."""
    log_weight = raw_weight.log_softmax(0)
    slope = F.softplus(raw_slope)
    t = slope * z[:, None] + offset
    up, down = F.logsigmoid(t), F.logsigmoid(-t)
    log_slope = (log_weight + slope.log() + up + down).logsumexp(0)
    return (log_weight + up).exp().sum(0), (log_weight + down).exp().sum(0), log_slope


@pytest.mark.parametrize("scale", [0.3, 10.0, 60.0])
def test_a_mixture_keeps_its_digits_in_single_precision(scale):
    """Its slope goes down to exp(-100) and less, where no term of it is a float32."""
    inputs = [
        *(
            size * torch.randn(16, 7, 3, 5, dtype=torch.float64)
            for size in (scale / 4, scale, scale)
        ),
        torch.randn(7, 5, dtype=torch.float64),
    ]

    def found(mixture, dtype):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in inputs]
        parts = mixture(*leaves)
        coefficients = (0.7, -0.3, 1.1)
        total = sum(c * part.sum() for c, part in zip(coefficients, parts, strict=True))
        return [*parts, *torch.autograd.grad(total, leaves)]

    expected = found(mixture_by_logarithms, torch.float64)
    for one, exact in zip(found(sigmoid_mixture, torch.float32), expected, strict=True):
        # far out, t itself is only known to 1e-7 of its size
        torch.testing.assert_close(one.double(), exact, rtol=2e-4, atol=2e-5 * max(1.0, scale))
    if scale > 50:
        assert expected[2].min() < -104


def test_half_precision_input_is_computed_in_full():
    flow = ConditionalFlow(3, 4)
    z = torch.randn(5, 4).bfloat16()
    expected = flow(z.float())
    with torch.autocast("cpu", torch.bfloat16):
        density = flow(z)
    assert density.dtype is torch.float32
    assert torch.equal(density, expected)
