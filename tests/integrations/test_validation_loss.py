"""Frameworks tell a selector their validation loss by themselves, and apply its loss weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import lightning_parts
import numpy as np
import pytest
import torch
import transformers_parts
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.utils.data import DataLoader, TensorDataset

import d2ace
from d2ace._util.errors import UserError
from d2ace.data import make_multilabel
from d2ace.integrations.lightning import SelectionCallback
from d2ace.integrations.sklearn import MultiLabelClassifier
from d2ace.selectors import DistributedSelector

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*is not resumable"),
    pytest.mark.filterwarnings("ignore:.*exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:The selector was made for"),
]
LOSSES = [0.7, 0.6, 0.65, 0.5, 0.5]
"""After every epoch; the third is the first that rises."""


class Validating(lightning_parts.Module):
    """Weighs its loss in one line, and logs a validation loss: very low in the sanity check."""

    logged = "val_loss"
    weighs = True

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        index, x, y = batch
        self.drawn.append(index.tolist())
        logits = self.network(x)
        loss = self.batches.loss(logits, y, index) if self.weighs else bce(logits, y)
        return {"loss": loss, "logits": logits}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        checking = self.trainer.sanity_checking
        self.log(self.logged, torch.tensor(0.01 if checking else LOSSES[self.current_epoch]))


def fitted(
    folder: Path,
    batches: Any,
    module: lightning_parts.Module | None = None,
    resumed: Any = None,
    callbacks: tuple[Any, ...] = (),
    **options: Any,
) -> lightning_parts.Module:
    module = Validating(batches) if module is None else module
    own = SelectionCallback(batches, **options.pop("selection", {}))
    trainer = lightning_parts.make_trainer(folder, callbacks=[own, *callbacks], **options)
    rows = DataLoader(TensorDataset(*lightning_parts.data()), batch_size=16)
    trainer.fit(module, lightning_parts.make_loader(batches), rows, ckpt_path=resumed)
    return module


def by_hand() -> tuple[list[list[int]], list[torch.Tensor]]:
    """The plain loop: batches, and the weights that it ends with."""
    selector, model = lightning_parts.make_selector("trim"), lightning_parts.network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    drawn = []
    for loss_now in LOSSES:
        for index, x, y in lightning_parts.make_loader(selector):
            drawn.append(index.tolist())
            logits = model(x)
            weight = selector.loss_weight(index)
            pairs = bce(logits, y, reduction="none")
            loss = (pairs if weight is None else pairs * weight).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            selector.observe(index, logits=logits)
        selector.validated(loss_now)
    return drawn, [parameter.detach() for parameter in model.parameters()]


def assert_same(module: lightning_parts.Module, drawn: Any, weights: Any) -> None:
    assert module.drawn == drawn
    for mine, theirs in zip(module.network.parameters(), weights, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-7)


class TestLightning:
    @pytest.mark.parametrize("wrap", [lambda selector: selector, DistributedSelector])
    def test_numbers_are_those_of_the_plain_loop(self, tmp_path, wrap):
        selector = lightning_parts.make_selector("trim")
        module = fitted(tmp_path, wrap(selector))
        assert selector.first_trimmed_epoch == 4
        assert_same(module, *by_hand())

    def test_killed_twice_around_the_start(self, tmp_path):
        class Killed(pl.Callback):
            def __init__(self, epoch):
                self.epoch = epoch

            def on_train_batch_start(self, trainer, *_: Any) -> None:
                if trainer.current_epoch == self.epoch:
                    raise ZeroDivisionError

        drawn, weights = by_hand()
        resumed = None
        for epoch in (3, 4):  # after the loss that rises, and in the epoch that is trimmed
            kept = ModelCheckpoint(tmp_path, f"{epoch}")
            with pytest.raises(ZeroDivisionError):
                fitted(
                    tmp_path,
                    lightning_parts.make_selector("trim"),
                    resumed=resumed,
                    callbacks=(kept, Killed(epoch)),
                    enable_checkpointing=True,
                )
            resumed = tmp_path / f"{epoch}.ckpt"
        module = fitted(tmp_path, lightning_parts.make_selector("trim"), resumed=resumed)
        assert_same(module, drawn[4 * lightning_parts.BATCHES :], weights)

    def test_the_loss_may_have_another_name(self, tmp_path):
        class Named(Validating):
            logged = "loss/validation"

        selector = lightning_parts.make_selector("trim")
        fitted(tmp_path, selector, Named(selector), selection={"monitor": "loss/validation"})
        assert selector.first_trimmed_epoch == 4

    def test_a_loss_that_is_not_logged_is_reported(self, tmp_path):
        class Named(Validating):
            logged = "valid"

        selector = lightning_parts.make_selector("trim")
        sentence = r"Trim starts by the validation loss, .* logs no 'val_loss' \(logged: valid\); "
        with pytest.warns(UserWarning, match=sentence):
            fitted(tmp_path, selector, Named(selector), max_epochs=1)

    def test_a_module_that_forgets_the_weights_is_warned(self, tmp_path):
        class Forgetting(Validating):
            weighs = False

        selector = lightning_parts.make_selector("trim")
        with pytest.warns(UserWarning, match=r"or train on selector\.loss\(logits, targets"):
            fitted(tmp_path, selector, Forgetting(selector))

    def test_validating_outside_of_training_is_not_told(self, tmp_path):
        selector = lightning_parts.make_selector("trim")
        trainer = lightning_parts.make_trainer(tmp_path, callbacks=[SelectionCallback(selector)])
        rows = DataLoader(TensorDataset(*lightning_parts.data()), batch_size=16)
        trainer.validate(Validating(selector), rows, verbose=False)
        assert selector.awaits_validation


class Fixed(transformers_parts.Recording):
    """Reports the losses above, in turn; the real ones of so short a training hardly rise."""

    def evaluation_loop(self, *args: Any, **options: Any) -> Any:
        output = super().evaluation_loop(*args, **options)
        key = f"{options['metric_key_prefix']}_loss"
        output.metrics[key] = LOSSES[max(round(self.state.epoch or 0) - 1, 0)]
        return output


def hugging_face(folder: Path, **options: Any) -> Fixed:
    more = {key: options.pop(key) for key in ("callbacks", "eval_dataset") if key in options}
    given = {"eval_dataset": transformers_parts.data(), "callbacks": []} | more
    return Fixed(
        transformers_parts.make_model(),
        transformers_parts.make_arguments(folder, **({"eval_strategy": "epoch"} | options)),
        train_dataset=transformers_parts.data(),
        selector=transformers_parts.make_selector("trim"),
        **given,
    )


class TestHuggingFace:
    def by_hand(self) -> tuple[list[list[int]], list[torch.Tensor]]:
        selector = transformers_parts.make_selector("trim")
        model, dataset = transformers_parts.make_model(), transformers_parts.data()
        steps = torch.optim.AdamW(model.parameters(), lr=transformers_parts.RATE, weight_decay=0.0)
        drawn = []
        model.train()
        for loss_now in LOSSES[: transformers_parts.EPOCHS]:
            for index in selector:
                drawn.append(index)
                logits = model(input_ids=dataset[index]["input_ids"]).logits
                selector.loss(logits, dataset[index]["labels"], index).backward()
                selector.observe(index, logits=logits)
                steps.step()
                steps.zero_grad()
            selector.validated(loss_now)
        return drawn, [parameter.detach() for parameter in model.parameters()]

    def test_numbers_are_those_of_the_plain_loop(self, tmp_path):
        trainer = hugging_face(tmp_path)
        trainer.train()
        assert trainer.selector.first_trimmed_epoch == 4
        drawn, weights = self.by_hand()
        assert trainer.drawn == drawn
        for mine, theirs in zip(trainer.model.parameters(), weights, strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-7)

    @pytest.mark.parametrize(
        ("options", "saved"),
        [({"save_strategy": "epoch"}, 24), ({"save_strategy": "steps", "save_steps": 5}, 25)],
        ids=["after the loss that rises", "in the epoch that is trimmed"],
    )
    def test_killed_twice_around_the_start(self, tmp_path, options, saved):
        for step in (27, 29):
            trainer = hugging_face(tmp_path, callbacks=[transformers_parts.Killed(step)], **options)
            with pytest.raises(KeyboardInterrupt):
                trainer.train(resume_from_checkpoint=step > 27)
        trainer = hugging_face(tmp_path, **options)
        trainer.train(resume_from_checkpoint=True)
        drawn, weights = self.by_hand()
        assert trainer.drawn == drawn[saved:]
        for mine, theirs in zip(trainer.model.parameters(), weights, strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-5, atol=1e-7)

    def test_of_several_datasets_the_one_that_is_named(self, tmp_path):
        rows = transformers_parts.data()
        options: dict[str, Any] = {"eval_dataset": {"one": rows, "two": rows}}
        trainer = hugging_face(tmp_path, metric_for_best_model="two_loss", **options)
        trainer.train()
        assert trainer.selector.first_trimmed_epoch == 4

    def test_evaluating_outside_of_training_is_not_told(self, tmp_path):
        trainer = hugging_face(tmp_path)
        trainer.evaluate()
        assert trainer.selector.awaits_validation

    def test_without_evaluation_it_is_said(self, tmp_path):
        trainer = hugging_face(tmp_path, eval_strategy="no")
        with pytest.warns(UserWarning, match=r"^Trim waits for a validation loss, but 2 epochs"):
            trainer.train()


class TestScikitLearn:
    def classifier(self, **options: Any) -> MultiLabelClassifier:
        given: dict[str, Any] = {
            "model": "mlp",
            "model_options": {"h": 16, "L": 1},
            "selector": "trim",
            "epochs": 8,
            "warmup": 0,
            "batch_size": 16,
            "learning_rate": 0.1,
            "device": "cpu",
            "random_state": 0,
            "n_iter_no_change": 24,
        }
        return MultiLabelClassifier(**(given | options))

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        data = make_multilabel(240, 60, 5, seed=3)
        labels = np.asarray(data.Y, dtype=np.int64)
        flipped = np.random.default_rng(0).random(labels.shape) < 0.3
        return np.asarray(data.X, dtype=np.float32), np.where(flipped, 1 - labels, labels)

    def test_it_starts_by_the_rows_held_out(self):
        X, Y = self.table()
        held_out: dict[str, Any] = {"early_stopping": True, "epochs": 24}
        held_out |= {"model_options": {"h": 256, "L": 1, "p": 0.0}, "learning_rate": 0.03}
        plain = held_out | {"selector": "random"}
        losses = [
            [entry["train_loss"] for entry in self.classifier(**options).fit(X, Y).history_]
            for options in (held_out, plain)
        ]
        same = [one == other for one, other in zip(*losses, strict=True)]
        first = same.index(False)
        assert first > 1
        assert same == [True] * first + [False] * (len(same) - first)

    def test_without_rows_held_out_it_needs_its_first_epoch(self):
        X, Y = self.table()
        with pytest.raises(UserError, match=r"^The selector trim starts by .* set early_stopping"):
            self.classifier().fit(X, Y)
        self.classifier(epochs=3, selector_options={"start": 2}).fit(X, Y)


def test_processes_agree_on_the_mean_of_their_losses_and_one_has_its_own():
    selector = d2ace.Trim(torch.eye(8), batch_size=4, fall=0)
    alone = DistributedSelector(selector)
    alone.validated(0.5)
    alone.validated(torch.tensor(0.6))
    assert selector.first_trimmed_epoch == 1
