"""``d2ace inspect`` on runs that were trained with insights, without, and on what is no run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_makers import make_photos
from smallrun import SMALL

import d2ace
from d2ace.cli.main import main
from d2ace.data import MultiLabelData, make_multilabel, save

Said = tuple[str, str]


def train_table(folder: Path, **changes: Any) -> Path:
    """A run on a file of its own, some of whose labels were exchanged."""
    data = make_multilabel(150, 8, 4, seed=0)
    Y = np.array(data.Y.toarray() if hasattr(data.Y, "toarray") else data.Y)
    Y[:6] = 1 - Y[:6]
    names = tuple(f"label {at}" for at in range(4))
    made = MultiLabelData("made", data.X, Y, data.feature_names, names)
    folder.mkdir()
    save(made, folder / "made.npz")
    settings = SMALL | {"epochs": 8, "seed": 3, "insights": True} | changes
    d2ace.train(folder / "made.npz", out=folder / "run", **settings)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_table(tmp_path_factory.mktemp("inspect") / "table")


@pytest.fixture
def inspect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Runs the command; what it printed on standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command sets

    def run(*words: str | Path, code: int = 0) -> Said:
        with pytest.raises(SystemExit) as ended:
            main(["inspect", *map(str, words)])
        out, err = capsys.readouterr()
        assert ended.value.code == code, err
        return out, err

    return run


def test_a_run_is_inspected(trained: Path, inspect: Callable[..., Said]) -> None:
    out, err = inspect(trained / "run", "-o", "page", "--above", "0.3")
    assert re.match(r"\d+ of \d+ labels look wrong \(.*\)\.\npage/index\.html\n", out)
    assert err == ""
    page = Path("page/index.html").read_text(encoding="utf-8")
    assert "label 1" in page
    assert 'class="feature"' in page  # the data was found again
    issues = d2ace.load_run(trained / "run").insights
    assert issues is not None
    issues.label_issues(0.3).to_csv("own.csv")
    assert Path("page/label_issues.csv").read_bytes() == Path("own.csv").read_bytes()


def test_json_is_the_summary(trained: Path, inspect: Callable[..., Said]) -> None:
    out, _ = inspect(trained / "run", "-o", "page", "--json", "--top", "2", "--above", "0.3")
    summary = json.loads(out)
    assert summary == json.loads(Path("page/insights.json").read_text(encoding="utf-8"))
    assert len(summary["label_issues"]) == 2
    assert summary["above"] == 0.3


def test_the_next_step_of_the_page_can_be_taken(
    trained: Path, inspect: Callable[..., Said], capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that the page shows trains the same run on the corrected labels."""
    inspect(trained / "run", "-o", ".", "--above", "0.3")
    page = Path("index.html").read_text(encoding="utf-8")
    found = re.search(r"<code>(d2ace train [^<]* --labels-from label_issues.csv)</code>", page)
    assert found
    words = shlex.split(found[1].replace("&#34;", '"').replace("&#39;", "'"))
    with pytest.raises(SystemExit) as ended:
        main([*words[1:], "--threads", "1"])
    assert ended.value.code == 0, capsys.readouterr().err
    before = json.loads((trained / "run" / "result.json").read_text())["config"]
    after = json.loads(Path("corrected/result.json").read_text())["config"]
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"labels_from", "labels_source"}
    capsys.readouterr()
    inspect("corrected", "-o", "again")
    said = Path("again/index.html").read_text(encoding="utf-8")
    assert "This run was trained with the corrections in label_issues.csv" in said


