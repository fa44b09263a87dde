"""Two Trainers, stopped and resumed: python resuming_trainers.py FOLDER (see resuming_legs)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from d2ace.integrations._torchvision import mend_torchvision

mend_torchvision()
import lightning.pytorch as pl  # noqa: E402
import lightning_parts  # noqa: E402
import transformers_parts  # noqa: E402
from resuming_legs import AFTER, INSIDE, Leg, Stopped, main  # noqa: E402
from transformers import TrainerCallback  # noqa: E402

from d2ace.integrations.lightning import SelectionCallback  # noqa: E402


class Saving(pl.Callback):
    """Saves a checkpoint at the leg's stop, and ends the run there."""

    def __init__(self, leg: Leg) -> None:
        self.leg = leg

    def _maybe_stop(self, trainer: pl.Trainer, moment: str) -> None:
        if self.leg.at(moment):
            trainer.save_checkpoint(self.leg.end)
            raise Stopped

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._maybe_stop(trainer, INSIDE)

    def on_train_epoch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self._maybe_stop(trainer, AFTER)


def made(leg: Leg, parts: Any) -> Any:
    """The case's selector, new."""
    return parts.make_selector(leg.case.get("method", "d2ace"), **leg.case.get("options", {}))


def lightning(leg: Leg) -> None:
    selector = made(leg, lightning_parts)
    module = lightning_parts.Module(selector)
    module.drawn = leg.rows
    loader = lightning_parts.make_loader(selector, leg.case["workers"])
    callbacks = [SelectionCallback(selector), Saving(leg)]
    trainer = lightning_parts.make_trainer(leg.folder, callbacks=callbacks)
    trainer.fit(module, loader, ckpt_path=leg.begin)


class Checkpoint(TrainerCallback):
    """Asks for a checkpoint at the leg's stop, and ends the run once it is written."""

    def __init__(self, leg: Leg) -> None:
        self.leg = leg

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_save |= self.leg.at(INSIDE)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_save |= self.leg.at(AFTER)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        (Path(args.output_dir) / f"checkpoint-{state.global_step}").rename(self.leg.end)
        raise Stopped


def _hugging_face(leg: Leg, selector: Any, **options: Any) -> transformers_parts.Recording:
    trainer = transformers_parts.make_trainer(
        leg.folder,
        selector,
        callbacks=[Checkpoint(leg)],
        dataloader_num_workers=leg.case["workers"],
        optim="sgd",  # it keeps nothing that a state loaded by hand would lack
        learning_rate=0.5,
        **options,
    )
    trainer.drawn = leg.rows
    return trainer


def checkpoint(leg: Leg) -> None:
    """Hugging Face's Trainer, resumed from its checkpoints."""
    trainer = _hugging_face(leg, made(leg, transformers_parts))
    trainer.train(resume_from_checkpoint=str(leg.begin) if leg.begin else None)


def by_hand(leg: Leg) -> None:
    """Hugging Face's Trainer, begun anew with a selector and weights that were loaded before."""
    selector = made(leg, transformers_parts)
    if leg.begin:
        selector.load_state_dict(torch.load(leg.begin / "selector.pt", weights_only=True))
    left = transformers_parts.EPOCHS - selector.epoch + 1
    trainer = _hugging_face(leg, selector, num_train_epochs=left)
    if leg.begin:
        saved = type(trainer.model).from_pretrained(leg.begin)
        trainer.model.load_state_dict(saved.state_dict())
    trainer.train()


if __name__ == "__main__":
    torch.set_num_threads(1)
    trains = {"lightning": lightning, "checkpoint": checkpoint, "by hand": by_hand}
    main(trains, Path(sys.argv[1]))
