"""Mistakes that used to pass, or to fail late or in riddles, are named at once."""

from __future__ import annotations

import copy
import io
import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.utils.data import DataLoader, TensorDataset

import d2ace
from d2ace._util.errors import ContractError

N, Q, BATCH = 30, 3, 8
RNG = np.random.default_rng(5)
Y = (RNG.random((N, Q)) < 0.4).astype(np.uint8)
X = RNG.normal(size=(N, 4))


@pytest.fixture(autouse=True)
def _same_numbers():
    """Each test draws the same ones, whichever came before it."""
    global RNG
    RNG = np.random.default_rng(1)


def make(cls=d2ace.D2ACE, features=X, **options):
    return cls(Y, features, **{"batch_size": BATCH, "epochs": 9, "warmup": 2, **options})


def epoch(selector):
    """One epoch of an ordinary loop, whose predictions depend on the rows alone."""
    for batch in selector:
        selector.loss_weight(batch)
        selector.observe(batch, logits=np.random.default_rng(batch).normal(size=(len(batch), Q)))
        yield batch


def train(selector, epochs=1):
    for _ in range(epochs):
        list(epoch(selector))
        selector.validated(0.4 + 0.1 * selector.epoch)
    return selector


class TestStates:
    """A state of a selector made otherwise, or a damaged one, is refused and changes nothing."""

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"epochs": 10}, r"epochs 9, but this one has 10; .* \(later epochs need no change"),
            ({"warmup": 3}, "warmup 2, but this one has 3"),
            ({"neighbors": 4}, "neighbors 6, but this one has 4"),
            ({"neighbors": np.zeros((N, 1), int)}, "neighbors 6, but this one has 'array with"),
            ({"pressure": 8.0}, "pressure 100.0, but this one has 8.0"),
            ({"mix": (0.5, 0.5)}, r"mix \[0.7, 0.3\], but this one has \[0.5, 0.5\]"),
            ({"importance_weighting": True}, "importance_weighting False, but this one has True"),
            ({"features": X[::-1].copy()}, "saved with other features"),
            ({"features": None}, "saved with other features"),
        ],
        ids=str,
    )
    def test_one_of_other_options_or_features_is_refused(self, options, words):
        state, other = train(make()).state_dict(), make(**options)
        with pytest.raises(ValueError, match=words):
            other.load_state_dict(state)
        assert other.epoch == 1

    @pytest.mark.parametrize(
        ("saved", "other"),
        [
            (np.float32(0.5), np.float32(0.25)),
            (torch.ones(3), torch.zeros(3)),
            (np.ones(3), np.ones(4)),
            ({"a": [1]}, {"a": [2]}),
        ],
        ids=str,
    )
    def test_options_of_ones_own_count_whatever_their_type(self, saved, other):
        class Own(d2ace.Selector):
            def __init__(self, labels, features=None, *, own, **common):
                super().__init__(labels, features, **common)
                self.own = own

        state = make(Own, own=saved).state_dict()
        make(Own, own=copy.deepcopy(saved)).load_state_dict(state)
        with pytest.raises(ValueError, match="saved with own "):
            make(Own, own=other).load_state_dict(state)

    def test_features_computed_anew_are_the_same_features(self):
        again = X * (1 + 1e-9 * RNG.normal(size=X.shape))
        make(features=again).load_state_dict(train(make()).state_dict())
        make(features=sp.csr_array(X)).load_state_dict(train(make()).state_dict())

    def test_another_seed_device_or_patience_may_go_on(self):
        state = train(make()).state_dict()
        twin = make(seed=4, on_invalid="skip", device="cpu")
        twin.load_state_dict(state)
        assert list(twin) == list(train(make()))

    @pytest.mark.parametrize("cls", list(d2ace.SELECTORS.values()), ids=lambda cls: cls.name)
    def test_a_broken_one_changes_nothing(self, cls):
        source = train(make(cls), 3)
        states = _broken(source.state_dict())
        selector = train(make(cls), 4)
        before = selector.state_dict()
        for name, state in states.items():
            with pytest.raises((ValueError, TypeError)) as refusal:
                selector.load_state_dict(state)
            words = str(refusal.value)
            assert words.endswith("."), f"{name}: {words!r}"
            assert "\n" not in words, f"{name}: {words!r}"
            assert _equal(selector.state_dict(), before), f"{name} changed the selector"
        assert list(selector) == list(train(make(cls), 4)), "a refused state changed the batches"

    def test_flipped_bytes_of_a_saved_file_are_noticed(self):
        """torch.load does not look at the checksums of the file itself."""
        selector = train(make(), 3)
        file = io.BytesIO()
        torch.save(selector.state_dict(), file)
        content = bytearray(file.getvalue())
        latest = selector.memory.latest.numpy().tobytes()
        place = content.index(latest[:64])
        for offset in (0, 101, len(latest) - 1):
            damaged = content.copy()
            damaged[place + offset] ^= 0x10
            state = torch.load(io.BytesIO(bytes(damaged)), weights_only=True)
            with pytest.raises(ValueError, match="The state is damaged: its checksum"):
                make().load_state_dict(state)

    def test_a_method_that_refuses_its_extra_values_changes_nothing(self):
        class Own(d2ace.Random):
            name = "own"

            def extra_state(self):
                return {"mood": 1.0}

            def load_extra_state(self, state):
                raise ValueError("no such mood.")

        selector = train(make(Own))
        before = selector.state_dict()
        other = train(make(Own), 3).state_dict()
        with pytest.raises(ValueError, match="no such mood"):
            selector.load_state_dict(other)
        assert _equal(selector.state_dict(), before)


