"""A table is one function: it says itself in which section of the report it stands."""

from __future__ import annotations

import csv
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from report_data import scored

from d2ace._util.errors import UserError
from d2ace.benchmark.store.database import Store
from d2ace.report import register_table

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-a-report.md"


def example() -> str:
    """The code under "A table of your own" in the guide."""
    text = PAGE.read_text(encoding="utf-8").partition("## Add a table of your own")[2]
    code = [line for line in text.splitlines() if line.startswith("    ") or not line]
    return textwrap.dedent("\n".join(code))


@pytest.mark.slow
def test_a_table_of_ones_own_stands_in_the_page(tmp_path: Path, store: Store) -> None:
    """In a process of its own: what is registered stays so."""
    scored(store, "Random", "random", 0.5)
    store.close()
    write = (
        "from d2ace.benchmark.store.database import Store\n"
        "from d2ace.report import write_report\n"
        f"with Store({str(store.path)!r}, read_only=True) as store:\n"
        f"    write_report(store, {str(tmp_path / 'out')!r})\n"
    )
    subprocess.run([sys.executable, "-c", f"{example()}\n{write}"], check=True)
    with (tmp_path / "out" / "tables" / "slowest.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert float(row["Seconds"]) > 0
    html = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    runs = html[html.index('<section id="runs">') :]
    assert runs.index("<h4>Runs</h4>") < runs.index("<h4>Slowest runs</h4>")


def test_a_section_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"no section 'score' .did you mean 'scores'"):
        register_table("score")
