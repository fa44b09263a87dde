"""d2ace: batch selection for deep multi-label learning, as drop-in PyTorch batch samplers."""

__version__ = "0.1.0"
