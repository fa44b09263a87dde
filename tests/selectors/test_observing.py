"""What selectors take in: forms of input, gathering of batches, devices, memory."""

from __future__ import annotations

import pickle
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

import d2ace
from d2ace._util import staging
from d2ace.models.base import ModelOutput

NAMES = list(d2ace.SELECTORS)


def same_state(one: d2ace.Selector, other: d2ace.Selector) -> bool:
    a, b = one.state_dict()["memory"], other.state_dict()["memory"]
    return all(torch.equal(a[key], b[key]) for key in a.keys() | b.keys())


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**31), capacity=st.integers(1, 13))
def test_gathering_batches_changes_nothing(name, seed, capacity):
    rng = np.random.default_rng(seed)
    y = (rng.random((12, 3)) < 0.5).astype(int)
    one, other = d2ace.make_selector(name, y), d2ace.make_selector(name, y)
    with mock.patch.object(staging, "PAIRS", 3 * capacity):
        one.observe([0], logits=torch.zeros(1, 3))
    other.observe([0], logits=torch.zeros(1, 3))
    for _ in range(rng.integers(1, 12)):
        rows = rng.permutation(12)[: rng.integers(0, 13)]
        values = torch.from_numpy(rng.normal(size=(len(rows), 3))).float()
        kind = "logits" if rng.random() < 0.7 else "probs"
        values = values if kind == "logits" else values.sigmoid()
        one.observe(rows, **{kind: values})
        other.observe(rows.tolist(), **{kind: values})
        other.flush()  # one batch at a time
    assert same_state(one, other)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "dihcl"])
@given(seed=st.integers(0, 2**31))
def test_the_order_of_batches_within_an_epoch_does_not_matter(name, seed):
    rng = np.random.default_rng(seed)
    y = (rng.random((20, 3)) < 0.5).astype(int)
    one, other = (d2ace.make_selector(name, y, dtype=torch.float64) for _ in range(2))
    for _ in range(3):
        batches = np.array_split(rng.permutation(20), 4)
        probs = [rng.random((len(rows), 3)) for rows in batches]
        for k in range(4):
            one.observe(batches[k], probs=probs[k])
        for k in rng.permutation(4):
            other.observe(batches[k], probs=probs[k])
    assert same_state(one, other)


