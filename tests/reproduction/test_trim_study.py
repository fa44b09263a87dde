"""The study of Trim: its tables come from its runs, and its parts do what its rules say."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from trim import forms, networks, tables
from trim.cells import Cell, Features, Noise, Part

PAGE = tables.HERE / "README.md"
NUMBER = re.compile(r"[+−]\d\.\d{4}")


def test_tables_are_those_of_the_runs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert tables.page(text) == text
    assert tables.details() == (tables.HERE / "tables.md").read_text(encoding="utf-8")


def test_numbers_in_the_words_stand_in_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    made = "".join(found[0] for found in tables.MARKED.finditer(text))
    words = tables.MARKED.sub("", text)
    assert NUMBER.findall(words), "the page says nothing"
    assert set(NUMBER.findall(words)) <= set(NUMBER.findall(made))


def test_gains_are_differences_within_a_cell() -> None:
    def row(dataset: str, fold: str, rule: str, score: float) -> dict[str, str]:
        cell = {"dataset": dataset, "regime": "noisy", "fold": fold, "seed": "0", "order": fold}
        return {**cell, "rule": rule, "macro_auc": str(score)}

    rows = [
        row("a", "0", "random", 0.5),
        row("a", "0", "Trim", 0.6),
        row("a", "1", "random", 0.8),
        row("a", "1", "Trim", 0.7),
        row("b", "0", "random", 0.1),
        row("b", "0", "Trim", 0.4),
    ]
    found = tables.gains(rows, "noisy", "Trim", "macro_auc")
    assert found == pytest.approx({"a": 0.0, "b": 0.3})


def test_signed_rank_of_seven_gains_is_the_exact_one() -> None:
    assert tables.signed_rank(dict.fromkeys("abcdefg", 0.1)) == pytest.approx(2 / 2**7)


def test_noise_counts_by_the_positives_of_each_label() -> None:
    Y = np.zeros((200, 2), np.float32)
    Y[:50, 0], Y[:10, 1] = 1, 1
    for noise, lost, gained in (
        (Noise(moved=0.2), (10, 2), (10, 2)),
        (Noise(missing=0.3), (15, 3), (0, 0)),
        (Noise(spurious=0.2), (0, 0), (10, 2)),
    ):
        noisy = noise.applied(Y, np.random.default_rng(0))
        assert tuple((noisy < Y).sum(0)) == lost
        assert tuple((noisy > Y).sum(0)) == gained


def cell() -> Cell:
    random = np.random.default_rng(3)
    X = random.normal(size=(160, 6)).astype(np.float32)
    Y = (X[:, :3] + random.normal(size=(160, 3)) > 0.5).astype(np.float32)
    parts = [Part(Features(X[rows]), Y[rows]) for rows in np.split(np.arange(160), [96, 128])]
    return Cell(*parts)


def trained(*rules: Any, epochs: int = 6) -> dict[str, tuple[networks.Network, int]]:
    data = cell()
    batches = partial(networks.shuffles, len(data.train.Y), 0)
    return networks.train(data, rules, seed=1, rate=3e-3, epochs=epochs, batches=batches)


def test_a_rule_is_random_until_it_starts() -> None:
    found = trained(
        forms.Form("late", lambda history: len(history) >= 4),
        forms.Form("never", lambda history: False),
    )
    random, (late, start) = found["random"][0], found["late"]
    assert found["never"] == (random, 0)
    assert start == 5
    assert late.history[:4] == random.history[:4]
    assert not torch.equal(late.parameters[0], random.parameters[0])


def test_a_copy_trains_as_its_original_does() -> None:
    found = trained(forms.Form("ones", lambda history: len(history) >= 2, weight=1.0))
    for one, other in zip(found["ones"][0].parameters, found["random"][0].parameters, strict=True):
        torch.testing.assert_close(one, other)


def test_the_form_is_that_of_the_library() -> None:
    from trim import shipped

    data = cell()
    found, batches = shipped.rules(data, 0, 12)
    twin = forms.Form("twin", forms.epoch_four)
    nets = networks.train(data, [*found, twin], seed=1, rate=3e-3, epochs=8, batches=batches)
    fixed, mine = nets["fixed start"][0], nets["twin"][0]
    assert nets["fixed start"][1] == nets["twin"][1] == 4
    # A fifth is rounded down by the one and to the nearest by the other: at most one pair apart.
    torch.testing.assert_close(fixed.parameters[3], mine.parameters[3], atol=2e-2, rtol=0)
