"""Readers of VOC2007, COCO, CSV and YOLO layouts on datasets that the tests make."""

from __future__ import annotations

import gzip
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from image_makers import annotation, coco_json, jpeg, make_coco, make_csv, make_voc, picture, put

from d2ace.data import DataError, UnknownDataError
from d2ace.data.images import ImageData, load_images, read_image


def labels(data: ImageData) -> list[set[str]]:
    return [{data.label_names[j] for j in row.indices} for row in data.Y]


def zipped(folder: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder).as_posix())
    return target


# VOC2007

OBJECTS = {
    "000005": [("chair", 0), ("chair", 1), ("dog", 0)],
    "000007": [],
    "000009": [("person", 1), ("horse", 1)],
    "000012": [("person", 1), ("person", 0)],
}


def test_voc_splits_and_difficult_objects(tmp_path: Path) -> None:
    make_voc(tmp_path, OBJECTS)
    data = load_images("voc2007", tmp_path)
    assert data.split_names == ("trainval", "test")
    assert data.rows("trainval").tolist() == [0, 1, 2, 3]
    assert data.rows("test").tolist() == [4]
    assert labels(data) == [{"chair", "dog"}, set(), set(), {"person"}, {"cat"}]
    assert (data.Y.format, data.Y.dtype, data.q) == ("csr", np.uint8, 20)
    assert data.label_names == tuple(sorted(data.label_names))
    assert Path(data.place(0)) == tmp_path / "VOCdevkit/VOC2007/JPEGImages/000005.jpg"


def test_voc_from_the_kit_itself_from_a_split_and_from_an_archive(tmp_path: Path) -> None:
    base = make_voc(tmp_path / "all", OBJECTS)
    whole = load_images("voc2007", tmp_path / "all")
    packed = zipped(tmp_path / "all", tmp_path / "voc.zip")
    for root in (base, base.parent, packed):
        data = load_images("voc2007", root)
        assert (data.Y != whole.Y).nnz == 0
    assert load_images("voc2007", base, "test").n == 1
    assert labels(load_images("voc2007", base, unlabelled="drop")) == [
        {"chair", "dog"}, {"person"}, {"cat"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (annotation([("catt", 0)]), r"class 'catt' \(did you mean 'cat'"),
        (annotation([("cat", 7)]), "it is 0 or 1"),
        ('<!DOCTYPE a [<!ENTITY x "y">]><annotation/>', "document type"),
        ("<annotation>", "not well-formed XML"),
        ("<notes/>", "not with VOC's <annotation>"),
        (None, "no such file"),
    ],
)
def test_voc_refuses_a_bad_annotation_with_its_path(
    tmp_path: Path, content: str | None, message: str
) -> None:
    base = make_voc(tmp_path, OBJECTS)
    path = base / "Annotations" / "000009.xml"
    path.unlink() if content is None else put(path, content)
    with pytest.raises(DataError, match=message) as caught:
        load_images("voc2007", tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("000005\n../../../../etc/passwd\n", "line 2: '../../../../etc/passwd' is not the name"),
        ("000005\n000005\n", "listed in 'trainval' and again in 'trainval'"),
        ("000005\n000900\n", "listed in 'trainval' and again in 'test'"),
        ("\n", "holds no images"),
        ("000005 -1\n", "'000005 -1' is not the name of an image"),
    ],
)
def test_voc_refuses_a_bad_list(tmp_path: Path, listed: str, message: str) -> None:
    base = make_voc(tmp_path, OBJECTS)
    put(base / "ImageSets" / "Main" / "trainval.txt", listed)
    with pytest.raises(DataError, match=message):
        load_images("voc2007", tmp_path)


def test_voc_names_the_splits_that_are_there(tmp_path: Path) -> None:
    base = make_voc(tmp_path, OBJECTS)
    (base / "ImageSets" / "Main" / "test.txt").unlink()
    with pytest.raises(UnknownDataError, match=r"test\.txt: no such split; there is trainval "):
        load_images("voc2007", tmp_path)
    with pytest.raises(UnknownDataError, match="holds no VOCdevkit/VOC2007"):
        load_images("voc2007", base / "JPEGImages")


def test_missing_images_are_named_and_counted(tmp_path: Path) -> None:
    base = make_voc(tmp_path, OBJECTS)
    for name in ("000007", "000012"):
        (base / "JPEGImages" / f"{name}.jpg").unlink()
    with pytest.raises(DataError, match=r"000007\.jpg: no such image \(and 1 more of 5\)"):
        load_images("voc2007", tmp_path)


# COCO


def test_coco_orders_labels_by_id_and_keeps_empty_images(tmp_path: Path) -> None:
    data = load_images("coco", make_coco(tmp_path, coco_json()), "train2014")
    assert data.label_names == ("cat", "dog")
    assert data.files == ("train2014/b.jpg", "train2014/a.jpg", "train2014/c d.jpg")
    assert data.Y.toarray().tolist() == [[1, 1], [1, 0], [0, 0]]
    assert data.Y.data.max() == 1
    assert load_images("coco", tmp_path, "train2014", unlabelled="drop").n == 2


