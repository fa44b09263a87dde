"""The page on insights: what it says, and the files beside it."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from image_makers import make_photos
from inspected import HOSTILE, labels_with, trained

import d2ace
from d2ace._util.errors import UserError
from d2ace.data import MultiLabelData, load_digits
from d2ace.data.images import load_images
from d2ace.report import write_inspection

FILES = {
    *("index.html", "label_issues.csv", "rows.csv", "labels.csv", "insights.json"),
    "d2ace-files.json",
}
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "insights.md"


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def text_of(path: Path) -> str:
    """The words of a page, without tags."""
    body = path.read_text(encoding="utf-8").split("<body>")[1]
    return " ".join(re.sub(r"<[^>]+>", " ", body).replace("\u00a0", " ").split())


def test_the_headline_counts_what_the_tables_hold(tmp_path: Path) -> None:
    insights = trained(labels_with(200, 5), [(3, 1), (50, 2), (120, 0)])
    made = write_inspection(insights, tmp_path / "page")
    assert made.headline == "3 of 1,000 labels look wrong (0.3\u00a0%)."
    assert {path.name for path in (tmp_path / "page").iterdir()} == FILES
    issues = rows_of(tmp_path / "page" / "label_issues.csv")
    assert {(int(one["row"]), int(one["label"])) for one in issues} == {(3, 1), (50, 2), (120, 0)}
    assert len(rows_of(tmp_path / "page" / "rows.csv")) == 200
    assert len(rows_of(tmp_path / "page" / "labels.csv")) == 5


def test_files_are_what_insights_write_themselves(tmp_path: Path) -> None:
    insights = trained(labels_with(40, 3), [(3, 1)], label_names=["a,b", 'c"d', "e"])
    write_inspection(insights, tmp_path / "page", above=0.1)
    for name, table in (
        ("label_issues.csv", insights.label_issues(0.1)),
        ("rows.csv", insights.rows(0.1)),
        ("labels.csv", insights.labels(0.1)),
    ):
        table.to_csv(tmp_path / name)
        assert (tmp_path / name).read_bytes() == (tmp_path / "page" / name).read_bytes()


def test_how_sure_it_is_comes_from_the_measurement(tmp_path: Path) -> None:
    """The two numbers are means of the guide's table; change them together."""
    row = r"^\| [\w-]+ \| \.\d+ \| \.\d+ \| (\.\d+) \| (\.\d+) \|"
    measured = np.array(re.findall(row, GUIDE.read_text(), re.M), dtype=float)
    assert len(measured) == 10
    precision, recall = (f"{100 * share:.0f}" for share in measured.mean(axis=0))
    made = write_inspection(trained(labels_with(60, 3), [(3, 1)]), tmp_path)
    said = text_of(made.page)
    assert f"{precision} % of the flagged labels were changed ones" in said
    assert f"{recall} % of the changed ones were flagged" in said
    assert "this page uses another" not in said


def test_what_was_not_measured_is_not_claimed(tmp_path: Path) -> None:
    made = write_inspection(trained(labels_with(60, 3), [(3, 1)]), tmp_path, above=0.9)
    assert "(with the default limit; this page uses another)" in text_of(made.page)


def test_nothing_flagged_is_not_called_flawless(tmp_path: Path) -> None:
    made = write_inspection(trained(labels_with(60, 3), []), tmp_path)
    assert made.headline == "None of 180 labels looks wrong."
    said = text_of(made.page)
    assert "Some may still be wrong." in said
    assert "d2ace inspect RUN --above 0.4" in said
    assert "--labels-from" not in said
    assert made.summary["label_issues"] == []
    assert rows_of(tmp_path / "label_issues.csv") == []


def test_one_label_a_row(tmp_path: Path) -> None:
    labels = labels_with(60, 1)
    made = write_inspection(trained(labels, [(3, 0)]), tmp_path)
    assert made.headline == "1 of 60 labels looks wrong (1.7\u00a0%)."
    assert "The only flagged label." in text_of(made.page)


def test_rows_never_observed_are_counted_and_listed(tmp_path: Path) -> None:
    seen = [row for row in range(60) if row not in (7, 9)]
    made = write_inspection(trained(labels_with(60, 3), [(3, 1)], rows=seen), tmp_path)
    said = text_of(made.page)
    assert made.headline.startswith("1 of 174 labels")
    assert "2 rows were not seen in training" in said
    assert "nothing is known about them: 7, 9." in said
    assert made.summary["rows_never_observed"] == 2
    unseen = [one for one in rows_of(tmp_path / "rows.csv") if one["visits"] == "0"]
    assert [int(one["row"]) for one in unseen] == [7, 9]


