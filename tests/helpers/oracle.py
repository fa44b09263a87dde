"""Slow, obvious NumPy transcription of the batch-selection methods.

An independent oracle for the fast implementation: float64, plain loops, and the *full* history of
every instance instead of rings and running moments. Section numbers are those of the selection
specification. Epochs ``t`` are 1-based; ``e = t - 2`` is the 0-based index of the epoch that has
just finished when the distribution of epoch ``t`` is made (``reference`` preset, section 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def entropy(p: npt.ArrayLike) -> Array:
    """Binary entropy in bits, 0 log 0 = 0 (2.3, 2.7; paper Eq. current_uncertain)."""
    one = np.asarray(p, dtype=np.float64)
    return np.asarray(-sum(x * np.log2(np.where(x > 0.0, x, 1.0)) for x in (one, 1.0 - one)))


def bce(p: Array, y: Array) -> Array:
    """Binary cross-entropy of every pair, p clamped to [1e-7, 1 - 1e-7] (1.1)."""
    one, rest = (np.clip(x, 1e-7, 1.0 - 1e-7) for x in (p, 1.0 - p))
    return np.asarray(-(y * np.log(one) + (1.0 - y) * np.log(rest)))


def binary(p: Array) -> Array:
    """yb = 1[p > 0.5], strict (1.1)."""
    return (p > 0.5).astype(np.float64)


def min_max(w: Array) -> Array:
    """wn of 1.4; all zeros if the weights are equal."""
    span = w.max() - w.min()
    return np.asarray((w - w.min()) / span if span > 1e-12 else np.zeros_like(w))


def quantise(wn: Array, reference: bool = False) -> list[int]:
    """Quantisation index Q (1.4); ``reference``: no 1e-9 guard, range 1..n (5 b, b3)."""
    n = len(wn)
    if reference:
        return [min(max(math.ceil((1.0 - x) / (1.0 / n)), 1), n) for x in wn]
    return [min(max(math.ceil((1.0 - x) * n - 1e-9), 0), n) for x in wn]


def sampling(w: Array, s: float, reference: bool = False) -> Array:
    """Instance weights -> sampling probabilities (1.4; paper Eq. probability)."""
    z = np.array([math.exp(-math.log(s) * k / len(w)) for k in quantise(min_max(w), reference)])
    return np.asarray(z / z.sum())


def pressure(t: int, epochs: int, warmup: int, start: float = 100.0) -> float:
    """Selection pressure s(t) (1.5), 1 beyond the last epoch."""
    if t > epochs:
        return 1.0
    share = 0.0 if epochs == warmup + 1 else (t - warmup - 1) / (epochs - warmup - 1)
    return max(float(start * (1.0 / start) ** share), 1.0)


def p_beta(t: float, mix: Sequence[float], span: Sequence[float], kind: str = "linear") -> float:
    """Mixing coefficient (2.8; paper Eq. linear_schedule_p; ablation K), clamped outside."""
    (first, last), (t0, t1) = mix, span
    if t0 == t1:
        return first if t < t0 else last
    share = (min(max(t, t0), t1) - t0) / (t1 - t0)
    if kind == "exp":  # first * (last / first) ** share, also defined for first = 0
        return float(first ** (1.0 - share) * last**share)
    return first + share * (last - first)


def nearest(features: Array, k: int, exclude_self: bool = True) -> list[list[int]]:
    """The k nearest rows by Euclidean distance, ties by lower index, self out by index (1.7)."""
    found = []
    for i, x in enumerate(features):
        order = sorted((float(((x - z) ** 2).sum()), m) for m, z in enumerate(features))
        found.append([m for _, m in order if not (exclude_self and m == i)][:k])
    return found


def selective_mask(
    labels: npt.ArrayLike, keys: npt.ArrayLike, target: float = 0.5, cap: float | None = None
) -> Array:
    """Balance: loss weights V of one batch (2.5); the smallest keys of the majority are kept."""
    y, key = np.asarray(labels), np.asarray(keys)
    b, q = y.shape
    v = np.ones((b, q))
    for j in range(q):
        positives = [i for i in range(b) if y[i, j] == 1]
        negatives = [i for i in range(b) if y[i, j] == 0]
        if abs(len(positives) - target * b) < 1e-9:
            continue
        if len(positives) > target * b:
            majority, minority, share = positives, negatives, target
        else:
            majority, minority, share = negatives, positives, 1.0 - target
        kept = sorted(majority, key=lambda i: (key[i, j], i))[: math.floor(share * b + 0.5)]
        v[majority, j] = 0.0
        v[kept, j] = 1.0
        v[minority, j] = (1.0 - share) * b / max(len(minority), 1)
    return v if cap is None else np.minimum(v, cap)


class Oracle:
    """One method; state advanced by observe, distribution for epoch t by probabilities(t)."""

    paper: ClassVar[dict[str, Any]] = {}  # options and their defaults
    changes: ClassVar[dict[str, Any]] = {}  # defaults that differ in ``reference``
    further: ClassVar[dict[str, dict[str, Any]]] = {}  # presets of this method alone

    def __init__(
        self,
        labels: npt.ArrayLike,
        features: npt.ArrayLike | None = None,
        *,
        batch_size: int = 128,
        epochs: int = 100,
        warmup: int = 10,
        preset: str = "paper",
        **options: Any,
    ) -> None:
        presets = {"paper": {}, "reference": self.changes, **self.further}
        if preset not in presets or not set(options) <= set(self.paper):
            raise TypeError(f"unknown preset or option: {preset}, {sorted(options)}")
        self.preset, self.reference = preset, preset == "reference"
        given = {name: value for name, value in options.items() if value is not None}
        self.options = {**self.paper, **presets[preset], **given}
        self.labels = np.asarray(labels, dtype=np.float64)
        self.features = None if features is None else np.asarray(features, dtype=np.float64)
        self.n, self.q = self.labels.shape
        self.batch_size, self.epochs, self.warmup = batch_size, epochs, warmup
        # Every prediction of every instance, in order of visits (1.2).
        self.history: list[list[Array]] = [[] for _ in range(self.n)]
        self.setup()

    def setup(self) -> None:
        """Static part and initial state."""

    def observe(self, ids: Sequence[int], probs: npt.ArrayLike) -> None:
        """Append one prediction to each row of ids; no other row changes."""
        rows = np.array(probs, dtype=np.float64)
        if rows.shape != (len(ids), self.q) or len(set(ids)) != len(ids):
            raise ValueError("observe needs distinct ids and one row of probabilities for each")
        if not np.isfinite(rows).all():
            raise ValueError("non-finite probability")
        for i, p in zip(ids, rows, strict=True):
            self.history[i].append(p)

    def weights(self, t: int) -> dict[str, Array]:
        """Named instance weights before min-max, as of now."""
        return {}

    def label_weights(self, t: int) -> dict[str, Array]:
        """Label weights (D2ACE only)."""
        return {}

    def pressure(self, t: int) -> float:
        """s(t) (1.5), or the schedule of the authors' code; 1 beyond the last epoch."""
        if self.reference and t <= self.epochs:
            return max(self.reference_pressure(t, t - 2, self.options["pressure"]), 1.0)
        return pressure(t, self.epochs, self.warmup, self.options["pressure"])

    def reference_pressure(self, t: int, e: int, s0: float) -> float:
        """Pressure of section 5; as ``paper`` where that section names none."""
        return pressure(t, self.epochs, self.warmup, s0)

    def uniform(self) -> Array:
        """1/n for every row."""
        return np.full(self.n, 1.0 / self.n)

    def probabilities(self, t: int) -> Array:
        """P for epoch t; uniform in warm-up (1.3)."""
        return self.uniform() if t <= self.warmup else self.selective(t)

    def selective(self, t: int) -> Array:
        """P for a selective epoch: the quantisation index (1.4), uniform without weights."""
        found = list(self.weights(t).values())
        return sampling(found[0], self.pressure(t)) if found else self.uniform()

    def neighborhood(self) -> list[list[int]]:
        """Rows around each instance, itself excluded: given, none, or found (1.7)."""
        if np.ndim(self.options["neighbors"]) == 2:
            return [[int(m) for m in row] for row in self.options["neighbors"]]
        if self.features is None:
            return [[] for _ in range(self.n)]
        return nearest(self.features, self.options["neighbors"])

    def last(self) -> Array:
        """Most recent probabilities, 0.5 for rows never visited."""
        return np.array([h[-1] if h else np.full(self.q, 0.5) for h in self.history])

    def uncertainty(self) -> Array:
        """U = lambda1 E + (1 - lambda1) D (2.7; paper Eqs. current_uncertain .. u_metric)."""
        d = np.zeros((self.n, self.q))
        for i in range(self.n):
            steps = [abs(b - a) for a, b in pairwise(self.history[i][-self.options["window"] :])]
            if steps:
                d[i] = sum(steps) / len(steps)
        trade = self.options["trade_off"]
        return np.asarray(trade * entropy(self.last()) + (1.0 - trade) * d)


