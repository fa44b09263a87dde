"""The report on a store of everything: its numbers, its files, and what a reader sees."""

from __future__ import annotations

import csv
import re
import statistics
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import report_data
from browser import Browser, find_browser

from d2ace import evaluation
from d2ace.benchmark.store.database import Store, StoredRun
from d2ace.report import published
from d2ace.report.collect import SHOWN, TUNED
from d2ace.report.figures import style
from d2ace.report.page import Written, write_report

OLDER = [metric for metric in SHOWN if metric != TUNED]
"""What runs have that were stored before thresholds were tuned."""


class Made(NamedTuple):
    store: Store
    folder: Path
    written: Written
    html: str

    def table(self, name: str) -> list[dict[str, str]]:
        text = (self.folder / "tables" / f"{name}.csv").read_text(encoding="utf-8")
        return list(csv.DictReader(text.splitlines()))

    def runs(self, model: str = "CLIF", study: str = "main") -> list[StoredRun]:
        return [run for run in self.store.runs(study) if run.model == model]

    def printed(self, metric: str) -> dict[str, dict[str, float]]:
        """Means to four digits over the folds and seeds that all methods of a dataset have."""
        scores: dict[str, dict[str, dict[tuple[int, int], float]]] = {}
        for run in self.runs():
            assert run.result is not None
            row = scores.setdefault(run.dataset, {}).setdefault(run.method, {})
            row[run.fold, run.seed] = run.result["test"][metric]
        table: dict[str, dict[str, float]] = {}
        for dataset, row in scores.items():
            common = set.intersection(*(set(own) for own in row.values()))
            table[dataset] = {
                method: round(statistics.mean(own[pair] for pair in common), 4)
                for method, own in row.items()
            }
        return table


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("report")
    with report_data.full(folder / "runs.db") as store:
        written = write_report(store, folder / "out")
        page = written.page.read_text(encoding="utf-8")
        yield Made(store, folder / "out", written, page)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = find_browser()
    if executable is None:
        pytest.skip("no Chromium here: apt-get install --no-install-recommends chromium")
    with Browser(executable, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


# Numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", OLDER)
def test_score_tables_hold_the_means_of_the_store(made: Made, metric: str) -> None:
    name = f"scores-clif-{metric.replace('_', '-')}"
    rows = {(row["dataset"], row["method"]): row for row in made.table(name)}
    scores: dict[tuple[str, str], list[float]] = {}
    for run in made.runs():
        assert run.result is not None
        scores.setdefault((run.dataset, run.method), []).append(run.result["test"][metric])
    assert rows.keys() == scores.keys()
    for where, values in scores.items():
        assert float(rows[where]["mean"]) == pytest.approx(statistics.mean(values), abs=1e-12)
        assert int(rows[where]["runs"]) == len(values)
        if len(values) > 1:
            assert float(rows[where]["sd"]) == pytest.approx(statistics.stdev(values), abs=1e-12)
        # The page prints the same number.
        assert f"{statistics.mean(values):.4f}" in made.html


@pytest.mark.parametrize("metric", OLDER)
def test_ranks_and_tests_are_those_of_the_printed_scores(made: Made, metric: str) -> None:
    table = made.printed(metric)
    higher = evaluation.METRICS[metric].higher_is_better
    own: dict[str, dict[str, float]] = {}
    for row in made.table("ranks-clif"):
        if row["metric"] == metric:
            own.setdefault(row["dataset"], {})[row["method"]] = float(row["rank"])
    for dataset, row in table.items():
        for method, score in row.items():
            better = sum(other > score if higher else other < score for other in row.values())
            assert own[dataset][method] == better + 1
    p = {
        row["Against"]: float(row["p"])
        for row in made.table("tests-clif")
        if row["Metric"] == evaluation.METRICS[metric].title
    }
    expected = evaluation.wilcoxon(table, higher_is_better=higher)
    assert p == {method: one.p_value for method, one in expected.items()}


def test_holm_counts_rivals_and_not_the_reference_preset(made: Made) -> None:
    rows = [row for row in made.table("tests-clif") if row["Metric"] == "Macro-AUC"]
    rivals = {row["Against"]: float(row["p"]) for row in rows if "reference" not in row["Against"]}
    found = {row["Against"]: row["p (Holm)"] for row in rows}
    assert found.pop("D2ACE (reference)") == ""
    assert {name: float(p) for name, p in found.items()} == evaluation.holm(rivals)


def test_gain_over_random_is_paired_by_fold_and_seed(made: Made) -> None:
    random = {
        (run.dataset, run.fold, run.seed): run.result["test"]["ranking_loss"]
        for run in made.runs()
        if run.method == "Random" and run.result
    }
    differences: dict[str, dict[int, list[float]]] = {}
    for run in made.runs():
        if run.method == "D2ACE" and run.result:
            gain = random[run.dataset, run.fold, run.seed] - run.result["test"]["ranking_loss"]
            differences.setdefault(run.dataset, {}).setdefault(run.fold, []).append(gain)
    (row,) = [
        row
        for row in made.table("gains-clif")
        if (row["metric"], row["method"]) == ("ranking_loss", "D2ACE")
    ]
    folds = {
        dataset: [statistics.mean(gains) for gains in found.values()]
        for dataset, found in differences.items()
    }
    expected = statistics.mean(statistics.mean(gains) for gains in folds.values())
    assert int(row["pairs"]) == 14
    assert float(row["difference"]) == pytest.approx(expected)  # positive is better
    assert float(row["low"]) < expected < float(row["high"])


def test_gain_on_a_dataset_stands_beside_the_published_one(made: Made) -> None:
    rows = {(row["dataset"], row["method"]): row for row in made.table("gains-clif-ranking-loss")}
    scores = {
        (run.method, run.fold, run.seed): run.result["test"]["ranking_loss"]
        for run in made.runs()
        if run.dataset == "cal500" and run.result
    }
    gains = [
        scores["Random", fold, seed] - score
        for (method, fold, seed), score in scores.items()
        if method == "ML-Unc"
    ]
    row = rows["cal500", "ML-Unc"]
    assert int(row["pairs"]) == len(gains) > 1
    assert float(row["difference"]) == pytest.approx(statistics.mean(gains))
    assert float(row["published"]) == pytest.approx(0.2318 - 0.2311)  # less is better
    assert rows["emotions", "D2ACE"]["published"] == ""  # not in the paper


def test_published_scores_stand_beside_ours(made: Made) -> None:
    rows = {(row["dataset"], row["method"]): row for row in made.table("scores-clif-macro-auc")}
    assert float(rows["cal500", "Random"]["published"]) == 0.5849
    assert rows["emotions", "Random"]["published"] == ""  # not in the paper
    assert rows["cal500", "Mine"]["published"] == ""
    assert "paper 0.5849" in made.html


def test_epochs_and_seconds_to_the_best_of_random(made: Made) -> None:
    runs = {(run.method, run.fold): run.result for run in made.runs() if run.dataset == "birds"}
    (row,) = [row for row in made.table("targets-clif") if row["method"] == "DIHCL"]
    epochs, spent = [], []
    for fold in range(2):
        own, other = runs["DIHCL", fold], runs["Random", fold]
        assert own is not None
        assert other is not None
        goal = max(epoch["validation"]["macro_auc"] for epoch in other["history"])
        reached = [
            place
            for place, epoch in enumerate(own["history"])
            if epoch["validation"]["macro_auc"] >= goal
        ]
        assert reached
        epochs.append(reached[0] + 1)
        spent.append(
            own["seconds"]["setup"]
            + sum(
                seconds
                for epoch in own["history"][: reached[0] + 1]
                for part, seconds in epoch["seconds"].items()
                if part != "evaluation"
            )
        )
    assert float(row["epochs"]) == statistics.median(epochs)
    assert float(row["seconds"]) == pytest.approx(statistics.median(spent))


def test_the_best_epoch_and_what_is_lost_after_it(made: Made) -> None:
    curves = [
        [epoch["validation"]["macro_auc"] for epoch in run.result["history"]]
        for run in made.runs()
        if run.dataset == "birds" and run.method == "DIHCL" and run.result
    ]
    (row,) = [row for row in made.table("peaks-clif") if row["method"] == "DIHCL"]
    assert int(row["runs"]) == len(curves) == 2
    assert float(row["best_epoch"]) == statistics.median(c.index(max(c)) + 1 for c in curves)
    lost = statistics.mean(max(curve) - curve[-1] for curve in curves)
    assert float(row["lost_after"]) == pytest.approx(lost)
    assert lost > 0
    assert f"−{lost:.4f}" in made.html


def test_the_loss_of_all_training_rows_at_a_quarter_half_and_the_end(made: Made) -> None:
    curves = [
        [epoch["epoch_loss"] for epoch in run.result["history"]]
        for run in made.runs()
        if run.dataset == "birds" and run.method == "DIHCL" and run.result
    ]
    rows = [row for row in made.table("losses-clif") if row["method"] == "DIHCL"]
    epochs = len(curves[0])
    assert [int(row["epoch"]) for row in rows] == [epochs // 4, epochs // 2, epochs]
    for row in rows:
        mean = statistics.mean(curve[int(row["epoch"]) - 1] for curve in curves)
        assert float(row["loss"]) == pytest.approx(mean)
        assert f"{mean:.4f}" in made.html


def test_time_is_split_by_part_and_compared_with_random(made: Made) -> None:
    rows = {(row["Dataset"], row["Method"]): row for row in made.table("times-clif")}
    row = rows["yeast", "ML-Unc"]
    parts = [float(row[title]) for title, _ in style.PARTS.values()]
    assert float(row["Total"]) == pytest.approx(sum(parts))
    ratio = float(row["Total"]) / float(rows["yeast", "Random"]["Total"])
    assert float(row["× Random"]) == pytest.approx(ratio)
    share = statistics.mean(
        sum(spent[part] for part in ("setup", "recompute", "draw", "observe")) / spent["train"]
        for run in made.runs()
        if (run.dataset, run.method) == ("yeast", "ML-Unc") and run.result
        for spent in [run.result["seconds"]]
    )
    assert float(row["Selection"]) == pytest.approx(share)
    assert f"{share:.2%}" in made.html
    assert float(row["Observing"]) == pytest.approx(0.09 * 0.2 * report_data.EPOCHS)


def test_ablation_and_sweeps(made: Made) -> None:
    variants = {row["variant"] for row in made.table("ablation-clif-birds")}
    assert variants == {"A", "B", "C", "G", "H", "K"}
    sizes = [row["neighbors"] for row in made.table("sweep-neighbors-clif-birds")]
    assert list(dict.fromkeys(sizes)) == ["0", "4", "5", "6", "7", "8", "n"]
    mixes = {row["mix"] for row in made.table("sweep-mix-clif-birds")}
    assert len(mixes) == 9
    assert "0.9 → 0.1" in mixes


def test_inventory_names_failures_and_gaps(made: Made) -> None:
    rows = made.table("all-runs")
    assert len(rows) == len(made.store.runs(status=None))
    (failed,) = made.table("failed-runs")
    assert failed["Error"] == "RuntimeError: <b>out of memory</b> & more"
    assert "&lt;b&gt;out of memory&lt;/b&gt;" in made.html
    assert re.search(r"main, CLIF on scene: [^<]*Recent \(1\)", made.html)


def test_ranks_without_enough_datasets_claim_nothing(made: Made) -> None:
    """DELA ran on one dataset: no Friedman test, no critical difference, no significance."""
    verdicts = {
        row["Verdict"] for row in made.table("tests-dela-reference") if row["Metric"] == "Macro-AUC"
    }
    assert verdicts == {"too few datasets"}
    assert "the Friedman test needs several datasets and there is one" in made.html
    figure = (made.folder / "figures" / "rank-plot-dela-reference-macro-auc.svg").read_text()
    assert "critical difference" not in figure
    assert "critical difference" in (
        made.folder / "figures" / "rank-plot-clif-macro-auc.svg"
    ).read_text(encoding="utf-8")


# Files --------------------------------------------------------------------------------------


def test_every_figure_is_svg_and_pdf_and_every_table_csv_and_latex(made: Made) -> None:
    figures = made.folder / "figures"
    tables = made.folder / "tables"
    drawn = {path.stem for path in figures.glob("*.svg")}
    assert len(drawn) == made.written.figures
    assert drawn == {path.stem for path in figures.glob("*.pdf")}
    assert len(list(tables.glob("*.csv"))) == len(list(tables.glob("*.tex"))) == made.written.tables
    links = set(re.findall(r'href="((?:figures|tables)/[^"]+)"', made.html))
    assert links == {
        path.relative_to(made.folder).as_posix()
        for path in made.folder.glob("*/*")
        if path.is_file()
    }
    for path in figures.glob("*.pdf"):
        assert path.read_bytes().startswith(b"%PDF")
    for path in figures.glob("*.svg"):
        root = ElementTree.parse(path).getroot()  # noqa: S314 - we wrote it
        assert root.get("aria-label")
        assert root.findall(".//{http://www.w3.org/2000/svg}text"), "text must stay text"


def test_kinds_of_figures(made: Made) -> None:
    stems = {path.stem for path in (made.folder / "figures").glob("*.svg")}
    for begin in (
        "score-plot-clif",
        "gain-plot-clif",
        "rank-plot-clif",
        "loss-clif-birds",
        "validation-clif-birds",
        "time-plot-clif",
        "ablation-plot-clif-birds",
        "sweep-plot-neighbors",
        "sweep-plot-mix",
        "sweep-plot-flip-smoothing",
        "deciles-outlier-20",
        "deciles-loss-20",
        "label-weights-d2ace",
        "effective-rows-clif-birds",
        "distinct-rows-clif-birds",
    ):
        assert any(stem.startswith(begin) for stem in stems), begin
    assert not any(stem.startswith("loss-clif-yeast") for stem in stems)  # it has no history


def test_latex_marks_the_best_and_escapes(made: Made) -> None:
    text = (made.folder / "tables" / "scores-clif-macro-auc.tex").read_text(encoding="utf-8")
    for command in (r"\toprule", r"\midrule", r"\bottomrule", r"\textbf{", r"\underline{"):
        assert command in text
    assert r"\textless{}img src=x onerror=alert(1)\textgreater{} \& co" in text
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    columns = {line.count(" & ") for line in body.splitlines() if line.endswith(r"\\")}
    assert columns == {len(report_data.METHODS) + 2}  # with the user's own and the reference preset


# What a reader sees -------------------------------------------------------------------------


def test_nothing_leaves_the_page_and_nothing_complains(made: Made, browser: Browser) -> None:
    browser.requests.clear()
    browser.complaints.clear()
    browser.show(made.written.page)
    assert browser.requests == [made.written.page.as_uri()]
    assert browser.complaints == []
    assert browser.value("document.images.length") == 0  # the dataset's name made no element
    assert report_data.MARKED in browser.value("document.body.innerText")


def test_a_reader_finds_the_summary_first(made: Made, browser: Browser) -> None:
    browser.show(made.written.page)
    assert browser.value("document.querySelector('h1').innerText") in made.written.headline
    assert browser.value("document.querySelector('main section').id") == "summary"
    text = browser.value("document.querySelector('.finding').innerText").replace("\u00a0", " ")
    rank = evaluation.average_ranks(made.printed("macro_auc"))
    best = min(rank, key=lambda method: rank[method])
    assert f"{best} has the best average rank, {rank[best]:.2f} of 10 methods" in text
    assert "over 7 datasets, 1 to 2 folds and 1 seed" in text
    assert re.search(r"better than Random by 0\.\d{4} on average \(95 % interval \+0\.", text)
    assert re.search(r"Wilcoxon test against Random: p = 0\.\d{4}, and after Holm's", text)
    assert "which not even a win on every dataset would be" in text
    assert "With 1 dataset the signed-rank test has no power" in browser.value(
        "document.querySelector('#summary').innerText"
    )


def test_all_tables_and_figures_are_drawn(made: Made, browser: Browser) -> None:
    browser.show(made.written.page)
    seen = "e => { const b = e.getBoundingClientRect(); return b.width > 100 && b.height > 30 }"
    for selector, count in (("table", made.written.tables), ("svg", made.written.figures)):
        found = browser.value(
            f"Array.from(document.querySelectorAll('{selector}')).filter({seen}).length"
        )
        assert found == count
    unnamed = "svg:not([aria-label]), figure:not(:has(figcaption p))"
    assert browser.value(f"document.querySelectorAll('{unnamed}').length") == 0
    twice = (
        "(() => { const ids = Array.from(document.querySelectorAll('[id]')).map(e => e.id);"
        "return ids.length - new Set(ids).size })()"
    )
    assert browser.value(twice) == 0


def test_tables_sort_by_a_press_on_the_heading(made: Made, browser: Browser) -> None:
    browser.show(made.written.page)
    heading = "#scores-clif-macro-auc thead th:nth-child(2)"
    column = (
        "Array.from(document.querySelectorAll('#scores-clif-macro-auc tbody tr'))"
        ".map(r => parseFloat(r.cells[1].dataset.key))"
    )
    before = browser.value(column)
    browser.click(f"{heading} button")
    assert browser.value(column) == sorted(before)
    sort = f"document.querySelector('{heading}').getAttribute('aria-sort')"
    assert browser.value(sort) == "ascending"
    browser.click(f"{heading} button")
    assert browser.value(column) == sorted(before, reverse=True)
    foot = "document.querySelector('#scores-clif-macro-auc tfoot').innerText"
    assert "Average rank" in browser.value(foot)


@pytest.mark.parametrize("width", [375, 1280])
def test_no_page_is_wider_than_the_screen(
    made: Made, browser: Browser, width: int, tmp_path: Path
) -> None:
    browser.show(made.written.page, width=width, height=800)
    assert browser.value("document.documentElement.scrollWidth") == width
    browser.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_dark_mode_repaints_text_of_page_and_figures(made: Made, browser: Browser) -> None:
    colours = []
    for scheme in ("light", "dark"):
        browser.show(made.written.page, scheme=scheme)
        colours.append(
            browser.value(
                "[getComputedStyle(document.body).backgroundColor,"
                "getComputedStyle(document.body).color,"
                "getComputedStyle(document.querySelector('svg text')).fill]"
            )
        )
    light, dark = colours
    assert all(one != other for one, other in zip(light, dark, strict=True))
    assert dark[1] == dark[2]  # axes are as readable as the text


def test_published_numbers_of_the_package_are_the_papers() -> None:
    numbers = published.load()
    assert numbers.score("macro_auc", "CLIF (reference)", "rcvsubset1", "D2ACE") is not None
    assert numbers.average_rank("macro_auc", "CLIF", "Random") == 7.08
    assert numbers.p_value("macro_auc", "CLIF", "DIHCL") == 0.0092
    assert len(numbers.numbers["score"]) == 3 * 3 * 13 * 8 + 2 * 2 * 8
