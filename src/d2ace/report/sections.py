"""What stands in the report and in which order; what is missing is named where it would stand."""

from __future__ import annotations

from d2ace.evaluation import METRICS

from . import summary
from .collect import SHOWN, Laboratory
from .figures import cases as figures_cases
from .figures import scores as figures_scores
from .figures import studies as figures_studies
from .figures import style
from .figures import training as figures_training
from .layout import Group, Names, Page, Section
from .method_comparison import MethodComparison
from .method_names import BASELINE, CANDIDATE, base_of
from .published import Published
from .run_values import Recording
from .tables import cases as case_tables
from .tables import convergence as convergence_tables
from .tables import cost as cost_tables
from .tables import gains as gain_tables
from .tables import scores as score_tables
from .tables import seeds as seed_tables
from .tables import studies as study_tables
from .verdicts import Verdicts, judge
from .wording import counted


def build(laboratory: Laboratory, published: Published) -> Page:
    """All parts of the report."""
    names = Names()
    looks = style.looks(laboratory.methods)
    found = {one.heading: summary.findings(one) for one in laboratory.comparisons}
    every = [finding for several in found.values() for finding in several]
    judged = {
        one.heading: {metric: judge(one, metric) for metric in SHOWN if _has(one, metric)}
        for one in laboratory.comparisons
    }
    first = Section("summary", "Summary")
    if every:
        first.group("").add(summary.glance(names("findings"), every))
    lead = summary.headline(laboratory, every)
    return Page(
        headline=lead[0],
        lead=" ".join(lead[1:]),
        facts=_facts(laboratory),
        findings=[
            (
                title,
                [(METRICS[one.metric].title, summary.sentences(one)) for one in several],
            )
            for title, several in found.items()
        ],
        sections=[
            first,
            _scores(laboratory, judged, published, looks, names),
            _ranks(laboratory, judged, published, looks, names),
            _convergence(laboratory, looks, names),
            _time(laboratory, names),
            _ablation(laboratory, names),
            _sweeps(laboratory, names),
            _cases(laboratory, names),
            _selection(laboratory, looks, names),
            _runs(laboratory, names),
        ],
    )


def _scores(
    laboratory: Laboratory,
    judged: dict[str, dict[str, Verdicts]],
    published: Published,
    looks: dict[str, style.Look],
    names: Names,
) -> Section:
    section = Section(
        "scores", "Scores", "Every method on every dataset, and how it differs from Random."
    )
    if not laboratory.comparisons:
        section.missing.append("No methods were compared: d2ace bench quick")
    for one in laboratory.comparisons:
        title = one.heading
        group = section.group(title)
        for metric, verdicts in judged[title].items():
            name = names("scores", title, metric)
            group.add(score_tables.scores(name, one, metric, verdicts, published))
        random = any(method == BASELINE for method in one.methods)
        if not random:
            group.notes.append(f"{BASELINE} was not run, so that no gain over it can be shown.")
        elif len(one.methods) > 1:
            group.add(gain_tables.gains(names("gains", title), one))
            for metric in judged[title]:
                name = names("gains", title, metric)
                group.add(gain_tables.by_dataset(name, one, metric, published))
        for metric in judged[title]:
            group.add(seed_tables.seeds(names("seeds", title, metric), one, metric))
        for metric in judged[title]:
            group.add(figures_scores.scores(names("score-plot", title, metric), one, metric, looks))
            if random and len(one.methods) > 1:
                name = names("gain-plot", title, metric)
                group.add(figures_scores.gains(name, one, metric, looks))
    return section