class RandomOracle(Oracle):
    """2.1: a uniform shuffle in every epoch; no weights, no options."""


class ActiveOracle(Oracle):
    """2.2: variance of all predictions so far plus its confidence term."""

    paper: ClassVar = {"pressure": 100.0, "ddof": 1}
    changes: ClassVar = {"pressure": 10.0}

    def reference_pressure(self, t: int, e: int, s0: float) -> float:
        return float(s0 ** (1.0 - e / 100.0))

    def weights(self, t: int) -> dict[str, Array]:
        w = np.zeros(self.n)
        for i, visits in enumerate(self.history):
            if len(visits) >= 2:
                var = np.var(visits, axis=0, ddof=self.options["ddof"])
                w[i] = np.sqrt(var + var**2 / (len(visits) - 1)).sum()
        return {"variance": w}


class RecentOracle(ActiveOracle):
    """2.3: entropy of the last n_t binary predictions; pressure of ``reference`` as Active."""

    paper: ClassVar = {"pressure": 100.0, "window": 5}

    def weights(self, t: int) -> dict[str, Array]:
        w = np.zeros(self.n)
        for i, visits in enumerate(self.history):
            bits = [binary(p) for p in visits[-self.options["window"] :]]
            if bits:
                w[i] = entropy(sum(bits) / len(bits)).sum()
        return {"entropy": w}


