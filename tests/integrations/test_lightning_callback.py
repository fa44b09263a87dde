"""The callback under the real Lightning: the same numbers as a plain loop, resumed and shared."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning_parts import (
    BATCH,
    EPOCHS,
    DistributedSelector,
    Module,
    N,
    by_hand,
    data,
    make_loader,
    make_selector,
    make_trainer,
)
from torch.utils.data import DataLoader, TensorDataset

import d2ace
from d2ace._util.errors import UserError
from d2ace.integrations.lightning import SelectionCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*is not resumable"),
    pytest.mark.filterwarnings("ignore:.*exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:The selector was made for"),
]
STEPS = -(-N // BATCH)


def fitted(folder: Path, batches: Any, workers: int = 0, **options: Any) -> Module:
    module = Module(batches)
    callbacks = [SelectionCallback(batches), *options.pop("callbacks", [])]
    resumed = options.pop("resumed", None)
    loader = options.pop("loader", None) or make_loader(batches, workers)
    trainer = make_trainer(folder, callbacks=callbacks, **options)
    trainer.fit(module, loader, ckpt_path=resumed)
    return module


def assert_same_weights(module: Module, weights: list[torch.Tensor]) -> None:
    for mine, theirs in zip(module.network.parameters(), weights, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("method", "workers", "wrap"),
    [
        ("d2ace", 0, lambda selector: selector),
        ("d2ace", 2, lambda selector: selector),
        ("balance", 0, DistributedSelector),
        ("dihcl", 1, DistributedSelector),
    ],
)
def test_numbers_are_those_of_the_plain_loop(tmp_path, method, workers, wrap):
    drawn, weights = by_hand(method)
    module = fitted(tmp_path, wrap(make_selector(method)), workers)
    assert module.drawn == drawn
    assert_same_weights(module, weights)


def test_a_data_module_that_validates(tmp_path):
    selector = make_selector()

    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            return make_loader(selector)

        def val_dataloader(self):
            return DataLoader(TensorDataset(*data()), batch_size=16)

    class Validating(Module):
        def validation_step(self, batch, batch_idx):
            x, y = batch
            self.log("val", torch.nn.functional.mse_loss(self.network(x).sigmoid(), y))

    module = Validating()
    trainer = make_trainer(tmp_path, callbacks=[SelectionCallback(selector)])
    trainer.fit(module, datamodule=Data())
    drawn, weights = by_hand()
    assert module.drawn == drawn
    assert_same_weights(module, weights)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("info_batch", {}),
        ("d2ace", {"draw": "epoch", "rows_per_epoch": (0.3, 1.0)}),
        ("d2ace", {"draw": "once", "rows_per_epoch": (1.0, 0.2)}),
    ],
    ids=["InfoBatch", "longer", "shorter"],
)
def test_epochs_of_different_lengths_are_whole_and_validated(tmp_path, method, options):
    class Validating(Module):
        def on_validation_start(self):
            validated.append((self.trainer.current_epoch, len(self.drawn)))

        def validation_step(self, batch, batch_idx):
            pass

    validated: list[tuple[int, int]] = []
    lengths: list[int] = []
    selector = make_selector(method, **options)
    module = Validating(selector)
    trainer = make_trainer(
        tmp_path, callbacks=[SelectionCallback(selector)], num_sanity_val_steps=0
    )
    validation = DataLoader(TensorDataset(*data()), batch_size=64)
    trainer.fit(module, make_loader(selector), validation)
    drawn, weights = by_hand(method, lengths=lengths, **options)
    assert len(set(lengths)) > 1
    assert module.drawn == drawn
    assert validated == list(enumerate(itertools.accumulate(lengths)))
    assert_same_weights(module, weights)


class Killed(pl.Callback):
    """Ends the run right after a step, as if the machine had gone away."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.step:
            raise ZeroDivisionError


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("saved", [10, 2 * STEPS], ids=["in an epoch", "at its end"])
def test_resuming_goes_on_with_the_same_batches(tmp_path, saved, workers):
    checkpoint = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=saved)
    with pytest.raises(ZeroDivisionError):
        fitted(
            tmp_path,
            make_selector(),
            workers,
            callbacks=[checkpoint, Killed(saved + 2)],
            enable_checkpointing=True,
        )
    module = fitted(tmp_path, make_selector(), workers, resumed=tmp_path / f"step={saved}.ckpt")
    drawn, weights = by_hand()
    assert module.drawn == drawn[saved:]
    assert_same_weights(module, weights)


