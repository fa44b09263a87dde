"""Make the tables and figures of a study from its results.

    python reproduction/build.py --db runs.db   # add the runs of a store first
    python reproduction/build.py                # from results.csv alone
    python reproduction/build.py --folder docs/images --db images.db

`results.csv` has a row for each run, `curves.csv.gz` the curves of all runs, `labels.csv.gz` the
scores of labels where runs have them, and `recordings.zip` what case studies recorded; `tables.md`,
`figures/` and what stands between the marks in `README.md` (how far the steps are, scores beside
the paper's, what became of the claims and more) are made from these and from nothing else.
The grids that made the runs are in `grids/`: `d2ace bench reproduction/grids/reproduction-1.toml
--db runs.db --from reproduction/results.csv`, up to `reproduction-6.toml`; with `--from`, runs that
are in the file are not run again.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import against_random
import against_random_figure
import beside
import bibtex
import case_evidence
import claims
import concentration
import further_methods
import handicaps
import label_gains
import second
import static_tables
from beside import markdown_row as _line

from d2ace.benchmark import Store, load_grid
from d2ace.report import published, sections
from d2ace.report.collect import collect
from d2ace.report.figures.figure import standalone
from d2ace.report.layout import Page
from d2ace.report.tables.table import Cell, ReportTable

HERE = Path(__file__).resolve().parent
TITLES = {"reproduction": "the reproduction", "images": "the experiment on images"}
STEPS = {
    "1": "CLIF, preset `reference`, on emotions, birds, scene, yeast, cal500, enron; nine methods, "
    "five folds",
    "2": "CLIF, preset `paper`, on emotions, birds, yeast",
    "3": "DELA and PACA on emotions, birds, scene",
    "4": "a second seed for emotions, birds, yeast of step 1",
    "5": "ablations A-K; sweeps of K, mixing and λ₂ with CLIF (`paper`) on birds and cal500, three "
    "folds; case studies on cal500 and Corel5k, one fold",
    "why": "reasons: birds and yeast with 300 epochs; Random in the stored order of the rows; "
    "birds and yeast with the preprocessing of the authors' code, with each K of the paper, and "
    "with predictions of every row in every epoch; PACA on birds with other weights of its losses",
    "6": "bibtex, where the paper shows convergence, overfitting and time, with CLIF (`paper`): "
    "five methods, one fold",
}
"""Step -> what it runs; its grid is `grids/reproduction-STEP.toml`."""


@contextmanager
def results(place: Path = HERE) -> Iterator[Store]:
    """The results of the folder, and nothing else, as a store."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
        store.import_(place / "results.csv")
        yield store


def report(place: Path = HERE) -> Page:
    """Everything `d2ace report` shows, from the results in the folder alone."""
    with results(place) as store:
        return sections.build(collect(store), published.load(None))


def words() -> str:
    """The reproduction's README with what stands between its marks made anew."""
    with results() as store:
        progress = _progress(store)
        complete = {step for step, (runs, done) in progress.items() if done == runs}
        laboratory = collect(store)
        judged = list(claims.judgements(laboratory, complete))
    with results(second.PLACE) as store:
        later = collect(store)
    runs, done = (sum(counts) for counts in zip(*progress.values(), strict=True))
    state = f"complete, {runs:,} runs" if done == runs else f"{done:,} of {runs:,} runs"
    steps = [
        f"**State: {state}.**",
        "",
        _line(["step", "what", "runs", "done"]),
        _line(["---", "---", "---:", "---:"]),
        *[_line([step, STEPS[step], *map(str, counts)]) for step, counts in progress.items()],
    ]
    table = [
        _line(["claim of the paper", "shown there on", "reproduced if", "verdict", "evidence"]),
        _line(["---"] * 5),
        *[
            _line([claim.words, claim.where, claim.rule, f"**{verdict}**", evidence])
            for claim, (verdict, evidence) in judged
        ],
    ]
    page = (HERE / "README.md").read_text(encoding="utf-8")
    made = {
        "steps": steps,
        "scores": beside.lines(laboratory),
        "clear": against_random.clear(laboratory),
        "equivalence": against_random.equivalent(laboratory),
        "best": against_random.best(laboratory),
        "bibtex": bibtex.lines(laboratory),
        "concentration": concentration.lines(laboratory),
        "cases": case_evidence.levels(laboratory),
        "claims": table,
        "verdicts": [
            _line(["claim of the paper", "verdict"]),
            _line(["---", "---"]),
            *[
                _line([claim.words, f"**{verdict}**{' †' if claim.on_dihcl else ''}"])
                for claim, (verdict, _) in judged
            ],
        ],
        "handicaps": handicaps.lines(laboratory, later),
        "further": further_methods.lines(laboratory, later),
        "static": static_tables.lines(),
        "labels": label_gains.lines(later),
    }
    for name, lines in made.items():
        page = re.sub(
            rf"(<!-- {name}: made by build.py -->\n).*?(\n<!-- end -->)",
            lambda found, lines=lines: "\n".join([found[1], *lines, found[2]]),
            page,
            flags=re.S,
        )
    return page


