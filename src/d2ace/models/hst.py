"""HST: every label looks at its own part of the image; what it sees is compared across images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d2ace._util import validation as inputs
from d2ace._util.errors import UserError

from .base import ModelOutput
from .hst_layers import Decoupling, GatedGraph, PairHead
from .hst_losses import (
    cooccurrence_loss,
    instance_loss,
    margin_loss,
    pair_evidence,
    prototype_evidence,
    prototype_loss,
)
from .hst_prototypes import CLUSTERINGS, Reservoir, mean_centres
from .image import BACKBONE, ImageModel, label_counts, make_label_vectors
from .layers import LabelwiseLinear, batch_mean, full_precision

LATE = 5
"""Epochs before the prototypes are made; also how often they are made again, if at all."""
MARGINS = ("intra", "cross")
"""What is held against a threshold: a label's pairs in the image, its prototypes of others."""
SLOW_AFTER = 10
"""The epoch after which the learning rate is a tenth."""

_PAPER = {
    **BACKBONE,
    "freeze": "early",
    "label_vectors": "random",
    "h": 1024,
    "pool": "ceil",
    "w_co": 1.0,
    "w_inst": 1.0,
    "w_proto": 1.0,
    "bce_weight_late": 3.0,
    "K": 50,
    "clustering": "quick",
    "recompute_prototypes": False,
    "proto_sign": 1,
    "w_intra": 0.0,
    "w_cross": 0.0,
    "theta_intra": 1.0,
    "theta_cross": 1.0,
}


