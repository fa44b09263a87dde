"""`selector.verify` tells what frameworks have put in the selector's place."""

from __future__ import annotations

from typing import Any

import pytest
from accelerate import Accelerator, skip_first_batches
from accelerate.data_loader import prepare_data_loader
from lightning.fabric import Fabric
from lightning.pytorch.trainer.states import RunningStage, TrainerFn
from lightning_parts import (
    BATCH,
    DistributedSelector,
    N,
    data,
    make_loader,
    make_selector,
    make_trainer,
)
from torch.utils.data import DataLoader, Subset, TensorDataset

import d2ace
from d2ace._util.errors import UserError


def rows() -> d2ace.IndexedDataset:
    return d2ace.IndexedDataset(TensorDataset(*data()))


def flat(selector: d2ace.Selector, **options: Any) -> DataLoader[Any]:
    return DataLoader(rows(), sampler=selector.sampler, **({"batch_size": BATCH} | options))


def prepared_by_lightning(loader: Any, folder: Any) -> Any:
    """What a Trainer with two processes makes of a training loader."""
    trainer = make_trainer(folder, devices=2, strategy="ddp_fork")
    trainer.state.fn = TrainerFn.FITTING
    connector = trainer._data_connector
    return connector._prepare_dataloader(loader, shuffle=True, mode=RunningStage.TRAINING)


def test_loaders_that_draw_from_the_selector_pass():
    selector = make_selector()
    selector.verify(make_loader(selector))
    selector.verify(make_loader(selector, workers=2))
    selector.verify(make_loader(DistributedSelector(selector)))
    selector.verify(flat(selector))
    fabric = Fabric(accelerator="cpu", devices=1)
    selector.verify(fabric.setup_dataloaders(make_loader(selector), use_distributed_sampler=False))
    accelerator = Accelerator(cpu=True)
    selector.verify(accelerator.prepare(make_loader(selector)))
    selector.verify(accelerator.prepare(flat(selector)))


def test_verifying_changes_nothing():
    selector, other = make_selector(), make_selector()
    selector.verify(make_loader(selector))
    assert list(selector) == list(other)


def refused(selector: d2ace.Selector, loader: Any) -> str:
    with pytest.raises(ValueError, match="The loader") as refusal:
        selector.verify(loader)
    sentence = str(refusal.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return sentence


def test_samplers_in_its_place_are_named():
    selector = make_selector()
    shuffled = DataLoader(rows(), batch_size=BATCH, shuffle=True)
    assert "draws from BatchSampler over RandomSampler, not from" in refused(selector, shuffled)
    swapped = Accelerator(cpu=True).prepare(shuffled)
    assert "RandomSampler, not from this selector" in refused(selector, swapped)
    assert "from another selector (D2ACE" in refused(selector, make_loader(make_selector()))
    assert "has no batch sampler" in refused(selector, [1, 2])
    assert "has no batch sampler" in refused(selector, DataLoader(rows(), batch_size=None))


def test_batches_cut_otherwise_are_reported():
    selector = make_selector()
    assert f"batches of 5 rows, but the selector draws batches of {BATCH}" in refused(
        selector, flat(selector, batch_size=5)
    )
    assert "use drop_last=False" in refused(selector, flat(selector, drop_last=True))
    short = d2ace.IndexedDataset(TensorDataset(*(column[:20] for column in data())))
    told = refused(selector, DataLoader(short, batch_sampler=selector))
    assert f"has 20 rows, but the selector was made for {N}" in told


def test_batches_taken_for_rows_are_reported():
    selector = make_selector()
    for options in ({}, {"batch_size": BATCH}):
        for sampler in (selector, DistributedSelector(selector)):
            told = refused(selector, DataLoader(rows(), sampler=sampler, **options))
            assert "takes whole batches for rows" in told
            assert f"sampler=selector.sampler and batch_size={BATCH}" in told


def test_numbers_of_other_rows_are_reported():
    selector, order = make_selector(), list(range(N))[::-1]
    other = Subset(rows(), order)
    for dataset in (other, Subset(other, order)):
        told = refused(selector, DataLoader(dataset, batch_sampler=selector))
        assert "make it IndexedDataset(Subset(dataset, rows))" in told
    right = d2ace.IndexedDataset(Subset(TensorDataset(*data()), order))
    selector.verify(DataLoader(right, batch_sampler=selector))


def test_wrappers_for_processes_are_named(tmp_path):
    selector = make_selector()
    told = refused(selector, prepared_by_lightning(flat(selector), tmp_path))
    assert "DistributedSamplerWrapper" in told
    assert "use_distributed_sampler=False" in told
    replaced = prepared_by_lightning(DataLoader(rows(), batch_size=BATCH, shuffle=True), tmp_path)
    assert "DistributedSampler, not from this selector" in refused(selector, replaced)
    for loader in (make_loader(selector), flat(selector)):
        shard = prepare_data_loader(loader, num_processes=2, process_index=0)
        told = refused(selector, shard)
        assert "BatchSamplerShard" in told
        assert "DistributedSelector(selector)" in told


def test_skipped_batches_are_reported():
    selector = make_selector()
    told = refused(selector, skip_first_batches(make_loader(selector), 2))
    assert "SkipBatchSampler over D2ACE" in told


# One selector for several processes, as far as one process can show ---------------------------


def test_alone_it_is_the_selector():
    alone, shared = make_selector(), DistributedSelector(make_selector())
    for batches in (alone, shared):
        for index, x, _ in make_loader(batches):
            batches.observe(index, logits=x[:, :4])
    assert len(shared) == len(alone)
    assert list(shared) == list(alone)


def test_a_batch_it_did_not_draw_is_reported():
    shared = DistributedSelector(make_selector())
    index, x, _ = next(iter(make_loader(shared)))
    assert shared.loss_scale(index) == 1.0
    with pytest.raises(UserError, match="is not the one drawn next"):
        shared.observe(index.flip(0), logits=x[:, :4])
    with pytest.raises(ValueError, match=r"logits must have shape \[8, 4\]"):
        shared.observe(index, logits=x)
    with pytest.raises(TypeError, match=r"got dict; pass output\['logits'\]"):
        shared.observe(index, logits={"logits": x[:, :4]})
    with pytest.raises(TypeError, match="name them: "):
        shared.observe(index, x[:, :4])
    with pytest.raises(UserError, match="processes share logits"):
        shared.observe(index, probs=x[:, :4].sigmoid())
    with pytest.raises(TypeError, match=r"index must hold the batch's row numbers"):
        shared.observe(None, logits=x[:, :4])
    shared.observe(index, logits=x[:, :4])
    with pytest.raises(UserError, match="observe every batch once, in order"):
        shared.observe(index, logits=x[:, :4])


def test_an_epoch_left_early_is_over():
    selector, other = make_selector("active"), make_selector("active")
    for each in (selector, other):
        batches = iter(each)
        for _ in range(3):
            each.observe(next(batches), logits=data()[0][:BATCH, :4])
    assert selector.state_dict()["progress"]["inside"]
    selector.end_epoch()
    assert selector.epoch == 2
    state = selector.state_dict()
    assert not state["progress"]["inside"]
    other.set_epoch(2)
    assert list(selector) == list(other)