class DIHCLOracle(Oracle):
    """2.4: moving average of the change between visits; no quantisation, no pressure.

    ``original`` is the main loop of its authors' ``dihcl.py`` (Exp3), episode after episode.
    """

    paper: ClassVar = {
        "metric": "dloss",
        "gamma": 0.95,
        "gamma_on": "new",
        "scale": "mean",
        "pace": "rate",
    }
    further: ClassVar = {"original": {"gamma": 0.9, "gamma_on": "episode"}}
    schedule: ClassVar = [0, 5, 10, 15, 20, 30, 40, 60, 90, 140, 210, 300]

    def setup(self) -> None:
        self.learning_rate = 1.0
        self.drawn_probabilities = self.uniform()  # pi; the driver sets it when an epoch starts
        self.drawn_epoch = 0  # so it does this
        self.rate_sum = 0.0  # Lam
        self.rate_last = np.zeros(self.n)  # Lam_last
        self.r = np.zeros(self.n) if self.preset == "original" else np.ones(self.n)
        self.discount = 1.0  # of what was there before the first episode
        self.episodes_begun = 0
        self.pace = np.zeros(self.n)  # the source's: rates of whole epochs since the last visit
        self.epoch_begun, self.epoch_rates = 0, 0.0
        self.epoch_rows: set[int] = set()

    def episode(self, t: int) -> int:
        """How many of the source's splitting points an epoch has passed, in proportion."""
        if t <= self.warmup:
            return 0
        start, *later = self.schedule[1:-1]
        place = Fraction(t - 1 - self.warmup, max(self.epochs - self.warmup, 1))
        at = start + place * (self.schedule[-1] - start)
        return 1 + len([point for point in later if at >= point])

    def rows(self, t: int) -> int:
        """k0: 0.9 times as many an episode, at least 0.3 n, as a fraction without rounding."""
        share = Fraction(1)
        for _ in range(self.episode(t)):
            share = max(share * Fraction(9, 10), Fraction(3, 10))
        return max(math.floor(share * self.n), 1)

    def inverse_temperature(self, t: int) -> float:
        value = 20.0
        for _ in range(self.episode(t)):
            value = max(1.0, 0.8 * value)
        return value

    def feedback(self, i: int) -> float:
        old, new = self.history[i][-2:]
        if self.options["metric"] == "flip":
            return float(abs(binary(new) - binary(old)).sum())
        loss, before = bce(new, self.labels[i]), bce(old, self.labels[i])
        if self.options["metric"] == "loss":
            return float(loss.sum())
        change = abs(loss - before)
        return float(np.minimum(change, 10.0).sum() if self.preset == "original" else change.sum())

    def scaled(self, a: float, i: int) -> float:
        pace, pi = self.rate_sum - self.rate_last[i], self.drawn_probabilities[i]
        if self.preset == "original":
            pace = self.pace[i]
        is_loss = self.options["metric"] == "loss"
        if self.preset == "original" and self.drawn_epoch > self.warmup:
            return a / (pi + 1e-8) if is_loss else a / (1e4 * pace**0.01 * (pi + 1e-8))
        return a / (self.rate() if is_loss else max(pace, 1e-12)) / (self.n * pi)

    def rate(self) -> float:
        return 1.0 if self.options["pace"] == "steps" else self.learning_rate

    def end_epoch(self) -> None:
        """What the source does with its paces after an epoch."""
        for i in self.epoch_rows:
            self.pace[i] = 0.0
        self.pace += self.epoch_rates
        self.epoch_rates, self.epoch_rows = 0.0, set()

    def observe(self, ids: Sequence[int], probs: npt.ArrayLike) -> None:
        super().observe(ids, probs)
        if self.epoch_begun != self.drawn_epoch:
            self.end_epoch()
            self.epoch_begun = self.drawn_epoch
        gamma, on = self.options["gamma"], self.options["gamma_on"]
        while on == "episode" and self.episodes_begun < self.episode(self.drawn_epoch):
            self.episodes_begun += 1
            self.r *= gamma
            self.discount *= gamma
        for i in ids:
            again = self.preset == "original" and i in self.epoch_rows  # no whole epoch between
            self.epoch_rows.add(i)
            if len(self.history[i]) >= 2 and not again:
                a = self.scaled(self.feedback(i), i)
                if on == "episode":
                    self.r[i] += a
                else:
                    share = gamma if on == "new" else 1.0 - gamma
                    self.r[i] = share * a + (1.0 - share) * self.r[i]
            self.rate_last[i] = self.rate_sum
        self.rate_sum += self.rate()
        self.epoch_rates += self.rate()

    def weights(self, t: int) -> dict[str, Array]:
        return {"hardness": self.r / self.discount}

    def selective(self, t: int) -> Array:
        r = self.weights(t)["hardness"]
        if r.mean() < 1e-300:
            return self.uniform()
        if self.options["scale"] == "literal":
            if self.options["gamma_on"] == "episode":
                r = r * self.options["gamma"] ** self.episode(t)
            logits = math.sqrt(2.0 * math.log(self.n) / self.n) * r
            logits = logits - logits.max()
        else:
            u = r / r.mean()
            if self.preset == "original":
                u = u * self.inverse_temperature(t)
            logits = np.maximum(u - u.max(), -50.0)
        return np.asarray(np.exp(logits) / np.exp(logits).sum())


