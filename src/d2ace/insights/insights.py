"""Insights: probably wrong labels, hard rows and labels not learnt, from training predictions."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace._util.checksum import checksum, form, labels_checksum
from d2ace._util.errors import UserError
from d2ace._util.isolation import isolated
from d2ace._util.observations import (
    device_rows,
    given_predictions,
    host_rows,
    refuse_shape,
    state_device,
)
from d2ace._util.staging import Sink, Staging

from . import scoring
from .pairs import PairSums
from .records import Records

FORMAT = 1
_KEYS = {"format", "kind", "shape", "labels", "state", "device", "sums", "checksum"}
_ABOVE = 1.5
"""Default limit of suspicion for a flag; benchmarks/insights.md shows how it was chosen."""


class Insights:
    """What training predictions say about the labels they were trained on.

    Pass every batch to :meth:`observe`, in any loop, with any sampler. Rows may be visited
    unequally often: everything is a mean over visits.

    Parameters
    ----------
    labels : [n, q] zeros and ones
        The labels that the model is trained on, as torch, numpy or scipy.sparse.
    label_names, row_names : sequence of str, optional
        Names to show in every table.
    state : "full" or "compact"
        "full" takes 8 bytes per pair. "compact" takes 4 and keeps no loss: hardness is then the
        mean of |p - y|; suspicion is the same. Both also keep the labels, at one byte per pair.
    on_invalid : "error" or "skip"
        Refuse a NaN or infinite prediction, or replace it by the pair's mean so far.
    """

    def __init__(
        self,
        labels: inputs.Labels,
        *,
        label_names: Sequence[str] | None = None,
        row_names: Sequence[str] | None = None,
        state: str = "full",
        on_invalid: str = "error",
    ) -> None:
        self._labels = inputs.label_matrix(labels)
        self.n, self.q = self._labels.shape
        self.label_names = _names("label_names", label_names, self.q)
        self.row_names = _names("row_names", row_names, self.n)
        self.state = inputs.choice("state", state, ("full", "compact"))
        self.on_invalid = inputs.choice("on_invalid", on_invalid, ("error", "skip"))
        self._own = self._nothing()
        self._staging: Staging | None = None
        self._feeder: Staging | None = None  # of a selector that passes its predictions on
        self._given: Tensor | None = None

    # Observing ------------------------------------------------------------------------------

    @property
    def state_device(self) -> torch.device:
        """The device of the state: that of the first observed predictions."""
        return self._own.visits.device

    @isolated
    def observe(self, index: Any, *unnamed: Any, logits: Any = None, probs: Any = None) -> None:
        """Observe the predictions [b, q] for the row indices ``index`` [b], once per trained batch.

        Give either ``logits`` or ``probs``. They are detached from the graph. If a row occurs
        twice in a batch, the first occurrence counts. On an accelerator nothing is read back:
        invalid predictions are skipped at once and reported when you next read a result; so is
        a row that occurs twice in an ``index`` on the accelerator.
        """
        if self._feeder is not None:
            raise UserError(
                "The selector already passes every batch to these insights; call only "
                "selector.observe, or each batch counts twice."
            )
        values, are_logits = given_predictions(*unnamed, logits=logits, probs=probs)
        if values.is_meta:
            raise TypeError(
                "The predictions are on the meta device, so they have no values; move model and "
                "data to a real device."
            )
        home = self.state_device if self._staging else state_device(values.device)
        far = isinstance(index, Tensor) and index.device.type != "cpu" and home.type != "cpu"
        rows = device_rows(index) if far else host_rows(index, self.n, unique=False)
        refuse_shape(values, (len(index), self.q), "logits" if are_logits else "probs")
        if len(index):
            self._staged(home).add(rows, values, are_logits=are_logits)

    def _staged(self, device: torch.device) -> Staging:
        if self._staging is None:
            self._staging = Staging(
                (self.n, self.q),
                device,
                torch.float32,
                sinks=(self.sink,),
                gather=True,
                skip_invalid=self.on_invalid == "skip",
            )
        return self._staging

    def _advance(self, index: Tensor, probs: Tensor) -> None:
        given = self._labels_on(index.device).index_select(0, index)
        self._sums_on(index.device).update(index, probs, given)

    def _stand_in(self, index: Tensor, probs: Tensor) -> Tensor:
        return self._sums_on(index.device).last_known(index, probs)

    def _sums_on(self, device: torch.device) -> PairSums:
        if self._own.visits.device != device:
            self._own.to(device)
        return self._own

    def _labels_on(self, device: torch.device) -> Tensor:
        """Y as booleans [n, q]."""
        if self._given is None or self._given.device != device:
            self._given = torch.from_numpy(self._labels.astype(np.bool_).toarray()).to(device)
        return self._given

    @property
    def sink(self) -> Sink:
        """A selector passes the predictions that it has checked to this."""
        return Sink(self._advance, self._stand_in)

    def fed_by(self, staging: Staging) -> None:
        """Before reading, take in the predictions that wait in a selector's ``staging``."""
        if self._feeder is not None and self._feeder is not staging:
            self._feeder.flush()  # of another selector
        self._feeder = staging

    def _nothing(self) -> PairSums:
        """The sums before anything was observed, whatever the caller makes tensors on and for."""
        with torch.inference_mode(False), torch.device("cpu"):
            return PairSums(self.n, self.q, with_loss=self.state == "full")

    def _replace(self, sums: PairSums) -> None:
        """Take these sums in place of all that was observed, also of what still waits."""
        if self._feeder is not None:
            self._feeder.flush()
        self._own, self._staging, self._feeder = sums, None, None

    def _settled(self) -> PairSums:
        """The sums, including everything observed."""
        for staging in (self._staging, self._feeder):
            if staging is not None:
                staging.flush()
                staging.raise_fault()
        return self._own

    # Reading --------------------------------------------------------------------------------

    @property
    def unobserved(self) -> np.ndarray[Any, Any]:
        """Indices of the rows that were never observed; their suspicion is undefined (NaN)."""
        return np.flatnonzero(self._settled().visits.cpu().numpy() == 0)

    @isolated
    def suspicion(self) -> Tensor:
        """[n, q], float32: larger means more probably wrong; NaN for rows never observed.

        These are the log-odds of the opposite of the given value. They use the mean probability, or
        the mean probability adjusted for the row's other given labels, whichever is larger. Half
        the mean over all pairs with the same label and given value is subtracted.
        """
        sums = self._observed()
        given = self._labels_on(sums.visits.device)
        return scoring.suspicion(sums.mean_probability(), given, sums.visits > 0)

    @isolated
    def label_issues(self, above: float | None = None) -> Records:
        """The flagged pairs, most suspicious first.

        Columns: ``row``, ``label``, ``given``, ``suggested``, ``suspicion`` and ``probability``
        (the mean); also ``row_name`` and ``label_name`` if there are names.

        Parameters
        ----------
        above : float, optional
            Flag pairs with a larger suspicion; 1.5 by default. A larger value flags fewer pairs,
            and a larger share of them rightly.
        """
        score = self.suspicion()
        flagged = self._flagged(score, above)
        row, label = (part.cpu().numpy() for part in flagged.nonzero(as_tuple=True))
        found = score[flagged].cpu().numpy()
        probability = self._settled().mean_probability()[flagged].cpu().numpy()
        given = self._labels_on(score.device)[flagged].cpu().numpy().astype(np.int64)
        order = np.argsort(-found, kind="stable")
        row, label, given = row[order], label[order], given[order]
        return Records(
            {
                "row": row,
                **_named("row_name", self.row_names, row),
                "label": label,
                **_named("label_name", self.label_names, label),
                "given": given,
                "suggested": 1 - given,
                "suspicion": found[order],
                "probability": probability[order],
            }
        )

    @isolated
    def rows(self, above: float | None = None) -> Records:
        """One record per row: the data map.

        Columns: ``row``; ``visits``; ``confidence``, the mean probability of the given values, and
        ``variability``, its standard deviation over visits; ``flips``, the share of decisions that
        changed from one visit to the next; ``hardness``, the mean loss; ``suspected``, how many
        pairs :meth:`label_issues` flags. NaN where there were too few visits.
        """
        score = self.suspicion()
        sums = self._settled()
        visits = sums.visits.to(torch.float64)
        seen, again = visits > 0, visits > 1
        mean = sums.confidence / visits
        spread = (sums.confidence_squares / visits - mean * mean).clamp_min(0.0).sqrt()
        flips = sums.flips / ((visits - 1.0) * self.q)
        hard = sums.mean_loss(self._labels_on(score.device)).mean(dim=1, dtype=torch.float64)
        columns = {
            "visits": sums.visits,
            "confidence": mean,
            "variability": torch.where(again, spread, torch.nan),
            "flips": torch.where(again, flips, torch.nan),
            "hardness": torch.where(seen, hard, torch.nan),
            "suspected": self._flagged(score, above).sum(dim=1),
        }
        number = np.arange(self.n)
        return Records(
            {
                "row": number,
                **_named("row_name", self.row_names, number),
                **{name: column.cpu().numpy() for name, column in columns.items()},
            }
        )

    @isolated
    def labels(self, above: float | None = None) -> Records:
        """One record per label.

        Columns: ``label``; ``positives``, as given; ``learnt``, how far apart the predictions of
        positives and negatives are, in [0, 1] (NaN if there is one class); ``missing``, the
        estimated share of true positives that are given as negatives; ``spurious``, the estimated
        share of given positives that are wrong; ``hardness``, the mean loss. Missing and spurious
        count the pairs that :meth:`label_issues` flags. Only observed rows count.
        """
        score = self.suspicion()
        sums = self._settled()
        given = self._labels_on(score.device)
        seen = sums.visits > 0
        flagged = self._flagged(score, above)
        positives = (given & seen.unsqueeze(1)).sum(dim=0).to(torch.float64)
        missing, spurious = (flagged & ~given).sum(dim=0), (flagged & given).sum(dim=0)
        true = positives - spurious + missing
        columns = {
            "positives": given.sum(dim=0),
            "learnt": scoring.learnt(sums.mean_probability(), given, seen),
            "missing": missing / true,  # NaN if there are none
            "spurious": spurious / positives,
            "hardness": sums.mean_loss(given)[seen].mean(dim=0, dtype=torch.float64),
        }
        number = np.arange(self.q)
        return Records(
            {
                "label": number,
                **_named("label_name", self.label_names, number),
                **{name: column.cpu().numpy() for name, column in columns.items()},
            }
        )

    def apply(
        self, labels: inputs.Labels, *, above: float | None = None, as_weights: bool = False
    ) -> tuple[Any, Records]:
        """A corrected copy of ``labels``, and a table of the changes.

        The copy is a tensor for a tensor, a sparse matrix of the same format for a sparse one, else
        an array. ``labels`` does not change.

        Parameters
        ----------
        labels : [n, q] zeros and ones
            The labels that these insights were made with.
        above : float, optional
            As in :meth:`label_issues`.
        as_weights : bool
            Return weights for the loss instead of labels: 0 for a flagged pair, else 1 (float32).
        """
        matrix = inputs.label_matrix(labels)
        self.refuse_other_labels(matrix)
        issues = self.label_issues(above)
        row, label = issues["row"], issues["label"]
        if inputs.truth("as_weights", as_weights):
            weights = np.ones((self.n, self.q), dtype=np.float32)
            weights[row, label] = 0.0
            return (torch.from_numpy(weights) if isinstance(labels, Tensor) else weights), issues
        if sp.issparse(labels):
            lil = matrix.tolil(copy=True)
            lil[row, label] = issues["suggested"].astype(lil.dtype)
            fixed = sp.csr_array(lil)
            fixed.eliminate_zeros()
            return type(labels)(fixed.astype(labels.dtype)), issues  # in the format given
        dense: Any
        if isinstance(labels, Tensor):
            dense = labels.detach().to_dense().clone()
            dense[torch.from_numpy(row), torch.from_numpy(label)] = torch.as_tensor(
                issues["suggested"], dtype=dense.dtype, device=dense.device
            )
            return dense, issues
        dense = np.array(labels, copy=True)
        dense[row, label] = issues["suggested"].astype(dense.dtype)
        return dense, issues

    def refuse_other_labels(self, matrix: sp.csr_array) -> None:
        """Raise unless ``matrix`` [n, q] equals the labels that these insights were made with."""
        if matrix.shape != self._labels.shape or labels_checksum(matrix) != self._checksum:
            raise UserError(
                f"These labels ({matrix.shape[0]} x {matrix.shape[1]}) differ from those that the "
                f"insights were made with ({self.n} x {self.q}); pass the same labels, with rows "
                "in the same order."
            )

    @isolated
    def among(
        self,
        labels: inputs.Labels,
        rows: Any,
        *,
        label_names: Sequence[str] | None = None,
        row_names: Sequence[str] | None = None,
    ) -> Insights:
        """A copy with the row indices of a larger dataset; only its ``rows`` [n] were trained on.

        Row i of these insights is row ``rows[i]`` of ``labels``; the other rows were never
        observed.
        """
        matrix = inputs.label_matrix(labels)
        places = torch.as_tensor(np.asarray(rows, dtype=np.int64))
        self.refuse_other_labels(sp.csr_array(matrix[places.numpy()]))
        whole = Insights(
            matrix,
            label_names=label_names,
            row_names=row_names,
            state=self.state,
            on_invalid=self.on_invalid,
        )
        sums = self._settled()
        for name, value in sums.state_dict().items():
            whole._own.get_buffer(name)[places] = value.cpu()
        return whole

    def _observed(self) -> PairSums:
        sums = self._settled()
        if not bool((sums.visits > 0).any()):
            raise UserError(
                "Nothing was observed yet; call observe(index, logits=logits) for every training "
                "batch first."
            )
        return sums

    def _flagged(self, score: Tensor, above: float | None) -> Tensor:
        limit = _ABOVE if above is None else above
        return score > inputs.real_number("above", limit, -math.inf)  # False for NaN

    # Saving and resuming --------------------------------------------------------------------

    @cached_property
    def _checksum(self) -> int:
        return labels_checksum(self._labels)

    @isolated
    def state_dict(self) -> dict[str, Any]:
        """Everything observed: tensors and plain values."""
        sums = self._settled()
        state = {
            "format": FORMAT,
            "kind": "insights",
            "shape": [self.n, self.q],
            "labels": f"checksum {self._checksum:08x}",
            "state": self.state,
            "device": sums.visits.device.type,
            "sums": {name: value.clone() for name, value in sums.state_dict().items()},
        }
        return {**state, "checksum": checksum(state)}

    @isolated
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state that :meth:`state_dict` returned.

        A damaged state, or one for other labels, is refused and changes nothing.
        """
        self._refuse_unfit(state)
        sums = self._nothing()
        sums.load_state_dict(state["sums"])
        self._replace(sums)

    def _refuse_unfit(self, state: Any) -> None:
        if not isinstance(state, dict) or state.get("kind") != "insights":
            raise ValueError(
                "This is not a state of insights; load one that Insights.state_dict() returned."
            )
        if state.get("format") != FORMAT or state.keys() != _KEYS:
            odd = sorted(map(str, state.keys() ^ _KEYS))
            raise ValueError(
                f"The state has format {state.get('format')!r} and not {FORMAT}, or parts are "
                f"missing or unknown ({', '.join(odd) or 'none'}); load one that this version of "
                "d2ace saved."
            )
        own = self._own.state_dict()
        labels = f"checksum {self._checksum:08x}"
        for key, ours in (("shape", [self.n, self.q]), ("labels", labels), ("state", self.state)):
            if state[key] != ours:
                raise ValueError(
                    f"The state was saved with {key} {state[key]!r}, but these insights have "
                    f"{ours!r}; make them as they were then."
                )
        sums = state["sums"]
        forms = {name: form(value) for name, value in own.items()}
        if not isinstance(sums, dict) or {k: form(v) for k, v in sums.items()} != forms:
            raise ValueError("The state's sums do not fit these insights; load an intact copy.")
        if state["checksum"] != checksum(state):
            raise ValueError(
                "The state is damaged: its checksum does not match its content; load an intact "
                "copy."
            )

    def reset(self) -> None:
        """Forget everything observed."""
        self._replace(self._nothing())

    @isolated
    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, which drop the selector that feeds the original."""
        for staging in (self._staging, self._feeder):
            if staging is not None:
                staging.flush()
        return {**self.__dict__, "_staging": None, "_feeder": None}

    def __copy__(self) -> Insights:
        """A deep copy: a shallow one would keep writing into the original's sums."""
        return copy.deepcopy(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n}, q={self.q}, state={self.state!r})"


def _names(name: str, given: Any, count: int) -> list[str] | None:
    if given is None:
        return None
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        kind = "the text " if isinstance(given, (str, bytes)) else ""
        raise TypeError(f"{name} must be a sequence of {count} names, got {kind}{given!r}.")
    names = [str(item) for item in given]
    if len(names) != count:
        raise ValueError(f"{name} must have {count} names, got {len(names)}.")
    return names


def _named(
    column: str, names: list[str] | None, numbers: np.ndarray[Any, Any]
) -> dict[str, np.ndarray[Any, Any]]:
    """The names of rows or labels as a column, if there are names."""
    if names is None:
        return {}
    return {column: np.array([names[number] for number in numbers], dtype=object)}
