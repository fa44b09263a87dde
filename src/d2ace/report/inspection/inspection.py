"""The page on insights, and its tables as files beside it."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d2ace._util import validation as inputs
from d2ace._util.errors import UserError
from d2ace.data import MultiLabelData
from d2ace.insights import Insights, Records
from d2ace.report.folder import WrittenFolder
from d2ace.report.templating import drawing, render
from d2ace.report.wording import counted

from . import certainty
from .contents import Contents, ShownLabel, shown_labels
from .data_map import data_map

if TYPE_CHECKING:
    from d2ace.data.images import ImageData

PAGE = "index.html"
ISSUES, ROWS, LABELS, SUMMARY = "label_issues.csv", "rows.csv", "labels.csv", "insights.json"
TOP = 50
MOST_PICTURES, MOST_LABELS, MOST_HARD_ROWS = 24, 40, 12
_FULL_BARS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Inspection:
    """What was written, and what it says."""

    page: Path
    headline: str
    summary: dict[str, Any]
    """What ``insights.json`` holds: plain values."""


@dataclass(frozen=True)
class _Section:
    name: str
    title: str


@dataclass(frozen=True)
class _Heading:
    """What stands at the top of the page."""

    headline: str
    lead: str
    facts: list[str]
    sections: list[_Section]


def write_inspection(
    insights: Insights,
    out: str | Path,
    *,
    data: MultiLabelData | ImageData | None = None,
    above: float | None = None,
    top: int = TOP,
    again: str = "DATA",
    remark: str = "",
) -> Inspection:
    """Write ``index.html`` into the folder ``out``, and what it shows as CSV and JSON beside it.

    The page is deterministic: the same insights give the same bytes.

    Parameters
    ----------
    insights : Insights
        Of a finished training, or of one in progress.
    out : path
        Folder, made if needed. Files of an earlier page are replaced. If a file there was not
        written by d2ace or has changed since, the call is refused before anything is written.
    data : MultiLabelData or ImageData, optional
        The rows themselves, with the indices of the insights: the page shows their strongest
        features, or their pictures.
    above : float, optional
        As in :meth:`Insights.label_issues`.
    top : int
        How many pairs the page lists; the files list all.
    again : str
        The arguments of ``d2ace train`` in the command that the page shows as the next step.
    remark : str
        A sentence about the rows, such as why there is no data.
    """
    top = inputs.whole_number("top", top, 1)
    folder = WrittenFolder(Path(out))
    folder.check([PAGE, ISSUES, ROWS, LABELS, SUMMARY])
    _refuse_other_data(insights, data)
    contents = Contents(insights.row_names, data)
    issues, by_row, by_label = (
        insights.label_issues(above),
        insights.rows(above),
        insights.labels(above),
    )
    suspects = contents.suspects(issues, top)
    first = dict.fromkeys(issues["row"].tolist()[: 20 * MOST_PICTURES])
    hardest = contents.hardest(by_row, MOST_HARD_ROWS)
    cards = contents.cards(list(first)[:MOST_PICTURES], issues, by_row)
    hard_cards = contents.cards([one.row.number for one in hardest], issues, by_row)
    labels = shown_labels(by_label, issues, MOST_LABELS)
    unobserved = insights.unobserved
    pairs = (insights.n - len(unobserved)) * insights.q
    usual = above is None
    heading = _Heading(
        certainty.headline(len(issues), pairs),
        certainty.lead(len(issues), usual=usual),
        _facts(insights, by_row, above, len(unobserved)),
        [
            _Section("suspects", "Suspicious labels"),
            _Section("labels", "By label"),
            _Section("map", "Data map"),
            _Section("hardest", "Hardest rows"),
            _Section("files", "Files and next steps"),
        ],
    )
    summary = _plain(
        {
            "headline": heading.headline,
            "certainty": heading.lead,
            "flagged": len(issues),
            "pairs": pairs,
            "rows": insights.n,
            "labels": insights.q,
            "rows_never_observed": len(unobserved),
            "above": above,
            "label_issues": list(_first(issues, top)),
            "most_suspicious_labels": [asdict(label) for label in labels],
            "hardest_rows": [asdict(row) for row in hardest],
        }
    )
    figure = data_map(by_row)
    page = render(
        "inspection.html",
        ["report.css", "inspection.css"],
        pictures=True,
        kind="inspection",
        page=heading,
        suspects=suspects,
        flagged=len(issues),
        cards=cards,
        unread=sum(card.address is None for card in cards),
        crisp=contents.pictures is not None and contents.pictures.drawn,
        sparse=contents.features is not None and contents.features.sparse,
        features=contents.features is not None,
        labels=labels,
        all_labels=insights.q,
        full_bar=_full_bar(labels),
        figure=figure,
        drawing=None if figure is None else drawing(figure),
        hardest=hardest,
        hard_cards=hard_cards,
        unobserved=unobserved[:20].tolist(),
        all_unobserved=len(unobserved),
        remark=remark,
        command=f"d2ace train {again} --labels-from {ISSUES}",
        percent=certainty.percent,
    )
    folder.write(
        {
            PAGE: page.encode(errors="replace"),  # a file's name may not be valid text
            ISSUES: issues.csv(),
            ROWS: by_row.csv(),
            LABELS: by_label.csv(),
            SUMMARY: (json.dumps(summary, indent=1, allow_nan=False) + "\n").encode(),
        }
    )
    return Inspection(folder.folder / PAGE, heading.headline, summary)


def _refuse_other_data(insights: Insights, data: Any) -> None:
    if data is None:
        return
    if not isinstance(data, MultiLabelData) and not hasattr(data, "files"):
        raise UserError(
            f"data is a {type(data).__name__}; give a MultiLabelData or ImageData of d2ace.data, "
            "or leave it out."
        )
    if data.n != insights.n:
        raise UserError(
            f"The data has {data.n} rows, but the insights {insights.n}; give the data of the "
            "training, or leave it out."
        )


def _facts(insights: Insights, rows: Records, above: float | None, unobserved: int) -> list[str]:
    visits = rows["visits"]
    facts = [
        f"{counted(insights.n - unobserved, 'row')} trained on",
        f"{counted(insights.q, 'label')} a row",
        f"{visits[visits > 0].mean():,.0f} visits of a row on average",
    ]
    if unobserved:
        facts.append(f"{counted(unobserved, 'row')} not seen in training")
    if above is not None:
        facts.append(f"flagged above {above:g}")
    return facts


def _full_bar(labels: list[ShownLabel]) -> float:
    """What share a full bar is: the next round one."""
    shares = [share for one in labels for share in (one.missing, one.spurious) if share > 0]
    return next((full for full in _FULL_BARS if full >= max(shares, default=0.0)), 1.0)


def _first(records: Records, most: int) -> Records:
    return Records({name: records[name][:most] for name in records.columns})


def _plain(value: Any) -> Any:
    """JSON has no NaN: what is not known is null."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