def test_rows_seen_once_have_no_place_on_the_map(tmp_path: Path) -> None:
    insights = trained(labels_with(60, 3), [(3, 1)], visits=1)
    made = write_inspection(insights, tmp_path)
    assert "No row was seen twice" in text_of(made.page)
    assert "<svg" not in made.page.read_text(encoding="utf-8")


def test_the_summary_is_plain_json(tmp_path: Path) -> None:
    labels = np.zeros((30, 2), dtype=np.int64)  # of one class: what was learnt is not a number
    made = write_inspection(trained(labels, [(3, 1)]), tmp_path)
    text = (tmp_path / "insights.json").read_text(encoding="utf-8")
    assert "NaN" not in text
    summary = json.loads(text)
    assert summary == made.summary
    assert summary["flagged"] == 1
    assert summary["label_issues"][0]["row"] == 3
    assert summary["hardest_rows"][0]["row"]["number"] == 3
    assert summary["most_suspicious_labels"][0]["learnt"] is None


def test_the_same_insights_give_the_same_bytes(tmp_path: Path) -> None:
    insights = trained(labels_with(3000, 4), [(row, 1) for row in range(200)])
    pages = [write_inspection(insights, tmp_path / name).page for name in ("one", "two")]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_top_bounds_the_list_and_not_the_file(tmp_path: Path) -> None:
    wrong = [(row, 1) for row in range(30)]
    made = write_inspection(trained(labels_with(300, 3), wrong), tmp_path, top=7)
    assert "The 7 most suspicious of 30 flagged labels; label_issues.csv has all." in text_of(
        made.page
    )
    assert len(made.summary["label_issues"]) == 7
    assert len(rows_of(tmp_path / "label_issues.csv")) == 30


def test_bars_are_the_shares_of_the_table(tmp_path: Path) -> None:
    labels = np.zeros((100, 2), dtype=np.int64)
    labels[:40, 0] = labels[:50, 1] = 1
    # Of label 0, ten of forty given are wrong; of the true ones 10 / (40 - 10 + 10) are missing.
    wrong = [(row, 0) for row in (*range(10), *range(40, 50))]
    made = write_inspection(trained(labels, wrong), tmp_path)
    first, second = made.summary["most_suspicious_labels"]
    assert (first["name"], first["missing"], first["spurious"]) == ("0", 0.25, 0.25)
    assert (first["missing_pairs"], first["spurious_pairs"]) == (10, 10)
    assert (second["missing"], second["spurious"]) == (0.0, 0.0)
    page = made.page.read_text(encoding="utf-8")
    assert "A full bar is 50\u00a0%." in page
    for kind in ("add", "remove"):
        assert f'<span class="{kind}" style="width: 50.0%">' in page


# Rows themselves ------------------------------------------------------------------------------


def table(X: object, names: tuple[str, ...], n: int) -> MultiLabelData:
    return MultiLabelData("made", X, labels_with(n, 2).astype(np.uint8), names, ("a", "b"))


def test_strongest_features_are_in_units_of_their_spread(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4)) * [1.0, 1000.0, 0.001, 0.0]
    X[3] = [0.5, 2000.0, -0.009, 0.0]  # the smallest number is the furthest from usual
    data = table(X.astype(np.float32), ("plain", "large", "small", "constant"), 200)
    made = write_inspection(trained(data.Y.astype(int), [(3, 1)]), tmp_path, data=data)
    strong = made.summary["hardest_rows"][0]["row"]["features"]
    deviation = X.astype(np.float32).std(axis=0)
    mean = X.astype(np.float32).mean(axis=0)
    expected = [f"{(X[3, at] - mean[at]) / deviation[at]:+.1f}".replace("-", "−") for at in (2, 1)]
    assert [one["name"] for one in strong[:2]] == ["small", "large"]
    assert [one["strength"] for one in strong[:2]] == expected
    assert "constant" not in [one["name"] for one in strong]
    assert "<bdi>small</bdi> <b>−" in made.page.read_text(encoding="utf-8")


def test_of_words_the_rare_ones_that_are_present_count(tmp_path: Path) -> None:
    counts = np.zeros((100, 4), dtype=np.float32)
    counts[:, 0] = 9  # in every row: says nothing
    counts[:50, 1] = 1
    counts[:5, 2] = 2
    data = table(sp.csr_matrix(counts), ("the", "common", "rare", "absent"), 100)
    made = write_inspection(
        trained(data.Y.toarray() if sp.issparse(data.Y) else data.Y.astype(int), [(3, 1)]),
        tmp_path,
        data=data,
    )
    strong = made.summary["hardest_rows"][0]["row"]["features"]
    assert strong == [{"name": "rare", "strength": "2"}, {"name": "common", "strength": ""}]


