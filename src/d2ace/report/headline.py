"""The sentence at the top of a report: what is shown first, then what qualifies it."""

from __future__ import annotations

from .collect import Laboratory
from .judgement import FEWEST, Judgement
from .method_names import BASELINE, order
from .verdicts import Verdict
from .wording import WITHIN_NOISE, counted, listed


def headline(laboratory: Laboratory, found: list[Judgement]) -> list[str]:
    """The sentence at the top, and what qualifies it."""
    if not laboratory.finished:
        return ["The store holds no finished run: there is nothing to report yet."]
    comparable = [one for one in found if len(one.average_ranks) > 1]
    # Studies on the side ask other questions, often with fewer methods: they do not decide this.
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
            f"{BASELINE} was not run{where}, so that no method is compared with it.",
            _leaders(comparable),
        ]
    better = _shown(beside, Verdict.BETTER, "better")
    worse = _shown(beside, Verdict.WORSE, "worse")
    return [
        better or f"No method is shown to be better than {BASELINE}.",
        *([worse] if worse else []),
        _leaders(comparable),
        _strength(comparable, sum(one.enough for one in beside)),
    ]


def _shown(found: list[Judgement], verdict: Verdict, word: str) -> str:
    """Which methods have this verdict, the one with the most tables first; empty for none."""
    where: dict[str, list[Judgement]] = {}
    for one in found:
        for method, own in one.against_baseline.items():
            if own is verdict:
                where.setdefault(method, []).append(one)
    if not where:
        return ""
    alike: dict[int, list[str]] = {}
    for method in sorted(order(where), key=lambda method: -len(where[method])):
        alike.setdefault(len(where[method]), []).append(method)
    (most, first), *rest = alike.items()
    tables = [one for several in where.values() for one in several]
    here = ""
    if not any(one.enough for one in tables):  # the intervals speak of these datasets alone
        here = (
            " on this dataset" if all(one.datasets == 1 for one in tables) else " on these datasets"
        )
    said = f"{listed(first)} {'is' if len(first) == 1 else 'are'} {word} than {BASELINE}{here}"
    if len(found) == 1:
        return f"{said}."
    counts = [f"{said} in {most}", *(f"{listed(others)} in {count}" for count, others in rest)]
    return f"{', '.join(counts)} of {_tables(found)}."


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
        else f"No table has the {FEWEST} datasets that a test over datasets needs, so that nothing "
        "is shown for other datasets"
    ]
    if noise:
        said.append(f"in {noise} of {total} the lead over {BASELINE} is {WITHIN_NOISE}")
    if worse:
        said.append(f"in {worse} of {total} the best by rank is worse than {BASELINE} on average")
    return "; ".join(said) + "."


def _tables(found: list[Judgement]) -> str:
    return f"{counted(len(found), 'table')} of model and metric"
