"""The trainer under the real Hugging Face Trainer: a plain loop's numbers, resumed and shared."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Trainer, TrainerCallback
from transformers_parts import (
    BATCH,
    EPOCHS,
    RATE,
    Killed,
    N,
    Recording,
    by_hand,
    data,
    make_arguments,
    make_model,
    make_selector,
    make_trainer,
    searching,
)

import d2ace
from d2ace._util.errors import RunError, UserError
from d2ace.integrations.transformers import SelectionMixin, SelectionTrainer

pytestmark = pytest.mark.filterwarnings("ignore:The selector was made for")
STEPS = -(-N // BATCH)


def assert_same_weights(trainer: Trainer, weights: list[torch.Tensor]) -> None:
    for mine, theirs in zip(trainer.model.parameters(), weights, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize(
    ("method", "accumulate", "workers"),
    [("d2ace", 1, 0), ("d2ace", 3, 2), ("balance", 3, 0)],
)
def test_numbers_are_those_of_the_plain_loop(tmp_path, method, accumulate, workers):
    drawn, weights = by_hand(accumulate, method=method)
    trainer = make_trainer(
        tmp_path,
        make_selector(method),
        gradient_accumulation_steps=accumulate,
        dataloader_num_workers=workers,
    )
    trainer.train()
    assert trainer.drawn == drawn
    assert_same_weights(trainer, weights)


@pytest.mark.parametrize(
    ("accumulate", "saved", "workers"), [(1, 11, 0), (3, 4, 2), (1, 2 * STEPS, 0)]
)
def test_resuming_goes_on_with_the_same_batches(tmp_path, accumulate, saved, workers):
    options: dict[str, Any] = {
        "gradient_accumulation_steps": accumulate,
        "dataloader_num_workers": workers,
        "save_strategy": "steps",
        "save_steps": saved,
    }
    with pytest.raises(KeyboardInterrupt):
        make_trainer(tmp_path, callbacks=[Killed(saved + 2)], **options).train()
    trainer = make_trainer(tmp_path, **options)
    trainer.train(resume_from_checkpoint=True)
    drawn, weights = by_hand(accumulate)
    per_epoch = -(-STEPS // accumulate)
    trained = saved // per_epoch * STEPS + saved % per_epoch * accumulate
    assert trainer.drawn == drawn[trained:]
    assert_same_weights(trainer, weights)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("info_batch", {}),
        ("d2ace", {"draw": "epoch", "rows_per_epoch": (0.3, 1.0)}),
        ("d2ace", {"draw": "once", "rows_per_epoch": (1.0, 0.2)}),
    ],
    ids=["InfoBatch", "longer", "shorter"],
)
def test_epochs_of_different_lengths_are_whole(tmp_path, method, options, accumulate):
    trainer = make_trainer(
        tmp_path, make_selector(method, **options), gradient_accumulation_steps=accumulate
    )
    trainer.train()
    lengths: list[int] = []
    drawn, weights = by_hand(accumulate, method=method, lengths=lengths, **options)
    steps = sum(-(-length // accumulate) for length in lengths)
    assert len(set(lengths)) > 1
    assert trainer.drawn == drawn
    assert (trainer.state.global_step, trainer.state.epoch) == (steps, len(lengths))
    for one, other in zip(trainer.model.parameters(), weights, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_steps_of_shorter_epochs_are_counted(tmp_path):
    """The learning rate falls to 0 with the last step, and a number of steps is reached."""
    shorter = {"draw": "once", "rows_per_epoch": (1.0, 0.2)}
    trainer = make_trainer(tmp_path, make_selector(**shorter), lr_scheduler_type="linear")
    trainer.train()
    assert trainer.lr_scheduler.get_last_lr()[0] == 0.0
    assert trainer.state.global_step == trainer.state.max_steps
    trainer = make_trainer(tmp_path, make_selector(**shorter), max_steps=30)
    trainer.train()
    assert trainer.state.global_step == 30


def test_the_selector_knows_the_learning_rate_of_each_step(tmp_path):
    """DIHCL divides by their sum; the Trainer's own schedule lowers them step by step."""
    selector = make_selector("dihcl")
    make_trainer(tmp_path, selector, lr_scheduler_type="linear").train()
    total = EPOCHS * STEPS
    rates = [RATE * (1 - step / total) for step in range(total)]
    selector.probabilities  # noqa: B018 - what was observed is worked in
    assert selector.extra_state()["rate_sum"] == pytest.approx(sum(rates))


