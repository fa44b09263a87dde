"""What all models share: what goes in, what comes out, how a loss is put together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from d2ace._util import validation as inputs
from d2ace._util.errors import ContractError

from .layers import batch_mean, full_precision

Result = TypeVar("Result")


@dataclass(frozen=True)
class ModelOutput:
    """Logits s [B, q], and what else the loss needs of this forward pass."""

    logits: Tensor
    aux: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class LossTerms:
    """A loss to step on, the loss matrix selectors keep, and the terms for logging.

    ``total`` carries the gradient. ``per_pair`` [B, q] is the binary cross-entropy of every
    (instance, label) pair, detached and never weighted. ``parts`` are detached scalars that add
    up to ``total``: each term as it counts, its trade-off factor included.
    """

    total: Tensor
    per_pair: Tensor
    parts: dict[str, Tensor]


class MultiLabelModel(nn.Module, ABC):
    """Base of all models; the predicted probability is always ``sigmoid(logits)``.

    A model implements :meth:`forward` and, where its loss is more than the mean cross-entropy,
    :meth:`terms`. Everything else is done here.

    Parameters
    ----------
    n_features : int
        d, the width of the input.
    Y_train : [n, q] zeros and ones
        torch, numpy or scipy.sparse: the labels of the rows that will be trained on, and of no
        others. Only statistics of them are kept.
    preset : "paper" or "reference"
        What the paper says, or what its authors' code runs. Hyperparameters given explicitly
        (anything but None) win.
    given : dict
        The model's hyperparameters as its caller gave them; ``hparams`` holds what came out.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    """The name in tables and figures; that of the class, if it has none of its own."""
    input: ClassVar[str] = "table"
    """What x is: rows of a "table" [B, d], or an "image" [B, channels, H, W]."""
    clip_norm: ClassVar[float | None] = None
    """What a training loop clips the norm of all gradients to, where the model asks for it."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {}, "reference": {}}

    def __init__(
        self,
        n_features: int,
        Y_train: inputs.Labels,
        preset: str = "paper",
        given: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.n_features = inputs.whole_number("n_features", n_features, 1)
        self.n_labels = int(inputs.label_matrix(Y_train).shape[1])
        self.preset = inputs.choice("preset", preset, tuple(self.presets))
        explicit = {key: value for key, value in (given or {}).items() if value is not None}
        self.hparams: dict[str, Any] = {**self.presets[self.preset], **explicit}
        self._unchanging = False
        self._kept: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        """A class has its own title: it is another model than the one it extends."""
        super().__init_subclass__(**options)
        cls.title = vars(cls).get("title", cls.__name__)

    # What a model provides ------------------------------------------------------------------

    @abstractmethod
    def forward(self, x: Tensor) -> ModelOutput:
        """Logits for instances x [B, d]; training or evaluation follows ``self.training``."""

    def terms(
        self, output: ModelOutput, y: Tensor, pairs: Tensor, weight: Tensor | None
    ) -> dict[str, Tensor]:
        """The named scalars whose sum is the loss, all in full precision.

        ``pairs`` [B, q] is the cross-entropy with its gradient; ``weight`` [B] multiplies what
        belongs to an instance (see :func:`~d2ace.models.layers.batch_mean`).
        """
        return {"classification": batch_mean(pairs.mean(1), weight)}

    # What a training loop uses --------------------------------------------------------------

    def loss(self, output: ModelOutput, y: Tensor, weight: Tensor | None = None) -> LossTerms:
        """The loss of one forward pass against labels y [B, q].

        ``weight`` [B] multiplies every instance's part before the batch mean (the caller
        normalises it to mean 1); ``weight`` [B, q] multiplies the cross-entropy of every pair.
        Both shapes are what ``Selector.loss_weight`` returns. Computed in float32 at least, also
        under autocast. Works on an evaluation output too: stochastic terms then drop out.
        """
        self._check_output(output)
        shape = output.logits.shape
        if y.shape != shape:
            raise ValueError(
                f"y must have the shape of the logits {list(shape)}, got {list(y.shape)}."
            )
        with torch.autocast(output.logits.device.type, enabled=False):
            output = ModelOutput(
                full_precision(output.logits),
                {key: full_precision(value) for key, value in output.aux.items()},
            )
            y = y.to(output.logits)
            pairs = F.binary_cross_entropy_with_logits(output.logits, y, reduction="none")
            weighted, weight = _weigh(pairs, weight)
            terms = self.terms(output, y, weighted, weight)
            self._check_terms(terms)
            total = torch.stack(list(terms.values())).sum()
        parts = {name: value.detach() for name, value in terms.items()}
        return LossTerms(total, pairs.detach(), parts)

    @torch.no_grad()
    def predict_proba(self, x: Tensor) -> Tensor:
        """Probabilities [B, q] in evaluation mode; the modes of all modules are as before after."""
        training = [module for module in self.modules() if module.training]
        if training:
            self.eval()
        try:
            output = self(x)
            self._check_output(output)
            return torch.sigmoid(full_precision(output.logits))
        finally:
            for module in training:
                module.training = True

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """What to hand to an optimiser: the trainable parameters with their learning rates."""
        return [{"params": trainable(self.parameters()), "lr": lr}]

    def learning_rate_factor(self, epoch: int) -> float:
        """What learning rates are multiplied with in epoch ``epoch`` (from 1), beside warm-up."""
        return 1.0

    def on_epoch_start(self, epoch: int, steps: int, loader: Iterable[Any] | None = None) -> None:
        """Called before epoch ``epoch`` (from 1) of ``steps`` steps, and again when resumed in it.

        Nothing for most models. ``loader`` gives all training rows once, in batches that end with
        x and y; it is read only by models that need a pass over the data, and only when they do.
        """

    def on_step(self, step: int) -> None:
        """Called after optimiser step ``step``; nothing for most models."""

    @classmethod
    def restoring(cls, hparams: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
        """The ``hparams`` to make a model with that is to load ``state``, a state dict, next."""
        return dict(hparams)

    @contextmanager
    def unchanging(self) -> Iterator[None]:
        """For a pass over many batches: inside, the caller promises, no weight changes.

        So evaluation computes what depends on weights alone (see :meth:`once`) for the first batch
        only. It costs little to do without: it belongs to those who know all that happens inside.
        """
        self._unchanging, self._kept = True, None
        try:
            yield
        finally:
            self._unchanging, self._kept = False, None

    # Machinery ------------------------------------------------------------------------------

    def once(self, compute: Callable[[], Result]) -> Result:
        """``compute()``, of weights alone; inside :meth:`unchanging` the result is kept."""
        if not self._unchanging or self.training or torch.is_grad_enabled():
            return compute()
        kept = compute() if self._kept is None else self._kept
        self._kept = kept
        return kept

    def _check_output(self, output: Any) -> None:
        """Refuse what ``forward`` must not return; looks at no values."""
        logits = getattr(output, "logits", None)
        if not isinstance(logits, Tensor):
            raise ContractError(
                f"{type(self).__name__}.forward must return a ModelOutput, got "
                f"{type(output).__name__}; return ModelOutput(logits)."
            )
        if logits.ndim != 2 or logits.shape[1] != self.n_labels or not logits.is_floating_point():
            raise ContractError(
                f"{type(self).__name__}.forward must return logits [batch, {self.n_labels}] of "
                f"floating point, got {logits.dtype} of shape {list(logits.shape)}."
            )

    def _check_terms(self, terms: Any) -> None:
        """Refuse terms that would not add up to one loss."""
        if not isinstance(terms, Mapping) or not terms:
            raise ContractError(
                f"{type(self).__name__}.terms must return a dictionary of named scalars, got "
                f"{type(terms).__name__}; return {{'name': loss}}."
            )
        for name, term in terms.items():
            if not isinstance(term, Tensor) or term.ndim:
                found = list(term.shape) if isinstance(term, Tensor) else type(term).__name__
                raise ContractError(
                    f"{type(self).__name__}.terms must return scalar tensors, got {found} for "
                    f"{name!r}; take the mean over the batch, as d2ace.models.layers.batch_mean "
                    "does."
                )

    def check_features(self, x: Tensor) -> None:
        """Refuse instances of another width than the model was made for."""
        if x.ndim != 2 or x.shape[1] != self.n_features:
            raise ValueError(
                f"{type(self).__name__} was made for instances [batch, {self.n_features}], "
                f"got shape {list(x.shape)}."
            )

    def extra_repr(self) -> str:
        """Sizes and hyperparameters."""
        sizes = {"n_features": self.n_features, "n_labels": self.n_labels, "preset": self.preset}
        return ", ".join(f"{key}={value!r}" for key, value in {**sizes, **self.hparams}.items())


def trainable(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """Those parameters that are not frozen."""
    return [parameter for parameter in parameters if parameter.requires_grad]


def _weigh(pairs: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Weights of pairs are applied at once; weights of instances are handed on as [B]."""
    if weight is None:
        return pairs, None
    weight = weight.detach().to(pairs)
    if weight.shape == pairs.shape[:1]:
        return pairs, weight
    if weight.shape == (len(pairs), 1):
        return pairs, weight[:, 0]
    if weight.shape == pairs.shape:
        return pairs * weight, None
    raise ValueError(
        f"weight must have shape [{len(pairs)}] (instances) or {list(pairs.shape)} (pairs), "
        f"got {list(weight.shape)}."
    )
