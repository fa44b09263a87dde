"""The declarations of an ARFF file: relation, attributes and where the rows begin."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .source import fault

_DATA_LINE = re.compile(rb"^[ \t]*@data\b([^\n]*)$", re.IGNORECASE | re.MULTILINE)
_QUOTED = r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\""
_NAME = r"([^\s{'\"][^\s{]*(?<!['\"])|[^\s{'\"][^\s{]*\\['\"])"  # a quote at its end is escaped
_ATTRIBUTE = re.compile(rf"@attribute\s+(?:{_QUOTED}|{_NAME})(?=[\s{{]|$)\s*(.*)", re.IGNORECASE)
_VALUE = re.compile(rf"\s*(?:{_QUOTED}|((?![\s'\"])[^,{{}}]*))\s*([,}}])")
_CELL = re.compile(rf"(?:(?<=[,{{\s])|^)(?:{_QUOTED})(?=[\s,}}]|$)".encode())
_LOOSE_QUOTE = re.compile(rb"(?:[,{\s]|^)['\"]")
_OPEN = "has a quote that stays open; close it, or put a backslash before it"
_DATE_FIELDS = (
    ("yyyy", "%Y"), ("yy", "%y"), ("MM", "%m"), ("dd", "%d"),
    ("HH", "%H"), ("mm", "%M"), ("ss", "%S"),
)  # fmt: skip
_DATE = re.compile(r"(?:%[YymdHMS]|[-/:. TZ]){1,40}")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
# Inside quotes the separators lose their meaning. They are kept as control bytes, in the rows and
# in the declared values alike, so that everything after this can split without knowing of quotes.
_SPECIAL, _CONTROL = b", \t{}?'\"", bytes(range(1, 9))
_PROTECT = bytes.maketrans(_SPECIAL, _CONTROL)
_SHOW = bytes.maketrans(_CONTROL, _SPECIAL)


@dataclass(frozen=True)
class Kind:
    """The type of an attribute."""

    name: str
    """``numeric``, ``nominal``, ``string`` or ``date``."""
    values: tuple[str, ...] = ()
    cells: tuple[bytes, ...] = ()
    """The declared values, as written in the rows."""
    counts: bool = False
    """Whether the values are 0, 1, 2, ..., so that a number is its own code."""
    pattern: str = ""
    """The form of a date as declared, for people."""
    strptime: str = ""
    """The same for Python."""


@dataclass(frozen=True)
class Header:
    """What stands before the rows."""

    path: Path
    relation: str
    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    """The distinct types."""
    kind: npt.NDArray[np.intp]
    """For each attribute, which of the types it has."""
    data_line: int
    """Line of ``@data``, counted from 1."""


def unescape(text: str) -> str:
    """``text`` with its backslashes taken away."""
    return _ESCAPE.sub(r"\1", text) if "\\" in text else text


def protect(cell: bytes) -> bytes:
    """A value with its separators made harmless."""
    return cell.translate(_PROTECT)


def show(cell: bytes) -> str:
    """A cell as it stood in the file, cut to a length that fits in a message."""
    return cell[:60].translate(_SHOW).decode("utf-8", "replace")


def unquote_row(row: bytes) -> bytes | None:
    """A row whose quoted cells are replaced by protected ones; ``None`` if a quote stays open.

    So does one that something other than the end of its cell follows.
    """
    sparse = row.startswith(b"{")

    def plain(match: re.Match[bytes]) -> bytes:
        inner = match.group(1) if match.group(1) is not None else match.group(2)
        empty = b"''" if sparse else b""  # else nothing would follow the index
        return protect(re.sub(rb"\\(.)", rb"\1", inner) or empty)

    row = _CELL.sub(plain, row)
    if _LOOSE_QUOTE.search(row):
        return None
    return row.replace(b"'", protect(b"'")).replace(b'"', protect(b'"'))


def read_header(path: Path, data: bytes) -> tuple[Header, bytes]:
    """The declarations in ``data``, and the rows that follow them."""
    if bool((np.frombuffer(data, dtype=np.uint8) < 9).any()):
        raise fault(path, None, "holds binary bytes, so it is not an ARFF file; check what it is")
    match = _DATA_LINE.search(data)
    if match is None:
        raise fault(path, data.count(b"\n") + 1, "ends without @data; the file is cut or not ARFF")
    if match.group(1).strip() and not match.group(1).strip().startswith(b"%"):
        number = data.count(b"\n", 0, match.start()) + 1
        raise fault(path, number, "goes on after @data; start the rows on the next line")
    try:
        text, encoding = data[: match.start()].decode("utf-8"), "utf-8"
    except UnicodeDecodeError:  # older files are Latin-1, which decodes everything
        text, encoding = data[: match.start()].decode("latin-1"), "latin-1"

    relation = ""
    names: list[str] = []
    kind: list[int] = []
    kinds: list[Kind] = []
    known: dict[str, int] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        parts = line.split(None, 2)
        if not parts or parts[0][0] == "%":
            continue
        keyword = parts[0] if parts[0] == "@attribute" else parts[0].lower()
        if keyword == "@attribute":
            name = parts[1] if len(parts) == 3 else "'"
            if name[0] not in "'\"" and name[-1] not in "'\"" and "{" not in name:
                declared = parts[2]  # nearly every line of real files
            else:
                name, declared = _attribute(path, number, line.strip())
            if declared not in known:
                known[declared] = len(kinds)
                kinds.append(_kind(path, number, name, declared.strip(), encoding))
            names.append(name)
            kind.append(known[declared])
        elif keyword == "@relation":
            relation = _relation(path, number, line.strip())
        else:
            found = line.strip()[:40]
            raise fault(path, number, f"expected @relation, @attribute or @data, found {found!r}")
    data_line = len(lines)
    if not names:
        raise fault(path, data_line, "declares no @attribute before @data; the file is damaged")
    if len(set(names)) < len(names):
        name = Counter(names).most_common(1)[0][0]
        number = max(i for i, line in enumerate(lines, start=1) if name in line)
        raise fault(path, number, f"declares the attribute {name[:60]!r} twice; rename one of them")
    header = Header(path, relation, tuple(names), tuple(kinds), np.array(kind), data_line)
    return header, data[match.end() + 1 :]


def _relation(path: Path, number: int, line: str) -> str:
    text = line.split(None, 1)[1].strip() if len(line.split(None, 1)) == 2 else ""
    return _unquoted(path, number, text, "the relation")


def _unquoted(path: Path, number: int, text: str, what: str) -> str:
    """What stands in quotes at the start of ``text``, or all of it without quotes there."""
    if not text.startswith(("'", '"')):
        return text
    quoted = re.match(_QUOTED, text)
    if quoted is None:
        raise fault(path, number, f"{what} {_OPEN}")
    return unescape(quoted.group(1) or quoted.group(2) or "")


def _attribute(path: Path, number: int, line: str) -> tuple[str, str]:
    """Name and declared type of one ``@attribute`` line."""
    match = _ATTRIBUTE.fullmatch(line)
    if match is None and ("'" in line or '"' in line):
        raise fault(path, number, f"the name in {line[:60]!r} {_OPEN}")
    if match is None or not match.group(4):
        raise fault(path, number, f"is no complete attribute: {line[:60]!r}; give name and type")
    single, double, bare, declared = match.groups()
    quoted = single if single is not None else double
    return (bare if quoted is None else unescape(quoted)), declared


def _kind(path: Path, number: int, name: str, declared: str, encoding: str) -> Kind:
    word = declared.split(None, 1)[0].lower()
    if declared.startswith("{"):
        values = _values(path, number, name, declared)
        cells = tuple(protect(value.encode(encoding)) for value in values)
        return Kind("nominal", values, cells, values == tuple(map(str, range(len(values)))))
    if word in ("numeric", "real", "integer"):
        return Kind("numeric")
    if word == "string":
        return Kind("string")
    if word == "date":
        what = f"the date form of attribute {name[:60]!r}"
        pattern = _unquoted(path, number, declared[4:].strip(), what) or "yyyy-MM-dd'T'HH:mm:ss"
        strptime = _strptime(pattern)
        if strptime is None:
            form = f"date {pattern[:40]!r}; use yyyy, MM, dd, HH, mm and ss, each once"
            raise fault(path, number, f"attribute {name[:60]!r} has the unknown form {form}")
        return Kind("date", pattern=pattern, strptime=strptime)
    raise fault(
        path,
        number,
        f"attribute {name[:60]!r} has type {declared[:40]!r}; "
        "numeric, real, integer, string, date and {...} are read",
    )


def _strptime(pattern: str) -> str | None:
    """Python's form of a Java date pattern, as far as numbers and separators go."""
    form = pattern.replace("'", "")
    for field, directive in _DATE_FIELDS:
        form = form.replace(field, directive, 1)
    return form if _DATE.fullmatch(form) else None