@pytest.mark.parametrize("peeks", [False, True])
def test_every_training_begins_as_the_first_did(tmp_path, peeks):
    trainer = searching(tmp_path, make_selector())
    if peeks:  # as in a notebook
        next(iter(trainer.get_train_dataloader()))
    trainer.train()
    trainer.train()
    drawn, weights = by_hand()
    assert trainer.drawn == drawn + drawn
    assert_same_weights(trainer, weights)


def test_state_outside_the_memory_is_reset_too(tmp_path):
    selector = make_selector("dihcl")
    trainer = searching(tmp_path, selector)
    trainer.train()
    trainer.train()
    selector.probabilities  # noqa: B018 - what was observed is worked in
    assert selector.extra_state()["rate_sum"] == pytest.approx(RATE * EPOCHS * STEPS)
    half = EPOCHS * STEPS
    assert trainer.drawn[:half] == trainer.drawn[half:]


def test_a_loaded_state_is_what_trainings_begin_with(tmp_path):
    known = make_selector()
    for rows in known:
        known.observe(rows, logits=torch.tensor(rows).unsqueeze(1).cos().expand(-1, 3))
    state = known.state_dict()
    loaded = make_selector()
    loaded.load_state_dict(state)
    trainer = searching(tmp_path, loaded)
    trainer.train()
    drawn = list(trainer.drawn)
    assert drawn != by_hand()[0]
    trainer.train()
    assert trainer.drawn == drawn + drawn
    trainer = searching(tmp_path, make_selector())
    trainer.train()
    trainer.selector.load_state_dict(state)
    trainer.train()
    assert trainer.drawn == by_hand()[0] + drawn


def test_a_training_that_began_in_an_epoch_is_not_resumed_with_other_batches(tmp_path):
    """The Trainer counts its own steps, and would skip 6 batches where the selector has done 2."""
    known = make_selector()
    for number, rows in enumerate(known, start=1):
        known.observe(rows, logits=torch.tensor(rows).unsqueeze(1).cos().expand(-1, 3))
        if number == 4:
            break
    state = known.state_dict()

    def begun(folder: Path, **options: Any) -> Recording:
        selector = make_selector()
        selector.load_state_dict(state)
        return make_trainer(folder, selector, save_strategy="steps", save_steps=6, **options)

    whole = begun(tmp_path / "whole")
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        begun(tmp_path / "killed", callbacks=[Killed(7)]).train()
    trainer = begun(tmp_path / "killed")
    sentence = "skip 6 batches of the epoch, .* has trained 2 .* with ignore_data_skip=True"
    with pytest.raises(UserError, match=sentence):
        trainer.train(resume_from_checkpoint=True)
    assert not hasattr(trainer, "drawn")
    trainer = make_trainer(tmp_path / "killed", ignore_data_skip=True)
    trainer.train(resume_from_checkpoint=True)
    rest = whole.drawn[6:]
    assert trainer.drawn[: len(rest)] == rest


@pytest.mark.filterwarnings("error:The selector was made for")
@pytest.mark.filterwarnings("error:Training ends with epoch")
def test_a_schedule_goes_on_from_a_loaded_state(tmp_path):
    selector = make_selector()
    for _ in range(3):
        for rows in selector:
            selector.observe(rows, logits=torch.zeros(len(rows), 3))
    again = make_selector()
    again.load_state_dict(selector.state_dict())
    make_trainer(tmp_path, again, num_train_epochs=1).train()
    assert again.epoch == EPOCHS + 1