@pytest.mark.parametrize(
    ("happened", "words"),
    [
        ("moved", r"The data could not be read now \(.*made\.npz.*\), so rows are shown"),
        ("changed", "The data have changed since the training, so rows are shown without"),
    ],
)
def test_data_that_moved_or_changed_are_said_and_the_rest_is_shown(
    tmp_path: Path, inspect: Callable[..., Said], happened: str, words: str
) -> None:
    folder = train_table(tmp_path / "table")
    (folder / "made.npz").unlink()
    if happened == "changed":
        other = make_multilabel(150, 8, 4, seed=1)
        names = tuple(f"label {at}" for at in range(4))
        data = MultiLabelData("made", other.X, other.Y, other.feature_names, names)
        save(data, folder / "made.npz")
    inspect(folder / "run", "-o", "page", "--above", "0.3")
    page = Path("page/index.html").read_text(encoding="utf-8")
    assert re.search(words, page)
    assert 'class="feature"' not in page
    assert "label 1" in page


def test_images_of_a_run_are_shown(
    tmp_path: Path, inspect: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("D2ACE_CACHE", str(tmp_path / "cache"))
    root = make_photos(tmp_path / "photos", 40, 10)
    d2ace.train(
        "csv",
        "image_mlp",
        root=str(root),
        model_options={"backbone": "resnet18", "weights": "none", "freeze": "backbone"},
        out=tmp_path / "run",
        insights=True,
        image_size=32,
        epochs=1,
        warmup=0,
        batch_size=8,
        min_positives=2,
        threads=1,
        workers=0,
    )
    inspect("run", "-o", "page", "--above", "0.1")
    page = Path("page/index.html").read_text(encoding="utf-8")
    assert 'src="data:image/jpeg;base64,' in page
    assert re.search(r'alt="Picture of \d\d\.jpg"', page)
    shutil.rmtree(root)
    inspect("run", "-o", "page", "--above", "0.1")
    page = Path("page/index.html").read_text(encoding="utf-8")
    assert "The data could not be read now" in page
    assert "data:image" not in page
    assert re.search(r"\d\d\.jpg", page)  # rows keep their names


# Refused --------------------------------------------------------------------------------------


def test_a_run_without_insights_is_told_what_to_do(
    tmp_path: Path, inspect: Callable[..., Said]
) -> None:
    folder = train_table(tmp_path / "table", insights=False, epochs=1, warmup=0)
    _, err = inspect(folder / "run", code=2)
    assert "was trained without insights; train it again in another folder with d2ace" in err
    assert "train --insights" in err
    assert not Path("inspection").exists()


def test_what_is_no_run_is_named(tmp_path: Path, inspect: Callable[..., Said]) -> None:
    _, err = inspect("nowhere", code=2)
    assert err == "d2ace: There is no folder nowhere; give the out folder of a run.\n"
    (tmp_path / "empty").mkdir()
    _, err = inspect("empty", code=1)
    assert err == "d2ace: empty holds no finished run; train it to its end first.\n"


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_a_damaged_file_is_named_and_left_alone(
    trained: Path, tmp_path: Path, inspect: Callable[..., Said], damage: str
) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    file = tmp_path / "run" / "insights.pt"
    content = bytearray(file.read_bytes())
    if damage == "cut":
        content = content[:-100]
    content[len(content) // 2] ^= 1
    file.unlink() if damage == "gone" else file.write_bytes(content)
    _, err = inspect("run", code=1)
    assert "insights.pt" in err
    assert len(err.splitlines()) == 1
    assert "unexpected" not in err
    assert not Path("inspection").exists()
    if damage != "gone":
        assert file.read_bytes() == content


def test_a_file_of_others_in_the_output_folder_is_left_alone(
    trained: Path, tmp_path: Path, inspect: Callable[..., Said]
) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "rows.csv").write_text("mine")
    _, err = inspect(trained / "run", "-o", "page", code=2)
    assert "page/rows.csv was not written by d2ace, and would be replaced; it was left" in err
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["rows.csv"]
    assert (tmp_path / "page" / "rows.csv").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--above", "nan"], "--above is nan; give a finite number, such as 1.5."),
        (["--top", "0"], "--top"),
        (["-o", ""], "--out is empty; name a folder"),
    ],
)
def test_bad_options_are_one_sentence(
    trained: Path, inspect: Callable[..., Said], words: list[str], said: str
) -> None:
    _, err = inspect(trained / "run", *words, code=2)
    assert said in err
    assert len(err.splitlines()) == 1