def _ranks(
    laboratory: Laboratory,
    judged: dict[str, dict[str, Verdicts]],
    published: Published,
    looks: dict[str, style.Look],
    names: Names,
) -> Section:
    section = Section(
        "ranks", "Ranks and tests", "Who is best over datasets, and whether that could be chance."
    )
    for one in laboratory.comparisons:
        title = one.heading
        compared = {
            metric: verdicts
            for metric, verdicts in judged[title].items()
            if len(verdicts.average_ranks) > 1
        }
        if not compared:
            section.missing.append(
                f"{title}: ranks need two methods that finished the same dataset, settings, fold "
                "and seed."
            )
            continue
        group = section.group(title)
        group.add(
            score_tables.ranks(names("ranks", title), one, compared, published),
            score_tables.tests(names("tests", title), one, compared, published),
        )
        for metric, verdicts in compared.items():
            name = names("rank-plot", title, metric)
            group.add(figures_scores.ranks(name, one, metric, verdicts, looks))
    if not laboratory.comparisons:
        section.missing.append("No methods were compared, so there is nothing to rank.")
    return section


def _convergence(laboratory: Laboratory, looks: dict[str, style.Look], names: Names) -> Section:
    section = Section(
        "convergence",
        "Convergence",
        "Loss and validation score by epoch, how soon each method is as good as Random, when it is "
        "best and what it loses then.",
    )
    for one in laboratory.comparisons:
        title = one.heading
        group = section.group(title)
        if BASELINE in one.methods:
            group.add(convergence_tables.targets(names("targets", title), one))
        group.add(convergence_tables.peaks(names("peaks", title), one))
        group.add(convergence_tables.losses(names("losses", title), one))
        for dataset in one.datasets:
            name = names("loss", title, dataset)
            group.add(figures_training.losses(name, one, dataset, looks))
            name = names("validation", title, dataset)
            group.add(figures_training.validation(name, one, dataset, looks))
    return _or_missing(section, "No run has a history of its epochs.")


def _time(laboratory: Laboratory, names: Names) -> Section:
    section = Section("time", "Time", "What selection costs beside training itself.")
    for one in laboratory.comparisons:
        title = one.heading
        group = section.group(title)
        group.add(cost_tables.times(names("times", title), one))
        for dataset in one.datasets:
            name = names("time-plot", title, dataset)
            group.add(figures_training.time_split(name, one, dataset))
    return _or_missing(section, "No methods were compared, so there are no times to compare.")


def _ablation(laboratory: Laboratory, names: Names) -> Section:
    section = Section("ablation", "Ablation", "D2ACE with one part taken away or changed.")
    for one in laboratory.ablations:
        group = section.group(one.model)
        for dataset in one.datasets:
            group.add(study_tables.ablation(names("ablation", one.model, dataset), one, dataset))
            for metric in figures_studies.CURVES:
                name = names("ablation-plot", one.model, dataset, metric)
                group.add(figures_studies.ablation(name, one, dataset, metric))
        if figures_studies.FULL not in one.methods:
            group.notes.append(
                f"Variant {figures_studies.FULL}, the full method, was not run: no differences."
            )
    return _or_missing(section, "No ablation was run: d2ace ablate --datasets birds")


def _sweeps(laboratory: Laboratory, names: Names) -> Section:
    section = Section("sweeps", "Sweeps", "One option varied, everything else as it is.")
    known = {
        ("neighbors",): "the neighbourhood size K",
        ("mix",): "the mixing schedule (p start, p end)",
        ("flip_smoothing",): "λ2 (flip_smoothing)",
    }
    words = {("neighbors",): "K", ("mix",): "mix", ("flip_smoothing",): "lambda2"}
    there = {one.options for one in laboratory.sweeps}
    for one in laboratory.sweeps:
        listed = " and ".join(one.options)
        what = figures_studies.axis_title(one.options)
        place = f"{one.model} on {one.dataset}"
        group = section.group(f"{what[0].upper()}{what[1:]} of {one.method}, {place}")
        whose = () if one.method == CANDIDATE else (one.method,)  # names of files stay as they were
        where = (listed, *whose, one.model, one.dataset)
        group.add(study_tables.sweep(names("sweep", *where), one))
        for metric in figures_studies.CURVES:
            if figures_studies.is_pair(one):
                name = names("sweep-plot", *where, metric)
                group.add(figures_studies.option_map(name, one, metric))
            elif len(one.options) == 1:
                name = names("sweep-plot", *where, metric)
                group.add(figures_studies.option_curve(name, one, metric))
    for options, what in known.items():
        if options not in there:
            section.missing.append(
                f"No sweep over {what} was run: d2ace sweep {words[options]} --datasets birds"
            )
    return section


