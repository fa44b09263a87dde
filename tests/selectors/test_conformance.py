"""All methods keep every promise of the public kit, and the kit catches those who do not."""

from __future__ import annotations

import pytest
import torch

import d2ace
from d2ace import testing
from d2ace.selectors import Memory


def test_no_method_skips_the_kit():
    assert testing.SETTINGS.keys() == d2ace.SELECTORS.keys()
    assert len(testing.CHECKS) >= 25
    assert len({check.__name__ for check in testing.CHECKS}) == len(testing.CHECKS)


@pytest.mark.parametrize(
    ("name", "preset"),
    [(name, preset) for name, method in d2ace.SELECTORS.items() for preset in method.presets],
)
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_promise(check, name, preset):
    check(d2ace.SELECTORS[name], **testing.SETTINGS[name], preset=preset)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("random", {"rows_per_epoch": (1.0, 0.5)}),
        ("active", {"draw": "epoch", "rows_per_epoch": (1.0, 0.4)}),
        ("hard_imb", {"draw": "once", "rows_per_epoch": (1.0, 0.5)}),
        ("d2ace", {"draw": "epoch"}),
    ],
)
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_promise_of_epochs_drawn_as_a_whole(check, name, options):
    check(d2ace.SELECTORS[name], **testing.SETTINGS[name], **options)


@pytest.mark.parametrize(
    "options",
    [
        {"rows": "d2ace", **testing.SETTINGS["d2ace"]},
        pytest.param({"rows": "dihcl", "start": 3}, marks=pytest.mark.slow),
        pytest.param({"rows": "balance"}, marks=pytest.mark.slow),
        pytest.param({"rows": "info_batch"}, marks=pytest.mark.slow),
    ],
    ids=lambda options: options["rows"],
)
@pytest.mark.parametrize("check", testing.CHECKS, ids=lambda check: check.__name__)
def test_promise_of_trim_over_other_methods(check, options):
    check(d2ace.Trim, **options)


class Loss(d2ace.Selector):
    """A sound selector in a few lines: prefers what was predicted most confidently."""

    name = "confident"

    def make_memory(self):
        return Memory(score=torch.zeros(self.n, dtype=torch.float64))

    def update(self, index, probs):
        self.memory.score[index] = (probs - 0.5).abs().sum(dim=1).double()

    def instance_weights(self):
        return {"confidence": self.memory.score}


class Forgetful(Loss):
    """Keeps its scores where state_dict does not see them."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.score = torch.zeros(self.n, dtype=torch.float64)

    def update(self, index, probs):
        self.score[index] = probs.sum(dim=1).double()

    def instance_weights(self):
        return {"score": self.score}


class Global(Loss):
    """Draws from the global generator."""

    def instance_weights(self):
        return {"score": torch.rand(self.n)}


class Peeking(Loss):
    """Changes by being read."""

    def instance_weights(self):
        self.memory.score += torch.arange(self.n)
        return {"score": self.memory.score.clone()}


class Broadcasting(Loss):
    """Touches rows that were not observed."""

    def update(self, index, probs):
        self.memory.score += probs.sum().double()


class Zero(Loss):
    """Gives a row no chance at all."""

    def distribution(self, epoch):
        p = torch.full((self.n,), 1 / (self.n - 1), dtype=torch.float64)
        p[0] = 0
        return p


class Waiting(Loss):
    """Reads predictions back to the host in every batch."""

    def update(self, index, probs):
        if probs.max().item() > 0.5:
            super().update(index, probs)


class ByPosition(Loss):
    """Depends on where a row stands in the table."""

    def instance_weights(self):
        return {"score": self.memory.score * torch.arange(self.n)}


class FirstLabel(Loss):
    """Looks at the label in the first column alone."""

    def update(self, index, probs):
        self.memory.score[index] = probs[:, 0].double()


class Hasty(Loss):
    """Reads the learning rate, but lets batches be gathered under whichever comes last."""

    merges_updates = True

    def update(self, index, probs):
        super().update(index, probs * float(self.learning_rate))


class Mean(Loss):
    """Divides by visits, of which there are none before the first."""

    def make_memory(self):
        return Memory(score=torch.zeros(self.n).double(), visits=torch.zeros(self.n).double())

    def update(self, index, probs):
        self.memory.score[index] += probs.sum(dim=1).double()
        self.memory.visits[index] += 1

    def instance_weights(self):
        return {"mean": self.memory.score / self.memory.visits}


class Squeezing(Loss):
    """Takes a batch of one row for a row."""

    def update(self, index, probs):
        self.memory.score[index] = probs.squeeze().sum(dim=1).double()


class Nameless(Loss):
    """Did not say what it is called."""

    name = ""


class Noisy(Loss):
    """Adds random numbers of its own to the rows' scores, by seed and epoch."""

    def distribution(self, epoch):
        own = torch.Generator().manual_seed(1000 * self.seed + epoch)
        score = self.memory.score + torch.rand(self.n, generator=own, dtype=torch.float64)
        return torch.softmax(score, dim=0)


class NoisyAndSays(Noisy):
    draws_by_position = True


@pytest.mark.parametrize("sound", [Loss, pytest.param(NoisyAndSays, marks=pytest.mark.slow)])
def test_a_sound_selector_passes(sound):
    testing.check_selector(sound)


@pytest.mark.parametrize("wrong", ["d2ace", Loss(torch.ones(4, 2)), torch.nn.Linear])
def test_a_class_that_is_no_selector_is_refused(wrong):
    with pytest.raises(TypeError, match=r"needs a subclass of d2ace\.Selector, got .* the class"):
        testing.check_selector(wrong)


@pytest.mark.parametrize(
    "options",
    [{"replacement": True}, {"on_invalid": "skip"}, {"importance_weighting": True}],
    ids=str,
)
@pytest.mark.parametrize("name", ["d2ace", pytest.param("hard_imb", marks=pytest.mark.slow)])
def test_common_options_keep_the_promises(name, options):
    testing.check_selector(d2ace.SELECTORS[name], **testing.SETTINGS[name], **options)


@pytest.mark.parametrize(
    "option", [{"batch_size": 16}, {"warmup": 1}, {"epochs": 5}, {"predictions": "full_pass"}]
)
def test_options_that_the_checks_decide_are_refused(option):
    (name,) = option
    with pytest.raises(ValueError, match=rf"check_selector got {name}=.* leave it out\.$"):
        testing.check_selector(Loss, **option)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Forgetful, ""),
        (Global, ""),
        (Peeking, ""),
        (Broadcasting, ""),
        (Zero, ""),
        (Waiting, ""),
        (ByPosition, ""),
        (FirstLabel, "label_order_does_not_matter"),
        (Hasty, "reading_changes_nothing"),
        (Mean, "warmup_may_be_left_out"),
        (Squeezing, "a_batch_may_hold_one_row"),
        (Nameless, "the_name_is_not_empty"),
        (Noisy, "row_order_does_not_matter"),
    ],
)
def test_a_broken_selector_is_caught(broken, check):
    with pytest.raises(AssertionError, match=f"{broken.__name__} fails {check}"):
        testing.check_selector(broken)
