"""The findings in plain sentences, made from the numbers and no stronger than they are."""

from __future__ import annotations

from dataclasses import dataclass

from d2ace.evaluation import METRICS
from d2ace.report.tables.table import Cell, ReportTable, figure, p_equals, p_text, signed, word

from .collect import SHOWN, Laboratory
from .intervals import PairedInterval, interval
from .method_comparison import MethodComparison
from .method_names import BASELINE, CANDIDATE
from .verdicts import FEWEST, LEVEL, Verdicts, judge
from .wording import counted

WORSE = "best rank, worse on average"
"""The verdict on a method that wins often and by little, and loses by much."""


@dataclass(frozen=True)
class Finding:
    """What a comparison says in one metric."""

    comparison: MethodComparison
    metric: str
    verdicts: Verdicts
    """Of the best method against the others."""
    gain: PairedInterval | None
    """Of the best method over Random; None where Random is best or did not run."""

    @property
    def best(self) -> str:
        """The method with the best average rank."""
        return self.verdicts.best


def findings(comparison: MethodComparison) -> list[Finding]:
    """One per metric that has scores."""
    found = []
    for metric in SHOWN:
        verdicts = judge(comparison, metric)
        if not verdicts.average_ranks:
            continue
        best = verdicts.best
        if best != verdicts.reference:
            verdicts = judge(comparison, metric, reference=best)
        gain = None
        if best != BASELINE:
            differences = comparison.differences(metric, best, datasets=list(verdicts.table))
            gain = interval(differences) if differences else None
        found.append(Finding(comparison, metric, verdicts, gain))
    return found


def sentences(finding: Finding) -> list[str]:
    """A metric's finding: who is best, by how much, and whether that is more than noise."""
    ranks, best = finding.verdicts.average_ranks, finding.best
    count = finding.verdicts.datasets
    over = f"over {counted(count, 'dataset')}, {finding.comparison.spread(finding.verdicts.table)}"
    if len(ranks) == 1:
        if len(finding.comparison.methods) == 1:
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
    said.append(_gain(finding))
    if BASELINE in finding.verdicts.holm:  # no variant of Random is tested against it
        said.append(_test(finding))
    said.append(_friedman(finding.verdicts))
    said.append(_candidate(finding))
    if finding.verdicts.left_out:
        said.append(f"Left out because of gaps: {', '.join(finding.verdicts.left_out)}.")
    other = finding.comparison.other_rows(finding.verdicts.table)
    if other:
        said.append(
            f"Not all methods had the same data on {', '.join(other)} (their checksums differ), so "
            "that the comparison is not fair."
        )
    return [sentence for sentence in said if sentence]


def headline(laboratory: Laboratory, found: list[Finding]) -> list[str]:
    """The sentence at the top, and what qualifies it."""
    if not laboratory.finished:
        return ["The store holds no finished run: there is nothing to report yet."]
    comparable = [finding for finding in found if len(finding.verdicts.average_ranks) > 1]
    # Studies on the side ask other questions, often with fewer methods: they do not decide this.
    comparable = [one for one in comparable if one.comparison.study == "main"] or comparable
    if not comparable:
        return [
            "No two methods finished the same dataset, settings, fold and seed: there is nothing "
            "to compare yet."
        ]
    wins: dict[str, int] = {}
    for finding in comparable:
        ranks = finding.verdicts.average_ranks
        for method, rank in ranks.items():
            if rank == ranks[finding.best]:
                wins[method] = wins.get(method, 0) + 1
    most = max(wins.values())
    leaders = sorted(method for method, count in wins.items() if count == most)
    tables = f"{counted(len(comparable), 'table')} of model and metric"
    if len(comparable) == 1:
        word = "share" if len(leaders) > 1 else "has"
        lead = f"{_and(leaders)} {word} the best average rank"
    elif len(leaders) > 1:
        each = "each has" if len(leaders) > 2 else "both have"
        lead = f"{_and(leaders)} {each} the best average rank in {most} of {tables}"
    else:
        lead = f"{leaders[0]} has the best average rank in {most} of {tables}"
    return [f"{lead}.", _strength(comparable)]


def glance(name: str, found: list[Finding]) -> ReportTable:
    """The findings as a table."""
    rows = []
    for finding in found:
        verdicts, gain = finding.verdicts, finding.gain
        p = verdicts.holm.get(BASELINE) if verdicts.enough else None
        spread = "between datasets" if gain is not None and gain.between_datasets else ""
        candidate = verdicts.average_ranks.get(CANDIDATE)
        rows.append(
            [
                word(finding.comparison.heading),
                word(METRICS[finding.metric].title),
                word(finding.best),
                figure(verdicts.average_ranks[finding.best], ".2f"),
                figure(candidate, ".2f"),
                figure(verdicts.average_ranks.get(BASELINE), ".2f"),
                Cell("–") if gain is None else Cell(signed(str(gain)), gain.mean, note=spread),
                Cell("–") if p is None else Cell(p_text(p), p),
                word(_short(finding)),
                Cell(str(verdicts.datasets), verdicts.datasets),
            ]
        )
    return ReportTable(
        name=name,
        title="At a glance",
        caption=(
            f"The method with the best average rank, how much better it is than {BASELINE} (mean "
            "difference with its 95 % interval, positive is better), and the p-value of the "
            f"one-sided Wilcoxon test against {BASELINE}, corrected by Holm, from {FEWEST} "
            "datasets on. Who is best was chosen by looking at the same scores, which flatters "
            "the winner."
        ),
        columns=[
            "Model",
            "Metric",
            "Best",
            "Its rank",
            f"Rank of {CANDIDATE}",
            f"Rank of {BASELINE}",
            f"Better than {BASELINE} by",
            "p (Holm)",
            "In short",
            "Datasets",
        ],
        rows=rows,
    )


