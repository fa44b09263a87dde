"""Run the code cells of a notebook in order, in this interpreter: ``python run_notebook.py FILE``.

A line with a null character ends the output of each cell.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    cells = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]
    for number, cell in enumerate(cell for cell in cells if cell["cell_type"] == "code"):
        code = compile("".join(cell["source"]), f"{sys.argv[1]}, cell {number}", "exec")
        exec(code, globals())  # noqa: S102  (our own documentation)
        print("\0", flush=True)


if __name__ == "__main__":
    main()