def _broken(state):
    """States that lack parts, have unknown ones, or parts of another kind."""
    broken = {f"without {key}": {k: v for k, v in state.items() if k != key} for key in state}
    broken["with more"] = {**state, "surprise": 1}
    for key in state:
        if key != "device":  # where the state was kept is a wish
            broken[f"{key} is a word"] = {**state, key: "word"}
            broken[f"{key} is None"] = {**state, key: None}
    del broken["drawn is None"]  # damaged only where something was drawn
    broken["no progress"] = {**state, "progress": {}}
    for key, value in itertools.product(state["progress"], ("word", -3, 99, None)):
        broken[f"progress {key} is {value}"] = {
            **state,
            "progress": {**state["progress"], key: value},
        }
    for key in state["memory"]:
        broken[f"memory without {key}"] = {
            **state,
            "memory": {k: v for k, v in state["memory"].items() if k != key},
        }
    return {**broken, "nothing": None, "a list": [], "a newer format": {**state, "format": 9}}


def _equal(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


class TestObserving:
    def test_a_batch_without_row_numbers_is_reported_about_indexed_datasets(self):
        loader = DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=4)
        x, _ = next(iter(loader))
        for call in (lambda: make().observe(x, logits=torch.zeros(4, Q)), lambda: _weigh(x)):
            with pytest.raises(
                TypeError, match=r"float64 of shape \(4, 4\); wrap .*IndexedDataset"
            ):
                call()

    def test_predictions_must_be_named(self):
        with pytest.raises(TypeError, match=r"name them: observe\(index, logits=\.\.\.\)"):
            make().observe([0, 1], torch.zeros(2, Q))

    @pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
    def test_eight_bit_floats_are_predictions_too(self, dtype):
        logits = torch.tensor([[1.0, -2.0, 0.5], [0.0, 4.0, -0.25]])  # exact in eight bits
        one, other = make(), make()
        one.observe([0, 1], logits=logits.to(dtype))
        other.observe([0, 1], logits=logits)
        assert _equal(one.state_dict(), other.state_dict())
        one.observe([2, 3], probs=torch.tensor([[1.0, 0.0, 0.5]] * 2).to(dtype))

    def test_long_doubles_are_predictions_too(self):
        logits = RNG.normal(size=(2, Q)).astype(np.longdouble)
        one, other = make(), make()
        one.observe([0, 1], logits=logits)
        other.observe([0, 1], logits=logits.astype(np.float64))
        assert _equal(one.state_dict(), other.state_dict())
        assert _equal(make(features=X.astype(np.longdouble)).state_dict(), make().state_dict())

    def test_objects_are_refused_in_words(self):
        logits = np.zeros((2, Q)).astype(object)
        with pytest.raises(TypeError, match=r"logits must be floating point, got dtype object; of"):
            make().observe([0, 1], logits=logits)
        with pytest.raises(TypeError, match="logits must be floating point, got dtype <U1"):
            make().observe([0, 1], logits=np.full((2, Q), "a"))

    def test_predictions_without_values_are_refused(self):
        logits = torch.zeros(2, Q, device="meta")
        for selector in (make(), make(device="cpu")):
            with pytest.raises(TypeError, match="meta device, so they have no values"):
                selector.observe([0, 1], logits=logits)
            assert not selector.has_observed

    def test_a_device_that_is_not_there_is_refused_at_once(self):
        absent = next(kind for kind in ("cuda", "xpu") if not getattr(torch, kind).is_available())
        with pytest.raises(
            ValueError, match=rf"device is '{absent}', which this torch does not have"
        ):
            make(device=absent)


