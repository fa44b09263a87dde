"""What the paper claims, where it shows it, and by which rule we call it reproduced.

Every claim names the steps whose runs it needs and the function that looks at them: `evidence.py`
has those of the comparison, `parts_evidence.py` and `case_evidence.py` those of D2ACE's parts.
While a step is not complete its claims stay open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import case_evidence
import evidence
import parts_evidence
from judging import Finding

from d2ace.report.collect import Laboratory

OPEN = "open"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper."""

    words: str
    where: str
    """What the paper shows it on."""
    rule: str
    """Reproduced if this holds."""
    steps: tuple[str, ...]
    """Whose runs it needs."""
    look: Callable[[Laboratory], Finding]
    on_dihcl: bool = False
    """Whether DIHCL alone keeps it from holding; the first part ran a form of it that was wrong."""


def judgements(laboratory: Laboratory, complete: set[str]) -> Iterator[tuple[Claim, Finding]]:
    """Every claim with its verdict; a claim is open unless all of its steps are complete."""
    for claim in CLAIMS:
        missing = [step for step in claim.steps if step not in complete]
        if missing:
            yield claim, (OPEN, f"waits for step {' and '.join(missing)}")
        else:
            yield claim, claim.look(laboratory)


CLAIMS = (
    Claim(
        "D2ACE has the best average rank",
        "13 datasets, three models, three metrics",
        "with CLIF (`reference`), DELA and PACA, on those of our datasets that the paper has, "
        "D2ACE is first of the eight wherever the paper's scores on these put it first (seven of "
        "nine tables); in part if in some of them",
        ("1", "3"),
        evidence.best_rank,
    ),
    Claim(
        "... significantly so",
        "61 of 63 comparisons, not corrected",
        "step 1, by the paper's test: in at least nine of ten comparisons with a rival in a metric",
        ("1",),
        evidence.significant,
    ),
    Claim(
        "Best mAP on images",
        "VOC2007, MS-COCO",
        "the same on these two datasets",
        (),
        evidence.images,
    ),
    Claim(
        "Random is the fastest",
        "bibtex",
        "selection takes the smallest share of time with Random, in every table of steps 1 and 3",
        ("1", "3"),
        evidence.random_is_fastest,
    ),
    Claim(
        "... followed by Balance",
        "bibtex",
        "the second smallest share with Balance, in every one of these tables; in part if in some",
        ("1", "3"),
        evidence.balance_is_second,
    ),
    Claim(
        "D2ACE is about as cheap as DIHCL and Active",
        "bibtex",
        "by that share, a whole run would take at most 5 % longer than with the costlier of the "
        "two, in every one of these tables",
        ("1", "3"),
        evidence.as_cheap_as_dihcl,
    ),
    Claim(
        "... and cheaper than ML-Unc",
        "bibtex",
        "selection takes a smaller share of time with D2ACE on cal500 and on enron, where labels "
        "are many",
        ("1",),
        evidence.cheaper_than_ml_unc,
    ),
    Claim(
        "... also on bibtex",
        "bibtex",
        "the same on bibtex, with CLIF (`paper`) and one fold",
        ("6",),
        evidence.cheaper_on_bibtex,
    ),
    Claim(
        "Methods by hardness converge fastest",
        "bibtex, by training loss",
        "DIHCL and Hard-Imb have the smallest medians of epochs until the mean loss of all "
        "training rows is what Random ends with, on most datasets of step 2",
        ("2",),
        evidence.hardness_learns_fastest,
    ),
    Claim(
        "... by validation score, too",
        "bibtex",
        "the same with epochs to Random's best validation score, on most datasets of step 1",
        ("1",),
        evidence.hardness_is_fastest,
    ),
    Claim(
        "D2ACE converges faster than methods by uncertainty",
        "bibtex",
        "its mean loss of all training rows is lower than with Active, Recent and ML-Unc, on most "
        "datasets of step 2, over epochs 11 to 30 and at the end; in part if in one of the two",
        ("2",),
        evidence.faster_than_uncertainty,
    ),
    Claim(
        "Methods by hardness overfit",
        "bibtex, after 50 epochs",
        "on most datasets of step 1 and on birds with 300 epochs, both lose at least 0.01 more "
        "than Random between best and last epoch",
        ("1", "why"),
        evidence.hardness_overfits,
    ),
    Claim(
        "Methods by hardness converge fastest, on bibtex",
        "bibtex, by training loss",
        "as above, on bibtex with CLIF (`paper`), one fold and the methods that step 6 has",
        ("6",),
        evidence.hardness_learns_fastest_on_bibtex,
        on_dihcl=True,
    ),
    Claim(
        "... but overfit",
        "bibtex, after 50 epochs",
        "both lose at least 0.01 more than Random between best and last epoch",
        ("6",),
        evidence.hardness_overfits_on_bibtex,
    ),
    Claim(
        "... and D2ACE converges faster than ML-Unc",
        "bibtex",
        "the same rule, on bibtex: its loss of all training rows is lower, early and at the end",
        ("6",),
        evidence.faster_than_uncertainty_on_bibtex,
    ),
    Claim(
        "One metric alone, or a fixed mixture, is worse",
        "bibtex, variants B to F",
        "each is clearly worse than A in Macro-AUC, on birds and on cal500; in part if on one of "
        "them; not if one is clearly better; else undecided",
        ("5",),
        parts_evidence.mixtures_lose,
    ),
    Claim(
        "Other weights and schedules are worse",
        "bibtex, variants G, I, J, K",
        "by the same rule",
        ("5",),
        parts_evidence.others_lose,
    ),
    Claim(
        "Correlation matters most",
        "bibtex",
        "of B to K, H loses most in Macro-AUC, and clearly, on birds and on cal500; in part if on "
        "one of them; not if another clearly loses more; else undecided",
        ("5",),
        parts_evidence.correlation_matters_most,
    ),
    Claim(
        "K is best around 6 to 7",
        "cal500, bibtex",
        "the best K is 6 or 7, clearly better than the worst, on birds and on cal500; in part if "
        "on one of them; else undecided",
        ("5",),
        parts_evidence.k_is_best_at_six_or_seven,
    ),
    Claim(
        "... and K = n much worse",
        "cal500, bibtex",
        "K = n is clearly worse than K = 6, by the same rule; not if clearly better",
        ("5",),
        parts_evidence.all_rows_are_too_many,
    ),
    Claim(
        "λ₂ is flat in 0.7 to 0.9",
        "cal500",
        "the 95 % intervals of all differences between 0.7, 0.8 and 0.9 in Macro-AUC and Macro-F1 "
        "lie within ±0.01, on birds and on cal500; in part if on one of them; undecided if on "
        "neither, but no difference is clearly larger",
        ("5",),
        parts_evidence.lambda2_is_flat,
    ),
    Claim(
        "Mixing from high to low is best",
        "cal500, bibtex",
        "the cells that the paper prefers (p start 0.7 to 0.9, p end 0.1 to 0.5) have a clearly "
        "better mean Macro-AUC than the others, on birds and on cal500; in part if on one of them; "
        "not if a clearly worse one; else undecided",
        ("5",),
        parts_evidence.high_to_low_is_best,
    ),
    Claim(
        "D2ACE dwells less on outliers early",
        "cal500, epoch 20",
        "in the recorded runs on cal500 and Corel5k, of the tenth of rows drawn most at epoch 20, "
        "the share with a high outlier score is smaller than with Hard-Imb by more than two "
        "standard errors; in part if on one of them; undecided if they differ by less",
        ("5",),
        case_evidence.fewer_outliers_early,
    ),
    Claim(
        "... and more on hard rows late",
        "cal500, epoch 80",
        "the same rule, on cal500: at epoch 80 the share with a high loss exceeds that of ML-Unc",
        ("5",),
        case_evidence.more_hard_rows_late,
    ),
    Claim(
        "Its label weights go against the AUC of labels",
        "Corel5k, two labels",
        "in the recorded run on Corel5k, both weights have a rank correlation with the validation "
        "AUC at the end, over all labels, that is negative with p < 0.05; in part if one has",
        ("5",),
        case_evidence.weights_go_against_auc,
    ),
)
