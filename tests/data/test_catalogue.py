"""The catalogue against the paper, against the data folder's own description, and its manners."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from d2ace.data import DataError, DataWarning, UnknownDataError, catalogue, load

ENTRIES = list(catalogue.catalogue().values())
NAMES = [entry.name for entry in ENTRIES]

# The table of the paper: n, d (features kept), q, cardinality, density.
PAPER = {
    "cal500": (502, 68, 174, 26.04, 0.15),
    "birds": (645, 260, 19, 1.01, 0.05),
    "enron": (1702, 1001, 53, 3.38, 0.06),
    "scene": (2407, 294, 6, 1.07, 0.18),
    "yeast": (2417, 103, 14, 4.24, 0.30),
    "corel5k": (5000, 499, 374, 3.52, 0.01),
    "rcv1subset1": (6000, 944, 101, 2.88, 0.03),
    "rcv1subset2": (6000, 944, 101, 2.63, 0.03),
    "rcv1subset3": (6000, 944, 101, 2.61, 0.03),
    "bibtex": (7395, 1836, 159, 2.40, 0.02),
    "yahoo-arts1": (7484, 2314, 25, 1.67, 0.07),
    "yahoo-business1": (11214, 2192, 28, 1.47, 0.06),
    "mediamill": (43907, 120, 101, 4.38, 0.04),
}
DIFFERS = {"yahoo-arts1", "yahoo-business1"}  # in q and cardinality, as the entries say

pytestmark = pytest.mark.filterwarnings("ignore::d2ace.data.DataWarning")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D2ACE_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("entry", ENTRIES, ids=NAMES)
def test_entries_are_complete(entry: catalogue.Dataset) -> None:
    assert entry.citation.endswith(".")
    assert entry.density == pytest.approx(entry.cardinality / entry.q, abs=6e-5)
    assert any(file.role == "data" for file in entry.files)
    assert entry.label_location
    for file in entry.files:
        for checksum in (file.sha256, *file.known):
            assert re.fullmatch(r"[0-9a-f]{64}", checksum)
        assert file.size > 0
        assert not Path(file.path).is_absolute()
        assert ".." not in file.path
        if file.url is None:
            assert entry.unfetchable
        else:
            assert file.url.startswith("https://")
            assert re.search(r"/[0-9a-f]{40}/", file.url)


def test_the_thirteen_of_the_paper_come_first() -> None:
    assert NAMES[:13] == list(PAPER)
    for entry in ENTRIES:
        assert (entry.paper is not None) == (entry.name in PAPER)


@pytest.mark.parametrize("name", PAPER)
def test_the_entry_quotes_the_paper(name: str) -> None:
    entry = catalogue.get(name)
    n, d, q, cardinality, density = PAPER[name]
    assert dict(entry.paper or {}) == {"d": d, "q": q, "cardinality": cardinality}
    assert entry.n == n
    assert int(entry.d * (entry.feature_share or 1)) == d
    assert name in DIFFERS or entry.q == q
    assert name in DIFFERS or round(entry.cardinality, 2) == cardinality
    assert name in DIFFERS or round(entry.density, 2) == density
    assert name not in DIFFERS or any("the paper lists" in text for text in entry.defects)


@pytest.mark.parametrize("name", NAMES)
def test_every_dataset_is_what_its_entry_says(
    name: str, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("D2ACE_DATA", str(data_root))
    entry = catalogue.get(name)
    if not (data_root / Path(entry.files[0].path).parent).is_dir():
        pytest.skip(f"the data folder has no {name}")
    data = load(name, cache=False)
    assert data.name == name
    assert (data.n, data.d, data.q) == (entry.n, entry.d, entry.q)
    assert data.cardinality == pytest.approx(entry.cardinality, abs=6e-5)
    assert data.X.dtype == np.float32
    assert data.Y.dtype == np.uint8
    assert len(data.feature_names) == data.d
    assert len(data.label_names) == data.q
    assert set(np.unique(data.Y.data if sp.issparse(data.Y) else data.Y)) <= {0, 1}
    assert np.isfinite(data.X.data if sp.issparse(data.X) else data.X).all()


def described(data_root: Path) -> dict[str, tuple[int, int, int, float]]:
    """File, n, d, q and cardinality of every ARFF file, from the folder's own tables."""
    rows = {}
    for line in (data_root / "README.md").read_text(encoding="utf-8").splitlines():
        found = re.match(r"\| (\S+\.arff\S*) \| (\d+) \| (\d+) \| (\d+) \| ([\d.]+) \|", line)
        if found:
            rows[found[1]] = (int(found[2]), int(found[3]), int(found[4]), float(found[5]))
    return rows


def test_every_file_is_what_the_folder_says(data_root: Path) -> None:
    rows = described(data_root)
    assert len(rows) >= 42
    for file, (n, d, q, cardinality) in rows.items():
        data = load(data_root / file, drop=(), cache=False)
        assert (data.n, data.d, data.q) == (n, d, q), file
        assert data.cardinality == pytest.approx(cardinality, abs=6e-5), file


