"""What the page shows: the parts of insights that a person reads, with names and rows' contents."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from d2ace.data import MultiLabelData
from d2ace.insights import Records

from .row_features import RowFeatures, StrongFeature
from .row_pictures import Photographs, PixelTables, pixel_shape

if TYPE_CHECKING:
    from d2ace.data.images import ImageData

_LONGEST = 120  # characters of a name on the page; files have it all


@dataclass(frozen=True)
class ShownRow:
    """A row as a reader knows it."""

    number: int
    name: str
    features: list[StrongFeature]


@dataclass(frozen=True)
class Suspect:
    """A pair that is probably wrong."""

    row: ShownRow
    label: str
    given: bool
    suggested: bool
    probability: float
    suspicion: float


@dataclass(frozen=True)
class Card:
    """A row that is a picture."""

    row: ShownRow
    address: str | None
    """None of a picture that cannot be read."""
    given: list[str]
    suspects: list[Suspect]
    hardness: float


@dataclass(frozen=True)
class ShownLabel:
    """How much of a label is probably wrong."""

    name: str
    positives: int
    learnt: float
    missing: float
    spurious: float
    missing_pairs: int
    spurious_pairs: int


@dataclass(frozen=True)
class HardRow:
    """A row on which the model does badly."""

    row: ShownRow
    visits: int
    confidence: float
    variability: float
    flips: float
    hardness: float
    suspected: int


class Contents:
    """Looks up rows, with their pictures or features if there is data."""

    def __init__(
        self, row_names: list[str] | None, data: MultiLabelData | ImageData | None
    ) -> None:
        self._row_names, self._data = row_names, data
        self.pictures: Photographs | PixelTables | None = None
        self.features: RowFeatures | None = None
        if isinstance(data, MultiLabelData):
            shape = pixel_shape(data.feature_names)
            if shape is not None:
                self.pictures = PixelTables(data, shape)
            else:
                self.features = RowFeatures(data)
        elif data is not None:
            self.pictures = Photographs(data)

    def row(self, number: int) -> ShownRow:
        """A row by its number."""
        name = ""
        if self._row_names is not None:
            name = self._row_names[number]
        elif isinstance(self.pictures, Photographs):
            name = self.pictures.files[number]
        strong = [] if self.features is None else self.features.strongest(number)
        return ShownRow(
            number,
            shortened(name),
            [StrongFeature(shortened(one.name), one.strength) for one in strong],
        )

    def suspects(self, issues: Records, most: int) -> list[Suspect]:
        """The first pairs of the flagged ones."""
        columns = ("row", "label", "given", "suggested", "probability", "suspicion")
        found = zip(*(issues[name][:most].tolist() for name in columns), strict=True)
        names = _names(issues, "label", most)
        return [
            Suspect(self.row(row), name, bool(given), bool(suggested), probability, suspicion)
            for name, (row, _, given, suggested, probability, suspicion) in zip(
                names, found, strict=True
            )
        ]

    def cards(self, numbers: Iterable[int], issues: Records, rows: Records) -> list[Card]:
        """Pictures of rows, each with its flagged pairs."""
        if self.pictures is None:
            return []
        flagged, hardness = issues["row"], rows["hardness"]
        where = {number: np.flatnonzero(flagged == number) for number in numbers}
        return [
            Card(
                self.row(number),
                self.pictures.address(number),
                self._given(number),
                self.suspects(_taken(issues, places), len(places)),
                float(hardness[number]),
            )
            for number, places in where.items()
        ]

    def _given(self, number: int) -> list[str]:
        """The labels that the data gives to a row."""
        if self._data is None:
            return []
        own: Any = self._data.Y[[number]]
        dense = own.toarray() if sp.issparse(own) else own
        names = self._data.label_names
        return [shortened(names[label]) for label in np.flatnonzero(dense[0])]

    def hardest(self, rows: Records, most: int) -> list[HardRow]:
        """The rows with the largest mean loss; those never observed have none."""
        order = np.argsort(-rows["hardness"], kind="stable")[:most]  # NaN is last
        columns = ("visits", "confidence", "variability", "flips", "hardness", "suspected")
        return [
            HardRow(self.row(int(number)), *(rows[name][number].item() for name in columns))
            for number in order
            if math.isfinite(rows["hardness"][number])
        ]


def shown_labels(labels: Records, issues: Records, most: int) -> list[ShownLabel]:
    """The labels with the most flagged pairs."""
    q = len(labels)
    counts = [
        np.bincount(issues["label"][issues["given"] == given], minlength=q) for given in (0, 1)
    ]
    order = np.argsort(-(counts[0] + counts[1]), kind="stable")[:most]
    names = _names(labels, "label", q)
    shares = {name: labels[name] for name in ("positives", "learnt", "missing", "spurious")}
    return [
        ShownLabel(
            name=names[label],
            missing_pairs=int(counts[0][label]),
            spurious_pairs=int(counts[1][label]),
            **{name: share[label].item() for name, share in shares.items()},
        )
        for label in order
    ]


def shortened(name: str) -> str:
    """A name that leaves room for others."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _names(records: Records, column: str, most: int) -> list[str]:
    """Names, or numbers where there are none."""
    named = f"{column}_name"
    found = records[named if named in records.columns else column][:most].tolist()
    return [shortened(str(one)) for one in found]


def _taken(records: Records, places: np.ndarray[Any, Any]) -> Records:
    return Records({name: records[name][places] for name in records.columns})