def _weigh(x):
    selector = make(importance_weighting=True, warmup=0)
    next(iter(selector))
    return selector.loss_weight(x)


class TestEpochsUsedUp:
    """Whoever iterates for another reason than training is told what that costs."""

    def test_measuring_accuracy_between_epochs_is_noticed(self):
        selector = train(make())
        list(selector)  # epoch 2, for accuracy
        with pytest.warns(UserWarning, match=r"Epoch 2 of D2ACE was drawn, .* selector\.peek\(\)"):
            train(selector)
        train(selector)  # said once

    def test_a_look_at_the_first_batch_is_noticed(self):
        selector = make()
        loader = DataLoader(TensorDataset(torch.zeros(N)), batch_sampler=selector)
        next(iter(loader))
        with pytest.warns(UserWarning, match=r"or go back with selector\.set_epoch\(1\)"):
            train(selector)

    def test_a_look_that_is_taken_back_is_not(self):
        selector = make()
        next(iter(selector))
        selector.set_epoch(1)
        assert list(selector) == list(make())

    def test_a_second_loop_inside_the_first_is_noticed(self):
        selector = make()
        for number, batch in enumerate(selector):
            selector.observe(batch, logits=np.zeros((len(batch), Q)))
            if number == 1:
                with pytest.warns(
                    UserWarning, match=r"begins epoch 2, so the first one ends after"
                ):
                    list(selector)
        assert number == 1

    def test_peek_shows_what_comes_and_uses_up_nothing(self):
        selector = train(make(), 3)
        coming = selector.peek()
        drawn = []
        for number, batch in enumerate(selector):
            assert selector.peek() == coming[number + 1 :]
            drawn.append(batch)
            selector.observe(batch, logits=np.zeros((len(batch), Q)))
        assert drawn == coming

    @pytest.mark.parametrize("workers", [0, 2])
    def test_the_epoch_inside_a_loop_does_not_depend_on_workers(self, workers):
        selector = make()
        data = d2ace.IndexedDataset(TensorDataset(torch.zeros(N)))
        loader = DataLoader(data, batch_sampler=selector, num_workers=workers)
        seen = []
        for _ in range(3):
            for index, _ in loader:
                selector.observe(index, logits=torch.zeros(len(index), Q))
                seen.append(selector.epoch)
            seen.append(selector.epoch)
        assert seen == [e for e in (1, 2, 3) for e in [e] * (len(selector) - 1) + [e + 1, e + 1]]

    def test_loops_that_leave_an_epoch_get_no_warning(self):
        selector = make()
        for _ in range(3):
            for batch in selector:
                selector.observe(batch, logits=np.zeros((len(batch), Q)))
                break
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            train(selector)


