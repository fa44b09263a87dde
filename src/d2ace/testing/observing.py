"""Checks of what a selector accepts, refuses and remembers."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from d2ace.insights import Insights
from d2ace.selectors import Selector

from .problem import (
    BATCH,
    COMMON,
    EPOCHS,
    WARMUP,
    N,
    Q,
    check,
    features,
    labels,
    logits_of,
    make,
    make_or_refused,
    refusal,
    reload,
    same,
    steps,
    train,
    trained,
    validation_loss,
)


@check
def logits_and_probs_say_the_same(cls: type[Selector], **options: Any) -> None:
    selector, twin = make(cls, options), make(cls, options)
    for epoch in range(1, WARMUP + 1):
        logits = logits_of(epoch)
        for batch, _ in zip(selector, twin, strict=True):
            selector.observe(batch, logits=logits[batch])
            twin.observe(np.array(batch), probs=torch.sigmoid(logits[batch]).numpy())
    assert torch.equal(selector.probabilities, twin.probabilities)


@check
def half_precision_and_graphs_are_welcome(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options)
    logits = logits_of(1).requires_grad_()
    for batch in selector:
        selector.observe(torch.tensor(batch), logits=(2 * logits)[batch].bfloat16())
    assert not any(value.requires_grad for value in selector.state_dict()["memory"].values())


@check
def inference_mode_and_autocast_leave_no_trace(cls: type[Selector], **options: Any) -> None:
    selector, twin = make(cls, options), make(cls, options)
    for epoch in range(1, WARMUP + 3):
        logits = logits_of(epoch)
        with torch.inference_mode(epoch % 2 == 1), torch.autocast("cpu", torch.bfloat16):
            for batch, same_batch in zip(selector, steps(twin), strict=True):
                assert batch == same_batch, f"epoch {epoch}"
                selector.loss_weight(batch)
                selector.observe(batch, logits=logits[batch])
                selector.state_dict()
            selector.validated(validation_loss(epoch))
    assert torch.equal(selector.probabilities, twin.probabilities)


@check
def rows_not_observed_do_not_change(cls: type[Selector], **options: Any) -> None:
    selector = trained(cls, options)
    before = selector.state_dict()["memory"]
    rows = torch.tensor([3, 11, 20])
    selector.observe(rows, logits=logits_of(50)[rows])
    after = selector.state_dict()["memory"]
    others = torch.ones(N, dtype=torch.bool)
    others[rows] = False
    for name, value in before.items():
        if value.ndim and value.shape[0] == N:
            assert torch.equal(value[others], after[name][others]), f"{name} changed elsewhere"


@check
def a_refused_observation_changes_nothing(cls: type[Selector], **options: Any) -> None:
    selector = trained(cls, options, replacement=False, on_invalid="error")
    before = selector.state_dict()
    good = torch.full((2, Q), 0.25)
    poor = good.clone()
    poor[1, 2] = float("nan")
    refused: list[tuple[Any, dict[str, Any], tuple[str, ...]]] = [
        ([0, 1], {}, ("logits", "probs", "neither")),
        ([0, 1], {"logits": good, "probs": good}, ("logits", "probs", "both")),
        ([0], {"logits": good}, ("logits", "[1, 5]", "(2, 5)")),
        ([0, 1], {"probs": good[:, :-1]}, ("probs", "(2, 4)")),
        ([0, N], {"logits": good}, ("index", str(N), str(N - 1))),
        ([-1, 0], {"logits": good}, ("index", "-1")),
        ([4, 4], {"logits": good}, ("index", "4", "twice")),
        ([0.0, 1.0], {"logits": good}, ("index", "float")),
        ([[0, 1]], {"logits": good}, ("index", "(1, 2)")),
        ([0, 1], {"probs": good + 1}, ("probs", "1.25")),
        ([0, 1], {"logits": good.to(torch.int64)}, ("logits", "int64")),
        ([5, 6], {"logits": poor}, ("instance 6", "label 2", "nan")),
        ([5, 6], {"probs": poor}, ("instance 6", "label 2", "nan")),
        ([5, 6], {"logits": good / 0}, ("instance 5", "label 0", "inf")),
    ]
    for index, given, words in refused:
        message = refusal(lambda i=index, g=given: selector.observe(i, **g))  # type: ignore[misc]
        for word in words:
            assert word in message, f"{message!r} does not mention {word!r}"
        assert same(selector.state_dict(), before), f"the state changed by {words}"


@check
def options_out_of_range_are_named(cls: type[Selector], **options: Any) -> None:
    wrong: list[dict[str, Any]] = [
        {"batch_size": 0},
        {"batch_size": 2.5},
        {"epochs": 0},
        {"warmup": -1},
        {"seed": -1},
        {"preset": "papers"},
        {"on_invalid": "ignore"},
        {"predictions": "some"},
        {"dtype": torch.float16},
    ]
    for option in wrong:
        (name,) = option
        message = refusal(lambda o=option: make(cls, {**options, **o}))  # type: ignore[misc]
        assert name in message, f"{message!r} does not name {name}"


@check
def labels_must_be_zeros_and_ones(cls: type[Selector], **options: Any) -> None:
    wrong = labels().to(torch.int64)
    wrong[4, 3] = 2
    message = refusal(lambda: cls(wrong, features(), **options))
    assert "labels[4, 3]" in message and "2" in message, message
    message = refusal(lambda: cls(labels(), features()[:-1], **options))
    assert "features" in message and str(N) in message, message


@check
def invalid_pairs_can_be_skipped(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options, on_invalid="skip")
    for epoch in range(1, WARMUP + 2):
        logits = logits_of(epoch)
        logits[::3, 1] = float("nan")
        logits[1::5, 0] = float("inf")
        for batch in selector:
            selector.observe(batch, logits=logits[batch])
        selector.validated(validation_loss(epoch))
    before = selector.state_dict()
    message = refusal(lambda: selector.observe([0, 1], probs=torch.full((2, Q), 3.5)))
    assert "probs" in message and "3.5" in message, message
    assert same(selector.state_dict(), before), "raw scores given as probabilities were skipped"
    p = selector.probabilities
    assert bool(torch.isfinite(p).all()) and bool((p > 0).all())
    for name, value in selector.state_dict()["memory"].items():
        assert not value.is_floating_point() or bool(torch.isfinite(value).all()), name


@check
def observing_never_waits_for_the_device(cls: type[Selector], **options: Any) -> None:
    # tensors on "meta" have no values: reading one back raises an error
    # (repeats are looked for on the host)
    selector = make(cls, options, replacement=False, device="meta")
    list(selector)
    for _ in range(2):
        index = torch.empty(BATCH, dtype=torch.int64, device="meta")
        selector.observe(index, logits=torch.empty(BATCH, Q, device="meta"))
    devices = {value.device.type for value in selector.memory.state_dict().values()}
    assert devices <= {"meta"}, f"state is on {devices}, predictions are on meta"


@check
def the_device_option_decides_where_state_is(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options, device="meta")  # predictions come from the host all the same
    list(selector)
    selector.observe([0, 1], logits=logits_of(1)[:2])
    devices = {value.device.type for value in selector.memory.state_dict().values()}
    assert devices <= {"meta"}, f"state is on {devices}, the option says meta"


@check
def sparse_and_dense_labels_are_the_same(cls: type[Selector], **options: Any) -> None:
    dense, names = labels(), ["torch", "numpy", "scipy", "torch sparse"]
    forms = [dense, dense.numpy(), sp.csc_matrix(dense.numpy()), dense.to_sparse()]
    drawn = [train(cls(form, features(), **{**COMMON, **options}), WARMUP + 2) for form in forms]
    for name, epochs in zip(names, drawn, strict=True):
        assert epochs == drawn[0], f"{name} labels draw other batches"


@check
def replacement_draws_and_observes_repeats(cls: type[Selector], **options: Any) -> None:
    selector = make_or_refused(cls, options, replacement=True)
    if selector is None:
        return
    train(selector, EPOCHS)
    selector.observe([1, 2, 1], logits=logits_of(60)[[1, 2, 1]])
    assert bool((selector.probabilities > 0).all())


@check
def loss_weights_fit_the_batch(cls: type[Selector], **options: Any) -> None:
    selector = make_or_refused(cls, options, importance_weighting=True)
    if selector is None:
        return
    for epoch in range(1, WARMUP + 3):
        p = selector.probabilities
        for batch in steps(selector):
            weight = selector.loss_weight(batch)
            if weight is None:
                continue
            assert epoch > WARMUP or bool((weight == 1).all()), "weighted during warm-up"
            assert torch.broadcast_shapes(weight.shape, (len(batch), Q)) == (len(batch), Q)
            if weight.shape == (len(batch), 1):
                expected = 1 / (N * p[batch].unsqueeze(1))
                assert torch.allclose(weight.double(), expected), "not 1 / (n P)"


@check
def loss_weights_follow_the_index(cls: type[Selector], **options: Any) -> None:
    # "meta" stands for an accelerator: a resumed run weighs its first batch before it observes one
    weighs = make_or_refused(cls, options, importance_weighting=True) is not None
    more = {"importance_weighting": True} if weighs else {}
    saved = trained(cls, options, **more)
    next(iter(saved))
    selector = make(cls, options, **more)
    selector.load_state_dict(saved.state_dict())
    batch = next(iter(selector))
    weight = selector.loss_weight(torch.empty(len(batch), dtype=torch.int64, device="meta"))
    assert weight is None or weight.device.type == "meta", f"the weights are on {weight.device}"


@check
def the_loss_is_the_weighted_cross_entropy(cls: type[Selector], **options: Any) -> None:
    selector, twin = make(cls, options), make(cls, options)
    for epoch in range(1, WARMUP + 3):
        logits, targets = logits_of(epoch), labels().double()
        for batch, again in zip(selector, steps(twin), strict=True):
            assert batch == again, f"epoch {epoch}: asking for the loss changed the batches"
            pairs = F.binary_cross_entropy_with_logits(
                logits[batch], targets[batch], reduction="none"
            )
            weight = twin.loss_weight(batch)
            expected = pairs.mean() if weight is None else (pairs * weight).mean()
            loss = selector.loss(logits[batch], targets[batch], batch)
            assert torch.allclose(loss, expected, rtol=1e-12), f"{float(loss)}, not {expected}"
            selector.observe(batch, logits=logits[batch])
        selector.validated(validation_loss(epoch))


@check
def validation_losses_may_be_told(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options)
    for epoch in range(1, WARMUP + 3):  # before, within and after an epoch; as anything but a float
        selector.validated(torch.tensor(validation_loss(epoch)))
        for batch in steps(selector):
            selector.validated(np.float32(validation_loss(epoch)))
            assert batch
    again = make(cls, options)
    again.load_state_dict(reload(selector.state_dict()))
    assert same(again.state_dict(), selector.state_dict())


@check
def insights_see_every_observation(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options, insights=True)
    alone = Insights(labels())
    for epoch in range(1, WARMUP + 3):
        logits = logits_of(epoch)
        for batch in selector:
            selector.loss_weight(batch)
            selector.observe(batch, logits=logits[batch])
            alone.observe(batch, logits=logits[batch].float())
        selector.validated(validation_loss(epoch))
    assert selector.insights is not None, "there are none"
    found, expected = selector.insights.suspicion(), alone.suspicion()
    assert torch.allclose(found, expected, atol=1e-4, equal_nan=True), "they know something else"


@check
def insights_change_no_batch(cls: type[Selector], **options: Any) -> None:
    drawn = [train(make(cls, options, insights=kept), WARMUP + 2) for kept in (True, False)]
    assert drawn[0] == drawn[1]