class BalanceOracle(Oracle):
    """2.5: uniform batches with a loss mask (see selective_mask), or static weights."""

    paper: ClassVar = {"mode": "mask", "target": 0.5, "cap": None, "pressure": 100.0}
    changes: ClassVar = {"mode": "shuffle"}  # 5: the code only shuffles

    def weights(self, t: int) -> dict[str, Array]:
        if self.options["mode"] != "sample":
            return {}
        w, tau, share = np.zeros(self.n), self.options["target"], self.labels.mean(axis=0)
        for j in range(self.q):
            if 0.0 < share[j] < 1.0:
                y = self.labels[:, j]
                w += y * tau / share[j] + (1.0 - y) * (1.0 - tau) / (1.0 - share[j])
        return {"imbalance": w}


class HardImbOracle(Oracle):
    """2.6: static local imbalance times the last loss."""

    paper: ClassVar = {"pressure": 100.0, "neighbors": 5}
    changes: ClassVar = {"pressure": 8.0}

    def setup(self) -> None:
        y, around = self.labels, self.neighborhood()
        count = y.sum(axis=0)
        ratio = {j: count.max() / count[j] for j in range(self.q) if count[j] > 0}  # IR
        minority = [j for j in ratio if ratio[j] > sum(ratio.values()) / len(ratio)]
        self.imbalance = np.ones(self.n)  # W
        for j in minority:
            kept = np.zeros(self.n)  # Bk, column j
            for i in range(self.n):
                if y[i, j] == 1 and around[i]:
                    share = sum(1 for m in around[i] if y[m, j] == 0) / len(around[i])  # B
                    kept[i] = share if 0.0 < share < 1.0 else 0.0
            if kept.sum() > 0.0:
                self.imbalance += kept / kept.sum()
        self.table = np.ones(self.n)  # reference: s^(index/n), 1 until observed

    def observe(self, ids: Sequence[int], probs: npt.ArrayLike) -> None:
        super().observe(ids, probs)
        w = self.weights(0)["hardness"]  # after storing the batch
        for i in ids:
            # the guard of 1.4, so that rounding of equal losses cannot move a row
            index = min(math.ceil(self.n * (w[i] / w.max()) - 1e-9), self.n)
            self.table[i] = self.options["pressure"] ** (index / self.n)

    def weights(self, t: int) -> dict[str, Array]:
        loss = bce(self.last(), self.labels)  # ln 2 per label where never observed
        return {"hardness": self.imbalance * (loss.mean(1) if self.reference else loss.sum(1))}

    def selective(self, t: int) -> Array:
        if self.reference and t <= self.epochs:
            return self.table / self.table.sum()
        return super().selective(t)