def test_epochs_cut_short_are_left_behind(tmp_path):
    selector = make_selector()
    checkpoint = ModelCheckpoint(tmp_path, "last")
    options: dict[str, Any] = {"limit_train_batches": 3, "enable_checkpointing": True}
    fitted(tmp_path, selector, callbacks=[checkpoint], max_epochs=2, **options)
    assert selector.epoch == 3
    again = make_selector()
    module = fitted(tmp_path, again, 2, resumed=tmp_path / "last.ckpt", max_epochs=3, **options)
    assert again.epoch == 4
    whole = fitted(tmp_path, make_selector(), max_epochs=3, limit_train_batches=3)
    assert module.drawn == whole.drawn[6:]


def test_gradient_accumulation_observes_every_batch(tmp_path):
    selector = make_selector("active")
    module = fitted(tmp_path, selector, accumulate_grad_batches=3)
    assert len(module.drawn) == EPOCHS * STEPS
    assert selector.epoch == EPOCHS + 1


# Two processes ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What both processes of each run in lightning_two.py saw."""
    folder = tmp_path_factory.mktemp("two")
    here = Path(__file__).resolve().parents[1] / "helpers"
    source = os.pathsep.join([str(here), *sys.path])
    command = [sys.executable, "-W", "ignore", str(here / "lightning_two.py"), str(folder)]
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    finished = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert finished.returncode == 0, finished.stderr[-3000:]

    def seen(run: str) -> list[dict[str, Any]]:
        return [torch.load(folder / f"{run}-{rank}.pt", weights_only=True) for rank in (0, 1)]

    return seen


def together(ranks: list[dict[str, Any]]) -> list[list[int]]:
    return [left + right for left, right in zip(*(rank["drawn"] for rank in ranks), strict=True)]


@pytest.mark.parametrize(("run", "method"), [("whole", "d2ace"), ("balance", "balance")])
def test_two_processes_train_as_one(two, run, method):
    ranks = two(run)
    drawn, weights = by_hand(method, torch.float64)
    assert together(ranks) == drawn
    assert torch.equal(ranks[0]["P"], ranks[1]["P"])
    for mine, other, alone in zip(ranks[0]["weights"], ranks[1]["weights"], weights, strict=True):
        assert torch.equal(mine, other)
        torch.testing.assert_close(mine, alone, rtol=1e-9, atol=1e-12)


def test_insights_know_what_two_processes_observed(two):
    drawn, _ = by_hand("d2ace", torch.float64)
    counts = np.bincount([row for batch in drawn for row in batch], minlength=N).tolist()
    for rank in two("whole"):
        assert rank["visits"] == counts
        assert torch.equal(rank["suspicion"], two("whole")[0]["suspicion"])


def test_two_killed_processes_resume(two):
    whole, resumed = two("whole"), two("resumed")
    assert torch.equal(resumed[0]["suspicion"], whole[0]["suspicion"])
    assert together(resumed) == together(whole)[9:]
    for mine, other in zip(resumed[0]["weights"], whole[0]["weights"], strict=True):
        assert torch.equal(mine, other)


# What a person can get wrong ----------------------------------------------------------------


def test_a_step_without_logits_is_reported(tmp_path):
    selector = make_selector()

    class Plain(Module):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch, batch_idx)["loss"]

    trainer = make_trainer(tmp_path, callbacks=[SelectionCallback(selector)])
    with pytest.raises(UserError, match="training_step gave no logits for batch 0"):
        trainer.fit(Plain(), make_loader(selector))


def test_rows_without_numbers_are_reported(tmp_path):
    selector = make_selector()
    loader = DataLoader(TensorDataset(*data()), batch_sampler=selector)
    with pytest.raises(UserError, match="has no row indices; wrap the dataset"):
        fitted(tmp_path, selector, loader=loader)


def test_another_sampler_is_reported(tmp_path):
    dataset = d2ace.IndexedDataset(TensorDataset(*data()))
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    with pytest.raises(ValueError, match="BatchSampler over RandomSampler, not from this selector"):
        fitted(tmp_path, make_selector(), loader=loader)


def test_another_sampler_is_reported_on_resuming_in_an_epoch(tmp_path):
    checkpoint = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=10)
    options: dict[str, Any] = {"callbacks": [checkpoint], "enable_checkpointing": True}
    fitted(tmp_path, make_selector(), max_epochs=2, **options)
    other = make_loader(make_selector())
    module = Module()
    callbacks = [SelectionCallback(make_selector())]
    trainer = make_trainer(tmp_path, callbacks=callbacks)
    with pytest.raises(ValueError, match="draws from another selector"):
        trainer.fit(module, other, ckpt_path=tmp_path / "step=10.ckpt")
    assert module.drawn == []


