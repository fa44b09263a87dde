"""The declarations of an ARFF file: relation, attributes and where the rows begin."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from d2ace.data.files import fault

_DATA_LINE = re.compile(rb"^[ \t]*@data\b[^\n]*$", re.IGNORECASE | re.MULTILINE)
_QUOTED = r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\""
_ATTRIBUTE = re.compile(rf"@attribute\s+(?:{_QUOTED}|([^\s{{]+))\s*(.*)", re.IGNORECASE)
_VALUE = re.compile(rf"\s*(?:{_QUOTED}|([^,'\"][^,]*))\s*(?:,|$)")
_CELL = re.compile(rf"(?:(?<=[,{{\s])|^)(?:{_QUOTED})".encode())
_LOOSE_QUOTE = re.compile(rb"(?:[,{\s]|^)['\"]")
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
    """The declared values as they stand in the rows."""
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
    """A row whose quoted cells are replaced by protected ones; ``None`` if a quote stays open."""
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
            if len(parts) == 3 and parts[1][0] not in "'\"" and "{" not in parts[1]:
                name, declared = parts[1], parts[2]  # nearly every line of real files
            else:
                name, declared = _attribute(path, number, line.strip())
            if declared not in known:
                known[declared] = len(kinds)
                kinds.append(_kind(path, number, name, declared.strip(), encoding))
            names.append(name)
            kind.append(known[declared])
        elif keyword == "@relation":
            relation = _relation(line.strip())
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


def _relation(line: str) -> str:
    text = line.split(None, 1)[1].strip() if len(line.split(None, 1)) == 2 else ""
    quoted = re.match(_QUOTED, text)
    return unescape(quoted.group(1) or quoted.group(2) or "") if quoted else text


def _attribute(path: Path, number: int, line: str) -> tuple[str, str]:
    """Name and declared type of one ``@attribute`` line."""
    match = _ATTRIBUTE.fullmatch(line)
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
        pattern = declared[4:].strip().strip("'\"") or "yyyy-MM-dd'T'HH:mm:ss"
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
    end = declared.rfind("}")
    inner = declared[1:end].strip()
    if end < 0 or not inner:
        raise fault(path, number, f"attribute {name[:60]!r} has no complete list of values {{...}}")
    if "'" not in inner and '"' not in inner:
        values = [value.strip() for value in inner.split(",")]
    else:
        values, at = [], 0
        while at < len(inner):
            match = _VALUE.match(inner, at)
            if match is None:
                raise fault(path, number, f"attribute {name[:60]!r} has a quote that stays open")
            single, double, bare = match.groups()
            quoted = single if single is not None else double
            values.append(bare.strip() if quoted is None else unescape(quoted))
            at = match.end()
    if len(set(values)) < len(values) or "" in values:
        raise fault(path, number, f"attribute {name[:60]!r} has an empty or a repeated value")
    return tuple(values)