@pytest.mark.parametrize("last", ["pixel_99999999_99999999", f"pixel_{'9' * 5000}_0"])
def test_a_far_pixel_makes_no_picture(tmp_path: Path, last: str) -> None:
    Y = np.tile(np.eye(4, dtype=np.uint8), (10, 1))
    X = np.random.default_rng(0).random((40, 2)).astype(np.float32)
    data = MultiLabelData("mine", X, Y, ("pixel_0_0", last), tuple("abcd"))
    insights = trained(Y.astype(int), [(5, 3)])
    page = write_inspection(insights, tmp_path, data=data).page.read_text(encoding="utf-8")
    assert "data:image/png" not in page
    assert "pixel_0_0" in page


def test_tables_of_pixels_are_shown_as_pictures(tmp_path: Path) -> None:
    data = load_digits()
    insights = trained(data.Y.astype(int), [(5, 3)], label_names=data.label_names)
    page = write_inspection(insights, tmp_path, data=data).page.read_text(encoding="utf-8")
    assert 'src="data:image/png;base64,' in page
    assert 'alt="Picture of row 5"' in page
    assert "pixel_" not in page


def test_images_that_are_gone_are_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    root = make_photos(tmp_path / "photos", 12, 2)
    data = load_images("csv", root)
    insights = trained(data.Y.toarray().astype(int), [(4, 1), (6, 2)])
    (root / "04.jpg").unlink()
    (root / "06.jpg").write_bytes(b"no picture")
    made = write_inspection(insights, tmp_path / "page", data=data)
    said = text_of(made.page)
    assert "2 of 2 pictures cannot be read: the files were moved, removed or damaged" in said
    assert "04.jpg" in said
    assert 'alt="Picture of 00.jpg"' in made.page.read_text(encoding="utf-8")


def test_data_of_other_rows_is_refused(tmp_path: Path) -> None:
    insights = trained(labels_with(60, 2), [(3, 1)])
    data = table(np.zeros((50, 1), dtype=np.float32), ("x",), 50)
    with pytest.raises(UserError, match="The data has 50 rows, but the insights 60; give the data"):
        write_inspection(insights, tmp_path / "page", data=data)
    with pytest.raises(UserError, match="data is a list; give a MultiLabelData or ImageData"):
        write_inspection(insights, tmp_path / "page", data=[1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="top must be at least 1, got 0"):
        write_inspection(insights, tmp_path / "page", top=0)
    assert not (tmp_path / "page").exists()


# The folder -----------------------------------------------------------------------------------


def test_a_page_is_written_again_over_itself_and_leaves_other_files(tmp_path: Path) -> None:
    write_inspection(trained(labels_with(60, 2), [(3, 1)]), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    made = write_inspection(trained(labels_with(60, 2), [(3, 1), (9, 0)]), tmp_path)
    assert made.headline.startswith("2 of 120")
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", sorted(FILES - {"d2ace-files.json"}))
def test_a_file_of_others_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match=rf"{name} was not written by d2ace, and would be replaced"):
        write_inspection(trained(labels_with(60, 2), [(3, 1)]), tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}


def test_names_that_are_no_text_are_written_all_the_same(tmp_path: Path) -> None:
    """As a file's name that is not UTF-8, read by Python."""
    names = [f"photo\udcff{row}.jpg" for row in range(60)]
    insights = trained(labels_with(60, 2), [(3, 1)], row_names=names)
    made = write_inspection(insights, tmp_path)
    assert "photo?3.jpg" in text_of(made.page)
    assert rows_of(tmp_path / "label_issues.csv")[0]["row_name"] == "photo\\udcff3.jpg"


def test_nothing_observed_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Nothing was observed yet"):
        write_inspection(d2ace.Insights(labels_with(9, 2)), tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_hostile_names_are_text_in_the_files_too(tmp_path: Path) -> None:
    labels = labels_with(60, len(HOSTILE))
    wrong = [(3, at) for at in range(len(HOSTILE))]
    write_inspection(trained(labels, wrong, label_names=HOSTILE), tmp_path)
    found = {one["label_name"] for one in rows_of(tmp_path / "label_issues.csv")}
    assert found == set(HOSTILE)
