"""One run does what the protocol says."""

from __future__ import annotations

import json
import math
import re
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from smallrun import SMALL, small_run, without_times

import d2ace
from d2ace._util.errors import RunError, UserError
from d2ace.data import MultiLabelData, Scaler, folds, load, make_multilabel, prepare
from d2ace.evaluation import METRICS, evaluate
from d2ace.training.config import RunConfig
from d2ace.training.recording import outlier_score
from d2ace.training.split import make_problem
from d2ace.training.trainer import warm_up


def test_a_run_tells_what_happened(table: MultiLabelData) -> None:
    seen: list[int] = []
    result = small_run(table, epoch_loss=True, watch=lambda entry: seen.append(entry["epoch"]))
    assert seen == [1, 2, 3, 4, 5]
    assert [entry["epoch"] for entry in result.history] == seen
    assert set(result.test) == set(METRICS)
    sizes = result.dataset
    assert sizes["train"] + sizes["validation"] + sizes["test"] <= 240
    first, last = result.history[0], result.history[-1]
    assert first["pressure"] is None
    assert first["p_beta"] is None
    assert first["effective_rows"] == first["distinct_rows"] == sizes["train"]
    assert last["pressure"] == pytest.approx(1.0)
    assert last["p_beta"] == pytest.approx(0.7)  # mix[0] before mix_epochs
    middle = result.history[2]
    assert middle["pressure"] > 1
    assert middle["effective_rows"] < sizes["train"]
    assert middle["distinct_rows"] < sizes["train"]
    assert 0 < middle["p_min"] < 1 / sizes["train"] < middle["p_max"] < 1
    assert 0 < middle["entropy"] < math.log(sizes["train"])
    assert last["epoch_loss"] < first["epoch_loss"]
    assert {"setup", "recompute", "draw", "observe", "train", "evaluation"} < set(result.seconds)
    parts = [value for part, value in result.seconds.items() if part != "total"]
    assert result.seconds["total"] == pytest.approx(sum(parts))


def test_a_watcher_gets_a_copy_of_each_entry(table: MultiLabelData, tmp_path: Path) -> None:
    def spoil(entry: dict[str, Any]) -> None:
        entry["validation"].clear()
        entry["seen"] = object()

    told = small_run(table, out=tmp_path, watch=spoil)
    assert without_times(told) == without_times(small_run(table))


def test_the_best_epoch_by_validation_is_tested(table: MultiLabelData, tmp_path: Path) -> None:
    result = small_run(table, epochs=8, out=tmp_path)
    scores = [entry["validation"]["macro_auc"] for entry in result.history]
    assert result.best_epoch == 1 + int(np.argmax(scores))
    assert result.validation == result.history[result.best_epoch - 1]["validation"]
    saved = d2ace.load_run(tmp_path)
    problem = make_problem(RunConfig.from_dict(result.config), table)
    kept = prepare(table).data
    test = problem.test.rows
    scores = saved.predict_proba(kept.X[test])
    again = evaluate(kept.Y[test], scores, thresholds=saved.thresholds)
    assert again.values == pytest.approx(result.test, abs=1e-6)


def test_saving_is_counted(table: MultiLabelData, tmp_path: Path) -> None:
    result = small_run(table, out=tmp_path, checkpoint_every=2)
    epochs = [entry["seconds"]["save"] for entry in result.history]
    assert all(seconds > 0 for seconds in epochs)
    assert result.seconds["save"] > sum(epochs)  # what is kept at the end comes on top
    parts = [value for part, value in result.seconds.items() if part != "total"]
    assert result.seconds["total"] == pytest.approx(sum(parts))
    assert small_run(table, out=tmp_path).seconds == result.seconds


def test_a_loss_can_be_monitored(table: MultiLabelData) -> None:
    result = small_run(table, epochs=8, monitor="ranking_loss")
    losses = [entry["validation"]["ranking_loss"] for entry in result.history]
    assert result.best_epoch == 1 + int(np.argmin(losses))