class MLUncOracle(Oracle):
    """2.7: uncertainty enhanced by mutual information between labels."""

    paper: ClassVar = {"pressure": 100.0, "window": 5, "trade_off": 0.5, "mi_norm": "row_max"}
    changes: ClassVar = {"pressure": 8.0}

    def reference_pressure(self, t: int, e: int, s0: float) -> float:
        return float(s0 ** ((e - 10) / 90.0))  # arguments swapped: it rises

    def mutual_information(self, g: Array, j: int, k: int) -> float:
        """Plug-in estimate in nats; MI_jj is the entropy h_j."""
        total = 0.0
        for a in range(5):
            for c in range(5):
                p_a, p_c = np.mean(g[:, j] == a), np.mean(g[:, k] == c)
                p_ac = np.mean((g[:, j] == a) & (g[:, k] == c))
                total += p_ac * math.log(p_ac / (p_a * p_c)) if p_ac > 0.0 else 0.0
        return total

    def correlation(self, g: Array) -> Array:
        """C from the bins g, with unit diagonal, scaled as mi_norm says."""
        norm, c = self.options["mi_norm"], np.eye(self.q)
        for j in range(self.q):
            for k in range(self.q):
                if j != k:
                    c[j, k] = max(self.mutual_information(g, j, k), 0.0)
                if j != k and norm == "sqrt":
                    h = self.mutual_information(g, j, j) * self.mutual_information(g, k, k)
                    c[j, k] = c[j, k] / math.sqrt(h) if h > 1e-24 else 0.0
        return np.array([row / row.max() for row in c]) if norm == "row_max" else c

    def weights(self, t: int) -> dict[str, Array]:
        u = self.uncertainty()
        g = np.minimum(np.floor(5.0 * u), 4.0)  # five equal bins on [0, 1]
        if self.reference:  # 5: C all ones, U binned to .1 .3 .. .9 from e = 5
            u = (2.0 * g + 1.0) / 10.0 if t - 2 >= 5 else u
            return {"uncertainty": self.q * u.sum(axis=1)}
        return {"uncertainty": (u @ self.correlation(g)).sum(axis=1)}  # R = U C


