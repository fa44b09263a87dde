"""Whatever a loop does with a selector, the batches that come are those of a plain loop.

A state machine does everything a training loop can do: draw, draw ahead as loader workers do,
observe (whole batches, parts, late, not at all), validate, leave an epoch, save, load, copy, look
ahead, let a framework count. A second selector is only ever iterated and told the same, without
interruption.
"""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import d2ace
from d2ace.testing import SETTINGS
from d2ace.testing.problem import same

N, Q, BATCH, BATCHES = 23, 3, 4, 6
RNG = np.random.default_rng(3)
Y = (RNG.random((N, Q)) < 0.4).astype(np.uint8)
X = RNG.normal(size=(N, 3))
MADE = {name: (name, options) for name, options in SETTINGS.items()}
MADE["trim over d2ace"] = ("trim", {"rows": "d2ace", **SETTINGS["d2ace"]})


def make(made: str, preset: str, seed: int = 0) -> d2ace.Selector:
    common = {"batch_size": BATCH, "warmup": 1, "epochs": 7, "preset": preset, "seed": seed}
    name, options = MADE[made]
    return d2ace.make_selector(name, Y, X, **{**common, **options})


def through_a_file(state: dict) -> dict:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class Loop(RuleBasedStateMachine):
    """One training loop; ``plain`` is the same loop as nobody ever interrupts it."""

    @initialize(
        name=st.sampled_from(list(MADE)),
        preset=st.sampled_from(["paper", "paper", "reference"]),
        zero_based=st.booleans(),
    )
    def begin(self, name, preset, zero_based):
        self.quiet = warnings.catch_warnings()
        self.quiet.__enter__()
        warnings.simplefilter("ignore")  # what is told is tested elsewhere
        self.made = (name, preset)
        self.selector, self.plain = make(*self.made), make(*self.made)
        self.shift = 1 if zero_based else 0  # from the framework's count to epochs
        if zero_based:
            self.selector.set_epoch(0)
        self.batches, self.steps = None, 0
        self.epoch, self.resuming, self.told, self.restarts = 0, False, False, False
        self.start_at(BATCHES, expected=[[]] * BATCHES)

    def teardown(self):
        if hasattr(self, "quiet"):
            self.quiet.__exit__(None, None, None)

    def start_at(self, position, expected=None):
        """Nothing is drawn yet from ``position`` on, and nothing was observed."""
        self.expected = self.expected if expected is None else expected
        self.first = self.position = position
        self.observed, self.unobserved, self.late, self.forgot = [], [], [], False

    # What the selector may know of the place ------------------------------------------------

    @property
    def in_turn(self) -> bool:
        drawn = [row for batch in self.expected[self.first : self.position] for row in batch]
        return self.observed == drawn[: len(self.observed)]

    @property
    def counts(self) -> bool:
        return self.in_turn and (self.told or bool(self.observed))

    @property
    def trained(self) -> int:
        """Batches that count as trained: the observed ones or, if nobody observes, the drawn."""
        if not self.counts:
            return self.position
        ends = np.cumsum([len(batch) for batch in self.expected[self.first : self.position]])
        return self.first + int((ends <= len(self.observed)).sum())

    # Training -------------------------------------------------------------------------------

    def enter(self):
        """Iterate the selector: what is left of a restored epoch, or the next one."""
        self.batches = iter(self.selector)
        if self.resuming:
            self.resuming = False
        else:
            self.epoch += 1
            late = [] if self.forgot or not self.in_turn else self.unobserved
            self.start_at(0, expected=list(self.plain))
            self.late = late
            self.restarts = False

    @rule()
    def draw(self):
        """One batch more, however many are not observed yet: loader workers do so."""
        if self.batches is None:
            self.enter()
        batch = next(self.batches, None)
        if batch is None:
            assert self.position == len(self.expected), "the epoch ended too early"
            self.batches = None
        else:
            assert self.position < len(self.expected), "the epoch has too many batches"
            assert batch == self.expected[self.position]
            self.position += 1
            self.unobserved.append(batch)

    @rule(count=st.integers(1, 8))
    def train(self, count):
        """A few ordinary steps: draw a batch, weigh its loss, observe it."""
        for _ in range(count):
            self.draw()
            if self.unobserved:
                self.weigh()
                self.observe()

    @precondition(lambda self: self.unobserved)
    @rule()
    def observe(self):
        self.tell(self.unobserved.pop(0))

    @precondition(lambda self: self.unobserved)
    @rule(part=st.integers(1, BATCH - 1))
    def observe_a_part(self, part):
        rows = self.unobserved[0][:part]
        self.unobserved[0] = self.unobserved[0][part:]
        self.unobserved = [batch for batch in self.unobserved if batch]
        self.tell(rows)

    @precondition(lambda self: self.late and not self.observed)
    @rule()
    def observe_late(self):
        """What is left of the epoch before is observed when the next one has begun."""
        rows = self.late.pop(0)
        if self.unobserved and self.unobserved[0] == rows:  # one cannot tell
            self.observe()
        else:
            self.tell(rows, late=True)

    @precondition(lambda self: self.unobserved)
    @rule()
    def forget_to_observe(self):
        if self.late and self.late[0] in self.unobserved[1:]:
            return  # in the stored order, one cannot tell that from the epoch before
        self.unobserved.pop(0)
        self.forgot = True  # what is observed after it is not the next batch any more

    def tell(self, rows, *, late=False):
        self.steps += 1
        logits = np.random.default_rng(self.steps).normal(size=(len(rows), Q))
        for selector in (self.selector, self.plain):
            selector.observe(rows, logits=logits)
        if not late:
            self.observed += rows
            self.told = self.told or (self.in_turn and self.trained > self.first)

    @precondition(lambda self: self.unobserved)
    @rule()
    def weigh(self):
        """The loss weights are those of the plain loop, too."""
        rows = self.unobserved[0]
        weights = [selector.loss_weight(rows) for selector in (self.selector, self.plain)]
        assert (weights[0] is None) == (weights[1] is None)
        assert weights[0] is None or torch.equal(*weights)

    @rule(loss=st.sampled_from([0.4, 0.402, 0.5]))
    def validate(self, loss):
        """At any moment, and often enough that it rises."""
        for selector in (self.selector, self.plain):
            selector.validated(loss)

    # Leaving --------------------------------------------------------------------------------

    def leave(self):
        self.batches, self.resuming = None, False
        self.start_at(len(self.expected))

    @rule()
    def end_the_epoch(self):
        if self.batches is not None or self.resuming:
            self.leave()
        self.start_at(len(self.expected))
        self.selector.end_epoch()

    @precondition(lambda self: self.batches is not None and not self.restarts)
    @rule()
    def break_off(self):
        """The loop is left with ``break``, and the next one begins the next epoch."""
        self.batches = None
        self.draw()

    @rule()
    def loop_again(self):
        """Somebody iterates the selector to measure accuracy, and uses up an epoch."""
        if self.resuming or self.restarts:
            return
        outer, self.batches = self.batches, None
        self.enter()
        assert list(self.batches) == self.expected
        self.batches, self.position = None, len(self.expected)
        assert outer is None or next(outer, None) is None, "two loops draw at once"
        self.unobserved = list(self.expected)

    # Saving ---------------------------------------------------------------------------------

    def restored(self, selector, *, anew):
        """Go on with ``selector``, where a framework perhaps counts epochs from 0 again."""
        inside = self.trained < len(self.expected)
        self.selector, self.batches, self.resuming = selector, None, inside
        self.start_at(self.trained)
        if anew and (inside or self.epoch > 0):
            self.shift = self.epoch if inside else self.epoch + 1
            self.selector.set_epoch(0)

    @rule(times=st.integers(1, 3), anew=st.booleans())
    def save_and_load(self, times, anew):
        state = self.selector.state_dict()
        for _ in range(times):  # loaded, and saved again with nothing drawn in between
            selector = make(*self.made, seed=8)
            selector.load_state_dict(through_a_file(state))
            again = selector.state_dict()
            assert same(state, again), "loading and saving changed the state"
            state = again
        self.restored(selector, anew=anew)

    @rule(anew=st.booleans())
    def copy(self, anew):
        self.restored(copy.deepcopy(self.selector), anew=anew)

    @rule(anew=st.booleans())
    def pickle(self, anew):
        self.restored(pickle.loads(pickle.dumps(self.selector)), anew=anew)  # noqa: S301

    @rule()
    def load_into_itself(self):
        """The state of now is loaded into the selector that gave it; old iterators end."""
        old = self.batches
        self.selector.load_state_dict(self.selector.state_dict())
        self.restored(self.selector, anew=False)
        assert old is None or next(old, None) is None

    # Counting and looking -------------------------------------------------------------------

    @precondition(lambda self: self.batches is None)
    @rule()
    def set_epoch(self):
        """A framework names the epoch that begins, or goes on."""
        self.selector.set_epoch((self.epoch if self.resuming else self.epoch + 1) - self.shift)
        if not self.resuming:
            self.start_at(len(self.expected))

    @precondition(lambda self: self.batches is not None and self.trained < len(self.expected))
    @rule()
    def set_the_same_epoch(self):
        self.selector.set_epoch(self.epoch - self.shift)
        self.restarts = True  # if it is left now, it begins again

    @rule()
    def peek(self):
        before = self.selector.state_dict()
        within = self.batches is not None or self.resuming
        expected = self.expected[self.position :] if within else self.plain.peek()
        assert self.selector.peek() == expected
        assert same(self.selector.state_dict(), before), "looking changed the state"

    @rule()
    def read(self):
        for selector in (self.selector, self.plain):
            _ = selector.probabilities, selector.weights, selector.label_weights, repr(selector)

    @invariant()
    def the_epoch_is_the_one_in_training(self):
        if not hasattr(self, "selector"):
            return
        if self.resuming or (self.batches is not None and not self.counts):
            assert self.selector.epoch == self.epoch
        elif self.counts and self.trained == len(self.expected):
            assert self.selector.epoch == self.epoch + 1
        elif self.counts and self.batches is not None:
            assert self.selector.epoch == self.epoch


def run(examples: int) -> None:
    options = settings(
        max_examples=examples,
        stateful_step_count=30,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Loop, settings=options)


def test_no_sequence_of_calls_loses_the_place():
    run(200)


@pytest.mark.slow
def test_thousands_of_sequences_do_not_lose_the_place():
    run(4000)