def _values(path: Path, number: int, name: str, declared: str) -> tuple[str, ...]:
    """The values between the braces of a nominal declaration."""
    what = f"attribute {name[:60]!r}"
    end = declared.find("}")
    inner = declared[1:end]
    if "'" not in inner and '"' not in inner:
        if end < 0 or not inner.strip():
            raise fault(path, number, f"{what} has no complete list of values {{...}}")
        values, rest = [value.strip() for value in inner.split(",")], declared[end + 1 :]
        if "{" in inner:
            raise fault(path, number, f"{what} has a brace inside its list of values; quote it")
    else:
        values, rest = _quoted_values(path, number, what, declared)
    if rest.strip() and not rest.strip().startswith("%"):
        message = f"{what} goes on after its list of values: {rest.strip()[:40]!r}"
        raise fault(path, number, f"{message}; close the list once, at its end")
    if len(set(values)) < len(values) or "" in values:
        raise fault(path, number, f"{what} has an empty or a repeated value")
    return tuple(values)


def _quoted_values(path: Path, number: int, what: str, declared: str) -> tuple[list[str], str]:
    """The values of a list with quotes in it, and what follows the list."""
    values, at, closed = [], 1, False
    while not closed:
        match = _VALUE.match(declared, at)
        if match is None:
            quoted = declared[at:].lstrip().startswith(("'", '"'))
            brace = "has no complete list of values {...}, or a brace inside it; quote that"
            raise fault(path, number, f"{what} {_OPEN if quoted else brace}")
        single, double, bare, separator = match.groups()
        word = single if single is not None else double
        values.append(bare.strip() if word is None else unescape(word))
        at, closed = match.end(), separator == "}"
    return values, declared[at:]
