"""A thousand labels train within four gigabytes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from problems import NAMES

resource = pytest.importorskip("resource", reason="peak memory is read where there is getrusage")

SCRIPT = """
import resource, sys, torch
from d2ace.models import make_model
torch.set_num_threads(1)
X, Y = torch.rand(128, 500), (torch.rand(128, 1000) < 0.02).float()
model = make_model(sys.argv[1], 500, Y)
optimiser = torch.optim.Adam(model.param_groups(1e-4))
model.loss(model(X), Y).total.backward()
optimiser.step()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak // 1024 if sys.platform == "darwin" else peak)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_labels_fit_into_four_gibibytes(name):
    command = [sys.executable, "-c", SCRIPT, name]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) / 2**20 < 4.0, f"{int(finished.stdout) / 2**20:.2f} GiB"
