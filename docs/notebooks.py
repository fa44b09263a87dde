"""The tutorials as notebooks, made from their pages: ``python docs/notebooks.py``.

Text becomes text and code becomes code. The output that a page shows is left out: a notebook makes
its own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parent / "tutorials"
CODE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
LINK_TO_IT = re.compile(r"^\*.*\.ipynb\).*\*\n\n", re.MULTILINE)


def pages() -> list[Path]:
    """The pages that are notebooks too."""
    return [page for page in sorted(TUTORIALS.glob("*.md")) if page.stem != "README"]


def cells(page: Path) -> list[tuple[str, str, str]]:
    """Kind, text and shown output of each part of a page, in order."""
    text, found, end = LINK_TO_IT.sub("", page.read_text(encoding="utf-8")), [], 0
    for block in CODE.finditer(text):
        found += [("markdown", text[end : block.start()], ""), ("code", block[1], block[2] or "")]
        end = block.end()
    found.append(("markdown", text[end:], ""))
    return [(kind, part.strip("\n"), output) for kind, part, output in found if part.strip()]


def notebook(page: Path) -> str:
    """The text of the notebook of a page."""
    made: list[dict[str, Any]] = []
    for number, (kind, text, _) in enumerate(cells(page)):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell | {"source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": made,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the notebooks beside their pages."""
    for page in pages():
        page.with_suffix(".ipynb").write_text(notebook(page), encoding="utf-8")


if __name__ == "__main__":
    main()