class D2ACEOracle(Oracle):
    """2.8: mixture of an uncertainty and a hardness distribution."""

    paper: ClassVar = {
        "pressure": 100.0, "window": 5, "trade_off": 0.5, "flip_smoothing": 0.7,
        "neighbors": 6, "include_self": True, "mix": (0.7, 0.3), "mix_epochs": (30, 70),
        "mix_schedule": "linear", "scale_schedule": False, "label_weight": "exp",
        "correlation": "cosine", "weight_transform": "none", "hardness_loss": "bce",
    }  # fmt: skip
    changes: ClassVar = {"pressure": 8.0, "mix_epochs": (10, 70), "hardness_loss": "two_minus_prob"}

    def setup(self) -> None:
        k, own = self.options["neighbors"], self.options["include_self"]
        if self.reference and own and np.ndim(k) == 0 and self.features is not None:
            # 5 j: K + 1 nearest of the set including itself, which may drop out
            around = nearest(self.features, k + 1, exclude_self=False)
        else:  # self joins; it stands alone when there is no neighbour (K = 0, no features)
            around = self.neighborhood()
            around = [[*row, i] if own or not row else row for i, row in enumerate(around)]
        self.context = np.array([self.labels[row].max(axis=0) for row in around])  # Z

    def reference_pressure(self, t: int, e: int, s0: float) -> float:
        return s0 if e < 10 else float(s0 ** (1.0 - (e - 10) / (self.epochs - 10)))

    def mixing(self, t: int) -> float:
        """p_beta(t); ``reference`` reads the schedule at e = t - 2 (5 g)."""
        span, epoch = self.options["mix_epochs"], t - 2 if self.reference else t
        if self.options["scale_schedule"]:
            span = [x * self.epochs / 100.0 for x in span]
        return p_beta(epoch, self.options["mix"], span, self.options["mix_schedule"])

    def flips(self) -> Array:
        """fbar (paper Eq. ema_flip); ``reference``: differences of probabilities (5 c)."""
        smooth, fbar = self.options["flip_smoothing"], np.zeros((self.n, self.q))
        for i, visits in enumerate(self.history):
            for old, new in pairwise(visits):
                f = abs(new - old) if self.reference else abs(binary(new) - binary(old))
                fbar[i] = smooth * f + (1.0 - smooth) * fbar[i]
        return fbar

    def hardness(self) -> Array:
        """H = l (1 - fbar) (paper Eq. hard; 5 d)."""
        loss = bce(self.last(), self.labels)
        kinds = {"bce": loss, "prob": 1.0 - np.exp(-loss), "two_minus_prob": 2.0 - np.exp(-loss)}
        return kinds[self.options["hardness_loss"]] * (1.0 - self.flips())

    def label_weight(self, a: Array) -> Array:
        """v of one metric (paper Eqs. label_weight1, label_weight2; ablations G, I)."""
        half = (a.mean(axis=0) + a.std(axis=0)) / 2.0
        kinds = {"exp": np.exp(half), "linear": half, "none": np.ones(self.q)}
        return np.asarray(kinds[self.options["label_weight"]])

    def correlation(self, m: Array) -> Array:
        """C of the masked metric (paper Eq. C_A; 5 a, e)."""
        scaled = np.zeros_like(m)
        for j in range(self.q):
            norm = math.sqrt((m[:, j] ** 2).sum()) + (1e-8 if self.reference else 0.0)
            if norm >= 1e-12:
                scaled[:, j] = m[:, j] / norm
        c = scaled.T @ scaled
        return np.array([row / (row.sum() + 1e-8) for row in c]) if self.reference else c

    def enhancement(self, a: Array) -> Array:
        """phi of one metric (paper Eq. Q_A; 5 e2, l; ablation H)."""
        phi, m = np.zeros(self.n), self.labels * a
        if self.options["correlation"] == "none":
            return phi
        c, v = self.correlation(m), self.label_weight(a)
        for i in range(self.n):
            for j in range(self.q):
                column = v[j] * c[j] if self.reference else c[:, j]
                phi[i] += m[i, j] * sum(self.context[i] * column)
        return phi

    def metrics(self) -> dict[str, Array]:
        """The two metric matrices U and H."""
        return {"uncertainty": self.uncertainty(), "hardness": self.hardness()}

    def label_weights(self, t: int) -> dict[str, Array]:
        return {name: self.label_weight(a) for name, a in self.metrics().items()}

    def weights(self, t: int) -> dict[str, Array]:
        found = {}
        for name, a in self.metrics().items():
            w = (a * self.label_weight(a)).sum(axis=1) + self.enhancement(a)  # delta + phi
            exponential = self.options["weight_transform"] == "exp"  # ablation J
            found[name] = np.exp(w - w.max()) if exponential else w
        return found

    def selective(self, t: int) -> Array:
        w, s, p = self.weights(t), self.pressure(t), self.mixing(t)
        by_u = sampling(w["uncertainty"], s, self.reference)
        by_h = sampling(w["hardness"], s, self.reference)
        return p * by_u + (1.0 - p) * by_h  # paper Eq. sampling_prob


