"""The other methods and the schedules: every number of the worked examples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from worked import VISITS, X, Y, equal, visited

import d2ace
from d2ace.selectors import correlation, neighbors, probability, scores
from d2ace.selectors.balance import selective_mask
from d2ace.selectors.labels import local_imbalance


class TestBaselines:
    def test_active(self):
        selector = visited("active")
        equal(selector.weights["variance"], ".276987 .254646 .155392 .161220")
        equal(probability.normalise(selector.weights["variance"]), "1 .816265 0 .047931")
        equal(probability.quantisation_index(selector.weights["variance"]), "0 1 4 4")
        equal(selector.probabilities, ".748375 .236657 .007484 .007484")

    def test_active_scores_label_by_label(self):
        printed = (
            ".100250 .100250 .076488 | .100250 .104365 .050031 | .050031 .076488 .028874 |"
            " .050031 .050031 .061158"
        )
        columns = []
        for label in range(3):
            selector = d2ace.Active(Y[:, [label]], dtype=torch.float64)
            for probs in VISITS:
                selector.observe(range(4), probs=probs[:, [label]])
            columns.append(selector.weights["variance"])
        equal(torch.stack(columns, dim=1), printed)

    def test_recent(self):
        selector = visited("recent")
        equal(selector.weights["entropy"], ".918296 1.836592 0 .918296")
        equal(probability.quantisation_index(selector.weights["entropy"]), "2 0 4 2")
        equal(selector.probabilities, ".082645 .826446 .008264 .082645")

    @pytest.mark.parametrize(
        ("metric_name", "second", "third", "p"),
        [
            (
                "dloss",
                "575.879013 334.659564 450.785081 339.840722",
                "458.179818 626.169439 281.657855 246.095990",
                ".266433 .404214 .171937 .157416",
            ),
            (
                "flip",
                "950.05 950.05 .05 .05",
                "997.502500 997.502500 .002500 950.002500",
                ".312939 .312939 .080735 .293387",
            ),
        ],
    )
    def test_dihcl(self, metric_name, second, third, p):
        selector = d2ace.DIHCL(Y, metric=metric_name, dtype=torch.float64, batch_size=4)
        selector.learning_rate = 1e-3
        selector.observe(range(4), probs=VISITS[0])
        selector.observe(range(4), probs=VISITS[1])
        equal(selector.weights["hardness"], second)
        selector.observe(range(4), probs=VISITS[2])
        equal(selector.weights["hardness"], third)
        selector.set_epoch(11)
        equal(selector.probabilities, p)

    def test_dihcl_counts_how_likely_a_row_was(self):
        class Drawn(d2ace.DIHCL):
            def distribution(self, epoch):
                return torch.tensor([0.2, 0.404214, 0.2, 0.195786], dtype=torch.float64)

        selector = Drawn(Y, dtype=torch.float64, batch_size=4)
        selector.learning_rate = 1e-3
        for probs in VISITS:
            selector.observe(range(4), probs=probs)
        selector.set_epoch(11)
        next(iter(selector))
        probs = VISITS[2][[1]].clone()
        probs[0, 0] *= np.exp(-0.5)  # the loss of a positive label rises by .5
        selector.observe([1], probs=probs)
        equal(selector.weights["hardness"][1], "325.088499")

    def test_balance_mask(self):
        keys = torch.tensor([[0.0, 0.0, 0.2], [0, 0, 0.9], [0, 0, 0.1], [0, 0, 0.5]])
        mask = selective_mask(Y.bool(), keys)
        equal(mask, "1 1 2 | 1 1 0 | 1 1 1 | 1 1 1")
        loss = scores.cross_entropy(VISITS[2], Y.bool())
        equal((mask * loss).mean(), ".509857")
        equal(loss.mean(), ".473037")

    def test_balance_sample(self):
        selector = visited("balance", mode="sample")
        equal(selector.weights["imbalance"], "4 2.666667 2.666667 2.666667")
        equal(selector.probabilities, ".970874 .009709 .009709 .009709")

    def test_hard_imb(self):
        y = torch.tensor([[1, 1, 1], [1, 1, 1], [1, 0, 0], [0, 1, 0]])
        around = neighbors.nearest(X, 2)
        assert [set(row) for row in around.tolist()] == [{1, 3}, {0, 3}, {3, 1}, {2, 1}]
        selector = visited("hard_imb", y=y, neighbors=2)
        equal(selector.label_weights["imbalance"], "1 1 1.5")
        equal(local_imbalance(selector.labels, around), "1.5 1.5 1 1")
        selector.flush()
        equal(selector.memory.loss, "3.324236 2.551046 2.091514 1.926892")
        equal(selector.weights["hardness"], "4.986355 3.826570 2.091514 1.926892")
        equal(probability.normalise(selector.weights["hardness"]), "1 .620919 .053807 0")
        equal(selector.probabilities, ".892857 .089286 .008929 .008929")

    def test_ml_unc(self):
        selector = visited("ml_unc")
        selector.flush()
        u = scores.uncertainty(selector.memory, selector.trade_off)
        equal((u * 5).floor(), "2 1 2 | 2 2 2 | 1 2 0 | 2 2 2")
        information, _ = correlation.mutual_information(u)
        equal(information[[0, 1, 0], [1, 2, 2]], ".084950 .084950 .562335")
        equal(selector.label_weights["uncertainty"], "1.647285 1.169899 1.647285")
        equal(selector.weights["uncertainty"], "1.930455 2.259829 1.482526 2.236365")
        equal(probability.normalise(selector.weights["uncertainty"]), ".576260 1 0 .969814")
        equal(selector.probabilities, ".070115 .701150 .007012 .221723")

    def test_ml_unc_reference(self):
        selector = visited("ml_unc", preset="reference")
        equal(selector.weights["uncertainty"], "3.9 4.5 2.7 4.5")

    def test_online_batch(self):
        selector = visited("online_batch")
        equal(selector.weights["loss"], "1.127012 1.703749 1.324259 1.521427")
        equal(probability.rank(selector.weights["loss"]), "4 1 3 2")
        equal(selector.probabilities, ".021841 .690679 .069068 .218412")

    def test_ada_boundary(self):
        selector = visited("ada_boundary")
        equal(selector.weights["closeness"], ".5 .7 .4 .786667")
        equal(probability.steps_below_one(selector.weights["closeness"]), "2 2 3 1")
        equal(selector.probabilities, ".182532 .182532 .057722 .577215")

    def test_info_batch(self):
        selector = visited("info_batch")
        equal(selector.weights["loss"].mean(), "1.419112")
        equal(selector.probabilities, ".166667 .333333 .166667 .333333")
        assert selector.rows_per_epoch == 3
        next(iter(selector))
        equal(selector.loss_weight(range(4)), "2 1 2 1")

    @pytest.mark.parametrize("name", list(d2ace.SELECTORS))
    def test_warmup_is_uniform(self, name):
        equal(visited(name, epoch=10).probabilities, ".25 .25 .25 .25")
        equal(visited("random").probabilities, ".25 .25 .25 .25")


class TestSchedules:
    @pytest.mark.parametrize(
        ("epochs", "warmup", "values"),
        [
            (100, 10, {11: 100, 12: 94.957241, 20: 62.770098, 50: 13.292158, 99: 1.053106, 100: 1}),
            (20, 5, {6: 100, 7: 71.968567, 13: 10, 20: 1}),
            (11, 10, {11: 100}),
        ],
    )
    def test_pressure(self, epochs, warmup, values):
        for epoch, value in values.items():
            got = probability.decaying_pressure(100.0, epoch, warmup, epochs)
            assert got == pytest.approx(value, abs=5e-7)
        assert probability.decaying_pressure(100.0, epochs + 5, warmup, epochs) == 1.0

    def test_mixing(self):
        tabular = {11: 0.7, 30: 0.7, 40: 0.6, 50: 0.5, 70: 0.3, 90: 0.3}
        for epoch, share in tabular.items():
            got = probability.stage_mix((0.7, 0.3), (30, 70), epoch)
            assert got == pytest.approx(share, abs=1e-12)
        for epoch, share in {6: 0.66, 10: 0.5, 15: 0.3, 20: 0.3}.items():
            got = probability.stage_mix((0.7, 0.3), (5, 15), epoch)
            assert got == pytest.approx(share, abs=1e-12)
        assert probability.stage_mix((0.7, 0.3), (30, 30), 29) == 0.7
        assert probability.stage_mix((0.7, 0.3), (30, 30), 30) == 0.3

    def test_scaled_schedule(self):
        selector = d2ace.D2ACE(Y, epochs=20, warmup=5, scale_schedule=True)
        assert selector.mix_epochs == (6.0, 14.0)
        assert selector.mixing(10) == pytest.approx(0.5)

    def test_loss_cap(self):
        loss = scores.cross_entropy(torch.zeros(1, dtype=torch.float64), torch.tensor([True]))
        equal(loss, "16.118096")
