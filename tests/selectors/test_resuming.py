"""Stop anywhere, go on in another process, with any loader: the very same batches."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.distributed.checkpoint as dcp
from torch.utils.data import DataLoader, TensorDataset

import d2ace
from d2ace.selectors._engine.cursor import Cursor
from d2ace.testing import SETTINGS

N, Q, BATCH = 50, 4, 7
RNG = np.random.default_rng(0)
Y = (RNG.random((N, Q)) < 0.4).astype(np.uint8)
X = RNG.normal(size=(N, 3))
LOGITS = torch.from_numpy(RNG.normal(size=(3, N, Q)))
LOADERS = {
    "no workers": {"num_workers": 0},
    "2 workers": {"num_workers": 2},
    "2 workers, persistent": {"num_workers": 2, "persistent_workers": True},
    "4 workers": {"num_workers": 4},
    "4 workers, persistent": {"num_workers": 4, "persistent_workers": True},
}


def make(name: str) -> d2ace.Selector:
    options = {"batch_size": BATCH, "warmup": 1, "epochs": 6, **SETTINGS[name]}
    return d2ace.make_selector(name, Y, X, **options)


class Run:
    """A small training run whose model, optimiser and selector are saved and restored together."""

    def __init__(self, name: str, loader: dict) -> None:
        torch.manual_seed(0)
        self.selector = make(name)
        self.model = torch.nn.Linear(3, Q)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.05)
        data = TensorDataset(torch.from_numpy(X).float(), torch.from_numpy(Y).float())
        self.loader = DataLoader(d2ace.IndexedDataset(data), batch_sampler=self.selector, **loader)
        self.losses: list[float] = []
        self.batches: list[list[int]] = []

    def epoch(self, stop: int | None = None) -> None:
        self.selector.validated(0.4 + 0.1 * self.selector.epoch)
        for number, (index, x, y) in enumerate(self.loader, start=1):
            logits = self.model(x)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="none")
            weight = self.selector.loss_weight(index)
            loss = (loss if weight is None else loss * weight).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.selector.observe(index, logits=logits)
            self.losses.append(loss.item())
            self.batches.append(index.tolist())
            if number == stop:
                break

    def state(self) -> dict:
        return {
            "selector": self.selector.state_dict(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: dict) -> None:
        self.selector.load_state_dict(state["selector"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


CASES = [  # loaders with workers take seconds, and the place does not depend on the method
    pytest.param(
        name,
        loader,
        marks=[] if loader == "no workers" or name in ("dihcl", "d2ace") else [pytest.mark.slow],
    )
    for name in d2ace.SELECTORS
    for loader in LOADERS
]


@pytest.mark.parametrize(("name", "loader"), CASES)
def test_a_resumed_run_has_the_same_losses(name, loader, tmp_path):
    whole = Run(name, LOADERS[loader])
    for _ in range(3):
        whole.epoch()
    count = len(whole.selector)
    stops = [[1], [count // 2], [count - 1], [count]] if loader == "no workers" else [[3]]
    stops += [[2, 2]]  # resumed twice within one epoch
    for stop in stops:
        run = Run(name, LOADERS[loader])
        run.epoch()
        losses, batches = run.losses, run.batches
        for length in stop:
            run = Run(name, LOADERS[loader]) if run.batches is not batches else run
            if run.batches is not batches:
                run.load(torch.load(tmp_path / "state.pt", weights_only=True))
                run.losses, run.batches = losses, batches
            run.epoch(length)
            torch.save(run.state(), tmp_path / "state.pt")
            run.batches, run.losses = [], []
        run = Run(name, LOADERS[loader])
        run.load(torch.load(tmp_path / "state.pt", weights_only=True))
        run.losses, run.batches = losses, batches
        while run.selector.epoch <= 3:
            run.epoch()
        assert run.batches == whole.batches, f"stopped after {stop}"
        assert run.losses == whole.losses, f"stopped after {stop}"  # to the last bit


@pytest.mark.filterwarnings("ignore:Epoch 3 .* was drawn, but none of its batches observed")
def test_a_fresh_process_draws_the_remaining_batches(tmp_path):
    expected = {}
    for name in d2ace.SELECTORS:
        selector = make(name)
        for epoch in range(3):
            selector.validated(0.4 + 0.1 * epoch)
            for number, batch in enumerate(selector):
                probs = np.random.default_rng((epoch, number)).random((len(batch), Q))
                selector.loss_weight(batch)
                selector.observe(batch, probs=probs)
                if epoch == 2 and number == 3:
                    break
        torch.save(selector.state_dict(), tmp_path / f"{name}.pt")
        twin = make(name)
        twin.load_state_dict(selector.state_dict())
        expected[name] = [list(twin), list(twin)]
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    script = """
        import json, sys, numpy as np, torch, d2ace
        from d2ace.testing import SETTINGS
        folder, drawn = sys.argv[1], {}
        data = np.load(folder + "/data.npz")
        for name in d2ace.SELECTORS:
            options = {"batch_size": 7, "warmup": 1, "epochs": 6, **SETTINGS[name]}
            selector = d2ace.make_selector(name, data["Y"], data["X"], **options)
            selector.load_state_dict(torch.load(f"{folder}/{name}.pt", weights_only=True))
            drawn[name] = [list(selector), list(selector)]
        print(json.dumps(drawn))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == expected


