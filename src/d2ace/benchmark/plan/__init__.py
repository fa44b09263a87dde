"""What to run: grids, studies, and the complete description of each run."""

from .checks import own_values
from .grid import Grid, load_grid, make_grid, packaged
from .specs import DEFAULTS, RunSpec, canonical, complete, data_place, method_name, work_of
from .studies import ABLATION, SWEEPS, SYMBOLS, comparison, parse_value, parse_vary, printed

__all__ = [
    "ABLATION",
    "DEFAULTS",
    "SWEEPS",
    "SYMBOLS",
    "Grid",
    "RunSpec",
    "canonical",
    "comparison",
    "complete",
    "data_place",
    "load_grid",
    "make_grid",
    "method_name",
    "own_values",
    "packaged",
    "parse_value",
    "parse_vary",
    "printed",
    "work_of",
]
