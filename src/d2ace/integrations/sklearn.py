"""A scikit-learn classifier: a network trained on batches that a selector draws.

    classifier = MultiLabelClassifier(model="clif", selector="d2ace", epochs=50, random_state=0)
    classifier.fit(X_train, Y_train)
    classifier.predict_proba(X_test)  # [n, q]

Networks train best on features of similar size: put a scaler before it in a ``Pipeline``.
"""

from __future__ import annotations

import copy
import math
import sys
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.special import logit
from torch import Tensor

from d2ace._util import validation as inputs
from d2ace._util.errors import RunError, UserError
from d2ace._util.random_state import Turn
from d2ace.data import validation_split
from d2ace.evaluation import METRICS, evaluate, tune_thresholds
from d2ace.insights import Insights
from d2ace.models import MODELS

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import (
        _check_sample_weight,
        check_is_fitted,
        column_or_1d,
        validate_data,
    )

    from d2ace.training import (
        IMAGE_MODELS,
        Rows,
        RunConfig,
        Split,
        Trainer,
        make_fabric,
        reads_images,
        refuse_undefined_monitor,
    )
except ImportError as error:
    raise RunError(
        f"MultiLabelClassifier needs {error.name}; install it with "
        'pip install ".[bench]" in a checkout of d2ace'
    ) from error

from ._schedule import warn_of_schedule

__all__ = ["MultiLabelClassifier"]

Floats = npt.NDArray[np.float64]
_SEEDS = 2**31 - 1
_GIVE = "give labels as a matrix [n, q] of zeros and ones, as sklearn's MultiLabelBinarizer does."


class _Trained(NamedTuple):
    """The rows that were trained on, and their observations."""

    rows: npt.NDArray[np.int64]
    insights: Insights | None


class MultiLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-label network as an estimator; it also accepts a single binary target.

    Parameters
    ----------
    model, selector : str
        Keys of ``d2ace.models.MODELS`` and ``d2ace.SELECTORS``, or your own class as
        ``package.module:Class`` or ``path/to/file.py:Class``.
    epochs, batch_size, warmup : int
        T, b and T_w of the paper: for ``warmup`` epochs, the learning rate rises and batches are
        random.
    learning_rate, weight_decay : float
        Adam's settings.
    early_stopping : bool
        Hold out a stratified ``validation_fraction`` of the rows, stop when ``monitor`` has not
        improved for ``n_iter_no_change`` epochs, and keep the weights of the best epoch.
    monitor : str
        A metric of ``d2ace.evaluation.METRICS``.
    thresholds : float or "tuned"
        Smallest probability at which a label is predicted. ``"tuned"`` chooses one for each label
        on the rows that ``early_stopping`` holds out.
    model_options, selector_options : dict, optional
        Hyperparameters of the model (``{"preset": "reference"}``) and the selector
        (``{"neighbors": 5}``).
    insights : bool
        Find probably wrong labels while training; see ``insights_``.
    device : "auto", "cpu", "cuda" or "mps"
        Device to train on. The fitted model is on the CPU.
    random_state : int, RandomState or None
        Training is deterministic: the same number gives the same weights, bit for bit on one
        machine.
    verbose : bool
        Print a line for every epoch.

    Attributes
    ----------
    model_ : MultiLabelModel
        The trained network.
    classes_ : array
        0 .. q - 1, or the two classes of a binary target.
    label_names_ : array of str
        Columns of a DataFrame of labels; set only if you passed a DataFrame.
    thresholds_ : array [q]
        Thresholds that :meth:`predict` uses, one per label.
    insights_ : Insights
        With ``insights=True``, what training reveals about y, by the rows of y; rows held out or
        of weight 0 were never observed.
    n_iter_, best_iter_ : int
        Epochs trained, and the epoch whose weights were kept.
    history_ : list of dict
        ``epoch``, ``train_loss`` (over the drawn batches) and, with early stopping, the
        validation score of every epoch.
    """

    def __init__(
        self,
        model: str = "clif",
        selector: str = "d2ace",
        *,
        epochs: int = 100,
        batch_size: int = 128,
        warmup: int = 10,
        learning_rate: float = 1e-4,
        weight_decay: float = 1e-4,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        monitor: str = "macro_auc",
        thresholds: float | str = 0.5,
        model_options: dict[str, Any] | None = None,
        selector_options: dict[str, Any] | None = None,
        insights: bool = False,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.selector = selector
        self.epochs = epochs
        self.batch_size = batch_size
        self.warmup = warmup
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.monitor = monitor
        self.thresholds = thresholds
        self.model_options = model_options
        self.selector_options = selector_options
        self.insights = insights
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MultiLabelClassifier:
        """Train on features X [n, d] and labels y [n, q] (or [n]), dense, sparse or DataFrames.

        ``sample_weight`` [n] multiplies the rows' losses; a row of weight 0 is not used. If a fit
        fails, the classifier keeps what an earlier fit learned.
        """
        before = self.__dict__.copy()
        try:
            self._fit(X, y, sample_weight)
        except BaseException:
            self.__dict__ = before
            raise
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        config = self._config()
        _refuse_label_sets(y)
        names = [str(column) for column in y.columns] if hasattr(y, "columns") else None
        X, y = validate_data(
            self, X, y, accept_sparse="csr", multi_output=True, dtype=np.float32, y_numeric=False
        )
        Y = self._targets(y.toarray() if sp.issparse(y) else y)
        self._names(names)
        weight, every, kept = None, Y, np.arange(len(Y))
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
            kept = np.flatnonzero(weight)
            X, Y, weight = X[kept], Y[kept], weight[kept]
            weight = (weight / weight.mean()).astype(np.float32)
        self._refuse_single_class(Y)
        trained = self._train(config, X, sp.csr_matrix(Y), weight)
        self._keep_insights(trained, every, kept)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Labels [n, q] of zeros and ones: 1 where the probability exceeds ``thresholds_``.

        For a binary target, its classes [n].
        """
        above = self._logits(X) > logit(self.thresholds_)
        if self._binary:
            return self.classes_[above[:, 0].astype(np.intp)]
        return above.astype(np.int64)

    def predict_proba(self, X: Any) -> Floats:
        """The labels' probabilities [n, q]; for a binary target, those of its classes [n, 2]."""
        p = torch.sigmoid(torch.from_numpy(self._logits(X))).numpy()
        return np.hstack([1.0 - p, p]) if self._binary else p

    def decision_function(self, X: Any) -> Floats:
        """The logits [n, q]; for a binary target [n]."""
        logits = self._logits(X)
        return logits[:, 0] if self._binary else logits

    def set_params(self, **params: Any) -> MultiLabelClassifier:
        """Set parameters; pass options of model and selector as complete dictionaries."""
        for name in params:
            options, _, option = name.partition("__")
            if option and options in ("model_options", "selector_options"):
                raise UserError(
                    f"{name} cannot be set alone; give {options} as a whole, such as "
                    f"{options}={{{option!r}: ...}}."
                )
        super().set_params(**params)
        return self

    def __sklearn_tags__(self) -> Any:
        """Sparse input, several labels, one binary target, no more than two classes."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        tags.classifier_tags.multi_class = False
        return tags

    # Settings ---------------------------------------------------------------------

    def _config(self) -> RunConfig:
        """The settings, checked before any data is read."""
        patience = self.n_iter_no_change
        if not isinstance(patience, int | np.integer) or patience < 1:
            raise UserError(f"n_iter_no_change is {patience!r}; it must be 1 or more epochs.")
        if reads_images(self.model):
            raise UserError(
                f"model is {self.model!r}, which reads images, but this classifier takes tables; "
                f"choose from {', '.join(name for name in MODELS if name not in IMAGE_MODELS)}."
            )
        try:
            inputs.truth("early_stopping", self.early_stopping)
        except TypeError as problem:
            raise UserError(str(problem)) from None
        share = self.validation_fraction
        if not isinstance(share, Real) or not 0.01 < share < 0.99:
            raise UserError(f"validation_fraction is {share!r}; it must lie between 0.01 and 0.99.")
        self._refuse_thresholds()
        given = self.random_state
        whole = isinstance(given, int | np.integer) and not isinstance(given, bool)
        if whole and given < 0:
            raise UserError(f"random_state is {given}; it must be 0 or more, or None.")
        seed = int(given) if whole else int(check_random_state(given).randint(_SEEDS))
        return RunConfig(
            data="fit",
            model=self.model,
            selector=self.selector,
            model_options=self.model_options or {},
            selector_options=self.selector_options or {},
            seed=seed,
            epochs=self.epochs,
            batch_size=self.batch_size,
            warmup=self.warmup,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            validation=self.validation_fraction,
            monitor=self.monitor,
            insights=self.insights,
        )

    def _refuse_thresholds(self) -> None:
        given = self.thresholds
        if isinstance(given, str) and given == "tuned":
            if not self.early_stopping:
                raise UserError(
                    "thresholds='tuned' needs rows held out of training; set early_stopping=True."
                )
        elif not isinstance(given, Real) or isinstance(given, bool) or not 0 < given < 1:
            raise UserError(
                f"thresholds is {given!r}; it must be 'tuned' or a number between 0 and 1."
            )

    def _targets(self, y: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """The labels as zeros and ones [n, q], and ``classes_``."""
        check_classification_targets(y)
        right = (y == 0) | (y == 1)
        self._binary = y.ndim == 1 or y.shape[1] == 1  # scorers pass binary targets as a column
        if not self._binary and right.all():
            self.classes_ = np.arange(y.shape[1])
            return y.astype(np.uint8)
        if not self._binary:
            row, column = np.argwhere(~right)[0]
            raise UserError(
                f"y[{row}, {column}] is {y.item(row, column)!r}, but labels must be 0 or 1; {_GIVE}"
            )
        y = column_or_1d(y, warn=y.ndim > 1)
        kind = type_of_target(y, input_name="y")
        if kind != "binary":
            raise UserError(
                "Only binary classification is supported. The type of the target is "
                f"{kind}; {_GIVE}"
            )
        self.classes_, codes = np.unique(y, return_inverse=True)
        return codes.astype(np.uint8)[:, None]

    def _names(self, names: list[str] | None) -> None:
        if names is not None and not self._binary:
            self.label_names_ = np.array(names, dtype=object)
        elif hasattr(self, "label_names_"):
            del self.label_names_

    def _refuse_single_class(self, Y: npt.NDArray[np.uint8]) -> None:
        if self._binary and len(np.unique(Y)) < 2:
            raise UserError(
                f"y has rows of one class only ({self.classes_[int(Y[0, 0])]!r}); give rows of two "
                "classes."
            )

    def _keep_insights(
        self, trained: _Trained, Y: npt.NDArray[np.uint8], kept: npt.NDArray[np.int64]
    ) -> None:
        if trained.insights is not None:
            names = getattr(self, "label_names_", None)
            self.insights_ = trained.insights.among(Y, kept[trained.rows], label_names=names)
        elif hasattr(self, "insights_"):
            del self.insights_

    # Training -------------------------------------------------------------------------------

    def _train(self, config: RunConfig, X: Any, Y: sp.csr_matrix, weight: Any) -> _Trained:
        rows = np.arange(X.shape[0])
        held_out = rows[:0]
        if self.early_stopping:
            rows, held_out = validation_split(Y, share=config.validation, seed=config.seed)
            refuse_undefined_monitor(
                config.monitor, Y[held_out], of="", share="validation_fraction"
            )
        Y = Y.astype(np.float32)
        train = Split(X[rows], Y[rows], rows)
        fabric = make_fabric(1, self.device, config.precision)
        turn = Turn(fabric.device)
        with turn:
            training = Trainer(config, train, fabric, None if weight is None else weight[rows])
        selector = training.shared.selector
        warn_of_schedule(selector, config.epochs)
        if selector.awaits_validation and not self.early_stopping:
            raise UserError(
                f"The selector {self.selector} starts by the loss on held-out rows; set "
                "early_stopping=True, or its first epoch with selector_options={'start': 10}."
            )
        validation = training.placed(Split(X[held_out], Y[held_out], held_out))
        sign = 1 if METRICS[config.monitor].higher_is_better else -1
        best, weights, self.history_ = -math.inf, None, []
        tuned = self.thresholds == "tuned"
        self.thresholds_ = np.full(Y.shape[1], 0.5 if tuned else self.thresholds)
        while not training.finished:
            for _ in turn.each(training.train_epoch()):
                pass
            with turn:
                entry: dict[str, Any] = {
                    "epoch": training.epoch,
                    "train_loss": training.share(),
                }
                self.history_.append(entry)
                if self.early_stopping:
                    predicted = training.predict(validation)
                    training.validated(Y[held_out], predicted)
                    scores = predicted.numpy()
                    outcome = evaluate(Y[held_out], scores)
                    entry[config.monitor] = outcome.values[config.monitor]
                    score = entry[config.monitor] * sign
                    if weights is None or score > best:
                        best, self.best_iter_ = score, training.epoch
                        weights = _copied(training.model)
                        if tuned and Y[held_out].nnz:
                            self.thresholds_ = tune_thresholds(Y[held_out], scores)
            if self.verbose:
                _say(entry, config.epochs)
            training.next_epoch()
            if self.early_stopping and entry["epoch"] - self.best_iter_ >= self.n_iter_no_change:
                break
        if weights is not None:
            training.model.load_state_dict(weights)
        else:
            self.best_iter_ = self.history_[-1]["epoch"]
        self.n_iter_ = len(self.history_)
        self.model_ = training.model.cpu().eval()
        return _Trained(rows, training.shared.selector.insights)

    def _logits(self, X: Any) -> Floats:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        model = copy.deepcopy(self.model_).double()  # so that a row's logits do not depend on
        with torch.no_grad():  # how many rows come with it
            pieces = [model(x.double()).logits for x in Rows(X).chunks()]
        return torch.cat(pieces).numpy()


def _refuse_label_sets(y: Any) -> None:
    """Refuse rows that list their labels; NumPy's error for it would not help."""
    if sp.issparse(y) or y is None:
        return
    try:
        kind = np.asarray(y)
    except ValueError:
        raise UserError(f"y has rows of different lengths; {_GIVE}") from None
    if kind.dtype == object and kind.size and isinstance(kind.flat[0], list | tuple | set):
        raise UserError(f"y has a {type(kind.flat[0]).__name__} for each row; {_GIVE}")


def _copied(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def _say(entry: dict[str, Any], epochs: int) -> None:
    """An epoch in a line."""
    values = "".join(f"  {name} {value:.4f}" for name, value in entry.items() if name != "epoch")
    print(f"epoch {entry['epoch']}/{epochs}{values}", file=sys.stderr)