def test_an_abandoned_epoch_gives_way_to_the_next():
    selector, twin = make("d2ace"), make("d2ace")
    for one in (selector, twin):
        one.observe([0], probs=np.full((1, Q), 0.5))
    abandoned = iter(selector)
    next(abandoned)
    assert selector.epoch == 1
    list(twin)
    with pytest.warns(UserWarning, match=r"begins epoch 2, so the first one ends after batch 1 of"):
        epoch = list(selector)
    assert epoch == list(twin)  # epoch 2 of both
    assert selector.epoch == 3
    assert list(abandoned) == []  # what was left of epoch 1 is not drawn any more


def test_observations_out_of_turn_do_not_move_the_place():
    selector = make("d2ace")
    batches = iter(selector)
    for _ in range(3):
        next(batches)
    selector.observe([0, 1, 2], probs=np.full((3, Q), 0.5))  # no batch that was drawn
    twin = make("d2ace")
    with pytest.warns(UserWarning, match="after batch 3 of epoch 1, the last one drawn"):
        twin.load_state_dict(selector.state_dict())
    assert list(twin) == list(batches)


class TestDrawnAhead:
    """Batches that loader workers drew ahead of training."""

    def drawn(self, count: int = 5, **options) -> tuple[d2ace.Selector, list[list[int]]]:
        selector = d2ace.D2ACE(Y, batch_size=BATCH, **options)
        return selector, list(itertools.islice(iter(selector), count))

    def tell(self, selector, rows) -> None:
        selector.observe(rows, probs=np.full((len(rows), Q), 0.5))

    def position(self, selector) -> int:
        return selector.state_dict()["progress"]["position"]

    @pytest.mark.parametrize("parts", [1, 2, 3, BATCH])
    def test_a_batch_counts_once_all_its_parts_were_observed(self, parts):
        selector, batches = self.drawn()
        for number, batch in enumerate(batches[:3]):
            for part in np.array_split(batch, parts):
                assert number == 0 or self.position(selector) == number
                self.tell(selector, part)
        assert self.position(selector) == 3
        self.tell(selector, batches[3][:2])
        self.tell(selector, [])
        assert self.position(selector) == 3  # a part is trained again with the rest of its batch

    def test_a_first_batch_half_observed_is_not_over(self):
        selector, batches = self.drawn()
        self.tell(selector, batches[0][:3])
        assert self.position(selector) == 0

    def test_rows_that_stay_on_an_accelerator_count_by_their_number(self):
        cursor = Cursor(BATCH)
        cursor.begin(6 * BATCH)
        for start in range(0, 5 * BATCH, BATCH):
            cursor.drew(list(range(start, start + BATCH)))
        for _ in range(4):
            for size in (4, BATCH - 4):
                cursor.observed(torch.empty(size, dtype=torch.int64, device="meta"))
        assert cursor.state_dict()["position"] == 4

    @pytest.mark.parametrize("order", [[1, 0, 2], [0, 2]])
    def test_another_order_is_warned_about_once(self, order):
        selector, batches = self.drawn()
        for number in order:
            self.tell(selector, batches[number])
        with pytest.warns(UserWarning, match=r"not observed in the order drawn; what .* skipped"):
            assert self.position(selector) == 5
        assert self.position(selector) == 5  # a second warning would be an error here

    def test_another_order_without_workers_is_no_cause_for_warning(self):
        selector, _ = self.drawn(0)
        for batch in itertools.islice(iter(selector), 3):
            self.tell(selector, batch[::-1])
        assert self.position(selector) == 3

    def test_an_epoch_that_was_left_is_no_cause_for_warning(self):
        selector, batches = self.drawn()
        self.tell(selector, batches[2])
        selector.end_epoch()
        assert selector.state_dict()["progress"]["epoch"] == 2

    def test_a_full_pass_cannot_count(self):
        selector, _ = self.drawn(predictions="full_pass")
        with pytest.warns(UserWarning, match=r"after batch 5 of epoch 1, .* save between epochs"):
            assert self.position(selector) == 5

    def test_an_epoch_drawn_ahead_to_its_end_is_no_epoch_trained(self):
        selector, _ = self.drawn(0, predictions="full_pass")
        list(selector)
        with pytest.warns(UserWarning, match=r"will be skipped: save between epochs"):
            selector.state_dict()

    def test_a_full_pass_between_epochs_need_not_count(self):
        selector, _ = self.drawn(predictions="full_pass")
        list(selector)  # the epoch after the abandoned one
        self.tell(selector, range(N))
        assert self.position(selector) == 0

    def test_asking_for_loss_weights_counts_a_batch_as_trained(self):
        selector, _ = self.drawn(0, predictions="full_pass")
        for batch in itertools.islice(iter(selector), 3):
            selector.loss_weight(batch)
        assert self.position(selector) == 3


