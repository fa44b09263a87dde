"""Checks of batches, epochs, probabilities and weights."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from d2ace.selectors import IndexedDataset, Selector

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
    loaded,
    logits_of,
    make,
    steps,
    train,
    trained,
    validation_loss,
)


@check
def length_is_the_number_of_batches(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options)
    for number in range(1, EPOCHS + 1):
        batches, rows = len(selector), selector.rows_per_epoch
        (epoch,) = train(selector, 1)
        assert len(epoch) == batches == -(-rows // BATCH), f"epoch {number}: {len(epoch)}"
        assert sum(map(len, epoch)) == rows, f"epoch {number}: {rows} rows were announced"


@check
def batches_are_lists_of_row_numbers(cls: type[Selector], **options: Any) -> None:
    for epoch in train(make(cls, options), WARMUP + 2):
        for batch in epoch:
            assert isinstance(batch, list), f"a batch is a {type(batch).__name__}"
            assert all(type(row) is int and 0 <= row < N for row in batch), f"batch {batch}"


@check
def all_batches_but_the_last_are_full(cls: type[Selector], **options: Any) -> None:
    for epoch in train(make(cls, options), WARMUP + 2):
        sizes = [len(batch) for batch in epoch]
        assert set(sizes[:-1]) <= {BATCH}, f"sizes {sizes}"
        assert 1 <= sizes[-1] <= BATCH, f"sizes {sizes}"


@check
def warmup_takes_every_row_once(cls: type[Selector], **options: Any) -> None:
    for epoch in train(make(cls, options), WARMUP):
        assert sorted(row for batch in epoch for row in batch) == list(range(N))


@check
def warmup_may_be_left_out(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options, warmup=0)  # no prediction is known, then those of some rows
    for epoch in range(1, 4):
        p = selector.probabilities
        assert bool((p > 0).all()), f"epoch {epoch}: smallest {float(p.min())}"
        train(selector, 1)


@check
def a_batch_may_hold_one_row(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options, batch_size=N - 1)
    for _ in range(WARMUP + 2):
        batches = len(selector)
        (epoch,) = train(selector, 1)
        assert len(epoch) == batches <= 2, f"{len(epoch)} batches"


@check
def no_row_twice_in_a_batch(cls: type[Selector], **options: Any) -> None:
    for epoch in train(make(cls, options, replacement=False), EPOCHS):
        for batch in epoch:
            assert len(set(batch)) == len(batch), f"batch {batch}"


@check
def a_batch_size_beyond_n_gives_one_batch(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options, batch_size=N + 1, replacement=False)
    for epoch in train(selector, WARMUP + 2):
        assert len(epoch) == len(selector) == 1
        assert len(set(epoch[0])) == len(epoch[0]) <= N, f"batch {epoch[0]}"


@check
def same_seed_same_batches(cls: type[Selector], **options: Any) -> None:
    first, second = (train(make(cls, options, seed=7), EPOCHS) for _ in range(2))
    assert first == second, "two selectors with one seed drew different batches"


@check
def seeds_differ_and_zero_is_one_of_them(cls: type[Selector], **options: Any) -> None:
    if options.get("preset") == "reference":  # the authors' code may not shuffle at all
        return
    zero, again, one = (train(make(cls, options, seed=s), EPOCHS) for s in (0, 0, 1))
    assert zero == again, "seed 0 is not reproducible"
    assert zero != one, "seeds 0 and 1 draw the same batches"


@check
def global_random_state_is_left_alone(cls: type[Selector], **options: Any) -> None:
    def state() -> tuple[Any, ...]:
        return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002

    before = state()
    train(make(cls, options), WARMUP + 2)
    assert state() == before, "drawing or observing used a global random generator"


@check
def loader_workers_do_not_matter(cls: type[Selector], **options: Any) -> None:
    assert loaded(cls, options, 0) == loaded(cls, options, 2), "0 and 2 workers differ"


@check
def the_flat_view_gives_the_same_batches(cls: type[Selector], **options: Any) -> None:
    selector, twin = make(cls, options), make(cls, options)
    loader = DataLoader(
        IndexedDataset(TensorDataset(features())), sampler=twin.sampler, batch_size=BATCH
    )
    for epoch in range(1, WARMUP + 3):
        assert len(twin.sampler) == twin.rows_per_epoch
        logits, flat = logits_of(epoch), []
        for index, _ in loader:
            twin.loss_weight(index)
            twin.observe(index, logits=logits[index])
            flat.append(index.tolist())
        twin.validated(validation_loss(epoch))
        assert flat == list(steps(selector)), f"epoch {epoch}"


@check
def the_epoch_counts_from_one(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options)
    assert selector.epoch == 1
    for number in range(1, 4):
        for _ in steps(selector):
            assert selector.epoch == number, f"{selector.epoch} while drawing epoch {number}"
        assert selector.epoch == number + 1


@check
def set_epoch_moves_and_repeats(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options)
    first = list(selector)
    list(selector)
    selector.validated(validation_loss(1))
    selector.set_epoch(1)
    assert selector.epoch == 1
    assert list(selector) == first, "epoch 1 drawn again differs"
    selector.set_epoch(selector.epoch)
    assert selector.epoch == 2, "setting the epoch one is in moved it"


@check
def a_framework_may_count_from_zero(cls: type[Selector], **options: Any) -> None:
    selector, twin = make(cls, options), make(cls, options)
    for number in range(WARMUP + 2):
        selector.set_epoch(number)
        assert list(steps(selector)) == list(steps(twin)), f"its epoch {number}"


@check
def epochs_beyond_the_last_go_on(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options)
    train(selector, EPOCHS + 2)
    assert selector.epoch == EPOCHS + 3
    assert torch.isfinite(selector.probabilities).all()


@check
def probabilities_are_positive_and_sum_to_one(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options)
    for epoch in range(1, EPOCHS + 2):
        p = selector.probabilities
        assert p.shape == (N,) and p.dtype == torch.float64, f"{tuple(p.shape)} {p.dtype}"
        assert bool((p > 0).all()), f"epoch {epoch}: smallest {float(p.min())}"
        assert abs(float(p.sum()) - 1.0) < 1e-9, f"epoch {epoch}: sum {float(p.sum())}"
        if epoch <= WARMUP:
            assert torch.allclose(p, torch.full_like(p, 1 / N)), "warm-up is not uniform"
        train(selector, 1)


@check
def weights_are_finite_rows(cls: type[Selector], **options: Any) -> None:
    selector = trained(cls, options)
    for kind, size in ((selector.weights, N), (selector.label_weights, Q)):
        for name, value in kind.items():
            assert value.shape == (size,), f"{name} has shape {tuple(value.shape)}"
            assert bool(torch.isfinite(value).all()), f"{name} is not finite"


@check
def reading_changes_nothing(cls: type[Selector], **options: Any) -> None:
    selector, twin = make(cls, options), make(cls, options)
    for epoch in range(WARMUP + 2):
        for number, (batch, same) in enumerate(zip(steps(selector), steps(twin), strict=True)):
            assert batch == same, f"epoch {epoch + 1}"
            selector.learning_rate = twin.learning_rate = 1.0 / (1 + number)
            _ = twin.probabilities, twin.weights, twin.label_weights, repr(twin), twin.peek()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # before its first observation it says so
                twin.state_dict()


@check
def row_order_does_not_matter(cls: type[Selector], **options: Any) -> None:
    if cls.draws_by_position:
        return
    order = torch.randperm(N, generator=torch.Generator().manual_seed(3))
    _assert_equivariant(cls, options, rows=order, columns=torch.arange(Q))


@check
def label_order_does_not_matter(cls: type[Selector], **options: Any) -> None:
    if cls.draws_by_position:
        return
    order = torch.arange(Q).roll(1)  # so that no label stays where it was
    _assert_equivariant(cls, options, rows=torch.arange(N), columns=order)


def _assert_equivariant(
    cls: type[Selector], options: dict[str, Any], *, rows: Tensor, columns: Tensor
) -> None:
    """The same training with rows and labels in another order."""
    selector = make(cls, options)
    moved = cls(labels()[rows][:, columns], features()[rows], **{**COMMON, **options})
    place = torch.empty_like(rows)
    place[rows] = torch.arange(N)  # where an original row stands now
    for epoch in range(1, WARMUP + 1):
        logits = logits_of(epoch)
        list(moved)
        for batch in selector:
            selector.observe(batch, logits=logits[batch])
            moved.observe(place[batch], logits=logits[batch][:, columns])
    p, q = selector.probabilities, moved.probabilities
    assert torch.allclose(q, p[rows], rtol=1e-6, atol=0), (
        f"off by {float((q - p[rows]).abs().max())}"
    )
