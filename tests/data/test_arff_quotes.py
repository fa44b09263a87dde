"""A quote or a brace that is not closed is told with its line, wherever it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from d2ace.data import DataError, load

LINES = [
    "@relation r",
    "@attribute x numeric",
    "@attribute c {u,v}",
    "@attribute t string",
    "@attribute l {0,1}",
    "@data",
    "1,u,a,1",
]
SPARSE = [*LINES[:-1], "{0 1,1 v,2 a,3 1}"]
OPEN = "quote that stays open"

# The line that is put in place of another, which one, and the words of the error.
DAMAGE: dict[str, tuple[list[str], int, str, str]] = {
    "name": (LINES, 2, "@attribute 'x numeric", OPEN),
    "name, double": (LINES, 2, '@attribute "x numeric', OPEN),
    "name, other quote": (LINES, 2, "@attribute 'x\" numeric", OPEN),
    "name, escaped end": (LINES, 2, r"@attribute 'x\' numeric", OPEN),
    "name, only the end": (LINES, 2, "@attribute x' numeric", OPEN),
    "name of a nominal": (LINES, 3, "@attribute 'c {u,v}", OPEN),
    "name, glued": (LINES, 3, "@attribute 'c{u,v}", OPEN),
    "relation": (LINES, 1, "@relation 'r", OPEN),
    "relation, double": (LINES, 1, '@relation "r: -C 1', OPEN),
    "value": (LINES, 3, "@attribute c {'u,v}", OPEN),
    "last value": (LINES, 3, "@attribute c {u,'v}", OPEN),
    "value, glued": (LINES, 3, "@attribute c {'u'x,v}", OPEN),
    "date": (LINES, 4, "@attribute t date 'yyyy", OPEN),
    "brace": (LINES, 3, "@attribute c {u,v", "no complete list of values"),
    "brace twice": (LINES, 3, "@attribute c {u,v}}", "goes on after its list of values"),
    "brace between": (LINES, 3, "@attribute c {w},u,v}", "goes on after its list of values"),
    "after the brace": (LINES, 3, "@attribute c {u,v} w", "goes on after its list of values"),
    "brace within": (LINES, 3, "@attribute c {u,{v}", "a brace inside"),
    "after @data": (LINES, 6, "@data 5,v,b,0", "goes on after @data"),
    "cell": (LINES, 7, "1,'u,a,1", OPEN),
    "string cell": (LINES, 7, "1,u,'a,1", OPEN),
    "cell, double": (LINES, 7, '1,u,"a,1', OPEN),
    "cell, glued": (LINES, 7, "'1'2,u,a,1", OPEN),
    "cell, other quote": (LINES, 7, "1,u,'a\",1", OPEN),
    "sparse cell": (SPARSE, 7, "{0 1,1 'v,3 1}", OPEN),
    "sparse string": (SPARSE, 7, "{0 1,2 'a,3 1}", OPEN),
    "sparse, glued": (SPARSE, 7, "{0 '1'2,3 1}", OPEN),
    "sparse brace": (SPARSE, 7, "{0 1,3 1", "without its closing brace"),
    "sparse braces": (SPARSE, 7, "{0 1,2 a}{3 1}", "a brace inside"),
    "sparse brace in a string": (SPARSE, 7, "{0 1,2 a}b,3 1}", "a brace inside"),
}


def read(tmp_path: Path, lines: list[str]) -> list[str]:
    path = tmp_path / "set.arff"
    path.write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match="left out 1 string attributes"):
        return list(load(path, labels=["l"], cache=False).feature_names)


@pytest.mark.parametrize("case", DAMAGE)
def test_an_unclosed_quote_or_brace_is_reported_with_its_line(case: str, tmp_path: Path) -> None:
    lines, number, damaged, words = DAMAGE[case]
    assert read(tmp_path, lines) == ["x", "c"]
    path = tmp_path / "set.arff"
    path.write_text("\n".join([*lines[: number - 1], damaged, *lines[number:]]) + "\n")
    with pytest.raises(DataError) as caught:
        load(path, labels=["l"], cache=False)
    message = str(caught.value)
    assert message.startswith(f"{path}, line {number}: ")
    assert words in message


@pytest.mark.parametrize(
    ("number", "line", "name"),
    [
        (2, "@attribute 'x y' numeric", "x y"),
        (2, "@attribute 'x\\'y' numeric", "x'y"),
        (2, "@attribute rock'n'roll numeric", "rock'n'roll"),
        (2, "@attribute m\\'usica numeric", "m\\'usica"),
        (2, "@attribute x numeric % 'a remark", "x"),
        (2, "@attribute x numeric [0,1]", "x"),
        (3, "@attribute c {u,v} % 'a remark", "x"),
        (3, "@attribute c {u,'v}',\"{w\"}", "x"),
        (3, "@attribute c {u,o'clock}", "x"),
        (6, "@data % 'a remark", "x"),
        (7, "1,u,'it\\'s {a}',1", "x"),
        (7, "1,u,o'clock,1", "x"),
        (7, "1, 'u' ,\"it's\" , '1'", "x"),
        (1, "@relation 'r: it\\'s' % 'a remark", "x"),
        (1, "@relation o'clock", "x"),
    ],
)
def test_quotes_that_are_closed_or_no_quotes_are_read(
    number: int, line: str, name: str, tmp_path: Path
) -> None:
    assert read(tmp_path, [*LINES[: number - 1], line, *LINES[number:]])[0] == name


def test_a_label_list_names_which_label_comes_twice(tmp_path: Path) -> None:
    (tmp_path / "set.arff").write_text("\n".join(LINES))
    listed = tmp_path / "set.xml"
    listed.write_text('<labels><label name="c"/><label name="l"/><label name="l"/></labels>')
    with pytest.raises(DataError, match=f"{listed} names the label 'l' twice; leave one out"):
        load(tmp_path / "set.arff", cache=False)


def test_two_attributes_of_one_name_are_reported_with_the_second(tmp_path: Path) -> None:
    path = tmp_path / "set.arff"
    path.write_text("\n".join([*LINES[:4], "@attribute 'x' numeric", *LINES[4:6], "1,u,a,2,1"]))
    with pytest.raises(DataError, match=r"line 5: declares the attribute 'x' twice"):
        load(path, labels=["l"], cache=False)
