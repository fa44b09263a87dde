"""Files that cannot be used: one `DataError` that names the place, at once, in little memory."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from d2ace.data import DataError, UnknownDataError, load

HEAD = "@relation r\n@attribute x numeric\n@attribute c {u,v}\n@attribute l {0,1}\n@data\n"
ROW = "1,u,1\n"

# What is in the file, the line that the error must name (0: the whole file), and its words.
TEXTS = {
    "no @data": (
        "@relation r\n@attribute x numeric\n@attribute l {0,1}\n1,1\n",
        5,
        "without @data",
    ),
    "no rows": (HEAD + "% nothing\n\n", 5, "no rows after @data"),
    "no attributes": ("@relation r\n@data\n1,2\n", 2, "declares no @attribute"),
    "cut in the header": (HEAD[:40], 3, "without @data"),
    "cut in a row": (HEAD + ROW + "1,u", 7, "has 2 values for 3 attributes"),
    "too many columns": (HEAD + ROW + ROW + "1,u,1,0\n", 8, "has 4 values for 3 attributes"),
    "no number": (HEAD + ROW + "a,u,1\n", 7, "'a' of attribute 'x' is not a number"),
    "an empty cell": (HEAD + ROW + ",u,1\n", 7, "'' of attribute 'x' is not a number"),
    "infinite": (HEAD + "1e999,u,1\n", 6, "too large"),
    "too large": (HEAD + "1e39,u,1\n", 6, "too large"),
    "not a number, said so": (HEAD + "nan,u,1\n", 6, "is not a number"),
    "undeclared value": (HEAD + "% c\n\n1,w,1\n", 8, "'w' of attribute 'c' is not one of the"),
    "label 2": (HEAD + ROW + "1,u,2\n", 7, "'2' of attribute 'l' is not one of the"),
    "label missing": (HEAD + ROW + "1,u,?\n", 7, "label 'l' is missing"),
    "numeric label 2": (
        HEAD.replace("l {0,1}", "l numeric") + ROW + "1,v,1\n0,u,2\n",
        8,
        "has 2 as label 'l'",
    ),
    "label of words": (HEAD.replace("{0,1}", "{no,yes}") + "1,u,no\n", 0, "labels must be 0 or 1"),
    "duplicate attribute": (HEAD.replace("attribute c", "attribute x") + ROW, 3, "'x' twice"),
    "duplicate value": (HEAD.replace("{u,v}", "{u,u}") + ROW, 3, "a repeated value"),
    "empty value": (HEAD.replace("{u,v}", "{u,}") + ROW, 3, "an empty or a repeated"),
    "open brace": (HEAD.replace("{u,v}", "{u,v") + ROW, 3, "no complete list of values"),
    "unknown type": (HEAD.replace("numeric", "relational") + ROW, 2, "has type 'relational'"),
    "no type": (HEAD.replace("x numeric", "x") + ROW, 2, "is no complete attribute"),
    "open quote in the header": (HEAD.replace("{u,v}", "{'u,v}") + ROW, 3, "quote that stays open"),
    "open quote in a row": (HEAD + ROW + "1,'u,1\n", 7, "quote that stays open"),
    "stray words": ("hello\n" + HEAD + ROW, 1, "expected @relation, @attribute or @data"),
    "index out of range": (HEAD + "{0 1,3 1}\n", 6, "index '3' is out of range: 3 attributes"),
    "negative index": (HEAD + "{0 1}\n{-1 1}\n", 7, "index '-1' is out of range"),
    "broken index": (HEAD + "{1.5 1}\n", 6, "index '1.5' is out of range"),
    "huge index": (HEAD + "{99999999999999999999 1}\n", 6, "is out of range"),
    "no pair": (HEAD + "{0 1}\n{0}\n", 7, "'0' is not a pair"),
    "empty pair": (HEAD + "{0 1,,2 1}\n", 6, "is not a pair"),
    "index twice": (HEAD + "{0 1}\n{0 1,2 1,0 3}\n", 7, "gives index 0 twice"),
    "open sparse row": (HEAD + "{0 1}\n{0 1\n", 7, "without its closing brace"),
    "sparse among dense": (HEAD + ROW + "{0 1}\n", 7, "mixes sparse rows"),
    "date of an unknown form": (
        HEAD.replace("x numeric", "x date 'yyyyyyyy'") + ROW,
        2,
        "has the unknown form date 'yyyyyyyy'",
    ),
    "no date": (HEAD.replace("x numeric", "x date") + "'1 May',u,1\n", 6, "is no date of the form"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_bad_text(case: str, tmp_path: Path) -> None:
    text, line, words = TEXTS[case]
    path = tmp_path / "bad.arff"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        load(path, labels=["l"], cache=False)
    message = str(caught.value)
    assert message.startswith(f"{path}, line {line}: " if line else f"{path}: ")
    assert words in message
    assert "\n" not in message
    assert isinstance(caught.value, ValueError)


BYTES = {
    "empty.arff": (b"", "is empty"),
    "garbage.arff": (bytes(range(256)) * 50, "holds binary bytes"),
    "text.arff": (b"Dear reader,\nthis is a letter.\n", "without @data"),
    "cut.arff.gz": (gzip.compress(HEAD.encode() * 500)[:-20], "truncated or not a .gz file"),
    "head.arff.gz": (gzip.compress(HEAD.encode())[:15], "truncated or not a .gz file"),
    "other.arff.gz": (HEAD.encode() + ROW.encode(), "truncated or not a .gz file"),
    "cut.arff.bz2": (bz2.compress(HEAD.encode() * 500)[:-20], "truncated or not a .bz2 file"),
    "nothing.arff.gz": (gzip.compress(b""), "is empty after decompression"),
    "table.xlsx": (b"1,2,3\n", "unknown format; files end in .arff"),
}


@pytest.mark.parametrize("name", BYTES)
def test_bad_bytes(name: str, tmp_path: Path) -> None:
    content, words = BYTES[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        load(path, labels=1, cache=False)
    assert str(path) in str(caught.value)


def test_a_folder_and_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "set.arff"
    folder.mkdir()
    with pytest.raises(UnknownDataError, match="is a directory"):
        load(folder, labels=1)
    for name in ("absent.arff", "a\0b.arff", "x" * 5000 + ".arff"):
        with pytest.raises(UnknownDataError, match=r"no such file|not a usable path"):
            load(str(tmp_path / name), labels=1)
    for nonsense in (None, 3, [], object()):
        with pytest.raises(UnknownDataError):
            load(nonsense)  # type: ignore[arg-type]


ENTITIES = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(20))
BOMB = f'<!DOCTYPE labels [<!ENTITY a0 "lol">{ENTITIES}]><labels><label name="&a20;"/></labels>'
OUTSIDE = (
    '<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/hostname">]><labels><label name="&x;"/></labels>'
)
LABEL_LISTS = {
    "entity bomb": (BOMB, "declares a document type or entities"),
    "outside entity": (OUTSIDE, "declares a document type or entities"),
    "undeclared entity": ('<labels><label name="&x;"/></labels>', "line 1: is not well-formed"),
    "not closed": ('<labels>\n<label name="l">\n', "line 3: is not well-formed"),
    "empty": ("", "is empty"),
    "no labels": ("<labels/>", "has no <label"),
    "nameless": ("<labels><label/></labels>", "has no <label"),
    "unknown label": ('<labels><label name="lable"/></labels>', "'lable' of .*bad.xml is no attr"),
    "label twice": ('<labels><label name="l"/><label name="l"/></labels>', "'l' twice"),
    "no encoding": ('<?xml version="1.0" encoding="martian"?><labels/>', "bad.xml"),
    "deep": ("<labels>" + "<label name='l'>" * 100_000, "is not well-formed"),
}


@pytest.mark.parametrize("case", LABEL_LISTS)
def test_bad_label_list(case: str, tmp_path: Path) -> None:
    text, words = LABEL_LISTS[case]
    (tmp_path / "bad.arff").write_text(HEAD + ROW)
    (tmp_path / "bad.xml").write_text(text)
    with pytest.raises(DataError, match=words) as caught:
        load(tmp_path / "bad.arff", cache=False)
    assert str(tmp_path / "bad.xml") in str(caught.value)


def inflated(head: bytes, filling: bytes) -> bytes:
    """``head`` and 512 MiB of filling, as gzip members one after the other."""
    return gzip.compress(head) + gzip.compress(filling * (1 << 24)) * 32


def one_hot_bomb() -> bytes:
    values = ",".join(f"v{i}" for i in range(60_000))
    head = f"@relation r\n@attribute c {{{values}}}\n@attribute l {{0,1}}\n@data\n"
    return (head + "v1,1\n" * 60_000).encode()


def sparse_one_hot_bomb() -> bytes:
    attributes = "".join(f"@attribute c{i} {{u,v,w}}\n" for i in range(5000))
    rows = "{}\n" * 100_000
    return f"@relation r\n{attributes}@attribute l {{0,1}}\n@data\n{rows}".encode()


def meka_bomb() -> bytes:
    return (HEAD.replace("r\n", "'r: -C 999999999'\n", 1) + ROW).encode()


# Small files that would need gigabytes if they were believed.
BOMBS: dict[str, tuple[str, Callable[[], bytes], dict[str, object]]] = {
    "zeros": ("bomb.arff.gz", lambda: inflated(b"", b"\0"), {"labels": 1}),
    "large": ("bomb.arff.gz", lambda: inflated(b"", b"\0") * 100, {"labels": 1}),
    "blank lines": ("bomb.arff.gz", lambda: inflated(HEAD.encode(), b"\n"), {"labels": 1}),
    "one-hot": ("wide.arff", one_hot_bomb, {"labels": 1, "nominal": "onehot"}),
    "one-hot, sparse": ("many.arff", sparse_one_hot_bomb, {"labels": 1, "nominal": "onehot"}),
    "meka": ("meka.arff", meka_bomb, {}),
    "sizes": ("sizes.svm", lambda: b"1 99999999999 99999999999\n0 0:1\n", {}),
    "feature index": ("index.svm", lambda: b"1 99999999999:1\n", {}),
    "label number": ("label.svm", lambda: b"99999999999 1:1\n", {}),
}

RUN = """
import json, resource, sys
from d2ace.data import DataError, load
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load(sys.argv[1], cache=False, **json.loads(sys.argv[2]))
except DataError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, "KiB more")
"""


def run(path: Path, options: dict[str, object]) -> list[str]:
    command = [sys.executable, "-c", RUN, str(path), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("case", BOMBS)
def test_bombs_are_refused_in_little_memory(case: str, tmp_path: Path) -> None:
    name, make, options = BOMBS[case]
    path = tmp_path / name
    path.write_bytes(make())
    message, memory = run(path, options)
    assert message.startswith(str(path))
    assert int(memory.split()[0]) < 300 * 1024


def test_memory_stays_near_the_size_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "long.arff"
    head = "@relation r\n" + "".join(f"@attribute x{i} numeric\n" for i in range(50))
    path.write_text(head + "@attribute l {0,1}\n@data\n" + ("0," * 50 + "1\n") * 50_000)
    (memory,) = run(path, {"labels": 1})
    assert int(memory.split()[0]) * 1024 < 20 * path.stat().st_size + (50 << 20)
