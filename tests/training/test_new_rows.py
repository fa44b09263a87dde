"""A saved run on new rows: the scaling, filling, features and precision of training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from scipy.io import savemat
from smallrun import small_run

from d2ace._util.errors import UserError
from d2ace.cli import main
from d2ace.data import DataError, MultiLabelData, Scaler, load, load_features, prepare, save
from d2ace.evaluation import evaluate, tune_thresholds
from d2ace.training import SavedRun, load_run
from d2ace.training.config import RunConfig
from d2ace.training.split import make_problem

NAMES = tuple("abcdefghijkl")


@pytest.fixture(scope="module")
def named(table: MultiLabelData) -> MultiLabelData:
    return replace(table, feature_names=NAMES)


@pytest.fixture(scope="module")
def run(named: MultiLabelData, tmp_path_factory: pytest.TempPathFactory) -> SavedRun:
    folder = tmp_path_factory.mktemp("run")
    small_run(named, out=folder, epochs=2, warmup=1)
    return load_run(folder)


def test_runs_scaled_on_all_rows_predict_as_they_were_tested(
    table: MultiLabelData, tmp_path: Path
) -> None:
    shifted = replace(table, X=table.X * 50 + 7)
    result = small_run(shifted, protocol="reference", out=tmp_path)
    test = make_problem(RunConfig.from_dict(result.config), shifted).test.rows
    original = prepare(shifted).rows[test]
    saved = load_run(tmp_path)
    predicted = saved.predict_proba(shifted.X[original])
    again = evaluate(shifted.Y[original], predicted, thresholds=saved.thresholds).values
    assert again == pytest.approx(result.test, abs=1e-6)


def test_double_precision_comes_back(table: MultiLabelData, tmp_path: Path) -> None:
    result = small_run(table, precision="64-true", out=tmp_path)
    saved = load_run(tmp_path)
    assert {value.dtype for value in saved.model.parameters()} == {torch.float64}
    test = make_problem(RunConfig.from_dict(result.config), table).test.rows
    original = prepare(table).rows[test]
    predicted = saved.predict_proba(table.X[original])
    assert predicted.dtype == np.float64
    again = evaluate(table.Y[original], predicted, thresholds=saved.thresholds)
    assert again.values == result.test


def test_features_are_found_by_name(named: MultiLabelData, run: SavedRun) -> None:
    expected = run.predict_proba(named.X)
    order = np.random.default_rng(0).permutation(12)
    names = tuple(NAMES[column] for column in order)
    mixed = replace(named, X=named.X[:, order], feature_names=names)
    assert np.array_equal(run.predict_proba(mixed), expected)
    X = np.concatenate([mixed.X, np.ones((240, 1), np.float32)], axis=1)
    more = replace(mixed, X=X, feature_names=(*names, "more"))
    assert np.array_equal(run.predict_proba(more), expected)
    unnamed = replace(named, feature_names=tuple(f"feature_{i}" for i in range(12)))
    assert np.array_equal(run.predict_proba(unnamed), expected)
    fewer = replace(named, X=named.X[:, 2:], feature_names=NAMES[2:])
    with pytest.raises(UserError, match=r"has no feature 'a' \(and 1 more\), but the run was"):
        run.predict_proba(fewer)
    with pytest.raises(UserError, match="10 features and the run 12, and names to match them"):
        run.predict_proba(replace(fewer, feature_names=unnamed.feature_names[:10]))
    twice = replace(named, feature_names=("a", *NAMES[:11]))
    with pytest.raises(UserError, match="has no feature 'l'"):
        run.predict_proba(twice)


def test_columns_of_a_dataframe_are_found_by_name(named: MultiLabelData, run: SavedRun) -> None:
    expected = run.predict_proba(named.X)
    frame = pd.DataFrame(named.X, columns=list(NAMES))
    assert np.array_equal(run.predict_proba(frame[[*NAMES[::-1]]].assign(more=1.0)), expected)
    assert np.array_equal(run.predict_proba(pd.DataFrame(named.X)), expected)  # has no names
    with pytest.raises(UserError, match="no feature 'a', but the run was trained on 12"):
        run.predict_proba(frame.drop(columns="a"))
    with pytest.raises(UserError, match=r"X must hold real numbers, got dtype object"):
        run.predict_proba(frame.assign(a="word"))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            np.ma.masked_less(np.ones((2, 12)), 2),
            r"masked cells in X; fill them",
        ),
        (np.ones((2, 12)) + 1j, "X must hold real numbers, got dtype complex128"),
        (np.full((2, 12), "2020-01-01", "M8[D]"), r"X must hold real numbers, got dtype datetime"),
        ([["a"] * 12], "X must hold real numbers, got dtype <U1"),
        ([[1.0], [1.0, 2.0]], "X must be an array; its rows differ in length or kind"),
        ("digits", "X must hold real numbers, got dtype <U6"),
    ],
    ids=["masked", "complex", "dates", "words", "ragged", "name"],
)
def test_tables_without_numbers_are_not_predicted(run: SavedRun, rows: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        run.predict_proba(rows)


def test_tensors_of_any_kind_are_rows(named: MultiLabelData, run: SavedRun) -> None:
    rows = torch.tensor(named.X[:4]).bfloat16()
    expected = run.predict_proba(rows.float().numpy())
    for given in (rows, rows.float().requires_grad_(), rows.float().to_sparse()):
        assert run.predict_proba(given) == pytest.approx(expected)


def arff(path: Path, names: Any, X: Any, extra: str = "") -> Path:
    lines = ["@relation new", *(f"@attribute {name} numeric" for name in names)]
    lines += [extra] if extra else []
    rows = [",".join("?" if np.isnan(x) else f"{x:.9g}" for x in row) for row in X.tolist()]
    path.write_text("\n".join([*lines, "@data", *(row + ",?" * bool(extra) for row in rows)]))
    return path


def test_new_rows_need_no_labels(named: MultiLabelData, run: SavedRun, tmp_path: Path) -> None:
    X, some = named.X[:9], NAMES[::-1]
    np.savez(tmp_path / "x.npz", X=X)
    np.savez(tmp_path / "n.npz", X=X[:, ::-1], feature_names=np.array(some))
    savemat(tmp_path / "x.mat", {"data": X})
    arff(tmp_path / "x.arff", some, X[:, ::-1])
    arff(tmp_path / "y.arff", some, X[:, ::-1], "@attribute label {0,1}")
    svm = [" ".join(f"{j + 1}:{x:.9g}" for j, x in enumerate(row)) for row in X.tolist()]
    (tmp_path / "x.svm").write_text("\n".join(svm))
    (tmp_path / "y.svm").write_text("\n".join(f"3,4 {row}" for row in svm))
    expected = run.predict_proba(X)
    for name in ("x.npz", "n.npz", "x.mat", "x.arff", "y.arff", "x.svm", "y.svm"):
        rows = load_features(tmp_path / name, run.feature_names)
        assert run.predict_proba(rows) == pytest.approx(expected, abs=1e-6), name
    plain = [f"feature_{i}" for i in range(12)]  # as readers call features without a name
    arff(tmp_path / "f.arff", plain[::-1], X[:, ::-1])
    assert np.array_equal(load_features(tmp_path / "f.arff", plain).X, X[:, ::-1])
    arff(tmp_path / "z.arff", ("u", "v"), X[:, :2])
    with pytest.raises(DataError, match=r"z\.arff: has no feature of 12 that are asked for"):
        load_features(tmp_path / "z.arff", run.feature_names)


def test_libsvm_rows_have_the_width_of_the_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for base in (0, 1):
        file = tmp_path / f"train{base}.svm"
        lines = [
            f"{i % 2} " + " ".join(f"{j + base}:{rng.random():.3f}" for j in range(4))
            for i in range(8)
        ]
        file.write_text("\n".join(lines))
        names = load(file).feature_names
        new = tmp_path / "new.svm"
        new.write_text("1:0.5\n")
        row = load_features(new, names).X
        assert row.shape == (1, 4)
        assert row.indices.tolist() == [1 - base]
        new.write_text(f"1:0.5 {4 + base}:1\n")
        sentence = f"has the feature {4 + base}, but {base} to {3 + base} are known; leave it out"
        with pytest.raises(DataError, match=sentence):
            load_features(new, names)


def test_libsvm_rows_for_a_run_of_arrays_count_as_libsvm_does(tmp_path: Path) -> None:
    np.savez(tmp_path / "train.npz", X=np.eye(5), Y=np.ones((5, 1), int))
    names = load(tmp_path / "train.npz").feature_names
    (tmp_path / "new.svm").write_text("1:10 4:40\n")
    row = load_features(tmp_path / "new.svm", names)
    assert row.X.toarray().tolist() == [[10, 0, 0, 40, 0]]


def test_rows_without_labels_can_be_saved(run: SavedRun, tmp_path: Path) -> None:
    X = np.ones((2, 12))
    X[1, 3] = np.nan
    rows = load_features(arff(tmp_path / "new.arff", NAMES, X), NAMES)
    save(rows, tmp_path / "rows.npz")
    again = load_features(tmp_path / "rows.npz", NAMES)
    assert again.missing is not None
    assert again.missing.cells.nonzero()[1].tolist() == [3]
    assert np.array_equal(run.predict_proba(again), run.predict_proba(rows))
    with pytest.raises(DataError, match="is empty"):
        load(tmp_path / "rows.npz")


def test_features_of_64_bits_are_scaled_as_exactly_as_they_are(
    table: MultiLabelData, tmp_path: Path
) -> None:
    """Seconds since 1970: in 32 bits, a minute is one number."""
    X = table.X.astype(np.float64)
    X[:, 0] = 1.7e9 + np.arange(240) % 60
    timed = replace(table, X=X)
    small_run(timed, out=tmp_path, epochs=2, warmup=1)
    rows = np.repeat(X[:1], 3, axis=0)
    rows[:, 0] += [0, 30, 59]
    assert len(np.unique(load_run(tmp_path).predict_proba(rows)[:, 0])) == 3
    scaled = Scaler.fit(X, np.arange(60)).transform(X)
    assert scaled.dtype == np.float32
    assert scaled[:60, 0] == pytest.approx(np.arange(60) / 59, abs=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_missing_cells_of_new_rows_become_what_they_became_in_training(
    named: MultiLabelData, run: SavedRun, tmp_path: Path, sparse: bool
) -> None:
    problem = make_problem(RunConfig.from_dict(run.result.config), named)
    train = prepare(named).rows[problem.train.rows]
    X = named.X[:4].copy()
    X[1, 2] = X[3, 5] = np.nan
    new = load_features(arff(tmp_path / "new.arff", NAMES, X), NAMES)
    X[1, 2], X[3, 5] = named.X[train][:, [2, 5]].astype(np.float64).mean(axis=0)
    new = replace(new, X=sp.csr_matrix(new.X)) if sparse else new
    assert run.predict_proba(new) == pytest.approx(run.predict_proba(X), abs=1e-6)


def test_the_command_predicts_rows_without_labels_by_name(
    capsys: pytest.CaptureFixture[str], named: MultiLabelData, tmp_path: Path
) -> None:
    small_run(named, out=tmp_path / "run", epochs=1, warmup=0)
    arff(tmp_path / "new.arff", NAMES[::-1], named.X[:3, ::-1])
    with pytest.raises(SystemExit) as stop:
        main(["predict", str(tmp_path / "run"), str(tmp_path / "new.arff")])
    said = capsys.readouterr()
    assert (stop.value.code, said.err) == (0, "")
    lines = [line.split(",") for line in said.out.splitlines()]
    values = np.array(lines[1:], dtype=float)[:, 1:]
    expected = load_run(tmp_path / "run").predict_proba(named.X[:3])
    assert values == pytest.approx(expected, abs=1e-5)


def test_a_run_keeps_thresholds_tuned_on_its_validation_rows(
    table: MultiLabelData, tmp_path: Path
) -> None:
    result = small_run(table, out=tmp_path)
    saved = load_run(tmp_path)
    problem = make_problem(RunConfig.from_dict(result.config), table)
    rows = {
        name: prepare(table).rows[getattr(problem, name).rows] for name in ("validation", "test")
    }
    scores = {name: saved.predict_proba(table.X[which]) for name, which in rows.items()}
    tuned = tune_thresholds(table.Y[rows["validation"]], scores["validation"])
    np.testing.assert_allclose(saved.thresholds, tuned, atol=1e-6)
    again = evaluate(table.Y[rows["test"]], scores["test"], thresholds=saved.thresholds)
    assert again.values["macro_f1_tuned"] == pytest.approx(result.test["macro_f1_tuned"])
    assert "macro_f1_tuned" not in result.validation  # tuned there, it would flatter
    decided = saved.predict(table.X)
    assert (decided == (saved.predict_proba(table.X) >= saved.thresholds)).all()
    assert (saved.predict(table.X, 0.5) == (saved.predict_proba(table.X) >= 0.5)).all()


def test_the_command_predicts_labels_by_the_thresholds_of_the_run(
    named: MultiLabelData, tmp_path: Path
) -> None:
    small_run(named, out=tmp_path / "run", epochs=2, warmup=1)
    save(named, tmp_path / "rows.npz")
    out = tmp_path / "labels.csv"
    words = ["predict", str(tmp_path / "run"), str(tmp_path / "rows.npz")]
    with pytest.raises(SystemExit):
        main([*words, "--labels", "-o", str(out)])
    expected = load_run(tmp_path / "run").predict(named)
    assert (pd.read_csv(out, index_col="row").to_numpy() == expected).all()
