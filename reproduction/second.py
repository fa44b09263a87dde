"""The second part: how its runs are kept.

`second/results.csv` has the runs of `grids/second-*.toml`, with the scores of labels beside it;
`static_controls.csv` has those of `static_controls.py`. To run more, and to add what a store has:

    d2ace bench reproduction/grids/second-handicaps.toml --db second.db \\
        --from reproduction/second/results.csv
    python reproduction/second.py --db second.db
    python reproduction/build.py
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

from d2ace.benchmark import Store

HERE = Path(__file__).resolve().parent
PLACE = HERE / "second"

Row = dict[str, str]


def add(db: Path) -> None:
    """The runs of a store that the first part does not have, beside those that are here."""
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / "results.csv"
        with Store(db, create=False) as store:
            store.export(new)
        known = {_run(row) for row in rows_of(HERE / "results.csv")}
        rows = rows_of(new)
        with new.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(row for row in rows if _run(row) not in known)
        with Store(Path(folder) / "both.db") as store:
            store.import_(PLACE / "results.csv")
            store.import_(new)
            store.export(PLACE / "results.csv")


def _run(row: Row) -> tuple[str, str]:
    """What names a run; Random has the same key in both parts."""
    return row["key"], row["finished_at"]


def rows_of(file: Path) -> list[Row]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--db", type=Path, required=True, help="a store whose runs are added")
    add(parser.parse_args().db)


if __name__ == "__main__":
    main()
