"""The episodes of DIHCL's public code: each has fewer rows and a flatter softmax.

The source trains 300 epochs: 5 of warm-up, then ten episodes that end with the epochs below. Here
the episodes divide the selective epochs T_w + 1 .. T in the same proportions.
"""

from __future__ import annotations

_ENDS = (10, 15, 20, 30, 40, 60, 90, 140, 210, 300)
_WARMUP = 5
_SPAN = _ENDS[-1] - _WARMUP
_INVERSE_TEMPERATURE, _FLATTER = 20.0, 0.8


def episode_of(epoch: int, warmup: int, epochs: int) -> int:
    """The episode of an epoch: 0 in warm-up, 1 to 10 in selective epochs, 10 beyond the last."""
    if epoch <= warmup:
        return 0
    selective = max(epochs - warmup, 1)
    passed = (epoch - warmup - 1) * _SPAN
    return 1 + sum(passed >= (end - _WARMUP) * selective for end in _ENDS[:-1])


def subset_size(n: int, episode: int) -> int:
    """floor(k n), k = max(0.9^episode, 0.3), exact in whole numbers; at least one row."""
    return max(n * 9**episode // 10**episode, n * 3 // 10, 1)


def inverse_temperature(episode: int) -> float:
    """20 times 0.8 to the power of the episode, at least 1: 16 in the first one that selects."""
    return max(_INVERSE_TEMPERATURE * _FLATTER**episode, 1.0)
