"""A tiny text classifier and its data, and the same fine-tuning written by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import torch
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)

import d2ace
from d2ace.integrations.transformers import SelectionTrainer

N, Q, BATCH, EPOCHS, RATE = 29, 3, 4, 4, 5e-3  # the last batch has 1 row
BATCHES = 8


def data() -> datasets.Dataset:
    """Token sequences; the column "note" is none of the model's business."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, 40, (N, 6), generator=generator)
    labels = torch.stack([(tokens % (k + 2) == 0).any(1) for k in range(Q)], 1).float()
    columns = {"input_ids": tokens.tolist(), "labels": labels.tolist(), "note": ["x"] * N}
    dataset = datasets.Dataset.from_dict(columns)
    dataset.set_format("torch", columns=["input_ids", "labels"])
    return dataset


def make_model() -> BertForSequenceClassification:
    config = BertConfig(
        vocab_size=40,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=Q,
        problem_type="multi_label_classification",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return BertForSequenceClassification(config)


def make_selector(method: str = "d2ace", **options: Any) -> d2ace.Selector:
    given: dict[str, Any] = {"batch_size": BATCH, "epochs": EPOCHS, "warmup": 1, "seed": 7}
    return d2ace.make_selector(method, data()["labels"][:], **(given | options))


class Recording(SelectionTrainer):
    """Notes which rows it trained."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        if not hasattr(self, "drawn"):
            self.drawn: list[list[int]] = []
        self.drawn.append(inputs["d2ace_rows"])
        return super().training_step(model, inputs, num_items_in_batch)


def make_arguments(folder: Path | str, **options: Any) -> TrainingArguments:
    given: dict[str, Any] = {
        "per_device_train_batch_size": BATCH,
        "num_train_epochs": EPOCHS,
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "optim": "adamw_torch",
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "logging_strategy": "no",
    }
    return TrainingArguments(str(folder), **(given | options))


def make_trainer(folder: Path | str, selector: Any = None, **options: Any) -> Recording:
    extra = {key: options.pop(key) for key in ("callbacks", "eval_dataset") if key in options}
    return Recording(
        make_model().to(options.pop("dtype", torch.float32)),
        make_arguments(folder, **options),
        train_dataset=data(),
        selector=make_selector() if selector is None else selector,
        **extra,
    )


def searching(folder: Path | str, selector: Any, **options: Any) -> Recording:
    """A Trainer that makes a new model for every training, as a search for settings does."""
    return Recording(
        None,
        make_arguments(folder, **options),
        train_dataset=data(),
        model_init=make_model,
        selector=selector,
    )


def by_hand(
    accumulate: int = 1,
    dtype: torch.dtype = torch.float32,
    method: str = "d2ace",
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
    lengths: list[int] | None = None,
    **options: Any,
) -> tuple[list[list[int]], list[torch.Tensor]]:
    """The plain loop: the batches drawn and the weights it ends with.

    How many batches each epoch has is added to ``lengths``.
    """
    selector, model = make_selector(method, **options), make_model().to(dtype)
    dataset = data()
    make = optimizer or partial(torch.optim.AdamW, lr=RATE, weight_decay=0.0)
    steps = make(model.parameters())
    loader = DataLoader(
        d2ace.IndexedDataset(dataset), batch_sampler=selector, collate_fn=lambda items: items
    )
    selector.learning_rate = steps.param_groups[0]["lr"]  # DIHCL reads it
    drawn = []
    model.train()
    for _ in range(EPOCHS):
        batches = len(loader)
        if lengths is not None:
            lengths.append(batches)
        for number, items in enumerate(loader):
            index = [row for row, _ in items]
            drawn.append(index)
            weight = selector.loss_weight(index)
            inputs = default_data_collator([item for _, item in items])
            logits = model(input_ids=inputs["input_ids"]).logits
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                logits, inputs["labels"], None if weight is None else weight.expand_as(logits)
            )
            window = min(accumulate, batches - number // accumulate * accumulate)
            (loss / window).backward()
            selector.observe(index, logits=logits.float())
            if (number + 1) % accumulate == 0 or number + 1 == batches:
                steps.step()
                steps.zero_grad()
    return drawn, [parameter.detach() for parameter in model.parameters()]


class Killed(TrainerCallback):
    """Ends the run right after a step, as if the machine had gone away."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt
