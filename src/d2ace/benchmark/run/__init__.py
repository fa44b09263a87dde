"""Running it: engines, workers, and the folders that runs train in."""