class TestCounting:
    """A restored selector knows its place, whatever a framework counts."""

    def restored(self, epochs=3):
        selector = make()
        selector.load_state_dict(train(make(), epochs).state_dict())
        return selector

    @pytest.mark.parametrize("first", [0, 1, 3, 4, 50])
    def test_its_first_count_is_where_we_are(self, first):
        selector, plain = self.restored(), train(make(), 3)
        for count in range(first, first + 3):
            selector.set_epoch(count)
            assert list(epoch(selector)) == list(epoch(plain))
            assert selector.epoch == plain.epoch

    def test_a_count_before_the_first_epoch_is_refused(self):
        selector = self.restored()
        selector.set_epoch(50)
        train(selector)
        with pytest.raises(ValueError, match="set_epoch got 3, which lies before epoch 1"):
            selector.set_epoch(3)
        assert selector.epoch == 5

    def test_naming_the_next_epoch_closes_one_whose_last_batch_was_not_observed(self):
        """Found by the state machine: the copy went back to the last batch."""
        selector = make(d2ace.Random)
        for number, batch in enumerate(selector, 1):
            if number < len(selector):
                selector.observe(batch, logits=np.zeros((len(batch), Q)))
        selector.set_epoch(2)
        assert copy.deepcopy(selector).epoch == 2

    def test_a_count_named_in_the_middle_of_an_epoch_does_not_name_the_next_one(self):
        """Found by the state machine: with a state loaded in between, epoch 2 became 3."""
        selector = make(d2ace.Random)
        batches = iter(selector)
        for number, batch in enumerate(itertools.islice(batches, len(selector)), 1):
            selector.observe(batch, logits=np.zeros((len(batch), Q)))
            if number == 1:
                selector.set_epoch(1)
        selector.load_state_dict(selector.state_dict())
        batch = next(iter(selector))
        selector.observe(batch, logits=np.zeros((len(batch), Q)))
        selector.set_epoch(2)
        assert selector.epoch == 2

    def test_an_epoch_named_again_in_its_middle_is_over_once_it_is_drawn(self):
        """Found by the state machine: the copy began the epoch again."""
        selector = make(d2ace.Random)
        batches = iter(selector)
        next(batches)  # never observed, so that the batches drawn tell how far training came
        selector.set_epoch(1)
        for batch in itertools.islice(batches, len(selector) - 1):
            selector.observe(batch, logits=np.zeros((len(batch), Q)))
        with pytest.warns(UserWarning, match="not observed in the order drawn"):
            assert selector.state_dict()["progress"]["epoch"] == 2

    def test_a_reset_selector_begins_anew(self):
        for cls in d2ace.SELECTORS.values():
            selector = train(make(cls), 4)
            selector.reset()
            assert not selector.has_observed
            assert _equal(selector.state_dict(), make(cls).state_dict())
            fresh = make(cls)
            for _ in range(4):
                assert list(epoch(selector)) == list(epoch(fresh))
                selector.validated(0.5)
                fresh.validated(0.5)


class TestExtremeFeatures:
    """Neighbours are found whatever the features' unit."""

    @pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e-160, 1e150, 1e155, 1e300])
    @pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
    def test_units_do_not_matter(self, scale, form):
        ordinary, extreme = make(features=form(X)), make(features=form(X * scale))
        for _ in range(4):
            assert list(epoch(ordinary)) == list(epoch(extreme))

    def test_rows_that_vanish_beside_others_are_named(self):
        features = X.copy()
        features[7] *= 1e200
        with pytest.raises(ValueError, match=r"values up to .*e\+200, beside which those of row 0"):
            make(features=features)


class TestOwnMethods:
    """What a method of one's own must return is said, with its name."""

    @pytest.mark.parametrize(
        ("hook", "returned", "words"),
        [
            ("instance_weights", {"m": torch.ones(3)}, rf"tensors \[{N}\].* got \[3\] for 'm'"),
            ("instance_weights", {"m": np.ones(N)}, "got ndarray for 'm'"),
            ("distribution", torch.ones(N), "that sum to 1, got shape"),
            ("make_memory", {"m": torch.ones(N)}, "must return a Memory, got dict"),
            ("pair_weights", torch.ones(3), r"must return a tensor \[8, 1\] or \[8, 3\]"),
        ],
    )
    def test_a_wrong_return_is_named(self, hook, returned, words):
        class Own(d2ace.Active):
            pass

        setattr(Own, hook, lambda self, *arguments: returned)
        with pytest.raises(ContractError, match=words):
            train(make(Own, importance_weighting=True), 4)