def test_any_form_of_index_and_predictions():
    y = np.eye(6, 3, dtype=int)
    values = np.random.default_rng(0).random((2, 3)).astype(np.float32)
    twin = d2ace.D2ACE(y)
    twin.observe([1, 4], probs=torch.from_numpy(values))
    readonly = values.copy()
    readonly.flags.writeable = False
    for index in ((1, 4), np.array([1, 4], np.int32), torch.tensor([1, 4]), range(1, 5, 3)):
        for probs in (values, values.tolist(), readonly, torch.from_numpy(values).requires_grad_()):
            selector = d2ace.D2ACE(y)
            selector.observe(index, probs=probs)
            assert same_state(selector, twin)
    selector.observe([], logits=np.empty((0, 3)))  # an empty batch is no fault
    assert same_state(selector, twin)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_widened_first(dtype):
    y = np.eye(6, 3, dtype=int)
    logits = torch.linspace(-9, 9, 18, dtype=dtype).view(6, 3)
    one, other = d2ace.D2ACE(y), d2ace.D2ACE(y)
    one.observe(range(6), logits=logits)
    other.observe(range(6), logits=logits.float())
    assert same_state(one, other)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 0], r"labels must be a matrix .* got shape \(2,\)"),
        (np.zeros((0, 3)), r"labels must be a matrix .* got shape \(0, 3\)"),
        ([[0, 2]], r"labels\[0, 1\] is 2, but labels must be 0 or 1"),
        ([[0, -1]], r"labels\[0, 1\] is -1"),
        ([[0.5, 1]], r"labels\[0, 0\] is 0.5"),
        ([[np.nan, 1]], r"labels\[0, 0\] is nan"),
        (sp.csr_array([[0, 3]]), r"labels\[0, 1\] is 3"),
        (torch.tensor([[0, 7]]).to_sparse(), r"labels\[0, 1\] is 7"),
        ([["a", "b"]], "labels must hold real numbers"),
        (np.ma.masked_array([[0, 1]], [[0, 1]]), r"masked cells in labels"),
        (
            pd.DataFrame({"sun": [1, 0], "sea": [0, 1]}, dtype="Int64"),
            r"got dtype object; of a DataFrame, pass \.to_numpy\(dtype=float\)",
        ),
    ],
)
def test_bad_labels_are_named(labels, message):
    with pytest.raises((ValueError, TypeError), match=message):
        d2ace.Random(labels)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros((3, 2)), r"features must be a matrix with one row per row of labels \(2\)"),
        (np.zeros(2), r"got shape \(2,\)"),
        ([[np.nan], [1.0]], "features hold NaN or infinite values"),
        (sp.csr_array([[np.inf], [1.0]]), "features hold NaN or infinite values"),
        ([["a"], ["b"]], "features must be numbers"),
        (np.ma.masked_array([[0.0], [1.0]], [[0], [1]]), "masked cells in features"),
        (
            pd.DataFrame({"x": [0.5, 1.0], "y": 2.0}, dtype="Float64"),
            r"got dtype object; of a DataFrame, pass \.to_numpy\(dtype=float\)",
        ),
    ],
)
def test_bad_features_are_named(features, message):
    with pytest.raises((ValueError, TypeError), match=message):
        d2ace.D2ACE([[1], [0]], features)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (ModelOutput(torch.zeros(2, 1)), r"got ModelOutput; pass output\.logits\."),
        ({"logits": torch.zeros(2, 1)}, r"got dict; pass output\['logits'\]\."),
    ],
)
def test_a_whole_output_of_a_model_is_reported(output, message):
    selector = d2ace.D2ACE([[1], [0]])
    with pytest.raises(TypeError, match=rf"^logits must be a tensor or array \[b, q\], {message}"):
        selector.observe([0, 1], logits=output)
    with pytest.raises(TypeError, match=r"^probs must be .* pass the probabilities, or logits="):
        selector.observe([0, 1], probs=output)


def test_a_row_that_is_not_there_is_reported_with_the_remedy():
    selector = d2ace.D2ACE([[1], [0]])
    with pytest.raises(ValueError, match=r"holds 9, .* 0 to 1; .* places in the labels"):
        selector.observe([0, 9], logits=torch.zeros(2, 1))


def test_weights_without_a_name_are_reported():
    class Bare(d2ace.Selector):
        name = "bare"

        def instance_weights(self):
            return torch.ones(self.n)

    selector = Bare([[1], [0]], warmup=0)
    with pytest.raises(TypeError, match=r"Bare\.instance_weights must return .* got Tensor;"):
        list(selector)
    with pytest.raises(TypeError, match=r"Bare\.instance_weights must return"):
        _ = selector.weights


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("d2ace", {"trade_off": 1.5}),
        ("d2ace", {"flip_smoothing": 0.0}),
        ("d2ace", {"window": 1}),
        ("d2ace", {"neighbors": -1}),
        ("d2ace", {"mix": (0.5, 2.0)}),
        ("d2ace", {"mix": 0.5}),
        ("d2ace", {"mix": (0.1, 0.2, 0.3)}),
        ("d2ace", {"mix_epochs": (70, 30)}),
        ("d2ace", {"mix_schedule": "cosine"}),
        ("d2ace", {"label_weight": "sqrt"}),
        ("d2ace", {"correlation": "global"}),
        ("d2ace", {"weight_transform": "log"}),
        ("d2ace", {"hardness_loss": "mse"}),
        ("d2ace", {"pressure": 0.5}),
        ("ml_unc", {"mi_norm": "max"}),
        ("ml_unc", {"trade_off": -0.1}),
        ("recent", {"window": 63}),
        ("active", {"ddof": 2}),
        ("active", {"pressure": float("nan")}),
        ("dihcl", {"gamma": 1.1}),
        ("dihcl", {"metric": "margin"}),
        ("dihcl", {"gamma_on": "both"}),
        ("dihcl", {"scale": "max"}),
        ("dihcl", {"pace": "epochs"}),
        ("balance", {"target": 1.5}),
        ("balance", {"mode": "masks"}),
        ("balance", {"cap": 0.0}),
        ("hard_imb", {"neighbors": 2.5}),
        ("random", {"replacement": "no"}),
        ("active", {"importance_weighting": "False"}),
        ("d2ace", {"include_self": None}),
        ("d2ace", {"scale_schedule": 2}),
    ],
)
def test_options_out_of_range_are_named(name, options):
    (option,) = options
    with pytest.raises((ValueError, TypeError), match=option) as refusal:
        d2ace.make_selector(name, [[1, 0], [0, 1]], **options)
    assert str(refusal.value).endswith(".")