def test_checksums_are_those_of_the_folder(data_root: Path) -> None:
    listed = dict(
        reversed(line.split(maxsplit=1))
        for line in (data_root / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    )
    stored = {path.removeprefix("./").strip(): checksum for path, checksum in listed.items()}
    for entry in ENTRIES:
        for file in entry.files:
            known = {file.sha256, *file.known}
            found = stored.get(file.path + ".gz") or stored.get(file.path)
            assert found is None or found in known, file.path


def test_names_are_found_in_any_case_and_by_alias() -> None:
    assert catalogue.get("Corel5k").name == "corel5k"
    assert catalogue.get("yahoo-Arts1").name == catalogue.get("yahoo-arts").name == "yahoo-arts1"
    assert catalogue.get("rcvsubset2").name == "rcv1subset2"
    with pytest.raises(UnknownDataError, match="did you mean 'yeast'"):
        load("yeest")
    with pytest.raises(UnknownDataError, match="known names: digits, cal500"):
        load("qqqqqq")


def test_absent_files_come_with_directions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D2ACE_DATA", str(tmp_path))
    with pytest.raises(DataError, match="run: d2ace data fetch yeast, or set D2ACE_DATA"):
        load("yeast")
    with pytest.raises(DataError, match=r"cannot be fetched .* so set D2ACE_DATA"):
        load("rcv1subset1")
    monkeypatch.setenv("D2ACE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UnknownDataError, match=r"D2ACE_DATA is .*nowhere"):
        load("yeast")


@pytest.mark.parametrize(
    ("name", "shift", "spilled", "cardinality"),
    [
        ("rcv1subset1", 1, 92, 2.895),
        ("rcv1subset2", 12, 1538, 2.891),
        ("rcv1subset3", 14, 1743, 2.905),
    ],
)
def test_rcv1_as_circulated_and_repaired(
    name: str,
    shift: int,
    spilled: int,
    cardinality: float,
    data_root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("D2ACE_DATA", str(data_root))
    with pytest.warns(DataWarning, match="repair=True realigns it"):
        circulated = load(name)
    with pytest.warns(DataWarning, match="repair=True realigns it"):
        load(name)  # from the cache, and said again
    with pytest.warns(DataWarning, match="repair=True realigns it"):
        load(data_root / name / f"{name}.arff.gz")  # known by its checksum
    repaired = load(name, repair=True)
    assert repaired.cardinality == pytest.approx(cardinality, abs=6e-4)
    assert circulated.X.nnz - repaired.X.nnz == spilled
    assert repaired.Y.nnz - circulated.Y.nnz == spilled
    assert (circulated.X[:3000] != repaired.X[:3000]).nnz == 0
    assert (circulated.Y[:3000] != repaired.Y[:3000]).nnz == 0
    assert (circulated.Y[3000:, :-shift] != repaired.Y[3000:, shift:]).nnz == 0
    assert (circulated.X[3000:, -shift:] != repaired.Y[3000:, :shift]).nnz == 0
    assert repaired.X[3000:, -shift:].nnz == 0
    frequency = [
        np.asarray(repaired.Y[half].mean(axis=0)).ravel()
        for half in (slice(3000), slice(3000, None))
    ]
    assert np.corrcoef(*frequency)[0, 1] > 0.99
    norms = np.sqrt(repaired.X.multiply(repaired.X).sum(axis=1))
    np.testing.assert_allclose(norms, 1, atol=1e-4)
    assert repaired.label_names == circulated.label_names


def test_repair_is_refused_where_nothing_is_known(tmp_path: Path) -> None:
    path = tmp_path / "own.arff"
    path.write_text("@relation r\n@attribute x numeric\n@attribute l {0,1}\n@data\n1,1\n")
    with pytest.raises(UnknownDataError, match="no defect of this file is known"):
        load(path, labels=1, repair=True)


def test_genbase_without_its_identifier(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("D2ACE_DATA", str(data_root))
    assert "protein" not in load("genbase").feature_names
    assert load("genbase", drop=()).feature_names[0] == "protein"
    part = load(data_root / "genbase" / "genbase-train.arff.gz")
    assert (part.name, part.d) == ("genbase-train", 1185)


def test_parts_joined_are_the_whole(data_root: Path) -> None:
    for name in ("birds", "scene"):
        folder = data_root / name
        parts = load([folder / f"{name}-train.arff.gz", folder / f"{name}-test.arff.gz"])
        whole = load(folder / f"{name}.arff.gz")
        np.testing.assert_array_equal(parts.X, whole.X)
        np.testing.assert_array_equal(parts.Y, whole.Y)
        assert parts.label_names == whole.label_names


def test_another_file_under_a_known_name_is_pointed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mediamill").mkdir()
    labels = "".join(f"@attribute l{i} {{0,1}}\n" for i in range(101))
    text = f"@relation r\n@attribute x numeric\n{labels}@data\n1{',0' * 101}\n"
    (tmp_path / "mediamill" / "mediamill.arff").write_text(text)
    monkeypatch.setenv("D2ACE_DATA", str(tmp_path))
    with pytest.warns(DataWarning, match="not a copy of 'mediamill' that the catalogue knows"):
        data = load("mediamill")
    assert (data.name, data.q) == ("mediamill", 101)