class HST(ImageModel):
    """Heterogeneous semantic transfer, for images with complete labels.

    Attention gives every label j a vector F_j of the image; a gated network carries messages
    along the label graph G between them; a classifier per label reads both. In training, a head
    predicts which labels occur together, F_j of two images is pulled together where both
    have label j and apart otherwise, and later towards prototypes of the label. Chen, Pu, Liu, Wu
    and Lin, IJCV 2024. Pseudo-labels, the method's answer to unknown labels, have no part here.

    A training loop calls :meth:`on_epoch_start` and :meth:`on_step`. One that does not trains with
    all terms but the prototypes' at full strength from the start.

    Parameters
    ----------
    n_features, Y_train, preset
        As for every image model, see :class:`~d2ace.models.image.ImageModel`.
    backbone, weights, freeze
        The backbone, its weights, and what of it is not trained ("resnet101", "pretrained",
        "early": all but the last stage).
    label_vectors : "random" or array [q, width]
        Z, see :func:`~d2ace.models.image.make_label_vectors`.
    h : int
        Width of a label's vector, even; attention and pair layers have half of it (1024).
    pool : "ceil" or "floor"
        What the 2 x 2 mean over the feature map does with the last row or column of an odd side:
        keep it, or leave it out (reference). The only row or column is kept.
    w_co, w_inst, w_proto : float
        Weights of the losses of label pairs, image pairs and prototypes (1; reference: 10, 0.05,
        0.05).
    bce_weight_late : float
        Weight of the cross-entropy from the sixth epoch on, 1 before (3).
    K : int
        Prototypes of a label (50; reference: 10).
    clustering : "quick" or "thorough"
        k-means from one start over at most 5,000 vectors of a label, 30 iterations; or the best
        of ten starts over all of them, 300 iterations each (reference).
    recompute_prototypes : bool
        Make them again every five epochs (False; reference: True).
    proto_sign : 1 or -1
        Pull positives to their prototypes, or push them away (reference).
    w_intra, w_cross : float
        Weights of two losses from the sixth epoch on, in which a label's pairs and its prototypes
        speak for it as far as they exceed thresholds (0; reference: 0.1).
    theta_intra, theta_cross : float
        These thresholds (1.0). Where its loss has a weight, one is trained from there; else
        nothing depends on it.
    """

    name: ClassVar[str] = "hst"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": _PAPER,
        "reference": {
            **_PAPER,
            "w_co": 10.0,
            "w_inst": 0.05,
            "w_proto": 0.05,
            "K": 10,
            "pool": "floor",
            "clustering": "thorough",
            "recompute_prototypes": True,
            "proto_sign": -1,
            "w_intra": 0.1,
            "w_cross": 0.1,
        },
    }

    Z: Tensor
    G: Tensor
    prototypes: Tensor
    pairs: Tensor
    theta_intra: nn.Parameter | None
    theta_cross: nn.Parameter | None

    def __init__(
        self,
        n_features: int,
        Y_train: inputs.Labels,
        *,
        preset: str = "paper",
        backbone: str | nn.Module | None = None,
        weights: str | None = None,
        freeze: str | Sequence[str] | None = None,
        label_vectors: Any = None,
        h: int | None = None,
        pool: str | None = None,
        w_co: float | None = None,
        w_inst: float | None = None,
        w_proto: float | None = None,
        bce_weight_late: float | None = None,
        K: int | None = None,
        clustering: str | None = None,
        recompute_prototypes: bool | None = None,
        proto_sign: int | None = None,
        w_intra: float | None = None,
        w_cross: float | None = None,
        theta_intra: float | None = None,
        theta_cross: float | None = None,
    ) -> None:
        given = {key: value for key, value in locals().items() if key in _PAPER}
        super().__init__(n_features, Y_train, preset, given)
        chosen, q = self.hparams, self.n_labels
        width = inputs.whole_number("h", chosen["h"], 2)
        if width % 2:
            raise ValueError(f"h must be even, got {width}.")
        for key in ("w_co", "w_inst", "w_proto", "w_intra", "w_cross", "bce_weight_late"):
            inputs.real_number(key, chosen[key], 0)
        for key in ("theta_intra", "theta_cross"):
            inputs.real_number(key, chosen[key], 0, 1)
        inputs.whole_number("K", chosen["K"], 1)
        inputs.choice("pool", chosen["pool"], ("ceil", "floor"))
        inputs.choice("clustering", chosen["clustering"], tuple(CLUSTERINGS))
        if chosen["proto_sign"] not in (1, -1):
            raise ValueError(f"proto_sign must be 1 or -1, got {chosen['proto_sign']!r}.")
        vectors, chosen["label_vectors"] = make_label_vectors(chosen["label_vectors"], q)

        self.register_buffer("Z", vectors)
        self.register_buffer("G", conditional_graph(Y_train).to(vectors.dtype))
        self.register_buffer("prototypes", torch.zeros(q, width))
        self.register_buffer("pairs", torch.triu_indices(q, q, 1), persistent=False)
        self.reduce = nn.Conv2d(self.channels, width, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.attention = Decoupling(width, vectors.shape[1])
        self.graph = GatedGraph(width)
        self.read_out = nn.Linear(2 * width, width)
        self.classifier = LabelwiseLinear(q, width)
        self.pair_head = PairHead(q, width)
        for kind in MARGINS:
            trained = chosen[f"w_{kind}"] > 0
            start = nn.Parameter(torch.tensor(float(chosen[f"theta_{kind}"]))) if trained else None
            self.register_parameter(f"theta_{kind}", start)
        # Epoch (from 1; 0 before the first), steps done in it, steps it has, epoch of prototypes.
        self._epoch = self._done = self._steps = self._made = 0

    def forward(self, x: Tensor) -> ModelOutput:
        """Logits of images x [B, 3, H, W]; in training also what the losses need."""
        semantic = self.semantic(x)
        nodes = self.graph(semantic, self.G)
        logits = self.classifier(torch.tanh(self.read_out(torch.cat([nodes, semantic], 2))))
        if not self.training:
            return ModelOutput(logits)
        return ModelOutput(
            logits, {"semantic": semantic, "cooc": self.pair_head(semantic, self.pairs)}
        )

    def semantic(self, x: Tensor) -> Tensor:
        """F [B, q, h]: what each label sees in each image."""
        maps = self.feature_map(x)
        # On even sides both are the plain 2 x 2 mean. The authors' code fails on a side of one.
        ceil = self.hparams["pool"] == "ceil" or min(maps.shape[2:]) < 2
        maps = self.reduce(F.avg_pool2d(maps, 2, ceil_mode=ceil))
        alone = maps.shape[0] * maps.shape[2] * maps.shape[3] == 1  # nothing to take statistics of
        norm = self.norm
        if alone:
            scale = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
            maps = F.batch_norm(maps, *scale, training=False, eps=norm.eps)
        else:
            maps = norm(maps)
        return self.attention(maps.flatten(2).transpose(1, 2), self.Z)

    def terms(
        self, output: ModelOutput, y: Tensor, pairs: Tensor, weight: Tensor | None
    ) -> dict[str, Tensor]:
        """Mean cross-entropy and, for an output of training, the further losses.

        The first epoch brings the losses of pairs in step by step; from the sixth on the
        cross-entropy counts ``bce_weight_late`` times and the losses of prototypes and thresholds
        join. The loss of image pairs belongs to no single image and is not weighted.
        """
        classification = batch_mean(pairs.mean(1), weight)
        if "cooc" not in output.aux:
            return {"classification": classification}
        chosen, semantic = self.hparams, output.aux["semantic"]
        late = self._epoch > LATE
        ramp = min(1.0, self._done / max(1, self._steps)) if self._epoch == 1 else 1.0
        first, second = self.pairs
        cooc = cooccurrence_loss(output.aux["cooc"], y[:, first] * y[:, second])
        terms = {
            "classification": (chosen["bce_weight_late"] if late else 1.0) * classification,
            "cooccurrence": ramp * chosen["w_co"] * batch_mean(cooc, weight),
            "instances": ramp * chosen["w_inst"] * instance_loss(semantic, y),
        }
        if late:
            proto = prototype_loss(semantic, self.prototypes, y, chosen["proto_sign"])
            terms["prototypes"] = chosen["w_proto"] * batch_mean(proto, weight)
        # These count 0 before: a parameter that a step leaves out stops several processes.
        if self.theta_intra is not None:
            evidence = pair_evidence(output.aux["cooc"], y, self.pairs)
            margin = margin_loss(evidence, full_precision(self.theta_intra), y)
            terms["intra"] = late * chosen["w_intra"] * batch_mean(margin, weight)
        if self.theta_cross is not None:
            evidence = prototype_evidence(semantic, self.prototypes)
            margin = margin_loss(evidence, full_precision(self.theta_cross), y)
            terms["cross"] = late * chosen["w_cross"] * batch_mean(margin, weight)
        return terms

    # The schedule ---------------------------------------------------------------------------

    def learning_rate_factor(self, epoch: int) -> float:
        """A tenth of the learning rate after the tenth epoch."""
        return 0.1 if epoch > SLOW_AFTER else 1.0

    def on_epoch_start(self, epoch: int, steps: int, loader: Iterable[Any] | None = None) -> None:
        """Begin epoch ``epoch`` (from 1) of ``steps`` steps; the sixth makes the prototypes.

        If a loaded state is in the middle of this epoch, it resumes there. ``loader``
        gives the training images once, without augmentation; it is read when prototypes are due.
        """
        begun = epoch == self._epoch
        wanted = self.hparams["w_proto"] or self.hparams["w_cross"]
        due = (epoch - 1) % LATE == 0 if self.hparams["recompute_prototypes"] else epoch == LATE + 1
        if epoch > LATE and wanted and (not self._made or (due and not begun)):
            if loader is None:
                raise UserError(
                    f"HST makes its prototypes before epoch {epoch} and needs the training images "
                    "for that; pass a loader of them to on_epoch_start, or set w_proto and w_cross "
                    "to 0."
                )
            self.make_prototypes(loader)
            self._made = epoch
        self._epoch, self._steps = epoch, steps
        if not begun or self._done >= steps:  # a first epoch may be trained again from its start
            self._done = 0

    def on_step(self, step: int) -> None:
        """Count a step of the epoch; hold the thresholds that are not trained yet.

        Their gradient is 0 until the sixth epoch, but an optimiser's weight decay would move them.
        """
        self._done += 1
        if self._epoch <= LATE:
            for kind in MARGINS:
                if (theta := getattr(self, f"theta_{kind}")) is not None:
                    nn.init.constant_(theta, self.hparams[f"theta_{kind}"])

    @torch.no_grad()
    def make_prototypes(self, loader: Iterable[Any]) -> None:
        """Cluster what labels see in the images they are present in, in one pass over ``loader``.

        Batches end with x and y. The result depends on the weights and the images alone.
        """
        how = CLUSTERINGS[self.hparams["clustering"]]
        reservoir = Reservoir(self.n_labels, seed=0, limit=how.rows)
        training = [module for module in self.modules() if module.training]
        self.eval()
        try:
            for *_, x, y in loader:
                reservoir.add(self.semantic(x.to(self.Z.device)), y.to(self.Z.device))
        finally:
            for module in training:
                module.training = True
        made = mean_centres(reservoir, self.n_labels, self.hparams["h"], self.hparams["K"], how)
        self.prototypes.copy_(made)

    def get_extra_state(self) -> Tensor:
        """Where in the schedule the model is, for its state dict."""
        return torch.tensor([self._epoch, self._done, self._steps, self._made])

    def set_extra_state(self, state: Any) -> None:
        """Resume from a state that :meth:`state_dict` returned."""
        self._epoch, self._done, self._steps, self._made = torch.as_tensor(state).tolist()


def conditional_graph(Y_train: inputs.Labels) -> Tensor:
    """G_ij = C_ij / C_ii with C = YᵀY; a label never seen is linked to itself alone."""
    counts = label_counts(Y_train)
    graph = counts / np.maximum(counts.diagonal(), 1)[:, None]
    np.fill_diagonal(graph, 1.0)
    return torch.from_numpy(graph)