class OnlineBatchOracle(Oracle):
    """Loshchilov and Hutter 2015: P falls exponentially with the rank of the last loss."""

    paper: ClassVar = {"pressure": 100.0}

    def weights(self, t: int) -> dict[str, Array]:
        return {"loss": bce(self.last(), self.labels).sum(axis=1)}

    def selective(self, t: int) -> Array:
        loss, z = self.weights(t)["loss"], np.zeros(self.n)
        for i in range(self.n):
            before = sum(1 for other in loss if other > loss[i])
            equal = sum(1 for other in loss if other == loss[i])
            rank = before + (1 + equal) / 2.0  # the mean of before + 1 .. before + equal
            z[i] = 1.0 / math.exp(math.log(self.pressure(t)) / self.n) ** rank
        return np.asarray(z / z.sum())


class AdaBoundaryOracle(Oracle):
    """Song et al. 2020: steps of Delta between a row and the decision boundary."""

    paper: ClassVar = {"pressure": 100.0}

    def weights(self, t: int) -> dict[str, Array]:
        farthest = math.sqrt((2 - 1) / 2**2)  # of two classes, sqrt((k - 1) / k^2)
        closeness = np.ones(self.n)
        for i, p in enumerate(self.last()):
            outcomes = np.array([p, 1.0 - p])
            closeness[i] -= outcomes.std(axis=0).sum() / (self.q * farthest)
        return {"closeness": closeness}

    def selective(self, t: int) -> Array:
        steps = quantise(self.weights(t)["closeness"])
        z = np.array([math.exp(-math.log(self.pressure(t)) * k / self.n) for k in steps])
        return np.asarray(z / z.sum())