def _cases(laboratory: Laboratory, names: Names) -> Section:
    section = Section(
        "cases",
        "Case studies",
        "What the rows are like that a method draws most, and how label weights follow label AUC.",
    )
    for one in [*laboratory.comparisons, *laboratory.cases]:
        for dataset in one.datasets:
            recorded = laboratory.recorded(one, dataset)
            if recorded:
                place = f"{one.heading} on {dataset}"
                _case(section.group(place), place, recorded, names)
    return _or_missing(
        section,
        "No run was recorded, so there are no deciles and label weights: "
        "d2ace bench quick --set record=true",
    )


def _case(group: Group, place: str, recorded: dict[str, list[Recording]], names: Names) -> None:
    epochs = sorted(
        {int(epoch) for found in recorded.values() for one in found for epoch in one["epochs"]}
    )
    if epochs:
        group.add(case_tables.drawn_most(names("drawn-most", place), place, epochs, recorded))
    else:
        group.notes.append("The runs ended before epoch 20, the first whose deciles are recorded.")
    group.add(case_tables.label_weights(names("label-weights", place), place, recorded))
    for epoch in epochs:
        here = {
            method: [one for one in found if epoch in one["epochs"]]
            for method, found in recorded.items()
        }
        here = {method: found for method, found in here.items() if found}
        for what in figures_cases.PROPERTIES:
            name = names("deciles", what, str(epoch), place)
            group.add(figures_cases.deciles(name, place, what, epoch, here))
    for method, found in recorded.items():
        name = names("label-weights", method, place)
        group.add(figures_cases.label_weights(name, place, method, found[0]))


def _selection(laboratory: Laboratory, looks: dict[str, style.Look], names: Names) -> Section:
    section = Section(
        "selection", "Selection", "How strongly each method concentrates on some of the rows."
    )
    for one in laboratory.comparisons:
        title = one.heading
        group = section.group(title)
        for dataset in one.datasets:
            for make, word in (
                (figures_training.effective_rows, "effective-rows"),
                (figures_training.distinct_rows, "distinct-rows"),
            ):
                group.add(make(names(word, title, dataset), one, dataset, looks))
    return _or_missing(section, "No run has a history of its epochs.")


def _runs(laboratory: Laboratory, names: Names) -> Section:
    section = Section("runs", "Runs", "What ran, what failed, what is missing.")
    group = section.group("")
    group.add(cost_tables.inventory(names("all-runs"), laboratory))
    group.add(cost_tables.failures(names("failed-runs"), laboratory))
    gaps = cost_tables.missing_runs(laboratory)
    if gaps:
        group.notes.append("Not finished though other methods have the same fold and seed:")
        group.notes += gaps
    if not laboratory.finished and not laboratory.failed:
        section.missing.append("The store is empty: d2ace bench quick")
    return section


def _or_missing(section: Section, sentence: str) -> Section:
    """Without the groups that came out empty; the sentence where nothing is left."""
    section.groups = [group for group in section.groups if group.tables or group.figures]
    if not section.groups:
        section.missing.append(sentence)
    return section


def _facts(laboratory: Laboratory) -> list[str]:
    """The line under the title."""
    runs = {run.key: run for run in laboratory.finished}
    facts = [f"{counted(len(runs), 'finished run')}"]
    if laboratory.failed:
        facts.append(f"{len({run.key for run in laboratory.failed})} failed")
    facts.append(counted(len({base_of(run.dataset) for run in runs.values()}), "dataset"))
    facts.append(counted(len({run.model for run in runs.values()}), "model"))
    if laboratory.methods:
        facts.append(counted(len(laboratory.methods), "method"))
    for name in ("d2ace", "torch"):
        versions = sorted(
            {
                str(version)
                for run in runs.values()
                if (version := (run.result or {}).get("environment", {}).get(name))
            }
        )
        if versions:
            facts.append(f"{name} {', '.join(versions)}")
    return facts


def _has(one: MethodComparison, metric: str) -> bool:
    return any(one.means(metric).values())
