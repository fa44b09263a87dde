"""Every number of the specification's worked examples, to its printed precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import d2ace
from d2ace.selectors import correlation, labels, neighbors, probability, scores
from d2ace.selectors.balance import selective_mask

X = torch.tensor([[0, 0], [0.1, 0], [1, 1], [1, 0.8]], dtype=torch.float64)
Y = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
VISITS = torch.tensor(
    [
        [[0.60, 0.30, 0.40], [0.45, 0.55, 0.20], [0.30, 0.20, 0.10], [0.40, 0.50, 0.60]],
        [[0.70, 0.20, 0.55], [0.55, 0.60, 0.25], [0.25, 0.30, 0.10], [0.35, 0.45, 0.52]],
        [[0.80, 0.10, 0.45], [0.65, 0.40, 0.30], [0.20, 0.35, 0.05], [0.30, 0.40, 0.48]],
    ],
    dtype=torch.float64,
)


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.replace("|", " ").split()]


def equal(value, text: str) -> None:
    """``value`` equals the printed numbers in their order."""
    got = np.asarray(value, dtype=float).ravel()
    np.testing.assert_allclose(got, numbers(text), rtol=0, atol=5.01e-7)


def visited(name: str, *, epoch: int = 11, y=Y, x=X, **options):
    """A selector that has seen the three visits and is about to draw ``epoch``."""
    options = {"dtype": torch.float64, "batch_size": 4, **options}
    selector = d2ace.make_selector(name, y, x, **options)
    for probs in VISITS:
        selector.observe(range(4), probs=probs)
    selector.set_epoch(epoch)
    return selector


@pytest.fixture
def paper():
    return visited("d2ace", neighbors=1)


def metric(selector, name):
    selector._settle()
    return selector.metric(name).clone()


class TestPaperPreset:
    U = (
        ".410964 .284498 .558887 | .517034 .547975 .465645 | .385964 .504534 .155698 |"
        " .465645 .510475 .529423"
    )
    H = (
        ".223144 .105361 .071866 | .340319 .274887 .356675 | .223144 1.049822 .051293 |"
        " .356675 .510826 .196178"
    )

    def test_entropy(self):
        equal(
            scores.binary_entropy(VISITS[2]),
            ".721928 .468996 .992774 | .934068 .970951 .881291 | .721928 .934068 .286397 |"
            " .881291 .970951 .998846",
        )

    def test_window_differences(self):
        only_differences = visited("d2ace", neighbors=1, trade_off=0.0)
        equal(
            metric(only_differences, "uncertainty"),
            ".100000 .100000 .125000 | .100000 .125000 .050000 | .050000 .075000 .025000 |"
            " .050000 .050000 .060000",
        )

    def test_flip_average(self, paper):
        paper._settle()
        equal(paper.memory.flips, "0 0 .91 | .21 .70 0 | 0 0 0 | 0 0 .70")

    def test_loss(self):
        equal(
            scores.cross_entropy(VISITS[2], Y.bool()),
            ".223144 .105361 .798508 | .430783 .916291 .356675 | .223144 1.049822 .051293 |"
            " .356675 .510826 .653926",
        )

    def test_metrics(self, paper):
        equal(metric(paper, "uncertainty"), self.U)
        equal(metric(paper, "hardness"), self.H)

    def test_local_labels(self, paper):
        equal(paper._around.toarray() > 0, "1 1 1 | 1 1 1 | 0 1 0 | 0 1 0")

    @pytest.mark.parametrize(
        ("name", "mean", "deviation", "weight", "delta"),
        [
            (
                "uncertainty",
                ".444902 .461871 .427413",
                ".050643 .103752 .160454",
                "1.281168 1.326855 1.341695",
                "1.653858 2.014245 1.372828 1.984221",
            ),
            (
                "hardness",
                ".285820 .485224 .169003",
                ".062943 .356358 .121707",
                "1.190510 1.523166 1.156450",
                ".509245 1.236328 1.924026 1.429567",
            ),
        ],
    )
    def test_label_weights(self, paper, name, mean, deviation, weight, delta):
        matrix = metric(paper, name)
        mu, sd = labels.column_moments(matrix)
        equal(mu, mean)
        equal(sd, deviation)
        equal(paper.label_weights[name], weight)
        equal(labels.weighted_sum(matrix, labels.dynamic_weights(matrix, "exp")), delta)

    @pytest.mark.parametrize(
        ("name", "norms", "cosines", "local", "enhanced", "phi"),
        [
            (
                "uncertainty",
                ".660466 .744870 .558887",
                "1 .575902 .622233 .575902 1 0 .622233 0 1",
                "2.198136 1.622233 2.198136 1.575902 1",  # Z C at the ones of Y
                ".903355 .906645 1.136511 .863556 .504534",
                "1.810000 2.000067 .504534 0",
            ),
            (
                "hardness",
                ".406952 1.085214 .071866",
                "1 .211827 .548329 .211827 1 0 .548329 0 1",
                "1.760156 1.548329 1.760156 1.211827 1",
                ".392768 .111272 .599014 .333116 1.049822",
                ".504039 .932130 1.049822 0",
            ),
        ],
    )
    def test_correlation(self, paper, name, norms, cosines, local, enhanced, phi):
        matrix = metric(paper, name)
        parts = paper._correlation
        masked = parts.masked(matrix)
        c = parts.cosines(masked)
        equal((Y * matrix).norm(dim=0), norms)
        equal(c, cosines)
        equal(parts.local_sums(c), local)
        equal(masked * parts.local_sums(c), enhanced)
        equal(parts.enhancement(matrix), phi)

    def test_weights_and_index(self, paper):
        w = paper.weights
        equal(w["uncertainty"], "3.463858 4.014312 1.877362 1.984221")
        equal(w["hardness"], "1.013284 2.168458 2.973848 1.429567")
        equal(probability.normalise(w["uncertainty"]), ".742411 1 0 .050005")
        equal(probability.normalise(w["hardness"]), "0 .589205 1 .212328")
        equal(probability.quantisation_index(w["uncertainty"]), "2 0 4 4")
        equal(probability.quantisation_index(w["hardness"]), "4 2 0 4")

    @pytest.mark.parametrize(
        ("epoch", "mix", "p"),
        [
            (11, (1, 1), ".089286 .892857 .008929 .008929"),
            (11, (0, 0), ".008929 .089286 .892857 .008929"),
            (50, (1, 1), ".192515 .701878 .052804 .052804"),
            (50, (0, 0), ".052804 .192515 .701878 .052804"),
            (11, (0.7, 0.3), ".065179 .651786 .274107 .008929"),
            (50, (0.7, 0.3), ".122659 .447196 .377341 .052804"),
        ],
    )
    def test_probabilities(self, epoch, mix, p):
        equal(visited("d2ace", epoch=epoch, neighbors=1, mix=mix).probabilities, p)

    def test_importance_weights(self):
        selector = visited("d2ace", neighbors=1, importance_weighting=True)
        next(iter(selector))
        equal(selector.loss_weight(range(4)), "3.835616 .383562 .912052 28")

    @pytest.mark.parametrize(
        ("options", "phi_u", "phi_h"),
        [
            (
                {"neighbors": 0},
                "1.573325 1.678351 .504534 0",
                ".456771 .745523 1.049822 0",
            ),
            (
                {"neighbors": 1, "include_self": False},
                ".995397 1.154330 0 0",
                ".309817 .585154 0 0",
            ),
            (
                {"neighbors": 3},
                "1.810000 2.000067 .795096 0",
                ".504039 .932130 1.272203 0",
            ),
        ],
    )
    def test_other_neighbourhoods(self, options, phi_u, phi_h):
        selector = visited("d2ace", **options)
        equal(selector._correlation.enhancement(metric(selector, "uncertainty")), phi_u)
        equal(selector._correlation.enhancement(metric(selector, "hardness")), phi_h)

    def test_window_forgets(self):
        selector = d2ace.D2ACE([[1]], trade_off=0.0, dtype=torch.float64)
        for p in (0.1, 0.9, 0.1, 0.9, 0.1, 0.2, 0.2):
            selector.observe([0], probs=[[p]])
        equal(metric(selector, "uncertainty"), ".425")


class TestAblations:
    FULL = "3.463858 4.014312 1.877362 1.984221", "1.013284 2.168458 2.973848 1.429567"
    NO_WEIGHTS = "3.064349 3.530721 1.550731 1.505544", ".904409 1.904010 2.374081 1.063679"
    NO_CORRELATION = "1.653858 2.014245 1.372828 1.984221", ".509245 1.236328 1.924026 1.429567"
    LINEAR = "2.156561 2.420016 .788618 .415357", ".597732 1.158989 1.537946 .305664"

    @pytest.mark.parametrize(
        ("options", "weights", "p"),
        [
            pytest.param({}, FULL, ".065179 .651786 .274107 .008929", id="A"),
            pytest.param({"mix": (0, 0)}, FULL, ".008929 .089286 .892857 .008929", id="B"),
            pytest.param({"mix": (1, 1)}, FULL, ".089286 .892857 .008929 .008929", id="C"),
            pytest.param({"mix": (0.3, 0.3)}, FULL, ".033036 .330357 .627679 .008929", id="D"),
            pytest.param({"mix": (0.5, 0.5)}, FULL, ".049107 .491071 .450893 .008929", id="E"),
            pytest.param({"mix": (0.7, 0.7)}, FULL, ".065179 .651786 .274107 .008929", id="F"),
            pytest.param(
                {"label_weight": "none"}, NO_WEIGHTS, ".168339 .550649 .273096 .007917", id="G"
            ),
            pytest.param(
                {"correlation": "none"}, NO_CORRELATION, ".018782 .540314 .253089 .187815", id="H"
            ),
            pytest.param(
                {"label_weight": "linear"}, LINEAR, ".168339 .550649 .273096 .007917", id="I"
            ),
        ],
    )
    def test_variant(self, options, weights, p):
        selector = visited("d2ace", neighbors=1, **options)
        equal(selector.weights["uncertainty"], weights[0])
        equal(selector.weights["hardness"], weights[1])
        equal(selector.probabilities, p)

    def test_exponential_instance_weights(self):
        selector = visited("d2ace", neighbors=1, weight_transform="exp")
        equal(probability.normalise(selector.weights["uncertainty"]), ".520046 1 0 .015090")
        equal(probability.normalise(selector.weights["hardness"]), "0 .356293 1 .084596")
        equal(selector.probabilities, ".065353 .634021 .291523 .009103")

    def test_exponential_mixing(self):
        selector = visited("d2ace", epoch=50, neighbors=1, mix_schedule="exp")
        equal(selector.probabilities, ".116827 .425934 .404435 .052804")
        for epoch, share in ((40, ".566375"), (50, ".458258"), (60, ".370779")):
            equal(selector.mixing(epoch), share)


class TestReferencePreset:
    @pytest.fixture
    def reference(self):
        return visited("d2ace", neighbors=1, preset="reference")

    def test_metrics(self, reference):
        equal(metric(reference, "uncertainty"), TestPaperPreset.U)
        equal(
            reference.memory.flips,
            ".0910 .0910 .1015 | .0910 .1505 .0455 | .0455 .0560 .0350 | .0455 .0455 .0448",
        )
        equal(
            metric(reference, "hardness"),
            "1.090800 .999900 1.392675 | 1.227150 1.359200 1.240850 | 1.145400 1.557600 1.013250"
            " | 1.240850 1.336300 1.413696",
        )

    def test_label_weights(self, reference):
        equal(reference.label_weights["uncertainty"], "1.281168 1.326855 1.341695")
        equal(reference.label_weights["hardness"], "1.856441 2.131430 2.039181")

    @pytest.mark.parametrize(
        ("name", "rows", "phi", "weights", "index"),
        [
            (
                "uncertainty",
                ".454931 .261996 .283073 | .365443 .634557 0 | .383566 0 .616434",
                "1.276370 1.389491 .424800 0",
                "2.930228 3.403736 1.797628 1.984221",
                "2 1 4 4",
            ),
            (
                "hardness",
                ".463870 .227952 .308178 | .329496 .670504 0 | .399170 0 .600830",
                "4.864922 5.175171 2.226018 0",
                "11.861060 12.880659 9.738500 8.034576",
                "1 1 3 4",
            ),
        ],
    )
    def test_correlation_and_weights(self, reference, name, rows, phi, weights, index):
        matrix = metric(reference, name)
        parts = reference._correlation
        equal(parts.cosines(parts.masked(matrix), reference=True), rows)
        equal(parts.enhancement(matrix, reference.label_weights[name]), phi)
        equal(reference.weights[name], weights)
        equal(probability.quantisation_index(reference.weights[name], reference=True), index)

    @pytest.mark.parametrize(
        ("epoch", "mix", "p"),
        [
            (11, (1, 1), ".295081 .496265 .104327 .104327"),
            (11, (0, 0), ".390049 .390049 .137903 .081998"),
            (11, (0.7, 0.3), ".323572 .464400 .114400 .097628"),
            (51, (0.7, 0.3), ".316136 .359799 .175387 .148678"),
        ],
    )
    def test_probabilities(self, epoch, mix, p):
        selector = visited("d2ace", epoch=epoch, neighbors=1, preset="reference", mix=mix)
        equal(selector.probabilities, p)

    def test_schedules(self, reference):
        equal(reference.selection_pressure(11), "8")
        equal(reference.selection_pressure(51), "3.249010")
        equal([reference.mixing(11), reference.mixing(51)], ".70 .44")


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
        selector = d2ace.DIHCL(Y, dtype=torch.float64, batch_size=4)
        selector.learning_rate = 1e-3
        for probs in VISITS:
            selector.observe(range(4), probs=probs)
        selector.set_epoch(11)
        next(iter(selector))
        selector._drawn = torch.tensor([0.2, 0.404214, 0.2, 0.195786], dtype=torch.float64)
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
        equal(selector._imbalance, "1.5 1.5 1 1")
        selector._settle()
        equal(selector.memory.loss, "3.324236 2.551046 2.091514 1.926892")
        equal(selector.weights["hardness"], "4.986355 3.826570 2.091514 1.926892")
        equal(probability.normalise(selector.weights["hardness"]), "1 .620919 .053807 0")
        equal(selector.probabilities, ".892857 .089286 .008929 .008929")

    def test_ml_unc(self):
        selector = visited("ml_unc")
        selector._settle()
        u = selector._uncertainty()
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
