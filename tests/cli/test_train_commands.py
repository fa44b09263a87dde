"""``d2ace train`` and ``d2ace predict`` as a person uses them."""

from __future__ import annotations

import csv
import inspect
import io
import json
import math
import os
import pty
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from smallrun import small_run

from d2ace.cli import main
from d2ace.cli.train import train
from d2ace.cli.train_view import EpochLines
from d2ace.data import MultiLabelData, make_multilabel, save
from d2ace.training import RunResult, load_run
from d2ace.training.config import RunConfig

FAST = ["--model", "mlp", "--model-option", "h=16", "--epochs", "3", "--warmup", "1"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(words)
    output = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, output.out, output.err


def test_every_setting_of_a_run_is_an_option() -> None:
    options = inspect.signature(train).parameters
    for item in fields(RunConfig):
        if not item.name.endswith("_source"):  # which follow from selector and model
            name = item.name.replace("_options", "_option")
            assert name in options
            assert name == "data" or item.metadata["help"].endswith(".")


def test_train_shows_progress_and_a_table(
    capsys: pytest.CaptureFixture[str], table_file: Path, tmp_path: Path
) -> None:
    code, out, err = run(capsys, "train", str(table_file), *FAST, "--out", str(tmp_path))
    assert code == 0
    assert [line.split()[1] for line in err.splitlines()] == ["1/3", "2/3", "3/3"]
    assert "left 0:00" in err
    assert "Macro-AUC ↑" in out
    result = RunResult.read(tmp_path / "result.json")
    assert f"{result.test['macro_auc']:.4f}" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--epochs", "1", "--warmup", "0"], True),
        (["--learning-rate", "1e-20"], False),  # as good in the first epoch as in the last
    ],
)
def test_train_says_that_the_network_is_not_trained_yet(
    capsys: pytest.CaptureFixture[str], table_file: Path, words: list[str], said: bool
) -> None:
    _, out, _ = run(capsys, "train", str(table_file), *FAST, "--selector", "random", *words)
    sentence = (
        "still improving in epoch 1 of 1: more epochs or a higher learning rate would probably "
        "gain more than selection"
    )
    assert (sentence in " ".join(out.split())) == said
    assert ("still improving" in out) == said


def test_lines_in_a_pipe_are_whole(
    capsys: pytest.CaptureFixture[str], table: MultiLabelData, tmp_path: Path
) -> None:
    path = tmp_path / ("long[bold]" * 8) / "table.npz"  # no markup either
    path.parent.mkdir()
    save(table, path)
    code, out, _ = run(capsys, "train", str(path), *FAST, "--out", f"{path.parent}/run")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith(f"{path}: ")
    assert lines[0].endswith("12 features, 5 labels; mlp with d2ace")
    assert len(lines) == 1 + 1 + 10 + 1 + 1  # sizes, headings, metrics, seconds, folder
    assert lines[-2].startswith("seconds: setup ")
    assert "total" in lines[-2]
    assert lines[-1] == f"saved in {path.parent}/run"


def test_tuning_names_every_candidate(
    capsys: pytest.CaptureFixture[str], table_file: Path, tmp_path: Path
) -> None:
    words = ["train", str(table_file), *FAST, "--epochs", "2", "--tune", "--out", str(tmp_path)]
    code, out, err = run(capsys, *words)
    assert code == 0
    chosen = RunResult.read(tmp_path / "result.json").config["selector_options"]["neighbors"]
    assert f"tuned: neighbors={chosen}, the best of 5 on the validation rows" in out.splitlines()
    lines = err.splitlines()
    assert lines[::3] == [f"candidate {i} of 5: neighbors={i + 3}" for i in range(1, 6)]
    for first, second in zip(lines[1::3], lines[2::3], strict=True):
        assert first.startswith("epoch 1/2")
        assert "in epoch 1)" in first  # the best of this candidate, not of one before
        assert second.startswith("epoch 2/2")
    code, _, err = run(capsys, *words)  # all there: nothing is trained
    assert err.splitlines() == lines[::3]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ({1: math.nan}, "nan (best nan in epoch 1)"),
        ({1: math.nan, 2: 0.6, 3: 0.5}, "0.5000 (best 0.6000 in epoch 2)"),
        ({3: 0.6, 4: 0.5}, "0.5000 (best since epoch 3: 0.6000 in epoch 3)"),  # resumed after 2
    ],
)
def test_the_best_is_of_the_epochs_seen_and_defined(scores: dict[int, float], said: str) -> None:
    stream = io.StringIO()
    view = EpochLines(RunConfig(data="x", epochs=4), stream)
    rest = {"train_loss": 0.5, "seconds": {}, "p_beta": None, "pressure": None, "distinct_rows": 3}
    for epoch, score in scores.items():
        view({"epoch": epoch, "validation": {"macro_auc": score}, **rest})
    assert f"macro_auc {said}" in stream.getvalue().splitlines()[-1]


