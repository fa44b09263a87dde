"""Running it: engines, workers, and the folders that runs train in."""

from .engines import Engine, Event, LocalEngine
from .monitor import Monitor
from .ray_engine import RayEngine
from .runner import Summary, plan, run_grid, runs_folder

__all__ = [
    "Engine",
    "Event",
    "LocalEngine",
    "Monitor",
    "RayEngine",
    "Summary",
    "plan",
    "run_grid",
    "runs_folder",
]
