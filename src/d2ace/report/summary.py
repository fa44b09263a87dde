"""The findings in plain sentences, made from the numbers and no stronger than they are."""

from __future__ import annotations

from d2ace.evaluation import METRICS
from d2ace.report.tables.table import p_equals, signed

from .judgement import FEWEST, LEVEL, Judgement
from .method_names import BASELINE, CANDIDATE
from .wording import SINGLE_PAIR, WITHIN_NOISE, counted


def sentences(judgement: Judgement) -> list[str]:
    """A metric's finding: who is best, by how much, and whether that is more than noise."""
    ranks, best = judgement.average_ranks, judgement.best
    count = judgement.datasets
    over = f"over {counted(count, 'dataset')}, {judgement.comparison.spread(judgement.table)}"
    if len(ranks) == 1:
        if len(judgement.comparison.methods) == 1:
            return [f"Only {best} has runs, {over}: there is nothing to compare it with."]
        return [
            "No two methods have a score on the same dataset with the same settings: there is "
            "nothing to compare."
        ]
    ties = sorted(
        method for method, rank in ranks.items() if rank == ranks[best] and method != best
    )
    shared = f" (shared with {', '.join(ties)})" if ties else ""
    said = [
        f"{best} has the best average rank, {ranks[best]:.2f} of {len(ranks)} methods{shared}, "
        f"{over}." + _ranks_of_others(ranks, best)
    ]
    said.append(_gain(judgement))
    if BASELINE in judgement.tests_of(best).holm:  # no variant of it is tested against it
        said.append(_test(judgement))
    said.append(_friedman(judgement))
    said.append(_candidate(judgement))
    if judgement.left_out:
        said.append(f"Left out because of gaps: {', '.join(judgement.left_out)}.")
    other = judgement.comparison.other_rows(judgement.table)
    if other:
        said.append(
            f"Not all methods had the same data on {', '.join(other)} (their checksums differ), so "
            "the comparison is not fair."
        )
    return [sentence for sentence in said if sentence]


def _ranks_of_others(ranks: dict[str, float], best: str) -> str:
    others = [
        f"{method} has {ranks[method]:.2f}"
        for method in dict.fromkeys((CANDIDATE, BASELINE))
        if method in ranks and method != best
    ]
    return f" {' and '.join(others)}." if others else ""


def _gain(judgement: Judgement) -> str:
    gain, best = judgement.gain, judgement.best
    if best == BASELINE:
        return f"No method has a better average rank than {BASELINE}."
    if gain is None:
        return f"{BASELINE} was not run on the same folds and seeds, so no gain can be computed."
    unit = METRICS[judgement.metric].title
    pairs = counted(gain.count, "paired run")
    way = "better" if gain.mean >= 0 else "worse"
    lead = f"In {unit} it is {way} than {BASELINE} by {abs(gain.mean):.4f}"
    if gain.low is None or gain.high is None:
        return f"{lead}, in {SINGLE_PAIR}: nothing is known about noise."
    kind = " between datasets" if gain.between_datasets else ""
    within = f"95 % interval{kind} {_bound(gain.low)} to {_bound(gain.high)}, {pairs}"
    tail = f": {WITHIN_NOISE}." if gain.noise else "."
    return f"{lead} on average ({within}){tail}"


def _test(judgement: Judgement) -> str:
    tests = judgement.tests_of(judgement.best)
    p, corrected = tests.found[BASELINE].p_value, tests.holm[BASELINE]
    if not judgement.enough:
        return (
            f"With {counted(judgement.datasets, 'dataset')} the signed-rank test has no power "
            f"(it needs at least {FEWEST}), so significance cannot be claimed."
        )
    rivals = len(tests.holm)
    sure = "significant" if tests.significant(BASELINE) else "not significant"
    reachable = judgement.reachable(rivals)
    hopeless = "" if reachable else ", which not even a win on every dataset would be"
    return (
        f"Wilcoxon test against {BASELINE}: {p_equals(p)}, and after Holm's correction for "
        f"{counted(rivals, 'comparison')} {p_equals(corrected)}: "
        f"{sure} at 5 %{hopeless}."
    )


def _friedman(judgement: Judgement) -> str:
    if judgement.friedman is None:
        return ""
    p = p_equals(judgement.friedman)
    if judgement.friedman < LEVEL:
        return f"Friedman test: the methods differ ({p})."
    return f"Friedman test: no difference between the methods is shown ({p})."


def _candidate(judgement: Judgement) -> str:
    """Where the candidate is not the best, what it is."""
    ranks = judgement.average_ranks
    if judgement.best == CANDIDATE or CANDIDATE not in ranks or BASELINE not in ranks:
        return ""
    gain = judgement.gains.get(CANDIDATE)
    if gain is None:
        return ""
    differs = f"{CANDIDATE} itself differs from {BASELINE} by {_bound(gain.mean)}"
    if gain.low is None or gain.high is None:
        return f"{differs}, in {SINGLE_PAIR}."
    if gain.noise:
        return f"{differs}, {WITHIN_NOISE}."
    way = "better" if gain.mean > 0 else "worse"
    return (
        f"{CANDIDATE} itself is {way} than {BASELINE} by {abs(gain.mean):.4f} "
        f"(95 % interval{' between datasets' if gain.between_datasets else ''} "
        f"{_bound(gain.low)} to {_bound(gain.high)})."
    )


def _bound(value: float) -> str:
    return signed(f"{value:+.4f}")