def test_json_is_the_result(
    capsys: pytest.CaptureFixture[str], table_file: Path, tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "train", str(table_file), *FAST, "--json", "--out", str(tmp_path))
    assert code == 0
    result = RunResult.read(tmp_path / "result.json")
    assert json.loads(out) == {**result.to_dict(), "still_improving": result.still_improving}


def test_options_of_method_and_model_are_read_as_json(
    capsys: pytest.CaptureFixture[str], table_file: Path
) -> None:
    words = ["--selector-option", "mix=[0.9, 0.1]", "--selector-option", "label-weight=none"]
    code, out, _ = run(capsys, "train", str(table_file), *FAST, *words, "--json")
    assert code == 0
    config = json.loads(out)["config"]
    assert config["selector_options"] == {"mix": [0.9, 0.1], "label_weight": "none"}
    assert config["model_options"] == {"h": 16}


def test_predictions_as_csv(
    capsys: pytest.CaptureFixture[str], table: MultiLabelData, table_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    run(capsys, "train", str(table_file), *FAST, "--out", str(out))
    code, text, _ = run(capsys, "predict", str(out), str(table_file))
    assert code == 0
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0] == ["row", *table.label_names]
    values = np.array([[float(value) for value in row[1:]] for row in rows[1:]])
    assert values == pytest.approx(load_run(out).predict_proba(table.X), abs=1e-5)
    code, text, _ = run(capsys, "predict", str(out), str(table_file), "-o", str(tmp_path / "p.csv"))
    assert code == 0
    assert not text
    assert list(csv.reader(io.StringIO((tmp_path / "p.csv").read_text()))) == rows


def test_nothing_but_warm_up_is_reported_once(
    capsys: pytest.CaptureFixture[str], table_file: Path
) -> None:
    code, _, err = run(capsys, "train", str(table_file), *FAST, "--epochs", "1", "--warmup", "1")
    assert code == 0
    assert err.count("warm-up") == 1
    assert "All 1 epochs are warm-up (warmup=1), so d2ace draws at random" in err