def test_names_and_options_get_a_suggestion():
    with pytest.raises(ValueError, match=r"no selector 'd2acee' \(did you mean 'd2ace'\?\)"):
        d2ace.make_selector("d2acee", [[1]])
    with pytest.raises(TypeError, match=r"no option 'presure' \(did you mean 'pressure'\?\)"):
        d2ace.make_selector("d2ace", [[1]], presure=3)
    with pytest.raises(TypeError, match=r"D2ACE has no option 'neighbours' \(did you mean 'neigh"):
        d2ace.D2ACE([[1]], neighbours=3)
    assert isinstance(d2ace.make_selector("hard_imb", [[1]]), d2ace.HardImb)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (d2ace.D2ACE, "write 'd2ace'"),
        (d2ace.Selector, "call a class of your own directly"),
        (3, "write one of random, active"),
    ],
)
def test_a_selector_that_is_not_named_by_text_is_refused(given, remedy):
    with pytest.raises(TypeError, match=r"^A selector is found by its name, got .*\.$") as refusal:
        d2ace.make_selector(given, [[1]])
    assert remedy in str(refusal.value)


class TestAccelerator:
    """An accelerator that is really the host: what is noted there is reported at the epoch."""

    def staged(self, *, skip_invalid: bool = False):
        selector = d2ace.D2ACE(np.eye(6, 3, dtype=int), dtype=torch.float64, warmup=0)
        stage = staging.Staging(
            (6, 3),
            torch.device("cpu"),
            torch.float64,
            sinks=(staging.Sink(selector.update, selector.memory.last_known),),
            gather=True,
            skip_invalid=skip_invalid,
        )
        stage.on_host = False
        return selector, stage

    def test_an_invalid_prediction_is_passed_over_and_reported_later(self):
        selector, stage = self.staged()
        values = torch.zeros(2, 3, dtype=torch.float64)
        values[1, 2] = torch.nan
        stage.add(torch.tensor([2, 5]), values, are_logits=True)
        with pytest.raises(ValueError, match="instance 5, label 2"):
            stage.raise_fault()
        stage.raise_fault()  # once is enough
        assert torch.isfinite(selector.memory.latest).all()

    def test_skipping_does_not_report(self):
        selector, stage = self.staged(skip_invalid=True)
        stage.add(torch.tensor([2, 5]), torch.full((2, 3), torch.nan), are_logits=True)
        stage.raise_fault()
        assert torch.isfinite(selector.memory.latest).all()

    @pytest.mark.parametrize("skip", [False, True])
    def test_raw_scores_as_probabilities_are_reported_even_so(self, skip):
        selector, stage = self.staged(skip_invalid=skip)
        probs = torch.full((2, 3), 0.5)
        probs[0, 0], probs[1, 2] = torch.nan if skip else 0.5, -3.5
        stage.add(torch.tensor([2, 5]), probs, are_logits=False)
        with pytest.raises(ValueError, match=r"probs held a value for instance 5, label 2, but a"):
            stage.raise_fault()
        assert torch.isfinite(selector.memory.latest).all()

    @pytest.mark.parametrize(
        ("rows", "message"),
        [([1, 9], "index held 9, but rows run from 0 to 5"), ([4, 4], "index held row 4 twice")],
    )
    def test_faulty_rows_are_reported_later(self, rows, message):
        _, stage = self.staged()
        stage.add(torch.tensor(rows), torch.zeros(2, 3), are_logits=True)
        with pytest.raises(ValueError, match=message):
            stage.raise_fault()


