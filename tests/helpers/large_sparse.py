"""Train a selector for some steps on a large sparse label matrix, and say what memory that took.

python large_sparse.py METHOD ROWS LABELS [OPTION=VALUE ...]
"""

from __future__ import annotations

import json
import resource
import sys

import numpy as np
import scipy.sparse as sp
import torch

import d2ace


def labels(n: int, q: int) -> sp.csr_array:
    """Three labels a row."""
    columns = np.sort(np.random.default_rng(0).integers(0, q // 3, (n, 3)) + q // 3 * np.arange(3))
    ones = np.ones(columns.size, dtype=np.uint8)
    return sp.csr_array((ones, columns.ravel(), np.arange(n + 1) * 3), shape=(n, q))


def peak() -> int:
    """The most memory this process has had, in bytes."""
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def main() -> None:
    method, n, q = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    # what torch takes for a small problem is not counted
    for rows, width in ((64, 6), (n, q)):
        before = peak()
        selector = d2ace.make_selector(method, labels(rows, width), warmup=1, batch_size=256)
        logits = torch.zeros(256, width)
        for _ in range(2):
            for number, batch in enumerate(selector):
                selector.observe(batch, logits=logits[: len(batch)])
                if selector.loss_weight(batch) is not None:
                    selector.loss(logits[: len(batch)], logits[: len(batch)], batch)
                if number == 3:
                    break
            selector.end_epoch()
        state = selector.state_dict()
        restored = d2ace.make_selector(method, labels(rows, width), warmup=1, batch_size=256)
        restored.load_state_dict(state)
    print(json.dumps({"bytes": peak() - before}))


if __name__ == "__main__":
    main()
