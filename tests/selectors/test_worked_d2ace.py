"""D2ACE: every number of the specification's worked example, to its printed precision."""

from __future__ import annotations

import pytest
import torch
from worked import VISITS, Y, equal, metric, visited

import d2ace
from d2ace.selectors import labels, probability, scores
from d2ace.selectors import reference as code


@pytest.fixture
def paper():
    return visited("d2ace", neighbors=1)


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
        paper.flush()
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
        equal(paper.neighborhood.toarray() > 0, "1 1 1 | 1 1 1 | 0 1 0 | 0 1 0")

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
        parts = paper.local_correlation
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
        without = visited("d2ace", correlation="none", **options)
        for name, phi in (("uncertainty", phi_u), ("hardness", phi_h)):
            equal(selector.weights[name] - without.weights[name], phi)

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
        parts = reference.local_correlation
        equal(code.cosines(parts, parts.masked(matrix)), rows)
        equal(code.enhancement(parts, matrix, reference.label_weights[name]), phi)
        equal(reference.weights[name], weights)
        equal(code.quantisation_index(reference.weights[name]), index)

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