def test_training_begins_anew_after_one_that_was_given_up(tmp_path):
    """In the middle of an epoch, or on resuming, before the first batch."""
    trainer = searching(tmp_path, make_selector(), save_strategy="steps", save_steps=3)
    trainer.add_callback(Killed(5))
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.remove_callback(Killed)

    class Refusing(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

    trainer.add_callback(Refusing)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(resume_from_checkpoint=True)
    trainer.remove_callback(Refusing)
    trainer.drawn = []
    trainer.train()
    assert trainer.drawn == by_hand()[0]


def test_evaluation_is_untouched(tmp_path):
    trainer = make_trainer(tmp_path, eval_dataset=data(), eval_strategy="epoch")
    trainer.train()
    drawn, weights = by_hand()
    assert trainer.drawn == drawn
    assert_same_weights(trainer, weights)
    plain = Trainer(trainer.model, make_arguments(tmp_path), eval_dataset=data())
    mine, theirs = trainer.evaluate(), plain.evaluate()
    assert mine["eval_loss"] == theirs["eval_loss"]
    predicted = trainer.predict(data()).predictions
    np.testing.assert_array_equal(predicted, plain.predict(data()).predictions)


def test_evaluation_after_a_step_that_failed_is_untouched(tmp_path):
    trainer = make_trainer(tmp_path, eval_dataset=data())
    calls = 0

    def interrupt(*_):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt

    trainer.model.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    before = trainer.selector.state_dict()["memory"]
    trainer.evaluate()
    after = trainer.selector.state_dict()["memory"]
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_a_trainer_and_datasets_of_ones_own(tmp_path):
    seen = []

    class Own(Trainer):
        def compute_loss(self, *args, **options):
            seen.append("own")
            return super().compute_loss(*args, **options)

    class Mixed(SelectionMixin, Own):
        pass

    rows = [
        {key: row[key].tolist() for key in ("input_ids", "labels")} | {"note": 1} for row in data()
    ]
    trainer = Mixed(
        make_model(), make_arguments(tmp_path), train_dataset=rows, selector=make_selector()
    )
    trainer.train()
    assert len(seen) == EPOCHS * STEPS
    assert_same_weights(trainer, by_hand()[1])


def test_items_that_are_tuples_reach_the_collator_whole(tmp_path):
    def collate(items):
        tokens, labels = zip(*items, strict=True)
        return {"input_ids": torch.stack(tokens), "labels": torch.stack(labels)}

    rows = torch.utils.data.TensorDataset(data()["input_ids"][:], data()["labels"][:])
    trainer = SelectionTrainer(
        make_model(),
        make_arguments(tmp_path, remove_unused_columns=False),
        train_dataset=rows,
        data_collator=collate,
        selector=make_selector(),
    )
    trainer.train()
    assert_same_weights(trainer, by_hand()[1])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both processes of transformers_two.py saw."""
    folder = tmp_path_factory.mktemp("two")
    here = Path(__file__).resolve().parents[1] / "helpers"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-W", "ignore", str(here / "transformers_two.py"), str(folder), port]
    path = os.pathsep.join([str(here), *sys.path])
    finished = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


def test_two_processes_train_as_one(two):
    drawn, weights = by_hand(dtype=torch.float64)
    for left, right, batch in zip(two[0]["drawn"], two[1]["drawn"], drawn, strict=True):
        if len(batch) == 1:  # the first process trains it too, but it counts for nothing
            assert left == right == batch
        else:
            assert left + right == batch
    assert torch.equal(two[0]["P"], two[1]["P"])
    for mine, other, alone in zip(two[0]["weights"], two[1]["weights"], weights, strict=True):
        assert torch.equal(mine, other)
        torch.testing.assert_close(mine, alone, rtol=1e-6, atol=1e-9)


def test_insights_know_what_two_processes_observed(two):
    drawn, _ = by_hand(dtype=torch.float64)
    counts = np.bincount([row for batch in drawn for row in batch], minlength=N).tolist()
    assert [rank["visits"] for rank in two] == [counts, counts]


def test_every_training_of_two_processes_begins_as_the_first_did(two):
    """What the last epoch told them is not exchanged any more, and belongs to no other training."""
    halves = [(rank["searched"][: 2 * STEPS], rank["searched"][2 * STEPS :]) for rank in two]
    assert all(first == second for first, second in halves)


# What a person can get wrong ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"per_device_train_batch_size": 5}, r"make the selector with batch_size=5"),
        ({"dataloader_drop_last": True}, "dataloader_drop_last=True would drop rows"),
        ({"train_sampling_strategy": "group_by_length"}, "cannot both choose .*at 'random'"),
    ],
)
def test_settings_that_do_not_fit_are_reported(tmp_path, options, sentence):
    with pytest.raises(UserError, match=sentence):
        make_trainer(tmp_path, **options).train()


def test_other_rows_than_the_selectors_are_reported(tmp_path):
    selector = make_selector()
    trainer = make_trainer(tmp_path, selector)
    trainer.train_dataset = trainer.train_dataset.select(range(20))
    with pytest.raises(ValueError, match=f"has 20 rows, but the selector was made for {N}"):
        trainer.train()


def test_rows_that_are_numbered_already_are_reported(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.train_dataset = d2ace.IndexedDataset(data())
    with pytest.raises(UserError, match="adds row indices itself; pass the dataset inside it"):
        trainer.train()


def test_a_selector_that_has_seen_another_training_is_reported(tmp_path):
    selector = make_selector(epochs=1, warmup=0)
    make_trainer(tmp_path, selector, num_train_epochs=1).train()
    with pytest.warns(UserWarning, match="uses what it observed in an earlier training"):
        make_trainer(tmp_path, selector, num_train_epochs=1).train()


def test_a_loss_that_tells_no_predictions_is_reported(tmp_path):
    class Silent(Recording):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return model(**inputs).loss

    trainer = Silent(
        make_model(), make_arguments(tmp_path), train_dataset=data(), selector=make_selector()
    )
    with pytest.raises(UserError, match="did not get a batch's predictions"):
        trainer.train()


def test_weights_and_a_loss_of_ones_own_are_reported(tmp_path):
    trainer = SelectionTrainer(
        make_model(),
        make_arguments(tmp_path),
        train_dataset=data(),
        selector=make_selector("balance", warmup=0),
        compute_loss_func=lambda outputs, labels, num_items_in_batch=None: outputs.logits.mean(),
    )
    with pytest.raises(UserError, match="but compute_loss_func and label_smoothing_factor"):
        trainer.train()


def test_weights_and_a_compute_loss_below_the_mixin_are_reported(tmp_path):
    class Focal(Trainer):
        def compute_loss(self, *args, **options):
            loss, outputs = super().compute_loss(*args, **(options | {"return_outputs": True}))
            return loss**2, outputs

    class Mine(SelectionMixin, Focal):
        pass

    trainer = Mine(
        make_model(),
        make_arguments(tmp_path),
        train_dataset=data(),
        selector=make_selector("balance", warmup=0),
    )
    with pytest.raises(UserError, match=r"but Focal\.compute_loss replaces it; remove that"):
        trainer.train()


def rows_with(change: Callable[[torch.Tensor], torch.Tensor]) -> list[dict[str, Any]]:
    """The training rows with other labels."""
    return [dict(row) | {"labels": change(row["labels"])} for row in data()]


def test_labels_that_are_not_the_selectors_are_reported(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.train_dataset = rows_with(lambda labels: 1 - labels)
    sentence = r"Row \d+ of train_dataset has other labels .*labels of this dataset, in its order"
    with pytest.raises(UserError, match=sentence):
        trainer.train()


def test_labels_that_are_neither_0_nor_1_are_not_compared(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.train_dataset = rows_with(lambda labels: 0.9 - 0.8 * labels)
    trainer.train()
    assert len(trainer.drawn) == EPOCHS * STEPS


def test_a_checkpoint_without_a_selector_is_reported(tmp_path):
    options = {"save_strategy": "epoch", "num_train_epochs": 1}
    plain = Trainer(make_model(), make_arguments(tmp_path, **options), train_dataset=data())
    plain.train()
    with pytest.raises(RunError, match=r"has no selector.pt"):
        make_trainer(tmp_path, num_train_epochs=2).train(resume_from_checkpoint=True)


def test_a_checkpoint_whose_selector_does_not_fit_is_reported(tmp_path):
    make_trainer(tmp_path, save_strategy="epoch", num_train_epochs=2).train()
    with pytest.raises(UserError, match=r"selector.pt does not fit .*method 'd2ace'.* as it was"):
        make_trainer(tmp_path, make_selector("active")).train(resume_from_checkpoint=True)
    for file in tmp_path.glob("*/selector.pt"):
        file.write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"selector.pt is damaged.*another checkpoint") as told:
        make_trainer(tmp_path).train(resume_from_checkpoint=True)
    assert " out" not in str(told.value)  # a word of `d2ace.train`, not of the Trainer


def test_labels_that_are_no_floats_are_reported(tmp_path):
    rows = [{"input_ids": row["input_ids"], "labels": row["labels"].long()} for row in data()]
    trainer = SelectionTrainer(
        make_model(), make_arguments(tmp_path), train_dataset=rows, selector=make_selector()
    )
    with pytest.raises(UserError, match=r"labels of type torch.int64.*0.0 and 1.0"):
        trainer.train()


def test_no_selector_and_no_rows_are_refused(tmp_path):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(data())

    arguments = make_arguments(tmp_path, max_steps=3)
    with pytest.raises(UserError, match="needs a Selector, got str; make one with"):
        SelectionTrainer(make_model(), arguments, train_dataset=data(), selector="d2ace")
    trainer = SelectionTrainer(
        make_model(), arguments, train_dataset=Stream(), selector=make_selector()
    )
    with pytest.raises(UserError, match="got Stream; store a stream first"):
        trainer.train()


def test_nothing_but_warm_up_is_reported(tmp_path):
    with pytest.warns(UserWarning, match="All 3 epochs are warm-up"):
        make_trainer(tmp_path, make_selector(warmup=10), num_train_epochs=2.5).train()