@pytest.mark.parametrize("folder", ["train2014", "images/train2014", "images", "."])
def test_coco_finds_the_images(tmp_path: Path, folder: str) -> None:
    data = load_images("coco", make_coco(tmp_path, coco_json(), folder), "train2014")
    assert Path(data.place(1)) == tmp_path / folder / "a.jpg"


def test_coco_takes_train_and_val_of_2014_by_default_also_compressed(tmp_path: Path) -> None:
    make_coco(tmp_path, coco_json())
    make_coco(tmp_path, coco_json(), "val2014", "val2014")
    plain = tmp_path / "annotations" / "instances_val2014.json"
    put(plain.with_name("instances_val2014.json.gz"), gzip.compress(plain.read_bytes()))
    plain.unlink()
    data = load_images("coco", tmp_path)
    assert data.split_names == ("train2014", "val2014")
    assert data.rows("val2014").tolist() == [3, 4, 5]


def test_coco_names_the_splits_that_are_there(tmp_path: Path) -> None:
    make_coco(tmp_path, coco_json(), "shots", "shots")
    with pytest.raises(UnknownDataError, match="there is: shots"):
        load_images("coco", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            coco_json(images=[{"id": 1, "file_name": "../../secret.jpg"}]),
            "leads out of the dataset",
        ),
        (coco_json(images=[{"id": 1, "file_name": "/etc/passwd"}]), "leads out of the dataset"),
        (coco_json(images=[{"id": 1, "file_name": "C:\\a.jpg"}]), "leads out of the dataset"),
        (coco_json(images=[{"id": 1}]), "no text 'file_name'"),
        (coco_json(images=[{"id": 7, "file_name": x} for x in "ab"]), "two images with id 7"),
        (
            coco_json(images=[{"id": i, "file_name": "a.jpg"} for i in (5, 7)]),
            "listed in 'train2014' and again",
        ),
        (coco_json(annotations=[{"image_id": 4, "category_id": 3}]), "annotates image 4"),
        (coco_json(annotations=[{"image_id": 5, "category_id": 4}]), "uses category 4"),
        (coco_json(annotations=[{"image_id": True, "category_id": 4}]), "no number 'image_id'"),
        (coco_json(categories=[{"id": 3, "name": "cat"}] * 2), "two categories with id 3"),
        (coco_json(categories=[{"id": i, "name": "cat"} for i in (3, 18)]), "'cat' twice"),
        ("[" * 100_000, "not valid JSON"),
        ('{"images": []', "not valid JSON"),
        ('{"images": []}', "no COCO instances file"),
        ("7", "no COCO instances file"),
    ],
)
def test_coco_refuses_a_bad_file(tmp_path: Path, content: object, message: str) -> None:
    make_coco(tmp_path, content)
    with pytest.raises(DataError, match=message):
        load_images("coco", tmp_path, "train2014")


def test_coco_splits_must_agree_about_categories(tmp_path: Path) -> None:
    make_coco(tmp_path, coco_json())
    other = [{"id": 18, "name": "dog"}, {"id": 3, "name": "cow"}]
    make_coco(tmp_path, coco_json(categories=other), "val2014", "val2014")
    with pytest.raises(DataError, match="other categories than train2014"):
        load_images("coco", tmp_path)


# A CSV of labels


def test_csv_with_a_column_for_each_label_and_splits(tmp_path: Path) -> None:
    text = "image,split,sky,water\r\na.jpg,train,1,0\r\nsub/b.jpg,test,1,1\r\nc.jpg,train,0,0\r\n"
    data = load_images("csv", make_csv(tmp_path, text, ["a.jpg", "sub/b.jpg", "c.jpg"]))
    assert data.label_names == ("sky", "water")
    assert data.files == ("a.jpg", "c.jpg", "sub/b.jpg")
    assert data.Y.toarray().tolist() == [[1, 0], [0, 0], [1, 1]]
    assert data.rows("test").tolist() == [2]
    assert load_images("csv", tmp_path, "test").files == ("sub/b.jpg",)


