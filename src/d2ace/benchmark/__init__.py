"""Many runs: a grid says which, an engine makes them, and a store keeps their results."""

from .plan import Grid, RunSpec, load_grid, make_grid
from .run import LocalEngine, Monitor, Summary, run_grid
from .store import Store, StoredRun

__all__ = [
    "Grid",
    "LocalEngine",
    "Monitor",
    "RunSpec",
    "Store",
    "StoredRun",
    "Summary",
    "load_grid",
    "make_grid",
    "run_grid",
]
