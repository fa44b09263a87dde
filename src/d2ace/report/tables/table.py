"""A table of the report, and the three forms it is given in: HTML (by the template), CSV, LaTeX."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from d2ace._util.csv_text import csv_writer, no_formula

Value = str | int | float | None

PLACES = {1: r"\textbf{%s}", 2: r"\underline{%s}", 3: r"\textit{%s}"}
"""How LaTeX marks the best, second and third."""

TALL = 24

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "×": r"$\times$",
    "Δ": r"$\Delta$",
    "λ": r"$\lambda$",
    "–": "--",
    "†": r"$^\dagger$",
    "\u00a0": "~",
}


@dataclass(frozen=True)
class Cell:
    """What one field shows.

    Parameters
    ----------
    text : str
        As printed.
    value : str, int, float or None
        The value to sort by and to write to CSV; None sorts last and is empty in CSV.
    place : int
        1, 2 or 3 for the best three of a row, else 0.
    spread : str
        Its uncertainty, such as "±0.0120"; shown smaller, below it.
    note : str
        Smaller lines below it.
    """

    text: str
    value: Value = None
    place: int = 0
    spread: str = ""
    note: str = ""

    @property
    def key(self) -> str:
        """What the page sorts by."""
        return "" if self.value is None else str(self.value)

    @property
    def numeric(self) -> bool:
        """Whether the field is a number (or stands where one is missing)."""
        return not isinstance(self.value, str)


@dataclass(frozen=True)
class ReportTable:
    """A table with a heading per column, rows, and rows below that stay below when sorted.

    ``data`` is the content of the CSV file, a list of equal dicts; the default is the cells'
    values.
    """

    name: str
    title: str
    caption: str
    columns: list[str]
    rows: list[list[Cell]]
    foot: list[list[Cell]] = field(default_factory=list)
    data: list[dict[str, Value]] | None = None

    kind = "table"

    @property
    def tall(self) -> bool:
        """Too many rows to read past: scrolls in its box, under its headings."""
        return len(self.rows) > TALL

    def csv(self) -> str:
        """The numbers in full precision, for other programs."""
        out = io.StringIO()
        writer = csv_writer(out)
        if self.data is None:
            writer.writerow(map(no_formula, self.columns))
            writer.writerows(
                [_plain(cell.value) for cell in row] for row in [*self.rows, *self.foot]
            )
        else:
            writer.writerow(map(no_formula, self.data[0] if self.data else self.columns))
            writer.writerows([_plain(value) for value in row.values()] for row in self.data)
        return out.getvalue()

    def latex(self) -> str:
        """A table for the package booktabs."""
        numeric = [
            all(row[place].numeric for row in self.rows) for place in range(len(self.columns))
        ]
        lines = [
            r"\begin{table}",
            r"  \centering",
            r"  \small",
            f"  \\caption{{{escape(self.title)}. {escape(self.caption)}}}",
            f"  \\label{{tab:{self.name}}}",
            f"  \\begin{{tabular}}{{{''.join('r' if right else 'l' for right in numeric)}}}",
            r"    \toprule",
            _line([escape(column) for column in self.columns]),
            r"    \midrule",
            *[_line([_latex_cell(cell) for cell in row]) for row in self.rows],
        ]
        if self.foot:
            lines.append(r"    \midrule")
            lines += [_line([_latex_cell(cell) for cell in row]) for row in self.foot]
        lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""]
        return "\n".join(lines)


def word(text: str) -> Cell:
    """A field that holds a word."""
    return Cell(text, text)


def figure(value: float | None, form: str = ".4f", **more: Any) -> Cell:
    """A field that holds a number, or a dash where there is none."""
    if value is None or math.isnan(value):
        return Cell("–", None, **more)
    return Cell(signed(format(value, form)), value, **more)


def signed(text: str) -> str:
    """A proper minus sign."""
    return text.replace("-", "−")


def p_text(p: float) -> str:
    """A p-value as one prints it."""
    return "–" if math.isnan(p) else "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def p_equals(p: float) -> str:
    """A p-value in a sentence, not torn apart at the end of a line."""
    text = p_text(p) if p < 0.0001 else f"= {p_text(p)}"
    return f"p {text}".replace(" ", "\u00a0")


def escape(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _line(fields: Sequence[str]) -> str:
    return "    " + " & ".join(fields) + r" \\"


def _latex_cell(cell: Cell) -> str:
    printed = f"{cell.text} {cell.spread}".strip()
    text = PLACES.get(cell.place, "%s").replace("%s", escape(printed))
    note = escape(cell.note.replace("\n", ", "))
    return f"{text} {{\\scriptsize ({note})}}" if note else text


def _plain(value: Value) -> Value:
    """Empty for what is missing: an average over nothing is not a number."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if missing else no_formula(value)
