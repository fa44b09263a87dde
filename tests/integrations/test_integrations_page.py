"""The guide to frameworks keeps up with them: its code runs, top to bottom in one namespace."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec")
def test_code_runs(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = root / "docs" / "integrations.md"
    namespace: dict[str, Any] = {"__name__": "integrations"}
    blocks = re.findall(
        r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 5
    with torch.random.fork_rng(devices=[]):
        for block in blocks:
            exec(compile(block, str(page), "exec"), namespace)  # noqa: S102 - our own documentation
    assert "The loader draws from BatchSampler over RandomSampler" in capsys.readouterr().out


def test_a_framework_is_imported_by_its_own_module_only() -> None:
    program = (
        "import sys, d2ace.integrations, d2ace.integrations.distributed;"
        "print({'lightning', 'transformers', 'sklearn', 'torchvision'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
