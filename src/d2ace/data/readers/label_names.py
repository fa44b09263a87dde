"""Which attributes are the labels: by name, by position, by a MULAN list or by MEKA's option."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from d2ace._util.hints import did_you_mean
from d2ace.data.container import DataError, UnknownDataError

from .arff_header import Header, unescape
from .source import Source, fault, present, stem

Labels: TypeAlias = "int | Sequence[str] | str | os.PathLike[str] | None"

_PART = re.compile(r"[-_](train|test|sparse|dense)$", re.IGNORECASE)
_MEKA = re.compile(r"(?:^|\s)-[Cc]\s+(-?\d{1,9})(?=\s|$)")
_MAX_XML = 16 << 20
_ASK = "give labels= as names, as a count with labels_at=, or as the path of the .xml label list"


def label_file(path: Path) -> Path | None:
    """The label list beside an ARFF file: ``yeast.xml`` for ``yeast-train.arff.gz`` too."""
    name = stem(path)
    while True:
        if found := present(path.with_name(name + ".xml")):
            return found
        shorter = _PART.sub("", name)
        if shorter == name:
            return None
        name = shorter


def read_label_list(source: Source) -> list[str]:
    """Names in a MULAN label list; a document type or an entity in it is refused."""
    try:
        from defusedxml import DefusedXmlException, ElementTree
    except ImportError:
        raise DataError(
            f"{source.path}: reading a label list needs defusedxml; "
            'install it with pip install ".[bench]" in a checkout of d2ace, '
            "or give labels= as names or a count"
        ) from None
    data = source.expanded()
    if len(data) > _MAX_XML:
        raise fault(source.path, None, f"has {len(data)} bytes, too many for a list of labels")
    try:
        root = ElementTree.fromstring(data, forbid_dtd=True)
    except DefusedXmlException:
        message = "declares a document type or entities, which a label list has no use for"
        raise fault(source.path, None, message) from None
    except ElementTree.ParseError as error:
        message = f"is not well-formed XML ({error}); fetch or copy it again"
        raise fault(source.path, error.position[0], message) from None
    except (ValueError, LookupError) as error:  # an encoding that does not exist or does not fit
        raise fault(source.path, 1, f"cannot be decoded ({error}); save it as UTF-8") from None
    names = [item.get("name") for item in root.iter() if item.tag.rpartition("}")[2] == "label"]
    if not names or None in names:
        raise fault(source.path, None, 'has no <label name="..."> entries; is it a label list?')
    return [name for name in names if name is not None]


def choose(
    header: Header, labels: Labels, labels_at: str, listed: Source | None
) -> npt.NDArray[np.int64]:
    """Columns of the labels, in the order of the file."""
    total = len(header.names)
    if isinstance(labels, bool):
        raise UnknownDataError(f"labels={labels!r} says nothing; {_ASK}")
    if isinstance(labels, int):
        return _at_edge(header, labels, labels_at)
    if labels is not None and not isinstance(labels, (str, os.PathLike)):
        return _by_name(header, list(labels), "labels=")
    if listed is not None:
        return _by_name(header, read_label_list(listed), str(listed.path))
    option = _MEKA.search(header.relation)
    if option is None:
        raise fault(header.path, None, f"does not say which attributes are labels; {_ASK}")
    count = int(option.group(1))
    if not 0 < abs(count) < total:
        message = f"option -C {count} does not fit the {total} attributes; {_ASK}"
        raise fault(header.path, 1, message)
    return _at_edge(header, abs(count), "start" if count > 0 else "end")


def _at_edge(header: Header, count: int, labels_at: str) -> npt.NDArray[np.int64]:
    total = len(header.names)
    if labels_at not in ("start", "end"):
        raise UnknownDataError(f"labels_at={labels_at!r} is unknown; use 'start' or 'end'")
    if not 0 < count < total:
        raise UnknownDataError(
            f"{header.path}: labels={count} does not fit: the file has {total} attributes"
        )
    return np.arange(count) if labels_at == "start" else np.arange(total - count, total)


def _by_name(header: Header, wanted: list[str], origin: str) -> npt.NDArray[np.int64]:
    place = {name: column for column, name in enumerate(header.names)}
    if not all(name in place for name in wanted):
        # Some lists keep the backslashes of the ARFF header, others do not.
        for name, column in list(place.items()):
            place.setdefault(unescape(name), column)
    columns = []
    for name in map(str, wanted):
        key = name if name in place else unescape(name)
        if key not in place:
            message = f"label {name[:60]!r} of {origin} is no attribute of the file"
            raise fault(header.path, None, message + did_you_mean(name, header.names))
        columns.append(place[key])
    if not columns:
        raise fault(header.path, None, f"{origin} names no label; {_ASK}")
    if len(set(columns)) < len(columns):
        twice = Counter(columns).most_common(1)[0][0]
        message = f"{origin} names the label {header.names[twice][:60]!r} twice; leave one out"
        raise fault(header.path, None, message)
    if len(columns) == len(header.names):
        raise fault(header.path, None, f"{origin} takes every attribute as a label; none is left")
    return np.array(sorted(columns))