def test_a_schedule_goes_on_from_a_loaded_state(tmp_path, recwarn):
    whole, _ = by_hand()
    selector = make_selector()
    fitted(tmp_path, selector, max_epochs=3)
    again = make_selector()
    again.load_state_dict(selector.state_dict())
    recwarn.clear()
    module = fitted(tmp_path, again, max_epochs=2)
    assert not [told for told in recwarn if "selector was made for" in str(told.message)]
    assert module.drawn[:STEPS] == whole[3 * STEPS : 4 * STEPS]
    assert again.epoch == EPOCHS + 1


def test_a_selector_alone_is_refused_in_two_processes(tmp_path):
    callback = SelectionCallback(make_selector())
    trainer = make_trainer(tmp_path, devices=2, strategy="ddp_fork")
    with pytest.raises(UserError, match=r"give loader and callback a DistributedSelector"):
        callback.setup(trainer, Module(), "fit")
    callback = SelectionCallback(DistributedSelector(make_selector()))
    with pytest.raises(UserError, match="use_distributed_sampler=False"):
        callback.setup(trainer, Module(), "fit")


def test_selectors_that_lightning_cannot_feed_are_refused():
    with pytest.raises(UserError, match="predictions='train'"):
        SelectionCallback(make_selector(predictions="full_pass"))
    with pytest.raises(UserError, match="needs a Selector, got int"):
        SelectionCallback(3)  # type: ignore[arg-type]


def test_another_selector_is_reported_in_later_epochs_too(tmp_path):
    selector, made = make_selector(), []

    class Data(pl.LightningDataModule):
        def train_dataloader(self):
            made.append(selector if len(made) < 2 else make_selector())
            return make_loader(made[-1])

    trainer = make_trainer(
        tmp_path, callbacks=[SelectionCallback(selector)], reload_dataloaders_every_n_epochs=1
    )
    with pytest.raises(ValueError, match=r"another selector \(D2ACE\); give it the one"):
        trainer.fit(Module(), datamodule=Data())
    assert len(made) == 3


def test_a_checkpoint_without_a_selector_is_reported(tmp_path):
    selector, plain = make_selector(), make_trainer(tmp_path, max_epochs=1)
    plain.fit(Module(), make_loader(selector))
    plain.save_checkpoint(tmp_path / "plain.ckpt")
    with pytest.raises(UserError, match=r"has no selector state.* load_from_checkpoint"):
        fitted(tmp_path, make_selector(), resumed=tmp_path / "plain.ckpt")


def test_testing_a_checkpoint_leaves_the_selector_alone(tmp_path):
    class Tested(Module):
        def test_step(self, batch, batch_idx):
            pass

    selector, module = make_selector(), Tested()
    trainer = make_trainer(tmp_path, callbacks=[SelectionCallback(selector)], max_epochs=2)
    trainer.fit(module, make_loader(selector))
    trainer.save_checkpoint(tmp_path / "first.ckpt")
    trainer.fit_loop.max_epochs = 3
    trainer.fit(module, make_loader(selector))
    loader = DataLoader(TensorDataset(*data()), batch_size=16)
    trainer.test(module, loader, ckpt_path=tmp_path / "first.ckpt", verbose=False)
    assert selector.epoch == 4


def test_a_schedule_that_does_not_fit_is_reported(tmp_path):
    with pytest.warns(UserWarning, match="All 2 epochs are warm-up"):
        fitted(tmp_path, make_selector(warmup=4), max_epochs=2)
    with pytest.warns(UserWarning, match="made for 5 epochs, but 2 are trained.*epochs=2"):
        fitted(tmp_path, make_selector(), max_epochs=2)


def test_a_selector_that_has_seen_another_training_is_reported(tmp_path):
    selector = make_selector("active")
    fitted(tmp_path, selector)
    with pytest.warns(UserWarning, match="observed in an earlier training; make a new selector"):
        fitted(tmp_path, selector)
    selector.load_state_dict(selector.state_dict())  # its history is meant
    fitted(tmp_path, selector)


def test_a_selector_without_a_history_may_train_again(tmp_path):
    selector = make_selector("random")
    assert fitted(tmp_path, selector).drawn == fitted(tmp_path, selector).drawn