def _ranks_of_others(ranks: dict[str, float], best: str) -> str:
    others = [
        f"{method} has {ranks[method]:.2f}"
        for method in dict.fromkeys((CANDIDATE, BASELINE))
        if method in ranks and method != best
    ]
    return f" {' and '.join(others)}." if others else ""


def _gain(finding: Finding) -> str:
    gain, best = finding.gain, finding.best
    if best == BASELINE:
        return f"No method has a better average rank than {BASELINE}."
    if gain is None:
        return f"{BASELINE} was not run on the same folds and seeds, so no gain can be given."
    unit = METRICS[finding.metric].title
    pairs = counted(gain.count, "paired run")
    way = "better" if gain.mean >= 0 else "worse"
    lead = f"In {unit} it is {way} than {BASELINE} by {abs(gain.mean):.4f}"
    if gain.low is None or gain.high is None:
        return f"{lead}, in a single pair of runs: nothing is known about noise."
    kind = " between datasets" if gain.between_datasets else ""
    within = f"95 % interval{kind} {_bound(gain.low)} to {_bound(gain.high)}, {pairs}"
    tail = ": within noise." if gain.noise else "."
    return f"{lead} on average ({within}){tail}"


def _test(finding: Finding) -> str:
    verdicts = finding.verdicts
    p, corrected = verdicts.tests[BASELINE].p_value, verdicts.holm[BASELINE]
    if not verdicts.enough:
        return (
            f"With {counted(verdicts.datasets, 'dataset')} the signed-rank test has no power "
            f"(it takes at least {FEWEST}), so significance cannot be claimed."
        )
    sure = "significant" if corrected < LEVEL else "not significant"
    hopeless = "" if verdicts.reachable else ", which not even a win on every dataset would be"
    return (
        f"Wilcoxon test against {BASELINE}: {p_equals(p)}, and after Holm's correction for "
        f"{counted(len(verdicts.holm), 'comparison')} {p_equals(corrected)}: "
        f"{sure} at 5 %{hopeless}."
    )


def _friedman(verdicts: Verdicts) -> str:
    if verdicts.friedman is None:
        return ""
    p = p_equals(verdicts.friedman)
    if verdicts.friedman < LEVEL:
        return f"Friedman test: the methods differ ({p})."
    return f"Friedman test: no difference between the methods is shown ({p})."


def _candidate(finding: Finding) -> str:
    """Where D2ACE is not the best, what it is."""
    ranks = finding.verdicts.average_ranks
    if finding.best == CANDIDATE or CANDIDATE not in ranks or BASELINE not in ranks:
        return ""
    differences = finding.comparison.differences(
        finding.metric, CANDIDATE, datasets=list(finding.verdicts.table)
    )
    gain = interval(differences)
    if not gain.count:
        return ""
    differs = f"{CANDIDATE} itself differs from {BASELINE} by {_bound(gain.mean)}"
    if gain.low is None or gain.high is None:
        return f"{differs}, in a single pair of runs."
    if gain.noise:
        return f"{differs}, within noise."
    way = "better" if gain.mean > 0 else "worse"
    return (
        f"{CANDIDATE} itself is {way} than {BASELINE} by {abs(gain.mean):.4f} "
        f"(95 % interval{' between datasets' if gain.between_datasets else ''} "
        f"{_bound(gain.low)} to {_bound(gain.high)})."
    )


def _short(finding: Finding) -> str:
    verdicts, gain = finding.verdicts, finding.gain
    if len(verdicts.average_ranks) == 1:
        return "nothing to compare"
    if finding.best == BASELINE:
        return f"{BASELINE} is best"
    if gain is None:
        return f"no {BASELINE} to compare"
    if gain.low is None:
        return "a single pair of runs"
    if gain.noise:
        return "within noise"
    if gain.mean < 0:  # a rank counts wins, however small, and not what the losses cost
        return WORSE
    if not verdicts.enough:
        return "better, too few datasets to test"
    if verdicts.holm.get(BASELINE, 1.0) < LEVEL:
        return "better, significant"
    return "better, not significant"


def _strength(found: list[Finding]) -> str:
    """How much the lead is worth, over all tables."""
    short = [_short(finding) for finding in found]
    beside = [finding for finding in found if BASELINE in finding.verdicts.average_ranks]
    tested = sum(finding.verdicts.enough for finding in beside)
    noise, worse, total = short.count("within noise"), short.count(WORSE), len(found)
    said = []
    if not beside:
        ran = any(BASELINE in finding.comparison.methods for finding in found)
        where = " on the same datasets, folds and seeds" if ran else ""
        said.append(f"{BASELINE} was not run{where}, so that no method is compared with it")
    elif not tested:
        said.append(
            f"No table has the {FEWEST} datasets that a test needs, so none of this is shown to be "
            "significant"
        )
    else:
        said.append(
            f"The best method is significantly better than {BASELINE} in "
            f"{short.count('better, significant')} of {counted(tested, 'table')} that can be tested"
        )
    if noise:
        said.append(f"in {noise} of {total} the lead over {BASELINE} is within noise")
    if worse:
        said.append(f"in {worse} of {total} the best by rank is worse than {BASELINE} on average")
    return "; ".join(said) + "."


def _bound(value: float) -> str:
    return signed(f"{value:+.4f}")


def _and(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
