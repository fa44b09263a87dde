"""``d2ace demo`` shows what it measured, and is honest about noise."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from d2ace.benchmark.store.database import Store
from d2ace.cli import main
from d2ace.cli.demo import MethodRuns, verdict
from d2ace.evaluation import METRICS
from d2ace.training import RunResult


def runs(method: str, scores: list[float]) -> MethodRuns:
    results = [
        RunResult({}, {}, {}, 1, {}, dict.fromkeys(METRICS, score), {}, {}, 0.0, [])
        for score in scores
    ]
    return MethodRuns(method, results, np.ones((len(scores), 3)))


@pytest.mark.parametrize(
    ("ours", "theirs", "sentence"),
    [
        ([0.80, 0.81, 0.82], [0.70, 0.71, 0.72], "D2ACE is better here: Macro-AUC +0.1000"),
        ([0.70, 0.71, 0.72], [0.80, 0.81, 0.82], "D2ACE is worse here: Macro-AUC -0.1000"),
        ([0.80, 0.70, 0.75], [0.74, 0.76, 0.75], "D2ACE and Random are within noise here"),
        ([0.80], [0.70], "One seed says nothing about noise: Macro-AUC differs by +0.1000"),
    ],
)
def test_the_verdict_is_honest(ours: list[float], theirs: list[float], sentence: str) -> None:
    assert verdict(runs("D2ACE", ours), runs("Random", theirs)).startswith(sentence)


def test_a_demo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["demo", "--epochs", "6", "--seeds", "2", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as stop:
        main(words)
    text = capsys.readouterr().out
    assert stop.value.code == 0
    with pytest.raises(SystemExit) as stop:
        main([*words, "--json"])  # the runs are there already
    told = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0
    assert [each["method"] for each in told["methods"]] == ["Random", "D2ACE"]
    with Store(tmp_path / "runs.db") as store:
        stored = {(run.method, run.seed): run for run in store.runs()}
    for each in told["methods"]:
        for seed in range(2):
            result = stored[each["method"], seed].result
            assert result is not None
            assert each["test"]["macro_auc"][seed] == result["test"]["macro_auc"]
        assert f"{np.mean(each['test']['macro_auc']):.3f}" in text
    random, d2ace = (each["drawn"] for each in told["methods"])
    assert random == pytest.approx({"clean": 1.0, "wrong": 1.0, "noise": 1.0})
    assert d2ace != pytest.approx(random, abs=1e-3)
    assert " ".join(told["verdict"].split()[:3]) in text
    for path in map(Path, told["pictures"]):
        content = path.read_bytes()
        assert content[:8] == b"\x89PNG\r\n\x1a\n"
        assert min(struct.unpack(">II", content[16:24])) > 300
        assert str(path) in text.replace("\n", "")
