"""The demo's network: square pictures, and digits wherever they stand."""

from __future__ import annotations

import pytest
import torch

from d2ace.models.digit_network import DigitNetwork


def test_the_place_of_a_digit_does_not_matter() -> None:
    model = DigitNetwork(40 * 40, torch.eye(3)).eval()
    digit = torch.rand(8, 8)
    here, there = torch.zeros(2, 40, 40)
    here[16:24, 12:20] = digit
    there[16:24, 16:24] = digit  # by twice the step of the first layer
    pictures = (here, there, torch.zeros(40, 40))
    logits = [model(picture.view(1, -1)).logits for picture in pictures]
    torch.testing.assert_close(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])  # the digit itself does
    assert logits[0].shape == (1, 3)


@pytest.mark.parametrize("pixels", [575, 16])
def test_other_pictures_are_refused(pixels: int) -> None:
    with pytest.raises(ValueError, match=f"got {pixels} features; take another model"):
        DigitNetwork(pixels, torch.eye(3))