def _progress(store: Store) -> dict[str, tuple[int, int]]:
    """Step -> runs that no earlier step has, and how many of them are done."""
    progress: dict[str, tuple[int, int]] = {}
    seen: set[str] = set()
    for step in STEPS:
        grid = load_grid(HERE / "grids" / f"reproduction-{step}.toml")
        new = {spec.key: spec for spec in grid.specs if spec.key not in seen}
        done = sum(store.status(spec) == "finished" for spec in new.values())
        progress[step] = len(new), done
        seen |= new.keys()
    return progress


def markdown(everything: Page, place: Path = HERE) -> str:
    """The page of tables."""
    option = "" if place == HERE else f" --folder docs/{place.name}"
    where = (
        "[README](README.md)" if place == HERE else f"[the guide](../explanation/{place.name}.md)"
    )
    lines = [
        f"# Tables of {TITLES[place.name]}",
        "",
        f"Made by `python reproduction/build.py{option}` from `results.csv`; words are in {where}.",
        "",
        f"**{everything.headline}** {everything.lead}",
        "",
        " · ".join(everything.facts),
        "",
    ]
    for title, metrics in everything.findings:
        lines += [f"## Summary: {title}", ""]
        for metric, sentences in metrics:
            lines += [f"**{metric}.** {' '.join(sentences)}", ""]
    for section in everything.sections:
        lines += [f"## {section.title}", ""]
        lines += [f"{sentence}\n" for sentence in section.missing]
        for group in section.groups:
            lines += [f"### {group.title}", ""] if group.title else []
            lines += [f"{note}\n" for note in group.notes]
            for table in group.tables:
                lines += [*_table(table), ""]
            for figure in group.figures:
                lines += [f"![{figure.alt}](figures/{figure.name}.svg)", "", figure.caption, ""]
    if place == HERE:
        lines += ["## Static controls", "", *static_tables.other_scores()]
    return "\n".join(lines).rstrip() + "\n"


def _table(table: ReportTable) -> list[str]:
    numeric = [all(row[k].numeric for row in table.rows) for k in range(len(table.columns))]
    return [
        f"**{table.title}.** {table.caption}",
        "",
        _line(table.columns),
        _line(["---:" if right else "---" for right in numeric]),
        *[_line([_cell(cell) for cell in row]) for row in [*table.rows, *table.foot]],
    ]


def _cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.place == 1 else cell.text
    parts = [text, cell.spread, *cell.note.splitlines()]
    return "<br>".join(part.replace("|", "\\|") for part in parts if part)


def draw(everything: Page, place: Path, before: str) -> None:
    """Write the figures; those that the page of ``before`` showed, and no others, go first."""
    folder = place / "figures"
    folder.mkdir(exist_ok=True)
    for name in re.findall(r"\]\(figures/([a-z0-9-]+\.svg)\)", before):
        (folder / name).unlink(missing_ok=True)
    for section in everything.sections:
        for group in section.groups:
            for figure in group.figures:
                picture = standalone(figure.svg())
                (folder / f"{figure.name}.svg").write_text(picture, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", type=Path, help="a store whose runs are added to results.csv")
    parser.add_argument("--folder", type=Path, default=HERE, help="where results.csv is")
    arguments = parser.parse_args()
    place = arguments.folder.resolve()
    file = place / "results.csv"
    if arguments.db is not None:
        with Store(arguments.db, create=False) as store:
            if file.exists():
                store.import_(file)
            store.export(file)
    everything = report(place)
    tables = place / "tables.md"
    before = tables.read_text(encoding="utf-8") if tables.exists() else ""
    tables.write_text(markdown(everything, place), encoding="utf-8")
    draw(everything, place, before)
    if place == HERE:
        with results() as store:
            figure = against_random_figure.figure(collect(store))
        picture = standalone(figure.svg())
        (HERE / "figures" / f"{figure.name}.svg").write_text(picture, encoding="utf-8")
        (HERE / "README.md").write_text(words(), encoding="utf-8")


if __name__ == "__main__":
    main()
