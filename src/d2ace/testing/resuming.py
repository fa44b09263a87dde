"""Checks of saving and resuming: the same batches, wherever training stopped."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from d2ace.selectors import IndexedDataset, Selector

from .problem import (
    BATCH,
    COMMON,
    WARMUP,
    N,
    Q,
    check,
    features,
    labels,
    loaded,
    logits_of,
    make,
    refusal,
    reload,
    same,
    steps,
    train,
    trained,
    validation_loss,
)


def _resumed(cls: type[Selector], options: dict[str, Any], stop: int, times: int = 1) -> None:
    """Stop after ``stop`` batches of a selective epoch, ``times`` times in a row; compare."""
    undisturbed = trained(cls, options)
    expected = train(undisturbed, 2)
    selector = trained(cls, options)
    drawn: list[list[int]] = []
    for _ in range(times):
        remaining = stop
        for batch in steps(selector):
            drawn.append(batch)
            remaining -= 1
            if remaining == 0:
                break
        # leaving the loop skips the last observation of `_steps`: make it before saving
        if remaining == 0:
            selector.observe(drawn[-1], logits=logits_of(WARMUP + 2)[drawn[-1]])
        state = reload(selector.state_dict())
        selector = make(cls, options, seed=5)
        selector.load_state_dict(state)
    inside = selector.epoch == WARMUP + 2
    assert inside == (len(drawn) < len(expected[0])), f"resumed in epoch {selector.epoch}"
    if inside:
        drawn += list(steps(selector))
    assert drawn == expected[0], "the interrupted epoch differs"
    assert train(selector, 1)[0] == expected[1], "the epoch after it differs"
    assert same(selector.state_dict(), undisturbed.state_dict()), "the final state differs"


@check
def the_name_is_not_empty(cls: type[Selector], **options: Any) -> None:
    assert cls.name, "it has no name, which identifies its saved states"


@check
def resumes_after_the_first_batch(cls: type[Selector], **options: Any) -> None:
    _resumed(cls, options, 1)


@check
def resumes_in_the_middle(cls: type[Selector], **options: Any) -> None:
    _resumed(cls, options, 3)


@check
def resumes_before_the_last_batch(cls: type[Selector], **options: Any) -> None:
    _resumed(cls, options, -(-N // BATCH) - 1)


@check
def resumes_at_the_end_of_an_epoch(cls: type[Selector], **options: Any) -> None:
    _resumed(cls, options, -(-N // BATCH))


@check
def resumes_twice_in_one_epoch(cls: type[Selector], **options: Any) -> None:
    _resumed(cls, options, 2, times=2)


@check
def resumes_without_observations(cls: type[Selector], **options: Any) -> None:
    selector, twin = make(cls, options), make(cls, options)
    batches = iter(selector)
    for _ in range(2):
        next(batches)
    with warnings.catch_warnings(record=True) as said:  # workers may have drawn them ahead
        warnings.simplefilter("always")
        twin.load_state_dict(reload(selector.state_dict()))
    assert any("no batch was observed" in str(one.message) for one in said), "nothing was said"
    assert list(twin) == list(batches)


@check
def resumes_before_the_first_observation_of_an_epoch(cls: type[Selector], **options: Any) -> None:
    selector, twin = trained(cls, options), make(cls, options)
    if selector.predictions == "full_pass":
        return
    epoch = list(copy.deepcopy(selector))
    batches = iter(selector)
    for _ in range(2):  # a loader's workers may have drawn them ahead
        next(batches)
    twin.load_state_dict(reload(selector.state_dict()))
    assert list(twin) == epoch


@check
def loading_and_saving_keeps_the_place(cls: type[Selector], **options: Any) -> None:
    selector = make(cls, options)
    for stop in (None, 0, 2, 3):  # before the first epoch, after it, and within later ones
        if stop is not None:
            train(selector, 1)
        for number, batch in enumerate(selector if stop else ()):
            selector.loss_weight(batch)
            selector.observe(batch, logits=logits_of(1)[batch])
            if number == stop:
                break
        state = reload(selector.state_dict())
        twin = make(cls, options)
        for _ in range(2):
            twin.load_state_dict(state)
            assert same(twin.state_dict(), state), f"saved again, it is another state: {stop}"
            assert twin.epoch == selector.epoch, f"epoch {twin.epoch}, not {selector.epoch}"
        selector.end_epoch()


@check
def resumes_what_a_loader_drew_ahead(cls: type[Selector], **options: Any) -> None:
    expected = loaded(cls, options, 0)
    selector = make(cls, options)
    data = IndexedDataset(TensorDataset(features()))
    seen: list[list[int]] = []
    while len(seen) < len(expected):
        loader = DataLoader(data, batch_sampler=selector, num_workers=2)
        epoch = selector.epoch
        for index, _ in loader:  # two workers: the selector is five batches ahead
            selector.loss_weight(index)
            selector.observe(index, logits=logits_of(epoch)[index])
            seen.append(index.tolist())
            if len(seen) == 3 * len(selector) // 2:
                break
        else:
            selector.validated(validation_loss(epoch))
        state = reload(selector.state_dict())
        selector = make(cls, options)
        selector.load_state_dict(state)
    assert seen == expected, "batches drawn ahead were lost or repeated"


@check
def resumes_batches_observed_in_parts(cls: type[Selector], **options: Any) -> None:
    expected = loaded(cls, options, 0)
    selector = make(cls, options)
    data = IndexedDataset(TensorDataset(features()))
    for _ in range(2):  # gradients accumulated over halves of a batch, with batches drawn ahead
        loader = DataLoader(data, batch_sampler=selector, num_workers=2)
        for number, (index, _) in enumerate(loader):
            for part in index.split(-(-BATCH // 2)):
                selector.observe(part, logits=logits_of(1)[part])
            if number == 1:
                break
        state = reload(selector.state_dict())
        selector = make(cls, options)
        selector.load_state_dict(state)
    assert list(selector) == expected[4 : len(selector)], "batches drawn ahead were lost"


@check
def resumes_with_the_same_loss_weights(cls: type[Selector], **options: Any) -> None:
    selector = trained(cls, options)
    selector.validated(9.9)  # reports from here must not change weights of this epoch ...
    batches = iter(selector)
    first = next(batches)
    selector.observe(first, logits=logits_of(80)[first])
    selector.validated(0.1)
    twin = make(cls, options)
    twin.load_state_dict(reload(selector.state_dict()))
    epochs: list[Iterable[list[int]]] = [batches, selector]
    for epoch, ours in enumerate(epochs, start=1):  # ... but those of the next
        for batch, same_batch in zip(ours, twin, strict=True):
            weights = [one.loss_weight(batch) for one in (selector, twin)]
            assert batch == same_batch, f"epoch {epoch}"
            assert same(*weights), f"epoch {epoch}: the weights of {batch} differ"
            for one in (selector, twin):
                one.observe(batch, logits=logits_of(80)[batch])


@check
def any_kind_of_learning_rate_is_saved(cls: type[Selector], **options: Any) -> None:
    states = []
    rates: tuple[Any, ...] = (0.25, np.float64(0.25), torch.tensor(0.25))
    for rate in rates:
        selector = make(cls, options)
        selector.learning_rate = rate
        train(selector, WARMUP + 1)
        states.append(reload(selector.state_dict()))
    assert same(states[0], states[1]), "a NumPy rate leads to another state"
    assert same(states[0], states[2]), "a tensor as rate leads to another state"


@check
def a_saved_state_stays_as_it_was(cls: type[Selector], **options: Any) -> None:
    selector = trained(cls, options)
    state = selector.state_dict()
    kept = reload(state)
    train(selector, 1)
    assert same(state, kept), "going on changed a state saved before"


@check
def a_foreign_state_is_refused(cls: type[Selector], **options: Any) -> None:
    selector = trained(cls, options)
    before = selector.state_dict()
    other = make(cls, options, batch_size=BATCH + 1).state_dict()
    broken = dict(before, shape=[N + 1, Q])
    flipped = cls(1 - labels(), features(), **{**COMMON, **options}).state_dict()
    for state in (other, broken, flipped, {"weights": 1}):
        refusal(lambda s=state: selector.load_state_dict(s))  # type: ignore[misc]
        assert same(selector.state_dict(), before), "a refused state changed the selector"


@check
def a_copy_goes_its_own_way(cls: type[Selector], **options: Any) -> None:
    selector = trained(cls, options)
    rows = list(range(N))
    selector.observe(rows, logits=logits_of(70))  # not yet processed, where batches are gathered
    twins = [copy.copy(selector), copy.deepcopy(selector)]
    before = selector.state_dict()
    for twin in twins:
        assert same(twin.state_dict(), before), "a copy has another state"
        train(twin, 2)
        assert same(selector.state_dict(), before), "training a copy changed the original"
    copied = [list(steps(copy.deepcopy(selector))), list(steps(selector))]
    assert copied[0] == copied[1], "a copy draws other batches"


@check
def insights_resume_with_the_selector(cls: type[Selector], **options: Any) -> None:
    _resumed(cls, {**options, "insights": True}, 3)
