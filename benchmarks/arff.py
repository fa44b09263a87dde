"""Speed of the ARFF reader beside liac-arff, and its behaviour under random damage.

    python benchmarks/arff.py                 the largest dense and the largest sparse file
    python benchmarks/arff.py --all           every ARFF file of the data folder
    python benchmarks/arff.py --fuzz 10000    mutations of real files: only DataError, never a hang

The data folder is D2ACE_DATA, or ../shared/data beside the project. Both readers start from the
same bytes in memory and take turns; times are CPU seconds, the best of the same number of runs.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# In the place of this folder, in which `import arff` would find this file.
sys.path[0] = str(PROJECT / "tests" / "data")


def cpu_seconds(actions: list[Callable[[], object]], runs: int) -> list[float]:
    """The best time of each action; they take turns, so that a busy moment meets them alike."""
    best = [float("inf")] * len(actions)
    for _ in range(runs):
        for i, action in enumerate(actions):
            start = time.process_time()
            action()
            best[i] = min(best[i], time.process_time() - start)
    return best


def content(path: Path) -> bytes:
    stored = path.read_bytes()
    return gzip.decompress(stored) if path.suffix == ".gz" else stored


def is_sparse(data: bytes) -> bool:
    return data[data.lower().index(b"@data") + 5 :].lstrip().startswith(b"{")


def compare(root: Path, everything: bool, runs: int) -> None:
    import arff

    from d2ace.data.readers.arff import read_arff
    from d2ace.data.readers.source import Source

    files = {path: content(path) for path in sorted(root.glob("*/*.arff*"))}
    chosen = list(files)
    if not everything:
        chosen = [
            max(
                (path for path in files if is_sparse(files[path]) == kind),
                key=lambda p: len(files[p]),
            )
            for kind in (False, True)
        ]
    print(f"{'file':<40} {'rows':>6} {'MB':>6} {'ours s':>8} {'liac s':>8} {'ratio':>6}")
    for path in chosen:
        data = files[path]
        sparse = is_sparse(data)
        source = Source(path.with_suffix("") if path.suffix == ".gz" else path, data)
        text = data.decode()
        form = arff.LOD if sparse else arff.DENSE

        def ours(source: Source = source) -> object:
            return read_arff([source], labels=1)

        def theirs(text: str = text, form: int = form) -> object:
            read = arff.loads(text, encode_nominal=True, return_type=form)["data"]
            return list(read) if form == arff.LOD else read

        mine, other = cpu_seconds([ours, theirs], runs)
        rows, name = read_arff([source], labels=1)[0].n, str(path.relative_to(root))
        kind = "sparse" if sparse else "dense"
        print(
            f"{name + ' ' + kind:<40} {rows:>6} {len(data) / 1e6:>6.2f} {mine:>8.3f} {other:>8.3f} "
            f"{other / mine:>6.1f}"
        )


def fuzz(root: Path, count: int, seed: int) -> None:
    import numpy as np
    from mutation import check, mutate, seeds

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    originals = seeds(root)
    lists = {name: next(root.glob(f"*/{name}.xml")).read_bytes() for name in originals}
    outcome: collections.Counter[str] = collections.Counter()
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            name = list(originals)[number % len(originals)]
            path = Path(folder) / f"{name}.arff"
            path.write_bytes(mutate(rng, originals[name]))
            listed = mutate(rng, lists[name]) if number % 5 == 0 else lists[name]
            path.with_suffix(".xml").write_bytes(listed)
            start = time.process_time()
            read = check(path, nominal="onehot" if number % 2 else "ordinal")
            slowest = max(slowest, time.process_time() - start)
            outcome["read" if read else "DataError"] += 1
    print(f"{count} mutations (seed {seed}): {dict(outcome)}, anything else: 0")
    print(f"slowest: {slowest:.3f} CPU s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every file, not only the largest")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--fuzz", type=int, metavar="N", help="mutate N times instead of timing")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    root = Path(os.environ.get("D2ACE_DATA") or PROJECT.parent / "shared" / "data")
    if not root.is_dir():
        sys.exit(f"no data folder at {root}; set D2ACE_DATA")
    if options.fuzz:
        fuzz(root, options.fuzz, options.seed)
    else:
        compare(root, options.all, options.runs)


if __name__ == "__main__":
    main()
