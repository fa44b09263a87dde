"""What the page about frameworks says in passing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers_parts as text
from lightning_parts import Module, make_loader, make_selector, make_trainer
from transformers import BatchEncoding, default_data_collator

from d2ace.integrations.lightning import SelectionCallback
from d2ace.integrations.transformers import SelectionTrainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]


class Still(Module):
    """Predicts the same in every epoch, whatever its loss says."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        output = super().training_step(batch, batch_idx)
        return {"loss": output["loss"] * self.factor, "logits": output["logits"]}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.network.parameters(), lr=0.0)


def test_lightnings_loss_is_never_looked_at(tmp_path: Path) -> None:
    """Be it divided by the batches that are accumulated, or anything else: nothing changes."""
    drawn = []
    for factor, accumulate in ((1.0, 1), (1e6, 1), (1.0, 3)):
        selector, module = make_selector("hard_imb"), Still(factor)
        trainer = make_trainer(
            tmp_path, callbacks=[SelectionCallback(selector)], accumulate_grad_batches=accumulate
        )
        trainer.fit(module, make_loader(selector))
        drawn.append(module.drawn)
    assert drawn[0] == drawn[1] == drawn[2]


@pytest.mark.parametrize("unused", [True, False])
def test_row_numbers_pass_by_collators_columns_and_the_model(tmp_path: Path, unused: bool) -> None:
    columns: list[set[str]] = []

    def collate(items: list[dict[str, Any]]) -> BatchEncoding:
        columns.extend(set(item) for item in items)
        known = [{key: item[key] for key in ("input_ids", "labels")} for item in items]
        return BatchEncoding(default_data_collator(known))

    class Noting(SelectionTrainer):
        def training_step(self, model: Any, inputs: Any, *rest: Any) -> Any:
            drawn.append(inputs["d2ace_rows"])
            return super().training_step(model, inputs, *rest)

    drawn: list[list[int]] = []
    dataset = text.data()
    dataset.set_format("torch")  # the column "note" too, which the model does not know
    model = text.make_model()
    seen: list[set[str]] = []
    model.register_forward_pre_hook(
        lambda module, args, given: seen.append(set(given)), with_kwargs=True
    )
    trainer = Noting(
        model,
        text.make_arguments(tmp_path, remove_unused_columns=unused),
        train_dataset=dataset,
        data_collator=collate,
        selector=text.make_selector(),
    )
    trainer.train()
    assert drawn == text.by_hand()[0]
    assert set().union(*seen) <= {"input_ids", "labels", "num_items_in_batch"}
    assert set().union(*columns) == {"input_ids", "labels"} | (set() if unused else {"note"})