def test_csv_with_named_labels(tmp_path: Path) -> None:
    text = "\ufeffimage,labels\na.jpg,water; sky\nb.jpg,\nc.jpg,sky\n"
    data = load_images("csv", make_csv(tmp_path, text))
    assert labels(data) == [{"sky", "water"}, set(), {"sky"}]
    assert data.label_names == ("sky", "water")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,sky\na.jpg,2\n", r"line 2: the label 'sky' is '2'; it must be 0 or 1"),
        ("image,sky\na.jpg\n", "line 2: has 1 cells, and the header has 2"),
        ("image,sky\n../a.jpg,1\n", r"line 2: the file name '../a.jpg' leads out"),
        ("file,sky\na.jpg,1\n", "line 1: needs a header with the column 'image'"),
        ("image,sky,sky\na.jpg,1,1\n", "no name twice"),
        ("image,sky\na.jpg,1\na.jpg,0\n", "listed in 'all' and again in 'all'"),
        ('image,sky\n"a.jpg,1\n', "is not CSV"),
        ("image\na.jpg\n", "has no labels"),
        ("image,sky\n", "holds no split"),
        ("image,split,sky\na.jpg,train,1\nb.jpg,,1\n", "line 3: names no split"),
    ],
)
def test_csv_refuses_a_bad_table(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_images("csv", make_csv(tmp_path, text))


# YOLO


@pytest.mark.parametrize("folder", ["images/train", "train"])
def test_yolo(tmp_path: Path, folder: str) -> None:
    put(tmp_path / "classes.txt", "cat\nhot dog\n\n")
    put(tmp_path / "labels/train/a.txt", "1 0.5 0.5 0.1 0.1\n1 0.2 0.2 0.1 0.1\n\n")
    put(tmp_path / "labels/train/empty.txt", "")
    for seed, name in enumerate(("a.jpg", "empty.jpg", "no_file.png")):
        put(tmp_path / folder / name, jpeg(picture(seed)))
    put(tmp_path / folder / "notes.md", "not an image")
    data = load_images("yolo", tmp_path)
    assert data.Y.toarray().tolist() == [[0, 1], [0, 0], [0, 0]]
    assert data.split_names == ("train",)
    put(tmp_path / "labels/train/a.txt", "0 0.5 0.5 0.1 0.1\n2 0.5 0.5 0.1 0.1\n")
    with pytest.raises(DataError, match=r"a\.txt, line 2: has class 2, but classes\.txt names 2"):
        load_images("yolo", tmp_path)
    put(tmp_path / "labels/train/a.txt", "cat 0.5 0.5 0.1 0.1\n")
    with pytest.raises(DataError, match=r"line 1: 'cat 0\.5 .*' is not 'class x y width height'"):
        load_images("yolo", tmp_path)
    put(tmp_path / "classes.txt", "cat\n \nhot dog\n")  # else class 1 were the hot dog
    with pytest.raises(DataError, match=r"classes\.txt, line 2: is blank, but names a class"):
        load_images("yolo", tmp_path)


# Common to all


def test_unknown_layouts_and_absent_folders_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("D2ACE_DATA", raising=False)
    put(tmp_path / "a.tar", "")
    for kind, root, message in (
        ("voc", tmp_path, "did you mean 'voc2007'"),
        ("csv", None, "needs a root"),
        ("coco", None, "set D2ACE_DATA to a folder that holds coco"),
        ("coco", tmp_path / "absent", "no such folder or archive"),
        ("coco", tmp_path / "a.tar", "neither a folder nor a .zip"),
        ("csv", tmp_path, r"labels\.csv: no such file"),
        ("yolo", tmp_path, r"classes\.txt: no such file"),
        ("corel5k-images", tmp_path, "holds no labels/words"),
    ):
        with pytest.raises(UnknownDataError, match=message):
            load_images(kind, root)
    put(tmp_path / "b.zip", "PK no zip")
    with pytest.raises(DataError, match="damaged or not a zip archive"):
        load_images("voc2007", tmp_path / "b.zip")
    with pytest.raises(UnknownDataError, match="on_broken='ignore' is unknown"):
        load_images("csv", tmp_path, on_broken="ignore")  # type: ignore[arg-type]


def test_a_root_is_found_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_voc(tmp_path / "voc2007", OBJECTS)
    monkeypatch.setenv("D2ACE_DATA", str(tmp_path))
    assert load_images("voc2007").n == 5


def test_rows_and_labels_can_be_chosen(tmp_path: Path) -> None:
    make_voc(tmp_path, OBJECTS)
    data = load_images("voc2007", tmp_path)
    part = data.subset([4, 0])
    assert (part.files, part.rows("test").tolist()) == ((data.files[4], data.files[0]), [0])
    assert (data.Y[[4, 0]] != part.Y).nnz == 0
    frequent = data.with_labels(np.asarray(data.Y.sum(0)).ravel() > 0)
    assert frequent.label_names == ("cat", "chair", "dog", "person")
    assert labels(frequent) == labels(data)
    with pytest.raises(UnknownDataError, match="no split 'val'; it has: trainval, test"):
        data.rows("val")
    assert repr(data) == "ImageData('voc2007', n=5 (trainval 4, test 1), q=20)"


def test_splits_may_be_many(tmp_path: Path) -> None:
    names = [f"{k}.jpg" for k in range(200)]
    text = "image,split,sky\n" + "".join(f"{name},s{name[:-4]},1\n" for name in names)
    data = load_images("csv", make_csv(tmp_path, text, names))
    assert data.rows("s150").tolist() == [150]


def test_an_absurdly_large_file_is_not_read(tmp_path: Path) -> None:
    data = load_images("csv", make_csv(tmp_path, "image,sky\na.jpg,1\n"))
    os.truncate(tmp_path / "a.jpg", 300 << 20)  # takes no room on the disk
    with pytest.raises(DataError, match=r"a\.jpg: has 314572800 bytes, more than"):
        read_image(data, 0)
