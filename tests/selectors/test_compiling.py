"""Runs large enough to compile for: the same numbers within rounding, and no need of a compiler."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import d2ace
from d2ace.selectors._engine.compiling import pays

N, Q = 2_100, 1_000  # just above 2^21 pairs, so that not the size but the epochs decide
LONG, SHORT = 5_000, 50
GENERATOR = torch.Generator().manual_seed(0)
Y = torch.rand(N, Q, generator=GENERATOR) < 0.01
LOGITS = 4.0 * torch.randn(3, N, Q, generator=GENERATOR)

STORY = f"""
import sys, warnings
import torch
import d2ace
warnings.simplefilter("error")
generator = torch.Generator().manual_seed(0)
y = torch.rand({N}, {Q}, generator=generator) < 0.01
logits = 4.0 * torch.randn(3, {N}, {Q}, generator=generator)
"""


def observed(epochs, passes=3, **options):
    selector = d2ace.D2ACE(Y, epochs=epochs, warmup=0, batch_size=N, **options)
    for values in LOGITS[:passes]:
        selector.observe(torch.arange(N), logits=values)
    return selector


def elsewhere(script, *words, **environment):
    """Run a script in a process of its own, which must have nothing to say."""
    done = subprocess.run(
        [sys.executable, "-c", STORY + script, *map(str, words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def graphs():
    """How many functions torch has compiled in this process."""
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(("state", "preset"), [("full", "paper"), ("compact", "reference")])
def test_compiled_and_eager_agree_within_rounding(state, preset):
    before = graphs()
    eager = observed(SHORT, state=state, preset=preset)
    weights = eager.weights
    assert graphs() == before
    compiled = observed(LONG, state=state, preset=preset)
    for name, expected in weights.items():
        torch.testing.assert_close(compiled.weights[name], expected, rtol=2e-5, atol=1e-4)
    assert graphs() > before
    kept, expected = (s.state_dict()["memory"] for s in (compiled, eager))
    # A step of a logit is up to 0.00013 of a probability: 4.3 steps of an average of differences.
    step = 5.0 if state == "compact" else 1e-6
    for name, value in expected.items():
        torch.testing.assert_close(kept[name].double(), value.double(), rtol=0, atol=step)
    for name in ("uncertainty", "hardness"):
        torch.testing.assert_close(
            compiled.metric(name), eager.metric(name), rtol=1e-5, atol=1e-4 + (state == "compact")
        )


def test_ml_unc_compiled_and_eager_agree_within_rounding():
    torch.compiler.reset()  # D2ACE has the same function of a pair
    before = graphs()
    eager, compiled = (
        d2ace.MLUnc(Y, epochs=epochs, warmup=0, batch_size=N) for epochs in (SHORT, 4 * LONG)
    )
    for selector in (eager, compiled):
        for values in LOGITS:
            selector.observe(torch.arange(N), logits=values)
    expected = eager.weights["uncertainty"]
    assert graphs() == before
    torch.testing.assert_close(compiled.weights["uncertainty"], expected, rtol=2e-5, atol=1e-4)
    assert graphs() > before


def test_a_loss_that_is_a_probability():
    eager, compiled = (observed(epochs, hardness_loss="prob") for epochs in (SHORT, LONG))
    for name, expected in eager.weights.items():
        torch.testing.assert_close(compiled.weights[name], expected, rtol=2e-5, atol=1e-4)


def test_predictions_on_the_edge_are_finite_in_both():
    edge = torch.tensor([0.0, 1.0, 0.5, 1e-7, 1.0 - 6e-8]).repeat(N, Q // 5)
    for state in ("full", "compact"):
        selectors = [
            d2ace.D2ACE(Y, epochs=epochs, warmup=0, state=state) for epochs in (SHORT, LONG)
        ]
        for selector in selectors:
            selector.observe(torch.arange(N), probs=edge)
            selector.observe(torch.arange(N), probs=edge)
        eager, compiled = (selector.weights for selector in selectors)
        for name, expected in eager.items():
            torch.testing.assert_close(compiled[name], expected, rtol=2e-5, atol=1e-4)


def test_without_a_compiler_the_run_goes_on_in_silence(tmp_path):
    script = f"""
for state in ("full", "compact"):
    for epochs in ({SHORT}, {LONG}):
        s = d2ace.D2ACE(y, epochs=epochs, warmup=0, batch_size={N}, state=state)
        s.observe(torch.arange({N}), logits=logits[0])
        s.observe(torch.arange({N}), logits=logits[1])
        w = s.weights
        print(w["uncertainty"].sum().item().hex(), w["hardness"].sum().item().hex())
"""
    nowhere = str(tmp_path / "no-compiler")
    out = elsewhere(script, CXX=nowhere, CC=nowhere, TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    full_short, full_long, compact_short, compact_long = out.splitlines()
    assert (full_short, compact_short) == (full_long, compact_long)


def test_a_compiler_that_cannot_keep_its_files_is_none(tmp_path):
    (tmp_path / "taken").touch()  # by a file, so that it can be no folder
    script = f"""
s = d2ace.MLUnc(y, epochs={4 * LONG}, warmup=0, batch_size={N})
s.observe(torch.arange({N}), logits=logits[0])
print(torch.isfinite(s.probabilities).all().item())
"""
    assert elsewhere(script, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "taken")) == "True\n"


def test_a_state_goes_from_compiled_to_eager_and_on(tmp_path):
    whole = observed(LONG)
    half = observed(LONG, passes=2)
    torch.save(half.state_dict(), tmp_path / "state.pt")
    resumed = d2ace.D2ACE(Y, epochs=LONG, warmup=0, batch_size=N)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    resumed.observe(torch.arange(N), logits=LOGITS[2])
    assert torch.equal(resumed.probabilities, whole.probabilities)
    elsewhere(
        f"""
s = d2ace.D2ACE(y, epochs={LONG}, warmup=0, batch_size={N})
s.load_state_dict(torch.load(sys.argv[1] + "/state.pt", weights_only=True))
s.observe(torch.arange({N}), logits=logits[2])
torch.save(s.state_dict(), sys.argv[1] + "/eager.pt")
torch.save(s.weights, sys.argv[1] + "/weights.pt")
""",
        tmp_path,
        TORCH_COMPILE_DISABLE="1",
    )
    for name, expected in torch.load(tmp_path / "weights.pt", weights_only=True).items():
        torch.testing.assert_close(whole.weights[name], expected, rtol=2e-5, atol=1e-4)
    resumed.load_state_dict(torch.load(tmp_path / "eager.pt", weights_only=True))
    for name, expected in whole.weights.items():
        torch.testing.assert_close(resumed.weights[name], expected, rtol=2e-5, atol=1e-4)


def test_the_same_run_gives_the_same_numbers():
    assert torch.equal(observed(LONG).probabilities, observed(LONG).probabilities)


def test_only_the_size_of_the_run_decides():
    assert not pays(1 << 11, 1 << 10, 10**9, saved=4.0)  # published runs keep their bits
    assert not pays(35_000, 101, 100, saved=4.0)
    assert not pays(16_105, 983, 100, saved=4.0)
    assert pays(10**5, 10**3, 100, saved=4.0)
    assert not pays(10**5, 10**3, 100, saved=1.0)
    assert pays(10**6, 10**3, 100, saved=1.0)
