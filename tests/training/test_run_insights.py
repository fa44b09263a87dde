"""Insights of a run, in the numbers of the user's data, and labels corrected by them."""

from __future__ import annotations

import csv
import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from smallrun import small_run, without_times

import d2ace
from d2ace._util.errors import RunError, UserError
from d2ace.cli.main import main
from d2ace.data import MultiLabelData
from d2ace.training import RunInterrupted, load_run


@pytest.fixture(scope="module")
def data() -> MultiLabelData:
    """200 rows; preparation drops the label "rare" and the 10 rows that have no other."""
    rng = np.random.default_rng(0)
    X = rng.random((200, 6)).astype(np.float32)
    Y = np.zeros((200, 4), dtype=np.uint8)
    Y[:, 1:] = (X[:, :3] + 0.2 * rng.random((200, 3))) > 0.55
    Y[~Y.any(axis=1), 1] = 1
    Y[::20] = [1, 0, 0, 0]
    names = ("rare", "a", "b, c", "7")
    return MultiLabelData("mine", X, Y, tuple("uvwxyz"), names)


@pytest.fixture(scope="module")
def finished(data: MultiLabelData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    small_run(data, out=out, insights=True)
    return out


@pytest.fixture
def issues(finished: Path, tmp_path: Path) -> Path:
    """The most suspicious pairs as a person would get them."""
    path = tmp_path / "issues.csv"
    insights = load_run(finished).insights
    assert insights is not None
    insights.label_issues(above=np.sort(insights.suspicion().flatten().nan_to_num(-9))[-12]).to_csv(
        path
    )
    return path


def edited(path: Path, *changes: dict[str, Any], drop: tuple[str, ...] = ()) -> Path:
    """A table with the cells of its first lines changed, and without some columns."""
    with path.open(newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    for record, change in zip(records, changes, strict=False):
        record.update({name: str(value) for name, value in change.items()})
    names = [name for name in {**records[0]} if name not in drop]
    other = path.with_name("edited.csv")
    with other.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(records)
    return other


class TestKept:
    def test_rows_and_labels_are_those_of_the_users_data(self, data, finished):
        saved = load_run(finished)
        insights, sizes = saved.insights, saved.result.dataset
        assert insights is not None
        assert (insights.n, insights.label_names) == (200, ["a", "b, c", "7"])
        assert len(insights.unobserved) == 200 - sizes["train"]
        assert set(range(0, 200, 20)) <= set(insights.unobserved.tolist())
        for issue in insights.label_issues(above=-9):
            column = data.label_names.index(issue["label_name"])
            assert data.Y[issue["row"], column] == issue["given"]
        visits = insights.rows()["visits"]
        assert visits.sum() > 0
        fixed, changed = insights.apply(data.Y[:, 1:])
        assert (fixed != data.Y[:, 1:]).sum() == len(changed)

    def test_numbers_and_batches_are_as_without(self, data, finished, tmp_path):
        plain = small_run(data, out=tmp_path)
        one, other = without_times(load_run(finished).result), without_times(plain)
        assert one["config"].pop("insights")
        assert not other["config"].pop("insights")
        assert one == other
        assert not (tmp_path / "insights.pt").exists()
        assert load_run(tmp_path).insights is None

    def test_a_finished_run_without_them_does_not_stand_in(self, data, tmp_path):
        small_run(data, out=tmp_path, epochs=2, warmup=1)
        with pytest.raises(UserError, match="insights False instead of True"):
            small_run(data, out=tmp_path, epochs=2, warmup=1, insights=True)

    def test_runs_of_before_there_were_insights_go_on(self, data, tmp_path):
        def stop(entry: dict[str, Any]) -> None:
            raise RunInterrupted(15, "enough")

        with pytest.raises(RunInterrupted):
            small_run(data, out=tmp_path, watch=stop)
        from d2ace.training.verified import save_json, save_tensors

        new = ("insights", "labels_from", "labels_source")
        config = json.loads((tmp_path / "run.json").read_text())["config"]
        files = json.loads((tmp_path / "run.json").read_text())["files"]
        old = {key: value for key, value in config.items() if key not in new}
        save_json(tmp_path / "run.json", {"config": old, "files": files})
        saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
        save_tensors(tmp_path / "checkpoint.pt", saved | {"config": json.dumps(old)})
        went_on = small_run(data, out=tmp_path)
        assert without_times(went_on)["test"] == without_times(small_run(data))["test"]

    def test_a_folder_is_needed(self, data):
        with pytest.raises(UserError, match="insights need a folder; choose one with out"):
            small_run(data, insights=True)

    def test_they_are_no_option_of_the_selector(self, data, tmp_path):
        with pytest.raises(UserError, match="insights is a setting of the run"):
            small_run(data, out=tmp_path, selector_options={"insights": True})

    def test_a_search_keeps_those_of_the_best(self, data, tmp_path):
        options = {"model_options": {"h": 8, "L": 1}, "epochs": 2, "warmup": 1}
        small_run(data, out=tmp_path, tune=True, insights=True, **options)
        insights = load_run(tmp_path).insights
        assert insights is not None
        assert insights.n == 200

    def test_on_the_command_line(self, table_file, tmp_path, capsys):
        words = ["--model", "mlp", "--model-option", "h=8", "--epochs", "2", "--warmup", "1"]
        out = str(tmp_path / "run")
        with pytest.raises(SystemExit) as stop:
            main(["train", str(table_file), *words, "--insights", "--out", out])
        assert stop.value.code in (None, 0), capsys.readouterr().err
        assert load_run(out).insights is not None


class TestDamage:
    @pytest.fixture
    def copied(self, finished, tmp_path) -> Path:
        shutil.copytree(finished, tmp_path / "run")
        return tmp_path / "run"

    def test_a_damaged_file_is_told_and_predictions_go_on(self, copied, data):
        content = bytearray((copied / "insights.pt").read_bytes())
        content[len(content) // 2] ^= 1
        (copied / "insights.pt").write_bytes(content)
        saved = load_run(copied)
        assert saved.predict(data.X).shape == (200, 3)
        with pytest.raises(RunError, match=r"insights\.pt cannot be read as the insights of a run"):
            saved.insights  # noqa: B018
        assert (copied / "insights.pt").read_bytes() == bytes(content)

    @pytest.mark.parametrize("content", [b"", b"years of work", None])
    def test_what_is_no_file_of_ours_is_told(self, copied, content):
        (copied / "insights.pt").unlink()
        if content is not None:
            (copied / "insights.pt").write_bytes(content)
        with pytest.raises(RunError, match=r"insights\.pt cannot be read as .*train the run again"):
            load_run(copied).insights  # noqa: B018

    def test_those_of_another_run_are_told(self, copied, data, tmp_path):
        small_run(data, out=tmp_path / "other", insights=True, seed=1)
        shutil.copy(tmp_path / "other" / "insights.pt", copied / "insights.pt")
        with pytest.raises(RunError, match=r"belongs to another run than result\.json"):
            load_run(copied).insights  # noqa: B018

    @pytest.mark.parametrize(
        ("part", "value"),
        [
            ("rows", torch.arange(3)),
            ("label_rows", torch.tensor([0, 5, 2])),
            ("label_names", ["a"]),
            ("row_names", ["a"]),
            ("state", {}),
        ],
    )
    def test_parts_that_do_not_fit_are_told(self, copied, part, value):
        from d2ace.training import save_tensors

        content = torch.load(copied / "insights.pt", weights_only=True)
        save_tensors(copied / "insights.pt", content | {part: value})
        with pytest.raises(RunError, match=r"insights\.pt does not fit this version .*\.$"):
            load_run(copied).insights  # noqa: B018


class TestLabelsFrom:
    def test_training_rows_are_corrected_and_nothing_else(self, data, finished, issues, tmp_path):
        before = data.Y.copy()
        content = issues.read_bytes()
        out = tmp_path / "again"
        result = small_run(data, out=out, labels_from=issues, insights=True)
        assert np.array_equal(data.Y, before)
        assert issues.read_bytes() == content
        first, second = load_run(finished).insights, load_run(out).insights
        assert first is not None
        assert second is not None
        given = {(r["row"], r["label"]): r["given"] for r in first.label_issues(above=-9)}
        now = {(r["row"], r["label"]): r["given"] for r in second.label_issues(above=-9)}
        with issues.open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        changed = {(int(r["row"]), int(r["label"])): int(r["suggested"]) for r in lines}
        assert len(changed) == 11
        assert now == given | changed
        theirs = load_run(finished).result
        assert result.dataset == theirs.dataset  # the same rows, tested on the same labels
        assert result.config["labels_source"] is not None

    def test_test_labels_stay_as_they_are(self, data, issues, tmp_path):
        """The same weights, tested with and without corrections, have the same score."""
        options = {"epochs": 2, "warmup": 1, "learning_rate": 1e-12}
        without = small_run(data, **options)
        with_them = small_run(data, labels_from=issues, **options)
        assert with_them.test["macro_auc"] == pytest.approx(without.test["macro_auc"], abs=1e-6)
        assert with_them.test["hamming_loss"] == without.test["hamming_loss"]

    def test_a_table_without_lines_changes_nothing(self, data, issues):
        issues.write_text(issues.read_text().splitlines()[0] + "\n")
        one, other = (small_run(data, labels_from=path) for path in (issues, None))
        assert one.test == other.test

    def test_lines_count_in_turn(self, data, issues):
        """There and back again: the label is as it was."""
        lines = issues.read_text().splitlines()
        swapped = [
            line.replace(",1,0,", ",0,1,") if ",1,0," in line else line.replace(",0,1,", ",1,0,")
            for line in lines[1:]
        ]
        issues.write_text("\n".join([*lines, *swapped]))
        one, other = (small_run(data, labels_from=path) for path in (issues, None))
        assert one.test == other.test

    def test_a_window_spreadsheet_may_have_saved_it(self, data, issues):
        plain = small_run(data, labels_from=issues)
        text = "\ufeff" + issues.read_text().replace("\n", "\r\n") + "\r\n\r\n"
        issues.write_text(text, encoding="utf-8", newline="")
        assert small_run(data, labels_from=issues).test == plain.test

    @pytest.mark.parametrize("mark", [";", "\t"])
    def test_a_spreadsheet_may_have_other_marks_between_cells(self, data, issues, mark):
        plain = small_run(data, labels_from=issues)
        with issues.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
        with issues.open("w", newline="", encoding="utf-8-sig") as file:  # decimals have commas
            cells = [[cell.replace(".", ",") for cell in line] for line in lines]
            csv.writer(file, delimiter=mark).writerows(cells)
        assert small_run(data, labels_from=issues).test == plain.test

    def test_names_that_look_like_formulas_come_back(self, data, tmp_path):
        odd = replace(data, label_names=("rare", "=cmd|' /C calc'!A0", 'a,"b\rc', "-dash"))
        small_run(odd, out=tmp_path / "run", insights=True)
        issues = load_run(tmp_path / "run").insights.label_issues(above=-9)
        issues.to_csv(tmp_path / "issues.csv")
        with (tmp_path / "issues.csv").open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file, strict=True))
        assert len(lines) == len(issues)
        names = {line["label_name"] for line in lines}
        assert names == {"'=cmd|' /C calc'!A0", 'a,"b\rc', "'-dash"}  # text to a spreadsheet
        result = small_run(odd, labels_from=tmp_path / "issues.csv")
        assert result.config["labels_source"] is not None

    def test_a_name_may_stand_for_a_number(self, data, issues, tmp_path):
        with issues.open(newline="", encoding="utf-8") as file:
            records = list(csv.DictReader(file))
        plain = small_run(data, labels_from=issues)
        by_name = tmp_path / "by_name.csv"
        with by_name.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["suggested", "given", "label_name", "row", "why"])
            for r in records:
                writer.writerow([r["suggested"], r["given"], r["label_name"], r["row"], "sure"])
        assert small_run(data, labels_from=by_name).test == plain.test

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"row": 200}, "line 2: there is no row '200' in mine, which has 0 to 199"),
            ({"row": -1}, "line 2: there is no row '-1' in mine"),
            ({"row": "first"}, "line 2: there is no row 'first' in mine"),
            ({"label_name": "A"}, "line 2: there is no label 'A' in mine.*did you mean 'a'"),
            ({"label_name": "rare"}, "line 2: .*"),
            ({"label_name": ""}, "line 2: it has label . without a name.*column label_name"),
            ({"given": 2}, "line 2: given is '2'; it must be 0 or 1"),
            ({"given": ""}, "line 2: given is ''; it must be 0 or 1"),
            ({"suggested": "yes"}, "line 2: suggested is 'yes'; it must be 0 or 1"),
        ],
    )
    def test_a_line_that_does_not_fit_is_named(self, data, issues, change, words):
        with pytest.raises(UserError, match=words) as refusal:
            small_run(data, labels_from=edited(issues, change))
        assert str(refusal.value).endswith(".")

    def test_a_line_of_what_the_run_leaves_out_is_named(self, data, issues):
        left_out = {"row": 20, "label_name": "a", "given": 0, "suggested": 1}
        with pytest.raises(UserError, match="line 2: the run leaves out row 20"):
            small_run(data, labels_from=edited(issues, left_out))
        rare = {"row": 20, "label_name": "rare", "given": 1, "suggested": 0}
        with pytest.raises(UserError, match="line 2: the run leaves out the label 'rare'"):
            small_run(data, labels_from=edited(issues, rare))

    def test_what_is_given_must_be_what_the_data_have(self, data, issues):
        with issues.open(newline="", encoding="utf-8") as file:
            first = next(csv.DictReader(file))
        other = 1 - int(first["given"])
        words = rf"line 2: given is {other}, but row {first['row']} of mine has {first['given']} as"
        with pytest.raises(UserError, match=words):
            small_run(data, labels_from=edited(issues, {"given": other}))

    def test_validation_rows_stay_and_a_test_row_is_refused(self, data, issues, finished):
        """Corrections of a test row were learnt from rows that the run tests on."""
        insights, seen = load_run(finished).insights, set()
        assert insights is not None
        for row in insights.unobserved.tolist():
            given = int(data.Y[row, 1])
            line = {"row": row, "label_name": "a", "given": given, "suggested": 1 - given}
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    small_run(data, labels_from=edited(issues, line), epochs=1, warmup=0)
                except UserError as problem:
                    seen |= {
                        word for word in ("is a test row of this run",) if word in str(problem)
                    }
            if any("1 of 11 corrections" in str(one.message) for one in said):
                seen.add("validation")
            if len(seen) == 2:
                return
        pytest.fail(f"only {seen}")

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "has no column 'row'"),
            (b"years of work\n1\n", "has no column 'row'"),
            (b"\xff\xfe\x00r", "cannot be read as CSV"),
            (b"row,label,given\n1,2,0\n", "has no column 'suggested'"),
            (b"row,label,given,suggested\n1,2,0\n", "line 2: it has 3 cells, but the first"),
            (b'row,label,given,suggested\n"1,2,0,1\n', "cannot be read as CSV"),
            (b"row,row,label,given,suggested\n", "has two columns 'row'"),
            (b"PK\x03\x04" + bytes(range(256)), "cannot be read as CSV|has no column"),
        ],
    )
    def test_what_is_no_table_is_refused(self, data, tmp_path, content, words):
        path = tmp_path / "odd.csv"
        path.write_bytes(content)
        with pytest.raises(UserError, match=words) as refusal:
            small_run(data, labels_from=path)
        assert str(refusal.value).endswith(".")
        assert path.read_bytes() == content

    def test_a_file_that_is_not_there_is_told(self, data, tmp_path):
        for path in (tmp_path / "none.csv", tmp_path, "", 3):
            with pytest.raises(UserError, match="labels_from"):
                small_run(data, labels_from=path)

    def test_other_corrections_are_another_run(self, data, issues, tmp_path):
        out = tmp_path / "run"
        small_run(data, out=out, labels_from=issues, epochs=2, warmup=1)
        lines = issues.read_text().splitlines(keepends=True)
        issues.write_text("".join(lines[:-1]))
        with pytest.raises(UserError, match=r"belongs to another run .*labels_source"):
            small_run(data, out=out, labels_from=issues, epochs=2, warmup=1)
        with pytest.raises(UserError, match=r"belongs to another run .*labels_from"):
            small_run(data, out=out, epochs=2, warmup=1)

    def test_a_saved_run_does_not_need_the_file_any_more(self, data, issues, tmp_path):
        small_run(data, out=tmp_path / "run", labels_from=issues, epochs=2, warmup=1)
        issues.unlink()
        assert load_run(tmp_path / "run").predict(data.X).shape == (200, 3)

    def test_on_the_command_line(self, table, table_file, tmp_path, capsys):
        words = ["--model", "mlp", "--model-option", "h=8", "--epochs", "2", "--warmup", "1"]
        out = str(tmp_path / "run")
        insights = d2ace.Insights(sp.csr_matrix(table.Y), label_names=table.label_names)
        insights.observe(range(table.n), probs=np.full(table.Y.shape, 0.5))
        path = tmp_path / "all.csv"
        insights.label_issues(above=-9).to_csv(path)
        with pytest.raises(SystemExit) as stop:
            main(["train", str(table_file), *words, "--labels-from", str(path), "--out", out])
        assert stop.value.code == 2
        assert "is a test row of this run" in capsys.readouterr().err
        assert not Path(out).exists()
