"""Results of somebody else: reading them runs nothing they name, and shows names as they are."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_data import LABELS, recording, result

from d2ace._util.errors import UserError
from d2ace.benchmark.plan.specs import RunSpec
from d2ace.benchmark.store.database import Store
from d2ace.cli.main import main
from d2ace.report import compare, published, sections
from d2ace.report.collect import collect
from d2ace.report.page import write_report
from d2ace.report.tables.table import ReportTable

TRAP = """
from pathlib import Path

Path({mark!r}).touch()

import d2ace

class Mine(d2ace.D2ACE):
    def __init__(self, labels, features=None, *, k=2, **more):
        Path({mark!r}).touch()
        super().__init__(labels, features, **more)
"""


def swept(store: Store, selector: str, source: str | None, **more: Any) -> None:
    """Runs as `d2ace sweep k=1,2 --selector ...` stores them, with one metric: less to draw."""
    config = {"data": "emotions", "selector": selector, "selector_source": source, "epochs": 2}
    for value in (1, 2):
        options = {"selector_options": {"k": value}}
        spec = RunSpec("sweep", f"Mine {options}", {**config, **options, **more})
        found = result(spec)
        found["test"] = dict.fromkeys(found["test"]) | {"macro_auc": found["test"]["macro_auc"]}
        store.add(spec, found)


@pytest.fixture
def trapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A folder whose store names code that lies there, checksums and all, and the code's mark."""
    mark = tmp_path / "it-ran"
    text = TRAP.format(mark=str(mark))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    for name in ("trap.py", "trap_module.py"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)  # as `python -m d2ace` does with the current folder
    with Store(tmp_path / "runs.db") as store:
        swept(store, f"{tmp_path / 'trap.py'}:Mine", checksum)
        swept(store, "trap.py:Mine", checksum, seed=1)
        swept(store, "trap_module:Mine", checksum)
        swept(store, "trap_module:Mine", None, seed=1)  # as of code without a source file
        swept(store, "d2ace", None, model=f"{tmp_path / 'trap.py'}:Mine")
        store.export(tmp_path / "results.csv")
    return tmp_path, mark


def test_python_reads_a_hostile_store_and_nothing_runs(trapped: tuple[Path, Path]) -> None:
    folder, mark = trapped
    with Store(folder / "runs.db", read_only=True) as store:
        laboratory = collect(store)
        assert len(laboratory.sweeps) == 5
        sections.build(laboratory, published.load(None))
        assert compare(store, store)["common"]
        assert len(store.runs()) == 10
    assert not mark.exists()


def test_csv_files_of_a_hostile_store_are_taken_and_nothing_runs(
    trapped: tuple[Path, Path],
) -> None:
    folder, mark = trapped
    with Store(folder / "taken.db") as store:
        store.import_(folder / "results.csv")
        sections.build(collect(store), published.load(None))
        store.export(folder / "again" / "results.csv")
    assert not mark.exists()


@pytest.mark.parametrize(
    "words",
    [
        "report runs.db -o report",
        "compare runs.db runs.db",
        "bench --datasets digits --dry-run --db runs.db",
        "bench --datasets digits --dry-run --db new.db --from results.csv",
        "sweep K --datasets digits --dry-run --db runs.db --from results.csv",
        "ablate --datasets digits --dry-run --db runs.db",
    ],
)
def test_commands_that_only_read_run_nothing_of_a_hostile_store(
    trapped: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    folder, mark = trapped
    monkeypatch.chdir(folder)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # which a command sets
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 0
    assert not mark.exists()


class Explosive:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_a_recording_with_a_pickle_is_refused_and_not_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    pickle.loads(pickle.dumps(Explosive(mark)))  # noqa: S301 - it would leave its mark
    mark.unlink()
    file = io.BytesIO()
    np.savez(file, rows=np.array([Explosive(mark)], dtype=object))
    spec = RunSpec("case", "D2ACE", {"data": "emotions", "record": True, "epochs": 2})
    with Store(tmp_path / "runs.db") as store:
        store.add(spec, result(spec), file.getvalue())
        with pytest.raises(UserError, match=r"runs\.db .*recording"):
            sections.build(collect(store), published.load(None))
    assert not mark.exists()


# Names --------------------------------------------------------------------------------------

SCRIPTS = (
    "<script>alert(1)</script>",
    "--></svg><script>alert(2)</script>",
    '"><img src=x onerror=alert(3)>',
    "${7*7}{{7*7}}$\\frac$",
)


def test_names_with_code_are_shown_as_they_are(tmp_path: Path) -> None:
    with Store(tmp_path / "runs.db") as store:
        for data in SCRIPTS[1:2]:
            for selector, method in (("random", "Random"), ("d2ace", f"D2ACE {SCRIPTS[1]}")):
                config = {"data": data, "selector": selector, "epochs": 20, "record": True}
                spec = RunSpec("case", method, config)
                found = result(spec) | {"history": []}
                store.add(spec, found, recording(spec, [*LABELS, *SCRIPTS]))
        for value in SCRIPTS[:2]:
            config = {"data": "yeast", "selector_options": {"label_weight": value}, "epochs": 2}
            spec = RunSpec("sweep", value, config)
            store.add(spec, result(spec))
        store.fail(RunSpec(SCRIPTS[0], SCRIPTS[3], {"data": SCRIPTS[2]}), SCRIPTS[0])
        page = write_report(store, tmp_path / "report").page.read_text(encoding="utf-8")
    assert len(re.findall("<script", page)) == 1  # our own
    assert "<img" not in page
    assert "${7*7}{{7*7}}$" in page
    for file in (tmp_path / "report" / "figures").glob("*.svg"):
        assert "<script" not in file.read_text(encoding="utf-8")
    for file in (tmp_path / "report" / "tables").glob("*.tex"):
        assert "\\frac" not in file.read_text(encoding="utf-8")


def test_a_name_is_no_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    formula = '=HYPERLINK("http://elsewhere","look")'
    with Store(tmp_path / "runs.db") as store:
        for selector in ("random", "d2ace"):
            spec = RunSpec("main", formula, {"data": "yeast", "selector": selector, "epochs": 2})
            store.add(spec, result(spec))
        report = sections.build(collect(store), published.load(None))
    parts = [part for section in report.sections for part in section.parts]
    tables = [part.csv() for part in parts if isinstance(part, ReportTable)]
    assert any("HYPERLINK" in text for text in tables)
    assert not [text for text in tables if re.search(r'(^|,)"?=', text, re.MULTILINE)]
