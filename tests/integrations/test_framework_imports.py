"""No framework is imported but by the module for it."""

from __future__ import annotations

import subprocess
import sys


def test_a_framework_is_imported_by_its_own_module_only() -> None:
    program = (
        "import sys, d2ace.integrations, d2ace.selectors.distributed;"
        "print({'lightning', 'transformers', 'sklearn', 'torchvision'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
