"""What to run: grids, studies, and the complete description of each run."""
