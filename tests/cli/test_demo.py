"""``d2ace demo`` shows what it measured, and is honest about noise."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, find_browser
from sklearn.metrics import roc_auc_score

from d2ace import load_run
from d2ace.cli import main
from d2ace.data import folds, load_digits, prepare
from d2ace.evaluation import METRICS
from d2ace.report.demonstration.findings import MethodRuns, cost_of_errors, verdict, won_back
from d2ace.training import RunResult, SavedRun


def runs(method: str, scores: list[float]) -> MethodRuns:
    results = [RunResult({}, {}, {}, 1, {}, {}, {}, {}, 0.0, []) for _ in scores]
    return MethodRuns(method, results, [dict.fromkeys(METRICS, score) for score in scores])


@pytest.mark.parametrize(
    ("ours", "theirs", "sentence"),
    [
        ([0.80, 0.81, 0.82], [0.70, 0.71, 0.72], "D2ACE is better here: Macro-AUC +0.1000"),
        ([0.70, 0.71, 0.72], [0.80, 0.81, 0.82], "D2ACE is worse here: Macro-AUC -0.1000"),
        ([0.80, 0.70, 0.75], [0.74, 0.76, 0.75], "D2ACE and Random are within noise here"),
        ([0.80], [0.70], "One seed cannot show noise: D2ACE has Macro-AUC +0.1000"),
        ([0.80, 0.70], [0.80, 0.70], "D2ACE and Random have the same scores here"),
    ],
)
def test_the_verdict_is_honest(ours: list[float], theirs: list[float], sentence: str) -> None:
    assert verdict(runs("D2ACE", ours), runs("Random", theirs)).startswith(sentence)


@pytest.mark.parametrize(
    ("given", "true", "sentence"),
    [
        ([0.70, 0.71, 0.72], [0.80, 0.81, 0.82], "The wrong labels make Random worse here: "),
        ([0.80, 0.81, 0.82], [0.70, 0.71, 0.72], "The wrong labels cost nothing here: "),
        (
            [0.74, 0.76, 0.75],
            [0.80, 0.70, 0.75],
            "The cost of the wrong labels is within noise here",
        ),
        (
            [0.70],
            [0.80],
            "One seed cannot show noise: with the wrong labels, ",
        ),
    ],
)
def test_what_wrong_labels_cost(given: list[float], true: list[float], sentence: str) -> None:
    assert cost_of_errors(runs("Random", given), runs("true", true)).startswith(sentence)


@pytest.mark.parametrize(
    ("trim", "true", "share"),
    [
        ([0.75, 0.76, 0.77], [0.80, 0.81, 0.82], " That is 50\u00a0% of what"),
        ([0.75, 0.76, 0.77], [0.90, 0.50, 0.80], ""),  # what there is to win back is not known
        ([0.90, 0.50, 0.80], [0.80, 0.81, 0.82], ""),
        ([0.65, 0.66, 0.67], [0.80, 0.81, 0.82], ""),
    ],
)
def test_what_is_won_back_is_said_only_if_known(
    trim: list[float], true: list[float], share: str
) -> None:
    plain = runs("Random", [0.70, 0.71, 0.72])
    said = won_back(runs("Trim", trim), plain, runs("true", true))
    assert said.startswith(verdict(runs("Trim", trim), plain) + share)
    assert ("That is" in said) == bool(share)


@dataclass(frozen=True)
class Shown:
    folder: Path
    text: str
    summary: dict[str, Any]

    @property
    def page(self) -> Path:
        return self.folder / "report" / "index.html"

    def run(self, method: str, seed: int) -> SavedRun:
        for folder in (self.folder / "runs.db.runs").iterdir():
            if (folder / "result.json").is_file():
                run = load_run(folder)
                config = run.result.config
                name = f"{config['selector']}{' true' if config['labels_from'] else ''}"
                if (name, config["seed"]) == (method, seed):
                    return run
        raise AssertionError(f"no run of {method}")


def command(*words: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as stop:
        main(["demo", *words])
    assert stop.value.code == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("demo")
    words = ("--epochs", "3", "--seeds", "2", "--out", str(folder))
    text = command(*words)
    return Shown(folder, text, json.loads(command(*words, "--json")))  # the runs are there already


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("own")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    lines = [
        ",".join([*(f"{value:.3f}" for value in x), f"{x[0] > 0:d}", f"{x[0] < 0.5:d}"]) for x in X
    ]
    header = "a,b,<i>c</i>,d,label:red,label:<b>blue</b>"
    (folder / "my.csv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    words = ("--data", str(folder / "my.csv"), "--epochs", "2", "--seeds", "1")
    words = (*words, "--out", str(folder / "out"))
    text = command(*words)
    return Shown(folder / "out", text, json.loads(command(*words, "--json")))


def test_the_path_of_the_page_is_printed_last(digits: Shown) -> None:
    assert digits.text.splitlines()[-1] == str(digits.page) == digits.summary["page"]
    for sentence in (*digits.summary["found"], *digits.summary["compared"]):
        assert sentence in digits.text


def test_methods_are_scored_by_the_true_labels_of_the_same_rows(digits: Shown) -> None:
    data = load_digits()
    prepared = prepare(data)
    _, test = folds(prepared.data.Y, n_splits=5, seed=0)[0]
    rows = prepared.rows[test]
    truth = np.asarray(data.true_Y)[rows]
    assert (truth != np.asarray(data.Y)[rows]).any()
    methods = {each["method"]: each for each in digits.summary["methods"]}
    names = {"random": "Random", "d2ace": "D2ACE", "trim": "Trim"}
    assert [*methods] == [*names.values(), "Random (true labels)"]
    for selector, method in (*names.items(), ("random true", "Random (true labels)")):
        for seed in range(2):
            scores = digits.run(selector, seed).predict_proba(data.X[rows])
            expected = roc_auc_score(truth, scores, average="macro")
            assert methods[method]["test"]["macro_auc"][seed] == pytest.approx(expected)
        assert f"{np.mean(methods[method]['test']['macro_auc']):.3f}" in digits.text


def test_suspects_are_counted_against_the_truth(digits: Shown) -> None:
    data = load_digits()
    wrong = np.asarray(data.Y) != np.asarray(data.true_Y)
    for seed, told in enumerate(digits.summary["suspects"]):
        insights = digits.run("random", seed).insights
        assert insights is not None
        trained = np.setdiff1d(np.arange(data.n), insights.unobserved)
        count = int(wrong[trained].sum())
        assert (told["wrong"], told["labels"]) == (count, 10 * len(trained))
        assert told["chance"] == count / (10 * len(trained))
        suspicion = insights.suspicion().numpy()[trained]
        order = np.argsort(-suspicion.ravel(), kind="stable")[:count]
        assert told["found"] == wrong[trained].ravel()[order].sum()
        assert told["precision"] == told["found"] / count
        flagged = suspicion > 1.5
        assert told["flagged"] == flagged.sum()
        assert told["flagged_wrong"] == (flagged & wrong[trained]).sum()


def test_true_labels_are_those_of_the_training_rows(digits: Shown) -> None:
    data = load_digits()
    for seed in range(2):
        insights = digits.run("random", seed).insights
        assert insights is not None
        trained = np.setdiff1d(np.arange(data.n), insights.unobserved)
        labels = np.array(data.Y)
        with (digits.folder / f"true_labels_seed_{seed}.csv").open(encoding="utf-8") as file:
            for line in csv.DictReader(file):
                row, label = int(line["row"]), int(line["label"])
                assert labels[row, label] == int(line["given"])
                labels[row, label] = int(line["suggested"])
        np.testing.assert_array_equal(labels[trained], np.asarray(data.true_Y)[trained])
        rest = insights.unobserved
        np.testing.assert_array_equal(labels[rest], np.asarray(data.Y)[rest])


def test_a_table_of_your_own_has_no_truth(table: Shown) -> None:
    assert [each["method"] for each in table.summary["methods"]] == ["Random", "D2ACE", "Trim"]
    assert table.summary["suspects"] == []
    sizes = table.run("random", 0).result.dataset
    assert sizes["train"] + sizes["validation"] + sizes["test"] == 80
    assert f"of {2 * sizes['train']} labels" in table.summary["found"][0]
    for method, each in zip(("random", "d2ace"), table.summary["methods"], strict=False):
        assert each["test"]["macro_auc"] == [table.run(method, 0).result.test["macro_auc"]]
    page = table.page.read_text(encoding="utf-8")
    assert "trul" not in table.text + page
    assert "by their given labels" in page
    assert not list(table.folder.glob("true_labels*"))


def test_a_run_that_was_removed_is_named(
    table: Shown, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(table.folder, tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "runs.db.runs")
    words = ["--data", str(table.folder.parent / "my.csv"), "--epochs", "2", "--seeds", "1"]
    with pytest.raises(SystemExit) as stop:
        main(["demo", *words, "--out", str(tmp_path / "out")])
    assert stop.value.code == 1
    assert "was removed, but" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 50, b"a,b\n1,2\n", b"a,label:b\nx,1\n"])
def test_data_that_cannot_be_read_are_refused_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    (tmp_path / "my.csv").write_bytes(content)
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--data", str(tmp_path / "my.csv"), "--out", str(tmp_path / "out")])
    assert stop.value.code in (1, 2)
    assert str(tmp_path / "my.csv") in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["my.csv"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = find_browser()
    if executable is None:
        pytest.skip("no Chromium here: apt-get install --no-install-recommends chromium")
    with Browser(executable, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("kind", ["digits", "table"])
def test_the_page_asks_for_nothing_and_fits_the_screen(
    request: pytest.FixtureRequest, browser: Browser, kind: str, width: int
) -> None:
    page: Path = request.getfixturevalue(kind).page
    browser.requests.clear()
    browser.complaints.clear()
    browser.show(page, width=width)
    elsewhere = [url for url in browser.requests if not url.startswith("data:image/")]
    assert elsewhere == [page.as_uri()]
    assert browser.complaints == []
    assert browser.value("document.documentElement.scrollWidth") == width
    assert browser.value("document.scripts.length") == 0
    assert browser.value("document.querySelectorAll('.drawing svg[aria-label]').length") >= 2


def test_the_page_shows_what_was_found(digits: Shown, browser: Browser) -> None:
    browser.show(digits.page)
    words = browser.value("document.body.innerText")
    for sentence in (*digits.summary["found"], *digits.summary["compared"]):
        assert sentence.replace("\u00a0", " ") in words.replace("\u00a0", " ")
    data = load_digits()
    insights = digits.run("random", 0).insights
    assert insights is not None
    rows = dict.fromkeys(insights.label_issues(-100.0)["row"].tolist())
    cards = browser.value("Array.from(document.querySelectorAll('.card')).map(c => c.innerText)")
    for card, row in zip(cards, list(rows)[:12], strict=True):
        given, true = (
            ", ".join(map(str, np.flatnonzero(np.asarray(labels)[row])))
            for labels in (data.Y, data.true_Y)
        )
        assert f"Row {row}\n" in card
        assert f"Given: {given}\n" in card
        assert f"Truth: {true} (" in card
    loaded = "Array.from(document.images).filter(i => i.naturalWidth > 0).length"
    assert browser.value(loaded) == 12


def test_names_of_a_table_are_shown_as_they_are(table: Shown, browser: Browser) -> None:
    browser.show(table.page)
    assert "<b>blue</b>" in browser.value("document.querySelector('#suspects').innerText")
    assert browser.value("document.querySelectorAll('i').length") == 0
