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
from d2ace.report import published, register_table, sections
from d2ace.report.collect import collect

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


@pytest.mark.parametrize("tuned", [True, False])
def test_macro_f1_at_tuned_thresholds_stands_beside_that_at_a_half(
    store: Store, tuned: bool
) -> None:
    """In every table and figure that has Macro-F1; not where the runs have no such score."""
    for method, selector, score in (("Random", "random", 0.5), ("D2ACE", "d2ace", 0.6)):
        scored(store, method, selector, score, tuned=tuned)
    sweep = {"study": "sweep", "tuned": tuned}
    for size, score in ((4, 0.5), (6, 0.7)):
        chosen = {"neighbors": size}
        scored(store, f"K={size}", "d2ace", score, selector_options=chosen, **sweep)
    for variant, chosen in (("A", {}), ("H", {"correlation": "none"})):
        scored(store, variant, "d2ace", 0.5, study="ablation", selector_options=chosen, tuned=tuned)
    page = sections.build(collect(store), published.load(None))
    groups = [group for section in page.sections for group in section.groups]
    columns = [table.columns for group in groups for table in group.tables]
    with_half = [found for found in columns if "Macro-F1" in found]
    assert len(with_half) == 3  # gains, ablation, sweep
    for found in with_half:
        assert (found[found.index("Macro-F1") + 1] == "Macro-F1 tuned") == tuned
    ranked = [row[0].text for group in groups for table in group.tables for row in table.rows]
    assert ("Macro-F1 tuned" in ranked) == tuned
    drawn = [figure.title for group in groups for figure in group.figures]
    assert sum("Macro-F1 tuned" in title for title in drawn) == tuned * sum(
        "Macro-F1" in title and "tuned" not in title for title in drawn
    )
