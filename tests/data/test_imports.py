from __future__ import annotations

import subprocess
import sys

import d2ace.data


def test_every_public_name_is_there() -> None:
    assert sorted(d2ace.data.__all__) == d2ace.data.__all__
    for name in d2ace.data.__all__:
        assert callable(getattr(d2ace.data, name)), name


def test_import_is_light() -> None:
    code = "import sys, d2ace.data; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        *("torchvision", "sklearn", "pandas", "matplotlib", "joblib"),
        *("pooch", "requests", "urllib3", "rich", "typer", "defusedxml", "iterstrat", "arff"),
    }
    assert not heavy & set(said.stdout.split())
