"""Grids of runs, the store of their results, studies, and the report."""
