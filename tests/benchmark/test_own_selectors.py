"""Selectors of one's own in a grid and its report: their code counts, however they are named."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from report_data import result, scored

from d2ace._util.errors import UserError
from d2ace.benchmark.plan.grid import load_grid, make_grid
from d2ace.benchmark.plan.specs import RunSpec
from d2ace.benchmark.store.database import Store
from d2ace.report.collect import collect
from d2ace.report.tables.cost import failures, inventory, missing_runs
from d2ace.report.tables.studies import sweep
from d2ace.report.tables.table import ReportTable
from d2ace.selectors import find_selector

SMALL: dict[str, Any] = {"datasets": ["digits"], "models": ["mlp"]}


def test_own_selectors_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "import d2ace\n\nclass Mine(d2ace.Random):\n    name = 'mine'\n"
    )
    path = tmp_path / "mine.toml"
    path.write_text('datasets = ["digits"]\nmodels = ["mlp"]\nselectors = ["mine.py:Mine"]\n')
    spec = load_grid(path).specs[0]
    assert spec.method == "Mine"
    assert spec.config["selector"] == f"{tmp_path / 'mine.py'}:Mine"
    monkeypatch.chdir(tmp_path)
    assert make_grid({**SMALL, "selectors": ["mine.py:Mine"]}).specs[0].key == spec.key
    with (tmp_path / "mine.py").open("a") as file:
        file.write("# changed\n")
    assert load_grid(path).specs[0].key != spec.key


def test_an_edit_counts_though_the_file_has_the_size_and_time_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By which Python tells whether the bytecode that it kept still holds."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    for value in (1, 2):
        file.write_text(f"import d2ace\n\nclass Mine(d2ace.Random):\n    value = {value}\n")
        os.utime(file, (1_000_000_000, 1_000_000_000))
        assert find_selector(f"{file}:Mine").value == value


def test_own_selectors_by_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that holds the class counts, also where another module hands it on."""
    (tmp_path / "own_part.py").write_text("import d2ace\n\nclass Mine(d2ace.Random):\n    pass\n")
    (tmp_path / "own_front.py").write_text("from own_part import Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    chosen = {**SMALL, "selectors": ["own_front:Mine"]}
    (first, *_) = make_grid(chosen).specs
    content = (tmp_path / "own_part.py").read_bytes()
    assert first.config["selector_source"] == hashlib.sha256(content).hexdigest()
    assert first.config["selector"] == "own_front:Mine"
    with (tmp_path / "own_part.py").open("a") as file:
        file.write("# changed\n")
    with pytest.raises(UserError, match=r"own_part\.py has changed since Python imported the sel"):
        make_grid(chosen)  # or the code of before would run under the new checksum
    for module in ("own_part", "own_front"):  # as in a new process
        del sys.modules[module]
    assert make_grid(chosen).specs[0].key != first.key
    library = make_grid({**SMALL, "selectors": ["d2ace.selectors.recent:Recent"]}).specs[0]
    assert library.config["selector_source"] is None
    with pytest.raises(UserError, match="The selector 'no_such_module:Mine' cannot be found"):
        make_grid({**SMALL, "selectors": ["no_such_module:Mine"]})


# Versions -----------------------------------------------------------------------------------


def attempt(store: Store, source: str, fold: int = 0, *, fails: bool = False) -> None:
    config = {"data": "yeast", "model": "mlp", "selector": "/here/mine.py:Mine", "epochs": 3}
    spec = RunSpec("main", "Mine", {**config, "selector_source": source * 64, "fold": fold})
    if fails:
        store.fail(spec, "NameError: name 'nump' is not defined")
    else:
        store.add(spec, result(spec))


def test_a_slip_that_was_mended_leaves_the_method_its_name(store: Store) -> None:
    for fold in range(2):
        scored(store, "Random", "random", 0.7, fold)
        attempt(store, "b", fold)
    attempt(store, "a", fold=4, fails=True)
    laboratory = collect(store)
    assert laboratory.methods == ["Random", "Mine"]
    assert missing_runs(laboratory) == []
    table = failures("failed", laboratory)
    assert table is not None
    assert [row[3].text for row in table.rows] == ["Mine [aaaaaaaa]"]
    (row,) = inventory("runs", laboratory).rows
    assert [cell.text for cell in row[3:]] == ["2", "2", "1", "4", "1", "0"]
    attempt(store, "a")  # which now has finished, too
    assert collect(store).methods == ["Random", "Mine [aaaaaaaa]", "Mine [bbbbbbbb]"]


def test_a_version_that_still_fails_is_missing(store: Store) -> None:
    for fold in range(2):
        scored(store, "Random", "random", 0.7, fold)
        attempt(store, "b", fold, fails=fold == 1)
    assert missing_runs(collect(store)) == ["main, MLP on yeast: Mine (1)"]


def test_a_method_that_only_failed_is_missing(store: Store) -> None:
    scored(store, "Random", "random", 0.7)
    attempt(store, "b", fails=True)
    assert missing_runs(collect(store)) == ["main, MLP on yeast: Mine (1)"]


# Sweeps -------------------------------------------------------------------------------------

OWN = """
import d2ace

class Mine(d2ace.D2ACE):
    def __init__(self, labels, features=None, *, k=2, share=None, **more):
        super().__init__(labels, features, **more)
        self.share = 0.5 if share is None else share
"""


def headings(store: Store, selector: str, option: str, values: list[Any], **more: Any) -> list[str]:
    """The columns of a sweep's table behind the number of runs."""
    for fold in range(2):
        for value in values:
            chosen = {"study": "sweep", "selector_options": {option: value}, **more}
            scored(store, f"{option}={value}", selector, 0.7, fold, **chosen)
    (one,) = [one for one in collect(store).sweeps if one.options == (option,)]
    table = sweep("sweep", one)
    return table.columns[table.columns.index("Runs") + 1 :]


@pytest.mark.parametrize(
    ("selector", "option", "values", "shown"),
    [
        ("d2ace", "neighbors", [4, 6], "6"),
        ("d2ace", "pressure", [8, 100], "100"),  # which the class above takes
        ("recent", "pressure", [8, 100.0], "100"),
        ("d2ace", "hardness_loss", ["bce", "prob"], "bce"),  # None by default
        ("d2ace", "mix_epochs", [[10, 70], [30, 70]], "30 → 70"),
    ],
)
def test_a_sweep_knows_the_methods_own_value(
    store: Store, selector: str, option: str, values: list[Any], shown: str
) -> None:
    assert headings(store, selector, option, values) == [f"Macro-AUC against {shown}"]


def test_a_methods_own_value_is_that_of_its_preset(store: Store) -> None:
    for value in (8, 100):
        options = {"preset": "reference", "pressure": value}
        scored(store, f"s0={value}", "d2ace", 0.7, study="sweep", selector_options=options)
    (one,) = collect(store).sweeps
    assert sweep("sweep", one).columns[-1] == "Macro-AUC against 8"


def own_sweep(
    store: Store, folder: Path, vary: dict[str, list[Any]], selector: Any = "mine.py:Mine"
) -> ReportTable:
    """The table of a sweep that was described as a grid, of its last study."""
    settings = {**SMALL, "kind": "sweep", "vary": vary, "selectors": [selector], "run_folds": [0]}
    for spec in make_grid(settings, folder=folder).specs:
        store.add(spec, result(spec))
    return sweep("sweep", collect(store).sweeps[-1])


@pytest.mark.parametrize(
    ("vary", "shown"),
    [
        ({"k": [1, 2]}, "2"),
        ({"share": [0.1, 0.5]}, "0.5"),  # None by default
        ({"window": [3, 5]}, "5"),  # which the class above takes
        ({"mix_epochs": [[10, 70], [30, 70]]}, "30 → 70"),
        ({"k": [1, 2], "window": [3, 5]}, "2, 5"),
        ({"k": [1, 3]}, None),  # its own was not run
        ({"share": [{"of": 1}, {"of": 2}]}, None),
    ],
)
def test_an_own_selectors_values_are_stored_with_its_runs(
    store: Store, tmp_path: Path, vary: dict[str, list[Any]], shown: str | None
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    table = own_sweep(store, tmp_path, vary)
    after = table.columns[table.columns.index("Runs") + 1 :]
    assert after == ([] if shown is None else [f"Macro-AUC against {shown}"])
    file.unlink()  # nobody asks it
    assert sweep("sweep", collect(store).sweeps[-1]) == table
    store.export(tmp_path / "results.csv")
    with Store(tmp_path / "taken.db") as taken:
        taken.import_(tmp_path / "results.csv")
        assert sweep("sweep", collect(taken).sweeps[-1]) == table


def test_own_values_depend_on_the_other_options(store: Store, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    reference = {"name": "mine.py:Mine", "options": {"preset": "reference"}}
    table = own_sweep(store, tmp_path, {"pressure": [8, 100]}, reference)
    assert table.columns[-1] == "Macro-AUC against 8"


def test_runs_stored_without_own_values_say_so_until_the_sweep_is_described_again(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    settings = {**SMALL, "kind": "sweep", "vary": {"k": [1, 2]}, "selectors": ["mine.py:Mine"]}
    specs = make_grid(settings, folder=tmp_path).specs
    for spec in specs:
        store.add(RunSpec(spec.study, spec.method, spec.config), result(spec))  # as it was before
    before = sweep("sweep", collect(store).sweeps[0])
    assert before.columns[-1] == "Runs"
    assert (
        "default value was not stored with these runs; run the same d2ace sweep" in before.caption
    )
    store.link(specs)
    after = sweep("sweep", collect(store).sweeps[0])
    assert after.columns[-1] == "Macro-AUC against 2"
    assert "was not stored" not in after.caption


def test_sweeps_of_two_methods_have_titles_of_their_own(store: Store) -> None:
    from d2ace.report import published, sections

    for selector in ("d2ace", "recent"):
        for window in (3, 5):
            options = {"window": window}
            more = {"study": "sweep", "selector_options": options}
            scored(store, f"n_t={window}", selector, 0.7, **more)
    report = sections.build(collect(store), published.load(None))
    (section,) = [section for section in report.sections if section.name == "sweeps"]
    assert [group.title for group in section.groups] == [
        "Window n_t of D2ACE, MLP on yeast",
        "Window n_t of Recent, MLP on yeast",
    ]
    titles = [part.title for part in section.parts]
    assert len(set(titles)) == len(titles) == 6
    assert "Sweep over n_t of Recent, MLP on yeast" in titles
    assert "Macro-AUC over window n_t of Recent, MLP on yeast" in titles
    names = {part.name for part in section.parts}
    assert {"sweep-plot-window-mlp-yeast-macro-auc", "sweep-window-recent-mlp-yeast"} <= names
