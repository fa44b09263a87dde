"""The routes to phi agree, and correlations are what their definitions say."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2ace.selectors import correlation, reference
from d2ace.selectors.correlation import LocalCorrelation, mutual_information
from d2ace.selectors.labels import column_moments
from d2ace.selectors.probability import quantisation_index, quantised

CPU = torch.device("cpu")


@st.composite
def problems(draw):
    n, q = draw(st.integers(1, 40)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    y = rng.random((n, q)) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    z = y | (rng.random((n, q)) < draw(st.sampled_from([0.0, 0.3, 1.0])))
    a = rng.random((n, q)) * draw(st.sampled_from([0.0, 1e-6, 1.0, 10.0]))
    return y, z, torch.from_numpy(a)


@given(problems())
def test_three_routes_to_phi_agree(problem):
    y, z, a = problem
    parts = LocalCorrelation(sp.csr_array(y.astype(np.uint8)), sp.csr_array(z.astype(int)), CPU)
    m = torch.from_numpy(y) * a
    norm = m.norm(dim=0)
    unit = torch.where(norm >= 1e-12, m / norm.clamp_min(1e-300), 0.0)
    c = unit.T @ unit
    dense_z = torch.from_numpy(z).double()
    local_first = (m * (dense_z @ c)).sum(dim=1)
    matrix_first = ((m @ c) * dense_z).sum(dim=1)
    fast = parts.enhancement(a)
    torch.testing.assert_close(fast, local_first, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(fast, matrix_first, rtol=1e-10, atol=1e-12)


@given(problems())
def test_listed_products_and_blocks_agree(problem):
    y, z, a = problem
    labels, around = sp.csr_array(y.astype(np.uint8)), sp.csr_array(z.astype(int))
    listed = LocalCorrelation(labels, around, CPU, listed=True)
    blocks = LocalCorrelation(labels, around, CPU, listed=False)
    v = torch.arange(1, y.shape[1] + 1, dtype=torch.float64)
    for one, other in (
        (listed.enhancement(a), blocks.enhancement(a)),
        (reference.enhancement(listed, a, v), reference.enhancement(blocks, a, v)),
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@given(problems())
def test_cosines_are_cosines(problem):
    y, z, a = problem
    parts = LocalCorrelation(sp.csr_array(y.astype(np.uint8)), sp.csr_array(z.astype(int)), CPU)
    c = parts.cosines(parts.masked(a))
    assert torch.equal(c, c.T)
    assert set(c.diagonal().tolist()) <= {0.0, 1.0}
    assert float(c.min()) >= 0.0
    assert float(c.max()) <= 1.0 + 1e-12


@given(
    n=st.integers(1, 60),
    q=st.integers(1, 5),
    seed=st.integers(0, 2**31),
    labels_at_once=st.integers(1, 5),
)
def test_mutual_information_by_its_definition(n, q, seed, labels_at_once):
    u = torch.from_numpy(np.random.default_rng(seed).random((n, q)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correlation, "JOINT", 25 * q * labels_at_once)
        information, entropy = mutual_information(u)
    bins = (u * 5).floor().clamp_max(4).to(int).numpy()
    for j in range(q):
        share = np.bincount(bins[:, j], minlength=5) / n
        np.testing.assert_allclose(
            float(entropy[j]), -(share[share > 0] * np.log(share[share > 0])).sum(), atol=1e-12
        )
        for k in range(q):
            joint = np.zeros((5, 5))
            np.add.at(joint, (bins[:, j], bins[:, k]), 1 / n)
            other = np.bincount(bins[:, k], minlength=5) / n
            product = np.outer(share, other)
            seen = joint > 0
            expected = (joint[seen] * np.log(joint[seen] / product[seen])).sum()
            np.testing.assert_allclose(float(information[j, k]), expected, atol=1e-12)


@pytest.mark.parametrize("spread", [0.0, 0.35, 1.0])
def test_mutual_information_of_more_labels_than_are_multiplied_at_once(spread):
    n, q = 30, 150  # up to 600 columns of bins, which are multiplied in stripes of 256
    u = spread * torch.from_numpy(np.random.default_rng(1).random((n, q)))
    information, _ = mutual_information(u)
    bins = (u * 5).floor().numpy()
    joint = (bins[:, :, None] == np.arange(5)).astype(float)
    share = np.einsum("ija,ikc->jkac", joint, joint) / n
    product = np.einsum("ja,kc->jkac", joint.mean(0), joint.mean(0))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(share > 0, share * np.log(share / product), 0.0)
    np.testing.assert_allclose(information.numpy(), terms.sum(axis=(2, 3)), atol=1e-12)


@given(
    n=st.integers(1, 50),
    q=st.integers(1, 4),
    seed=st.integers(0, 2**31),
    shift=st.sampled_from([0.0, 1e6]),
)
def test_column_moments(n, q, seed, shift):
    a = np.random.default_rng(seed).random((n, q)) + shift
    mean, deviation = column_moments(torch.from_numpy(a))
    np.testing.assert_allclose(mean, a.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(deviation, a.std(axis=0), rtol=1e-6, atol=1e-9)


weight_vectors = st.lists(st.integers(0, 1000), min_size=1, max_size=40)


@given(weight_vectors, st.sampled_from([1.0, 2.0, 100.0]))
def test_quantised_probabilities_keep_their_promises(numbers, pressure):
    w = torch.tensor(numbers, dtype=torch.float64)
    p = quantised(w, pressure)
    assert abs(float(p.sum()) - 1) < 1e-12
    assert float(p.min()) >= (1 - 1e-12) / (len(w) * pressure)
    assert float(p.max() / p.min()) <= pressure * (1 + 1e-12)
    order = w.argsort()
    assert bool((p[order].diff() >= -1e-15).all())  # a larger weight is never less likely
    torch.testing.assert_close(quantised(w.flip(0), pressure), p.flip(0), rtol=1e-12, atol=0)


@given(weight_vectors, st.integers(1, 8), st.integers(-5, 5))
def test_scale_and_shift_of_weights_do_not_matter(numbers, scale, shift):
    w = torch.tensor(numbers, dtype=torch.float64)
    index, moved = quantisation_index(w), quantisation_index(scale * w + shift)
    assert float((index - moved).abs().max()) <= 1.0  # rounding at the edge of a bin
    assert torch.equal(index == 0, moved == 0)
