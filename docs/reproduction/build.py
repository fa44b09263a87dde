"""Make the tables and figures of a study from its results.

    python docs/reproduction/build.py --db runs.db   # add the runs of a store first
    python docs/reproduction/build.py                # from results.csv alone
    python docs/reproduction/build.py --folder docs/images --db images.db

`results.csv` has a row for each run, `curves.csv.gz` the curves of all runs and `recordings.zip`
what case studies recorded; `tables.md` and `figures/` are made from these and from nothing else.
The grids that made the runs are packaged: `d2ace bench reproduction-1 --db runs.db --from
docs/reproduction/results.csv`, up to `reproduction-6`; with `--from`, runs that are in the file are
not run again.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from d2ace.benchmark import published, sections
from d2ace.benchmark.figures import standalone
from d2ace.benchmark.frames import collect
from d2ace.benchmark.layout import Report
from d2ace.benchmark.store import Store
from d2ace.benchmark.tables import Cell, Table

HERE = Path(__file__).resolve().parent
TITLES = {"reproduction": "the reproduction", "images": "the experiment on images"}
DRAWN = ("scores", "ranks", "convergence", "time", "ablation", "sweeps", "cases")
"""Sections whose figures are kept; all others are one `d2ace report` away."""


def report(place: Path = HERE) -> Report:
    """Everything `d2ace report` shows, from the results in the folder alone."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
        store.import_(place / "results.csv")
        return sections.build(store, collect(store), published.load(None))


def markdown(everything: Report, place: Path = HERE) -> str:
    """The page of tables."""
    option = "" if place == HERE else f" --folder docs/{place.name}"
    words = "[README](README.md)" if place == HERE else f"[the guide](../{place.name}.md)"
    lines = [
        f"# Tables of {TITLES[place.name]}",
        "",
        f"Made by `python docs/reproduction/build.py{option}` from `results.csv`; words are in "
        f"{words}.",
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
            if section.name in DRAWN:
                for figure in group.figures:
                    lines += [f"![{figure.alt}](figures/{figure.name}.svg)", "", figure.caption, ""]
    return "\n".join(lines).rstrip() + "\n"


def _table(table: Table) -> list[str]:
    numeric = [all(row[k].numeric for row in table.rows) for k in range(len(table.columns))]
    return [
        f"**{table.title}.** {table.caption}",
        "",
        _line(table.columns),
        _line(["---:" if right else "---" for right in numeric]),
        *[_line([_cell(cell) for cell in row]) for row in [*table.rows, *table.foot]],
    ]


def _line(words: list[str]) -> str:
    return f"| {' | '.join(words)} |"


def _cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.place == 1 else cell.text
    parts = [text, cell.spread, *cell.note.splitlines()]
    return "<br>".join(part.replace("|", "\\|") for part in parts if part)


def draw(everything: Report, place: Path) -> None:
    """Write the figures."""
    folder = place / "figures"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    for section in everything.sections:
        for group in section.groups if section.name in DRAWN else []:
            for figure in group.figures:
                picture = standalone(figure.svg())
                (folder / f"{figure.name}.svg").write_text(picture, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--db", type=Path, help="a store whose runs are added to results.csv")
    parser.add_argument("--folder", type=Path, default=HERE, help="where results.csv is")
    arguments = parser.parse_args()
    place = arguments.folder.resolve()
    results = place / "results.csv"
    if arguments.db is not None:
        with Store(arguments.db, create=False) as store:
            if results.exists():
                store.import_(results)
            store.export(results)
    everything = report(place)
    (place / "tables.md").write_text(markdown(everything, place), encoding="utf-8")
    draw(everything, place)


if __name__ == "__main__":
    main()