def test_a_state_of_another_method_is_refused_by_name():
    selector = make("active")
    with pytest.raises(ValueError, match=r"method 'd2ace', but this one has 'active'"):
        selector.load_state_dict(make("d2ace").state_dict())
    other = make("d2ace").state_dict()
    del other["memory"]["latest"]
    with pytest.raises(ValueError, match=r"'latest' does not fit .* options"):
        make("d2ace").load_state_dict(other)


@pytest.mark.parametrize("name", ["recent", "ml_unc", "d2ace"])
def test_a_state_of_another_window_is_refused(name):
    """Also where its memory has the same form, as bits of one byte have."""
    one, other = (
        d2ace.make_selector(name, Y, X, batch_size=BATCH, window=window) for window in (3, 8)
    )
    with pytest.raises(ValueError, match=r"saved with window 3, but this one has 8"):
        other.load_state_dict(one.state_dict())


@pytest.mark.filterwarnings("ignore:torch.distributed is .*uninitialized")  # one process is meant
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")  # torch 2.4 warns of itself
@pytest.mark.filterwarnings("ignore:You are using .torch.load.:FutureWarning")
@pytest.mark.parametrize("name", list(d2ace.SELECTORS))
def test_a_distributed_checkpoint_is_loaded_into_a_fresh_selector(name, tmp_path):
    """It loads into the tensors that the fresh state has, so that forms may not change."""
    selector = make(name)
    for epoch in range(3):
        selector.validated(0.4 + 0.1 * epoch)
        for batch in selector:
            selector.loss_weight(batch)
            selector.observe(batch, logits=LOGITS[epoch][batch])
            if epoch == 2:
                break
        dcp.save({"selector": selector}, checkpoint_id=tmp_path / str(epoch))
        fresh, twin = make(name), make(name)
        dcp.load({"selector": fresh}, checkpoint_id=tmp_path / str(epoch))
        twin.load_state_dict(selector.state_dict())
        assert list(fresh) == list(twin)
        weights = [one.loss_weight(range(len(Y))) for one in (fresh, twin)]
        assert weights[0] is weights[1] is None or torch.equal(*weights)


def test_a_nameless_method_is_known_by_its_class():
    class Mine(d2ace.Selector):
        pass

    class Yours(d2ace.Selector):
        pass

    state = Mine(Y, batch_size=BATCH).state_dict()
    with pytest.raises(ValueError, match=r"method 'Mine', but this one has 'Yours'"):
        Yours(Y, batch_size=BATCH).load_state_dict(state)
    Mine(Y, batch_size=BATCH).load_state_dict(state)


def test_a_state_of_other_labels_is_refused():
    other = d2ace.D2ACE(1 - Y, X, batch_size=BATCH)
    with pytest.raises(ValueError, match=r"saved with labels 'checksum [0-9a-f]{8}', but this one"):
        d2ace.D2ACE(Y, X, batch_size=BATCH).load_state_dict(other.state_dict())
    wide = sp.csr_array(Y)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    d2ace.D2ACE(Y, batch_size=BATCH).load_state_dict(
        d2ace.D2ACE(wide, batch_size=BATCH).state_dict()
    )


def test_a_state_of_another_way_of_drawing_is_refused():
    other = d2ace.D2ACE(Y, X, batch_size=BATCH, replacement=True)
    with pytest.raises(ValueError, match=r"saved with replacement True, but this one has False"):
        d2ace.D2ACE(Y, X, batch_size=BATCH).load_state_dict(other.state_dict())


def test_a_state_moves_between_precisions_only_on_purpose():
    double = d2ace.D2ACE(Y, X, batch_size=BATCH, dtype=torch.float64)
    with pytest.raises(ValueError, match="float64"):
        d2ace.D2ACE(Y, X, batch_size=BATCH).load_state_dict(double.state_dict())


def test_the_flat_view_resumes_too():
    selector = make("d2ace")
    rows = list(itertools.islice(iter(selector.sampler), 2 * BATCH))
    twin = make("d2ace")
    with pytest.warns(UserWarning, match="because no batch was observed"):
        twin.sampler.load_state_dict(selector.sampler.state_dict())
    whole = [row for batch in make("d2ace") for row in batch]
    assert rows + list(twin.sampler) == whole


def test_a_broken_state_changes_nothing():
    selector = make("dihcl")
    list(selector)
    before = selector.state_dict()
    broken = [
        None,
        {**before, "extra": {}},
        {**before, "progress": {}},
        {**before, "drawn": torch.ones(3)},
        {**before, "preset": "reference"},
    ]
    for state in broken:
        with pytest.raises(ValueError, match=r"state"):
            selector.load_state_dict(state)
        assert selector.state_dict()["progress"] == before["progress"]


def test_an_epoch_that_was_left_can_be_started_again():
    selector = make("active")
    selector.observe([0], probs=np.full((1, Q), 0.5))
    first = next(iter(selector))
    selector.set_epoch(1)
    batches = list(selector)
    assert batches[0] == first
    assert selector.epoch == 2
    again = iter(selector)
    next(again)
    selector.set_epoch(2)  # an epoch still being drawn is not disturbed
    assert len(list(again)) == len(selector) - 1
    assert selector.epoch == 3
