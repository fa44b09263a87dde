"""Published numbers stand beside runs that were made in the same way, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
import report_data

from d2ace._util.errors import UserError
from d2ace.benchmark.store.database import Store
from d2ace.report import published
from d2ace.report.collect import collect
from d2ace.report.judgement import judge
from d2ace.report.tables import gains as gain_tables
from d2ace.report.tables import scores as score_tables


def printed(
    path: Path, methods: dict[str, str] = report_data.METHODS, **config: object
) -> tuple[list[str], dict[str, str | float | None]]:
    """What the tables say of the first method and D2ACE on birds, and D2ACE's line in the CSV."""
    with Store(path) as store:
        for selector, method in methods.items():
            options = {"data": "birds", "selector": selector, **config}
            if selector != "d2ace":
                options.pop("selector_options", None)
            report_data.add(store, "main", method, history=False, **options)
        (one,) = collect(store).comparisons
    verdicts = judge(one, "macro_auc")
    table = score_tables.scores("scores", one, "macro_auc", verdicts, published.load())
    (row,) = table.rows
    ranks = score_tables.ranks("ranks", one, {"macro_auc": verdicts}, published.load()).rows[0]
    tests = score_tables.tests("tests", one, {"macro_auc": verdicts}, published.load()).rows
    ends = (0, 1, -1)
    lines = [line[end].note for line in (row, ranks) for end in ends] + [tests[0][-1].note]
    assert table.data is not None
    return [*lines, tests[0][-1].text], table.data[-1]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_options": {"preset": "reference"}},
        {"model_options": {"e": 128, "lam": 0.1}, "selector_options": {"neighbors": 8}},
        {"record": True, "epoch_loss": True, "seed": 3},
    ],
)
def test_published_numbers_stand_beside_runs_with_the_papers_settings(
    tmp_path: Path, config: dict[str, object]
) -> None:
    notes, line = printed(tmp_path / "runs.db", **config)
    assert notes[:3] == ["", "paper 0.8026", "paper 0.8090"]
    assert notes[3:6] == ["", "paper 7.08", "paper 1.31"]
    assert notes[6:] == ["", "0.0007"]
    assert (line["published"], line["published_missing"]) == (0.809, "")


def test_a_variant_of_random_has_no_published_gain(tmp_path: Path) -> None:
    stored = {"selector": "random", "selector_options": {"preset": "reference"}}
    with Store(tmp_path / "runs.db") as store:
        report_data.add(store, "main", "Random", data="birds", selector="random")
        report_data.add(store, "main", "Random (stored order)", data="birds", **stored)
        report_data.add(store, "main", "D2ACE", data="birds", selector="d2ace")
        (one,) = collect(store).comparisons
    (row,) = gain_tables.by_dataset("gains", one, "macro_auc", published.load()).rows
    assert [cell.note.partition("paper ")[2] for cell in row] == ["", "", "+0.0064"]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"epochs": 20}, "epochs 20, not 100"),
        ({"batch_size": 64, "warmup": 3}, "batch_size 64, not 128; warmup 3, not 10"),
        ({"learning_rate": 0.01}, "learning_rate 0.01, not 0.0001"),
        ({"folds": 10}, "folds 10, not 5"),
        ({"protocol": "reference"}, 'protocol "reference", not "paper"'),
        ({"min_positives": 1}, "min_positives 1, not 21"),
        ({"precision": "bf16-mixed"}, 'precision "bf16-mixed", not "32-true"'),
        ({"data": "/my/birds.arff"}, "your own file"),
        ({"repair": True}, "repair true, not false"),
        ({"model_options": {"h": 64}}, "h 64"),
    ],
)
def test_other_settings_are_named_where_published_numbers_would_stand(
    tmp_path: Path, config: dict[str, object], why: str
) -> None:
    notes, line = printed(tmp_path / "runs.db", **config)
    assert notes[:6] == [f"no paper values: {why}", "", ""] * 2  # scores, ranks
    assert notes[6:] == [f"left out: {why}", "–"]
    assert (line["published"], line["published_missing"]) == (None, why)


def test_options_of_a_method_are_named_at_the_method(tmp_path: Path) -> None:
    notes, line = printed(tmp_path / "runs.db", selector_options={"mix": [1, 1]})
    assert notes[:3] == ["", "paper 0.8026", "no paper value: mix [1,1]"]
    assert line["published_missing"] == "mix [1,1]"


def test_ranks_among_other_methods_do_not_stand_beside_ours(tmp_path: Path) -> None:
    notes, _ = printed(tmp_path / "runs.db", {"random": "Random", "d2ace": "D2ACE"})
    assert notes[:3] == ["", "paper 0.8026", "paper 0.8090"]
    why = "no paper values: ranks among 8 methods, which are not all here"
    assert notes[3:6] == [why, "", ""]


def test_published_figures_of_a_folder(tmp_path: Path) -> None:
    text = "metric,model,dataset,method,score\nmacro_auc,CLIF,emotions,Random,0.81\n"
    (tmp_path / "mine.csv").write_text(text, encoding="utf-8")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    numbers = published.load(tmp_path)
    assert numbers.score("macro_auc", "CLIF", "emotions", "Random") == 0.81
    assert numbers.average_rank("macro_auc", "CLIF", "Random") is None
    (tmp_path / "mine.csv").write_text(text.replace("0.81", "high"), encoding="utf-8")
    with pytest.raises(UserError, match=r"mine\.csv, line 2: score is 'high', not a number"):
        published.load(tmp_path)
    (tmp_path / "mine.csv").unlink()
    with pytest.raises(UserError, match="has the columns metric, model, dataset, method and score"):
        published.load(tmp_path)
    with pytest.raises(UserError, match="there is no folder"):
        published.load(tmp_path / "nowhere")
