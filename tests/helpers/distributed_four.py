"""Four processes share a selector's state: python distributed_four.py FOLDER; each writes RANK.pt.

What one process draws is computed by the tests, with the functions here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, distributed

import d2ace
from d2ace._util.errors import UserError
from d2ace.selectors import DistributedSelector

WORLD, N, Q, BATCH, EPOCHS = 4, 101, 5, 14, 4  # blocks of 26, 26, 26 and 23 rows
METHODS = ("random", "balance", "active", "recent", "hard_imb", "ml_unc", "d2ace", "online_batch",
           "ada_boundary")  # fmt: skip
SENT = [(name, *shape) for name in ("d2ace", "ml_unc") for shape in ((20_000, 6), (2_000, 60))]
COUNTS = Path("/proc/self/io")  # on Linux
REFUSED = ("dihcl", "info_batch", "trim")


def problem(n: int = N) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    return (torch.rand(n, Q, generator=source) < 0.4).float(), torch.rand(n, 3, generator=source)


def make(name: str, n: int = N, **options: Any) -> d2ace.Selector:
    common: dict[str, Any] = {"batch_size": BATCH, "epochs": EPOCHS, "warmup": 1, "seed": 2}
    return d2ace.make_selector(name, *problem(n), **(common | {"dtype": torch.float64} | options))


def predictions(rows: list[int], epoch: int) -> Tensor:
    """A function of row, label and epoch."""
    angle = torch.tensor(rows).double()[:, None] * 0.7 * torch.arange(1, Q + 1) + epoch
    return 3 * angle.sin()


class Drive:
    """Train with a selector and keep what was drawn."""

    def __init__(self, selector: d2ace.Selector, *, shard: bool = True) -> None:
        self.selector = selector
        self.batches = DistributedSelector(selector, shard=shard)
        self.parts: list[list[list[int]]] = []
        self.P: list[Tensor] = []
        self.weights: list[Tensor | None] = []

    def train(self, epochs: int, stop: int = 0) -> Drive:
        """Whole epochs, and then ``stop`` batches of the next one."""
        for number in range(epochs + bool(stop)):
            drawn: list[list[int]] = []
            for rows in self.batches:
                scale = self.batches.loss_scale(rows)
                weight = self.batches.loss_weight(rows)
                self.weights.append(None if weight is None else weight * bool(scale))
                self.batches.observe(rows, logits=predictions(rows, self.selector.drawn_epoch))
                drawn.append(rows if scale else [])
                if number == epochs and len(drawn) == stop:
                    break
            self.parts.append(drawn)
            if self.selector.drawn_probabilities is not None:
                self.P.append(self.selector.drawn_probabilities)
        return self

    def seen(self) -> dict[str, Any]:
        self.batches.share()
        kept = sum(value.numel() for value in self.selector.memory.state_dict().values())
        return {"parts": self.parts, "P": self.P, "weights": self.weights, "kept": kept}


def cases() -> dict[str, Callable[[], d2ace.Selector]]:
    """Selectors whose batches four processes and one must agree on."""
    made: dict[str, Callable[[], d2ace.Selector]] = {
        name: lambda name=name: make(name) for name in METHODS
    }
    made |= {
        "ones": lambda: make("ml_unc", preset="reference"),
        "mirrored": lambda: make("d2ace", preset="reference", warmup=1),
        "float32": lambda: make("d2ace", dtype=torch.float32),
        "compact": lambda: make("ml_unc", state="compact"),
        "epoch": lambda: make("d2ace", draw="epoch", rows_per_epoch=(1.0, 0.4)),
        "again": lambda: make("d2ace", replacement=True, importance_weighting=True),
        "few": lambda: make("d2ace", n=5, batch_size=4),  # a process keeps no row
        "narrow": lambda: make("ml_unc", n=9, batch_size=4),  # the last batch has one row
    }
    return made


def refusal(do: Callable[[], Any]) -> str:
    try:
        do()
    except (UserError, ValueError, RuntimeError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return "nothing was noticed"


def saved_states(folder: Path) -> None:
    """Load what one process saved in the middle of an epoch, train on, and save."""
    plain = Drive(make("d2ace"))
    plain.batches.load_state_dict(torch.load(folder / "one.pt", weights_only=True))
    torch.save(plain.train(1).seen(), folder / f"plain-{distributed.get_rank()}.pt")
    drive = Drive(make("d2ace"))
    dcp.load({"selector": drive.batches}, checkpoint_id=folder / "one")
    drive.train(1, stop=3)
    dcp.save({"selector": drive.batches}, checkpoint_id=folder / "four")
    torch.save(drive.seen(), folder / f"resumed-{distributed.get_rank()}.pt")


def invalid(rank: int) -> dict[str, Any]:
    """One process predicts a NaN in the second batch; nobody takes that batch."""
    drive = Drive(make("d2ace"))
    for number, rows in enumerate(drive.batches):
        logits = predictions(rows, 1)
        if rank == 2 and number == 1:
            logits[0, 3] = torch.nan
            row = rows[0]
        drive.batches.observe(rows, logits=logits)
    told = refusal(drive.batches.share)
    return {"told": told, "row": row if rank == 2 else -1, "P": drive.selector.probabilities}


def uneven(rank: int, *, shard: bool) -> str:
    """One process leaves an epoch early, and another one observes nothing at all."""
    drive = Drive(make("d2ace"), shard=shard)
    for number, rows in enumerate(drive.batches):
        if rank == 0 or (rank == 1 and number == 3):
            break
        drive.batches.observe(rows, logits=predictions(rows, 1))
    return refusal(drive.batches.share)


def other(folder: Path) -> dict[str, str]:
    """States of other data; each refusal leaves the selector as it was."""
    labels, features = problem()
    made = {"batch_size": BATCH, "epochs": EPOCHS, "warmup": 1, "seed": 2, "dtype": torch.float64}
    selectors = {
        "rows": d2ace.D2ACE(labels.flip(0), features, **made),
        "features": d2ace.D2ACE(labels, features + 1, **made),
        "number": make("d2ace", n=N - 11),
    }
    told = {}
    for what, selector in selectors.items():
        state = {"selector": DistributedSelector(selector, shard=True)}
        try:
            dcp.load(state, checkpoint_id=folder / "one")
        except BaseException as refused:  # torch's own is no Exception
            told[what] = str(refused)
        assert selector.next_epoch == 1
    return told


def different(rank: int) -> dict[str, str]:
    """Selectors that one process made in another way."""
    one = rank == 1
    drives = {
        "method": Drive(make("active" if one else "d2ace")),
        "shape": Drive(make("d2ace", n=N - one)),
        "options": Drive(make("d2ace", window=3 if one else 5)),
        "on_invalid": Drive(make("d2ace", on_invalid="skip" if one else "error")),
        "shard": Drive(make("d2ace"), shard=not one),
    }
    return {what: refusal(partial(drive.train, 1)) for what, drive in drives.items()}


def written() -> int:
    """Bytes that this process wrote so far, to files and to others."""
    (line,) = [line for line in COUNTS.read_text().splitlines() if line.startswith("wchar:")]
    return int(line.split()[1])


def sent(name: str, n: int, q: int) -> int:
    """The bytes that this process sends for a P of n rows, by the system's count."""
    labels = (torch.rand(n, q, generator=torch.Generator().manual_seed(0)) < 0.1).float()
    selector = d2ace.make_selector(name, labels, batch_size=1000, epochs=9, warmup=1)
    batches = DistributedSelector(selector, shard=True)
    for rows in batches:
        batches.observe(rows, logits=labels[rows] - 0.3)
    batches.share()
    before = written()
    assert len(selector.probabilities) == n
    return written() - before


