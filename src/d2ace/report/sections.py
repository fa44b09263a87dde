"""What stands in the report and in which order; what is missing is named where it would stand.

Tables and figures declare their own place: see `registry`.
"""

from __future__ import annotations

from d2ace.evaluation import METRICS

from .collect import Laboratory
from .figures import style
from .figures.studies import FULL, axis_title
from .headline import headline, not_trained
from .judgement import comparable, judge_all
from .layout import Group, Names, Page, Section
from .method_names import BASELINE, CANDIDATE, base_of
from .published import Published
from .registry import FIGURES, TABLES
from .summary import sentences
from .tables.cost import missing_runs
from .topics import CaseTopic, ComparisonTopic, StoreTopic, SweepTopic
from .wording import counted


def build(laboratory: Laboratory, published: Published) -> Page:
    """All parts of the report."""
    shared = (Names(), published, style.looks(laboratory.methods))
    compared = [ComparisonTopic(*shared, one, judge_all(one)) for one in laboratory.comparisons]
    found = {
        topic.heading: [one for one in topic.judged.values() if one.average_ranks]
        for topic in compared
    }
    every = [one for several in found.values() for one in several]
    store = StoreTopic(*shared, laboratory, every)
    ablations = [ComparisonTopic(*shared, one, {}) for one in laboratory.ablations]
    sweeps = [SweepTopic(*shared, one) for one in laboratory.sweeps]
    cases = [
        CaseTopic(*shared, f"{one.heading} on {dataset}", recorded)
        for one in [*laboratory.comparisons, *laboratory.cases]
        for dataset in one.datasets
        if (recorded := laboratory.recorded(one, dataset))
    ]
    first, *lead = [*headline(laboratory, every), *not_trained(laboratory)]
    return Page(
        headline=first,
        lead=" ".join(lead),
        facts=_facts(laboratory),
        findings=[
            (title, [(METRICS[one.metric].title, sentences(one)) for one in several])
            for title, several in found.items()
        ],
        sections=[
            _summary(store),
            _scores(compared),
            _ranks(compared),
            _convergence(compared),
            _time(compared),
            _ablation(ablations),
            _sweeps(sweeps),
            _cases(cases),
            _selection(compared),
            _runs(store),
        ],
    )


def _fill(section: Section, title: str, topic: object) -> Group:
    """A group with all tables and figures that are registered for the section."""
    group = section.group(title)
    group.add(*TABLES.make(section.name, topic), *FIGURES.make(section.name, topic))
    return group


def _summary(store: StoreTopic) -> Section:
    section = Section("summary", "Summary")
    _fill(section, "", store)
    return _without_empty(section)


def _scores(compared: list[ComparisonTopic]) -> Section:
    section = Section(
        "scores", "Scores", f"Every method on every dataset, and its difference from {BASELINE}."
    )
    if not compared:
        section.missing.append("No methods were compared; run: d2ace bench quick")
    for topic in compared:
        group = _fill(section, topic.heading, topic)
        if BASELINE not in topic.comparison.methods:
            group.notes.append(f"{BASELINE} was not run, so no gain over it can be shown.")
    return section


def _ranks(compared: list[ComparisonTopic]) -> Section:
    section = Section(
        "ranks",
        "Ranks and tests",
        "The best methods over datasets, and whether that could be chance.",
    )
    for topic in compared:
        if comparable(topic.judged):
            _fill(section, topic.heading, topic)
        else:
            section.missing.append(
                f"{topic.heading}: ranks need two methods that finished the same dataset, "
                "settings, fold and seed."
            )
    if not compared:
        section.missing.append("No methods were compared, so there is nothing to rank.")
    return section


def _convergence(compared: list[ComparisonTopic]) -> Section:
    section = Section(
        "convergence",
        "Convergence",
        f"Loss and validation score by epoch: how soon each method is as good as {BASELINE}, when "
        "it is best, and what it loses after that.",
    )
    for topic in compared:
        _fill(section, topic.heading, topic)
    return _or_missing(section, "No run has a history of its epochs.")


def _time(compared: list[ComparisonTopic]) -> Section:
    section = Section("time", "Time", "What selection costs on top of training.")
    for topic in compared:
        _fill(section, topic.heading, topic)
    return _or_missing(section, "No methods were compared, so there are no times to compare.")


def _ablation(ablations: list[ComparisonTopic]) -> Section:
    section = Section("ablation", "Ablation", f"{CANDIDATE} with one part removed or changed.")
    for topic in ablations:
        group = _fill(section, topic.comparison.model, topic)
        if FULL not in topic.comparison.methods:
            group.notes.append(f"Variant {FULL}, the full method, was not run: no differences.")
    return _or_missing(section, "No ablation was run; run: d2ace ablate --datasets birds")


def _sweeps(sweeps: list[SweepTopic]) -> Section:
    section = Section("sweeps", "Sweeps", "One option varies, everything else stays the same.")
    for topic in sweeps:
        one = topic.sweep
        what = axis_title(one.options)
        place = f"{one.model} on {one.dataset}"
        _fill(section, f"{what[0].upper()}{what[1:]} of {one.method}, {place}", topic)
    known = {
        "neighbors": ("K", "the neighbourhood size K"),
        "mix": ("mix", "the mixing schedule (p start, p end)"),
        "flip_smoothing": ("lambda2", "λ2 (flip_smoothing)"),
    }
    there = {topic.sweep.options for topic in sweeps}
    for option, (word, what) in known.items():
        if (option,) not in there:
            section.missing.append(
                f"No sweep over {what} was run; run: d2ace sweep {word} --datasets birds"
            )
    return section


def _cases(cases: list[CaseTopic]) -> Section:
    section = Section(
        "cases",
        "Case studies",
        "Properties of the rows that a method draws most, and how label weights follow label AUC.",
    )
    for topic in cases:
        group = _fill(section, topic.place, topic)
        if not topic.epochs:
            group.notes.append(
                "The runs ended before epoch 20, the first whose deciles are recorded."
            )
    return _or_missing(
        section,
        "No run was recorded, so there are no deciles and label weights; run: "
        "d2ace bench quick --set record=true",
    )


def _selection(compared: list[ComparisonTopic]) -> Section:
    section = Section(
        "selection", "Selection", "How strongly each method concentrates on some of the rows."
    )
    for topic in compared:
        _fill(section, topic.heading, topic)
    return _or_missing(section, "No run has a history of its epochs.")


def _runs(store: StoreTopic) -> Section:
    section = Section("runs", "Runs", "Finished, failed and missing runs.")
    group = _fill(section, "", store)
    gaps = missing_runs(store.laboratory)
    if gaps:
        group.notes.append("Missing, although other methods have the same fold and seed:")
        group.notes += gaps
    if not store.laboratory.finished and not store.laboratory.failed:
        section.missing.append("The store is empty; run: d2ace bench quick")
    return section


def _without_empty(section: Section) -> Section:
    section.groups = [group for group in section.groups if group.tables or group.figures]
    return section


def _or_missing(section: Section, sentence: str) -> Section:
    """Without the groups that came out empty; the sentence where nothing is left."""
    if not _without_empty(section).groups:
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
    for name in ("d2ace", "torch"):  # packages
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