class InfoBatchOracle(Oracle):
    """Qin et al. 2024: all rows of at least the mean loss, and a share of the others."""

    paper: ClassVar = {"prune_ratio": 0.5, "delta": 0.875}

    def weights(self, t: int) -> dict[str, Array]:
        return {"loss": bce(self.last(), self.labels).sum(axis=1)}

    def parts(self, t: int) -> tuple[list[int], list[int], int]:
        """The rows that stay, the others, and how many of these stay too."""
        loss = self.weights(t)["loss"]
        bound = loss.mean() * (1.0 - 1e-9)
        easy = [i for i in range(self.n) if loss[i] < bound]
        hard = [i for i in range(self.n) if loss[i] >= bound]
        kept = math.floor((1.0 - self.options["prune_ratio"]) * len(easy) + 1e-9)
        return hard, easy, max(kept, 1) if easy else 0

    def selective(self, t: int) -> Array:
        if t > self.options["delta"] * self.epochs:
            return self.uniform()
        hard, easy, kept = self.parts(t)
        p = np.zeros(self.n)
        p[hard] = 1.0
        p[easy] = kept / max(len(easy), 1)
        return np.asarray(p / (len(hard) + kept))


def trimmed(r: Array, y: Array, share: float) -> npt.NDArray[np.bool_]:
    """The pairs of scores r [n, q] that Trim weighs down; NaN: a row never visited."""
    chosen = np.zeros(y.shape, dtype=bool)
    for j in range(y.shape[1]):
        worst = sorted(np.flatnonzero(~np.isnan(r[:, j])), key=lambda i: (-r[i, j], i))
        positives = [i for i in worst if y[i, j] == 1]
        negatives = [i for i in worst if y[i, j] == 0 and r[i, j] > 0]
        if len(positives) == len(worst):  # a label of one class
            continue
        kept = positives[: math.floor(share * len(positives) + 1e-9)]
        chosen[kept, j] = True
        left = math.fsum(r[i, j] for i in kept)
        for i in negatives:
            left -= r[i, j]
            if left < -1e-8:
                break
            chosen[i, j] = True
    return chosen


class TrimOracle(RandomOracle):
    """Weights of pairs by the mean of |p - y| over all visits; batches are Random's."""

    paper: ClassVar = {
        "share": 0.2, "weight": 0.25, "rise": 0.01, "fall": 0.1, "start": None, "rows": "random",
    }  # fmt: skip

    def setup(self) -> None:
        self.losses: list[tuple[int, float, float]] = []  # epoch; validation and training loss

    def validated(self, epoch: int, loss: float) -> None:
        seen = [i for i, visits in enumerate(self.history) if visits]
        last = [bce(self.history[i][-1], self.labels[i]).mean() for i in seen]
        self.losses.append((epoch, loss, float(np.mean(last)) if last else np.inf))

    def scores(self) -> Array:
        """r [n, q]."""
        r = np.full((self.n, self.q), np.nan)
        for i, visits in enumerate(self.history):
            if visits:
                r[i] = sum(abs(p - self.labels[i]) for p in visits) / len(visits)
        return r

    def trims(self, t: int) -> bool:
        """Whether epoch t is trimmed: after one loss rose and the other fell, or by ``start``."""
        if self.options["start"] is not None:
            return t >= self.options["start"]
        for number, (epoch, loss, own) in enumerate(self.losses):
            if number == 0:
                continue
            _, least, then = min(self.losses[:number], key=lambda one: one[1])  # the first of them
            rose = loss > (1.0 + self.options["rise"]) * least
            fell = np.isfinite(then) and own < (1.0 - self.options["fall"]) * then
            if rose and (fell or not self.options["fall"]):
                return t > max(epoch, self.warmup)
        return False

    def loss_weights(self, scores: Array) -> Array:
        """Of all pairs, by scores at the start of an epoch."""
        chosen = trimmed(scores, self.labels, self.options["share"])
        return np.where(chosen, self.options["weight"], 1.0)


ORACLES: dict[str, type[Oracle]] = {
    "random": RandomOracle, "active": ActiveOracle, "recent": RecentOracle,
    "dihcl": DIHCLOracle, "balance": BalanceOracle, "hard_imb": HardImbOracle,
    "ml_unc": MLUncOracle, "d2ace": D2ACEOracle, "online_batch": OnlineBatchOracle,
    "ada_boundary": AdaBoundaryOracle, "info_batch": InfoBatchOracle,
    "trim": TrimOracle,
}  # fmt: skip
