"""The page on a run's insights: which labels look wrong, of which rows, and why."""

from .inspected_run import inspect_run as inspect_run
from .inspection import Inspection as Inspection
from .inspection import write_inspection as write_inspection

__all__ = ["Inspection", "inspect_run", "write_inspection"]
