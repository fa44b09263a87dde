"""The sentence at the top of a report: what is shown first, then what qualifies it."""

from __future__ import annotations

from d2ace import evaluation
from d2ace.training import STILL_IMPROVING

from .collect import Laboratory
from .judgement import FEWEST, LEVEL, Judgement
from .method_names import BASELINE, base_of, order
from .run_values import was_improving
from .verdicts import Verdict
from .wording import WITHIN_NOISE, counted, listed


def headline(laboratory: Laboratory, found: list[Judgement]) -> list[str]:
    """The sentence at the top, and what qualifies it."""
    if not laboratory.finished:
        return ["The store holds no finished run: there is nothing to report yet."]
    comparable = [one for one in found if len(one.average_ranks) > 1]
    # Side studies ask other questions, often with fewer methods: they do not decide this.
    comparable = [one for one in comparable if one.comparison.study == "main"] or comparable
    if not comparable:
        return [
            "No two methods finished the same dataset, settings, fold and seed: there is nothing "
            "to compare yet."
        ]
    beside = [one for one in comparable if BASELINE in one.average_ranks]
    if not beside:
        ran = any(BASELINE in one.comparison.methods for one in comparable)
        where = " on the same datasets, folds and seeds" if ran else ""
        return [
            f"{BASELINE} was not run{where}, so no method is compared with it.",
            _leaders(comparable),
        ]
    testable = [one for one in beside if one.enough]
    better, worse = _tested(testable) if testable else _on_these(beside)
    of = _tables(beside)
    if len(beside) > len(testable) > 0:
        of = f"{counted(len(testable), 'table')} that can be tested"
    here = ""
    if not testable:  # intervals hold for these datasets only
        here = (
            " on these datasets" if max(one.datasets for one in beside) > 1 else " on this dataset"
        )
    said = [
        _named(methods, f"{word} than {BASELINE}{here}", "" if len(beside) == 1 else of)
        for word, methods in (("better", better), ("worse", worse))
        if methods
    ]
    if not better:
        said.insert(0, f"No method is shown to be better than {BASELINE}.")
    return [*said, _leaders(comparable), _strength(comparable, len(testable))]


def not_trained(laboratory: Laboratory) -> list[str]:
    """How many runs were still improving when their epochs ended; empty if none."""
    runs = {run.key: run for run in laboratory.finished}
    early = sum(map(was_improving, runs.values()))
    if not early:
        return []
    of = f"{early} of {counted(len(runs), 'run')}"
    if 20 * early <= len(runs):
        return [f"{of} had the best epoch within the last 5 %, no more than by chance."]
    return [
        f"{of} {'was' if early == 1 else 'were'} still improving at the end (best epoch within the "
        f"last 5 %): there, {STILL_IMPROVING}."
    ]


def _tested(found: list[Judgement]) -> tuple[list[str], list[str]]:
    """The methods that the tests over datasets show to be better and worse, once for each table."""
    verdicts = [item for one in found for item in one.against_baseline.items()]
    better = [method for method, verdict in verdicts if verdict is Verdict.BETTER]
    return better, [method for method, verdict in verdicts if verdict is Verdict.WORSE]


def _on_these(found: list[Judgement]) -> tuple[list[str], list[str]]:
    """The same by Student's test over folds and seeds, corrected for all methods and tables."""
    gains = {
        (place, method): gain
        for place, one in enumerate(found)
        for method, gain in one.gains.items()
        if base_of(method) != BASELINE  # its variants do not compete
    }
    corrected = evaluation.holm(
        {where: gain.p_value for where, gain in gains.items() if gain.p_value is not None}
    )
    clear = [where for where in gains if corrected.get(where, 1.0) < LEVEL]
    better = [where[1] for where in clear if gains[where].mean > 0]
    return better, [where[1] for where in clear if gains[where].mean < 0]


def _named(methods: list[str], what: str, of: str) -> str:
    """Which methods are so, and in how many tables, those with the most first."""
    counts: dict[int, list[str]] = {}
    for method in order(methods):
        counts.setdefault(methods.count(method), []).append(method)
    (most, first), *rest = sorted(counts.items(), reverse=True)
    said = f"{listed(first)} {'is' if len(first) == 1 else 'are'} {what}"
    if not of:
        return f"{said}."
    others = [f"{listed(names)} in {count}" for count, names in rest]
    return f"{', '.join([f'{said} in {most}', *others])} of {of}."


def _leaders(found: list[Judgement]) -> str:
    """Who has the best average rank, in how many tables."""
    wins: dict[str, int] = {}
    for one in found:
        for method, rank in one.average_ranks.items():
            if rank == one.average_ranks[one.best]:
                wins[method] = wins.get(method, 0) + 1
    most = max(wins.values())
    leaders = sorted(method for method, count in wins.items() if count == most)
    if len(found) == 1:
        return f"{listed(leaders)} {'share' if len(leaders) > 1 else 'has'} the best average rank."
    have = "has" if len(leaders) == 1 else "both have" if len(leaders) == 2 else "each has"
    return f"{listed(leaders)} {have} the best average rank in {most} of {_tables(found)}."


def _strength(found: list[Judgement], tested: int) -> str:
    """How much the lead by rank is worth, over all tables, of which some can be tested."""
    verdicts = [one.verdict for one in found]
    significant = sum(one.enough and one.verdict is Verdict.BETTER for one in found)
    noise, total = verdicts.count(Verdict.NOISE), len(found)
    worse = verdicts.count(Verdict.WORSE) + verdicts.count(Verdict.WORSE_NOT_SHOWN)
    said = [
        f"The best method is significantly better than {BASELINE} in {significant} of "
        f"{counted(tested, 'table')} that can be tested"
        if tested
        else f"No table has the {FEWEST} datasets that a test over datasets needs, so nothing is "
        "shown for other datasets"
    ]
    if noise:
        said.append(f"in {noise} of {total} the lead over {BASELINE} is {WITHIN_NOISE}")
    if worse:
        said.append(f"in {worse} of {total} the best by rank is worse than {BASELINE} on average")
    return "; ".join(said) + "."


def _tables(found: list[Judgement]) -> str:
    return f"{counted(len(found), 'table')} of model and metric"