def refused() -> dict[str, str]:
    def sharded(**options: Any) -> Callable[[], Any]:
        return lambda: DistributedSelector(make(**options), shard=True)

    d2 = Drive(make("d2ace")).train(1)
    rows = d2.parts[0][0]
    return {
        **{name: refusal(sharded(name=name)) for name in REFUSED},
        "insights": refusal(sharded(name="d2ace", insights=True)),
        "table": refusal(sharded(name="hard_imb", preset="reference")),
        "direct": refusal(lambda: d2.selector.observe(rows, logits=predictions(rows, 1))),
    }


def lost(rank: int) -> str:
    """The last process dies in the middle of an epoch."""
    drive = Drive(make("active"))
    for number, rows in enumerate(drive.batches):
        if rank == WORLD - 1 and number == 2:
            os._exit(3)
        drive.batches.observe(rows, logits=predictions(rows, 1))
    return refusal(drive.batches.share)


def start(rank: int, world: int, folder: Path, seconds: int = 600) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting-{world}-{seconds}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=seconds),
    )


def four(rank: int, folder: Path, _: Any) -> None:
    start(rank, WORLD, folder)
    seen: dict[str, Any] = {name: Drive(made()).train(EPOCHS).seen()
                            for name, made in cases().items()}  # fmt: skip
    seen |= {"invalid": invalid(rank), "refused": refused()}
    seen["uneven"] = [uneven(rank, shard=shard) for shard in (True, False)]
    seen |= {"other": other(folder), "different": different(rank)}
    if COUNTS.exists():
        seen["sent"] = [sent(*each) for each in SENT]
    saved_states(folder)
    torch.save(seen, folder / f"{rank}.pt")
    distributed.barrier()
    torch.save(lost(rank), folder / f"lost-{rank}.pt")
    os._exit(0)  # the processes cannot part in order


def two(rank: int, folder: Path, told: Any) -> None:
    """Go on from what four processes saved, and save for one."""
    start(rank, 2, folder)
    drive = Drive(make("d2ace"))
    dcp.load({"selector": drive.batches}, checkpoint_id=folder / "four")
    drive.train(2)
    dcp.save({"selector": drive.batches}, checkpoint_id=folder / "two")
    torch.save(drive.seen(), folder / f"resumed-two-{rank}.pt")
    distributed.destroy_process_group()
    start(rank, 2, folder, seconds=2)
    if rank == 0:
        torch.save(refusal(drive.batches.share), folder / "silent.pt")
        told.set()
    told.wait()  # the second process is there, but does not answer
    os._exit(0)


def one(folder: Path) -> Drive:
    """An epoch and three batches of another, saved."""
    drive = Drive(make("d2ace")).train(1, stop=3)
    dcp.save({"selector": drive.batches}, checkpoint_id=folder / "one", no_dist=True)
    torch.save(drive.batches.state_dict(), folder / "one.pt")
    return drive


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    chosen = Path(sys.argv[1])
    one(chosen)
    context = torch.multiprocessing.get_context("fork")
    for what, world in ((four, WORLD), (two, 2)):
        told = context.Event()
        processes = [
            context.Process(target=what, args=(rank, chosen, told)) for rank in range(world)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        expected = [0] * world if what is two else [0] * (world - 1) + [3]
        codes = [process.exitcode for process in processes]
        if codes != expected:
            sys.exit(f"{what.__name__}: {codes}")