def test_event_files(capsys: pytest.CaptureFixture[str], table_file: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(capsys, "train", str(table_file), *FAST, "--out", str(tmp_path), "--tensorboard")
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    scores = [event.value for event in events.Scalars("validation/macro_auc")]
    history = RunResult.read(tmp_path / "result.json").history
    assert scores == pytest.approx([entry["validation"]["macro_auc"] for entry in history])
    assert len(events.Scalars("selection/effective_rows")) == 3


def on_a_terminal(*words: str) -> str:
    """What a run shows on a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "d2ace", "train", *words]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        screen = b""
        try:
            while piece := os.read(ours, 65536):
                screen += piece
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    assert process.returncode == 0
    return screen.decode()


def test_a_terminal_gets_a_live_table(table_file: Path) -> None:
    text = on_a_terminal(str(table_file), *FAST, "--epochs", "40")
    for words in ("Macro-AUC", "best 0.", "of 40", "left", "selection", "effective"):
        assert words in text
    assert "epoch 1/40" not in text  # no plain lines


@pytest.mark.slow
def test_a_search_is_shown_live_on_a_terminal(table_file: Path) -> None:
    text = on_a_terminal(str(table_file), *FAST, "--epochs", "12", "--tune")
    assert "candidate 5 of 5: neighbors=8" in text
    assert "of 12" in text
    assert "epoch 1/12" not in text


def test_saved_runs_take_rows_as_they_come(
    capsys: pytest.CaptureFixture[str], table: MultiLabelData, table_file: Path, tmp_path: Path
) -> None:
    import scipy.sparse as sp

    from d2ace._util.errors import RunError, UserError

    run(capsys, "train", str(table_file), *FAST, "--out", str(tmp_path))
    saved = load_run(tmp_path)
    dense = saved.predict_proba(table.X)
    assert dense.shape == (240, 5)
    assert np.array_equal(saved.predict(table.X, 0.5), dense >= 0.5)
    for form in (sp.csr_matrix, sp.csc_array, sp.lil_matrix, sp.dok_array):
        assert saved.predict_proba(form(table.X)) == pytest.approx(dense, abs=1e-6)
    assert saved.predict_proba(table.X[:0]).shape == (0, 5)
    with pytest.raises(UserError, match=r"X has shape \(240, 3\), but .* rows of 12 features"):
        saved.predict_proba(table.X[:, :3])
    with pytest.raises(UserError, match="NaN"):
        saved.predict_proba(np.full((2, 12), np.nan))
    (tmp_path / "best.pt").write_bytes(b"no")
    with pytest.raises(RunError, match=r"best\.pt cannot be read as saved weights"):
        load_run(tmp_path)


@pytest.mark.parametrize("model", ["mlp", "clif", "dela", "paca"])
@pytest.mark.parametrize("preset", ["paper", "reference"])
def test_every_model_reloads(
    table: MultiLabelData, tmp_path: Path, model: str, preset: str
) -> None:

    result = small_run(
        table, model=model, model_options={"preset": preset}, epochs=1, warmup=0, out=tmp_path
    )
    saved = load_run(tmp_path)
    assert saved.result.to_dict() == result.to_dict()
    assert np.isfinite(saved.predict_proba(table.X)).all()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["nothing-like-it"], 2, "no dataset and no file is called 'nothing-like-it'"),
        (["{table}", "--model", "cliff"], 2, "There is no model 'cliff' (did you mean 'clif'?)"),
        (
            ["{table}", "--model", "ml_gcn"],
            2,
            "ml_gcn is a model for images, but",
        ),
        (["{table}", "--selector", "d2acee"], 2, "There is no selector 'd2acee' (did you mean"),
        (["{table}", "--selector", "no.py:A"], 2, "'no.py:A' cannot be found"),
        (["{table}", "--fold", "5"], 2, "fold is 5, but with folds=5 they are numbered 0 to 4"),
        (["{table}", "--fold", "-1"], 2, "fold is -1; it must be a whole number from 0 up"),
        (["{table}", "--fold", "two"], 2, "Invalid value for '--fold'"),
        (["{table}", "--epochs", "0"], 2, "epochs is 0"),
        (["{table}", "--validation", "0.001"], 2, "validation is 0.001; it must lie between 0.01"),
        (["{table}", "--folds", "121"], 2, "has 240 rows after preparation, too few for 121"),
        (["{tiny}"], 2, "has 9 rows after preparation, too few for 5 folds"),
        (["{table}", "--accelerator", "cuda"], 2, "torch finds no such device here"),
        (["{table}", "--precision", "16-mixed"], 2, "needs a CUDA device"),
        (["{table}", "--model-option", "h"], 2, "--model-option h is not of the form NAME=VALUE"),
        (["{table}", "--selector-option", "mix=2"], 2, "mix"),
        (["{table}", "--monitor", "auc"], 2, "monitor is 'auc'"),
        (["{table}", "--out", "{blocked}/run"], 1, "cannot be used as the folder of a run"),
        (["{table}", "--out", "{file}"], 1, "cannot be used as the folder of a run"),
        (["{broken}"], 1, "broken.npz"),
        (["{table}", "--epochz", "3"], 2, "No such option: --epochz"),
        (["{table}", "--learning-rate", "1e30", "--warmup", "0"], 1, "infinite or NaN in epoch 1"),
    ],
)
def test_errors_are_one_sentence(
    capsys: pytest.CaptureFixture[str],
    table_file: Path,
    tmp_path: Path,
    words: list[str],
    code: int,
    sentence: str,
) -> None:
    tiny = tmp_path / "tiny.npz"
    save(make_multilabel(9, 3, 2, cardinality=1.0, seed=1), tiny)
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "broken.npz").write_bytes(b"PK broken")
    places = {
        "table": table_file,
        "tiny": tiny,
        "file": tmp_path / "file",
        "blocked": tmp_path / "file",
        "broken": tmp_path / "broken.npz",
    }
    filled = [word.format(**places) for word in words]
    extra = ["--min-positives", "1"] if "{tiny}" in words else []
    got, out, err = run(capsys, "train", *filled, *extra)
    assert (got, out) == (code, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert err.startswith("d2ace: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["{nowhere}", "{table}"], 2, "There is no folder"),
        (["{empty}", "{table}"], 1, "holds no finished run"),
    ],
)
def test_predicting_without_a_run(
    capsys: pytest.CaptureFixture[str],
    table_file: Path,
    tmp_path: Path,
    words: list[str],
    code: int,
    sentence: str,
) -> None:
    places = {"nowhere": tmp_path / "nowhere", "empty": tmp_path, "table": table_file}
    got, out, err = run(capsys, "predict", *(word.format(**places) for word in words))
    assert (got, out) == (code, "")
    assert sentence in err


def test_a_read_only_folder_is_named(
    capsys: pytest.CaptureFixture[str], table_file: Path, tmp_path: Path
) -> None:
    if os.geteuid() == 0:
        pytest.skip("the superuser may write everywhere")
    tmp_path.chmod(0o500)
    code, _, err = run(capsys, "train", str(table_file), "--out", str(tmp_path / "run"))
    tmp_path.chmod(0o700)
    assert code == 1
    assert "cannot be used as the folder of a run" in err


def test_an_error_in_an_own_class_names_the_line(
    capsys: pytest.CaptureFixture[str], table_file: Path, tmp_path: Path
) -> None:
    code = (
        "import d2ace\nclass Own(d2ace.Active):\n    def update(self, *_): raise KeyError('no.')\n"
    )
    (tmp_path / "mine.py").write_text(code)
    selector = f"{tmp_path / 'mine.py'}:Own"
    status, _, said = run(capsys, "train", str(table_file), *FAST, "--selector", selector)
    assert status == 1
    assert said.endswith(
        "mine.py, line 3, raised KeyError: 'no.'; run again with --debug for details.\n"
    )
