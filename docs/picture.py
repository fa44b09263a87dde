"""The picture of the README: ``python docs/picture.py``.

What was found on each dataset, from the table of explanation/insights.md.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent
PICTURE = DOCS / "found.svg"
ROW = re.compile(r"^\| ([\w-]+) \| (\.\d+) \| (\.\d+) \|", re.MULTILINE)
COLOURS = {"Insights": "#1e88c8", "cleanlab": "#b0b0b0"}
HIGH, LEFT, STEP = 190, 50, 68  # of the plot, in pixels
TOP = 0.7


def measured() -> list[tuple[str, float, float]]:
    """Dataset, and the average precision of Insights and of cleanlab."""
    page = (DOCS / "explanation" / "insights.md").read_text(encoding="utf-8")
    return [(name, float(ours), float(theirs)) for name, ours, theirs in ROW.findall(page)]


def picture() -> str:
    """The text of the SVG file."""
    rows = measured()
    width, bottom = LEFT + STEP * len(rows) + 20, HIGH + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 50}" '
        'font-family="sans-serif" font-size="12" role="img">',
        f'<rect width="{width}" height="{bottom + 50}" fill="#fcfcfa"/>',
        _text(LEFT, 24, "Wrong labels found (average precision of the ranking)", "start", 14),
    ]
    for share in (0.0, 0.2, 0.4, 0.6):
        y = bottom - share / TOP * HIGH
        parts.append(f'<path d="M{LEFT} {y:.1f}H{width - 20}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{share:.1f}", "end"))
    for number, (name, *scores) in enumerate(rows):
        x = LEFT + STEP * number
        for place, (score, colour) in enumerate(zip(scores, COLOURS.values(), strict=True)):
            high = score / TOP * HIGH
            parts.append(
                f'<rect x="{x + 10 + 24 * place}" y="{bottom - high:.1f}" width="22" '
                f'height="{high:.1f}" fill="{colour}"/>'
            )
        parts.append(_text(x + 33, bottom + 18, name, "middle", 11))
    for place, (name, colour) in enumerate(COLOURS.items()):
        x = width - 240 + 110 * place
        parts.append(f'<rect x="{x}" y="13" width="13" height="13" fill="{colour}"/>')
        parts.append(_text(x + 19, 24, name, "start"))
    better = sum(ours > theirs for _, ours, theirs in rows)
    words = f"Better on {better} of {len(rows)} datasets, from the training you do anyway;"
    parts.append(_text(LEFT, bottom + 40, f"{words} cleanlab needs five more.", "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, words: str, anchor: str, size: int = 12) -> str:
    return (
        f'<text x="{x:g}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#333">'
        f"{words}</text>"
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
