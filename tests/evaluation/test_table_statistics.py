"""Ranks, tests and intervals against SciPy, published values and by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from d2ace.evaluation import (
    average_ranks,
    confidence_interval,
    critical_difference,
    equivalence,
    friedman,
    holm,
    ranks,
    similar_methods,
    wilcoxon,
)

TABLE = {
    "birds": {"D2ACE": 0.8, "Random": 0.7, "Active": 0.7},
    "yeast": {"D2ACE": 0.6, "Random": 0.5, "Active": 0.7},
    "scene": {"D2ACE": 0.9, "Random": 0.9, "Active": 0.9},
}


@st.composite
def tables(draw: st.DrawFn, datasets: int = 1, methods: int = 2) -> np.ndarray:
    """Scores with few distinct values, so that ties and zero differences are common."""
    shape = draw(st.tuples(st.integers(datasets, 14), st.integers(methods, 6)))
    elements = st.integers(0, 12).map(float)
    return draw(arrays.arrays(np.float64, shape, elements=elements))


def test_ties_share_the_lowest_rank() -> None:
    assert ranks(TABLE) == {
        "birds": {"D2ACE": 1, "Random": 2, "Active": 2},
        "yeast": {"D2ACE": 2, "Random": 3, "Active": 1},
        "scene": {"D2ACE": 1, "Random": 1, "Active": 1},
    }
    assert average_ranks(TABLE) == pytest.approx({"D2ACE": 4 / 3, "Random": 2, "Active": 4 / 3})
    middle = average_ranks(TABLE, ties="average")
    assert middle == pytest.approx({"D2ACE": 5 / 3, "Random": 2.5, "Active": 5.5 / 3})
    losses = average_ranks(TABLE, higher_is_better=False)
    assert losses == pytest.approx({"D2ACE": 2, "Random": 1, "Active": 5 / 3})


@given(tables())
def test_ranks_as_scipy(table: np.ndarray) -> None:
    for ties in ("min", "average"):
        for sign, higher in ((-1, True), (1, False)):
            expected = stats.rankdata(sign * table, method=ties, axis=1)
            found = ranks(table, higher, ties)
            assert [list(row.values()) for row in found.values()] == expected.tolist()
            means = list(average_ranks(table, higher, ties).values())
            assert means == pytest.approx(expected.mean(axis=0))


def test_forms_of_a_table() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TABLE).T
    assert average_ranks(frame) == average_ranks(TABLE)
    assert wilcoxon(frame) == wilcoxon(TABLE)
    array = frame.to_numpy()
    assert list(average_ranks(array).items()) == list(enumerate(average_ranks(TABLE).values()))
    assert wilcoxon(array.tolist(), reference=0)[2] == wilcoxon(TABLE)["Active"]
    frame.loc["yeast", "Random"] = None
    for table in (frame, frame.astype("Float64")):
        with pytest.raises(ValueError, match="method 'Random' on dataset 'yeast' is missing"):
            friedman(table)


REFUSED: dict[str, tuple[Any, str]] = {
    "missing": (
        {"birds": {"A": 1, "B": 2}, "yeast": {"A": 1}},
        "the score of method 'B' on dataset 'yeast' is missing or not finite; run it, or leave "
        "out the method or the dataset.",
    ),
    "nan": (
        [[1, 2], [math.nan, math.inf]],
        "the score of method 0 on dataset 1 is missing or not finite (and 1 more)",
    ),
    "one method": ({"birds": {"A": 1}}, "a column per method (at least two), got shape (1, 1)."),
    "a list": ([1, 2, 3], "got shape (3,)."),
    "empty": ({}, "the table must have a row per dataset (at least one)"),
    "words": (
        {"birds": {"A": 0.5, "B": "low"}},
        "the column 'B' of the table holds 'low', which is no number; give its scores as numbers.",
    ),
    "torn": ([[1, 2], [3]], "the table must have rows of equal length that hold numbers only."),
    "columns": (
        {"A": [1, 2], "B": [3, 4]},
        "the table must be {dataset: {method: score}}, but dataset 'A' holds list.",
    ),
}


@pytest.mark.parametrize(("table", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_tables(table: Any, sentence: str) -> None:
    for function in (ranks, average_ranks, wilcoxon, friedman):
        with pytest.raises((ValueError, TypeError)) as error:
            function(table)
        assert sentence in str(error.value)


def test_names_of_datasets_belong_in_the_index() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"dataset": ["birds", "yeast"], "A": [0.5, 0.6], "B": [0.4, 0.7]})
    with pytest.raises(
        TypeError, match=r"'dataset' .* 'birds', .*: table\.set_index\('dataset'\)\."
    ):
        average_ranks(frame)
    assert average_ranks(frame.set_index("dataset")) == {"A": 1.5, "B": 1.5}


def test_refused_names() -> None:
    pandas = pytest.importorskip("pandas")
    for names, sentence in (
        ({"columns": ["A", "A"]}, "the method 'A' twice"),
        ({"index": ["birds", "birds"]}, "the dataset 'birds' twice"),
    ):
        with pytest.raises(ValueError, match=sentence):
            average_ranks(pandas.DataFrame([[1, 2], [3, 4]], **names))
    with pytest.raises(ValueError, match="no method 'Ours'; it has 'D2ACE', 'Random', 'Active'"):
        wilcoxon(TABLE, reference="Ours")
    with pytest.raises(ValueError, match="ties must be 'min' or 'average', got 'max'"):
        ranks(TABLE, ties="max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="alpha must be between 0 and 1, got 5"):
        wilcoxon(TABLE, alpha=5)


@given(tables(datasets=2))
def test_wilcoxon_as_scipy(table: np.ndarray) -> None:
    for method, found in wilcoxon(table, reference=0, higher_is_better=False).items():
        difference = table[:, method] - table[:, 0]
        if not difference.any():
            assert (found.p_value, found.verdict, found.rank_biserial) == (1.0, "tie", 0.0)
            continue
        expected = stats.wilcoxon(
            difference, alternative="greater", method="asymptotic", correction=False
        )
        assert found.p_value == pytest.approx(expected.pvalue, abs=1e-12)
        assert found.mean_difference == pytest.approx(difference.mean())
        signs = found.better, found.equal, found.worse
        assert signs == tuple(int(np.sum(np.sign(difference) == s)) for s in (1, 0, -1))


@given(tables(datasets=2))
def test_wilcoxon_is_antisymmetric(table: np.ndarray) -> None:
    forth = wilcoxon(table, reference=0, higher_is_better=True)[1]
    back = wilcoxon(table, reference=1, higher_is_better=True)[0]
    assert forth.rank_biserial == pytest.approx(-back.rank_biserial)
    assert {"win": "loss", "loss": "win", "tie": "tie"}[forth.verdict] == back.verdict
    if forth.better + forth.worse:
        assert forth.p_value + back.p_value == pytest.approx(1)


def test_wilcoxon_verdicts() -> None:
    scores = np.arange(12) / 100
    table = np.column_stack([scores, scores - 0.1, scores + 0.1, scores[::-1]])
    found = wilcoxon(table, reference=0)
    assert [found[method].verdict for method in (1, 2, 3)] == ["win", "loss", "tie"]
    assert [found[method].rank_biserial for method in (1, 2, 3)] == [1, -1, 0]
    assert found[1].p_value < 0.002
    assert wilcoxon(table, reference=0, alpha=1e-9)[1].verdict == "tie"
    assert wilcoxon(table, reference=0, higher_is_better=False)[1].verdict == "loss"


def test_rank_biserial_by_hand() -> None:
    # Differences 0.3, 0.2, -0.1 have the ranks 3, 2, 1: (5 - 1) / 6.
    found = wilcoxon([[3, 0], [2, 0], [0, 1], [5, 5]], reference=0)[1]
    assert found.rank_biserial == pytest.approx(4 / 6)
    assert (found.better, found.equal, found.worse) == (2, 1, 1)
    assert found.mean_difference == 1


def test_holm_by_hand() -> None:
    p_values = {"A": 0.01, "B": 0.04, "C": 0.03, "D": 0.005}
    adjusted = holm(p_values)
    assert adjusted == pytest.approx({"A": 0.03, "B": 0.06, "C": 0.06, "D": 0.02})
    assert list(adjusted) == list(p_values)
    assert holm({"A": 0.9, "B": 0.8}) == {"A": 1.0, "B": 1.0}
    assert holm({}) == {}
    with pytest.raises(ValueError, match=r"the p-value of 'B' must be in \[0, 1\], got nan"):
        holm({"A": 0.1, "B": math.nan})


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_keeps_order_and_never_lowers(values: list[float]) -> None:
    given_ = np.array(values)
    adjusted = np.array(list(holm(dict(enumerate(values))).values()))
    assert np.all(adjusted >= given_)
    assert np.all(np.diff(adjusted[np.argsort(given_)]) >= 0)


@given(tables(datasets=2, methods=3))
def test_friedman_as_scipy(table: np.ndarray) -> None:
    found = friedman(table)
    if np.all(table == table[:, :1]):
        assert (found.statistic, found.p_value) == (0.0, 1.0)
        return
    expected = stats.friedmanchisquare(*table.T)
    assert found.statistic == pytest.approx(expected.statistic, abs=1e-9)
    assert found.p_value == pytest.approx(expected.pvalue, abs=1e-12)
    assert friedman(-table).p_value == pytest.approx(found.p_value)


@pytest.mark.parametrize(
    ("methods", "quantile_05", "quantile_10"),
    [(2, 1.960, 1.645), (5, 2.728, 2.459), (8, 3.031, 2.780), (10, 3.164, 2.920)],
)
def test_critical_difference(methods: int, quantile_05: float, quantile_10: float) -> None:
    """The quantiles that Demšar (2006) tabulates."""
    scale = math.sqrt(methods * (methods + 1) / (6 * 13))
    assert critical_difference(methods, 13) == pytest.approx(quantile_05 * scale, rel=3e-4)
    found = critical_difference(methods, 13, alpha=0.1)
    assert found == pytest.approx(quantile_10 * scale, rel=3e-4)


def test_critical_difference_refuses() -> None:
    with pytest.raises(ValueError, match="at least two methods and one dataset, got 1 and 13"):
        critical_difference(1, 13)


def test_similar_methods() -> None:
    found = {"D": 4.0, "A": 1.0, "C": 2.4, "B": 1.8, "E": 9.0}
    assert similar_methods(found, 1.0) == [("A", "B"), ("B", "C")]
    assert similar_methods(found, 1.5) == [("A", "B", "C")]
    assert similar_methods(found, 1.6) == [("A", "B", "C"), ("C", "D")]
    assert similar_methods(found, 0.1) == []
    assert similar_methods(found, 99) == [("A", "B", "C", "D", "E")]


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=20), st.sampled_from([0.5, 0.95, 0.99]))
def test_confidence_interval_as_scipy(values: list[float], level: float) -> None:
    found = confidence_interval(values, level)
    assert found.mean == pytest.approx(np.mean(values))
    error = stats.sem(values)
    if error > 0:
        low, high = stats.t.interval(level, len(values) - 1, np.mean(values), error)
        assert (found.low, found.high) == pytest.approx((low, high))
    else:
        assert found.low == found.mean == found.high


def test_confidence_interval_of_folds_is_wider() -> None:
    """Nadeau and Bengio: s² (1/k + test rows / training rows) in place of s² / k."""
    gains = [0.012, 0.004, 0.009, -0.001, 0.007]
    plain, folds = confidence_interval(gains), confidence_interval(gains, test_to_train=1 / 4)
    assert folds.mean == plain.mean
    assert (folds.high - folds.mean) / (plain.high - plain.mean) == pytest.approx(1.5)
    with pytest.raises(ValueError, match="test_to_train must be a ratio from 0 up, got -1"):
        confidence_interval(gains, test_to_train=-1)


@pytest.mark.parametrize(
    ("values", "level", "sentence"),
    [
        ([0.1], 0.95, "needs at least two differences, got 1"),
        ([0.1, math.nan], 0.95, "difference 1 is nan; all must be finite"),
        ([0.1, 0.2], 95, "level must be between 0 and 1, got 95"),
    ],
)
def test_confidence_interval_refuses(values: list[float], level: float, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        confidence_interval(values, level)


def test_import_leaves_scipy_stats_out() -> None:
    code = "import sys, d2ace.evaluation; print('scipy.stats' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_equivalence_by_hand() -> None:
    # Mean 0.001, variance 2/3 of 0.001², error its root over √4; t of 3 degrees of freedom.
    values = [0.0, 0.001, 0.001, 0.002]
    error = math.sqrt(2 / 3) * 0.001 / 2
    found = equivalence(values, margin=0.002)
    assert found.mean == pytest.approx(0.001)
    assert (found.high - found.low) / 2 == pytest.approx(2.353363 * error, rel=1e-6)
    assert found.p_equivalent == pytest.approx(stats.t.sf(0.001 / error, 3))
    assert found.p_different == pytest.approx(2 * stats.t.sf(0.001 / error, 3))
    assert found.verdict == "equivalent"  # p 0.0459 one-sided: the interval ends at 0.00196
    assert equivalence(values, margin=0.0019).verdict == "undecided"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.010, 0.011, 0.012], "better"),
        ([-0.010, -0.011, -0.012], "worse"),
        ([0.0010, 0.0011, 0.0012], "equivalent"),  # surely not zero, and surely too small
        ([0.03, -0.03, 0.001], "undecided"),
        ([0.0, 0.0], "equivalent"),
        ([0.003, 0.003], "better"),
        ([-0.002, -0.002], "worse"),  # the margin itself is not within it
    ],
)
def test_verdicts_of_equivalence(values: list[float], verdict: str) -> None:
    assert equivalence(values, margin=0.002).verdict == verdict


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=12),
    st.floats(0.01, 1),
    st.sampled_from([0.01, 0.05, 0.2]),
)
def test_equivalence_properties(values: list[float], margin: float, alpha: float) -> None:
    found = equivalence(values, margin, alpha)
    error = stats.sem(values)
    if error > 1e-6:  # p-values as SciPy's, and the interval says the same as the two tests
        one_sided = [
            stats.ttest_1samp(values, -margin, alternative="greater").pvalue,
            stats.ttest_1samp(values, margin, alternative="less").pvalue,
        ]
        assert found.p_equivalent == pytest.approx(max(one_sided), abs=1e-9)
        assert found.p_different == pytest.approx(stats.ttest_1samp(values, 0).pvalue, abs=1e-9)
        if abs(found.p_equivalent - alpha) > 1e-9:
            within = -margin < found.low and found.high < margin
            assert (found.verdict == "equivalent") == within
    swapped = {"better": "worse", "worse": "better"}
    mirrored = equivalence([-value for value in values], margin, alpha)
    assert mirrored.verdict == swapped.get(found.verdict, found.verdict)
    assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low))
    if found.verdict == "equivalent":
        assert equivalence(values, 2 * margin, alpha).verdict == "equivalent"


@pytest.mark.parametrize(
    ("values", "margin", "alpha", "sentence"),
    [
        ([0.1], 0.1, 0.05, "a test of equivalence needs at least two differences, got 1"),
        ([0.1, math.inf], 0.1, 0.05, "difference 1 is inf; all must be finite"),
        ([0.1, 0.2], 0.0, 0.05, "margin must be a positive number in the metric's units, got 0.0"),
        ([0.1, 0.2], 0.1, 0.5, "alpha must be between 0 and 0.5, got 0.5"),
    ],
)
def test_equivalence_refuses(
    values: list[float], margin: float, alpha: float, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        equivalence(values, margin, alpha)
