"""Label vectors from GloVe and CSV files, and those that are made up where there is none."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from image_makers import put

from d2ace.data import DataError
from d2ace.data.images import label_vectors
from d2ace.data.images.voc import CLASSES

GLOVE = """the 0.5 0.5 0.5
dining 1 0 0
table 0 1 0
cat 0 0 1
. . . 7 7 7
dog -1 0.25 2e-1
"""


def test_a_name_is_the_mean_of_its_words(tmp_path: Path) -> None:
    path = put(tmp_path / "glove.txt", GLOVE)
    found = label_vectors(["dog", "diningtable", "Dining_Table", "cat-dog"], path)
    assert np.allclose(found.Z, [[-1, 0.25, 0.2], [0.5, 0.5, 0], [0.5, 0.5, 0], [-0.5, 0.125, 0.6]])
    assert (found.Z.dtype, found.invented, found.source) == (np.float32, (), str(path))


def test_compressed_and_word2vec_headers_are_read(tmp_path: Path) -> None:
    plain = put(tmp_path / "glove.txt", GLOVE)
    packed = put(tmp_path / "vectors.txt.gz", gzip.compress(b"6 3\n" + GLOVE.encode()))
    names = ["cat", "dog"]
    assert (label_vectors(names, packed).Z == label_vectors(names, plain).Z).all()


def test_an_unknown_word_gets_the_fallback_and_is_named(tmp_path: Path) -> None:
    path = put(tmp_path / "glove.txt", GLOVE)
    found = label_vectors(["cat", "zzz", "zzz table"], path, seed=4)
    again = label_vectors(["cat", "zzz", "zzz table"], path, seed=4)
    assert found.invented == ("zzz",)
    assert "1 of 3 labels random" in found.source
    assert np.allclose(found.Z[[0, 2]], [[0, 0, 1], [0, 1, 0]])
    assert (found.Z == again.Z).all()
    assert found.Z[1].any()
    assert label_vectors(["xxx", "yyy"], path).Z.shape == (2, 3)  # as wide as the file


def test_without_a_file_all_vectors_are_seeded_normal_numbers() -> None:
    found = label_vectors(CLASSES)
    assert (found.Z.shape, found.invented) == ((20, 300), CLASSES)
    assert abs(float(found.Z.std()) - 0.38) < 0.01
    assert (found.Z == label_vectors(CLASSES, seed=0).Z).all()
    assert not (found.Z == label_vectors(CLASSES, seed=1).Z).any()
    assert found.source == "random, N(0, 0.38²), seed 0"


def test_csv_with_names_goes_by_name(tmp_path: Path) -> None:
    path = put(tmp_path / "z.csv", "dog,1,2\ncat,3,4\nextra,5,6\n7,8,9\n")
    assert label_vectors(["cat", "dog"], path).Z.tolist() == [[3, 4], [1, 2]]
    assert label_vectors(["7", "dog"], path).Z.tolist() == [[8, 9], [1, 2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,4\n5,6\n", "has 3 lines of numbers, but there are 2 labels"),
        ("cat,1,2\n", "no line for the label 'dog'"),
        ("cat,1,2\ndog,1\n", "different lengths"),
        ("cat,1,2\ndog,1,x\n", "line 2: does not hold finite numbers"),
        ("1,2\n1,nan\n", "line 2: does not hold finite numbers"),
        ("\n", "holds no vectors"),
    ],
)
def test_a_bad_csv_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        label_vectors(["cat", "dog"], put(tmp_path / "z.csv", text))


def test_a_bad_glove_file_is_refused(tmp_path: Path) -> None:
    for content, message in (
        (b"", "holds no vectors"),
        (b"cat 1 2\ndog 1 x\n", "line 2: does not hold finite numbers"),
    ):
        with pytest.raises(DataError, match=message):
            label_vectors(["cat", "dog"], put(tmp_path / "glove.txt", content))
    with pytest.raises(DataError, match="no such file"):
        label_vectors(["cat"], tmp_path / "absent.txt")
    with pytest.raises(DataError, match="cannot be read"):
        label_vectors(["cat"], put(tmp_path / "cut.txt.gz", gzip.compress(GLOVE.encode())[:-9]))


def test_the_files_of_ml_gcn_follow_the_alphabet(data_root: Path) -> None:
    folder = data_root / "ml-gcn"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    classes = (data_root / "coco128" / "classes.txt").read_text().split("\n")
    names = [name for name in classes if name]
    found = label_vectors(names, folder / "coco_glove_word2vec.csv.gz")
    stored = np.loadtxt(folder / "coco_glove_word2vec.csv.gz", delimiter=",", dtype=np.float32)
    assert (found.Z[names.index("airplane")] == stored[0]).all()
    unit = found.Z / np.linalg.norm(found.Z, axis=1, keepdims=True)
    near = unit @ unit.T - np.eye(80)
    # In any other order the neighbours would make no sense.
    for name, neighbour in (("cat", "dog"), ("fork", "spoon"), ("sheep", "cow"), ("bed", "couch")):
        assert names[int(near[names.index(name)].argmax())] == neighbour
    voc = label_vectors(CLASSES, folder / "voc_glove_word2vec.csv")
    assert voc.Z.shape == (20, 300)
    both = [(CLASSES.index(name), names.index(name)) for name in ("cat", "dog", "person", "bus")]
    assert all(np.allclose(voc.Z[i], found.Z[j], atol=1e-6) for i, j in both)