def test_rows_are_split_and_scaled_without_the_test_fold(table: MultiLabelData) -> None:
    config = RunConfig(data=table.name, fold=2)
    problem = make_problem(config, table)
    parts = [problem.train.rows, problem.validation.rows, problem.test.rows]
    together = np.concatenate(parts)
    prepared = prepare(table)
    assert np.array_equal(np.sort(together), np.arange(prepared.data.n))
    assert np.array_equal(problem.test.rows, folds(prepared.data.Y, 5, seed=0)[2][1])
    share = len(parts[1]) / (len(parts[0]) + len(parts[1]))
    assert share == pytest.approx(0.1, abs=0.02)
    scaler = Scaler.fit(prepared.data.X, problem.train.rows)
    assert np.array_equal(problem.test.X, scaler.transform(prepared.data.X[problem.test.rows]))
    assert problem.train.X.min() == 0
    assert problem.train.X.max() == 1


def test_published_folds_are_used(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D2ACE_DATA", str(data_root))
    problem = make_problem(RunConfig(data="birds", fold=3))
    prepared = prepare(load("birds"))
    stored = d2ace.data.protocol_folds("birds", prepared.data.Y).folds()
    assert np.array_equal(problem.test.rows, stored[3][1])


def test_validation_rows_follow_the_seed_and_folds_do_not(table: MultiLabelData) -> None:
    one, two = (make_problem(RunConfig(data="x", seed=seed), table) for seed in (0, 1))
    assert np.array_equal(one.test.rows, two.test.rows)
    assert not np.array_equal(one.validation.rows, two.validation.rows)


@pytest.mark.parametrize("selector", list(d2ace.SELECTORS))
def test_every_method_trains_and_repeats(table: MultiLabelData, selector: str) -> None:
    one = small_run(table, selector=selector, epochs=4)
    torch.manual_seed(99)  # nothing outside matters
    assert without_times(one) == without_times(small_run(table, selector=selector, epochs=4))


@pytest.mark.parametrize("model", ["mlp", "clif", "dela", "paca"])
def test_every_model_trains(table: MultiLabelData, model: str) -> None:
    result = small_run(
        table, model=model, model_options={}, epochs=6, learning_rate=1e-3, epoch_loss=True
    )
    assert result.history[-1]["epoch_loss"] < result.history[0]["epoch_loss"]


def test_a_run_leaves_randomness_and_threads_alone(table: MultiLabelData) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    threads = torch.get_num_threads()
    small_run(table, epochs=1, warmup=0)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_seeds_differ(table: MultiLabelData) -> None:
    one, other = (small_run(table, epochs=2, warmup=1, seed=seed) for seed in (0, 1))
    assert one.test != other.test


def test_learning_rate_rises_linearly_then_stays(table: MultiLabelData) -> None:
    assert [warm_up(step, 4) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert warm_up(0, 0) == 1.0
    result = small_run(table, epochs=4, warmup=2, learning_rate=0.01)
    rates = [entry["learning_rate"] for entry in result.history]
    assert rates == pytest.approx([0.005, 0.01, 0.01, 0.01])


def test_a_selector_of_ones_own(table: MultiLabelData, tmp_path: Path) -> None:
    source = """
import torch
import d2ace

class Rare(d2ace.Selector):
    name = "rare"

    def instance_weights(self):
        Y = torch.from_numpy(self.labels.toarray()).double()
        return {"rarity": (Y / Y.sum(0).clamp(min=1)).sum(1)}
"""
    file = tmp_path / "rare.py"
    file.write_text(source)
    result = small_run(table, selector=f"{file}:Rare")
    assert result.history[-2]["effective_rows"] < result.dataset["train"]
    described = result.config
    file.write_text(source.replace("sum(1)", "sum(1) * 0"))
    changed = small_run(table, selector=f"{file}:Rare")  # the new code, not the one imported before
    assert changed.history[-2]["effective_rows"] == pytest.approx(changed.dataset["train"])
    assert changed.config["selector_source"] != described["selector_source"]
    with pytest.raises(UserError, match=r"rare\.py has changed since this run was described"):
        RunConfig.from_dict(described)


@pytest.mark.parametrize(
    ("takes", "sentence"),
    [
        ("labels, features=None, **common", r"does not call super\(\)\.__init__\(labels, features"),
        ("", r"too many positional arguments\); write its __init__ as"),
        ("labels, features", r"unexpected keyword argument .*; write its __init__ as"),
        ("labels, features, *, k, **common", r"missing a required .*'k'\); write its __init__ as"),
    ],
)
def test_an_own_selector_that_cannot_be_made_is_refused(
    table: MultiLabelData, tmp_path: Path, takes: str, sentence: str
) -> None:
    file = tmp_path / "mine.py"
    init = f"def __init__(self, {takes}): self.k = 1"
    file.write_text(f"import d2ace\n\nclass Mine(d2ace.D2ACE):\n    {init}\n")
    with pytest.raises(UserError, match=sentence):
        small_run(table, selector=f"{file}:Mine")


def test_a_file_that_ends_python_when_it_is_imported_is_named(tmp_path: Path) -> None:
    """A script that has no "if __name__" ended the command without a word."""
    file = tmp_path / "script.py"
    file.write_text("import sys\n\nsys.exit(4)\n")
    with pytest.raises(UserError, match=r"script\.py could not be imported \(SystemExit: 4\)"):
        d2ace.train("digits", "mlp", f"{file}:Mine")


def test_a_run_does_not_resume_with_other_code_of_a_module(
    table: MultiLabelData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "module_of_mine.py"
    source = "import d2ace\n\nclass Mine(d2ace.Random):\n    name = 'mine'\n"
    file.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    settings: dict[str, Any] = {"selector": "module_of_mine:Mine", "out": tmp_path / "run"}
    small_run(table, **settings)
    file.write_text(f"{source}    value = 1\n")
    with pytest.raises(UserError, match=r"module_of_mine\.py has changed since Python imported"):
        small_run(table, **settings)
    del sys.modules["module_of_mine"]  # as in a new process
    with pytest.raises(UserError, match=r"belongs to another run \(selector_source"):
        small_run(table, **settings)


def test_a_saved_model_does_not_need_its_selector(table: MultiLabelData, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import d2ace\n\nclass Mine(d2ace.Random):\n    name = 'mine'\n")
    small_run(table, selector=f"{file}:Mine", out=tmp_path / "run")
    file.unlink()
    assert d2ace.load_run(tmp_path / "run").predict(table.X[:2]).shape == (2, 5)


def test_a_monitor_that_cannot_be_scored_is_refused() -> None:
    data = make_multilabel(60, 6, 3, cardinality=1.0, seed=5)
    Y = np.ones((60, 1), dtype=np.uint8)
    always = MultiLabelData("always", data.X, Y, data.feature_names, ("yes",))
    with pytest.raises(UserError, match=r"macro_auc is undefined on the .* another monitor"):
        small_run(always)
    with pytest.raises(UserError, match="or a second label, as rows without any are left out"):
        small_run(always)
    assert small_run(always, monitor="hamming_loss").test["hamming_loss"] < 0.5


def test_sparse_features_train_as_dense_ones(table: MultiLabelData) -> None:
    import scipy.sparse as sp

    positive = np.abs(table.X) * (np.abs(table.X) > np.median(np.abs(table.X)))
    fields = (table.Y, table.feature_names, table.label_names)
    dense = MultiLabelData("same", positive, *fields)
    sparse = MultiLabelData("same", sp.csr_matrix(positive), *fields)
    one, two = small_run(dense), small_run(sparse)
    assert one.test == pytest.approx(two.test, abs=1e-5)


def test_importance_weights_and_masks_reach_the_loss(table: MultiLabelData) -> None:
    plain = small_run(table)
    weighted = small_run(table, selector_options={"importance_weighting": True})
    assert plain.history[1]["train_loss"] == weighted.history[1]["train_loss"]  # warm-up
    assert plain.history[3]["train_loss"] != weighted.history[3]["train_loss"]


def test_a_full_pass_tells_the_selector_all_rows(table: MultiLabelData) -> None:
    observed: list[int] = []

    class Watching(d2ace.Random):
        def observe(self, index: Any, **predictions: Any) -> None:
            observed.append(len(index))
            super().observe(index, **predictions)

    d2ace.SELECTORS["watching"] = Watching
    try:
        options = {"predictions": "full_pass"}
        result = small_run(table, selector="watching", selector_options=options)
    finally:
        del d2ace.SELECTORS["watching"]
    assert observed == [result.dataset["train"]] * 5
    plain, full = small_run(table), small_run(table, selector_options=options)
    assert plain.history[1]["train_loss"] == full.history[1]["train_loss"]
    assert plain.history[3]["effective_rows"] != full.history[3]["effective_rows"]


def test_divergence_after_the_last_step_is_named(table: MultiLabelData) -> None:
    with pytest.raises(RunError, match="The loss became infinite or NaN in epoch 1; lower"):
        small_run(table, learning_rate=1e30, warmup=0, batch_size=1000)


def test_divergence_is_named(table: MultiLabelData) -> None:
    with pytest.raises(RunError, match="The loss became infinite or NaN in epoch 1; lower"):
        small_run(table, learning_rate=1e30, warmup=0)


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_other_precisions(table: MultiLabelData, tmp_path: Path, precision: str) -> None:
    result = small_run(table, precision=precision, epoch_loss=True, record=True, out=tmp_path)
    full = small_run(table)
    assert result.history[-1]["train_loss"] != full.history[-1]["train_loss"]
    assert result.test["macro_auc"] == pytest.approx(full.test["macro_auc"], abs=0.1)
    assert d2ace.load_run(tmp_path).predict_proba(table.X[:3]).shape == (3, 5)


def test_labels_that_cannot_be_scored_are_counted() -> None:
    data = make_multilabel(60, 6, 8, imbalance=2.0, seed=5)
    result = small_run(data, min_positives=0, epochs=1, warmup=0)
    assert result.undefined["validation"] > 0


def test_recording_changes_nothing_and_tells_the_truth(
    table: MultiLabelData, tmp_path: Path
) -> None:
    plain = small_run(table, epochs=21)
    recorded = small_run(table, epochs=21, record=True, out=tmp_path)
    assert recorded.test == plain.test
    with np.load(tmp_path / "record.npz", allow_pickle=False) as record:
        n, q, T = recorded.dataset["train"], recorded.dataset["labels"], 21
        assert record["epochs"].tolist() == [20]
        assert record["P"].shape == record["loss"].shape == (1, n)
        assert record["P"].sum() == pytest.approx(1.0)
        assert 1 / (record["P"] ** 2).sum() == pytest.approx(recorded.history[19]["effective_rows"])
        assert record["label_auc"].shape == (T, q)
        assert np.nanmean(record["label_auc"], axis=1) == pytest.approx(
            [entry["validation"]["macro_auc"] for entry in recorded.history]
        )
        assert record["label_weight_uncertainty"].shape == (T, q)
        assert record["draw_counts"].sum() == n * T
        assert record["label_names"].tolist() == list(table.label_names)


def test_outlier_score_is_the_disagreement_of_five_neighbours() -> None:
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    X, Y = rng.random((40, 3)).astype(np.float32), (rng.random((40, 4)) < 0.4).astype(np.float32)
    expected = np.zeros(40)
    for i in range(40):
        distance = ((X - X[i]) ** 2).sum(1)
        distance[i] = np.inf
        nearest = np.argsort(distance)[:5]
        own = [j for j in range(4) if Y[i, j]]
        if own:
            expected[i] = np.mean([np.mean(Y[nearest, j] == 0) for j in own])
    assert outlier_score(X, sp.csr_matrix(Y)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"fold": 5}, "fold is 5, but with folds=5 they are numbered 0 to 4"),
        ({"epochs": 0}, "epochs is 0; it must be a whole number from 1 up"),
        ({"epochs": True}, "epochs is True"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0; it must lie between 0.0 and inf"),
        ({"validation": 1.0}, "validation is 1.0; it must lie between 0.01 and 0.99"),
        ({"learning_rate": "0.1"}, "learning_rate is '0.1'; it must be a number"),
        ({"repair": "no"}, "repair is 'no'; it must be True or False"),
        ({"record": 0}, "record is 0; it must be True or False"),
        ({"epoch_loss": "false"}, "epoch_loss is 'false'; it must be True or False"),
        ({"cache_features": 0}, "cache_features is 0; it must be True or False"),
        ({"monitor": "macro_uac"}, r"monitor is 'macro_uac'.*did you mean 'macro_auc'"),
        ({"epochz": 3}, r"There is no setting 'epochz'.*did you mean 'epochs'"),
        ({"model": "clip"}, r"There is no model 'clip'.*did you mean 'clif'"),
        ({"selector": "d2a"}, r"There is no selector 'd2a'"),
        ({"selector": "nowhere.py:A"}, r"'nowhere.py:A' cannot be found"),
        ({"selector": "json:JSONDecoder"}, r"json has no selector 'JSONDecoder'"),
        ({"selector_options": {"window": {1}}}, "must be a dictionary of plain values"),
        ({"selector_options": {"seed": 1}}, "seed is a setting of the run"),
        ({"selector_options": {"windw": 1}}, "windw"),
        ({"model_options": {"hh": 1}}, "mlp has no hyperparameter 'hh'"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": 1.5}, "threads is 1.5; it must be a whole number from 1 up"),
        ({"threads": 100_000}, "threads is 100000; torch can use 1024 at most"),
        ({"devices": "auto"}, "devices is 'auto'; it must be a whole number from 1 up"),
        ({"checkpoint_every": "2"}, "checkpoint_every is '2'; it must be a whole number from 1 up"),
        ({"workers": 1.5}, "workers is 1.5; it must be a whole number from 0 up"),
        ({"model": ["mlp"]}, r"A model is found by its name, got \['mlp'\]; write one of mlp"),
        ({"devices": 0}, "devices is 0"),
        ({"accelerator": "tpu"}, "accelerator is 'tpu'; choose from"),
        ({"checkpoint_every": 3}, "need a folder; choose one with out"),
        ({"record": True}, "need a folder; choose one with out"),
        ({"tensorboard": True}, "need a folder; choose one with out"),
        ({"precision": "16-mixed"}, "needs a CUDA device"),
        ({"folds": 200}, "too few for 200 folds"),
    ],
)
def test_wrong_settings_are_named(
    table: MultiLabelData, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        small_run(table, **settings)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("raise ValueError('boom')", r"own\.py could not be imported \(ValueError: boom\); mend"),
        ("import nowhere_at_all", r"own\.py could not .*ModuleNotFoundError: .*nowhere_at_all"),
        ("class Mine(", r"own\.py could not be imported \(SyntaxError: .*\); mend the file\."),
        ("open('nowhere.csv')", r"own\.py could not be imported \(FileNotFoundError: "),
    ],
)
def test_a_selector_file_that_fails_is_reported(tmp_path: Path, source: str, sentence: str) -> None:
    file = tmp_path / "own.py"
    file.write_text(source + "\n")
    with pytest.raises(UserError, match=sentence):
        RunConfig(data="digits", selector=f"{file}:Mine")


def test_a_selector_module_is_missing_only_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "needs_another.py").write_text("import nowhere_at_all\n")
    with pytest.raises(UserError, match=r"needs_another could not be imported \(ModuleNotFound"):
        RunConfig(data="digits", selector="needs_another:Mine")
    for name in ("nowhere.at.all:Mine", "json.nothing:Mine", ":Mine", ".here:Mine"):
        with pytest.raises(UserError, match=rf"{re.escape(repr(name))} cannot be found"):
            RunConfig(data="digits", selector=name)


@pytest.mark.parametrize(
    "data", [(np.zeros((4, 2)), np.ones((4, 2))), pd.DataFrame({"name": [1.0, 2.0]})]
)
def test_data_of_another_kind_is_reported(data: Any) -> None:
    with pytest.raises(UserError, match=r"give a name, a path or a d2ace\.data\.MultiLabelData"):
        d2ace.train(data)


def test_numbers_of_numpy_are_numbers() -> None:
    config = RunConfig(data="digits", learning_rate=np.float32(0.5), validation=np.float64(0.25))
    plain = RunConfig(data="digits", learning_rate=0.5, validation=0.25)
    assert json.dumps(config.to_dict()) == json.dumps(plain.to_dict())


def test_nothing_but_warm_up_is_reported_once(table: MultiLabelData) -> None:
    with pytest.warns(UserWarning, match=r"All 2 epochs are warm-up \(warmup=10\)") as told:
        d2ace.train(table, **(SMALL | {"epochs": 2, "warmup": 10}))
    assert [one.filename for one in told] == [__file__]
    small_run(table, selector="random", epochs=2, warmup=10)


def test_tuning_chooses_on_validation(
    table: MultiLabelData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from d2ace.training import tuning

    monkeypatch.setitem(tuning.MODEL_GRIDS, "mlp", {"h": (4, 16), "p": (0.0, 0.2)})
    monkeypatch.setitem(tuning.SELECTOR_GRIDS, "d2ace", {"neighbors": (4, 5)})
    result = small_run(table, model_options={"L": 2}, tune=True, out=tmp_path, epochs=3)
    assert result.tuning is not None
    assert [len(entry) for entry in result.tuning] == [3] * 6
    assert result.validation["macro_auc"] == max(e["validation"] for e in result.tuning)
    assert result.config["model_options"]["L"] == 2
    assert {"h", "p"} < set(result.config["model_options"])
    saved = d2ace.load_run(tmp_path)
    assert saved.result.tuning == result.tuning
    again = small_run(table, model_options={"L": 2}, tune=True, out=tmp_path, epochs=3)
    assert again.to_dict() == result.to_dict()  # every run was there already
    with pytest.raises(UserError, match="nothing to tune"):
        small_run(
            table, model="mlp", model_options={"h": 4, "p": 0.0}, selector="random", tune=True
        )


@pytest.mark.filterwarnings("ignore::d2ace.data.DataWarning")
def test_missing_cells_are_filled_without_the_test_fold(
    table: MultiLabelData, tmp_path: Path
) -> None:
    def problem(shift: float) -> Any:
        X = table.X.copy()
        X[tested] += shift
        lines = [f"@attribute {name} numeric" for name in (*table.feature_names, *"vwxyz")]
        rows = [[f"{value:.9g}" for value in row] for row in X.tolist()]
        for row, column in ((kept[train[0]], 3), (kept[tested[0]], 3), (kept[train[5]], 7)):
            rows[row][column] = "?"
        labels = table.Y.toarray() if hasattr(table.Y, "toarray") else table.Y
        text = [
            ",".join([*row, *map(str, y)]) for row, y in zip(rows, labels.tolist(), strict=True)
        ]
        path = tmp_path / "gaps.arff"
        path.write_text("\n".join(["@relation gaps", *lines, "@data", *text]))
        return make_problem(RunConfig(data="gaps", model="mlp"), load(path, labels=5, cache=False))

    plain = make_problem(RunConfig(data="gaps", model="mlp"), table)
    kept = prepare(table).rows
    train, tested = plain.train.rows, plain.test.rows
    one, two = problem(0.0), problem(1000.0)
    assert np.array_equal(one.train.X, two.train.X)
    assert not np.array_equal(one.test.X, two.test.X)
    known = table.X[kept[train[1:]], 3].astype(np.float64)
    place = one.train.X[0, 3] * one.scaler.span[3] + one.scaler.low[3]
    assert place == pytest.approx(known.mean(), abs=1e-5)


def test_a_step_costs_what_its_batch_does() -> None:
    from lightning_fabric import Fabric

    from d2ace.training.problem import Split
    from d2ace.training.trainer import Trainer

    n = 200_000
    Y = sp.csr_matrix(np.ones((n, 1), dtype=np.float32))
    rows = Split(np.zeros((n, 1), dtype=np.float32), Y, np.arange(n))
    config = RunConfig("x", "mlp", "random", model_options={"h": 2, "L": 1})
    training = Trainer(config, rows, Fabric(accelerator="cpu", devices=1))
    steps = training.train_epoch()
    next(steps)
    tracemalloc.start()
    next(steps)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < n  # bytes; a count for each row would take eight times as many
    steps.close()


def test_paths_and_whole_numbers_of_numpy(table_file: Path, tmp_path: Path) -> None:
    plain = small_run(str(table_file), seed=1, epochs=1, warmup=0)
    given = small_run(table_file, seed=np.int64(1), epochs=np.int32(1), warmup=0, out=tmp_path)
    assert without_times(given) == without_times(plain)
    assert type(given.config["seed"]) is int
    for wrong in (True, 1.0, "1"):
        with pytest.raises(UserError, match="must be a whole number"):
            small_run(table_file, seed=wrong)


def test_a_result_says_that_neighbours_were_approximate():
    pytest.importorskip("faiss")
    data = make_multilabel(200, 6, 4, seed=0)
    for method in ("approximate", "exact"):
        options = {"neighbors_method": method}
        settings = {"epochs": 2, "warmup": 1, "selector_options": options}
        found = d2ace.train(data, "mlp", "hard_imb", **settings).environment
        assert found.get("neighbors") == (None if method == "exact" else method)
        assert ("neighbor_recall" in found) == (method == "approximate")