class TestForeignArrays:
    def test_sparse_labels_are_copied(self):
        matrix = sp.csr_matrix((np.array([1, 0, 1], np.int8), [2, 1, 0], [0, 2, 3]), shape=(2, 3))
        for part in (matrix.data, matrix.indices, matrix.indptr):
            part.flags.writeable = False  # as joblib hands them to its workers
        selector = d2ace.Active(matrix)
        assert selector.labels.toarray().tolist() == [[0, 0, 1], [1, 0, 0]]
        assert matrix.data.tolist() == [1, 0, 1]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.bool, torch.int8])
    def test_labels_of_any_dtype(self, dtype):
        labels = torch.eye(4, 3)
        assert np.array_equal(d2ace.Random(labels.to(dtype)).labels.toarray(), labels)
        half = labels.numpy().astype(np.float16)
        assert np.array_equal(d2ace.Random(half).labels.toarray(), labels)

    @pytest.mark.parametrize(
        ("arguments", "options", "message"),
        [
            (([[0, 1], [1]],), {}, "labels must be an array"),
            (([[1], [0]], [[1.0], [1.0, 2.0]]), {}, "features must be an array"),
            (([[1], [0]], torch.zeros(2, 1, dtype=torch.complex64)), {}, "real numbers"),
            (([[1], [0]],), {"neighbors": [[1], [0, 1]]}, "neighbors must be an array"),
            (([[1], [0]],), {"device": "gpu"}, "device must"),
        ],
    )
    def test_arrays_that_numpy_cannot_read_are_named(self, arguments, options, message):
        with pytest.raises((ValueError, TypeError), match=message):
            d2ace.D2ACE(*arguments, **options)


def test_weights_that_were_read_stay_as_they_were():
    selector = d2ace.DIHCL(np.eye(6, 3, dtype=int), warmup=0)
    before = selector.weights["hardness"]
    kept = before.clone()
    for value in (0.2, 0.9):
        selector.observe(range(6), probs=np.full((6, 3), value))
    assert torch.equal(before, kept)
    assert not torch.equal(selector.weights["hardness"], kept)


def test_rounding_beyond_a_probability_is_forgiven():
    one, other = d2ace.D2ACE([[1], [0]]), d2ace.D2ACE([[1], [0]])
    one.observe([0, 1], probs=torch.tensor([[1.0000001], [-1e-8]]))
    other.observe([0, 1], probs=torch.tensor([[1.0], [0.0]]))
    assert same_state(one, other)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_only_what_is_no_number_is_skipped(bad):
    selector = d2ace.D2ACE(np.eye(6, 3, dtype=int), on_invalid="skip")
    probs = torch.full((2, 3), 0.25)
    probs[0, 1] = bad
    selector.observe([2, 5], probs=probs)
    before = selector.state_dict()["memory"]["latest"]
    assert before[2, 0].tolist() == [0.25, 0.5, 0.25]
    probs[1, 2] = 2.5
    with pytest.raises(ValueError, match=r"probs holds 2.5 for instance 5, label 2, .* as logits"):
        selector.observe([2, 5], probs=probs)
    assert torch.equal(selector.state_dict()["memory"]["latest"], before)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize(
    ("name", "options"), [("balance", {}), ("d2ace", {"importance_weighting": True})]
)
def test_loss_weights_follow_an_index_on_an_accelerator(name, options, device):
    y = np.eye(6, 3, dtype=int)
    selector = d2ace.make_selector(name, y, batch_size=4, warmup=0, device=device, **options)
    next(iter(selector))
    for size in (4, 0):  # "meta" has no values: nothing may be read back
        index = torch.empty(size, dtype=torch.int64, device="meta")
        assert selector.loss_weight(index).device.type == "meta"
    assert selector.loss_weight([0, 1]).device.type == "cpu"


def test_loss_weights_are_on_the_device_of_the_state():
    selector = d2ace.Balance(np.eye(6, 3, dtype=int), batch_size=3, warmup=0, device="meta")
    next(iter(selector))
    index = torch.zeros(2, dtype=torch.int64, device="meta")
    assert selector.loss_weight(index).device.type == "meta"


def test_sparse_labels_stay_sparse():
    n, q = 4_000, 500
    y = sp.csr_array((np.random.default_rng(0).random((n, q)) < 0.01).astype(float))
    selector = d2ace.D2ACE(y, warmup=0)
    assert sp.issparse(selector.labels)
    selector.observe(range(64), logits=torch.zeros(64, q))
    _ = selector.probabilities
    state = sum(v.numel() * v.element_size() for v in selector.memory.buffers())
    assert state <= 24.1 * n * q
    # less than one byte a pair for everything about Y and Z, beside the state and its workspace
    assert len(pickle.dumps(selector)) < state + 5.5 * n * q


def test_the_buffer_is_small():
    assert staging.PAIRS * 4 <= 2**20


def test_a_batch_is_fetched_at_once_where_the_dataset_can():
    class Batched(list):
        def __getitems__(self, indices):
            return [f"{len(indices)} at once: {self[index]}" for index in indices]

    assert d2ace.IndexedDataset(Batched("abc")).__getitems__([2, 0]) == [
        (2, "2 at once: c"),
        (0, "2 at once: a"),
    ]
    assert d2ace.IndexedDataset(["a", "b"]).__getitems__([1]) == [(1, "b")]


def test_an_item_of_any_kind_is_indexed():
    assert d2ace.IndexedDataset([("x", "y")])[0] == (0, "x", "y")
    assert d2ace.IndexedDataset([{"a": 1}])[0] == (0, {"a": 1})
    assert len(d2ace.IndexedDataset([1, 2, 3])) == 3
    with pytest.raises(TypeError, match="__getitem__ and __len__"):
        d2ace.IndexedDataset(iter([1]))


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_training_step_may_observe(name):
    y = np.random.default_rng(0).integers(0, 2, size=(32, 3))
    x = torch.randn(32, 3, generator=torch.Generator().manual_seed(0))
    one, other = (d2ace.make_selector(name, y, batch_size=8, insights=True) for _ in range(2))

    def step(rows):
        logits = 2.0 * x[rows]
        other.observe(rows, logits=logits)
        return other.loss(logits, x[rows].sigmoid(), rows)

    compiled = torch.compile(step, backend="eager")
    for batch in map(torch.tensor, one.peek()):
        one.observe(batch, logits=2.0 * x[batch])
        assert float(compiled(batch)) > 0
    assert same_state(one, other)
    assert torch.equal(one.insights.suspicion(), other.insights.suspicion())


@pytest.mark.parametrize("state", ["full", "compact"])
@pytest.mark.parametrize("name", NAMES)
def test_looking_at_it_in_inference_mode_does_no_harm(name, state):
    y = np.random.default_rng(0).integers(0, 2, size=(32, 3))
    logits = torch.randn(2, 32, 3, generator=torch.Generator().manual_seed(0))
    one, other = (d2ace.make_selector(name, y, batch_size=8, state=state) for _ in range(2))
    for values in logits:
        with torch.inference_mode():
            assert other.memory is other.memory
            if name == "d2ace":
                assert other.metric("hardness").shape == other.metric("uncertainty").shape
            if name == "ml_unc":
                assert other.uncertainty_matrix().shape == (32, 3)
        for selector in (one, other):
            selector.observe(torch.arange(32), logits=values)
            selector.flush()
    assert same_state(one, other)
    assert all(torch.equal(value, other.weights[key]) for key, value in one.weights.items())
